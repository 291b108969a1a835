#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include "array.hpp"
#include "commands.hpp"
#include "files.hpp"
import muster.error;
import muster.symbolic;
import muster.device_ir;
import muster.operations;
import muster.codegen;
import muster.builtin;
import muster.runtime;
import muster.interpret;
import muster.check;

namespace muster::tool {

namespace {

using device_ir::argument;
using device_ir::document;
using device_ir::node_id;
using symbolic::number;

constexpr std::int64_t largest_tensor = std::int64_t{1} << 36U;

/// A generator of its own, so that a seed gives the same values everywhere: splitmix64.
class random_values {
public:
  explicit random_values(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  }
  /// In [0, 1).
  double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

private:
  std::uint64_t state_;
};

struct tensor {
  const device_ir::host_tensor* declaration = nullptr;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::vector<std::byte> storage; ///< elements at their strides
  std::vector<std::byte> initial; ///< what every run starts from
  std::optional<array> given;
  device_ir::dtype element = device_ir::dtype::f32;

  [[nodiscard]] std::size_t element_size() const { return static_cast<std::size_t>(device_ir::size_of(element)); }
};

/// What is called, as messages show it.
std::string_view operation_text(const device_ir::node& n) {
  const auto o = operation_named(n.target);
  return o ? qualified_name(*o, n.target) : n.target;
}

/// Statistics of every node's values over all its executions, without masked lanes.
class trace {
public:
  explicit trace(const document& d) : d_(d), nodes_(d.nodes.size()) {}

  void see(const interpret::node_value& v) {
    statistics& s = nodes_[device_ir::index(v.node)];
    s.element = v.element;
    s.real = v.is_real();
    s.shape.assign(v.shape.begin(), v.shape.end());
    ++s.executions;
    for (std::size_t i = 0; i < v.count(); ++i) {
      if (!v.is_valid(i)) continue;
      const double x = v.real(i);
      ++s.count;
      if (std::isnan(x)) ++s.nans;
      else if (std::isinf(x)) ++s.infinities;
      else s.sum += x;
      if (std::isnan(x)) continue;
      s.least = std::min(s.least, x);
      s.largest = std::max(s.largest, x);
    }
  }

  void print() const {
    std::vector<std::array<std::string, 9>> rows{{"node", "operation", "type", "min", "max", "mean", "nan", "inf", "values"}};
    std::vector<std::pair<std::size_t, std::string_view>> graphs;
    for (const device_ir::graph& g : d_.graphs) {
      graphs.emplace_back(rows.size(), g.name);
      for (std::uint32_t i = g.nodes.first; i < g.nodes.first + g.nodes.count; ++i)
        if (nodes_[i].executions > 0) rows.push_back(row(d_.nodes[i], nodes_[i]));
    }
    std::array<std::size_t, 9> width{};
    for (const auto& r : rows)
      for (std::size_t c = 0; c < r.size(); ++c) width[c] = std::max(width[c], r[c].size());
    std::size_t next = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (; next < graphs.size() && graphs[next].first == i && i > 0; ++next)
        if (next + 1 == graphs.size() || graphs[next + 1].first > i) fmt::print("{}\n", graphs[next].second);
      std::string line = "  ";
      for (std::size_t c = 0; c < rows[i].size(); ++c)
        line += c < 3 ? fmt::format("{:<{}}  ", rows[i][c], width[c]) : fmt::format("{:>{}}  ", rows[i][c], width[c]);
      line.erase(line.find_last_not_of(' ') + 1);
      fmt::print("{}\n", line);
    }
  }

private:
  struct statistics {
    std::optional<device_ir::dtype> element;
    bool real = false;
    std::vector<std::int64_t> shape;
    std::uint64_t executions = 0;
    std::uint64_t count = 0;
    std::uint64_t nans = 0;
    std::uint64_t infinities = 0;
    double sum = 0; ///< of the finite ones
    double least = std::numeric_limits<double>::infinity();
    double largest = -std::numeric_limits<double>::infinity();
  };

  const document& d_;
  std::vector<statistics> nodes_;

