module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
#include <fmt/ranges.h>
module muster.backend.triton;

namespace muster::triton {

using codegen::block_role;
using codegen::op;
using device_ir::dtype;

namespace {

// Sorted: Python's keywords, builtins that emitted code calls, and what the module's frame defines.
constexpr std::array<std::string_view, 63> reserved{
    "False",     "None",     "TensorDescriptor",
    "True",      "abs",      "and",
    "as",        "assert",   "async",
    "await",     "bool",     "break",
    "class",     "continue", "def",
    "del",       "dict",     "elif",
    "else",      "except",   "finally",
    "float",     "for",      "from",
    "functools", "global",   "grid",
    "if",        "import",   "in",
    "int",       "is",       "kernel",
    "lambda",    "launch",   "len",
    "libdevice", "list",     "max",
    "maxnreg",   "min",      "nonlocal",
    "not",       "num_ctas", "num_stages",
    "num_warps", "or",       "pass",
    "pow",       "print",    "raise",
    "range",     "return",   "round",
    "slice",     "sum",      "tl",
    "torch",     "triton",   "try",
    "tuple",     "type",     "while",
};
static_assert(std::is_sorted(reserved.begin(), reserved.end()));

constexpr std::array<std::string_view, codegen::intrinsic_count> functions = [] {
  using codegen::intrinsic;
  std::array<std::string_view, codegen::intrinsic_count> f{};
  const auto set = [&](intrinsic i, std::string_view spelling) { f[static_cast<std::size_t>(i)] = spelling; };
  set(intrinsic::abs, "tl.abs");
  set(intrinsic::acos, "libdevice.acos");
  set(intrinsic::acosh, "libdevice.acosh");
  set(intrinsic::asin, "libdevice.asin");
  set(intrinsic::asinh, "libdevice.asinh");
  set(intrinsic::atan, "libdevice.atan");
  set(intrinsic::atan2, "libdevice.atan2");
  set(intrinsic::atanh, "libdevice.atanh");
  set(intrinsic::ceil, "tl.ceil");
  set(intrinsic::copysign, "libdevice.copysign");
  set(intrinsic::cos, "tl.cos");
  set(intrinsic::cosh, "libdevice.cosh");
  set(intrinsic::erf, "tl.erf");
  set(intrinsic::erfc, "libdevice.erfc");
  set(intrinsic::erfinv, "libdevice.erfinv");
  set(intrinsic::exp, "tl.exp");
  set(intrinsic::exp2, "tl.exp2");
  set(intrinsic::expm1, "libdevice.expm1");
  set(intrinsic::floor, "tl.floor");
  set(intrinsic::fmod, "libdevice.fmod");
  set(intrinsic::hypot, "libdevice.hypot");
  set(intrinsic::lgamma, "libdevice.lgamma");
  set(intrinsic::log, "tl.log");
  set(intrinsic::log10, "libdevice.log10");
  set(intrinsic::log1p, "libdevice.log1p");
  set(intrinsic::log2, "tl.log2");
  set(intrinsic::maximum, "tl.maximum(*, propagate_nan=tl.PropagateNan.ALL)");
  set(intrinsic::minimum, "tl.minimum(*, propagate_nan=tl.PropagateNan.ALL)");
  set(intrinsic::integer_maximum, "tl.maximum");
  set(intrinsic::integer_minimum, "tl.minimum");
  set(intrinsic::fmax, "tl.maximum");
  set(intrinsic::fmin, "tl.minimum");
  set(intrinsic::nextafter, "libdevice.nextafter");
  set(intrinsic::pow, "libdevice.pow");
  set(intrinsic::round_even, "libdevice.rint");
  set(intrinsic::rsqrt, "tl.rsqrt");
  set(intrinsic::sigmoid, "tl.sigmoid");
  set(intrinsic::signbit, "(libdevice.signbit(*) != 0)");
  set(intrinsic::sin, "tl.sin");
  set(intrinsic::sinh, "libdevice.sinh");
  set(intrinsic::sqrt, "tl.sqrt_rn");
  set(intrinsic::tan, "libdevice.tan");
  set(intrinsic::tanh, "_tanh");
  set(intrinsic::trunc, "_trunc");
  set(intrinsic::fma, "tl.fma");
  set(intrinsic::floor_divide, "_floor_divide");
  set(intrinsic::floor_modulo, "_floor_modulo");
  set(intrinsic::trunc_divide, "_trunc_divide");
  set(intrinsic::trunc_modulo, "_trunc_modulo");
  set(intrinsic::where, "tl.where");
  set(intrinsic::ceil_divide, "tl.cdiv");
  return f;
}();

/// A helper function of the emitted module, printed where its name is used.
struct module_function {
  std::string_view name;
  std::string_view source;
};

// Triton's // and % round towards zero.
constexpr std::array<module_function, 15> module_functions{{
    {"_floor_divide", "@triton.jit\ndef _floor_divide(a, b):\n    quotient = a // b\n    return tl.where((a % b != 0) & ((a < 0) != (b < "
                      "0)), quotient - 1, quotient)\n"},
    {"_floor_modulo", "@triton.jit\ndef _floor_modulo(a, b):\n    remainder = a % b\n    return tl.where((remainder != 0) & ((remainder < "
                      "0) != (b < 0)), remainder + b, remainder)\n"},
    {"_random", "@triton.jit\ndef _random(seed, offset):\n"
                "    # Philox with the 64 bits of the offset as its first two counters.\n"
                "    counter = offset.to(tl.uint64, bitcast=True)\n"
                "    low = (counter & 0xFFFFFFFF).to(tl.uint32)\n"
                "    return tl.philox(seed, low, (counter >> 32).to(tl.uint32), low * 0, low * 0)\n"},
    {"_uniform", "@triton.jit\ndef _uniform(random):\n    return tl.random.uint_to_uniform_float(random)\n"},
    {"_whole", "@triton.jit\ndef _whole(random, low, high):\n"
               "    return (low + tl.abs(random.to(tl.int32, bitcast=True).to(tl.int64)) % (high - low)).to(tl.int32)\n"},
    {"_trunc_divide", "@triton.jit\ndef _trunc_divide(a, b):\n    return a // b\n"},
    {"_trunc_modulo", "@triton.jit\ndef _trunc_modulo(a, b):\n    return a % b\n"},
    {"_tanh", "@triton.jit\ndef _tanh(x):\n"
              "    if x.dtype == tl.float64:\n"
              "        return libdevice.tanh(x)\n"
              "    # Near 0 the difference would cancel: a polynomial instead.\n"
              "    s = x * x\n"
              "    near = ((((-5.70498872745e-3 * s + 2.06390887954e-2) * s - 5.37397155531e-2) * s + 1.33314422036e-1) * s - "
              "3.33332819422e-1) * s * x + x\n"
              "    far = 1.0 - 2.0 / (tl.exp2(2.885390082 * x) + 1.0)\n"
              "    return tl.where(tl.abs(x) < 0.625, near, far)\n"},
    {"_trunc", "@triton.jit\ndef _trunc(x):\n    return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))\n"},
    {"_maximum", "@triton.jit\ndef _maximum(a, b):\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)\n"},
    {"_minimum", "@triton.jit\ndef _minimum(a, b):\n    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)\n"},
    {"_float4", "@triton.jit\ndef _float4(packed, position: tl.constexpr):\n"
                "    # A float4's bits at the top of a float16 are 2**-14 of its value.\n"
                "    nibble = (packed >> (4 * position)).to(tl.int16)\n"
                "    return (((nibble & 8) << 12) | ((nibble & 7) << 9)).to(tl.float16, bitcast=True) * 16384.0\n"},
    // The first of equals, and the first NaN where there is one.
    {"_argmax", "@triton.jit\ndef _argmax(a, i, b, j):\n"
                "    first = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))\n"
                "    return tl.where(first, a, b), tl.where(first, i, j)\n"},
    {"_argmin", "@triton.jit\ndef _argmin(a, i, b, j):\n"
                "    first = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))\n"
                "    return tl.where(first, a, b), tl.where(first, i, j)\n"},
    {"_product", "@triton.jit\ndef _product(a, b):\n    return a * b\n"},
}};

constexpr std::array<dtype, device_ir::dtype_count> arithmetic{dtype::f64, dtype::f32, dtype::f16, dtype::f32, dtype::f32, dtype::f32,
                                                               dtype::i64, dtype::i32, dtype::i16, dtype::i8,  dtype::u8,  dtype::b8};
constexpr std::array<dtype, device_ir::dtype_count> transcendental{dtype::f64, dtype::f32, dtype::f32, dtype::f32, dtype::f32, dtype::f32,
                                                                   dtype::i64, dtype::i32, dtype::i16, dtype::i8,  dtype::u8,  dtype::b8};

} // namespace

const codegen::dialect language{
    .language = codegen::language::python,
    .types = {"tl.float64", "tl.float32", "tl.float16", "tl.bfloat16", "tl.float8e4nv", "tl.float8e5", "tl.int64", "tl.int32", "tl.int16",
              "tl.int8", "tl.uint8", "tl.int1"},
    .functions = functions,
    .cast = {},
    .infinity = "float(\"inf\")",
    .negative_infinity = "float(\"-inf\")",
    .negative_zero = "(tl.full([], 0.0, {}) * -1.0)",
    .not_a_number = "float(\"nan\")",
    .least = "min",
    .greatest = "max",
    .true_ = "True",
    .false_ = "False",
    .arithmetic = arithmetic,
    .transcendental = transcendental,
    .symbol_real = dtype::f32,
    .promotes_like_torch = true,
    .minus_is_subtraction = true,
    .reserved = reserved,
};

std::unique_ptr<codegen::emitter> make_emitter() { return std::make_unique<triton_emitter>(); }

namespace {

/// Writes the module of one kernel.
class module_writer {
public:
  module_writer(triton_emitter& e, std::string& out, void (*launch_options)(const device_ir::config&, std::string&))
      : e_(e), plan_(*e.plan), d_(*e.source), out_(out), launch_options_(launch_options) {}

