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

// arithmetic.cpp: also what the other pointwise handlers share
struct operand_pair {
  codegen::expression first;
  codegen::expression second;
};
device_ir::dtype declared_type(const emitter&);
device_ir::dtype computing_type(const emitter&, device_ir::dtype declared, bool transcendental,
                                std::initializer_list<codegen::expression> operands);
codegen::expression integer_or_real(emitter&, double value, device_ir::dtype type);
operand_pair promoted(emitter&, codegen::expression x, codegen::expression y, device_ir::dtype type);
codegen::expression binary_of(emitter&, codegen::op o, codegen::expression x, codegen::expression y, bool transcendental);
codegen::expression float_remainder(emitter&, codegen::expression x, codegen::expression y, device_ir::dtype type);
codegen::expression floor_of_quotient(emitter&, codegen::expression x, codegen::expression y, device_ir::dtype type);
codegen::expression floor_divided(emitter&, codegen::expression x, codegen::expression y, device_ir::dtype type);
void add(emitter&, const node&);
void sub(emitter&, const node&);
void rsub(emitter&, const node&);
void mul(emitter&, const node&);
void div(emitter&, const node&);
void floor_divide(emitter&, const node&);
void remainder(emitter&, const node&);
void fmod(emitter&, const node&);
void neg(emitter&, const node&);
void abs(emitter&, const node&);
void square(emitter&, const node&);
void reciprocal(emitter&, const node&);
void pow(emitter&, const node&);
void addcmul(emitter&, const node&);
void addcdiv(emitter&, const node&);
void lerp(emitter&, const node&);

// comparison.cpp
codegen::expression select(emitter&, codegen::expression test, codegen::expression a, codegen::expression b, device_ir::dtype type);
codegen::expression truth(emitter&, codegen::expression x);
void eq(emitter&, const node&);
void ne(emitter&, const node&);
void lt(emitter&, const node&);
void le(emitter&, const node&);
void gt(emitter&, const node&);
void ge(emitter&, const node&);
void logical_and(emitter&, const node&);
void logical_or(emitter&, const node&);
void logical_xor(emitter&, const node&);
void logical_not(emitter&, const node&);
void bitwise_and(emitter&, const node&);
void bitwise_or(emitter&, const node&);
void bitwise_xor(emitter&, const node&);
void bitwise_not(emitter&, const node&);
void shift_left(emitter&, const node&);
void shift_right(emitter&, const node&);
void where(emitter&, const node&);
void masked_fill(emitter&, const node&);
void maximum(emitter&, const node&);
void minimum(emitter&, const node&);
void fmax(emitter&, const node&);
void fmin(emitter&, const node&);
void clamp(emitter&, const node&);
void clamp_min(emitter&, const node&);
void clamp_max(emitter&, const node&);
void hardtanh(emitter&, const node&);
void isnan(emitter&, const node&);
void isinf(emitter&, const node&);
void isfinite(emitter&, const node&);
void nan_to_num(emitter&, const node&);
void sign(emitter&, const node&);

// transcendental.cpp
codegen::expression function_operand(emitter&, std::size_t i);
codegen::expression call(emitter&, codegen::intrinsic f, codegen::expression x);
void acos(emitter&, const node&);
void acosh(emitter&, const node&);
void asin(emitter&, const node&);
void asinh(emitter&, const node&);
void atan(emitter&, const node&);
void atanh(emitter&, const node&);
void cos(emitter&, const node&);
void cosh(emitter&, const node&);
void digamma(emitter&, const node&);
void erf(emitter&, const node&);
void erfc(emitter&, const node&);
void erfinv(emitter&, const node&);
void exp(emitter&, const node&);
void expm1(emitter&, const node&);
void lgamma(emitter&, const node&);
void log(emitter&, const node&);
void log1p(emitter&, const node&);
void sin(emitter&, const node&);
void sinh(emitter&, const node&);
void sqrt(emitter&, const node&);
void tan(emitter&, const node&);
void tanh(emitter&, const node&);
void exp2(emitter&, const node&);
void log2(emitter&, const node&);
void log10(emitter&, const node&);
void rsqrt(emitter&, const node&);
void ceil(emitter&, const node&);
void floor(emitter&, const node&);
void trunc(emitter&, const node&);
void round(emitter&, const node&);
void atan2(emitter&, const node&);
void copysign(emitter&, const node&);
void hypot(emitter&, const node&);
void nextafter(emitter&, const node&);
void signbit(emitter&, const node&);
void xlogy(emitter&, const node&);
void sigmoid(emitter&, const node&);
void silu(emitter&, const node&);
void gelu(emitter&, const node&);
void gelu_erf(emitter&, const node&);
void gelu_tanh(emitter&, const node&);
void relu(emitter&, const node&);
void leaky_relu(emitter&, const node&);
void elu(emitter&, const node&);
void softplus(emitter&, const node&);
void logit(emitter&, const node&);
void convert_element_type(emitter&, const node&);
void clone(emitter&, const node&);

} // namespace muster::common

