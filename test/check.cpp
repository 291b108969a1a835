#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <doctest/doctest.h>
#include "documents.hpp"

import muster.error;
import muster.registry;
import muster.symbolic;
import muster.device_ir;
import muster.operations;
import muster.codegen;
import muster.backend.common;
import muster.backend.cpu;
import muster.builtin;
import muster.runtime;
import muster.interpret;
import muster.check;

namespace {

using namespace muster;
using device_ir::document;
using device_ir::dtype;

/// Deliberately wrong: the exponential to another base, a sum and a product with something added.
void wrong_exp(codegen::emitter& e, const codegen::node&) { e.result(e.call(codegen::intrinsic::exp2, {e.operand(0)}, dtype::f32)); }
void wrong_add(codegen::emitter& e, const codegen::node&) {
  e.result(e.binary(codegen::op::add, e.binary(codegen::op::add, e.operand(0), e.operand(1)), e.integer(1)));
}
void wrong_mul(codegen::emitter& e, const codegen::node&) {
  e.result(e.binary(codegen::op::add, e.binary(codegen::op::multiply, e.cast(e.operand(0), dtype::f32), e.cast(e.operand(1), dtype::f32)),
                    e.real(0.25)));
}

constexpr std::array exp_row{handler_row<operation, codegen::handler>{operation::aten_exp, wrong_exp}};
constexpr std::array add_row{handler_row<operation, codegen::handler>{operation::aten_add, wrong_add}};
constexpr std::array mul_row{handler_row<operation, codegen::handler>{operation::aten_mul, wrong_mul}};
constexpr auto exp_cpu = overriding<cpu_backend, exp_row>();
constexpr auto add_cpu = overriding<cpu_backend, add_row>();
constexpr auto mul_cpu = overriding<cpu_backend, mul_row>();
constexpr auto exp_registry = compose<builtin_operations, common_backend, exp_cpu>();
constexpr auto add_registry = compose<builtin_operations, common_backend, add_cpu>();
constexpr auto mul_registry = compose<builtin_operations, common_backend, mul_cpu>();

template <class R> codegen::generator generator_of(const R& registry) {
  static constexpr const codegen::target* targets[] = {&cpu_target};
  return {registry, targets};
}

/// A document with inputs that repeat in no simple pattern.
struct fixture {
  document d;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::vector<std::int64_t>> sizes, strides;
  std::vector<std::optional<symbolic::number>> symbols;

  explicit fixture(std::string_view name, std::vector<std::pair<std::string_view, std::int64_t>> given = {})
      : d(device_ir::parse(documents::read(std::filesystem::path(MUSTER_TEST_DOCUMENTS) / name), name)) {
    device_ir::verify(d);
    symbols.resize(d.symbols.symbol_count());
    for (const auto& [symbol, value] : given)
      symbols[static_cast<std::size_t>(*d.symbols.find_symbol(symbol))] = symbolic::number{.integer = value};
    for (const device_ir::symbol_declaration& s : d.declarations)
      if (s.hint && !symbols[static_cast<std::size_t>(s.id)]) symbols[static_cast<std::size_t>(s.id)] = s.hint;
      else if (s.is_float) symbols[static_cast<std::size_t>(s.id)] = symbolic::number{.is_integer = false, .real = 1e-5};
    for (const device_ir::host_tensor& t : d.tensors) {
      sizes.emplace_back();
      strides.emplace_back();
      for (const auto e : d.sizes(t)) sizes.back().push_back(d.symbols.evaluate(e, symbols)->integer);
      for (const auto e : d.strides(t)) strides.back().push_back(d.symbols.evaluate(e, symbols)->integer);
      std::int64_t last = 0;
      for (std::size_t i = 0; i < sizes.back().size(); ++i) last += (sizes.back()[i] - 1) * strides.back()[i];
      const auto size = static_cast<std::size_t>(size_of(t.element));
      memory.emplace_back(static_cast<std::size_t>(last + 1) * size);
      for (std::size_t i = 0; i < memory.back().size(); i += size) {
        const double x = is_float(t.element) ? std::sin(static_cast<double>(i * 7 + 3)) : static_cast<double>(i / size * 5 % 16);
        device_ir::double_to_element(t.element, x, &memory.back()[i]);
      }
    }
  }

  check::report run(codegen::generator& g, const check::options& how = {}) const {
    std::vector<std::span<const std::byte>> inputs(memory.begin(), memory.end());
    std::vector<check::layout> layouts;
    for (std::size_t t = 0; t < memory.size(); ++t) layouts.push_back({d.tensors[t].element, sizes[t], strides[t]});
    return check::kernel(g, d, d.config, inputs, layouts, symbols, how);
  }

