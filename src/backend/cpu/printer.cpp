module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
#include <fmt/ranges.h>
module muster.backend.cpu;

namespace muster::cpu {

using codegen::intrinsic;
using codegen::op;

namespace {

// -- the dialect

/// Keywords, macros of the standard headers, and what the module defines itself. Sorted.
// clang-format off
constexpr std::string_view reserved[] = {
    "BUFSIZ", "EDOM", "EILSEQ", "EOF", "ERANGE", "FILENAME_MAX", "FOPEN_MAX", "HUGE_VAL", "INFINITY", "NAN", "NULL", "RAND_MAX",
    "SEEK_CUR", "SEEK_END", "SEEK_SET", "TMP_MAX", "WEOF", "abs", "alignas", "alignof", "and", "and_eq", "asm", "assert", "auto",
    "bfloat16", "bitand", "bitor", "bool", "break", "case", "catch", "char", "char16_t", "char32_t", "char8_t", "class",
    "co_await", "co_return", "co_yield", "compl", "concept", "const", "const_cast", "consteval", "constexpr", "constinit",
    "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "errno", "explicit", "export",
    "extern", "false", "final", "float", "float16", "float8_e4m3fn", "float8_e5m2", "for", "friend", "goto", "i386", "if",
    "import", "inline", "int", "linux", "long", "main", "math", "module", "muster_kernel", "muster_scalar", "mutable",
    "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "override", "parallel", "private",
    "program", "protected", "public", "register", "reinterpret_cast", "requires", "return", "short", "signed", "sizeof", "static",
    "static_assert", "static_cast", "std", "stderr", "stdin", "stdout", "struct", "switch", "symbols", "template", "tensors",
    "this", "thread_local", "threads", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unix", "unsigned",
    "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
};
// clang-format on
static_assert(std::is_sorted(std::begin(reserved), std::end(reserved)));

constexpr std::array<std::string_view, device_ir::dtype_count> types{"double",        "float",       "float16",      "bfloat16",
                                                                     "float8_e4m3fn", "float8_e5m2", "std::int64_t", "std::int32_t",
                                                                     "std::int16_t",  "std::int8_t", "std::uint8_t", "bool"};

constexpr std::array<dtype, device_ir::dtype_count> computing{dtype::f64, dtype::f32, dtype::f32, dtype::f32, dtype::f32, dtype::f32,
                                                              dtype::i64, dtype::i32, dtype::i16, dtype::i8,  dtype::u8,  dtype::b8};

constexpr std::array<std::string_view, codegen::intrinsic_count> functions = [] {
  std::array<std::string_view, codegen::intrinsic_count> f{};
  const auto set = [&](intrinsic i, std::string_view spelling) { f[static_cast<std::size_t>(i)] = spelling; };
  set(intrinsic::abs, "math::abs");
  set(intrinsic::acos, "std::acos");
  set(intrinsic::acosh, "std::acosh");
  set(intrinsic::asin, "std::asin");
  set(intrinsic::asinh, "std::asinh");
  set(intrinsic::atan, "std::atan");
  set(intrinsic::atan2, "std::atan2");
  set(intrinsic::atanh, "std::atanh");
  set(intrinsic::ceil, "std::ceil");
  set(intrinsic::copysign, "std::copysign");
  set(intrinsic::cos, "std::cos");
  set(intrinsic::cosh, "std::cosh");
  set(intrinsic::digamma, "math::digamma");
  set(intrinsic::erf, "math::erf");
  set(intrinsic::erfc, "std::erfc");
  set(intrinsic::erfinv, "math::erfinv");
  set(intrinsic::exp, "math::exp");
  set(intrinsic::exp2, "math::exp2");
  set(intrinsic::expm1, "std::expm1");
  set(intrinsic::floor, "std::floor");
  set(intrinsic::fmod, "std::fmod");
  set(intrinsic::hypot, "std::hypot");
  set(intrinsic::isfinite, "std::isfinite");
  set(intrinsic::isinf, "std::isinf");
  set(intrinsic::isnan, "std::isnan");
  set(intrinsic::lgamma, "std::lgamma");
  set(intrinsic::log, "math::log");
  set(intrinsic::log10, "std::log10");
  set(intrinsic::log1p, "std::log1p");
  set(intrinsic::log2, "math::log2");
  set(intrinsic::maximum, "math::maximum");
  set(intrinsic::minimum, "math::minimum");
  set(intrinsic::integer_maximum, "math::integer_maximum");
  set(intrinsic::integer_minimum, "math::integer_minimum");
  set(intrinsic::fmax, "std::fmax");
  set(intrinsic::fmin, "std::fmin");
  set(intrinsic::nextafter, "math::nextafter");
  set(intrinsic::pow, "std::pow");
  set(intrinsic::round_even, "std::nearbyint");
  set(intrinsic::rsqrt, "math::rsqrt");
  set(intrinsic::sigmoid, "math::sigmoid");
  set(intrinsic::signbit, "std::signbit");
  set(intrinsic::sin, "std::sin");
  set(intrinsic::sinh, "std::sinh");
  set(intrinsic::sqrt, "math::sqrt");
  set(intrinsic::tan, "std::tan");
  set(intrinsic::tanh, "math::tanh");
  set(intrinsic::trunc, "std::trunc");
  set(intrinsic::fma, "std::fma");
  set(intrinsic::floor_divide, "math::floor_divide");
  set(intrinsic::floor_modulo, "math::floor_modulo");
  set(intrinsic::trunc_divide, "math::trunc_divide");
  set(intrinsic::trunc_modulo, "math::trunc_modulo");
  set(intrinsic::ceil_divide, "math::ceil_divide");
  return f;
}();

} // namespace

const codegen::dialect language{.language = codegen::language::c,
                                .types = types,
                                .functions = functions,
                                .infinity = "math::infinity",
                                .negative_infinity = "-math::infinity",
                                .not_a_number = "math::nan",
                                .true_ = "true",
                                .false_ = "false",
                                .arithmetic = computing,
                                .transcendental = computing,
                                .symbol_real = dtype::f32,
                                .promotes_like_torch = false,
                                .constructs_narrow = true,
                                .reserved = reserved};

std::unique_ptr<codegen::emitter> make_emitter() { return std::make_unique<cpu_emitter>(); }

namespace {

/// Writes the whole file: helpers, one function a root, the entry point.
class file_writer {
public:
  file_writer(cpu_emitter& e, std::string& out) : e_(e), plan_(*e.plan), d_(*e.source), out_(out) {}

