module;
#include <algorithm>
#include <cmath>
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

struct part {
  enum class kind : std::uint8_t { inserted, lanes, tensor, scalar };
  kind what = kind::scalar;
  std::vector<std::int64_t> along; ///< positions
  std::vector<char> valid;         ///< of them
  interpret::shape shape;          ///< of an index that is a tile
  std::int64_t position = 0;       ///< of a scalar
  std::size_t storage = 0;         ///< the tensor's dimension
};

} // namespace

/// Every index is a position, a block's lanes, a slice, or a tile of positions. Several tiles broadcast together, or have
/// dimensions of their own each where the value's rank says so; without a value, one-dimensional ones have.
access machine::access_of(std::size_t tensor, std::span<const argument> indices, std::optional<std::size_t> rank) const {
  const std::vector<std::int64_t>& sizes = sizes_[tensor];
  const std::string_view name = d_.tensors[tensor].name;
  std::vector<part> parts;
  std::size_t storage = 0;
  const auto extent = [&] {
    if (storage >= sizes.size()) fail(fmt::format("'{}' has {} dimensions, there are more indices", name, sizes.size()));
    return sizes[storage];
  };
  for (const argument& a : indices) {
    part p;
    if (a.what == argument::kind::none) {
      p.what = part::kind::inserted;
      parts.push_back(std::move(p));
      continue;
    }
    const std::int64_t size = extent();
    p.storage = storage++;
    const auto along = [&](std::int64_t position, bool valid) {
      p.along.push_back(position);
      p.valid.push_back(valid && ((position >= 0 && position < size) || size == 1) ? 1 : 0);
    };
    const std::int64_t block = block_of(a);
    if (a.what == argument::kind::slice) {
      const auto bounds = d_.items(a);
      const std::int64_t step = integer_or(bounds[2].what == argument::kind::none ? nullptr : &bounds[2], 1);
      if (step <= 0) unsupported("a slice that steps backwards");
      const auto bound = [&](const argument& b, std::int64_t otherwise) {
        std::int64_t at = integer_or(b.what == argument::kind::none ? nullptr : &b, otherwise);
        if (at < 0) at += size;
        return std::clamp<std::int64_t>(at, 0, size);
      };
      p.what = part::kind::lanes;
      const std::int64_t stop = bound(bounds[1], size);
      for (std::int64_t i = bound(bounds[0], 0); i < stop; i += step) along(i, true);
    } else if (block >= 0) {
      p.what = part::kind::lanes;
      const tile& t = tiles_[static_cast<std::size_t>(block)];
      std::int64_t end = t.end;
      if (t.extents != nullptr)
        for (std::size_t i = 0; i < t.extents->count(); ++i)
          end = i == 0 ? t.extents->integer_at(0) : std::max(end, t.extents->integer_at(i));
      const std::int64_t begin = first_lane(static_cast<std::size_t>(block));
      for (std::int64_t i = 0; i < lane_count(static_cast<std::size_t>(block)); ++i) along(begin + i, !t.open || begin + i < end);
    } else if (const value v = read(a); v.is_tile()) {
      p.what = part::kind::tensor;
      p.shape = v.data->shape;
      p.valid = validity(v.dims, p.shape);
      if (p.valid.empty()) p.valid.assign(v.data->count(), 1);
      for (std::size_t i = 0; i < v.data->count(); ++i) p.along.push_back(v.data->integer_at(i));
    } else {
      p.position = integer(a);
      if ((p.position < -size || p.position >= size) && size != 1)
        fail(fmt::format("index {} is outside of dimension {} of '{}', which has {} elements", p.position, p.storage, name, size));
      if (p.position < 0) p.position += size;
    }
    parts.push_back(std::move(p));
  }
  if (storage != sizes.size()) fail(fmt::format("'{}' has {} dimensions, there are {} indices", name, sizes.size(), storage));

  std::size_t lanes = 0;
  std::size_t all_ranks = 0;
  std::size_t largest = 0;
  bool lines = true;
  for (const part& p : parts) {
    if (p.what == part::kind::lanes || p.what == part::kind::inserted) ++lanes;
    if (p.what != part::kind::tensor) continue;
    all_ranks += p.shape.size();
    largest = std::max(largest, p.shape.size());
    lines = lines && p.shape.size() == 1;
  }
  const bool outer = rank ? all_ranks + lanes == *rank : lines;
  const std::size_t total = lanes + (outer ? all_ranks : largest);
  access result;
  result.shape.assign(total, 1);
  std::vector<interpret::shape> shapes(parts.size());
  std::size_t at = 0;
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const part& p = parts[i];
    if (p.what == part::kind::scalar) continue;
    shapes[i].assign(total, 1);
    if (p.what == part::kind::inserted) {
      ++at;
    } else if (p.what == part::kind::lanes) {
      shapes[i][at++] = static_cast<std::int64_t>(p.along.size());
    } else {
      std::size_t begin = at;
      if (outer) {
        at += p.shape.size();
      } else {
        if (!first) {
          first = at;
          at += largest;
        }
        begin = *first + largest - p.shape.size();
      }
      std::ranges::copy(p.shape, shapes[i].begin() + static_cast<std::ptrdiff_t>(begin));
    }
    const auto both = broadcast_shape(result.shape, shapes[i]);
    if (!both) fail("the indices do not broadcast together");
    result.shape = *both;
  }
  const std::size_t count = count_of(result.shape);
  result.offsets.assign(count, 0);
  result.valid.assign(count, 1);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const part& p = parts[i];
    if (p.what == part::kind::inserted) continue;
    // Along a dimension of one element every index means that element.
    const std::int64_t stride = sizes[p.storage] == 1 ? 0 : strides_[tensor][p.storage];
    if (p.what == part::kind::scalar) {
      for (std::int64_t& offset : result.offsets) offset += p.position * stride;
      continue;
    }
    const positions from = broadcast_positions(shapes[i], result.shape);
    for (std::size_t j = 0; j < count; ++j) {
      if (p.valid[from[j]] == 0) result.valid[j] = 0;
      else result.offsets[j] += p.along[from[j]] * stride;
    }
  }
  return result;
}

