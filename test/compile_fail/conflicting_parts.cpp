#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
constexpr muster::handler_row<op, handler> memory[] = {{op::load, load_one}};
constexpr muster::handler_row<op, handler> other[] = {{op::load, load_two}};
// expected-error@*:* {{tables_have_one_handler_an_operation<memory, other, 0>::value}}
constexpr muster::backend<op, handler> cute{.name = "cute", .parts = muster::merged<memory, other>};
// expected-error-re@*:* {{each_operation_is_registered_once<{{.*}}{"cute"}, {{.*}}{"load"}>::value}}
constexpr auto registry = muster::compose<operations, cute>();
