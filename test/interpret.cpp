#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <doctest/doctest.h>
#include "documents.hpp"

import muster.error;
import muster.symbolic;
import muster.device_ir;
import muster.operations;
import muster.interpret;

namespace {

using namespace muster;
using device_ir::document;
using device_ir::dtype;
using numbers = std::vector<double>;

/// A document's tensors by name, and its parameters; what is stored changes the tensors.
struct sandbox {
  document d;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::optional<symbolic::number>> symbols;
  interpret::options how;

  explicit sandbox(std::string_view text) : d(device_ir::parse(text, "test")) {
    device_ir::verify(d);
    memory.resize(d.tensors.size());
    symbols.resize(d.symbols.symbol_count());
  }

  std::size_t at(std::string_view name) const { return static_cast<std::size_t>(d.find_tensor(name) - d.tensors.data()); }

  void set(std::string_view name, const numbers& values) {
    const dtype type = d.tensors[at(name)].element;
    memory[at(name)].resize(values.size() * static_cast<std::size_t>(size_of(type)));
    for (std::size_t i = 0; i < values.size(); ++i)
      device_ir::double_to_element(type, values[i], &memory[at(name)][i * static_cast<std::size_t>(size_of(type))]);
  }

  numbers get(std::string_view name) const {
    const dtype type = d.tensors[at(name)].element;
    numbers all;
    for (std::size_t i = 0; i < memory[at(name)].size(); i += static_cast<std::size_t>(size_of(type)))
      all.push_back(device_ir::element_to_double(type, &memory[at(name)][i]));
    return all;
  }

