module;
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.check;

import muster.error;
import muster.operations;

namespace muster::check {

using device_ir::document;
using device_ir::node_id;
using interpret::open_tile;
using memory = std::vector<std::vector<std::byte>>;
/// A program: its root graph, and where the tiles of its grid begin, by block id.
using program_key = std::pair<std::size_t, std::vector<std::int64_t>>;

namespace {

memory copy(std::span<const std::span<const std::byte>> inputs) {
  memory all;
  for (const auto& i : inputs) all.emplace_back(i.begin(), i.end());
  return all;
}

std::vector<std::span<std::byte>> spans(memory& m) { return {m.begin(), m.end()}; }

std::vector<void*> addresses(memory& m) {
  std::vector<void*> all;
  for (auto& t : m) all.push_back(t.data());
  return all;
}

std::vector<scalar> arguments(const compiled_kernel& k, const document& d, std::span<const std::optional<symbolic::number>> values) {
  std::vector<scalar> all;
  for (const std::string& name : k.symbol_names()) {
    const auto s = d.symbols.find_symbol(name);
    const auto i = s ? static_cast<std::size_t>(*s) : values.size();
    if (i >= values.size() || !values[i]) throw Error(fmt::format("The symbol '{}' has no value", name));
    const device_ir::symbol_declaration* const declared = d.find_declaration(*s);
    scalar to{};
    if (declared != nullptr && declared->is_float) to.real = values[i]->as_real();
    else to.integer = values[i]->integer;
    all.push_back(to);
  }
  return all;
}

program_key program_of(const document& d, std::size_t root, std::span<const open_tile> tiles) {
  program_key key{root, {}};
  for (const open_tile& t : tiles)
    if (std::ranges::find(d.graphs[root].blocks, t.block) != d.graphs[root].blocks.end()) key.second.push_back(t.begin);
  return key;
}

std::uint64_t mixed(std::uint64_t h, std::int64_t with) {
  h = (h ^ static_cast<std::uint64_t>(with)) * 0x9e3779b97f4a7c15ULL;
  return h ^ (h >> 29U);
}

/// What the kernel computed, by node, program, tile and position.
class recording {
public:
  recording(const std::set<program_key>& programs, std::size_t limit) : programs_(programs), limit_(limit) {}

  muster::recorder hooks() {
    return {.context = this,
            .program =
                [](void* self, std::int64_t graph, const std::int64_t* begins, std::int64_t count) {
                  recording& r = *static_cast<recording*>(self);
                  r.active_ = r.programs_.contains({static_cast<std::size_t>(graph), {begins, begins + count}});
                  r.root_ = graph;
                },
            .element =
                [](void* self, std::int64_t node, std::int64_t steps, const std::int64_t* where, std::int64_t count, double real,
                   std::int64_t integer) {
                  recording& r = *static_cast<recording*>(self);
                  if (!r.active_) return;
                  if (r.all_.size() >= r.limit_) {
                    r.complete_ = false;
                    return;
                  }
                  std::uint64_t h = start(r.root_, node, steps);
                  for (std::int64_t i = 0; i < count; ++i) h = mixed(h, where[i]);
                  r.all_.push_back({h, real, integer, r.all_.size()});
                }};
  }

  struct element {
    std::uint64_t key = 0;
    double real = 0;
    std::int64_t integer = 0;
    std::size_t order = 0;
  };

  static std::uint64_t start(std::int64_t root, std::int64_t node, std::int64_t steps) { return mixed(mixed(mixed(0, root), node), steps); }

  /// Behind the last element, ahead of `find`.
  void close() {
    std::ranges::sort(all_, [](const element& a, const element& b) { return a.key != b.key ? a.key < b.key : a.order < b.order; });
  }

  /// What was computed there last, or null.
  [[nodiscard]] const element* find(std::uint64_t key) const {
    const auto behind = std::ranges::upper_bound(all_, key, {}, &element::key);
    return behind == all_.begin() || (behind - 1)->key != key ? nullptr : &*(behind - 1);
  }

