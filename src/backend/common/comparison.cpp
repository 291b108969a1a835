module;
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

namespace {

/// The type that two literals have in a language without types for them.
dtype literal_type(const emitter& e, expression a, expression b) {
  const auto is_narrow = [&](expression x) { return e.at(x).integer == static_cast<std::int32_t>(e.at(x).integer); };
  if (e.at(a).what == codegen::expression_kind::boolean) return dtype::b8;
  if (e.at(a).what == codegen::expression_kind::real) return dtype::f32;
  return is_narrow(a) && is_narrow(b) ? dtype::i32 : dtype::i64;
}

double largest_of(dtype type) {
  switch (type) {
  case dtype::f64: return std::numeric_limits<double>::max();
  case dtype::f16: return 65504.0;
  case dtype::bf16: return 3.3895313892515355e38;
  case dtype::f8e4m3fn: return 448.0;
  case dtype::f8e5m2: return 57344.0;
  default: return static_cast<double>(std::numeric_limits<float>::max());
  }
}

/// A literal that is compared with a narrow float is one itself, whatever type the comparison is made in.
expression comparable(emitter& e, expression x, const codegen::expression_node& other) {
  const codegen::expression_node n = e.at(x);
  const bool number = n.what == codegen::expression_kind::real || n.what == codegen::expression_kind::integer;
  if (!number || !n.weak || !other.typed || other.weak || (other.type != dtype::f16 && other.type != dtype::bf16)) return x;
  const double value = n.what == codegen::expression_kind::real ? n.real : static_cast<double>(n.integer);
  return e.real(device_ir::rounded(other.type, device_ir::rounded(dtype::f32, value)), other.type); // by way of f32, as torch converts
}

} // namespace

/// `test ? a : b`, elementwise: the dialect's function on tiles, an operator on scalars.
expression select(emitter& e, expression test, expression a, expression b, dtype type) {
  if (e.at(test).what == codegen::expression_kind::boolean) return e.at(test).integer != 0 ? a : b;
  if (e.has(intrinsic::where)) {
    // Of two literals the target would make a tile of a type of its own choice.
    if (e.is_literal(a) && e.is_literal(b) && type != literal_type(e, a, b) && type == e.type_of(e.current)) {
      if (device_ir::is_float(type) && device_ir::size_of(type) == 1) return e.call(intrinsic::where, {test, a, b}, dtype::f32);
      a = e.as_tile(e.current, a);
    }
    return e.call(intrinsic::where, {test, a, b}, type);
  }
  return e.typed(e.select(test, a, b), type);
}

/// A value as a truth value: itself, or not equal to zero.
expression truth(emitter& e, expression x) {
  const codegen::expression_node& n = e.at(x);
  if (n.what == codegen::expression_kind::boolean || (n.typed && n.type == dtype::b8)) return x;
  return e.binary(op::not_equal, x, integer_or_real(e, 0, n.type));
}

namespace {

/// The common type of two compared operands, and the operands in it. Small floats compare exactly in themselves.
void compare(emitter& e, op o) {
  expression x = e.operand(0);
  expression y = e.operand(1);
  x = comparable(e, x, e.at(y));
  y = comparable(e, y, e.at(x));
  const codegen::expression_node a = e.at(x);
  const codegen::expression_node b = e.at(y);
  dtype type = codegen::promote(a.type, b.type);
  if (a.weak != b.weak) {
    const dtype tile = a.weak ? b.type : a.type;
    const dtype literal = a.weak ? a.type : b.type;
    type = device_ir::is_float(literal) && !device_ir::is_float(tile) ? dtype::f32 : tile;
    if (tile == dtype::b8 && literal != dtype::b8) type = device_ir::is_float(literal) ? dtype::f32 : dtype::i32;
  }
  if (a.typed && b.typed && device_ir::is_float(type)) type = e.language->arithmetic[static_cast<std::size_t>(type)];
  const auto [left, right] = a.typed && b.typed ? promoted(e, x, y, type) : operand_pair{x, y};
  e.result(e.binary(o, left, right));
}

} // namespace

