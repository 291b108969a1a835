#include <string>
#include <string_view>
#include <type_traits>
#include <vector>
#include <doctest/doctest.h>
import muster.error;

using namespace muster;

TEST_CASE("error: a missing implementation says so to the letter, by family") {
  const BackendImplementationMissing api("metal", "load", operation_family::api, {"triton", "cpu"});
  CHECK(std::string(api.what()) == "Backend 'metal' is missing required implementation: codegen for API function load");
  const BackendImplementationMissing aten("metal", "aten.amax.default", operation_family::aten, {});
  CHECK(std::string(aten.what()) ==
        "Backend 'metal' is missing required implementation: Aten lowering codegen not registered for 'aten.amax.default'");
  CHECK(api.backend() == "metal");
  CHECK(api.operation() == "load");
  CHECK(api.family() == operation_family::api);
  CHECK(api.implemented_by() == std::vector<std::string>{"triton", "cpu"});
  CHECK_FALSE(api.has_common());
}

TEST_CASE("error: an unknown backend lists what there is, and the nearest name") {
  const UnknownBackend error("mettal", {"triton", "metal"});
  CHECK(std::string(error.what()) == "Unknown backend: 'mettal'. Available backends: ['triton', 'metal']. Did you mean 'metal'?");
  const UnknownBackend far("vulkan", {"triton", "metal"});
  CHECK(std::string(far.what()) == "Unknown backend: 'vulkan'. Available backends: ['triton', 'metal']");
  CHECK(std::string(UnknownBackend(" CPU ", {"triton", "cpu"}).what()).ends_with("Did you mean 'cpu'?"));
}

TEST_CASE("error: the nearest name is near") {
  CHECK(nearest_name("mettal", {"triton", "metal", "cute"}) == "metal");
  CHECK(nearest_name("trtion", {"triton", "metal"}) == "triton");
  CHECK(nearest_name("xyz", {"triton", "metal"}).empty());
  CHECK(nearest_name("", {}).empty());
  CHECK(nearest_name("a", {""}).empty());
}

TEST_CASE("error: a located error shows the line and a caret, in code points") {
  const DeviceIRError error("k.txt", 3, 5, "a = b(", "expected an argument");
  CHECK(std::string(error.what()) == "k.txt:3:5: error: expected an argument\n  a = b(\n      ^");
  const DeviceIRError accents("k.txt", 1, 3, "é = ü", "unexpected '='");
  CHECK(std::string(accents.what()).ends_with("\n  é = ü\n    ^"));
  const DeviceIRError tab("k.txt", 1, 3, "\ta\x1b", "x");
  CHECK(std::string(tab.what()).ends_with("\n   a \n    ^"));
  const std::string far(500, 'x');
  const std::string what = DeviceIRError("k.txt", 1, 400, far, "x").what();
  const std::size_t caret_line = what.rfind('\n');
  CHECK(what.size() - caret_line - 1 <= 124);
  CHECK(what.back() == '^');
}

TEST_CASE("error: a located error's message is UTF-8 and printable, whatever the line holds") {
  const auto shown = [](std::string_view line) { return std::string(muster::DeviceIRError("k.txt", 1, 2, line, "wrong").what()); };
  CHECK(shown("a\xff\xfe\tb\x7f") == "k.txt:1:2: error: wrong\n  a?? b \n   ^");
  CHECK(shown("\u00e9\u20ac\U0001f600\u00e9") == "k.txt:1:2: error: wrong\n  \u00e9\u20ac\U0001f600\u00e9\n   ^");
  CHECK(shown("\xc0\x80") == "k.txt:1:2: error: wrong\n  ??\n   ^");            // overlong
  CHECK(shown("\xed\xa0\x80") == "k.txt:1:2: error: wrong\n  ???\n   ^");       // a surrogate
  CHECK(shown("\xf4\x90\x80\x80") == "k.txt:1:2: error: wrong\n  ????\n   ^"); // beyond Unicode
  CHECK(shown("a\xe2\x82") == "k.txt:1:2: error: wrong\n  a??\n   ^");           // cut off
}

TEST_CASE("error: every type is an Error, and copies without throwing") {
  CHECK(std::is_base_of_v<Error, DeviceIRError>);
  CHECK(std::is_base_of_v<Error, BackendImplementationMissing>);
  CHECK(std::is_nothrow_copy_constructible_v<BackendImplementationMissing>);
  CHECK(std::is_nothrow_copy_constructible_v<DeviceIRError>);
  CHECK(std::string(IoError("read", "/nowhere", 2).what()) == "Cannot read '/nowhere': No such file or directory");
  CHECK(std::string(BackendUnsupported("pallas", "load", "no f64").what()) == "Backend 'pallas' does not support this use of load: no f64");
}
