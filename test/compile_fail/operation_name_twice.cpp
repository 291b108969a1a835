#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "load"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> metal{.name = "metal"};
// expected-error-re@*:* {{each_operation_name_is_unique<{{.*}}{"load"}>::value{{.*}}two operations have one name}}
constexpr auto registry = muster::compose<operations, metal>();
