#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>
#include <doctest/doctest.h>
#include "documents.hpp"

import muster.error;
import muster.device_ir;
import muster.codegen;
import muster.builtin;

namespace {

namespace fs = std::filesystem;
using namespace muster;

std::string generated(const fs::path& file, std::string_view backend = "triton") {
  const device_ir::document d = device_ir::parse(documents::read(file), file.filename().string());
  std::string out;
  builtin_generator().generate(d, backend, out);
  return out;
}

std::vector<fs::path> inputs() {
  std::vector<fs::path> files = documents::own();
  const std::vector<fs::path> more = documents::in_folder(MUSTER_TEST_GOLDEN "/triton");
  files.insert(files.end(), more.begin(), more.end());
  return files;
}

/// With MUSTER_UPDATE_GOLDEN=1 in the environment, what is generated becomes what is expected.
bool updates() { return std::getenv("MUSTER_UPDATE_GOLDEN") != nullptr; }

/// A kernel over a matrix `x` whose tile is `load`, with these statements; `value` is stored.
std::string kernel_of(std::string_view statements, std::string_view value) {
  std::string text = R"ir(device_ir 1
kernel foreign
setting static_shapes true
setting index_dtype i32
setting fast_math false
setting dot_precision tf32
host_tensor x f32[64, 32] strides [32, 1]
host_tensor out f32[64, 32] strides [32, 1]
block 0 u0 size 64 tile block_size 16
block 1 u1 size 32 tile block_size 16
root root_graph_0 blocks [0, 1] phase 0
config {"block_sizes": [16, 16], "num_warps": 4, "num_stages": 1}

def root_graph_0():
    x: "f32[64, 32]" = helion_language__tracing_ops__host_tensor('x')
    out: "f32[64, 32]" = helion_language__tracing_ops__host_tensor('out')
    rows: "Sym(u0)" = helion_language__tracing_ops__get_symnode('block_size_0')
    columns: "Sym(u1)" = helion_language__tracing_ops__get_symnode('block_size_1')
    load: "f32[u0, u1]" = helion_language_memory_ops_load(x, [rows, columns], None, None)
)ir";
  ((text += statements) += "    store = helion_language_memory_ops_store(out, [rows, columns], ") += value;
  return text += ", None)\n    return None\n";
}

std::string generated_text(std::string_view text, std::vector<std::string>* notes = nullptr) {
  codegen::generator generator = builtin_generator();
  std::string out;
  generator.generate(device_ir::parse(text, "foreign.txt"), "triton", out);
  if (notes != nullptr) notes->assign(generator.notes().begin(), generator.notes().end());
  return out;
}

} // namespace

