module;
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
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

/// Calls f(row) for the elements of every row; the rows of `a` have `length` elements.
template <class T, class F> void each_row(std::span<const T> all, std::size_t rows, std::size_t length, const F& f) {
  for (std::size_t r = 0; r < rows; ++r) f(r, all.subspan(r * length, length));
}

double sum_of(std::span<const double> row) { return std::accumulate(row.begin(), row.end(), 0.0); }

double mean_of(std::span<const double> row) { return sum_of(row) / static_cast<double>(row.size()); }

double variance_of(std::span<const double> row, double correction) {
  const double mean = mean_of(row);
  double squares = 0;
  for (const double x : row) squares += (x - mean) * (x - mean);
  return squares / std::max(0.0, static_cast<double>(row.size()) - correction);
}

double largest_of(std::span<const double> row) {
  double best = -std::numeric_limits<double>::infinity();
  for (const double x : row) {
    if (std::isnan(x)) return x;
    best = std::max(best, x);
  }
  return best;
}

double least_of(std::span<const double> row) {
  double best = std::numeric_limits<double>::infinity();
  for (const double x : row) {
    if (std::isnan(x)) return x;
    best = std::min(best, x);
  }
  return best;
}

double logsumexp_of(std::span<const double> row) {
  const double top = largest_of(row);
  if (std::isinf(top)) return top;
  double sum = 0;
  for (const double x : row) sum += std::exp(x - top);
  return top + std::log(sum);
}

std::int64_t wrapping_sum(std::span<const std::int64_t> row) {
  std::uint64_t sum = 0;
  for (const std::int64_t x : row) sum += static_cast<std::uint64_t>(x);
  return static_cast<std::int64_t>(sum);
}

std::int64_t wrapping_product(std::span<const std::int64_t> row) {
  std::uint64_t product = 1;
  for (const std::int64_t x : row) product *= static_cast<std::uint64_t>(x);
  return static_cast<std::int64_t>(product);
}

/// The first of the largest (`sign` 1) or least (-1); a NaN is both.
template <class T> std::size_t place_of(std::span<const T> row, bool largest) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] != row[i]) return i;
    if (largest ? row[i] > row[best] : row[i] < row[best]) best = i;
  }
  return best;
}

} // namespace

machine::reduced_axes machine::axes_of(const value& x, const argument* dims, bool keep) const {
  reduced_axes r;
  const std::size_t rank = kept(x).shape.size();
  r.keep = keep;
  for (const argument& a : list(dims)) r.axes.push_back(axis(integer(a), rank));
  if (r.axes.empty())
    for (std::size_t d = 0; d < rank; ++d) r.axes.push_back(d);
  std::ranges::sort(r.axes);
  r.axes.erase(std::ranges::unique(r.axes).begin(), r.axes.end());
  for (std::size_t d = 0; d < rank; ++d) {
    const bool gone = std::ranges::binary_search(r.axes, d);
    if (!gone) r.kept.push_back(d);
    if (gone && !keep) continue;
    r.result.push_back(gone ? 1 : x.data->shape[d]);
    if (d < x.dims.size()) r.dims.push_back(gone ? symbolic::no_expression : x.dims[d]);
  }
  return r;
}

