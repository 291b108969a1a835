// A shared object with all of muster inside.
#include <string>
#include "programs.hpp"
import muster;

extern "C" {
/// The dump, until the next call.
__attribute__((visibility("default"))) const char* plugin_dump() {
  static std::string last; // NOLINT: a plugin's own business, not muster's
  last = dump();
  return last.c_str();
}
/// Throws what a lookup throws, across the boundary.
__attribute__((visibility("default"))) void plugin_look_up(const char* backend, const char* operation) {
  (void)muster::builtin_registry().at(backend, operation);
}
}
