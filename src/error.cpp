module;
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
#include <fmt/format.h>
#include <fmt/ranges.h>
module muster.error;

namespace muster {

namespace {

constexpr std::size_t caret_window = 120;

std::vector<std::string_view> views(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

std::string missing_message(std::string_view backend, std::string_view operation, operation_family family) {
  if (family == operation_family::api)
    return fmt::format("Backend '{}' is missing required implementation: codegen for API function {}", backend, operation);
  return fmt::format("Backend '{}' is missing required implementation: Aten lowering codegen not registered for '{}'", backend, operation);
}

std::string available_message(std::string_view name, const std::vector<std::string>& available) {
  std::string message = fmt::format("Unknown backend: '{}'. Available backends: ['{}']", name, fmt::join(available, "', '"));
  if (const std::string_view near = nearest_name(name, views(available)); !near.empty())
    message += fmt::format(". Did you mean '{}'?", near);
  return message;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

/// The offset of the code point numbered `index` (from 0), or the text's size.
std::size_t code_point_offset(std::string_view text, std::size_t index) {
  std::size_t offset = 0;
  for (; offset < text.size(); ++offset) {
    if (is_continuation(text[offset])) continue;
    if (index == 0) break;
    --index;
  }
  return offset;
}

/// How many bytes the code point has that begins the text; 0 where it is no well-formed UTF-8.
std::size_t code_point_size(std::string_view text) {
  const auto byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first < 0xC2 || first > 0xF4 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) >= 0xA0;
  const bool too_large = first == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : size;
}

/// Blanks for control characters, which would move the caret or the terminal; question marks for what is no UTF-8.
std::string printable(std::string_view text) {
  std::string visible;
  while (!text.empty()) {
    const std::size_t size = code_point_size(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (size == 0) visible += '?';
    else if (first < 0x20 || first == 0x7F) visible += ' ';
    else visible += text.substr(0, size);
    text.remove_prefix(std::max(size, std::size_t{1}));
  }
  return visible;
}

std::string located_message(std::string_view file, std::size_t line, std::size_t column, std::string_view source_line,
                            std::string_view message) {
  if (line == 0) return fmt::format("{}: error: {}", file, message);
  const std::size_t caret = column == 0 ? 0 : column - 1;
  std::size_t begin = 0;
  if (caret > caret_window * 3 / 4) begin = caret - caret_window * 3 / 4;
  const std::size_t from = code_point_offset(source_line, begin);
  std::string_view shown = source_line.substr(from);
  shown = shown.substr(0, code_point_offset(shown, caret_window));
  return fmt::format("{}:{}:{}: error: {}\n  {}\n  {:>{}}", file, line, column, message, printable(shown), '^', caret - begin + 1);
}

/// Edit distance with adjacent transpositions, ASCII case folded.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + change});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

} // namespace

Error::Error(const std::string& message) : std::runtime_error(message) {}
Error::~Error() = default;

struct BackendImplementationMissing::details {
  std::string backend;
  std::string operation;
  operation_family family;
  std::vector<std::string> implemented_by;
  bool has_common;
};

BackendImplementationMissing::BackendImplementationMissing(std::string_view backend, std::string_view operation, operation_family family,
                                                           std::vector<std::string> implemented_by, bool has_common)
    : Error(missing_message(backend, operation, family)),
      details_(std::make_shared<const details>(
          details{std::string(backend), std::string(operation), family, std::move(implemented_by), has_common})) {}
BackendImplementationMissing::~BackendImplementationMissing() = default;
const std::string& BackendImplementationMissing::backend() const noexcept { return details_->backend; }
const std::string& BackendImplementationMissing::operation() const noexcept { return details_->operation; }
operation_family BackendImplementationMissing::family() const noexcept { return details_->family; }
const std::vector<std::string>& BackendImplementationMissing::implemented_by() const noexcept { return details_->implemented_by; }
bool BackendImplementationMissing::has_common() const noexcept { return details_->has_common; }

BackendUnsupported::BackendUnsupported(std::string_view backend, std::string_view operation, std::string_view reason,
                                       std::string_view where)
    : Error(where.empty() ? fmt::format("Backend '{}' does not support this use of {}: {}", backend, operation, reason)
                          : fmt::format("{}: Backend '{}' does not support this use of {}: {}", where, backend, operation, reason)) {}
BackendUnsupported::~BackendUnsupported() = default;

UnknownBackend::UnknownBackend(std::string_view name, const std::vector<std::string>& available)
    : Error(available_message(name, available)) {}
UnknownBackend::~UnknownBackend() = default;

BackendNotBuilt::BackendNotBuilt(std::string_view name, const std::vector<std::string>& built)
    : Error(fmt::format("Backend '{}' was left out of this build. Built backends: ['{}']", name, fmt::join(built, "', '"))) {}
BackendNotBuilt::~BackendNotBuilt() = default;

UnknownOperation::UnknownOperation(std::string_view name, std::string_view nearest, std::string_view where)
    : Error(fmt::format("{}{}Unknown operation: '{}'{}", where, where.empty() ? "" : ": ", name,
                        nearest.empty() ? std::string() : fmt::format(". Did you mean '{}'?", nearest))) {}
UnknownOperation::~UnknownOperation() = default;

NoTensorArgs::NoTensorArgs() : Error("No tensor or device among the arguments: pass at least one, or name the device") {}
NoTensorArgs::~NoTensorArgs() = default;

ArgumentNestingError::ArgumentNestingError(std::string_view message) : Error(std::string(message)) {}
ArgumentNestingError::~ArgumentNestingError() = default;

DeviceMismatch::DeviceMismatch(std::string_view first_path, std::string_view first_device, std::string_view second_path,
                               std::string_view second_device)
    : Error(fmt::format("Arguments are on different devices: {} is on {}, {} is on {}", first_path, first_device, second_path,
                        second_device)) {}
DeviceMismatch::~DeviceMismatch() = default;

UnsupportedArgument::UnsupportedArgument(std::string_view path, std::string_view what)
    : Error(fmt::format("{} is {}, which a kernel does not take: make it constexpr", path, what)) {}
UnsupportedArgument::~UnsupportedArgument() = default;

struct DeviceIRError::details {
  std::size_t line;
  std::size_t column;
  std::string message;
};

DeviceIRError::DeviceIRError(std::string_view file, std::size_t line, std::size_t column, std::string_view source_line,
                             std::string_view message)
    : Error(located_message(file, line, column, source_line, message)),
      details_(std::make_shared<const details>(details{line, column, std::string(message)})) {}
DeviceIRError::~DeviceIRError() = default;
std::size_t DeviceIRError::line() const noexcept { return details_->line; }
std::size_t DeviceIRError::column() const noexcept { return details_->column; }
const std::string& DeviceIRError::message() const noexcept { return details_->message; }

IoError::IoError(std::string_view action, std::string_view path, int error_number)
    : IoError(action, path, error_number == 0 ? std::string() : std::generic_category().message(error_number)) {}
IoError::IoError(std::string_view action, std::string_view path, std::string_view reason)
    : Error(fmt::format("Cannot {} '{}'{}{}", action, path, reason.empty() ? "" : ": ", reason)) {}
IoError::~IoError() = default;

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& candidates) {
  constexpr std::size_t longest = 256;
  const std::string_view wanted = trimmed(name.substr(0, longest));
  std::string_view best;
  std::size_t best_distance = static_cast<std::size_t>(-1);
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > longest) continue;
    const std::size_t distance = edit_distance(wanted, candidate);
    if (distance < best_distance && distance * 3 <= std::max(wanted.size(), candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  // `triton::load` is near to `load`.
  const std::size_t qualifier = wanted.rfind("::");
  if (best.empty() && qualifier != std::string_view::npos) return nearest_name(wanted.substr(qualifier + 2), candidates);
  return best;
}

void detail::raise(const BackendImplementationMissing& error) { throw error; }
void detail::raise(const UnknownBackend& error) { throw error; }
void detail::raise(const BackendNotBuilt& error) { throw error; }
void detail::raise(const UnknownOperation& error) { throw error; }

} // namespace muster
