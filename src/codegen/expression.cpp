module;
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <fmt/format.h>
module muster.codegen;

namespace muster::codegen {

namespace {

bool is_comparison(op o) { return o >= op::less && o <= op::not_equal; }

/// floor(a / b) and the remainder of the divisor's sign; b is not 0.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }

std::optional<std::int64_t> fold(op o, std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  switch (o) {
  case op::add: return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  case op::subtract: return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  case op::multiply: return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  case op::floor_divide:
    if (b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min())) return std::nullopt;
    return floor_divide(a, b);
  case op::modulo:
    if (b == 0 || b == -1) return b == 0 ? std::nullopt : std::optional<std::int64_t>(0);
    r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  default: return std::nullopt;
  }
}

/// An integer as a conversion to a narrower type leaves it: modulo 2^bits.
std::int64_t wrapped(std::int64_t v, dtype to) {
  switch (to) {
  case dtype::i32: return static_cast<std::int32_t>(v);
  case dtype::i16: return static_cast<std::int16_t>(v);
  case dtype::i8: return static_cast<std::int8_t>(v);
  case dtype::u8: return static_cast<std::uint8_t>(v);
  default: return v;
  }
}

/// The wider of a literal's category and a typed operand's type.
dtype with_literal(dtype type, dtype literal) {
  const bool literal_is_float = device_ir::is_float(literal);
  if (literal_is_float && !device_ir::is_float(type)) return dtype::f32;
  if (!literal_is_float && literal != dtype::b8 && type == dtype::b8) return dtype::i64;
  return type;
}

} // namespace

dtype promote(dtype a, dtype b) noexcept {
  if (a == b) return a;
  const bool float_a = device_ir::is_float(a);
  const bool float_b = device_ir::is_float(b);
  if (float_a != float_b) return float_a ? a : b;
  if (float_a) {
    if (a == dtype::f64 || b == dtype::f64) return dtype::f64;
    return dtype::f32; // f32 with any narrower; f16 with bf16 and the 8-bit types with each other
  }
  if (a == dtype::b8) return b;
  if (b == dtype::b8) return a;
  const bool has_u8 = a == dtype::u8 || b == dtype::u8;
  const dtype other = a == dtype::u8 ? b : a;
  if (has_u8 && other == dtype::i8) return dtype::i16;
  return device_ir::size_of(a) >= device_ir::size_of(b) ? a : b;
}

expression emitter::push(const expression_node& n) {
  expressions_.push_back(n);
  return static_cast<expression>(expressions_.size() - 1);
}

expression emitter::push(expression_node n, std::span<const expression> operands) { return push(n, no_expression, operands); }

expression emitter::push(expression_node n, expression object, std::span<const expression> rest) {
  const std::size_t first = operands_.size();
  // The operands may be a span of operands_ itself.
  const bool own = rest.data() >= operands_.data() && rest.data() < operands_.data() + first;
  const std::size_t from = own ? static_cast<std::size_t>(rest.data() - operands_.data()) : 0;
  if (object != no_expression) operands_.push_back(object);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const expression operand = own ? operands_[from + i] : rest[i];
    operands_.push_back(operand);
  }
  n.first = static_cast<std::uint32_t>(first);
  n.count = static_cast<std::uint32_t>(operands_.size() - first);
  return push(n);
}

expression emitter::none() { return push({.what = expression_kind::none}); }

expression emitter::boolean(bool v) {
  expression_node n{.what = expression_kind::boolean, .type = dtype::b8, .weak = true, .non_negative = true, .typed = true};
  n.integer = v ? 1 : 0;
  return push(n);
}

expression emitter::integer(std::int64_t v, dtype as) {
  expression_node n{.what = expression_kind::integer, .type = as, .weak = true, .non_negative = v >= 0, .typed = true};
  n.integer = v;
  return push(n);
}

expression emitter::real(double v, dtype as) {
  expression_node n{.what = expression_kind::real, .type = as, .weak = true, .non_negative = v >= 0, .typed = true};
  n.real = v;
  return push(n);
}

expression emitter::string(std::string_view text) {
  expression_node n{.what = expression_kind::string};
  n.text = keep(text);
  return push(n);
}

expression emitter::name(variable v) {
  const variable_node& node = variables_[static_cast<std::size_t>(v)];
  expression_node n{.what = expression_kind::name, .type = node.type, .non_negative = node.non_negative, .typed = node.typed};
  n.name = v;
  return push(n);
}

expression emitter::text(std::string_view spelled) {
  expression_node n{.what = expression_kind::text};
  n.text = spelled;
  return push(n);
}

expression emitter::text(std::string_view spelled, dtype as) { return typed(text(spelled), as); }

