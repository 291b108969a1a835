module;
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
module muster.backend.common;

namespace muster::common {

using codegen::expression;
using codegen::intrinsic;
using codegen::op;
using device_ir::argument;
using device_ir::dtype;

// -- types

dtype declared_type(const emitter& e) {
  const node& n = e.current_node();
  return n.type.what == device_ir::type::kind::tensor ? n.type.element : e.type_of(e.current);
}

/// The type in which an operation of declared type `declared` computes: the dialect's choice, or what a wider operand needs.
dtype computing_type(const emitter& e, dtype declared, bool transcendental, std::initializer_list<expression> operands) {
  dtype type = transcendental ? e.language->transcendental[static_cast<std::size_t>(declared)]
                              : e.language->arithmetic[static_cast<std::size_t>(declared)];
  for (const expression x : operands) {
    const codegen::expression_node& n = e.at(x);
    if (!n.typed || n.weak || device_ir::is_float(n.type) != device_ir::is_float(type)) continue;
    if (device_ir::is_float(type)) type = codegen::promote(type, n.type);
  }
  return type;
}

expression integer_or_real(emitter& e, double value, dtype type) {
  return device_ir::is_float(type) ? e.real(value, type) : e.integer(static_cast<std::int64_t>(value), type);
}

/// Two operands of one operation, converted where the target would not promote by itself, or does not compute in their type.
operand_pair promoted(emitter& e, expression x, expression y, dtype type) {
  const codegen::expression_node& a = e.at(x);
  const codegen::expression_node& b = e.at(y);
  const auto is_native = [&](dtype t) { return e.language->arithmetic[static_cast<std::size_t>(t)] == t; };
  const bool by_itself = e.language->promotes_like_torch && a.typed && b.typed && !a.weak && !b.weak &&
                         codegen::promote(a.type, b.type) == type && is_native(a.type) && is_native(b.type);
  if (by_itself) return {x, y};
  return {e.cast(x, type), e.cast(y, type)};
}

expression binary_of(emitter& e, op o, expression x, expression y, bool transcendental) {
  const dtype type = computing_type(e, declared_type(e), transcendental, {x, y});
  const auto [a, b] = promoted(e, x, y, type);
  return e.typed(e.binary(o, a, b), type);
}

namespace {

/// `alpha * y` of add and sub.
expression scaled(emitter& e, expression y, std::size_t position) {
  const argument* alpha = e.keyword("alpha");
  if (alpha == nullptr) alpha = e.argument_at(position);
  if (alpha == nullptr || alpha->what == argument::kind::none) return y;
  const bool one =
      (alpha->what == argument::kind::integer && alpha->integer == 1) || (alpha->what == argument::kind::real && alpha->real == 1);
  return one ? y : binary_of(e, op::multiply, e.literal(*alpha), y, false);
}

std::string_view rounding_mode(emitter& e) {
  const argument* mode = e.keyword("rounding_mode");
  if (mode == nullptr) mode = e.argument_at(2);
  return mode == nullptr || mode->what == argument::kind::none ? std::string_view() : mode->text;
}

} // namespace

void add(emitter& e, const node&) {
  if (declared_type(e) == dtype::b8)
    return e.result(e.binary(op::bit_or, e.cast(e.operand(0), dtype::b8), e.cast(e.operand(1), dtype::b8)));
  e.result(binary_of(e, op::add, e.operand(0), scaled(e, e.operand(1), 2), false));
}
void sub(emitter& e, const node&) { e.result(binary_of(e, op::subtract, e.operand(0), scaled(e, e.operand(1), 2), false)); }
void rsub(emitter& e, const node&) { e.result(binary_of(e, op::subtract, e.operand(1), scaled(e, e.operand(0), 2), false)); }
void mul(emitter& e, const node&) {
  if (declared_type(e) == dtype::b8)
    return e.result(e.binary(op::bit_and, e.cast(e.operand(0), dtype::b8), e.cast(e.operand(1), dtype::b8)));
  e.result(binary_of(e, op::multiply, e.operand(0), e.operand(1), false));
}

namespace {

/// Whether fmod's remainder `r` is not 0 and has another sign than the divisor.
expression has_wrong_sign(emitter& e, expression r, expression y, dtype type) {
  const expression zero = e.real(0, type);
  return e.binary(op::bit_and, e.binary(op::not_equal, r, zero),
                  e.binary(op::not_equal, e.binary(op::less, r, zero), e.binary(op::less, y, zero)));
}

} // namespace

/// floor(x / y) of floats, as torch has it: right where the quotient rounds up to a whole number, and where y is infinite.
/// By 0 it is the quotient, and a result of 0 has the quotient's sign.
expression floor_of_quotient(emitter& e, expression x, expression y, dtype type) {
  const expression zero = e.real(0, type);
  const expression r = e.define("remainder", e.call(intrinsic::fmod, {x, y}, type));
  const expression quotient = e.define("quotient", e.binary(op::divide, x, y));
  // (x - r) / y is whole but for rounding.
  const expression whole = e.define("whole", e.call(intrinsic::round_even, {e.binary(op::divide, e.binary(op::subtract, x, r), y)}, type));
  const expression down =
      e.define("down", select(e, has_wrong_sign(e, r, y, type), e.binary(op::subtract, whole, e.real(1, type)), whole, type));
  const expression signed_zero = e.binary(op::multiply, quotient, zero);
  const expression result = select(e, e.binary(op::equal, down, zero), signed_zero, down, type);
  return select(e, e.binary(op::equal, y, zero), quotient, result, type);
}

/// The remainder with the divisor's sign; NaN where the divisor is 0.
expression float_remainder(emitter& e, expression x, expression y, dtype type) {
  const expression r = e.define("remainder", e.call(intrinsic::fmod, {x, y}, type));
  return select(e, has_wrong_sign(e, r, y, type), e.binary(op::add, r, y), r, type);
}

expression floor_divided(emitter& e, expression x, expression y, dtype type) {
  const auto [a, b] = promoted(e, x, y, type);
  return device_ir::is_float(type) ? floor_of_quotient(e, e.cast(a, type), e.cast(b, type), type) : e.binary(op::floor_divide, a, b);
}

void div(emitter& e, const node&) {
  const std::string_view mode = rounding_mode(e);
  const dtype declared = declared_type(e);
  const expression x = e.operand(0);
  const expression y = e.operand(1);
  const dtype type = computing_type(e, declared, true, {x, y});
  if (mode.empty()) {
    if (!device_ir::is_float(type)) return e.result(e.binary(op::divide, e.cast(x, dtype::f32), e.cast(y, dtype::f32)));
    return e.result(e.typed(e.binary(op::divide, e.cast(x, type), e.cast(y, type)), type));
  }
  if (mode == "floor") return e.result(floor_divided(e, x, y, type));
  if (mode != "trunc") e.malformed("rounding_mode is 'floor', 'trunc' or None");
  if (device_ir::is_float(type)) return e.result(e.call(intrinsic::trunc, {e.binary(op::divide, e.cast(x, type), e.cast(y, type))}, type));
  e.result(e.call(intrinsic::trunc_divide, {e.cast(x, type), e.cast(y, type)}, type));
}

void floor_divide(emitter& e, const node&) {
  const expression x = e.operand(0);
  const expression y = e.operand(1);
  e.result(floor_divided(e, x, y, computing_type(e, declared_type(e), true, {x, y})));
}

void remainder(emitter& e, const node&) {
  const expression x = e.operand(0);
  const expression y = e.operand(1);
  const dtype type = computing_type(e, declared_type(e), true, {x, y});
  const auto [a, b] = promoted(e, x, y, type);
  e.result(device_ir::is_float(type) ? float_remainder(e, e.cast(a, type), e.cast(b, type), type) : e.binary(op::modulo, a, b));
}

void fmod(emitter& e, const node&) {
  const expression x = e.operand(0);
  const expression y = e.operand(1);
  const dtype type = computing_type(e, declared_type(e), true, {x, y});
  e.result(e.call(device_ir::is_float(type) ? intrinsic::fmod : intrinsic::trunc_modulo, {e.cast(x, type), e.cast(y, type)}, type));
}

void neg(emitter& e, const node&) {
  const dtype type = e.language->arithmetic[static_cast<std::size_t>(declared_type(e))];
  e.result(e.unary(op::negate, e.cast(e.operand(0), type)));
}

void abs(emitter& e, const node&) {
  const expression x = e.operand(0);
  const dtype type = e.language->arithmetic[static_cast<std::size_t>(declared_type(e))];
  if (type == dtype::u8 || type == dtype::b8) return e.result(x);
  e.result(e.call(intrinsic::abs, {e.cast(x, type)}, type));
}

void square(emitter& e, const node&) {
  const expression x = e.operand(0);
  e.result(binary_of(e, op::multiply, x, x, false));
}

void reciprocal(emitter& e, const node&) {
  const dtype type = e.language->transcendental[static_cast<std::size_t>(declared_type(e))];
  e.result(e.binary(op::divide, e.real(1, type), e.cast(e.operand(0), type)));
}

void pow(emitter& e, const node&) {
  const expression x = e.operand(0);
  const expression y = e.operand(1);
  const dtype type = computing_type(e, declared_type(e), true, {x, y});
  const codegen::expression_node exponent = e.at(y);
  const double value = exponent.what == codegen::expression_kind::integer ? static_cast<double>(exponent.integer)
                       : exponent.what == codegen::expression_kind::real  ? exponent.real
                                                                          : std::numeric_limits<double>::quiet_NaN();
  const expression base = e.cast(x, type);
  if (value == 1) return e.result(base);
  if (value == 2) return e.result(e.binary(op::multiply, base, base));
  if (value == 3) return e.result(e.binary(op::multiply, e.binary(op::multiply, base, base), base));
  if (device_ir::is_float(type)) {
    if (value == 0.5 && e.has(intrinsic::sqrt)) return e.result(e.call(intrinsic::sqrt, {base}, type));
    if (value == -1) return e.result(e.binary(op::divide, e.real(1, type), base));
    return e.result(e.call(intrinsic::pow, {base, e.cast(y, type)}, type));
  }
  // Integers: exact through f64 up to 2^53, as far as a kernel's index arithmetic goes.
  e.result(e.cast(e.call(intrinsic::pow, {e.cast(x, dtype::f64), e.cast(y, dtype::f64)}, dtype::f64), type));
}

namespace {

expression fused(emitter& e, op last) {
  const expression a = e.operand(0);
  const expression b = e.operand(1);
  const expression c = e.operand(2);
  const dtype type = computing_type(e, declared_type(e), last == op::divide, {a, b, c});
  const argument* value = e.keyword("value");
  if (value == nullptr) value = e.argument_at(3);
  expression product = e.binary(last, e.cast(b, type), e.cast(c, type));
  if (value != nullptr && value->what != argument::kind::none && !(value->what == argument::kind::integer && value->integer == 1) &&
      !(value->what == argument::kind::real && value->real == 1))
    product = e.binary(op::multiply, e.literal(*value, type), product);
  return e.binary(op::add, e.cast(a, type), product);
}

} // namespace

void addcmul(emitter& e, const node&) { e.result(fused(e, op::multiply)); }
void addcdiv(emitter& e, const node&) { e.result(fused(e, op::divide)); }

/// torch's form, exact at both ends: start + w (end - start) for |w| < 1/2, else end - (1 - w)(end - start).
void lerp(emitter& e, const node&) {
  const expression start = e.operand(0);
  const expression end = e.operand(1);
  const expression weight = e.operand(2);
  const dtype type = computing_type(e, declared_type(e), true, {start, end, weight});
  const expression a = e.cast(start, type);
  const expression b = e.cast(end, type);
  const expression w = e.cast(weight, type);
  const expression difference = e.define("difference", e.binary(op::subtract, b, a));
  const expression near_start = e.binary(op::add, a, e.binary(op::multiply, w, difference));
  const expression near_end = e.binary(op::subtract, b, e.binary(op::multiply, e.binary(op::subtract, e.real(1, type), w), difference));
  const expression small =
      e.is_literal(w) ? e.boolean(std::fabs(e.at(w).real) < 0.5) : e.binary(op::less, e.call(intrinsic::abs, {w}, type), e.real(0.5, type));
  e.result(select(e, small, near_start, near_end, type));
}

} // namespace muster::common
