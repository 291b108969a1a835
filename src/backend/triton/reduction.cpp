module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
#include <fmt/ranges.h>
module muster.backend.triton;

namespace muster::triton {

using codegen::dimension;
using codegen::op;
using device_ir::argument;
using device_ir::dtype;
using device_ir::no_node;
using device_ir::node_id;

namespace {

bool truth_of(const argument* a) {
  return a != nullptr && ((a->what == argument::kind::boolean && a->boolean) || (a->what == argument::kind::integer && a->integer != 0));
}

} // namespace

std::string_view triton_emitter::use(helper h) {
  constexpr std::string_view names[] = {"_maximum", "_minimum", "_product"};
  return names[static_cast<std::size_t>(h)];
}

/// Dimensions and keepdim of the node being lowered: `op(x, [dims] | dim | None, keepdim)`.
reduction_shape triton_emitter::reduction_of(std::size_t rank) {
  reduction_shape r;
  const argument* dims = this->keyword("dim");
  if (dims == nullptr) dims = argument_at(1);
  const argument* keep = this->keyword("keepdim");
  if (keep == nullptr) keep = argument_at(2);
  r.keep = truth_of(keep);
  read_dims(r, dims, rank);
  return r;
}

void triton_emitter::read_dims(reduction_shape& r, const argument* dims, std::size_t rank) {
  const auto add = [&](std::int64_t d) {
    const std::int64_t n = static_cast<std::int64_t>(rank);
    if (d < -n || d >= std::max<std::int64_t>(n, 1)) malformed(fmt::format("dimension {} of a value of rank {}", d, rank));
    r.dims.push_back(d < 0 ? d + n : d);
  };
  if (dims != nullptr && dims->what == argument::kind::integer) add(dims->integer);
  else if (dims != nullptr && (dims->what == argument::kind::list || dims->what == argument::kind::tuple))
    for (const argument& a : source->items(*dims)) {
      if (a.what != argument::kind::integer) malformed("a reduction's dimensions are integers");
      add(a.integer);
    }
  if (r.dims.empty())
    for (std::size_t d = 0; d < rank; ++d) r.dims.push_back(static_cast<std::int64_t>(d));
  std::sort(r.dims.begin(), r.dims.end());
  r.rank = rank;
}

/// The extra's dimensions stand in the node that finishes it.
reduction_shape triton_emitter::reduction_of_extra(node_id extra, std::size_t rank) {
  reduction_shape r;
  const node_id finishing = finisher(extra);
  if (finishing == no_node) malformed("no operation finishes this partial reduction");
  const auto arguments = source->arguments_of(source->at(finishing));
  read_dims(r, arguments.size() > 1 ? &arguments[1] : nullptr, rank);
  r.keep = arguments.size() > 2 && truth_of(&arguments[2]);
  return r;
}

/// The node that has `extra`, or what a loop makes of it, among its `_extra_args`.
node_id triton_emitter::finisher(node_id extra) const {
  const auto mentions = [&](const node& n, node_id wanted) {
    const argument* extras = source->find_keyword(n, "_extra_args");
    if (extras == nullptr) return false;
    for (const argument& a : source->items(*extras))
      if (a.what == argument::kind::node && a.node == wanted) return true;
    return false;
  };
  std::vector<node_id> wanted{extra};
  for (const codegen::loop_plan& l : plan->loops)
    for (const codegen::accumulator& a : l.accumulators)
      if (a.partial == extra) wanted.push_back(a.after);
  for (std::size_t i = 0; i < source->nodes.size(); ++i)
    for (const node_id w : wanted)
      if (mentions(source->nodes[i], w)) return static_cast<node_id>(i);
  return no_node;
}

expression triton_emitter::reduce(operation by, expression x, std::span<const std::int64_t> dims, std::size_t rank, bool keep) {
  const dtype type = type_of(x);
  const bool real = device_ir::is_float(type);
  const bool all = dims.size() == rank && !keep;
  std::string_view callee;
  expression function = codegen::no_expression;
  switch (by) {
  case operation::aten_sum: callee = "tl.sum"; break;
  case operation::aten_amax:
    callee = real ? std::string_view() : "tl.max";
    function = real ? text(use(helper::maximum)) : function;
    break;
  case operation::aten_amin:
    callee = real ? std::string_view() : "tl.min";
    function = real ? text(use(helper::minimum)) : function;
    break;
  case operation::aten_prod: function = text(use(helper::product)); break;
  default: unsupported("a reduction that Triton does not have");
  }
  const auto once = [&](expression value, expression axis, bool keep_dims) {
    std::vector<expression> arguments{value, axis};
    if (function != codegen::no_expression) arguments.push_back(function);
    if (keep_dims) arguments.push_back(keyword_argument("keep_dims", boolean(true)));
    return typed(call(function != codegen::no_expression ? "tl.reduce" : callee, arguments), type);
  };
  if (all && rank > 1) return once(x, none(), false);
  for (std::size_t i = dims.size(); i-- > 0;) x = once(x, integer(dims[i]), keep);
  return x;
}

namespace {

/// The operand of a reduction, as a tile in the type in which it accumulates.
expression accumulated_operand(triton_emitter& e, std::size_t i) {
  const expression x = e.tile_operand(i);
  const dtype declared = e.type_of(e.current);
  const dtype type = device_ir::is_float(declared) ? (declared == dtype::f64 ? dtype::f64 : dtype::f32) : declared;
  return e.cast(x, type);
}

std::size_t operand_rank(triton_emitter& e, std::size_t i) {
  const node_id n = e.operand_node(i);
  return n == no_node ? 0 : e.shape_of(n).size();
}

operation kind_of(const emitter& e) { return e.plan->at(e.current).op; }

/// How many valid positions the reduced dimensions have.
expression extent_of(triton_emitter& e, std::span<const dimension> shape, std::span<const std::int64_t> dims) {
  expression n = e.integer(1, e.plan->index_dtype);
  for (const std::int64_t d : dims) {
    const dimension& dim = shape[static_cast<std::size_t>(d)];
    const codegen::block_plan* b = e.plan->find_block(dim.block);
    expression size = codegen::no_expression;
    if (b == nullptr) size = dim.size > 0 ? e.integer(dim.size, e.plan->index_dtype) : e.symbolic(dim.expression);
    else if (b->role == codegen::block_role::whole || b->role == codegen::block_role::rolled) size = e.symbolic(b->extent);
    else size = e.block_size(dim.block); // the tile itself is reduced: torch counts its lanes
    n = e.binary(op::multiply, n, size);
  }
  return n;
}

} // namespace

void reduction(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const operation by = kind_of(e);
  const std::size_t rank = operand_rank(e, 0);
  if (rank == 0) return e.result(e.operand(0));
  // amax and amin need no wider type than their own.
  const expression x = by == operation::aten_amax || by == operation::aten_amin
                           ? e.cast(e.tile_operand(0), e.language->arithmetic[static_cast<std::size_t>(e.type_of(e.current))])
                           : accumulated_operand(e, 0);
  if (e.accumulates_lanes(e.current)) return e.set_value(e.current, e.cast(x, e.accumulator_type(e.current)));
  const reduction_shape r = by == operation::aten_prod && e.argument_at(1) == nullptr ? e.reduction_of(rank) : e.reduction_of(rank);
  e.result(e.reduce(by, x, r.dims, rank, r.keep));
}

void lowering_extra(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const argument* list = e.argument_at(0);
  const auto items = list == nullptr ? std::span<const argument>() : e.source->items(*list);
  if (items.size() != 1 || items[0].what != argument::kind::node) e.unsupported("a partial reduction of more than one value");
  const node_id x = items[0].node;
  const dtype type = e.accumulator_type(e.current);
  const expression tile = e.cast(e.as_tile(x, e.value_of(x)), type);
  if (e.accumulates_lanes(e.current)) return e.set_value(e.current, tile);
  const std::size_t rank = e.shape_of(x).size();
  const reduction_shape r = e.reduction_of_extra(e.current, rank);
  e.result(e.reduce(operation::aten_sum, tile, r.dims, rank, r.keep));
}

void mean(emitter& base, const node& n) {
  triton_emitter& e = self(base);
  const dtype type = e.accumulator_type(e.current);
  if (const argument* extras = e.keyword("_extra_args")) {
    const auto items = e.source->items(*extras);
    if (items.size() != 1 || items[0].what != argument::kind::node) e.malformed("mean is finished from one partial sum");
    const expression count = e.mean_count(items[0].node, n);
    return e.result(e.binary(op::divide, e.cast(e.value_of(items[0].node), type), e.cast(count, type)));
  }
  const node_id x = e.operand_node(0);
  if (x == no_node) e.malformed("mean needs a tile");
  const expression tile = e.cast(e.tile_operand(0), type);
  if (e.accumulates_lanes(e.current)) return e.set_value(e.current, tile);
  const reduction_shape r = e.reduction_of(e.shape_of(x).size());
  const expression sum = e.reduce(operation::aten_sum, tile, r.dims, e.shape_of(x).size(), r.keep);
  e.result(e.binary(op::divide, sum, e.mean_divisor(e.current, r)));
}

/// What the sum behind a mean is divided by.
expression triton_emitter::mean_divisor(node_id mean, const reduction_shape& r) {
  const std::span<const argument> arguments = source->arguments_of(source->at(mean));
  if (arguments.empty() || arguments[0].what != argument::kind::node) malformed("mean needs a tile");
  return cast(extent_of(*this, shape_of(arguments[0].node), r.dims), accumulator_type(mean));
}

/// The number of elements behind a partial sum: found where the partial sum was taken.
expression triton_emitter::mean_count(node_id extra, const node& finishing) {
  for (const codegen::loop_plan& l : plan->loops)
    for (const codegen::accumulator& a : l.accumulators)
      if (a.after == extra) extra = a.partial;
  const auto arguments = source->arguments_of(source->at(extra));
  const auto items = arguments.empty() ? std::span<const argument>() : source->items(arguments[0]);
  if (items.empty() || items[0].what != argument::kind::node) malformed("the partial sum names no value");
  const std::span<const dimension> shape = plan->shape(items[0].node);
  reduction_shape r;
  const auto own = source->arguments_of(finishing);
  read_dims(r, own.size() > 1 ? &own[1] : nullptr, shape.size());
  return extent_of(*this, shape, r.dims);
}

void any_all(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const bool any = kind_of(e) == operation::aten_any;
  const std::size_t rank = operand_rank(e, 0);
  expression x = e.tile_operand(0);
  if (e.type_of(x) != dtype::b8)
    x = e.binary(op::not_equal, x, device_ir::is_float(e.type_of(x)) ? e.real(0, e.type_of(x)) : e.integer(0, e.type_of(x)));
  if (e.accumulates_lanes(e.current)) return e.set_value(e.current, x);
  e.result(e.reduce_truth(any ? operation::aten_any : operation::aten_all, x, e.reduction_of(rank)));
}

/// Whether any or all of the truth values are true.
expression triton_emitter::reduce_truth(operation by, expression x, const reduction_shape& r) {
  const std::size_t rank = r.rank;
  const expression found =
      reduce(by == operation::aten_any ? operation::aten_amax : operation::aten_amin, cast(x, dtype::i32), r.dims, rank, r.keep);
  return binary(op::not_equal, found, integer(0));
}

namespace {

/// Value and position of the first extreme along one dimension.
std::pair<expression, expression> extreme(triton_emitter& e, bool largest, expression x, expression positions, std::int64_t axis,
                                          bool keep) {
  const expression pair[] = {x, positions};
  std::vector<expression> arguments{e.tuple(pair), e.integer(axis), e.text(largest ? "_argmax" : "_argmin")};
  if (keep) arguments.push_back(e.keyword_argument("keep_dims", e.boolean(true)));
  const expression both = e.define("extreme", e.call("tl.reduce", arguments));
  return {e.typed(e.subscript(both, {e.integer(0)}), e.type_of(x)), e.typed(e.subscript(both, {e.integer(1)}), dtype::i32)};
}

/// The positions along dimension `axis`, as a tile of the given shape.
expression positions_along(triton_emitter& e, std::span<const dimension> shape, std::size_t axis) {
  const dimension& d = shape[axis];
  const codegen::block_plan* b = e.plan->find_block(d.block);
  const bool whole = b != nullptr && (b->role == codegen::block_role::whole || b->role == codegen::block_role::rolled);
  const expression lanes = whole ? e.tile_indices(d.block)
                                 : e.call("tl.arange", {e.integer(0), e.operands(e.shape_list(shape.subspan(axis, 1)))[0]}, dtype::i32);
  return e.along(lanes, axis, shape.size());
}

} // namespace

void arg_reduction(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const bool largest = kind_of(e) == operation::aten_argmax;
  const node_id x_node = e.operand_node(0);
  if (x_node == no_node) e.malformed("expected a tile");
  if (e.accumulates_lanes(e.current)) e.unsupported("argmax and argmin of a reduction that is rolled into a loop");
  const std::span<const dimension> shape = e.shape_of(x_node);
  const argument* dim = e.keyword("dim") != nullptr ? e.keyword("dim") : e.argument_at(1);
  const bool keep = truth_of(e.argument_at(2)) || truth_of(e.keyword("keepdim"));
  const std::size_t rank = shape.size();
  expression x = e.tile_operand(0);
  if (dim != nullptr && dim->what == argument::kind::integer) {
    const std::int64_t axis = dim->integer < 0 ? dim->integer + static_cast<std::int64_t>(rank) : dim->integer;
    if (axis < 0 || axis >= static_cast<std::int64_t>(rank)) e.malformed("a dimension that the tile does not have");
    const expression places =
        e.call("tl.broadcast_to", {positions_along(e, shape, static_cast<std::size_t>(axis)), e.shape_list(shape)}, dtype::i32);
    return e.result(extreme(e, largest, x, places, axis, keep).second);
  }
  // Over everything: positions count row by row, in the sizes without padding.
  expression places = e.integer(0);
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t dims[] = {static_cast<std::int64_t>(d)};
    places = e.binary(op::add, e.binary(op::multiply, places, extent_of(e, shape, dims)), positions_along(e, shape, d));
  }
  if (rank > 1) {
    places = e.call("tl.ravel", {e.call("tl.broadcast_to", {places, e.shape_list(shape)}, dtype::i32)}, dtype::i32);
    x = e.call("tl.ravel", {x}, e.type_of(x));
  }
  if (keep) e.unsupported("argmax and argmin over everything with keepdim");
  e.result(extreme(e, largest, x, places, 0, false).second);
}