export namespace muster {

// clang-format off
constexpr handler_row<operation, codegen::handler> common_rows[] = {
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
  // ATen pointwise operations
  {operation::aten_abs,                 common::abs},
  {operation::aten_acos,                common::acos},
  {operation::aten_acosh,               common::acosh},
  {operation::aten_add,                 common::add},
  {operation::aten_addcdiv,             common::addcdiv},
  {operation::aten_addcmul,             common::addcmul},
  {operation::aten_asin,                common::asin},
  {operation::aten_asinh,               common::asinh},
  {operation::aten_atan,                common::atan},
  {operation::aten_atan2,               common::atan2},
  {operation::aten_atanh,               common::atanh},
  {operation::aten_bitwise_and,         common::bitwise_and},
  {operation::aten_bitwise_left_shift,  common::shift_left},
  {operation::aten_bitwise_not,         common::bitwise_not},
  {operation::aten_bitwise_or,          common::bitwise_or},
  {operation::aten_bitwise_right_shift, common::shift_right},
  {operation::aten_bitwise_xor,         common::bitwise_xor},
  {operation::aten_lshift,              common::shift_left},
  {operation::aten_rshift,              common::shift_right},
  {operation::aten_ceil,                common::ceil},
  {operation::aten_clamp,               common::clamp},
  {operation::aten_clamp_max,           common::clamp_max},
  {operation::aten_clamp_min,           common::clamp_min},
  {operation::aten_copysign,            common::copysign},
  {operation::aten_cos,                 common::cos},
  {operation::aten_cosh,                common::cosh},
  {operation::aten_digamma,             common::digamma},
  {operation::aten_div,                 common::div},
  {operation::aten_elu,                 common::elu},
  {operation::aten_eq,                  common::eq},
  {operation::aten_erf,                 common::erf},
  {operation::aten_erfc,                common::erfc},
  {operation::aten_erfinv,              common::erfinv},
  {operation::aten_exp,                 common::exp},
  {operation::aten_exp2,                common::exp2},
  {operation::aten_expm1,               common::expm1},
  {operation::aten_floor,               common::floor},
  {operation::aten_floor_divide,        common::floor_divide},
  {operation::aten_fmod,                common::fmod},
  {operation::aten_ge,                  common::ge},
  {operation::aten_gelu,                common::gelu},
  {operation::aten_gt,                  common::gt},
  {operation::aten_hardtanh,            common::hardtanh},
  {operation::aten_hypot,               common::hypot},
  {operation::aten_isfinite,            common::isfinite},
  {operation::aten_isinf,               common::isinf},
  {operation::aten_isnan,               common::isnan},
  {operation::aten_le,                  common::le},
  {operation::aten_leaky_relu,          common::leaky_relu},
  {operation::aten_lerp,                common::lerp},
  {operation::aten_lgamma,              common::lgamma},
  {operation::aten_log,                 common::log},
  {operation::aten_log10,               common::log10},
  {operation::aten_log1p,               common::log1p},
  {operation::aten_log2,                common::log2},
  {operation::aten_logical_and,         common::logical_and},
  {operation::aten_logical_not,         common::logical_not},
  {operation::aten_logical_or,          common::logical_or},
  {operation::aten_logical_xor,         common::logical_xor},
  {operation::aten_logit,               common::logit},
  {operation::aten_lt,                  common::lt},
  {operation::aten_masked_fill,         common::masked_fill},
  {operation::aten_maximum,             common::maximum},
  {operation::aten_minimum,             common::minimum},
  {operation::aten_mul,                 common::mul},
  {operation::aten_nan_to_num,          common::nan_to_num},
  {operation::aten_ne,                  common::ne},
  {operation::aten_neg,                 common::neg},
  {operation::aten_nextafter,           common::nextafter},
  {operation::aten_pow,                 common::pow},
  {operation::aten_reciprocal,          common::reciprocal},
  {operation::aten_relu,                common::relu},
  {operation::aten_remainder,           common::remainder},
  {operation::aten_round,               common::round},
  {operation::aten_rsqrt,               common::rsqrt},
  {operation::aten_rsub,                common::rsub},
  {operation::aten_sigmoid,             common::sigmoid},
  {operation::aten_sign,                common::sign},
  {operation::aten_signbit,             common::signbit},
  {operation::aten_silu,                common::silu},
  {operation::aten_sin,                 common::sin},
  {operation::aten_sinh,                common::sinh},
  {operation::aten_softplus,            common::softplus},
  {operation::aten_sqrt,                common::sqrt},
  {operation::aten_square,              common::square},
  {operation::aten_sub,                 common::sub},
  {operation::aten_tan,                 common::tan},
  {operation::aten_tanh,                common::tanh},
  {operation::aten_trunc,               common::trunc},
  {operation::aten_true_divide,         common::div},
  {operation::aten_where,               common::where},
  {operation::aten_xlogy,               common::xlogy},
  {operation::aten_fmax,                common::fmax},
  {operation::aten_fmin,                common::fmin},
  {operation::aten_clone,               common::clone},
  {operation::prims_convert_element_type, common::convert_element_type},
  {operation::aten_to_copy,         common::convert_element_type},
  {operation::gelu_erf,             common::gelu_erf},
  {operation::gelu_tanh_approx,     common::gelu_tanh},
};
// clang-format on

constexpr backend<operation, codegen::handler> common_backend{.name = "common", .parts = common_rows};

} // namespace muster

#pragma GCC visibility pop
