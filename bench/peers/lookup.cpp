// Lookups by ids, by an operation's name and by both names, in muster and in what else one could write. Compiled once for each size,
// NAMES operations and BACKENDS backends.
#include "lookup.hpp"
#include LITERALS
#ifdef CASES
#include BACKEND_CASES
#include CASES
#define EACH_OF_(count) EACH_OF_##count
#define EACH_OF(count) EACH_OF_(count)
#endif
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>
#include <benchmark/benchmark.h>
#include "keys.hpp"
#ifdef HAS_ABSL
#include <absl/container/flat_hash_map.h>
#endif
#ifdef HAS_BOOST
#include <boost/unordered/unordered_flat_map.hpp>
#endif
#ifdef HAS_FROZEN
#include "frozen.hpp"
#endif
#ifdef HAS_LLVM
#include <llvm/ADT/StringMap.h>
#endif
#ifdef HAS_TVM_FFI
#include <tvm/ffi/c_api.h>
#endif
#ifdef HAS_GPERF
namespace {
#include GPERF
}
#endif
import muster.error;
import muster.registry;

namespace {

using bench::key_count;
using bench::keys;
using bench::order;

enum class op : std::uint16_t {};
using handler = int(int);

#define VIEW(number, text) std::string_view(text),
constexpr std::array<std::string_view, NAMES> names{EACH_NAME(VIEW)};
#undef VIEW

/// Those of the library's own composition, then invented ones.
constexpr std::array<std::string_view, 32> all_backend_names{
    "triton", "tileir", "pallas",    "cute",    "metal",  "cpu",    "triton_rocm", "triton_xpu",  "cuda",      "rocm",    "vulkan",
    "opencl", "webgpu", "levelzero", "hexagon", "ascend", "neuron", "gaudi",       "tpu",         "mosaic",    "cutlass", "cudnn",
    "onednn", "llvm",   "mlir",      "spirv",   "ptx",    "amdgcn", "wasm",        "interpreter", "reference", "null"};
constexpr std::span<const std::string_view, BACKENDS> backend_names(all_backend_names.data(), BACKENDS);

// -- the handlers: neighbouring cells differ, so that no table can be computed

constexpr std::size_t handlers_each = 61;
template <std::size_t B, std::size_t K> int handle(int x) { return x + static_cast<int>(B * handlers_each + K); }
template <std::size_t B>
constexpr auto handlers = []<std::size_t... K>(std::index_sequence<K...>) {
  return std::array<handler*, handlers_each>{handle<B, K>...};
}(std::make_index_sequence<handlers_each>());

// -- muster

constexpr auto entries = [] {
  std::array<muster::operation_entry<op>, NAMES> all{};
  for (std::size_t i = 0; i < NAMES; ++i) all[i] = {static_cast<op>(i), names[i]};
  return all;
}();
constexpr muster::operation_set<op> operations{.more = entries};

template <std::size_t B>
constexpr auto rows = [] {
  std::array<muster::handler_row<op, handler>, NAMES> all{};
  for (std::size_t i = 0; i < NAMES; ++i) all[i] = {static_cast<op>(i), handlers<B>[i % handlers_each]};
  return all;
}();
template <std::size_t B> constexpr muster::backend<op, handler> one_backend{.name = backend_names[B], .parts = rows<B>};
constexpr auto registry = []<std::size_t... B>(std::index_sequence<B...>) {
  return muster::compose<operations, one_backend<B>...>();
}(std::make_index_sequence<BACKENDS>());

// -- what else holds the handlers themselves

/// One table with ids known to the compiler.
constexpr auto cells = []<std::size_t... B>(std::index_sequence<B...>) {
  std::array<std::array<handler*, NAMES>, BACKENDS> all{};
  ((std::ranges::transform(rows<B>, all[B].begin(), [](const auto& row) { return row.handler; })), ...);
  return all;
}(std::make_index_sequence<BACKENDS>());

#ifdef CASES
template <std::size_t B> handler* in_backend(std::size_t o) {
  switch (o) {
#define CASE(number)                                                                                                                       \
  case number: return handle<B, (number) % handlers_each>;
    EACH_OF(NAMES)(CASE)
#undef CASE
        default : return nullptr;
  }
}
handler* in_switch(std::size_t b, std::size_t o) {
  switch (b) {
#define CASE(number)                                                                                                                       \
  case number: return in_backend<number>(o);
    EACH_OF(BACKENDS)(CASE)
#undef CASE
        default : return nullptr;
  }
}
#endif

// -- maps from names

struct string_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view s) const noexcept { return std::hash<std::string_view>{}(s); }
};
/// muster's own hash, to tell what is the table's merit and what the hash's.
struct muster_hash {
  using is_transparent = void;
  using is_avalanching = void;
  std::size_t operator()(std::string_view s) const noexcept { return muster::detail::hash_tail(s); }
};