void max_min_dim(emitter& base, const node& n) {
  triton_emitter& e = self(base);
  const bool largest = kind_of(e) == operation::aten_max;
  const std::size_t rank = operand_rank(e, 0);
  const expression x = e.tile_operand(0);
  if (n.arguments.count < 2) { // over everything: amax
    if (e.accumulates_lanes(e.current)) return e.set_value(e.current, e.cast(x, e.accumulator_type(e.current)));
    const reduction_shape r = e.reduction_of(rank);
    return e.result(e.reduce(largest ? operation::aten_amax : operation::aten_amin, x, r.dims, rank, false));
  }
  const reduction_shape r = e.reduction_of(rank);
  const std::span<const dimension> shape = e.shape_of(e.operand_node(0));
  const expression places =
      e.call("tl.broadcast_to", {positions_along(e, shape, static_cast<std::size_t>(r.dims[0])), e.shape_list(shape)}, dtype::i32);
  const auto [value, position] = extreme(e, largest, x, places, r.dims[0], r.keep);
  const expression both[] = {value, e.cast(position, dtype::i64)};
  e.results(both);
}

namespace {

/// The order of a tile's last dimension, sorted stably, first `count` places: position p holds the index of the element of
/// rank p. NaN is the greatest; lanes beyond the extent come last. Quadratic in the lanes, as every lane meets every other.
expression sorted_order(triton_emitter& e, expression x, std::span<const dimension> shape, bool descending, std::int64_t count) {
  const std::size_t rank = shape.size();
  const auto spread = [&](expression v, bool as_row) {
    std::vector<expression> items(rank + 1, e.text(":"));
    items[as_row ? rank - 1 : rank] = e.none();
    return e.subscript(v, items);
  };
  const dtype type = e.type_of(x);
  const auto both = [&](expression a, expression b) { return e.binary(op::bit_and, a, b); };
  const expression lanes = e.define("lanes", e.call("tl.arange", {e.integer(0), e.operands(e.shape_list(shape.last(1)))[0]}, dtype::i32));
  const auto lane = [&](bool as_row) { return e.along(lanes, as_row ? rank : rank - 1, rank + 1); };
  const expression mine = spread(x, false);
  const expression other = spread(x, true);
  expression ahead = e.binary(descending ? op::greater : op::less, other, mine);
  expression equal = e.binary(op::equal, other, mine);
  if (device_ir::is_float(type)) {
    const expression my_nan = e.binary(op::not_equal, mine, mine);
    const expression other_nan = e.binary(op::not_equal, other, other);
    ahead = e.binary(op::bit_or, ahead,
                     descending ? both(other_nan, e.binary(op::equal, mine, mine)) : both(my_nan, e.binary(op::equal, other, other)));
    equal = e.binary(op::bit_or, equal, both(my_nan, other_nan));
  }
  expression before = e.binary(op::bit_or, ahead, both(equal, e.binary(op::less, lane(true), lane(false))));
  const std::vector<dimension> last(shape.end() - 1, shape.end());
  if (const expression mask = e.mask_of(last); mask != codegen::no_expression) {
    const expression my_mask = e.along(mask, rank - 1, rank + 1);
    const expression other_mask = e.along(mask, rank, rank + 1);
    const expression my_padding = e.binary(op::equal, e.cast(my_mask, dtype::i32), e.integer(0));
    before = both(other_mask, e.binary(op::bit_or, my_padding, before));
    before = e.binary(op::bit_or, before,
                      both(both(my_padding, e.binary(op::equal, e.cast(other_mask, dtype::i32), e.integer(0))),
                           e.binary(op::less, lane(true), lane(false))));
  }
  const expression place =
      e.define("place", e.call("tl.sum", {e.cast(before, dtype::i32), e.integer(static_cast<std::int64_t>(rank))}, dtype::i32));
  const expression wanted = e.call("tl.arange", {e.integer(0), e.integer(count)}, dtype::i32);
  const expression found = e.binary(op::equal, spread(place, true), e.along(wanted, rank - 1, rank + 1));
  return e.define("order",
                  e.call("tl.sum",
                         {e.call("tl.where", {found, lane(true), e.integer(0)}, dtype::i32), e.integer(static_cast<std::int64_t>(rank))},
                         dtype::i32));
}

void check_last(triton_emitter& e, const argument* dim, std::size_t rank) {
  if (dim != nullptr && dim->what == argument::kind::integer && dim->integer != -1 && dim->integer != static_cast<std::int64_t>(rank) - 1)
    e.unsupported("sorting along a dimension that is not the last");
}

void sorted_results(triton_emitter& e, expression x, expression order, std::size_t rank) {
  const expression values =
      e.define("values", e.call("tl.gather", {x, order, e.integer(static_cast<std::int64_t>(rank) - 1)}, e.type_of(x)));
  const expression both[] = {values, e.cast(order, dtype::i64)};
  e.results(both);
}

std::int64_t lane_count(triton_emitter& e, const dimension& d) {
  if (d.size <= 0) e.unsupported("sorting a number of lanes that is known only at run time");
  std::int64_t lanes = 1;
  while (lanes < d.size) lanes *= 2;
  return lanes;
}

} // namespace

