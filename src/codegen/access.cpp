module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <fmt/format.h>
module muster.codegen;

namespace muster::codegen {

std::span<const argument> emitter::index_list(std::size_t position) const {
  const argument* a = argument_at(position);
  if (a == nullptr || (a->what != argument::kind::list && a->what != argument::kind::tuple)) malformed("expected a list of indices");
  return source->items(*a);
}

std::int64_t emitter::constant_size(std::int32_t tensor, std::size_t d) const {
  const device_ir::host_tensor& declared = source->tensors[static_cast<std::size_t>(tensor)];
  const std::optional<symbolic::number> n = source->symbols.evaluate(source->sizes(declared)[d], plan->known);
  return n && n->is_integer ? n->integer : 0;
}

expression emitter::stride_of(std::int32_t tensor, std::size_t d) {
  const device_ir::host_tensor& declared = source->tensors[static_cast<std::size_t>(tensor)];
  if (constant_size(tensor, d) == 1) return integer(0, plan->index_dtype);
  return symbolic(source->strides(declared)[d]);
}

void emitter::read_slice(access_index& to, const argument& slice, std::int64_t size) const {
  const std::span<const argument> parts = source->items(slice);
  const auto constant = [&](std::size_t i, std::int64_t otherwise) {
    if (parts.size() <= i || parts[i].what == argument::kind::none) return otherwise;
    if (parts[i].what != argument::kind::integer) unsupported("a slice whose bounds are no constants");
    return parts[i].integer;
  };
  to.what = access_index::kind::whole;
  to.start = constant(0, 0);
  to.step = constant(2, 1);
  if (to.step < 1 || to.start < 0) unsupported("a slice that begins before 0 or steps backwards");
  const std::int64_t stop = constant(1, size);
  to.size = stop > to.start ? (stop - to.start + to.step - 1) / to.step : 0;
}

/// A negative constant counts from the end. Every index means the element of a dimension of size 1.
expression emitter::scalar_index(const argument& a, std::int32_t tensor, std::size_t d) {
  const expression value = literal(a);
  const std::optional<std::int64_t> n = integer_literal(value);
  if (!n) return value;
  const expression size = symbolic(source->sizes(source->tensors[static_cast<std::size_t>(tensor)])[d]);
  if (const auto known = integer_literal(size); known && *known != 1 && (*n < -*known || *n >= *known))
    malformed(fmt::format("index {} is out of range for a dimension of {}", *n, *known));
  return *n >= 0 ? value : binary(op::add, size, integer(*n, plan->index_dtype));
}

bool emitter::lanes_overlap(std::int32_t tensor, const access_index& i) {
  if (i.what == access_index::kind::scalar || i.what == access_index::kind::none) return false;
  if (integer_literal(stride_of(tensor, i.storage)) != std::optional<std::int64_t>(0)) return false;
  if (i.what == access_index::kind::whole) return i.size != 1;
  if (i.what == access_index::kind::tensor) return true;
  const block_plan& b = plan->blocks[static_cast<std::size_t>(i.block)];
  return b.block_size != 1 && !(b.mask && b.constant_extent == std::optional<std::int64_t>(1));
}

void emitter::refuse_overlap(std::int32_t tensor, std::span<const access_index> all) {
  for (const access_index& i : all)
    if (lanes_overlap(tensor, i)) unsupported("a store of several lanes to one element of a tensor that repeats its elements (stride 0)");
}

access_indices emitter::read_indices(std::int32_t tensor, std::span<const argument> list, std::size_t value_rank) {
  const device_ir::host_tensor& declared = source->tensors[static_cast<std::size_t>(tensor)];
  const std::size_t dimensions = source->sizes(declared).size();
  const auto count =
      static_cast<std::size_t>(std::count_if(list.begin(), list.end(), [](const argument& a) { return a.what != argument::kind::none; }));
  if (count != dimensions) malformed(fmt::format("'{}' has {} dimensions, the access has {} indices", declared.name, dimensions, count));

  access_indices result;
  result.all.reserve(list.size());
  std::size_t storage = 0;
  std::size_t widest = 0; // rank of tensor indices
  std::size_t rank_apart = 0;
  for (const argument& a : list) {
    access_index i{.storage = storage};
    if (a.what == argument::kind::none) {
      i.what = access_index::kind::none;
    } else if (a.what == argument::kind::slice) {
      read_slice(i, a, constant_size(tensor, storage));
    } else if (const std::int32_t block = block_of(a); block >= 0) {
      i.what = access_index::kind::block;
      i.block = block;
    } else if (a.what == argument::kind::node && !shape_of(a.node).empty()) {
      i.what = access_index::kind::tensor;
      i.tensor = a.node;
      widest = std::max(widest, shape_of(a.node).size());
      rank_apart += shape_of(a.node).size();
    } else {
      i.value = scalar_index(a, tensor, storage);
    }
    if (i.what != access_index::kind::scalar && i.what != access_index::kind::tensor) ++rank_apart;
    if (i.what != access_index::kind::none) ++storage;
    result.all.push_back(i);
  }

  const bool apart = value_rank == 0 ? widest == 1 : value_rank == rank_apart;
  std::optional<std::size_t> together; // where the dimensions begin that tensor indices share
  for (access_index& i : result.all) {
    i.first_dimension = result.rank;
    if (i.what == access_index::kind::scalar) continue;
    if (i.what != access_index::kind::tensor) {
      ++result.rank;
      continue;
    }
    const std::size_t own = shape_of(i.tensor).size();
    if (apart) {
      result.rank += own;
      continue;
    }
    if (!together) {
      together = result.rank;
      result.rank += widest;
    }
    i.first_dimension = *together + widest - own;
  }
  return result;
}

} // namespace muster::codegen
