module;
#include <cstdint>
#include <initializer_list>
#include <string_view>

/// The CuTe DSL. Described, so that what it lacks is reported; it has no handlers of its own yet.
export module muster.backend.cute;

import muster.operations;
import muster.registry;
import muster.codegen;

#pragma GCC visibility push(default)

export namespace muster {

constexpr backend<operation, codegen::handler> cute_backend{.name = "cute", .experimental = true};

} // namespace muster

#pragma GCC visibility pop
