#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>
#include <doctest/doctest.h>
import muster.error;
import muster.registry;

namespace {

enum class op : std::uint16_t { load, store, dot, full, exp };
struct node {
  int value = 0;
};
using handler = std::string(const node&);

std::string store_common(const node&) { return "common store"; }
std::string full_common(const node&) { return "common full"; }
std::string load_triton(const node&) { return "triton load"; }
std::string dot_triton(const node&) { return "triton dot"; }
std::string full_triton(const node&) { return "triton full"; }
std::string load_metal(const node&) { return "metal load"; }
std::string dot_tileir(const node&) { return "tileir dot"; }

constexpr muster::operation_set<op> operations{{{op::load, "load", muster::operation_family::api, "helion_language_memory_ops_load"},
                                                {op::store, "store"},
                                                {op::dot, "dot"},
                                                {op::full, "full"},
                                                {op::exp, "aten.exp.default", muster::operation_family::aten}}};
constexpr muster::backend<op, handler> common{.name = "common", .handlers = {{op::store, store_common}, {op::full, full_common}}};
constexpr std::string_view triton_parameters[] = {"grid", "num_warps"};
constexpr muster::backend<op, handler> triton{.name = "triton",
                                              .handlers = {{op::load, load_triton}, {op::dot, dot_triton}, {op::full, full_triton}},
                                              .reserved_launch_parameters = triton_parameters};
constexpr muster::backend<op, handler> tileir{.name = "tileir", .codegen_name = "triton", .handlers = {{op::dot, dot_tileir}}};
constexpr muster::backend<op, handler> metal{.name = "metal", .handlers = {{op::load, load_metal}}, .experimental = true};
constexpr muster::left_out others{{"pallas", "cute"}};
constexpr auto registry = muster::compose<operations, common, triton, tileir, metal, others>();

using muster::provenance;

// Initialised before main, from another translation unit's point of view: constant data, so nothing to wait for.
const std::string before_main = registry.at("triton", op::load)(node{});
constinit handler* const constant_initialised = registry.find("metal", op::load);
static_assert(registry.find("metal", op::dot) == nullptr);
static_assert(registry.find("triton", "load") == &load_triton);
static_assert(std::is_trivially_copyable_v<std::remove_cvref_t<decltype(registry)>>);

} // namespace

TEST_CASE("registry: own before inherited before common before missing, each cell says which (B27, B35)") {
  const auto check = [](std::string_view backend, op o, handler* expected, provenance from) {
    CAPTURE(backend);
    CHECK((registry.find(backend, o) == expected));
    CHECK(registry.cell(backend, o).provenance == from);
  };
  check("triton", op::load, load_triton, provenance::own);
  check("triton", op::full, full_triton, provenance::own);
  check("triton", op::store, store_common, provenance::common);
  check("tileir", op::load, load_triton, provenance::inherited);
  check("tileir", op::full, full_triton, provenance::inherited);
  check("tileir", op::dot, dot_tileir, provenance::own);
  check("metal", op::load, load_metal, provenance::own);
  check("metal", op::full, full_common, provenance::common);
  check("metal", op::dot, nullptr, provenance::missing);
  check("triton", op::exp, nullptr, provenance::missing);
  check("vulkan", op::load, nullptr, provenance::missing);
  CHECK(name(provenance::inherited) == "inherited");
}

TEST_CASE("registry: lookups by ids, by names and by aliases agree") {
  for (std::size_t b = 0; b < registry.backends().size(); ++b)
    for (const auto& o : registry.operations()) {
      const auto id = static_cast<muster::backend_id>(b);
      handler* const h = registry.find(id, o.id);
      CHECK((registry.unchecked(id, o.id) == h));
      CHECK((registry.find(registry.backends()[b].name, o.id) == h));
      CHECK((registry.find(registry.backends()[b].name, o.name) == h));
      CHECK((registry.find(id, o.name) == h));
      CHECK((registry.cell(id, o.name).provenance == registry.cell(id, o.id).provenance));
      if (!o.alias.empty()) CHECK((registry.find(registry.backends()[b].name, o.alias) == h));
      if (!o.alias.empty()) CHECK((registry.find(id, o.alias) == h));
      if (h != nullptr) CHECK((&registry.at(id, o.id) == h));
      if (h != nullptr) CHECK((&registry.at(id, o.name) == h));
    }
  CHECK(registry.at("metal", "helion_language_memory_ops_load")(node{}) == "metal load");
  CHECK(registry.operation_named("aten.exp.default") == op::exp);
  CHECK(before_main == "triton load");
  CHECK((constant_initialised == load_metal));
  CHECK((registry.find(static_cast<muster::backend_id>(99), op::load) == nullptr));
  CHECK((registry.find(static_cast<muster::backend_id>(0), static_cast<op>(99)) == nullptr));
  CHECK((registry.find(static_cast<muster::backend_id>(99), "load") == nullptr));
  CHECK((registry.find(static_cast<muster::backend_id>(0), "lode") == nullptr));
  CHECK_THROWS_AS((void)registry.at(static_cast<muster::backend_id>(0), "lode"), muster::UnknownOperation);
  CHECK_THROWS_AS((void)registry.at(static_cast<muster::backend_id>(99), "load"), muster::UnknownBackend);
}

