module;
#include <cstdint>
export module hazard.operations;
import muster.registry;

export namespace hazard {

enum class op : std::uint16_t { even, odd, fail };
using handler = int(unsigned n);
constexpr muster::operation_entry<op> entries[] = {{op::even, "even"}, {op::odd, "odd"}, {op::fail, "fail"}};
constexpr muster::operation_set<op> operations{.more = entries};

} // namespace hazard