  [[nodiscard]] bool complete() const noexcept { return complete_; }

private:
  const std::set<program_key>& programs_;
  std::size_t limit_;
  std::vector<element> all_;
  std::int64_t root_ = 0;
  bool active_ = false;
  bool complete_ = true;
};

/// What decides which of a document's nodes can be compared, and how.
struct facts {
  std::vector<std::size_t> graph_of;    ///< by node
  std::vector<bool> stepped;            ///< by graph: inside a while loop
  std::vector<std::vector<std::size_t>> called; ///< by node: the loop's or branch's graphs
  std::vector<std::vector<std::int32_t>> rolled; ///< by graph: blocks of the rolled reductions around it
};

facts facts_of(const document& d) {
  facts f;
  f.graph_of.resize(d.nodes.size());
  f.called.resize(d.nodes.size());
  f.stepped.assign(d.graphs.size(), false);
  f.rolled.resize(d.graphs.size());
  for (std::size_t g = 0; g < d.graphs.size(); ++g) {
    const device_ir::graph& body = d.graphs[g];
    for (std::uint32_t i = 0; i < body.parameters.count; ++i) f.graph_of[body.parameters.first + i] = g;
    for (std::uint32_t i = 0; i < body.nodes.count; ++i) f.graph_of[body.nodes.first + i] = g;
  }
  std::vector<bool> known(d.graphs.size());
  for (std::size_t g = 0; g < d.graphs.size(); ++g)
    if (d.graphs[g].what == device_ir::graph::kind::root) known[g] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < d.nodes.size(); ++i) {
      const auto o = operation_named(d.nodes[i].target);
      const std::size_t owner = f.graph_of[i];
      if (!o || !known[owner]) continue;
      const auto a = d.arguments_of(d.nodes[i]);
      const bool loop = *o == operation::for_loop || *o == operation::for_loop_step;
      const std::size_t first = *o == operation::if_ ? 1 : 0;
      const std::size_t count = loop ? 1 : *o == operation::while_loop || *o == operation::if_ ? 2 : 0;
      for (std::size_t k = first; k < first + count && k < a.size(); ++k) {
        const device_ir::graph* const g = d.find_graph(a[k].integer);
        if (g == nullptr) continue;
        const auto at = static_cast<std::size_t>(g - d.graphs.data());
        if (known[at]) continue;
        f.called[i].push_back(at);
        known[at] = changed = true;
        f.stepped[at] = f.stepped[owner] || *o == operation::while_loop;
        f.rolled[at] = f.rolled[owner];
        if (loop)
          for (const std::int32_t id : g->blocks) {
            const device_ir::block* const b = d.find_block(id);
            if (b != nullptr && b->is_reduction) f.rolled[at].push_back(id);
          }
      }
    }
  }
  return f;
}

template <class Visit> void visit_nodes(const document& d, const device_ir::argument& a, const Visit& visit) {
  using kind = device_ir::argument::kind;
  if (a.what == kind::node) visit(a.node);
  if (a.what == kind::list || a.what == kind::tuple)
    for (const device_ir::argument& item : d.items(a)) visit_nodes(d, item, visit);
}

