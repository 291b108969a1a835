module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.backend.cpu;

namespace muster::cpu {

using codegen::loop_plan;
using codegen::op;
using device_ir::argument;
using device_ir::index;
using device_ir::no_node;

namespace {

bool is_live(const emitter& e, node_id n) { return n != no_node && e.plan->at(n).live; }

std::span<const argument> list(emitter& e, std::size_t position) {
  const argument* a = e.argument_at(position);
  if (a == nullptr || a->what == argument::kind::none) return {};
  return e.source->items(*a);
}

std::vector<expression> values(emitter& e, std::size_t position) {
  std::vector<expression> all;
  for (const argument& a : list(e, position)) all.push_back(e.cast(e.literal(a), dtype::i64));
  return all;
}

/// A name a reader knows: the document's own for the value, not that of a node inserted by tracing.
std::string_view readable_name(const emitter& e, node_id before, node_id result) {
  const std::string_view name = before != no_node ? e.source->at(before).name : std::string_view();
  if (!name.empty() && name.front() != '_') return name;
  const std::string_view other = result != no_node ? e.source->at(result).name : std::string_view();
  return other.empty() ? name : other;
}

/// What a loop or branch keeps in one place: a tile in a buffer, a scalar in a variable.
struct slot {
  std::int32_t buffer = -1;
  codegen::variable v = codegen::no_variable;
  dtype type = dtype::f32;
  node_id result = no_node;         ///< the value that replaces it, or no_node with
  const argument* literal = nullptr;
};

/// The result `i` of a graph as an argument.
const argument* result_of(const emitter& e, std::int32_t graph, std::int32_t i) {
  const argument& result = e.source->graphs[static_cast<std::size_t>(graph)].result;
  if (result.what != argument::kind::list && result.what != argument::kind::tuple) return i == 0 ? &result : nullptr;
  const auto items = e.source->items(result);
  return static_cast<std::size_t>(i) < items.size() ? &items[static_cast<std::size_t>(i)] : nullptr;
}

dtype scalar_type(const emitter& e, node_id n) {
  return e.source->at(n).type.what == device_ir::type::kind::tensor ? e.type_of(n)
                                                                    : (device_ir::is_float(e.type_of(n)) ? e.type_of(n) : dtype::i64);
}

slot new_slot(cpu_emitter& e, node_id like, std::string_view name) {
  slot s;
  if (e.is_tile(like)) {
    s.type = e.type_of(like);
    s.buffer = e.make_buffer(name, e.shape_of(like), s.type);
    s.v = e.at_buffer(s.buffer).v;
  } else {
    s.type = scalar_type(e, like);
    s.v = e.new_variable(name, s.type);
    e.declare(s.v, "{}");
  }
  return s;
}

/// Sets a slot to a value of the current body.
void set_slot(cpu_emitter& e, const slot& s, const argument& from) {
  if (s.buffer >= 0) return e.fill(s.buffer, from);
  e.assign(s.v, e.cast(e.literal(from), s.type));
}

void publish(cpu_emitter& e, const slot& s, node_id n) {
  if (n == no_node) return;
  if (s.buffer >= 0) {
    e.at_buffer(s.buffer).filled = true;
    e.keep_in(n, s.buffer);
  } else {
    e.set_value(n, e.name(s.v));
  }
}

// -- what reads what

/// Whether computing the elements of `n` reads buffer `b`, and where: at the same index, or elsewhere.
struct reading {
  bool any = false;
  bool elsewhere = false;
};

void find_reading(cpu_emitter& e, node_id n, std::int32_t b, bool moved, reading& found, std::vector<bool>& seen) {
  n = e.resolved(n);
  if (n == no_node || seen[index(n)]) return;
  seen[index(n)] = true;
  if (e.buffer_of(n) == b) {
    found.any = true;
    found.elsewhere = found.elsewhere || moved;
    return;
  }
  if (e.has_value(n) || e.buffer_of(n) >= 0 || !e.plan->at(n).known) return;
  const operation o = e.plan->at(n).op;
  const bool moves = information(o).category == operation_category::view || o == operation::load;
  const auto visit = [&](const auto& again, const argument& a) -> void {
    if (a.what == argument::kind::node) find_reading(e, a.node, b, moved || moves, found, seen);
    if (a.what == argument::kind::list || a.what == argument::kind::tuple)
      for (const argument& item : e.source->items(a)) again(again, item);
  };
  for (const argument& a : e.source->arguments_of(e.source->at(n))) visit(visit, a);
}

reading reads(cpu_emitter& e, node_id n, std::int32_t b) {
  reading found;
  std::vector<bool> seen(e.source->nodes.size());
  find_reading(e, n, b, false, found, seen);
  return found;
}

bool mentions(const emitter& e, expression x, codegen::variable v) {
  const codegen::expression_node& n = e.at(x);
  if (n.what == codegen::expression_kind::name) return n.name == v;
  for (const expression part : e.operands(x))
    if (mentions(e, part, v)) return true;
  return false;
}

/// Gives every slot its result, as if all at once: a result is computed before what it reads is changed.
void assign_together(cpu_emitter& e, std::vector<slot> slots) {
  // Scalars first into constants: they may read each other and tiles.
  std::vector<std::pair<codegen::variable, expression>> scalars;
  for (const slot& s : slots) {
    if (s.buffer >= 0) continue;
    const argument from = s.literal != nullptr ? *s.literal : argument{};
    expression value = e.cast(s.result != no_node ? e.value_of(s.result) : e.literal(from), s.type);
    if (e.at(value).what == codegen::expression_kind::name && e.at(value).name == s.v) continue;
    for (const slot& other : slots)
      if (other.v != s.v && mentions(e, value, other.v) && other.buffer < 0)
        value = e.define("next", e.typed(e.call(e.language->types[static_cast<std::size_t>(s.type)], {value}), s.type));
    scalars.emplace_back(s.v, value);
  }
  std::vector<slot> tiles;
  for (const slot& s : slots)
    if (s.buffer >= 0 && !(s.result != no_node && e.buffer_of(s.result) == s.buffer)) tiles.push_back(s);
  while (!tiles.empty()) {
    // One whose place no other result reads, and whose own result reads it at most at the index that it replaces.
    const auto ready = std::find_if(tiles.begin(), tiles.end(), [&](const slot& s) {
      if (s.result != no_node && reads(e, s.result, s.buffer).elsewhere) return false;
      return std::none_of(tiles.begin(), tiles.end(),
                          [&](const slot& o) { return o.buffer != s.buffer && o.result != no_node && reads(e, o.result, s.buffer).any; });
    });
    if (ready == tiles.end()) { // a circle: one result gets a place of its own
      const auto first = std::find_if(tiles.begin(), tiles.end(), [&](const slot& s) { return s.result != no_node; });
      const node_id n = e.resolved(first->result);
      if (e.buffer_of(n) >= 0) {
        const std::int32_t copy = e.make_buffer("next", e.shape_of(n), first->type);
        e.fill(copy, n);
        const std::int32_t to = first->buffer;
        tiles.erase(first);
        // The copy is written back once everything else is done.
        assign_together(e, tiles);
        e.fill(to, [&](index_span at) { return e.read(copy, at, e.at_buffer(copy).type); });
        tiles.clear();
        break;
      }
      e.materialise(n);
      continue;
    }
    if (ready->result != no_node) e.fill(ready->buffer, ready->result);
    else if (ready->literal != nullptr) e.fill(ready->buffer, *ready->literal);
    tiles.erase(ready);
  }
  for (const auto& [v, value] : scalars) e.assign(v, value);
}

void bind_parameter(cpu_emitter& e, node_id parameter, const argument& a) {
  if (a.what == argument::kind::node) {
    const node_id from = e.resolved(a.node);
    if (e.has_value(from)) e.set_value(parameter, e.emitter::value_of(from));
    else e.stands_for(parameter, from);
  } else {
    e.set_value(parameter, e.literal(a));
  }
}

struct carried_slot {
  const codegen::carried* plan = nullptr;
  slot s;
};

bool is_live(const emitter& e, const codegen::carried& c) { return is_live(e, c.parameter) || is_live(e, c.after) || is_live(e, c.joined); }

void bind_parameters(cpu_emitter& e, std::int32_t graph, std::span<const argument> arguments, std::span<const carried_slot> carries,
                     std::int32_t named_as) {
  const device_ir::graph& g = e.source->graphs[static_cast<std::size_t>(graph)];
  const device_ir::graph& body = e.source->graphs[static_cast<std::size_t>(named_as)];
  for (std::size_t j = 0; j < arguments.size() && j < g.parameters.count; ++j) {
    const node_id parameter = static_cast<node_id>(g.parameters.first + j);
    if (!is_live(e, parameter)) continue;
    // A while loop's condition takes the same values as its body, by position.
    const node_id same = j < body.parameters.count ? static_cast<node_id>(body.parameters.first + j) : no_node;
    const auto found = std::find_if(carries.begin(), carries.end(), [&](const carried_slot& c) { return c.plan->parameter == same; });
    if (same != no_node && found != carries.end()) publish(e, found->s, parameter);
    else bind_parameter(e, parameter, arguments[j]);
  }
}

std::vector<carried_slot> start_carries(cpu_emitter& e, const loop_plan& loop) {
  std::vector<carried_slot> all;
  for (const codegen::carried& c : loop.carries) {
    if (!is_live(e, c)) continue;
    const argument* result = result_of(e, loop.body, c.result);
    const node_id result_node = result != nullptr && result->what == argument::kind::node ? result->node : no_node;
    slot s = new_slot(e, c.before, readable_name(e, c.before, result_node));
    argument from;
    from.what = argument::kind::node;
    from.node = c.before;
    set_slot(e, s, from);
    s.result = result_node;
    s.literal = result_node == no_node ? result : nullptr;
    all.push_back({&c, s});
  }
  return all;
}

/// Whether every use of a carried value in its body leads to `n` alone, so that `n` may be computed in its place.
bool only_feeds(const cpu_emitter& e, node_id parameter, node_id n, int depth) {
  if (parameter == n) return true;
  if (depth > 16) return false;
  const device_ir::graph& g = e.source->graphs[static_cast<std::size_t>(e.plan->at(n).graph)];
  const auto uses = [&](const argument& a, const auto& again) -> bool {
    if (a.what == argument::kind::node) return a.node == parameter;
    if (a.what == argument::kind::list || a.what == argument::kind::tuple)
      for (const argument& item : e.source->items(a))
        if (again(item, again)) return true;
    return false;
  };
  if (uses(g.result, uses)) return false;
  for (std::uint32_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i) {
    const node_id user = static_cast<node_id>(i);
    const codegen::node_plan& p = e.plan->at(user);
    if (!p.live || !p.known || p.op == operation::aten_sym_size) continue;
    bool used = false;
    for (const argument& a : e.source->arguments_of(e.source->at(user))) used = used || uses(a, uses);
    if (!used || user == n) continue;
    const operation_category c = information(p.op).category;
    const bool elementwise = c == operation_category::pointwise || p.op == operation::new_var;
    if (!elementwise || !only_feeds(e, user, n, depth + 1)) return false;
  }
  return true;
}

/// A matrix product that is what replaces a carried tile, and the only reader of the old one, is computed in its place.
void choose_destinations(cpu_emitter& e, std::span<const carried_slot> carries) {
  for (const carried_slot& c : carries) {
    if (c.s.buffer < 0 || c.s.result == no_node || c.plan->parameter == no_node) continue;
    const node_id n = c.s.result;
    if (!e.plan->at(n).known || information(e.plan->at(n).op).category != operation_category::matmul) continue;
    if (std::count_if(carries.begin(), carries.end(), [&](const carried_slot& o) { return o.s.result == n; }) != 1) continue;
    const auto arguments = e.source->arguments_of(e.source->at(n));
    const bool addmm = e.plan->at(n).op == operation::aten_addmm || e.plan->at(n).op == operation::aten_baddbmm;
    if (e.plan->at(n).op != operation::dot && !addmm) continue;
    // The old value may only be what is added to, not a factor.
    const std::size_t added = addmm ? 0 : 2;
    if (added >= arguments.size() || arguments[added].what != argument::kind::node) continue;
    bool factor = false;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      if (i != added && arguments[i].what == argument::kind::node && reads(e, arguments[i].node, c.s.buffer).any) factor = true;
    if (!factor && only_feeds(e, c.plan->parameter, n, 0)) e.set_destination(n, c.s.buffer);
  }
}

} // namespace

void for_loop(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const node_id own = e.current;
  const loop_plan& loop = e.plan->loops[static_cast<std::size_t>(e.plan->loop_of_node[index(own)])];
  e.fill_pending();
  const std::vector<expression> begins = values(e, 1);
  const std::vector<expression> ends = values(e, 2);
  const std::vector<expression> steps = e.plan->at(own).op == operation::for_loop_step ? values(e, 4) : std::vector<expression>();
  const std::vector<argument> arguments(list(e, 3).begin(), list(e, 3).end());
  const std::vector<carried_slot> carries = start_carries(e, loop);
  std::vector<std::pair<const codegen::accumulator*, slot>> accumulators;
  for (const codegen::accumulator& a : loop.accumulators) {
    if (!is_live(e, a.after)) continue;
    slot s = new_slot(e, a.partial, e.source->at(a.partial).name);
    const expression start = neutral(e, a.by, s.type);
    if (s.buffer >= 0) e.fill(s.buffer, [&](index_span) { return start; });
    else e.assign(s.v, start);
    accumulators.emplace_back(&a, s);
  }
  std::vector<std::pair<node_id, slot>> last;
  for (const auto& [result, after] : loop.last_values) {
    if (!is_live(e, after)) continue;
    const argument* from = result_of(e, loop.body, result);
    slot s = new_slot(e, after, e.source->at(after).name);
    s.result = from != nullptr && from->what == argument::kind::node ? from->node : no_node;
    s.literal = s.result == no_node ? from : nullptr;
    last.emplace_back(after, s);
  }
  bind_parameters(e, loop.body, arguments, carries, loop.body);
  choose_destinations(e, carries);
  {
    std::vector<std::unique_ptr<emitter::insertion>> guards;
    for (std::size_t k = loop.order.size(); k-- > 0;) { // the last in the order is the outermost
      const std::int32_t block = loop.order[k];
      const std::size_t listed = static_cast<std::size_t>(std::find(loop.blocks.begin(), loop.blocks.end(), block) - loop.blocks.begin());
      const codegen::variable v = e.new_variable(e.keep(fmt::format("offset_{}", block)), dtype::i64);
      e.at(v).non_negative = true;
      const expression step = steps.empty() ? e.cast(e.block_size(block), dtype::i64) : steps[listed];
      const codegen::statement s = e.for_range(v, e.call("range", {begins[listed], ends[listed], step}));
      guards.push_back(std::make_unique<emitter::insertion>(e, e.inner(s), false));
      e.open_lanes(block, e.name(v), ends[listed]);
    }
    e.lower_graph(loop.body);
    const cpu_emitter::nest outer(e);
    for (const auto& [a, s] : accumulators) {
      const node_id partial = e.graph_result_node(loop.body, static_cast<std::size_t>(a->result));
      if (s.buffer < 0) {
        e.assign(s.v, combined(e, a->by, e.name(s.v), e.cast(e.value_of(partial), s.type)));
        continue;
      }
      const std::int32_t b = s.buffer;
      const operation by = a->by;
      e.fill(b, [&](index_span at) {
        return combined(e, by, e.place(b, at), e.cast(e.broadcast_element(partial, at, e.at_buffer(b).shape), e.at_buffer(b).type));
      });
    }
    std::vector<slot> assigned;
    for (const carried_slot& c : carries) assigned.push_back(c.s);
    for (const auto& [after, s] : last) assigned.push_back(s);
    assign_together(e, std::move(assigned));
    while (!guards.empty()) guards.pop_back();
  }
  e.close_loop(loop);
  e.current = own;
  for (const carried_slot& c : carries) {
    publish(e, c.s, c.plan->after);
    publish(e, c.s, c.plan->joined);
  }
  for (const auto& [a, s] : accumulators) publish(e, s, a->after);
  for (const auto& [after, s] : last) publish(e, s, after);
}

void while_loop(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const node_id own = e.current;
  const loop_plan& loop = e.plan->loops[static_cast<std::size_t>(e.plan->loop_of_node[index(own)])];
  e.fill_pending();
  const std::vector<argument> arguments(list(e, 2).begin(), list(e, 2).end());
  const std::vector<carried_slot> carries = start_carries(e, loop);
  const codegen::statement s = e.loop_while(e.boolean(true));
  {
    const auto inside = e.into(e.inner(s));
    e.record_step();
    bind_parameters(e, loop.condition, arguments, carries, loop.body);
    e.lower_graph(loop.condition);
    const cpu_emitter::nest outer(e);
    const argument* test = result_of(e, loop.condition, 0);
    if (test == nullptr) e.malformed("the condition has no result");
    const expression go_on = test->what == argument::kind::node ? e.value_of(test->node) : e.literal(*test);
    {
      const auto done = e.into(e.inner(e.if_then(e.unary(op::logical_not, go_on))));
      e.break_out();
    }
    e.current = own;
    e.record_step();
    bind_parameters(e, loop.body, arguments, carries, loop.body);
    e.lower_graph(loop.body);
    std::vector<slot> assigned;
    for (const carried_slot& c : carries) assigned.push_back(c.s);
    assign_together(e, std::move(assigned));
  }
  e.current = own;
  for (const carried_slot& c : carries) {
    publish(e, c.s, c.plan->after);
    publish(e, c.s, c.plan->joined);
  }
}

void if_(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const node_id own = e.current;
  const codegen::branch_plan& branch = e.plan->branches[static_cast<std::size_t>(e.plan->branch_of_node[index(own)])];
  const bool then_side = branch.constant_test.value_or(true);
  const bool else_side = branch.else_graph >= 0 && !branch.constant_test.value_or(false);
  e.fill_pending();
  expression test = codegen::no_expression;
  if (!branch.constant_test) {
    const node_id n = e.operand_node(0);
    if (n != no_node)
      for (const dimension& d : e.shape_of(n))
        if (d.size != 1) e.unsupported("a branch on a tile of truth values: only one value can decide; use torch.where");
    test = e.operand(0);
  }
  std::vector<std::pair<const codegen::branch_output*, slot>> outputs;
  for (const codegen::branch_output& out : branch.outputs) {
    if (!is_live(e, out.then_value) && !is_live(e, out.else_value) && !is_live(e, out.joined)) continue;
    const node_id any = out.joined != no_node ? out.joined : out.then_value != no_node ? out.then_value : out.else_value;
    const argument* then_result = out.then_result >= 0 ? result_of(e, branch.then_graph, out.then_result) : nullptr;
    const argument* else_result = out.else_result >= 0 ? result_of(e, branch.else_graph, out.else_result) : nullptr;
    const argument* named = then_result != nullptr && then_side ? then_result : else_result;
    slot s =
        new_slot(e, any, readable_name(e, named != nullptr && named->what == argument::kind::node ? named->node : no_node, out.passes));
    if (out.passes != no_node) {
      argument from;
      from.what = argument::kind::node;
      from.node = out.passes;
      set_slot(e, s, from);
    }
    outputs.emplace_back(&out, s);
  }
  const auto side = [&](std::int32_t graph, std::size_t arguments_at, bool is_then) {
    e.current = own;
    const std::vector<argument> arguments(list(e, arguments_at).begin(), list(e, arguments_at).end());
    bind_parameters(e, graph, arguments, {}, graph);
    e.lower_graph(graph);
    const cpu_emitter::nest outer(e);
    for (const auto& [out, s] : outputs) {
      const argument* result = result_of(e, graph, is_then ? out->then_result : out->else_result);
      if ((is_then ? out->then_result : out->else_result) < 0 || result == nullptr) continue;
      set_slot(e, s, *result);
    }
  };
  if (branch.constant_test) {
    if (then_side) side(branch.then_graph, 3, true);
    if (else_side) side(branch.else_graph, 4, false);
  } else {
    const codegen::statement s = e.if_then(test);
    {
      const auto guard = e.into(e.inner(s));
      side(branch.then_graph, 3, true);
    }
    if (else_side) {
      const auto guard = e.into(e.orelse(s));
      side(branch.else_graph, 4, false);
    }
  }
  e.current = own;
  for (const auto& [out, s] : outputs)
    for (const node_id n : {out->then_value, out->else_value, out->joined}) publish(e, s, n);
}

void phi(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  if (e.has_value(e.current)) return; // the loop or branch has set it
  // A join of values that no loop or branch carries: the later one.
  e.set_value(e.current, e.operand(1));
}

void barrier(emitter& e, const node&) { e.unsupported("a barrier inside a graph; a phase of its own is what it makes"); }

void device_print(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const argument* prefix = e.argument_at(0);
  if (prefix == nullptr || prefix->what != argument::kind::string) e.malformed("device_print begins with a string");
  std::vector<argument> printed;
  for (std::size_t i = 1; e.argument_at(i) != nullptr; ++i) {
    const argument& a = *e.argument_at(i);
    if (a.what == argument::kind::tuple || a.what == argument::kind::list)
      for (const argument& item : e.source->items(a)) printed.push_back(item);
    else printed.push_back(a);
  }
  for (const argument& a : printed) {
    const bool tile = a.what == argument::kind::node && e.is_tile(a.node);
    indices at;
    if (tile) {
      const std::vector<dimension> shape(e.shape_of(a.node).begin(), e.shape_of(a.node).end());
      for (const dimension& d : shape) at.push_back(e.push_loop(d));
    }
    const expression value = tile ? e.element(a.node, at) : e.literal(a);
    {
      const auto guard = e.into(e.innermost());
      e.evaluate(e.call("std::printf", {e.string("%s%g\n"), e.string(prefix->text), e.cast(value, dtype::f64)}));
    }
    while (e.depth() > 1) e.pop();
  }
}

} // namespace muster::cpu
