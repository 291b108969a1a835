#include <cstdio>
#include <string>
#include <dlfcn.h>
import muster.error;

/// Loads two copies of a plugin, each with a library and a table of its own, and catches what they throw by its type.
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    void* const plugin = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    const auto call = reinterpret_cast<int (*)(const char*)>(dlsym(plugin, "call"));
    if (call == nullptr || call("load") != 7) return 2;
    try {
      call("dot");
      return 3;
    } catch (const muster::BackendImplementationMissing& missing) {
      if (missing.backend() != "plugin" || missing.operation() != "dot") return 4;
      if (missing.what() != std::string("Backend 'plugin' is missing required implementation: codegen for API function dot")) return 5;
    }
    try {
      call("dto");
      return 6;
    } catch (const muster::Error&) {
    }
  }
  return argc > 2 ? 0 : 7;
}