/// `sort(x, dim, descending)`, and with `.stable` `sort(x, stable, dim, descending)`.
void sort(emitter& base, const node& n) {
  triton_emitter& e = self(base);
  const std::size_t shift = n.target.ends_with(".stable") ? 1 : 0;
  const node_id x_node = e.operand_node(0);
  if (x_node == no_node || e.shape_of(x_node).empty()) e.malformed("sort needs a tile");
  const std::span<const dimension> shape = e.shape_of(x_node);
  const argument* dim = e.keyword("dim") != nullptr ? e.keyword("dim") : e.argument_at(1 + shift);
  const argument* descending = e.keyword("descending") != nullptr ? e.keyword("descending") : e.argument_at(2 + shift);
  check_last(e, dim, shape.size());
  const expression x = e.tile_operand(0);
  sorted_results(e, x, sorted_order(e, x, shape, truth_of(descending), lane_count(e, shape.back())), shape.size());
}

/// `topk(x, k, dim, largest, sorted)`.
void topk(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const node_id x_node = e.operand_node(0);
  const argument* k = e.argument_at(1);
  if (x_node == no_node || e.shape_of(x_node).empty() || k == nullptr || k->what != argument::kind::integer)
    e.malformed("topk needs a tile and a count");
  const std::span<const dimension> shape = e.shape_of(x_node);
  const argument* largest = e.keyword("largest") != nullptr ? e.keyword("largest") : e.argument_at(3);
  check_last(e, e.keyword("dim") != nullptr ? e.keyword("dim") : e.argument_at(2), shape.size());
  if ((k->integer & (k->integer - 1)) != 0 || k->integer < 1) e.unsupported("a count that is no power of two");
  const expression x = e.tile_operand(0);
  sorted_results(e, x, sorted_order(e, x, shape, largest == nullptr || truth_of(largest), k->integer), shape.size());
}

