// expected-no-diagnostics
#include "two_extensions.hpp"

namespace two {
constexpr muster::operation_entry<op> entries[] = {{op::again, "again"}};
constexpr muster::handler_row<op, handler> rows[] = {{op::again, softcap_two}};
} // namespace two

constexpr auto both = muster::extended<operations, one::entries, two::entries>();
constexpr muster::backend<op, handler> triton{.name = "triton", .parts = muster::merged<one::rows, two::rows>};
constexpr auto registry = muster::compose<both, triton>();
static_assert(registry.find("triton", "softcap") == softcap_one && registry.find("triton", "again") == softcap_two);
static_assert(muster::fingerprint(operations) != muster::fingerprint(both));