/// By node: the element type whose tolerance it has. A value that was rounded to a narrow type may be its neighbour there in the
/// kernel, and what is computed from it is no nearer; what is loaded from a tensor that the kernel does not write is exact.
std::vector<dtype> precision_of(const document& d, const facts& f) {
  std::vector<bool> written(d.tensors.size());
  const auto tensor_of = [&](const device_ir::node& n) -> std::size_t {
    const auto a = d.arguments_of(n);
    if (a.empty() || a[0].what != device_ir::argument::kind::node) return d.tensors.size();
    const auto from = d.arguments_of(d.at(a[0].node));
    const device_ir::host_tensor* const t = from.empty() ? nullptr : d.find_tensor(from[0].text);
    return t == nullptr ? d.tensors.size() : static_cast<std::size_t>(t - d.tensors.data());
  };
  for (const device_ir::node& n : d.nodes) {
    const auto o = operation_named(n.target);
    const bool writes = o && (*o == operation::store || information(*o).category == operation_category::atomic);
    if (const std::size_t t = writes ? tensor_of(n) : d.tensors.size(); t < d.tensors.size()) written[t] = true;
  }
  std::vector<dtype> of(d.nodes.size(), dtype::i64); // whose tolerance is none
  const auto lower = [&](dtype& to, dtype from) {
    if (tolerance_of(from) <= tolerance_of(to)) return false;
    to = from;
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < d.nodes.size(); ++i) {
      const device_ir::node& n = d.nodes[i];
      const auto o = operation_named(n.target);
      if (n.is_parameter || !o) continue;
      const bool exact =
          *o == operation::host_tensor || (*o == operation::load && tensor_of(n) < d.tensors.size() && !written[tensor_of(n)]);
      if (!exact && n.type.what == device_ir::type::kind::tensor) changed = lower(of[i], n.type.element) || changed;
      for (const device_ir::argument& a : d.arguments_of(n))
        visit_nodes(d, a, [&](node_id m) { changed = lower(of[i], of[device_ir::index(m)]) || changed; });
      for (const device_ir::keyword& k : d.keywords_of(n))
        visit_nodes(d, k.value, [&](node_id m) { changed = lower(of[i], of[device_ir::index(m)]) || changed; });
      for (const std::size_t graph : f.called[i]) { // what goes in, goes around, and comes out
        const device_ir::graph& g = d.graphs[graph];
        visit_nodes(d, g.result, [&](node_id m) { changed = lower(of[i], of[device_ir::index(m)]) || changed; });
        for (std::uint32_t p = g.parameters.first; p < g.parameters.first + g.parameters.count; ++p)
          changed = lower(of[p], of[i]) || changed;
      }
    }
  }
  return of;
}

/// Whether a node's value is the same whenever and in whatever pieces it is computed: not what an atomic operation found, nor
/// what a rolled reduction has of one piece.
bool comparable(const document& d, const facts& f, const interpret::node_value& v) {
  const auto o = operation_named(d.at(v.node).target);
  if (!o || !v.element || information(*o).category == operation_category::atomic) return false;
  for (const std::int32_t block : f.rolled[f.graph_of[device_ir::index(v.node)]]) {
    const device_ir::block* const b = d.find_block(block);
    const auto sizes = d.sizes(d.at(v.node).type);
    if (b == nullptr || std::ranges::find(sizes, b->variable) == sizes.end()) return false;
  }
  return true;
}

class comparison {
public:
  comparison(const document& d, const recording& r, const std::set<program_key>& programs)
      : d_(d), facts_(facts_of(d)), precision_(precision_of(d, facts_)), recorded_(r), programs_(programs) {}

  void operator()(const interpret::node_value& v) {
    if (found_[0] || !programs_.contains(program_of(d_, v.root, v.tiles)) || !comparable(d_, facts_, v)) return;
    const std::size_t graph = facts_.graph_of[device_ir::index(v.node)];
    const auto node = static_cast<std::int64_t>(device_ir::index(v.node));
    std::uint64_t base = recording::start(static_cast<std::int64_t>(v.root), node, facts_.stepped[graph] ? v.steps : 0);
    for (const open_tile& t : v.tiles) base = mixed(base, t.begin);
    double largest = 0;
    for (std::size_t i = 0; i < v.count(); ++i)
      if (v.is_valid(i) && std::isfinite(v.real(i))) largest = std::max(largest, std::fabs(v.real(i)));
    std::vector<std::int64_t> at(v.shape.size(), 0);
    for (std::size_t i = 0; i < v.count(); ++i) {
      if (v.is_valid(i)) compare(v, i, at, base, largest);
      for (std::size_t d = at.size(); d > 0; --d) {
        if (++at[d - 1] < v.shape[d - 1]) break;
        at[d - 1] = 0;
      }
    }
  }

