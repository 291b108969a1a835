module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// Compares a kernel of the `cpu` backend with the reference interpreter: what they store, and where that differs, node by node.
export module muster.check;

import muster.error;
import muster.symbolic;
import muster.device_ir;
import muster.codegen;
import muster.runtime;
import muster.interpret;

#pragma GCC visibility push(default)

export namespace muster::check {

using device_ir::dtype;

/// How far an element of this type may be from the reference, relative to the element and, a quarter of that, to the largest
/// magnitude among those it is compared with. 0: not at all.
[[nodiscard]] double tolerance_of(dtype d) noexcept;

/// Whether `got` is within `factor` times the tolerance. NaNs equal each other, infinities equal themselves. `largest`: the
/// largest finite magnitude among the expected values.
[[nodiscard]] bool within(dtype d, double got, double expected, double largest, double factor = 1) noexcept;

/// A host tensor's elements as they lie in memory.
struct layout {
  dtype element = dtype::f32;
  std::span<const std::int64_t> sizes;
  std::span<const std::int64_t> strides; ///< in elements
};

/// Where two runs differ in one tensor.
struct difference {
  std::vector<std::int64_t> index; ///< of the first element that differs, in C order
  std::int64_t offset = 0;         ///< the same in elements from the tensor's first
  double got = 0;
  double expected = 0;
  std::size_t count = 0;           ///< how many elements differ
  std::vector<std::int64_t> offsets; ///< of all that differ, in C order
};

/// Compares a tensor's elements one by one. Linear in them.
[[nodiscard]] std::optional<difference> compare(const layout& l, std::span<const std::byte> got, std::span<const std::byte> expected);

/// The first node, in the order of execution, whose values differ.
struct node_difference {
  device_ir::node_id node = device_ir::no_node;
  std::vector<interpret::open_tile> tiles; ///< where in the grid and its loops
  std::vector<std::int64_t> position;      ///< along each dimension, from the block's begin
  double got = 0;
  double expected = 0;
};

struct report {
  /// By host tensor: where what the kernel stored differs.
  std::vector<std::optional<difference>> tensors;
  /// If anything differs: the node. Nothing where no program that stores a differing element computes a value that does; such a
  /// value may lie in another program, or not be a node's (an atomic operation in another order, an address).
  std::optional<node_difference> node;
  std::size_t programs = 0; ///< whose nodes were compared
  bool complete = true;     ///< of those programs every element; else there were too many to keep

  [[nodiscard]] bool equal() const noexcept {
    for (const auto& t : tensors)
      if (t) return false;
    return true;
  }
};

struct options {
  compile_options compile;
  int threads = 0;                       ///< of the kernel; 0: one a processor
  std::size_t elements = std::size_t{1} << 24U; ///< of nodes' values kept for the comparison, 32 bytes each
  std::size_t programs = 64;             ///< whose nodes are compared at most
  bool nodes = false;                    ///< compare nodes even where nothing that is stored differs: of the first programs
};

/// Generates, compiles and runs the document's kernel, interprets the document on the same inputs, and compares. Where they
/// differ, the kernel is generated once more to record its nodes' values (`generator::record`), and the programs that stored
/// what differs are compared node by node. `generator` is one whose registry has a backend `cpu`, with whatever handlers.
///
/// `inputs`: the host tensors' memory in header order, `layouts` how they lie in it. `symbols`: by symbol id.
/// Throws what generating, compiling and interpreting throw.
[[nodiscard]] report kernel(codegen::generator& generator, const device_ir::document& d, const device_ir::config& config,
                            std::span<const std::span<const std::byte>> inputs, std::span<const layout> layouts,
                            std::span<const std::optional<symbolic::number>> symbols, const options& how = {});

} // namespace muster::check

#pragma GCC visibility pop
