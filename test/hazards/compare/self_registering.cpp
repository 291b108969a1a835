#include <map>
#include <string>
#include <utility>
#include "registry.hpp"

namespace {

/// Function-local, so that it is there for the first registration, whatever the order of initialisers.
std::map<std::pair<std::string, op>, handler*>& table() {
  static std::map<std::pair<std::string, op>, handler*> all;
  return all;
}

} // namespace

registration::registration(const char* backend, op o, handler* h) { table()[{backend, o}] = h; }

handler* find(std::string_view backend, op o) {
  const auto found = table().find({std::string(backend), o});
  return found == table().end() ? nullptr : found->second;
}
