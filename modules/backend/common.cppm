module;
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

/// The fallback handlers that serve every backend whose values are tiles: symbols, control flow, pointwise operations.
/// What differs between targets they ask of the emitter and its dialect.
export module muster.backend.common;

import muster.error;
import muster.operations;
import muster.registry;
import muster.device_ir;
import muster.codegen;

#pragma GCC visibility push(default)

namespace muster::common {

using codegen::emitter;
using device_ir::node;

// symbols.cpp
void host_tensor(emitter&, const node&);
void symbol_expression(emitter&, const node&);
void constant_tensor(emitter&, const node&);
void tile_index(emitter&, const node&);
void tile_symbol(emitter&, const node&);
void identity(emitter&, const node&);
void getitem(emitter&, const node&);
void scalar_tensor(emitter&, const node&);

// control_flow.cpp
void for_loop(emitter&, const node&);
void while_loop(emitter&, const node&);
void if_(emitter&, const node&);
void phi(emitter&, const node&);

} // namespace muster::common

export namespace muster {

// clang-format off
constexpr backend<operation, codegen::handler> common_backend{.name = "common", .handlers = {
  // values and symbols
  {operation::host_tensor,     common::host_tensor},
  {operation::get_symnode,     common::symbol_expression},
  {operation::constant_tensor, common::constant_tensor},
  {operation::specialize,      common::identity},
  {operation::aten_sym_size,   common::symbol_expression},
  {operation::getitem,         common::getitem},
  {operation::aten_scalar_tensor, common::scalar_tensor},
  // symbols of a tile
  {operation::tile_index,      common::tile_index},
  {operation::tile_begin,      common::tile_symbol},
  {operation::tile_end,        common::tile_symbol},
  {operation::tile_block_size, common::tile_symbol},
  {operation::tile_count,      common::tile_symbol},
  {operation::tile_id,         common::tile_symbol},
  // control flow
  {operation::for_loop,        common::for_loop},
  {operation::for_loop_step,   common::for_loop},
  {operation::while_loop,      common::while_loop},
  {operation::if_,             common::if_},
  {operation::phi,             common::phi},
  {operation::new_var,         common::identity},
  {operation::aten_alias,      common::identity},
  // Python operators on symbols
  {operation::py_add,          common::symbol_expression},
  {operation::py_sub,          common::symbol_expression},
  {operation::py_mul,          common::symbol_expression},
  {operation::py_truediv,      common::symbol_expression},
  {operation::py_floordiv,     common::symbol_expression},
  {operation::py_mod,          common::symbol_expression},
  {operation::py_pow,          common::symbol_expression},
  {operation::py_neg,          common::symbol_expression},
  {operation::py_eq,           common::symbol_expression},
  {operation::py_ne,           common::symbol_expression},
  {operation::py_lt,           common::symbol_expression},
  {operation::py_le,           common::symbol_expression},
  {operation::py_gt,           common::symbol_expression},
  {operation::py_ge,           common::symbol_expression},
  {operation::py_and,          common::symbol_expression},
  {operation::py_or,           common::symbol_expression},
  {operation::py_not,          common::symbol_expression},
  {operation::py_identity,     common::symbol_expression},
  {operation::py_abs,          common::symbol_expression},
  {operation::py_min,          common::symbol_expression},
  {operation::py_max,          common::symbol_expression},
  {operation::py_int,          common::symbol_expression},
  {operation::py_float,        common::symbol_expression},
  {operation::py_sym_min,      common::symbol_expression},
  {operation::py_sym_max,      common::symbol_expression},
  {operation::py_sym_float,    common::symbol_expression},
  {operation::py_sym_int,      common::symbol_expression},
  {operation::py_sym_not,      common::symbol_expression},
  {operation::py_sym_size,     common::symbol_expression},
  {operation::and_,            common::symbol_expression},
  {operation::or_,             common::symbol_expression},
  {operation::not_,            common::symbol_expression},
}};
// clang-format on

} // namespace muster

#pragma GCC visibility pop
