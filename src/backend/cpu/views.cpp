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

using codegen::op;
using device_ir::argument;
using device_ir::no_node;

namespace {

std::span<const argument> list(emitter& e, std::size_t position) {
  const argument* a = e.argument_at(position);
  if (a == nullptr || (a->what != argument::kind::list && a->what != argument::kind::tuple)) e.malformed("expected a list");
  return e.source->items(*a);
}

/// The tile that operand `i` is, or no_node for a literal or scalar, whose view is itself.
node_id tile_operand(cpu_emitter& e, std::size_t i) {
  const node_id n = e.operand_node(i);
  return n != no_node && e.is_tile(n) ? n : no_node;
}

void pass(cpu_emitter& e, expression value) { e.set_value(e.current, value); }

/// Index arithmetic of a view, kept in a variable of the loop that it belongs to.
expression computed_index(cpu_emitter& e, expression value) { return e.define_at(e.level_of(value), "index", e.mark_non_negative(value)); }

bool same_dimension(const dimension& a, const dimension& b) {
  if (a.block >= 0 || b.block >= 0) return a.block == b.block;
  return a.expression == b.expression || (a.size == b.size && a.size != 0);
}

/// Where an element lies in a tile of shape `from`, if it is at `at` in the same elements seen as shape `to`.
indices reshaped(cpu_emitter& e, index_span at, std::span<const dimension> to, std::span<const dimension> from) {
  indices result(from.size(), e.zero());
  // Dimensions of one lane hold nothing.
  std::vector<std::size_t> outer;
  std::vector<std::size_t> inner;
  for (std::size_t d = 0; d < to.size(); ++d)
    if (to[d].size != 1) outer.push_back(d);
  for (std::size_t d = 0; d < from.size(); ++d)
    if (from[d].size != 1) inner.push_back(d);
  // What is equal in front and behind is passed on; what lies between is one number, taken apart again.
  std::size_t first = 0;
  while (first < outer.size() && first < inner.size() && same_dimension(to[outer[first]], from[inner[first]])) {
    result[inner[first]] = at[outer[first]];
    ++first;
  }
  std::size_t outer_end = outer.size();
  std::size_t inner_end = inner.size();
  while (outer_end > first && inner_end > first && same_dimension(to[outer[outer_end - 1]], from[inner[inner_end - 1]])) {
    --outer_end;
    --inner_end;
    result[inner[inner_end]] = at[outer[outer_end]];
  }
  if (first == inner_end) return result;
  expression flat = e.zero();
  for (std::size_t d = first; d < outer_end; ++d)
    flat = e.mark_non_negative(e.binary(op::add, e.binary(op::multiply, flat, e.full_lanes(to[outer[d]])), at[outer[d]]));
  for (std::size_t d = inner_end; d-- > first;) {
    if (d == first) {
      result[inner[d]] = computed_index(e, flat);
      break;
    }
    const expression size = e.full_lanes(from[inner[d]]);
    flat = e.integer_literal(flat) ? flat : computed_index(e, flat);
    result[inner[d]] = computed_index(e, e.binary(op::modulo, flat, size));
    flat = e.mark_non_negative(e.binary(op::floor_divide, flat, size));
  }
  return result;
}

std::int64_t axis_of(emitter& e, const argument* a, std::int64_t otherwise, std::size_t rank) {
  std::int64_t d = a == nullptr || a->what != argument::kind::integer ? otherwise : a->integer;
  if (d < 0) d += static_cast<std::int64_t>(rank);
  if (d < 0 || d >= static_cast<std::int64_t>(rank)) e.malformed("a dimension that the tile does not have");
  return d;
}

} // namespace