  void write() {
    name_parameters();
    split_phases();
    for (kernel& k : kernels_) lower(k);
    block_sizes_in_use_.assign(plan_.blocks.size(), false);
    for (const kernel& k : kernels_) find_own_names(k.body);
    find_own_names(e_.functions);
    write_imports();
    write_block_sizes();
    write_functions();
    for (const kernel& k : kernels_) write_kernel(k);
    write_launch();
  }

private:
  /// The roots of one phase. A kernel of its own: what is launched behind another kernel runs behind it.
  struct kernel {
    std::string_view name;
    std::span<const codegen::root_plan> roots;
    std::string body;
    std::string parameters;
    std::vector<std::string_view> arguments;
  };

  triton_emitter& e_;
  const codegen::kernel_plan& plan_;
  const device_ir::document& d_;
  std::string& out_;
  void (*launch_options_)(const device_ir::config&, std::string&);
  std::vector<codegen::variable> tensors_; ///< by host tensor
  codegen::variable programs_ = codegen::no_variable; ///< of a persistent kernel: how many there are
  std::vector<kernel> kernels_;
  std::vector<bool> block_sizes_in_use_; ///< by block
  std::array<bool, module_functions.size()> functions_in_use_{};
  bool uses_libdevice_ = false;

  void split_phases() {
    const std::span<const codegen::root_plan> roots(plan_.roots);
    const std::string base = d_.kernel.ends_with("_kernel") ? std::string(d_.kernel) : fmt::format("{}_kernel", d_.kernel);
    const bool several = roots.front().phase != roots.back().phase;
    for (std::size_t first = 0; first < roots.size();) {
      std::size_t end = first + 1;
      while (end < roots.size() && roots[end].phase == roots[first].phase) ++end;
      const std::string_view name = e_.unique_name(e_.keep(several ? fmt::format("{}_{}", base, kernels_.size()) : base));
      kernels_.push_back({.name = name, .roots = roots.subspan(first, end - first), .body = {}, .parameters = {}, .arguments = {}});
      first = end;
    }
  }

