#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <doctest/doctest.h>
import muster.error;
import muster.symbolic;

using namespace muster::symbolic;

namespace {

expression parsed(pool& in, std::string_view text) {
  parse_failure failure;
  const expression e = in.parse(text, failure);
  INFO(text, ": ", failure.message);
  REQUIRE(e != no_expression);
  return e;
}

std::string reprinted(std::string_view text) {
  pool p;
  return p.to_string(parsed(p, text));
}

std::string simplified(std::string_view text) {
  pool p;
  return p.to_string(p.simplify(parsed(p, text)));
}

/// The value as Python would print it, or "none".
std::string value(std::string_view text) {
  pool p;
  const auto n = p.evaluate(parsed(p, text));
  if (!n) return "none";
  if (n->is_integer) return std::to_string(n->integer);
  std::string out;
  print_real(n->real, out);
  return out;
}

std::string failure_of(std::string_view text) {
  pool p;
  parse_failure failure;
  CHECK(p.parse(text, failure) == no_expression);
  return std::to_string(failure.offset) + ": " + failure.message;
}

} // namespace

TEST_CASE("symbolic: equal expressions are one, and ids outlive growth and moves") {
  pool p;
  const expression a = parsed(p, "u0*(u1 + 1)");
  const std::string_view name = p.name(*p.find_symbol("u0"));
  for (int i = 0; i < 5000; ++i) {
    (void)p.integer(i);
    (void)p.intern("symbol_" + std::to_string(i));
  }
  CHECK(parsed(p, "u0 * (u1+1)") == a);
  CHECK(parsed(p, "(u1 + 1)*u0") != a);
  CHECK(name == "u0");
  pool q = std::move(p);
  CHECK(q.to_string(a) == "u0*(u1 + 1)");
  const pool copy = q;
  q.clear();
  CHECK(q.size() == 0);
  CHECK(q.symbol_count() == 0);
  CHECK_FALSE(q.find_symbol("u0"));
  CHECK(copy.to_string(a) == "u0*(u1 + 1)");
  CHECK(copy.name(*copy.find_symbol("symbol_4999")) == "symbol_4999");
}

TEST_CASE("symbolic: operands may be a view of the pool itself") {
  pool p;
  const expression e = parsed(p, "Min(a, b, c)");
  for (int i = 0; i < 200; ++i) (void)p.make(kind::maximum, p.operands(p.make(kind::minimum, p.operands(e))));
  CHECK(p.to_string(p.make(kind::maximum, p.operands(e))) == "Max(a, b, c)");
}

TEST_CASE("symbolic: printing uses the fewest parentheses and reads back as the same expression") {
  const std::array same = {"a + b - c",
                           "a - (b - c)",
                           "a - (b + c)",
                           "a + (b + c)",
                           "a*b + c",
                           "a*(b + c)",
                           "(a + b)*c",
                           "a//b//c",
                           "a//(b//c)",
                           "a/b*c",
                           "a*(b/c)",
                           "a % b",
                           "a*(b % c)",
                           "-a",
                           "-a*b",
                           "-(a*b)",
                           "-(a + b)",
                           "a*-b",
                           "a - -b",
                           "--a",
                           "-5",
                           "-(5)",
                           "--5",
                           "(-5)**2",
                           "-5**2",
                           "2**-1",
                           "a**b**c",
                           "(a**b)**c",
                           "2**-a**b",
                           "a*-5",
                           "-5*a",
                           "a - -5",
                           "0.5*a",
                           "1.0 - zuf0",
                           "1e-05",
                           "-1e+20",
                           "inf",
                           "-inf",
                           "-(inf)",
                           "nan",
                           "True",
                           "Min(4096, u9 + 256) - 1",
                           "FloorDiv(a, 2)",
                           "Mod(a, b)",
                           "PythonMod(a, b)",
                           "Eq(a, 0)",
                           "CeilDiv(a, b)",
                           "ToFloat(u0)",
                           "Where(Lt(a, b), a, b)",
                           "FloatTrueDiv(1.0, ToFloat(u0))",
                           "And(Le(a, b), Not(Ge(a, c)), Or(Gt(a, 1), Ne(b, 2)))",
                           "-9223372036854775808",
                           "-(9223372036854775807)",
                           "Max(1, u1)*8192"};
  for (const std::string_view text : same) CHECK(reprinted(text) == text);
  CHECK(reprinted("(u10//u0)") == "u10//u0");
  CHECK(reprinted("((a)) + (b*(c))") == "a + b*c");
  CHECK(reprinted("-u6+u7") == "-u6 + u7");
  CHECK(reprinted("2.50e0") == "2.5");
  CHECK(reprinted(".5") == "0.5");
  CHECK(reprinted("1.") == "1.0");
  CHECK(reprinted("- 5") == "-5");
}

