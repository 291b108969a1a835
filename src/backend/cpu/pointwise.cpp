module;
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <fmt/format.h>
module muster.backend.cpu;

namespace muster::cpu {

using codegen::intrinsic;
using codegen::op;
using device_ir::argument;

namespace {

dtype declared(const emitter& e) {
  const node& n = e.current_node();
  return n.type.what == device_ir::type::kind::tensor ? n.type.element : e.type_of(e.current);
}

/// The type in which a node's arithmetic is done: that of the declared type, or of a wider float operand.
dtype arithmetic_type(const emitter& e, std::initializer_list<expression> operands) {
  dtype type = e.language->arithmetic[static_cast<std::size_t>(declared(e))];
  for (const expression x : operands) {
    const codegen::expression_node& n = e.at(x);
    if (n.typed && !n.weak && device_ir::is_float(n.type) && device_ir::is_float(type)) type = codegen::promote(type, n.type);
  }
  return type;
}

/// `x o y` in `type`. Integers wrap around, which C++ leaves undefined: helpers do it.
expression arithmetic(emitter& e, op o, expression x, expression y, dtype type) {
  x = e.cast(x, type);
  y = e.cast(y, type);
  if (device_ir::is_float(type)) return e.typed(e.binary(o, x, y), type);
  if (type == dtype::b8) return e.binary(o == op::add ? op::bit_or : op::bit_and, x, y);
  if (e.is_literal(x) && e.is_literal(y)) return e.cast(e.binary(o, x, y), type);
  const std::string_view name = o == op::add ? "add" : o == op::subtract ? "subtract" : "multiply";
  const std::string_view spelled = e.language->types[static_cast<std::size_t>(type)];
  return e.call(e.keep(fmt::format("math::{}<{}>", name, spelled)), {x, y}, type);
}

/// `alpha * y` of add and sub.
expression scaled(emitter& e, expression y) {
  const argument* alpha = e.keyword("alpha");
  if (alpha == nullptr) alpha = e.argument_at(2);
  if (alpha == nullptr || alpha->what == argument::kind::none) return y;
  const bool one =
      (alpha->what == argument::kind::integer && alpha->integer == 1) || (alpha->what == argument::kind::real && alpha->real == 1);
  return one ? y : arithmetic(e, op::multiply, e.literal(*alpha), y, arithmetic_type(e, {y}));
}

void binary(emitter& e, op o, expression x, expression y) { e.result(arithmetic(e, o, x, y, arithmetic_type(e, {x, y}))); }

} // namespace

void add(emitter& e, const node&) { binary(e, op::add, e.operand(0), scaled(e, e.operand(1))); }
void sub(emitter& e, const node&) { binary(e, op::subtract, e.operand(0), scaled(e, e.operand(1))); }
void rsub(emitter& e, const node&) { binary(e, op::subtract, e.operand(1), scaled(e, e.operand(0))); }
void mul(emitter& e, const node&) { binary(e, op::multiply, e.operand(0), e.operand(1)); }
void square(emitter& e, const node&) {
  const expression x = e.operand(0);
  binary(e, op::multiply, x, x);
}

void neg(emitter& e, const node&) {
  const expression x = e.operand(0);
  const dtype type = arithmetic_type(e, {x});
  if (device_ir::is_float(type)) return e.result(e.unary(op::negate, e.cast(x, type)));
  e.result(arithmetic(e, op::subtract, e.integer(0, type), x, type));
}

void abs(emitter& e, const node&) {
  const expression x = e.operand(0);
  const dtype type = arithmetic_type(e, {x});
  if (type == dtype::u8 || type == dtype::b8) return e.result(x);
  e.result(e.call(intrinsic::abs, {e.cast(x, type)}, type));
}

void pow(emitter& e, const node&) {
  const expression x = e.operand(0);
  const expression y = e.operand(1);
  const dtype type = arithmetic_type(e, {x, y});
  const expression base = e.cast(x, type);
  if (!device_ir::is_float(type)) {
    const std::string_view spelled = e.language->types[static_cast<std::size_t>(type)];
    return e.result(e.call(e.keep(fmt::format("math::power<{}>", spelled)), {base, e.cast(y, dtype::i64)}, type));
  }
  const codegen::expression_node exponent = e.at(y);
  const bool is_literal = e.is_literal(y);
  const double value = exponent.what == codegen::expression_kind::real ? exponent.real : static_cast<double>(exponent.integer);
  if (is_literal && value == 1) return e.result(base);
  if (is_literal && value == 2) return e.result(e.binary(op::multiply, base, base));
  if (is_literal && value == 3) return e.result(e.binary(op::multiply, e.binary(op::multiply, base, base), base));
  if (is_literal && value == 0.5) return e.result(e.call(intrinsic::sqrt, {base}, type));
  if (is_literal && value == -1) return e.result(e.binary(op::divide, e.real(1, type), base));
  e.result(e.call(intrinsic::pow, {base, e.cast(y, type)}, type));
}

namespace {

/// A shift by a constant within the type's width is an operator; any other count has torch's meaning through a helper.
void shift(emitter& e, op o) {
  const dtype type = declared(e);
  const expression x = e.cast(e.operand(0), type);
  const expression y = e.operand(1);
  if (const auto n = e.integer_literal(y); n && *n >= 0 && *n < 8 * device_ir::size_of(type))
    return e.result(e.cast(e.typed(e.binary(o, x, y), o == op::shift_left && device_ir::size_of(type) < 4 ? dtype::i32 : type), type));
  const std::string_view spelled = e.language->types[static_cast<std::size_t>(type)];
  e.result(
      e.call(e.keep(fmt::format("math::{}<{}>", o == op::shift_left ? "shift_left" : "shift_right", spelled)), {x, e.cast(y, type)}, type));
}

} // namespace

void shift_left(emitter& e, const node&) { shift(e, op::shift_left); }
void shift_right(emitter& e, const node&) { shift(e, op::shift_right); }

void nextafter(emitter& e, const node&) {
  const dtype type = declared(e);
  e.result(e.call("math::nextafter", {e.cast(e.operand(0), type), e.cast(e.operand(1), type)}, type));
}

/// Another processor's assembly cannot run here. One piece of it that kernels share is known by what it does: the lowest
/// byte of a word, a float8_e4m3fn, as a float.
void inline_asm_elementwise(emitter& e, const node&) {
  const argument* text = e.argument_at(0);
  const argument* values = e.argument_at(2);
  const bool list = values != nullptr && (values->what == argument::kind::list || values->what == argument::kind::tuple);
  const bool one = list && e.source->items(*values).size() == 1;
  const std::string_view code = text != nullptr && text->what == argument::kind::string ? text->text : std::string_view();
  const bool decodes = code.find("cvt.rn.f16x2.e4m3x2") != std::string_view::npos && code.find("cvt.f32.f16 $0") != std::string_view::npos;
  if (!one || !decodes || declared(e) != dtype::f32) e.unsupported("assembly of another processor");
  const expression byte = e.cast(e.literal(e.source->items(*values)[0]), dtype::u8);
  e.result(e.cast(e.call("std::bit_cast<float8_e4m3fn>", {byte}, dtype::f8e4m3fn), dtype::f32));
}

namespace {

/// The position of the current element in a tile's whole dimensions, which numbers its random value.
expression random_offset(cpu_emitter& e) {
  const std::span<const dimension> shape = e.shape_of(e.current);
  expression offset = e.zero();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const codegen::block_plan* b = e.plan->find_block(shape[d].block);
    expression position = e.lane()[d];
    expression extent = e.full_lanes(shape[d]);
    if (b != nullptr) {
      position = e.binary(op::add, e.lane_offset(b->id), position);
      if (b->extent != symbolic::no_expression) extent = e.symbolic(b->extent);
    }
    offset = e.binary(op::add, e.binary(op::multiply, offset, extent), position);
  }
  return offset;
}

expression seed(cpu_emitter& e, std::size_t position) {
  const argument* a = e.argument_at(position);
  if (a == nullptr) e.malformed("random numbers need a seed");
  return e.cast(e.literal(*a), dtype::i64);
}

} // namespace

void rand(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  e.result(e.call("math::random_unit", {seed(e, 1), random_offset(e)}, dtype::f32));
}

void randint(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const expression low = e.cast(e.operand(1), dtype::i64);
  const expression high = e.cast(e.operand(2), dtype::i64);
  e.result(e.cast(e.call("math::random_integer", {low, high, seed(e, 3), random_offset(e)}, dtype::i64), e.type_of(e.current)));
}

} // namespace muster::cpu