  void lower(kernel& k) {
    const codegen::body inside = e_.new_body();
    {
      const auto guard = e_.into(inside);
      e_.kernel_body = inside;
      e_.forget_stores();
      write_programs(k.roots);
    }
    // What the kernel takes is what its live statements read.
    for (const codegen::variable v : tensors_) e_.at(v).live = false;
    for (const descriptor& d : e_.descriptors) e_.at(d.name).live = false;
    for (const symbolic::symbol s : codegen::launch_symbols(plan_)) e_.at(symbol_variable(s)).live = false;
    if (persistent()) e_.at(programs_).live = false;
    if (e_.seeds != codegen::no_variable) e_.at(e_.seeds).live = false;
    e_.mark_live(inside);
    e_.resolve_names(inside);
    k.body.reserve(d_.nodes.size() * 64);
    e_.print_body(inside, k.body, 1);
    const auto add = [&](codegen::variable v, bool is_constant) {
      if (!e_.at(v).live) return;
      k.arguments.push_back(v == programs_ ? "grid[0]" : e_.name_of(v));
      (k.parameters += k.parameters.empty() ? "" : ", ") += e_.name_of(v);
      if (is_constant) k.parameters += ": tl.constexpr";
    };
    for (const codegen::variable v : tensors_) add(v, false);
    for (const descriptor& d : e_.descriptors) add(d.name, false);
    if (e_.seeds != codegen::no_variable) add(e_.seeds, false);
    for (const symbolic::symbol s : codegen::launch_symbols(plan_)) add(symbol_variable(s), is_host_block_size(s));
    if (persistent()) add(programs_, true);
  }

