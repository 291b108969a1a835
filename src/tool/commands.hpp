#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster::tool {

/// Exit statuses of the tool.
enum exit_status : int { success = 0, failure = 1, usage = 2, implementation_missing = 3 };

struct codegen_options {
  std::string file;
  std::string backend;
  std::string output = "-";
  std::optional<std::string> config;  ///< JSON
  std::optional<std::string> configs; ///< a file with one JSON object a line
  bool plan = false;
  bool explain = false;
};

struct run_options {
  std::string file;
  std::string backend = "cpu";
  std::uint64_t seed = 0;
  int repeat = 1;
  int threads = 0;
  bool interpret = false; ///< the reference interpreter in place of the kernel
  bool check = false;     ///< compare the kernel with the interpreter
  bool check_nodes = false; ///< the same, node by node in any case
  bool trace = false;     ///< print what every node gives in the interpreter
  std::optional<std::string> config;
  std::vector<std::pair<std::string, std::string>> inputs;  ///< tensor, file
  std::vector<std::pair<std::string, std::string>> outputs; ///< tensor, file
  std::vector<std::pair<std::string, std::string>> symbols; ///< name, value
};

struct coverage_options {
  std::string backend; ///< empty: all
  std::string format = "table";
};

int codegen(const codegen_options& options);
int check(const std::vector<std::string>& files);
int run(const run_options& options);
int backends();
int coverage(const coverage_options& options);

} // namespace muster::tool
