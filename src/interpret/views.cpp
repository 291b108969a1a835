module;
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
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

std::vector<std::size_t> in_order(std::size_t rank) {
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

array reshaped(array a, interpret::shape s) {
  a.shape = std::move(s);
  return a;
}

/// The bytes of the elements as elements of another type of the same size.
array reinterpreted(const array& a, dtype from, dtype to) {
  array r = make_array(a.shape, device_ir::is_float(to));
  for (std::size_t i = 0; i < a.count(); ++i) {
    std::byte bytes[8] = {};
    if (a.real) device_ir::double_to_element(from, a.reals[i], bytes);
    else device_ir::integer_to_element(from, a.integers[i], bytes);
    if (r.real) r.reals[i] = device_ir::element_to_double(to, bytes);
    else r.integers[i] = device_ir::element_to_integer(to, bytes);
  }
  return r;
}

/// Of the pieces side by side along `axis`.
array joined(std::span<const array* const> pieces, std::size_t axis) {
  interpret::shape s = pieces[0]->shape;
  bool real = false;
  s[axis] = 0;
  for (const array* p : pieces) {
    s[axis] += p->shape[axis];
    real = real || p->real;
  }
  array r = make_array(s, real);
  const std::size_t inner = count_of(std::span<const std::int64_t>(s).subspan(axis + 1));
  const std::size_t outer = count_of(std::span<const std::int64_t>(s).first(axis));
  std::size_t to = 0;
  for (std::size_t o = 0; o < outer; ++o)
    for (const array* p : pieces) {
      const std::size_t length = static_cast<std::size_t>(p->shape[axis]) * inner;
      for (std::size_t i = 0; i < length; ++i, ++to) {
        if (real) r.reals[to] = p->real_at(o * length + i);
        else r.integers[to] = p->integers[o * length + i];
      }
    }
  return r;
}

} // namespace

value machine::subscript() const {
  const value x = required(0);
  interpret::shape s;
  std::size_t d = 0;
  for (const argument& a : list(argument_at(1))) {
    if (a.what == argument::kind::none) {
      s.push_back(1);
      continue;
    }
    const bool whole = a.what == argument::kind::slice &&
                       std::ranges::all_of(d_.items(a), [](const argument& b) { return b.what == argument::kind::none; });
    if (!whole) unsupported("a subscript that is neither ':' nor None");
    if (d == x.data->shape.size()) fail("there are more indices than dimensions");
    s.push_back(x.data->shape[d++]);
  }
  for (; d < x.data->shape.size(); ++d) s.push_back(x.data->shape[d]);
  return typed(reshaped(*x.data, std::move(s)));
}

