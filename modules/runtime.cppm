module;
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Compiles emitted C++ with the system's compiler and calls it: how a document is run from a program.
export module muster.runtime;

import muster.error;
import muster.device_ir;
import muster.codegen;

#pragma GCC visibility push(default)

export namespace muster {

/// No compiler, a compiler that failed, or a result that cannot be loaded. The message ends in the compiler's own words.
class CompileError : public Error {
public:
  explicit CompileError(const std::string& message);
  ~CompileError() override;
};

struct compile_options {
  /// A path, or a name looked up in PATH. Empty: the first of clang++-19, clang++, g++, c++ that is there.
  std::string compiler;
  std::vector<std::string> flags{"-std=c++20", "-O3", "-march=native"};
  /// Where compiled kernels are kept, by a hash of source, compiler (path, size and time of change) and flags; safe under
  /// concurrent processes. Empty: nothing is kept.
  std::string cache_directory;
  /// Beyond this many bytes the entries used longest ago are removed.
  std::size_t cache_bytes = std::size_t{512} << 20U;
};

/// A loaded shared object. Closed with its last copy.
class shared_object {
public:
  /// The address of a symbol. Throws CompileError if there is none.
  [[nodiscard]] void* symbol(const char* name) const;
  /// Whether it came out of the cache.
  [[nodiscard]] inline bool from_cache() const noexcept { return from_cache_; }

private:
  friend shared_object compile_source(std::string_view, const compile_options&);
  std::shared_ptr<void> handle_;
  bool from_cache_ = false;
};

/// Compiles C++ source to a shared object and loads it. Throws CompileError, IoError.
[[nodiscard]] shared_object compile_source(std::string_view source, const compile_options& options = {});

/// A symbol's value for a call: an integer or a real number, as the symbol was declared.
///
/// The `cpu` backend's source has one entry point,
///   extern "C" void muster_kernel(void* const* tensors, const muster_scalar* symbols, int threads);
/// where `muster_scalar` is a union like this one, `tensors` are all host tensors in header order, and `symbols` are those
/// of `codegen::launch_symbols`, in that order.
union scalar {
  std::int64_t integer;
  double real;
};

/// Whom a kernel that records (`codegen::generator::record`) tells what it computes.
struct recorder {
  void* context = nullptr;
  /// A program of a root graph (index into document::graphs) begins; `begins`: of its grid's tiles, by block id.
  void (*program)(void* context, std::int64_t graph, const std::int64_t* begins, std::int64_t count) = nullptr;
  /// An element of a node (index into document::nodes) was computed, perhaps not for the first time. `steps`: for a node inside
  /// a while loop, conditions and bodies that the program has begun; else 0. `where`: where the tiles of the grid and of the
  /// loops around the node begin, by block id, without those of rolled reductions; then the element's position along each
  /// dimension. Integers and truths are in both numbers, floats in `real`.
  void (*element)(void* context, std::int64_t node, std::int64_t steps, const std::int64_t* where, std::int64_t count, double real,
                  std::int64_t integer) = nullptr;
};

/// A kernel of the `cpu` backend, compiled and loaded. Copies share the code.
class compiled_kernel {
public:
  /// Runs the kernel. `tensors`: the document's host tensors in header order, each the address of element [0, 0, …];
  /// `symbols`: the values of `symbol_names()`, in that order. `threads` 0: one a processor. Blocks until done.
  void operator()(std::span<void* const> tensors, std::span<const scalar> symbols = {}, int threads = 0) const;
  /// The same on one thread, telling `to`. Throws CompileError for a kernel that does not record. One at a time.
  void operator()(std::span<void* const> tensors, std::span<const scalar> symbols, const recorder& to) const;
  /// The symbols that the kernel or its grid needs, in header order.
  [[nodiscard]] const std::vector<std::string>& symbol_names() const noexcept;
  [[nodiscard]] const std::string& source() const noexcept;
  [[nodiscard]] bool from_cache() const noexcept;

private:
  friend compiled_kernel compile(codegen::generator&, const device_ir::document&, const device_ir::config&, const compile_options&);
  struct state;
  std::shared_ptr<const state> self_;
};

/// Generates a document for `cpu` with a generator of the caller's (handlers of a registry of its own), compiles and loads it.
/// Throws what generating and compiling throw.
[[nodiscard]] compiled_kernel compile(codegen::generator& generator, const device_ir::document& d, const device_ir::config& config,
                                      const compile_options& options = {});
/// With the built-in backends.
[[nodiscard]] compiled_kernel compile(const device_ir::document& d, const device_ir::config& config, const compile_options& options = {});
[[nodiscard]] compiled_kernel compile(const device_ir::document& d, const compile_options& options = {});

} // namespace muster

#pragma GCC visibility pop
