module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.backend.cpu;

namespace muster::cpu {

using codegen::block_plan;
using codegen::block_role;
using codegen::op;
using device_ir::argument;
using device_ir::index;
using device_ir::no_node;

namespace {

std::size_t at_index(std::int32_t i) { return static_cast<std::size_t>(i); }

/// Tiles up to this many bytes live on the stack.
constexpr std::int64_t largest_local = 64 << 10;

/// From this cost on, an element that several nests ask for is computed once and kept.
constexpr std::int32_t worth_keeping = 16;
constexpr std::int32_t worth_keeping_in_loops = 6;
constexpr std::int32_t highest_cost = 1 << 20;

/// Roughly, in additions, what one element of a node costs beside its operands.
std::int32_t own_cost(operation o) {
  switch (o) {
  case operation::load: return 2;
  case operation::aten_div:
  case operation::aten_reciprocal:
  case operation::aten_sqrt:
  case operation::aten_rsqrt:
  case operation::aten_true_divide:
  case operation::aten_floor_divide:
  case operation::aten_remainder: return 5;
  case operation::aten_exp:
  case operation::aten_exp2:
  case operation::aten_log:
  case operation::aten_log2: return 18;
  case operation::aten_acos:
  case operation::aten_acosh:
  case operation::aten_asin:
  case operation::aten_asinh:
  case operation::aten_atan:
  case operation::aten_atan2:
  case operation::aten_atanh:
  case operation::aten_cos:
  case operation::aten_cosh:
  case operation::aten_digamma:
  case operation::aten_erf:
  case operation::aten_erfc:
  case operation::aten_erfinv:
  case operation::aten_expm1:
  case operation::aten_fmod:
  case operation::aten_gelu:
  case operation::aten_lgamma:
  case operation::aten_log10:
  case operation::aten_log1p:
  case operation::aten_logit:
  case operation::aten_pow:
  case operation::aten_sigmoid:
  case operation::aten_silu:
  case operation::aten_sin:
  case operation::aten_sinh:
  case operation::aten_softplus:
  case operation::aten_tan:
  case operation::aten_tanh:
  case operation::aten_xlogy:
  case operation::gelu_erf:
  case operation::gelu_tanh_approx:
  case operation::rand:
  case operation::randint: return 30;
  default: return information(o).category == operation_category::pointwise ? 1 : 0;
  }
}

/// Calls `visit(node_id)` for every node that an argument mentions.
template <class Visit> void visit_nodes(const device_ir::document& d, const argument& a, const Visit& visit) {
  if (a.what == argument::kind::node) visit(a.node);
  if (a.what == argument::kind::list || a.what == argument::kind::tuple || a.what == argument::kind::slice)
    for (const argument& item : d.items(a)) visit_nodes(d, item, visit);
}

} // namespace

// -- state

void cpu_emitter::reset(const codegen::kernel_plan& p, const codegen::target& t, registry_view<operation, codegen::handler> r,
                        backend_id b) {
  emitter::reset(p, t, r, b);
  const std::size_t nodes = p.source->nodes.size();
  buffers_.clear();
  buffer_of_.assign(nodes, -1);
  several_buffers_.clear();
  several_of_.assign(nodes, -1);
  alias_.assign(nodes, no_node);
  destination_.assign(nodes, -1);
  stored_.assign(nodes, false);
  written_.assign(p.source->tensors.size(), false);
  pending_.clear();
  levels_.clear();
  memo_.clear();
  facts_.clear();
  lane_.clear();
  lane_counts_.assign(p.blocks.size(), codegen::no_expression);
  zero_ = mark_non_negative(integer(0, dtype::i64));
  root_body_ = codegen::no_body;
  for (std::size_t i = 0; i < nodes; ++i) {
    const codegen::node_plan& n = p.nodes[i];
    if (!n.live || !n.known) continue;
    if (n.op != operation::store && information(n.op).category != operation_category::atomic) continue;
    const auto arguments = p.source->arguments_of(p.source->nodes[i]);
    if (arguments.empty() || arguments[0].what != argument::kind::node) continue;
    if (const std::int32_t tensor = tensor_of(arguments[0].node); tensor >= 0) written_[at_index(tensor)] = true;
  }
  analyse();
  if (recording) find_contexts();
}

bool cpu_emitter::is_deferred(node_id n) const {
  const codegen::node_plan& p = plan->at(n);
  if (!p.known || p.is_host_tensor || shape_of(n).empty()) return false;
  switch (information(p.op).category) {
  case operation_category::symbol:
  case operation_category::memory:
  case operation_category::creation:
  case operation_category::view:
  case operation_category::pointwise:
  case operation_category::random: return p.op != operation::store;
  case operation_category::control_flow: return p.op == operation::phi || p.op == operation::new_var;
  default: return false;
  }
}

/// Finds the tiles that are worth a place: costly elements for which more than one nest asks, or a deeper loop.
void cpu_emitter::analyse() {
  const std::size_t count = source->nodes.size();
  std::vector<std::int32_t> cost(count, 0);
  struct demand {
    node_id first = no_node;
    bool several = false;
    bool deeper = false;
    void by(node_id n) {
      if (first == no_node) first = n;
      else if (first != n) several = true;
    }
    void by(const demand& d) {
      if (d.first != no_node) by(d.first);
      several = several || d.several;
      deeper = deeper || d.deeper;
    }
  };
  std::vector<demand> demands(count);
  const auto visit_operands = [&](const node& n, const auto& visit) {
    for (const argument& a : source->arguments_of(n)) visit_nodes(*source, a, visit);
    for (const device_ir::keyword& k : source->keywords_of(n)) visit_nodes(*source, k.value, visit);
  };
  for (const device_ir::graph& g : source->graphs) {
    // What a graph returns is asked for where its owner assigns it.
    visit_nodes(*source, g.result, [&](node_id used) { demands[index(used)].by(static_cast<node_id>(g.nodes.first + g.nodes.count)); });
    for (std::size_t i = g.nodes.first + g.nodes.count; i-- > g.nodes.first;) {
      const codegen::node_plan& p = plan->nodes[i];
      if (!p.live || !p.known) continue;
      const node_id id = static_cast<node_id>(i);
      const bool loop = plan->loop_of_node[i] >= 0;
      const bool branch = plan->branch_of_node[i] >= 0;
      const bool deferred = is_deferred(id) || p.op == operation::split || p.op == operation::load_float4_e2m1fn_x16_to_float16;
      visit_operands(source->nodes[i], [&](node_id used) {
        demand& d = demands[index(used)];
        if (deferred) return d.by(demands[i]);
        if (p.op == operation::aten_sym_size) return;
        d.by(id);
        d.deeper = d.deeper || loop || branch;
      });
    }
    for (std::size_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i) {
      const codegen::node_plan& p = plan->nodes[i];
      const node_id id = static_cast<node_id>(i);
      if (!p.live || !p.known || !is_deferred(id)) continue;
      std::int32_t total = own_cost(p.op);
      visit_operands(source->nodes[i], [&](node_id used) {
        if (plan->at(used).graph == p.graph && !stored_[index(used)]) total = std::min(highest_cost, total + cost[index(used)]);
      });
      const demand& d = demands[i];
      stored_[i] = (d.several && total >= worth_keeping) || (d.deeper && total >= worth_keeping_in_loops);
      const bool only_passes = own_cost(p.op) == 0;
      if (stored_[i] && only_passes) stored_[i] = false;
      cost[i] = stored_[i] ? 1 : total;
    }
  }
}

void cpu_emitter::lower_node(node_id n) {
  current = n;
  if (has_value(n) || buffer_of_[index(n)] >= 0 || alias_[index(n)] != no_node) return record_lowered(n);
  const codegen::node_plan& p = plan->at(n);
  if (p.known && (p.op == operation::split || p.op == operation::load_float4_e2m1fn_x16_to_float16)) return; // `getitem` does it
  const nest own(*this);
  if (!is_deferred(n)) {
    emitter::lower_node(n);
    return record_lowered(n);
  }
  if (p.op == operation::getitem && operand_node(0) != no_node) {
    if (const std::int32_t several = several_of_[index(operand_node(0))]; several >= 0) {
      const argument* position = argument_at(1);
      const std::vector<std::int32_t>& all = several_buffers_[at_index(several)];
      if (position == nullptr || position->integer < 0 || static_cast<std::size_t>(position->integer) >= all.size())
        malformed(fmt::format("'{}' has {} values", source->at(operand_node(0)).name, all.size()));
      buffer_of_[index(n)] = all[static_cast<std::size_t>(position->integer)];
      return record_lowered(n);
    }
  }
  // A load from a tensor that the kernel writes happens here and now.
  if (p.op == operation::load)
    if (const std::int32_t tensor = tensor_of(operand_node(0)); tensor >= 0 && is_written(tensor)) return materialise(n);
  if (!stored_[index(n)]) return;
  buffer_of_[index(n)] = make_buffer(source->at(n).name, shape_of(n), type_of(n));
  pending_.push_back(n);
}

void cpu_emitter::materialise(node_id n) {
  if (buffer_of(n) >= 0 || has_value(n)) return;
  const std::int32_t b = buffer_of_[index(n)] >= 0 ? buffer_of_[index(n)] : make_buffer(source->at(n).name, shape_of(n), type_of(n));
  buffer_of_[index(n)] = b;
  const std::vector<dimension> shape(shape_of(n).begin(), shape_of(n).end());
  // Inside a nest, what is emitted now goes ahead of it.
  const nest own(*this, levels_.empty() ? current_body() : levels_[0].inside);
  indices at;
  for (const dimension& d : shape) at.push_back(push_loop(d));
  write(b, at, compute(n, at));
  while (depth() > 1) pop();
  at_buffer(b).filled = true;
}

void cpu_emitter::fill_pending() {
  const std::vector<node_id> waiting = std::move(pending_);
  pending_.clear();
  const node_id saved = current;
  for (const node_id n : waiting)
    if (!buffers_[at_index(buffer_of_[index(n)])].filled) materialise(n);
  current = saved;
}

node_id cpu_emitter::resolved(node_id n) const {
  while (n != no_node) {
    if (alias_[index(n)] != no_node) {
      n = alias_[index(n)];
      continue;
    }
    const codegen::node_plan& p = plan->at(n);
    const bool copies =
        p.known && (p.op == operation::new_var || p.op == operation::aten_alias) && buffer_of_[index(n)] < 0 && !has_value(n);
    const auto arguments = source->arguments_of(source->at(n));
    if (!copies || arguments.empty() || arguments[0].what != argument::kind::node) break;
    n = arguments[0].node;
  }
  return n;
}

/// Not marked as at least 0, even where it is a tensor's size: a division by it stays guarded against 0, which would end the process.
expression cpu_emitter::parameter_value(symbolic::symbol s) {
  const std::size_t i = static_cast<std::size_t>(s);
  parameter_used_[i] = true;
  if (symbol_values_[i] == codegen::no_expression) {
    const variable v = new_parameter(source->symbols.name(s), plan->real_symbol[i] ? language->symbol_real : dtype::i64);
    symbol_values_[i] = name(v);
  }
  return symbol_values_[i];
}

// -- elements

indices cpu_emitter::broadcast(index_span at, std::size_t from_rank, std::span<const dimension> to) {
  indices result;
  for (std::size_t d = 0; d < to.size(); ++d) {
    const std::size_t aligned = from_rank + d;
    const bool given = aligned >= to.size() && aligned - to.size() < at.size();
    result.push_back(to[d].size == 1 || !given ? zero_ : at[aligned - to.size()]);
  }
  return result;
}

expression cpu_emitter::broadcast_element(node_id n, index_span at, std::span<const dimension> from) {
  return element(n, broadcast(at, from.size(), shape_of(n)));
}

expression cpu_emitter::value_of(node_id n) {
  n = resolved(n);
  if (has_value(n) || !is_tile(n)) return emitter::value_of(n);
  return broadcast_element(n, lane_, shape_of(current));
}

expression cpu_emitter::element(node_id n, index_span at) {
  n = resolved(n);
  if (has_value(n)) return emitter::value_of(n);
  const std::int32_t b = buffer_of_[index(n)];
  if (b < 0) return compute(n, at);
  if (const expression known = recall(n, at); known != codegen::no_expression) return known;
  if (at_buffer(b).filled) return read(b, at, type_of(n));
  if (!covers(n, at)) {
    materialise(n);
    return read(b, at, type_of(n));
  }
  // This nest goes over all elements: it fills the place while it is at it.
  const expression value = compute(n, at);
  const auto guard = into(levels_[level_of(at)].inside);
  defines(store(place(b, at), cast(value, at_buffer(b).type)), at_buffer(b).v);
  at_buffer(b).filled = true;
  return value;
}

/// Whether the open loops up to those of `at` are exactly those over the tile's elements.
bool cpu_emitter::covers(node_id n, index_span at) {
  const std::span<const dimension> shape = shape_of(n);
  std::vector<bool> seen(levels_.size());
  std::size_t loops = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const codegen::expression_node& e = this->at(at[d]);
    if (shape[d].size == 1 && integer_literal(at[d]) == std::optional<std::int64_t>(0)) continue;
    if (e.what != codegen::expression_kind::name) return false;
    const index_fact* f = static_cast<std::size_t>(e.name) < facts_.size() ? &facts_[static_cast<std::size_t>(e.name)] : nullptr;
    if (f == nullptr || f->count == codegen::no_expression || f->level == 0 || seen[f->level]) return false;
    if (f->block != shape[d].block) return false;
    if (f->block < 0 && !(integer_literal(f->count) && integer_literal(f->count) == integer_literal(lanes(shape[d])))) return false;
    seen[f->level] = true;
    ++loops;
  }
  for (std::size_t l = 1; l <= loops; ++l)
    if (!seen[l]) return false;
  return true;
}

