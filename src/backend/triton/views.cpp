module;
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module muster.backend.triton;

namespace muster::triton {

using codegen::dimension;
using codegen::op;
using device_ir::argument;
using device_ir::dtype;
using device_ir::no_node;
using device_ir::node_id;

namespace {

std::span<const argument> list(emitter& e, std::size_t position) {
  const argument* a = e.argument_at(position);
  if (a == nullptr || (a->what != argument::kind::list && a->what != argument::kind::tuple)) e.malformed("expected a list");
  return e.source->items(*a);
}

bool same_lanes(std::span<const dimension> a, std::span<const dimension> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const dimension& x, const dimension& y) { return x.size == y.size && x.size != 0; });
}

std::size_t rank_of(emitter& e, std::size_t i) {
  const node_id n = e.operand_node(i);
  return n == no_node ? 0 : e.shape_of(n).size();
}

/// The value under another shape; literals have any.
void reshaped(triton_emitter& e, expression x, std::span<const dimension> from) {
  const std::span<const dimension> to = e.shape_of(e.current);
  if (e.is_literal(x) || same_lanes(from, to)) return e.result(x);
  if (from.empty()) return e.result(e.call("tl.broadcast_to", {x, e.shape_list(to)}, e.type_of(x)));
  if (to.empty()) return e.result(e.call("tl.reshape", {x, e.list({})}, e.type_of(x)));
  e.result(e.call("tl.reshape", {x, e.shape_list(to)}, e.type_of(x)));
}

} // namespace

void subscript(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const expression x = e.operand(0);
  std::vector<expression> items;
  bool inserts = false;
  for (const argument& a : list(e, 1)) {
    if (a.what == argument::kind::none) {
      items.push_back(e.none());
      inserts = true;
    } else if (a.what == argument::kind::slice) {
      for (const argument& part : e.source->items(a))
        if (part.what != argument::kind::none) e.unsupported("a tile cannot be sliced");
      items.push_back(e.text(":"));
    } else {
      e.unsupported("a tile cannot be indexed");
    }
  }
  // A view of a variable costs nothing: it stands where it is used.
  e.set_value(e.current, e.is_literal(x) || !inserts ? x : e.subscript(x, items));
}

void unsqueeze(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const expression x = e.operand(0);
  const std::size_t rank = e.shape_of(e.current).size();
  const argument* dim = e.argument_at(1);
  if (dim == nullptr || dim->what != argument::kind::integer) e.malformed("unsqueeze needs a dimension");
  const std::int64_t at = dim->integer < 0 ? dim->integer + static_cast<std::int64_t>(rank) : dim->integer;
  if (e.is_literal(x) || rank_of(e, 0) == 0) return reshaped(e, x, {});
  std::vector<expression> items(rank, e.text(":"));
  items[static_cast<std::size_t>(at)] = e.none();
  e.set_value(e.current, e.subscript(x, items));
}

void reshape(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const node_id from = e.operand_node(0);
  reshaped(e, e.operand(0), from == no_node ? std::span<const dimension>() : e.shape_of(from));
}

void expand(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const expression x = e.operand(0);
  const node_id from = e.operand_node(0);
  if (e.is_literal(x) || (from != no_node && same_lanes(e.shape_of(from), e.shape_of(e.current)))) return e.result(x);
  expression tile = x;
  const std::size_t rank = e.shape_of(e.current).size();
  const std::size_t own = rank_of(e, 0);
  if (own > 0 && own < rank) {
    std::vector<expression> items(rank - own, e.none());
    items.insert(items.end(), own, e.text(":"));
    tile = e.subscript(x, items);
  }
  e.result(e.call("tl.broadcast_to", {tile, e.shape_list(e.shape_of(e.current))}, e.type_of(x)));
}

expression triton_emitter::permuted(expression x, std::span<const std::int64_t> order) {
  if (is_literal(x) || std::ranges::is_sorted(order)) return x;
  if (order.size() == 2) return call("tl.trans", {x}, type_of(x));
  std::vector<expression> dims;
  for (const std::int64_t d : order) dims.push_back(integer(d));
  return call("tl.permute", {x, list(dims)}, type_of(x));
}

void permute(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const std::int64_t rank = static_cast<std::int64_t>(rank_of(e, 0));
  std::vector<std::int64_t> order;
  for (const argument& a : list(e, 1)) order.push_back(a.integer < 0 ? a.integer + rank : a.integer);
  e.result(e.permuted(e.operand(0), order));
}

