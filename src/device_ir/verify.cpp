module;
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module muster.device_ir;

#include "storage.hpp"

namespace muster::device_ir {

namespace {

constexpr std::string_view get_symnode_target = "helion_language__tracing_ops__get_symnode";
constexpr std::string_view host_tensor_target = "helion_language__tracing_ops__host_tensor";
constexpr std::string_view for_loop_target = "helion_language__tracing_ops__for_loop";
constexpr std::string_view for_loop_step_target = "helion_language__tracing_ops__for_loop_step";
constexpr std::string_view if_target = "helion_language__tracing_ops__if";
constexpr std::string_view while_loop_target = "helion_language__tracing_ops__while_loop";
constexpr std::string_view associative_scan_target = "helion_language_scan_ops__associative_scan";
constexpr std::string_view reduce_target = "helion_language_reduce_ops__reduce";
constexpr std::string_view full_target = "helion_language_creation_ops_full";
constexpr std::string_view convert_target = "torch.ops.prims.convert_element_type.default";

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string counted(std::size_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

bool is_list(const argument& a) { return a.what == argument::kind::list || a.what == argument::kind::tuple; }

/// Checks a document from its header down to the arguments; the first fault is thrown.
class verifier {
public:
  explicit verifier(const document& d) : d_(d), tensors_(d.tensors.size()), names_(most_names(d)) {}

  void verify() {
    if (d_.kernel.empty()) fail("the document names no kernel");
    number(d_.blocks, blocks_);
    number(d_.graphs, graphs_);
    declare_symbols();
    verify_tensors();
    verify_declarations();
    verify_blocks();
    verify_graph_headers();
    for (const graph& g : d_.graphs) verify_graph(g);
    verify_nesting();
  }

private:
  // ---- Faults ----

  [[noreturn]] void fail(std::string_view message) const { throw DeviceIRError(d_.file, 0, 0, "", message); }

  /// At a word of a line where it can be found there, else at the line's start.
  [[noreturn]] void fail(std::uint32_t line, std::string_view word, std::string_view message) const {
    const std::string_view text = d_.source_text_line(line);
    std::size_t column = 1;
    if (word.data() >= text.data() && word.data() <= text.data() + text.size())
      column += static_cast<std::size_t>(
          std::count_if(text.data(), word.data(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    throw DeviceIRError(d_.file, line, column, text, message);
  }

  [[noreturn]] void fail(const node& n, std::string_view message) const { throw d_.error_at(n, message); }

  // ---- Rows by their numbers: a document may be full of calls and blocks, and must not take quadratic time ----

  using row_of_number = std::vector<std::pair<std::int64_t, std::uint32_t>>;

  template <class Rows> static void number(const Rows& rows, row_of_number& into) {
    into.reserve(rows.size());
    for (std::uint32_t i = 0; i < rows.size(); ++i) into.emplace_back(rows[i].id, i);
    std::ranges::sort(into);
  }

  /// The first row of that number, as the document's own look-ups give.
  template <class Rows> static auto find(const Rows& rows, const row_of_number& in, std::int64_t id) -> decltype(&rows[0]) {
    const auto found = std::ranges::lower_bound(in, std::pair(id, std::uint32_t{0}));
    return found == in.end() || found->first != id ? nullptr : &rows[found->second];
  }

  [[nodiscard]] const block* find_block(std::int64_t id) const { return find(d_.blocks, blocks_, id); }
  [[nodiscard]] const graph* find_graph(std::int64_t id) const { return find(d_.graphs, graphs_, id); }

  // ---- The header ----

  void declare_symbols() {
    known_.assign(d_.symbols.symbol_count(), false);
    verified_.assign(d_.symbols.size(), false);
    for (const symbol_declaration& s : d_.declarations) {
      if (s.id == symbolic::no_symbol) fail(s.line, {}, "a symbol without a name");
      known_[static_cast<std::size_t>(s.id)] = true;
    }
    // A block size that nothing declares is the caller's to say. A statement whose type is a symbol says what that is.
    for (const block& b : d_.blocks)
      for (const expression e : {b.variable, b.block_size}) know_symbol(e);
    for (const node& n : d_.nodes)
      if (!n.is_parameter && n.type.what == type::kind::symbolic && n.target != get_symnode_target) know_symbol(n.type.value);
  }

  void know_symbol(expression e) {
    if (e != no_expression && d_.symbols.kind_of(e) == symbolic::kind::symbol)
      known_[static_cast<std::size_t>(d_.symbols.symbol_of(e))] = true;
  }

  /// The first symbol in the expression that nothing declares. Every expression is looked at once.
  std::optional<symbol> undeclared(expression e) {
    if (e == no_expression || verified_[static_cast<std::size_t>(e)]) return std::nullopt;
    if (d_.symbols.kind_of(e) == symbolic::kind::symbol && !known_[static_cast<std::size_t>(d_.symbols.symbol_of(e))])
      return d_.symbols.symbol_of(e);
    for (const expression operand : d_.symbols.operands(e))
      if (const auto s = undeclared(operand)) return s;
    verified_[static_cast<std::size_t>(e)] = true;
    return std::nullopt;
  }

  [[nodiscard]] std::string undeclared_message(symbol s) const {
    return "the symbol " + quoted(d_.symbols.name(s)) + " is neither declared nor a block's variable";
  }

  void check_symbols(std::uint32_t line, std::string_view word, std::span<const expression> all) {
    for (const expression e : all)
      if (const auto s = undeclared(e)) fail(line, word, undeclared_message(*s));
  }

  void verify_tensors() {
    tensors_.clear();
    for (const host_tensor& t : d_.tensors) {
      const auto row = static_cast<std::uint32_t>(&t - d_.tensors.data());
      if (tensors_.set(t.name, row) != absent) fail(t.line, t.name, "host tensor " + quoted(t.name) + " is declared twice");
      if (t.sizes.count != t.strides.count)
        fail(t.line, t.name,
             "host tensor " + quoted(t.name) + " has " + counted(t.sizes.count, "size") + " and " + counted(t.strides.count, "stride"));
      check_symbols(t.line, t.name, d_.sizes(t));
      check_symbols(t.line, t.name, d_.strides(t));
    }
  }

  void verify_declarations() {
    std::vector<bool> seen(d_.symbols.symbol_count());
    for (const symbol_declaration& s : d_.declarations) {
      const std::string_view name = d_.symbols.name(s.id);
      if (seen[static_cast<std::size_t>(s.id)]) fail(s.line, {}, "symbol " + quoted(name) + " is declared twice");
      seen[static_cast<std::size_t>(s.id)] = true;
      if (s.from != symbol_declaration::origin::parameter && find_block(s.block) == nullptr)
        fail(s.line, {}, "symbol " + quoted(name) + " is of block " + std::to_string(s.block) + ", which is not declared");
    }
  }

  void verify_blocks() {
    for (const block& b : d_.blocks) {
      const std::string name = "block " + std::to_string(b.id);
      if (find_block(b.id) != &b) fail(b.line, {}, name + " is declared twice");
      if (b.variable == no_expression) fail(b.line, {}, name + " has no variable");
      check_symbols(b.line, {}, std::array{b.variable, b.size, b.block_size});
      const symbolic::kind variable = d_.symbols.kind_of(b.variable);
      if (!b.is_reduction && variable != symbolic::kind::symbol && variable != symbolic::kind::integer)
        fail(b.line, {},
             name + " is tiled, and its variable " + quoted(d_.symbols.to_string(b.variable)) +
                 " is an expression: expected a symbol of its own, with the expression as block_size");
      for (const std::int32_t parent : b.jagged_parents) {
        if (parent == b.id) fail(b.line, {}, name + " is its own jagged parent");
        if (find_block(parent) == nullptr)
          fail(b.line, {}, name + " has the jagged parent " + std::to_string(parent) + ", which is not declared");
      }
    }
  }

  void verify_graph_headers() {
    graph_of_block_.assign(d_.blocks.size(), nullptr);
    names_.clear();
    bool has_root = false;
    for (const graph& g : d_.graphs) {
      const auto row = static_cast<std::uint32_t>(&g - d_.graphs.data());
      if (names_.set(g.name, row) != absent) fail(g.line, g.name, "graph " + quoted(g.name) + " is defined twice");
      if (!g.declared) fail(g.line, g.name, "graph " + quoted(g.name) + " has no root, loop, branch or helper line in the header");
      if (const graph* other = find_graph(g.id); other != &g)
        fail(g.line, g.name, "graphs " + quoted(other->name) + " and " + quoted(g.name) + " have the same number " + std::to_string(g.id));
      has_root = has_root || g.what == graph::kind::root;
      if (g.what == graph::kind::root && g.parameters.count != 0) fail(g.line, g.name, "root graph " + quoted(g.name) + " has parameters");
      verify_graph_blocks(g);
    }
    if (!has_root) fail("the document has no root graph");
  }

  void verify_graph_blocks(const graph& g) {
    for (std::size_t i = 0; i < g.blocks.size(); ++i) {
      const std::string name = "block " + std::to_string(g.blocks[i]);
      const block* b = find_block(g.blocks[i]);
      if (b == nullptr) fail(g.header_line, {}, "graph " + quoted(g.name) + " iterates over " + name + ", which is not declared");
      if (std::find(g.blocks.begin(), g.blocks.begin() + static_cast<std::ptrdiff_t>(i), g.blocks[i]) !=
          g.blocks.begin() + static_cast<std::ptrdiff_t>(i))
        fail(g.header_line, {}, "graph " + quoted(g.name) + " iterates over " + name + " twice");
      if (g.what != graph::kind::root) continue;
      const graph*& owner = graph_of_block_[static_cast<std::size_t>(b - d_.blocks.data())];
      if (owner != nullptr) fail(g.header_line, {}, name + " is in the grids of both " + quoted(owner->name) + " and " + quoted(g.name));
      owner = &g;
    }
  }

  // ---- Nodes ----

  void verify_graph(const graph& g) {
    if (g.parameters.first + g.parameters.count != g.nodes.first || g.nodes.first + std::size_t{g.nodes.count} > d_.nodes.size())
      fail(g.line, g.name, "the nodes of graph " + quoted(g.name) + " do not stand behind its parameters");
    graph_ = &g;
    names_.clear();
    for (std::uint32_t i = g.parameters.first; i < g.nodes.first + g.nodes.count; ++i) {
      const node& n = d_.nodes[i];
      if (n.is_parameter != (i < g.nodes.first))
        fail(n, n.is_parameter ? "a parameter behind the graph's first statement" : "a statement among the parameters");
      here_ = i;
      verify_node(n);
      if (names_.set(n.name, i) != absent) fail(n, "the name " + quoted(n.name) + " is defined twice in graph " + quoted(g.name));
    }
    here_ = g.nodes.first + g.nodes.count;
    if (!verify_argument(g.result, 0)) fail(g.line, g.name, "graph " + quoted(g.name) + " returns a value that it does not define");
  }

  void verify_node(const node& n) {
    verify_type(n);
    if (n.is_parameter) return;
    if (n.target.empty()) fail(n, "a statement without a target");
    for (const argument& a : d_.arguments_of(n))
      if (!verify_argument(a, 0)) fail(n, used_before_defined(n));
    for (const keyword& k : d_.keywords_of(n))
      if (!verify_argument(k.value, 0)) fail(n, used_before_defined(n));
    verify_call(n);
    verify_dtype(n);
  }

  static std::string used_before_defined(const node& n) {
    return quoted(n.name) + " uses a value that is not defined before it in its graph";
  }

  void verify_type(const node& n) {
    if (n.type.what == type::kind::symbolic) {
      if (const auto s = undeclared(n.type.value)) fail(n, undeclared_message(*s));
    } else if (n.type.what == type::kind::tensor) {
      for (const expression e : d_.sizes(n.type))
        if (const auto s = undeclared(e)) fail(n, undeclared_message(*s));
    }
  }

  /// Whether every node in it stands before the current one in the same graph.
  [[nodiscard]] bool verify_argument(const argument& a, std::size_t depth) const {
    if (a.what == argument::kind::node) return index(a.node) >= graph_->parameters.first && index(a.node) < here_;
    if (a.items.count == 0) return true;
    if (depth > limits::argument_depth || a.items.first + std::size_t{a.items.count} > d_.arguments.size()) return false;
    return std::ranges::all_of(d_.items(a), [&](const argument& item) { return verify_argument(item, depth + 1); });
  }

  // ---- Calls of graphs ----

  void verify_call(const node& n) {
    if (n.target.size() < 2) return;
    if (n.target == for_loop_target || n.target == for_loop_step_target) return verify_for_loop(n);
    if (n.target == if_target) return verify_if(n);
    if (n.target == while_loop_target) return verify_while_loop(n);
    if (n.target == associative_scan_target || n.target == reduce_target) return verify_combine(n);
    if (n.target == getitem_target) return verify_item(n);
    if (n.target == host_tensor_target) return verify_host_tensor(n);
  }

  [[nodiscard]] const argument& argument_at(const node& n, std::size_t i, std::string_view what) const {
    const std::span<const argument> all = d_.arguments_of(n);
    if (i >= all.size()) fail(n, quoted(n.name) + " lacks its argument " + std::to_string(i + 1) + ", " + std::string(what));
    return all[i];
  }

  [[nodiscard]] const graph& graph_at(const node& n, std::size_t i, graph::kind kind) {
    const argument& a = argument_at(n, i, "the number of a graph");
    if (a.what != argument::kind::integer)
      fail(n, "argument " + std::to_string(i + 1) + " of " + quoted(n.name) + " is not the number of a graph");
    const graph* g = find_graph(a.integer);
    if (g == nullptr) fail(n, quoted(n.name) + " runs graph " + std::to_string(a.integer) + ", which does not exist");
    if (g->what != kind)
      fail(n, quoted(n.name) + " runs graph " + quoted(g->name) + ", which is a " + std::string(word(g->what)) + ", not a " +
                  std::string(word(kind)));
    calls_.push_back({graph_, g, &n});
    return *g;
  }

  [[nodiscard]] std::size_t length_at(const node& n, std::size_t i, std::string_view what) const {
    const argument& a = argument_at(n, i, what);
    if (!is_list(a)) fail(n, "argument " + std::to_string(i + 1) + " of " + quoted(n.name) + " must be a list, " + std::string(what));
    return a.items.count;
  }

  void check_parameters(const node& n, const graph& g, std::size_t given) const {
    if (given == g.parameters.count) return;
    fail(n, quoted(n.name) + " passes " + counted(given, "value") + " to graph " + quoted(g.name) + ", which has " +
                counted(g.parameters.count, "parameter"));
  }

  void verify_for_loop(const node& n) {
    const graph& g = graph_at(n, 0, graph::kind::loop);
    const std::size_t begins = length_at(n, 1, "where each block's loop begins");
    const std::size_t ends = length_at(n, 2, "where each block's loop ends");
    if (begins != g.blocks.size() || ends != g.blocks.size())
      fail(n, quoted(n.name) + " has " + counted(begins, "begin") + " and " + counted(ends, "end") + " for the " +
                  counted(g.blocks.size(), "block") + " of graph " + quoted(g.name));
    check_parameters(n, g, length_at(n, 3, "the values that the loop carries"));
  }

  void verify_if(const node& n) {
    (void)argument_at(n, 0, "the condition");
    const graph& then_graph = graph_at(n, 1, graph::kind::branch);
    const graph& else_graph = graph_at(n, 2, graph::kind::branch);
    check_parameters(n, then_graph, length_at(n, 3, "the values of the branch"));
    check_parameters(n, else_graph, length_at(n, 4, "the values of the else branch"));
  }

  void verify_while_loop(const node& n) {
    const graph& condition = graph_at(n, 0, graph::kind::branch);
    const graph& body = graph_at(n, 1, graph::kind::branch);
    const std::size_t given = length_at(n, 2, "the values that the loop carries");
    check_parameters(n, condition, given);
    check_parameters(n, body, given);
  }

  void verify_combine(const node& n) {
    const graph& g = graph_at(n, 0, graph::kind::helper);
    const argument& input = argument_at(n, 1, "the operands");
    const std::size_t operands = is_list(input) ? input.items.count : 1;
    if (g.parameters.count != operands * 2)
      fail(n, quoted(n.name) + " combines " + counted(operands, "operand") + " with graph " + quoted(g.name) + ", which has " +
                  counted(g.parameters.count, "parameter") + ": expected two an operand");
    if (results_of(g) != operands)
      fail(n, quoted(n.name) + " combines " + counted(operands, "operand") + " with graph " + quoted(g.name) + ", which returns " +
                  counted(results_of(g), "value"));
  }

  [[nodiscard]] static std::size_t results_of(const graph& g) {
    if (is_list(g.result)) return g.result.items.count;
    return g.result.what == argument::kind::none ? 0 : 1;
  }

  /// `_for_loop[i]`: what the graph returns must have an i.
  void verify_item(const node& n) const {
    const argument& from = argument_at(n, 0, "the value");
    const argument& item = argument_at(n, 1, "the index");
    if (from.what != argument::kind::node || item.what != argument::kind::integer) return;
    const std::optional<std::size_t> count = result_count(d_.at(from.node));
    if (!count || (item.integer >= 0 && static_cast<std::uint64_t>(item.integer) < *count)) return;
    fail(n, quoted(n.name) + " is value " + std::to_string(item.integer) + " of " + quoted(d_.at(from.node).name) + ", which has " +
                counted(*count, "value"));
  }

  /// How many values a call of a graph has, if the node is one. Those of an `if` are its branches' and, where a branch
  /// gives none, what was passed in: only a bound can be told.
  [[nodiscard]] std::optional<std::size_t> result_count(const node& n) const {
    const std::span<const argument> arguments = d_.arguments_of(n);
    const auto results_at = [&](std::size_t i) { return results_of(*find_graph(arguments[i].integer)); };
    if (n.target == for_loop_target || n.target == for_loop_step_target) return results_at(0);
    if (n.target == associative_scan_target || n.target == reduce_target) return results_at(0);
    if (n.target == while_loop_target) return results_at(1);
    if (n.target == if_target) return results_at(1) + results_at(2) + arguments[3].items.count + arguments[4].items.count;
    return std::nullopt;
  }

  // ---- Types that the format fixes ----

  void verify_host_tensor(const node& n) const {
    const argument& name = argument_at(n, 0, "the host tensor's name");
    if (name.what != argument::kind::string) fail(n, quoted(n.name) + " must name its host tensor with a string");
    const std::uint32_t found = tensors_.find(name.text);
    if (found == absent) fail(n, "host tensor " + quoted(name.text) + " is not declared in the header");
    const host_tensor& t = d_.tensors[found];
    if (n.type.what == type::kind::none) return;
    if (n.type.what != type::kind::tensor || n.type.element != t.element || !std::ranges::equal(d_.sizes(n.type), d_.sizes(t)))
      fail(n, "the type of " + quoted(n.name) + " is not that of host tensor " + quoted(t.name) + ", " + spelled(t));
  }

  [[nodiscard]] std::string spelled(const host_tensor& t) const {
    std::string text(name(t.element));
    for (const expression e : d_.sizes(t)) text += (text.ends_with(name(t.element)) ? "[" : ", ") + d_.symbols.to_string(e);
    return text + (t.sizes.count == 0 ? "[]" : "]");
  }

  /// A data type among the arguments that is the result's: `full(…, dtype)`, `convert_element_type(x, dtype)`, `dtype = …`.
  void verify_dtype(const node& n) const {
    if (n.type.what != type::kind::tensor) return;
    const std::span<const argument> arguments = d_.arguments_of(n);
    const argument* given = nullptr;
    if (n.target == convert_target) given = &argument_at(n, 1, "the data type");
    else if (n.target == full_target && arguments.size() > 2) given = &arguments[2];
    else if (n.keywords.count != 0) given = d_.find_keyword(n, "dtype");
    if (given == nullptr || given->what != argument::kind::dtype || given->element == n.type.element) return;
    fail(n, quoted(n.name) + " is declared " + std::string(name(n.type.element)) + ", but made as torch." +
                std::string(torch_name(given->element)));
  }

  // ---- Nesting ----

  struct graph_call {
    const graph* from;
    const graph* to;
    const node* at;
  };

  /// No graph may run itself, directly or through others. Graphs without open calls are taken away until none is left.
  void verify_nesting() const {
    std::vector<std::size_t> open(d_.graphs.size());
    const auto row = [this](const graph* g) { return static_cast<std::size_t>(g - d_.graphs.data()); };
    std::vector<std::vector<std::size_t>> callers(d_.graphs.size());
    for (const graph_call& c : calls_) {
      ++open[row(c.from)];
      callers[row(c.to)].push_back(row(c.from));
    }
    std::vector<std::size_t> done;
    for (std::size_t i = 0; i < open.size(); ++i)
      if (open[i] == 0) done.push_back(i);
    for (std::size_t next = 0; next < done.size(); ++next)
      for (const std::size_t caller : callers[done[next]])
        if (--open[caller] == 0) done.push_back(caller);
    if (done.size() == d_.graphs.size()) return;
    fail_at_cycle(open);
  }

  /// Every open graph has a call of an open one: follows such calls until a graph comes again.
  [[noreturn]] void fail_at_cycle(const std::vector<std::size_t>& open) const {
    const auto row = [this](const graph* g) { return static_cast<std::size_t>(g - d_.graphs.data()); };
    std::vector<const graph_call*> next(d_.graphs.size());
    const graph* at = nullptr;
    for (const graph_call& c : calls_) {
      if (open[row(c.from)] == 0 || open[row(c.to)] == 0) continue;
      next[row(c.from)] = &c;
      at = c.from;
    }
    std::vector<bool> seen(d_.graphs.size());
    for (; !seen[row(at)]; at = next[row(at)]->to) seen[row(at)] = true;
    const graph_call& call = *next[row(at)];
    fail(*call.at, "graph " + quoted(at->name) + " runs itself" + (call.to == at ? "" : ", through " + quoted(call.to->name)));
  }

  /// The most names that one scope has.
  static std::size_t most_names(const document& d) {
    std::size_t most = d.graphs.size();
    for (const graph& g : d.graphs) most = std::max<std::size_t>(most, std::size_t{g.parameters.count} + g.nodes.count);
    return std::min(most, d.nodes.size() + d.graphs.size());
  }

  static constexpr std::uint32_t absent = text_index<false>::absent;

  const document& d_;
  std::vector<bool> known_;    ///< by symbol: something declares it
  std::vector<bool> verified_; ///< by expression: all its symbols are known
  row_of_number blocks_;
  row_of_number graphs_;
  text_index<false> tensors_;
  text_index<false> names_;
  std::vector<const graph*> graph_of_block_;
  std::vector<graph_call> calls_;
  const graph* graph_ = nullptr;
  std::uint32_t here_ = 0; ///< the node being looked at
};

} // namespace

void verify(const document& d) { verifier(d).verify(); }

} // namespace muster::device_ir
