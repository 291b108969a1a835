#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> common{.name = "common"};
constexpr muster::backend<op, handler> another{.name = "common", .handlers = {{op::store, store_one}}};
// expected-error-re@*:* {{each_backend_name_is_unique<{{.*}}{"common"}>::value{{.*}}two backends have one name (there is one 'common')}}
constexpr auto registry = muster::compose<operations, common, another>();
