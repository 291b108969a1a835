#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> nameless{};
// expected-error-re@*:* {{each_backend_has_a_name_without_blanks<{{.*}}{"(empty)"}>::value{{.*}}a backend's name is empty or has blanks}}
constexpr auto registry = muster::compose<operations, nameless>();
