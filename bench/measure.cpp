#include "measure.hpp"
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>
#include <benchmark/benchmark.h>
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif

namespace bench {
namespace {

bool all_right(const std::vector<subject>& subjects) {
  bool ok = true;
  for (const subject& s : subjects)
    if (!s.right()) {
      std::fprintf(stderr, "wrong result: %s\n", s.name.c_str());
      ok = false;
    }
  return ok;
}

int count([[maybe_unused]] const std::vector<subject>& subjects) {
#ifdef CALLGRIND_ZERO_STATS
  if (RUNNING_ON_VALGRIND) {
    for (const subject& s : subjects) {
      s.pass(); // what the first call does, such as binding a symbol, is not a call's cost
      CALLGRIND_START_INSTRUMENTATION;
      CALLGRIND_ZERO_STATS;
      s.pass();
      CALLGRIND_DUMP_STATS_AT(s.name.c_str());
      CALLGRIND_STOP_INSTRUMENTATION;
    }
    return 0;
  }
  std::fputs("--count: not under valgrind\n", stderr);
#else
  std::fputs("--count: built without valgrind's headers\n", stderr);
#endif
  return 1;
}

} // namespace

int measure(const std::vector<subject>& subjects, int argc, char** argv) {
  if (!all_right(subjects)) return 1;
  if (argc == 2 && std::strcmp(argv[1], "--count") == 0) return count(subjects);
  for (const subject& s : subjects)
    benchmark::RegisterBenchmark(s.name.c_str(), [&s](benchmark::State& state) {
      s.pass(); // so that a small table is in the caches, as it is where it is used
      for (auto _ : state) s.pass();
      state.counters["calls"] = static_cast<double>(s.calls);
    });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

} // namespace bench
