#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <doctest/doctest.h>
#include "documents.hpp"

import muster.error;
import muster.registry;
import muster.symbolic;
import muster.device_ir;
import muster.operations;
import muster.codegen;
import muster.builtin;
import muster.backend.triton;
import muster.backend.cpu;

namespace {

namespace fs = std::filesystem;
using namespace muster;
using codegen::expression;
using codegen::op;
using device_ir::dtype;

device_ir::document own(std::string_view name) {
  const fs::path file = fs::path(MUSTER_TEST_DOCUMENTS) / name;
  return device_ir::parse(documents::read(file), std::string(name));
}

/// An emitter of a dialect, over some document, with parameters to build expressions of.
class workbench {
public:
  explicit workbench(const codegen::target& target) : document_(own("add.txt")) {
    codegen::make_plan(plan_, document_, document_.config);
    const auto registry = builtin_registry();
    e.reset(plan_, target, registry, registry.backend_named(target.name));
  }
  expression parameter(std::string_view name, dtype type) { return e.typed(e.name(e.new_parameter(name, type)), type); }
  std::string text(expression x) const {
    std::string out;
    e.print_expression(x, out);
    return out;
  }

private:
  device_ir::document document_;
  codegen::kernel_plan plan_;

public:
  codegen::emitter e;
};

struct spelled {
  op operation;
  std::string_view token;
  int python; ///< how tightly it binds: the language's reference, larger is tighter
  int c;
};

constexpr spelled operators[] = {
    {op::equal, "==", 1, 4},  {op::less, "<", 1, 5},     {op::greater_equal, ">=", 1, 5}, {op::bit_or, "|", 2, 1},
    {op::bit_xor, "^", 3, 2}, {op::bit_and, "&", 4, 3},  {op::shift_left, "<<", 5, 6},    {op::shift_right, ">>", 5, 6},
    {op::add, "+", 6, 7},     {op::subtract, "-", 6, 7}, {op::multiply, "*", 7, 8},
};

/// Reads an expression of one-letter names, binary operators and parentheses, and writes it with every pair of parentheses.
class reader {
public:
  reader(std::string_view text, bool c) : text_(text), c_(c) {}
  std::string all() {
    std::string result = climb(0);
    CHECK(at_ == text_.size());
    return result;
  }

private:
  std::string_view text_;
  bool c_;
  std::size_t at_ = 0;

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  std::string atom() {
    skip();
    if (text_[at_] != '(') return std::string(1, text_[at_++]);
    ++at_;
    std::string inside = climb(0);
    skip();
    REQUIRE(text_[at_] == ')');
    ++at_;
    return inside;
  }
  const spelled* next() {
    skip();
    const spelled* longest = nullptr;
    for (const spelled& o : operators)
      if (text_.substr(at_).starts_with(o.token) && (longest == nullptr || o.token.size() > longest->token.size())) longest = &o;
    return longest;
  }
  std::string climb(int least) {
    std::string left = atom();
    for (const spelled* o = next(); o != nullptr && (c_ ? o->c : o->python) >= least; o = next()) {
      const int tightness = c_ ? o->c : o->python;
      const bool comparison = o->operation == op::equal || o->operation == op::less || o->operation == op::greater_equal;
      at_ += o->token.size();
      const std::string right = climb(tightness + 1);
      left = "(" + left + " " + std::string(o->token) + " " + right + ")";
      // In Python a second comparison would be a chain, which means something else.
      if (!c_ && comparison)
        if (const spelled* chained = next(); chained != nullptr) CHECK(chained->python != 1);
    }
    return left;
  }
};

std::string without_pair(std::string_view text, std::size_t open) {
  int depth = 0;
  std::size_t close = open;
  for (; close < text.size(); ++close) {
    depth += text[close] == '(' ? 1 : text[close] == ')' ? -1 : 0;
    if (depth == 0) break;
  }
  std::string shorter(text);
  shorter.erase(close, 1);
  shorter.erase(open, 1);
  return shorter;
}

void check_nesting(const codegen::target& target, bool c) {
  for (const spelled& outer : operators)
    for (const spelled& inner : operators)
      for (const bool left : {true, false}) {
        workbench w(target);
        const expression a = w.parameter("a", dtype::i32);
        const expression b = w.parameter("b", dtype::i32);
        const expression d = w.parameter("d", dtype::i32);
        const expression inside = w.e.binary(inner.operation, left ? a : b, left ? b : d);
        const std::string text = w.text(left ? w.e.binary(outer.operation, inside, d) : w.e.binary(outer.operation, a, inside));
        CAPTURE(text);
        const std::string in(inner.token);
        const std::string out(outer.token);
        // Of integers, a chain of one associative operator needs no parentheses.
        const bool associative = outer.operation == inner.operation &&
                                 (outer.operation == op::add || outer.operation == op::multiply || outer.operation == op::bit_and ||
                                  outer.operation == op::bit_or || outer.operation == op::bit_xor);
        const std::string meant = left || associative ? "((a " + in + " b) " + out + " d)" : "(a " + out + " (b " + in + " d))";
        CHECK(reader(text, c).all() == meant);
        const std::size_t open = text.find('(');
        if (open == std::string::npos || c) continue; // C compilers warn of some pairs that are not needed
        const bool comparison = outer.python == 1 && inner.python == 1;
        if (!comparison) CHECK(reader(without_pair(text, open), c).all() != meant);
      }
}

} // namespace