TEST_CASE("registry: a missing implementation carries who has it (B28)") {
  try {
    (void)registry.at("metal", op::dot);
    FAIL("no exception");
  } catch (const muster::BackendImplementationMissing& e) {
    CHECK(std::string(e.what()) == "Backend 'metal' is missing required implementation: codegen for API function dot");
    CHECK(e.backend() == "metal");
    CHECK(e.operation() == "dot");
    CHECK(e.family() == muster::operation_family::api);
    CHECK(e.implemented_by() == std::vector<std::string>{"triton", "tileir"});
    CHECK_FALSE(e.has_common());
  }
  CHECK_THROWS_WITH_AS(registry.at("triton", op::exp),
                       "Backend 'triton' is missing required implementation: Aten lowering codegen not registered for 'aten.exp.default'",
                       muster::BackendImplementationMissing);
}

TEST_CASE("registry: unknown names are reported with what there is, and the nearest (B05, B34)") {
  CHECK_THROWS_WITH_AS(registry.at("tritn", op::load),
                       "Unknown backend: 'tritn'. Available backends: ['triton', 'tileir', 'metal']. Did you mean 'triton'?",
                       muster::UnknownBackend);
  CHECK_THROWS_WITH_AS(registry.at("Metal", op::load),
                       "Unknown backend: 'Metal'. Available backends: ['triton', 'tileir', 'metal']. Did you mean 'metal'?",
                       muster::UnknownBackend);
  CHECK_THROWS_WITH_AS(registry.at("common", op::load), "Unknown backend: 'common'. Available backends: ['triton', 'tileir', 'metal']",
                       muster::UnknownBackend);
  CHECK_THROWS_AS(registry.at("", op::load), muster::UnknownBackend);
  CHECK_THROWS_WITH_AS(registry.at("triton", "laod"), "Unknown operation: 'laod'. Did you mean 'load'?", muster::UnknownOperation);
  CHECK_THROWS_WITH_AS(registry.at("triton", "load "), "Unknown operation: 'load '. Did you mean 'load'?", muster::UnknownOperation);
  CHECK_THROWS_WITH_AS(registry.at("triton", "triton::load"), "Unknown operation: 'triton::load'. Did you mean 'load'?",
                       muster::UnknownOperation);
  CHECK_THROWS_WITH_AS(registry.at("triton", "LOAD"), "Unknown operation: 'LOAD'. Did you mean 'load'?", muster::UnknownOperation);
  CHECK_THROWS_AS(registry.at("triton", static_cast<op>(99)), muster::UnknownOperation);
  CHECK_THROWS_AS(registry.at(static_cast<muster::backend_id>(9), op::load), muster::UnknownBackend);
}

TEST_CASE("registry: a backend left out of the build is told apart from an unknown one (B15)") {
  CHECK_THROWS_WITH_AS(registry.at("pallas", op::load),
                       "Backend 'pallas' was left out of this build. Built backends: ['triton', 'tileir', 'metal']",
                       muster::BackendNotBuilt);
  CHECK_FALSE(registry.has_backend("pallas"));
}

TEST_CASE("registry: the fallback can be refused (B36)") {
  const auto cell = registry.cell("metal", op::full);
  CHECK((cell.handler == full_common));
  CHECK(cell.provenance == provenance::common);
}

