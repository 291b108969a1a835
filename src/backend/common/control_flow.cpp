module;
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
module muster.backend.common;

namespace muster::common {

using codegen::body;
using codegen::expression;
using codegen::loop_plan;
using codegen::variable;
using device_ir::argument;
using device_ir::no_node;
using device_ir::node_id;

namespace {

struct carried_variable {
  const codegen::carried* plan;
  variable v;
};

bool is_live(const emitter& e, node_id n) { return n != no_node && e.plan->at(n).live; }

bool is_live(const emitter& e, const codegen::carried& c) { return is_live(e, c.parameter) || is_live(e, c.after) || is_live(e, c.joined); }

std::span<const argument> list(emitter& e, std::size_t position) {
  const argument* a = e.argument_at(position);
  if (a == nullptr || a->what == argument::kind::none) return {};
  return e.source->items(*a);
}

std::vector<expression> values(emitter& e, std::size_t position) {
  std::vector<expression> all;
  for (const argument& a : list(e, position)) all.push_back(e.literal(a));
  return all;
}

/// A name a reader knows: the document's own for the value, not that of a node inserted by tracing.
std::string_view readable_name(const emitter& e, node_id before, node_id result) {
  const std::string_view name = before != no_node ? e.source->at(before).name : std::string_view();
  if (!name.empty() && name.front() != '_') return name;
  const std::string_view other = result != no_node ? e.source->at(result).name : std::string_view();
  return other.empty() ? name : other;
}

/// The variable that holds `before` can itself be the loop's, if nothing but the loop and its phi use the value.
bool can_reuse(emitter& e, const codegen::carried& c, expression initial) {
  const codegen::expression_node& n = e.at(initial);
  if (n.what != codegen::expression_kind::name || e.at(n.name).origin != c.before) return false;
  const std::uint32_t own_uses = (is_live(e, c.parameter) ? 1U : 0U) + (is_live(e, c.joined) ? 1U : 0U);
  return e.plan->at(c.before).graph == e.plan->at(e.current).graph && e.plan->at(c.before).uses <= own_uses && !e.at(n.name).reassigned;
}

carried_variable start_carry(emitter& e, const loop_plan& loop, const codegen::carried& c) {
  const expression initial = e.value_of(c.before);
  const codegen::expression_node& n = e.at(initial);
  if (can_reuse(e, c, initial)) return {&c, n.name};
  const device_ir::dtype type = e.type_of(c.before);
  const variable v = e.new_variable(readable_name(e, c.before, e.graph_result_node(loop.body, static_cast<std::size_t>(c.result))), type);
  e.assign(v, e.cast(e.as_tile(c.before, initial), type));
  return {&c, v};
}

/// Gives the body's parameters their values: a carried variable, or the argument itself.
void bind_parameters(emitter& e, std::int32_t graph, std::span<const argument> arguments, std::span<const carried_variable> carries) {
  const device_ir::graph& g = e.source->graphs[static_cast<std::size_t>(graph)];
  for (std::size_t j = 0; j < arguments.size() && j < g.parameters.count; ++j) {
    const node_id parameter = static_cast<node_id>(g.parameters.first + j);
    if (!is_live(e, parameter)) continue;
    bool carried = false;
    for (const carried_variable& c : carries)
      if (c.plan->parameter == parameter) {
        e.set_value(parameter, e.name(c.v));
        carried = true;
      }
    if (!carried) e.set_value(parameter, e.literal(arguments[j]));
  }
}

/// A while loop's condition takes the same values as its body, by position.
void bind_condition(emitter& e, const loop_plan& loop, std::span<const argument> arguments, std::span<const carried_variable> carries) {
  const device_ir::graph& body = e.source->graphs[static_cast<std::size_t>(loop.body)];
  const device_ir::graph& condition = e.source->graphs[static_cast<std::size_t>(loop.condition)];
  for (std::size_t j = 0; j < arguments.size() && j < condition.parameters.count; ++j) {
    const node_id parameter = static_cast<node_id>(condition.parameters.first + j);
    if (!is_live(e, parameter)) continue;
    const node_id same = j < body.parameters.count ? static_cast<node_id>(body.parameters.first + j) : no_node;
    expression value = codegen::no_expression;
    for (const carried_variable& c : carries)
      if (same != no_node && c.plan->parameter == same) value = e.name(c.v);
    e.set_value(parameter, value != codegen::no_expression ? value : e.literal(arguments[j]));
  }
}

/// A branch's test: one truth value.
expression scalar_test(emitter& e) {
  const node_id test = e.operand_node(0);
  if (test != no_node)
    for (const codegen::dimension& d : e.shape_of(test))
      if (d.size != 1) e.unsupported("a branch on a tile of truth values: only one value can decide; use torch.where");
  return e.operand(0);
}

bool mentions(const emitter& e, expression x, variable v) {
  const codegen::expression_node& n = e.at(x);
  if (n.what == codegen::expression_kind::name) return n.name == v;
  for (const expression part : e.operands(x))
    if (mentions(e, part, v)) return true;
  return false;
}

bool mentions(emitter& e, codegen::statement s, variable v) {
  const codegen::statement_node n = e.at(s);
  if (n.variable == v) return true;
  for (const expression x : {n.value, n.target})
    if (x != codegen::no_expression && mentions(e, x, v)) return true;
  for (const body inside : {n.inner, n.orelse}) {
    if (inside == codegen::no_body) continue;
    for (codegen::statement i = e.first_statement(inside); i != codegen::no_statement; i = e.at(i).next)
      if (mentions(e, i, v)) return true;
  }
  return false;
}

/// Where `value` is a variable that was made only to be assigned to `v` at the end of this body, and nothing behind its
/// definition reads the old `v`, the definition assigns to `v` itself.
bool define_in_place(emitter& e, variable v, expression value) {
  const codegen::expression_node& n = e.at(value);
  if (n.what != codegen::expression_kind::name) return false;
  const codegen::variable_node& made = e.at(n.name);
  if (made.origin == no_node || made.reassigned || e.plan->at(made.origin).uses != 1 || made.definition == codegen::no_statement)
    return false;
  const codegen::statement s = made.definition;
  if (e.at(s).parent != e.current_body() || e.at(s).what != codegen::statement_kind::assign) return false;
  for (codegen::statement later = e.at(s).next; later != codegen::no_statement; later = e.at(later).next)
    if (mentions(e, later, v)) return false;
  e.redirect(s, v);
  return true;
}

/// All at once: where a later right side reads a variable that an earlier assignment changes, its value is saved first.
void assign_together(emitter& e, std::vector<std::pair<variable, expression>> assignments) {
  std::erase_if(assignments,
                [&](const auto& a) { return e.at(a.second).what == codegen::expression_kind::name && e.at(a.second).name == a.first; });
  for (std::size_t i = 0; i < assignments.size(); ++i)
    for (std::size_t j = i + 1; j < assignments.size(); ++j)
      if (mentions(e, assignments[j].second, assignments[i].first))
        assignments[j].second = e.define(e.at(assignments[j].first).preferred, assignments[j].second);
  for (const auto& [v, value] : assignments)
    if (!define_in_place(e, v, value)) e.assign(v, value);
}

void assign_carries(emitter& e, const loop_plan& loop, std::span<const carried_variable> carries,
                    std::vector<std::pair<variable, expression>> others) {
  for (const carried_variable& c : carries)
    others.emplace_back(c.v, e.cast(e.graph_result(loop.body, static_cast<std::size_t>(c.plan->result)), e.at(c.v).type));
  assign_together(e, std::move(others));
}

void publish(emitter& e, std::span<const carried_variable> carries) {
  for (const carried_variable& c : carries) {
    if (c.plan->after != no_node) e.set_value(c.plan->after, e.name(c.v));
    if (c.plan->joined != no_node) e.set_value(c.plan->joined, e.name(c.v));
  }
}

std::vector<carried_variable> start_carries(emitter& e, const loop_plan& loop) {
  std::vector<carried_variable> all;
  for (const codegen::carried& c : loop.carries)
    if (is_live(e, c)) all.push_back(start_carry(e, loop, c));
  return all;
}

} // namespace

void for_loop(emitter& e, const node&) {
  const node_id self = e.current;
  const loop_plan& loop = e.plan->loops[static_cast<std::size_t>(e.plan->loop_of_node[device_ir::index(self)])];
  const std::vector<expression> begins = values(e, 1);
  const std::vector<expression> ends = values(e, 2);
  const std::vector<expression> steps = e.plan->at(self).op == operation::for_loop_step ? values(e, 4) : std::vector<expression>();
  const std::vector<carried_variable> carries = start_carries(e, loop);
  std::vector<std::pair<variable, const codegen::accumulator*>> accumulators;
  for (const codegen::accumulator& a : loop.accumulators) {
    if (!is_live(e, a.after)) continue;
    const expression start = e.neutral(a);
    const variable v = e.new_variable(e.source->at(a.partial).name, e.type_of(start));
    e.assign(v, start);
    accumulators.emplace_back(v, &a);
  }
  bind_parameters(e, loop.body, list(e, 3), carries);
  const std::vector<node_id> invariants = e.lower_invariants(loop.body);
  const body inside = e.open_loop(loop, begins, ends, steps);
  {
    const auto guard = e.into(inside);
    e.lower_graph(loop.body);
    std::vector<std::pair<variable, expression>> assignments;
    for (const auto& [v, a] : accumulators)
      assignments.emplace_back(v, e.combine(*a, e.name(v), e.graph_result(loop.body, static_cast<std::size_t>(a->result))));
    assign_carries(e, loop, carries, std::move(assignments));
  }
  for (const auto& [result, after] : loop.last_values)
    if (is_live(e, after)) e.set_value(after, e.graph_result(loop.body, static_cast<std::size_t>(result)));
  e.close_loop(loop);
  e.end_invariants(invariants);
  e.current = self;
  publish(e, carries);
  for (const auto& [v, a] : accumulators) {
    e.current = a->after;
    e.set_value(a->after, e.define_for(a->after, e.cast(e.finish(*a, e.name(v)), e.type_of(a->partial))));
  }
  e.current = self;
}

void while_loop(emitter& e, const node&) {
  const node_id self = e.current;
  const loop_plan& loop = e.plan->loops[static_cast<std::size_t>(e.plan->loop_of_node[device_ir::index(self)])];
  const std::vector<carried_variable> carries = start_carries(e, loop);
  const std::span<const argument> arguments = list(e, 2);
  const auto test = [&] {
    bind_condition(e, loop, arguments, carries);
    e.lower_graph(loop.condition);
    return e.graph_result(loop.condition, 0);
  };
  const variable go_on = e.new_variable("condition", device_ir::dtype::b8);
  e.assign(go_on, test());
  const body inside = e.inner(e.loop_while(e.name(go_on)));
  {
    const auto guard = e.into(inside);
    bind_parameters(e, loop.body, arguments, carries);
    e.lower_graph(loop.body);
    assign_carries(e, loop, carries, {});
    e.assign(go_on, test());
  }
  e.current = self;
  publish(e, carries);
}

namespace {

bool is_same_name(const emitter& e, expression a, expression b) {
  const codegen::expression_node& x = e.at(a);
  const codegen::expression_node& y = e.at(b);
  return x.what == codegen::expression_kind::name && y.what == codegen::expression_kind::name && x.name == y.name;
}

} // namespace

void if_(emitter& e, const node&) {
  const node_id self = e.current;
  const codegen::branch_plan& branch = e.plan->branches[static_cast<std::size_t>(e.plan->branch_of_node[device_ir::index(self)])];
  const bool then_side = branch.constant_test.value_or(true);
  const bool else_side = branch.else_graph >= 0 && !branch.constant_test.value_or(false);
  std::vector<std::pair<const codegen::branch_output*, variable>> outputs;
  std::vector<bool> changes(branch.outputs.size()); // whether a side gives the output a value other than the one passed by
  const auto number = [&](const codegen::branch_output* out) { return static_cast<std::size_t>(out - branch.outputs.data()); };
  for (const codegen::branch_output& out : branch.outputs) {
    if (!is_live(e, out.then_value) && !is_live(e, out.else_value) && !is_live(e, out.joined)) continue;
    const node_id any = out.joined != no_node ? out.joined : out.then_value != no_node ? out.then_value : out.else_value;
    const node_id then_node =
        out.then_result >= 0 ? e.graph_result_node(branch.then_graph, static_cast<std::size_t>(out.then_result)) : no_node;
    const node_id else_node =
        out.else_result >= 0 ? e.graph_result_node(branch.else_graph, static_cast<std::size_t>(out.else_result)) : no_node;
    const node_id named = then_node != no_node && then_side ? then_node : else_node;
    const variable v = e.new_variable(readable_name(e, named, out.passes), e.type_of(any));
    outputs.emplace_back(&out, v);
    if (out.passes != no_node) e.assign(v, e.cast(e.as_tile(out.passes, e.value_of(out.passes)), e.at(v).type));
  }
  const auto side = [&](std::int32_t graph, std::size_t arguments_at, bool is_then) {
    e.current = self;
    bind_parameters(e, graph, list(e, arguments_at), {});
    e.lower_graph(graph);
    std::vector<std::pair<variable, expression>> assignments;
    for (const auto& [out, v] : outputs) {
      const std::int32_t result = is_then ? out->then_result : out->else_result;
      if (result < 0) continue;
      const node_id from = e.graph_result_node(graph, static_cast<std::size_t>(result));
      const expression value = e.graph_result(graph, static_cast<std::size_t>(result));
      if (out->passes != no_node && is_same_name(e, value, e.value_of(out->passes))) continue;
      changes[number(out)] = true;
      assignments.emplace_back(v, e.cast(from != no_node ? e.as_tile(from, value) : value, e.at(v).type));
    }
    assign_together(e, std::move(assignments));
  };
  if (branch.constant_test) {
    if (then_side) side(branch.then_graph, 3, true);
    if (else_side) side(branch.else_graph, 4, false);
  } else {
    const codegen::statement s = e.if_then(scalar_test(e));
    {
      const auto guard = e.into(e.inner(s));
      side(branch.then_graph, 3, true);
    }
    if (else_side) {
      const auto guard = e.into(e.orelse(s));
      side(branch.else_graph, 4, false);
    }
  }
  e.current = self;
  for (const auto& [out, v] : outputs) {
    const expression value = out->passes != no_node && !changes[number(out)] ? e.value_of(out->passes) : e.name(v);
    for (const node_id n : {out->then_value, out->else_value, out->joined})
      if (n != no_node) e.set_value(n, value);
  }
}

void phi(emitter& e, const node& n) {
  if (e.has_value(e.current)) return; // the loop or branch has set it
  const node_id before = e.operand_node(0);
  const node_id inside = e.operand_node(1);
  (void)n;
  // A join of values that no loop or branch carries: the later one.
  if (inside != no_node && e.has_value(inside)) return e.set_value(e.current, e.value_of(inside));
  if (before != no_node && e.has_value(before)) return e.set_value(e.current, e.value_of(before));
  e.malformed("_phi joins two values of which neither is known here");
}

} // namespace muster::common
