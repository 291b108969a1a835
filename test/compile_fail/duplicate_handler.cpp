#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> pallas{.name = "pallas",
                                              .handlers = {{op::load, load_one}, {op::dot, dot_one}, {op::load, load_two}}};
// expected-error-re@*:* {{each_operation_is_registered_once<{{.*}}{"pallas"}, {{.*}}{"load"}>::value{{.*}}a backend registers an operation twice}}
constexpr auto registry = muster::compose<operations, pallas>();
