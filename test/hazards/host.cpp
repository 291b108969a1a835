// host gone|kept FLAG:PLUGIN… : loads plugins (FLAG l: RTLD_LOCAL, g: RTLD_GLOBAL), compares what they say with the first one's, catches what they
// throw by type and by base, and unloads them one by one, looking at the others after each.
// gone: each must be unloaded at once; kept: the loader may keep one to which another is bound.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>
#include <dlfcn.h>
import muster.error;

namespace {

struct plugin {
  std::string path;
  void* handle = nullptr;
  const char* (*dump)() = nullptr;
  void (*look_up)(const char*, const char*) = nullptr;
};

bool is_mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(path)) return true;
  return false;
}

const char* fault(const plugin& p, const std::string& expected) {
  if (p.dump() != expected) return "its table differs";
  try {
    p.look_up("metal", "load");
    return "nothing was thrown";
  } catch (const muster::BackendImplementationMissing& missing) {
    if (missing.backend() != "metal" || missing.operation() != "load") return "the exception's data differ";
    if (missing.what() != std::string("Backend 'metal' is missing required implementation: codegen for API function load"))
      return "the exception's message differs";
  } catch (...) {
    return "the exception was not caught by its type";
  }
  try {
    p.look_up("metall", "load");
    return "nothing was thrown";
  } catch (const muster::Error&) {
  } catch (...) {
    return "the exception was not caught by its base";
  }
  return nullptr;
}

int check(const std::vector<plugin>& plugins, std::size_t from, const std::string& expected) {
  for (std::size_t i = from; i < plugins.size(); ++i)
    if (const char* const what = fault(plugins[i], expected)) return std::printf("%s: %s\n", plugins[i].path.c_str(), what), 1;
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  const bool must_go = argc > 1 && std::string(argv[1]) == "gone";
  std::vector<plugin> plugins;
  for (int i = 2; i < argc; ++i) {
    plugin p{.path = argv[i] + 2};
    p.handle = dlopen(p.path.c_str(), RTLD_NOW | (argv[i][0] == 'g' ? RTLD_GLOBAL : RTLD_LOCAL));
    if (p.handle == nullptr) return std::printf("%s\n", dlerror()), 1;
    p.dump = reinterpret_cast<const char* (*)()>(dlsym(p.handle, "plugin_dump"));
    p.look_up = reinterpret_cast<void (*)(const char*, const char*)>(dlsym(p.handle, "plugin_look_up"));
    if (p.dump == nullptr || p.look_up == nullptr) return std::puts("a symbol is missing"), 1;
    plugins.push_back(p);
  }
  const std::string expected = plugins.at(0).dump();
  if (check(plugins, 0, expected) != 0) return 1;
  for (std::size_t i = 0; i < plugins.size(); ++i) {
    dlclose(plugins[i].handle);
    if (must_go && is_mapped(plugins[i].path)) return std::printf("%s is still loaded\n", plugins[i].path.c_str()), 1;
    if (check(plugins, i + 1, expected) != 0) return 1;
  }
  std::fputs(expected.c_str(), stdout);
}
