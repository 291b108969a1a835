module;
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
module muster.builtin;

import muster.backend.common;

namespace muster {

namespace {

constexpr backend<operation, codegen::handler> nothing_backend{.name = "nothing"};

} // namespace

registry_view<operation, codegen::handler> builtin_registry() noexcept {
  return compose<builtin_operations, common_backend, nothing_backend>();
}

codegen::generator builtin_generator() { return codegen::generator(builtin_registry(), {}); }

} // namespace muster
