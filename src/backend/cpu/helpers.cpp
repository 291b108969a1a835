module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
module muster.backend.cpu;

namespace muster::cpu {

namespace {

/// A piece of the emitted file, present where its name (or one of two) occurs in what follows. Its text may name others.
struct helper {
  std::string_view name;
  std::string_view scope; ///< the namespace that it is in, or empty
  std::string_view text;
};

/// In the order in which they are written: each behind those it uses.
constexpr std::array helpers{
    helper{"muster_scalar", "", R"(
union muster_scalar {
  std::int64_t integer;
  double real;
};
)"},
    helper{"record::to", "record", R"(
/// Whom to tell what is computed.
struct recorder {
  void* context;
  void (*program)(void* context, std::int64_t graph, const std::int64_t* begins, std::int64_t count);
  void (*element)(void* context, std::int64_t node, std::int64_t steps, const std::int64_t* where, std::int64_t count, double real,
                  std::int64_t integer);
};
inline const recorder* to = nullptr;
inline std::int64_t steps = 0;

template <class... Begin> inline void program(std::int64_t graph, Begin... begins) {
  const std::int64_t all[] = {static_cast<std::int64_t>(begins)..., 0};
  steps = 0;
  if (to != nullptr) to->program(to->context, graph, all, sizeof...(begins));
}

inline void step() { ++steps; }

template <class T, class... Where> inline void element(std::int64_t node, bool stepped, T value, Where... where) {
  if (to == nullptr) return;
  const std::int64_t all[] = {static_cast<std::int64_t>(where)..., 0};
  std::int64_t integer = 0;
  if constexpr (std::is_integral_v<T>) integer = static_cast<std::int64_t>(value);
  double real = static_cast<double>(integer);
  if constexpr (std::is_same_v<T, double>) real = value;
  else if constexpr (!std::is_integral_v<T>) real = static_cast<double>(static_cast<float>(value));
  to->element(to->context, node, stepped ? steps : 0, all, sizeof...(where), real, integer);
}
)"},
    helper{"math::infinity", "math", R"(
constexpr float infinity = std::numeric_limits<float>::infinity();
)"},
    helper{"math::nan", "math", R"(
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
)"},
    helper{"math::narrow", "math", R"(
/// A float rounded to the nearest of a narrower format, ties to even. Without infinities, what is too large is NaN.
template <int exponent_bits, int mantissa_bits, bool has_infinity> constexpr std::uint32_t narrow(float value) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr int shift = 23 - mantissa_bits;
  constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - bias) << mantissa_bits;
  constexpr std::uint32_t top = (1U << (exponent_bits + mantissa_bits)) - (has_infinity ? 1U << mantissa_bits : 1U);
  constexpr std::uint32_t least_normal = static_cast<std::uint32_t>(128 - bias) << 23;
  // A subnormal's last bit is where the last bit of this float is.
  constexpr std::uint32_t aligned = static_cast<std::uint32_t>(151 - bias - mantissa_bits) << 23;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 31 << (exponent_bits + mantissa_bits);
  const std::uint32_t size = bits & 0x7fffffffU;
  const std::uint32_t normal = ((size + (1U << (shift - 1)) - 1 + (size >> shift & 1U)) >> shift) - rebias;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + std::bit_cast<float>(aligned)) - aligned;
  std::uint32_t result = size < least_normal ? subnormal : normal;
  result = size >= least_normal && normal > top ? top : result;
  result = size > 0x7f800000U ? top | (has_infinity ? 1U << (mantissa_bits - 1) : 0U) : result;
  return sign | result;
}
)"},
    helper{"math::widen", "math", R"(
template <int exponent_bits, int mantissa_bits, bool has_infinity> constexpr float widen(std::uint32_t bits) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr int shift = 23 - mantissa_bits;
  constexpr std::uint32_t top = (1U << (exponent_bits + mantissa_bits)) - (has_infinity ? 1U << mantissa_bits : 1U);
  constexpr std::uint32_t step = static_cast<std::uint32_t>(128 - bias - mantissa_bits) << 23;
  const std::uint32_t sign = bits >> (exponent_bits + mantissa_bits) << 31;
  const std::uint32_t size = bits & ((1U << (exponent_bits + mantissa_bits)) - 1);
  const std::uint32_t normal = (size << shift) + (static_cast<std::uint32_t>(127 - bias) << 23);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(size) * std::bit_cast<float>(step));
  const std::uint32_t special = 0x7f800000U | (has_infinity ? size << shift : 0x400000U);
  return std::bit_cast<float>(sign | (size >= top ? special : size >> mantissa_bits == 0 ? subnormal : normal));
}
)"},
    helper{"float16", "", R"(
/// IEEE half precision in memory; arithmetic is in float.
struct float16 {
  std::uint16_t bits;
  float16() = default;
  template <class T> explicit float16(T value) : bits(from(static_cast<float>(value))) {}
  template <class T> requires std::is_arithmetic_v<T> explicit operator T() const { return static_cast<T>(wide()); }

private:
#if defined(__FLT16_MANT_DIG__) && (defined(__F16C__) || defined(__AVX512FP16__) || defined(__aarch64__))
  static std::uint16_t from(float value) { return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value)); }
  float wide() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
