module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

/// Compares what two runs of a document stored: a kernel's and the reference interpreter's.
export module muster.check;

import muster.error;
import muster.device_ir;

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

} // namespace muster::check

#pragma GCC visibility pop
