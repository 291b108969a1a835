#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <benchmark/benchmark.h>
#include "../test/documents.hpp"
import muster.error;
import muster.registry;
import muster.device_ir;
import muster.operations;
import muster.codegen;
import muster.builtin;

namespace codegen = muster::codegen;
namespace device_ir = muster::device_ir;

namespace {

struct input {
  std::string name;
  std::string text;
  std::optional<double> peer_ms; ///< the peer's code generation alone, where it was measured
};

std::map<std::string, double> peer_times() {
  std::map<std::string, double> times;
  std::ifstream file(documents::shared_folder() / "peer" / "codegen_ms.tsv");
  std::string line;
  std::getline(file, line); // the header
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string name;
    double nodes = 0;
    double ms = 0;
    if (fields >> name >> nodes >> ms) times[name] = ms;
  }
  return times;
}

/// The project's own documents, and the recorded ones where they are there.
std::vector<input> inputs() {
  const std::map<std::string, double> peer = peer_times();
  std::vector<std::filesystem::path> files = documents::own();
  const std::vector<std::filesystem::path> recorded = documents::recorded();
  files.insert(files.end(), recorded.begin(), recorded.end());
  std::vector<input> all;
  for (const auto& file : files) {
    input one{.name = file.stem().string(), .text = documents::read(file), .peer_ms = {}};
    if (const auto found = peer.find(one.name); found != peer.end()) one.peer_ms = found->second;
    all.push_back(std::move(one));
  }
  return all;
}