  template <class... T> void line(fmt::format_string<T...> format, T&&... arguments) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<T>(arguments)...);
    out_ += '\n';
  }

  bool persistent() const {
    return plan_.config->pid_type == device_ir::pid_type::persistent_blocked ||
           plan_.config->pid_type == device_ir::pid_type::persistent_interleaved;
  }

  void name_parameters() {
    tensors_.reserve(d_.tensors.size());
    for (std::size_t i = 0; i < d_.tensors.size(); ++i) {
      tensors_.push_back(e_.new_parameter(d_.tensors[i].name));
      e_.bind_tensor(static_cast<std::int32_t>(i), e_.name(tensors_.back()));
    }
    if (persistent()) programs_ = e_.new_parameter("programs", dtype::i32);
  }

  // -- the grid

  bool is_xyz(const codegen::root_plan& r) const {
    return plan_.config->pid_type == device_ir::pid_type::xyz && plan_.roots.size() == 1 && r.blocks.size() <= 3;
  }

  expression extent_of(std::int32_t block) {
    const codegen::block_plan& b = plan_.blocks[static_cast<std::size_t>(block)];
    if (b.extent == symbolic::no_expression) e_.malformed(fmt::format("grid block {} has no size", block));
    return e_.symbolic(b.extent);
  }

  /// Number of tiles of a grid block, as the kernel computes it.
  expression tile_count(std::int32_t block) {
    const codegen::block_plan& b = plan_.blocks[static_cast<std::size_t>(block)];
    if (b.constant_extent && b.block_size > 0) return e_.integer((*b.constant_extent + b.block_size - 1) / b.block_size, plan_.index_dtype);
    if (b.block_size == 1) return extent_of(block);
    return e_.call("tl.cdiv", {extent_of(block), e_.block_size_name(block)}, plan_.index_dtype);
  }

  expression program_id(int axis) {
    expression id = e_.call("tl.program_id", {e_.integer(axis)}, dtype::i32);
    if (plan_.index_dtype == dtype::i64) id = e_.cast(id, dtype::i64);
    return non_negative(id);
  }

  /// Program ids are never negative, so // and % are right as they stand.
  expression non_negative(expression e) { return e_.mark_non_negative(e); }

  /// The programs of a kernel: one tile each, or a loop over tiles.
  void write_programs(std::span<const codegen::root_plan> roots) {
    if (!persistent()) return write_roots(roots, no_expression_);
    expression total = e_.integer(0, plan_.index_dtype);
    for (const codegen::root_plan& r : roots) total = e_.binary(op::add, total, total_of(r));
    // A constant, so that how many tiles a program has is one too.
    const expression count = e_.typed(e_.name(programs_), dtype::i32);
    const codegen::variable v = e_.new_variable("virtual_pid", plan_.index_dtype);
    e_.at(v).non_negative = true;
    expression range;
    if (plan_.config->pid_type == device_ir::pid_type::persistent_interleaved) {
      range = e_.call("tl.range", with_range_options({program_id(0), total, count}, 0));
    } else {
      const expression each = e_.define("tiles_a_program", e_.call("tl.cdiv", {total, count}, plan_.index_dtype));
      const expression first = e_.define("first_tile", e_.binary(op::multiply, program_id(0), each));
      const expression last = e_.binary(op::add, first, each);
      range = e_.call("tl.range", with_range_options({first, e_.least(last, total)}, 0));
    }
    const auto guard = e_.into(e_.inner(e_.for_range(v, range)));
    write_roots(roots, e_.name(v));
  }

  /// Several roots share the program ids: each takes as many as it has tiles.
  void write_roots(std::span<const codegen::root_plan> roots, expression pid) {
    if (roots.size() == 1) return write_root(roots[0], pid);
    if (pid == no_expression_) pid = e_.define("pid", program_id(0));
    write_root_of(roots, pid, e_.integer(0, plan_.index_dtype));
  }

  void write_root_of(std::span<const codegen::root_plan> roots, expression pid, expression start) {
    const expression own = non_negative(e_.binary(op::subtract, pid, start));
    if (roots.size() == 1) return write_root(roots[0], own);
    const expression end = e_.binary(op::add, start, total_of(roots[0]));
    const codegen::statement s = e_.if_then(e_.binary(op::less, pid, end));
    {
      const auto guard = e_.into(e_.inner(s));
      write_root(roots[0], own);
    }
    const auto guard = e_.into(e_.orelse(s));
    write_root_of(roots.subspan(1), pid, end);
  }

  static constexpr expression no_expression_ = codegen::no_expression;

