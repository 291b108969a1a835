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

using device_ir::index;
using device_ir::no_node;

// -- operands

const argument* emitter::argument_at(std::size_t i) const noexcept {
  const std::span<const argument> arguments = source->arguments_of(current_node());
  return i < arguments.size() ? &arguments[i] : nullptr;
}

const argument* emitter::keyword(std::string_view name) const noexcept { return source->find_keyword(current_node(), name); }

/// A `None` in a pointwise call repeats the nearest operand before it, or behind it where there is none.
const argument* emitter::repeated(std::size_t i) const noexcept {
  const std::span<const argument> arguments = source->arguments_of(current_node());
  if (i >= arguments.size()) return nullptr;
  if (arguments[i].what != argument::kind::none) return &arguments[i];
  for (std::size_t j = i; j-- > 0;)
    if (arguments[j].what != argument::kind::none) return &arguments[j];
  for (std::size_t j = i + 1; j < arguments.size(); ++j)
    if (arguments[j].what != argument::kind::none) return &arguments[j];
  return &arguments[i];
}

expression emitter::operand(std::size_t i) {
  const argument* a = repeated(i);
  if (a == nullptr) malformed(fmt::format("operand {} is missing", i));
  if (a->what == argument::kind::node) return value_of(a->node);
  return literal(*a);
}

node_id emitter::operand_node(std::size_t i) const {
  const argument* a = repeated(i);
  return a != nullptr && a->what == argument::kind::node ? a->node : no_node;
}

expression emitter::value_of(node_id n) {
  const expression e = values_[index(n)].value;
  if (e == codegen::no_expression) malformed(fmt::format("'{}' has no value here", source->at(n).name));
  return e;
}

std::span<const expression> emitter::values_of(node_id n) const noexcept {
  const device_ir::range r = values_[index(n)].several;
  return std::span<const expression>(several_).subspan(r.first, r.count);
}

bool emitter::has_value(node_id n) const noexcept { return values_[index(n)].value != codegen::no_expression; }

expression emitter::literal(const argument& a, std::optional<dtype> as) {
  switch (a.what) {
  case argument::kind::none: return none();
  case argument::kind::boolean: return as ? cast(boolean(a.boolean), *as) : boolean(a.boolean);
  case argument::kind::integer:
    return as ? cast(integer(a.integer), *as)
              : integer(a.integer, a.integer == static_cast<std::int32_t>(a.integer) ? dtype::i32 : dtype::i64);
  case argument::kind::real: return as ? cast(real(a.real), *as) : real(a.real);
  case argument::kind::string: return string(a.text);
  case argument::kind::node: return value_of(a.node);
  default: malformed("expected a value or a literal");
  }
}

dtype emitter::type_of(node_id n) const noexcept {
  const device_ir::type& type = source->at(n).type;
  if (type.what == device_ir::type::kind::tensor) return type.element;
  if (type.what == device_ir::type::kind::symbolic && plan->is_real(type.value)) return language->symbol_real;
  return plan->index_dtype;
}

// -- results

void emitter::set_value(node_id n, expression e) { values_[index(n)].value = e; }

void emitter::set_values(node_id n, std::span<const expression> all) {
  values_[index(n)].several = {static_cast<std::uint32_t>(several_.size()), static_cast<std::uint32_t>(all.size())};
  several_.insert(several_.end(), all.begin(), all.end());
}

void emitter::result(expression e) {
  const node& n = current_node();
  if (n.type.what == device_ir::type::kind::tensor) e = cast(e, n.type.element);
  set_value(current, define_for(current, e));
}

void emitter::effect_result(expression e) {
  const variable v = new_variable(current_node().name, type_of(current));
  at(assign(v, cast(e, type_of(current)))).effect = true;
  set_value(current, name(v));
}

void emitter::results(std::span<const expression> all) { set_values(current, all); }

// -- errors

std::string emitter::place() const {
  if (current == no_node) return std::string(source->file);
  return fmt::format("{}:{}", source->file, current_node().line);
}

void emitter::unsupported(std::string_view reason) const {
  const std::string_view operation =
      current == no_node ? std::string_view(source->kernel) : qualified_name(plan->at(current).op, current_node().target);
  throw BackendUnsupported(target->name, operation, reason, place());
}

void emitter::malformed(std::string_view message) const {
  if (current == no_node) throw DeviceIRError(source->file, 0, 0, {}, message);
  throw source->error_at(current_node(), message);
}

