#pragma once
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

/// The project's own documents, and the recorded ones where they are there.
namespace documents {

inline std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<std::filesystem::path> in_folder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

inline std::vector<std::filesystem::path> own() { return in_folder(MUSTER_TEST_DOCUMENTS); }

inline std::filesystem::path shared_folder() {
  const char* const given = std::getenv("MUSTER_SHARED");
  return given != nullptr && *given != '\0' ? given : MUSTER_SHARED_DEFAULT;
}

/// Empty where they are not there.
inline std::vector<std::filesystem::path> recorded() {
  std::vector<std::filesystem::path> files = in_folder(shared_folder() / "device_ir");
  const std::vector<std::filesystem::path> tuned = in_folder(shared_folder() / "device_ir_tuned");
  files.insert(files.end(), tuned.begin(), tuned.end());
  return files;
}

/// The own ones, then the recorded ones.
inline std::vector<std::filesystem::path> all() {
  std::vector<std::filesystem::path> files = own();
  const std::vector<std::filesystem::path> others = recorded();
  files.insert(files.end(), others.begin(), others.end());
  return files;
}

} // namespace documents