/// The mask that an access was given, on top of its own.
void machine::restrict(access& a, const argument* mask) const {
  if (mask == nullptr) return;
  const value m = read(*mask);
  const array& test = kept(m);
  const auto both = broadcast_shape(a.shape, test.shape);
  if (!both) fail("the mask does not broadcast with the access");
  const positions own = broadcast_positions(a.shape, *both);
  const positions from = broadcast_positions(test.shape, *both);
  access r;
  r.shape = *both;
  for (std::size_t i = 0; i < own.size(); ++i) {
    r.offsets.push_back(a.offsets[own[i]]);
    r.valid.push_back(a.valid[own[i]] != 0 && test.truth_at(from[i]) ? 1 : 0);
  }
  a = std::move(r);
}

void machine::check(const access& a, std::size_t tensor) const {
  const auto size =
      static_cast<std::int64_t>(tensors_[tensor].size() / static_cast<std::size_t>(device_ir::size_of(d_.tensors[tensor].element)));
  for (std::size_t i = 0; i < a.offsets.size(); ++i)
    if (a.valid[i] != 0 && (a.offsets[i] < 0 || a.offsets[i] >= size))
      fail(fmt::format("element {} of '{}' is outside of its {}: the tensors do not fit the document", a.offsets[i],
                       d_.tensors[tensor].name, size));
}

array machine::gathered(const access& a, std::size_t tensor) const {
  check(a, tensor);
  const dtype type = d_.tensors[tensor].element;
  const auto size = static_cast<std::size_t>(device_ir::size_of(type));
  array r = make_array(a.shape, device_ir::is_float(type));
  for (std::size_t i = 0; i < a.offsets.size(); ++i) {
    if (a.valid[i] == 0) continue;
    const std::byte* const element = tensors_[tensor].data() + static_cast<std::size_t>(a.offsets[i]) * size;
    if (r.real) r.reals[i] = device_ir::element_to_double(type, element);
    else r.integers[i] = device_ir::element_to_integer(type, element);
  }
  return r;
}

