// Lookups in a registry of 300 operations and 6 backends, beside what else one could write, in one run. Names are looked
// up from a text buffer in random order, never through the table's own pointers; every case checks its results.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
#include <benchmark/benchmark.h>
import muster.error;
import muster.registry;
import muster.operations;

namespace {

constexpr std::size_t name_count = 300;
constexpr std::size_t backend_count = 6;
enum class op : std::uint16_t {};
using handler = int(int);

// -- 300 names as documents spell them: the API functions' long names, then ATen operations with their first overload

struct name_texts {
  char characters[name_count * 80]{};
  std::uint32_t first[name_count + 1]{};
};

constexpr name_texts texts = [] {
  name_texts all{};
  std::size_t at = 0;
  std::size_t n = 0;
  const auto append = [&](std::string_view s) {
    for (const char c : s) all.characters[at++] = c;
  };
  for (std::size_t round = 0; n < name_count; ++round)
    for (const muster::operation_information& o : muster::operation_table) {
      if (n == name_count) break;
      if (round > 0 && !o.long_name.empty()) continue;
      if (!o.long_name.empty()) {
        append(o.long_name);
      } else {
        append("torch.ops.");
        append(o.name);
        append(round == 0 ? ".default" : ".Tensor");
      }
      all.first[++n] = static_cast<std::uint32_t>(at);
    }
  return all;
}();

constexpr std::string_view name_at(std::size_t i) { return {texts.characters + texts.first[i], texts.first[i + 1] - texts.first[i]}; }

constexpr auto entries = [] {
  std::array<muster::operation_entry<op>, name_count> all{};
  for (std::size_t i = 0; i < name_count; ++i) all[i] = {static_cast<op>(i), name_at(i)};
  return all;
}();
constexpr muster::operation_set<op> operations{.more = entries};

template <std::size_t B> int handle(int x) { return x + static_cast<int>(B); }
template <std::size_t B>
constexpr auto rows = [] {
  std::array<muster::handler_row<op, handler>, name_count> all{};
  for (std::size_t i = 0; i < name_count; ++i) all[i] = {static_cast<op>(i), handle<B>};
  return all;
}();

constexpr std::array<std::string_view, backend_count> backend_names{"triton", "tileir", "pallas", "cute", "metal", "cpu"};
template <std::size_t B> constexpr muster::backend<op, handler> one_backend{.name = backend_names[B], .parts = rows<B>};
constexpr auto registry =
    muster::compose<operations, one_backend<0>, one_backend<1>, one_backend<2>, one_backend<3>, one_backend<4>, one_backend<5>>();

// -- keys: random, in buffers of their own

struct keys {
  std::vector<op> ids;
  std::vector<muster::backend_id> backends;
  std::vector<std::string> text;
  std::vector<std::string> backend_text;
  std::vector<std::string> missing;
};

const keys& random_keys() {
  static const keys all = [] {
    keys k;
    std::mt19937 random(7);
    for (std::size_t i = 0; i < 4096; ++i) {
      const std::size_t n = random() % name_count;
      const std::size_t b = random() % backend_count;
      k.ids.push_back(static_cast<op>(n));
      k.backends.push_back(static_cast<muster::backend_id>(b));
      k.text.emplace_back(name_at(n));
      k.backend_text.emplace_back(backend_names[b]);
      std::string other(name_at(n));
      other[other.size() / 2] = '#';
      k.missing.push_back(std::move(other));
    }
    return k;
  }();
  return all;
}

void require(bool ok) {
  if (!ok) std::abort();
}

/// Runs `find(i)` over the keys; what it gives must be the handler of key i, or null where `hit` is false.
template <class Find> void run(benchmark::State& state, bool hit, const Find& find) {
  const keys& k = random_keys();
  constexpr handler* expected[] = {handle<0>, handle<1>, handle<2>, handle<3>, handle<4>, handle<5>};
  for (std::size_t i = 0; i < k.ids.size(); ++i) require(find(i) == (hit ? expected[static_cast<std::size_t>(k.backends[i])] : nullptr));
  std::size_t i = 0;
  for (auto _ : state) {
    handler* h = find(i);
    benchmark::DoNotOptimize(h);
    i = (i + 1) & 4095U;
  }
}

void empty_loop(benchmark::State& state) {
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(i);
    i = (i + 1) & 4095U;
  }
}
BENCHMARK(empty_loop);

// -- by ids

void id_unchecked_array(benchmark::State& state) {
  static const auto table = [] {
    std::vector<handler*> all;
    for (std::size_t b = 0; b < backend_count; ++b)
      for (std::size_t o = 0; o < name_count; ++o) all.push_back(registry.find(static_cast<muster::backend_id>(b), static_cast<op>(o)));
    return all;
  }();
  handler* const* cells = table.data();
  benchmark::DoNotOptimize(cells);
  const keys& k = random_keys();
  run(state, true,
      [&](std::size_t i) { return cells[static_cast<std::size_t>(k.backends[i]) * name_count + static_cast<std::size_t>(k.ids[i])]; });
}
BENCHMARK(id_unchecked_array);