void variance(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const node_id x_node = e.operand_node(0);
  if (x_node == no_node) e.unsupported("a variance finished from partial reductions");
  const std::size_t rank = e.shape_of(x_node).size();
  const argument* keep = e.keyword("keepdim");
  const argument* correction = e.keyword("correction");
  reduction_shape r;
  e.read_dims(r, e.argument_at(1), rank);
  r.keep = truth_of(keep);
  const double less = correction == nullptr || correction->what == argument::kind::none ? 1.0
                      : correction->what == argument::kind::integer                     ? static_cast<double>(correction->integer)
                                                                                        : correction->real;
  const expression x = e.cast(e.tile_operand(0), dtype::f32);
  const expression mask = e.mask_of(e.shape_of(x_node));
  const auto masked = [&](expression v) {
    return mask == codegen::no_expression ? v : e.call("tl.where", {mask, v, e.real(0)}, dtype::f32);
  };
  const expression n = e.cast(extent_of(e, e.shape_of(x_node), r.dims), dtype::f32);
  const expression average = e.define("average", e.binary(op::divide, e.reduce(operation::aten_sum, masked(x), r.dims, rank, true), n));
  const expression centered = e.define("centered", masked(e.binary(op::subtract, x, average)));
  const expression squares = e.reduce(operation::aten_sum, e.binary(op::multiply, centered, centered), r.dims, rank, r.keep);
  const expression result = e.define("variance", e.binary(op::divide, squares, e.binary(op::subtract, n, e.real(less))));
  if (kind_of(e) == operation::aten_var) return e.result(result);
  const expression mean_value =
      r.keep ? average : e.call("tl.reshape", {average, e.shape_list(without(e.shape_of(x_node), r.dims))}, dtype::f32);
  const expression both[] = {result, e.define("mean", mean_value)};
  e.results(both);
}