bool cpu_emitter::same_index(expression a, expression b) const {
  if (a == b) return true;
  const codegen::expression_node& x = at(a);
  const codegen::expression_node& y = at(b);
  if (x.what != y.what) return false;
  if (x.what == codegen::expression_kind::integer) return x.integer == y.integer;
  return x.what == codegen::expression_kind::name && x.name == y.name;
}

/// The element as this nest computed it before.
expression cpu_emitter::recall(node_id n, index_span at) const {
  for (const remembered& r : memo_)
    if (r.n == n &&
        std::equal(r.at.begin(), r.at.end(), at.begin(), at.end(), [&](expression x, expression y) { return same_index(x, y); }))
      return r.value;
  return codegen::no_expression;
}

expression cpu_emitter::compute(node_id n, index_span at) {
  if (const expression known = recall(n, at); known != codegen::no_expression) return known;
  const std::size_t level = level_of(at);
  const node_id saved = current;
  indices saved_lane(at.begin(), at.end());
  saved_lane.swap(lane_);
  expression value;
  {
    const auto guard = into(levels_[level].inside);
    emitter::lower_node(n);
    current = n;
    value = values_[index(n)].value;
    if (value == codegen::no_expression) malformed("the node has no element here");
    value = define_for(n, value);
    record(n, lane_, value);
    values_[index(n)].value = codegen::no_expression;
  }
  remember_level(value, level);
  memo_.push_back({n, indices(lane_), value, level});
  lane_.swap(saved_lane);
  current = saved;
  return value;
}

