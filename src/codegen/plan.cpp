module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.codegen;

namespace muster::codegen {

namespace {

using device_ir::index;
using device_ir::no_node;
using symbolic::number;

/// Loops and branches nest at most this deep: every level is a level of recursion where the kernel is lowered.
constexpr int maximum_nesting = 64;

std::size_t at_index(std::int32_t i) { return static_cast<std::size_t>(i); }
std::size_t symbol_index(symbolic::symbol s) { return static_cast<std::size_t>(s); }

bool has_effect(operation op) {
  switch (information(op).category) {
  case operation_category::atomic:
  case operation_category::debug:
  case operation_category::distributed:
  case operation_category::foreign: return true;
  default: return op == operation::store || op == operation::barrier;
  }
}

bool is_loop(operation op) { return op == operation::for_loop || op == operation::for_loop_step || op == operation::while_loop; }

node_id to_node(std::size_t i) { return static_cast<node_id>(i); }

/// Calls `visit(node_id)` for every node that an argument mentions, inside lists and slices too.
template <class Visit> void visit_nodes(const document& d, const argument& a, const Visit& visit) {
  switch (a.what) {
  case argument::kind::node: visit(a.node); break;
  case argument::kind::list:
  case argument::kind::tuple:
  case argument::kind::slice:
    for (const argument& item : d.items(a)) visit_nodes(d, item, visit);
    break;
  default: break;
  }
}

template <class Visit> void visit_operands(const document& d, const node& n, const Visit& visit) {
  for (const argument& a : d.arguments_of(n)) visit_nodes(d, a, visit);
  for (const device_ir::keyword& k : d.keywords_of(n)) visit_nodes(d, k.value, visit);
}

/// Makes one plan; the steps in the order in which they are called.
class planner {
public:
  planner(kernel_plan& plan, const document& d, const device_ir::config& c) : plan_(plan), d_(d), config_(c) {}

  void run() {
    reset();
    resolve_operations();
    plan_blocks();
    find_definitions();
    plan_shapes();
    check_shapes();
    index_users();
    for (const device_ir::graph& g : d_.graphs)
      if (g.what == device_ir::graph::kind::root) plan_root(g);
    if (plan_.roots.empty()) throw DeviceIRError(d_.file, 0, 0, {}, "the document has no root graph");
    order_roots();
    plan_control_flow();
    mark_live();
    plan_masks();
    plan_parameters();
  }

private:
  kernel_plan& plan_;
  const document& d_;
  const device_ir::config& config_;
  std::vector<std::uint32_t> first_user_; // by node: into users_
  std::vector<node_id> users_;
  std::vector<node_id> work_;
  std::vector<std::vector<std::pair<node_id, std::uint32_t>>> callers_; // by graph: the calling node and which of its argument lists
  const root_plan* root_ = nullptr;        // being walked
  std::vector<const root_plan*> writers_;  // by host tensor, where there are several roots: the last that stores to it
  std::int32_t access_count_ = 0;
  std::int32_t load_count_ = 0;
  std::int32_t atomic_count_ = 0;
  std::size_t order_count_ = 0;
  std::size_t grouping_count_ = 0;
  std::vector<std::vector<std::int32_t>> range_groups_;

  [[noreturn]] void fail(const node& n, std::string_view message) const { throw d_.error_at(n, message); }

  void reset() {
    plan_.source = &d_;
    plan_.config = &config_;
    plan_.blocks.clear();
    plan_.dimensions.clear();
    plan_.nodes.assign(d_.nodes.size(), {});
    plan_.roots.clear();
    plan_.loops.clear();
    plan_.branches.clear();
    plan_.accesses.clear();
    plan_.tensors.clear();
    plan_.wide.assign(d_.tensors.size(), false);
    plan_.parameters.clear();
    plan_.grid_parameters.clear();
    plan_.index_dtype = d_.settings.index_dtype;
    plan_.known.assign(d_.symbols.symbol_count(), std::nullopt);
    plan_.block_of_symbol.assign(d_.symbols.symbol_count(), -1);
    plan_.loop_of_node.assign(d_.nodes.size(), -1);
    plan_.branch_of_node.assign(d_.nodes.size(), -1);
    plan_.access_of_node.assign(d_.nodes.size(), -1);
    callers_.assign(d_.graphs.size(), {});
    plan_.real_symbol.assign(d_.symbols.symbol_count(), false);
    for (const device_ir::symbol_declaration& s : d_.declarations) plan_.real_symbol[symbol_index(s.id)] = s.is_float;
    plan_.size_symbol.assign(d_.symbols.symbol_count(), false);
    for (const device_ir::host_tensor& t : d_.tensors)
      for (const symbolic::expression size : d_.sizes(t))
        if (d_.symbols.kind_of(size) == symbolic::kind::symbol) plan_.size_symbol[symbol_index(d_.symbols.symbol_of(size))] = true;
  }

  // -- symbols that a node defines

  symbolic::symbol symbol_of_type(const node& n) const {
    const bool is_symbol = n.type.what == device_ir::type::kind::symbolic && d_.symbols.kind_of(n.type.value) == symbolic::kind::symbol;
    return is_symbol ? d_.symbols.symbol_of(n.type.value) : symbolic::no_symbol;
  }

  /// A node whose type is a symbol that neither the header declares nor a block has defines it.
  void find_definitions() {
    plan_.definitions.assign(d_.symbols.symbol_count(), no_node);
    std::vector<bool> declared(d_.symbols.symbol_count());
    for (const device_ir::symbol_declaration& s : d_.declarations) declared[symbol_index(s.id)] = true;
    for (std::size_t i = 0; i < d_.nodes.size(); ++i) {
      const symbolic::symbol s = symbol_of_type(d_.nodes[i]);
      const bool can =
          s != symbolic::no_symbol && !d_.nodes[i].is_parameter && plan_.nodes[i].known && plan_.nodes[i].op != operation::get_symnode;
      if (!can || declared[symbol_index(s)] || plan_.block_of_symbol[symbol_index(s)] >= 0) continue;
      if (plan_.definitions[symbol_index(s)] == no_node) plan_.definitions[symbol_index(s)] = to_node(i);
    }
  }

  // -- operations

  void resolve_operations() {
    for (std::size_t g = 0; g < d_.graphs.size(); ++g) {
      const device_ir::graph& graph = d_.graphs[g];
      const std::size_t first = graph.parameters.first;
      const std::size_t end = graph.nodes.first + graph.nodes.count;
      for (std::size_t i = first; i < end; ++i) {
        node_plan& p = plan_.nodes[i];
        p.graph = static_cast<std::int32_t>(g);
        const node& n = d_.nodes[i];
        if (n.is_parameter) continue;
        if (const std::optional<operation> op = operation_named(n.target)) {
          p.op = *op;
          p.known = true;
          p.is_host_tensor = *op == operation::host_tensor;
        }
      }
    }
  }

  // -- blocks

