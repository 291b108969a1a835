module;
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numbers>
#include <optional>
#include <string_view>
module muster.backend.common;

namespace muster::common {

using codegen::expression;
using codegen::intrinsic;
using codegen::op;
using device_ir::argument;
using device_ir::dtype;

/// Operand `i` in the type in which functions of the declared type are computed.
expression function_operand(emitter& e, std::size_t i) {
  const dtype declared = declared_type(e);
  const dtype type = e.language->transcendental[static_cast<std::size_t>(device_ir::is_float(declared) ? declared : dtype::f32)];
  const expression x = e.operand(i);
  // An operand wider than the result (a float symbol) keeps its precision.
  return e.cast(x, e.at(x).weak || !device_ir::is_float(e.type_of(x)) ? type : codegen::promote(type, e.type_of(x)));
}

expression call(emitter& e, intrinsic f, expression x) { return e.call(f, {x}, e.type_of(x)); }

namespace {

expression constant(emitter& e, double v, expression like) { return e.real(v, e.type_of(like)); }
expression plus(emitter& e, expression a, expression b) { return e.binary(op::add, a, b); }
expression minus(emitter& e, expression a, expression b) { return e.binary(op::subtract, a, b); }
expression times(emitter& e, expression a, expression b) { return e.binary(op::multiply, a, b); }
expression over(emitter& e, expression a, expression b) { return e.binary(op::divide, a, b); }

} // namespace

// -- functions that most dialects have; where one lacks it, by those that all have

template <intrinsic F> void function(emitter& e, const node&) { e.result(call(e, F, function_operand(e, 0))); }

#define MUSTER_FUNCTION(name, f)                                                                                                           \
  void name(emitter& e, const node& n) { function<f>(e, n); }
MUSTER_FUNCTION(acos, intrinsic::acos)
MUSTER_FUNCTION(acosh, intrinsic::acosh)
MUSTER_FUNCTION(asin, intrinsic::asin)
MUSTER_FUNCTION(asinh, intrinsic::asinh)
MUSTER_FUNCTION(atan, intrinsic::atan)
MUSTER_FUNCTION(atanh, intrinsic::atanh)
MUSTER_FUNCTION(cos, intrinsic::cos)
MUSTER_FUNCTION(cosh, intrinsic::cosh)
MUSTER_FUNCTION(digamma, intrinsic::digamma)
MUSTER_FUNCTION(erf, intrinsic::erf)
MUSTER_FUNCTION(erfc, intrinsic::erfc)
MUSTER_FUNCTION(erfinv, intrinsic::erfinv)
MUSTER_FUNCTION(exp, intrinsic::exp)
MUSTER_FUNCTION(expm1, intrinsic::expm1)
MUSTER_FUNCTION(lgamma, intrinsic::lgamma)
MUSTER_FUNCTION(log, intrinsic::log)
MUSTER_FUNCTION(log1p, intrinsic::log1p)
MUSTER_FUNCTION(sin, intrinsic::sin)
MUSTER_FUNCTION(sinh, intrinsic::sinh)
MUSTER_FUNCTION(sqrt, intrinsic::sqrt)
MUSTER_FUNCTION(tan, intrinsic::tan)
MUSTER_FUNCTION(tanh, intrinsic::tanh)
#undef MUSTER_FUNCTION

void exp2(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  e.result(e.has(intrinsic::exp2) ? call(e, intrinsic::exp2, x) : call(e, intrinsic::exp, times(e, x, constant(e, std::numbers::ln2, x))));
}
void log2(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  e.result(e.has(intrinsic::log2) ? call(e, intrinsic::log2, x)
                                  : times(e, call(e, intrinsic::log, x), constant(e, std::numbers::log2e, x)));
}
void log10(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  e.result(e.has(intrinsic::log10) ? call(e, intrinsic::log10, x)
                                   : times(e, call(e, intrinsic::log, x), constant(e, std::numbers::log10e, x)));
}
void rsqrt(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  e.result(e.has(intrinsic::rsqrt) ? call(e, intrinsic::rsqrt, x) : over(e, constant(e, 1, x), call(e, intrinsic::sqrt, x)));
}

// -- rounding: integers are whole already

namespace {

void rounding(emitter& e, intrinsic f) {
  if (!device_ir::is_float(declared_type(e))) return e.result(e.operand(0));
  e.result(call(e, f, function_operand(e, 0)));
}

} // namespace

void ceil(emitter& e, const node&) { rounding(e, intrinsic::ceil); }
void floor(emitter& e, const node&) { rounding(e, intrinsic::floor); }
void trunc(emitter& e, const node&) { rounding(e, intrinsic::trunc); }
void round(emitter& e, const node&) {
  const argument* decimals = e.keyword("decimals");
  if (decimals == nullptr || decimals->integer == 0 || !device_ir::is_float(declared_type(e))) return rounding(e, intrinsic::round_even);
  const expression x = function_operand(e, 0);
  const expression scale =
      constant(e, std::pow(10.0, static_cast<double>(decimals->integer < 0 ? -decimals->integer : decimals->integer)), x);
  if (decimals->integer > 0) return e.result(over(e, call(e, intrinsic::round_even, times(e, x, scale)), scale));
  e.result(times(e, call(e, intrinsic::round_even, over(e, x, scale)), scale));
}

// -- functions of two operands

namespace {

void function_of_two(emitter& e, intrinsic f) {
  const expression x = function_operand(e, 0);
  const expression y = function_operand(e, 1);
  const dtype type = codegen::promote(e.type_of(x), e.type_of(y));
  e.result(e.call(f, {e.cast(x, type), e.cast(y, type)}, type));
}

} // namespace

void atan2(emitter& e, const node&) { function_of_two(e, intrinsic::atan2); }
void copysign(emitter& e, const node&) { function_of_two(e, intrinsic::copysign); }
void hypot(emitter& e, const node&) { function_of_two(e, intrinsic::hypot); }
void nextafter(emitter& e, const node&) {
  // The neighbour in the declared type, which a wider type does not know.
  const dtype type = declared_type(e);
  if (type != dtype::f32 && type != dtype::f64) e.unsupported("nextafter of floats narrower than f32");
  e.result(e.call(intrinsic::nextafter, {e.cast(e.operand(0), type), e.cast(e.operand(1), type)}, type));
}
void signbit(emitter& e, const node&) {
  const expression x = e.operand(0);
  if (!device_ir::is_float(e.type_of(x))) return e.result(e.binary(op::less, x, e.integer(0, e.type_of(x))));
  const expression wide = e.cast(x, e.language->transcendental[static_cast<std::size_t>(e.type_of(x))]);
  e.result(truth(e, e.call(intrinsic::signbit, {wide}, dtype::b8)));
}

/// 0 where x is 0 (NaN where y is), else x log y.
void xlogy(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  const expression y = function_operand(e, 1);
  const expression zero = constant(e, 0, x);
  const expression product = times(e, x, call(e, intrinsic::log, y));
  const expression guarded = select(e, e.binary(op::equal, x, zero), zero, product, e.type_of(product));
  e.result(select(e, e.binary(op::not_equal, y, y), y, guarded, e.type_of(product)));
}

// -- activations

namespace {

expression sigmoid_of(emitter& e, expression x) {
  if (e.has(intrinsic::sigmoid)) return call(e, intrinsic::sigmoid, x);
  return over(e, constant(e, 1, x), plus(e, constant(e, 1, x), call(e, intrinsic::exp, e.unary(op::negate, x))));
}

/// A number given by position or keyword, or its default.
double number(emitter& e, std::size_t position, std::string_view name, double otherwise) {
  const argument* a = e.keyword(name);
  if (a == nullptr) a = e.argument_at(position);
  if (a == nullptr || a->what == argument::kind::none) return otherwise;
  if (a->what == argument::kind::integer) return static_cast<double>(a->integer);
  if (a->what == argument::kind::boolean) return a->boolean ? 1 : 0;
  if (a->what != argument::kind::real) e.unsupported("a parameter of an activation that is no literal");
  return a->real;
}

expression gelu_erf_of(emitter& e, expression x) {
  const expression half = times(e, constant(e, 0.5, x), x);
  return times(e, half, plus(e, constant(e, 1, x), call(e, intrinsic::erf, times(e, x, constant(e, std::numbers::sqrt2 / 2, x)))));
}

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), Hendrycks and Gimpel 2016.
expression gelu_tanh_of(emitter& e, expression x) {
  const expression cube = times(e, times(e, x, x), x);
  const expression inner = plus(e, x, times(e, constant(e, 0.044715, x), cube));
  const expression t = call(e, intrinsic::tanh, times(e, constant(e, std::numbers::sqrt2 * std::numbers::inv_sqrtpi, x), inner));
  return times(e, times(e, constant(e, 0.5, x), x), plus(e, constant(e, 1, x), t));
}

} // namespace