void id_unchecked(benchmark::State& state) {
  auto view = registry;
  benchmark::DoNotOptimize(view);
  const keys& k = random_keys();
  run(state, true, [&](std::size_t i) { return view.unchecked(k.backends[i], k.ids[i]); });
}
BENCHMARK(id_unchecked);

void id_find(benchmark::State& state) {
  auto view = registry;
  benchmark::DoNotOptimize(view);
  const keys& k = random_keys();
  run(state, true, [&](std::size_t i) { return view.find(k.backends[i], k.ids[i]); });
}
BENCHMARK(id_find);

void id_at(benchmark::State& state) {
  auto view = registry;
  benchmark::DoNotOptimize(view);
  const keys& k = random_keys();
  run(state, true, [&](std::size_t i) { return &view.at(k.backends[i], k.ids[i]); });
}
BENCHMARK(id_at);

// -- by the operation's name

void name_find(benchmark::State& state) {
  auto view = registry;
  benchmark::DoNotOptimize(view);
  const keys& k = random_keys();
  run(state, true, [&](std::size_t i) { return view.find(k.backends[i], view.operation_named(k.text[i])); });
}
BENCHMARK(name_find);

/// The floor under any lookup by name: the id is known, the key is compared.
void name_verify_floor(benchmark::State& state) {
  auto view = registry;
  benchmark::DoNotOptimize(view);
  const keys& k = random_keys();
  run(state, true, [&](std::size_t i) -> handler* {
    const std::string_view known = view.operations()[static_cast<std::size_t>(k.ids[i])].name;
    const std::string& key = k.text[i];
    if (known.size() != key.size() || !muster::detail::same_characters(known.data(), key.data(), key.size())) return nullptr;
    return view.unchecked(k.backends[i], k.ids[i]);
  });
}
BENCHMARK(name_verify_floor);

struct string_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view s) const noexcept { return std::hash<std::string_view>{}(s); }
};
template <class Value> using hash_map = std::unordered_map<std::string, Value, string_hash, std::equal_to<>>;

template <class Map> Map ids_by_name() {
  Map all;
  for (std::size_t i = 0; i < name_count; ++i) all.emplace(std::string(name_at(i)), static_cast<op>(i));
  return all;
}

template <class Map> void find_in(benchmark::State& state, bool hit, const std::vector<std::string>& text) {
  static const Map map = ids_by_name<Map>();
  auto view = registry;
  benchmark::DoNotOptimize(view);
  const keys& k = random_keys();
  run(state, hit, [&](std::size_t i) -> handler* {
    const auto found = map.find(std::string_view(text[i]));
    return found == map.end() ? nullptr : view.unchecked(k.backends[i], found->second);
  });
}

void name_unordered_map(benchmark::State& state) { find_in<hash_map<op>>(state, true, random_keys().text); }
BENCHMARK(name_unordered_map);
void name_map(benchmark::State& state) { find_in<std::map<std::string, op, std::less<>>>(state, true, random_keys().text); }
BENCHMARK(name_map);

// -- both names

void both_names_find(benchmark::State& state) {
  auto view = registry;
  benchmark::DoNotOptimize(view);
  const keys& k = random_keys();
  run(state, true, [&](std::size_t i) { return view.find(k.backend_text[i], k.text[i]); });
}
BENCHMARK(both_names_find);

void both_names_map_of_maps(benchmark::State& state) {
  static const auto map = [] {
    hash_map<hash_map<handler*>> all;
    for (std::size_t b = 0; b < backend_count; ++b)
      for (std::size_t o = 0; o < name_count; ++o)
        all[std::string(backend_names[b])].emplace(std::string(name_at(o)),
                                                   registry.find(static_cast<muster::backend_id>(b), static_cast<op>(o)));
    return all;
  }();
  const keys& k = random_keys();
  run(state, true, [&](std::size_t i) -> handler* {
    const auto row = map.find(std::string_view(k.backend_text[i]));
    if (row == map.end()) return nullptr;
    const auto cell = row->second.find(std::string_view(k.text[i]));
    return cell == row->second.end() ? nullptr : cell->second;
  });
}
BENCHMARK(both_names_map_of_maps);

// -- misses

void miss_find(benchmark::State& state) {
  auto view = registry;
  benchmark::DoNotOptimize(view);
  const keys& k = random_keys();
  run(state, false, [&](std::size_t i) { return view.find("triton", k.missing[i]); });
}
BENCHMARK(miss_find);
void miss_unordered_map(benchmark::State& state) { find_in<hash_map<op>>(state, false, random_keys().missing); }
BENCHMARK(miss_unordered_map);

void miss_at_throws(benchmark::State& state) {
  auto view = registry;
  benchmark::DoNotOptimize(view);
  for (auto _ : state) {
    bool thrown = false;
    try {
      benchmark::DoNotOptimize(&view.at(static_cast<muster::backend_id>(0), static_cast<op>(name_count)));
    } catch (const muster::UnknownOperation&) {
      thrown = true;
    }
    require(thrown);
  }
}
BENCHMARK(miss_at_throws);

} // namespace

BENCHMARK_MAIN();
