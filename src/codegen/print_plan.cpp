module;
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
#include <fmt/ranges.h>
module muster.codegen;

namespace muster::codegen {

namespace {

using device_ir::no_node;

constexpr std::string_view role_name(block_role r) {
  switch (r) {
  case block_role::unused: return "unused";
  case block_role::grid: return "grid";
  case block_role::loop: return "loop";
  case block_role::whole: return "whole reduction";
  case block_role::rolled: return "rolled reduction";
  }
  return "?";
}

constexpr std::string_view indexing_name(device_ir::indexing i) {
  switch (i) {
  case device_ir::indexing::pointer: return "pointer";
  case device_ir::indexing::block_ptr: return "block_ptr";
  case device_ir::indexing::tensor_descriptor: return "tensor_descriptor";
  }
  return "?";
}

constexpr std::string_view eviction_name(device_ir::eviction e) {
  switch (e) {
  case device_ir::eviction::none: return "";
  case device_ir::eviction::first: return ", evict first";
  case device_ir::eviction::last: return ", evict last";
  }
  return "?";
}

/// Writes one plan as text, a line a fact.
class plan_printer {
public:
  plan_printer(const kernel_plan& plan, std::string& out) : plan_(plan), d_(*plan.source), out_(out) {}

  void print() {
    line("kernel {}", d_.kernel);
    line("index type {}", device_ir::name(plan_.index_dtype));
    for (const block_plan& b : plan_.blocks) print_block(b);
    for (const root_plan& r : plan_.roots)
      line("grid {} phase {}: program ids over blocks [{}], fastest first, groups of {}", graph_name(r.graph), r.phase,
           fmt::join(r.blocks, ", "), r.l2_grouping);
    for (const loop_plan& l : plan_.loops) print_loop(l);
    for (const branch_plan& b : plan_.branches) print_branch(b);
    for (const access_plan& a : plan_.accesses) line("access {}: {}{}", name(a.node), indexing_name(a.indexing), eviction_name(a.eviction));
    for (const std::int32_t t : plan_.tensors)
      line("tensor {}: {}", d_.tensors[static_cast<std::size_t>(t)].name,
           plan_.wide[static_cast<std::size_t>(t)] ? "64-bit offsets" : "offsets of the index type");
    for (const symbolic::symbol s : plan_.parameters) line("parameter {}", d_.symbols.name(s));
    for (const symbolic::symbol s : plan_.grid_parameters) line("parameter {}: only for the grid", d_.symbols.name(s));
    print_dead();
  }

private:
  const kernel_plan& plan_;
  const document& d_;
  std::string& out_;

  template <class... T> void line(fmt::format_string<T...> format, T&&... arguments) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<T>(arguments)...);
    out_ += '\n';
  }

  std::string_view graph_name(std::int32_t g) const {
    return g < 0 ? std::string_view("nothing") : d_.graphs[static_cast<std::size_t>(g)].name;
  }
  std::string_view name(node_id n) const { return n == no_node ? std::string_view("-") : d_.at(n).name; }
  std::string text(symbolic::expression e) const {
    return e == symbolic::no_expression ? std::string("its loop's end") : d_.symbols.to_string(e);
  }

  void print_block(const block_plan& b) {
    const std::string size = b.block_size > 0 ? std::to_string(b.block_size) : "known at run time";
    line("block {}: {}, {} lanes of {}, {}{}", b.id, role_name(b.role), size, text(b.extent), b.mask ? "masked" : "never masked",
         b.jagged ? fmt::format(", rows end at {}", name(b.jagged_extent)) : std::string());
  }

  void print_loop(const loop_plan& l) {
    line("loop {} over blocks [{}]{}", graph_name(l.body), fmt::join(l.blocks, ", "), l.condition >= 0 ? " while its condition holds" : "");
    for (const carried& c : l.carries)
      line("  carries {} -> parameter {} -> result {} -> {}{}", name(c.before), name(c.parameter), c.result, name(c.joined),
           c.joined != no_node && plan_.at(c.joined).live ? "" : " (not read behind the loop)");
    for (const accumulator& a : l.accumulators)
      line("  accumulates {} by {} -> {}", name(a.partial), information(a.by).name, name(a.after));
    for (const auto& [result, after] : l.last_values) line("  last value of result {} -> {}", result, name(after));
  }

  void print_branch(const branch_plan& b) {
    line("branch {}: then {}, else {}{}", name(b.node), graph_name(b.then_graph), graph_name(b.else_graph),
         b.constant_test ? (*b.constant_test ? ", always then" : ", always else") : "");
    for (const branch_output& o : b.outputs)
      line("  {} = then result {}, else result {}, passes {}", name(o.joined), o.then_result, o.else_result, name(o.passes));
  }

  void print_dead() {
    std::vector<std::string_view> dead;
    for (std::size_t i = 0; i < d_.nodes.size(); ++i)
      if (!plan_.nodes[i].live && !d_.nodes[i].is_parameter) dead.push_back(d_.nodes[i].name);
    if (!dead.empty()) line("dead: {}", fmt::join(dead, ", "));
  }
};

} // namespace

void print_plan(const kernel_plan& plan, std::string& out) { plan_printer(plan, out).print(); }

} // namespace muster::codegen
