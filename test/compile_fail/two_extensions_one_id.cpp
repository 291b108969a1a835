#include "two_extensions.hpp"

namespace two {
constexpr muster::operation_entry<op> entries[] = {{op::softcap, "hardcap"}};
constexpr muster::handler_row<op, handler> rows[] = {{op::softcap, softcap_two}};
} // namespace two

// expected-error@*:* {{extensions_use_different_ids<one::entries, two::entries, 3>::value}}
constexpr auto both = muster::extended<operations, one::entries, two::entries>();
