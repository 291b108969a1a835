#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>
#include <benchmark/benchmark.h>
import muster.error;
import muster.launch;

// find_device on the six cases of PERFORMANCE.md, each three ways: the library; the same arguments as a tree of std::variant, searched by a
// plain recursive function; and the floor, a walk that reads each view up to the answer, as fast as the compiler can, and decides nothing.
// Every run checks its answer.

namespace {

using muster::argument;
using muster::device;

struct tensor { // laid out as DLPack's
  void* data;
  struct {
    std::int32_t device_type;
    std::int32_t device_id;
  } device;
  std::int32_t ndim;
  std::int64_t* shape;
};

constexpr device expected{muster::device_type::cuda, 1};
constexpr tensor a_tensor{nullptr, {2, 1}, 1, nullptr};

// ---- the peer: a tree of std::variant ----

struct value;
using values = std::vector<value>;
using named_values = std::map<std::string, value>;
struct value : std::variant<std::monostate, bool, std::int64_t, double, std::string, tensor, device, values, named_values> {
  using variant::variant;
};

std::optional<device> find_in(const value& one);

std::optional<device> find_in(const values& all) {
  for (const value& one : all)
    if (const std::optional<device> found = find_in(one)) return found;
  return std::nullopt;
}

std::optional<device> find_in(const named_values& all) {
  for (const auto& [name, one] : all)
    if (const std::optional<device> found = find_in(one)) return found;
  return std::nullopt;
}

std::optional<device> find_in(const value& one) {
  if (const auto* found = std::get_if<tensor>(&one)) return muster::to_device(found->device);
  if (const auto* found = std::get_if<device>(&one)) return *found;
  if (const auto* items = std::get_if<values>(&one)) return find_in(*items);
  if (const auto* items = std::get_if<named_values>(&one)) return find_in(*items);
  return std::nullopt;
}

// ---- the cases ----

struct arguments {
  muster::argument_list views;
  values tree;
  std::vector<argument> floor; // every view up to the answer, in one array
};

void add_scalar(arguments& args, int i) {
  switch (i % 4) {
  case 0: args.views.add(i), args.tree.emplace_back(std::int64_t{i}); break;
  case 1: args.views.add(i * 0.5), args.tree.emplace_back(i * 0.5); break;
  case 2: args.views.add("relu"), args.tree.emplace_back(std::string("relu")); break;
  default: args.views.add(nullptr), args.tree.emplace_back(std::monostate()); break;
  }
}

void add_tensor(arguments& args) {
  args.views.add(a_tensor);
  args.tree.emplace_back(a_tensor);
}

arguments scalars_then_tensor(int scalars, bool tensor) {
  arguments args;
  for (int i = 0; i < scalars; ++i) add_scalar(args, i);
  if (tensor) add_tensor(args);
  args.floor.resize(args.views.size());
  return args;
}

arguments nested(int depth) { // each level: two scalars, then the next
  arguments inner = scalars_then_tensor(2, true);
  for (int i = 0; i < depth; ++i) {
    arguments outer = scalars_then_tensor(2, false);
    outer.views.add_list(std::move(inner.views));
    outer.tree.emplace_back(std::move(inner.tree));
    inner = std::move(outer);
  }
  inner.floor.resize(3 * (static_cast<std::size_t>(depth) + 1));
  return inner;
}

arguments dict_then_tensor(int size) {
  arguments args;
  muster::argument_list keys;
  arguments items;
  named_values named;
  for (int i = 0; i < size; ++i) {
    const std::string key = "parameter_" + std::to_string(i);
    keys.add(key);
    add_scalar(items, i);
    named.emplace(key, items.tree.back());
  }
  args.views.add_dict(keys, items.views);
  args.tree.emplace_back(std::move(named));
  add_tensor(args);
  args.floor.resize(static_cast<std::size_t>(size) + 2);
  return args;
}

arguments list_then_tensor(int size, bool typed) {
  arguments args;
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(size), 7);
  muster::argument_list items;
  values tree;
  for (const std::int64_t number : numbers) items.add(number), tree.emplace_back(number);
  if (typed) args.views.add(numbers);
  else args.views.add_list(items);
  args.tree.emplace_back(std::move(tree));
  add_tensor(args);
  args.floor.resize(typed ? 2 : static_cast<std::size_t>(size) + 2);
  return args;
}

struct benchmark_case {
  const char* name;
  arguments args;
  std::optional<device> answer;
};

// ---- timing ----