std::vector<dimension> without(std::span<const dimension> shape, std::span<const std::int64_t> dims) {
  std::vector<dimension> rest;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(d)) == dims.end()) rest.push_back(shape[d]);
  return rest;
}

void logsumexp(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const std::size_t rank = operand_rank(e, 0);
  const reduction_shape r = e.reduction_of(rank);
  const dtype type = e.accumulator_type(e.current);
  const expression x = e.cast(e.tile_operand(0), type);
  const expression highest = e.define("highest", e.reduce(operation::aten_amax, x, r.dims, rank, true));
  // What is infinite cannot be subtracted: a row of nothing but -inf stays -inf, and inf stays inf.
  const expression is_infinite =
      e.binary(op::equal, e.call("tl.abs", {highest}, type), e.real(std::numeric_limits<double>::infinity(), type));
  const expression shift = e.define("shift", e.call("tl.where", {is_infinite, e.real(0, type), highest}, type));
  const expression sum = e.reduce(operation::aten_sum, e.call("tl.exp", {e.binary(op::subtract, x, shift)}, type), r.dims, rank, true);
  const expression all = e.binary(op::add, e.call("tl.log", {sum}, type), shift);
  e.result(r.keep ? all : e.call("tl.reshape", {all, e.shape_list(e.shape_of(e.current))}, type));
}

