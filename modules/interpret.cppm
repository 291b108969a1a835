module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

/// A reference interpreter of device IR documents: node by node on whole tiles, in double precision. It knows nothing of the code
/// generator, so that a kernel that differs from it says something about the kernel.
export module muster.interpret;

import muster.error;
import muster.symbolic;
import muster.device_ir;
import muster.operations;

#pragma GCC visibility push(default)

export namespace muster::interpret {

using device_ir::document;
using device_ir::dtype;
using device_ir::node_id;
using symbolic::number;

/// A block whose tile is open, and the position of the tile's first lane.
struct open_tile {
  std::int32_t block = -1;
  std::int64_t begin = 0;
  friend bool operator==(const open_tile&, const open_tile&) = default;
};

/// What one execution of one node gave. Views live until the observer returns.
struct node_value {
  node_id node = device_ir::no_node;
  std::optional<dtype> element;             ///< nothing: a symbol's value
  std::span<const std::int64_t> shape;      ///< lanes beyond a block's extent included; empty: a scalar
  std::span<const std::int64_t> first;      ///< by dimension: the position of its lane 0 along the block, or 0
  std::span<const double> reals;            ///< the elements in C order, of a float; integers and truths are in
  std::span<const std::int64_t> integers;   ///< this one
  std::span<const bool> valid;              ///< by element: within the extents of its blocks; empty: all are
  std::span<const open_tile> tiles;         ///< in the order of block ids: where in the grid and its loops
  std::int64_t steps = 0;                   ///< conditions and bodies of while loops that the program has begun so far
  std::size_t root = 0;                     ///< index into document::graphs

  [[nodiscard]] std::size_t count() const noexcept { return reals.size() + integers.size(); }
  [[nodiscard]] bool is_real() const noexcept { return !reals.empty(); }
  [[nodiscard]] double real(std::size_t i) const noexcept { return is_real() ? reals[i] : static_cast<double>(integers[i]); }
  [[nodiscard]] bool is_valid(std::size_t i) const noexcept { return valid.empty() || valid[i]; }
};

/// One store or atomic operation: which elements of which host tensor it wrote.
struct stored {
  node_id node = device_ir::no_node;
  std::size_t tensor = 0;                ///< index into document::tensors
  std::span<const std::int64_t> offsets; ///< in elements from the tensor's first, of those that are written
  std::size_t root = 0;                  ///< index into document::graphs
  std::span<const open_tile> tiles;
};

struct options {
  /// By block id: lanes of a tile in place of the declared block size; 0, or beyond the end: as declared.
  std::vector<std::int64_t> block_sizes;
  /// Called for every value that a node gives, in the order of execution; not for graphs that combine elements (`helper`).
  std::function<void(const node_value&)> on_value;
  std::function<void(const stored&)> on_store;
};

/// Runs a verified document on host tensors, program after program, the grid's last block fastest; roots by phase.
///
/// `tensors`: the memory of the document's host tensors in header order, from element [0, 0, …] to the last. `symbols`: values
/// by symbol id: of the parameters, and of block sizes that only the host knows.
///
/// What every node means is DEVICE_IR.md's and PyTorch's. Floats are computed in double precision and rounded to each node's
/// declared type, integers in 64 bits that wrap around; atomics take effect in the order of the programs; a rolled reduction is
/// taken in one piece. Time and memory are those of whole tiles, one value a node.
///
/// Throws BackendUnsupported for an operation that it does not have (the backend is called `reference interpreter`),
/// UnknownOperation, and DeviceIRError, at the node, where values do not fit: an access outside its tensor, a symbol without a
/// value, shapes that do not broadcast. What was stored until then stays.
void run(const document& d, std::span<const std::span<std::byte>> tensors, std::span<const std::optional<number>> symbols,
         const options& how = {});

} // namespace muster::interpret

#pragma GCC visibility pop