TEST_SUITE("codegen: expressions") {
  TEST_CASE("nested operators read back as they were built, with no pair of parentheses too many") {
    check_nesting(triton_target, false);
    check_nesting(cpu_target, true);
  }

  TEST_CASE("sums and products of floats keep their order") {
    for (const codegen::target* target : {&triton_target, &cpu_target}) {
      workbench w(*target);
      const expression a = w.parameter("a", dtype::f32);
      const expression b = w.parameter("b", dtype::f32);
      const expression c = w.parameter("c", dtype::f32);
      CHECK(w.text(w.e.binary(op::add, a, w.e.binary(op::add, b, c))) == "a + (b + c)");
      CHECK(w.text(w.e.binary(op::multiply, a, w.e.binary(op::multiply, b, c))) == "a * (b * c)");
      CHECK(w.text(w.e.binary(op::divide, a, w.e.binary(op::multiply, b, c))) == "a / (b * c)");
      CHECK(w.text(w.e.binary(op::multiply, w.e.binary(op::divide, a, b), c)) == "a / b * c");
    }
  }

  TEST_CASE("C: a bitwise test of a choice has parentheses, since compilers ask for them") {
    workbench w(cpu_target);
    const expression a = w.parameter("a", dtype::b8);
    const expression b = w.parameter("b", dtype::b8);
    const expression x = w.parameter("x", dtype::f32);
    const expression y = w.parameter("y", dtype::f32);
    CHECK(w.text(w.e.select(w.e.binary(op::bit_and, a, b), x, y)) == "(a & b) ? x : y");
    CHECK(w.text(w.e.select(w.e.binary(op::less, x, y), x, y)) == "x < y ? x : y");
  }

  TEST_CASE("unary minus and powers") {
    workbench w(triton_target);
    const expression a = w.parameter("a", dtype::i32);
    const expression b = w.parameter("b", dtype::i32);
    CHECK(w.text(w.e.unary(op::negate, w.e.binary(op::multiply, a, b))) == "-(a * b)");
    CHECK(w.text(w.e.binary(op::multiply, w.e.unary(op::negate, a), b)) == "-a * b");
    CHECK(w.text(w.e.binary(op::subtract, a, w.e.unary(op::negate, b))) == "a - -b");
    CHECK(w.text(w.e.binary(op::power, w.e.unary(op::negate, a), b)) == "(-a) ** b");
  }

  TEST_CASE("literals are exact") {
    workbench python(triton_target);
    workbench c(cpu_target);
    const auto both = [&](double v, dtype type, std::string_view as_python, std::string_view as_c) {
      CAPTURE(v);
      CHECK(python.text(python.e.real(v, type)) == as_python);
      CHECK(c.text(c.e.real(v, type)) == as_c);
    };
    both(0.5, dtype::f32, "0.5", "0.5f");
    both(2.0, dtype::f64, "2.0", "2.0");
    both(1e-5, dtype::f64, "1e-05", "1e-05");
    both(0.1, dtype::f64, "0.1", "0.1");
    both(-0.0, dtype::f32, "-0.0", "-0.0f");
    CHECK(python.text(python.e.real(-std::numeric_limits<double>::infinity())) == "float(\"-inf\")");
    CHECK(python.text(python.e.real(std::numeric_limits<double>::quiet_NaN())) == "float(\"nan\")");
    // Every single-precision number reads back from its shortest spelling.
    for (const float v : {0.1F, 1.0F / 3.0F, 3.4028235e38F, 1.1754944e-38F, 1e-45F, 16777217.0F, 1.44269504F}) {
      const std::string text = c.text(c.e.real(static_cast<double>(v), dtype::f32));
      CAPTURE(text);
      CHECK(text.back() == 'f');
      CHECK(std::strtof(text.c_str(), nullptr) == v);
    }
    CHECK(python.text(python.e.integer(std::numeric_limits<std::int64_t>::min(), dtype::i64)) == "-9223372036854775808");
    // No literal of C is negative: this one would be too large before its sign.
    CHECK(c.text(c.e.integer(std::numeric_limits<std::int64_t>::min(), dtype::i64)) != "-9223372036854775808");
    CHECK(python.text(python.e.string("a\"b\\c\n")) == R"("a\"b\\c\n")");
  }

  TEST_CASE("constants fold and neutral operands go, of integers only") {
    workbench w(triton_target);
    const expression i = w.parameter("i", dtype::i32);
    const expression x = w.parameter("x", dtype::f32);
    CHECK(w.text(w.e.binary(op::add, w.e.integer(3), w.e.integer(4))) == "7");
    CHECK(w.text(w.e.binary(op::multiply, i, w.e.integer(1))) == "i");
    CHECK(w.text(w.e.binary(op::add, i, w.e.integer(0))) == "i");
    CHECK(w.text(w.e.binary(op::multiply, i, w.e.integer(0))) == "i * 0"); // `i` may be a tile, whose shape the product has
    CHECK(w.text(w.e.binary(op::add, x, w.e.real(0.0))) == "x + 0.0");      // -0.0 + 0.0 is 0.0
    CHECK(w.text(w.e.binary(op::multiply, x, w.e.real(0.0))) == "x * 0.0"); // NaN stays
  }

  TEST_CASE("a cast is left out where the type is already the one") {
    workbench w(triton_target);
    const expression x = w.parameter("x", dtype::f32);
    CHECK(w.text(w.e.cast(x, dtype::f32)) == "x");
    CHECK(w.text(w.e.cast(x, dtype::f16)) == "x.to(tl.float16)");
    CHECK(w.text(w.e.cast(w.e.integer(2), dtype::f32)) == "2.0"); // a literal is converted
  }

  TEST_CASE("a name is no keyword, no builtin, and no other name") {
    workbench w(triton_target);
    CHECK(w.e.unique_name("x") == "x");
    CHECK(w.e.unique_name("x") == "x_1");
    CHECK(w.e.unique_name("x_1") == "x_2");
    for (const std::string_view word : {"for", "lambda", "tl", "triton", "print", "None"}) {
      CAPTURE(word);
      CHECK(w.e.unique_name(word) != word);
    }
    CHECK(w.e.unique_name("a.b[0]") == "a_b_0");
    CHECK(w.e.unique_name("0x") == "v0x");
    workbench c(cpu_target);
    for (const std::string_view word : {"for", "int", "template", "std", "float", "auto"}) {
      CAPTURE(word);
      CHECK(c.e.unique_name(word) != word);
    }
  }

  TEST_CASE("what nothing reads is not printed; what has an effect is") {
    workbench w(triton_target);
    const codegen::body root = w.e.new_body();
    {
      const auto into = w.e.into(root);
      const expression a = w.parameter("a", dtype::i32);
      (void)w.e.define("unread", w.e.binary(op::add, a, w.e.integer(1)));
      const expression read = w.e.define("read", w.e.binary(op::multiply, a, w.e.integer(2)));
      w.e.evaluate(w.e.call("effect", {read}));
      const codegen::statement loop = w.e.for_range(w.e.new_variable("i"), w.e.call("range", {w.e.integer(4)}));
      const auto inside = w.e.into(w.e.inner(loop));
      (void)w.e.define("also_unread", a);
    }
    w.e.mark_live(root);
    w.e.resolve_names(root);
    std::string out;
    w.e.print_body(root, out, 0);
    CHECK(out == "read = a * 2\neffect(read)\n");
  }
}