value machine::view(operation o) {
  const auto permute = [&](std::vector<std::size_t> order) { return typed(permuted(tile_operand(0), order)); };
  const auto expand = [&](const array& a) {
    const interpret::shape to = declared_shape();
    if (broadcast_shape(a.shape, to) != std::optional(to)) fail("the shapes do not broadcast");
    return typed(picked(a, to, broadcast_positions(a.shape, to)));
  };
  const auto pieces = [&] {
    std::vector<const array*> all;
    for (const argument& a : list(argument_at(0))) {
      if (a.what != argument::kind::node) fail("expected tiles");
      all.push_back(&kept(values_[device_ir::index(a.node)]));
    }
    if (all.empty()) fail("expected tiles");
    return all;
  };
  const auto stacked = [&](std::vector<const array*> all, std::int64_t dim) {
    const std::size_t d = axis(dim, all[0]->shape.size() + 1);
    std::vector<array> made;
    for (const array* p : all) {
      interpret::shape s = p->shape;
      s.insert(s.begin() + static_cast<std::ptrdiff_t>(d), 1);
      if (p->shape != all[0]->shape) fail("the tiles have different shapes");
      made.push_back(reshaped(*p, std::move(s)));
    }
    std::vector<const array*> of;
    for (const array& m : made) of.push_back(&m);
    return typed(joined(of, d));
  };
  switch (o) {
  case operation::subscript: return subscript();
  case operation::aten_view:
  case operation::aten_view_dtype:
  case operation::aten_reshape:
  case operation::aten_squeeze:
  case operation::aten_unsqueeze: {
    const value x = required(0);
    if (const argument* a = argument_at(1); a != nullptr && a->what == argument::kind::dtype) {
      if (!x.element || device_ir::size_of(*x.element) != device_ir::size_of(a->element)) unsupported("a view as elements of another size");
      return typed(reinterpreted(*x.data, *x.element, a->element));
    }
    interpret::shape s = declared_shape();
    if (count_of(s) != x.data->count()) fail("the view has another number of elements");
    return typed(reshaped(*x.data, std::move(s)));
  }
  case operation::aten_clone: return typed(*required(0).data);
  case operation::aten_expand:
  case operation::pre_broadcast_tile: return expand(*required(0).data);
  case operation::aten_permute: {
    std::vector<std::size_t> order;
    for (const argument& a : list(argument_at(1))) order.push_back(axis(integer(a), tile_operand(0).shape.size()));
    std::vector<std::size_t> sorted = order;
    std::ranges::sort(sorted);
    if (sorted != in_order(tile_operand(0).shape.size())) fail("that is no order of the dimensions");
    return permute(std::move(order));
  }
  case operation::aten_transpose:
  case operation::aten_t: {
    const std::size_t rank = tile_operand(0).shape.size();
    std::vector<std::size_t> order = in_order(rank);
    if (o == operation::aten_t) std::ranges::reverse(order);
    else std::swap(order[axis(integer_or(argument_at(1), 0), rank)], order[axis(integer_or(argument_at(2), 1), rank)]);
    return permute(std::move(order));
  }
  case operation::aten_stack: return stacked(pieces(), integer_or(argument_at(1), 0));
  case operation::join: return stacked({&tile_operand(0), &tile_operand(1)}, -1);
  case operation::aten_cat: {
    const auto all = pieces();
    const std::size_t d = axis(integer_or(argument_at(1), 0), all[0]->shape.size());
    for (const array* p : all)
      for (std::size_t i = 0; i < all[0]->shape.size(); ++i)
        if (p->shape.size() != all[0]->shape.size() || (i != d && p->shape[i] != all[0]->shape[i])) fail("the tiles have different shapes");
    return typed(joined(all, d));
  }
  case operation::split: {
    const value x = required(0);
    if (x.data->shape.empty() || x.data->shape.back() != 2) fail("a split needs a last dimension of 2 elements");
    interpret::shape s(x.data->shape.begin(), x.data->shape.end() - 1);
    std::vector<symbolic::expression> dims = x.dims;
    if (!dims.empty()) dims.pop_back();
    value v;
    v.what = value::kind::list;
    for (std::size_t half = 0; half < 2; ++half) {
      positions at(x.data->count() / 2);
      for (std::size_t i = 0; i < at.size(); ++i) at[i] = 2 * i + half;
      v.items.push_back(typed(picked(*x.data, s, at), x.element.value_or(dtype::f64), dims));
    }
    return v;
  }
  case operation::aten_gather: {
    const array& x = tile_operand(0);
    const array& index = tile_operand(2);
    const std::size_t d = axis(integer_or(argument_at(1), 0), x.shape.size());
    if (index.shape.size() != x.shape.size()) fail("a gather's indices have as many dimensions as its tile");
    positions at(index.count());
    std::vector<std::int64_t> coordinates(index.shape.size(), 0);
    for (std::size_t i = 0; i < at.size(); ++i) {
      std::size_t rest = i;
      for (std::size_t k = index.shape.size(); k-- > 0;) {
        coordinates[k] = static_cast<std::int64_t>(rest % static_cast<std::size_t>(index.shape[k]));
        rest /= static_cast<std::size_t>(index.shape[k]);
      }
      coordinates[d] = index.integer_at(i);
      std::size_t from = 0;
      for (std::size_t k = 0; k < x.shape.size(); ++k) {
        if (coordinates[k] < 0 || coordinates[k] >= x.shape[k])
          fail(fmt::format("index {} of a gather is outside of its tile", coordinates[k]));
        from = from * static_cast<std::size_t>(x.shape[k]) + static_cast<std::size_t>(coordinates[k]);
      }
      at[i] = from;
    }
    return typed(picked(x, index.shape, at));
  }
  case operation::aten_constant_pad_nd: {
    const array& x = tile_operand(0);
    const auto amounts = list(argument_at(1));
    interpret::shape s = x.shape;
    std::vector<std::int64_t> before(s.size(), 0);
    for (std::size_t i = 0; i + 1 < amounts.size(); i += 2) { // from the last dimension, before and behind
      if (i / 2 >= s.size()) fail("more paddings than dimensions");
      const std::size_t d = s.size() - 1 - i / 2;
      before[d] = integer(amounts[i]);
      s[d] += before[d] + integer(amounts[i + 1]);
      if (s[d] < 0) fail("a padding takes more than there is");
    }
    const value filler = argument_at(2) != nullptr ? required(2) : value_of(scalar_array(std::int64_t{0}));
    array r = make_array(s, x.real || filler.data->real);
    for (std::size_t i = 0; i < r.count(); ++i) {
      std::size_t rest = i;
      std::size_t from = 0;
      std::size_t step = 1;
      bool inside = true;
      for (std::size_t d = s.size(); d-- > 0;) {
        const std::int64_t at = static_cast<std::int64_t>(rest % static_cast<std::size_t>(s[d])) - before[d];
        rest /= static_cast<std::size_t>(s[d]);
        inside = inside && at >= 0 && at < x.shape[d];
        from += inside ? static_cast<std::size_t>(at) * step : 0;
        step *= static_cast<std::size_t>(x.shape[d]);
      }
      if (r.real) r.reals[i] = inside ? x.real_at(from) : filler.data->real_at(0);
      else r.integers[i] = inside ? x.integers[from] : filler.data->integers[0];
    }
    return typed(std::move(r));
  }
  default: unsupported("the interpreter does not have it");
  }
}

