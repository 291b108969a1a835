module;
#include <cstdint>
#include <string_view>

/// The one place where all backends meet.
export module muster.builtin;

import muster.registry;
import muster.operations;
import muster.codegen;

#pragma GCC visibility push(default)

export namespace muster {

/// The built-in backends that there are, whether this build has them or not (Meson's option `backends`).
inline constexpr std::string_view builtin_backends[] = {"triton", "tileir", "pallas", "cute", "metal", "cpu"};

/// Changes with the operations, the backends and the sizes of what a program and the library hand each other.
inline constexpr std::uint64_t builtin_fingerprint = [] {
  std::uint64_t h = codegen::codegen_fingerprint;
  for (const std::string_view name : builtin_backends) h = detail::mix(h, detail::hash_whole(name), 0, 0, name.size());
  return h;
}();

/// As in muster.operations and muster.codegen: a program that was compiled against other interfaces does not link or load.
template <std::uint64_t Fingerprint> struct library_was_built_from_other_interfaces_or_backends {
  static const registry_data<operation, codegen::handler> table;
  static codegen::generator make_generator(registry_view<operation, codegen::handler> registry);
};
extern template struct library_was_built_from_other_interfaces_or_backends<builtin_fingerprint>;

/// The registry of the built-in backends: complete, resolved, immutable. Constant-initialised; usable anywhere, any time.
[[nodiscard]] constexpr registry_view<operation, codegen::handler> builtin_registry() noexcept {
  return registry_view<operation, codegen::handler>(library_was_built_from_other_interfaces_or_backends<builtin_fingerprint>::table);
}

/// A generator over the built-in backends, with its own reusable state: one a thread.
[[nodiscard]] inline codegen::generator builtin_generator() {
  return library_was_built_from_other_interfaces_or_backends<builtin_fingerprint>::make_generator(builtin_registry());
}

} // namespace muster

#pragma GCC visibility pop