#else
  static std::uint16_t from(float value) { return static_cast<std::uint16_t>(math::narrow<5, 10, true>(value)); }
  float wide() const { return math::widen<5, 10, true>(bits); }
#endif
};
)"},
    helper{"bfloat16", "", R"(
/// The upper half of a float in memory; arithmetic is in float.
struct bfloat16 {
  std::uint16_t bits;
  bfloat16() = default;
  template <class T> explicit bfloat16(T value) : bits(from(static_cast<float>(value))) {}
  template <class T> requires std::is_arithmetic_v<T> explicit operator T() const { return static_cast<T>(wide()); }

private:
  static std::uint16_t from(float value) {
    const std::uint32_t wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (wide + 0x7fffU + (wide >> 16 & 1U)) >> 16;
    return static_cast<std::uint16_t>((wide & 0x7fffffffU) > 0x7f800000U ? wide >> 16 | 0x40U : rounded);
  }
  float wide() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
)"},
    helper{"float8_e4m3fn", "", R"(
/// 8 bits with 4 of exponent, no infinity, in memory; arithmetic is in float.
struct float8_e4m3fn {
  std::uint8_t bits;
  float8_e4m3fn() = default;
  template <class T> explicit float8_e4m3fn(T value) : bits(static_cast<std::uint8_t>(math::narrow<4, 3, false>(static_cast<float>(value)))) {}
  template <class T> requires std::is_arithmetic_v<T> explicit operator T() const { return static_cast<T>(math::widen<4, 3, false>(bits)); }
};
)"},
    helper{"float8_e5m2", "", R"(
/// 8 bits with 5 of exponent in memory; arithmetic is in float.
struct float8_e5m2 {
  std::uint8_t bits;
  float8_e5m2() = default;
  template <class T> explicit float8_e5m2(T value) : bits(static_cast<std::uint8_t>(math::narrow<5, 2, true>(static_cast<float>(value)))) {}
  template <class T> requires std::is_arithmetic_v<T> explicit operator T() const { return static_cast<T>(math::widen<5, 2, true>(bits)); }
};
)"},
    helper{"math::wrapping", "math", R"(
/// The unsigned type in which T's arithmetic wraps around.
template <class T> using wrapping = std::conditional_t<sizeof(T) < 4, std::uint32_t, std::make_unsigned_t<T>>;
)"},
    helper{"math::add", "math", R"(
template <class T> constexpr T add(T a, T b) { return static_cast<T>(static_cast<wrapping<T>>(a) + static_cast<wrapping<T>>(b)); }
)"},
    helper{"math::subtract", "math", R"(
template <class T> constexpr T subtract(T a, T b) { return static_cast<T>(static_cast<wrapping<T>>(a) - static_cast<wrapping<T>>(b)); }
)"},
    helper{"math::multiply<", "math", R"(
template <class T> constexpr T multiply(T a, T b) { return static_cast<T>(static_cast<wrapping<T>>(a) * static_cast<wrapping<T>>(b)); }
)"},
    helper{"math::power", "math", R"(
/// A whole power; of a negative exponent 1, -1 or 0.
template <class T> constexpr T power(T base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? T(1) : base == T(-1) ? (exponent % 2 == 0 ? T(1) : T(-1)) : T(0);
  wrapping<T> result = 1;
  for (wrapping<T> square = static_cast<wrapping<T>>(base); exponent > 0; exponent /= 2, square *= square)
    if (exponent % 2 != 0) result *= square;
  return static_cast<T>(result);
}
)"},
    helper{"math::shift_left", "math", R"(
/// Bits shifted out are gone, whatever the count.
template <class T> constexpr T shift_left(T a, T count) {
  constexpr T width = 8 * sizeof(T);
  return count < 0 || count >= width ? T(0) : static_cast<T>(static_cast<wrapping<T>>(a) << count);
}
)"},
    helper{"math::shift_right", "math", R"(
/// The sign is shifted in, whatever the count.
template <class T> constexpr T shift_right(T a, T count) {
  constexpr T width = 8 * sizeof(T);
  return static_cast<T>(a >> (count < 0 || count >= width ? static_cast<T>(width - 1) : count));
}
)"},
    helper{"math::floor_divide", "math", R"(
/// Rounded down; by zero 0.
template <class A, class B> constexpr std::common_type_t<A, B> floor_divide(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = a;
  const T y = b;
  if (y == 0) return 0;
  if (std::is_signed_v<T> && y == T(-1)) return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(x));
  return static_cast<T>(x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0));
}
)"},
    helper{"math::floor_modulo", "math", R"(
/// The remainder with the divisor's sign; by zero 0.
template <class A, class B> constexpr std::common_type_t<A, B> floor_modulo(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = a;
  const T y = b;
  if (y == 0 || (std::is_signed_v<T> && y == T(-1))) return 0;
  const T rest = static_cast<T>(x % y);
  return static_cast<T>(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
}
)"},
    helper{"math::trunc_divide", "math", R"(
/// Rounded towards zero; by zero 0.
template <class A, class B> constexpr std::common_type_t<A, B> trunc_divide(A a, B b) {
  using T = std::common_type_t<A, B>;
  if (b == 0) return 0;
  if (std::is_signed_v<T> && T(b) == T(-1)) return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(T(a)));
  return static_cast<T>(T(a) / T(b));
}
)"},
    helper{"math::trunc_modulo", "math", R"(
/// The remainder with the dividend's sign; by zero 0.
template <class A, class B> constexpr std::common_type_t<A, B> trunc_modulo(A a, B b) {
  using T = std::common_type_t<A, B>;
  return b == 0 || (std::is_signed_v<T> && T(b) == T(-1)) ? T(0) : static_cast<T>(T(a) % T(b));
}
)"},
    helper{"math::ceil_divide", "math", R"(
template <class A, class B> constexpr std::int64_t ceil_divide(A a, B b) { return (std::int64_t(a) + std::int64_t(b) - 1) / std::int64_t(b); }
)"},
    helper{"math::integer_maximum", "math", R"(
template <class A, class B> constexpr std::common_type_t<A, B> integer_maximum(A a, B b) { return a > b ? a : b; }
)"},
    helper{"math::integer_minimum", "math", R"(
template <class A, class B> constexpr std::common_type_t<A, B> integer_minimum(A a, B b) { return a < b ? a : b; }
)"},
    helper{"math::maximum", "math", R"(
/// The larger; a NaN where there is one.
template <class T> inline T maximum(T a, T b) { return a > b || a != a ? a : b; }
)"},
    helper{"math::minimum", "math", R"(
/// The smaller; a NaN where there is one.
template <class T> inline T minimum(T a, T b) { return a < b || a != a ? a : b; }
)"},
    helper{"math::is_larger", "math", R"(
/// Whether `a` comes before `b` as a maximum: a NaN before any number.
template <class T> inline bool is_larger(T a, T b) { return a > b || (a != a && b == b); }
)"},
    helper{"math::is_smaller", "math", R"(
/// Whether `a` comes before `b` as a minimum: a NaN before any number.
template <class T> inline bool is_smaller(T a, T b) { return a < b || (a != a && b == b); }
)"},
    helper{"math::abs", "math", R"(
template <class T> inline T abs(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(x);
  else return x < 0 ? static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(x)) : x;
}
)"},
    helper{"math::sqrt", "math", R"(
template <class T> inline T sqrt(T x) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_sqrt)
  return __builtin_elementwise_sqrt(x); // sets no errno, so loops become vectors
