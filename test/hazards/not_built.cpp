// Prints what each built-in backend says, and two that do not exist.
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
import muster;

int main() {
  const auto registry = muster::builtin_registry();
  const auto say = [&](std::string_view name) {
    try {
      std::printf("%s: built, number %u\n", std::string(name).c_str(), static_cast<unsigned>(registry.backend_named(name)));
    } catch (const muster::BackendNotBuilt& error) {
      std::printf("not built: %s\n", error.what());
    } catch (const muster::UnknownBackend& error) {
      std::printf("unknown: %s\n", error.what());
    }
  };
  for (const std::string_view name : muster::builtin_backends) say(name);
  say("vulkan");
  std::size_t filled = 0;
  for (const auto& entry : registry.coverage()) filled += entry.provenance != muster::provenance::missing ? 1 : 0;
  std::printf("%zu backends, %zu cells filled\n", registry.backends().size(), filled);
}
