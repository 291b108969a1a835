#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <benchmark/benchmark.h>
#include "../test/documents.hpp"
import muster.error;
import muster.device_ir;

namespace device_ir = muster::device_ir;

namespace {

struct text {
  std::string name;
  std::string content;
};

/// The recorded documents where they are there, else the project's own.
std::vector<text> texts() {
  std::vector<std::filesystem::path> files = documents::recorded();
  if (files.empty()) files = documents::own();
  std::vector<text> all;
  for (const auto& file : files) all.push_back({file.stem().string(), documents::read(file)});
  return all;
}

void report(benchmark::State& state, std::size_t nodes, std::size_t bytes) {
  using benchmark::Counter;
  state.counters["nodes"] = static_cast<double>(nodes);
  state.counters["per_node"] = Counter(static_cast<double>(nodes), Counter::kIsIterationInvariantRate | Counter::kInvert);
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

bool reads_back(const device_ir::document& d) { return device_ir::equal(d, device_ir::parse(device_ir::to_string(d))); }

void parse_one(benchmark::State& state, const text& t) {
  device_ir::document d;
  for (auto _ : state) {
    device_ir::parse_into(d, t.content);
    benchmark::DoNotOptimize(d.nodes.data());
  }
  if (!reads_back(d)) state.SkipWithError("the document does not read back");
  report(state, d.nodes.size(), t.content.size());
}

/// What every pass over all documents has in common.
template <class F> void over_all(benchmark::State& state, const std::vector<text>& all, F&& pass) {
  std::size_t nodes = 0;
  std::size_t bytes = 0;
  std::vector<device_ir::document> parsed;
  for (const text& t : all) {
    parsed.push_back(device_ir::parse(t.content));
    nodes += parsed.back().nodes.size();
    bytes += t.content.size();
  }
  for (auto _ : state)
    for (std::size_t i = 0; i < all.size(); ++i) pass(all[i], parsed[i]);
  report(state, nodes, bytes);
}

void parse_all(benchmark::State& state, const std::vector<text>& all) {
  device_ir::document d;
  over_all(state, all, [&](const text& t, const device_ir::document& expected) {
    device_ir::parse_into(d, t.content);
    if (d.nodes.size() != expected.nodes.size()) state.SkipWithError("another document was read");
  });
  if (!reads_back(d)) state.SkipWithError("the document does not read back");
}

void verify_all(benchmark::State& state, const std::vector<text>& all) {
  over_all(state, all, [](const text&, const device_ir::document& d) { device_ir::verify(d); });
}

void print_all(benchmark::State& state, const std::vector<text>& all) {
  std::string out;
  over_all(state, all, [&](const text&, const device_ir::document& d) {
    out.clear();
    device_ir::print(d, out);
    benchmark::DoNotOptimize(out.data());
  });
}

/// The floor: no parser can do without touching every byte.
void copy_all(benchmark::State& state, const std::vector<text>& all) {
  std::string out(std::size_t{1} << 20U, '\0');
  over_all(state, all, [&](const text& t, const device_ir::document&) {
    std::memcpy(out.data(), t.content.data(), t.content.size());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  });
}

} // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::vector<text> all = texts();
  benchmark::RegisterBenchmark("memcpy/all", copy_all, all);
  benchmark::RegisterBenchmark("parse/all", parse_all, all);
  benchmark::RegisterBenchmark("verify/all", verify_all, all);
  benchmark::RegisterBenchmark("print/all", print_all, all);
  for (const text& t : all)
    if (t.name.find("tuned") == std::string::npos) benchmark::RegisterBenchmark(("parse/" + t.name).c_str(), parse_one, t);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
