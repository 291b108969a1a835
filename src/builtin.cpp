module;
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
module muster.builtin;

import muster.backend.common;
import muster.backend.cpu;
import muster.backend.cute;
import muster.backend.metal;
import muster.backend.pallas;
import muster.backend.tileir;
import muster.backend.triton;

namespace muster {

registry_view<operation, codegen::handler> builtin_registry() noexcept {
  return compose<builtin_operations, common_backend, triton_backend, tileir_backend, pallas_backend, cute_backend, metal_backend,
                 cpu_backend>();
}

codegen::generator builtin_generator() {
  const codegen::target* const targets[] = {&triton_target, &tileir_target, &cpu_target};
  return codegen::generator(builtin_registry(), targets);
}

} // namespace muster