TEST_CASE("symbolic: reals print as Python's repr") {
  const auto printed = [](double value) {
    std::string out;
    print_real(value, out);
    return out;
  };
  CHECK(printed(0.1) == "0.1");
  CHECK(printed(1) == "1.0");
  CHECK(printed(-0.0) == "-0.0");
  CHECK(printed(1e15) == "1000000000000000.0");
  CHECK(printed(1e16) == "1e+16");
  CHECK(printed(123456789012345680.0) == "1.2345678901234568e+17");
  CHECK(printed(0.0001) == "0.0001");
  CHECK(printed(0.00001) == "1e-05");
  CHECK(printed(5e-324) == "5e-324");
  CHECK(printed(3.4028234663852886e38) == "3.4028234663852886e+38");
  CHECK(printed(std::numeric_limits<double>::quiet_NaN()) == "nan");
}

TEST_CASE("symbolic: printing and parsing are inverse for random expressions") {
  std::mt19937 random(1);
  pool p;
  std::vector<expression> all = {p.integer(0),
                                 p.integer(7),
                                 p.integer(-3),
                                 p.real(0.5),
                                 p.real(-2),
                                 p.boolean(true),
                                 p.reference(p.intern("a")),
                                 p.reference(p.intern("u1")),
                                 p.integer(std::numeric_limits<std::int64_t>::min())};
  constexpr int kinds = static_cast<int>(kind::where) + 1;
  for (int i = 0; i < 4000; ++i) {
    const auto k = static_cast<kind>(4 + static_cast<int>(random() % (kinds - 4)));
    const auto any = [&] { return all[random() % all.size()]; };
    expression e{};
    if (k == kind::negate || k == kind::to_float || k == kind::logical_not) e = p.make(k, any());
    else if (k == kind::where) e = p.make(k, std::array{any(), any(), any()});
    else e = p.make(k, any(), any());
    const std::string text = p.to_string(e);
    parse_failure failure;
    const expression again = p.parse(text, failure);
    INFO(text, ": ", failure.message);
    REQUIRE(again == e);
    if (p.depth(e) < 6) all.push_back(e);
  }
}

