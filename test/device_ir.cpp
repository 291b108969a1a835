#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <doctest/doctest.h>
#include "documents.hpp"
import muster.error;
import muster.symbolic;
import muster.device_ir;

using namespace muster::device_ir;
namespace symbolic = muster::symbolic;

namespace {

/// The text without last-use marks and comments: what printing keeps. Sizes in parentheses of their own lose them.
std::string kept(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos && line[first] == '#' && !line.substr(first).starts_with("# src ")) continue;
    const std::size_t mark = line.rfind(";  ");
    if (mark != std::string::npos && line.ends_with(" = None")) line.resize(mark);
    for (std::size_t at = line.find("Sym(("); at != std::string::npos; at = line.find("Sym((", at + 1)) {
      const std::size_t close = line.find("))\"", at);
      if (close == std::string::npos || line.find('(', at + 5) < close) continue;
      line.erase(close, 1).erase(at + 4, 1);
    }
    if (const std::size_t at = line.find(" size ("); at != std::string::npos && line.find(") tile") != std::string::npos)
      line.erase(line.find(") tile"), 1).erase(at + 6, 1);
    out += line + '\n';
  }
  return out;
}

/// The first line that differs, of both.
std::string difference(const std::string& a, const std::string& b) {
  std::istringstream as(a);
  std::istringstream bs(b);
  std::string x;
  std::string y;
  while (std::getline(as, x) && std::getline(bs, y))
    if (x != y) return x + "\n" + y;
  return a == b ? "" : "one is longer";
}

void check_round_trip(const std::filesystem::path& file) {
  const std::string text = documents::read(file);
  INFO(file.string());
  document d = parse(text, file.string());
  verify(d);
  const std::string printed = to_string(d);
  CHECK(difference(printed, kept(text)) == "");
  const document again = parse(printed, "printed");
  CHECK(equal(d, again));
  CHECK(to_string(again) == printed);
  const document copy = d.clone();
  d = document();
  CHECK(equal(copy, again));
  CHECK(to_string(copy) == printed);
}

std::string small(std::string_view body, std::string_view header = "") {
  return "device_ir 1\nkernel k\n" + std::string(header) + "root g_0 blocks [] phase 0\n\ndef g_0():\n" + std::string(body) +
         "    return None\n";
}

/// The last node of a graph with the given statements.
struct last_node {
  explicit last_node(std::string_view body) : d(parse(small(body))), n(d.nodes.back()) {}
  document d;
  const node& n;
  [[nodiscard]] const argument& at(std::size_t i) const { return d.arguments_of(n)[i]; }
};

} // namespace

TEST_CASE("device_ir: the project's own documents print as they were read") {
  const auto files = documents::own();
  CHECK(files.size() >= 12);
  for (const auto& file : files) check_round_trip(file);
}

TEST_CASE("device_ir: recorded documents print as they were read") {
  const auto files = documents::recorded();
  if (files.empty()) {
    MESSAGE("skipped: no recorded documents in ", documents::shared_folder().string());
    return;
  }
  for (const auto& file : files) check_round_trip(file);
}

TEST_CASE("device_ir: a header is read into values") {
  const document d = parse(documents::read(documents::own().front().parent_path() / "symbols.txt"), "symbols.txt");
  CHECK(d.file == "symbols.txt");
  CHECK(d.kernel == "symbols");
  CHECK_FALSE(d.settings.static_shapes);
  CHECK(d.settings.index_dtype == dtype::i64);
  CHECK(d.settings.fast_math);
  CHECK(d.settings.dot_precision == precision::tf32x3);
  REQUIRE(d.find_tensor("x") != nullptr);
  CHECK(d.find_tensor("nothing") == nullptr);
  CHECK(d.find_tensor("x")->element == dtype::f32);
  CHECK(d.symbols.to_string(d.strides(*d.find_tensor("x"))[0]) == "Max(1, s2)");
  const auto scale = d.symbols.find_symbol("zuf0");
  REQUIRE(scale);
  REQUIRE(d.find_declaration(*scale) != nullptr);
  CHECK(d.find_declaration(*scale)->is_float);
  CHECK(d.find_declaration(*scale)->hint->real == 0.5);
  const auto* closure = d.find_declaration(*d.symbols.find_symbol("zuf1"));
  CHECK(closure->host_expression == "epilogue.__closure__[0].cell_contents");
  CHECK_FALSE(closure->hint);
  CHECK(d.find_declaration(*d.symbols.find_symbol("u5"))->from == symbol_declaration::origin::tile_end);
  CHECK(d.find_declaration(*d.symbols.find_symbol("u5"))->block == 1);
  CHECK(d.find_block(1)->block_size == d.find_block(1)->block_size);
  CHECK(d.find_block(7) == nullptr);
  CHECK(d.find_graph(0)->what == graph::kind::root);
  CHECK(d.find_graph(0)->blocks == std::vector<std::int32_t>{0, 1});
  CHECK(d.config.pid_type == pid_type::xyz);
  CHECK(d.config.loop_orders == std::vector<std::vector<std::int32_t>>{{1, 0}});
  REQUIRE(d.config.others.size() == 1);
  CHECK(d.config.others[0] == std::pair<std::string, std::string>{"split_k", "4"});
  CHECK(d.source_text_line(2) == "kernel symbols");
}

