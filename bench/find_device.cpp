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
#include "measure.hpp"
import muster.error;
import muster.launch;

// find_device on its six cases and more, each three ways: the library; the same arguments as a tree of std::variant, searched by a plain
// recursive function; and the floor, a walk that reads each view up to the answer, as fast as the compiler can, and decides nothing.

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

// ---- the subjects ----

constexpr std::size_t calls = 64;

/// Calls `search(views)` for views of which the compiler knows nothing; it must give the answer.
template <class Search, class Answer>
bench::subject over_views(std::string name, std::span<const argument> views, const Search& search, const Answer& answer) {
  return {std::move(name), calls, [=] { return search(views) == answer; },
          [=] {
            const argument* data = views.data();
            std::size_t size = views.size();
            for (std::size_t i = 0; i < calls; ++i) {
              benchmark::DoNotOptimize(data);
              benchmark::DoNotOptimize(size);
              auto found = search(std::span(data, size));
              benchmark::DoNotOptimize(found);
            }
          }};
}

bench::subject over_tree(std::string name, const values& all, const std::optional<device>& answer) {
  return {std::move(name), calls, [&all, answer] { return find_in(all) == answer; },
          [&all] {
            const values* tree = &all;
            for (std::size_t i = 0; i < calls; ++i) {
              benchmark::DoNotOptimize(tree);
              std::optional<device> found = find_in(*tree);
              benchmark::DoNotOptimize(found);
            }
          }};
}

/// The form whose search the compiler does.
bench::subject over_typed_arguments() {
  const auto search = [] {
    tensor last = a_tensor;
    std::int64_t number = 7;
    benchmark::DoNotOptimize(last);
    benchmark::DoNotOptimize(number);
    return muster::find_device(number, std::tuple(2.5, number), &last);
  };
  return {"find_device/typed arguments/muster", calls, [search] { return search() == expected; },
          [search] {
            for (std::size_t i = 0; i < calls; ++i) {
              device found = search();
              benchmark::DoNotOptimize(found);
            }
          }};
}

unsigned read_all(std::span<const argument> views) {
  unsigned kinds = 0;
  for (const argument& one : views) kinds |= std::bit_cast<std::array<unsigned char, sizeof(argument)>>(one)[0];
  return kinds;
}

void add_case(std::vector<bench::subject>& all, const benchmark_case& c) {
  const std::string prefix = "/" + std::string(c.name) + "/";
  const std::span<const argument> views(c.args.views.data(), c.args.views.size());
  // The throwing form where there is something to find: it is what a launcher calls.
  if (c.answer) {
    all.push_back(over_views("find_device" + prefix + "muster", views, [](auto v) { return muster::find_device(v); }, *c.answer));
    all.push_back(over_views("launch_device" + prefix + "muster", views, [](auto v) { return muster::launch_device(v); }, *c.answer));
  } else {
    all.push_back(over_views("find_device" + prefix + "muster", views, [](auto v) { return muster::try_find_device(v); }, c.answer));
  }
  all.push_back(over_tree("find_device" + prefix + "std::variant tree", c.args.tree, c.answer));
  all.push_back(over_views("find_device" + prefix + "every view read", c.args.floor, read_all, read_all(c.args.floor)));
}

} // namespace

int main(int argc, char** argv) {
  arguments first = scalars_then_tensor(0, true);
  for (int i = 0; i < 3; ++i) add_scalar(first, i);
  first.floor.resize(1);
  const std::array cases{
      benchmark_case{"first", std::move(first), expected},
      benchmark_case{"last of 16", scalars_then_tensor(15, true), expected},
      benchmark_case{"nested 5 deep", nested(5), expected},
      benchmark_case{"dict of 64", dict_then_tensor(64), expected},
      benchmark_case{"list of 1000", list_then_tensor(1000, false), expected},
      benchmark_case{"typed span of 1000", list_then_tensor(1000, true), expected},
      benchmark_case{"none", scalars_then_tensor(16, false), std::nullopt},
      benchmark_case{"last of 4096", scalars_then_tensor(4095, true), expected}, // against `last of 16`: the cost of a scalar
  };
  std::vector<bench::subject> all;
  for (const benchmark_case& c : cases) add_case(all, c);
  all.push_back(over_typed_arguments());
  return bench::measure(all, argc, argv);
}