  void plan_blocks() {
    const std::vector<std::int64_t> sizes = resolve_block_sizes(d_, config_);
    std::int32_t highest = -1;
    for (const device_ir::block& b : d_.blocks) highest = std::max(highest, b.id);
    plan_.blocks.resize(static_cast<std::size_t>(highest + 1));
    for (const device_ir::block& b : d_.blocks) {
      block_plan& p = plan_.blocks[at_index(b.id)];
      p = block_plan{};
      p.id = b.id;
      p.extent = b.size;
      p.jagged = !b.jagged_parents.empty();
      p.jagged_parents = b.jagged_parents;
      p.role = b.is_reduction ? block_role::whole : block_role::unused;
      p.block_size = sizes[at_index(b.id)];
      p.block_size_expression = b.block_size;
      if (d_.symbols.kind_of(b.variable) == symbolic::kind::symbol) {
        p.variable = d_.symbols.symbol_of(b.variable);
        // A reduction over a tile's own dimension shares the tile's symbol, which means the tile.
        if (b.is_reduction && plan_.block_of_symbol[symbol_index(p.variable)] >= 0) continue;
        plan_.block_of_symbol[symbol_index(p.variable)] = b.id;
        if (p.block_size > 0) plan_.known[symbol_index(p.variable)] = number{.is_integer = true, .integer = p.block_size};
      }
    }
    derive_block_sizes();
    for (block_plan& p : plan_.blocks) {
      if (p.extent == symbolic::no_expression) continue;
      const std::optional<number> value = d_.symbols.evaluate(p.extent, plan_.known);
      if (value && value->is_integer) p.constant_extent = value->integer;
    }
  }

  /// Block sizes computed from those of other blocks; and symbols that are the size of a block which only the caller knows.
  void derive_block_sizes() {
    for (std::size_t round = 0; round < d_.blocks.size(); ++round)
      for (const device_ir::block& b : d_.blocks) {
        block_plan& p = plan_.blocks[at_index(b.id)];
        if (p.block_size > 0 || p.block_size_expression == symbolic::no_expression || p.variable == symbolic::no_symbol) continue;
        const std::optional<number> value = d_.symbols.evaluate(p.block_size_expression, plan_.known);
        if (!value || !value->is_integer) continue;
        if (value->integer < 1)
          throw DeviceIRError(d_.file, b.line, 1, d_.source_text_line(b.line),
                              fmt::format("block {} has the block size {}", b.id, value->integer));
        p.block_size = value->integer;
        plan_.known[symbol_index(p.variable)] = *value;
      }
    for (const device_ir::block& b : d_.blocks) {
      if (b.block_size == symbolic::no_expression || d_.symbols.kind_of(b.block_size) != symbolic::kind::symbol) continue;
      const symbolic::symbol s = d_.symbols.symbol_of(b.block_size);
      if (plan_.block_of_symbol[symbol_index(s)] < 0 && d_.find_declaration(s) == nullptr) plan_.block_of_symbol[symbol_index(s)] = b.id;
    }
  }

  // -- shapes

  /// The block that runs along a dimension of this size, or -1.
  std::int32_t block_along(symbolic::expression size) const {
    if (d_.symbols.kind_of(size) == symbolic::kind::symbol) return plan_.block_of_symbol[symbol_index(d_.symbols.symbol_of(size))];
    if (d_.symbols.kind_of(size) != symbolic::kind::integer) return -1;
    const std::int64_t value = d_.symbols.integer_value(size);
    if (value == 1) return -1;
    for (const device_ir::block& b : d_.blocks)
      if (b.is_reduction && d_.symbols.kind_of(b.variable) == symbolic::kind::integer && d_.symbols.integer_value(b.variable) == value)
        return b.id;
    return -1;
  }

  void plan_shapes() {
    for (std::size_t i = 0; i < d_.nodes.size(); ++i) {
      const device_ir::type& type = d_.nodes[i].type;
      if (type.what != device_ir::type::kind::tensor || plan_.nodes[i].is_host_tensor) continue;
      device_ir::range& shape = plan_.nodes[i].shape;
      shape.first = static_cast<std::uint32_t>(plan_.dimensions.size());
      for (const symbolic::expression size : d_.sizes(type)) {
        dimension dim;
        dim.expression = size;
        dim.block = block_along(size);
        if (dim.block >= 0) {
          dim.size = plan_.blocks[at_index(dim.block)].block_size;
        } else if (const std::optional<number> value = d_.symbols.evaluate(size, plan_.known); value && value->is_integer) {
          dim.size = value->integer;
        }
        plan_.dimensions.push_back(dim);
      }
      shape.count = static_cast<std::uint32_t>(plan_.dimensions.size()) - shape.first;
    }
  }

  /// The operands of a pointwise operation broadcast, from the last dimension on, to its declared shape. Tiles of two blocks
  /// do not, even of one size.
  void check_shapes() const {
    for (std::size_t i = 0; i < d_.nodes.size(); ++i) {
      const node_plan& p = plan_.nodes[i];
      if (!p.known || information(p.op).category != operation_category::pointwise || d_.nodes[i].type.what != device_ir::type::kind::tensor)
        continue;
      for (const argument& a : d_.arguments_of(d_.nodes[i]))
        if (a.what == argument::kind::node && d_.at(a.node).type.what == device_ir::type::kind::tensor && !plan_.at(a.node).is_host_tensor)
          check_operand(d_.nodes[i], p, a.node);
    }
  }

  void check_operand(const node& n, const node_plan& result, node_id operand) const {
    const std::span<const dimension> to = shape_of(result);
    const std::span<const dimension> from = shape_of(plan_.at(operand));
    bool fits = from.size() <= to.size();
    for (std::size_t d = 1; fits && d <= from.size(); ++d) fits = broadcasts(from[from.size() - d], to[to.size() - d]);
    if (!fits)
      fail(n, fmt::format("'{}' of shape [{}] does not broadcast to [{}], the shape of '{}': a dimension may have to be inserted",
                          d_.at(operand).name, spelled(from), spelled(to), n.name));
  }

  std::span<const dimension> shape_of(const node_plan& p) const {
    return std::span<const dimension>(plan_.dimensions).subspan(p.shape.first, p.shape.count);
  }

  static bool broadcasts(const dimension& from, const dimension& to) {
    if (from.expression == to.expression) return true;
    if (from.block >= 0 && to.block >= 0) return from.block == to.block;
    return from.size <= 1 || to.size <= 0 || from.size == to.size;
  }

  std::string spelled(std::span<const dimension> shape) const {
    std::string text;
    for (const dimension& d : shape) text += (text.empty() ? "" : ", ") + d_.symbols.to_string(d.expression);
    return text;
  }

  // -- who uses a node

