#include "files.hpp"
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
import muster.error;

namespace muster::tool {

namespace {

constexpr std::size_t largest_file = std::size_t{1} << 30U;

class descriptor {
public:
  explicit descriptor(int fd) : fd_(fd) {}
  ~descriptor() {
    if (fd_ > 2) ::close(fd_);
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  /// Closes and reports: a full disk may show only here.
  [[nodiscard]] bool close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0;
  }

private:
  int fd_;
};

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

} // namespace

std::string read_file(const std::string& path) {
  const descriptor file(path == "-" ? 0 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw IoError("read", path, errno);
  struct stat status{};
  if (::fstat(file.get(), &status) == 0 && S_ISDIR(status.st_mode)) throw IoError("read", path, EISDIR);
  std::string content;
  std::vector<char> buffer(std::size_t{1} << 16U);
  for (;;) {
    const ssize_t n = ::read(file.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError("read", path, errno);
    if (n == 0) return content;
    content.append(buffer.data(), static_cast<std::size_t>(n));
    if (content.size() > largest_file) throw IoError("read", path, "it is larger than 1 GiB");
  }
}

void write_file(const std::string& path, std::string_view content) {
  if (path == "-") {
    if (!write_all(1, content)) throw IoError("write", "standard output", errno);
    return;
  }
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    // A device or a pipe cannot be replaced by a rename.
    descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0 || !write_all(file.get(), content)) throw IoError("write", path, errno);
    return;
  }
  std::string temporary = path + ".XXXXXX";
  descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) throw IoError("write", path, errno);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const bool written = write_all(file.get(), content) && ::fchmod(file.get(), static_cast<mode_t>(0666) & ~mask) == 0;
  const int write_error = errno;
  if (!written || !file.close()) {
    const int error = written ? errno : write_error;
    ::unlink(temporary.c_str());
    throw IoError("write", path, error);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw IoError("write", path, error);
  }
}

} // namespace muster::tool