TEST_CASE("registry: descriptions, and coverage in a fixed order") {
  REQUIRE(registry.backends().size() == 3);
  CHECK(registry.backends()[1].name == "tileir");
  CHECK(registry.backends()[1].codegen_name == "triton");
  CHECK(registry.backends()[0].codegen_name == "triton");
  CHECK(registry.backends()[0].reserved_launch_parameters.size() == 2);
  CHECK(registry.backends()[2].experimental);
  const auto all = registry.coverage();
  REQUIRE(all.size() == 15);
  CHECK(all[0].backend == "triton");
  CHECK(all[0].operation == "load");
  CHECK(all[0].provenance == provenance::own);
  CHECK(all[14].provenance == provenance::missing);
}

namespace extension {

constexpr muster::operation_entry<op> own_operations[] = {{static_cast<op>(5), "softcap"}};
constexpr auto more_operations = muster::extended<operations, own_operations>();
std::string softcap(const node&) { return "softcap"; }
std::string my_load(const node&) { return "my load"; }
constexpr muster::handler_row<op, handler> changes[] = {{op::load, my_load}, {static_cast<op>(5), softcap}};
constexpr auto my_triton = muster::overriding<triton, changes>();
constexpr muster::backend<op, handler> vulkan{.name = "vulkan", .codegen_name = "tileir"};
constexpr auto mine = muster::compose<more_operations, common, my_triton, tileir, metal, vulkan>();

} // namespace extension

TEST_CASE("registry: a program overrides handlers, adds operations and backends, for its own composition alone (B06, B30)") {
  CHECK(extension::mine.at("triton", op::load)(node{}) == "my load");
  CHECK(extension::mine.at("triton", op::dot)(node{}) == "triton dot");
  CHECK(extension::mine.at("triton", "softcap")(node{}) == "softcap");
  CHECK(extension::mine.at("tileir", op::load)(node{}) == "my load");
  CHECK(extension::mine.at("vulkan", op::dot)(node{}) == "tileir dot"); // through two codegen names
  CHECK(extension::mine.cell("vulkan", op::load).provenance == provenance::inherited);
  CHECK(registry.at("triton", op::load)(node{}) == "triton load");
  CHECK_THROWS_AS(registry.at("triton", "softcap"), muster::UnknownOperation);
}

namespace parts {

constexpr muster::handler_row<op, handler> memory[] = {{op::load, load_triton}, {op::store, store_common}};
constexpr muster::handler_row<op, handler> again[] = {{op::load, load_triton}, {op::dot, dot_triton}};
constexpr muster::backend<op, handler> merged{.name = "merged", .parts = muster::merged<memory, again>};
constexpr auto registry_of_parts = muster::compose<operations, merged>();

} // namespace parts

TEST_CASE("registry: tables merge from parts, the same registration twice is one (B04)") {
  CHECK((parts::registry_of_parts.find("merged", op::load) == load_triton));
  CHECK((parts::registry_of_parts.find("merged", op::dot) == dot_triton));
  CHECK((parts::registry_of_parts.find("merged", op::store) == store_common));
  CHECK((parts::registry_of_parts.find("merged", op::full) == nullptr));
}

TEST_CASE("registry: no common backend, no fallback") {
  CHECK(parts::registry_of_parts.cell("merged", op::full).provenance == provenance::missing);
}