std::size_t machine::tensor_operand() const {
  const value v = operand(0);
  if (v.what != value::kind::tensor) fail("the access needs a host tensor");
  return v.tensor;
}

value machine::load() {
  if (operand(0).what != value::kind::tensor) return subscript();
  const std::size_t tensor = tensor_operand();
  const bool tile = current().type.what == device_ir::type::kind::tensor;
  access a = access_of(tensor, list(argument_at(1)), tile ? d_.sizes(current().type).size() : 0);
  restrict(a, argument_at(2));
  return typed(gathered(a, tensor));
}

/// Where a store or atomic goes. A jagged block's rows end where the value's shape says.
access machine::target_of(std::size_t tensor, const value& v) const {
  const std::size_t rank = v.what == value::kind::data ? v.data->shape.size() : 0;
  access a = access_of(tensor, list(argument_at(1)), rank > 0 ? std::optional(rank) : std::nullopt);
  if (v.dims.size() != a.shape.size()) return a;
  const std::vector<char> valid = validity(v.dims, v.data->shape);
  if (valid.empty()) return a;
  const auto both = broadcast_shape(a.shape, v.data->shape);
  if (!both) fail("the value does not broadcast to the access");
  const positions own = broadcast_positions(a.shape, *both);
  const positions from = broadcast_positions(v.data->shape, *both);
  access r;
  r.shape = *both;
  for (std::size_t i = 0; i < own.size(); ++i) {
    r.offsets.push_back(a.offsets[own[i]]);
    r.valid.push_back(a.valid[own[i]] != 0 && valid[from[i]] != 0 ? 1 : 0);
  }
  return r;
}

void machine::note_stored(const access& a, std::size_t tensor) const {
  if (!how_.on_store) return;
  std::vector<std::int64_t> offsets;
  for (std::size_t i = 0; i < a.offsets.size(); ++i)
    if (a.valid[i] != 0) offsets.push_back(a.offsets[i]);
  std::vector<open_tile> tiles;
  for (std::size_t b = 0; b < tiles_.size(); ++b)
    if (tiles_[b].open) tiles.push_back({d_.blocks[b].id, tiles_[b].begin});
  std::ranges::sort(tiles, {}, &open_tile::block);
  how_.on_store({current_, tensor, offsets, root_, tiles});
}

value machine::store() {
  const std::size_t tensor = tensor_operand();
  const value v = required(2);
  access a = target_of(tensor, v);
  restrict(a, argument_at(3));
  check(a, tensor);
  const dtype type = d_.tensors[tensor].element;
  const auto size = static_cast<std::size_t>(device_ir::size_of(type));
  const array data = rounded(*v.data, type);
  if (broadcast_shape(data.shape, a.shape) != std::optional(a.shape)) fail("the value does not broadcast to the access");
  const positions from = broadcast_positions(data.shape, a.shape);
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (a.valid[i] == 0) continue;
    std::byte* const element = tensors_[tensor].data() + static_cast<std::size_t>(a.offsets[i]) * size;
    if (data.real) device_ir::double_to_element(type, data.reals[from[i]], element);
    else device_ir::integer_to_element(type, data.integers[from[i]], element);
  }
  note_stored(a, tensor);
  return {};
}

namespace {

/// What an atomic operation makes of the element `old`.
template <class T> T updated(operation o, T old, T given) {
  switch (o) {
  case operation::atomic_xchg: return given;
  case operation::atomic_max:
    if constexpr (std::is_floating_point_v<T>) return std::fmax(old, given);
    else return std::max(old, given);
  case operation::atomic_min:
    if constexpr (std::is_floating_point_v<T>) return std::fmin(old, given);
    else return std::min(old, given);
  default: break;
  }
  if constexpr (std::is_floating_point_v<T>) return old + given;
  else {
    if (o == operation::atomic_and) return old & given;
    if (o == operation::atomic_or) return old | given;
    if (o == operation::atomic_xor) return old ^ given;
    return static_cast<T>(static_cast<std::uint64_t>(old) + static_cast<std::uint64_t>(given));
  }
}

} // namespace

