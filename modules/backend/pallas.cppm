module;
#include <cstdint>
#include <initializer_list>
#include <string_view>

/// JAX's Pallas. Described, so that what it lacks is reported; it has no handlers of its own yet.
export module muster.backend.pallas;

import muster.operations;
import muster.registry;
import muster.codegen;

#pragma GCC visibility push(default)

export namespace muster {

constexpr backend<operation, codegen::handler> pallas_backend{.name = "pallas", .experimental = true};

} // namespace muster

#pragma GCC visibility pop