void subscript(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const node_id x = tile_operand(e, 0);
  if (x == no_node) return pass(e, e.operand(0));
  indices at;
  std::size_t d = 0;
  for (const argument& a : list(e, 1)) {
    if (a.what == argument::kind::none) {
      ++d;
    } else if (a.what == argument::kind::slice) {
      for (const argument& part : e.source->items(a))
        if (part.what != argument::kind::none) e.unsupported("a tile cannot be sliced");
      at.push_back(d < e.lane().size() ? e.lane()[d] : e.zero());
      ++d;
    } else {
      at.push_back(e.cast(e.literal(a), dtype::i64));
    }
  }
  while (at.size() < e.shape_of(x).size()) at.push_back(d < e.lane().size() ? e.lane()[d++] : e.zero());
  pass(e, e.element(x, at));
}

void reshape(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const node_id x = tile_operand(e, 0);
  if (x == no_node) return pass(e, e.operand(0));
  pass(e, e.element(x, reshaped(e, e.lane(), e.shape_of(e.current), e.shape_of(x))));
}

void expand(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  pass(e, e.operand(0)); // operands broadcast as they stand
}

void permute(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const node_id x = tile_operand(e, 0);
  if (x == no_node) return pass(e, e.operand(0));
  const std::size_t rank = e.shape_of(x).size();
  indices at(rank, e.zero());
  std::size_t d = 0;
  for (const argument& a : list(e, 1)) {
    if (d >= e.lane().size()) e.malformed("permute names more dimensions than there are");
    at[static_cast<std::size_t>(axis_of(e, &a, 0, rank))] = e.lane()[d++];
  }
  pass(e, e.element(x, at));
}

void transpose(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const node_id x = tile_operand(e, 0);
  if (x == no_node || e.shape_of(x).size() < 2) return pass(e, e.operand(0));
  const std::size_t rank = e.shape_of(x).size();
  indices at(e.lane());
  std::swap(at[static_cast<std::size_t>(axis_of(e, e.argument_at(1), 0, rank))],
            at[static_cast<std::size_t>(axis_of(e, e.argument_at(2), 1, rank))]);
  pass(e, e.element(x, at));
}

namespace {

expression element_of(cpu_emitter& e, const argument& a, index_span at, std::span<const dimension> shape) {
  if (a.what == argument::kind::node && e.is_tile(a.node)) return e.broadcast_element(a.node, at, shape);
  return e.literal(a);
}

/// The element of the tile among `parts` whose number is `which`.
expression picked(cpu_emitter& e, std::span<const argument> parts, expression which, index_span at, std::span<const dimension> shape) {
  const dtype type = e.type_of(e.current);
  if (const auto n = e.integer_literal(which)) return e.cast(element_of(e, parts[static_cast<std::size_t>(*n)], at, shape), type);
  expression value = e.cast(element_of(e, parts.back(), at, shape), type);
  for (std::size_t i = parts.size() - 1; i-- > 0;)
    value = e.typed(e.select(e.binary(op::equal, which, e.whole(static_cast<std::int64_t>(i))),
                             e.cast(element_of(e, parts[i], at, shape), type), value),
                    type);
  return value;
}

void stacked(cpu_emitter& e, std::span<const argument> parts, std::size_t axis) {
  if (parts.empty()) e.malformed("there is nothing to put together");
  const std::span<const dimension> shape = e.shape_of(e.current);
  std::vector<dimension> inner;
  indices at;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d == axis) continue;
    inner.push_back(shape[d]);
    at.push_back(e.lane()[d]);
  }
  e.result(picked(e, parts, e.lane()[axis], at, inner));
}

} // namespace

void join(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  stacked(e, e.source->arguments_of(n).subspan(0, 2), e.shape_of(e.current).size() - 1);
}

void stack(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  stacked(e, list(e, 0), static_cast<std::size_t>(axis_of(e, e.argument_at(1), 0, e.shape_of(e.current).size())));
}