  void run() {
    const std::vector<std::span<std::byte>> tensors(memory.begin(), memory.end());
    interpret::run(d, tensors, symbols, how);
  }
};

/// A kernel of one program over a matrix x of 2 rows and 3 columns and y of the same shape, that stores what `body` calls
/// `result`, of that type and shape.
sandbox matrix(std::string_view type, std::string_view body, std::string_view element = "f32", std::string_view helpers = {}) {
  const std::size_t bracket = type.find('[');
  const std::string shape(type.substr(bracket + 1, type.size() - bracket - 2));
  std::string strides;
  std::string indices;
  if (shape == "2, 3") strides = "3, 1", indices = "rows, slice(None, None, None)";
  else if (shape == "2") strides = "1", indices = "rows";
  else if (shape == "2, 1") strides = "1, 1", indices = "rows, slice(None, None, None)";
  else if (shape == "2, 2") strides = "2, 1", indices = "rows, slice(None, None, None)";
  std::string dims = shape;
  dims.replace(0, 1, "u0");
  std::string stored = "result";
  std::string text = "device_ir 1\nkernel k\nsetting static_shapes true\nsetting index_dtype i32\nsetting fast_math false\n"
                     "setting dot_precision tf32\n";
  for (const char* name : {"x", "y"}) text += "host_tensor " + std::string(name) + " " + std::string(element) + "[2, 3] strides [3, 1]\n";
  text += "host_tensor out " + std::string(type) + " strides [" + strides + "]\n";
  text += "block 0 u0 size 2 tile block_size 2\nblock 1 3 size 3 reduction block_size 4\nroot root_graph_9 blocks [0] phase 0\n";
  if (!helpers.empty()) text += "helper combine_0\n";
  text += "config {\"block_sizes\": [2]}\n\n" + std::string(helpers);
  text += "def root_graph_9():\n    rows: \"Sym(u0)\" = helion_language__tracing_ops__get_symnode('block_size_0')\n";
  for (const char* name : {"x", "y"}) {
    const std::string n(name);
    text += "    " + n + "_host: \"" + std::string(element) + "[2, 3]\" = helion_language__tracing_ops__host_tensor('" + n + "')\n";
    text += "    " + n + ": \"" + std::string(element) + "[u0, 3]\" = helion_language_memory_ops_load(" + n +
            "_host, [rows, slice(None, None, None)], None, None)\n";
  }
  text += "    out: \"" + std::string(type) + "\" = helion_language__tracing_ops__host_tensor('out')\n";
  text += std::string(body);
  text += "    store = helion_language_memory_ops_store(out, [" + indices + "], result, None)\n    return None\n";
  sandbox s(text);
  s.set("out", numbers(shape == "2, 3" ? 6 : shape == "2, 2" ? 4 : 2, -99));
  return s;
}

/// `result` = target(arguments).
std::string call(std::string_view type, std::string_view target, std::string_view arguments) {
  std::string dims(type);
  dims.replace(dims.find("[2"), 2, "[u0");
  return "    result: \"" + dims + "\" = " + std::string(target) + "(" + std::string(arguments) + ")\n";
}

numbers of_matrix(std::string_view type, std::string_view target, std::string_view arguments, const numbers& x,
                  const numbers& y = numbers(6, 0), std::string_view element = "f32") {
  sandbox s = matrix(type, call(type, target, arguments), element);
  s.set("x", x);
  s.set("y", y);
  s.run();
  return s.get("out");
}

std::string own(std::string_view name) { return documents::read(std::filesystem::path(MUSTER_TEST_DOCUMENTS) / name); }

template <class E> std::string message_of(sandbox& s) {
  try {
    s.run();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

} // namespace

TEST_SUITE("interpret") {
  TEST_CASE("pointwise operations mean what torch means") {
    const numbers x{-7, 7, -7, 7, 0.5, 2.5};
    const numbers y{2, -2, -2, 2, 1, 1};
    const auto f = [&](std::string_view target, std::string_view arguments) { return of_matrix("f32[2, 3]", target, arguments, x, y); };
    CHECK(f("torch.ops.aten.add.Tensor", "x, y") == numbers{-5, 5, -9, 9, 1.5, 3.5});
    CHECK(f("torch.ops.aten.sub.Tensor", "x, y, alpha = 2") == numbers{-11, 11, -3, 3, -1.5, 0.5});
    CHECK(f("torch.ops.aten.mul.Tensor", "x, None") == numbers{49, 49, 49, 49, 0.25, 6.25});
    CHECK(f("torch.ops.aten.remainder.Tensor", "x, y") == numbers{1, -1, -1, 1, 0.5, 0.5});
    CHECK(f("torch.ops.aten.fmod.Tensor", "x, y") == numbers{-1, 1, -1, 1, 0.5, 0.5});
    CHECK(f("torch.ops.aten.div.Tensor_mode", "x, y, rounding_mode = 'floor'") == numbers{-4, -4, 3, 3, 0, 2});
    CHECK(f("torch.ops.aten.div.Tensor_mode", "x, y, rounding_mode = 'trunc'") == numbers{-3, -3, 3, 3, 0, 2});
    CHECK(f("torch.ops.aten.round.default", "x") == numbers{-7, 7, -7, 7, 0, 2}); // ties to even
    CHECK(f("torch.ops.aten.clamp.default", "x, -1, None") == numbers{-1, 7, -1, 7, 0.5, 2.5});
    CHECK(f("torch.ops.aten.clamp.default", "x, None, 1") == numbers{-7, 1, -7, 1, 0.5, 1});
    CHECK(f("torch.ops.aten.exp2.default", "y") == numbers{4, 0.25, 0.25, 4, 2, 2});
    CHECK(f("torch.ops.aten.copysign.Tensor", "x, y") == numbers{7, -7, -7, 7, 0.5, 2.5});
  }

  TEST_CASE("NaNs spread through maximum and minimum, and lose in fmax and fmin") {
    const auto f = [](std::string_view target) {
      return of_matrix("f32[2, 3]", target, "x, y", {not_a_number, 1, 2, -infinity, 0, 3}, {1, not_a_number, 3, 5, 0, infinity});
    };
    const numbers largest = f("torch.ops.aten.maximum.default");
    CHECK((std::isnan(largest[0]) && std::isnan(largest[1])));
    CHECK(numbers(largest.begin() + 2, largest.end()) == numbers{3, 5, 0, infinity});
    CHECK(f("torch.ops.aten.fmin.default") == numbers{1, 1, 2, -infinity, 0, 3});
  }

  TEST_CASE("integers are exact and wrap around, floats are rounded to the declared type") {
    const auto whole = [](std::string_view element, std::string_view target, std::string_view arguments, const numbers& x,
                          const numbers& y) { return of_matrix(std::string(element) + "[2, 3]", target, arguments, x, y, element); };
    CHECK(whole("i8", "torch.ops.aten.add.Tensor", "x, y", {127, -128, 1, 100, 0, -1}, {1, -1, 1, 100, 0, -1}) ==
          numbers{-128, 127, 2, -56, 0, -2});
    CHECK(whole("i32", "torch.ops.aten.floor_divide.default", "x, y", {-7, 7, -7, 7, 6, -6}, {2, -2, -2, 2, 3, 3}) ==
          numbers{-4, -4, 3, 3, 2, -2});
    CHECK(whole("i32", "torch.ops.aten.__rshift__.Scalar", "x, 1", {-7, 7, -1, 1, 6, -6}, numbers(6)) == numbers{-4, 3, -1, 0, 3, -3});
    CHECK(whole("i32", "torch.ops.aten.bitwise_not.default", "x", {-1, 0, 1, 2, 3, 4}, numbers(6)) == numbers{0, -1, -2, -3, -4, -5});
    CHECK(of_matrix("f16[2, 3]", "torch.ops.prims.convert_element_type.default", "x, torch.float16",
                    {2049, 2051, 70000, 1e-9, 0.1, -0.0}) == numbers{2048, 2052, infinity, 0, 0.0999755859375, 0});
    CHECK(of_matrix("b8[2, 3]", "torch.ops.prims.convert_element_type.default", "x, torch.bool", {0.5, 0, -0.0, not_a_number, -3, 1e-30}) ==
          numbers{1, 0, 0, 1, 1, 1});
  }

  TEST_CASE("reductions") {
    const numbers x{1, 5, 3, 4, -2, 4};
    CHECK(of_matrix("f32[2]", "torch.ops.aten.sum.dim_IntList", "x, [1]", x) == numbers{9, 6});
    CHECK(of_matrix("f32[2, 1]", "torch.ops.aten.sum.dim_IntList", "x, [-1], True", x) == numbers{9, 6});
    CHECK(of_matrix("f32[2]", "torch.ops.aten.amax.default", "x, [1]", x) == numbers{5, 4});
    CHECK(of_matrix("f32[2]", "torch.ops.aten.amin.default", "x, [1]", x) == numbers{1, -2});
    CHECK(of_matrix("f32[2]", "torch.ops.aten.mean.dim", "x, [1]", x) == numbers{3, 2});
    CHECK(of_matrix("f32[2]", "torch.ops.aten.prod.dim_int", "x, 1", x) == numbers{15, -32});
    CHECK(of_matrix("f32[2]", "torch.ops.aten.var.correction", "x, [1], correction = 1", x) == numbers{4, 12});
    CHECK(of_matrix("i64[2]", "torch.ops.aten.argmax.default", "x, 1", x) == numbers{1, 0}); // the first of equals
    CHECK(of_matrix("b8[2]", "torch.ops.aten.any.dim", "x, 1", {0, 0, 0, 0, 2, 0}) == numbers{0, 1});
    CHECK(std::isnan(of_matrix("f32[2]", "torch.ops.aten.amax.default", "x, [1]", {1, not_a_number, 3, 4, 5, 6})[0]));
    CHECK(of_matrix("f32[2, 3]", "torch.ops.aten.cumsum.default", "x, 1", x) == numbers{1, 6, 9, 4, 2, 6});
    CHECK(of_matrix("f32[2]", "torch.ops.aten.logsumexp.default", "x, [1]", {0, -infinity, -infinity, -infinity, -infinity, -infinity}) ==
          numbers{0, -infinity});
  }

  TEST_CASE("a reduction with a graph combines in order") {
    constexpr std::string_view helper =
        "def combine_0(a: \"f32[]\", b: \"f32[]\"):\n    double: \"f32[]\" = torch.ops.aten.mul.Tensor(a, 2)\n"
        "    both: \"f32[]\" = torch.ops.aten.add.Tensor(double, b)\n    return both\n\n";
    sandbox reduce = matrix("f32[2]", call("f32[2]", "helion_language_reduce_ops__reduce", "0, x, 1, False"), "f32", helper);
    reduce.set("x", {1, 0, 1, 2, 3, 4});
    reduce.set("y", numbers(6));
    reduce.run();
    CHECK(reduce.get("out") == numbers{5, 18});
    sandbox scan =
        matrix("f32[2, 3]", call("f32[2, 3]", "helion_language_scan_ops__associative_scan", "0, x, 1, True, False"), "f32", helper);
    scan.set("x", {1, 0, 1, 2, 3, 4});
    scan.set("y", numbers(6));
    scan.run();
    CHECK(scan.get("out") == numbers{5, 2, 1, 24, 11, 4}); // from the end
  }

  TEST_CASE("views, sorting and products") {
    const numbers x{3, 1, 2, 5, 5, 4};
    const auto picked = [&](std::string_view type, const std::string& body) {
      sandbox s = matrix(type, body);
      s.set("x", x);
      s.set("y", {1, 2, 3, 4, 5, 6});
      s.run();
      return s.get("out");
    };
    const std::string sorted = "    both = torch.ops.aten.sort.default(x, 1, True)\n";
    CHECK(picked("f32[2, 3]", sorted + "    result: \"f32[u0, 3]\" = both[0]\n") == numbers{3, 2, 1, 5, 5, 4});
    CHECK(picked("i64[2, 3]", sorted + "    result: \"i64[u0, 3]\" = both[1]\n") == numbers{0, 2, 1, 0, 1, 2}); // equals stay in order
    CHECK(picked("f32[2, 2]", "    two = torch.ops.aten.topk.default(x, 2)\n    result: \"f32[u0, 2]\" = two[0]\n") == numbers{3, 2, 5, 5});
    CHECK(picked("f32[2, 2]", "    turned: \"f32[3, u0]\" = torch.ops.aten.permute.default(y, [1, 0])\n"
                              "    result: \"f32[u0, 2]\" = torch.ops.aten.mm.default(x, turned)\n") == numbers{11, 29, 27, 69});
    CHECK(picked("f32[2, 3]", "    first: \"f32[u0]\" = torch.ops.aten.amax.default(x, [1])\n"
                              "    column: \"f32[u0, 1]\" = helion_language_view_ops_subscript(first, [slice(None, None, None), None])\n"
                              "    result: \"f32[u0, 3]\" = torch.ops.aten.sub.Tensor(x, column)\n") == numbers{0, -2, -1, 0, 0, -1});
  }

  TEST_CASE("lanes beyond a block's extent load as 0, are masked, and are not stored") {
    sandbox s(R"text(device_ir 1
kernel ragged
setting static_shapes true
setting index_dtype i32
setting fast_math false
setting dot_precision tf32
host_tensor x f32[5] strides [1]
host_tensor out f32[5] strides [1]
host_tensor sums f32[2] strides [1]
symbol id int tile_id 0
block 0 u0 size 5 tile block_size 4
root root_graph_0 blocks [0] phase 0
config {"block_sizes": [4]}

def root_graph_0():
    x: "f32[5]" = helion_language__tracing_ops__host_tensor('x')
    block_size_0: "Sym(u0)" = helion_language__tracing_ops__get_symnode('block_size_0')
    load: "f32[u0]" = helion_language_memory_ops_load(x, [block_size_0], None, None)
    more: "f32[u0]" = torch.ops.aten.add.Tensor(load, 1)
    masked: "f32[u0]" = helion_language__tracing_ops__mask_to(more, 0)
    total: "f32[]" = torch.ops.aten.sum.default(masked)
    out: "f32[5]" = helion_language__tracing_ops__host_tensor('out')
    store = helion_language_memory_ops_store(out, [block_size_0], more, None)
    sums: "f32[2]" = helion_language__tracing_ops__host_tensor('sums')
    number: "Sym(id)" = helion_language_tile_ops_tile_id(block_size_0)
    store_1 = helion_language_memory_ops_store(sums, [number], total, None)
    return None
)text");
    s.set("x", {1, 2, 3, 4, 5});
    s.set("out", numbers(5));
    s.set("sums", numbers(2));
    std::vector<std::pair<std::int64_t, int>> loads; // begin of the tile, valid lanes
    std::vector<std::int64_t> stored;
    s.how.on_value = [&](const interpret::node_value& v) {
      if (s.d.at(v.node).name != "load") return;
      int valid = 0;
      for (std::size_t i = 0; i < v.count(); ++i) valid += v.is_valid(i) ? 1 : 0;
      REQUIRE(v.tiles.size() == 1);
      CHECK(v.first[0] == v.tiles[0].begin);
      CHECK(v.count() == 4);
      loads.emplace_back(v.tiles[0].begin, valid);
    };
    s.how.on_store = [&](const interpret::stored& e) {
      if (e.tensor == s.at("out")) stored.insert(stored.end(), e.offsets.begin(), e.offsets.end());
    };
    s.run();
    CHECK(s.get("out") == numbers{2, 3, 4, 5, 6});
    CHECK(s.get("sums") == numbers{14, 6});
    CHECK(loads == std::vector<std::pair<std::int64_t, int>>{{0, 4}, {4, 1}});
    CHECK(stored == std::vector<std::int64_t>{0, 1, 2, 3, 4});
    // Other tiles, the same result.
    s.how = {};
    s.how.block_sizes = {3};
    s.set("out", numbers(5));
    s.run();
    CHECK(s.get("out") == numbers{2, 3, 4, 5, 6});
    CHECK(s.get("sums") == numbers{9, 11});
  }

  TEST_CASE("jagged rows, while loops, branches, scans, atomics") {
    sandbox jagged(own("jagged_sum.txt"));
    numbers offsets(33, 6);
    offsets[0] = 0, offsets[1] = 2, offsets[2] = 2, offsets[3] = 3;
    numbers data(400, 1000);
    for (std::size_t i = 0; i < 6; ++i) data[i] = static_cast<double>(1 << i);
    jagged.set("x_offsets", offsets);
    jagged.set("x_data", data);
    jagged.set("out", numbers(32, -1));
    jagged.run();
    numbers sums(32, 0);
    sums[0] = 3, sums[2] = 4, sums[3] = 56;
    CHECK(jagged.get("out") == sums);

    sandbox halvings(own("while_loop.txt"));
    numbers n(48, 1);
    n[3] = 7, n[4] = 1024, n[5] = -3;
    halvings.set("n", n);
    halvings.set("out", numbers(48, -1));
    halvings.run();
    numbers steps(48, 0);
    steps[3] = 2, steps[4] = 10;
    CHECK(halvings.get("out") == steps);

    sandbox branches(own("branches.txt"));
    branches.set("x", numbers(64, 1));
    branches.set("out", numbers(64, -1));
    branches.symbols[static_cast<std::size_t>(*branches.d.symbols.find_symbol("u3"))] = symbolic::number{.integer = 32};
    branches.run();
    numbers sides(64, 2); // the second side, whose result has another name and is the same output, adds the tile's number
    for (std::size_t i = 32; i < 64; ++i) sides[i] = 1 + static_cast<double>(i / 16);
    CHECK(branches.get("out") == sides);

    sandbox histogram(own("atomics.txt"));
    histogram.symbols[static_cast<std::size_t>(*histogram.d.symbols.find_symbol("s0"))] = symbolic::number{.integer = 70};
    numbers bins(70, 3);
    bins[0] = 15, bins[69] = 0;
    histogram.set("bins", bins);
    histogram.set("counts", numbers(16, 1));
    histogram.run();
    numbers counts(16, 1);
    counts[0] = 2, counts[3] = 69, counts[15] = 2;
    CHECK(histogram.get("counts") == counts);
  }

  TEST_CASE("random numbers are Philox's") {
    // Counter 0 and key 0: the first word of the generator's known answer is 6627e8d5 (hexadecimal).
    sandbox s = matrix("f32[2]", "    result: \"f32[u0]\" = helion_language_random_ops_rand([rows], 0)\n");
    s.set("x", numbers(6));
    s.set("y", numbers(6));
    s.run();
    CHECK(s.get("out")[0] == doctest::Approx(0x6627e8d5 * 4.6566127342e-10));
    CHECK(s.get("out")[1] != s.get("out")[0]);
  }

  TEST_CASE("errors say what is wrong, and where") {
    sandbox unknown = matrix("f32[2, 3]", call("f32[2, 3]", "helion_language_matmul_ops_dot_scaled", "x, y"));
    unknown.set("x", numbers(6));
    unknown.set("y", numbers(6));
    CHECK(message_of<BackendUnsupported>(unknown).find("dot_scaled") != std::string::npos);
    sandbox small(own("add.txt"));
    CHECK(message_of<DeviceIRError>(small).find("bytes") != std::string::npos);
    sandbox outside(own("atomics.txt"));
    outside.set("bins", {16});
    outside.set("counts", numbers(16));
    CHECK(message_of<DeviceIRError>(outside).find("'s0' has no value") != std::string::npos);
    outside.symbols[static_cast<std::size_t>(*outside.d.symbols.find_symbol("s0"))] = symbolic::number{.integer = 1};
    CHECK(message_of<DeviceIRError>(outside).find("outside of its 16") != std::string::npos);
  }
}