void transpose(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const expression x = e.operand(0);
  const std::size_t rank = rank_of(e, 0);
  if (rank < 2) return e.result(x);
  const auto dim = [&](std::size_t position, std::int64_t otherwise) {
    const argument* a = e.argument_at(position);
    const std::int64_t d = a == nullptr ? otherwise : a->integer;
    return static_cast<std::size_t>(d < 0 ? d + static_cast<std::int64_t>(rank) : d);
  };
  const std::size_t first = dim(1, 0);
  const std::size_t second = dim(2, 1);
  if (first >= rank || second >= rank) e.malformed("a dimension that the tile does not have");
  std::vector<std::int64_t> order;
  for (std::size_t d = 0; d < rank; ++d) order.push_back(static_cast<std::int64_t>(d == first ? second : d == second ? first : d));
  e.result(e.permuted(x, order));
}

void split(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const expression x = e.tile_operand(0);
  const dtype type = e.type_of(x);
  const codegen::variable a = e.new_variable(e.keep_joined(e.current_node().name, std::string_view("_first")), type);
  const codegen::variable b = e.new_variable(e.keep_joined(e.current_node().name, std::string_view("_second")), type);
  const expression both = e.define(e.current_node().name, e.call("tl.split", {x}));
  e.assign(a, e.typed(e.subscript(both, {e.integer(0)}), type));
  e.assign(b, e.typed(e.subscript(both, {e.integer(1)}), type));
  const expression parts[] = {e.name(a), e.name(b)};
  e.results(parts);
}

void join(emitter& base, const node&) {
  triton_emitter& e = self(base);
  e.result(e.call("tl.join", {e.tile_operand(0), e.tile_operand(1)}, e.type_of(e.current)));
}

namespace {

/// Two tiles side by side in a new dimension `at`.
expression joined(triton_emitter& e, expression a, expression b, std::size_t at, std::size_t rank, dtype type) {
  const expression last = e.call("tl.join", {a, b}, type); // the new dimension is the last
  if (at == rank) return last;
  std::vector<expression> order;
  for (std::size_t d = 0, from = 0; d <= rank; ++d) order.push_back(e.integer(static_cast<std::int64_t>(d == at ? rank : from++)));
  return e.call("tl.permute", {last, e.list(order)}, type);
}

/// Any power of two of tiles in a new dimension `at`: each lane of it selects its tile.
expression selected(triton_emitter& e, std::span<const expression> parts, std::size_t at, std::size_t rank, dtype type) {
  std::vector<expression> items(rank + 1, e.text(":"));
  items[at] = e.none();
  expression position = e.along(e.call("tl.arange", {e.integer(0), e.integer(std::ssize(parts))}, dtype::i32), at, rank + 1);
  if (parts.size() > 2) position = e.define(e.keep_joined(e.current_node().name, std::string_view("_position")), position);
  expression value = e.subscript(parts.back(), items);
  for (std::size_t i = parts.size() - 1; i-- > 0;) {
    const expression is_here = e.binary(op::equal, position, e.integer(static_cast<std::int64_t>(i)));
    value = e.call("tl.where", {is_here, e.subscript(parts[i], items), value}, type);
  }
  return value;
}

} // namespace

void stack(emitter& base, const node&) {
  triton_emitter& e = self(base);
  std::vector<expression> parts;
  std::size_t rank = 0;
  for (const argument& a : list(e, 0)) {
    if (a.what != argument::kind::node) e.malformed("stack is of tiles");
    rank = e.shape_of(a.node).size();
    parts.push_back(e.as_tile(a.node, e.value_of(a.node)));
  }
  if (!std::has_single_bit(parts.size())) e.unsupported("Triton's tiles have powers of two of elements: stack of another number of tiles");
  const argument* dim = e.argument_at(1);
  std::int64_t at = dim == nullptr ? 0 : dim->integer;
  if (at < 0) at += static_cast<std::int64_t>(rank) + 1;
  if (at < 0 || at > static_cast<std::int64_t>(rank)) e.malformed("a dimension that the result does not have");
  const std::size_t place = static_cast<std::size_t>(at);
  const dtype type = e.type_of(e.current);
  // Joined tiles keep their registers, which is the fastest; but Triton does not pipeline the loads that they come from.
  if (parts.size() == 2 && !e.in_pipeline()) return e.result(joined(e, parts[0], parts[1], place, rank, type));
  e.result(selected(e, parts, place, rank, type));
}

