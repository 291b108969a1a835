#include <cstddef>
#include <string>
#include <string_view>
#include <vector>
#include <benchmark/benchmark.h>
#include "documents.hpp"
import muster.error;
import muster.registry;
import muster.device_ir;
import muster.operations;
import muster.codegen;
import muster.builtin;

using bench::comparison;
using bench::input;
using bench::over_all;
using bench::report;
namespace codegen = muster::codegen;
namespace device_ir = muster::device_ir;

namespace {

std::string generated(const input& in, std::string_view backend) {
  std::string out;
  muster::builtin_generator().generate(device_ir::parse(in.text, in.name), backend, out);
  return out;
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

void text_to_text_all(benchmark::State& state, const std::vector<input>& all, std::string_view backend) {
  codegen::generator generator = muster::builtin_generator();
  device_ir::document d;
  std::string out;
  over_all(
      state, all,
      [&](const input& in, const device_ir::document&) {
        device_ir::parse_into(d, in.text, in.name);
        device_ir::verify(d);
        out.clear();
        generator.generate(d, backend, out);
      },
      true);
  if (out.empty() || out != generated(all.back(), backend)) state.SkipWithError("another output than a new generator's");
}

void generate_all(benchmark::State& state, const std::vector<input>& all, std::string_view backend) {
  codegen::generator generator = muster::builtin_generator();
  std::string out;
  over_all(
      state, all,
      [&](const input&, const device_ir::document& d) {
        out.clear();
        generator.generate(d, backend, out);
      },
      true);
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

} // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::vector<input> all = bench::inputs();
  std::vector<std::string> outputs;
  for (const input& in : all) outputs.push_back(generated(in, "triton"));
  benchmark::RegisterBenchmark("memcpy/all", bench::copy_all, all, outputs);
  benchmark::RegisterBenchmark("handler_lookups/all", lookups_all, all);
  benchmark::RegisterBenchmark("plan/all", plan_all, all);
  for (const std::string_view backend : {"triton", "cpu"}) {
    const std::string suffix(backend);
    benchmark::RegisterBenchmark(("generate/all/" + suffix).c_str(), generate_all, all, backend);
    benchmark::RegisterBenchmark(("text_to_text/all/" + suffix).c_str(), text_to_text_all, all, backend);
  }
  for (const input& in : all) {
    if (!bench::is_shown_alone(in)) continue;
    for (const std::string_view backend : {"triton", "cpu"}) {
      const std::string suffix = "/" + in.name + "/" + std::string(backend);
      benchmark::RegisterBenchmark(("text_to_text" + suffix).c_str(), text_to_text, in, backend);
      benchmark::RegisterBenchmark(("another_config" + suffix).c_str(), another_config, in, backend);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