TEST_CASE("device_ir: jagged blocks, loops and sources") {
  const auto folder = documents::own().front().parent_path();
  const document jagged = parse(documents::read(folder / "jagged_sum.txt"));
  CHECK(jagged.find_block(1)->jagged_parents == std::vector<std::int32_t>{0});
  CHECK(jagged.find_block(1)->size == no_expression);
  CHECK(jagged.graphs[0].parameters.count == 3);
  CHECK(jagged.at(static_cast<node_id>(0)).is_parameter);
  CHECK(jagged.at(static_cast<node_id>(1)).column == 35);
  const document add = parse(documents::read(folder / "add.txt"));
  REQUIRE(add.sources.size() == 1);
  CHECK(add.sources[0].file == "kernels/add.py");
  CHECK(add.sources[0].line == 12);
  CHECK(add.sources[0].code == "out[tile_m, tile_n] = x[tile_m, tile_n] + y[tile_n]");
  CHECK(add.nodes.front().source == 0);
  CHECK(add.nodes.back().source == 1);
}

TEST_CASE("device_ir: arguments keep their values") {
  const last_node call(
      "    x = f()\n    y = g(x, 1, -9223372036854775808, 0.5, -inf, nan, None, True, 'it\\'s', [x, [2]], (x,), (), "
      "slice(None, 1, x), torch.bfloat16, torch.strided, (x), k = device(type='cuda', index=3), l = device(type='cpu'))\n");
  CHECK(call.n.target == "g");
  CHECK(call.at(0).node == static_cast<node_id>(0));
  CHECK(call.at(1).integer == 1);
  CHECK(call.at(2).integer == std::numeric_limits<std::int64_t>::min());
  CHECK(call.at(3).real == 0.5);
  CHECK(call.at(4).real == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(call.at(5).real));
  CHECK(call.at(6).what == argument::kind::none);
  CHECK(call.at(7).boolean);
  CHECK(call.at(8).text == "it's");
  CHECK(call.d.items(call.at(9)).size() == 2);
  CHECK(call.d.items(call.d.items(call.at(9))[1])[0].integer == 2);
  CHECK(call.at(10).what == argument::kind::tuple);
  CHECK(call.d.items(call.at(10)).size() == 1);
  CHECK(call.d.items(call.at(11)).empty());
  CHECK(call.at(12).what == argument::kind::slice);
  CHECK(call.d.items(call.at(12)).size() == 3);
  CHECK(call.at(13).element == dtype::bf16);
  CHECK(call.at(14).what == argument::kind::layout);
  CHECK(call.at(15).what == argument::kind::node);
  REQUIRE(call.d.find_keyword(call.n, "k") != nullptr);
  CHECK(call.d.find_keyword(call.n, "k")->text == "cuda");
  CHECK(call.d.find_keyword(call.n, "k")->integer == 3);
  CHECK(call.d.find_keyword(call.n, "l")->integer == -1);
  CHECK(call.d.find_keyword(call.n, "m") == nullptr);
}

TEST_CASE("device_ir: Python operators are calls") {
  const auto target = [](std::string_view right) {
    return std::string(last_node("    a = f()\n    b = " + std::string(right) + "\n").n.target);
  };
  CHECK(target("a + 1") == "operator.add");
  CHECK(target("1.0 - a") == "operator.sub");
  CHECK(target("-1 * a") == "operator.mul");
  CHECK(target("a / a") == "operator.truediv");
  CHECK(target("a // 2;  a = None") == "operator.floordiv");
  CHECK(target("a % 2") == "operator.mod");
  CHECK(target("a ** 2") == "operator.pow");
  CHECK(target("-a") == "operator.neg");
  CHECK(target("a == 1") == "operator.eq");
  CHECK(target("a != 1") == "operator.ne");
  CHECK(target("a < 1") == "operator.lt");
  CHECK(target("a <= 1") == "operator.le");
  CHECK(target("a > 1") == "operator.gt");
  CHECK(target("a >= -1") == "operator.ge");
  CHECK(target("a & a") == "operator.and_");
  CHECK(target("a or a") == "operator.or_");
  CHECK(target("not a") == "operator.not_");
  CHECK(target("a[1]") == "operator.getitem");
  CHECK(target("a") == "operator.identity");
  CHECK(target("-5") == "operator.identity");
  CHECK(target("-inf") == "operator.identity");
  CHECK(target("slice(1, 2, None)") == "operator.identity");
}

