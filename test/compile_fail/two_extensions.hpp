#include <cstdint>
import muster.registry;

enum class op : std::uint16_t { load, store, dot, softcap, again };
using handler = void();
void softcap_one();
void softcap_two();

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::store, "store"}, {op::dot, "dot"}}};
/// What the first of two extensions adds.
namespace one {
constexpr muster::operation_entry<op> entries[] = {{op::softcap, "softcap"}};
constexpr muster::handler_row<op, handler> rows[] = {{op::softcap, softcap_one}};
} // namespace one
