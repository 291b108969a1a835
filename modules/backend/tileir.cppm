module;
#include <cstdint>
#include <initializer_list>
#include <string_view>

/// TileIR: Triton's language and handlers, with launch parameters of its own (`num_ctas`, `occupancy`).
export module muster.backend.tileir;

import muster.operations;
import muster.registry;
import muster.codegen;

#pragma GCC visibility push(default)

export namespace muster {

constexpr std::string_view tileir_launch_parameters[] = {"grid", "num_ctas", "num_stages", "num_warps", "occupancy", "warmup"};

constexpr backend<operation, codegen::handler> tileir_backend{
    .name = "tileir", .codegen_name = "triton", .reserved_launch_parameters = tileir_launch_parameters};

/// How a TileIR kernel is written.
extern const codegen::target tileir_target;

} // namespace muster

#pragma GCC visibility pop
