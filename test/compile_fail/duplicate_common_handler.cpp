#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> common{.name = "common", .handlers = {{op::store, store_one}, {op::store, load_one}}};
constexpr muster::backend<op, handler> cute{.name = "cute"};
// expected-error-re@*:* {{each_operation_is_registered_once<{{.*}}{"common"}, {{.*}}{"store"}>::value}}
constexpr auto registry = muster::compose<operations, common, cute>();