// -- graphs

void emitter::lower_graph(std::int32_t graph) {
  const device_ir::graph& g = source->graphs[static_cast<std::size_t>(graph)];
  const node_id saved = current;
  for (std::uint32_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i)
    if (plan->nodes[i].live && !invariant_[i]) lower_node(static_cast<node_id>(i));
  current = saved;
}

std::vector<node_id> emitter::lower_invariants(std::int32_t graph) {
  std::vector<node_id> lowered;
  std::vector<symbolic::symbol> symbols;
  const auto is_known_here = [&](symbolic::symbol s) {
    if (plan->known[static_cast<std::size_t>(s)]) return true;
    const device_ir::symbol_declaration* const d = source->find_declaration(s);
    if (d == nullptr) return false;
    return d->from == device_ir::symbol_declaration::origin::parameter || find_tile(d->block) != nullptr;
  };
  const auto visit = [&](const auto& self, std::int32_t body) -> void {
    const device_ir::graph& g = source->graphs[static_cast<std::size_t>(body)];
    for (std::uint32_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i) {
      if (!plan->nodes[i].live || invariant_[i]) continue;
      if (const std::int32_t loop = plan->loop_of_node[i]; loop >= 0 && plan->loops[static_cast<std::size_t>(loop)].condition < 0)
        self(self, plan->loops[static_cast<std::size_t>(loop)].body);
      const device_ir::type& type = source->nodes[i].type;
      if (plan->nodes[i].op != operation::get_symnode || type.what != device_ir::type::kind::symbolic) continue;
      const symbolic::kind kind = source->symbols.kind_of(type.value);
      if (kind == symbolic::kind::symbol || source->symbols.evaluate(type.value, plan->known)) continue; // nothing to compute
      symbols.clear();
      source->symbols.collect_symbols(type.value, symbols);
      if (!std::all_of(symbols.begin(), symbols.end(), is_known_here)) continue;
      lowered.push_back(static_cast<node_id>(i));
    }
  };
  visit(visit, graph);
  const node_id saved = current;
  for (const node_id n : lowered) {
    lower_node(n);
    invariant_[device_ir::index(n)] = true;
  }
  current = saved;
  return lowered;
}

void emitter::end_invariants(std::span<const node_id> nodes) {
  for (const node_id n : nodes) invariant_[device_ir::index(n)] = false;
}

handler& handler_of(const kernel_plan& plan, node_id n, registry_view<muster::operation, handler> registry, backend_id backend) {
  const node_plan& p = plan.at(n);
  const node& nd = plan.source->at(n);
  if (!p.known) {
    std::vector<std::string_view> names;
    for (const operation_information& o : operation_table) names.push_back(o.name);
    throw UnknownOperation(nd.target, nearest_name(nd.target, names), fmt::format("{}:{}", plan.source->file, nd.line));
  }
  if (handler* const found = registry.find(backend, p.op)) return *found;
  try {
    return registry.at(backend, p.op);
  } catch (const BackendImplementationMissing& missing) { // the overload that the document names, in place of its operation
    throw BackendImplementationMissing(missing.backend(), qualified_name(p.op, nd.target), missing.family(), missing.implemented_by(),
                                       missing.has_common());
  }
}

void emitter::lower_node(node_id n) {
  current = n;
  handler_of(*plan, n, registry_, backend_)(*this, source->at(n));
  if (const symbolic::symbol s = defined_symbol(n); s != symbolic::no_symbol) bind_symbol(s, value_of(n));
}

node_id emitter::graph_result_node(std::int32_t graph, std::size_t i) const {
  const argument& result = source->graphs[static_cast<std::size_t>(graph)].result;
  if (result.what == argument::kind::node) return i == 0 ? result.node : no_node;
  if (result.what != argument::kind::list && result.what != argument::kind::tuple) return no_node;
  const std::span<const argument> items = source->items(result);
  return i < items.size() && items[i].what == argument::kind::node ? items[i].node : no_node;
}

expression emitter::graph_result(std::int32_t graph, std::size_t i) {
  const argument& result = source->graphs[static_cast<std::size_t>(graph)].result;
  if (result.what == argument::kind::list || result.what == argument::kind::tuple) {
    const std::span<const argument> items = source->items(result);
    if (i >= items.size()) malformed(fmt::format("the graph has {} results, there is no number {}", items.size(), i));
    return literal(items[i]);
  }
  return literal(result);
}

} // namespace muster::codegen