expression emitter::call(std::string_view callee, std::span<const expression> arguments) {
  expression_node n{.what = expression_kind::call};
  n.text = callee;
  return push(n, arguments);
}

expression emitter::call(std::string_view callee, std::initializer_list<expression> arguments) {
  return call(callee, std::span<const expression>(arguments.begin(), arguments.size()));
}

expression emitter::call(std::string_view callee, std::initializer_list<expression> arguments, dtype as) {
  return typed(call(callee, arguments), as);
}

expression emitter::method(expression object, std::string_view name, std::span<const expression> arguments) {
  expression_node n{.what = expression_kind::method};
  n.text = name;
  return push(n, object, arguments);
}

expression emitter::method(expression object, std::string_view name, std::initializer_list<expression> arguments) {
  return method(object, name, std::span<const expression>(arguments.begin(), arguments.size()));
}

expression emitter::keyword_argument(std::string_view name, expression value) {
  expression_node n{.what = expression_kind::keyword};
  n.text = name;
  return push(n, std::span<const expression>(&value, 1));
}

expression emitter::subscript(expression object, std::span<const expression> items) {
  return push(
      {.what = expression_kind::subscript, .type = type_of(object), .non_negative = at(object).non_negative, .typed = at(object).typed},
      object, items);
}

expression emitter::subscript(expression object, std::initializer_list<expression> items) {
  return subscript(object, std::span<const expression>(items.begin(), items.size()));
}

expression emitter::tuple(std::span<const expression> items) { return push({.what = expression_kind::tuple}, items); }
expression emitter::list(std::span<const expression> items) { return push({.what = expression_kind::list}, items); }

expression emitter::untyped(expression e) {
  expressions_[static_cast<std::size_t>(e)].typed = false;
  return e;
}

expression emitter::typed(expression e, dtype as) {
  expression_node n = at(e);
  if (n.typed && n.type == as && !n.weak) return e;
  n.type = as;
  n.typed = true;
  n.weak = false;
  return push(n);
}

expression emitter::mark_non_negative(expression e) {
  expression_node n = at(e);
  if (n.non_negative) return e;
  if (n.what == expression_kind::name) at(n.name).non_negative = true;
  n.non_negative = true;
  return push(n);
}

bool emitter::is_zero(expression e) const noexcept {
  const expression_node& n = at(e);
  if (n.what == expression_kind::real) return n.real == 0 && !std::signbit(n.real);
  return (n.what == expression_kind::integer || n.what == expression_kind::boolean) && n.integer == 0;
}

bool emitter::is_literal(expression e) const noexcept {
  const expression_kind k = at(e).what;
  return k == expression_kind::boolean || k == expression_kind::integer || k == expression_kind::real;
}

std::optional<std::int64_t> emitter::integer_literal(expression e) const noexcept {
  const expression_node& n = at(e);
  return n.what == expression_kind::integer ? std::optional<std::int64_t>(n.integer) : std::nullopt;
}

bool emitter::is_atom(expression e) const noexcept {
  const expression_kind k = at(e).what;
  return k <= expression_kind::text;
}

expression emitter::unary(op o, expression a) {
  const expression_node n = at(a);
  if (o == op::negate && n.what == expression_kind::integer && n.integer != std::numeric_limits<std::int64_t>::min())
    return integer(-n.integer, n.type);
  if (o == op::negate && n.what == expression_kind::real) return real(-n.real, n.type);
  if (o == op::logical_not && n.what == expression_kind::boolean) return boolean(n.integer == 0);
  if (o == op::negate && language->minus_is_subtraction && n.typed && device_ir::is_float(n.type))
    return binary(op::multiply, a, real(-1, n.type));
  return push({.what = expression_kind::operation, .operation = o, .type = o == op::logical_not ? dtype::b8 : n.type, .typed = n.typed},
              std::span<const expression>(&a, 1));
}