#else
  return std::sqrt(x);
#endif
#else
  return std::sqrt(x);
#endif
}
)"},
    helper{"math::rsqrt", "math", R"(
template <class T> inline T rsqrt(T x) { return 1 / math::sqrt(x); }
)"},
    helper{"math::exp_reduced", "math", R"(
/// 2**n e**r for whole n in [-150, 128] and |r| <= ln(2) / 2, where `shifted` is n + 1.5 * 2**23.
inline float exp_reduced(float shifted, float r) {
  const std::uint32_t n = std::bit_cast<std::uint32_t>(shifted) - 0x4b400000U;
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) >> 1);
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // In two steps, so that subnormal results and the largest are right.
  return p * std::bit_cast<float>((half + 127U) << 23) * std::bit_cast<float>((n - half + 127U) << 23);
}
)"},
    helper{"math::exp(", "math", R"(
/// Within 1.5 units in the last place, without branches so that loops become vectors.
inline float exp(float x) {
  const float low = x < -104.0f ? -104.0f : x;
  const float bounded = low > 89.0f ? 89.0f : low;
  const float shifted = bounded * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  return exp_reduced(shifted, (bounded - n * 0.693359375f) + n * 2.12194440e-4f);
}
inline double exp(double x) { return std::exp(x); }
)"},
    helper{"math::exp2(", "math", R"(
inline float exp2(float x) {
  const float low = x < -150.0f ? -150.0f : x;
  const float bounded = low > 128.0f ? 128.0f : low;
  const float shifted = bounded + 12582912.0f;
  return exp_reduced(shifted, (bounded - (shifted - 12582912.0f)) * 0.693147181f);
}
inline double exp2(double x) { return std::exp2(x); }
)"},
    helper{"math::log_reduced", "math", R"(
/// x = 2**exponent (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), for positive finite x.
struct log_reduced {
  float exponent;
  float f;
  float log; ///< of 1 + f
  explicit log_reduced(float x) {
    const bool subnormal = x < 1.17549435e-38f;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(subnormal ? x * 8388608.0f : x) + 0x3f800000U - 0x3f3504f3U;
    exponent = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - (subnormal ? 150 : 127));
    f = std::bit_cast<float>((bits & 0x7fffffU) + 0x3f3504f3U) - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    const float w = z * z;
    const float r = z * (0.66666662693f + w * 0.28498786688f) + w * (0.40000972152f + w * 0.24279078841f);
    const float half = 0.5f * f * f;
    tail = s * (half + r);
    log = tail - half + f;
    head = half;
  }
  float tail;
  float head;
};
/// What the logarithm of anything else is.
inline float log_special(float x, float finite) {
  const float infinite = x > 3.402823466e38f ? x : finite;
  const float zero = x == 0.0f ? -std::numeric_limits<float>::infinity() : infinite;
  return x < 0.0f || x != x ? std::numeric_limits<float>::quiet_NaN() : zero;
}
)"},
    helper{"math::log(", "math", R"(
/// Within 1 unit in the last place, without branches.
inline float log(float x) {
  const log_reduced r(x);
  return log_special(x, r.tail + r.exponent * 9.0580006145e-6f - r.head + r.f + r.exponent * 6.9313812256e-1f);
}
inline double log(double x) { return std::log(x); }
)"},
    helper{"math::log2(", "math", R"(
inline float log2(float x) {
  const log_reduced r(x);
  return log_special(x, r.exponent + r.log * 1.44269504f);
}
inline double log2(double x) { return std::log2(x); }
)"},
    helper{"math::sigmoid", "math", R"(
template <class T> inline T sigmoid(T x) { return 1 / (1 + math::exp(-x)); }
)"},
    helper{"math::tanh", "math", R"(
inline float tanh(float x) {
  const float size = std::fabs(x);
  const float s = x * x;
  const float near = ((((-5.70498872745e-3f * s + 2.06390887954e-2f) * s - 5.37397155531e-2f) * s + 1.33314422036e-1f) * s - 3.33332819422e-1f) * s * x + x;
  const float far = std::copysign(1.0f - 2.0f / (math::exp(2.0f * size) + 1.0f), x);
  return size < 0.625f ? near : far; // near 0 the quotient would cancel
}
inline double tanh(double x) { return std::tanh(x); }
)"},
    helper{"math::erf(", "math", R"(
inline float erf(float x) {
  const float t = std::fabs(x);
  const float s = x * x;
  float far = -1.72853470e-5f * t + 3.83197126e-4f;
  far = far * s + (-3.88396438e-3f * t + 2.42546219e-2f);
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = far * t - t;
  float near = -5.96761703e-4f;
  near = near * s + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  return t > 0.927734375f ? std::copysign(1.0f - math::exp(t > 4.0f ? -20.0f : far), x) : near * x + x;
}
inline double erf(double x) { return std::erf(x); }
)"},
    helper{"math::erfinv", "math", R"(
/// Two steps of Newton's method from a rational approximation (Winitzki).
inline double erfinv(double x) {
  if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? std::copysign(std::numeric_limits<double>::infinity(), x) : std::numeric_limits<double>::quiet_NaN();
  const double l = std::log1p(-x * x);
  const double a = 2 / (3.14159265358979323846 * 0.147) + l / 2;
  double y = std::copysign(std::sqrt(std::sqrt(a * a - l / 0.147) - a), x);
  for (int i = 0; i < 3; ++i) {
    const double error = x < 0 ? std::erfc(-y) - (1 + x) : (1 - x) - std::erfc(y);
    y += (x < 0 ? error : -error) * -0.88622692545275801365 * std::exp(y * y) * (x < 0 ? 1 : -1) * (x < 0 ? 1 : -1);
  }
  return y;
}
inline float erfinv(float x) { return static_cast<float>(erfinv(static_cast<double>(x))); }
)"},
    helper{"math::digamma", "math", R"(
inline double digamma(double x) {
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  double result = 0;
  if (x < 0) {
    if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
    result = -3.14159265358979323846 / std::tan(3.14159265358979323846 * (x - std::floor(x)));
    x = 1 - x;
  }
  for (; x < 10; ++x) result -= 1 / x;
  const double s = 1 / (x * x);
  const double series = s * (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - s * (1.0 / 240 - s * (1.0 / 132 - s * (691.0 / 32760 - s / 12))))));
  return result + std::log(x) - 0.5 / x - series;
}
inline float digamma(float x) { return static_cast<float>(digamma(static_cast<double>(x))); }
)"},
    helper{"math::nextafter", "math", R"(
/// The neighbour of `a` towards `b`, in T's own format.
template <class T> inline T nextafter(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::nextafter(a, b);
  } else {
    const float from = static_cast<float>(a);
    const float to = static_cast<float>(b);
    if (from != from || to != to) return T(std::numeric_limits<float>::quiet_NaN());
    if (from == to) return b;
    constexpr auto sign = static_cast<decltype(a.bits)>(decltype(a.bits)(1) << (8 * sizeof(a.bits) - 1));
    if (from == 0) a.bits = static_cast<decltype(a.bits)>(to > 0 ? 1 : sign | 1);
    else a.bits = static_cast<decltype(a.bits)>((from < to) == (from > 0) ? a.bits + 1 : a.bits - 1);
    return a;
  }
}
)"},
    helper{"math::finite_or_zero", "math", R"(
template <class T> inline T finite_or_zero(T x) { return std::fabs(x) <= std::numeric_limits<T>::max() ? x : x != x ? x : T(0); }
)"},
    helper{"math::float4", "math", R"(
/// One of the two 4-bit floats (e2m1) in a byte.
inline float float4(std::uint8_t byte, std::int64_t which) {
  constexpr float values[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const int bits = byte >> (4 * which) & 15;
  return (bits & 8) != 0 ? -values[bits & 7] : values[bits];
}
)"},
    helper{"math::reduce", "math", R"(
/// Combines element(0) to element(count - 1) with `neutral`, several side by side so that they fit vectors.
template <class T, class Combine, class Element> inline T reduce(std::int64_t count, T neutral, Combine combine, Element element) {
  constexpr int width = 256 / sizeof(T) < 64 ? 256 / sizeof(T) : 64;
  T partial[width];
  for (T& p : partial) p = neutral;
  std::int64_t i = 0;
  for (; i + width <= count; i += width)
    for (int k = 0; k < width; ++k) partial[k] = combine(partial[k], static_cast<T>(element(i + k)));
  for (int k = 0; i < count; ++i, ++k) partial[k] = combine(partial[k], static_cast<T>(element(i)));
  for (int half = width / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) partial[k] = combine(partial[k], partial[k + half]);
  return partial[0];
}
)"},
    helper{"math::sum", "math", R"(
template <class T, class Element> inline T sum(std::int64_t count, Element element) {
  if constexpr (std::is_floating_point_v<T>) return reduce<T>(count, T(0), [](T a, T b) { return a + b; }, element);
  else return reduce<T>(count, T(0), [](T a, T b) { return math::add<T>(a, b); }, element);
}
)"},
    helper{"math::product", "math", R"(
template <class T, class Element> inline T product(std::int64_t count, Element element) {
  if constexpr (std::is_floating_point_v<T>) return reduce<T>(count, T(1), [](T a, T b) { return a * b; }, element);
  else return reduce<T>(count, T(1), [](T a, T b) { return math::multiply<T>(a, b); }, element);
}
)"},
    helper{"math::largest", "math", R"(
template <class T, class Element> inline T largest(std::int64_t count, Element element) {
  constexpr T lowest = std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  return reduce<T>(count, lowest, [](T a, T b) { return math::maximum(a, b); }, element);
}
)"},
    helper{"math::smallest", "math", R"(
template <class T, class Element> inline T smallest(std::int64_t count, Element element) {
  constexpr T highest = std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  return reduce<T>(count, highest, [](T a, T b) { return math::minimum(a, b); }, element);
}
)"},
    helper{"math::any", "math", R"(
template <class T, class Element> inline bool any(std::int64_t count, Element element) {
  return reduce<T>(count, false, [](bool a, bool b) { return a || b; }, element);
}
)"},
    helper{"math::all", "math", R"(
template <class T, class Element> inline bool all(std::int64_t count, Element element) {
  return reduce<T>(count, true, [](bool a, bool b) { return a && b; }, element);
}
)"},
    helper{"math::multiply_add", "math", R"(
#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

/// Adds a panel of `Rows` rows of a b to c: `Vectors` vectors wide, in registers over all of k.
template <int Rows, int Vectors, class T>
inline void multiply_panel(std::int64_t k, const T* __restrict a, std::int64_t a_stride, const T* __restrict b, std::int64_t b_stride,
                           T* __restrict c, std::int64_t c_stride) {
  typedef T vector __attribute__((vector_size(vector_bytes), aligned(alignof(T)), may_alias));
  constexpr int lanes = vector_bytes / sizeof(T);
  vector sums[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) sums[r][v] = *reinterpret_cast<const vector*>(c + r * c_stride + v * lanes);
  for (std::int64_t p = 0; p < k; ++p) {
    vector row[Vectors];
    for (int v = 0; v < Vectors; ++v) row[v] = *reinterpret_cast<const vector*>(b + p * b_stride + v * lanes);
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < Vectors; ++v) sums[r][v] += a[r * a_stride + p] * row[v];
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<vector*>(c + r * c_stride + v * lanes) = sums[r][v];
}

/// The same for `Rows` rows and all `n` columns.
template <int Rows, class T>
inline void multiply_rows(std::int64_t n, std::int64_t k, const T* __restrict a, std::int64_t a_stride, const T* __restrict b,
                          std::int64_t b_stride, T* __restrict c, std::int64_t c_stride) {
  constexpr int lanes = vector_bytes / sizeof(T);
  std::int64_t j = 0;
  for (; j + 3 * lanes <= n; j += 3 * lanes) multiply_panel<Rows, 3>(k, a, a_stride, b + j, b_stride, c + j, c_stride);
  for (; j + lanes <= n; j += lanes) multiply_panel<Rows, 1>(k, a, a_stride, b + j, b_stride, c + j, c_stride);
  if (j == n) return;
  for (int r = 0; r < Rows; ++r)
    for (std::int64_t p = 0; p < k; ++p)
      for (std::int64_t i = j; i < n; ++i) c[r * c_stride + i] += a[r * a_stride + p] * b[p * b_stride + i];
}

/// c += a b, where a has m rows of k elements and b k rows of n.
template <class T>
void multiply_add(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                  T* c, std::int64_t c_stride) {
  if constexpr (std::is_floating_point_v<T>) {
    constexpr int rows = vector_bytes == 64 ? 8 : 4;
    std::int64_t i = 0;
    for (; i + rows <= m; i += rows) multiply_rows<rows>(n, k, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride, c_stride);
    for (; i < m; ++i) multiply_rows<1>(n, k, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride, c_stride);
  } else {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t p = 0; p < k; ++p)
        for (std::int64_t j = 0; j < n; ++j)
          c[i * c_stride + j] = math::add<T>(c[i * c_stride + j], math::multiply<T>(a[i * a_stride + p], b[p * b_stride + j]));
  }
}
)"},
    helper{"math::sort", "math", R"(
/// Sorts values and their positions; equal ones stay in order, NaN is the largest.
template <class T> void sort(std::int64_t count, T* values, std::int64_t* positions, bool descending) {
  const auto less = [](T a, T b) {
    if constexpr (std::is_class_v<T>) {
      const float x = static_cast<float>(a);
      const float y = static_cast<float>(b);
      return x < y || (x == x && y != y);
    } else {
      return a < b || (a == a && b != b);
    }
  };
  const std::vector<T> unsorted(values, values + count);
  std::sort(positions, positions + count, [&](std::int64_t i, std::int64_t j) {
    const T a = unsorted[static_cast<std::size_t>(descending ? j : i)];
    const T b = unsorted[static_cast<std::size_t>(descending ? i : j)];
    return less(a, b) || (!less(b, a) && i < j); // equals stay in order
  });
  for (std::int64_t i = 0; i < count; ++i) values[i] = unsorted[static_cast<std::size_t>(positions[i])];
}
)"},
    helper{"math::philox", "math", R"(
/// Philox 4x32 with 10 rounds (Salmon et al. 2011): the first of four words.
inline std::uint32_t philox(std::uint64_t seed, std::uint64_t offset) {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32), 0, 0};
  std::uint32_t k[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t(0xd2511f53U) * c[0];
    const std::uint64_t b = std::uint64_t(0xcd9e8d57U) * c[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
                                   static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    k[0] += 0x9e3779b9U;
    k[1] += 0xbb67ae85U;
  }
  return c[0];
}
)"},
    helper{"math::random_unit", "math", R"(
/// In [0, 1).
inline float random_unit(std::int64_t seed, std::int64_t offset) {
  const std::int32_t word = static_cast<std::int32_t>(math::philox(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(offset)));
  return static_cast<float>(word < 0 ? -(word + 1) : word) * 4.6566127342e-10f;
}
)"},
    helper{"math::random_integer", "math", R"(
/// In [low, high).
inline std::int64_t random_integer(std::int64_t low, std::int64_t high, std::int64_t seed, std::int64_t offset) {
  const std::int64_t word = static_cast<std::int32_t>(math::philox(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(offset)));
  return high <= low ? low : low + (word < 0 ? -word : word) % (high - low);
}
)"},
    helper{"math::atomic_update", "math", R"(
/// Replaces `place` by what `next` makes of it, atomically; gives the value before.
template <class T, class Next> inline T atomic_update(T& place, Next next) {
  std::atomic_ref<T> shared(place);
  T before = shared.load(std::memory_order_relaxed);
  while (!shared.compare_exchange_weak(before, next(before), std::memory_order_relaxed)) {
  }
  return before;
}
)"},
    helper{"math::atomic_add", "math", R"(
template <class T> inline T atomic_add(T& place, T value) {
  if constexpr (std::is_class_v<T>) return atomic_update(place, [&](T x) { return T(static_cast<float>(x) + static_cast<float>(value)); });
  else return std::atomic_ref<T>(place).fetch_add(value, std::memory_order_relaxed);
}
)"},
    helper{"math::atomic_exchange", "math", R"(
template <class T> inline T atomic_exchange(T& place, T value) { return std::atomic_ref<T>(place).exchange(value, std::memory_order_relaxed); }
)"},
    helper{"math::atomic_and", "math", R"(
template <class T> inline T atomic_and(T& place, T value) { return atomic_update(place, [&](T x) { return static_cast<T>(x & value); }); }
)"},
    helper{"math::atomic_or", "math", R"(
template <class T> inline T atomic_or(T& place, T value) { return atomic_update(place, [&](T x) { return static_cast<T>(x | value); }); }
)"},
    helper{"math::atomic_xor", "math", R"(
template <class T> inline T atomic_xor(T& place, T value) { return atomic_update(place, [&](T x) { return static_cast<T>(x ^ value); }); }
)"},
    helper{"math::atomic_max", "math", R"(
template <class T> inline T atomic_max(T& place, T value) {
  if constexpr (std::is_class_v<T>) return atomic_update(place, [&](T x) { return static_cast<float>(value) > static_cast<float>(x) ? value : x; });
  else return atomic_update(place, [&](T x) { return value > x ? value : x; });
}
)"},
    helper{"math::atomic_min", "math", R"(
template <class T> inline T atomic_min(T& place, T value) {
  if constexpr (std::is_class_v<T>) return atomic_update(place, [&](T x) { return static_cast<float>(value) < static_cast<float>(x) ? value : x; });
  else return atomic_update(place, [&](T x) { return value < x ? value : x; });
}
)"},
    helper{"math::atomic_compare_exchange", "math", R"(
template <class T> inline T atomic_compare_exchange(T& place, T expected, T value) {
  std::atomic_ref<T>(place).compare_exchange_strong(expected, value, std::memory_order_acq_rel, std::memory_order_relaxed);
  return expected;
}
)"},
    helper{"parallel::run", "parallel", R"(
/// Calls program(0) to program(count - 1), on up to `threads` threads (0: one a processor), and waits for all.
template <class Program> void run(std::int64_t count, int threads, Program program) {
  std::int64_t workers = threads > 0 ? threads : static_cast<std::int64_t>(std::thread::hardware_concurrency());
  workers = std::clamp<std::int64_t>(workers, 1, count > 0 ? count : 1);
  const std::int64_t share = std::max<std::int64_t>(1, count / (workers * 8));
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t first = next.fetch_add(share); first < count; first = next.fetch_add(share))
      for (std::int64_t i = first; i < std::min(first + share, count); ++i) program(i);
  };
  std::vector<std::thread> others;
  try {
    while (static_cast<std::int64_t>(others.size()) + 1 < workers) others.emplace_back(work);
  } catch (const std::system_error&) { // no more threads: those that there are do it
  }
  work();
  for (std::thread& t : others) t.join();
}
)"},
};