/// A kind of map: its type for values of a type, and what a name is looked up as.
struct kind_of_map {
  static std::string_view key(std::string_view name) { return name; }
};
struct std_unordered_map : kind_of_map {
  static constexpr const char* name = "std::unordered_map";
  template <class Value> using map = std::unordered_map<std::string, Value, string_hash, std::equal_to<>>;
};
struct std_map : kind_of_map {
  static constexpr const char* name = "std::map";
  template <class Value> using map = std::map<std::string, Value, std::less<>>;
};
#ifdef HAS_ABSL
struct absl_flat_hash_map {
  static constexpr const char* name = "absl::flat_hash_map";
  template <class Value> using map = absl::flat_hash_map<std::string, Value>;
  static absl::string_view key(std::string_view name) { return {name.data(), name.size()}; }
};
#endif
#ifdef HAS_BOOST
struct boost_unordered_flat_map : kind_of_map {
  static constexpr const char* name = "boost::unordered_flat_map";
  template <class Value> using map = boost::unordered_flat_map<std::string, Value, string_hash, std::equal_to<>>;
};
struct boost_with_muster_hash : kind_of_map {
  static constexpr const char* name = "boost::unordered_flat_map, muster's hash";
  template <class Value> using map = boost::unordered_flat_map<std::string, Value, muster_hash, std::equal_to<>>;
};
#endif
#ifdef HAS_LLVM
struct llvm_string_map {
  static constexpr const char* name = "llvm::StringMap";
  template <class Value> using map = llvm::StringMap<Value>;
  static llvm::StringRef key(std::string_view name) { return {name.data(), name.size()}; }
};
#endif

template <class Visit> void each_kind_of_map(const Visit& visit) {
  visit(std_unordered_map());
  visit(std_map());
#ifdef HAS_ABSL
  visit(absl_flat_hash_map());
#endif
#ifdef HAS_BOOST
  visit(boost_unordered_flat_map());
  visit(boost_with_muster_hash());
#endif
#ifdef HAS_LLVM
  visit(llvm_string_map());
#endif
}

#ifdef HAS_TVM_FFI
/// Functions under the names, in TVM FFI's table, of which a process has one: with the names of all sizes, then.
class tvm_functions {
public:
  tvm_functions() {
    for (const std::string_view name : names) {
      TVMFFIObjectHandle made = nullptr;
      const TVMFFIByteArray key{name.data(), name.size()};
      const auto call = [](void*, const TVMFFIAny*, std::int32_t, TVMFFIAny*) { return 0; };
      if (TVMFFIFunctionGetGlobal(&key, &made) != 0) std::abort();
      if (made == nullptr && (TVMFFIFunctionCreate(nullptr, call, nullptr, &made) != 0 || TVMFFIFunctionSetGlobal(&key, made, 0) != 0))
        std::abort();
      made_.push_back(made);
    }
  }
  /// Whether the function of `name` is number `expected`, and whether there is one.
  std::pair<bool, bool> find(std::string_view name, std::size_t expected) const {
    TVMFFIObjectHandle found = nullptr;
    const TVMFFIByteArray key{name.data(), name.size()};
    if (TVMFFIFunctionGetGlobal(&key, &found) != 0 || found == nullptr) return {false, false};
    const bool same = found == made_[expected];
    TVMFFIObjectDecRef(found);
    return {same, true};
  }

private:
  std::vector<TVMFFIObjectHandle> made_;
};
#endif

// -- the subjects

handler* handler_of(std::size_t b, std::size_t o) { return cells[b][o]; }

/// Adds what `find(i)` gives for key `i`: it must be the handler, or null where no name is there.
template <class Find>
void add(std::vector<bench::subject>& all, const std::string& table, const char* who, order o, const keys& k, const Find& find) {
  constexpr const char* orders[] = {"hot", "random", "miss"};
  bench::subject s;
  s.name = table + "/" + std::to_string(NAMES) + "x" + std::to_string(BACKENDS) + "/" + orders[static_cast<std::size_t>(o)] + "/" + who;
  s.calls = key_count;
  s.right = [find, o, &k] {
    for (std::size_t i = 0; i < key_count; ++i)
      if (find(i) != (o == order::miss ? nullptr : handler_of(k.backends[i], k.operations[i]))) return false;
    return true;
  };
  s.pass = [find] {
    for (std::size_t i = 0; i < key_count; ++i) {
      handler* h = find(i);
      benchmark::DoNotOptimize(h);
    }
  };
  all.push_back(std::move(s));
}

/// A view of the registry of which the compiler does not know that it is constant, as of one that another library exports.
auto unknown_view() {
  auto view = registry;
  benchmark::DoNotOptimize(view);
  return view;
}

