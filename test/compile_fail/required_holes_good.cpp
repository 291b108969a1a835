#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

// expected-no-diagnostics
constexpr muster::operation_set<op> operations{{{op::load, "load", muster::operation_family::api, "", true},
                                                {op::store, "store"},
                                                {op::dot, "dot", muster::operation_family::api, "", true}}};
constexpr muster::backend<op, handler> metal{.name = "metal", .handlers = {{op::store, store_one}}, .experimental = true};
constexpr auto registry = muster::compose<operations, metal>();