namespace names {

constexpr std::size_t longest = 139;

/// Texts of 1 to `longest` characters; or of 48 to 117 of which all have the same last 40, and each two have one length.
struct texts {
  char all[longest][longest + 8]{};
  std::size_t sizes[longest]{};
  constexpr explicit texts(bool one_tail) {
    for (std::size_t t = 0; t < longest; ++t) {
      const std::size_t n = one_tail ? 48 + t / 2 : t + 1;
      sizes[t] = n;
      for (std::size_t i = 0; i < n; ++i)
        all[t][i] = static_cast<char>('a' + (one_tail && n - i <= 40 ? n - i : (i * i + 7 * t + i / 3) * 31) % 26);
    }
  }
  [[nodiscard]] constexpr std::string_view operator[](std::size_t t) const { return {all[t], sizes[t]}; }
};
constexpr texts different(false);
constexpr texts alike(true);

template <const texts& Texts>
constexpr auto table = [] {
  std::array<muster::detail::named, longest> all{};
  for (std::size_t t = 0; t < longest; ++t)
    all[t] = {Texts[t].data(), static_cast<std::uint32_t>(Texts[t].size()), static_cast<std::uint32_t>(1000 + t)};
  return muster::detail::make_perfect_hash<longest>(all);
}();

constexpr auto hashes = [] {
  std::array<std::array<std::uint64_t, 2>, longest> all{};
  for (std::size_t t = 0; t < longest; ++t) all[t] = {muster::detail::hash_tail(different[t]), muster::detail::hash_whole(different[t])};
  return all;
}();

/// Every name is found in a copy at an odd address, and none is where a single character of it is another.
template <const texts& Texts> void check_every_character() {
  using muster::detail::name_table;
  static_assert(table<Texts>.built);
  constexpr name_table view = table<Texts>.view();
  CHECK(view.find({}) == name_table::none);
  for (std::size_t t = 0; t < longest; ++t) {
    std::string copy = "#" + std::string(Texts[t]) + "#";
    const std::string_view name = std::string_view(copy).substr(1, Texts[t].size());
    CAPTURE(name);
    CHECK(view.find(name) == 1000 + t);
    for (char& c : std::span(copy).subspan(1, name.size())) {
      c = static_cast<char>(c ^ '\x20');
      CHECK(view.find(name) == name_table::none);
      CHECK_FALSE(muster::detail::same_characters(name.data(), Texts[t].data(), name.size()));
      CHECK(muster::detail::hash_whole(name) != muster::detail::hash_whole(Texts[t]));
      c = static_cast<char>(c ^ '\x20');
    }
    CHECK(view.find(std::string_view(copy).substr(1)) == name_table::none);
    CHECK(view.find(std::string_view(copy).substr(0, name.size() + 1)) == name_table::none);
  }
}

} // namespace names

TEST_CASE("registry: names of every length are found, and each of their characters counts") {
  static_assert(!names::table<names::different>.whole);
  static_assert(names::table<names::alike>.whole);
  names::check_every_character<names::different>();
  names::check_every_character<names::alike>();
}

TEST_CASE("registry: a hash is the same for the compiler and at run time") {
  for (std::size_t t = 0; t < names::longest; ++t) {
    const std::string copy(names::different[t]);
    CHECK(names::hashes[t][0] == muster::detail::hash_tail(copy));
    CHECK(names::hashes[t][1] == muster::detail::hash_whole(copy));
  }
}

namespace unusual {

enum class op : std::uint16_t { brief, usual, lengthy };
using handler = int();
int brief() { return 1; }
int usual() { return 2; }
int lengthy() { return 3; }
constexpr std::string_view lengthy_name = "an_operation_whose_name_is_so_long_that_it_is_not_compared_as_others_are_in_one_step";
constexpr muster::operation_set<op> operations{{{op::brief, "x"}, {op::usual, "torch.ops.aten.add.Tensor"}, {op::lengthy, lengthy_name}}};
constexpr muster::backend<op, handler> c{.name = "c", .handlers = {{op::brief, brief}, {op::usual, usual}, {op::lengthy, lengthy}}};
constexpr muster::backend<op, handler> interpreter{.name = "interpreter_of_the_reference", .codegen_name = "c"};
constexpr auto registry = muster::compose<operations, c, interpreter>();

} // namespace unusual

TEST_CASE("registry: backends with long names and operations with short ones are found as others are") {
  for (const std::string backend : {"c", "interpreter_of_the_reference"}) {
    CHECK((unusual::registry.find(backend, std::string("x")) == unusual::brief));
    CHECK((unusual::registry.find(backend, std::string("torch.ops.aten.add.Tensor")) == unusual::usual));
    CHECK((unusual::registry.find(backend, std::string(unusual::lengthy_name)) == unusual::lengthy));
    CHECK((unusual::registry.find(backend, std::string("torch.ops.aten.sub.Tensor")) == nullptr));
    CHECK((unusual::registry.find(backend, std::string()) == nullptr));
    CHECK((unusual::registry.find(backend + "?", std::string("torch.ops.aten.add.Tensor")) == nullptr));
    CHECK((unusual::registry.find(backend + "?", std::string("x")) == nullptr));
  }
  CHECK((unusual::registry.find(std::string(), std::string("torch.ops.aten.add.Tensor")) == nullptr));
}
