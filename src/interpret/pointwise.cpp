module;
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.interpret;

#include "interpreter.hpp"

namespace muster::interpret {

namespace {

using reals = std::span<const double>;
using wholes = std::span<const std::int64_t>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

constexpr std::uint64_t bits(std::int64_t x) { return static_cast<std::uint64_t>(x); }
constexpr std::int64_t signed_bits(std::uint64_t x) { return static_cast<std::int64_t>(x); }

double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return nan;
  return std::max(a, b);
}

double minimum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return nan;
  return std::min(a, b);
}

/// The sign is the divisor's.
double remainder(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/// Quotient towards zero and what is left; 0 for a division by 0, which has no meaning.
std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? signed_bits(0U - bits(a)) : a / b;
}

std::int64_t rest(std::int64_t a, std::int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  const std::int64_t q = quotient(a, b);
  return rest(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

std::int64_t floor_rest(std::int64_t a, std::int64_t b) {
  const std::int64_t r = rest(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

std::int64_t whole_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  std::uint64_t result = 1;
  for (std::uint64_t b = bits(base), e = bits(exponent); e != 0; e >>= 1U, b *= b)
    if ((e & 1U) != 0) result *= b;
  return signed_bits(result);
}

/// By the reflection formula, the recurrence up to 10, and the asymptotic series there.
double digamma(double x) {
  if (x == 0) return std::copysign(infinity, -x);
  if (x < 0) {
    if (x == std::floor(x)) return nan;
    return digamma(1 - x) - std::numbers::pi / std::tan(std::numbers::pi * x);
  }
  double sum = 0;
  for (; x < 10; ++x) sum -= 1 / x;
  const double y = 1 / (x * x);
  return sum + std::log(x) - 0.5 / x - y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132)))));
}

/// Newton's method on erf, from Winitzki's approximation.
double erfinv(double x) {
  if (!(std::fabs(x) <= 1)) return nan;
  if (std::fabs(x) == 1) return std::copysign(infinity, x);
  constexpr double a = 0.147;
  const double l = std::log1p(-x * x);
  const double t = 2 / (std::numbers::pi * a) + l / 2;
  double y = std::copysign(std::sqrt(std::sqrt(t * t - l / a) - t), x);
  for (int i = 0; i < 4; ++i) {
    const double slope = 2 * std::numbers::inv_sqrtpi * std::exp(-y * y);
    if (slope == 0) break;
    y -= (std::erf(y) - x) / slope;
  }
  return y;
}

double gelu_by_erf(double x) { return 0.5 * x * (1 + std::erf(x * std::numbers::sqrt2 / 2)); }

double gelu_by_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (x + 0.044715 * x * x * x)));
}