void sigmoid(emitter& e, const node&) { e.result(sigmoid_of(e, function_operand(e, 0))); }
void silu(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  e.result(times(e, x, sigmoid_of(e, x)));
}
void gelu(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  const argument* form = e.keyword("approximate");
  if (form == nullptr) form = e.argument_at(1);
  const bool by_tanh = form != nullptr && form->what == argument::kind::string && form->text == "tanh";
  e.result(by_tanh ? gelu_tanh_of(e, x) : gelu_erf_of(e, x));
}
void gelu_erf(emitter& e, const node&) { e.result(gelu_erf_of(e, function_operand(e, 0))); }
void gelu_tanh(emitter& e, const node&) { e.result(gelu_tanh_of(e, function_operand(e, 0))); }

void relu(emitter& e, const node&) {
  const expression x = e.operand(0);
  const expression zero = integer_or_real(e, 0, e.type_of(x));
  e.result(select(e, e.binary(op::less_equal, x, zero), zero, x, e.type_of(x))); // NaN compares false and stays
}
void leaky_relu(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  const expression slope = constant(e, number(e, 1, "negative_slope", 0.01), x);
  e.result(select(e, e.binary(op::greater, x, constant(e, 0, x)), x, times(e, x, slope), e.type_of(x)));
}
void elu(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  const double alpha = number(e, 1, "alpha", 1);
  const double scale = number(e, 2, "scale", 1);
  const expression scaled = times(e, x, constant(e, number(e, 3, "input_scale", 1), x));
  const expression grown =
      e.has(intrinsic::expm1) ? call(e, intrinsic::expm1, scaled) : minus(e, call(e, intrinsic::exp, scaled), constant(e, 1, x));
  e.result(select(e, e.binary(op::greater, x, constant(e, 0, x)), times(e, x, constant(e, scale, x)),
                  times(e, grown, constant(e, alpha * scale, x)), e.type_of(x)));
}
void softplus(emitter& e, const node&) {
  const expression x = function_operand(e, 0);
  const double beta = number(e, 1, "beta", 1);
  const double threshold = number(e, 2, "threshold", 20);
  const expression scaled = e.define("scaled", times(e, x, constant(e, beta, x)));
  const expression grown = call(e, intrinsic::exp, scaled);
  const expression log =
      e.has(intrinsic::log1p) ? call(e, intrinsic::log1p, grown) : call(e, intrinsic::log, plus(e, constant(e, 1, x), grown));
  e.result(select(e, e.binary(op::greater, scaled, constant(e, threshold, x)), x, over(e, log, constant(e, beta, x)), e.type_of(x)));
}
void logit(emitter& e, const node&) {
  expression x = function_operand(e, 0);
  const double eps = number(e, 1, "eps", -1);
  if (eps >= 0) {
    const dtype type = e.type_of(x);
    x = e.define("clamped",
                 e.call(intrinsic::minimum, {e.call(intrinsic::maximum, {x, constant(e, eps, x)}, type), constant(e, 1 - eps, x)}, type));
  }
  e.result(call(e, intrinsic::log, over(e, x, minus(e, constant(e, 1, x), x))));
}

// -- conversion

void convert_element_type(emitter& e, const node&) {
  const expression x = e.operand(0);
  const dtype type = declared_type(e);
  if (type == dtype::b8) return e.result(truth(e, x));
  e.result(e.cast(x, type));
}

void clone(emitter& e, const node&) { e.result(e.operand(0)); }

} // namespace muster::common