value machine::atomic(operation o) {
  const std::size_t tensor = tensor_operand();
  const dtype type = d_.tensors[tensor].element;
  const bool bits = o == operation::atomic_and || o == operation::atomic_or || o == operation::atomic_xor;
  if (bits && device_ir::is_float(type)) unsupported("bitwise operations are of integers");
  const value v = required(2);
  const access a = target_of(tensor, v);
  check(a, tensor);
  array before = gathered(a, tensor);
  const auto spread = [&](const value& from) {
    if (broadcast_shape(from.data->shape, a.shape) != std::optional(a.shape)) fail("the value does not broadcast to the access");
    return rounded(picked(*from.data, a.shape, broadcast_positions(from.data->shape, a.shape)), type);
  };
  const array data = spread(v);
  const std::optional<array> replacement = o == operation::atomic_cas ? std::optional(spread(required(3))) : std::nullopt;
  const auto size = static_cast<std::size_t>(device_ir::size_of(type));
  for (std::size_t i = 0; i < a.offsets.size(); ++i) {
    if (a.valid[i] == 0) continue;
    std::byte* const element = tensors_[tensor].data() + static_cast<std::size_t>(a.offsets[i]) * size;
    if (data.real) {
      const double old = device_ir::element_to_double(type, element);
      before.reals[i] = old;
      if (!replacement) device_ir::double_to_element(type, updated(o, old, data.reals[i]), element);
      else if (old == data.reals[i]) device_ir::double_to_element(type, replacement->reals[i], element);
    } else {
      const std::int64_t old = device_ir::element_to_integer(type, element);
      before.integers[i] = old;
      if (!replacement) device_ir::integer_to_element(type, updated(o, old, data.integers[i]), element);
      else if (old == data.integers[i]) device_ir::integer_to_element(type, replacement->integers[i], element);
    }
  }
  note_stored(a, tensor);
  return typed(std::move(before));
}

value machine::mask_to() {
  const value x = required(0);
  const std::vector<char> valid = validity(x.dims, x.data->shape);
  if (valid.empty()) return typed(*x.data);
  const array other = rounded(*required(1).data, x.element.value_or(dtype::f64));
  array r = x.data->real ? as_real(*x.data) : *x.data;
  for (std::size_t i = 0; i < valid.size(); ++i) {
    if (valid[i] != 0) continue;
    if (r.real) r.reals[i] = other.real_at(0);
    else r.integers[i] = other.integer_at(0);
  }
  return typed(std::move(r));
}

/// Sixteen values of four bits an address of eight bytes: sign, two bits of exponent, one of mantissa.
value machine::load_packed(operation) {
  const std::size_t tensor = tensor_operand();
  const value groups = required(1);
  const argument* const mask = argument_at(2);
  const value m = mask != nullptr ? read(*mask) : value_of(scalar_array(std::int64_t{1}));
  const auto both = broadcast_shape(groups.data->shape, kept(m).shape);
  if (!both) fail("the mask does not broadcast with the access");
  const positions at = broadcast_positions(groups.data->shape, *both);
  const positions test = broadcast_positions(m.data->shape, *both);
  constexpr double magnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const std::span<std::byte> bytes = tensors_[tensor];
  value all;
  all.what = value::kind::list;
  for (std::size_t k = 0; k < 16; ++k) {
    array r = make_array(*both, true);
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (!m.data->truth_at(test[i])) continue;
      const std::int64_t byte = groups.data->integer_at(at[i]) * 8 + static_cast<std::int64_t>(k / 2);
      if (byte < 0 || static_cast<std::size_t>(byte) >= bytes.size())
        fail(fmt::format("byte {} of '{}' is outside of its {}: the tensors do not fit the document", byte, d_.tensors[tensor].name,
                         bytes.size()));
      const auto bits = std::to_integer<unsigned>(bytes[static_cast<std::size_t>(byte)]) >> (4 * (k % 2)) & 15U;
      r.reals[i] = (bits & 8U) != 0 ? -magnitudes[bits & 7U] : magnitudes[bits & 7U];
    }
    all.items.push_back(typed(std::move(r), dtype::f16, groups.dims));
  }
  return all;
}

} // namespace muster::interpret
