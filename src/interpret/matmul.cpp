module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.interpret;

#include "interpreter.hpp"

namespace muster::interpret {

namespace {

template <class T> void multiply(std::span<const T> a, std::span<const T> b, std::span<T> c, std::size_t m, std::size_t k, std::size_t n) {
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t l = 0; l < k; ++l) {
      const T x = a[i * k + l];
      for (std::size_t j = 0; j < n; ++j) {
        if constexpr (std::is_same_v<T, std::int64_t>)
          c[i * n + j] = static_cast<T>(static_cast<std::uint64_t>(c[i * n + j]) +
                                        static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(b[l * n + j]));
        else c[i * n + j] += x * b[l * n + j];
      }
    }
}

} // namespace

/// The last two dimensions are multiplied, the others broadcast.
array machine::product(const array& a, const array& b) const {
  if (a.shape.size() < 2 || b.shape.size() < 2) fail("a matrix product needs matrices");
  const std::int64_t k = a.shape.back();
  if (b.shape[b.shape.size() - 2] != k) fail(fmt::format("the matrices do not fit: {} columns, {} rows", k, b.shape[b.shape.size() - 2]));
  const std::span<const std::int64_t> left = std::span<const std::int64_t>(a.shape).first(a.shape.size() - 2);
  const std::span<const std::int64_t> right = std::span<const std::int64_t>(b.shape).first(b.shape.size() - 2);
  const auto batch = broadcast_shape(left, right);
  if (!batch) fail("the batches of a matrix product do not broadcast");
  const auto m = static_cast<std::size_t>(a.shape[a.shape.size() - 2]);
  const auto n = static_cast<std::size_t>(b.shape.back());
  const auto depth = static_cast<std::size_t>(k);
  interpret::shape s = *batch;
  s.push_back(static_cast<std::int64_t>(m));
  s.push_back(static_cast<std::int64_t>(n));
  const bool real = a.real || b.real;
  array r = make_array(std::move(s), real);
  const array x = real ? as_real(a) : a;
  const array y = real ? as_real(b) : b;
  const positions from_left = broadcast_positions(left, *batch);
  const positions from_right = broadcast_positions(right, *batch);
  for (std::size_t i = 0; i < from_left.size(); ++i) {
    const std::size_t l = from_left[i] * m * depth;
    const std::size_t t = from_right[i] * depth * n;
    if (real)
      multiply<double>(std::span(x.reals).subspan(l, m * depth), std::span(y.reals).subspan(t, depth * n),
                       std::span(r.reals).subspan(i * m * n, m * n), m, depth, n);
    else
      multiply<std::int64_t>(std::span(x.integers).subspan(l, m * depth), std::span(y.integers).subspan(t, depth * n),
                             std::span(r.integers).subspan(i * m * n, m * n), m, depth, n);
  }
  return r;
}

array machine::sum(const array& a, const array& b) const {
  const array* const both[] = {&a, &b};
  if (a.real || b.real) return map(both, true, [](std::span<const double> x) { return x[0] + x[1]; });
  return map(both, false, [](std::span<const std::int64_t> x) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(x[0]) + static_cast<std::uint64_t>(x[1]));
  });
}

value machine::matmul(operation o) {
  switch (o) {
  case operation::dot: {
    array r = product(tile_operand(0), tile_operand(1));
    return typed(argument_at(2) == nullptr ? std::move(r) : sum(r, tile_operand(2)));
  }
  case operation::aten_mm:
  case operation::aten_bmm:
  case operation::aten_bmm_dtype: return typed(product(tile_operand(0), tile_operand(1)));
  case operation::aten_addmm:
  case operation::aten_baddbmm: {
    array added = *required(0).data;
    array r = product(tile_operand(1), tile_operand(2));
    const auto scale = [&](std::string_view name, array& by) {
      if (const argument* a = keyword(name)) {
        const double factor = scalar(read(*a)).as_real();
        by = as_real(by);
        for (double& x : by.reals) x *= factor;
      }
    };
    scale("beta", added);
    scale("alpha", r);
    return typed(sum(added, r));
  }
  default: unsupported("the interpreter does not have it");
  }
}

} // namespace muster::interpret
