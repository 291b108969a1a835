module;
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module muster.check;

namespace muster::check {

double tolerance_of(dtype d) noexcept {
  switch (d) {
  case dtype::f64: return 1e-10;
  case dtype::f32: return 2e-5;
  case dtype::f16: return 3e-3;
  case dtype::bf16: return 2.5e-2;
  case dtype::f8e4m3fn: return 0.15;
  case dtype::f8e5m2: return 0.3;
  default: return 0;
  }
}

bool within(dtype d, double got, double expected, double largest, double factor) noexcept {
  if (got == expected || (std::isnan(got) && std::isnan(expected))) return true;
  const double tolerance = tolerance_of(d) * factor;
  if (!std::isfinite(got) || !std::isfinite(expected)) return false;
  return std::fabs(got - expected) <= tolerance * (std::fabs(expected) + 0.25 * largest) + (tolerance > 0 ? 1e-30 : 0);
}

namespace {

/// Calls visit(offset, index) for every element in C order.
template <class Visit> void for_each(const layout& l, const Visit& visit) {
  std::vector<std::int64_t> at(l.sizes.size(), 0);
  for (const std::int64_t n : l.sizes)
    if (n == 0) return;
  std::int64_t offset = 0;
  while (true) {
    visit(offset, at);
    std::size_t d = at.size();
    for (; d > 0; --d) {
      offset += l.strides[d - 1];
      if (++at[d - 1] < l.sizes[d - 1]) break;
      offset -= l.strides[d - 1] * l.sizes[d - 1];
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

} // namespace

std::optional<difference> compare(const layout& l, std::span<const std::byte> got, std::span<const std::byte> expected) {
  const auto size = static_cast<std::size_t>(device_ir::size_of(l.element));
  const auto element = [&](std::span<const std::byte> of, std::int64_t offset) {
    return device_ir::element_to_double(l.element, of.data() + static_cast<std::size_t>(offset) * size);
  };
  double largest = 0;
  for_each(l, [&](std::int64_t offset, const auto&) {
    if (const double x = element(expected, offset); std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  });
  difference found;
  for_each(l, [&](std::int64_t offset, const std::vector<std::int64_t>& at) {
    const double x = element(got, offset);
    const double y = element(expected, offset);
    bool same = within(l.element, x, y, largest);
    if (l.element == dtype::i64) // as doubles, large integers lose digits
      same = device_ir::element_to_integer(l.element, got.data() + static_cast<std::size_t>(offset) * size) ==
             device_ir::element_to_integer(l.element, expected.data() + static_cast<std::size_t>(offset) * size);
    if (same) return;
    if (found.count++ == 0) {
      found.index = at;
      found.offset = offset;
      found.got = x;
      found.expected = y;
    }
    found.offsets.push_back(offset);
  });
  if (found.count == 0) return std::nullopt;
  return found;
}

} // namespace muster::check