  void write() {
    name_parameters();
    std::string functions;
    for (const codegen::root_plan& r : plan_.roots) write_root(r, functions);
    std::string entry;
    write_entry(entry);
    write_header();
    std::string helpers;
    append_helpers(functions + entry, helpers);
    out_ += helpers;
    out_ += "namespace {\n";
    out_ += functions;
    out_ += "\n} // namespace\n\n";
    out_ += entry;
  }

private:
  struct root_function {
    std::string name;
    std::string arguments;
    expression programs = codegen::no_expression;
    std::int32_t phase = 0;
  };

  cpu_emitter& e_;
  const codegen::kernel_plan& plan_;
  const device_ir::document& d_;
  std::string& out_;
  std::vector<variable> tensors_;
  std::vector<root_function> roots_;
  std::vector<bool> tensor_needed_;
  std::vector<bool> symbol_needed_;

  template <class... T> static void line(std::string& out, fmt::format_string<T...> format, T&&... arguments) {
    fmt::format_to(std::back_inserter(out), format, std::forward<T>(arguments)...);
    out += '\n';
  }

  std::string_view spelled(dtype type) const { return language.types[static_cast<std::size_t>(type)]; }

  void name_parameters() {
    tensor_needed_.assign(d_.tensors.size(), false);
    symbol_needed_.assign(d_.symbols.symbol_count(), false);
    for (std::size_t i = 0; i < d_.tensors.size(); ++i) {
      const variable v = e_.new_parameter(d_.tensors[i].name, d_.tensors[i].element);
      tensors_.push_back(v);
      e_.bind_tensor(static_cast<std::int32_t>(i), e_.name(v));
    }
  }