TEST_SUITE("codegen: triton") {
  TEST_CASE("another function's source becomes one of the module's, once, and is called") {
    const std::string text = generated_text(kernel_of(
        R"(    a: "f32[u0, u1]" = helion_language_inline_triton_ops_triton_kernel('\n    @triton.jit\n    def twice(v):\n        return v + v\n', (load,), load)
    b: "f32[u0, u1]" = helion_language_inline_triton_ops_triton_kernel('\n    @triton.jit\n    def twice(v):\n        return v + v\n', [a], load)
)",
        "b"));
    const std::string definition = "\n@triton.jit\ndef twice(v):\n    return v + v\n";
    const std::size_t at = text.find(definition);
    REQUIRE(at != std::string::npos);
    CHECK(text.find(definition, at + 1) == std::string::npos);
    CHECK(text.find("a = twice(load)\n") != std::string::npos);
    CHECK(text.find("b = twice(a)\n") != std::string::npos);
  }

  TEST_CASE("two functions of one name are refused") {
    CHECK_THROWS_AS(
        generated_text(kernel_of(
            R"(    a: "f32[u0, u1]" = helion_language_inline_triton_ops_triton_kernel('def f(v):\n    return v\n', (load,), load)
    b: "f32[u0, u1]" = helion_language_inline_triton_ops_triton_kernel('def f(v):\n    return -v\n', (a,), load)
)",
            "b")),
        BackendUnsupported);
  }

  TEST_CASE("a function that the document only names is called, and a note says whose it is") {
    std::vector<std::string> notes;
    const std::string kernel = kernel_of("    sync = helion_language_inline_triton_ops_triton_kernel(<function outer.<locals>.peer_sync at "
                                         "0x7f12ab>, (x, None, 3, True), None)\n",
                                         "load");
    const std::string text = generated_text(kernel, &notes);
    CHECK(text.find("    peer_sync(x, None, 3, True)\n") != std::string::npos);
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].starts_with("peer_sync is a @triton.jit function that the document does not hold"));
    const device_ir::document d = device_ir::parse(kernel, "foreign.txt");
    std::string printed;
    device_ir::print(d, printed);
    CHECK(printed.find("<function peer_sync>") != std::string::npos);
    CHECK(device_ir::equal(device_ir::parse(printed, "printed.txt"), d));
  }

  TEST_CASE("a function's name is checked where it is read") {
    for (const std::string_view bad : {"<function>", "<function f at 12>", "<function f", "<method f>", "<function f. at 0x1>"}) {
      CAPTURE(bad);
      std::string line = "    sync = helion_language_inline_triton_ops_triton_kernel(";
      (line += bad) += ", (x,), None)\n";
      CHECK_THROWS_AS((void)device_ir::parse(kernel_of(line, "load"), "foreign.txt"), DeviceIRError);
    }
  }

  TEST_CASE("seeds are drawn at each launch; random numbers are numbered by their positions in the whole dimensions") {
    const std::string text = generated_text(kernel_of(R"(    seed: "i64[]" = helion_language_random_ops__rng_seed(1)
    noise: "f32[u0, u1]" = helion_language_random_ops_rand([rows, columns], seed)
    whole: "i32[u0, u1]" = helion_language_random_ops_randint([rows, columns], 2, 9, 7)
    four = helion_language_random_ops_rand4x(3, whole)
    last: "f32[u0, u1]" = four[3]
    sum_1: "f32[u0, u1]" = torch.ops.aten.add.Tensor(noise, last)
)",
                                                      "sum_1"));
    CHECK(text.starts_with("import torch\nimport triton\n"));
    CHECK(text.find("rng_seeds = torch.randint(-(2**63), 2**63 - 1, (2,), dtype=torch.int64, device=x.device)\n") != std::string::npos);
    CHECK(text.find("seed = tl.load(rng_seeds + 1)\n") != std::string::npos);
    CHECK(text.find("_uniform(_random(seed, indices_0[:, None].to(tl.int64) * 32 + indices_1[None, :].to(tl.int64))[0])") !=
          std::string::npos);
    CHECK(text.find("_whole(_random(7, indices_0[:, None].to(tl.int64) * 32 + indices_1[None, :].to(tl.int64))[0], 2, 9)") !=
          std::string::npos);
    CHECK(text.find("random = _random(3, ") != std::string::npos);
    CHECK(text.find("_uniform(random[3])") != std::string::npos);
    CHECK_THROWS_AS(
        generated_text(kernel_of("    whole: \"i32[u0, u1]\" = helion_language_random_ops_randint([rows, columns], 9, 9, 7)\n", "whole")),
        DeviceIRError);
  }

  TEST_CASE("golden files") {
    for (const fs::path& input : inputs()) {
      CAPTURE(input);
      const fs::path golden = fs::path(MUSTER_TEST_GOLDEN) / "triton" / input.filename().replace_extension(".py");
      const std::string text = generated(input);
      if (updates()) std::ofstream(golden, std::ios::binary) << text;
      CHECK(text == documents::read(golden));
    }
  }

  TEST_CASE("the same document gives the same bytes, whatever the generator wrote before") {
    codegen::generator reused = builtin_generator();
    for (const fs::path& input : inputs()) {
      CAPTURE(input);
      const device_ir::document d = device_ir::parse(documents::read(input), input.filename().string());
      std::string again;
      std::string other;
      reused.generate(d, "tileir", other);
      reused.generate(d, "triton", again);
      CHECK(again == generated(input));
    }
  }

  TEST_CASE("tileir is Triton with launch parameters of its own") {
    const fs::path input = fs::path(MUSTER_TEST_DOCUMENTS) / "softmax.txt";
    const device_ir::document d = device_ir::parse(documents::read(input), "softmax.txt");
    const device_ir::config config = device_ir::parse_config(R"({"num_ctas": 2, "occupancy": 4, "maxnreg": 64, "num_warps": 8})", d.config);
    std::string tileir;
    std::string triton;
    builtin_generator().generate(d, config, "tileir", tileir);
    builtin_generator().generate(d, config, "triton", triton);
    CHECK(tileir.find("num_ctas=2, occupancy=4") != std::string::npos);
    CHECK(tileir.find("maxnreg") == std::string::npos);
    CHECK(triton.find("num_ctas") == std::string::npos);
    CHECK(triton.find("maxnreg=64") != std::string::npos);
  }

  TEST_CASE("every recorded document is generated") {
    codegen::generator generator = builtin_generator();
    for (const fs::path& file : documents::recorded()) {
      CAPTURE(file);
      const device_ir::document d = device_ir::parse(documents::read(file), file.filename().string());
      std::string out;
      CHECK_NOTHROW(generator.generate(d, "triton", out));
      CHECK_NOTHROW(generator.generate(d, "tileir", out));
    }
  }
}
