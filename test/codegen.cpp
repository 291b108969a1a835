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
  explicit workbench(const codegen::target& target, std::string_view document = "add.txt") : document_(own(document)) {
    codegen::make_plan(plan_, document_, document_.config);
    const auto registry = builtin_registry();
    e.reset(plan_, target, registry, registry.backend_named(target.name));
  }
  expression parameter(std::string_view name, dtype type) { return e.typed(e.name(e.new_parameter(name, type)), type); }
  expression symbol(std::string_view name) { return e.parameter_value(document_.symbols.find_symbol(name).value()); }
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
    both(-0.0, dtype::f32, "(tl.full([], 0.0, tl.float32) * -1.0)", "-0.0f"); // Triton makes every number equal to 0 the positive one
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

  TEST_CASE("unary operators, powers and choices in both languages") {
    const auto both = [](const auto& build, std::string_view as_python, std::string_view as_c) {
      for (const codegen::target* target : {&triton_target, &cpu_target}) {
        workbench w(*target);
        const expression a = w.parameter("a", dtype::i32);
        const expression b = w.parameter("b", dtype::i32);
        CHECK(w.text(build(w.e, a, b)) == (target == &triton_target ? as_python : as_c));
      }
    };
    using E = codegen::emitter;
    both([](E& e, expression a, expression) { return e.unary(op::negate, e.unary(op::negate, a)); }, "--a", "-(-a)");
    both([](E& e, expression a, expression) { return e.unary(op::negate, e.unary(op::bit_not, a)); }, "-~a", "-~a");
    both([](E& e, expression a, expression b) { return e.unary(op::bit_not, e.binary(op::add, a, b)); }, "~(a + b)", "~(a + b)");
    both([](E& e, expression a, expression b) { return e.binary(op::subtract, a, e.unary(op::negate, b)); }, "a - -b", "a - -b");
    // `not` binds less tightly than a comparison in Python, `!` more tightly than anything in C.
    both([](E& e, expression a, expression b) { return e.unary(op::logical_not, e.binary(op::less, a, b)); }, "not a < b", "!(a < b)");
    both([](E& e, expression a, expression b) { return e.binary(op::equal, e.unary(op::logical_not, a), b); }, "(not a) == b", "!a == b");
    // A power binds more tightly than a minus on its left, and groups from the right; C has none.
    both([](E& e, expression a, expression b) { return e.unary(op::negate, e.binary(op::power, a, b)); }, "-a ** b", "-std::pow(a, b)");
    both([](E& e, expression a, expression b) { return e.binary(op::power, e.binary(op::power, a, b), a); }, "(a ** b) ** a",
         "std::pow(std::pow(a, b), a)");
    both([](E& e, expression a, expression b) { return e.binary(op::multiply, e.binary(op::power, a, b), b); }, "a ** b * b",
         "std::pow(a, b) * b");
    both([](E& e, expression a, expression b) { return e.select(e.binary(op::less, a, b), a, b); }, "a if a < b else b", "a < b ? a : b");
    both([](E& e, expression a, expression b) { return e.binary(op::add, e.select(e.binary(op::less, a, b), a, b), a); },
         "(a if a < b else b) + a", "(a < b ? a : b) + a");
    both([](E& e, expression a,
            expression b) { return e.select(e.binary(op::logical_or, e.binary(op::less, a, b), e.binary(op::equal, a, b)), a, b); },
         "a if a < b or a == b else b", "(a < b) || (a == b) ? a : b");
    // What can be negative is no operator of the target's where it has to be rounded down.
    both([](E& e, expression a, expression b) { return e.binary(op::floor_divide, a, b); }, "_floor_divide(a, b)",
         "math::floor_divide(a, b)");
    both([](E& e, expression a, expression b) { return e.binary(op::modulo, e.mark_non_negative(a), e.mark_non_negative(b)); }, "a % b",
         "a % b");
    both([](E& e, expression a, expression) { return e.binary(op::floor_divide, e.mark_non_negative(a), e.integer(4)); }, "a // 4",
         "a / 4");
    both([](E& e, expression a, expression b) { return e.subscript(e.binary(op::add, a, b), {a, e.none()}); }, "(a + b)[a, None]",
         "(a + b)[a, nullptr]");
    both([](E& e, expression a, expression) { return e.tuple(std::span<const expression>(&a, 1)); }, "(a,)", "(a,)");
  }

  TEST_CASE("a tensor's size is not negative, another integer may be") {
    workbench sizes(triton_target, "symbols.txt");
    const expression rows = sizes.symbol("s1"); // of x
    CHECK(sizes.text(sizes.e.binary(op::floor_divide, rows, sizes.e.integer(2))) == "s1 // 2");
    CHECK(sizes.text(sizes.e.binary(op::modulo, rows, sizes.symbol("s2"))) == "s1 % s2");
    const expression shifted = sizes.e.binary(op::subtract, rows, sizes.e.integer(3));
    CHECK(sizes.text(sizes.e.binary(op::floor_divide, shifted, sizes.e.integer(2))) == "_floor_divide(s1 - 3, 2)");
    CHECK(sizes.text(sizes.e.binary(op::floor_divide, sizes.e.greatest(shifted, sizes.e.integer(0)), sizes.e.integer(2))) ==
          "max(s1 - 3, 0) // 2");
    workbench others(triton_target, "atomics.txt");
    CHECK(others.text(others.e.binary(op::floor_divide, others.parameter("seed", dtype::i32), others.e.integer(2))) ==
          "_floor_divide(seed, 2)");
  }

  TEST_CASE("a floor of floats is a function, in either language") {
    for (const codegen::target* target : {&triton_target, &cpu_target}) {
      workbench w(*target);
      const expression x = w.parameter("x", dtype::f32);
      const expression y = w.parameter("y", dtype::f32);
      const bool python = target == &triton_target;
      CHECK(w.text(w.e.binary(op::floor_divide, x, y)) == (python ? "tl.floor(x / y)" : "std::floor(x / y)"));
    }
  }

  TEST_CASE("minus keeps the sign of zero") {
    workbench python(triton_target);
    CHECK(python.text(python.e.unary(op::negate, python.parameter("x", dtype::f32))) == "x * -1.0"); // -x is 0.0 - x to Triton
    CHECK(python.text(python.e.unary(op::negate, python.parameter("i", dtype::i32))) == "-i");
    CHECK(python.text(python.e.unary(op::negate, python.e.real(0.0, dtype::f16))) == "(tl.full([], 0.0, tl.float16) * -1.0)");
    workbench c(cpu_target);
    CHECK(c.text(c.e.unary(op::negate, c.parameter("x", dtype::f32))) == "-x");
  }

  TEST_CASE("integers at the edges of their types") {
    workbench c(cpu_target);
    workbench python(triton_target);
    const auto both = [&](std::int64_t v, std::string_view as_c) {
      CAPTURE(v);
      CHECK(c.text(c.e.integer(v, dtype::i64)) == as_c);
      CHECK(python.text(python.e.integer(v, dtype::i64)) == std::to_string(v));
    };
    both(2147483647, "2147483647");
    both(2147483648, "2147483648LL");
    both(-2147483647, "-2147483647");
    both(-2147483647 - 1, "(-2147483647 - 1)"); // 2147483648 would be a long before its sign
    both(-2147483649, "-2147483649LL");
    both(std::numeric_limits<std::int64_t>::max(), "9223372036854775807LL");
    both(std::numeric_limits<std::int64_t>::min(), "(-9223372036854775807LL - 1)");
    const auto converted = [&](std::int64_t v, dtype to) { return python.text(python.e.cast(python.e.integer(v, dtype::i64), to)); };
    CHECK(converted(300, dtype::u8) == "44");
    CHECK(converted(-1, dtype::u8) == "255");
    CHECK(converted(128, dtype::i8) == "-128");
    CHECK(converted(65535, dtype::i16) == "-1");
    CHECK(converted(2147483648, dtype::i32) == "-2147483648");
    CHECK(converted(2147483648, dtype::i64) == "2147483648");
    CHECK(converted(2, dtype::b8) == "True");
  }

  TEST_CASE("folding is exact, and leaves alone what has no value") {
    workbench w(triton_target);
    const auto folded = [&](op o, std::int64_t a, std::int64_t b) {
      return w.text(w.e.binary(o, w.e.integer(a, dtype::i64), w.e.integer(b, dtype::i64)));
    };
    constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
    constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();
    // Python's: the quotient is rounded down, the remainder has the divisor's sign.
    CHECK(folded(op::floor_divide, 7, 2) == "3");
    CHECK(folded(op::floor_divide, -7, 2) == "-4");
    CHECK(folded(op::floor_divide, 7, -2) == "-4");
    CHECK(folded(op::floor_divide, -7, -2) == "3");
    CHECK(folded(op::modulo, 7, 2) == "1");
    CHECK(folded(op::modulo, -7, 2) == "1");
    CHECK(folded(op::modulo, 7, -2) == "-1");
    CHECK(folded(op::modulo, -7, -2) == "-1");
    CHECK(folded(op::modulo, -8, 2) == "0");
    CHECK(folded(op::modulo, lowest, 3) == "1"); // -2^63 is 1 modulo 3: its quotient times 3 would overflow
    CHECK(folded(op::modulo, lowest, -1) == "0");
    CHECK(folded(op::modulo, lowest, highest) == "9223372036854775806");
    CHECK(folded(op::add, highest, 1) == "9223372036854775807 + 1");
    CHECK(folded(op::multiply, highest, 2) == "9223372036854775807 * 2");
    CHECK(folded(op::subtract, lowest, 1) == "-9223372036854775808 - 1");
    CHECK(folded(op::floor_divide, lowest, -1) == "_floor_divide(-9223372036854775808, -1)");
    CHECK(folded(op::floor_divide, 1, 0) == "1 // 0");
    CHECK(folded(op::modulo, -1, 0) == "_floor_modulo(-1, 0)");
    CHECK(w.text(w.e.select(w.e.boolean(false), w.e.integer(1), w.e.integer(2))) == "2");
    CHECK(w.text(w.e.binary(op::logical_and, w.e.boolean(true), w.parameter("t", dtype::b8))) == "t");
    CHECK(w.text(w.e.binary(op::logical_and, w.e.boolean(false), w.parameter("u", dtype::b8))) == "False");
    CHECK(w.text(w.e.binary(op::logical_or, w.parameter("v", dtype::b8), w.e.boolean(true))) == "True");
    CHECK(w.text(w.e.least(w.e.integer(3), w.e.integer(-2))) == "-2");
    CHECK(w.text(w.e.greatest(w.e.integer(3), w.e.integer(-2))) == "3");
  }

  TEST_CASE("literals of narrow floats, infinities and strings in C") {
    workbench c(cpu_target);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    CHECK(c.text(c.e.real(0.5, dtype::f16)) == "float16(0.5f)");
    CHECK(c.text(c.e.real(-1.0, dtype::bf16)) == "bfloat16(-1.0f)");
    CHECK(c.text(c.e.real(infinity, dtype::f16)) == "float16(math::infinity)");
    CHECK(c.text(c.e.real(-infinity, dtype::f32)) == "-math::infinity");
    CHECK(c.text(c.e.real(1e39, dtype::f32)) == "math::infinity"); // a float has no such number
    CHECK(c.text(c.e.real(1e39, dtype::f64)) == "1e+39");
    CHECK(c.text(c.e.real(std::numeric_limits<double>::quiet_NaN(), dtype::f64)) == "math::nan");
    const expression x = c.parameter("x", dtype::f32);
    CHECK(c.text(c.e.binary(op::subtract, x, c.e.real(-infinity, dtype::f32))) == "x - -math::infinity");
    CHECK(c.text(c.e.binary(op::multiply, c.e.real(-2.0, dtype::f32), x)) == "-2.0f * x");
    // A number of digits that both languages end where it is meant to end: \x1 and an f would be one character in C.
    workbench python(triton_target);
    for (workbench* w : {&c, &python}) {
      CHECK(w->text(w->e.string(std::string_view("\x01"
                                                 "f\0"
                                                 "7",
                                                 4))) == R"("\001f\0007")");
      CHECK(w->text(w->e.string("tab\there, \x1b[0m")) == R"("tab\there, \033[0m")");
      CHECK(w->text(w->e.string("\xc3\xa9")) == "\"\xc3\xa9\"");
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

TEST_SUITE("codegen: statements") {
  std::string printed(workbench & w, codegen::body root) {
    w.e.mark_live(root);
    w.e.resolve_names(root);
    std::string out;
    w.e.print_body(root, out, 0);
    return out;
  }

  TEST_CASE("an effect keeps what is around it and what it reads, and nothing else") {
    workbench w(triton_target);
    const codegen::body root = w.e.new_body();
    {
      const auto into = w.e.into(root);
      const expression a = w.parameter("a", dtype::i32);
      const expression bound = w.e.define("bound", w.e.binary(op::add, a, w.e.integer(1)));
      const expression dead_bound = w.e.define("dead_bound", w.e.binary(op::add, a, w.e.integer(2)));
      const auto loop_over = [&](expression end) { return w.e.for_range(w.e.new_variable("i", dtype::i32), w.e.call("range", {end})); };
      const codegen::statement kept = loop_over(bound);
      const codegen::statement dead = loop_over(dead_bound);
      {
        const auto inside = w.e.into(w.e.inner(dead));
        (void)w.e.define("unread", a);
        (void)w.e.if_then(w.e.binary(op::less, a, w.e.integer(9)));
      }
      const auto inside = w.e.into(w.e.inner(kept));
      const expression i = w.e.name(w.e.at(kept).variable);
      const codegen::statement choice = w.e.if_then(w.e.binary(op::less, i, w.e.integer(3)));
      {
        const auto then = w.e.into(w.e.inner(choice));
        w.e.evaluate(w.e.call("effect", {i}));
      }
      const auto otherwise = w.e.into(w.e.orelse(choice));
      (void)w.e.define("unread", i);
    }
    CHECK(printed(w, root) == "bound = a + 1\n"
                              "for i in range(bound):\n"
                              "    if i < 3:\n"
                              "        effect(i)\n");
  }

  TEST_CASE("a value carried from one iteration to the next keeps each of its assignments") {
    for (const codegen::target* target : {&triton_target, &cpu_target}) {
      workbench w(*target);
      const codegen::body root = w.e.new_body();
      {
        const auto into = w.e.into(root);
        const codegen::variable sum = w.e.new_variable("sum", dtype::i32); // a builtin of Python's that is called
        w.e.assign(sum, w.e.integer(0));
        const codegen::statement loop =
            w.e.for_range(w.e.new_variable("i", dtype::i32), w.e.call("range", {w.e.integer(0), w.e.integer(8), w.e.integer(2)}));
        {
          const auto inside = w.e.into(w.e.inner(loop));
          w.e.at(sum).declared = true;
          w.e.assign(sum, w.e.binary(op::add, w.e.name(sum), w.e.name(w.e.at(loop).variable)));
        }
        w.e.at(sum).declared = false;
        w.e.return_value(w.e.name(sum));
      }
      if (target == &triton_target) CHECK(printed(w, root) == "sum_1 = 0\nfor i in range(0, 8, 2):\n    sum_1 = sum_1 + i\nreturn sum_1\n");
      else CHECK(printed(w, root).find("for (std::int32_t i = 0; i < 8; i += 2) {\n") != std::string::npos);
    }
  }

  TEST_CASE("what goes ahead of a body stands in front of it, in the order in which it was put there") {
    workbench w(triton_target);
    const codegen::body root = w.e.new_body();
    const auto effect = [&](std::string_view name) { w.e.evaluate(w.e.call(name, {})); };
    {
      const auto into = w.e.into(root);
      effect("third");
      {
        const auto ahead = w.e.ahead_of(root);
        effect("first");
      }
      effect("fourth");
      {
        const auto ahead = w.e.ahead_of(root);
        effect("second");
      }
      effect("fifth");
    }
    CHECK(printed(w, root) == "first()\nsecond()\nthird()\nfourth()\nfifth()\n");
  }

  TEST_CASE("what goes ahead of an empty body, and what follows it") {
    workbench w(triton_target);
    const codegen::body root = w.e.new_body();
    {
      const auto ahead = w.e.ahead_of(root);
      w.e.evaluate(w.e.call("first", {}));
    }
    {
      const auto into = w.e.into(root);
      w.e.evaluate(w.e.call("second", {}));
    }
    CHECK(printed(w, root) == "first()\nsecond()\n");
  }

  TEST_CASE("a body without live statements") {
    workbench python(triton_target);
    CHECK(printed(python, python.e.new_body()) == "pass\n");
    workbench c(cpu_target);
    CHECK(printed(c, c.e.new_body()).empty());
  }

  TEST_CASE("a name ends with its block in C and lasts in Python") {
    for (const codegen::target* target : {&triton_target, &cpu_target}) {
      workbench w(*target);
      const codegen::body root = w.e.new_body();
      {
        const auto into = w.e.into(root);
        const expression a = w.parameter("a", dtype::i32);
        for (int k = 0; k < 2; ++k) {
          const codegen::statement choice = w.e.if_then(w.e.binary(op::less, a, w.e.integer(k)));
          const auto inside = w.e.into(w.e.inner(choice));
          w.e.evaluate(w.e.call("effect", {w.e.define("t", w.e.binary(op::multiply, a, a))}));
        }
      }
      const std::string text = printed(w, root);
      CAPTURE(text);
      CHECK((text.find("t_1") == std::string::npos) == (target == &cpu_target));
    }
  }

  TEST_CASE("many names of one wish are many names") {
    for (const codegen::target* target : {&triton_target, &cpu_target}) {
      workbench w(*target);
      std::map<std::string_view, int> seen;
      for (int i = 0; i < 3000; ++i)
        for (const std::string_view wish : {"x", "x_7", "for", "a_rather_long_name_of_a_value", "value", "_", "x__y", "7"})
          ++seen[w.e.unique_name(wish)];
      CHECK(seen.size() == 3000 * 8);
      for (const std::string_view word : target->language->reserved) CHECK(seen.count(word) == 0);
    }
  }

  TEST_CASE("names are free again for the next kernel, and reserved words stay reserved") {
    const device_ir::document d = own("add.txt");
    codegen::kernel_plan plan;
    codegen::make_plan(plan, d, d.config);
    const auto registry = builtin_registry();
    codegen::emitter e;
    for (int kernel = 0; kernel < 3; ++kernel) {
      for (const codegen::target* target : {&triton_target, &cpu_target}) {
        e.reset(plan, *target, registry, registry.backend_named(target->name));
        CHECK(e.unique_name("x") == "x");
        CHECK(e.unique_name("x") == "x_1");
        CHECK(e.unique_name("for") == "for_1");
        CHECK(e.unique_name("lambda") == (target == &triton_target ? "lambda_1" : "lambda"));
        e.reserve_name("frame");
        CHECK(e.unique_name("frame") == "frame_1");
      }
    }
  }

  TEST_CASE("kept text stays where it is, however much is kept") {
    workbench w(triton_target);
    std::vector<std::pair<std::string, std::string_view>> all;
    for (std::size_t i = 0; i < 2000; ++i) {
      std::string text(i % 97 == 0 ? 10'000 : i % 61, static_cast<char>('a' + i % 26));
      const std::string_view kept = w.e.keep(std::string_view(text));
      all.emplace_back(std::move(text), kept);
    }
    for (const auto& [text, kept] : all) CHECK(text == kept);
  }
}

TEST_SUITE("codegen: plan") {
  /// Whether some tile of `lanes` lanes reaches beyond `extent`.
  bool reaches_beyond(std::int64_t extent, std::int64_t lanes) { return extent % lanes != 0; }

  /// Calls `f` with every document and its plan.
  void for_every_plan(auto f) {
    for (const fs::path& file : documents::all()) {
      CAPTURE(file);
      const device_ir::document d = device_ir::parse(documents::read(file), file.filename().string());
      codegen::kernel_plan plan;
      codegen::make_plan(plan, d, d.config);
      f(d, plan);
    }
  }

  TEST_CASE("a mask is left out exactly where a tile divides the extent") {
    std::size_t masked = 0;
    std::size_t unmasked = 0;
    for_every_plan([&](const device_ir::document&, const codegen::kernel_plan& plan) {
      for (const codegen::block_plan& b : plan.blocks) {
        if (b.role == codegen::block_role::unused || b.jagged || b.block_size == 0 || !b.constant_extent) continue;
        CAPTURE(b.id);
        CHECK(b.mask == reaches_beyond(*b.constant_extent, b.block_size));
        ++(b.mask ? masked : unmasked);
      }
    });
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

  /// What a document's header says of its blocks: a root's are the grid's, a loop's are loops unless they are the grid's
  /// or reduction dimensions, which are rolled; a reduction dimension of neither is whole.
  codegen::block_role role_in(const device_ir::document& d, const device_ir::block& b) {
    const auto has = [&](device_ir::graph::kind what) {
      for (const device_ir::graph& g : d.graphs)
        if (g.what == what)
          for (const std::int32_t id : g.blocks)
            if (id == b.id) return true;
      return false;
    };
    if (has(device_ir::graph::kind::root)) return codegen::block_role::grid;
    if (has(device_ir::graph::kind::loop)) return b.is_reduction ? codegen::block_role::rolled : codegen::block_role::loop;
    return b.is_reduction ? codegen::block_role::whole : codegen::block_role::unused;
  }

  TEST_CASE("which block is which, for every document") {
    std::map<codegen::block_role, int> seen;
    for_every_plan([&](const device_ir::document& d, const codegen::kernel_plan& plan) {
      for (const device_ir::block& b : d.blocks) {
        CAPTURE(b.id);
        const codegen::block_plan* p = plan.find_block(b.id);
        REQUIRE(p != nullptr);
        CHECK((p->role == role_in(d, b)));
        ++seen[p->role];
      }
      // The config's orders and groups are one for each root, then each loop, of two blocks or more.
      std::size_t entry = 0;
      for (const device_ir::graph& g : d.graphs) {
        if (g.what != device_ir::graph::kind::root) continue;
        const auto index = static_cast<std::int32_t>(&g - d.graphs.data());
        const codegen::root_plan* r = nullptr;
        for (const codegen::root_plan& candidate : plan.roots)
          if (candidate.graph == index) r = &candidate;
        REQUIRE(r != nullptr);
        std::vector<std::int32_t> expected = g.blocks;
        std::int64_t group = 1;
        if (g.blocks.size() >= 2) {
          if (entry < d.config.loop_orders.size())
            for (std::size_t i = 0; i < expected.size(); ++i)
              expected[i] = g.blocks[static_cast<std::size_t>(d.config.loop_orders[entry][i])];
          if (entry < d.config.l2_groupings.size()) group = d.config.l2_groupings[entry];
          ++entry;
        }
        CHECK((r->blocks == expected));
        CHECK(r->l2_grouping == group);
        CHECK(r->phase == g.phase);
      }
    });
    CHECK(seen[codegen::block_role::grid] > 0);
    CHECK(seen[codegen::block_role::loop] > 0);
    CHECK(seen[codegen::block_role::whole] > 0);
    CHECK(seen[codegen::block_role::rolled] > 0);
  }

  TEST_CASE("the plan as text") {
    const device_ir::document d = own("matmul.txt");
    codegen::kernel_plan plan;
    codegen::make_plan(plan, d, d.config);
    std::string text;
    codegen::print_plan(plan, text);
    // 96 and 80 are multiples of 32 and 16, 72 is none of 32.
    CHECK(text == "kernel matmul\n"
                  "index type i32\n"
                  "block 0: grid, 32 lanes of 96, never masked\n"
                  "block 1: grid, 32 lanes of 72, masked\n"
                  "block 2: loop, 16 lanes of 80, never masked\n"
                  "grid root_graph_1 phase 0: program ids over blocks [0, 1], fastest first, groups of 2\n"
                  "loop for_loop_0 over blocks [2]\n"
                  "  carries acc -> parameter arg0_1 -> result 0 -> _phi\n"
                  "access load: pointer\n"
                  "access load_1: block_ptr, evict last\n"
                  "access store: tensor_descriptor\n"
                  "tensor x: offsets of the index type\n"
                  "tensor y: offsets of the index type\n"
                  "tensor out: offsets of the index type\n");
  }

  TEST_CASE("another config's block sizes, and the masks that they need") {
    const device_ir::document d = own("matmul.txt"); // 96, 72 and 80 long
    const auto masks = [&](std::string_view sizes) {
      codegen::kernel_plan plan;
      const device_ir::config config = device_ir::parse_config("{\"block_sizes\": " + std::string(sizes) + "}", d.config);
      codegen::make_plan(plan, d, config);
      return std::vector<bool>{plan.blocks.at(0).mask, plan.blocks.at(1).mask, plan.blocks.at(2).mask};
    };
    CHECK((masks("[16, 8, 16]") == std::vector<bool>{false, false, false}));
    CHECK((masks("[64, 16, 32]") == std::vector<bool>{true, true, true}));
    CHECK((masks("[1, 1, 80]") == std::vector<bool>{false, false, false}));
    CHECK((masks("[128, 72, 64]") == std::vector<bool>{true, false, true}));
    CHECK_THROWS_AS(masks("[16, 16]"), DeviceIRError);
    CHECK_THROWS_AS(masks("[16, 0, 16]"), DeviceIRError);
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

  TEST_CASE("a refused kernel leaves the output as it was, and the next kernel is right") {
    // An operand that is not there where it is read; and a grid dimension without a size.
    const std::string good = documents::read(fs::path(MUSTER_TEST_DOCUMENTS) / "softmax.txt");
    std::string bad = good;
    const std::string_view whole = "torch.ops.aten.exp.default(sub)";
    const std::size_t at = bad.find(whole);
    REQUIRE(at != std::string::npos);
    bad.replace(at, whole.size(), "torch.ops.aten.div.Tensor_mode(sub, sub, rounding_mode = 'up')");
    const device_ir::document refused = device_ir::parse(bad, "refused.txt");
    const device_ir::document next = device_ir::parse(good, "softmax.txt");
    for (const std::string_view backend : {"triton", "tileir", "cpu"}) {
      CAPTURE(backend);
      std::string expected;
      builtin_generator().generate(next, backend, expected);
      codegen::generator generator = builtin_generator();
      std::string out = "what was there before\n";
      CHECK_THROWS_AS(generator.generate(refused, backend, out), DeviceIRError);
      CHECK(out == "what was there before\n");
      generator.generate(next, backend, out);
      CHECK(out == "what was there before\n" + expected);
    }
  }

  TEST_CASE("every document gives the same bytes again, from one generator and from two") {
    codegen::generator one = builtin_generator();
    codegen::generator two = builtin_generator();
    for (const fs::path& file : documents::all()) {
      CAPTURE(file);
      const device_ir::document d = device_ir::parse(documents::read(file), file.filename().string());
      for (const std::string_view backend : {"triton", "cpu"}) {
        CAPTURE(backend);
        std::string first;
        std::string second;
        std::string other;
        one.generate(d, backend, first);
        one.generate(d, backend, second);
        two.generate(d, backend, other);
        CHECK(!first.empty());
        CHECK(first == second);
        CHECK(first == other);
      }
    }
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
