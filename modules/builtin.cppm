module;
#include <cstdint>

/// The one place where all backends meet.
export module muster.builtin;

import muster.registry;
import muster.operations;
import muster.codegen;

#pragma GCC visibility push(default)

export namespace muster {

/// The registry of the built-in backends: complete, resolved, immutable. Constant-initialised; usable anywhere, any time.
[[nodiscard]] registry_view<operation, codegen::handler> builtin_registry() noexcept;

/// A generator over the built-in backends, with its own reusable state: one a thread.
[[nodiscard]] codegen::generator builtin_generator();

} // namespace muster

#pragma GCC visibility pop