struct include {
  std::string_view header;
  std::array<std::string_view, 6> names; ///< it is included where one of these occurs
};

constexpr std::array includes{
    include{"<algorithm>", {"std::min", "std::max<", "std::clamp", "std::sort"}},
    include{"<atomic>", {"std::atomic"}},
    include{"<bit>", {"std::bit_cast"}},
    include{"<cmath>", {"std::f", "std::exp", "std::log", "std::sqrt", "std::", ""}},
    include{"<cstddef>", {"std::size_t"}},
    include{"<cstdint>", {"std::int", "std::uint"}},
    include{"<cstdio>", {"std::printf"}},
    include{"<limits>", {"std::numeric_limits"}},
    include{"<memory>", {"std::unique_ptr", "std::addressof"}},
    include{"<system_error>", {"std::system_error"}},
    include{"<thread>", {"std::thread"}},
    include{"<type_traits>", {"std::is_", "std::make_unsigned", "std::conditional", "std::common_type"}},
    include{"<vector>", {"std::vector"}},
};

/// A helper's name as it is looked up: `math::exp(` is the name `math::exp` with a parenthesis behind it.
struct entry {
  std::string_view word;
  char behind = 0; ///< what must follow, or 0
  std::size_t helper = 0;
};

constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

constexpr entry entry_of(std::string_view name, std::size_t helper) {
  if (is_letter(name.back())) return {name, 0, helper};
  return {name.substr(0, name.size() - 1), name.back(), helper};
}

