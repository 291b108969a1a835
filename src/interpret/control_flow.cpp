module;
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.interpret;

#include "interpreter.hpp"

namespace muster::interpret {

using device_ir::graph;
using device_ir::no_node;

namespace {

/// Calls `visit(node, operation)` for the nodes of a graph that have an operation.
template <class Visit> void visit_calls(const document& d, const graph& g, const Visit& visit) {
  for (std::uint32_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i)
    if (const auto o = operation_named(d.nodes[i].target)) visit(static_cast<node_id>(i), *o);
}

/// The results of a graph as arguments.
std::span<const argument> results_of(const document& d, const graph& g) {
  if (g.result.what == argument::kind::list || g.result.what == argument::kind::tuple) return d.items(g.result);
  if (g.result.what == argument::kind::none) return {};
  return {&g.result, 1};
}

/// Calls `visit(position, getitem)` for every node of `g` that takes a result of node `n`.
template <class Visit> void visit_items(const document& d, const graph& g, node_id n, const Visit& visit) {
  visit_calls(d, g, [&](node_id id, operation o) {
    const auto a = d.arguments_of(d.at(id));
    if (o == operation::getitem && a.size() == 2 && a[0].what == argument::kind::node && a[0].node == n)
      visit(static_cast<std::size_t>(a[1].integer), id);
  });
}

/// A name without the number that tracing appended.
std::string_view base_name(std::string_view name) {
  std::size_t end = name.size();
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') --end;
  return end > 0 && end < name.size() && name[end - 1] == '_' ? name.substr(0, end - 1) : name;
}

} // namespace

void machine::run() {
  std::vector<const graph*> roots;
  for (const graph& g : d_.graphs)
    if (g.what == graph::kind::root) roots.push_back(&g);
  std::ranges::sort(roots, [](const graph* a, const graph* b) { return a->phase != b->phase ? a->phase < b->phase : a < b; });
  for (const graph* const root : roots) {
    const graph& g = *root;
    root_ = static_cast<std::size_t>(root - d_.graphs.data());
    std::vector<std::size_t> blocks;
    std::vector<std::int64_t> begins;
    std::vector<std::int64_t> ends;
    std::vector<std::int64_t> sizes;
    tiles_.assign(d_.blocks.size(), {});
    set_symbols();
    bool empty = false;
    for (const std::int32_t id : g.blocks) {
      blocks.push_back(static_cast<std::size_t>(block_index(id)));
      if (d_.blocks[blocks.back()].size == symbolic::no_expression) fail(fmt::format("grid block {} has no size", id));
      begins.push_back(0);
      ends.push_back(evaluate_integer(d_.blocks[blocks.back()].size));
      sizes.push_back(block_size(blocks.back()));
      empty = empty || ends.back() <= 0;
    }
    while (!empty) {
      tiles_.assign(d_.blocks.size(), {});
      for (std::size_t i = 0; i < blocks.size(); ++i) open(blocks[i], begins[i], ends[i]);
      set_symbols();
      steps_ = 0;
      (void)run_graph(g, {});
      std::size_t i = blocks.size();
      for (; i > 0; --i) {
        if ((begins[i - 1] += sizes[i - 1]) < ends[i - 1]) break;
        begins[i - 1] = 0;
      }
      if (i == 0) break;
    }
  }
}

std::vector<value> machine::run_graph(const graph& g, std::span<const value> arguments) {
  if (arguments.size() != g.parameters.count)
    fail(fmt::format("'{}' takes {} values, {} were given", g.name, g.parameters.count, arguments.size()));
  const node_id caller = current_;
  for (std::size_t i = 0; i < arguments.size(); ++i) values_[g.parameters.first + i] = arguments[i];
  for (std::uint32_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i) execute(static_cast<node_id>(i));
  std::vector<value> results;
  for (const argument& a : results_of(d_, g)) results.push_back(read(a));
  current_ = caller;
  return results;
}

void machine::execute(node_id n) {
  current_ = n;
  value v = evaluate(d_.at(n));
  current_ = n;
  v.origin = n;
  values_[device_ir::index(n)] = v;
  if (v.what == value::kind::data) observe(n, v);
}

void machine::observe(node_id n, const value& v) const {
  if (!how_.on_value || helpers_ > 0) return;
  const array& a = *v.data;
  node_value seen;
  seen.node = n;
  seen.element = v.element;
  seen.shape = a.shape;
  seen.reals = a.reals;
  seen.integers = a.integers;
  std::vector<std::int64_t> first(a.shape.size(), 0);
  for (std::size_t d = 0; d < first.size() && d < v.dims.size(); ++d)
    if (const std::int64_t b = block_of(v.dims[d]); b >= 0) first[d] = first_lane(static_cast<std::size_t>(b));
  seen.first = first;
  const std::vector<char> valid = validity(v.dims, a.shape);
  const auto flags = std::make_unique<bool[]>(valid.size());
  std::ranges::transform(valid, flags.get(), [](char x) { return x != 0; });
  seen.valid = {flags.get(), valid.size()};
  std::vector<open_tile> tiles;
  for (std::size_t b = 0; b < tiles_.size(); ++b)
    if (tiles_[b].open) tiles.push_back({d_.blocks[b].id, tiles_[b].begin});
  std::ranges::sort(tiles, {}, &open_tile::block);
  seen.tiles = tiles;
  seen.steps = steps_;
  seen.root = root_;
  how_.on_value(seen);
}

/// The symbol that a node defines: its type is one that neither the header declares nor a block has.
symbolic::symbol machine::defined_symbol(const node& n, operation o) const {
  if (o == operation::get_symnode || o == operation::py_identity || d_.symbols.kind_of(n.type.value) != symbolic::kind::symbol)
    return symbolic::no_symbol;
  const symbolic::symbol s = d_.symbols.symbol_of(n.type.value);
  return block_of(n.type.value) >= 0 || d_.find_declaration(s) != nullptr ? symbolic::no_symbol : s;
}

/// The value of a node whose type is a symbolic expression is that expression's, whatever computes it.
value machine::evaluate(const node& n) {
  const auto o = operation_named(n.target);
  if (!o) {
    std::vector<std::string_view> names;
    for (const operation_information& i : operation_table) names.push_back(i.name);
    throw UnknownOperation(n.target, nearest_name(n.target, names), fmt::format("{}:{}", d_.file, n.line));
  }
  if (n.type.what == device_ir::type::kind::symbolic && *o != operation::py_identity) {
    if (const symbolic::symbol s = defined_symbol(n, *o); s != symbolic::no_symbol) {
      value v = call(n, *o);
      given_[static_cast<std::size_t>(s)] = symbols_[static_cast<std::size_t>(s)] = scalar(v);
      return v;
    }
    const number v = evaluate(n.type.value);
    return value_of(v.is_integer ? scalar_array(v.integer) : scalar_array(v.real));
  }
  return call(n, *o);
}

value machine::call(const node& n, operation o) {
  switch (o) {
  case operation::host_tensor: {
    value v;
    v.what = value::kind::tensor;
    const device_ir::host_tensor* t = d_.find_tensor(arguments().empty() ? std::string_view() : arguments()[0].text);
    if (t == nullptr) fail("no host tensor of that name");
    v.tensor = static_cast<std::size_t>(t - d_.tensors.data());
    return v;
  }
  case operation::get_symnode: {
    const std::string_view text = arguments().empty() ? std::string_view() : arguments()[0].text;
    for (const device_ir::block& b : d_.blocks)
      if (text == fmt::format("rdim{}", b.id)) return value_of(scalar_array(evaluate_integer(b.size)));
    fail("a symbol without a type");
  }
  case operation::new_var:
  case operation::aten_alias:
  case operation::py_identity: return operand(0);
  case operation::phi: return arguments().size() > 1 ? read(arguments()[1]) : value();
  case operation::barrier:
  case operation::breakpoint:
  case operation::device_print: return {};
  case operation::inductor_lowering_extra: { // its second node reduces it
    value v;
    v.what = value::kind::list;
    for (const argument& a : list(argument_at(0))) v.items.push_back(read(a));
    return v;
  }
  case operation::getitem: {
    const value v = operand(0);
    const auto i = static_cast<std::size_t>(integer_or(argument_at(1), -1));
    if (v.what != value::kind::list || i >= v.items.size()) fail("there is no such result");
    return v.items[i];
  }
  case operation::for_loop:
  case operation::for_loop_step: return for_loop(n, o);
  case operation::while_loop: return while_loop(n);
  case operation::if_: return branch(n);
  case operation::tile_index: return tile_index();
  case operation::load: return load();
  case operation::store: return store();
  case operation::mask_to: return mask_to();
  case operation::load_float4_e2m1fn_x16_to_float16: return load_packed(o);
  case operation::device_associative_scan:
  case operation::associative_scan: return scan_by_graph();
  case operation::device_reduce:
  case operation::reduce: return reduce_by_graph();
  case operation::aten_cumsum:
  case operation::aten_cumprod: return scan(o);
  default: break;
  }
  switch (information(o).category) {
  case operation_category::atomic: return atomic(o);
  case operation_category::view: return view(o);
  case operation_category::creation: return creation(o);
  case operation_category::reduction: return reduction(o);
  case operation_category::sort: return sort(o);
  case operation_category::matmul: return matmul(o);
  case operation_category::random: return random(o);
  case operation_category::symbol_math: return symbol_math(o);
  case operation_category::pointwise: return o == operation::pre_broadcast_tile ? view(o) : pointwise(o);
  default: unsupported("the interpreter does not have it");
  }
}

/// Arithmetic on symbols whose node has no type.
value machine::symbol_math(operation o) {
  const auto real = [&](std::size_t i) { return scalar(required(i)).as_real(); };
  const auto whole = [&](std::size_t i) { return scalar(required(i)); };
  const auto truth = [](bool b) { return value_of(scalar_array(std::int64_t{b ? 1 : 0})); };
  switch (o) {
  case operation::py_eq: return truth(real(0) == real(1));
  case operation::py_ne: return truth(real(0) != real(1));
  case operation::py_lt: return truth(real(0) < real(1));
  case operation::py_le: return truth(real(0) <= real(1));
  case operation::py_gt: return truth(real(0) > real(1));
  case operation::py_ge: return truth(real(0) >= real(1));
  case operation::py_and: return truth(real(0) != 0 && real(1) != 0);
  case operation::py_or: return truth(real(0) != 0 || real(1) != 0);
  case operation::py_sym_not:
  case operation::py_not: return truth(real(0) == 0);
  case operation::py_truediv: return value_of(scalar_array(real(0) / real(1)));
  case operation::py_float:
  case operation::py_sym_float: return value_of(scalar_array(real(0)));
  case operation::py_int:
  case operation::py_sym_int: return value_of(scalar_array(whole(0).is_integer ? whole(0).integer : truncated(whole(0).real)));
  case operation::py_add: return pointwise(operation::aten_add);
  case operation::py_sub: return pointwise(operation::aten_sub);
  case operation::py_mul: return pointwise(operation::aten_mul);
  case operation::py_floordiv: return pointwise(operation::aten_floor_divide);
  case operation::py_mod: return pointwise(operation::aten_remainder);
  case operation::py_pow: return pointwise(operation::aten_pow);
  case operation::py_neg: return pointwise(operation::aten_neg);
  case operation::py_abs: return pointwise(operation::aten_abs);
  case operation::py_min:
  case operation::py_sym_min: return pointwise(operation::aten_minimum);
  case operation::py_max:
  case operation::py_sym_max: return pointwise(operation::aten_maximum);
  default: unsupported("the interpreter does not have it");
  }
}

// -- loops

/// Which result of a loop's body becomes which of its parameters, as the `_phi`s say that join them behind it.
std::vector<std::pair<std::size_t, std::size_t>> machine::carried(const node& n, std::span<const argument> arguments) const {
  const node_id id = static_cast<node_id>(&n - d_.nodes.data());
  const graph& caller = d_.graphs[graph_of_[device_ir::index(id)]];
  std::vector<std::pair<std::size_t, std::size_t>> found;
  visit_items(d_, caller, id, [&](std::size_t position, node_id item) {
    visit_calls(d_, caller, [&](node_id joined, operation o) {
      const auto a = d_.arguments_of(d_.at(joined));
      if (o != operation::phi || a.size() < 2 || a[0].what != argument::kind::node || a[1].what != argument::kind::node ||
          a[1].node != item)
        return;
      for (std::size_t i = 0; i < arguments.size(); ++i) {
        const bool taken = std::ranges::any_of(found, [&](const auto& f) { return f.second == i; });
        if (arguments[i].what != argument::kind::node || arguments[i].node != a[0].node || taken) continue;
        found.emplace_back(position, i);
        break;
      }
    });
  });
  return found;
}

namespace {

/// What a loop gives that ran no iteration: what is joined keeps its value.
std::vector<value> kept_results(std::size_t count, std::span<const std::pair<std::size_t, std::size_t>> carried,
                                std::span<const value> values) {
  std::vector<value> results(count);
  for (const auto& [position, parameter] : carried)
    if (position < count) results[position] = values[parameter];
  return results;
}

value as_list(std::vector<value> items) {
  value v;
  v.what = value::kind::list;
  v.items = std::move(items);
  return v;
}

} // namespace

/// The end of a jagged block's loop is the maximum of a tensor: the tensor itself.
std::shared_ptr<const array> machine::row_ends(const argument& end) const {
  value v = read(end);
  while (v.origin != no_node) {
    const node& n = d_.at(v.origin);
    const auto o = operation_named(n.target);
    const auto a = d_.arguments_of(n);
    const bool passes = o && (*o == operation::aten_amax || *o == operation::aten_max || *o == operation::mask_to ||
                              *o == operation::aten_view || *o == operation::aten_reshape);
    if (!passes || a.empty() || a[0].what != argument::kind::node) break;
    v = values_[device_ir::index(a[0].node)];
    if (!v.is_tile()) break;
  }
  return v.is_tile() ? v.data : nullptr;
}

value machine::for_loop(const node& n, operation o) {
  const auto all = d_.arguments_of(n);
  if (all.size() < 4) fail("a loop needs a graph, begins, ends and what it carries");
  const graph* const g = d_.find_graph(all[0].integer);
  if (g == nullptr) fail("there is no such graph");
  const auto begins = list(&all[1]);
  const auto ends = list(&all[2]);
  const auto arguments = list(&all[3]);
  const auto steps = o == operation::for_loop_step && all.size() > 4 ? list(&all[4]) : std::span<const argument>();
  if (begins.size() != g->blocks.size() || ends.size() != g->blocks.size()) fail("a loop needs a begin and an end a block");
  std::vector<value> values;
  for (const argument& a : arguments) values.push_back(read(a));
  const auto carries = carried(n, arguments);
  struct range {
    std::size_t block;
    std::int64_t begin, end, step, at;
    std::shared_ptr<const array> extents;
  };
  std::vector<range> ranges;
  bool rolled = true;
  bool empty = false;
  for (std::size_t i = 0; i < g->blocks.size(); ++i) {
    const auto b = static_cast<std::size_t>(block_index(g->blocks[i]));
    const device_ir::block& block = d_.blocks[b];
    rolled = rolled && block.is_reduction;
    range r{b, integer(begins[i]), integer(ends[i]), i < steps.size() ? integer(steps[i]) : block_size(b), 0, nullptr};
    if (!block.jagged_parents.empty()) r.extents = row_ends(ends[i]);
    if (r.step <= 0) fail(fmt::format("the loop's step is {}", r.step));
    r.at = r.begin;
    empty = empty || r.begin >= r.end;
    ranges.push_back(std::move(r));
  }
  // A rolled reduction in one piece: its block stays closed, and so is the whole dimension.
  if (rolled) return as_list(run_graph(*g, values));
  const std::vector<tile> saved = tiles_;
  std::vector<value> results = kept_results(results_of(d_, *g).size(), carries, values);
  while (!empty) {
    for (const range& r : ranges) open(r.block, r.at, r.end, r.extents);
    set_symbols();
    results = run_graph(*g, values);
    for (const auto& [position, parameter] : carries)
      if (position < results.size()) values[parameter] = results[position];
    std::size_t i = ranges.size();
    for (; i > 0; --i) {
      range& r = ranges[i - 1];
      if ((r.at += r.step) < r.end) break;
      r.at = r.begin;
    }
    if (i == 0) break;
  }
  tiles_ = saved;
  set_symbols();
  return as_list(std::move(results));
}

value machine::while_loop(const node& n) {
  const auto all = d_.arguments_of(n);
  if (all.size() < 3) fail("a while loop needs two graphs and what it carries");
  const graph* const condition = d_.find_graph(all[0].integer);
  const graph* const body = d_.find_graph(all[1].integer);
  if (condition == nullptr || body == nullptr) fail("there is no such graph");
  std::vector<value> values;
  for (const argument& a : list(&all[2])) values.push_back(read(a));
  const auto carries = carried(n, list(&all[2]));
  std::vector<value> results = kept_results(results_of(d_, *body).size(), carries, values);
  while (true) {
    ++steps_;
    const std::vector<value> test = run_graph(*condition, values);
    if (test.empty()) fail("the condition has no result");
    const array& holds = kept(test[0]);
    bool all_hold = true;
    for (std::size_t i = 0; i < holds.count(); ++i) all_hold = all_hold && holds.truth_at(i);
    if (!all_hold) break;
    ++steps_;
    results = run_graph(*body, values);
    for (const auto& [position, parameter] : carries)
      if (position < results.size()) values[parameter] = results[position];
  }
  return as_list(std::move(results));
}

// -- branches

/// The number of variables that a branch changes: how far apart the two values are that a `_phi` joins.
std::size_t machine::count_of_outputs(const node& n) const {
  const node_id id = static_cast<node_id>(&n - d_.nodes.data());
  const graph& caller = d_.graphs[graph_of_[device_ir::index(id)]];
  std::vector<std::pair<std::size_t, node_id>> items;
  visit_items(d_, caller, id, [&](std::size_t position, node_id item) { items.emplace_back(position, item); });
  std::size_t count = 0;
  visit_calls(d_, caller, [&](node_id joined, operation o) {
    const auto a = d_.arguments_of(d_.at(joined));
    if (o != operation::phi || a.size() < 2 || a[0].what != argument::kind::node || a[1].what != argument::kind::node) return;
    for (const auto& [i, x] : items)
      for (const auto& [j, y] : items)
        if (i < j && ((x == a[0].node && y == a[1].node) || (x == a[1].node && y == a[0].node))) count = j - i;
  });
  return count;
}

/// The values come twice: after the first side, after the second. In order: written by both sides, by the first, by the second.
/// What a side does not write keeps the value that the other side got as an argument.
value machine::branch(const node& n) {
  const auto all = d_.arguments_of(n);
  if (all.size() < 5) fail("a branch needs a test, two graphs and their arguments");
  struct side {
    const graph* g = nullptr;
    std::span<const argument> arguments;
    std::vector<value> values;
    std::vector<node_id> results;
  };
  side sides[2];
  for (std::size_t i = 0; i < 2; ++i) {
    side& s = sides[i];
    if (i == 1 && all[2].what == argument::kind::none) continue; // no else
    s.g = d_.find_graph(all[1 + i].integer);
    if (s.g == nullptr) fail("there is no such graph");
    s.arguments = list(&all[3 + i]);
    for (const argument& a : s.arguments) s.values.push_back(read(a));
    for (const argument& a : results_of(d_, *s.g)) s.results.push_back(a.what == argument::kind::node ? a.node : no_node);
  }
  const value decides = read(all[0]);
  const array& test = kept(decides);
  bool taken = true;
  for (std::size_t i = 0; i < test.count(); ++i) taken = taken && test.truth_at(i);
  const side& chosen = sides[taken ? 0 : 1];
  const std::vector<value> results = chosen.g != nullptr ? run_graph(*chosen.g, chosen.values) : std::vector<value>();

  const auto same_name = [&](node_id a, node_id b) { return base_name(d_.at(a).name) == base_name(d_.at(b).name); };
  const auto same_type = [&](node_id a, node_id b) {
    const device_ir::type& x = d_.at(a).type;
    const device_ir::type& y = d_.at(b).type;
    return x.what == y.what && x.element == y.element && x.value == y.value && std::ranges::equal(d_.sizes(x), d_.sizes(y));
  };
  // Copies and joined values have the names of tracing, not those of the program.
  const auto nameless = [&](node_id a) { return d_.at(a).is_parameter || d_.at(a).name.starts_with('_'); };
  // The argument that a result's variable was before: the result is a copy of it, or has its name.
  const auto variable_before = [&](const side& writer, std::size_t position) -> std::optional<value> {
    const node_id result = writer.results[position];
    if (result == no_node) return std::nullopt;
    const node& written = d_.at(result);
    if (!written.is_parameter && operation_named(written.target) == operation::new_var)
      for (std::size_t p = 0; p < writer.values.size(); ++p)
        if (d_.arguments_of(written)[0].node == static_cast<node_id>(writer.g->parameters.first + p)) return writer.values[p];
    for (std::size_t p = 0; p < writer.values.size(); ++p)
      if (writer.arguments[p].what == argument::kind::node && same_type(writer.arguments[p].node, result) &&
          same_name(writer.arguments[p].node, result))
        return writer.values[p];
    return std::nullopt;
  };
  // What a side does not write is passed through: the variable as it was, or an argument of that type.
  const auto passed = [&](const side& writer, std::size_t position) -> value {
    if (const std::optional<value> before = variable_before(writer, position)) return *before;
    for (std::size_t p = 0; p < writer.values.size(); ++p)
      if (writer.arguments[p].what == argument::kind::node && writer.results[position] != no_node &&
          same_type(writer.arguments[p].node, writer.results[position]))
        return writer.values[p];
    return {};
  };

  const std::size_t count = count_of_outputs(n);
  constexpr std::size_t nothing = static_cast<std::size_t>(-1);
  const std::vector<node_id>& first = sides[0].results;
  const std::vector<node_id>& second = sides[1].results;
  std::vector<std::size_t> partner(first.size(), nothing);
  std::vector<bool> taken_by_first(second.size());
  std::size_t paired = 0;
  const auto pair = [&](const auto& fits) {
    for (std::size_t i = 0; i < first.size(); ++i)
      for (std::size_t j = 0; j < second.size() && paired < count && partner[i] == nothing; ++j) {
        if (taken_by_first[j] || first[i] == no_node || second[j] == no_node || !fits(first[i], second[j])) continue;
        partner[i] = j;
        taken_by_first[j] = true;
        ++paired;
      }
  };
  pair([&](node_id a, node_id b) { return !nameless(a) && !nameless(b) && same_name(a, b); });
  pair([&](node_id a, node_id b) { return (nameless(a) || nameless(b)) && same_type(a, b); });
  // Results of either side that make up just the outputs that are left, and that were no variable before: in order.
  if (first.size() - paired == count - paired && second.size() - paired == count - paired) {
    bool any_before = false;
    for (std::size_t i = 0; i < first.size(); ++i) any_before = any_before || (partner[i] == nothing && variable_before(sides[0], i));
    for (std::size_t j = 0; j < second.size(); ++j) any_before = any_before || (!taken_by_first[j] && variable_before(sides[1], j));
    if (!any_before) pair(same_type);
  }
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < first.size(); ++i)
    if (partner[i] != nothing) pairs.emplace_back(i, partner[i]);
  for (std::size_t i = 0; i < first.size(); ++i)
    if (partner[i] == nothing) pairs.emplace_back(i, nothing);
  for (std::size_t j = 0; j < second.size(); ++j)
    if (!taken_by_first[j]) pairs.emplace_back(nothing, j);

  value v;
  v.what = value::kind::list;
  for (std::size_t i = 0; i < pairs.size() && i < count; ++i) {
    const std::size_t mine = taken ? pairs[i].first : pairs[i].second;
    const std::size_t other = taken ? pairs[i].second : pairs[i].first;
    v.items.push_back(mine != nothing ? results[mine] : passed(sides[taken ? 1 : 0], other));
  }
  const std::size_t half = v.items.size();
  for (std::size_t i = 0; i < half; ++i) v.items.push_back(v.items[i]);
  return v;
}

} // namespace muster::interpret
