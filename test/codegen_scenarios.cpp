#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <doctest/doctest.h>
#include "documents.hpp"

import muster.error;
import muster.device_ir;
import muster.codegen;
import muster.builtin;

namespace {

namespace fs = std::filesystem;
using namespace muster;

std::string document(std::string_view name) {
  const std::string text = documents::read(fs::path(MUSTER_TEST_SCENARIOS) / (std::string(name) + ".txt"));
  REQUIRE_MESSAGE(!text.empty(), name);
  return text;
}

std::string generated(std::string_view text, std::string_view backend) {
  std::string out;
  builtin_generator().generate(device_ir::parse(text, "k.txt"), backend, out);
  return out;
}

/// The kernel of a document of test/scenarios, without what stands around it.
std::string kernel(std::string_view name, std::string_view backend) {
  const std::string all = generated(document(name), backend);
  const bool c = backend == "cpu";
  const std::size_t begin = c ? all.rfind("namespace {") : all.find("_kernel(");
  const std::size_t end = all.find(c ? "\n} // namespace" : "\ndef ", begin);
  REQUIRE(begin != std::string::npos);
  return all.substr(begin, end - begin);
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

bool has(std::string_view text, std::string_view part) { return count(text, part) != 0; }

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  REQUIRE(has(text, from));
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

/// The first line of what generation says of the document.
std::string fault(std::string_view text, std::string_view backend) {
  try {
    (void)generated(text, backend);
  } catch (const Error& error) {
    const std::string_view what = error.what();
    return std::string(what.substr(0, what.find('\n')));
  }
  return "no error";
}

} // namespace

TEST_SUITE("codegen: scenarios") {
  TEST_CASE("a product between two types converts in the text") {
    const std::string triton = kernel("b083_two_products", "triton");
    CHECK(has(triton, "narrow = gated.to(tl.bfloat16)\n"));
    CHECK(has(triton, "tl.dot(narrow, c)"));
    CHECK(has(kernel("b083_two_products", "cpu"), "bfloat16(gated)"));
  }

  TEST_CASE("program numbers are widened before they are multiplied") {
    CHECK(has(kernel("b085_wide_rows", "triton"), "pid = tl.program_id(0).to(tl.int64)\n"));
    CHECK(has(kernel("b139_large_batch", "triton"), "offset_0.to(tl.int64) * 7864320"));
    for (const std::string_view name : {"b085_wide_rows", "b139_large_batch"}) {
      const std::string cpu = kernel(name, "cpu");
      CHECK(has(cpu, "std::int64_t offset_0 = "));
      CHECK(!has(cpu, "std::int32_t"));
    }
  }

  TEST_CASE("a barrier stands between a store and a load of one tensor, and nowhere else") {
    const std::string text = kernel("b089_store_then_load", "triton");
    const std::size_t store = text.find("tl.store(buffer");
    const std::size_t other = text.find("tl.load(x", store);
    const std::size_t barrier = text.find("tl.debug_barrier()");
    const std::size_t load = text.find("tl.load(buffer");
    CHECK(store < other);
    CHECK(other < barrier);
    CHECK(barrier < load);
    CHECK(count(text, "tl.debug_barrier()") == 1);
    CHECK(!has(kernel("b089_store_then_load", "tileir"), "debug_barrier")); // its memory operations are ordered
    for (const std::string_view name : {"b098_copy_of_64", "b131_three_blocks", "b092_rolled_broadcast"})
      CHECK(!has(kernel(name, "triton"), "debug_barrier"));
  }

  TEST_CASE("of a branch that is known not to be taken nothing is written") {
    for (const std::string_view name : {"b091_branch_on_false", "b091_branch_on_zero", "b091_branch_on_zero_point"})
      for (const std::string_view backend : {"triton", "tileir", "cpu"}) {
        const std::string text = kernel(name, backend);
        CHECK(!has(text, "7.0"));
        CHECK(!has(text, "times_seven"));
        CHECK(!has(text, "if"));
        CHECK(has(text, "value + 1.0"));
      }
  }

  TEST_CASE("a block that the kernel fixes has its size everywhere") {
    const std::string all = generated(document("b094_fixed_inner_block"), "triton");
    CHECK(has(all, "_BLOCK_SIZE_1 = tl.constexpr(16)\n"));
    CHECK(has(all, "tl.range(0, 64, _BLOCK_SIZE_1, "));
    CHECK(has(kernel("b094_fixed_inner_block", "cpu"), "offset_1 += 16"));
  }

  TEST_CASE("source lines keep their bytes") {
    for (const std::string_view backend : {"triton", "tileir", "cpu"})
      CHECK(has(generated(document("b104_source_lines"), backend), " y = x * 2  # «Übergröße» ≠ π\n"));
  }

  TEST_CASE("constants have a point or an exponent, and C's the suffix of their type") {
    for (const std::string_view name : {"b114_constants_f32", "b114_constants_f64"}) {
      const std::string cpu = kernel(name, "cpu");
      const bool single = name.ends_with("f32");
      CHECK(count(cpu, "] = ") == 15);
      for (std::size_t at = cpu.find("] = "); at != std::string::npos; at = cpu.find("] = ", at + 1)) {
        const std::string literal = cpu.substr(at + 4, cpu.find(';', at) - at - 4);
        if (has(literal, "infinity") || has(literal, "nan")) continue;
        CAPTURE(literal);
        CHECK(literal.find_first_of(".e") != std::string::npos);
        CHECK((literal.back() == 'f') == single);
      }
    }
    const std::string triton = kernel("b114_constants_f64", "triton");
    for (const std::string_view literal : {"3.141592653589793", "0.1", "1e-20", "3.4028235e+38", "5e-324", "-3.4028234663852886e+38",
                                           "1e+30", "2.0", "1e+16", "float(\"inf\")", "float(\"-inf\")", "float(\"nan\")"})
      CHECK(has(triton, "tl.full([], " + std::string(literal) + ", tl.float64)")); // a bare number would be of single precision
  }

  TEST_CASE("division that rounds down is no operator of C") {
    const std::string cpu = kernel("b119_floor_of_negatives", "cpu");
    CHECK(!has(cpu, "//"));
    CHECK(count(cpu, "math::floor_divide(") == 2);
    CHECK(!has(cpu, " / "));
  }

  TEST_CASE("values make way for what the target calls") {
    const std::string triton = kernel("b121_names_of_builtins", "triton");
    for (const std::string_view name : {"tl", "triton", "max", "min", "sum", "range", "float", "int", "libdevice", "launch"}) {
      CAPTURE(name);
      CHECK(!has(triton, " " + std::string(name) + " = "));
    }
    const std::string cpu = kernel("b121_names_of_builtins", "cpu");
    for (const std::string_view name : {"new", "float", "int", "auto", "std", "math"}) {
      CAPTURE(name);
      CHECK(!has(cpu, " " + std::string(name) + " = "));
    }
  }

  TEST_CASE("temporaries make way for arguments") {
    const std::string triton = kernel("b123_names_of_temporaries", "triton");
    CHECK(triton.starts_with("_kernel(load, load_1, v_0, mask_0, indices_0, offset_0, pid_0, out):"));
    for (const std::string_view name : {"load", "load_1", "v_0", "mask_0", "indices_0", "offset_0", "pid_0"})
      CHECK(!has(triton, "\n    " + std::string(name) + " = "));
    const std::string all = generated(document("b124_names_of_constants"), "triton");
    CHECK(count(all, "\n_BLOCK_SIZE_0 = tl.constexpr(8)") == 1);
    CHECK(!has(all, "(_BLOCK_SIZE_0, "));
    CHECK(!has(all, "def names_of_constants_kernel(launch, launch"));
  }

  TEST_CASE("a reduced length is rounded up and masked") {
    const std::string all = generated(document("b129_maximum_of_the_middle"), "triton");
    CHECK(has(all, "_BLOCK_SIZE_2 = tl.constexpr(128)\n"));
    CHECK(has(all, "mask_2 = indices_2 < 101\n"));
  }

  TEST_CASE("what is stored or carried is converted to its type") {
    CHECK(has(kernel("b133_atomic_add_f16", "triton"), "value.to(tl.float16)"));
    CHECK(has(kernel("b133_atomic_add_bf16", "triton"), "value.to(tl.bfloat16)"));
    CHECK(has(kernel("b135_carried_f16", "triton"), "value = (value.to(tl.float32) / a).to(tl.float16)\n"));
  }

  TEST_CASE("reduced precision is for products of f32 alone") {
    CHECK(has(kernel("b136_product_f32", "triton"), "tl.dot(a, b, input_precision=\"tf32\")"));
    CHECK(has(kernel("b136_product_bf16", "triton"), "tl.dot(a, b)\n"));
    CHECK(has(kernel("b136_product_f16", "triton"), "tl.dot(a, b)\n"));
  }

  TEST_CASE("refused: indices outside of their dimension, lanes that meet, shapes that do not broadcast") {
    for (const std::string_view backend : {"triton", "tileir", "cpu"}) {
      CAPTURE(backend);
      CHECK(fault(replaced(document("b090_last_element"), "[-2]", "[-65]"), backend) ==
            "k.txt:25:5: error: index -65 is out of range for a dimension of 64");
      CHECK(fault(replaced(document("b090_last_element"), "[-2]", "[64]"), backend) ==
            "k.txt:25:5: error: index 64 is out of range for a dimension of 64");
      CHECK(fault(replaced(document("b090_last_element"), "[-2]", "[-64]"), backend) == "no error");
      CHECK(fault(replaced(document("b131_three_blocks"), "out f32[2, 384] strides [384, 1]", "out f32[2, 384] strides [1, 0]"), backend) ==
            "k.txt:23: Backend '" + std::string(backend) +
                "' does not support this use of store: a store of several lanes to one element of a tensor that repeats its elements "
                "(stride 0)");
      constexpr std::string_view shapes = "k.txt:24:5: error: 'mean' of shape [u0] does not broadcast to [u0, u1], the shape of 'apart': a "
                                          "dimension may have to be inserted";
      const std::string wide = document("b070_shifted_variance");
      const std::string square = replaced(replaced(replaced(wide, "1000", "4"), "1024", "4"), "block_size 2", "block_size 4");
      for (const std::string& text : {wide, square}) // as many rows as columns: still two dimensions
        CHECK(fault(replaced(text, "sub.Tensor(row, column)", "sub.Tensor(row, mean)"), backend) == shapes);
    }
  }
}