value machine::reduction(operation o) {
  value x = arguments().empty() || arguments()[0].what == argument::kind::none ? value() : read(arguments()[0]);
  const argument* extra = keyword("_extra_args");
  if (extra != nullptr && !list(extra).empty()) {
    const value v = read(list(extra)[0]);
    if (v.what == value::kind::list && v.items.size() == 1) x = v.items[0];
    else if (v.what == value::kind::data) return typed(*v.data);
  }
  const array& a = kept(x);
  const argument* dims = keyword("dim") != nullptr ? keyword("dim") : argument_at(1);
  const bool variance = o == operation::aten_var || o == operation::aten_var_mean;
  const reduced_axes r = axes_of(x, dims,
                                 truth_or(keyword("keepdim") != nullptr ? keyword("keepdim")
                                          : variance                    ? nullptr
                                                                        : argument_at(2),
                                          false));
  std::vector<std::size_t> order = r.kept;
  order.insert(order.end(), r.axes.begin(), r.axes.end());
  const array rows = permuted(a, order);
  const std::size_t count = count_of(r.result);
  const std::size_t length = count == 0 ? 0 : rows.count() / count;
  const array wide = as_real(rows);
  const auto reals = [&](const auto& f) {
    array result = make_array(r.result, true);
    each_row<double>(wide.reals, count, length, [&](std::size_t i, std::span<const double> row) { result.reals[i] = f(row); });
    return result;
  };
  const auto integers = [&](const auto& f) {
    array result = make_array(r.result, false);
    each_row<std::int64_t>(rows.integers, count, length,
                           [&](std::size_t i, std::span<const std::int64_t> row) { result.integers[i] = f(row); });
    return result;
  };
  const auto either = [&](const auto& real, const auto& whole) { return rows.real ? reals(real) : integers(whole); };
  const auto extreme = [&](bool largest) {
    if (length == 0) fail("no element to choose from");
    return either(
        [&](std::span<const double> row) { return largest ? largest_of(row) : least_of(row); },
        [&](std::span<const std::int64_t> row) { return largest ? *std::ranges::max_element(row) : *std::ranges::min_element(row); });
  };
  const auto places = [&](bool largest) {
    array result = make_array(r.result, false);
    for (std::size_t i = 0; i < count; ++i)
      result.integers[i] = static_cast<std::int64_t>(
          rows.real ? place_of(std::span<const double>(rows.reals).subspan(i * length, length), largest)
                    : place_of(std::span<const std::int64_t>(rows.integers).subspan(i * length, length), largest));
    return result;
  };
  const auto truths = [&](bool all) {
    array result = make_array(r.result, false);
    for (std::size_t i = 0; i < count; ++i) {
      bool holds = all;
      for (std::size_t j = 0; j < length; ++j)
        holds = all ? holds && rows.truth_at(i * length + j) : holds || rows.truth_at(i * length + j);
      result.integers[i] = holds ? 1 : 0;
    }
    return result;
  };
  const auto two = [&](array first, dtype first_type, array second, dtype second_type) {
    value v;
    v.what = value::kind::list;
    v.items.push_back(typed(std::move(first), first_type, r.dims));
    v.items.push_back(typed(std::move(second), second_type, r.dims));
    return v;
  };
  const argument* given = keyword("correction");
  const double correction = given == nullptr ? 1 : scalar(read(*given)).as_real();
  switch (o) {
  case operation::aten_sum: return typed(either(sum_of, wrapping_sum));
  case operation::aten_prod:
    return typed(either([](std::span<const double> row) { return std::accumulate(row.begin(), row.end(), 1.0, std::multiplies<>()); },
                        wrapping_product));
  case operation::aten_mean: return typed(reals(mean_of));
  case operation::aten_amax: return typed(extreme(true));
  case operation::aten_amin: return typed(extreme(false));
  case operation::aten_max:
  case operation::aten_min: {
    const bool largest = o == operation::aten_max;
    if (dims == nullptr) return typed(extreme(largest));
    return two(extreme(largest), x.element.value_or(dtype::f64), places(largest), dtype::i64);
  }
  case operation::aten_argmax:
  case operation::aten_argmin:
    if (length == 0) fail("no element to choose from");
    return typed(places(o == operation::aten_argmax));
  case operation::aten_any: return typed(truths(false));
  case operation::aten_all: return typed(truths(true));
  case operation::aten_logsumexp: return typed(reals(logsumexp_of));
  case operation::aten_var: return typed(reals([&](std::span<const double> row) { return variance_of(row, correction); }));
  case operation::aten_var_mean: {
    const dtype type = x.element.value_or(dtype::f64);
    return two(reals([&](std::span<const double> row) { return variance_of(row, correction); }), type, reals(mean_of), type);
  }
  default: unsupported("the interpreter does not have it");
  }
}

value machine::scan(operation o) {
  const value x = required(0);
  const std::size_t d = axis(integer_or(argument_at(1), 0), x.data->shape.size());
  const bool product = o == operation::aten_cumprod;
  array r = *x.data;
  const std::size_t inner = count_of(std::span<const std::int64_t>(r.shape).subspan(d + 1));
  const auto n = static_cast<std::size_t>(r.shape[d]);
  for (std::size_t i = 0; i < r.count(); ++i) {
    if (i / inner % n == 0) continue;
    if (r.real) {
      const double before = r.reals[i - inner];
      r.reals[i] = product ? before * r.reals[i] : before + r.reals[i];
    } else {
      const auto before = static_cast<std::uint64_t>(r.integers[i - inner]);
      const auto own = static_cast<std::uint64_t>(r.integers[i]);
      r.integers[i] = static_cast<std::int64_t>(product ? before * own : before + own);
    }
  }
  return typed(std::move(r));
}