// -- levels

cpu_emitter::nest::nest(cpu_emitter& e) : emitter_(e), levels_(std::move(e.levels_)), memo_(std::move(e.memo_)) {
  e.levels_.clear();
  e.memo_.clear();
  e.levels_.push_back({.inside = e.current_body()});
}

cpu_emitter::nest::nest(cpu_emitter& e, codegen::body base) : emitter_(e), levels_(std::move(e.levels_)), memo_(std::move(e.memo_)) {
  e.levels_.clear();
  e.memo_.clear();
  e.levels_.push_back({.inside = base});
}

cpu_emitter::nest::~nest() {
  emitter_.levels_ = std::move(levels_);
  emitter_.memo_ = std::move(memo_);
}

void cpu_emitter::remember_level(expression e, std::size_t level) {
  const codegen::expression_node& n = at(e);
  if (n.what != codegen::expression_kind::name || level == 0) return;
  const std::size_t v = static_cast<std::size_t>(n.name);
  if (v >= facts_.size()) facts_.resize(v + 1);
  facts_[v].level = std::max(facts_[v].level, level);
}

std::size_t cpu_emitter::level_of(expression e) const {
  const codegen::expression_node& n = at(e);
  if (n.what == codegen::expression_kind::name) {
    const std::size_t v = static_cast<std::size_t>(n.name);
    return v < facts_.size() && facts_[v].level < levels_.size() ? facts_[v].level : 0;
  }
  std::size_t level = 0;
  for (const expression part : operands(e)) level = std::max(level, level_of(part));
  return level;
}