void eq(emitter& e, const node&) { compare(e, op::equal); }
void ne(emitter& e, const node&) { compare(e, op::not_equal); }
void lt(emitter& e, const node&) { compare(e, op::less); }
void le(emitter& e, const node&) { compare(e, op::less_equal); }
void gt(emitter& e, const node&) { compare(e, op::greater); }
void ge(emitter& e, const node&) { compare(e, op::greater_equal); }

void logical_and(emitter& e, const node&) { e.result(e.binary(op::bit_and, truth(e, e.operand(0)), truth(e, e.operand(1)))); }
void logical_or(emitter& e, const node&) { e.result(e.binary(op::bit_or, truth(e, e.operand(0)), truth(e, e.operand(1)))); }
void logical_xor(emitter& e, const node&) { e.result(e.binary(op::not_equal, truth(e, e.operand(0)), truth(e, e.operand(1)))); }
void logical_not(emitter& e, const node&) {
  const expression x = e.operand(0);
  e.result(e.binary(op::equal, x, e.at(x).type == dtype::b8 ? e.boolean(false) : integer_or_real(e, 0, e.at(x).type)));
}

namespace {

void bitwise(emitter& e, op o) {
  const expression x = e.operand(0);
  const expression y = e.operand(1);
  const dtype type = declared_type(e);
  const auto [a, b] = promoted(e, x, y, type);
  e.result(e.typed(e.binary(o, a, b), type));
}

} // namespace

void bitwise_and(emitter& e, const node&) { bitwise(e, op::bit_and); }
void bitwise_or(emitter& e, const node&) { bitwise(e, op::bit_or); }
void bitwise_xor(emitter& e, const node&) { bitwise(e, op::bit_xor); }
void bitwise_not(emitter& e, const node&) {
  const expression x = e.operand(0);
  e.result(declared_type(e) == dtype::b8 ? e.binary(op::equal, x, e.boolean(false)) : e.unary(op::bit_not, x));
}
void shift_left(emitter& e, const node&) { bitwise(e, op::shift_left); }
void shift_right(emitter& e, const node&) { bitwise(e, op::shift_right); }

// -- selection

void where(emitter& e, const node&) {
  const dtype type = declared_type(e);
  e.result(select(e, truth(e, e.operand(0)), e.cast(e.operand(1), type), e.cast(e.operand(2), type), type));
}

void masked_fill(emitter& e, const node&) {
  const dtype type = declared_type(e);
  e.result(select(e, truth(e, e.operand(1)), e.cast(e.operand(2), type), e.cast(e.operand(0), type), type));
}

namespace {

expression extreme(emitter& e, bool largest, expression x, expression y, dtype type) {
  if (device_ir::is_float(type)) return e.call(largest ? intrinsic::maximum : intrinsic::minimum, {e.cast(x, type), e.cast(y, type)}, type);
  if (type == dtype::b8) return e.binary(largest ? op::bit_or : op::bit_and, x, y);
  return e.call(largest ? intrinsic::integer_maximum : intrinsic::integer_minimum, {e.cast(x, type), e.cast(y, type)}, type);
}

void extreme_of_two(emitter& e, bool largest) {
  const expression x = e.operand(0);
  const expression y = e.operand(1);
  e.result(extreme(e, largest, x, y, computing_type(e, declared_type(e), false, {x, y})));
}

void fextreme_of_two(emitter& e, bool largest) {
  const expression x = e.operand(0);
  const expression y = e.operand(1);
  const dtype type = computing_type(e, declared_type(e), false, {x, y});
  if (!device_ir::is_float(type)) return e.result(extreme(e, largest, x, y, type));
  e.result(e.call(largest ? intrinsic::fmax : intrinsic::fmin, {e.cast(x, type), e.cast(y, type)}, type));
}

/// A bound of clamp: argument or keyword, or nothing.
std::optional<expression> bound(emitter& e, std::size_t position, std::string_view name, dtype type) {
  const argument* a = e.argument_at(position);
  if (a == nullptr) a = e.keyword(name);
  if (a == nullptr || a->what == argument::kind::none) return std::nullopt;
  return e.literal(*a, a->what == argument::kind::node ? std::nullopt : std::optional(type));
}

void clamp_between(emitter& e, std::optional<expression> low, std::optional<expression> high) {
  expression x = e.operand(0);
  const dtype type = computing_type(e, declared_type(e), false, {x});
  if (low) x = extreme(e, true, x, *low, type);
  if (high) x = extreme(e, false, x, *high, type);
  e.result(x);
}

} // namespace