  static std::array<std::string, 9> row(const device_ir::node& n, const statistics& s) {
    const std::string type = s.element ? fmt::format("{}[{}]", device_ir::name(*s.element), fmt::join(s.shape, ", "))
                             : s.real  ? "real"
                                       : "integer";
    const bool numbers = s.count > s.nans;
    const std::uint64_t finite = s.count - s.nans - s.infinities;
    return {std::string(n.name),
            std::string(operation_text(n)),
            type,
            numbers ? fmt::format("{:.6g}", s.least) : "-",
            numbers ? fmt::format("{:.6g}", s.largest) : "-",
            finite > 0 ? fmt::format("{:.6g}", s.sum / static_cast<double>(finite)) : "-",
            fmt::format("{}", s.nans),
            fmt::format("{}", s.infinities),
            fmt::format("{}", s.count)};
  }
};

compile_options options_of_environment() {
  compile_options options;
  if (const char* const compiler = std::getenv("CXX"); compiler != nullptr && *compiler != '\0') options.compiler = compiler;
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    options.cache_directory = std::string(cache) + "/muster";
  else if (const char* const home = std::getenv("HOME"); home != nullptr && *home == '/')
    options.cache_directory = std::string(home) + "/.cache/muster";
  return options;
}

/// Everything that one run needs, made from the document and the command line.
class runner {
public:
  runner(const document& d, const codegen::kernel_plan& plan, const run_options& options) : d_(d), plan_(plan), options_(options) {}

  void prepare() {
    values_.assign(d_.symbols.symbol_count(), std::nullopt);
    tensors_.resize(d_.tensors.size());
    for (std::size_t i = 0; i < d_.tensors.size(); ++i) {
      tensors_[i].declaration = &d_.tensors[i];
      tensors_[i].element = d_.tensors[i].element;
    }
    for (const auto& [name, file] : options_.outputs) (void)find(name, "--output");
    read_inputs();
    set_symbols();
    for (tensor& t : tensors_) lay_out(t);
    for (std::size_t i = 0; i < tensors_.size(); ++i) fill(tensors_[i], i);
  }

  int run(const compiled_kernel& kernel) {
    std::vector<void*> addresses;
    for (tensor& t : tensors_) addresses.push_back(t.storage.data());
    std::vector<scalar> symbols;
    for (const std::string& name : kernel.symbol_names()) symbols.push_back(symbol_argument(name));
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < options_.repeat; ++i) {
      for (tensor& t : tensors_) t.storage = t.initial;
      for (std::size_t j = 0; j < tensors_.size(); ++j) addresses[j] = tensors_[j].storage.data();
      const auto start = std::chrono::steady_clock::now();
      kernel(addresses, symbols, options_.threads);
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    fmt::print("{}: {} (best of {})\n", d_.kernel, duration(best), options_.repeat);
    report();
    return success;
  }