std::size_t cpu_emitter::level_of(index_span all) const {
  std::size_t level = 0;
  for (const expression e : all) level = std::max(level, level_of(e));
  return level;
}

expression cpu_emitter::define_at(std::size_t level, std::string_view wanted, expression value) {
  if (is_atom(value)) return value;
  const auto guard = into(levels_[level].inside);
  const expression defined = define(wanted, value);
  remember_level(defined, level);
  return defined;
}

expression cpu_emitter::push(const dimension& d, bool closure) {
  const expression count = lanes(d);
  if (!closure && integer_literal(count) == std::optional<std::int64_t>(1)) return zero_;
  constexpr std::string_view names[] = {"i", "j", "k", "l", "m", "n"};
  const variable v = new_variable(names[std::min<std::size_t>(levels_.size() - 1, 5)], dtype::i64);
  at(v).non_negative = true;
  levels_.push_back({.inside = new_body(), .index = v, .count = count, .closure = closure});
  const std::size_t i = static_cast<std::size_t>(v);
  if (i >= facts_.size()) facts_.resize(i + 1);
  facts_[i] = {.level = levels_.size() - 1, .block = d.block, .count = count};
  return name(v);
}

expression cpu_emitter::push_loop(const dimension& d) { return push(d, false); }
expression cpu_emitter::push_closure(const dimension& d) { return push(d, true); }