value machine::creation(operation o) {
  const auto filled = [&](const number& n) {
    array a = make_array(declared_shape(), !n.is_integer);
    if (a.real) std::ranges::fill(a.reals, n.real);
    else std::ranges::fill(a.integers, n.integer);
    return typed(std::move(a));
  };
  const auto counted = [&](const number& start, const number& step) {
    array a = make_array(declared_shape(), !start.is_integer || !step.is_integer);
    for (std::size_t i = 0; i < a.count(); ++i) {
      if (a.real) a.reals[i] = start.as_real() + static_cast<double>(i) * step.as_real();
      else a.integers[i] = start.integer + static_cast<std::int64_t>(i) * step.integer;
    }
    return typed(std::move(a));
  };
  const auto keyword_or = [&](std::string_view name, std::int64_t otherwise) {
    const argument* a = keyword(name);
    return a == nullptr ? number{.integer = otherwise} : scalar(read(*a));
  };
  switch (o) {
  case operation::full:
  case operation::aten_full:
  case operation::aten_full_like: return filled(scalar(required(1)));
  case operation::aten_zeros_like: return filled({.integer = 0});
  case operation::aten_ones_like: return filled({.integer = 1});
  case operation::aten_scalar_tensor: return filled(scalar(required(0)));
  case operation::prims_iota: return counted(keyword_or("start", 0), keyword_or("step", 1));
  case operation::aten_arange:
    return counted(argument_at(1) != nullptr ? scalar(required(0)) : number{.integer = 0},
                   argument_at(2) != nullptr ? scalar(required(2)) : number{.integer = 1});
  default: unsupported("the interpreter does not have it");
  }
}

value machine::tile_index() const {
  std::int64_t b = arguments().empty() ? -1 : block_of(arguments()[0]);
  if (const auto sizes = d_.sizes(current().type); b < 0 && !sizes.empty()) b = block_of(sizes[0]);
  if (b < 0) fail("which block's lanes?");
  array a = make_array({lane_count(static_cast<std::size_t>(b))}, false);
  std::iota(a.integers.begin(), a.integers.end(), first_lane(static_cast<std::size_t>(b)));
  return typed(std::move(a));
}

namespace {

/// The first word of Philox 4x32 with 10 rounds (Salmon, Moraes, Dror and Shaw 2011) of this counter and key.
std::uint32_t philox(std::uint64_t seed, std::uint64_t counter) {
  std::uint32_t x0 = static_cast<std::uint32_t>(counter);
  std::uint32_t x1 = static_cast<std::uint32_t>(counter >> 32U);
  std::uint32_t x2 = 0;
  std::uint32_t x3 = 0;
  std::uint32_t low = static_cast<std::uint32_t>(seed);
  std::uint32_t high = static_cast<std::uint32_t>(seed >> 32U);
  for (int round = 0; round < 10; ++round, low += 0x9E3779B9U, high += 0xBB67AE85U) {
    const std::uint64_t even = std::uint64_t{x0} * 0xD2511F53U;
    const std::uint64_t odd = std::uint64_t{x2} * 0xCD9E8D57U;
    x0 = static_cast<std::uint32_t>(odd >> 32U) ^ x1 ^ low;
    x1 = static_cast<std::uint32_t>(odd);
    x2 = static_cast<std::uint32_t>(even >> 32U) ^ x3 ^ high;
    x3 = static_cast<std::uint32_t>(even);
  }
  return x0;
}

} // namespace

/// Numbered by the element's position in the tile's whole dimensions.
value machine::random(operation o) {
  if (o != operation::rand && o != operation::randint) unsupported("the interpreter does not have it");
  const bool whole = o == operation::randint;
  const argument* const seed = argument_at(whole ? 3 : 1);
  if (seed == nullptr) fail("random numbers need a seed");
  const std::int64_t low = whole ? integer_or(argument_at(1), 0) : 0;
  const std::int64_t high = whole ? integer_or(argument_at(2), 0) : 0;
  array a = make_array(declared_shape(), !whole);
  const auto sizes = d_.sizes(current().type);
  for (std::size_t i = 0; i < a.count(); ++i) {
    std::size_t rest = i;
    std::uint64_t counter = 0;
    std::uint64_t step = 1;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      const auto n = static_cast<std::size_t>(a.shape[d]);
      const std::int64_t b = block_of(sizes[d]);
      const auto position =
          static_cast<std::uint64_t>(rest % n) + (b < 0 ? 0U : static_cast<std::uint64_t>(first_lane(static_cast<std::size_t>(b))));
      const bool sized = b >= 0 && d_.blocks[static_cast<std::size_t>(b)].size != symbolic::no_expression;
      counter += position * step;
      step *= sized ? static_cast<std::uint64_t>(evaluate_integer(d_.blocks[static_cast<std::size_t>(b)].size)) : n;
      rest /= n;
    }
    const std::uint32_t word = philox(static_cast<std::uint64_t>(integer(*seed)), counter);
    const std::int64_t number = static_cast<std::int32_t>(word);
    if (whole) a.integers[i] = high <= low ? low : low + (number < 0 ? -number : number) % (high - low);
    else a.reals[i] = static_cast<double>(number < 0 ? -number - 1 : number) * 4.6566127342e-10;
  }
  return typed(std::move(a));
}

} // namespace muster::interpret