TEST_SUITE("codegen: plan") {
  /// Whether some tile of `lanes` lanes reaches beyond `extent`.
  bool reaches_beyond(std::int64_t extent, std::int64_t lanes) { return extent % lanes != 0; }

  TEST_CASE("a mask is left out exactly where a tile divides the extent") {
    std::size_t masked = 0;
    std::size_t unmasked = 0;
    std::vector<fs::path> files = documents::own();
    for (const fs::path& f : documents::recorded()) files.push_back(f);
    for (const fs::path& file : files) {
      CAPTURE(file);
      const device_ir::document d = device_ir::parse(documents::read(file), file.filename().string());
      codegen::kernel_plan plan;
      codegen::make_plan(plan, d, d.config);
      for (const codegen::block_plan& b : plan.blocks) {
        if (b.role == codegen::block_role::unused || b.jagged || b.block_size == 0 || !b.constant_extent) continue;
        CAPTURE(b.id);
        CHECK(b.mask == reaches_beyond(*b.constant_extent, b.block_size));
        ++(b.mask ? masked : unmasked);
      }
    }
    CHECK(masked > 0);
    CHECK(unmasked > 0);
  }

  TEST_CASE("loop orders and l2 groups") {
    const device_ir::document d = own("matmul.txt");
    codegen::kernel_plan plan;
    codegen::make_plan(plan, d, device_ir::parse_config(R"({"loop_orders": [[1, 0]], "l2_groupings": [1]})", d.config));
    REQUIRE(plan.roots.size() == 1);
    CHECK((plan.roots[0].blocks == std::vector<std::int32_t>{1, 0})); // fastest first, as the order lists them
    CHECK(plan.roots[0].l2_grouping == 1);
    codegen::make_plan(plan, d, device_ir::parse_config(R"({"loop_orders": [[0, 1]], "l2_groupings": [4]})", d.config));
    CHECK(plan.roots[0].l2_grouping == 4);
  }

  TEST_CASE("the same text for the same document") {
    for (const fs::path& file : documents::own()) {
      CAPTURE(file);
      const device_ir::document d = device_ir::parse(documents::read(file), file.filename().string());
      std::string texts[2];
      for (std::string& text : texts) {
        codegen::kernel_plan plan;
        codegen::make_plan(plan, d, d.config);
        codegen::print_plan(plan, text);
      }
      CHECK(texts[0] == texts[1]);
      CHECK(texts[0].starts_with("kernel " + std::string(d.kernel) + "\n"));
    }
  }

  TEST_CASE("a rolled reduction and a whole one") {
    const auto role_of = [](std::string_view name) {
      const device_ir::document d = own(name);
      codegen::kernel_plan plan;
      codegen::make_plan(plan, d, d.config);
      return plan.blocks.at(1).role;
    };
    CHECK((role_of("softmax.txt") == codegen::block_role::whole));
    CHECK((role_of("softmax_rolled.txt") == codegen::block_role::rolled));
  }
}

