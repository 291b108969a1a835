// The built-in tables beside the built-in registry: each cell's own handler is the one in its backend's table. run.py compiles this
// file with other orders of imports too.
#include <cstdint>
#include <cstdio>
import muster.registry;
import muster.operations;
import muster.codegen;
import muster.builtin;
import muster.backend.common;
import muster.backend.triton;
import muster.backend.tileir;
import muster.backend.pallas;
import muster.backend.cute;
import muster.backend.metal;
import muster.backend.cpu;

namespace {

constexpr auto mine = muster::compose<muster::builtin_operations, muster::cpu_backend, muster::metal_backend, muster::cute_backend,
                                      muster::pallas_backend, muster::tileir_backend, muster::triton_backend, muster::common_backend>();

template <class Backend> int wrong_rows(const Backend& backend) {
  int wrong = 0;
  muster::detail::for_each_row(backend, [&](const auto& row, bool) {
    if (muster::builtin_registry().find(backend.name, row.op) != row.handler) ++wrong;
  });
  return wrong;
}

} // namespace

int main() {
  int wrong = wrong_rows(muster::triton_backend) + wrong_rows(muster::tileir_backend) + wrong_rows(muster::pallas_backend) +
              wrong_rows(muster::cute_backend) + wrong_rows(muster::metal_backend) + wrong_rows(muster::cpu_backend);
  for (const auto& backend : mine.backends())
    for (const auto& operation : mine.operations())
      if (mine.find(backend.name, operation.id) != muster::builtin_registry().find(backend.name, operation.id)) ++wrong;
  std::printf("%d cells differ\n", wrong);
  return wrong == 0 ? 0 : 1;
}
