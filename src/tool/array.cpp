#include "array.hpp"
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include "files.hpp"
import muster.error;

namespace muster::tool {

namespace {

struct small_float {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity; ///< f8e4m3fn has none: its all-ones pattern is NaN, everything else is a number
};

constexpr small_float half{5, 10, true};
constexpr small_float bfloat{8, 7, true};
constexpr small_float e4m3fn{4, 3, false};
constexpr small_float e5m2{5, 2, true};

double decode(const small_float& f, std::uint32_t bits) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const std::uint32_t mantissa_mask = (1U << f.mantissa_bits) - 1U;
  const std::uint32_t exponent_mask = (1U << f.exponent_bits) - 1U;
  const std::uint32_t mantissa = bits & mantissa_mask;
  const std::uint32_t exponent = (bits >> f.mantissa_bits) & exponent_mask;
  const double sign = ((bits >> (f.mantissa_bits + f.exponent_bits)) & 1U) != 0 ? -1.0 : 1.0;
  if (exponent == exponent_mask) {
    if (f.has_infinity) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    if (mantissa == mantissa_mask) return std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(mantissa), 1 - bias - f.mantissa_bits);
  return sign * std::ldexp(static_cast<double>(mantissa + mantissa_mask + 1U), static_cast<int>(exponent) - bias - f.mantissa_bits);
}

/// Rounded to nearest, ties to even. Beyond the largest number: infinity, or NaN where the format has no infinity.
std::uint32_t encode(const small_float& f, double value) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const std::uint32_t exponent_mask = (1U << f.exponent_bits) - 1U;
  const std::uint32_t mantissa_mask = (1U << f.mantissa_bits) - 1U;
  const std::uint32_t sign = std::signbit(value) ? 1U << (f.mantissa_bits + f.exponent_bits) : 0U;
  const std::uint32_t nan = (exponent_mask << f.mantissa_bits) | (f.has_infinity ? 1U << (f.mantissa_bits - 1) : mantissa_mask);
  const std::uint32_t too_large = f.has_infinity ? exponent_mask << f.mantissa_bits : nan;
  if (std::isnan(value)) return sign | nan;
  if (std::isinf(value)) return sign | too_large;
  const double magnitude = std::fabs(value);
  int exponent = 0;
  if (magnitude != 0) std::frexp(magnitude, &exponent);
  const int lowest = 1 - bias;
  const int scale = std::max(exponent - 1, lowest) - f.mantissa_bits;
  const double steps = std::nearbyint(std::ldexp(magnitude, -scale)); // the current rounding mode is to nearest even
  std::uint32_t bits = 0;
  const double implicit = static_cast<double>(mantissa_mask + 1U);
  if (steps < implicit) {
    bits = static_cast<std::uint32_t>(steps); // subnormal or zero
  } else {
    const bool carried = steps >= 2 * implicit;
    const std::uint32_t mantissa = static_cast<std::uint32_t>(carried ? steps / 2 : steps) & mantissa_mask;
    const int biased = scale + f.mantissa_bits + bias + (carried ? 1 : 0);
    const bool overflows = biased > static_cast<int>(exponent_mask) || (f.has_infinity && biased == static_cast<int>(exponent_mask)) ||
                           (!f.has_infinity && biased == static_cast<int>(exponent_mask) && mantissa == mantissa_mask);
    bits = overflows ? too_large : (static_cast<std::uint32_t>(biased) << f.mantissa_bits) | mantissa;
  }
  return sign | bits;
}

struct element_type {
  std::string_view name;
  std::size_t size;
  bool real;
  const small_float* small;
  std::string_view numpy; ///< as write_npy spells it
};

constexpr std::array<element_type, 12> element_types{{
    {"f64", 8, true, nullptr, "<f8"},
    {"f32", 4, true, nullptr, "<f4"},
    {"f16", 2, true, &half, "<f2"},
    {"bf16", 2, true, &bfloat, "|V2"},
    {"f8e4m3fn", 1, true, &e4m3fn, "|V1"},
    {"f8e5m2", 1, true, &e5m2, "|V1"},
    {"i64", 8, false, nullptr, "<i8"},
    {"i32", 4, false, nullptr, "<i4"},
    {"i16", 2, false, nullptr, "<i2"},
    {"i8", 1, false, nullptr, "|i1"},
    {"u8", 1, false, nullptr, "|u1"},
    {"b8", 1, false, nullptr, "|b1"},
}};

const element_type& type_named(std::string_view dtype) {
  for (const element_type& t : element_types)
    if (t.name == dtype) return t;
  throw IoError("use", std::string(dtype), "it is no element type");
}

