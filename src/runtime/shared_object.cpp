module;
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
module muster.runtime;

namespace muster {

namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> compilers{"clang++-19", "clang++", "g++", "c++"};
constexpr std::string_view suffix = ".so";

std::optional<std::string> find_program(std::string_view name) {
  if (name.find('/') != std::string_view::npos)
    return ::access(std::string(name).c_str(), X_OK) == 0 ? std::optional(std::string(name)) : std::nullopt;
  // The search path is the process's own, as execvp would take it.
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  while (!rest.empty()) {
    const std::size_t end = rest.find(':');
    const std::string candidate = fmt::format("{}/{}", rest.substr(0, end), name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return std::nullopt;
}

std::string compiler_path(const compile_options& options) {
  if (!options.compiler.empty()) {
    if (const auto found = find_program(options.compiler)) return *found;
    throw CompileError(fmt::format("There is no C++ compiler '{}'", options.compiler));
  }
  for (const std::string_view name : compilers)
    if (const auto found = find_program(name)) return *found;
  throw CompileError("There is no C++ compiler: install one of clang++-19, clang++, g++, c++, or name one");
}

/// FNV-1a over 64 bits, twice with different offsets: 128 bits, enough that two kernels do not meet.
std::string fingerprint(std::string_view text) {
  std::uint64_t a = 0xcbf29ce484222325ULL;
  std::uint64_t b = 0x84222325cbf29ce4ULL;
  for (const char c : text) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    b = (b ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    b ^= b >> 29U;
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

/// `-march=native` means another thing on another processor: its name is part of the key where the flag is.
std::string processor_name(const compile_options& options) {
  if (std::find(options.flags.begin(), options.flags.end(), "-march=native") == options.flags.end()) return {};
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  std::string name;
  while (std::getline(info, line)) {
    if (line.starts_with("model name") || line.starts_with("flags") || line.starts_with("Features")) (name += line) += '\n';
    if (line.empty()) break;
  }
  return name;
}

std::string cache_key(std::string_view source, const std::string& compiler, const compile_options& options) {
  std::error_code ignored;
  const fs::path resolved = fs::canonical(compiler, ignored);
  std::string text = fmt::format("{}\n{}\n", compiler, resolved.string());
  if (!resolved.empty()) {
    text += fmt::format("{} {}\n", fs::file_size(resolved, ignored), fs::last_write_time(resolved, ignored).time_since_epoch().count());
  }
  for (const std::string& flag : options.flags) (text += flag) += '\n';
  text += processor_name(options);
  text += source;
  return fingerprint(text);
}

/// A folder of its own that goes with everything in it.
class temporary_directory {
public:
  temporary_directory() {
    std::error_code ignored;
    path_ = (fs::temp_directory_path(ignored) / "muster-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw IoError("create", path_, errno);
  }
  ~temporary_directory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;
  [[nodiscard]] std::string file(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

private:
  std::string path_;
};

void write(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) throw IoError("write", path, errno);
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return std::move(content).str();
}

/// Runs a program with its output going to `log`. Gives its exit status, or a negative signal number.
int run_program(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw CompileError(fmt::format("Cannot start '{}': {}", command[0], std::generic_category().message(error)));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw CompileError(fmt::format("Lost '{}': {}", command[0], std::generic_category().message(errno)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void compile_to(const std::string& object, std::string_view source, const std::string& compiler, const compile_options& options,
                const temporary_directory& work) {
  const std::string input = work.file("kernel.cpp");
  const std::string log = work.file("log");
  write(input, source);
  std::vector<std::string> command{compiler};
  command.insert(command.end(), options.flags.begin(), options.flags.end());
  for (const std::string_view word : {"-shared", "-fPIC", "-pthread", "-o"}) command.emplace_back(word);
  command.push_back(object);
  command.push_back(input);
  const int status = run_program(command, log);
  if (status == 0) return;
  constexpr std::size_t shown = 4000;
  throw CompileError(fmt::format("'{}' failed with {} {}:\n{}", compiler, status < 0 ? "signal" : "status", status < 0 ? -status : status,
                                 read(log).substr(0, shown)));
}

std::shared_ptr<void> load(const std::string& path) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  return {handle, [](void* h) { ::dlclose(h); }};
}

/// Removes what was used longest ago until the folder is within its bounds. Other processes may do the same.
void shrink(const fs::path& directory, std::size_t most) {
  struct entry {
    fs::path path;
    fs::file_time_type used;
    std::uintmax_t size;
  };
  std::error_code ignored;
  std::vector<entry> entries;
  std::uintmax_t total = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(directory, ignored)) {
    if (file.path().extension() != suffix) continue;
    const std::uintmax_t size = file.file_size(ignored);
    if (ignored) continue;
    entries.push_back({file.path(), file.last_write_time(ignored), size});
    total += size;
  }
  if (total <= most) return;
  std::sort(entries.begin(), entries.end(), [](const entry& a, const entry& b) { return a.used < b.used; });
  for (const entry& e : entries) {
    if (total <= most) break;
    fs::remove(e.path, ignored);
    total -= e.size;
  }
}

} // namespace

CompileError::CompileError(const std::string& message) : Error(message) {}
CompileError::~CompileError() = default;

void* shared_object::symbol(const char* name) const {
  void* const address = ::dlsym(handle_.get(), name);
  if (address == nullptr) throw CompileError(fmt::format("The compiled kernel has no symbol '{}'", name));
  return address;
}

shared_object compile_source(std::string_view source, const compile_options& options) {
  const std::string compiler = compiler_path(options);
  shared_object result;
  const temporary_directory work;
  if (options.cache_directory.empty()) {
    const std::string object = work.file("kernel.so");
    compile_to(object, source, compiler, options, work);
    result.handle_ = load(object);
  } else {
    std::error_code error;
    const fs::path directory(options.cache_directory);
    fs::create_directories(directory, error);
    if (error) throw IoError("create", options.cache_directory, error.value());
    const fs::path entry = directory / (cache_key(source, compiler, options) + std::string(suffix));
    if (fs::exists(entry, error)) result.handle_ = load(entry.string());
    if (result.handle_) {
      fs::last_write_time(entry, fs::file_time_type::clock::now(), error); // marks it as used
      result.from_cache_ = true;
      return result;
    }
    // Not there, or not loadable: built under a name of its own and put into place whole.
    const std::string fresh = fmt::format("{}.{}.tmp", entry.string(), ::getpid());
    try {
      compile_to(fresh, source, compiler, options, work);
    } catch (...) {
      fs::remove(fresh, error);
      throw;
    }
    fs::rename(fresh, entry, error);
    if (error) {
      const int code = error.value();
      fs::remove(fresh, error);
      throw IoError("write", entry.string(), code);
    }
    result.handle_ = load(entry.string());
    shrink(directory, options.cache_bytes);
  }
  if (!result.handle_) {
    const char* const reason = ::dlerror();
    throw CompileError(fmt::format("The compiled kernel cannot be loaded: {}", reason == nullptr ? "no reason given" : reason));
  }
  return result;
}

} // namespace muster
