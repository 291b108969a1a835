#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> tileir{.name = "tileir", .codegen_name = "tritn"};
// expected-error-re@*:* {{each_codegen_name_is_a_backend<{{.*}}{"tileir"}, {{.*}}{"tritn"}>::value{{.*}}a backend's codegen name is no backend of this composition}}
constexpr auto registry = muster::compose<operations, tileir>();
