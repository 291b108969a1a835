#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot };
using handler = void();
void load_one();
void load_two();
void store_one();
void dot_one();

constexpr muster::operation_set<op> operations{{{op::load, "load", muster::operation_family::api, "", true},
                                                {op::store, "store"},
                                                {op::dot, "dot", muster::operation_family::api, "", true}}};
constexpr muster::backend<op, handler> metal{.name = "metal", .handlers = {{op::store, store_one}}};
// expected-error-re@*:* {{required_operation_is_implemented<{{.*}}{"metal"}, {{.*}}{"load"}>::value{{.*}}a backend that is not experimental lacks a required operation}}
// expected-error-re@*:* {{required_operation_is_implemented<{{.*}}{"metal"}, {{.*}}{"dot"}>::value{{.*}}a backend that is not experimental lacks a required operation}}
constexpr auto registry = muster::compose<operations, metal>();
