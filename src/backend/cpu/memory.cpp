module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.backend.cpu;

namespace muster::cpu {

using codegen::block_role;
using codegen::op;
using device_ir::argument;
using device_ir::no_node;

namespace {

using index_part = codegen::access_index;

/// One access: the dimensions over which it runs, and where an element of it lies.
class access {
public:
  access(cpu_emitter& e, std::int32_t tensor, std::span<const argument> list, std::span<const dimension> value)
      : e_(e), tensor_(tensor), declaration_(e.source->tensors[static_cast<std::size_t>(tensor)]) {
    codegen::access_indices read = e.read_indices(tensor, list, value.size());
    parts_ = std::move(read.all);
    place(read.rank, value);
  }

  [[nodiscard]] const std::vector<dimension>& shape() const noexcept { return shape_; }
  [[nodiscard]] std::span<const index_part> parts() const noexcept { return parts_; }
  [[nodiscard]] dtype element_type() const noexcept { return declaration_.element; }

  /// `tensor[offset]` of the element at `at`.
  expression element(index_span at) {
    expression offset = e_.zero();
    for (const index_part& p : parts_) {
      if (p.what == index_part::kind::none) continue;
      offset = e_.binary(op::add, offset, e_.binary(op::multiply, position(p, at), stride(p.storage)));
    }
    return e_.typed(e_.subscript(e_.tensor_value(tensor_), {offset}), declaration_.element);
  }

  /// What must hold for the access, or `no_expression`.
  expression guard(index_span at) { return e_.validity(shape_, at); }

  /// The dimension along which elements lie side by side, or the last.
  std::size_t contiguous_dimension() {
    for (const index_part& p : parts_) {
      if (p.what != index_part::kind::block && p.what != index_part::kind::whole) continue;
      if (p.step == 1 && e_.integer_literal(stride(p.storage)) == std::optional<std::int64_t>(1) && !is_single(p.first_dimension))
        return p.first_dimension;
    }
    return shape_.empty() ? 0 : shape_.size() - 1;
  }

private:
  cpu_emitter& e_;
  std::int32_t tensor_;
  const device_ir::host_tensor& declaration_;
  std::vector<index_part> parts_;
  std::vector<dimension> shape_;

  bool is_single(std::size_t d) const { return shape_[d].size == 1; }

  expression stride(std::size_t d) { return e_.stride_of(tensor_, d); }

  /// The dimensions of the access.
  void place(std::size_t rank, std::span<const dimension> value) {
    dimension one;
    one.size = 1;
    shape_.assign(rank, one);
    for (index_part& p : parts_) {
      if (p.what == index_part::kind::scalar) {
        p.value = e_.cast(p.value, dtype::i64);
      } else if (p.what != index_part::kind::tensor) {
        shape_[p.first_dimension] = own_dimension(p);
      } else {
        const std::span<const dimension> own = e_.shape_of(p.tensor);
        for (std::size_t d = 0; d < own.size(); ++d)
          if (dimension& to = shape_[p.first_dimension + d]; to.size == 1 && to.block < 0) to = own[d];
      }
    }
    // A whole dimension has the block, and where a size is not known the size, of the value's.
    if (value.size() != shape_.size()) return;
    for (const index_part& p : parts_)
      if (p.what == index_part::kind::whole && value[p.first_dimension].size != 1) shape_[p.first_dimension] = value[p.first_dimension];
  }

  dimension own_dimension(const index_part& p) const {
    dimension d;
    if (p.what == index_part::kind::block) {
      d.block = p.block;
      d.size = e_.plan->blocks[static_cast<std::size_t>(p.block)].block_size;
      return d;
    }
    d.size = 1;
    if (p.what == index_part::kind::none) return d;
    const std::int64_t size = e_.constant_size(tensor_, p.storage);
    d.size = p.size;
    d.expression = e_.source->sizes(declaration_)[p.storage];
    if (p.step != 1 || p.start != 0) return d;
    // The loop or whole tile over this dimension, where there is one.
    for (const codegen::block_plan& b : e_.plan->blocks) {
      const bool reduction = b.role == block_role::whole || b.role == block_role::rolled;
      if (!reduction || !((b.constant_extent && *b.constant_extent == size) || b.extent == d.expression)) continue;
      if (b.role == block_role::rolled && e_.find_tile(b.id) == nullptr) continue;
      d.block = b.id;
      d.size = b.block_size;
      break;
    }
    return d;
  }