/// Two tiles of one shape, one behind the other: stacked, then the new dimension joined with the old.
void cat(emitter& base, const node&) {
  triton_emitter& e = self(base);
  std::vector<expression> parts;
  std::span<const dimension> shape;
  for (const argument& a : list(e, 0)) {
    if (a.what != argument::kind::node) e.malformed("cat is of tiles");
    if (!shape.empty() && !same_lanes(shape, e.shape_of(a.node))) e.unsupported("cat of tiles of different shapes");
    shape = e.shape_of(a.node);
    parts.push_back(e.as_tile(a.node, e.value_of(a.node)));
  }
  if (parts.size() == 1) return e.set_value(e.current, parts[0]);
  if (parts.size() != 2) e.unsupported("Triton joins two tiles at a time: cat of another number");
  const std::int64_t rank = static_cast<std::int64_t>(shape.size());
  const argument* dim = e.argument_at(1);
  std::int64_t at = dim == nullptr ? 0 : dim->integer;
  if (at < 0) at += rank;
  if (at < 0 || at >= rank) e.malformed("a dimension that the tiles do not have");
  const dtype type = e.type_of(e.current);
  std::vector<expression> order; // the two tiles' dimension ahead of the one they are put together along
  for (std::int64_t d = 0; d < rank; ++d) {
    if (d == at) order.push_back(e.integer(rank));
    order.push_back(e.integer(d));
  }
  const expression joined = e.call("tl.permute", {e.call("tl.join", {parts[0], parts[1]}, type), e.list(order)}, type);
  e.result(e.call("tl.reshape", {joined, e.shape_list(e.shape_of(e.current))}, type));
}

void gather(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const argument* dim = e.argument_at(1);
  const std::size_t rank = rank_of(e, 0);
  std::int64_t axis = dim == nullptr ? 0 : dim->integer;
  if (axis < 0) axis += static_cast<std::int64_t>(rank);
  e.result(e.call("tl.gather", {e.tile_operand(0), e.cast(e.tile_operand(2), dtype::i32), e.integer(axis)}, e.type_of(e.current)));
}

/// A constant stays a literal until something needs a whole tile (`as_tile`).
void full(emitter& base, const node& n) {
  triton_emitter& e = self(base);
  const expression value = e.operand(1);
  const dtype type = n.type.what == device_ir::type::kind::tensor ? n.type.element : e.type_of(value);
  if (e.is_literal(value)) return e.set_value(e.current, e.cast(value, type));
  if (e.shape_of(e.current).empty()) return e.result(value);
  e.result(e.call("tl.full", {e.shape_list(e.shape_of(e.current)), value, e.dtype_name(type)}, type));
}

/// A constant in the shape of another tile.
void full_like(emitter& base, const node& n) {
  triton_emitter& e = self(base);
  const dtype type = n.type.what == device_ir::type::kind::tensor ? n.type.element : e.type_of(e.current);
  const operation o = e.plan->at(e.current).op;
  const expression value = o == operation::aten_full_like ? e.operand(1) : e.integer(o == operation::aten_ones_like ? 1 : 0);
  if (e.is_literal(value)) return e.set_value(e.current, e.cast(value, type));
  e.result(e.call("tl.full", {e.shape_list(e.shape_of(e.current)), value, e.dtype_name(type)}, type));
}

namespace {

/// Positions start, start + step, … along a tile of rank 1.
void positions(triton_emitter& e, expression start, expression step) {
  const std::span<const dimension> shape = e.shape_of(e.current);
  if (shape.size() != 1) e.malformed("expected a result of rank 1");
  expression lanes;
  if (shape[0].block >= 0 && e.plan->blocks[static_cast<std::size_t>(shape[0].block)].block_size > 1) {
    lanes = e.block_size_name(shape[0].block);
  } else {
    if (shape[0].size <= 0) e.unsupported("a number of positions that is known only at run time");
    std::int64_t n = 1;
    while (n < shape[0].size) n *= 2;
    lanes = e.integer(n);
  }
  const expression range = e.mark_non_negative(e.call("tl.arange", {e.integer(0), lanes}, dtype::i32));
  e.result(e.binary(op::add, start, e.binary(op::multiply, range, step)));
}

expression keyword_or(triton_emitter& e, std::string_view name, std::size_t position, std::int64_t otherwise) {
  const argument* a = e.keyword(name);
  if (a == nullptr) a = e.argument_at(position);
  return a == nullptr || a->what == argument::kind::none ? e.integer(otherwise) : e.literal(*a);
}

} // namespace

void iota(emitter& base, const node&) {
  triton_emitter& e = self(base);
  positions(e, keyword_or(e, "start", 1, 0), keyword_or(e, "step", 2, 1));
}

void arange(emitter& base, const node& n) {
  triton_emitter& e = self(base);
  const bool has_start = n.target.find(".start") != std::string_view::npos;
  positions(e, has_start ? e.operand(0) : e.integer(0), has_start ? keyword_or(e, "step", 2, 1) : e.integer(1));
}

void view_dtype(emitter& base, const node& n) {
  triton_emitter& e = self(base);
  const expression x = e.tile_operand(0);
  if (device_ir::size_of(e.type_of(x)) != device_ir::size_of(n.type.element)) e.unsupported("a view as a type of another size");
  e.result(e.typed(e.method(x, "to", {e.dtype_name(n.type.element), e.keyword_argument("bitcast", e.boolean(true))}), n.type.element));
}

} // namespace muster::triton