TEST_CASE("device_ir: strings print as Python's repr, and read back") {
  for (const std::string_view text : {R"('plain')", R"("it's")", R"('both \' and "')", R"('\n\t\r\\')", R"('\x00\x1b\x7f')",
                                      R"('é ü 漢 🙂')", R"('\xa0\u200b\u202e\U000e0001')", R"('')"}) {
    const std::string statement = "    a = f(" + std::string(text) + ")\n";
    CHECK(to_string(parse(small(statement))).find(statement) != std::string::npos);
  }
  CHECK(last_node(R"(    a = f("\x41\u00e9\U0001f642\a\0"))"
                  "\n")
            .at(0)
            .text == std::string_view("Aé🙂\a\0", 9));
}

TEST_CASE("device_ir: line ends, blank lines, a byte order mark and a missing last newline mean nothing") {
  const std::string text = documents::read(documents::own().front());
  const document d = parse(text);
  std::string windows = "\xEF\xBB\xBF";
  for (const char c : text) {
    if (c == '\n') windows += "  \r\n\t\r\n# a comment";
    if (c == '\n') windows += "\r\n";
    else windows += c;
  }
  // Blank lines inside of a graph too.
  const document e = parse(windows);
  CHECK(equal(d, e));
  CHECK(equal(d, parse(std::string_view(text).substr(0, text.size() - 1))));
}

TEST_CASE("device_ir: what a graph's result is annotated with means nothing") {
  const std::string text = documents::read(documents::own().front());
  std::string annotated = text;
  const std::size_t end = annotated.find("):\n");
  REQUIRE(end != std::string::npos);
  annotated.insert(end + 1, " -> _tuple_torch_Tensor_torch_Tensor_");
  CHECK(equal(parse(text), parse(annotated)));
  annotated.insert(end + 4, ">");
  CHECK_THROWS_AS((void)parse(annotated), muster::DeviceIRError);
}

TEST_CASE("device_ir: a document is reused, and empty after a fault") {
  const auto files = documents::own();
  document d;
  for (int i = 0; i < 3; ++i)
    for (const auto& file : files) {
      const std::string text = documents::read(file);
      parse_into(d, text, "reused");
      CHECK(equal(d, parse(text)));
    }
  CHECK_THROWS_AS(parse_into(d, "device_ir 2"), muster::DeviceIRError);
  CHECK(d.nodes.empty());
  CHECK(d.kernel.empty());
  const document moved = std::move(d);
  CHECK(moved.nodes.empty());
}

TEST_CASE("device_ir: equal sees every difference") {
  const std::string text = documents::read(documents::own().front().parent_path() / "matmul.txt");
  const document d = parse(text);
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"kernel matmul", "kernel matmul2"},
      {"ieee", "tf32"},
      {"index_dtype i32", "index_dtype i64"},
      {"x f16[96, 80] strides", "x bf16[96, 80] strides"},
      {"strides [80, 1]", "strides [81, 1]"},
      {"size 72 tile", "size 73 tile"},
      {"block_size 16", "block_size 8"},
      {"blocks [0, 1]", "blocks [1, 0]"},
      {"phase 0", "phase 1"},
      {"\"num_warps\": 4", "\"num_warps\": 8"},
      {"arg0_1: \"f32[u0, u1]\"", "arg0_1: \"f32[u0, u2]\""},
      {"(arg0_1, 0)", "(arg0_1, 1)"},
      {"0.0, torch", "-0.0, torch"},
      {"torch.float32, None", "torch.float64, None"},
      {"aten.addmm.default", "aten.addmm.other"},
      {"'block_size_2'", "'block_size_3'"},
      {"return [acc]", "return (acc,)"},
      {"acc: \"f32[u0, u1]\" = torch", "acc: \"f64[u0, u1]\" = torch"},
  };
  for (const auto& [from, to] : changes) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    REQUIRE_MESSAGE(at != std::string::npos, from);
    changed.replace(at, from.size(), to);
    CHECK_MESSAGE(!equal(d, parse(changed)), from);
  }
}