/// Every helper by its whole name, and by its name inside of its namespace, in order of the words.
constexpr auto index = [] {
  std::array<entry, 2 * helpers.size()> all{};
  for (std::size_t i = 0; i < helpers.size(); ++i) {
    const helper& h = helpers[i];
    all[2 * i] = entry_of(h.name, i);
    all[2 * i + 1] = entry_of(h.scope.empty() ? h.name : h.name.substr(h.scope.size() + 2), i);
  }
  std::sort(all.begin(), all.end(), [](const entry& x, const entry& y) { return x.word < y.word; });
  return all;
}();

/// By first character: the lengths that words of the index have, one bit each. Most words of a kernel are none of them.
constexpr auto lengths_of = [] {
  std::array<std::uint64_t, 128> lengths{};
  for (const entry& e : index) lengths[static_cast<unsigned char>(e.word.front())] |= std::uint64_t{1} << e.word.size();
  return lengths;
}();
static_assert(std::all_of(index.begin(), index.end(), [](const entry& e) { return e.word.size() < 64; }));

bool may_be_helper(std::string_view word) {
  return word.size() < 64 && (lengths_of[static_cast<unsigned char>(word.front())] >> word.size() & 1U) != 0;
}

using helper_set = std::array<bool, helpers.size()>;

/// Marks the helpers below `end` that `code` names; in a helper's own text (`inside`) without their namespace too. Comments
/// name nothing.
void mark_names(std::string_view code, bool inside, std::size_t end, helper_set& used) {
  for (std::size_t at = 0; at < code.size();) {
    if (code[at] == '/' && code.substr(at).starts_with("//")) {
      at = std::min(code.size(), code.find('\n', at));
      continue;
    }
    if (!is_letter(code[at])) {
      ++at;
      continue;
    }
    const std::size_t first = at;
    while (at < code.size() &&
           (is_letter(code[at]) || (code.substr(at).starts_with("::") && at + 2 < code.size() && is_letter(code[at + 2]))))
      at += is_letter(code[at]) ? 1 : 2;
    if (first > 0 && code[first - 1] == ':') continue; // of another scope
    const std::string_view word = code.substr(first, at - first);
    if (!may_be_helper(word)) continue;
    for (auto e = std::lower_bound(index.begin(), index.end(), word, [](const entry& x, std::string_view w) { return x.word < w; });
         e != index.end() && e->word == word; ++e) {
      const bool whole = helpers[e->helper].scope.empty() || word.find(':') != std::string_view::npos;
      const bool fits = e->behind == 0 || (at < code.size() && code[at] == e->behind);
      if (e->helper < end && fits && (whole || inside)) used[e->helper] = true;
    }
  }
}

