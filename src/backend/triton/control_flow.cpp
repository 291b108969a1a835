module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <fmt/format.h>
module muster.backend.triton;

namespace muster::triton {

using codegen::block_plan;
using codegen::block_role;
using codegen::dimension;
using codegen::op;
using device_ir::argument;
using device_ir::dtype;
using device_ir::no_node;
using device_ir::node_id;

namespace {

std::size_t at_index(std::int32_t i) { return static_cast<std::size_t>(i); }

std::int64_t power_of_two(std::int64_t n) {
  std::int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

} // namespace

void triton_emitter::reset(const codegen::kernel_plan& p, const codegen::target& t, registry_view<operation, codegen::handler> r,
                           backend_id b) {
  emitter::reset(p, t, r, b);
  whole_open.clear();
  functions.clear();
  descriptors.clear();
  widest_product = 0;
  seeds = codegen::no_variable;
  seed_count = 0;
  stored_.assign(source->tensors.size(), false);
  loops_.clear();
  accumulating_.clear();
  kernel_body = root_body = codegen::no_body;
}

// -- blocks

expression triton_emitter::block_size_name(std::int32_t block) {
  const block_plan& b = plan->blocks[at_index(block)];
  if (b.block_size <= 1) return block_size(block);
  return mark_non_negative(text(keep_joined("_BLOCK_SIZE_", std::to_string(block)), plan->index_dtype));
}

expression triton_emitter::block_size(std::int32_t block) { return emitter::block_size(block); }

void triton_emitter::open_lanes(std::int32_t block, expression offset, expression end) {
  const block_plan& b = plan->blocks[at_index(block)];
  codegen::tile_binding t;
  t.offset = offset;
  t.end = end;
  const expression lanes = call("tl.arange", {integer(0), block_size_name(block)}, dtype::i32);
  const expression sum = integer_literal(offset) && *integer_literal(offset) == 0 ? lanes : binary(op::add, offset, lanes);
  t.indices = define(keep_joined("indices_", std::to_string(block)), mark_non_negative(sum));
  if (b.mask && !b.jagged) t.mask = define(keep_joined("mask_", std::to_string(block)), binary(op::less, t.indices, end));
  open_tile(block, t);
}

void triton_emitter::open_whole(std::int32_t block) {
  if (find_tile(block) != nullptr) return;
  const block_plan& b = plan->blocks[at_index(block)];
  if (b.role != block_role::whole && b.role != block_role::rolled)
    malformed(fmt::format("no loop or grid over block {} is open here", block));
  const auto guard = ahead_of(root_body);
  open_lanes(block, integer(0, plan->index_dtype), symbolic(b.extent));
  whole_open.push_back(block);
}

expression triton_emitter::tile_indices(std::int32_t block) {
  if (find_tile(block) == nullptr) open_whole(block);
  return emitter::tile_indices(block);
}

expression triton_emitter::along(expression x, std::size_t at_dimension, std::size_t rank) {
  if (rank <= 1) return x;
  std::array<expression, device_ir::limits::rank> items{};
  if (rank > items.size()) malformed(fmt::format("a tile of {} dimensions", rank));
  for (std::size_t d = 0; d < rank; ++d) items[d] = d == at_dimension ? text(":") : none();
  return subscript(x, std::span(items).first(rank));
}

expression triton_emitter::jagged_mask(std::int32_t block, std::span<const dimension> shape) {
  const block_plan& b = plan->blocks[at_index(block)];
  const auto place = [&](std::int32_t wanted) {
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (shape[d].block == wanted) return d;
    malformed(fmt::format("the lanes of jagged block {} are used without those of its parent {}", block, wanted));
  };
  const std::size_t own = place(block);
  // The rows' ends run along the parents' dimensions.
  std::vector<expression> items;
  std::vector<std::size_t> parents;
  for (const std::int32_t p : b.jagged_parents) parents.push_back(place(p));
  for (std::size_t d = 0; d < shape.size(); ++d)
    items.push_back(std::find(parents.begin(), parents.end(), d) != parents.end() ? text(":") : none());
  const expression ends = value_of(b.jagged_extent);
  const expression rows = shape.size() == parents.size() ? ends : subscript(ends, items);
  return binary(op::less, along(tile_indices(block), own, shape.size()), rows);
}

expression triton_emitter::mask_of(std::span<const dimension> shape) {
  expression all = codegen::no_expression;
  const auto with = [&](expression m) { all = all == codegen::no_expression ? m : binary(op::bit_and, all, m); };
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int32_t block = shape[d].block;
    if (block < 0) continue;
    const block_plan& b = plan->blocks[at_index(block)];
    if (b.jagged) {
      with(jagged_mask(block, shape));
      continue;
    }
    if (!b.mask) continue;
    if (find_tile(block) == nullptr && b.role != block_role::whole && b.role != block_role::rolled) {
      // Lanes that a finished loop has gone over: they all were valid once, if there were enough positions.
      if (b.extent == symbolic::no_expression || (b.constant_extent && *b.constant_extent >= b.block_size)) continue;
      const expression lanes = call("tl.arange", {integer(0), block_size_name(block)}, dtype::i32);
      with(along(binary(op::less, lanes, symbolic(b.extent)), d, shape.size()));
      continue;
    }
    if (find_tile(block) == nullptr) open_whole(block);
    if (const expression m = tile(block).mask; m != codegen::no_expression) with(along(m, d, shape.size()));
  }
  return all;
}

expression triton_emitter::shape_list(std::span<const dimension> shape) {
  std::vector<expression> sizes;
  for (const dimension& d : shape) {
    if (d.block >= 0 && plan->blocks[at_index(d.block)].block_size > 1) sizes.push_back(block_size_name(d.block));
    else if (d.size > 0) sizes.push_back(integer(power_of_two(d.size)));
    else sizes.push_back(symbolic(d.expression));
  }
  return list(sizes);
}

expression triton_emitter::as_tile(node_id n, expression e) {
  const std::span<const dimension> shape = plan->shape(n);
  if (!is_literal(e) || shape.empty()) return e;
  const dtype type = type_of(n);
  if (is_zero(e)) return call("tl.zeros", {shape_list(shape), dtype_name(type)}, type);
  return call("tl.full", {shape_list(shape), cast(e, type), dtype_name(type)}, type);
}

expression triton_emitter::tile_operand(std::size_t i) {
  const node_id n = operand_node(i);
  const expression e = operand(i);
  return n == no_node ? e : as_tile(n, e);
}

// -- loops

void triton_emitter::order_loads(std::span<const std::int32_t> tensors) {
  const auto stored = [&](std::int32_t t) { return stored_[at_index(t)]; };
  if (target->name != "triton" || std::none_of(tensors.begin(), tensors.end(), stored)) return; // TileIR orders them itself
  evaluate(call("tl.debug_barrier", {}));
  // A barrier in a branch says nothing of the programs that do not take it.
  for (codegen::body b = current_body(); b != codegen::no_body;) {
    const codegen::statement owner = owner_of(b);
    if (owner == codegen::no_statement) break;
    if (at(owner).what == codegen::statement_kind::if_) return;
    b = at(owner).parent;
  }
  stored_.assign(stored_.size(), false);
}

void triton_emitter::collect_loads(std::int32_t graph, std::vector<std::int32_t>& tensors) const {
  const device_ir::graph& g = source->graphs[at_index(graph)];
  for (std::uint32_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i) {
    if (!plan->nodes[i].live) continue;
    const node& n = source->nodes[i];
    const auto arguments = source->arguments_of(n);
    if (plan->nodes[i].op == operation::load && !arguments.empty() && arguments[0].what == argument::kind::node)
      if (const std::int32_t t = tensor_of(arguments[0].node); t >= 0) tensors.push_back(t);
    if (const std::int32_t l = plan->loop_of_node[i]; l >= 0) collect_loads(plan->loops[at_index(l)].body, tensors);
    if (const std::int32_t b = plan->branch_of_node[i]; b >= 0) {
      collect_loads(plan->branches[at_index(b)].then_graph, tensors);
      if (plan->branches[at_index(b)].else_graph >= 0) collect_loads(plan->branches[at_index(b)].else_graph, tensors);
    }
  }
}

codegen::body triton_emitter::open_loop(const codegen::loop_plan& loop, std::span<const expression> begins,
                                        std::span<const expression> ends, std::span<const expression> steps) {
  for (const codegen::accumulator& a : loop.accumulators)
    if (plan->at(a.after).live) accumulating_.push_back(a.partial);
  loops_.push_back(is_pipelined(*this, loop.range_index));
  std::vector<std::int32_t> loads;
  collect_loads(loop.body, loads);
  order_loads(loads);
  codegen::body inside = current_body();
  // The last in the order is the outermost.
  for (std::size_t k = loop.order.size(); k-- > 0;) {
    const std::int32_t block = loop.order[k];
    const std::size_t listed = static_cast<std::size_t>(std::find(loop.blocks.begin(), loop.blocks.end(), block) - loop.blocks.begin());
    const auto guard = into(inside);
    const expression begin = cast(begins[listed], plan->index_dtype);
    const expression end = cast(ends[listed], plan->index_dtype);
    const codegen::variable v = new_variable(keep_joined("offset_", std::to_string(block)), plan->index_dtype);
    at(v).non_negative = true;
    std::vector<expression> arguments{begin, end, steps.empty() ? block_size_name(block) : cast(steps[listed], plan->index_dtype)};
    if (integer_literal(arguments[2]) == std::optional<std::int64_t>(1)) arguments.pop_back();
    append_range_options(*this, arguments, loop.range_index);
    const std::size_t index = static_cast<std::size_t>(loop.range_index);
    const bool is_static = loop.range_index > 0 && index - 1 < plan->config->static_ranges.size() && plan->config->static_ranges[index - 1];
    inside = inner(for_range(v, call(is_static ? "tl.static_range" : "tl.range", arguments)));
    const auto within = into(inside);
    open_lanes(block, name(v), end);
  }
  return inside;
}

void triton_emitter::close_loop(const codegen::loop_plan& loop) {
  emitter::close_loop(loop);
  loops_.pop_back();
  for (const codegen::accumulator& a : loop.accumulators) std::erase(accumulating_, a.partial);
}

bool triton_emitter::accumulates_lanes(node_id n) const {
  return std::find(accumulating_.begin(), accumulating_.end(), n) != accumulating_.end();
}

namespace {

/// The tile that a reduction reduces.
node_id reduced_node(const emitter& e, node_id partial) {
  const auto arguments = e.source->arguments_of(e.source->at(partial));
  if (arguments.empty()) return no_node;
  if (arguments[0].what == argument::kind::node) return arguments[0].node;
  const auto items = e.source->items(arguments[0]);
  return items.empty() || items[0].what != argument::kind::node ? no_node : items[0].node;
}

} // namespace

expression triton_emitter::neutral(const codegen::accumulator& a) {
  const dtype type = accumulator_type(a.partial);
  const bool is_real = device_ir::is_float(type);
  expression value = codegen::no_expression;
  switch (a.by) {
  case operation::aten_sum: value = is_real ? real(0, type) : integer(0, type); break;
  case operation::aten_prod: value = is_real ? real(1, type) : integer(1, type); break;
  case operation::aten_amax: value = is_real ? real(-std::numeric_limits<double>::infinity(), type) : integer(lowest(type), type); break;
  case operation::aten_amin:
    value = is_real ? real(std::numeric_limits<double>::infinity(), type) : integer(-(lowest(type) + 1), type);
    break;
  case operation::aten_any: value = boolean(false); break;
  case operation::aten_all: value = boolean(true); break;
  default: unsupported("this reduction cannot be rolled into a loop");
  }
  const node_id tile_node = reduced_node(*this, a.partial);
  const std::span<const dimension> shape = plan->shape(tile_node);
  if (is_zero(value)) return call("tl.zeros", {shape_list(shape), dtype_name(type)}, type);
  return call("tl.full", {shape_list(shape), value, dtype_name(type)}, type);
}

/// The type in which a reduction's lanes are accumulated.
dtype triton_emitter::accumulator_type(node_id partial) const {
  const dtype declared = type_of(partial);
  return device_ir::is_float(declared) && declared != dtype::f64 ? dtype::f32 : declared;
}

std::int64_t triton_emitter::lowest(dtype type) {
  switch (type) {
  case dtype::i64: return std::numeric_limits<std::int64_t>::min();
  case dtype::i32: return std::numeric_limits<std::int32_t>::min();
  case dtype::i16: return std::numeric_limits<std::int16_t>::min();
  case dtype::i8: return std::numeric_limits<std::int8_t>::min();
  default: return 0;
  }
}

expression triton_emitter::combine(const codegen::accumulator& a, expression so_far, expression chunk) {
  return emitter::combine(a, so_far, chunk);
}

expression triton_emitter::finish(const codegen::accumulator& a, expression accumulated) {
  const node_id saved = current;
  current = a.partial;
  const std::size_t rank = plan->shape(reduced_node(*this, a.partial)).size();
  const bool extra = plan->at(a.partial).op == operation::inductor_lowering_extra;
  const reduction_shape shape = extra ? reduction_of_extra(a.partial, rank) : reduction_of(rank);
  expression result = codegen::no_expression;
  if (a.by == operation::aten_any || a.by == operation::aten_all) result = reduce_truth(a.by, accumulated, shape);
  else result = reduce(a.by, accumulated, shape.dims, rank, shape.keep);
  if (plan->at(a.partial).op == operation::aten_mean) result = binary(op::divide, result, mean_divisor(a.partial, shape));
  current = saved;
  return result;
}

// -- the rest

/// Nothing: what comes behind a barrier is a kernel of its own.
void barrier(emitter&, const node&) {}

void breakpoint(emitter& e, const node&) { e.evaluate(e.call("breakpoint", {})); }

void device_print(emitter& e, const node&) {
  const argument* prefix = e.argument_at(0);
  if (prefix == nullptr || prefix->what != argument::kind::string) e.malformed("device_print begins with a string");
  std::vector<expression> arguments{e.string(prefix->text)};
  const argument* values = e.argument_at(1);
  if (values != nullptr && (values->what == argument::kind::tuple || values->what == argument::kind::list))
    for (const argument& a : e.source->items(*values)) arguments.push_back(e.literal(a));
  e.evaluate(e.call("tl.device_print", arguments));
}

} // namespace muster::triton