  void index_users() {
    first_user_.assign(d_.nodes.size() + 1, 0);
    for (const node& n : d_.nodes) visit_operands(d_, n, [&](node_id used) { ++first_user_[index(used) + 1]; });
    for (std::size_t i = 1; i < first_user_.size(); ++i) first_user_[i] += first_user_[i - 1];
    users_.resize(first_user_.back());
    std::vector<std::uint32_t> next(first_user_.begin(), first_user_.end() - 1);
    for (std::size_t i = 0; i < d_.nodes.size(); ++i)
      visit_operands(d_, d_.nodes[i], [&](node_id used) { users_[next[index(used)]++] = to_node(i); });
  }

  std::span<const node_id> users(node_id n) const {
    return std::span<const node_id>(users_).subspan(first_user_[index(n)], first_user_[index(n) + 1] - first_user_[index(n)]);
  }

  // -- roots

  void plan_root(const device_ir::graph& g) {
    root_plan root;
    root.graph = static_cast<std::int32_t>(&g - d_.graphs.data());
    root.phase = g.phase;
    root.blocks = ordered(g.blocks);
    for (const std::int32_t id : root.blocks) {
      block_plan& b = block_at(id, g);
      b.role = block_role::grid;
      b.owner = root.graph;
    }
    if (root.blocks.size() >= 2) {
      if (grouping_count_ < config_.l2_groupings.size())
        root.l2_grouping = std::max<std::int64_t>(1, config_.l2_groupings[grouping_count_]);
      ++grouping_count_;
    }
    range_groups_.push_back(g.blocks);
    plan_.roots.push_back(std::move(root));
  }

  /// The blocks of a grid or loop in the order that the config asks for, fastest first. The config's lists have one entry
  /// for each grid or loop of two or more blocks, grids first.
  std::vector<std::int32_t> ordered(const std::vector<std::int32_t>& blocks) {
    if (blocks.size() < 2) return blocks;
    const std::size_t entry = order_count_++;
    if (entry >= config_.loop_orders.size()) return blocks;
    const std::vector<std::int32_t>& order = config_.loop_orders[entry];
    std::vector<bool> seen(blocks.size());
    std::vector<std::int32_t> result;
    for (const std::int32_t o : order) {
      if (o < 0 || at_index(o) >= blocks.size() || seen[at_index(o)]) break;
      seen[at_index(o)] = true;
      result.push_back(blocks[at_index(o)]);
    }
    if (result.size() != blocks.size() || order.size() != blocks.size())
      throw DeviceIRError(d_.file, 0, 0, {}, fmt::format("loop_orders[{}] is no permutation of {} blocks", entry, blocks.size()));
    return result;
  }

  block_plan& block_at(std::int32_t id, const device_ir::graph& g) {
    if (d_.find_block(id) == nullptr)
      throw DeviceIRError(d_.file, 0, 0, {}, fmt::format("graph {} names block {}, which is not declared", g.name, id));
    return plan_.blocks[at_index(id)];
  }

  void order_roots() {
    std::sort(plan_.roots.begin(), plan_.roots.end(),
              [](const root_plan& a, const root_plan& b) { return std::pair(a.phase, a.graph) < std::pair(b.phase, b.graph); });
  }

  // -- loops, branches, accesses: in the order in which they are lowered

  void plan_control_flow() {
    writers_.assign(plan_.roots.size() > 1 ? d_.tensors.size() : 0, nullptr);
    for (const root_plan& r : plan_.roots) {
      root_ = &r;
      walk(r.graph, 0);
    }
  }

  /// Root graphs of one phase run side by side: what one stores to, a later one may neither load from nor store to.
  void refuse_race(const node& n, bool writes) {
    if (writers_.empty()) return;
    const std::span<const argument> arguments = d_.arguments_of(n);
    if (arguments.empty() || arguments[0].what != argument::kind::node || !plan_.at(arguments[0].node).is_host_tensor) return;
    const std::span<const argument> named = d_.arguments_of(d_.at(arguments[0].node));
    const device_ir::host_tensor* const t = named.empty() ? nullptr : d_.find_tensor(named[0].text);
    if (t == nullptr) return;
    const root_plan*& writer = writers_[static_cast<std::size_t>(t - d_.tensors.data())];
    if (writer != nullptr && writer != root_ && writer->phase == root_->phase)
      fail(n, fmt::format("'{}' is written by '{}' and {} by '{}' in the same phase: a barrier is missing between them", t->name,
                          d_.graphs[at_index(writer->graph)].name, writes ? "written" : "read", d_.graphs[at_index(root_->graph)].name));
    if (writes) writer = root_;
  }

  void walk(std::int32_t graph_index, int depth) {
    const device_ir::graph& g = d_.graphs[at_index(graph_index)];
    if (depth > maximum_nesting)
      throw DeviceIRError(d_.file, g.line, 1, d_.source_text_line(g.line),
                          fmt::format("loops and branches nest deeper than {} levels", maximum_nesting));
    for (std::size_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i) {
      const node_plan& p = plan_.nodes[i];
      if (!p.known) continue;
      const node& n = d_.nodes[i];
      if (is_loop(p.op)) walk_loop(to_node(i), n, p.op, depth);
      else if (p.op == operation::if_) walk_branch(to_node(i), n, depth);
      else plan_access(to_node(i), p.op);
    }
  }

  void plan_access(node_id id, operation op) {
    const bool is_load = op == operation::load;
    const bool is_atomic = information(op).category == operation_category::atomic;
    if (!is_load && op != operation::store && !is_atomic) return;
    if (!is_atomic) refuse_race(d_.at(id), !is_load);
    access_plan access;
    access.node = id;
    std::int32_t& counter = is_atomic ? atomic_count_ : access_count_;
    const std::vector<device_ir::indexing>& choices = is_atomic ? config_.atomic_indexing : config_.indexing;
    if (choices.size() == 1) access.indexing = choices[0];
    else if (at_index(counter) < choices.size()) access.indexing = choices[at_index(counter)];
    ++counter;
    if (is_load) {
      if (at_index(load_count_) < config_.load_eviction_policies.size())
        access.eviction = config_.load_eviction_policies[at_index(load_count_)];
      ++load_count_;
    }
    plan_.access_of_node[index(id)] = static_cast<std::int32_t>(plan_.accesses.size());
    plan_.accesses.push_back(access);
  }

  std::int32_t graph_argument(const node& n, std::size_t position) const {
    const std::span<const argument> arguments = d_.arguments_of(n);
    if (position >= arguments.size() || arguments[position].what != argument::kind::integer)
      fail(n, "expected a graph's id as an integer argument");
    const device_ir::graph* g = d_.find_graph(arguments[position].integer);
    if (g == nullptr) fail(n, fmt::format("no graph has the id {}", arguments[position].integer));
    return static_cast<std::int32_t>(g - d_.graphs.data());
  }

  std::span<const argument> list_argument(const node& n, std::size_t position) const {
    const std::span<const argument> arguments = d_.arguments_of(n);
    if (position >= arguments.size()) return {};
    const argument& a = arguments[position];
    if (a.what == argument::kind::none) return {};
    if (a.what != argument::kind::list && a.what != argument::kind::tuple) fail(n, fmt::format("expected a list as argument {}", position));
    return d_.items(a);
  }

