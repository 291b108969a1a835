#include <cstdint>
#include <cstdio>
#include <string>
#include <gsl/gsl>
import muster;

namespace {

enum class op : std::uint16_t { load, dot };
using handler = std::string();

} // namespace

std::string load_mine();
std::string load_mine() { return "mine"; }

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> mine{.name = "mine", .handlers = {{op::load, load_mine}}};
constexpr auto registry = muster::compose<operations, mine>();

int main() {
  try {
    const gsl::not_null<const char*> text = "mine";
    if (registry.at("mine", op::load)() != text.get()) return 1;
    (void)registry.at("mine", op::dot);
  } catch (const muster::Error& error) {
    std::puts(error.what());
    return 0;
  }
  return 1;
}