TEST_SUITE("codegen: generator") {
  TEST_CASE("what is missing is reported in the words of the contract, and nothing is written") {
    const device_ir::document d = own("matmul.txt");
    codegen::generator generator = builtin_generator();
    for (const std::string_view backend : {"metal", "pallas", "cute"}) {
      CAPTURE(backend);
      std::string out = "before";
      const std::string expected =
          "Backend '" + std::string(backend) + "' is missing required implementation: codegen for API function load";
      CHECK_THROWS_WITH_AS(generator.generate(d, backend, out), expected.c_str(), BackendImplementationMissing);
      CHECK(out == "before");
    }
    std::string out;
    CHECK_THROWS_AS(generator.generate(d, "mettal", out), UnknownBackend);
    generator.generate(d, "triton", out);
    std::string fresh;
    builtin_generator().generate(d, "triton", fresh);
    CHECK(out == fresh);
  }

  TEST_CASE("an operation that no set has is an unknown one, with the nearest name and the place") {
    std::string text = documents::read(fs::path(MUSTER_TEST_DOCUMENTS) / "add.txt");
    const std::string_view known = "torch.ops.aten.add.Tensor";
    const std::size_t at = text.find(known);
    REQUIRE(at != std::string::npos);
    text.replace(at, known.size(), "torch.ops.aten.adq.Tensor");
    const device_ir::document d = device_ir::parse(text, "wrong.txt");
    std::string out;
    for (const std::string_view backend : {"triton", "cpu", "metal"}) {
      CAPTURE(backend);
      codegen::generator generator = builtin_generator();
      if (backend == "metal") { // what comes first is reported first
        CHECK_THROWS_AS(generator.generate(d, backend, out), BackendImplementationMissing);
        continue;
      }
      try {
        generator.generate(d, backend, out);
        FAIL("generated");
      } catch (const UnknownOperation& error) {
        const std::string what = error.what();
        CHECK(what.find("adq") != std::string::npos);
        CHECK(what.find("wrong.txt:") != std::string::npos);
      }
    }
  }

  TEST_CASE("an unknown config key is noted, and changes nothing") {
    const device_ir::document d = own("add.txt");
    codegen::generator generator = builtin_generator();
    std::string plain;
    std::string noted;
    generator.generate(d, "triton", plain);
    CHECK(generator.notes().empty());
    generator.generate(d, device_ir::parse_config(R"({"no_such_key": 3})", d.config), "triton", noted);
    REQUIRE(generator.notes().size() == 1);
    CHECK(generator.notes()[0].find("no_such_key") != std::string::npos);
    CHECK(plain == noted);
  }

  TEST_CASE("another config is another kernel") {
    const device_ir::document d = own("softmax.txt");
    codegen::generator generator = builtin_generator();
    std::string out;
    generator.generate(d, device_ir::parse_config(R"({"num_warps": 16, "num_stages": 3})", d.config), "triton", out);
    CHECK(out.find("num_warps=16, num_stages=3") != std::string::npos);
  }

  TEST_CASE("every recorded document is generated for cpu") {
    codegen::generator generator = builtin_generator();
    for (const fs::path& file : documents::recorded()) {
      CAPTURE(file);
      const device_ir::document d = device_ir::parse(documents::read(file), file.filename().string());
      std::string out;
      CHECK_NOTHROW(generator.generate(d, "cpu", out));
      CHECK(out.find("extern \"C\" void muster_kernel(") != std::string::npos);
    }
  }
}
