// PyTorch's own lookup of an operator by its name, in a dispatcher that holds its own operators and 1,000 more, beside muster's.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <ATen/core/dispatch/Dispatcher.h>
#include <benchmark/benchmark.h>
#include "../measure.hpp"
#include "keys.hpp"
#include LITERALS
import muster.error;
import muster.registry;

namespace {

using bench::key_count;
using bench::keys;
using bench::order;

#define VIEW(number, text) std::string_view(text),
constexpr std::array<std::string_view, 1000> names{EACH_NAME(VIEW)};
#undef VIEW

enum class op : std::uint16_t {};
using handler = int();
template <std::size_t K> int handle() { return K; }
constexpr auto handlers = []<std::size_t... K>(std::index_sequence<K...>) {
  return std::array<handler*, sizeof...(K)>{handle<K>...};
}(std::make_index_sequence<61>());
constexpr auto entries = [] {
  std::array<muster::operation_entry<op>, names.size()> all{};
  for (std::size_t i = 0; i < names.size(); ++i) all[i] = {static_cast<op>(i), names[i]};
  return all;
}();
constexpr muster::operation_set<op> operations{.more = entries};
constexpr auto rows = [] {
  std::array<muster::handler_row<op, handler>, names.size()> all{};
  for (std::size_t i = 0; i < names.size(); ++i) all[i] = {static_cast<op>(i), handlers[i % handlers.size()]};
  return all;
}();
constexpr muster::backend<op, handler> backend{.name = "torch", .parts = rows};
constexpr auto registry = muster::compose<operations, backend>();
constexpr std::array<std::string_view, 1> backend_names{"torch"};

/// PyTorch names an operator `namespace::name`.
c10::OperatorName torch_name(std::string_view name) { return {"muster::" + std::string(name), ""}; }

struct registered {
  std::vector<c10::RegistrationHandleRAII> handles;
  registered() {
    for (const std::string_view name : names) {
      c10::OperatorName full = torch_name(name);
      handles.push_back(c10::Dispatcher::singleton().registerDef(c10::FunctionSchema(full.name, full.overload_name, {}, {}), "bench"));
    }
  }
};

/// What is looked up: made before, since PyTorch's lookup takes a name of its own kind.
std::vector<c10::OperatorName> torch_names(const keys& k) {
  std::vector<c10::OperatorName> all;
  for (const std::string_view name : k.names) all.push_back(torch_name(name));
  return all;
}

/// Adds what `find(i)` gives for key `i`; `right(i, found)` says whether that is it.
template <class Find, class Right>
void add(std::vector<bench::subject>& all, const char* who, order o, const Find& find, const Right& right) {
  constexpr const char* orders[] = {"hot", "random", "miss"};
  all.push_back({std::string("dispatcher/1000/") + orders[static_cast<std::size_t>(o)] + "/" + who, key_count,
                 [=] {
                   for (std::size_t i = 0; i < key_count; ++i)
                     if (!right(i, find(i))) return false;
                   return true;
                 },
                 [=] {
                   for (std::size_t i = 0; i < key_count; ++i) {
                     auto found = find(i);
                     benchmark::DoNotOptimize(found);
                   }
                 }});
}

void add_all(std::vector<bench::subject>& all, order o, keys& k, std::vector<c10::OperatorName>& k_torch) {
  bench::choose(k, o, names, backend_names);
  k_torch = torch_names(k);
  auto view = registry;
  benchmark::DoNotOptimize(view);
  add(
      all, "muster", o, [&k, view](std::size_t i) { return view.find(muster::backend_id{}, k.names[i]); },
      [&k, o](std::size_t i, handler* found) {
        return found == (o == order::miss ? nullptr : handlers[k.operations[i] % handlers.size()]);
      });
  add(
      all, "c10::Dispatcher::findOp", o, [&k_torch](std::size_t i) { return c10::Dispatcher::singleton().findOp(k_torch[i]); },
      [&k_torch, o](std::size_t i, const auto& found) {
        return found.has_value() == (o != order::miss) && (!found || found->operator_name() == k_torch[i]);
      });
}

} // namespace

int main(int argc, char** argv) {
  const registered all_registered;
  std::array<keys, 3> chosen;
  std::array<std::vector<c10::OperatorName>, 3> chosen_torch;
  std::vector<bench::subject> all;
  for (const order o : {order::hot, order::random, order::miss})
    add_all(all, o, chosen[static_cast<std::size_t>(o)], chosen_torch[static_cast<std::size_t>(o)]);
  return bench::measure(all, argc, argv);
}