  std::span<const argument> results_of(std::int32_t graph) const {
    const argument& result = d_.graphs[at_index(graph)].result;
    if (result.what == argument::kind::list || result.what == argument::kind::tuple) return d_.items(result);
    return {};
  }

  void walk_loop(node_id id, const node& n, operation op, int depth) {
    const bool is_while = op == operation::while_loop;
    loop_plan loop;
    loop.node = id;
    loop.body = graph_argument(n, is_while ? 1 : 0);
    if (is_while) loop.condition = graph_argument(n, 0);
    const device_ir::graph& body = d_.graphs[at_index(loop.body)];
    loop.blocks = body.blocks;
    loop.order = ordered(body.blocks);
    callers_[at_index(loop.body)].emplace_back(id, is_while ? 2U : 3U);
    if (is_while) callers_[at_index(loop.condition)].emplace_back(id, 2U);
    if (!is_while && (list_argument(n, 1).size() != loop.blocks.size() || list_argument(n, 2).size() != loop.blocks.size()))
      fail(n, fmt::format("the loop gives {} begins and {} ends for the {} blocks of {}", list_argument(n, 1).size(),
                          list_argument(n, 2).size(), loop.blocks.size(), body.name));
    for (const std::int32_t b : loop.blocks) {
      block_plan& block = block_at(b, body);
      const bool reduction = block.role == block_role::whole || block.role == block_role::rolled;
      if (block.role != block_role::grid) block.role = reduction ? block_role::rolled : block_role::loop;
      block.owner = loop.body;
    }
    loop.range_index = range_group(loop.blocks);
    find_carries(loop, id, n, is_while);
    plan_.loop_of_node[index(id)] = static_cast<std::int32_t>(plan_.loops.size());
    plan_.loops.push_back(std::move(loop));
    if (is_while) walk(graph_argument(n, 0), depth + 1);
    walk(graph_argument(n, is_while ? 1 : 0), depth + 1);
  }

  std::int32_t range_group(const std::vector<std::int32_t>& blocks) {
    for (const std::int32_t b : blocks)
      if (plan_.blocks[at_index(b)].role == block_role::rolled) return -1;
    const auto found = std::find(range_groups_.begin(), range_groups_.end(), blocks);
    if (found != range_groups_.end()) return static_cast<std::int32_t>(found - range_groups_.begin());
    range_groups_.push_back(blocks);
    return static_cast<std::int32_t>(range_groups_.size() - 1);
  }

  /// The `VALUE[i]` nodes of a node, as (i, node).
  std::vector<std::pair<std::int64_t, node_id>> getitems(node_id id) const {
    std::vector<std::pair<std::int64_t, node_id>> all;
    for (const node_id user : users(id)) {
      if (plan_.at(user).op != operation::getitem || !plan_.at(user).known) continue;
      const std::span<const argument> arguments = d_.arguments_of(d_.at(user));
      if (arguments.size() == 2 && arguments[1].what == argument::kind::integer) all.emplace_back(arguments[1].integer, user);
    }
    return all;
  }

  /// The `_phi` that joins `n` with another value: (phi, the other value).
  std::pair<node_id, node_id> phi_of(node_id n) const {
    for (const node_id user : users(n)) {
      if (plan_.at(user).op != operation::phi || !plan_.at(user).known) continue;
      const std::span<const argument> arguments = d_.arguments_of(d_.at(user));
      if (arguments.size() != 2 || arguments[0].what != argument::kind::node || arguments[1].what != argument::kind::node) continue;
      return {user, arguments[0].node == n ? arguments[1].node : arguments[0].node};
    }
    return {no_node, no_node};
  }

  void find_carries(loop_plan& loop, node_id id, const node& n, bool is_while) {
    const std::span<const argument> arguments = list_argument(n, is_while ? 2 : 3);
    const device_ir::graph& body = d_.graphs[at_index(loop.body)];
    if (arguments.size() != body.parameters.count)
      fail(n, fmt::format("the loop passes {} values, {} takes {}", arguments.size(), body.name, body.parameters.count));
    const std::span<const argument> results = results_of(loop.body);
    for (const auto& [position, getitem] : getitems(id)) {
      if (position < 0 || static_cast<std::size_t>(position) >= results.size())
        fail(d_.at(getitem), fmt::format("the loop has {} results, there is no number {}", results.size(), position));
      const auto [phi, before] = phi_of(getitem);
      const std::int32_t result = static_cast<std::int32_t>(position);
      if (phi != no_node) {
        carried c{.before = before, .parameter = no_node, .result = result, .after = getitem, .joined = phi};
        for (std::size_t j = 0; j < arguments.size(); ++j)
          if (arguments[j].what == argument::kind::node && arguments[j].node == before && !taken(loop, parameter_of(body, j)))
            c.parameter = parameter_of(body, j);
        loop.carries.push_back(c);
      } else if (const std::optional<accumulator> a = accumulator_of(loop, results[static_cast<std::size_t>(position)], result, getitem)) {
        loop.accumulators.push_back(*a);
      } else {
        loop.last_values.emplace_back(result, getitem);
      }
    }
    std::sort(loop.carries.begin(), loop.carries.end(), [](const carried& a, const carried& b) { return a.result < b.result; });
  }

  static node_id parameter_of(const device_ir::graph& g, std::size_t i) { return to_node(g.parameters.first + i); }
  static bool taken(const loop_plan& loop, node_id parameter) {
    return std::any_of(loop.carries.begin(), loop.carries.end(), [&](const carried& c) { return c.parameter == parameter; });
  }

  /// A result of a rolled reduction's body that reduces the rolled dimension.
  std::optional<accumulator> accumulator_of(const loop_plan& loop, const argument& result, std::int32_t position, node_id getitem) const {
    if (result.what != argument::kind::node || loop.blocks.size() != 1) return std::nullopt;
    const block_plan& block = plan_.blocks[at_index(loop.blocks[0])];
    if (block.role != block_role::rolled) return std::nullopt;
    for (const dimension& dim : plan_.shape(result.node))
      if (dim.block == block.id) return std::nullopt; // per-chunk lanes, not a reduction of them
    const node_plan& p = plan_.at(result.node);
    accumulator a{.result = position, .by = p.op, .partial = result.node, .after = getitem};
    if (p.op == operation::inductor_lowering_extra) {
      const std::optional<operation> finished = finisher(getitem);
      if (!finished) fail(d_.at(result.node), "no operation finishes this partial reduction (none has it among its _extra_args)");
      a.by = *finished;
    }
    if (a.by == operation::aten_mean) a.by = operation::aten_sum;
    return information(p.op).category == operation_category::reduction || p.op == operation::inductor_lowering_extra
               ? std::optional<accumulator>(a)
               : std::nullopt;
  }

  /// The operation that has `extra` among its `_extra_args`.
  std::optional<operation> finisher(node_id extra) const {
    for (const node_id user : users(extra))
      if (d_.find_keyword(d_.at(user), "_extra_args") != nullptr) return plan_.at(user).op;
    return std::nullopt;
  }

