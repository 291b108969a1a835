#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include "commands.hpp"
import muster.error;
import muster.registry;
import muster.operations;
import muster.codegen;
import muster.builtin;

namespace muster::tool {

namespace {

/// The matrix of operations and backends, ready to print.
struct matrix {
  std::vector<std::string> backends;
  std::vector<backend_id> ids;
  std::vector<std::vector<provenance>> rows; ///< by operation, by backend
  std::vector<std::size_t> covered;          ///< by backend
};

matrix make_matrix(std::string_view only) {
  const auto registry = builtin_registry();
  matrix m;
  if (!only.empty()) (void)registry.backend_named(only);
  for (const auto& b : registry.backends()) {
    if (!only.empty() && b.name != only) continue;
    m.backends.emplace_back(b.name);
    m.ids.push_back(registry.backend_named(b.name));
  }
  m.covered.assign(m.backends.size(), 0);
  for (const operation_information& o : operation_table) {
    std::vector<provenance> row;
    for (std::size_t b = 0; b < m.ids.size(); ++b) {
      row.push_back(registry.cell(m.ids[b], o.id).provenance);
      if (row.back() != provenance::missing) ++m.covered[b];
    }
    m.rows.push_back(std::move(row));
  }
  return m;
}

std::string_view word(provenance p) { return p == provenance::missing ? std::string_view("-") : name(p); }

void print_table(const matrix& m) {
  std::size_t width = 0;
  for (const operation_information& o : operation_table) width = std::max(width, o.name.size());
  fmt::print("{:<{}}", "operation", width);
  for (const std::string& b : m.backends) fmt::print("  {:<9}", b);
  fmt::print("\n");
  for (std::size_t i = 0; i < m.rows.size(); ++i) {
    fmt::print("{:<{}}", operation_table[i].name, width);
    for (const provenance p : m.rows[i]) fmt::print("  {:<9}", word(p));
    fmt::print("\n");
  }
  fmt::print("{:<{}}", fmt::format("{} operations", m.rows.size()), width);
  for (const std::size_t n : m.covered) fmt::print("  {:<9}", n);
  fmt::print("\n");
}

/// A summary by category: how many operations of each a backend implements. The README's table.
void print_markdown(const matrix& m) {
  fmt::print("| operations | {} |\n|---|{}\n", fmt::join(m.backends, " | "), [&] {
    std::string dashes;
    for (std::size_t i = 0; i < m.backends.size(); ++i) dashes += "---|";
    return dashes;
  }());
  std::vector<operation_category> order;
  for (const operation_information& o : operation_table)
    if (std::find(order.begin(), order.end(), o.category) == order.end()) order.push_back(o.category);
  for (const operation_category c : order) {
    std::size_t all = 0;
    std::vector<std::size_t> counts(m.backends.size(), 0);
    for (std::size_t i = 0; i < m.rows.size(); ++i) {
      if (operation_table[i].category != c) continue;
      ++all;
      for (std::size_t b = 0; b < counts.size(); ++b) counts[b] += m.rows[i][b] != provenance::missing ? 1 : 0;
    }
    std::string line = fmt::format("| {} ({}) |", name(c), all);
    for (const std::size_t n : counts) line += fmt::format(" {} |", n);
    fmt::print("{}\n", line);
  }
  fmt::print("| **all ({})** | **{}** |\n", m.rows.size(), fmt::join(m.covered, "** | **"));
}

void print_json(const matrix& m) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < m.rows.size(); ++i) {
    nlohmann::ordered_json row;
    row["operation"] = operation_table[i].name;
    row["family"] = operation_table[i].family == operation_family::api ? "api" : "aten";
    row["category"] = name(operation_table[i].category);
    for (std::size_t b = 0; b < m.backends.size(); ++b) row["backends"][m.backends[b]] = name(m.rows[i][b]);
    all.push_back(std::move(row));
  }
  fmt::print("{}\n", all.dump(2));
}

} // namespace

int backends() {
  for (const auto& b : builtin_registry().backends()) {
    const std::string_view handlers_of = b.codegen_name.empty() ? b.name : b.codegen_name;
    fmt::print("{:<8} codegen {:<8} {:<12} reserved [{}]\n", b.name, handlers_of, b.experimental ? "experimental" : "stable",
               fmt::join(b.reserved_launch_parameters, ", "));
  }
  return success;
}

int coverage(const coverage_options& options) {
  const matrix m = make_matrix(options.backend);
  if (options.format == "json") print_json(m);
  else if (options.format == "markdown") print_markdown(m);
  else print_table(m);
  return success;
}

} // namespace muster::tool
