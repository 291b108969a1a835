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

} // namespace

TEST_SUITE("codegen: triton") {
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