void cat(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const std::size_t rank = e.shape_of(e.current).size();
  const std::size_t axis = static_cast<std::size_t>(axis_of(e, e.argument_at(1), 0, rank));
  const std::span<const argument> parts = list(e, 0);
  const dtype type = e.type_of(e.current);
  std::vector<expression> starts{e.zero()};
  for (const argument& part : parts) {
    if (part.what != argument::kind::node || e.shape_of(part.node).size() != rank) e.malformed("cat is of tiles of one rank");
    starts.push_back(e.mark_non_negative(e.binary(op::add, starts.back(), e.full_lanes(e.shape_of(part.node)[axis]))));
  }
  expression value = codegen::no_expression;
  for (std::size_t i = parts.size(); i-- > 0;) {
    indices at(e.lane());
    const expression own = e.binary(op::subtract, e.lane()[axis], starts[i]);
    // Beyond its own part an index is held at the part's edge: its value is not taken.
    const expression last = e.binary(op::subtract, e.binary(op::subtract, starts[i + 1], starts[i]), e.whole(1));
    at[axis] = computed_index(e, e.call("std::clamp<std::int64_t>", {own, e.zero(), last}, dtype::i64));
    const expression part = e.cast(e.element(parts[i].node, at), type);
    value =
        value == codegen::no_expression ? part : e.typed(e.select(e.binary(op::less, e.lane()[axis], starts[i + 1]), part, value), type);
  }
  e.result(value);
}

void pad(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const node_id x = tile_operand(e, 0);
  if (x == no_node) e.malformed("padding needs a tile");
  const std::span<const dimension> shape = e.shape_of(x);
  const std::span<const argument> amounts = list(e, 1);
  const dtype type = e.type_of(e.current);
  indices at(e.lane());
  expression inside = codegen::no_expression;
  for (std::size_t i = 0; i + 1 < amounts.size(); i += 2) { // from the last dimension, before and behind
    if (i / 2 >= shape.size()) e.malformed("more paddings than dimensions");
    const std::size_t d = shape.size() - 1 - i / 2;
    const std::int64_t before = amounts[i].integer;
    const expression own = e.binary(op::subtract, e.lane()[d], e.whole(before));
    const expression size = e.full_lanes(shape[d]);
    expression valid = e.binary(op::less, own, size);
    if (before > 0) valid = e.binary(op::logical_and, e.binary(op::greater_equal, own, e.zero()), valid);
    inside = inside == codegen::no_expression ? valid : e.binary(op::logical_and, inside, valid);
    at[d] = computed_index(e, e.call("std::clamp<std::int64_t>", {own, e.zero(), e.binary(op::subtract, size, e.whole(1))}, dtype::i64));
  }
  const expression value = e.cast(e.element(x, at), type);
  const argument* other = e.argument_at(2);
  const expression filler = other == nullptr ? e.cast(e.integer(0), type) : e.literal(*other, type);
  e.result(inside == codegen::no_expression ? value : e.typed(e.select(inside, value, filler), type));
}

void gather(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const node_id x = tile_operand(e, 0);
  const node_id index = tile_operand(e, 2);
  if (x == no_node || index == no_node) e.malformed("gather needs two tiles");
  const std::size_t axis = static_cast<std::size_t>(axis_of(e, e.argument_at(1), 0, e.shape_of(x).size()));
  indices at(e.lane());
  at[axis] = computed_index(e, e.cast(e.element(index, e.lane()), dtype::i64));
  // Any element may be asked for: they are all computed ahead.
  e.materialise(e.resolved(x));
  pass(e, e.element(x, at));
}

