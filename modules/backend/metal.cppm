module;
#include <cstdint>
#include <initializer_list>
#include <string_view>

/// Metal Shading Language. Described, so that what it lacks is reported; it has no handlers of its own yet.
export module muster.backend.metal;

import muster.operations;
import muster.registry;
import muster.codegen;

#pragma GCC visibility push(default)

export namespace muster {

constexpr backend<operation, codegen::handler> metal_backend{.name = "metal", .experimental = true};

} // namespace muster

#pragma GCC visibility pop
