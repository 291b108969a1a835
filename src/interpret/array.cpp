module;
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
module muster.interpret;

#include "interpreter.hpp"

namespace muster::interpret {

std::int64_t truncated(double value) noexcept {
  if (!(value >= -0x1p63 && value < 0x1p63)) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

std::int64_t array::integer_at(std::size_t i) const noexcept { return real ? truncated(reals[i]) : integers[i]; }

std::size_t count_of(std::span<const std::int64_t> s) {
  std::size_t count = 1;
  for (const std::int64_t n : s) count *= static_cast<std::size_t>(n);
  return count;
}

array make_array(interpret::shape s, bool real) {
  array a;
  a.real = real;
  if (real) a.reals.resize(count_of(s));
  else a.integers.resize(count_of(s));
  a.shape = std::move(s);
  return a;
}

array scalar_array(double value) {
  array a = make_array({}, true);
  a.reals[0] = value;
  return a;
}

array scalar_array(std::int64_t value) {
  array a = make_array({}, false);
  a.integers[0] = value;
  return a;
}

array as_real(const array& a) {
  if (a.real) return a;
  array r = make_array(a.shape, true);
  std::ranges::transform(a.integers, r.reals.begin(), [](std::int64_t x) { return static_cast<double>(x); });
  return r;
}

array as_integer(const array& a) {
  if (!a.real) return a;
  array r = make_array(a.shape, false);
  std::ranges::transform(a.reals, r.integers.begin(), truncated);
  return r;
}

array rounded(array a, dtype d) {
  if (device_ir::is_float(d)) {
    array r = as_real(a);
    if (d != dtype::f64)
      for (double& x : r.reals) x = device_ir::rounded(d, x);
    return r;
  }
  array r;
  if (d == dtype::b8 && a.real) {
    r = make_array(a.shape, false);
    std::ranges::transform(a.reals, r.integers.begin(), [](double x) { return x != 0 ? 1 : 0; });
    return r;
  }
  r = as_integer(a);
  if (d == dtype::i64) return r;
  for (std::int64_t& x : r.integers) {
    std::byte bytes[8];
    device_ir::integer_to_element(d, x, bytes);
    x = device_ir::element_to_integer(d, bytes);
  }
  return r;
}

array picked(const array& a, interpret::shape s, const positions& at) {
  array r;
  r.shape = std::move(s);
  r.real = a.real;
  if (a.real) {
    r.reals.reserve(at.size());
    for (const std::size_t i : at) r.reals.push_back(a.reals[i]);
  } else {
    r.integers.reserve(at.size());
    for (const std::size_t i : at) r.integers.push_back(a.integers[i]);
  }
  return r;
}

namespace {

/// Positions of all elements of shape `s`, whose axes have these steps.
positions strided_positions(std::span<const std::int64_t> s, std::span<const std::size_t> steps) {
  positions all(count_of(s));
  if (all.empty()) return all;
  if (s.empty()) {
    all[0] = 0;
    return all;
  }
  std::vector<std::int64_t> at(s.size(), 0);
  const std::size_t last = s.size() - 1;
  const std::size_t row = static_cast<std::size_t>(s[last]);
  std::size_t offset = 0;
  for (std::size_t i = 0; i < all.size(); i += row) {
    for (std::size_t j = 0; j < row; ++j) all[i + j] = offset + j * steps[last];
    for (std::size_t d = last; d > 0; --d) {
      offset += steps[d - 1];
      if (++at[d - 1] < s[d - 1]) break;
      offset -= steps[d - 1] * static_cast<std::size_t>(s[d - 1]);
      at[d - 1] = 0;
    }
  }
  return all;
}

std::vector<std::size_t> dense_steps(std::span<const std::int64_t> s) {
  std::vector<std::size_t> steps(s.size());
  std::size_t step = 1;
  for (std::size_t d = s.size(); d-- > 0; step *= static_cast<std::size_t>(s[d])) steps[d] = step;
  return steps;
}

} // namespace

positions broadcast_positions(std::span<const std::int64_t> from, std::span<const std::int64_t> to) {
  const std::vector<std::size_t> own = dense_steps(from);
  std::vector<std::size_t> steps(to.size(), 0);
  for (std::size_t d = 0; d < from.size() && d < to.size(); ++d)
    if (from[from.size() - 1 - d] != 1) steps[to.size() - 1 - d] = own[from.size() - 1 - d];
  return strided_positions(to, steps);
}

std::optional<interpret::shape> broadcast_shape(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  interpret::shape s(std::max(a.size(), b.size()), 1);
  for (std::size_t d = 0; d < s.size(); ++d) {
    const std::int64_t x = d < a.size() ? a[a.size() - 1 - d] : 1;
    const std::int64_t y = d < b.size() ? b[b.size() - 1 - d] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    s[s.size() - 1 - d] = x == 1 ? y : x;
  }
  return s;
}

positions permuted_positions(std::span<const std::int64_t> s, std::span<const std::size_t> order) {
  const std::vector<std::size_t> own = dense_steps(s);
  interpret::shape to;
  std::vector<std::size_t> steps;
  for (const std::size_t d : order) {
    to.push_back(s[d]);
    steps.push_back(own[d]);
  }
  return strided_positions(to, steps);
}

array permuted(const array& a, std::span<const std::size_t> order) {
  interpret::shape to;
  for (const std::size_t d : order) to.push_back(a.shape[d]);
  return picked(a, std::move(to), permuted_positions(a.shape, order));
}

value value_of(array a) {
  value v;
  v.what = value::kind::data;
  v.data = std::make_shared<const array>(std::move(a));
  return v;
}

} // namespace muster::interpret