TEST_CASE("symbolic: malformed text says where and what was expected") {
  CHECK(failure_of("") == "0: expected an expression, found the end");
  CHECK(failure_of("a +") == "3: expected an expression, found the end");
  CHECK(failure_of("a b") == "2: expected an operator or the end of the expression");
  CHECK(failure_of("(a") == "2: expected ')' or an operator");
  CHECK(failure_of("a + *") == "4: expected an expression");
  CHECK(failure_of("Minn(a, b)") == "0: unknown function 'Minn'; did you mean 'Min'?");
  CHECK(failure_of("quux(a)") == "0: unknown function 'quux'");
  CHECK(failure_of("Min(a)") == "0: Min takes at least 2 operands, not 1");
  CHECK(failure_of("Eq(a, b, c)") == "0: Eq takes 2 operands, not 3");
  CHECK(failure_of("ToFloat(a, b)") == "0: ToFloat takes 1 operand, not 2");
  CHECK(failure_of("9223372036854775808") == "0: an integer must fit 64 bits");
  CHECK(failure_of("-9223372036854775809") == "1: an integer must fit 64 bits");
  CHECK(failure_of("-(9223372036854775808)") == "2: an integer must fit 64 bits");
  CHECK(failure_of("99999999999999999999999999") == "0: an integer must fit 64 bits");
  CHECK(failure_of("007") == "0: an integer does not start with 0");
  CHECK(failure_of("1e999") == "0: a number beyond the range of f64");
  CHECK(failure_of("1e") == "0: malformed number");
  CHECK(failure_of("12ab") == "2: malformed number");
  CHECK(failure_of("1.2.3") == "3: malformed number");
  CHECK(failure_of(std::string_view("a\0b", 3)) == "1: expected an operator or the end of the expression");
  CHECK(failure_of(std::string(201, '(') + "a" + std::string(201, ')')) == "200: the expression nests deeper than 200 levels");
  CHECK(failure_of(std::string(300, '-') + "a").ends_with("the expression nests deeper than 200 levels"));
  std::string sum = "a";
  for (int i = 0; i < 200; ++i) sum += "+a";
  CHECK(failure_of(sum).ends_with("the expression nests deeper than 200 levels"));
  std::string powers = "a";
  for (int i = 0; i < 300; ++i) powers += "**a";
  CHECK(failure_of(powers).ends_with("the expression nests deeper than 200 levels"));
  std::string operands = "Min(1";
  for (int i = 0; i < 300; ++i) operands += ",1";
  CHECK(failure_of(operands + ")") == "516: more than 256 operands");
  pool p;
  expression e = p.integer(1);
  CHECK_THROWS_AS(([&] {
                    for (int i = 0; i < 300; ++i) e = p.make(kind::negate, e);
                  }()),
                  muster::Error);
}

TEST_CASE("symbolic: a prefix ends where the expression does") {
  pool p;
  parse_failure failure;
  std::size_t read = 0;
  CHECK(p.to_string(p.parse_prefix("u0*(u10 + 1) tile block_size 4", read, failure)) == "u0*(u10 + 1)");
  CHECK(read == 12);
  CHECK(p.to_string(p.parse_prefix("64, 1]", read, failure)) == "64");
  CHECK(read == 2);
  CHECK(p.parse_prefix("]", read, failure) == no_expression);
}

TEST_CASE("symbolic: arithmetic is Python's") {
  CHECK(value("-7//2") == "-4");
  CHECK(value("7//-2") == "-4");
  CHECK(value("-7//-2") == "3");
  CHECK(value("-7 % 2") == "1");
  CHECK(value("7 % -2") == "-1");
  CHECK(value("-6 % 3") == "0");
  CHECK(value("Mod(-7, 3)") == "2");
  CHECK(value("PythonMod(7, -3)") == "-2");
  CHECK(value("FloorDiv(-7, 2)") == "-4");
  CHECK(value("CeilDiv(7, 2)") == "4");
  CHECK(value("CeilDiv(-7, 2)") == "-3");
  CHECK(value("CeilDiv(8, 2)") == "4");
  CHECK(value("7/2") == "3.5");
  CHECK(value("4/2") == "2.0");
  CHECK(value("FloatTrueDiv(1, 4)") == "0.25");
  CHECK(value("ToFloat(3)") == "3.0");
  CHECK(value("2**10") == "1024");
  CHECK(value("-2**2") == "-4");
  CHECK(value("(-2)**3") == "-8");
  CHECK(value("2**-1") == "0.5");
  CHECK(value("0**0") == "1");
  CHECK(value("2**0.5") == "1.4142135623730951");
  CHECK(value("1 + 0.5") == "1.5");
  CHECK(value("-7.5//2") == "-4.0");
  CHECK(value("-7.5 % 2") == "0.5");
  CHECK(value("7.5 % -2") == "-0.5");
  CHECK(value("CeilDiv(7.5, 2)") == "4.0");
  CHECK(value("Min(3, 2.5, 7)") == "2.5");
  CHECK(value("Max(3, 2.5, 7)") == "7");
  CHECK(value("Eq(1, 1.0)") == "1");
  CHECK(value("Lt(9007199254740993, 9007199254740992.0)") == "0");
  CHECK(value("And(1, 2, 3)") == "1");
  CHECK(value("Or(0, 0)") == "0");
  CHECK(value("Not(0)") == "1");
  CHECK(value("Where(Gt(2, 1), 5, 1//0)") == "5");
  CHECK(value("True + True") == "2");
}