  /// The reference interpreter in place of a kernel.
  int interpret(const interpret::options& how) {
    const auto start = std::chrono::steady_clock::now();
    interpret_on(how);
    fmt::print("{}: {} in the reference interpreter\n", d_.kernel,
               duration(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
    report();
    return success;
  }

  /// The interpreter alone, on the inputs.
  void interpret_on(const interpret::options& how) {
    std::vector<std::span<std::byte>> memories;
    for (tensor& t : tensors_) {
      t.storage = t.initial;
      memories.emplace_back(t.storage);
    }
    interpret::run(d_, memories, values_, how);
  }

  /// Behind `run`: whether the reference interpreter stores the same.
  int check(const device_ir::config& config) {
    codegen::generator generator = builtin_generator();
    std::vector<std::span<const std::byte>> inputs;
    std::vector<check::layout> layouts;
    for (const tensor& t : tensors_) {
      inputs.emplace_back(t.initial);
      layouts.push_back({t.element, t.sizes, t.strides});
    }
    const check::report r =
        check::kernel(generator, d_, config, inputs, layouts, values_,
                      {.compile = options_of_environment(), .threads = options_.threads, .nodes = options_.check_nodes});
    if (r.equal() && !r.node) {
      fmt::print("equal: the kernel stores what the reference interpreter stores\n");
      return success;
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!r.tensors[i]) continue;
      const check::difference& x = *r.tensors[i];
      fmt::print("differs: {}[{}] is {:.9g}, the reference interpreter has {:.9g} ({} of {} elements differ)\n",
                 tensors_[i].declaration->name, fmt::join(x.index, ", "), x.got, x.expected, x.count, in_order(tensors_[i]).count());
    }
    if (!r.node) {
      fmt::print("no node of the {} programs that stored these elements differs{}\n", r.programs,
                 r.complete ? "" : ", among those elements that were kept");
      return failure;
    }
    std::string tiles;
    for (const interpret::open_tile& t : r.node->tiles) tiles += fmt::format(", block {} from {}", t.block, t.begin);
    const device_ir::node& n = d_.at(r.node->node);
    fmt::print("first node that differs: {} = {}, {}:{}{}: element [{}] is {:.9g}, the reference interpreter has {:.9g}\n", n.name,
               operation_text(n), d_.file, n.line, tiles, fmt::join(r.node->position, ", "), r.node->got, r.node->expected);
    return failure;
  }

private:
  const document& d_;
  const codegen::kernel_plan& plan_;
  const run_options& options_;
  std::vector<std::optional<number>> values_;
  std::vector<tensor> tensors_;

  tensor& find(std::string_view name, std::string_view option) {
    std::vector<std::string_view> names;
    for (tensor& t : tensors_) {
      if (t.declaration->name == name) return t;
      names.push_back(t.declaration->name);
    }
    throw Error(fmt::format("{}: the document has no host tensor '{}'; it has {}", option, name, fmt::join(names, ", ")));
  }

  static std::string duration(double seconds) {
    if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
    if (seconds < 1) return fmt::format("{:.3f} ms", seconds * 1e3);
    return fmt::format("{:.3f} s", seconds);
  }

  void report() {
    for (const tensor& t : tensors_) print_checksum(t);
    for (const auto& [name, file] : options_.outputs) write_npy(file, in_order(find(name, "--output")));
  }

  // -- symbols

  void read_inputs() {
    for (const auto& [name, file] : options_.inputs) {
      tensor& t = find(name, "--input");
      t.given = read_npy(file, device_ir::name(t.element));
      if (t.given->shape.size() != d_.sizes(*t.declaration).size())
        throw Error(fmt::format("--input {}: '{}' has {} dimensions, the document says {}", name, file, t.given->shape.size(),
                                d_.sizes(*t.declaration).size()));
    }
  }

  const device_ir::symbol_declaration* declaration(std::string_view name) const {
    const auto s = d_.symbols.find_symbol(name);
    return s ? d_.find_declaration(*s) : nullptr;
  }

  void set_symbols() {
    for (const auto& [name, text] : options_.symbols) {
      const auto s = d_.symbols.find_symbol(name);
      if (!s) throw Error(fmt::format("--symbol: the document has no symbol '{}'", name));
      const device_ir::symbol_declaration* d = d_.find_declaration(*s);
      values_[static_cast<std::size_t>(*s)] = parse_number(name, text, d != nullptr && d->is_float);
    }
    // A given input's shape says what its symbols are.
    for (const tensor& t : tensors_) {
      if (!t.given) continue;
      const auto sizes = d_.sizes(*t.declaration);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (d_.symbols.kind_of(sizes[i]) != symbolic::kind::symbol) continue;
        std::optional<number>& value = values_[static_cast<std::size_t>(d_.symbols.symbol_of(sizes[i]))];
        if (!value) value = number{.is_integer = true, .integer = t.given->shape[i]};
      }
    }
    random_values random(options_.seed);
    for (const device_ir::symbol_declaration& d : d_.declarations) {
      std::optional<number>& value = values_[static_cast<std::size_t>(d.id)];
      if (value || d.from != device_ir::symbol_declaration::origin::parameter) continue;
      if (d.hint) value = d.hint;
      else if (d.is_float) value = number{.is_integer = false, .real = random.unit()};
    }
    for (const codegen::block_plan& b : plan_.blocks) set_host_block_size(b);
  }

  /// A block size that only the host knows: without a value, one block takes the whole extent.
  void set_host_block_size(const codegen::block_plan& b) {
    if (b.role == codegen::block_role::unused || b.block_size != 0 || b.variable == symbolic::no_symbol ||
        b.extent == symbolic::no_expression)
      return;
    std::optional<number>& value = values_[static_cast<std::size_t>(b.variable)];
    if (!value) value = d_.symbols.evaluate(b.extent, values_);
  }

  static number parse_number(const std::string& name, const std::string& text, bool real) {
    number n;
    n.is_integer = !real;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = real ? std::from_chars(text.data(), end, n.real) : std::from_chars(text.data(), end, n.integer);
    if (error != std::errc() || stop != end)
      throw Error(fmt::format("--symbol {}: '{}' is no {}", name, text, real ? "number" : "64-bit integer"));
    return n;
  }