void cpu_emitter::pop() {
  const level closed = levels_.back();
  levels_.pop_back();
  std::erase_if(memo_, [&](const remembered& r) { return r.level >= levels_.size(); });
  const auto guard = into(levels_.back().inside);
  (void)for_range(closed.index, call("range", {zero_, closed.count, whole(1)}), closed.inside);
}

variable cpu_emitter::pop_closure(std::string_view callee, std::initializer_list<expression> arguments, expression value,
                                  std::string_view wanted, dtype type) {
  const level closed = levels_.back();
  {
    const auto guard = into(closed.inside);
    at(return_value(value)).effect = false;
  }
  levels_.pop_back();
  std::erase_if(memo_, [&](const remembered& r) { return r.level >= levels_.size(); });
  const variable result = new_variable(wanted, type);
  const auto guard = into(levels_.back().inside);
  std::vector<expression> all{closed.count};
  all.insert(all.end(), arguments.begin(), arguments.end());
  closure(result, call(callee, all), closed.index, closed.inside);
  remember_level(name(result), levels_.size() - 1);
  return result;
}

// -- buffers

std::int32_t cpu_emitter::make_buffer(std::string_view wanted, std::span<const dimension> shape, dtype type) {
  buffer b;
  b.type = type;
  b.shape.assign(shape.begin(), shape.end());
  b.strides.resize(shape.size(), zero_);
  expression total = whole(1);
  for (std::size_t d = shape.size(); d-- > 0;) {
    expression capacity = full_lanes(shape[d]);
    if (const block_plan* block = plan->find_block(shape[d].block);
        block != nullptr && block->constant_extent && *block->constant_extent > 0)
      if (const auto n = integer_literal(capacity); n && *n > *block->constant_extent) capacity = whole(*block->constant_extent);
    b.strides[d] = integer_literal(capacity) == std::optional<std::int64_t>(1) ? zero_ : total;
    total = mark_non_negative(binary(op::multiply, total, capacity));
  }
  const std::optional<std::int64_t> elements = integer_literal(total);
  const std::string_view spelled = language->types[static_cast<std::size_t>(type)];
  b.v = new_variable(wanted, type);
  if (elements == std::optional<std::int64_t>(1)) {
    b.scalar = true;
    const codegen::body place = levels_.empty() ? current_body() : levels_[0].inside;
    const auto guard = into(place);
    declare(b.v, {}, codegen::no_expression);
  } else if (elements && *elements > 0 && *elements * device_ir::size_of(type) <= largest_local) {
    at(b.v).spelled_type = keep_joined(std::string_view("alignas(64) "), spelled);
    const auto guard = into(levels_.empty() ? current_body() : levels_[0].inside);
    declare(b.v, keep(fmt::format("[{}]", *elements)));
  } else {
    // Once a program, whatever loop it is used in.
    const auto guard = ahead_of(root_body_);
    const variable storage = new_variable(keep_joined(wanted, std::string_view("_storage")));
    at(storage).spelled_type = keep(fmt::format("const std::unique_ptr<{}[]>", spelled));
    declare(storage, {}, call(keep(fmt::format("std::make_unique_for_overwrite<{}[]>", spelled)), {call("std::size_t", {total})}));
    at(b.v).spelled_type = keep(fmt::format("{}* __restrict const", spelled));
    declare(b.v, {}, method(name(storage), "get", {}));
  }
  buffers_.push_back(std::move(b));
  return static_cast<std::int32_t>(buffers_.size() - 1);
}