/// A number divided by another and rounded down, as torch has it: right where the quotient would round up, and by infinities.
double floor_quotient(double a, double b) {
  if (b == 0) return a / b;
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

double largest_number(dtype d) {
  switch (d) {
  case dtype::f64: return std::numeric_limits<double>::max();
  case dtype::f32: return std::numeric_limits<float>::max();
  case dtype::f16: return 65504;
  case dtype::bf16: return 0x1.fep127;
  case dtype::f8e4m3fn: return 448;
  default: return 57344;
  }
}

/// The type in which these operands meet if one of them is a float, or nothing: the widest of the tiles', or of the scalars' where
/// no tile is a float.
std::optional<dtype> float_of(std::span<const value> operands, bool divides) {
  std::optional<dtype> found;
  bool any = false;
  for (const bool tiles : {true, false}) {
    for (const value& v : operands) {
      if (v.what != value::kind::data) continue;
      any = any || v.data->real;
      if (!v.element || !device_ir::is_float(*v.element) || v.is_tile() != tiles) continue;
      const bool two = found && *found != *v.element && device_ir::size_of(*found) == device_ir::size_of(*v.element);
      if (two) found = dtype::f32;
      else if (!found || device_ir::size_of(*found) < device_ir::size_of(*v.element)) found = v.element;
    }
    if (found) return found;
  }
  return any || divides ? std::optional(dtype::f32) : std::nullopt;
}

/// The function of one real number that an operation is, or null.
double (*unary_of(operation o))(double) {
  switch (o) {
  case operation::aten_exp: return [](double x) { return std::exp(x); };
  case operation::aten_exp2: return [](double x) { return std::exp2(x); };
  case operation::aten_expm1: return [](double x) { return std::expm1(x); };
  case operation::aten_log: return [](double x) { return std::log(x); };
  case operation::aten_log2: return [](double x) { return std::log2(x); };
  case operation::aten_log10: return [](double x) { return std::log10(x); };
  case operation::aten_log1p: return [](double x) { return std::log1p(x); };
  case operation::aten_sqrt: return [](double x) { return std::sqrt(x); };
  case operation::aten_rsqrt: return [](double x) { return 1 / std::sqrt(x); };
  case operation::aten_reciprocal: return [](double x) { return 1 / x; };
  case operation::aten_sin: return [](double x) { return std::sin(x); };
  case operation::aten_cos: return [](double x) { return std::cos(x); };
  case operation::aten_tan: return [](double x) { return std::tan(x); };
  case operation::aten_sinh: return [](double x) { return std::sinh(x); };
  case operation::aten_cosh: return [](double x) { return std::cosh(x); };
  case operation::aten_tanh: return [](double x) { return std::tanh(x); };
  case operation::aten_asin: return [](double x) { return std::asin(x); };
  case operation::aten_acos: return [](double x) { return std::acos(x); };
  case operation::aten_atan: return [](double x) { return std::atan(x); };
  case operation::aten_asinh: return [](double x) { return std::asinh(x); };
  case operation::aten_acosh: return [](double x) { return std::acosh(x); };
  case operation::aten_atanh: return [](double x) { return std::atanh(x); };
  case operation::aten_erf: return [](double x) { return std::erf(x); };
  case operation::aten_erfc: return [](double x) { return std::erfc(x); };
  case operation::aten_erfinv: return erfinv;
  case operation::aten_digamma: return digamma;
  case operation::aten_lgamma: return [](double x) { return std::lgamma(x); };
  case operation::aten_sigmoid: return [](double x) { return 1 / (1 + std::exp(-x)); };
  case operation::aten_silu: return [](double x) { return x / (1 + std::exp(-x)); };
  case operation::gelu_erf: return gelu_by_erf;
  case operation::gelu_tanh_approx: return gelu_by_tanh;
  default: return nullptr;
  }
}

} // namespace

