#include <string>
#include <vector>
#include <benchmark/benchmark.h>
#include "documents.hpp"
import muster.error;
import muster.device_ir;

using bench::input;
using bench::over_all;
using bench::report;
namespace device_ir = muster::device_ir;

namespace {

bool reads_back(const device_ir::document& d) { return device_ir::equal(d, device_ir::parse(device_ir::to_string(d))); }

void parse_one(benchmark::State& state, const input& in) {
  device_ir::document d;
  for (auto _ : state) {
    device_ir::parse_into(d, in.text);
    benchmark::DoNotOptimize(d.nodes.data());
  }
  if (!reads_back(d)) state.SkipWithError("the document does not read back");
  report(state, d.nodes.size(), in.text.size());
}

void parse_all(benchmark::State& state, const std::vector<input>& all) {
  device_ir::document d;
  over_all(state, all, [&](const input& in, const device_ir::document& expected) {
    device_ir::parse_into(d, in.text);
    if (d.nodes.size() != expected.nodes.size()) state.SkipWithError("another document was read");
  });
  if (!reads_back(d)) state.SkipWithError("the document does not read back");
}

void verify_all(benchmark::State& state, const std::vector<input>& all) {
  over_all(state, all, [](const input&, const device_ir::document& d) { device_ir::verify(d); });
}

void print_all(benchmark::State& state, const std::vector<input>& all) {
  std::string out;
  over_all(state, all, [&](const input&, const device_ir::document& d) {
    out.clear();
    device_ir::print(d, out);
    benchmark::DoNotOptimize(out.data());
  });
}

} // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::vector<input> all = bench::inputs();
  benchmark::RegisterBenchmark("memcpy/all", bench::copy_all, all, std::vector<std::string>{});
  benchmark::RegisterBenchmark("parse/all", parse_all, all);
  benchmark::RegisterBenchmark("verify/all", verify_all, all);
  benchmark::RegisterBenchmark("print/all", print_all, all);
  for (const input& in : all)
    if (bench::is_shown_alone(in)) benchmark::RegisterBenchmark(("parse/" + in.name).c_str(), parse_one, in);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