expression emitter::binary(op o, expression a, expression b) {
  const expression_node x = at(a);
  const expression_node y = at(b);
  const std::optional<std::int64_t> left = integer_literal(a);
  const std::optional<std::int64_t> right = integer_literal(b);
  if (left && right)
    if (const std::optional<std::int64_t> value = fold(o, *left, *right)) return integer(*value, promote(x.type, y.type));
  const bool integers =
      x.typed && y.typed && !device_ir::is_float(x.type) && !device_ir::is_float(y.type) && x.type != dtype::b8 && y.type != dtype::b8;
  if (integers) {
    if (right == 0 && (o == op::add || o == op::subtract)) return a;
    if (left == 0 && o == op::add) return b;
    if (right == 1 && (o == op::multiply || o == op::floor_divide)) return a;
    if (left == 1 && o == op::multiply) return b;
    if (right == 1 && o == op::modulo) return integer(0, promote(x.type, y.type));
  }
  if (o == op::logical_and || o == op::logical_or) {
    if (x.what == expression_kind::boolean) return (x.integer != 0) == (o == op::logical_and) ? b : a;
    if (y.what == expression_kind::boolean) return (y.integer != 0) == (o == op::logical_and) ? a : b;
  }
  dtype type = dtype::b8;
  if (!is_comparison(o) && o != op::logical_and && o != op::logical_or) {
    if (x.weak != y.weak) type = x.weak ? with_literal(y.type, x.type) : with_literal(x.type, y.type);
    else type = promote(x.type, y.type);
    if (o == op::divide && !device_ir::is_float(type)) type = dtype::f32;
  }
  const bool floors = o == op::floor_divide || o == op::modulo;
  if (floors && !device_ir::is_float(type) && !(x.non_negative && y.non_negative)) {
    const intrinsic f = o == op::modulo ? intrinsic::floor_modulo : intrinsic::floor_divide;
    if (has(f)) return call(f, {a, b}, type);
  }
  if (floors && device_ir::is_float(type)) return floor_of_floats(o, cast(a, type), cast(b, type));
  const bool keeps_sign =
      o == op::add || o == op::multiply || o == op::floor_divide || o == op::modulo || o == op::shift_right || o == op::bit_and;
  expression_node n{
      .what = expression_kind::operation, .operation = o, .type = type, .non_negative = keeps_sign && x.non_negative && y.non_negative};
  n.typed = x.typed || y.typed;
  const expression both[] = {a, b};
  return push(n, both);
}

/// Of two floats: the quotient rounded down, or the remainder with the divisor's sign.
expression emitter::floor_of_floats(op o, expression a, expression b) {
  const dtype type = type_of(b);
  if (o == op::floor_divide) return call(intrinsic::floor, {binary(op::divide, a, b)}, type);
  const expression rest = define("remainder", call(intrinsic::fmod, {a, b}, type));
  const expression zero = real(0, type);
  const expression wrong_sign = binary(op::logical_and, binary(op::not_equal, rest, zero),
                                       binary(op::not_equal, binary(op::less, rest, zero), binary(op::less, b, zero)));
  return select(wrong_sign, binary(op::add, rest, b), rest);
}

expression emitter::select(expression test, expression a, expression b) {
  if (at(test).what == expression_kind::boolean) return at(test).integer != 0 ? a : b;
  const expression_node x = at(a);
  const expression_node y = at(b);
  const dtype type = x.weak != y.weak ? (x.weak ? with_literal(y.type, x.type) : with_literal(x.type, y.type)) : promote(x.type, y.type);
  const expression all[] = {test, a, b};
  return push({.what = expression_kind::operation,
               .operation = op::select,
               .type = type,
               .non_negative = x.non_negative && y.non_negative,
               .typed = true},
              all);
}

expression emitter::least(expression a, expression b) {
  const std::optional<std::int64_t> x = integer_literal(a);
  const std::optional<std::int64_t> y = integer_literal(b);
  if (x && y) return *x <= *y ? a : b;
  if (language->least.empty()) return select(binary(op::less, a, b), a, b);
  return push_extreme(language->least, a, b);
}

expression emitter::greatest(expression a, expression b) {
  const std::optional<std::int64_t> x = integer_literal(a);
  const std::optional<std::int64_t> y = integer_literal(b);
  if (x && y) return *x >= *y ? a : b;
  if (language->greatest.empty()) return select(binary(op::greater, a, b), a, b);
  const expression both = push_extreme(language->greatest, a, b);
  return at(a).non_negative || at(b).non_negative ? mark_non_negative(both) : both;
}

expression emitter::push_extreme(std::string_view callee, expression a, expression b) {
  const expression both = call(callee, {a, b}, type_of(select(text("_", dtype::b8), a, b)));
  return at(a).non_negative && at(b).non_negative ? mark_non_negative(both) : both;
}

expression emitter::cast(expression e, dtype to) {
  const expression_node n = at(e);
  switch (n.what) {
  case expression_kind::boolean:
  case expression_kind::integer:
    if (to == dtype::b8) return boolean(n.integer != 0);
    return device_ir::is_float(to) ? real(static_cast<double>(n.integer), to) : integer(wrapped(n.integer, to), to);
  case expression_kind::real:
    if (device_ir::is_float(to)) return real(n.real, to);
    if (to == dtype::b8) return boolean(n.real != 0);
    // C and torch agree where the value fits; where it does not, torch's result is undefined.
    if (n.real > -9.2e18 && n.real < 9.2e18) return integer(static_cast<std::int64_t>(n.real), to);
    break;
  default: break;
  }
  if (n.typed && n.type == to && !n.weak) return e;
  expression_node c{.what = expression_kind::cast, .type = to, .non_negative = n.non_negative, .typed = true};
  return push(c, std::span<const expression>(&e, 1));
}