/// Marks the headers that `code` needs.
void mark_includes(std::string_view code, std::array<bool, includes.size()>& needed) {
  constexpr std::string_view prefix = "std::";
  for (std::size_t at = code.find(prefix); at != std::string_view::npos; at = code.find(prefix, at + 1)) {
    const std::string_view rest = code.substr(at);
    for (std::size_t i = 0; i < includes.size(); ++i) {
      if (needed[i]) continue;
      for (const std::string_view name : includes[i].names) needed[i] = needed[i] || (!name.empty() && rest.starts_with(name));
    }
  }
}

} // namespace

void append_helpers(const std::string& code, std::string& out) {
  helper_set used{};
  mark_names(code, false, helpers.size(), used);
  // A helper's own needs stand ahead of it.
  for (std::size_t i = helpers.size(); i-- > 0;)
    if (used[i]) mark_names(helpers[i].text, true, i, used);
  std::string text;
  std::string_view scope;
  for (std::size_t i = 0; i < helpers.size(); ++i) {
    if (!used[i]) continue;
    if (helpers[i].scope != scope) {
      if (!scope.empty()) ((text += "\n} // namespace ") += scope) += '\n';
      scope = helpers[i].scope;
      if (!scope.empty()) ((text += "\nnamespace ") += scope) += " {\n";
    }
    text += helpers[i].text;
  }
  if (!scope.empty()) ((text += "\n} // namespace ") += scope) += '\n';
  std::array<bool, includes.size()> needed{};
  mark_includes(code, needed);
  mark_includes(text, needed);
  for (std::size_t i = 0; i < includes.size(); ++i)
    if (needed[i]) ((out += "#include ") += includes[i].header) += '\n';
  out += text;
  out += '\n';
}

} // namespace muster::cpu
