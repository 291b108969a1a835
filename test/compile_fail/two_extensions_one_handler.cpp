#include "two_extensions.hpp"

namespace two {
constexpr muster::operation_entry<op> entries[] = {{op::softcap, "softcap"}};
constexpr muster::handler_row<op, handler> rows[] = {{op::softcap, softcap_two}};
} // namespace two

constexpr auto extended = muster::extended<operations, one::entries>();
// expected-error@*:* {{tables_have_one_handler_an_operation<one::rows, two::rows, 3>::value}}
constexpr muster::backend<op, handler> triton{.name = "triton", .parts = muster::merged<one::rows, two::rows>};
// expected-error-re@*:* {{each_operation_is_registered_once<{{.*}}{"triton"}, {{.*}}{"softcap"}>::value}}
constexpr auto registry = muster::compose<extended, triton>();