namespace {

/// Value `which` of the sixteen four-bit floats behind an address of eight bytes.
void float4_of_sixteen(cpu_emitter& e, node_id from, std::int64_t which) {
  const node& n = e.source->at(from);
  const std::span<const argument> arguments = e.source->arguments_of(n);
  const std::int32_t tensor = arguments.empty() ? -1 : e.tensor_of(arguments[0].node);
  if (arguments.size() < 2 || tensor < 0) e.malformed("expected a host tensor and offsets");
  const std::span<const dimension> shape = e.shape_of(e.current);
  const expression offset = e.cast(element_of(e, arguments[1], e.lane(), shape), dtype::i64);
  const expression place = e.binary(op::add, e.binary(op::multiply, offset, e.whole(8)), e.whole(which / 2));
  const expression byte =
      e.typed(e.subscript(e.tensor_value(tensor), {place}), e.source->tensors[static_cast<std::size_t>(tensor)].element);
  expression value = e.call("math::float4", {byte, e.whole(which % 2)}, dtype::f32);
  if (arguments.size() > 2 && arguments[2].what != argument::kind::none)
    value = e.typed(e.select(element_of(e, arguments[2], e.lane(), shape), value, e.real(0)), dtype::f32);
  e.result(value);
}

} // namespace

void getitem(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  if (e.has_value(e.current)) return; // a loop or branch has set it
  const argument* position = e.argument_at(1);
  const node_id from = e.operand_node(0);
  if (from == no_node || position == nullptr || position->what != argument::kind::integer) e.malformed("expected VALUE[INTEGER]");
  const operation op = e.plan->at(from).op;
  if (e.plan->at(from).known && op == operation::load_float4_e2m1fn_x16_to_float16) return float4_of_sixteen(e, from, position->integer);
  if (e.plan->at(from).known && op == operation::split) {
    const auto arguments = e.source->arguments_of(e.source->at(from));
    if (arguments.empty() || arguments[0].what != argument::kind::node) e.malformed("split needs a tile");
    indices at(e.lane());
    at.push_back(e.whole(position->integer));
    return pass(e, e.element(arguments[0].node, at));
  }
  const std::span<const expression> all = e.values_of(from);
  if (position->integer < 0 || static_cast<std::size_t>(position->integer) >= all.size())
    e.malformed(fmt::format("'{}' has {} values, there is no number {}", e.source->at(from).name, all.size(), position->integer));
  e.set_value(e.current, all[static_cast<std::size_t>(position->integer)]);
}

// -- creation

void full(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  pass(e, e.cast(e.operand(1), e.type_of(e.current)));
}

void full_like(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const operation o = e.plan->at(e.current).op;
  const dtype type = e.type_of(e.current);
  if (o == operation::aten_full_like) return pass(e, e.cast(e.operand(1), type));
  pass(e, e.cast(e.integer(o == operation::aten_ones_like ? 1 : 0), type));
}

namespace {

expression keyword_or(emitter& e, std::string_view name, std::size_t position, std::int64_t otherwise) {
  const argument* a = e.keyword(name);
  if (a == nullptr) a = e.argument_at(position);
  return a == nullptr || a->what == argument::kind::none ? e.integer(otherwise, dtype::i64) : e.cast(e.literal(*a), dtype::i64);
}

void positions(cpu_emitter& e, expression start, expression step) {
  const expression i = e.lane().empty() ? e.zero() : e.lane()[0];
  e.result(e.binary(op::add, start, e.binary(op::multiply, i, step)));
}

} // namespace

void iota(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  positions(e, keyword_or(e, "start", 1, 0), keyword_or(e, "step", 2, 1));
}

void arange(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const bool has_start = n.target.find(".start") != std::string_view::npos;
  positions(e, has_start ? e.cast(e.operand(0), dtype::i64) : e.zero(), has_start ? keyword_or(e, "step", 2, 1) : e.whole(1));
}

void view_dtype(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const expression x = e.operand(0);
  const node_id from = e.operand_node(0);
  const dtype given = from == no_node ? e.type_of(x) : e.type_of(from);
  if (device_ir::size_of(given) != device_ir::size_of(n.type.element)) e.unsupported("a view as a type of another size");
  const std::string_view spelled = e.language->types[static_cast<std::size_t>(n.type.element)];
  e.result(e.call(e.keep(fmt::format("std::bit_cast<{}>", spelled)), {e.cast(x, given)}, n.type.element));
}

} // namespace muster::cpu
