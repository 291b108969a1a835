#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> a{.name = "first", .codegen_name = "second"};
constexpr muster::backend<op, handler> b{.name = "second", .codegen_name = "first"};
// expected-error-re@*:* {{codegen_names_form_no_cycle<{{.*}}{"first"}>::value{{.*}}a backend inherits from itself through its codegen name}}
constexpr auto registry = muster::compose<operations, a, b>();