  scalar symbol_argument(const std::string& name) const {
    const auto s = d_.symbols.find_symbol(name);
    const std::optional<number> value = s ? values_[static_cast<std::size_t>(*s)] : std::nullopt;
    if (!value) throw Error(fmt::format("The symbol '{}' has no value: give it with --symbol {}=VALUE", name, name));
    const device_ir::symbol_declaration* d = declaration(name);
    scalar result{};
    if (d != nullptr && d->is_float) result.real = value->as_real();
    else result.integer = value->integer;
    return result;
  }

  // -- tensors

  std::int64_t evaluate(symbolic::expression e, const tensor& t) const {
    const std::optional<number> value = d_.symbols.evaluate(e, values_);
    if (value && value->is_integer) return value->integer;
    std::vector<symbolic::symbol> symbols;
    d_.symbols.collect_symbols(e, symbols);
    for (const symbolic::symbol s : symbols)
      if (!values_[static_cast<std::size_t>(s)])
        throw Error(fmt::format("The size {} of '{}' needs the symbol '{}': give it with --symbol", d_.symbols.to_string(e),
                                t.declaration->name, d_.symbols.name(s)));
    throw Error(fmt::format("The size {} of '{}' has no value", d_.symbols.to_string(e), t.declaration->name));
  }

  void lay_out(tensor& t) {
    std::int64_t last = 0;
    bool empty = false;
    const auto sizes = d_.sizes(*t.declaration);
    const auto strides = d_.strides(*t.declaration);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int64_t size = evaluate(sizes[i], t);
      const std::int64_t stride = evaluate(strides[i], t);
      if (size < 0 || stride < 0) throw Error(fmt::format("The tensor '{}' has a negative size or stride", t.declaration->name));
      if (t.given && t.given->shape[i] != size)
        throw Error(fmt::format("--input {}: its dimension {} has {} elements, the document says {}", t.declaration->name, i,
                                t.given->shape[i], size));
      std::int64_t reach = 0;
      if (size > 0 &&
          (__builtin_mul_overflow(size - 1, stride, &reach) || __builtin_add_overflow(last, reach, &last) || last > largest_tensor))
        throw Error(fmt::format("The tensor '{}' is too large", t.declaration->name));
      empty = empty || size == 0;
      t.sizes.push_back(size);
      t.strides.push_back(stride);
    }
    t.storage.assign(static_cast<std::size_t>(empty ? 0 : last + 1) * t.element_size(), std::byte{0});
  }

  /// Calls `visit(offset of the element, its number in C order)` for every element.
  template <class Visit> static void for_each(const tensor& t, const Visit& visit) {
    std::vector<std::int64_t> at(t.sizes.size(), 0);
    for (const std::int64_t size : t.sizes)
      if (size == 0) return;
    std::int64_t offset = 0;
    for (std::size_t number = 0;; ++number) {
      visit(static_cast<std::size_t>(offset), number);
      std::size_t d = t.sizes.size();
      for (; d > 0; --d) {
        offset += t.strides[d - 1];
        if (++at[d - 1] < t.sizes[d - 1]) break;
        offset -= t.strides[d - 1] * t.sizes[d - 1];
        at[d - 1] = 0;
      }
      if (d == 0) return;
    }
  }

  void fill(tensor& t, std::size_t position) {
    const std::size_t size = t.element_size();
    if (t.given) {
      for_each(t, [&](std::size_t offset, std::size_t n) {
        std::memcpy(t.storage.data() + offset * size, t.given->bytes.data() + n * size, size);
      });
    } else if (is_read(position)) {
      random_values random(options_.seed * 1000003U + position + 1);
      if (device_ir::is_float(t.element))
        for_each(t, [&](std::size_t offset, std::size_t) {
          device_ir::double_to_element(t.element, random.unit() * 2 - 1, t.storage.data() + offset * size);
        });
      else fill_integers(t, position, random);
    }
    t.initial = t.storage;
  }

  void fill_integers(tensor& t, std::size_t position, random_values& random) {
    const std::size_t size = t.element_size();
    const index_use use = use_of(position);
    if (use.decides_more)
      throw Error(fmt::format(
          "The values of '{}' decide which addresses or how many iterations the kernel takes: random ones would read outside its "
          "tensors. Give them with --input {}=FILE.npy",
          t.declaration->name, t.declaration->name));
    const std::uint64_t bound = use.bound > 0 ? static_cast<std::uint64_t>(use.bound) : t.element == device_ir::dtype::b8 ? 2U : 100U;
    for_each(t, [&](std::size_t offset, std::size_t) {
      device_ir::integer_to_element(t.element, static_cast<std::int64_t>(random.next() % bound), t.storage.data() + offset * size);
    });
  }

