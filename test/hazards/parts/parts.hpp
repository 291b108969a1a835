#pragma once
#include <cstdint>
import muster.registry;

// Two backends, each put together from the tables of several translation units, composed in a header that all of them include.

enum class op : std::uint16_t { load, store, sum, amax };
using handler = int();

int load_a();
int store_a();
int sum_a();
int amax_a();
int load_b();
int store_b();
int sum_b();

inline constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::sum, "sum"}, {op::amax, "amax"}}};
// clang-format off
inline constexpr muster::handler_row<op, handler> memory_a[] = {{op::load, load_a}, {op::store, store_a}}, memory_b[] = {{op::load, load_b}, {op::store, store_b}};
// clang-format on
inline constexpr muster::handler_row<op, handler> reductions_a[] = {{op::sum, sum_a}, {op::amax, amax_a}, {op::load, load_a}};
inline constexpr muster::handler_row<op, handler> reductions_b[] = {{op::sum, sum_b}};
inline constexpr muster::backend<op, handler> alpha{.name = "alpha", .parts = muster::merged<memory_a, reductions_a>};
inline constexpr muster::backend<op, handler> beta{.name = "beta", .parts = muster::merged<reductions_b, memory_b>};
inline constexpr auto registry = muster::compose<operations, alpha, beta>();

/// What all handlers return, digit by digit, 0 for a missing one.
inline std::uint64_t read_all() {
  std::uint64_t digits = 0;
  for (const auto& backend : registry.backends())
    for (const auto& operation : registry.operations()) {
      handler* const found = registry.find(backend.name, operation.name);
      digits = digits * 10 + static_cast<std::uint64_t>(found != nullptr ? found() : 0);
    }
  return digits;
}

std::uint64_t read_from_memory();
std::uint64_t read_from_reductions();
const void* table_seen_from_memory();
