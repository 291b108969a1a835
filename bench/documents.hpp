#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
#include <benchmark/benchmark.h>
#include "../test/documents.hpp"
import muster.device_ir;

/// What the benchmarks over documents have in common.
namespace bench {

struct input {
  std::string name;
  std::string text;
  std::optional<double> peer_ms; ///< the peer's code generation alone, where it was measured
};

inline std::map<std::string, double> peer_times() {
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
inline std::vector<input> inputs() {
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

/// Whether a benchmark of its own is worth its time: not for every candidate of an autotuner.
inline bool is_shown_alone(const input& in) { return in.name.find("tuned") == std::string::npos; }

inline void report(benchmark::State& state, std::size_t nodes, std::size_t bytes) {
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

/// Calls `pass(input, its document)` for every input, again and again. With `against_peer`, and where the peer was measured on
/// all of them, says how many times faster this is than its code generation.
template <class Pass> void over_all(benchmark::State& state, const std::vector<input>& all, Pass&& pass, bool against_peer = false) {
  std::size_t nodes = 0;
  std::size_t bytes = 0;
  double peer_ms = 0;
  std::vector<muster::device_ir::document> parsed;
  for (const input& in : all) {
    parsed.push_back(muster::device_ir::parse(in.text, in.name));
    nodes += parsed.back().nodes.size();
    bytes += in.text.size();
    peer_ms += in.peer_ms.value_or(0);
    against_peer = against_peer && in.peer_ms.has_value();
  }
  const comparison against;
  for (auto _ : state)
    for (std::size_t i = 0; i < all.size(); ++i) pass(all[i], parsed[i]);
  if (against_peer) against.write(state, peer_ms);
  report(state, nodes, bytes);
}

/// The floor: the bytes that are read and written, where `outputs` (one an input) are written too.
inline void copy_all(benchmark::State& state, const std::vector<input>& all, const std::vector<std::string>& outputs) {
  std::string buffer(std::size_t{1} << 21U, '\0');
  std::size_t at = 0;
  over_all(state, all, [&](const input& in, const muster::device_ir::document&) {
    buffer.replace(0, in.text.size(), in.text);
    if (!outputs.empty()) {
      const std::string& out = outputs[at++ % outputs.size()];
      buffer.replace(in.text.size(), out.size(), out);
    }
    benchmark::DoNotOptimize(buffer.data());
    benchmark::ClobberMemory();
  });
}

} // namespace bench