  // -- branches

  void walk_branch(node_id id, const node& n, int depth) {
    branch_plan branch;
    branch.node = id;
    branch.then_graph = graph_argument(n, 1);
    callers_[at_index(branch.then_graph)].emplace_back(id, 3U);
    const std::span<const argument> arguments = d_.arguments_of(n);
    if (arguments.size() > 2 && arguments[2].what == argument::kind::integer) {
      branch.else_graph = graph_argument(n, 2);
      callers_[at_index(branch.else_graph)].emplace_back(id, 4U);
    }
    check_count(n, branch.then_graph, list_argument(n, 3).size());
    if (branch.else_graph >= 0) check_count(n, branch.else_graph, list_argument(n, 4).size());
    branch.constant_test = constant_test(arguments.empty() ? argument{} : arguments[0]);
    find_outputs(branch, id, n);
    plan_.branch_of_node[index(id)] = static_cast<std::int32_t>(plan_.branches.size());
    const std::int32_t then_graph = branch.then_graph;
    const std::int32_t else_graph = branch.else_graph;
    plan_.branches.push_back(std::move(branch));
    walk(then_graph, depth + 1);
    if (else_graph >= 0) walk(else_graph, depth + 1);
  }

  void check_count(const node& n, std::int32_t graph, std::size_t given) const {
    const device_ir::graph& g = d_.graphs[at_index(graph)];
    if (g.parameters.count != given) fail(n, fmt::format("{} values are passed to {}, which takes {}", given, g.name, g.parameters.count));
  }

  std::optional<bool> constant_test(const argument& test) const {
    if (test.what == argument::kind::boolean) return test.boolean;
    if (test.what == argument::kind::integer) return test.integer != 0;
    if (test.what == argument::kind::real) return test.real != 0;
    if (test.what == argument::kind::none) return false;
    if (test.what != argument::kind::node) return std::nullopt;
    const device_ir::type& type = d_.at(test.node).type;
    if (type.what != device_ir::type::kind::symbolic) return std::nullopt;
    const std::optional<number> value = d_.symbols.evaluate(type.value, plan_.known);
    if (!value) return std::nullopt;
    return value->as_real() != 0;
  }

  /// The name without the number that makes it unique: `acc_1` is a later `acc`.
  static std::string_view base_name(std::string_view name) {
    const std::size_t last = name.find_last_not_of("0123456789");
    if (last != std::string_view::npos && last + 1 < name.size() && name[last] == '_' && last > 0) return name.substr(0, last);
    return name;
  }

  /// Joined and copied values have the names of tracing, not those of the program.
  bool is_nameless(node_id n) const {
    const operation op = plan_.at(n).op;
    return d_.at(n).is_parameter || (plan_.at(n).known && (op == operation::phi || op == operation::getitem || op == operation::new_var) &&
                                     d_.at(n).name.starts_with('_'));
  }

  bool same_type(node_id a, node_id b) const {
    const device_ir::type& x = d_.at(a).type;
    const device_ir::type& y = d_.at(b).type;
    if (x.what != y.what || x.element != y.element || x.sizes.count != y.sizes.count) return false;
    return std::equal(d_.sizes(x).begin(), d_.sizes(x).end(), d_.sizes(y).begin());
  }

  /// The values of an `_if` come twice: first what each output is after the then side, then after the else side. Outputs
  /// are ordered: those that both sides write, those that only the first writes, those that only the second writes.
  void find_outputs(branch_plan& branch, node_id id, const node& n) {
    const auto items = getitems(id);
    if (items.empty()) return;
    std::int64_t count = 0;
    for (const auto& [position, getitem] : items) {
      const auto [phi, other] = phi_of(getitem);
      if (phi == no_node) continue;
      for (const auto& [other_position, other_getitem] : items)
        if (other_getitem == other && other_position != position)
          count = position < other_position ? other_position - position : position - other_position;
      if (count > 0) break;
    }
    if (count == 0) fail(n, "the values of this branch are not joined in pairs by _phi");
    branch.outputs.resize(static_cast<std::size_t>(count));
    for (const auto& [position, getitem] : items) {
      if (position < 0 || position >= 2 * count)
        fail(d_.at(getitem), fmt::format("the branch has {} values, there is no number {}", 2 * count, position));
      branch_output& out = branch.outputs[static_cast<std::size_t>(position % count)];
      (position < count ? out.then_value : out.else_value) = getitem;
      if (out.joined == no_node) out.joined = phi_of(getitem).first;
    }
    const std::span<const argument> then_results = results_of(branch.then_graph);
    const std::span<const argument> else_results = branch.else_graph >= 0 ? results_of(branch.else_graph) : std::span<const argument>();
    const std::vector<std::int32_t> partner = partners(branch, n, then_results, else_results);
    std::vector<bool> then_used(then_results.size());
    std::vector<bool> else_used(else_results.size());
    std::size_t next = 0;
    for (std::size_t i = 0; i < then_results.size(); ++i) {
      if (partner[i] < 0) continue;
      then_used[i] = else_used[at_index(partner[i])] = true;
      branch.outputs[next].then_result = static_cast<std::int32_t>(i);
      branch.outputs[next].else_result = partner[i];
      ++next;
    }
    next = match_one_side(branch, n, then_results, then_used, next, true);
    next = match_one_side(branch, n, else_results, else_used, next, false);
    if (next < branch.outputs.size()) fail(n, fmt::format("output {} of this branch is written by neither side", next));
  }

  /// By result of the first side: the result of the second that is the same variable's, or -1. It has the same name; where one
  /// was itself joined and lost its name, the same type. Where that leaves as many results of either side as outputs, and none
  /// of them has a value that the other side would pass through, they are paired in order.
  std::vector<std::int32_t> partners(const branch_plan& branch, const node& n, std::span<const argument> a,
                                     std::span<const argument> b) const {
    std::vector<std::int32_t> partner(a.size(), -1);
    std::vector<bool> taken(b.size());
    std::size_t open = branch.outputs.size();
    const auto pair = [&](const auto& fits) {
      for (std::size_t i = 0; i < a.size(); ++i)
        for (std::size_t j = 0; j < b.size() && open > 0 && partner[i] < 0; ++j) {
          if (taken[j] || a[i].what != argument::kind::node || b[j].what != argument::kind::node || !fits(a[i].node, b[j].node)) continue;
          partner[i] = static_cast<std::int32_t>(j);
          taken[j] = true;
          --open;
        }
    };
    const auto nameless = [&](node_id x, node_id y) { return is_nameless(x) || is_nameless(y); };
    pair([&](node_id x, node_id y) { return !nameless(x, y) && base_name(d_.at(x).name) == base_name(d_.at(y).name); });
    pair([&](node_id x, node_id y) { return nameless(x, y) && same_type(x, y); });
    const std::size_t paired = branch.outputs.size() - open;
    if (open == 0 || a.size() - paired != open || b.size() - paired != open) return partner;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (partner[i] < 0 && passes_variable(list_argument(n, 3), a[i], branch.then_graph)) return partner;
    for (std::size_t j = 0; j < b.size(); ++j)
      if (!taken[j] && passes_variable(list_argument(n, 4), b[j], branch.else_graph)) return partner;
    pair([&](node_id x, node_id y) { return same_type(x, y); });
    return partner;
  }

