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
module muster.interpret;

#include "interpreter.hpp"

namespace muster::interpret {

namespace {

/// A single tensor of a document does not hold more elements than this.
constexpr std::int64_t largest_tensor = std::int64_t{1} << 36U;

} // namespace

machine::machine(const document& d, std::span<const std::span<std::byte>> tensors, std::span<const std::optional<number>> symbols,
                 const options& how)
    : d_(d), tensors_(tensors), how_(how), given_(symbols.begin(), symbols.end()), tiles_(d.blocks.size()), values_(d.nodes.size()),
      graph_of_(d.nodes.size(), 0) {
  if (tensors.size() != d.tensors.size())
    fail(fmt::format("the document has {} host tensors, {} were given", d.tensors.size(), tensors.size()));
  given_.resize(d.symbols.symbol_count());
  for (std::size_t g = 0; g < d.graphs.size(); ++g) {
    const device_ir::graph& body = d.graphs[g];
    for (std::size_t i = 0; i < body.parameters.count; ++i) graph_of_[body.parameters.first + i] = g;
    for (std::size_t i = 0; i < body.nodes.count; ++i) graph_of_[body.nodes.first + i] = g;
  }
  // A reduction over a tile's own dimension shares the tile's symbol, which means the tile.
  block_of_expression_.assign(d.symbols.size(), -1);
  for (std::size_t b = 0; b < d.blocks.size(); ++b) {
    const symbolic::expression v = d.blocks[b].variable;
    if (v == symbolic::no_expression || d.symbols.kind_of(v) != symbolic::kind::symbol) continue;
    std::int64_t& known = block_of_expression_[static_cast<std::size_t>(v)];
    if (known < 0 || !d.blocks[b].is_reduction) known = static_cast<std::int64_t>(b);
  }
  // A block's size may be computed from those of other blocks: as many rounds as there are blocks.
  for (std::size_t round = 0; round <= d.blocks.size(); ++round) {
    set_symbols();
    for (std::size_t e = 0; e < block_of_expression_.size(); ++e)
      if (const std::int64_t b = block_of_expression_[e]; b >= 0) {
        std::optional<number>& size = given_[static_cast<std::size_t>(d.symbols.symbol_of(static_cast<symbolic::expression>(e)))];
        const symbolic::expression declared = d.blocks[static_cast<std::size_t>(b)].block_size;
        const auto at = static_cast<std::size_t>(d.blocks[static_cast<std::size_t>(b)].id);
        if (at < how.block_sizes.size() && how.block_sizes[at] > 0) size = number{.integer = how.block_sizes[at]};
        else if (!size && declared != symbolic::no_expression) size = d.symbols.evaluate(declared, symbols_);
      }
  }
  set_symbols();
  for (std::size_t t = 0; t < d.tensors.size(); ++t) {
    std::int64_t last = 0;
    bool empty = false;
    const auto read = [&](std::span<const symbolic::expression> all, std::vector<std::vector<std::int64_t>>& to) {
      to.emplace_back();
      for (const symbolic::expression e : all) to.back().push_back(evaluate_integer(e));
    };
    read(d.sizes(d.tensors[t]), sizes_);
    read(d.strides(d.tensors[t]), strides_);
    for (std::size_t i = 0; i < sizes_[t].size(); ++i) {
      std::int64_t reach = 0;
      const bool bad = sizes_[t][i] < 0 || strides_[t][i] < 0 || __builtin_mul_overflow(sizes_[t][i] - 1, strides_[t][i], &reach);
      if (bad || reach > largest_tensor) fail(fmt::format("the host tensor '{}' has an impossible size or stride", d.tensors[t].name));
      last += std::max<std::int64_t>(reach, 0);
      empty = empty || sizes_[t][i] == 0;
    }
    const std::size_t bytes =
        empty ? 0 : static_cast<std::size_t>(last + 1) * static_cast<std::size_t>(device_ir::size_of(d.tensors[t].element));
    if (tensors[t].size() < bytes)
      fail(fmt::format("the host tensor '{}' needs {} bytes, {} were given", d.tensors[t].name, bytes, tensors[t].size()));
  }
}

void machine::fail(std::string_view message) const {
  if (current_ == device_ir::no_node) throw DeviceIRError(d_.file, 0, 0, {}, message);
  throw d_.error_at(current(), message);
}

void machine::unsupported(std::string_view reason) const {
  const auto o = operation_named(current().target);
  throw BackendUnsupported("reference interpreter", o ? qualified_name(*o, current().target) : current().target, reason,
                           fmt::format("{}:{}", d_.file, current().line));
}

// -- arguments

const argument* machine::argument_at(std::size_t i) const {
  const auto all = arguments();
  return i < all.size() && all[i].what != argument::kind::none ? &all[i] : nullptr;
}

const argument* machine::keyword(std::string_view name) const {
  const argument* a = d_.find_keyword(current(), name);
  return a != nullptr && a->what != argument::kind::none ? a : nullptr;
}

std::span<const argument> machine::list(const argument* a) const {
  if (a == nullptr) return {};
  if (a->what != argument::kind::list && a->what != argument::kind::tuple) return {a, 1};
  return d_.items(*a);
}

value machine::read(const argument& a) const {
  value v;
  switch (a.what) {
  case argument::kind::node: return values_[device_ir::index(a.node)];
  case argument::kind::boolean: return value_of(scalar_array(std::int64_t{a.boolean ? 1 : 0}));
  case argument::kind::integer: return value_of(scalar_array(a.integer));
  case argument::kind::real: return value_of(scalar_array(a.real));
  case argument::kind::list:
  case argument::kind::tuple:
    v.what = value::kind::list;
    for (const argument& item : d_.items(a)) v.items.push_back(read(item));
    return v;
  default: return v;
  }
}

value machine::operand(std::size_t i) const {
  const auto all = arguments();
  if (i >= all.size()) return {};
  if (all[i].what != argument::kind::none) return read(all[i]);
  for (std::size_t j = i; j-- > 0;)
    if (all[j].what != argument::kind::none) return read(all[j]);
  for (std::size_t j = i + 1; j < all.size(); ++j)
    if (all[j].what != argument::kind::none) return read(all[j]);
  return {};
}

value machine::required(std::size_t i) const {
  value v = operand(i);
  if (v.what != value::kind::data) fail(fmt::format("operand {} has no value here", i));
  return v;
}

const array& machine::tile_operand(std::size_t i) const {
  const argument* a = argument_at(i);
  if (a == nullptr || a->what != argument::kind::node) fail(fmt::format("operand {} is no tile", i));
  return kept(values_[device_ir::index(a->node)]);
}

const array& machine::kept(const value& v) const {
  if (v.what != value::kind::data) fail("an operand has no value here");
  return *v.data;
}

number machine::scalar(const value& v) const {
  const array& a = kept(v);
  if (a.count() != 1) fail("expected a scalar, got a tile");
  return a.real ? number{.is_integer = false, .real = a.reals[0]} : number{.integer = a.integers[0]};
}

std::int64_t machine::integer(const argument& a) const {
  const number n = scalar(read(a));
  return n.is_integer ? n.integer : truncated(n.real);
}

std::int64_t machine::integer_or(const argument* a, std::int64_t otherwise) const { return a == nullptr ? otherwise : integer(*a); }
bool machine::truth_or(const argument* a, bool otherwise) const { return a == nullptr ? otherwise : integer(*a) != 0; }

std::size_t machine::axis(std::int64_t d, std::size_t rank) const {
  const std::int64_t n = static_cast<std::int64_t>(rank);
  if (d < -n || d >= n) fail(fmt::format("a tile of {} dimensions has no dimension {}", rank, d));
  return static_cast<std::size_t>(d < 0 ? d + n : d);
}

// -- results

std::vector<symbolic::expression> machine::declared_dims(const device_ir::type& t) const {
  const auto sizes = d_.sizes(t);
  return {sizes.begin(), sizes.end()};
}

interpret::shape machine::declared_shape() const {
  interpret::shape s;
  for (const symbolic::expression e : d_.sizes(current().type)) s.push_back(dimension(e));
  return s;
}

value machine::typed(array a, dtype element, std::vector<symbolic::expression> dims) const {
  value v = value_of(rounded(std::move(a), element));
  v.element = element;
  v.dims = std::move(dims);
  return v;
}

value machine::typed(array a) const {
  if (current().type.what != device_ir::type::kind::tensor) return value_of(std::move(a));
  return typed(std::move(a), current().type.element, declared_dims(current().type));
}

// -- blocks and tiles

std::int64_t machine::block_index(std::int32_t id) const {
  for (std::size_t b = 0; b < d_.blocks.size(); ++b)
    if (d_.blocks[b].id == id) return static_cast<std::int64_t>(b);
  fail(fmt::format("there is no block {}", id));
}

std::int64_t machine::block_of(symbolic::expression e) const {
  const auto i = static_cast<std::size_t>(e);
  return i < block_of_expression_.size() ? block_of_expression_[i] : -1;
}

std::int64_t machine::block_of(const argument& a) const {
  if (a.what != argument::kind::node) return -1;
  const device_ir::type& t = d_.at(a.node).type;
  return t.what == device_ir::type::kind::symbolic ? block_of(t.value) : -1;
}

std::int64_t machine::block_size(std::size_t b) const {
  const device_ir::block& block = d_.blocks[b];
  const auto at = static_cast<std::size_t>(block.id);
  if (at < how_.block_sizes.size() && how_.block_sizes[at] > 0) return how_.block_sizes[at];
  if (block.block_size == symbolic::no_expression) fail(fmt::format("the size of block {} is not known", block.id));
  const std::int64_t size = evaluate_integer(block.block_size);
  if (size <= 0) fail(fmt::format("the size of block {} is {}", block.id, size));
  return size;
}

number machine::evaluate(symbolic::expression e) const {
  if (const std::optional<number> n = d_.symbols.evaluate(e, symbols_)) return *n;
  std::vector<symbolic::symbol> symbols;
  d_.symbols.collect_symbols(e, symbols);
  for (const symbolic::symbol s : symbols)
    if (!symbols_[static_cast<std::size_t>(s)]) fail(fmt::format("the symbol '{}' has no value here", d_.symbols.name(s)));
  fail(fmt::format("'{}' has no value", d_.symbols.to_string(e)));
}

std::int64_t machine::evaluate_integer(symbolic::expression e) const {
  const number n = evaluate(e);
  return n.is_integer ? n.integer : truncated(n.real);
}

/// Lanes along a block: of its open tile, or all of a reduction dimension.
std::int64_t machine::lane_count(std::size_t b) const {
  if (tiles_[b].open || !d_.blocks[b].is_reduction) return block_size(b);
  return evaluate_integer(d_.blocks[b].size);
}

std::int64_t machine::dimension(symbolic::expression e) const {
  const std::int64_t b = block_of(e);
  const std::int64_t n = b >= 0 ? lane_count(static_cast<std::size_t>(b)) : evaluate_integer(e);
  if (n < 0) fail(fmt::format("a dimension has {} elements", n));
  return n;
}

void machine::open(std::size_t b, std::int64_t begin, std::int64_t end, std::shared_ptr<const array> extents) {
  tiles_[b] = {.open = true, .begin = begin, .end = end, .extents = std::move(extents)};
}

/// The symbols' values, as the open tiles have them.
void machine::set_symbols() {
  using origin = device_ir::symbol_declaration::origin;
  symbols_ = given_;
  for (const device_ir::symbol_declaration& s : d_.declarations) {
    if (s.from == origin::parameter) continue;
    std::optional<number>& to = symbols_[static_cast<std::size_t>(s.id)];
    to = std::nullopt;
    std::size_t b = 0;
    while (b < d_.blocks.size() && d_.blocks[b].id != s.block) ++b;
    if (b == d_.blocks.size() || !tiles_[b].open) continue;
    const tile& t = tiles_[b];
    const std::int64_t size = block_size(b);
    switch (s.from) {
    case origin::tile_end: to = number{.integer = std::min(t.begin + size, t.end)}; break;
    case origin::tile_id: to = number{.integer = t.begin / size}; break;
    case origin::tile_count: to = number{.integer = t.end <= 0 ? 0 : (t.end + size - 1) / size}; break;
    default: to = number{.integer = t.begin};
    }
  }
}

std::vector<char> machine::validity(std::span<const symbolic::expression> dims, std::span<const std::int64_t> s) const {
  std::vector<char> valid;
  if (dims.size() != s.size()) return valid;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const std::int64_t b = block_of(dims[d]);
    if (b < 0 || !tiles_[static_cast<std::size_t>(b)].open) continue;
    const tile& t = tiles_[static_cast<std::size_t>(b)];
    if (t.extents == nullptr && t.begin + s[d] <= t.end) continue;
    // Every row's end, along the dimensions of the parents.
    interpret::shape rows(dims.size(), 1);
    bool known = t.extents != nullptr;
    if (known) {
      const auto& parents = d_.blocks[static_cast<std::size_t>(b)].jagged_parents;
      for (std::size_t p = 0; p < parents.size(); ++p) {
        const symbolic::expression v = d_.blocks[static_cast<std::size_t>(block_index(parents[p]))].variable;
        const auto found = std::ranges::find(dims, v);
        known = known && found != dims.end() && p < t.extents->shape.size();
        if (known) rows[static_cast<std::size_t>(found - dims.begin())] = t.extents->shape[p];
      }
      known = known && count_of(rows) == t.extents->count();
    }
    if (!known) rows.assign(dims.size(), 1);
    const positions row = broadcast_positions(rows, s);
    interpret::shape line(dims.size(), 1);
    line[d] = s[d];
    const positions lane = broadcast_positions(line, s);
    if (valid.empty()) valid.assign(count_of(s), 1);
    for (std::size_t i = 0; i < valid.size(); ++i) {
      const std::int64_t end = known ? t.extents->integer_at(row[i]) : t.end;
      if (t.begin + static_cast<std::int64_t>(lane[i]) >= end) valid[i] = 0;
    }
  }
  return valid;
}

void run(const document& d, std::span<const std::span<std::byte>> tensors, std::span<const std::optional<number>> symbols,
         const options& how) {
  machine(d, tensors, symbols, how).run();
}

} // namespace muster::interpret
