#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> metal{.name = "metal", .handlers = {{op::load, nullptr}}};
// expected-error-re@*:* {{each_handler_is_a_function<{{.*}}{"metal"}, {{.*}}{"load"}>::value{{.*}}a handler is null}}
constexpr auto registry = muster::compose<operations, metal>();