  /// Whether an argument of the branch is certainly what a result's variable was before.
  bool passes_variable(std::span<const argument> arguments, const argument& result, std::int32_t graph) const {
    if (result.what != argument::kind::node) return false;
    for (std::size_t j = 0; j < arguments.size(); ++j)
      if (arguments[j].what == argument::kind::node && is_same_variable(arguments[j].node, d_.graphs[at_index(graph)], j, result.node))
        return true;
    return false;
  }

  bool is_same_variable(node_id passed, const device_ir::graph& g, std::size_t parameter, node_id result) const {
    return same_type(passed, result) && (base_name(d_.at(passed).name) == base_name(d_.at(result).name) || copies(g, parameter, result));
  }

  /// Outputs that one side writes and the other passes through: the value passed is an argument of the same type and,
  /// where several have it, of the same name.
  std::size_t match_one_side(branch_plan& branch, const node& n, std::span<const argument> results, std::vector<bool>& used,
                             std::size_t next, bool then_side) {
    const std::span<const argument> arguments = list_argument(n, then_side ? 3 : 4);
    for (std::size_t i = 0; i < results.size() && next < branch.outputs.size(); ++i) {
      if (used[i] || results[i].what != argument::kind::node) continue;
      const branch_output& out = branch.outputs[next];
      const node_id value = then_side ? out.then_value : out.else_value;
      if (value != no_node && !same_type(value, results[i].node)) continue;
      const node_id passed = passed_argument(arguments, results[i].node, branch, then_side);
      if (passed == no_node) continue;
      branch.outputs[next].passes = passed;
      (then_side ? branch.outputs[next].then_result : branch.outputs[next].else_result) = static_cast<std::int32_t>(i);
      used[i] = true;
      ++next;
    }
    return next;
  }

  node_id passed_argument(std::span<const argument> arguments, node_id result, const branch_plan& branch, bool then_side) const {
    node_id only = no_node;
    int candidates = 0;
    const device_ir::graph& g = d_.graphs[at_index(then_side ? branch.then_graph : branch.else_graph)];
    for (std::size_t j = 0; j < arguments.size(); ++j) {
      const argument& a = arguments[j];
      if (a.what != argument::kind::node || !same_type(a.node, result)) continue;
      const bool used =
          std::any_of(branch.outputs.begin(), branch.outputs.end(), [&](const branch_output& o) { return o.passes == a.node; });
      if (used) continue;
      if (is_same_variable(a.node, g, j, result)) return a.node;
      if (candidates++ == 0) only = a.node;
    }
    return only;
  }

  /// Whether `result` is a `_new_var` of the graph's parameter `j`.
  bool copies(const device_ir::graph& g, std::size_t j, node_id result) const {
    if (plan_.at(result).op != operation::new_var || !plan_.at(result).known) return false;
    const std::span<const argument> arguments = d_.arguments_of(d_.at(result));
    return arguments.size() == 1 && arguments[0].what == argument::kind::node && arguments[0].node == parameter_of(g, j);
  }

  // -- what is live

  void mark_live() {
    work_.reserve(d_.nodes.size());
    mark_effect_graphs();
    while (!work_.empty()) {
      const node_id id = work_.back();
      work_.pop_back();
      follow(id);
    }
    for (std::size_t i = 0; i < d_.nodes.size(); ++i)
      if (plan_.nodes[i].live) visit_operands(d_, d_.nodes[i], [&](node_id used) { ++plan_.nodes[index(used)].uses; });
    for (const device_ir::graph& g : d_.graphs) visit_nodes(d_, g.result, [&](node_id used) { ++plan_.nodes[index(used)].uses; });
  }

  void use(node_id id) {
    if (id == no_node || plan_.nodes[index(id)].live) return;
    plan_.nodes[index(id)].live = true;
    work_.push_back(id);
  }

  /// Everything reachable that has an effect is live, and so is the control flow around it.
  void mark_effect_graphs() {
    for (const root_plan& root : plan_.roots) mark_effects(root.graph);
  }

  bool mark_effects(std::int32_t graph) {
    const device_ir::graph& g = d_.graphs[at_index(graph)];
    bool any = false;
    for (std::size_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i) {
      const node_plan& p = plan_.nodes[i];
      bool effect = !p.known || has_effect(p.op);
      if (const std::int32_t loop = plan_.loop_of_node[i]; loop >= 0) effect = mark_effects(plan_.loops[at_index(loop)].body);
      if (const std::int32_t b = plan_.branch_of_node[i]; b >= 0) {
        const branch_plan& branch = plan_.branches[at_index(b)];
        if (branch.constant_test.value_or(true)) effect = mark_effects(branch.then_graph) || effect;
        if (branch.else_graph >= 0 && !branch.constant_test.value_or(false)) effect = mark_effects(branch.else_graph) || effect;
      }
      if (!effect) continue;
      any = true;
      use(to_node(i));
    }
    return any;
  }

  void follow(node_id id) {
    const node& n = d_.at(id);
    const std::int32_t loop = plan_.loop_of_node[index(id)];
    const std::int32_t branch = plan_.branch_of_node[index(id)];
    if (n.is_parameter) return follow_parameter(id);
    if (loop >= 0) return follow_loop(plan_.loops[at_index(loop)], n);
    if (branch >= 0) {
      const std::span<const argument> arguments = d_.arguments_of(n);
      if (!arguments.empty() && !plan_.branches[at_index(branch)].constant_test)
        visit_nodes(d_, arguments[0], [&](node_id used) { use(used); });
      return;
    }
    if (const symbolic::symbol s = symbol_of_type(n); s != symbolic::no_symbol) use(plan_.definitions[symbol_index(s)]);
    if (plan_.at(id).op == operation::getitem && plan_.at(id).known) return follow_getitem(id, n);
    if (plan_.at(id).op == operation::device_reduce || plan_.at(id).op == operation::device_associative_scan)
      visit_nodes(d_, d_.graphs[at_index(graph_argument(n, 0))].result, [&](node_id used) { use(used); });
    visit_operands(d_, n, [&](node_id used) { use(used); });
  }