  std::string pointer_type(std::size_t tensor) const {
    const bool written = e_.is_written(static_cast<std::int32_t>(tensor));
    return fmt::format("{}{}*", written ? "" : "const ", spelled(d_.tensors[tensor].element));
  }

  // -- one root

  void write_root(const codegen::root_plan& r, std::string& functions) {
    e_.start_root();
    const codegen::body inside = e_.root_body();
    root_function f;
    f.phase = r.phase;
    const std::string_view what = plan_.roots.size() == 1 ? "tile" : d_.graphs[static_cast<std::size_t>(r.graph)].name;
    f.name = std::string(e_.unique_name(e_.keep(fmt::format("{}_{}", d_.kernel, what))));
    {
      const auto guard = e_.into(inside);
      open_grid(r);
      e_.record_program(r.graph);
      e_.lower_graph(r.graph);
      for (const std::int32_t b : r.blocks) e_.close_tile(b);
    }
    e_.mark_live(inside);
    e_.resolve_names(inside);
    std::string body;
    e_.print_body(inside, body, 1);
    std::vector<std::string> parameters;
    std::vector<std::string> arguments;
    for (std::size_t i = 0; i < d_.tensors.size(); ++i) {
      if (!e_.tensor_used(static_cast<std::int32_t>(i)) || body.find(e_.name_of(tensors_[i])) == std::string::npos) continue;
      tensor_needed_[i] = true;
      parameters.push_back(fmt::format("{} __restrict {}", pointer_type(i), e_.name_of(tensors_[i])));
      arguments.emplace_back(e_.name_of(tensors_[i]));
    }
    for (const symbolic::symbol s : codegen::launch_symbols(plan_)) {
      if (!e_.parameter_used(s) || body.find(symbol_name(s)) == std::string::npos) continue;
      symbol_needed_[static_cast<std::size_t>(s)] = true;
      parameters.push_back(fmt::format("{} {}", symbol_type(s), symbol_name(s)));
      arguments.push_back(symbol_name(s));
    }
    parameters.emplace_back(body.find("program") == std::string::npos ? "std::int64_t" : "std::int64_t program");
    arguments.emplace_back("program");
    f.arguments = fmt::format("{}", fmt::join(arguments, ", "));
    f.programs = programs_of(r);
    line(functions, "\nvoid {}({}) {{", f.name, fmt::join(parameters, ", "));
    functions += body;
    functions += "}\n";
    roots_.push_back(std::move(f));
  }

  expression non_negative(expression e) { return e_.mark_non_negative(e); }

  expression extent_of(std::int32_t block) {
    const codegen::block_plan& b = plan_.blocks[static_cast<std::size_t>(block)];
    if (b.extent == symbolic::no_expression) e_.malformed(fmt::format("grid block {} has no size", block));
    return non_negative(e_.symbolic(b.extent));
  }

  expression tile_count(std::int32_t block) {
    const codegen::block_plan& b = plan_.blocks[static_cast<std::size_t>(block)];
    if (b.constant_extent && b.block_size > 0) return non_negative(e_.whole((*b.constant_extent + b.block_size - 1) / b.block_size));
    if (b.block_size == 1) return extent_of(block);
    return non_negative(e_.call(intrinsic::ceil_divide, {extent_of(block), e_.cast(e_.block_size(block), dtype::i64)}, dtype::i64));
  }

  expression programs_of(const codegen::root_plan& r) {
    expression total = e_.whole(1);
    for (const std::int32_t b : r.blocks) total = e_.binary(op::multiply, total, tile_count(b));
    return total;
  }

  /// The program's number taken apart into one tile a block, the first block fastest.
  void open_grid(const codegen::root_plan& r) {
    expression rest = non_negative(e_.text("program", dtype::i64));
    for (std::size_t i = 0; i < r.blocks.size(); ++i) {
      const std::int32_t block = r.blocks[i];
      const bool last = i + 1 == r.blocks.size();
      const expression count = tile_count(block);
      const expression id =
          e_.define(e_.keep(fmt::format("tile_{}", block)), last ? rest : non_negative(e_.binary(op::modulo, rest, count)));
      if (!last) rest = non_negative(e_.binary(op::floor_divide, rest, count));
      const expression size = e_.cast(e_.block_size(block), dtype::i64);
      const expression offset = e_.define(e_.keep(fmt::format("offset_{}", block)), non_negative(e_.binary(op::multiply, id, size)));
      e_.open_lanes(block, offset, extent_of(block), id);
    }
  }