// -- by graphs

std::vector<value> machine::combined(const device_ir::graph& g, std::span<const value> left, std::span<const value> right) {
  std::vector<value> both(left.begin(), left.end());
  both.insert(both.end(), right.begin(), right.end());
  ++helpers_;
  std::vector<value> results = run_graph(g, both);
  --helpers_;
  if (results.size() != left.size()) fail(fmt::format("'{}' gives {} values, {} are combined", g.name, results.size(), left.size()));
  return results;
}

namespace {

/// The slice at `i` along `axis`, without that axis.
array slice_of(const array& a, std::size_t axis, std::size_t i) {
  interpret::shape s = a.shape;
  const std::size_t inner = count_of(std::span<const std::int64_t>(s).subspan(axis + 1));
  const auto n = static_cast<std::size_t>(s[axis]);
  s.erase(s.begin() + static_cast<std::ptrdiff_t>(axis));
  positions at(count_of(s));
  for (std::size_t j = 0; j < at.size(); ++j) at[j] = (j / inner * n + i) * inner + j % inner;
  return picked(a, std::move(s), at);
}

void set_slice(array& to, std::size_t axis, std::size_t i, const array& from) {
  const std::size_t inner = count_of(std::span<const std::int64_t>(to.shape).subspan(axis + 1));
  const auto n = static_cast<std::size_t>(to.shape[axis]);
  const std::size_t count = to.count() / n;
  for (std::size_t j = 0; j < count; ++j) {
    const std::size_t at = (j / inner * n + i) * inner + j % inner;
    const std::size_t own = from.count() == 1 ? 0 : j;
    if (to.real) to.reals[at] = from.real_at(own);
    else to.integers[at] = from.integer_at(own);
  }
}

} // namespace

value machine::scan_by_graph() {
  const auto all = arguments();
  const device_ir::graph* const g = all.empty() ? nullptr : d_.find_graph(all[0].integer);
  if (g == nullptr || all.size() < 3) fail("a scan needs a graph, tiles and a dimension");
  std::vector<value> tiles;
  for (const argument& a : list(&all[1])) tiles.push_back(read(a));
  if (tiles.empty()) fail("a scan needs tiles");
  const interpret::shape s = kept(tiles[0]).shape;
  for (const value& t : tiles)
    if (kept(t).shape != s) fail("the tiles have different shapes");
  const std::size_t d = axis(integer(all[2]), s.size());
  const bool reverse = truth_or(argument_at(3), false);
  std::vector<array> out;
  for (const value& t : tiles) out.push_back(*t.data);
  std::vector<value> so_far;
  const auto n = static_cast<std::size_t>(s[d]);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = reverse ? n - 1 - i : i;
    std::vector<value> now;
    for (const value& t : tiles) now.push_back(typed(slice_of(*t.data, d, at), t.element.value_or(dtype::f64), {}));
    so_far = so_far.empty() ? now : combined(*g, so_far, now);
    for (std::size_t k = 0; k < out.size(); ++k) set_slice(out[k], d, at, kept(so_far[k]));
  }
  value v;
  v.what = value::kind::list;
  for (std::size_t k = 0; k < out.size(); ++k)
    v.items.push_back(typed(std::move(out[k]), tiles[k].element.value_or(dtype::f64), tiles[k].dims));
  const bool several = argument_at(4) != nullptr ? truth_or(argument_at(4), false) : all[1].what == argument::kind::tuple;
  return several ? v : v.items[0];
}