TEST_CASE("device_ir: a builder writes what the parser reads") {
  builder b("copy");
  b.settings().dot_precision = precision::ieee;
  b.host_tensor("x", dtype::f32, {"n", "64"}, {"64", "1"});
  b.host_tensor("out", dtype::f32, {"n", "64"}, {"64", "1"});
  b.parameter("n", false, "x.size(0)", symbolic::number{true, 100, 0});
  b.block_symbol("begin", symbol_declaration::origin::tile_begin, 0);
  b.block(0, "u0", "n", "16");
  b.block(1, "64", "64", "64", true);
  b.config("{\"block_sizes\": [16],\n \"num_warps\": 2}");
  b.graph("root_graph_0", graph::kind::root, {0});
  CHECK(b.call("x", "f32[n, 64]", "helion_language__tracing_ops__host_tensor", "'x'") == static_cast<node_id>(0));
  b.call("block_size_0", "Sym(u0)", "helion_language__tracing_ops__get_symnode", "'block_size_0'");
  b.call("load", "f32[u0, 64]", "helion_language_memory_ops_load", "x, [block_size_0, slice(None, None, None)], None, None");
  b.call("out", "f32[n, 64]", "helion_language__tracing_ops__host_tensor", "'out'");
  b.call("store", "", "helion_language_memory_ops_store", "out, [block_size_0, slice(None, None, None)], load, None");
  b.result("None");
  const document d = b.finish();
  CHECK(d.nodes.size() == 5);
  CHECK(d.config.num_warps == 2);
  CHECK(equal(d, parse(to_string(d))));
}

TEST_CASE("device_ir: a builder's faults show the line") {
  builder b("k");
  b.graph("g_0", graph::kind::root, {});
  b.call("a", "f32[", "f", "");
  b.result("None");
  try {
    (void)b.finish();
    FAIL("no error");
  } catch (const muster::DeviceIRError& error) {
    CHECK(std::string(error.what()).find("    a: \"f32[\" = f()") != std::string::npos);
  }
  CHECK_THROWS_AS(b.result("None"), muster::DeviceIRError); // empty again: no graph is open
  CHECK_THROWS_AS(b.host_tensor("a\nb", dtype::f32, {}, {}), muster::DeviceIRError);
}

TEST_CASE("device_ir: dtypes have names both ways") {
  for (std::size_t i = 0; i < dtype_count; ++i) {
    const auto d = static_cast<dtype>(i);
    CHECK(dtype_named(name(d)) == d);
    CHECK(dtype_torch_named(torch_name(d)) == d);
  }
  CHECK_FALSE(dtype_named("f8"));
  CHECK(torch_name(dtype::b8) == "bool");
  CHECK(size_of(dtype::bf16) == 2);
}

TEST_CASE("device_ir: elements of small floats are read and written to the bit") {
  std::byte bytes[8];
  for (const dtype d : {dtype::f16, dtype::bf16, dtype::f8e4m3fn, dtype::f8e5m2}) {
    const int bits = 8 * size_of(d);
    CAPTURE(name(d));
    bool all = true;
    for (std::int64_t pattern = 0; pattern < std::int64_t{1} << bits; ++pattern) {
      std::memcpy(bytes, &pattern, sizeof bytes);
      const double value = element_to_double(d, bytes);
      std::int64_t again = 0;
      double_to_element(d, value, reinterpret_cast<std::byte*>(&again));
      all = all && (std::isnan(value) ? std::isnan(rounded(d, value)) : again == pattern);
    }
    CHECK(all);
  }
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(rounded(dtype::f16, 65519) == 65504);
  CHECK(rounded(dtype::f16, 65520) == infinity); // a tie, to even
  CHECK(rounded(dtype::f16, 2049) == 2048);
  CHECK(rounded(dtype::f16, 0x1p-25) == 0);
  CHECK(rounded(dtype::f16, 0x1.8p-25) == 0x1p-24);
  CHECK(rounded(dtype::bf16, -3.4e38) == -infinity);
  CHECK(rounded(dtype::f8e5m2, 61440) == infinity);
  CHECK(rounded(dtype::f8e4m3fn, 464) == 448);
  CHECK(std::isnan(rounded(dtype::f8e4m3fn, 465))); // it has no infinity
  CHECK(std::isnan(rounded(dtype::f8e4m3fn, -infinity)));
  CHECK(std::signbit(rounded(dtype::f8e4m3fn, -0.0)));
  CHECK(rounded(dtype::i8, -3.7) == -3);
  CHECK(rounded(dtype::b8, 12) == 1);
  integer_to_element(dtype::u8, 511, bytes);
  CHECK(element_to_integer(dtype::u8, bytes) == 255);
  integer_to_element(dtype::i16, 40000, bytes);
  CHECK(element_to_integer(dtype::i16, bytes) == 40000 - 65536);
}