  // -- the entry point

  std::string symbol_name(symbolic::symbol s) { return std::string(e_.name_of(e_.at(e_.parameter_value(s)).name)); }
  std::string_view symbol_type(symbolic::symbol s) const {
    return plan_.real_symbol[static_cast<std::size_t>(s)] ? spelled(language.symbol_real) : "std::int64_t";
  }

  void write_entry(std::string& out) {
    std::string calls;
    for (std::size_t i = 0; i < roots_.size(); ++i) {
      const root_function& f = roots_[i];
      std::string programs;
      e_.print_expression(f.programs, programs);
      line(calls, "  parallel::run({}, threads, [&](std::int64_t program) {{ {}({}); }});", programs, f.name, f.arguments);
    }
    line(out, "extern \"C\" void muster_kernel(void* const* tensors, [[maybe_unused]] const muster_scalar* symbols, int threads) {{");
    for (std::size_t i = 0; i < d_.tensors.size(); ++i)
      if (tensor_needed_[i])
        line(out, "  {} const {} = static_cast<{}>(tensors[{}]); // {}", pointer_type(i), e_.name_of(tensors_[i]), pointer_type(i), i,
             shape_text(d_.tensors[i]));
    const std::vector<symbolic::symbol> symbols = codegen::launch_symbols(plan_);
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const symbolic::symbol s = symbols[i];
      if (!symbol_needed_[static_cast<std::size_t>(s)] && calls.find(symbol_name(s)) == std::string::npos) continue;
      const bool real = plan_.real_symbol[static_cast<std::size_t>(s)];
      if (real) line(out, "  const float {} = static_cast<float>(symbols[{}].real);", symbol_name(s), i);
      else line(out, "  const std::int64_t {} = symbols[{}].integer;", symbol_name(s), i);
    }
    out += calls;
    out += "}\n";
    if (e_.recording)
      out +=
          "\nextern \"C\" void muster_record_to(const void* recorder) { record::to = static_cast<const record::recorder*>(recorder); }\n";
  }

  std::string shape_text(const device_ir::host_tensor& t) const {
    std::vector<std::string> sizes;
    for (const symbolic::expression e : d_.sizes(t)) sizes.push_back(d_.symbols.to_string(e));
    return fmt::format("[{}]", fmt::join(sizes, ", "));
  }

  void write_header() {
    line(out_, "// {}: a kernel for the processor. C++20, standard library only; -O3 -march=native makes it fast.", d_.kernel);
    line(out_, "//");
    line(out_, "//   extern \"C\" void muster_kernel(void* const* tensors, const muster_scalar* symbols, int threads);");
    line(out_, "//");
    line(out_, "// tensors: the address of element [0, 0, ...] of each; one that is written may not overlap another.");
    for (std::size_t i = 0; i < d_.tensors.size(); ++i)
      line(out_, "//   {}: {} {}{}", i, d_.tensors[i].name, device_ir::name(d_.tensors[i].element), shape_text(d_.tensors[i]));
    const std::vector<symbolic::symbol> symbols = codegen::launch_symbols(plan_);
    if (!symbols.empty()) line(out_, "// symbols:");
    for (std::size_t i = 0; i < symbols.size(); ++i)
      line(out_, "//   {}: {}, {}", i, d_.symbols.name(symbols[i]),
           plan_.real_symbol[static_cast<std::size_t>(symbols[i])] ? "real" : "integer");
    line(out_, "// threads: how many may run it; 0: one a processor.");
  }
};

} // namespace

void write_kernel(emitter& e, std::string& out) { file_writer(self(e), out).write(); }

} // namespace muster::cpu

namespace muster {

const codegen::target cpu_target{
    .name = "cpu", .language = &cpu::language, .make_emitter = cpu::make_emitter, .write_kernel = cpu::write_kernel, .records = true};

} // namespace muster