void maximum(emitter& e, const node&) { extreme_of_two(e, true); }
void minimum(emitter& e, const node&) { extreme_of_two(e, false); }
void fmax(emitter& e, const node&) { fextreme_of_two(e, true); }
void fmin(emitter& e, const node&) { fextreme_of_two(e, false); }
void clamp(emitter& e, const node&) {
  const dtype type = declared_type(e);
  clamp_between(e, bound(e, 1, "min", type), bound(e, 2, "max", type));
}
void clamp_min(emitter& e, const node&) { clamp_between(e, bound(e, 1, "min", declared_type(e)), std::nullopt); }
void clamp_max(emitter& e, const node&) { clamp_between(e, std::nullopt, bound(e, 1, "max", declared_type(e))); }
void hardtanh(emitter& e, const node&) {
  const dtype type = declared_type(e);
  clamp_between(e, bound(e, 1, "min_val", type).value_or(integer_or_real(e, -1, type)),
                bound(e, 2, "max_val", type).value_or(integer_or_real(e, 1, type)));
}

// -- kinds of numbers

namespace {

expression infinity(emitter& e, dtype type) { return e.real(std::numeric_limits<double>::infinity(), type); }

/// A float operand in a type that the target computes with.
expression float_operand(emitter& e, std::size_t i) {
  const expression x = e.operand(i);
  return device_ir::is_float(e.type_of(x)) ? e.cast(x, e.language->arithmetic[static_cast<std::size_t>(e.type_of(x))]) : x;
}

} // namespace

void isnan(emitter& e, const node&) {
  const expression x = float_operand(e, 0);
  if (!device_ir::is_float(e.type_of(x))) return e.result(e.boolean(false));
  e.result(e.has(intrinsic::isnan) ? e.call(intrinsic::isnan, {x}, dtype::b8) : e.binary(op::not_equal, x, x));
}
void isinf(emitter& e, const node&) {
  const expression x = float_operand(e, 0);
  const dtype type = e.type_of(x);
  if (!device_ir::is_float(type)) return e.result(e.boolean(false));
  e.result(e.has(intrinsic::isinf) ? e.call(intrinsic::isinf, {x}, dtype::b8)
                                   : e.binary(op::equal, e.call(intrinsic::abs, {x}, type), infinity(e, type)));
}
void isfinite(emitter& e, const node&) {
  const expression x = float_operand(e, 0);
  const dtype type = e.type_of(x);
  if (!device_ir::is_float(type)) return e.result(e.boolean(true));
  e.result(e.has(intrinsic::isfinite) ? e.call(intrinsic::isfinite, {x}, dtype::b8)
                                      : e.binary(op::less, e.call(intrinsic::abs, {x}, type), infinity(e, type)));
}

void nan_to_num(emitter& e, const node&) {
  expression x = e.operand(0);
  const dtype declared = declared_type(e);
  if (!device_ir::is_float(declared)) return e.result(x);
  const dtype type = e.language->arithmetic[static_cast<std::size_t>(declared)];
  x = e.cast(x, type);
  const expression nan = bound(e, 1, "nan", type).value_or(e.real(0, type));
  const expression high = bound(e, 2, "posinf", type).value_or(e.real(largest_of(declared), type));
  const expression low = bound(e, 3, "neginf", type).value_or(e.real(-largest_of(declared), type));
  expression y = select(e, e.binary(op::equal, x, infinity(e, type)), high, x, type);
  y = select(e, e.binary(op::equal, x, e.real(-std::numeric_limits<double>::infinity(), type)), low, y, type);
  e.result(select(e, e.binary(op::not_equal, x, x), nan, y, type));
}

void sign(emitter& e, const node&) {
  const expression x = float_operand(e, 0);
  const dtype type = e.type_of(x);
  if (type == dtype::b8) return e.result(x);
  const expression zero = integer_or_real(e, 0, type);
  const expression negative = select(e, e.binary(op::less, x, zero), integer_or_real(e, -1, type), zero, type);
  e.result(select(e, e.binary(op::greater, x, zero), integer_or_real(e, 1, type), negative, type));
}

} // namespace muster::common
