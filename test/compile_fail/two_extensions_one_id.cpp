#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot, softcap };
using handler = void();
void softcap_one();
void softcap_two();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
namespace one {
constexpr muster::operation_entry<op> entries[] = {{op::softcap, "softcap"}};
constexpr muster::handler_row<op, handler> rows[] = {{op::softcap, softcap_one}};
} // namespace one
namespace two {
constexpr muster::operation_entry<op> entries[] = {{op::softcap, "hardcap"}};
constexpr muster::handler_row<op, handler> rows[] = {{op::softcap, softcap_two}};
} // namespace two

// expected-error@*:* {{extensions_use_different_ids<one::entries, two::entries, 3>::value}}
constexpr auto both = muster::extended<operations, one::entries, two::entries>();
