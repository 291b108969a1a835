// The built-in backends in a registry of the program's own: an operation added, a single handler replaced, a generator over it.
#include <cstdint>
#include <cstdio>
#include <string>
#include "programs.hpp"
import muster;
import muster.backend.common;
import muster.backend.triton;
import muster.backend.tileir;

using muster::operation;
using muster::codegen::emitter;
using muster::codegen::handler;
using muster::device_ir::node;

int loads = 0;
void counted_load(emitter& e, const node& n);
void softcap(emitter& e, const node& n);

void counted_load(emitter& e, const node& n) {
  ++loads;
  muster::builtin_registry().at("triton", operation::load)(e, n);
}
void softcap(emitter& /*e*/, const node& /*n*/) {}

namespace {

constexpr auto softcap_id = static_cast<operation>(muster::operation_count);
constexpr muster::operation_entry<operation> added[] = {{softcap_id, "softcap"}};
constexpr auto operations = muster::extended<muster::builtin_operations, added>();
constexpr muster::handler_row<operation, handler> mine[] = {{operation::load, counted_load}, {softcap_id, softcap}};
constexpr auto my_triton = muster::overriding<muster::triton_backend, mine>();
constexpr auto registry = muster::compose<operations, muster::common_backend, my_triton, muster::tileir_backend>();

static_assert(registry.find("tileir", operation::load) == counted_load);
static_assert(registry.find("tileir", "softcap") == softcap);

int cells_that_differ() {
  int differ = 0;
  for (const auto& backend : registry.backends())
    for (const auto& o : muster::builtin_registry().operations())
      if (registry.find(backend.name, o.id) != muster::builtin_registry().find(backend.name, o.id)) ++differ;
  return differ;
}

} // namespace

int main() {
  const muster::codegen::target* const targets[] = {&muster::triton_target, &muster::tileir_target};
  muster::codegen::generator generator(registry, targets);
  for (const char* text : documents) {
    const muster::device_ir::document d = muster::device_ir::parse(text, "document");
    for (const char* backend : {"triton", "tileir", "triton"}) {
      std::string theirs;
      std::string ours;
      muster::builtin_generator().generate(d, backend, theirs);
      const int before = loads;
      generator.generate(d, backend, ours);
      if (ours != theirs || loads == before) return std::printf("%s: another text, or the handler was not called\n", backend), 1;
    }
  }
  if (const int differ = cells_that_differ(); differ != 2) return std::printf("%d cells differ, not 2\n", differ), 1;
  std::puts("works");
}
