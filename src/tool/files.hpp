#pragma once
#include <string>
#include <string_view>

namespace muster::tool {

/// The whole of a file, or of standard input for `-`. At most 1 GiB. Throws IoError.
std::string read_file(const std::string& path);

/// Writes `content` under a temporary name beside `path` and renames it: readers see the old file or the new one, never a
/// part. `-` is standard output. Throws IoError; then nothing has changed.
void write_file(const std::string& path, std::string_view content);

} // namespace muster::tool
