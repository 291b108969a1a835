#include "array.hpp"
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include "files.hpp"
import muster.error;
import muster.device_ir;

namespace muster::tool {

namespace {

using device_ir::dtype;

/// As write_npy spells a dtype.
constexpr std::array<std::string_view, device_ir::dtype_count> numpy_names{"<f8", "<f4", "<f2", "|V2", "|V1", "|V1",
                                                                           "<i8", "<i4", "<i2", "|i1", "|u1", "|b1"};

std::string_view numpy_name(dtype d) { return numpy_names[static_cast<std::size_t>(d)]; }

dtype type_named(std::string_view name) {
  if (const auto d = device_ir::dtype_named(name)) return *d;
  throw IoError("use", std::string(name), "it is no element type");
}

} // namespace

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
std::optional<dtype> type_of_descr(std::string_view descr, dtype wanted) {
  if (descr.starts_with('=')) descr.remove_prefix(1);
  const auto same = [&](std::string_view numpy) {
    return descr == numpy || (descr.size() == 2 && numpy.substr(1) == descr) ||
           (descr.size() == 3 && descr.substr(1) == numpy.substr(1) && numpy[0] == '|');
  };
  const bool raw = descr == "|V2" || descr == "<V2" || descr == "<u2" || descr == "|V1" || descr == "<V1" || descr == "|u1";
  if (raw && numpy_name(wanted).starts_with("|V") && descr.back() - '0' == device_ir::size_of(wanted)) return wanted;
  for (std::size_t i = 0; i < numpy_names.size(); ++i)
    if (!numpy_names[i].starts_with("|V") && same(numpy_names[i])) return static_cast<dtype>(i);
  return std::nullopt;
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

void convert_element(const std::string& path, dtype from, dtype to, const std::byte* source, std::byte* target) {
  if (device_ir::is_float(to)) return device_ir::double_to_element(to, device_ir::element_to_double(from, source), target);
  const std::int64_t value = device_ir::element_to_integer(from, source);
  device_ir::integer_to_element(to, value, target);
  if (device_ir::element_to_integer(to, target) != value)
    throw IoError("read", path, fmt::format("the value {} does not fit {}", value, device_ir::name(to)));
}

} // namespace

array read_npy(const std::string& path, std::string_view dtype_name) {
  const std::string file = read_file(path);
  const npy_header h = read_header(path, file);
  const dtype wanted = type_named(dtype_name);
  const std::optional<dtype> from = type_of_descr(h.descr, wanted);
  if (!from || device_ir::is_float(*from) != device_ir::is_float(wanted))
    throw IoError("read", path, fmt::format("its element type is '{}', which does not convert to {}", h.descr, dtype_name));
  const auto size = static_cast<std::size_t>(device_ir::size_of(*from));
  const auto wanted_size = static_cast<std::size_t>(device_ir::size_of(wanted));
  array a{std::string(dtype_name), h.shape, {}};
  std::size_t count = 1;
  for (const std::int64_t n : h.shape)
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(n), &count) || count > (std::size_t{1} << 40U))
      throw IoError("read", path, "its shape is too large");
  if (file.size() - h.data_offset < count * size)
    throw IoError("read", path,
                  fmt::format("the file ends early: {} elements of {} bytes were promised, {} bytes are there", count, size,
                              file.size() - h.data_offset));
  std::vector<std::byte> raw(count * size);
  if (!raw.empty()) std::memcpy(raw.data(), file.data() + h.data_offset, raw.size());
  raw = in_c_order(h, std::move(raw), size);
  if (*from == wanted) {
    a.bytes = std::move(raw);
    return a;
  }
  a.bytes.resize(count * wanted_size);
  for (std::size_t i = 0; i < count; ++i) convert_element(path, *from, wanted, raw.data() + i * size, a.bytes.data() + i * wanted_size);
  return a;
}

void write_npy(const std::string& path, const array& a) {
  std::string shape = fmt::format("({}{})", fmt::join(a.shape, ", "), a.shape.size() == 1 ? "," : "");
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", numpy_name(type_named(a.dtype)), shape);
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