  /// A loop's bounds, and a while loop's condition, are used if the loop is.
  void follow_loop(const loop_plan& loop, const node& n) {
    const std::span<const argument> arguments = d_.arguments_of(n);
    if (loop.condition >= 0) {
      for (const argument& result : results_of(loop.condition)) visit_nodes(d_, result, [&](node_id used) { use(used); });
      visit_nodes(d_, d_.graphs[at_index(loop.condition)].result, [&](node_id used) { use(used); });
      return;
    }
    for (std::size_t i = 1; i <= 2 && i < arguments.size(); ++i) visit_nodes(d_, arguments[i], [&](node_id used) { use(used); });
    if (plan_.nodes[index(loop.node)].op == operation::for_loop_step && arguments.size() > 4)
      visit_nodes(d_, arguments[4], [&](node_id used) { use(used); });
    for (const std::int32_t b : loop.blocks) plan_jagged(loop, b, n);
  }

  void follow_parameter(node_id id) {
    const std::int32_t graph = plan_.at(id).graph;
    const device_ir::graph& g = d_.graphs[at_index(graph)];
    const std::size_t position = index(id) - g.parameters.first;
    for (const auto& [caller, list] : callers_[at_index(graph)]) {
      use(caller);
      const std::span<const argument> arguments = list_argument(d_.at(caller), list);
      if (position < arguments.size()) visit_nodes(d_, arguments[position], [&](node_id used) { use(used); });
      const std::int32_t loop = plan_.loop_of_node[index(caller)];
      if (loop < 0) continue;
      for (const carried& c : plan_.loops[at_index(loop)].carries) {
        const std::span<const argument> results = results_of(plan_.loops[at_index(loop)].body);
        const bool same = c.parameter != no_node &&
                          index(c.parameter) - d_.graphs[at_index(plan_.loops[at_index(loop)].body)].parameters.first == position;
        if (same) use_result(results, c.result);
      }
    }
  }

  void use_result(std::span<const argument> results, std::int32_t i) {
    if (i >= 0 && at_index(i) < results.size()) visit_nodes(d_, results[at_index(i)], [&](node_id used) { use(used); });
  }

  void follow_getitem(node_id id, const node& n) {
    const std::span<const argument> arguments = d_.arguments_of(n);
    if (arguments.size() != 2 || arguments[0].what != argument::kind::node) return visit_operands(d_, n, [&](node_id used) { use(used); });
    const node_id owner = arguments[0].node;
    use(owner);
    if (const std::int32_t loop = plan_.loop_of_node[index(owner)]; loop >= 0) {
      const loop_plan& l = plan_.loops[at_index(loop)];
      use_result(results_of(l.body), static_cast<std::int32_t>(arguments[1].integer));
      for (const carried& c : l.carries)
        if (c.after == id) use(c.before);
    }
    if (const std::int32_t b = plan_.branch_of_node[index(owner)]; b >= 0) follow_branch_value(plan_.branches[at_index(b)], id);
  }

  void follow_branch_value(const branch_plan& branch, node_id id) {
    for (const branch_output& out : branch.outputs) {
      if (out.then_value != id && out.else_value != id) continue;
      use_result(results_of(branch.then_graph), out.then_result);
      if (branch.else_graph >= 0) use_result(results_of(branch.else_graph), out.else_result);
      use(out.passes);
    }
  }

  // -- jagged blocks, masks

  /// A jagged block's rows end where the tensor says whose maximum is the loop's end.
  void plan_jagged(const loop_plan& loop, std::int32_t block, const node& n) {
    block_plan& b = plan_.blocks[at_index(block)];
    if (!b.jagged) return;
    const auto position = static_cast<std::size_t>(std::find(loop.blocks.begin(), loop.blocks.end(), block) - loop.blocks.begin());
    const std::span<const argument> ends = list_argument(n, 2);
    node_id end = position < ends.size() && ends[position].what == argument::kind::node ? ends[position].node : no_node;
    // The end is amax(_mask_to(view(lengths, [-1]))): step back through what keeps the values.
    for (int steps = 0; end != no_node && steps < 16; ++steps) {
      const operation op = plan_.at(end).op;
      const std::span<const argument> arguments = d_.arguments_of(d_.at(end));
      const bool passes = plan_.at(end).known && !arguments.empty() && arguments[0].what == argument::kind::node &&
                          (op == operation::aten_amax || op == operation::aten_max || op == operation::mask_to ||
                           op == operation::aten_view || op == operation::aten_reshape);
      if (!passes) break;
      end = arguments[0].node;
      if (plan_.shape(end).size() == b.jagged_parents.size() && is_shape_of(end, b.jagged_parents)) {
        b.jagged_extent = end;
        use(end);
        return;
      }
    }
    fail(n, fmt::format("the end of jagged block {} is not the maximum of a tensor over its parents", block));
  }

  bool is_shape_of(node_id n, const std::vector<std::int32_t>& blocks) const {
    const std::span<const dimension> shape = plan_.shape(n);
    const operation op = plan_.at(n).op;
    if (plan_.at(n).known && (op == operation::mask_to || op == operation::aten_view || op == operation::aten_reshape)) return false;
    return std::equal(shape.begin(), shape.end(), blocks.begin(), blocks.end(),
                      [](const dimension& d, std::int32_t b) { return d.block == b; });
  }

  void plan_masks() {
    for (block_plan& b : plan_.blocks) {
      b.mask = b.role != block_role::unused; // lanes of no loop and no grid are all there
      if (!b.mask) continue;
      if (b.jagged) continue;
      if (b.block_size == 1) b.mask = b.constant_extent == 0; // one lane of no positions
      else if (b.block_size > 1 && b.extent != symbolic::no_expression && d_.symbols.divisible(b.extent, b.block_size)) b.mask = false;
    }
    // A loop that does not begin at a multiple of nothing but 0, or has a constant end of its own, decides for itself.
    for (const loop_plan& loop : plan_.loops) {
      if (loop.condition >= 0) continue;
      const node& n = d_.at(loop.node);
      for (std::size_t i = 0; i < loop.blocks.size(); ++i) {
        block_plan& b = plan_.blocks[at_index(loop.blocks[i])];
        if (b.jagged || b.block_size <= 1) continue;
        const std::optional<std::int64_t> begin = constant(list_argument(n, 1)[i]);
        const std::optional<std::int64_t> end = constant(list_argument(n, 2)[i]);
        if (begin && end) {
          if ((*end - *begin) % b.block_size != 0) b.mask = true;
          else if (b.extent == symbolic::no_expression) b.mask = false;
        } else if (begin && *begin != 0) {
          b.mask = true;
        }
      }
    }
  }

  std::optional<std::int64_t> constant(const argument& a) const {
    if (a.what == argument::kind::integer) return a.integer;
    if (a.what != argument::kind::node) return std::nullopt;
    const device_ir::type& type = d_.at(a.node).type;
    if (type.what != device_ir::type::kind::symbolic) return std::nullopt;
    const std::optional<number> value = d_.symbols.evaluate(type.value, plan_.known);
    return value && value->is_integer ? std::optional<std::int64_t>(value->integer) : std::nullopt;
  }

  // -- parameters

