#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>
#include <doctest/doctest.h>
import muster.error;
import muster.operations;

using namespace muster;

namespace {

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

} // namespace

TEST_CASE("operations: every spelling of every operation finds it, and no two share one") {
  std::set<std::string> seen;
  const auto check = [&](const std::string& spelling, operation id) {
    CAPTURE(spelling);
    const std::optional<operation> found = operation_named(spelling);
    REQUIRE(found.has_value());
    CHECK(*found == id);
  };
  for (const operation_information& o : operation_table) {
    CHECK(seen.insert(std::string(o.name)).second);
    check(std::string(o.name), o.id);
    if (!o.long_name.empty()) {
      CHECK(seen.insert(std::string(o.long_name)).second);
      check(std::string(o.long_name), o.id);
    }
    for (const std::string& overload : words(o.overloads)) {
      const std::string full = std::string(o.name) + "." + overload;
      CHECK(seen.insert(full).second);
      check(full, o.id);
      check("torch.ops." + full, o.id);
    }
  }
}

TEST_CASE("operations: what is no operation is not found") {
  for (const char* name : {"", "torch.ops.", "torch.ops.aten.", "torch.ops.aten.add.Nonsense", "torch.ops.aten.amaxx.default", "loads",
                           "aten", "Load", "load ", "helion_language_memory_ops_loa", "torch.ops.torch.ops.aten.add.Tensor"})
    CHECK_FALSE(operation_named(name).has_value());
  CHECK_FALSE(operation_named(std::string(10000, 'x')).has_value());
}

TEST_CASE("operations: messages name them as the issue trackers do") {
  CHECK(qualified_name(operation::load, "helion_language_memory_ops_load") == "load");
  CHECK(qualified_name(operation::mask_to, "helion_language__tracing_ops__mask_to") == "_mask_to");
  CHECK(qualified_name(operation::aten_amax, "torch.ops.aten.amax.default") == "aten.amax.default");
  CHECK(information(operation::load).family == operation_family::api);
  CHECK(information(operation::aten_amax).family == operation_family::aten);
  CHECK(information(operation::aten_exp).category == operation_category::pointwise);
}

TEST_CASE("operations: all of the peer's table are known, with their families") {
  const char* const shared = std::getenv("MUSTER_SHARED");
  std::ifstream table(std::string(shared != nullptr ? shared : MUSTER_SHARED_DEFAULT) + "/peer/op_table.tsv");
  if (!table) {
    MESSAGE("skipped: ../shared/peer/op_table.tsv is not there");
    return;
  }
  std::string line;
  std::getline(table, line);
  int rows = 0;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string family, name;
    std::getline(fields, family, '\t');
    std::getline(fields, name, '\t');
    if (name == "VALUE[INDEX]") name = "operator.getitem";
    CAPTURE(name);
    const std::optional<operation> found = operation_named(name);
    REQUIRE(found.has_value());
    CHECK(information(*found).family == (family == "api" ? operation_family::api : operation_family::aten));
    ++rows;
  }
  CHECK(rows == 99);
}
