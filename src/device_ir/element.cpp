module;
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
module muster.device_ir;

namespace muster::device_ir {

namespace {

struct small_float {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity; ///< f8e4m3fn has none: its all-ones pattern is NaN, everything else is a number

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] std::uint32_t exponent_mask() const { return (1U << exponent_bits) - 1U; }
  [[nodiscard]] std::uint32_t mantissa_mask() const { return (1U << mantissa_bits) - 1U; }
};

/// Of the float types of fewer than 32 bits.
small_float format_of(dtype d) {
  switch (d) {
  case dtype::f16: return {5, 10, true};
  case dtype::bf16: return {8, 7, true};
  case dtype::f8e4m3fn: return {4, 3, false};
  default: return {5, 2, true};
  }
}

double decode(const small_float& f, std::uint32_t bits) {
  const std::uint32_t mantissa = bits & f.mantissa_mask();
  const std::uint32_t exponent = (bits >> f.mantissa_bits) & f.exponent_mask();
  const double sign = ((bits >> (f.mantissa_bits + f.exponent_bits)) & 1U) != 0 ? -1.0 : 1.0;
  if (exponent == f.exponent_mask()) {
    if (f.has_infinity) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    if (mantissa == f.mantissa_mask()) return std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(mantissa), 1 - f.bias() - f.mantissa_bits);
  return sign * std::ldexp(static_cast<double>(mantissa + f.mantissa_mask() + 1U), static_cast<int>(exponent) - f.bias() - f.mantissa_bits);
}

std::uint32_t encode(const small_float& f, double value) {
  const std::uint32_t sign = std::signbit(value) ? 1U << (f.mantissa_bits + f.exponent_bits) : 0U;
  const std::uint32_t nan = (f.exponent_mask() << f.mantissa_bits) | (f.has_infinity ? 1U << (f.mantissa_bits - 1) : f.mantissa_mask());
  const std::uint32_t too_large = f.has_infinity ? f.exponent_mask() << f.mantissa_bits : nan;
  if (std::isnan(value)) return sign | nan;
  if (std::isinf(value)) return sign | too_large;
  const double magnitude = std::fabs(value);
  int exponent = 0;
  if (magnitude != 0) std::frexp(magnitude, &exponent);
  const int scale = std::max(exponent - 1, 1 - f.bias()) - f.mantissa_bits;
  const double steps = std::nearbyint(std::ldexp(magnitude, -scale)); // the current rounding mode is to nearest even
  const double implicit = static_cast<double>(f.mantissa_mask() + 1U);
  if (steps < implicit) return sign | static_cast<std::uint32_t>(steps); // subnormal or zero
  const bool carried = steps >= 2 * implicit;
  const std::uint32_t mantissa = static_cast<std::uint32_t>(carried ? steps / 2 : steps) & f.mantissa_mask();
  const int biased = scale + f.mantissa_bits + f.bias() + (carried ? 1 : 0);
  const int last = static_cast<int>(f.exponent_mask());
  const bool overflows = biased > last || (biased == last && (f.has_infinity || mantissa == f.mantissa_mask()));
  return sign | (overflows ? too_large : (static_cast<std::uint32_t>(biased) << f.mantissa_bits) | mantissa);
}

template <class T> T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <class T> void save(T value, std::byte* bytes) { std::memcpy(bytes, &value, sizeof value); }

static_assert(std::endian::native == std::endian::little, "elements lie in memory as little endian");

} // namespace

double element_to_double(dtype d, const std::byte* bytes) noexcept {
  if (!is_float(d)) return static_cast<double>(element_to_integer(d, bytes));
  switch (size_of(d)) {
  case 8: return load<double>(bytes);
  case 4: return static_cast<double>(load<float>(bytes));
  case 2: return decode(format_of(d), load<std::uint16_t>(bytes));
  default: return decode(format_of(d), load<std::uint8_t>(bytes));
  }
}

void double_to_element(dtype d, double value, std::byte* bytes) noexcept {
  if (!is_float(d)) return integer_to_element(d, static_cast<std::int64_t>(value), bytes);
  switch (size_of(d)) {
  case 8: return save(value, bytes);
  case 4: return save(static_cast<float>(value), bytes);
  case 2: return save(static_cast<std::uint16_t>(encode(format_of(d), value)), bytes);
  default: return save(static_cast<std::uint8_t>(encode(format_of(d), value)), bytes);
  }
}

std::int64_t element_to_integer(dtype d, const std::byte* bytes) noexcept {
  switch (d) {
  case dtype::i64: return load<std::int64_t>(bytes);
  case dtype::i32: return load<std::int32_t>(bytes);
  case dtype::i16: return load<std::int16_t>(bytes);
  case dtype::i8: return load<std::int8_t>(bytes);
  case dtype::u8:
  case dtype::b8: return load<std::uint8_t>(bytes);
  default: return static_cast<std::int64_t>(element_to_double(d, bytes));
  }
}

void integer_to_element(dtype d, std::int64_t value, std::byte* bytes) noexcept {
  if (is_float(d)) return double_to_element(d, static_cast<double>(value), bytes);
  if (d == dtype::b8) value = value != 0 ? 1 : 0;
  std::memcpy(bytes, &value, static_cast<std::size_t>(size_of(d))); // little endian: the low bytes come first
}

double rounded(dtype d, double value) noexcept {
  std::byte bytes[8];
  double_to_element(d, value, bytes);
  return element_to_double(d, bytes);
}

} // namespace muster::device_ir