value machine::pointwise(operation o) {
  std::vector<value> values;
  for (std::size_t i = 0; i < arguments().size(); ++i) values.push_back(operand(i));
  std::vector<const array*> all;
  bool real = false;
  // Where a float is among the operands, tiles of integers are converted to its type first.
  const auto use = [&](std::vector<value>& operands) {
    const bool chooses = o == operation::aten_where || o == operation::aten_masked_fill;
    const bool divides = o == operation::aten_true_divide || (o == operation::aten_div && keyword("rounding_mode") == nullptr);
    const std::optional<dtype> common = chooses ? std::nullopt : float_of(operands, divides);
    all.clear();
    for (value& v : operands) {
      if (v.what != value::kind::data) continue;
      if (common && !v.data->real && v.is_tile() && v.element && *v.element != dtype::b8)
        v.data = std::make_shared<const array>(rounded(*v.data, *common));
      all.push_back(v.data.get());
      real = real || v.data->real;
    }
  };
  use(values);
  const auto bounded = [&](std::string_view name) { // the second operand by name
    const argument* const bound = keyword(name);
    if (bound == nullptr) return;
    values.resize(1);
    values.push_back(read(*bound));
    use(values);
  };
  const auto need = [&](std::size_t n) {
    if (all.size() < n) fail(fmt::format("{} operands are needed, there are {}", n, all.size()));
    return std::span<const array* const>(all).first(n);
  };
  const auto reals_of = [&](std::size_t n, const auto& f) { return typed(map(need(n), true, [&](reals x) -> double { return f(x); })); };
  const auto wholes_of = [&](std::size_t n, const auto& f) {
    return typed(map(need(n), false, [&](wholes x) -> std::int64_t { return f(x); }));
  };
  const auto either = [&](std::size_t n, const auto& f, const auto& g) { return real ? reals_of(n, f) : wholes_of(n, g); };
  const auto compare = [&](const auto& f) { // f takes two numbers of one kind
    if (real) return typed(map(need(2), false, [&](reals x) { return f(x[0], x[1]); }));
    return typed(map(need(2), false, [&](wholes x) { return f(x[0], x[1]); }));
  };
  const auto test = [&](const auto& f) { return typed(map(need(1), false, [&](reals x) { return f(x[0]); })); };
  const auto truths = [&](const auto& f) { // through doubles, no integer but 0 becomes 0
    return typed(map(need(2), false, [&](reals x) { return f(x[0] != 0, x[1] != 0); }));
  };
  // Parameters behind the operands, by position or name.
  const auto parameter = [&](std::size_t i, std::string_view name) { return argument_at(i) != nullptr ? argument_at(i) : keyword(name); };
  const auto number_at = [&](std::size_t i, std::string_view name, double otherwise) {
    const argument* a = parameter(i, name);
    return a == nullptr ? otherwise : scalar(read(*a)).as_real();
  };
  const auto text_of = [&](std::string_view name) {
    const argument* a = keyword(name);
    return a != nullptr && a->what == argument::kind::string ? a->text : std::string_view();
  };
  const auto is_truth = [&](std::size_t i) { return values[i].element == std::optional(dtype::b8); };
  const auto scaled = [&](std::size_t i) { // `alpha` multiplies the second summand
    const argument* a = parameter(2, "alpha");
    if (a == nullptr) return;
    const number by = scalar(read(*a));
    const array factor = by.is_integer ? scalar_array(by.integer) : scalar_array(by.real);
    const array* const both[] = {all[i], &factor};
    real = real || !by.is_integer;
    values.push_back(value_of(real ? map(both, true, [](reals x) { return x[0] * x[1]; })
                                   : map(both, false, [](wholes x) { return signed_bits(bits(x[0]) * bits(x[1])); })));
    all[i] = values.back().data.get();
  };

  if (double (*const f)(double) = unary_of(o)) return reals_of(1, [f](reals x) { return f(x[0]); });
  switch (o) {
  case operation::prims_convert_element_type:
  case operation::aten_to_copy:
  case operation::aten_clone:
  case operation::aten_alias: return typed(*required(0).data);

  // -- arithmetic
  case operation::aten_add:
    need(2);
    scaled(1);
    return either(2, [](reals x) { return x[0] + x[1]; }, [](wholes x) { return signed_bits(bits(x[0]) + bits(x[1])); });
  case operation::aten_sub:
    need(2);
    scaled(1);
    return either(2, [](reals x) { return x[0] - x[1]; }, [](wholes x) { return signed_bits(bits(x[0]) - bits(x[1])); });
  case operation::aten_rsub:
    need(2);
    scaled(0);
    return either(2, [](reals x) { return x[1] - x[0]; }, [](wholes x) { return signed_bits(bits(x[1]) - bits(x[0])); });
  case operation::aten_mul:
    return either(2, [](reals x) { return x[0] * x[1]; }, [](wholes x) { return signed_bits(bits(x[0]) * bits(x[1])); });
  case operation::aten_div: {
    const std::string_view mode = text_of("rounding_mode");
    if (mode == "floor")
      return either(2, [](reals x) { return floor_quotient(x[0], x[1]); }, [](wholes x) { return floor_quotient(x[0], x[1]); });
    if (mode == "trunc") return either(2, [](reals x) { return std::trunc(x[0] / x[1]); }, [](wholes x) { return quotient(x[0], x[1]); });
    return reals_of(2, [](reals x) { return x[0] / x[1]; });
  }
  case operation::aten_true_divide: return reals_of(2, [](reals x) { return x[0] / x[1]; });
  case operation::aten_floor_divide:
    return either(2, [](reals x) { return floor_quotient(x[0], x[1]); }, [](wholes x) { return floor_quotient(x[0], x[1]); });
  case operation::aten_remainder:
    return either(2, [](reals x) { return remainder(x[0], x[1]); }, [](wholes x) { return floor_rest(x[0], x[1]); });
  case operation::aten_fmod: return either(2, [](reals x) { return std::fmod(x[0], x[1]); }, [](wholes x) { return rest(x[0], x[1]); });
  case operation::aten_neg: return either(1, [](reals x) { return -x[0]; }, [](wholes x) { return signed_bits(0U - bits(x[0])); });
  case operation::aten_abs:
    return either(1, [](reals x) { return std::fabs(x[0]); }, [](wholes x) { return x[0] < 0 ? signed_bits(0U - bits(x[0])) : x[0]; });
  case operation::aten_square:
    return either(1, [](reals x) { return x[0] * x[0]; }, [](wholes x) { return signed_bits(bits(x[0]) * bits(x[0])); });
  case operation::aten_sign:
    return either(
        1, [](reals x) { return static_cast<double>((x[0] > 0) - (x[0] < 0)); },
        [](wholes x) { return static_cast<std::int64_t>((x[0] > 0) - (x[0] < 0)); });
  case operation::aten_pow:
    return either(2, [](reals x) { return std::pow(x[0], x[1]); }, [](wholes x) { return whole_power(x[0], x[1]); });
  case operation::aten_maximum:
    return either(2, [](reals x) { return maximum(x[0], x[1]); }, [](wholes x) { return std::max(x[0], x[1]); });
  case operation::aten_minimum:
    return either(2, [](reals x) { return minimum(x[0], x[1]); }, [](wholes x) { return std::min(x[0], x[1]); });
  case operation::aten_fmax: return either(2, [](reals x) { return std::fmax(x[0], x[1]); }, [](wholes x) { return std::max(x[0], x[1]); });
  case operation::aten_fmin: return either(2, [](reals x) { return std::fmin(x[0], x[1]); }, [](wholes x) { return std::min(x[0], x[1]); });
  case operation::aten_relu:
    return either(1, [](reals x) { return maximum(x[0], 0); }, [](wholes x) { return std::max<std::int64_t>(x[0], 0); });
  case operation::aten_clamp_min:
    bounded("min");
    return either(2, [](reals x) { return maximum(x[0], x[1]); }, [](wholes x) { return std::max(x[0], x[1]); });
  case operation::aten_clamp_max:
    bounded("max");
    return either(2, [](reals x) { return minimum(x[0], x[1]); }, [](wholes x) { return std::min(x[0], x[1]); });
  case operation::aten_clamp: { // a bound may be absent
    const argument* const low = parameter(1, "min");
    const argument* const high = parameter(2, "max");
    std::vector<value> bounds{required(0)};
    if (low != nullptr) bounds.push_back(read(*low));
    if (high != nullptr) bounds.push_back(read(*high));
    use(bounds);
    const auto clamp = [&](const auto& x, const auto& greater, const auto& less) {
      auto y = x[0];
      if (low != nullptr) y = greater(y, x[1]);
      if (high != nullptr) y = less(y, x[low != nullptr ? 2 : 1]);
      return y;
    };
    return either(
        all.size(), [&](reals x) { return clamp(x, maximum, minimum); },
        [&](wholes x) {
          return clamp(
              x, [](std::int64_t a, std::int64_t b) { return std::max(a, b); },
              [](std::int64_t a, std::int64_t b) { return std::min(a, b); });
        });
  }
  case operation::aten_lerp: return reals_of(3, [](reals x) { return x[0] + x[2] * (x[1] - x[0]); });
  case operation::aten_addcmul:
  case operation::aten_addcdiv: {
    const double by = number_at(3, "value", 1);
    if (o == operation::aten_addcdiv) return reals_of(3, [by](reals x) { return x[0] + by * (x[1] / x[2]); });
    return reals_of(3, [by](reals x) { return x[0] + by * (x[1] * x[2]); });
  }
  case operation::aten_atan2: return reals_of(2, [](reals x) { return std::atan2(x[0], x[1]); });
  case operation::aten_hypot: return reals_of(2, [](reals x) { return std::hypot(x[0], x[1]); });
  case operation::aten_copysign: return reals_of(2, [](reals x) { return std::copysign(x[0], x[1]); });
  case operation::aten_nextafter:
    if (current().type.element == dtype::f64) return reals_of(2, [](reals x) { return std::nextafter(x[0], x[1]); });
    if (current().type.element == dtype::f32)
      return reals_of(2, [](reals x) { return static_cast<double>(std::nextafter(static_cast<float>(x[0]), static_cast<float>(x[1]))); });
    unsupported("the next number of a type narrower than 32 bits");
  case operation::aten_xlogy: return reals_of(2, [](reals x) { return std::isnan(x[1]) ? nan : x[0] == 0 ? 0.0 : x[0] * std::log(x[1]); });

  // -- rounding
  case operation::aten_floor: return either(1, [](reals x) { return std::floor(x[0]); }, [](wholes x) { return x[0]; });
  case operation::aten_ceil: return either(1, [](reals x) { return std::ceil(x[0]); }, [](wholes x) { return x[0]; });
  case operation::aten_trunc: return either(1, [](reals x) { return std::trunc(x[0]); }, [](wholes x) { return x[0]; });
  case operation::aten_round: {
    const argument* a = keyword("decimals");
    const double by = std::pow(10.0, a == nullptr ? 0 : scalar(read(*a)).as_real());
    return either(1, [by](reals x) { return std::nearbyint(x[0] * by) / by; }, [](wholes x) { return x[0]; });
  }

  // -- activations
  case operation::aten_gelu:
    return reals_of(1, [tanh = text_of("approximate") == "tanh"](reals x) { return tanh ? gelu_by_tanh(x[0]) : gelu_by_erf(x[0]); });
  case operation::aten_leaky_relu:
    return reals_of(1, [by = number_at(1, "negative_slope", 0.01)](reals x) { return x[0] > 0 ? x[0] : x[0] * by; });
  case operation::aten_elu: {
    const double alpha = number_at(1, "alpha", 1);
    const double scale = number_at(2, "scale", 1);
    const double input_scale = number_at(3, "input_scale", 1);
    return reals_of(1, [=](reals x) { return x[0] > 0 ? x[0] * scale : scale * alpha * std::expm1(x[0] * input_scale); });
  }
  case operation::aten_softplus: {
    const double beta = number_at(1, "beta", 1);
    const double threshold = number_at(2, "threshold", 20);
    return reals_of(1, [=](reals x) { return x[0] * beta > threshold ? x[0] : std::log1p(std::exp(x[0] * beta)) / beta; });
  }
  case operation::aten_hardtanh:
    return reals_of(
        1, [low = number_at(1, "min_val", -1), high = number_at(2, "max_val", 1)](reals x) { return minimum(maximum(x[0], low), high); });
  case operation::aten_logit: {
    const argument* const given = parameter(1, "eps");
    const double eps = given == nullptr ? 0 : scalar(read(*given)).as_real();
    return reals_of(1, [=](reals x) {
      const double y = given == nullptr ? x[0] : minimum(maximum(x[0], eps), 1 - eps);
      return std::log(y / (1 - y));
    });
  }
  case operation::aten_nan_to_num: {
    const double most = largest_number(current().type.element);
    const double for_nan = number_at(1, "nan", 0);
    const double high = number_at(2, "posinf", most);
    const double low = number_at(3, "neginf", -most);
    return reals_of(1, [=](reals x) { return std::isnan(x[0]) ? for_nan : x[0] == infinity ? high : x[0] == -infinity ? low : x[0]; });
  }

  // -- tests
  case operation::aten_eq: return compare([](auto a, auto b) { return a == b; });
  case operation::aten_ne: return compare([](auto a, auto b) { return a != b; });
  case operation::aten_lt: return compare([](auto a, auto b) { return a < b; });
  case operation::aten_le: return compare([](auto a, auto b) { return a <= b; });
  case operation::aten_gt: return compare([](auto a, auto b) { return a > b; });
  case operation::aten_ge: return compare([](auto a, auto b) { return a >= b; });
  case operation::and_:
  case operation::aten_logical_and: return truths([](bool a, bool b) { return a && b; });
  case operation::or_:
  case operation::aten_logical_or: return truths([](bool a, bool b) { return a || b; });
  case operation::aten_logical_xor: return truths([](bool a, bool b) { return a != b; });
  case operation::not_:
  case operation::aten_logical_not: return test([](double x) { return x == 0; });
  case operation::aten_isnan: return test([](double x) { return std::isnan(x); });
  case operation::aten_isinf: return test([](double x) { return std::isinf(x); });
  case operation::aten_isfinite: return test([](double x) { return std::isfinite(x); });
  case operation::aten_signbit: return test([](double x) { return std::signbit(x); });

  // -- bits
  case operation::aten_bitwise_and: return wholes_of(2, [](wholes x) { return x[0] & x[1]; });
  case operation::aten_bitwise_or: return wholes_of(2, [](wholes x) { return x[0] | x[1]; });
  case operation::aten_bitwise_xor: return wholes_of(2, [](wholes x) { return x[0] ^ x[1]; });
  case operation::aten_bitwise_not:
    return wholes_of(1, [truth = !values.empty() && is_truth(0)](wholes x) { return truth ? std::int64_t{x[0] == 0} : ~x[0]; });
  case operation::aten_lshift:
  case operation::aten_bitwise_left_shift:
    return wholes_of(2, [](wholes x) { return x[1] < 0 || x[1] > 63 ? 0 : signed_bits(bits(x[0]) << bits(x[1])); });
  case operation::aten_rshift:
  case operation::aten_bitwise_right_shift:
    return wholes_of(2, [](wholes x) { return x[1] < 0 || x[1] > 63 ? (x[0] < 0 ? -1 : 0) : x[0] >> bits(x[1]); });

  // -- choice
  case operation::aten_where: {
    need(3);
    real = all[1]->real || all[2]->real;
    return either(3, [](reals x) { return x[0] != 0 ? x[1] : x[2]; }, [](wholes x) { return x[0] != 0 ? x[1] : x[2]; });
  }
  case operation::aten_masked_fill: {
    need(3);
    real = all[0]->real || all[2]->real;
    return either(3, [](reals x) { return x[1] != 0 ? x[2] : x[0]; }, [](wholes x) { return x[1] != 0 ? x[2] : x[0]; });
  }

  // -- packed numbers
  case operation::inline_asm_elementwise: {
    const argument* text = argument_at(0);
    const auto operands = list(argument_at(2));
    // One piece of assembly that kernels share is known by what it does: the lowest byte of a word, a float8_e4m3fn, as a float.
    if (text == nullptr || text->what != argument::kind::string || text->text.find("cvt.rn.f16x2.e4m3x2") == std::string_view::npos ||
        operands.size() != 1)
      unsupported("assembly of a processor");
    const value word = read(operands[0]);
    all.assign(1, &kept(word));
    return reals_of(1, [](reals x) {
      std::byte byte[1];
      device_ir::integer_to_element(dtype::u8, truncated(x[0]), byte);
      return device_ir::element_to_double(dtype::f8e4m3fn, byte);
    });
  }
  default: unsupported("the interpreter does not have it");
  }
}

} // namespace muster::interpret
