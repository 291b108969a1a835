#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> metal{.name = "metal"};
// expected-error-re@*:* {{operation_ids_are_dense<{{.*}}{"dot"}, 2>::value}}
constexpr auto registry = muster::compose<operations, metal>();