  void plan_parameters() {
    std::vector<bool> tensor_used(d_.tensors.size());
    std::vector<bool> symbol_used(d_.symbols.symbol_count());
    std::vector<bool> grid_used(d_.symbols.symbol_count());
    std::vector<symbolic::symbol> found;
    const auto collect = [&](symbolic::expression e, std::vector<bool>& into) {
      found.clear();
      if (e != symbolic::no_expression) d_.symbols.collect_symbols(e, found);
      for (const symbolic::symbol s : found) into[symbol_index(s)] = true;
    };
    for (std::size_t i = 0; i < d_.nodes.size(); ++i) {
      const node_plan& p = plan_.nodes[i];
      if (!p.live) continue;
      const node& n = d_.nodes[i];
      if (p.is_host_tensor) {
        const std::span<const argument> arguments = d_.arguments_of(n);
        const device_ir::host_tensor* t = arguments.empty() ? nullptr : d_.find_tensor(arguments[0].text);
        if (t == nullptr) fail(n, "no host tensor of that name is declared");
        tensor_used[static_cast<std::size_t>(t - d_.tensors.data())] = true;
      } else if (n.type.what == device_ir::type::kind::symbolic) {
        collect(n.type.value, symbol_used);
      }
    }
    for (std::size_t t = 0; t < d_.tensors.size(); ++t) {
      plan_.wide[t] = is_wide(d_.tensors[t]);
      if (!tensor_used[t]) continue;
      plan_.tensors.push_back(static_cast<std::int32_t>(t));
      for (const symbolic::expression e : d_.sizes(d_.tensors[t])) collect(e, symbol_used);
      for (const symbolic::expression e : d_.strides(d_.tensors[t])) collect(e, symbol_used);
    }
    for (const block_plan& b : plan_.blocks) {
      if (b.role == block_role::unused) continue;
      collect(b.extent, b.role == block_role::grid ? grid_used : symbol_used);
      if (b.block_size == 0) collect(b.block_size_expression, symbol_used);
    }
    for (const device_ir::symbol_declaration& s : d_.declarations) {
      if (s.from != device_ir::symbol_declaration::origin::parameter) continue;
      if (symbol_used[symbol_index(s.id)]) plan_.parameters.push_back(s.id);
      else if (grid_used[symbol_index(s.id)]) plan_.grid_parameters.push_back(s.id);
    }
    // A block size that only the host knows is a parameter under the name of its symbol.
    for (const block_plan& b : plan_.blocks)
      if (b.role != block_role::unused && b.block_size == 0 && b.variable != symbolic::no_symbol &&
          d_.find_declaration(b.variable) == nullptr)
        plan_.parameters.push_back(b.variable);
  }

  bool is_wide(const device_ir::host_tensor& t) const {
    if (plan_.index_dtype == dtype::i64) return true;
    const std::span<const symbolic::expression> sizes = d_.sizes(t);
    const std::span<const symbolic::expression> strides = d_.strides(t);
    double last = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::optional<number> size = d_.symbols.evaluate(sizes[i], plan_.known);
      const std::optional<number> stride = d_.symbols.evaluate(strides[i], plan_.known);
      if (!size || !stride) return false;
      // A tile's last lanes may lie a block beyond the end; the size rounded up to a power of two covers that.
      last += std::max(0.0, size->as_real() * 2) * std::max(0.0, stride->as_real());
    }
    return last / 2 >= static_cast<double>(std::numeric_limits<std::int32_t>::max());
  }
};

} // namespace

std::vector<std::int64_t> resolve_block_sizes(const document& d, const device_ir::config& config) {
  std::int32_t highest = -1;
  for (const device_ir::block& b : d.blocks) highest = std::max(highest, b.id);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(highest + 1), 0);
  std::vector<std::int64_t> declared;
  std::vector<std::int32_t> tiles;
  std::vector<std::int32_t> reductions;
  for (const device_ir::block& b : d.blocks) {
    std::int64_t value = 0;
    if (b.block_size != symbolic::no_expression)
      if (const std::optional<number> v = d.symbols.evaluate(b.block_size); v && v->is_integer) value = v->integer;
    if (value < 0)
      throw DeviceIRError(d.file, b.line, 1, d.source_text_line(b.line),
                          fmt::format("block {} has the negative block size {}", b.id, value));
    sizes[at_index(b.id)] = value;
    if (b.is_reduction) reductions.push_back(b.id);
    else tiles.push_back(b.id);
  }
  if (&config == &d.config || config.block_sizes == d.config.block_sizes) return sizes;
  // The config's list leaves out blocks whose size the kernel fixed. Which those are shows in the document's own config:
  // its list is matched against the declared sizes in order.
  std::vector<std::int32_t> tuned;
  std::size_t next = 0;
  for (const std::int32_t id : tiles) {
    const std::size_t left = tiles.size() - static_cast<std::size_t>(&id - tiles.data());
    const bool must = d.config.block_sizes.size() - next == left;
    if (next < d.config.block_sizes.size() && (must || sizes[at_index(id)] == d.config.block_sizes[next])) {
      tuned.push_back(id);
      ++next;
    }
  }
  if (tuned.size() != config.block_sizes.size())
    throw DeviceIRError(
        d.file, 0, 0, {},
        fmt::format("the config has {} block_sizes, the kernel has {} tunable blocks", config.block_sizes.size(), tuned.size()));
  for (std::size_t i = 0; i < tuned.size(); ++i) {
    if (config.block_sizes[i] < 1)
      throw DeviceIRError(d.file, 0, 0, {}, fmt::format("block_sizes[{}] is {}: expected a positive number", i, config.block_sizes[i]));
    sizes[at_index(tuned[i])] = config.block_sizes[i];
  }
  return sizes;
}

bool kernel_plan::is_real(symbolic::expression e) const noexcept {
  const symbolic::pool& pool = source->symbols;
  switch (pool.kind_of(e)) {
  case symbolic::kind::real:
  case symbolic::kind::divide:
  case symbolic::kind::float_true_div:
  case symbolic::kind::to_float: return true;
  case symbolic::kind::symbol: return real_symbol[symbol_index(pool.symbol_of(e))];
  default: break;
  }
  if (pool.kind_of(e) >= symbolic::kind::equal && pool.kind_of(e) <= symbolic::kind::logical_not) return false;
  for (const symbolic::expression operand : pool.operands(e))
    if (is_real(operand)) return true;
  return false;
}

std::vector<symbolic::symbol> launch_symbols(const kernel_plan& plan) {
  std::vector<symbolic::symbol> all;
  const auto has = [](const std::vector<symbolic::symbol>& list, symbolic::symbol s) {
    return std::find(list.begin(), list.end(), s) != list.end();
  };
  for (const device_ir::symbol_declaration& s : plan.source->declarations)
    if (has(plan.parameters, s.id) || has(plan.grid_parameters, s.id)) all.push_back(s.id);
  for (const symbolic::symbol s : plan.parameters)
    if (!has(all, s)) all.push_back(s);
  return all;
}

void make_plan(kernel_plan& into, const document& d, const device_ir::config& config) { planner(into, d, config).run(); }

} // namespace muster::codegen