bool emitter::has(intrinsic f) const noexcept { return !language->functions[static_cast<std::size_t>(f)].empty(); }

expression emitter::call(intrinsic f, std::initializer_list<expression> arguments, dtype as) {
  const std::string_view callee = language->functions[static_cast<std::size_t>(f)];
  if (callee.empty()) unsupported("the target has no function for it");
  return call(callee, arguments, as);
}

// -- symbols

expression emitter::symbolic(symbolic::expression e) {
  const symbolic::pool& pool = source->symbols;
  const dtype integers = plan->index_dtype;
  if (const std::optional<symbolic::number> value = pool.evaluate(e, plan->known))
    return value->is_integer ? integer(value->integer, integers) : real(value->real, language->symbol_real);
  const symbolic::kind k = pool.kind_of(e);
  if (k == symbolic::kind::symbol) return symbol_value(pool.symbol_of(e));
  std::vector<expression> parts;
  for (const symbolic::expression operand : pool.operands(e)) parts.push_back(symbolic(operand));
  const auto fold_left = [&](const auto& combine) {
    expression all = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) all = combine(all, parts[i]);
    return all;
  };
  const auto binary_of = [&](op o) { return fold_left([&](expression a, expression b) { return binary(o, a, b); }); };
  switch (k) {
  case symbolic::kind::negate: return unary(op::negate, parts[0]);
  case symbolic::kind::add: return binary_of(op::add);
  case symbolic::kind::subtract: return binary_of(op::subtract);
  case symbolic::kind::multiply: return binary_of(op::multiply);
  case symbolic::kind::divide:
  case symbolic::kind::float_true_div:
    return binary(op::divide, cast(parts[0], language->symbol_real), cast(parts[1], language->symbol_real));
  case symbolic::kind::floor_divide:
  case symbolic::kind::floor_div: return binary(op::floor_divide, parts[0], parts[1]);
  case symbolic::kind::modulo:
  case symbolic::kind::mod:
  case symbolic::kind::python_mod: return binary(op::modulo, parts[0], parts[1]);
  case symbolic::kind::power: return power_of(parts[0], parts[1]);
  case symbolic::kind::minimum: return fold_left([&](expression a, expression b) { return least(a, b); });
  case symbolic::kind::maximum: return fold_left([&](expression a, expression b) { return greatest(a, b); });
  case symbolic::kind::to_float: return cast(parts[0], language->symbol_real);
  case symbolic::kind::ceil_div:
    if (has(intrinsic::ceil_divide)) return call(intrinsic::ceil_divide, {parts[0], parts[1]}, type_of(parts[0]));
    return unary(op::negate, binary(op::floor_divide, unary(op::negate, parts[0]), parts[1]));
  case symbolic::kind::equal: return binary(op::equal, parts[0], parts[1]);
  case symbolic::kind::not_equal: return binary(op::not_equal, parts[0], parts[1]);
  case symbolic::kind::less: return binary(op::less, parts[0], parts[1]);
  case symbolic::kind::less_equal: return binary(op::less_equal, parts[0], parts[1]);
  case symbolic::kind::greater: return binary(op::greater, parts[0], parts[1]);
  case symbolic::kind::greater_equal: return binary(op::greater_equal, parts[0], parts[1]);
  case symbolic::kind::logical_and: return binary_of(op::logical_and);
  case symbolic::kind::logical_or: return binary_of(op::logical_or);
  case symbolic::kind::logical_not: return unary(op::logical_not, parts[0]);
  case symbolic::kind::where: return select(parts[0], parts[1], parts[2]);
  default: malformed(fmt::format("the expression {} has no value", pool.to_string(e)));
  }
}

expression emitter::power_of(expression base, expression exponent) {
  const std::optional<std::int64_t> n = integer_literal(exponent);
  if (n && *n >= 0 && *n <= 4) {
    expression product = integer(1, type_of(base));
    for (std::int64_t i = 0; i < *n; ++i) product = i == 0 ? base : binary(op::multiply, product, base);
    return product;
  }
  return call(intrinsic::pow, {cast(base, language->symbol_real), cast(exponent, language->symbol_real)}, language->symbol_real);
}

void emitter::bind_symbol(symbolic::symbol s, expression e) {
  const std::size_t i = static_cast<std::size_t>(s);
  if (i >= symbol_values_.size()) symbol_values_.resize(i + 1, no_expression);
  symbol_values_[i] = e;
}

} // namespace muster::codegen