void time_views(benchmark::State& state, const benchmark_case& c) {
  const argument* data = c.args.views.data();
  std::size_t size = c.args.views.size();
  if (muster::try_find_device(std::span(data, size)) != c.answer) state.SkipWithError("wrong answer");
  if (!c.answer) {
    for (auto _ : state) {
      benchmark::DoNotOptimize(data);
      benchmark::DoNotOptimize(size);
      std::optional<device> found = muster::try_find_device(std::span(data, size));
      benchmark::DoNotOptimize(found);
    }
    return;
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(data);
    benchmark::DoNotOptimize(size);
    device found = muster::find_device(std::span(data, size));
    benchmark::DoNotOptimize(found);
  }
}

void time_variant(benchmark::State& state, const benchmark_case& c) {
  const values* tree = &c.args.tree;
  if (find_in(*tree) != c.answer) state.SkipWithError("wrong answer");
  for (auto _ : state) {
    benchmark::DoNotOptimize(tree);
    std::optional<device> found = find_in(*tree);
    benchmark::DoNotOptimize(found);
  }
}

void time_floor(benchmark::State& state, const benchmark_case& c) {
  const argument* data = c.args.floor.data();
  std::size_t size = c.args.floor.size();
  for (auto _ : state) {
    benchmark::DoNotOptimize(data);
    benchmark::DoNotOptimize(size);
    unsigned kinds = 0;
    for (const argument& one : std::span(data, size)) kinds |= std::bit_cast<std::array<unsigned char, sizeof(argument)>>(one)[0];
    benchmark::DoNotOptimize(kinds);
  }
}

/// Nanoseconds a skipped scalar: the slope between 16 and 4,096 scalars is the figure, this shows both ends.
void time_scalars(benchmark::State& state) {
  const arguments args = scalars_then_tensor(static_cast<int>(state.range(0)), true);
  const argument* data = args.views.data();
  std::size_t size = args.views.size();
  for (auto _ : state) {
    benchmark::DoNotOptimize(data);
    benchmark::DoNotOptimize(size);
    device found = muster::find_device(std::span(data, size));
    benchmark::DoNotOptimize(found);
    if (found != expected) state.SkipWithError("wrong answer");
  }
  state.counters["ns/scalar"] = benchmark::Counter(static_cast<double>(state.range(0)) * 1e-9,
                                                   benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void time_typed(benchmark::State& state) {
  tensor last = a_tensor;
  std::int64_t number = 7;
  for (auto _ : state) {
    benchmark::DoNotOptimize(last);
    benchmark::DoNotOptimize(number);
    device found = muster::find_device(number, std::tuple(2.5, number), &last);
    benchmark::DoNotOptimize(found);
    if (found != expected) state.SkipWithError("wrong answer");
  }
}

void time_launch(benchmark::State& state, const benchmark_case& c) {
  const argument* data = c.args.views.data();
  std::size_t size = c.args.views.size();
  for (auto _ : state) {
    benchmark::DoNotOptimize(data);
    benchmark::DoNotOptimize(size);
    device found = muster::launch_device(std::span(data, size));
    benchmark::DoNotOptimize(found);
    if (found != expected) state.SkipWithError("wrong answer");
  }
}

} // namespace

int main(int argc, char** argv) {
  arguments first = scalars_then_tensor(0, true);
  for (int i = 0; i < 3; ++i) add_scalar(first, i);
  first.floor.resize(1);
  const std::array cases{
      benchmark_case{"first", std::move(first), expected},
      benchmark_case{"last_of_16", scalars_then_tensor(15, true), expected},
      benchmark_case{"nested_5", nested(5), expected},
      benchmark_case{"dict_64", dict_then_tensor(64), expected},
      benchmark_case{"list_1000", list_then_tensor(1000, false), expected},
      benchmark_case{"none", scalars_then_tensor(16, false), std::nullopt},
      benchmark_case{"typed_span_1000", list_then_tensor(1000, true), expected},
  };
  for (const benchmark_case& c : cases) {
    const std::string name = std::string("find_device/") + c.name;
    benchmark::RegisterBenchmark((name + "/muster").c_str(), time_views, c);
    benchmark::RegisterBenchmark((name + "/variant_tree").c_str(), time_variant, c);
    benchmark::RegisterBenchmark((name + "/floor").c_str(), time_floor, c);
    if (c.answer) benchmark::RegisterBenchmark((std::string("launch_device/") + c.name + "/muster").c_str(), time_launch, c);
  }
  benchmark::RegisterBenchmark("find_device/scalars", time_scalars)->Arg(16)->Arg(256)->Arg(4096);
  benchmark::RegisterBenchmark("find_device/typed_arguments", time_typed);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