TEST_CASE("symbolic: what has no value has no result") {
  for (const std::string_view text :
       {"1//0", "1 % 0", "1/0", "Mod(1, 0)", "CeilDiv(1, 0)", "0**-1", "9223372036854775807 + 1", "-9223372036854775808 - 1",
        "9223372036854775807*2", "-9223372036854775808//-1", "-(-9223372036854775808)", "2**63", "3**41", "(-8)**0.5", "10.0**400",
        "unknown + 1", "Min(1, unknown)", "Where(unknown, 1, 1)", "1.0//0.0"})
    CHECK_MESSAGE(value(text) == "none", text);
  CHECK(value("-9223372036854775808 % -1") == "0");
  CHECK(value("1**9223372036854775807") == "1");
}

TEST_CASE("symbolic: symbols take their values from the span") {
  pool p;
  const expression e = parsed(p, "a*b + 1");
  const std::vector<std::optional<number>> values = {number{true, 6, 0}, number{true, 7, 0}};
  CHECK(p.evaluate(e, values)->integer == 43);
  CHECK_FALSE(p.evaluate(e, std::span(values).first(1)));
}

TEST_CASE("symbolic: simplify folds constants and drops what is neutral") {
  const std::array<std::pair<std::string_view, std::string_view>, 30> cases = {{
      {"x + 0", "x"},
      {"0 + x", "x"},
      {"x - 0", "x"},
      {"x*1", "x"},
      {"1*x", "x"},
      {"x//1", "x"},
      {"x**1", "x"},
      {"Min(x, x)", "x"},
      {"Max(x, 3, 5)", "Max(x, 5)"},
      {"2*3 + x", "6 + x"},
      {"(x + 1) + 2", "x + 3"},
      {"(x + 1) - 1", "x"},
      {"x - 3 - 4", "x - 7"},
      {"2*(3*x)", "6*x"},
      {"--x", "x"},
      {"Where(Lt(1, 2), x, y)", "x"},
      {"Where(c, x, x)", "x"},
      {"And(Eq(x, 1), True)", "Eq(x, 1)"},
      {"And(x, y, False)", "False"},
      {"Or(x, y, False)", "Or(x, y)"},
      {"Lt(1, 2)", "True"},
      {"Not(Lt(1, 2))", "False"},
      {"FloorDiv(7, 2)", "3"},
      {"1/4", "0.25"},
      {"1//0", "1//0"},
      {"9223372036854775807 + 1", "9223372036854775807 + 1"},
      {"(x/2)//1", "x/2//1"},
      {"x + 0.0", "x + 0.0"},
      {"(x*0.5 + 1) + 2", "x*0.5 + 1 + 2"},
      {"Min(4096, u9 + 256) - 1", "Min(4096, u9 + 256) - 1"},
  }};
  for (const auto& [text, expected] : cases) CHECK_MESSAGE(simplified(text) == expected, text);
}

