module;
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

/// TileIR: Triton's language and handlers, with launch parameters of its own (`num_ctas`, `occupancy`).
export module muster.backend.tileir;

import muster.operations;
import muster.registry;
import muster.codegen;
import muster.backend.triton;

#pragma GCC visibility push(default)

namespace muster::tileir {

void write_kernel(codegen::emitter& e, std::string& out);

} // namespace muster::tileir

export namespace muster {

constexpr backend<operation, codegen::handler> tileir_backend{
    .name = "tileir",
    .codegen_name = "triton",
    .reserved_launch_parameters = {"grid", "num_ctas", "num_stages", "num_warps", "occupancy", "warmup"},
};

/// How a TileIR kernel is written.
constexpr codegen::target tileir_target{
    .name = "tileir", .language = triton_target.language, .make_emitter = triton_target.make_emitter, .write_kernel = tileir::write_kernel};

} // namespace muster

#pragma GCC visibility pop