  expression position(const index_part& p, index_span at) {
    switch (p.what) {
    case index_part::kind::block: return e_.binary(op::add, e_.lane_offset(p.block), at[p.first_dimension]);
    case index_part::kind::whole: {
      expression i = at[p.first_dimension];
      if (const std::int32_t block = shape_[p.first_dimension].block; block >= 0) i = e_.binary(op::add, e_.lane_offset(block), i);
      return e_.binary(op::add, e_.binary(op::multiply, i, e_.whole(p.step)), e_.whole(p.start));
    }
    case index_part::kind::tensor: {
      const std::span<const dimension> own = e_.shape_of(p.tensor);
      indices inner;
      for (std::size_t d = 0; d < own.size(); ++d) inner.push_back(own[d].size == 1 ? e_.zero() : at[p.first_dimension + d]);
      return e_.cast(e_.element(p.tensor, inner), dtype::i64);
    }
    default: return p.value;
    }
  }
};

expression both(emitter& e, expression a, expression b) {
  if (a == codegen::no_expression) return b;
  return b == codegen::no_expression ? a : e.binary(op::logical_and, a, b);
}

/// The mask given with the access, for the element at `at`.
expression extra_mask(cpu_emitter& e, std::size_t position, index_span at, std::span<const dimension> shape) {
  const argument* a = e.argument_at(position);
  if (a == nullptr || a->what == argument::kind::none) return codegen::no_expression;
  if (a->what == argument::kind::node && e.is_tile(a->node)) return e.broadcast_element(a->node, at, shape);
  return e.literal(*a);
}

expression zero_of(emitter& e, dtype type) {
  if (device_ir::is_float(type)) return e.real(0, type);
  return type == dtype::b8 ? e.boolean(false) : e.integer(0, type);
}

/// Argument `position` for the element at `at` of a tile of shape `shape`.
expression value_at(cpu_emitter& e, std::size_t position, index_span at, std::span<const dimension> shape) {
  const node_id n = e.operand_node(position);
  if (n != no_node && e.is_tile(n)) return e.broadcast_element(n, at, shape);
  return e.operand(position);
}

/// Opens a loop a dimension, the one that lies contiguous in memory innermost. Gives the indices by dimension.
indices open_loops(cpu_emitter& e, access& a) {
  const std::vector<dimension> shape = a.shape();
  indices at(shape.size(), e.zero());
  if (shape.empty()) return at;
  const std::size_t innermost = a.contiguous_dimension();
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (d != innermost) at[d] = e.push_loop(shape[d]);
  at[innermost] = e.push_loop(shape[innermost]);
  return at;
}

void close_loops(cpu_emitter& e) {
  while (e.depth() > 1) e.pop();
}

/// `load(tile, [:, None])` of a value that is no host tensor only inserts dimensions.
void load_from_tile(cpu_emitter& e, const node& n) { subscript(e, n); }

} // namespace

void load(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const std::int32_t tensor = e.tensor_of(e.operand_node(0));
  if (tensor < 0) return load_from_tile(e, n);
  access a(e, tensor, e.index_list(1), e.shape_of(e.current));
  const indices at = e.broadcast(e.lane(), e.shape_of(e.current).size(), a.shape());
  const expression valid = both(e, a.guard(at), extra_mask(e, 2, at, a.shape()));
  const expression value = a.element(at);
  if (valid == codegen::no_expression) return e.result(value);
  e.result(e.typed(e.select(valid, value, zero_of(e, a.element_type())), a.element_type()));
}

void store(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const std::int32_t tensor = e.tensor_of(e.operand_node(0));
  if (tensor < 0) e.malformed("store needs a host tensor");
  access a(e, tensor, e.index_list(1), e.operand_shape(2));
  e.refuse_overlap(tensor, a.parts());
  const indices at = open_loops(e, a);
  const expression value = e.cast(value_at(e, 2, at, a.shape()), a.element_type());
  const expression valid = both(e, a.guard(at), extra_mask(e, 3, at, a.shape()));
  const expression to = a.element(at);
  {
    const auto guard = e.into(e.innermost());
    if (valid == codegen::no_expression) {
      e.store(to, value);
    } else {
      const codegen::statement s = e.if_then(valid);
      const auto inside = e.into(e.inner(s));
      e.store(to, value);
    }
  }
  close_loops(e);
}

namespace {

std::string_view atomic_callee(operation o) {
  switch (o) {
  case operation::atomic_add: return "math::atomic_add";
  case operation::atomic_xchg: return "math::atomic_exchange";
  case operation::atomic_and: return "math::atomic_and";
  case operation::atomic_or: return "math::atomic_or";
  case operation::atomic_xor: return "math::atomic_xor";
  case operation::atomic_max: return "math::atomic_max";
  case operation::atomic_min: return "math::atomic_min";
  default: return "math::atomic_compare_exchange";
  }
}

void atomic_update(cpu_emitter& e, std::size_t values) {
  const std::int32_t tensor = e.tensor_of(e.operand_node(0));
  if (tensor < 0) e.malformed("an atomic operation needs a host tensor");
  const operation o = e.plan->at(e.current).op;
  access a(e, tensor, e.index_list(1), e.operand_shape(2));
  const dtype type = a.element_type();
  const bool bitwise = o == operation::atomic_and || o == operation::atomic_or || o == operation::atomic_xor;
  if (bitwise && device_ir::is_float(type)) e.unsupported("bitwise operations are of integers");
  if (type == dtype::b8 && !bitwise && o != operation::atomic_xchg) e.unsupported("an atomic arithmetic operation on truth values");
  const node_id n = e.current;
  const bool used = e.plan->at(n).uses > 0;
  const std::int32_t previous = used && e.is_tile(n) ? e.make_buffer(e.source->at(n).name, e.shape_of(n), type) : -1;
  codegen::variable scalar = codegen::no_variable;
  if (used && previous < 0) {
    scalar = e.new_variable(e.source->at(n).name, type);
    e.declare(scalar, {}, zero_of(e, type));
  }
  const indices at = open_loops(e, a);
  std::vector<expression> arguments{a.element(at)};
  for (std::size_t i = 0; i < values; ++i) arguments.push_back(e.cast(value_at(e, 2 + i, at, a.shape()), type));
  const expression valid = a.guard(at);
  const expression call = e.typed(e.call(atomic_callee(o), arguments), type);
  {
    const auto guard = e.into(e.innermost());
    const codegen::body inside = valid == codegen::no_expression ? e.innermost() : e.inner(e.if_then(valid));
    const auto within = e.into(inside);
    if (previous >= 0) e.store(e.place(previous, e.broadcast(at, at.size(), e.shape_of(n))), call);
    else if (used) e.at(e.assign(scalar, call)).effect = true;
    else e.evaluate(call);
  }
  close_loops(e);
  if (previous >= 0) {
    e.at_buffer(previous).filled = true;
    e.keep_in(n, previous);
  } else if (used) {
    e.set_value(n, e.name(scalar));
  }
}

} // namespace

void atomic(emitter& base, const node&) { atomic_update(self(base), 1); }
void atomic_cas(emitter& base, const node&) { atomic_update(self(base), 2); }

/// Lanes that no loop visits need no value; those of a jagged row or a reshaped dimension do.
void mask_to(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const expression value = e.operand(0);
  const node_id x = e.operand_node(0);
  if (x == no_node || e.lane().empty()) return e.set_value(e.current, value);
  const std::vector<dimension> shape(e.shape_of(e.current).begin(), e.shape_of(e.current).end());
  const expression valid = e.validity(shape, e.lane());
  if (valid == codegen::no_expression) return e.set_value(e.current, value);
  const argument* other = e.argument_at(1);
  if (other == nullptr) e.malformed("_mask_to needs a value");
  const dtype type = e.type_of(e.current);
  e.result(e.typed(e.select(valid, e.cast(value, type), e.literal(*other, type)), type));
}

/// One of the sixteen values that an address of eight bytes holds: `getitem` asks for it.
void load_float4(emitter& base, const node&) { self(base).unsupported("sixteen packed values as one"); }

} // namespace muster::cpu