void cumulative(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const std::size_t rank = operand_rank(e, 0);
  reduction_shape r;
  e.read_dims(r, e.argument_at(1), rank);
  const std::string_view callee = kind_of(e) == operation::aten_cumsum ? "tl.cumsum" : "tl.cumprod";
  e.result(e.typed(e.call(callee, {accumulated_operand(e, 0), e.integer(r.dims[0])}), e.accumulator_type(e.current)));
}

// -- scans and reductions with a combine graph

namespace {

/// Emits the combine graph as a function of the module and gives its name.
std::string_view combine_function(triton_emitter& e, std::int32_t graph) {
  const device_ir::graph& g = e.source->graphs[static_cast<std::size_t>(graph)];
  const std::string_view name = e.unique_name(g.name);
  const codegen::body inside = e.new_body();
  std::vector<std::string> parameters;
  {
    const auto guard = e.into(inside);
    for (std::uint32_t i = 0; i < g.parameters.count; ++i) {
      const node_id p = static_cast<node_id>(g.parameters.first + i);
      const codegen::variable v = e.new_parameter(e.source->at(p).name, e.type_of(p));
      parameters.emplace_back(e.name_of(v));
      e.set_value(p, e.name(v));
    }
    e.lower_graph(graph);
    std::vector<expression> results;
    const bool several = g.result.what == argument::kind::list || g.result.what == argument::kind::tuple;
    const std::size_t count = several ? e.source->items(g.result).size() : 1;
    for (std::size_t i = 0; i < count; ++i) results.push_back(e.graph_result(graph, i));
    const expression value = results.size() == 1 ? results[0] : e.tuple(results);
    e.return_value(value);
  }
  e.mark_live(inside);
  e.resolve_names(inside);
  e.functions += fmt::format("\n@triton.jit\ndef {}({}):\n", name, fmt::join(parameters, ", "));
  e.print_body(inside, e.functions, 1);
  e.functions += '\n';
  return name;
}

std::int32_t graph_of(triton_emitter& e) {
  const argument* a = e.argument_at(0);
  const device_ir::graph* g = a != nullptr && a->what == argument::kind::integer ? e.source->find_graph(a->integer) : nullptr;
  if (g == nullptr) e.malformed("expected the id of a combine graph");
  return static_cast<std::int32_t>(g - e.source->graphs.data());
}

std::vector<expression> scanned_values(triton_emitter& e, std::size_t& rank) {
  std::vector<expression> values;
  const argument* a = e.argument_at(1);
  const auto add = [&](const argument& x) {
    if (x.what != argument::kind::node) e.malformed("a scan is of tiles");
    rank = e.shape_of(x.node).size();
    values.push_back(e.as_tile(x.node, e.value_of(x.node)));
  };
  if (a == nullptr) e.malformed("a scan needs values");
  if (a->what == argument::kind::tuple || a->what == argument::kind::list)
    for (const argument& x : e.source->items(*a)) add(x);
  else add(*a);
  return values;
}

void pass_results(triton_emitter& e, expression call, std::size_t count, bool tuple) {
  if (!tuple) return e.result(e.typed(call, e.type_of(e.current)));
  const expression all = e.define("scanned", call);
  std::vector<expression> parts;
  for (std::size_t i = 0; i < count; ++i) parts.push_back(e.subscript(all, {e.integer(static_cast<std::int64_t>(i))}));
  e.results(parts);
}

bool is_tuple(const argument* a) { return a != nullptr && (a->what == argument::kind::tuple || a->what == argument::kind::list); }

} // namespace