std::int32_t cpu_emitter::scalar_buffer(variable v, dtype type, std::span<const dimension> shape) {
  buffer b;
  b.v = v;
  b.type = type;
  b.shape.assign(shape.begin(), shape.end());
  b.strides.resize(shape.size(), zero_);
  b.scalar = b.filled = true;
  buffers_.push_back(std::move(b));
  return static_cast<std::int32_t>(buffers_.size() - 1);
}

void cpu_emitter::keep_in(node_id n, std::int32_t b) {
  if (shape_of(n).empty()) return set_value(n, cast(name(at_buffer(b).v), type_of(n)));
  buffer_of_[index(n)] = b;
}

void cpu_emitter::keep_all_in(node_id n, std::span<const std::int32_t> several) {
  several_of_[index(n)] = static_cast<std::int32_t>(several_buffers_.size());
  several_buffers_.emplace_back(several.begin(), several.end());
  indices values; // for those that are scalars
  for (const std::int32_t b : several) values.push_back(name(at_buffer(b).v));
  set_values(n, values);
}

std::int32_t cpu_emitter::buffer_of(node_id n) const {
  n = resolved(n);
  const std::int32_t b = buffer_of_[index(n)];
  return b >= 0 && buffers_[at_index(b)].filled ? b : -1;
}

expression cpu_emitter::place(std::int32_t b, index_span at_elements) {
  const buffer& to = at_buffer(b);
  if (to.scalar) return name(to.v);
  expression offset = zero_;
  for (std::size_t d = 0; d < at_elements.size(); ++d)
    offset = mark_non_negative(binary(op::add, offset, binary(op::multiply, at_elements[d], to.strides[d])));
  return typed(subscript(name(to.v), {offset}), to.type);
}

expression cpu_emitter::read(std::int32_t b, index_span at_elements, dtype as) {
  const expression value = cast(place(b, at_elements), as);
  const std::size_t level = level_of(at_elements);
  if (level + 1 >= levels_.size() || at_buffer(b).scalar) return value;
  // Read once for all iterations of the loops inside.
  return define_at(level, at(at_buffer(b).v).preferred, value);
}

void cpu_emitter::write(std::int32_t b, index_span at_elements, expression value) {
  buffer& to = at_buffer(b);
  value = cast(value, to.type);
  const auto guard = into(levels_.back().inside);
  if (to.scalar) {
    (void)assign(to.v, value);
    return;
  }
  defines(store(place(b, at_elements), value), to.v);
}

void cpu_emitter::fill(std::int32_t b, const std::function<expression(index_span)>& value) {
  const nest own(*this);
  const std::vector<dimension> shape = at_buffer(b).shape;
  indices at;
  for (const dimension& d : shape) at.push_back(push_loop(d));
  write(b, at, value(at));
  while (depth() > 1) pop();
  at_buffer(b).filled = true;
}

