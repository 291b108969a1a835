#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::tool {

/// An array in C order. Element types go by the document's names: `f32`, `bf16`, ….
struct array {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  [[nodiscard]] std::size_t count() const;
};

/// Reads a NumPy file (format 1 to 3, little endian, either order) and converts it to that type: from the same type, from any
/// float type to a float type (rounded), from any integer type to an integer type where every value fits. Raw two-byte and
/// one-byte void types (as NumPy writes bfloat16 and float8) are taken as they stand. Throws IoError that says what is wrong.
array read_npy(const std::string& path, std::string_view dtype_name);

/// Writes a NumPy file, format 1. bf16 and the 8-bit floats are written as raw void types. Throws IoError.
void write_npy(const std::string& path, const array& a);

} // namespace muster::tool