void add_by_ids(std::vector<bench::subject>& all, order o, const keys& k) {
  const auto view = unknown_view();
  const auto ids = [&k](std::size_t i) {
    return std::pair(static_cast<muster::backend_id>(k.backends[i]), static_cast<op>(k.operations[i]));
  };
  add(all, "ids", "muster, unchecked", o, k, [=](std::size_t i) { return view.unchecked(ids(i).first, ids(i).second); });
  add(all, "ids", "muster, checked (null)", o, k, [=](std::size_t i) { return view.find(ids(i).first, ids(i).second); });
  add(all, "ids", "muster, checked (throws)", o, k, [=](std::size_t i) { return &view.at(ids(i).first, ids(i).second); });
  add(all, "ids", "raw array", o, k, [&k](std::size_t i) { return cells[k.backends[i]][k.operations[i]]; });
#ifdef CASES
  add(all, "ids", "switch", o, k, [&k](std::size_t i) { return in_switch(k.backends[i], k.operations[i]); });
#endif
}

void add_by_operation_name(std::vector<bench::subject>& all, order o, const keys& k) {
  const auto view = unknown_view();
  const auto cell = [&k, view](std::size_t i, std::size_t operation) {
    return view.unchecked(static_cast<muster::backend_id>(k.backends[i]), static_cast<op>(operation));
  };
  add(all, "operation name", "muster", o, k,
      [&k, view](std::size_t i) { return view.find(static_cast<muster::backend_id>(k.backends[i]), k.names[i]); });
  add(all, "operation name", "muster, table known to the compiler", o, k,
      [&k](std::size_t i) { return registry.find(static_cast<muster::backend_id>(k.backends[i]), k.names[i]); });
  // The floor under any lookup by name: the id is known, the name is compared.
  add(all, "operation name", "id known, name compared", o, k, [&k, view, cell](std::size_t i) -> handler* {
    const std::string_view known = view.operations()[k.operations[i]].name;
    const std::string_view name = k.names[i];
    if (known.size() != name.size() || !muster::detail::same_characters(known.data(), name.data(), name.size())) return nullptr;
    return cell(i, k.operations[i]);
  });
  each_kind_of_map([&]<class Kind>(Kind) {
    const auto map = std::make_shared<typename Kind::template map<std::uint16_t>>();
    for (std::size_t n = 0; n < NAMES; ++n) (*map)[std::string(names[n])] = static_cast<std::uint16_t>(n);
    add(all, "operation name", Kind::name, o, k, [&k, map, cell](std::size_t i) -> handler* {
      const auto found = std::as_const(*map).find(Kind::key(k.names[i]));
      return found == std::as_const(*map).end() ? nullptr : cell(i, found->second);
    });
  });
#ifdef HAS_FROZEN
  const auto& frozen_ids = frozen_map<NAMES>();
  add(all, "operation name", "frozen::unordered_map", o, k, [&k, &frozen_ids, cell](std::size_t i) -> handler* {
    const auto found = frozen_ids.find(frozen::string(k.names[i].data(), k.names[i].size()));
    return found == frozen_ids.end() ? nullptr : cell(i, found->second);
  });
#endif
#ifdef HAS_GPERF
  add(all, "operation name", "gperf", o, k, [&k, cell](std::size_t i) -> handler* {
    const gperf_entry* const found = GPERF_CLASS::find(k.names[i].data(), k.names[i].size());
    return found == nullptr ? nullptr : cell(i, found->id);
  });
#endif
#ifdef HAS_TVM_FFI
  static const auto functions = std::make_shared<tvm_functions>();
  add(all, "operation name", "TVM FFI GetGlobal", o, k, [&k, cell](std::size_t i) -> handler* {
    const auto [same, found] = functions->find(k.names[i], k.operations[i]);
    return same ? cell(i, k.operations[i]) : found ? handler_of(0, 0) : nullptr;
  });
#endif
}

void add_by_both_names(std::vector<bench::subject>& all, order o, const keys& k) {
  const auto view = unknown_view();
  add(all, "both names", "muster", o, k, [&k, view](std::size_t i) { return view.find(k.backend_names[i], k.names[i]); });
  each_kind_of_map([&]<class Kind>(Kind) {
    const auto map = std::make_shared<typename Kind::template map<typename Kind::template map<handler*>>>();
    for (std::size_t b = 0; b < BACKENDS; ++b)
      for (std::size_t n = 0; n < NAMES; ++n) (*map)[std::string(backend_names[b])][std::string(names[n])] = handler_of(b, n);
    add(all, "both names", Kind::name, o, k, [&k, map](std::size_t i) -> handler* {
      const auto row = std::as_const(*map).find(Kind::key(k.backend_names[i]));
      if (row == std::as_const(*map).end()) return nullptr;
      const auto cell = std::as_const(row->second).find(Kind::key(k.names[i]));
      return cell == std::as_const(row->second).end() ? nullptr : cell->second;
    });
  });
}

} // namespace

template <> void add_lookups<NAMES, BACKENDS>(std::vector<bench::subject>& all) {
  for (const order o : {order::hot, order::random, order::miss}) {
    static std::array<keys, 3> chosen;
    keys& k = chosen[static_cast<std::size_t>(o)];
    bench::choose(k, o, names, backend_names);
    if (o != order::miss) add_by_ids(all, o, k);
    add_by_operation_name(all, o, k);
    add_by_both_names(all, o, k);
  }
}