template <class T> T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <class T> void save(T value, std::byte* bytes) { std::memcpy(bytes, &value, sizeof value); }

std::int64_t load_integer(const element_type& t, const std::byte* bytes) {
  if (t.name == "i64") return load<std::int64_t>(bytes);
  if (t.name == "i32") return load<std::int32_t>(bytes);
  if (t.name == "i16") return load<std::int16_t>(bytes);
  if (t.name == "i8") return load<std::int8_t>(bytes);
  return load<std::uint8_t>(bytes);
}

} // namespace

std::size_t element_size(std::string_view dtype) { return type_named(dtype).size; }
bool is_float_dtype(std::string_view dtype) { return type_named(dtype).real; }

double element_to_double(std::string_view dtype, const std::byte* bytes) {
  const element_type& t = type_named(dtype);
  if (!t.real) return static_cast<double>(load_integer(t, bytes));
  if (t.small != nullptr) return decode(*t.small, t.size == 2 ? load<std::uint16_t>(bytes) : load<std::uint8_t>(bytes));
  return t.size == 8 ? load<double>(bytes) : static_cast<double>(load<float>(bytes));
}

void double_to_element(std::string_view dtype, double value, std::byte* bytes) {
  const element_type& t = type_named(dtype);
  if (!t.real) return integer_to_element(dtype, static_cast<std::int64_t>(value), bytes);
  if (t.small != nullptr) {
    const std::uint32_t bits = encode(*t.small, value);
    if (t.size == 2) save(static_cast<std::uint16_t>(bits), bytes);
    else save(static_cast<std::uint8_t>(bits), bytes);
  } else if (t.size == 8) {
    save(value, bytes);
  } else {
    save(static_cast<float>(value), bytes);
  }
}

void integer_to_element(std::string_view dtype, std::int64_t value, std::byte* bytes) {
  const element_type& t = type_named(dtype);
  if (t.real) return double_to_element(dtype, static_cast<double>(value), bytes);
  if (t.name == "b8") save(static_cast<std::uint8_t>(value != 0 ? 1 : 0), bytes);
  else std::memcpy(bytes, &value, t.size); // little endian: the low bytes come first
}

static_assert(std::endian::native == std::endian::little, "NumPy files are read and written as little endian");

std::size_t array::count() const {
  std::size_t n = 1;
  for (const std::int64_t size : shape) n *= static_cast<std::size_t>(size);
  return n;
}

// -- NumPy files

namespace {

struct npy_header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;
};

/// Reads the header's Python dict: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
class header_reader {
public:
  header_reader(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  npy_header read() {
    npy_header h;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        if (peek() != '\'' && peek() != '"') fail("structured types are not supported");
        h.descr = string();
      } else if (key == "fortran_order") {
        h.fortran_order = boolean();
      } else if (key == "shape") {
        h.shape = shape();
      } else {
        fail(fmt::format("unknown header key '{}'", key));
      }
      accept(',');
    }
    if (h.descr.empty()) fail("the header has no 'descr'");
    return h;
  }

private:
  const std::string& path_;
  std::string_view text_;

  [[noreturn]] void fail(std::string_view reason) const {
    throw IoError("read", path_, fmt::format("not a NumPy file this tool can read: {}", reason));
  }
  void skip() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) text_.remove_prefix(1);
  }
  char peek() {
    skip();
    return text_.empty() ? '\0' : text_.front();
  }
  bool accept(char c) {
    if (peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}' in the header", c));
  }
  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("expected a string in the header");
    text_.remove_prefix(1);
    const std::size_t end = text_.find(quote);
    if (end == std::string_view::npos) fail("an unterminated string in the header");
    std::string result(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return result;
  }
  bool boolean() {
    skip();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        return value;
      }
    fail("expected True or False in the header");
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      skip();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) fail("a size in the header is no non-negative integer");
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      sizes.push_back(size);
      accept(',');
    }
    return sizes;
  }
};

npy_header read_header(const std::string& path, const std::string& file) {
  constexpr std::string_view magic("\x93NUMPY", 6);
  if (file.size() < 10 || std::string_view(file).substr(0, 6) != magic)
    throw IoError("read", path, "not a NumPy file (it does not begin with \\x93NUMPY)");
  const unsigned version = static_cast<unsigned char>(file[6]);
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(file[i])); };
  const std::size_t prefix = version == 1 ? 10 : 12;
  if (version < 1 || version > 3 || file.size() < prefix)
    throw IoError("read", path, fmt::format("NumPy format version {} is not supported", version));
  std::size_t length = byte(8) | byte(9) << 8U;
  if (version > 1) length |= byte(10) << 16U | byte(11) << 24U;
  if (file.size() < prefix + length) throw IoError("read", path, "the file ends inside its header");
  npy_header h = header_reader(path, std::string_view(file).substr(prefix, length)).read();
  h.data_offset = prefix + length;
  return h;
}