  expression total_of(const codegen::root_plan& r) {
    expression total = e_.integer(1, plan_.index_dtype);
    for (const std::int32_t b : r.blocks) total = e_.binary(op::multiply, total, tile_count(b));
    return total;
  }

  std::vector<expression> with_range_options(std::vector<expression> bounds, std::int32_t index) {
    append_range_options(e_, bounds, index);
    return bounds;
  }

  /// One tile of a root: `pid` is its number, or nothing where the program's own ids say it.
  void write_root(const codegen::root_plan& r, expression pid) {
    e_.root_body = e_.current_body();
    e_.whole_open.clear();
    std::vector<expression> pids =
        pid == no_expression_ && is_xyz(r) ? separate_ids(r) : flat_ids(r, pid == no_expression_ ? program_id(0) : pid);
    for (std::size_t i = 0; i < r.blocks.size(); ++i) open_grid_block(r.blocks[i], pids[i]);
    e_.lower_graph(r.graph);
    for (const std::int32_t b : r.blocks) e_.close_tile(b);
    for (const std::int32_t b : e_.whole_open) e_.close_tile(b);
    e_.whole_open.clear();
  }

  void open_grid_block(std::int32_t block, expression pid) {
    const codegen::block_plan& b = plan_.blocks[static_cast<std::size_t>(block)];
    if (e_.is_literal(pid)) { // the only tile
      e_.open_lanes(block, pid, extent_of(block));
      e_.tile(block).id = pid;
      return;
    }
    const expression id = b.block_size == 1 || e_.is_atom(pid) ? pid : e_.define(fmt_name("pid_", block), pid);
    const expression begin = b.block_size == 1 ? pid : non_negative(e_.binary(op::multiply, id, e_.block_size_name(block)));
    const expression offset = e_.define(fmt_name("offset_", block), begin);
    e_.open_lanes(block, offset, extent_of(block));
    e_.tile(block).id = b.block_size == 1 ? offset : id;
  }

  std::string_view fmt_name(std::string_view prefix, std::int32_t number) { return e_.keep_joined(prefix, std::to_string(number)); }

  std::vector<expression> separate_ids(const codegen::root_plan& r) {
    std::vector<expression> ids;
    for (std::size_t i = 0; i < r.blocks.size(); ++i) ids.push_back(program_id(static_cast<int>(i)));
    return ids;
  }

  std::vector<expression> flat_ids(const codegen::root_plan& r, expression pid) {
    if (r.blocks.size() == 1) return {pid};
    if (e_.at(pid).what != codegen::expression_kind::name) pid = e_.define("pid", pid);
    if (r.l2_grouping > 1) return grouped_ids(r, pid);
    return split_ids(pid, r.blocks);
  }

