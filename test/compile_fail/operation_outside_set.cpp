#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> metal{.name = "metal", .handlers = {{static_cast<op>(7), load_one}}};
// expected-error-re@*:* {{each_operation_is_in_the_set<{{.*}}{"metal"}, 7>::value{{.*}}a backend has a handler for an operation that is not in the set}}
constexpr auto registry = muster::compose<operations, metal>();