void report(benchmark::State& state, std::size_t nodes, std::size_t bytes) {
  using benchmark::Counter;
  state.counters["nodes"] = static_cast<double>(nodes);
  state.counters["per_node"] = Counter(static_cast<double>(nodes), Counter::kIsIterationInvariantRate | Counter::kInvert);
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

/// Times a benchmark's loop beside the library's own clock, to say how many times faster than the peer it is.
class comparison {
public:
  void write(benchmark::State& state, double peer_ms) const {
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start_;
    state.counters["peer/ours"] = peer_ms * static_cast<double>(state.iterations()) / taken.count();
  }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string generated(const input& in, std::string_view backend) {
  std::string out;
  muster::builtin_generator().generate(device_ir::parse(in.text, in.name), backend, out);
  return out;
}

/// Text to document: what an emitted kernel costs before anything is generated.
void parse_alone(benchmark::State& state, const input& in) {
  device_ir::document d;
  for (auto _ : state) {
    device_ir::parse_into(d, in.text, in.name);
    benchmark::DoNotOptimize(d.nodes.data());
  }
  if (!device_ir::equal(d, device_ir::parse(in.text, in.name))) state.SkipWithError("another document than a new parse's");
  report(state, d.nodes.size(), in.text.size());
}

/// Text to text: parse, check, generate.
void text_to_text(benchmark::State& state, const input& in, std::string_view backend) {
  codegen::generator generator = muster::builtin_generator();
  device_ir::document d;
  std::string out;
  const comparison against;
  for (auto _ : state) {
    device_ir::parse_into(d, in.text, in.name);
    device_ir::verify(d);
    out.clear();
    generator.generate(d, backend, out);
    benchmark::DoNotOptimize(out.data());
  }
  if (in.peer_ms) against.write(state, *in.peer_ms);
  if (out.empty() || out != generated(in, backend)) state.SkipWithError("another output than a new generator's");
  report(state, d.nodes.size(), in.text.size() + out.size());
}

/// One parse, one config after another: what an autotuner asks for. Every kernel is compared with a new generator's.
void another_config(benchmark::State& state, const input& in, std::string_view backend) {
  codegen::generator generator = muster::builtin_generator();
  const device_ir::document d = device_ir::parse(in.text, in.name);
  std::vector<device_ir::config> configs;
  for (const int warps : {1, 2, 4, 8})
    for (const int stages : {1, 2, 3, 4})
      configs.push_back(device_ir::parse_config(
          "{\"num_warps\": " + std::to_string(warps) + ", \"num_stages\": " + std::to_string(stages) + "}", d.config));
  std::string out;
  std::size_t i = 0;
  const comparison against;
  for (auto _ : state) {
    out.clear();
    generator.generate(d, configs[i++ % configs.size()], backend, out);
    benchmark::DoNotOptimize(out.data());
  }
  if (in.peer_ms) against.write(state, *in.peer_ms);
  report(state, d.nodes.size(), out.size());
  for (const device_ir::config& c : configs) {
    std::string again;
    out.clear();
    generator.generate(d, c, backend, out);
    muster::builtin_generator().generate(d, c, backend, again);
    if (out.empty() || out != again) state.SkipWithError("another output than a new generator's");
  }
}

template <class Pass> void over_all(benchmark::State& state, const std::vector<input>& all, Pass&& pass) {
  std::size_t nodes = 0;
  std::size_t bytes = 0;
  double peer_ms = 0;
  bool all_measured = true;
  std::vector<device_ir::document> parsed;
  for (const input& in : all) {
    parsed.push_back(device_ir::parse(in.text, in.name));
    nodes += parsed.back().nodes.size();
    bytes += in.text.size();
    peer_ms += in.peer_ms.value_or(0);
    all_measured = all_measured && in.peer_ms;
  }
  const comparison against;
  for (auto _ : state)
    for (std::size_t i = 0; i < all.size(); ++i) pass(all[i], parsed[i]);
  if (all_measured) against.write(state, peer_ms);
  report(state, nodes, bytes);
}

void text_to_text_all(benchmark::State& state, const std::vector<input>& all, std::string_view backend) {
  codegen::generator generator = muster::builtin_generator();
  device_ir::document d;
  std::string out;
  over_all(state, all, [&](const input& in, const device_ir::document&) {
    device_ir::parse_into(d, in.text, in.name);
    device_ir::verify(d);
    out.clear();
    generator.generate(d, backend, out);
  });
  if (out.empty() || out != generated(all.back(), backend)) state.SkipWithError("another output than a new generator's");
}

void generate_all(benchmark::State& state, const std::vector<input>& all, std::string_view backend) {
  codegen::generator generator = muster::builtin_generator();
  std::string out;
  over_all(state, all, [&](const input&, const device_ir::document& d) {
    out.clear();
    generator.generate(d, backend, out);
  });
  if (out.empty() || out != generated(all.back(), backend)) state.SkipWithError("another output than a new generator's");
}

void plan_all(benchmark::State& state, const std::vector<input>& all) {
  codegen::kernel_plan plan;
  over_all(state, all, [&](const input&, const device_ir::document& d) { codegen::make_plan(plan, d, d.config); });
  if (plan.nodes.empty()) state.SkipWithError("no plan");
}

/// A floor: the lookup of every node's handler, and nothing else.
void lookups_all(benchmark::State& state, const std::vector<input>& all) {
  const auto registry = muster::builtin_registry();
  const muster::backend_id triton = registry.backend_named("triton");
  std::vector<std::vector<muster::operation>> operations;
  for (const input& in : all) {
    const device_ir::document d = device_ir::parse(in.text, in.name);
    codegen::kernel_plan plan;
    codegen::make_plan(plan, d, d.config);
    auto& of = operations.emplace_back();
    for (std::size_t i = 0; i < d.nodes.size(); ++i)
      if (plan.nodes[i].known && !d.nodes[i].is_parameter) of.push_back(plan.nodes[i].op);
  }
  std::size_t found = 0;
  std::size_t at = 0;
  over_all(state, all, [&](const input&, const device_ir::document&) {
    for (const muster::operation o : operations[at++ % operations.size()]) {
      auto* const handler = registry.find(triton, o);
      found += handler != nullptr ? 1U : 0U;
      benchmark::DoNotOptimize(handler);
    }
  });
  if (found == 0) state.SkipWithError("nothing was found");
}

/// A floor: the bytes that are read and written.
void copy_all(benchmark::State& state, const std::vector<input>& all) {
  std::vector<std::string> outputs;
  for (const input& in : all) outputs.push_back(generated(in, "triton"));
  std::string buffer(std::size_t{1} << 21U, '\0');
  std::size_t at = 0;
  over_all(state, all, [&](const input& in, const device_ir::document&) {
    const std::string& out = outputs[at++ % outputs.size()];
    std::memcpy(buffer.data(), in.text.data(), in.text.size());
    std::memcpy(buffer.data() + in.text.size(), out.data(), out.size());
    benchmark::DoNotOptimize(buffer.data());
    benchmark::ClobberMemory();
  });
}

} // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::vector<input> all = inputs();
  benchmark::RegisterBenchmark("memcpy/all", copy_all, all);
  benchmark::RegisterBenchmark("handler_lookups/all", lookups_all, all);
  benchmark::RegisterBenchmark("plan/all", plan_all, all);
  for (const std::string_view backend : {"triton", "cpu"}) {
    const std::string suffix(backend);
    benchmark::RegisterBenchmark(("generate/all/" + suffix).c_str(), generate_all, all, backend);
    benchmark::RegisterBenchmark(("text_to_text/all/" + suffix).c_str(), text_to_text_all, all, backend);
  }
  for (const input& in : all) {
    if (in.name.find("tuned") != std::string::npos) continue;
    benchmark::RegisterBenchmark(("parse/" + in.name).c_str(), parse_alone, in);
    for (const std::string_view backend : {"triton", "cpu"}) {
      const std::string suffix = "/" + in.name + "/" + std::string(backend);
      benchmark::RegisterBenchmark(("text_to_text" + suffix).c_str(), text_to_text, in, backend);
      benchmark::RegisterBenchmark(("another_config" + suffix).c_str(), another_config, in, backend);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