TEST_CASE("symbolic: simplify keeps the value, and is idempotent") {
  std::mt19937 random(2);
  pool p;
  std::vector<expression> all;
  for (int i = -3; i < 6; ++i) all.push_back(p.integer(i));
  for (const std::string_view name : {"a", "b", "c"}) all.push_back(p.reference(p.intern(name)));
  constexpr std::array kinds = {kind::add,          kind::add,         kind::subtract,   kind::subtract,   kind::multiply,
                                kind::floor_divide, kind::modulo,      kind::minimum,    kind::maximum,    kind::negate,
                                kind::equal,        kind::less,        kind::where,      kind::floor_div,  kind::ceil_div,
                                kind::power,        kind::logical_and, kind::logical_or, kind::logical_not};
  for (int i = 0; i < 6000; ++i) {
    const kind k = kinds[random() % kinds.size()];
    const auto any = [&] { return all[random() % all.size()]; };
    expression e{};
    if (k == kind::negate || k == kind::logical_not) e = p.make(k, any());
    else if (k == kind::where || k == kind::minimum || k == kind::logical_and) e = p.make(k, std::array{any(), any(), any()});
    else e = p.make(k, any(), any());
    if (p.depth(e) < 5) all.push_back(e);
    const expression s = p.simplify(e);
    INFO(p.to_string(e), " became ", p.to_string(s));
    REQUIRE(p.simplify(s) == s);
    for (int n = 0; n < 4; ++n) {
      const auto draw = [&] { return number{true, static_cast<std::int64_t>(random() % 21) - 10, 0}; };
      const std::vector<std::optional<number>> values = {draw(), draw(), draw()};
      const auto before = p.evaluate(e, values);
      const auto after = p.evaluate(s, values);
      if (before) REQUIRE((after && after->as_real() == before->as_real()));
    }
  }
}

TEST_CASE("symbolic: divisible never says yes wrongly") {
  pool p;
  const auto divisible = [&p](std::string_view text, std::int64_t by, std::vector<std::int64_t> known = {}) {
    const expression e = parsed(p, text);
    return p.divisible(e, by, known);
  };
  (void)p.intern("n");
  (void)p.intern("m");
  CHECK(divisible("12", 4));
  CHECK_FALSE(divisible("12", 5));
  CHECK(divisible("0", 5));
  CHECK(divisible("16*n", 16));
  CHECK(divisible("16*n + 32", 16));
  CHECK_FALSE(divisible("16*n + 8", 16));
  CHECK(divisible("n", 8, {16}));
  CHECK_FALSE(divisible("n", 32, {16}));
  CHECK(divisible("n*m", 32, {16, 2}));
  CHECK(divisible("-n", 8, {8}));
  CHECK(divisible("Max(16, n)", 8, {8}));
  CHECK(divisible("n % 24", 8, {16}));
  CHECK(divisible("n//2", 8, {16}));
  CHECK_FALSE(divisible("n//2", 16, {16}));
  CHECK_FALSE(divisible("n//3", 2, {4}));
  CHECK(divisible("n**2", 16, {4}));
  CHECK(divisible("Where(Lt(n, m), 8, 16)", 8));
  CHECK_FALSE(divisible("n/2", 1 << 4, {16}));
  CHECK_FALSE(divisible("0.5*n", 8, {16}));
  CHECK(divisible("-9223372036854775808", 1LL << 62));
  CHECK(divisible("n", 1));
  CHECK_FALSE(divisible("n", 0));
  CHECK_FALSE(divisible("n", -4, {16}));
}

TEST_CASE("symbolic: substitute and collect_symbols") {
  pool p;
  const expression e = parsed(p, "b*a + Min(b, c)");
  std::vector<symbol> symbols;
  p.collect_symbols(e, symbols);
  REQUIRE(symbols.size() == 3);
  CHECK(p.name(symbols[0]) == "b");
  CHECK(p.name(symbols[2]) == "c");
  std::vector<expression> replacements(p.symbol_count(), no_expression);
  replacements[static_cast<std::size_t>(*p.find_symbol("b"))] = parsed(p, "x + 1");
  CHECK(p.to_string(p.substitute(e, replacements)) == "(x + 1)*a + Min(x + 1, c)");
  CHECK(p.substitute(e, {}) == e);
}