  /// A number of several digits, least significant first, one a block.
  std::vector<expression> split_ids(expression number, std::span<const std::int32_t> blocks) {
    std::vector<expression> ids;
    expression weight = e_.integer(1, plan_.index_dtype);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const expression rest = non_negative(e_.binary(op::floor_divide, number, weight));
      if (i + 1 == blocks.size()) {
        ids.push_back(rest);
        break;
      }
      const expression count = non_negative(tile_count(blocks[i]));
      ids.push_back(non_negative(e_.binary(op::modulo, rest, count)));
      weight = non_negative(e_.binary(op::multiply, weight, count));
    }
    return ids;
  }

  /// The first two blocks walked in groups of rows, so that programs that run together share tiles in the L2 cache.
  std::vector<expression> grouped_ids(const codegen::root_plan& r, expression pid) {
    const auto named = [&](std::string_view name, expression value) { return e_.define(name, non_negative(value)); };
    const expression rows = tile_count(r.blocks[0]);
    const expression columns = tile_count(r.blocks[1]);
    expression plane_pid = pid;
    std::vector<expression> ids(2);
    if (r.blocks.size() > 2) {
      const expression plane = non_negative(e_.binary(op::multiply, rows, columns));
      plane_pid = named("plane_pid", e_.binary(op::modulo, pid, plane));
      const std::vector<expression> others =
          split_ids(non_negative(e_.binary(op::floor_divide, pid, plane)), std::span(r.blocks).subspan(2));
      ids.insert(ids.end(), others.begin(), others.end());
    }
    const std::optional<std::int64_t> known_rows = e_.integer_literal(rows);
    if (known_rows && *known_rows <= r.l2_grouping) { // one group
      ids[0] = non_negative(e_.binary(op::modulo, plane_pid, rows));
      ids[1] = non_negative(e_.binary(op::floor_divide, plane_pid, rows));
      return ids;
    }
    const expression group = e_.integer(r.l2_grouping, plan_.index_dtype);
    expression in_group = non_negative(e_.binary(op::multiply, group, columns));
    if (!e_.is_literal(in_group)) in_group = named("pids_in_group", in_group);
    const expression first_row = named("first_row", e_.binary(op::multiply, e_.binary(op::floor_divide, plane_pid, in_group), group));
    const bool even = known_rows && *known_rows % r.l2_grouping == 0;
    const expression group_rows = even ? group : named("group_rows", e_.least(e_.binary(op::subtract, rows, first_row), group));
    const expression within = named("within_group", e_.binary(op::modulo, plane_pid, in_group));
    ids[0] = non_negative(e_.binary(op::add, first_row, e_.binary(op::modulo, within, group_rows)));
    ids[1] = non_negative(e_.binary(op::floor_divide, within, group_rows));
    return ids;
  }

  // -- the module's text

  static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

  /// Notes the module's own names in emitted text: they alone begin with an underscore.
  void find_own_names(std::string_view text) {
    constexpr std::string_view size_prefix = "_BLOCK_SIZE_";
    for (std::size_t at = text.find('_'); at != std::string_view::npos; at = text.find('_', at + 1)) {
      if (at > 0 && (is_word(text[at - 1]) || text[at - 1] == '.')) continue;
      std::size_t end = at + 1;
      while (end < text.size() && is_word(text[end])) ++end;
      const std::string_view word = text.substr(at, end - at);
      at = end - 1;
      if (word.starts_with(size_prefix)) {
        std::size_t id = 0;
        for (const char c : word.substr(size_prefix.size())) id = id * 10 + static_cast<std::size_t>(c - '0');
        if (id < block_sizes_in_use_.size()) block_sizes_in_use_[id] = true;
        continue;
      }
      for (std::size_t i = 0; i < module_functions.size(); ++i) {
        if (module_functions[i].name != word || functions_in_use_[i]) continue;
        functions_in_use_[i] = true;
        find_own_names(module_functions[i].source);
      }
    }
    uses_libdevice_ = uses_libdevice_ || text.find("libdevice.") != std::string_view::npos;
  }

  void write_imports() {
    if (persistent()) out_ += "import functools\n\n";
    if (e_.seeds != codegen::no_variable) out_ += "import torch\n";
    out_ += "import triton\nimport triton.language as tl\n";
    if (uses_libdevice_) out_ += "from triton.language.extra import libdevice\n";
    if (!e_.descriptors.empty()) out_ += "from triton.tools.tensor_descriptor import TensorDescriptor\n";
    out_ += '\n';
  }

  void write_block_sizes() {
    bool any = false;
    for (const codegen::block_plan& b : plan_.blocks) {
      if (b.block_size <= 0 || !block_sizes_in_use_[static_cast<std::size_t>(b.id)]) continue;
      line("_BLOCK_SIZE_{} = tl.constexpr({})", b.id, b.block_size);
      any = true;
    }
    if (any) out_ += '\n';
  }

  void write_functions() {
    for (std::size_t i = 0; i < module_functions.size(); ++i)
      if (functions_in_use_[i]) ((out_ += '\n') += module_functions[i].source) += '\n';
    out_ += e_.functions;
  }

  void write_kernel(const kernel& k) {
    line("\n@triton.jit\ndef {}({}):", k.name, k.parameters);
    out_ += k.body;
    if (&k != &kernels_.back()) out_ += '\n';
  }

  codegen::variable symbol_variable(symbolic::symbol s) { return e_.at(e_.parameter_value(s)).name; }
  bool is_host_block_size(symbolic::symbol s) const { return plan_.block_of_symbol[static_cast<std::size_t>(s)] >= 0; }

  /// The grid as the launcher computes it: the number of tiles of a block.
  std::string host_count(std::int32_t block) {
    const codegen::block_plan& b = plan_.blocks[static_cast<std::size_t>(block)];
    std::string extent;
    e_.print_expression(host_symbolic(b.extent), extent);
    if (b.block_size == 1) return extent;
    if (b.constant_extent && b.block_size > 0 && *b.constant_extent > 0 && *b.constant_extent <= b.block_size) return "1";
    std::string size;
    if (b.block_size > 0) size = std::to_string(b.block_size);
    else e_.print_expression(host_symbolic(b.block_size_expression), size);
    return fmt::format("triton.cdiv({}, {})", extent, size);
  }

  expression host_symbolic(symbolic::expression s) { return e_.symbolic(s); }

  void write_launch() {
    std::vector<std::string_view> parameters;
    for (const codegen::variable v : tensors_) parameters.push_back(e_.name_of(v));
    for (const symbolic::symbol s : codegen::launch_symbols(plan_)) parameters.push_back(e_.name_of(symbol_variable(s)));
    if (persistent()) // asking the driver takes longer than the launch
      out_ +=
          "\n\n@functools.cache\ndef _multiprocessors_of(device):\n"
          "    return triton.runtime.driver.active.utils.get_device_properties(device)[\"multiprocessor_count\"]\n"
          "\n\ndef _multiprocessors():\n    try:\n        return _multiprocessors_of(triton.runtime.driver.active.get_current_device())\n"
          "    except RuntimeError:  # no GPU: Triton's interpreter\n        return 1\n";
    line("\n\ndef launch({}):", fmt::join(parameters, ", "));
    if (e_.seeds != codegen::no_variable)
      line("    {} = torch.randint(-(2**63), 2**63 - 1, ({},), dtype=torch.int64, device={}.device)", e_.name_of(e_.seeds), e_.seed_count,
           e_.name_of(tensors_[0]));
    std::string options;
    launch_options_(launch_config(), options);
    for (const kernel& k : kernels_) write_launch_of(k, options);
  }

  void write_launch_of(const kernel& k, std::string options) {
    line("    grid = ({})", grid_of(k));
    const bool always = never_empty(k) || persistent(); // a persistent grid's size does not depend on the tensors'
    const std::string indent(always ? 4 : 8, ' ');
    if (!always) line("    if all(grid):");
    for (const descriptor& d : e_.descriptors)
      if (std::find(k.arguments.begin(), k.arguments.end(), e_.name_of(d.name)) != k.arguments.end()) write_descriptor(d, indent);
    if (k.arguments.empty() && options.starts_with(", ")) options.erase(0, 2);
    line("{}{}[grid]({}{})", indent, k.name, fmt::join(k.arguments, ", "), options);
  }

  std::string grid_of(const kernel& k) {
    if (is_xyz(k.roots[0])) {
      std::vector<std::string> counts;
      for (const std::int32_t b : k.roots[0].blocks) counts.push_back(host_count(b));
      return fmt::format("{}{}", fmt::join(counts, ", "), counts.size() == 1 ? "," : "");
    }
    std::vector<std::string> sums;
    for (const codegen::root_plan& r : k.roots) {
      std::vector<std::string> factors;
      for (const std::int32_t b : r.blocks)
        if (std::string count = host_count(b); count != "1") factors.push_back(std::move(count));
      if (factors.empty()) factors.emplace_back("1");
      sums.push_back(fmt::format("{}", fmt::join(factors, " * ")));
    }
    const std::string total = fmt::format("{}", fmt::join(sums, " + "));
    if (!persistent()) return total + ",";
    const std::int64_t multiplier = plan_.config->num_sm_multiplier.value_or(1);
    const std::string programs = fmt::format("_multiprocessors(){}", multiplier > 1 ? fmt::format(" * {}", multiplier) : std::string());
    // The number is a constant of the kernel: it may not follow sizes that differ from call to call.
    return never_empty(k) ? fmt::format("min({}, {}),", programs, total) : programs + ",";
  }

  void write_descriptor(const descriptor& d, std::string_view indent) {
    const device_ir::host_tensor& t = d_.tensors[static_cast<std::size_t>(d.tensor)];
    const auto printed = [&](std::span<const symbolic::expression> all) {
      std::string text;
      for (const std::int64_t dimension : d.order) {
        if (!text.empty()) text += ", ";
        e_.print_expression(e_.symbolic(all[static_cast<std::size_t>(dimension)]), text);
      }
      return text;
    };
    line("{}{} = TensorDescriptor({}, [{}], [{}], [{}])", indent, e_.name_of(d.name),
         e_.name_of(tensors_[static_cast<std::size_t>(d.tensor)]), printed(d_.sizes(t)), printed(d_.strides(t)),
         fmt::join(d.block_shape, ", "));
  }

  /// The config, without a limit on registers that no product of this width can be compiled with.
  device_ir::config launch_config() {
    device_ir::config c;
    c.num_warps = plan_.config->num_warps;
    c.num_stages = plan_.config->num_stages;
    c.num_ctas = plan_.config->num_ctas;
    c.occupancy = plan_.config->occupancy;
    c.maxnreg = plan_.config->maxnreg;
    if (c.maxnreg && e_.widest_product > 0 && *c.maxnreg < e_.widest_product / 2 + 24) {
      e_.notes.push_back(fmt::format("maxnreg {} is too low for a matrix product of {} columns; left out", *c.maxnreg, e_.widest_product));
      c.maxnreg.reset();
    }
    return c;
  }

  /// Whether the grid has programs whatever the symbols are.
  bool never_empty(const kernel& k) const {
    for (const codegen::root_plan& r : k.roots)
      for (const std::int32_t block : r.blocks)
        if (plan_.blocks[static_cast<std::size_t>(block)].constant_extent.value_or(0) == 0) return false;
    return true;
  }
};