/// The element type of a NumPy `descr`, seen by one who wants `wanted`.
const element_type* type_of_descr(std::string_view descr, const element_type& wanted) {
  if (descr.starts_with('=')) descr.remove_prefix(1);
  const auto same = [&](std::string_view numpy) {
    return descr == numpy || (descr.size() == 2 && numpy.substr(1) == descr) ||
           (descr.size() == 3 && descr.substr(1) == numpy.substr(1) && numpy[0] == '|');
  };
  const bool raw = descr == "|V2" || descr == "<V2" || descr == "<u2" || descr == "|V1" || descr == "|u1";
  if (raw && (wanted.name == "bf16" || wanted.small == &e4m3fn || wanted.small == &e5m2) &&
      static_cast<std::size_t>(descr.back() - '0') == wanted.size)
    return &wanted;
  for (const element_type& t : element_types)
    if (!t.numpy.starts_with("|V") && same(t.numpy)) return &t;
  return nullptr;
}

std::vector<std::byte> in_c_order(const npy_header& h, std::vector<std::byte> bytes, std::size_t size) {
  if (!h.fortran_order || h.shape.size() < 2) return bytes;
  std::vector<std::byte> result(bytes.size());
  std::vector<std::int64_t> at(h.shape.size(), 0);
  for (std::size_t linear = 0; linear * size < bytes.size(); ++linear) {
    std::size_t from = 0;
    for (std::size_t d = h.shape.size(); d-- > 0;) from = from * static_cast<std::size_t>(h.shape[d]) + static_cast<std::size_t>(at[d]);
    std::memcpy(result.data() + linear * size, bytes.data() + from * size, size);
    for (std::size_t d = h.shape.size(); d-- > 0;) {
      if (++at[d] < h.shape[d]) break;
      at[d] = 0;
    }
  }
  return result;
}

void convert_element(const std::string& path, const element_type& from, const element_type& to, const std::byte* source,
                     std::byte* target) {
  if (to.real) return double_to_element(to.name, element_to_double(from.name, source), target);
  const std::int64_t value = load_integer(from, source);
  integer_to_element(to.name, value, target);
  if (load_integer(to, target) != value) throw IoError("read", path, fmt::format("the value {} does not fit {}", value, to.name));
}

} // namespace

array read_npy(const std::string& path, std::string_view dtype) {
  const std::string file = read_file(path);
  const npy_header h = read_header(path, file);
  const element_type& wanted = type_named(dtype);
  const element_type* from = type_of_descr(h.descr, wanted);
  if (from == nullptr || (from->real && !wanted.real) || (!from->real && wanted.real))
    throw IoError("read", path, fmt::format("its element type is '{}', which does not convert to {}", h.descr, dtype));
  array a{std::string(dtype), h.shape, {}};
  std::size_t count = 1;
  for (const std::int64_t size : h.shape)
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(size), &count) || count > (std::size_t{1} << 40U))
      throw IoError("read", path, "its shape is too large");
  if (file.size() - h.data_offset < count * from->size)
    throw IoError("read", path,
                  fmt::format("the file ends early: {} elements of {} bytes were promised, {} bytes are there", count, from->size,
                              file.size() - h.data_offset));
  std::vector<std::byte> raw(count * from->size);
  if (!raw.empty()) std::memcpy(raw.data(), file.data() + h.data_offset, raw.size());
  raw = in_c_order(h, std::move(raw), from->size);
  if (from == &wanted) {
    a.bytes = std::move(raw);
    return a;
  }
  a.bytes.resize(count * wanted.size);
  for (std::size_t i = 0; i < count; ++i)
    convert_element(path, *from, wanted, raw.data() + i * from->size, a.bytes.data() + i * wanted.size);
  return a;
}

void write_npy(const std::string& path, const array& a) {
  std::string shape = fmt::format("({}{})", fmt::join(a.shape, ", "), a.shape.size() == 1 ? "," : "");
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type_named(a.dtype).numpy, shape);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xFFU);
  file += static_cast<char>(header.size() >> 8U);
  file += header;
  file.append(reinterpret_cast<const char*>(a.bytes.data()), a.bytes.size());
  write_file(path, file);
}

} // namespace muster::tool