  /// Rounding adds up from node to node: one that differs by much comes first.
  [[nodiscard]] std::optional<node_difference> first() const { return found_[0] ? found_[0] : found_[1]; }

private:
  const document& d_;
  facts facts_;
  std::vector<dtype> precision_;
  const recording& recorded_;
  const std::set<program_key>& programs_;
  std::optional<node_difference> found_[2]; ///< beyond many times the tolerance; beyond the tolerance

  void compare(const interpret::node_value& v, std::size_t i, std::span<const std::int64_t> at, std::uint64_t key, double largest) {
    std::vector<std::int64_t> position(at.begin(), at.end());
    for (std::size_t d = 0; d < position.size(); ++d) key = mixed(key, position[d] += v.first[d]);
    const recording::element* const got = recorded_.find(key);
    if (got == nullptr) return;
    const bool whole = !device_ir::is_float(*v.element);
    constexpr double factors[] = {8, 1};
    for (std::size_t k = 0; k < 2; ++k) {
      if (found_[k]) continue;
      const bool same =
          whole ? got->integer == v.integers[i] : within(precision_[device_ir::index(v.node)], got->real, v.real(i), largest, factors[k]);
      if (!same) found_[k] = node_difference{v.node, {v.tiles.begin(), v.tiles.end()}, position, got->real, v.real(i)};
    }
  }
};

compiled_kernel compile_recording(codegen::generator& generator, const document& d, const device_ir::config& config,
                                  const compile_options& how) {
  struct guard {
    codegen::generator& of;
    ~guard() { of.record(false); }
  };
  generator.record(true);
  const guard reset{generator};
  return compile(generator, d, config, how);
}

} // namespace

report kernel(codegen::generator& generator, const document& d, const device_ir::config& config,
              std::span<const std::span<const std::byte>> inputs, std::span<const layout> layouts,
              std::span<const std::optional<symbolic::number>> symbols, const options& how) {
  if (inputs.size() != d.tensors.size() || layouts.size() != d.tensors.size())
    throw Error(fmt::format("The document has {} host tensors, {} were given", d.tensors.size(), inputs.size()));
  generator.record(false);
  const compiled_kernel plain = compile(generator, d, config, how.compile);
  memory got = copy(inputs);
  plain(addresses(got), arguments(plain, d, symbols), how.threads);
  interpret::options interpreted;
  interpreted.block_sizes = codegen::resolve_block_sizes(d, config);
  memory expected = copy(inputs);
  interpret::run(d, spans(expected), symbols, interpreted);
  report result;
  for (std::size_t t = 0; t < d.tensors.size(); ++t) result.tensors.push_back(compare(layouts[t], got[t], expected[t]));
  const bool equal = result.equal();
  if (equal && !how.nodes) return result;

  // Which programs stored what differs, in the order in which they run.
  std::set<program_key> programs;
  std::vector<std::vector<std::int64_t>> differing;
  for (const auto& t : result.tensors) {
    differing.push_back(t ? t->offsets : std::vector<std::int64_t>());
    std::ranges::sort(differing.back());
  }
  interpret::options storing = interpreted;
  storing.on_store = [&](const interpret::stored& s) {
    if (programs.size() >= how.programs) return;
    if (equal || std::ranges::any_of(s.offsets, [&](std::int64_t o) { return std::ranges::binary_search(differing[s.tensor], o); }))
      programs.insert(program_of(d, s.root, s.tiles));
  };
  memory scratch = copy(inputs);
  interpret::run(d, spans(scratch), symbols, storing);
  result.programs = programs.size();

  const compiled_kernel telling = compile_recording(generator, d, config, how.compile);
  recording recorded(programs, how.elements);
  scratch = copy(inputs);
  telling(addresses(scratch), arguments(telling, d, symbols), recorded.hooks());
  recorded.close();
  result.complete = recorded.complete();

  comparison compared(d, recorded, programs);
  interpreted.on_value = [&](const interpret::node_value& v) { compared(v); };
  scratch = copy(inputs);
  interpret::run(d, spans(scratch), symbols, interpreted);
  result.node = compared.first();
  return result;
}

} // namespace muster::check