void launch_options(const device_ir::config& c, std::string& out) {
  // What a config leaves out has the value that it has there, not Triton's own.
  out += fmt::format(", num_warps={}, num_stages={}", c.num_warps.value_or(4), c.num_stages.value_or(1));
  if (c.maxnreg) out += fmt::format(", maxnreg={}", *c.maxnreg);
}

} // namespace

namespace {

/// How many stages of an unrolled loop stay within its extent: its last tile must reach the end in that many steps.
std::int64_t most_stages(const emitter& e, std::int32_t index, std::int64_t unroll) {
  const auto most = [&](std::int32_t block) {
    const codegen::block_plan& b = e.plan->blocks[static_cast<std::size_t>(block)];
    if (!b.constant_extent || *b.constant_extent < 1 || b.block_size < 1) return std::numeric_limits<std::int64_t>::max();
    const std::int64_t rest = *b.constant_extent - (*b.constant_extent - 1) / b.block_size * b.block_size;
    const std::int64_t step = unroll * b.block_size;
    return std::max<std::int64_t>(1, (rest + step - 1) / step);
  };
  for (const codegen::loop_plan& l : e.plan->loops)
    if (l.range_index == index && !l.blocks.empty()) return most(l.blocks[0]);
  for (const codegen::root_plan& r : e.plan->roots)
    if (index == 0 && !r.blocks.empty()) return most(r.blocks[0]);
  return std::numeric_limits<std::int64_t>::max();
}

struct loop_options {
  std::int64_t stages = 0; ///< 0: the launch's
  std::int64_t unroll = 0; ///< 0: left to Triton
};

loop_options options_of(const emitter& e, std::int32_t index) {
  const device_ir::config& c = *e.plan->config;
  const std::size_t i = static_cast<std::size_t>(index);
  loop_options o;
  if (i < c.range_num_stages.size()) o.stages = c.range_num_stages[i];
  if (i < c.range_unroll_factors.size()) o.unroll = c.range_unroll_factors[i];
  if (std::find(c.indexing.begin(), c.indexing.end(), device_ir::indexing::tensor_descriptor) != c.indexing.end()) {
    // Pipelined and unrolled loops over tensor descriptors read beyond their bounds: such configs are timed without.
    o.stages = 0;
    if (c.num_stages.value_or(1) > 1) o.unroll = 0;
  } else if (o.stages > 1 && o.unroll > 1) {
    o.stages = std::min(o.stages, most_stages(e, index, o.unroll));
  }
  return o;
}

} // namespace