void associative_scan(emitter& base, const node&) {
  triton_emitter& e = self(base);
  std::size_t rank = 0;
  const std::vector<expression> values = scanned_values(e, rank);
  const argument* dim = e.argument_at(2);
  const argument* reverse = e.argument_at(3);
  const node_id saved = e.current;
  const std::string_view function = combine_function(e, graph_of(e));
  e.current = saved;
  std::int64_t axis = dim == nullptr ? 0 : dim->integer;
  if (axis < 0) axis += static_cast<std::int64_t>(rank);
  std::vector<expression> arguments{values.size() == 1 ? values[0] : e.tuple(values), e.integer(axis), e.text(function)};
  if (truth_of(reverse)) arguments.push_back(e.keyword_argument("reverse", e.boolean(true)));
  pass_results(e, e.call("tl.associative_scan", arguments), values.size(), is_tuple(e.argument_at(1)));
}

void reduce_by_graph(emitter& base, const node&) {
  triton_emitter& e = self(base);
  std::size_t rank = 0;
  const std::vector<expression> values = scanned_values(e, rank);
  const argument* dim = e.argument_at(2);
  const argument* keep = e.argument_at(3);
  const node_id saved = e.current;
  const std::string_view function = combine_function(e, graph_of(e));
  e.current = saved;
  std::vector<expression> arguments{values.size() == 1 ? values[0] : e.tuple(values),
                                    dim == nullptr || dim->what == argument::kind::none
                                        ? e.none()
                                        : e.integer(dim->integer < 0 ? dim->integer + static_cast<std::int64_t>(rank) : dim->integer),
                                    e.text(function)};
  if (truth_of(keep)) arguments.push_back(e.keyword_argument("keep_dims", e.boolean(true)));
  pass_results(e, e.call("tl.reduce", arguments), values.size(), is_tuple(e.argument_at(1)));
}

} // namespace muster::triton