  // -- what an integer tensor's values are used for

  struct index_use {
    std::int64_t bound = 0;     ///< they index a dimension of this size (the smallest); 0: they are plain numbers
    bool decides_more = false;  ///< they enter an address or a loop's bound in another way
  };

  template <class Visit> void visit_nodes(const argument& a, const Visit& visit) const {
    if (a.what == argument::kind::node) visit(a.node);
    if (a.what == argument::kind::list || a.what == argument::kind::tuple || a.what == argument::kind::slice)
      for (const argument& item : d_.items(a)) visit_nodes(item, visit);
  }

  /// Follows the values of a host tensor through the document.
  index_use use_of(std::size_t position) {
    std::vector<bool> carries(d_.nodes.size());
    std::vector<bool> exact(d_.nodes.size()); // the loaded values themselves, not computed from them
    index_use use;
    // Values flow forward; through loops they flow around, so until nothing changes.
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < d_.nodes.size(); ++i) changed = follow(static_cast<node_id>(i), position, carries, exact, use) || changed;
    }
    return use;
  }

  bool follow(node_id id, std::size_t position, std::vector<bool>& carries, std::vector<bool>& exact, index_use& use) {
    const std::size_t i = device_ir::index(id);
    const device_ir::node& n = d_.nodes[i];
    if (n.is_parameter || !plan_.nodes[i].live || !plan_.nodes[i].known) return false;
    const operation op = plan_.nodes[i].op;
    const auto arguments = d_.arguments_of(n);
    const auto carried = [&](node_id m) { return carries[device_ir::index(m)]; };
    if (op == operation::load || op == operation::store || information(op).category == operation_category::atomic) {
      if (arguments.size() >= 2) check_access(arguments, carries, exact, use);
      const bool is_source = op == operation::load && tensor_index(arguments) == static_cast<std::int32_t>(position);
      if (!is_source) return false;
      const bool fresh = mark(carries, i);
      return mark(exact, i) || fresh;
    }
    bool any = false;
    for (const argument& a : arguments) visit_nodes(a, [&](node_id m) { any = any || carried(m); });
    if (!any) return false;
    const bool keeps = op == operation::new_var || op == operation::phi || op == operation::subscript || op == operation::aten_view ||
                       op == operation::aten_squeeze || op == operation::aten_unsqueeze || op == operation::prims_convert_element_type;
    const std::int32_t loop = plan_.loop_of_node[i];
    const std::int32_t branch = plan_.branch_of_node[i];
    if (loop >= 0 || branch >= 0) return enter(n, loop, branch, carries, exact, use);
    bool changed = mark(carries, i);
    if (keeps && !arguments.empty() && arguments[0].what == argument::kind::node && exact[device_ir::index(arguments[0].node)])
      changed = mark(exact, i) || changed;
    return changed;
  }

  static bool mark(std::vector<bool>& set, std::size_t i) {
    const bool fresh = !set[i];
    set[i] = true;
    return fresh;
  }

  std::int32_t tensor_index(std::span<const argument> arguments) const {
    if (arguments.empty() || arguments[0].what != argument::kind::node) return -1;
    const device_ir::node& n = d_.at(arguments[0].node);
    if (!plan_.at(arguments[0].node).is_host_tensor || n.arguments.count == 0) return -1;
    const device_ir::host_tensor* t = d_.find_tensor(d_.arguments_of(n)[0].text);
    return t == nullptr ? -1 : static_cast<std::int32_t>(t - d_.tensors.data());
  }

  void check_access(std::span<const argument> arguments, const std::vector<bool>& carries, const std::vector<bool>& exact,
                    index_use& use) const {
    const std::int32_t indexed = tensor_index(arguments);
    if (indexed < 0 || (arguments[1].what != argument::kind::list && arguments[1].what != argument::kind::tuple)) return;
    const auto indices = d_.items(arguments[1]);
    for (std::size_t k = 0; k < indices.size(); ++k) {
      if (indices[k].what != argument::kind::node || !carries[device_ir::index(indices[k].node)]) continue;
      if (!exact[device_ir::index(indices[k].node)]) {
        use.decides_more = true;
        continue;
      }
      const std::int64_t size = tensors_[static_cast<std::size_t>(indexed)].sizes[k];
      use.bound = use.bound == 0 ? size : std::min(use.bound, size);
    }
  }

  /// Values passed to a loop or branch; as its bounds they decide how much is done.
  bool enter(const device_ir::node& n, std::int32_t loop, std::int32_t branch, std::vector<bool>& carries, std::vector<bool>& exact,
             index_use& use) {
    const auto arguments = d_.arguments_of(n);
    bool changed = false;
    const auto pass = [&](std::int32_t graph, const argument& list) {
      const device_ir::graph& g = d_.graphs[static_cast<std::size_t>(graph)];
      const auto items = d_.items(list);
      for (std::size_t j = 0; j < items.size() && j < g.parameters.count; ++j) {
        if (items[j].what != argument::kind::node || !carries[device_ir::index(items[j].node)]) continue;
        changed = mark(carries, g.parameters.first + j) || changed;
        if (exact[device_ir::index(items[j].node)]) changed = mark(exact, g.parameters.first + j) || changed;
      }
    };
    if (loop >= 0) {
      const codegen::loop_plan& l = plan_.loops[static_cast<std::size_t>(loop)];
      if (l.condition < 0)
        for (std::size_t k = 1; k <= 2 && k < arguments.size(); ++k)
          visit_nodes(arguments[k], [&](node_id m) { use.decides_more = use.decides_more || carries[device_ir::index(m)]; });
      pass(l.body, arguments[l.condition < 0 ? 3 : 2]);
    } else {
      const codegen::branch_plan& b = plan_.branches[static_cast<std::size_t>(branch)];
      pass(b.then_graph, arguments[3]);
      if (b.else_graph >= 0) pass(b.else_graph, arguments[4]);
    }
    return changed;
  }

  /// Whether a tensor's values matter: it is loaded from. What is only written, or added to, starts at zero.
  bool is_read(std::size_t position) const {
    for (std::size_t i = 0; i < d_.nodes.size(); ++i)
      if (plan_.nodes[i].live && plan_.nodes[i].known && information(plan_.nodes[i].op).category == operation_category::memory &&
          plan_.nodes[i].op != operation::store && tensor_index(d_.arguments_of(d_.nodes[i])) == static_cast<std::int32_t>(position))
        return true;
    return false;
  }

  // -- results

  static array in_order(const tensor& t) {
    array a{std::string(device_ir::name(t.element)), t.sizes, {}};
    const std::size_t size = t.element_size();
    a.bytes.resize(a.count() * size);
    for_each(t, [&](std::size_t offset, std::size_t n) { std::memcpy(a.bytes.data() + n * size, t.storage.data() + offset * size, size); });
    return a;
  }

  static void print_checksum(const tensor& t) {
    const std::size_t size = t.element_size();
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    double sum = 0;
    for_each(t, [&](std::size_t offset, std::size_t) {
      const std::byte* element = t.storage.data() + offset * size;
      sum += device_ir::element_to_double(t.element, element);
      for (std::size_t b = 0; b < size; ++b) hash = (hash ^ static_cast<std::uint64_t>(element[b])) * 0x100000001b3ULL;
    });
    fmt::print("  {} {}[{}]  sum {:.9g}  checksum {:016x}\n", t.declaration->name, device_ir::name(t.element), fmt::join(t.sizes, ", "),
               sum, hash);
  }
};

} // namespace

int run(const run_options& options) {
  if (options.backend != "cpu")
    throw Error(fmt::format("--backend {}: only 'cpu' kernels run on this machine without a framework; `muster codegen` prints the others",
                            options.backend));
  const document d = device_ir::parse(read_file(options.file), options.file);
  device_ir::verify(d);
  const device_ir::config config = options.config ? device_ir::parse_config(*options.config, d.config, "--config") : device_ir::config{};
  const device_ir::config& chosen = options.config ? config : d.config;
  codegen::kernel_plan plan;
  codegen::make_plan(plan, d, chosen);
  runner r(d, plan, options);
  r.prepare();
  interpret::options how;
  if (options.config) how.block_sizes = codegen::resolve_block_sizes(d, chosen);
  trace seen(d);
  if (options.trace) how.on_value = [&seen](const interpret::node_value& v) { seen.see(v); };
  if (options.interpret) {
    r.interpret(how);
    if (options.trace) seen.print();
    return success;
  }
  r.run(compile(d, chosen, options_of_environment()));
  if (options.trace) {
    r.interpret_on(how);
    seen.print();
  }
  return options.check || options.check_nodes ? r.check(chosen) : success;
}

} // namespace muster::tool