  std::string node(const check::report& r) const { return r.node ? std::string(d.at(r.node->node).name) : "none"; }
};

check::options quick() {
  check::options how;
  if (const char* const compiler = std::getenv("CXX"); compiler != nullptr) how.compile.compiler = compiler;
  how.compile.flags = {"-std=c++20", "-O0"};
  how.threads = 2;
  return how;
}

} // namespace

TEST_SUITE("check") {
  TEST_CASE("tolerances") {
    CHECK(check::within(dtype::f32, 1 + 1e-6, 1, 1));
    CHECK(!check::within(dtype::f32, 1 + 1e-4, 1, 1));
    CHECK(check::within(dtype::f32, 1e-6, 0, 1)); // next to larger elements
    CHECK(!check::within(dtype::f32, 1e-6, 0, 1e-3));
    CHECK(check::within(dtype::f32, std::nan(""), std::nan(""), 1));
    CHECK(!check::within(dtype::f32, std::nan(""), 1, 1));
    CHECK(!check::within(dtype::f16, INFINITY, 65504, 65504));
    CHECK(!check::within(dtype::i32, 1, 2, 1000000));
    const std::int64_t sizes[] = {2, 2};
    const std::int64_t strides[] = {4, 1}; // what lies between rows is not looked at
    float got[8] = {1, 2, 7, 7, 3, 4, 7, 7};
    float expected[8] = {1, 2, 0, 0, 3, 5, 0, 0};
    const auto found = check::compare({dtype::f32, sizes, strides}, std::as_bytes(std::span(got)), std::as_bytes(std::span(expected)));
    REQUIRE(found.has_value());
    CHECK(found->index == std::vector<std::int64_t>{1, 1});
    CHECK(found->offset == 5);
    CHECK(found->count == 1);
    CHECK((found->got == 4 && found->expected == 5));
    expected[5] = 4;
    CHECK(!check::compare({dtype::f32, sizes, strides}, std::as_bytes(std::span(got)), std::as_bytes(std::span(expected))));
  }

  TEST_CASE("a right kernel is equal, a wrong handler is found and its node named") {
    const fixture softmax("softmax_rolled.txt");
    codegen::generator right = builtin_generator();
    CHECK(softmax.run(right, quick()).equal());
    struct wrong {
      const char* document;
      codegen::generator generator;
      const char* node;
    };
    wrong all[] = {{"softmax.txt", generator_of(exp_registry), "exp"},
                   {"while_loop.txt", generator_of(add_registry), "count"},
                   {"softmax_rolled.txt", generator_of(exp_registry), "exp"},
                   {"rms_norm.txt", generator_of(mul_registry), nullptr},
                   {"branches.txt", generator_of(mul_registry), "doubled"}};
    for (wrong& w : all) {
      CAPTURE(std::string(w.document));
      const fixture f(w.document);
      const check::report r = f.run(w.generator, quick());
      CHECK(!r.equal());
      REQUIRE(r.node.has_value());
      CHECK(r.complete);
      if (w.node != nullptr) CHECK(f.node(r) == w.node);
      else CHECK(f.d.at(r.node->node).target.find("aten.mul") != std::string_view::npos);
      CHECK(r.node->got != r.node->expected);
    }
  }

  TEST_CASE("every node of a right kernel is equal") {
    for (const char* document : {"softmax_rolled.txt", "while_loop.txt", "phases.txt", "scan.txt"}) {
      CAPTURE(std::string(document));
      const fixture f(document);
      codegen::generator g = builtin_generator();
      check::options how = quick();
      how.nodes = true;
      how.programs = 3;
      const check::report r = f.run(g, how);
      CHECK(r.equal());
      CHECK(f.node(r) == "none");
      CHECK(r.programs == 3);
    }
  }

  TEST_CASE("where not everything can be kept, the report says so") {
    const fixture f("softmax.txt");
    codegen::generator g = generator_of(exp_registry);
    check::options how = quick();
    how.elements = 100;
    const check::report r = f.run(g, how);
    CHECK(!r.equal());
    CHECK(!r.complete);
  }

  TEST_CASE("only the processor's kernels record") {
    const fixture f("softmax.txt");
    codegen::generator g = builtin_generator();
    g.record(true);
    std::string out;
    CHECK_THROWS_AS(g.generate(f.d, "triton", out), BackendUnsupported);
    g.generate(f.d, "cpu", out);
    CHECK(out.find("record::element") != std::string::npos);
    g.record(false);
    out.clear();
    g.generate(f.d, "cpu", out);
    CHECK(out.find("record") == std::string::npos);
  }
}