void cpu_emitter::fill(std::int32_t b, node_id from) {
  fill(b, [&](index_span at) { return broadcast_element(from, at, at_buffer(b).shape); });
}

void cpu_emitter::fill(std::int32_t b, const argument& from) {
  if (from.what == argument::kind::node) return fill(b, from.node);
  fill(b, [&](index_span) { return literal(from, at_buffer(b).type); });
}

// -- dimensions

expression cpu_emitter::full_lanes(const dimension& d) {
  const block_plan* b = plan->find_block(d.block);
  if (b == nullptr) return d.size > 0 ? whole(d.size) : mark_non_negative(symbolic(d.expression));
  if ((b->role == block_role::whole) && b->extent != symbolic::no_expression) return mark_non_negative(symbolic(b->extent));
  if (b->block_size > 0) return whole(b->block_size);
  return mark_non_negative(block_size(d.block));
}

expression cpu_emitter::lanes(const dimension& d) {
  if (d.block < 0) return full_lanes(d);
  if (find_tile(d.block) != nullptr) return lane_counts_[at_index(d.block)];
  return full_lanes(d);
}

expression cpu_emitter::lane_offset(std::int32_t block) {
  const codegen::tile_binding* t = find_tile(block);
  return t == nullptr ? zero_ : t->offset;
}

void cpu_emitter::open_lanes(std::int32_t block, expression offset, expression end, expression id) {
  const block_plan& b = plan->blocks[at_index(block)];
  codegen::tile_binding t;
  t.offset = offset;
  t.end = end;
  t.id = id;
  const expression size = mark_non_negative(cast(block_size(block), dtype::i64));
  expression count = size;
  if (b.mask) {
    const expression left = binary(op::subtract, end, offset);
    count = define(keep(fmt::format("lanes_{}", block)), mark_non_negative(call("std::min<std::int64_t>", {size, left}, dtype::i64)));
  }
  lane_counts_[at_index(block)] = count;
  open_tile(block, t);
}

expression cpu_emitter::tile_indices(std::int32_t block) {
  const expression i = lane_.empty() ? zero_ : lane_[0];
  return mark_non_negative(cast(binary(op::add, lane_offset(block), i), dtype::i32));
}

expression cpu_emitter::validity(std::span<const dimension> shape, index_span at_elements) {
  expression all = codegen::no_expression;
  const auto with = [&](expression test) { all = all == codegen::no_expression ? test : binary(op::logical_and, all, test); };
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const block_plan* b = plan->find_block(shape[d].block);
    if (b == nullptr || !b->mask) continue;
    const codegen::expression_node& e = at(at_elements[d]);
    const bool first = integer_literal(at_elements[d]) == std::optional<std::int64_t>(0);
    bool own_loop = false;
    if (e.what == codegen::expression_kind::name && static_cast<std::size_t>(e.name) < facts_.size()) {
      const index_fact& f = facts_[static_cast<std::size_t>(e.name)];
      own_loop = f.count != codegen::no_expression && f.block == shape[d].block;
    }
    if (!first && !own_loop) with(binary(op::less, at_elements[d], lanes(shape[d])));
    if (!b->jagged) continue;
    indices rows;
    for (const std::int32_t parent : b->jagged_parents) {
      const auto found = std::find_if(shape.begin(), shape.end(), [&](const dimension& x) { return x.block == parent; });
      if (found == shape.end())
        malformed(fmt::format("the lanes of jagged block {} are used without those of its parent {}", b->id, parent));
      rows.push_back(at_elements[static_cast<std::size_t>(found - shape.begin())]);
    }
    const expression end = element(b->jagged_extent, rows);
    with(binary(op::less, binary(op::add, lane_offset(b->id), at_elements[d]), end));
  }
  return all;
}

std::span<const dimension> cpu_emitter::operand_shape(std::size_t i) {
  const node_id n = operand_node(i);
  return n == no_node ? std::span<const dimension>() : shape_of(n);
}

void cpu_emitter::start_root() {
  tensor_used_.assign(tensor_used_.size(), false);
  parameter_used_.assign(parameter_used_.size(), false);
  root_body_ = new_body();
}

} // namespace muster::cpu
