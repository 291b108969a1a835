#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::tool {

/// Element types, by the document's names (`f32`, `bf16`, …); sizes in bytes.
std::size_t element_size(std::string_view dtype);
bool is_float_dtype(std::string_view dtype);

/// One element as a double (integers beyond 2^53 lose digits), and back, rounded to nearest even. `bytes` holds one element.
double element_to_double(std::string_view dtype, const std::byte* bytes);
void double_to_element(std::string_view dtype, double value, std::byte* bytes);
void integer_to_element(std::string_view dtype, std::int64_t value, std::byte* bytes);

/// An array in C order.
struct array {
  std::string dtype; ///< the document's name
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  [[nodiscard]] std::size_t count() const;
};

/// Reads a NumPy file (format 1 to 3, little endian, either order) and converts it to `dtype`: from the same type, from any
/// float type to a float type (rounded), from any integer type to an integer type where every value fits. Raw two-byte and
/// one-byte void types (as NumPy writes bfloat16 and float8) are taken as they stand. Throws IoError that says what is wrong.
array read_npy(const std::string& path, std::string_view dtype);

/// Writes a NumPy file, format 1. bf16 and the 8-bit floats are written as raw void types. Throws IoError.
void write_npy(const std::string& path, const array& a);

} // namespace muster::tool
