#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

/// What the benchmarks against peers have in common: everything is checked, then timed in random order, or counted.
namespace bench {

/// One thing that is measured.
struct subject {
  std::string name;            ///< table/size/order/who
  std::size_t calls = 1;       ///< that one pass makes
  std::function<bool()> right; ///< whether every call gives what it must
  std::function<void()> pass;  ///< the calls, and nothing else
};

/// Checks every subject and gives 1, with the names of those that are wrong, if there are such. Else measures them:
///   --count   under valgrind's callgrind, started with --instr-atstart=no: a dump of one pass each, under the subject's name
///   else      with Google Benchmark, whose arguments these are; the counter `calls` is the number of calls in an iteration
int measure(const std::vector<subject>& subjects, int argc, char** argv);

} // namespace bench
