// Uses the library in one of the ways in which the numbers of operations cross between it and a program. run.py compiles this against
// interfaces of another version.
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>
import muster.registry;
import muster.operations;
import muster.codegen;
import muster.builtin;

[[maybe_unused]] constexpr muster::backend<muster::operation, muster::codegen::handler> mine{.name = "mine"};
[[maybe_unused]] constexpr auto registry = muster::compose<muster::builtin_operations, mine>();

int main() {
#if USE == 1
  std::printf("%d\n", muster::builtin_registry().find("triton", muster::operation::load) != nullptr);
#elif USE == 2
  const muster::codegen::generator generator(registry, {});
  std::puts("generator");
#elif USE == 3
  std::printf("%d\n", static_cast<int>(*muster::operation_named("load")));
#elif USE == 4
  const muster::codegen::generator generator = muster::builtin_generator();
  std::puts("generator");
#endif
}
