#include "two_extensions.hpp"

namespace two {
constexpr muster::operation_entry<op> entries[] = {{op::again, "softcap"}};
constexpr muster::handler_row<op, handler> rows[] = {{op::again, softcap_two}};
} // namespace two

// expected-error-re@*:* {{extensions_add_different_operations<one::entries, two::entries, {{.*}}{"softcap"}>::value}}
constexpr auto both = muster::extended<operations, one::entries, two::entries>();
