// Writes down all that the built-in registry and its code generators say. run.py compiles this file with other orders of
// imports in the place of the one below, and under other names of the function.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include "programs.hpp"

import muster; // replaced by run.py

#ifndef DUMP
#define DUMP dump
#endif

namespace {

/// Which cell's handler each cell has, for all: the first cell with that address. Addresses themselves differ between programs.
void write_cells(std::string& out) {
  constexpr auto registry = muster::builtin_registry();
  std::map<void*, std::string> first;
  for (std::size_t b = 0; b < registry.backends().size(); ++b)
    for (const auto& operation : registry.operations()) {
      const std::string_view backend = registry.backends()[b].name;
      const auto cell = registry.cell(static_cast<muster::backend_id>(b), operation.id);
      const std::string name = std::string(backend) + "." + std::string(operation.name);
      void* address = nullptr;
      static_assert(sizeof address == sizeof cell.handler);
      std::memcpy(&address, &cell.handler, sizeof address);
      out += name + " " + std::string(muster::name(cell.provenance));
      if (address != nullptr) out += " " + first.try_emplace(address, name).first->second;
      if (registry.find(backend, operation.name) != cell.handler || registry.find(backend, operation.id) != cell.handler ||
          (!operation.alias.empty() && registry.find(backend, operation.alias) != cell.handler))
        out += " FOUND OTHERWISE BY NAME";
      out += "\n";
    }
}

/// The kernel for each backend, or the message.
void write_kernels(std::string& out, const char* text) {
  const muster::device_ir::document d = muster::device_ir::parse(text, "document");
  for (const auto& backend : muster::builtin_registry().backends()) {
    out += "--- " + std::string(backend.name) + "\n";
    try {
      muster::builtin_generator().generate(d, backend.name, out);
    } catch (const muster::Error& error) {
      out += std::string(error.what()) + "\n";
    }
  }
}

} // namespace

std::string DUMP() {
  std::string out;
  write_cells(out);
  for (const char* text : documents) write_kernels(out, text);
  return out;
}