value machine::reduce_by_graph() {
  const auto all = arguments();
  const device_ir::graph* const g = all.empty() ? nullptr : d_.find_graph(all[0].integer);
  if (g == nullptr || all.size() < 2) fail("a reduction needs a graph and tiles");
  std::vector<value> tiles;
  for (const argument& a : list(&all[1])) tiles.push_back(read(a));
  if (tiles.empty()) fail("a reduction needs tiles");
  for (const value& t : tiles)
    if (kept(t).shape != kept(tiles[0]).shape) fail("the tiles have different shapes");
  const reduced_axes r = axes_of(tiles[0], argument_at(2), truth_or(argument_at(3), false));
  std::vector<std::size_t> order = r.kept;
  order.insert(order.end(), r.axes.begin(), r.axes.end());
  std::vector<array> rows;
  const auto count = static_cast<std::int64_t>(count_of(r.result));
  const std::int64_t length = count == 0 ? 0 : static_cast<std::int64_t>(tiles[0].data->count()) / count;
  if (length == 0) fail("no element to combine");
  for (const value& t : tiles) {
    rows.push_back(permuted(*t.data, order));
    rows.back().shape = {count, length};
  }
  std::vector<value> so_far;
  for (std::int64_t i = 0; i < length; ++i) {
    std::vector<value> now;
    for (std::size_t k = 0; k < tiles.size(); ++k)
      now.push_back(typed(slice_of(rows[k], 1, static_cast<std::size_t>(i)), tiles[k].element.value_or(dtype::f64), {}));
    so_far = so_far.empty() ? now : combined(*g, so_far, now);
  }
  value v;
  v.what = value::kind::list;
  for (std::size_t k = 0; k < tiles.size(); ++k) {
    array a = kept(so_far[k]);
    a.shape = r.result;
    v.items.push_back(typed(std::move(a), tiles[k].element.value_or(dtype::f64), r.dims));
  }
  return all[1].what == argument::kind::tuple ? v : v.items[0];
}

// -- sorting

/// Equals stay in order; a NaN is larger than any number.
value machine::sort(operation o) {
  const value x = required(0);
  const bool top = o == operation::aten_topk;
  // sort(x, dim, descending), sort.stable(x, stable, dim, descending), topk(x, k, dim, largest)
  const std::size_t shift = top || current().target.ends_with(".stable") ? 1 : 0;
  const argument* dim = keyword("dim") != nullptr ? keyword("dim") : argument_at(1 + shift);
  const argument* way =
      keyword(top ? "largest" : "descending") != nullptr ? keyword(top ? "largest" : "descending") : argument_at(2 + shift);
  const std::size_t d = axis(integer_or(dim, -1), x.data->shape.size());
  const bool descending = truth_or(way, top);
  interpret::shape s = x.data->shape;
  const auto n = static_cast<std::size_t>(s[d]);
  const std::size_t inner = count_of(std::span<const std::int64_t>(s).subspan(d + 1));
  if (top) s[d] = integer_or(argument_at(1), 0);
  if (s[d] < 0 || s[d] > x.data->shape[d]) fail(fmt::format("{} of {} elements", s[d], n));
  const auto keeps = static_cast<std::size_t>(s[d]);
  positions from(count_of(s));
  array places = make_array(s, false);
  std::vector<std::size_t> order(n);
  const array& a = *x.data;
  const auto less = [&](std::size_t i, std::size_t j) {
    if (!a.real) return a.integers[i] < a.integers[j];
    return a.reals[i] < a.reals[j] || (std::isnan(a.reals[j]) && !std::isnan(a.reals[i]));
  };
  const std::size_t outer = a.count() == 0 ? 0 : a.count() / (n * inner);
  for (std::size_t row = 0; row < outer * inner; ++row) {
    const std::size_t base = row / inner * n * inner + row % inner;
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, [&](std::size_t i, std::size_t j) {
      const std::size_t x = base + i * inner;
      const std::size_t y = base + j * inner;
      if (descending ? less(y, x) : less(x, y)) return true;
      return !(descending ? less(x, y) : less(y, x)) && i < j;
    });
    const std::size_t to = row / inner * keeps * inner + row % inner;
    for (std::size_t i = 0; i < keeps; ++i) {
      from[to + i * inner] = base + order[i] * inner;
      places.integers[to + i * inner] = static_cast<std::int64_t>(order[i]);
    }
  }
  std::vector<symbolic::expression> dims = x.dims;
  if (top && d < dims.size()) dims[d] = symbolic::no_expression;
  value v;
  v.what = value::kind::list;
  v.items.push_back(typed(picked(a, s, from), x.element.value_or(dtype::f64), dims));
  v.items.push_back(typed(std::move(places), dtype::i64, dims));
  return v;
}

} // namespace muster::interpret