bool is_pipelined(const emitter& e, std::int32_t index) {
  const std::int64_t stages = index < 0 ? 0 : options_of(e, index).stages;
  return (stages > 0 ? stages : e.plan->config->num_stages.value_or(1)) > 1;
}

void append_range_options(emitter& e, std::vector<expression>& arguments, std::int32_t index) {
  if (index < 0) return;
  const device_ir::config& c = *e.plan->config;
  const std::size_t i = static_cast<std::size_t>(index);
  const auto keyword = [&](std::string_view name, expression value) { arguments.push_back(e.keyword_argument(name, value)); };
  const auto [stages, unroll] = options_of(e, index);
  if (stages > 0) keyword("num_stages", e.integer(stages));
  if (unroll > 0) keyword("loop_unroll_factor", e.integer(unroll));
  if (i < c.range_multi_buffers.size() && c.range_multi_buffers[i])
    keyword("disallow_acc_multi_buffer", e.boolean(!*c.range_multi_buffers[i]));
  if (i < c.range_flattens.size() && c.range_flattens[i]) keyword("flatten", e.boolean(*c.range_flattens[i]));
  if (i < c.range_warp_specializes.size() && c.range_warp_specializes[i])
    keyword("warp_specialize", e.boolean(*c.range_warp_specializes[i]));
}

void write_module(triton_emitter& e, std::string& out, void (*options)(const device_ir::config&, std::string&)) {
  module_writer(e, out, options).write();
}
void write_kernel(emitter& e, std::string& out) { write_module(self(e), out, launch_options); }

} // namespace muster::triton

namespace muster {

void write_triton_module(codegen::emitter& e, std::string& out, void (*options)(const device_ir::config&, std::string&)) {
  triton::write_module(triton::self(e), out, options);
}

} // namespace muster
