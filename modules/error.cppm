module;
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Every exception that the library throws. One base, one type a cause; a message says what was
/// wrong, where, and what would be right. All members are `noexcept` to copy, as an exception must be.
export module muster.error;

#pragma GCC visibility push(default)

#if defined(__GLIBCXX__) && _GLIBCXX_RELEASE < 16 // from 16 on, argument-dependent lookup finds them
// An importer that does not include <vector> or <span> itself has to see these, to iterate over one that it was given.
export namespace __gnu_cxx {
using __gnu_cxx::operator==;
using __gnu_cxx::operator<=>;
using __gnu_cxx::operator-;
} // namespace __gnu_cxx
#endif

export namespace muster {

/// The two families of operations a device IR node can call; they differ in how a missing one is reported.
enum class operation_family : std::uint8_t {
  api,  ///< an API function, reported by its own name: `load`, `_mask_to`
  aten, ///< an ATen lowering, reported by its qualified name: `aten.amax.default`
};

/// The base of everything that muster throws.
class Error : public std::runtime_error {
public:
  explicit Error(const std::string& message);
  ~Error() override;
};

/// Nobody wrote this handler: backend and operation are both known, their cell is empty.
class BackendImplementationMissing : public Error {
public:
  /// `implemented_by` names the backends that do implement the operation, in composition order; `has_common`
  /// tells whether the common fallback has it too (a caller that refused the fallback wants to know).
  BackendImplementationMissing(std::string_view backend, std::string_view operation, operation_family family,
                               std::vector<std::string> implemented_by, bool has_common = false);
  ~BackendImplementationMissing() override;

  [[nodiscard]] const std::string& backend() const noexcept;
  [[nodiscard]] const std::string& operation() const noexcept;
  [[nodiscard]] operation_family family() const noexcept;
  [[nodiscard]] const std::vector<std::string>& implemented_by() const noexcept;
  [[nodiscard]] bool has_common() const noexcept;

private:
  struct details;
  std::shared_ptr<const details> details_;
};

/// The handler exists, but this use of the operation does not work on this backend.
class BackendUnsupported : public Error {
public:
  /// `reason` is one sentence that says what does not work and why; `where` names the node, or is empty.
  BackendUnsupported(std::string_view backend, std::string_view operation, std::string_view reason, std::string_view where = {});
  ~BackendUnsupported() override;
};

/// No backend of that name. The message lists those there are, and the nearest one where one is near.
class UnknownBackend : public Error {
public:
  UnknownBackend(std::string_view name, const std::vector<std::string>& available);
  ~UnknownBackend() override;
};

/// A backend that muster knows but that was left out of this build.
class BackendNotBuilt : public Error {
public:
  BackendNotBuilt(std::string_view name, const std::vector<std::string>& built);
  ~BackendNotBuilt() override;
};

/// No operation of that name in the operation set; with the nearest name where one is near.
class UnknownOperation : public Error {
public:
  explicit UnknownOperation(std::string_view name, std::string_view nearest = {}, std::string_view where = {});
  ~UnknownOperation() override;
};

/// A search for a device met neither a tensor nor a device.
class NoTensorArgs : public Error {
public:
  NoTensorArgs();
  ~NoTensorArgs() override;
};

/// Arguments are nested too deeply to search, or a container contains itself.
class ArgumentNestingError : public Error {
public:
  explicit ArgumentNestingError(std::string_view message);
  ~ArgumentNestingError() override;
};

/// Two tensors of one call live on different devices.
class DeviceMismatch : public Error {
public:
  DeviceMismatch(std::string_view first_path, std::string_view first_device, std::string_view second_path, std::string_view second_device);
  ~DeviceMismatch() override;
};

/// An argument that no kernel takes as a parameter: a string, a dtype, a function, another object.
class UnsupportedArgument : public Error {
public:
  /// `path` is where it is (`args[2]['w'][1]`), `what` what it is, with its article ("a string").
  UnsupportedArgument(std::string_view path, std::string_view what);
  ~UnsupportedArgument() override;
};

/// A device IR document that cannot be read or does not verify.
/// `what()` is `FILE:LINE:COLUMN: error: MESSAGE`, the line, and a caret under the column.
class DeviceIRError : public Error {
public:
  /// `line` and `column` count from 1; the column counts code points. `source_line` is shown as it is, cut to a window
  /// of 120 columns around the caret where it is longer. Line 0: the document did not come from text, nothing is shown.
  DeviceIRError(std::string_view file, std::size_t line, std::size_t column, std::string_view source_line, std::string_view message);
  ~DeviceIRError() override;

  [[nodiscard]] std::size_t line() const noexcept;
  [[nodiscard]] std::size_t column() const noexcept;
  /// The message alone, without place and line.
  [[nodiscard]] const std::string& message() const noexcept;

private:
  struct details;
  std::shared_ptr<const details> details_;
};

/// A file that cannot be opened, read, written or renamed.
class IoError : public Error {
public:
  /// `action` is a verb ("read", "write"); the message ends in the system's reason for `error_number` unless that is 0.
  IoError(std::string_view action, std::string_view path, int error_number);
  IoError(std::string_view action, std::string_view path, std::string_view reason);
  ~IoError() override;
};

/// The candidate nearest to `name` by edit distance (case does not count), or an empty view if none is near
/// (more than a third of the longer name would have to change). O(candidates × length²).
[[nodiscard]] std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& candidates);

} // namespace muster

/// Throw their argument. Templates that report these errors call them, so that importers may be compiled without exceptions.
export namespace muster::detail {

[[noreturn]] [[gnu::cold]] void raise(const BackendImplementationMissing& error);
[[noreturn]] [[gnu::cold]] void raise(const UnknownBackend& error);
[[noreturn]] [[gnu::cold]] void raise(const BackendNotBuilt& error);
[[noreturn]] [[gnu::cold]] void raise(const UnknownOperation& error);

} // namespace muster::detail

#pragma GCC visibility pop
