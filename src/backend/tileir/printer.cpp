module;
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <fmt/format.h>
module muster.backend.tileir;

import muster.device_ir;
import muster.backend.triton;

namespace muster::tileir {

namespace {

void launch_options(const device_ir::config& c, std::string& out) {
  const auto option = [&](std::string_view name, const std::optional<std::int64_t>& value) {
    if (value) fmt::format_to(std::back_inserter(out), ", {}={}", name, *value);
  };
  option("num_warps", c.num_warps);
  option("num_stages", c.num_stages);
  option("num_ctas", c.num_ctas);
  option("occupancy", c.occupancy);
}

void write_kernel(codegen::emitter& e, std::string& out) { write_triton_module(e, out, launch_options); }

} // namespace

} // namespace muster::tileir

namespace muster {

constinit const codegen::target tileir_target{
    .name = "tileir", .language = triton_target.language, .make_emitter = triton_target.make_emitter, .write_kernel = tileir::write_kernel};

} // namespace muster
