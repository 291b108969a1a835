module;
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

/// The operations of the device IR: enum, names, families. One table; everything else is made from it.
export module muster.operations;

import muster.error;
import muster.registry;

// One row an operation: identifier, name, the API function's long name in a document (empty: none), the overloads that a
// document may spell behind the name (`aten.add` with `Tensor` is `torch.ops.aten.add.Tensor`), category.
// clang-format off
#define MUSTER_OPERATIONS(X) \
  /* values and symbols */ \
  X(host_tensor,                            "_host_tensor",                         "helion_language__tracing_ops__host_tensor",                                    "",                                  symbol) \
  X(get_symnode,                            "_get_symnode",                         "helion_language__tracing_ops__get_symnode",                                    "",                                  symbol) \
  X(constant_tensor,                        "_constant_tensor",                     "helion_language__tracing_ops__constant_tensor",                                "",                                  symbol) \
  X(specialize,                             "specialize",                           "helion_language_constexpr_specialize",                                         "",                                  symbol) \
  X(register_block_size,                    "register_block_size",                  "helion_language_tunable_ops_register_block_size",                              "",                                  symbol) \
  X(register_tunable,                       "register_tunable",                     "helion_language_tunable_ops_register_tunable",                                 "",                                  symbol) \
  /* control flow */ \
  X(for_loop,                               "_for_loop",                            "helion_language__tracing_ops__for_loop",                                       "",                                  control_flow) \
  X(for_loop_step,                          "_for_loop_step",                       "helion_language__tracing_ops__for_loop_step",                                  "",                                  control_flow) \
  X(while_loop,                             "_while_loop",                          "helion_language__tracing_ops__while_loop",                                     "",                                  control_flow) \
  X(if_,                                    "_if",                                  "helion_language__tracing_ops__if",                                             "",                                  control_flow) \
  X(phi,                                    "_phi",                                 "helion_language__tracing_ops__phi",                                            "",                                  control_flow) \
  X(new_var,                                "_new_var",                             "helion_language__tracing_ops__new_var",                                        "",                                  control_flow) \
  X(inductor_lowering_extra,                "_inductor_lowering_extra",             "helion_language__tracing_ops__inductor_lowering_extra",                        "",                                  control_flow) \
  X(barrier,                                "barrier",                              "helion_language_barrier_barrier",                                              "",                                  control_flow) \
  /* loops of the traced program */ \
  X(tile,                                   "tile",                                 "helion_language_loops_tile",                                                   "",                                  loop) \
  X(jagged_tile,                            "jagged_tile",                          "helion_language_loops_jagged_tile",                                            "",                                  loop) \
  X(grid,                                   "grid",                                 "helion_language_loops_grid",                                                   "",                                  loop) \
  X(static_range,                           "static_range",                         "helion_language_loops_static_range",                                           "",                                  loop) \
  X(zip_replacement,                        "_zip_replacement",                     "helion_language_loops__zip_replacement",                                       "",                                  loop) \
  X(enumerate_replacement,                  "_enumerate_replacement",               "helion_language_loops__enumerate_replacement",                                 "",                                  loop) \
  /* symbols of a tile */ \
  X(tile_index,                             "tile_index",                           "helion_language_tile_ops_tile_index",                                          "",                                  symbol) \
  X(tile_begin,                             "tile_begin",                           "helion_language_tile_ops_tile_begin",                                          "",                                  symbol) \
  X(tile_end,                               "tile_end",                             "helion_language_tile_ops_tile_end",                                            "",                                  symbol) \
  X(tile_block_size,                        "tile_block_size",                      "helion_language_tile_ops_tile_block_size",                                     "",                                  symbol) \
  X(tile_count,                             "tile_count",                           "helion_language_tile_ops_tile_count",                                          "",                                  symbol) \
  X(tile_id,                                "tile_id",                              "helion_language_tile_ops_tile_id",                                             "",                                  symbol) \
  /* scalar logic */ \
  X(and_,                                   "_and",                                 "helion_language__tracing_ops__and",                                            "",                                  pointwise) \
  X(or_,                                    "_or",                                  "helion_language__tracing_ops__or",                                             "",                                  pointwise) \
  X(not_,                                   "_not",                                 "helion_language__tracing_ops__not",                                            "",                                  pointwise) \
  /* memory */ \
  X(load,                                   "load",                                 "helion_language_memory_ops_load",                                              "",                                  memory) \
  X(store,                                  "store",                                "helion_language_memory_ops_store",                                             "",                                  memory) \
  /* atomics */ \
  X(atomic_add,                             "atomic_add",                           "helion_language_atomic_ops_atomic_add",                                        "",                                  atomic) \
  X(atomic_xchg,                            "atomic_xchg",                          "helion_language_atomic_ops_atomic_xchg",                                       "",                                  atomic) \
  X(atomic_and,                             "atomic_and",                           "helion_language_atomic_ops_atomic_and",                                        "",                                  atomic) \
  X(atomic_or,                              "atomic_or",                            "helion_language_atomic_ops_atomic_or",                                         "",                                  atomic) \
  X(atomic_xor,                             "atomic_xor",                           "helion_language_atomic_ops_atomic_xor",                                        "",                                  atomic) \
  X(atomic_max,                             "atomic_max",                           "helion_language_atomic_ops_atomic_max",                                        "",                                  atomic) \
  X(atomic_min,                             "atomic_min",                           "helion_language_atomic_ops_atomic_min",                                        "",                                  atomic) \
  X(atomic_cas,                             "atomic_cas",                           "helion_language_atomic_ops_atomic_cas",                                        "",                                  atomic) \
  /* masks and tiles */ \
  X(mask_to,                                "_mask_to",                             "helion_language__tracing_ops__mask_to",                                        "",                                  pointwise) \
  X(pre_broadcast_tile,                     "_pre_broadcast_tile",                  "helion_language__tracing_ops__pre_broadcast_tile",                             "",                                  pointwise) \
  /* creation */ \
  X(full,                                   "full",                                 "helion_language_creation_ops_full",                                            "",                                  creation) \
  /* views */ \
  X(subscript,                              "subscript",                            "helion_language_view_ops_subscript",                                           "",                                  view) \
  X(split,                                  "split",                                "helion_language_view_ops_split",                                               "",                                  view) \
  X(join,                                   "join",                                 "helion_language_view_ops_join",                                                "",                                  view) \
  X(stack_tensor,                           "_stack_tensor",                        "helion_language_stack_tensor__stack_tensor",                                   "",                                  view) \
  /* pointwise */ \
  X(gelu_tanh_approx,                       "_gelu_tanh_approx",                    "helion_language__gelu_tanh_approx__gelu_tanh_approx",                          "",                                  pointwise) \
  X(gelu_erf,                               "_gelu_erf",                            "helion_language__gelu_tanh_approx__gelu_erf",                                  "",                                  pointwise) \
  X(inline_asm_elementwise,                 "inline_asm_elementwise",               "helion_language_inline_asm_ops_inline_asm_elementwise",                        "",                                  pointwise) \
  X(float4_e2m1fn_x2_to_float32,            "float4_e2m1fn_x2_to_float32",          "helion_language_quantized_ops_float4_e2m1fn_x2_to_float32",                    "",                                  pointwise) \
  /* quantized loads */ \
  X(load_float4_e2m1fn_x16_to_float16,      "load_float4_e2m1fn_x16_to_float16",    "helion_language_quantized_ops_load_float4_e2m1fn_x16_to_float16",              "",                                  memory) \
  X(load_bfloat16_x16_to_float16,           "load_bfloat16_x16_to_float16",         "helion_language_quantized_ops_load_bfloat16_x16_to_float16",                   "",                                  memory) \
  /* matrix products */ \
  X(dot,                                    "dot",                                  "helion_language_matmul_ops_dot",                                               "",                                  matmul) \
  X(dot_scaled,                             "dot_scaled",                           "helion_language_matmul_ops_dot_scaled",                                        "",                                  matmul) \
  /* reductions and scans */ \
  X(device_reduce,                          "_reduce",                              "helion_language_reduce_ops__reduce",                                           "",                                  reduction) \
  X(reduce,                                 "reduce",                               "helion_language_reduce_ops_reduce",                                            "",                                  reduction) \
  X(device_associative_scan,                "_associative_scan",                    "helion_language_scan_ops__associative_scan",                                   "",                                  reduction) \
  X(associative_scan,                       "associative_scan",                     "helion_language_scan_ops_associative_scan",                                    "",                                  reduction) \
  /* random numbers */ \
  X(rng_seed,                               "_rng_seed",                            "helion_language_random_ops__rng_seed",                                         "",                                  random) \
  X(rand,                                   "rand",                                 "helion_language_random_ops_rand",                                              "",                                  random) \
  X(rand4x,                                 "rand4x",                               "helion_language_random_ops_rand4x",                                            "",                                  random) \
  X(randint,                                "randint",                              "helion_language_random_ops_randint",                                           "",                                  random) \
  /* another language's source */ \
  X(inline_triton,                          "inline_triton",                        "helion_language_inline_triton_ops_inline_triton",                              "",                                  foreign) \
  X(triton_kernel,                          "triton_kernel",                        "helion_language_inline_triton_ops_triton_kernel",                              "",                                  foreign) \
  /* debugging */ \
  X(breakpoint,                             "breakpoint",                           "helion_language_debug_ops_breakpoint",                                         "",                                  debug) \
  X(device_print,                           "device_print",                         "helion_language_device_print_device_print",                                    "",                                  debug) \
  /* distributed */ \
  X(remote_barrier,                         "remote_barrier",                       "helion_language_distributed_ops_remote_barrier",                               "",                                  distributed) \
  X(make_async_remote_copy,                 "make_async_remote_copy",               "helion_language_distributed_ops_make_async_remote_copy",                       "",                                  distributed) \
  X(start_async_remote_copy_descriptor,     "start_async_remote_copy_descriptor",   "helion_language_distributed_ops_start_async_remote_copy_descriptor",           "",                                  distributed) \
  X(wait_async_remote_copy,                 "wait_async_remote_copy",               "helion_language_distributed_ops_wait_async_remote_copy",                       "",                                  distributed) \
  X(wait_send_async_remote_copy,            "wait_send_async_remote_copy",          "helion_language_distributed_ops_wait_send_async_remote_copy",                  "",                                  distributed) \
  X(wait_recv_async_remote_copy,            "wait_recv_async_remote_copy",          "helion_language_distributed_ops_wait_recv_async_remote_copy",                  "",                                  distributed) \
  /* structural ATen lowerings */ \
  X(aten_sym_size,                          "aten.sym_size",                        "", "int",                                  symbol) \
  X(getitem,                                "operator.getitem",                     "", "",                                     view) \
  X(aten_unsqueeze,                         "aten.unsqueeze",                       "", "default",                              view) \
  X(aten_squeeze,                           "aten.squeeze",                         "", "dim default dims",                     view) \
  X(aten_view,                              "aten.view",                            "", "default",                              view) \
  X(aten_reshape,                           "aten.reshape",                         "", "default",                              view) \
  X(aten_view_dtype,                        "aten.view.dtype",                      "", "",                                     view) \
  X(aten_alias,                             "aten.alias",                           "", "default",                              view) \
  X(aten_clone,                             "aten.clone",                           "", "default",                              view) \
  X(aten_permute,                           "aten.permute",                         "", "default",                              view) \
  X(aten_transpose,                         "aten.transpose",                       "", "int",                                  view) \
  X(aten_t,                                 "aten.t",                               "", "default",                              view) \
  X(aten_stack,                             "aten.stack",                           "", "default",                              view) \
  X(aten_cat,                               "aten.cat",                             "", "default",                              view) \
  X(aten_expand,                            "aten.expand",                          "", "default",                              view) \
  X(aten_constant_pad_nd,                   "aten.constant_pad_nd",                 "", "default",                              view) \
  X(aten_gather,                            "aten.gather",                          "", "default",                              view) \
  X(aten_full,                              "aten.full",                            "", "default",                              creation) \
  X(aten_full_like,                         "aten.full_like",                       "", "default",                              creation) \
  X(aten_zeros_like,                        "aten.zeros_like",                      "", "default",                              creation) \
  X(aten_ones_like,                         "aten.ones_like",                       "", "default",                              creation) \
  X(aten_scalar_tensor,                     "aten.scalar_tensor",                   "", "default",                              creation) \
  X(prims_iota,                             "prims.iota",                           "", "default",                              creation) \
  X(aten_arange,                            "aten.arange",                          "", "default start start_step",             creation) \
  X(aten_sort,                              "aten.sort",                            "", "default stable",                       sort) \
  X(aten_topk,                              "aten.topk",                            "", "default",                              sort) \
  X(aten_mm,                                "aten.mm",                              "", "default",                              matmul) \
  X(aten_bmm,                               "aten.bmm",                             "", "default",                              matmul) \
  X(aten_bmm_dtype,                         "aten.bmm.dtype",                       "", "",                                     matmul) \
  X(aten_addmm,                             "aten.addmm",                           "", "default",                              matmul) \
  X(aten_baddbmm,                           "aten.baddbmm",                         "", "default",                              matmul) \
  /* ATen reductions and scans */ \
  X(aten_amax,                              "aten.amax",                            "", "default",                              reduction) \
  X(aten_amin,                              "aten.amin",                            "", "default",                              reduction) \
  X(aten_sum,                               "aten.sum",                             "", "default dim_IntList",                  reduction) \
  X(aten_mean,                              "aten.mean",                            "", "default dim",                          reduction) \
  X(aten_prod,                              "aten.prod",                            "", "default dim_int",                      reduction) \
  X(aten_any,                               "aten.any",                             "", "default dim dims",                     reduction) \
  X(aten_all,                               "aten.all",                             "", "default dim dims",                     reduction) \
  X(aten_argmax,                            "aten.argmax",                          "", "default",                              reduction) \
  X(aten_argmin,                            "aten.argmin",                          "", "default",                              reduction) \
  X(aten_max,                               "aten.max",                             "", "default dim",                          reduction) \
  X(aten_min,                               "aten.min",                             "", "default dim",                          reduction) \
  X(aten_var,                               "aten.var",                             "", "correction",                           reduction) \
  X(aten_var_mean,                          "aten.var_mean",                        "", "correction",                           reduction) \
  X(aten_logsumexp,                         "aten.logsumexp",                       "", "default",                              reduction) \
  X(aten_cumsum,                            "aten.cumsum",                          "", "default",                              reduction) \
  X(aten_cumprod,                           "aten.cumprod",                         "", "default",                              reduction) \
  /* ATen pointwise operations */ \
  X(aten_abs,                               "aten.abs",                             "", "default",                              pointwise) \
  X(aten_acos,                              "aten.acos",                            "", "default",                              pointwise) \
  X(aten_acosh,                             "aten.acosh",                           "", "default",                              pointwise) \
  X(aten_add,                               "aten.add",                             "", "Tensor Scalar",                        pointwise) \
  X(aten_addcdiv,                           "aten.addcdiv",                         "", "default",                              pointwise) \
  X(aten_addcmul,                           "aten.addcmul",                         "", "default",                              pointwise) \
  X(aten_asin,                              "aten.asin",                            "", "default",                              pointwise) \
  X(aten_asinh,                             "aten.asinh",                           "", "default",                              pointwise) \
  X(aten_atan,                              "aten.atan",                            "", "default",                              pointwise) \
  X(aten_atan2,                             "aten.atan2",                           "", "default",                              pointwise) \
  X(aten_atanh,                             "aten.atanh",                           "", "default",                              pointwise) \
  X(aten_bitwise_and,                       "aten.bitwise_and",                     "", "Tensor Scalar Scalar_Tensor Tensor_Scalar",pointwise) \
  X(aten_bitwise_left_shift,                "aten.bitwise_left_shift",              "", "Tensor Scalar Scalar_Tensor Tensor_Scalar",pointwise) \
  X(aten_bitwise_not,                       "aten.bitwise_not",                     "", "default",                              pointwise) \
  X(aten_bitwise_or,                        "aten.bitwise_or",                      "", "Tensor Scalar Scalar_Tensor Tensor_Scalar",pointwise) \
  X(aten_bitwise_right_shift,               "aten.bitwise_right_shift",             "", "Tensor Scalar Scalar_Tensor Tensor_Scalar",pointwise) \
  X(aten_bitwise_xor,                       "aten.bitwise_xor",                     "", "Tensor Scalar Scalar_Tensor Tensor_Scalar",pointwise) \
  X(aten_lshift,                            "aten.__lshift__",                      "", "Tensor Scalar default",                pointwise) \
  X(aten_rshift,                            "aten.__rshift__",                      "", "Tensor Scalar default",                pointwise) \
  X(aten_ceil,                              "aten.ceil",                            "", "default",                              pointwise) \
  X(aten_clamp,                             "aten.clamp",                           "", "default Tensor",                       pointwise) \
  X(aten_clamp_max,                         "aten.clamp_max",                       "", "default Tensor",                       pointwise) \
  X(aten_clamp_min,                         "aten.clamp_min",                       "", "default Tensor",                       pointwise) \
  X(aten_copysign,                          "aten.copysign",                        "", "Tensor Scalar default",                pointwise) \
  X(aten_cos,                               "aten.cos",                             "", "default",                              pointwise) \
  X(aten_cosh,                              "aten.cosh",                            "", "default",                              pointwise) \
  X(aten_digamma,                           "aten.digamma",                         "", "default",                              pointwise) \
  X(aten_div,                               "aten.div",                             "", "Tensor Scalar Tensor_mode Scalar_mode",pointwise) \
  X(aten_elu,                               "aten.elu",                             "", "default",                              pointwise) \
  X(aten_eq,                                "aten.eq",                              "", "Tensor Scalar default",                pointwise) \
  X(aten_erf,                               "aten.erf",                             "", "default",                              pointwise) \
  X(aten_erfc,                              "aten.erfc",                            "", "default",                              pointwise) \
  X(aten_erfinv,                            "aten.erfinv",                          "", "default",                              pointwise) \
  X(aten_exp,                               "aten.exp",                             "", "default",                              pointwise) \
  X(aten_exp2,                              "aten.exp2",                            "", "default",                              pointwise) \
  X(aten_expm1,                             "aten.expm1",                           "", "default",                              pointwise) \
  X(aten_floor,                             "aten.floor",                           "", "default",                              pointwise) \
  X(aten_floor_divide,                      "aten.floor_divide",                    "", "default Scalar",                       pointwise) \
  X(aten_fmod,                              "aten.fmod",                            "", "Tensor Scalar default",                pointwise) \
  X(aten_ge,                                "aten.ge",                              "", "Tensor Scalar default",                pointwise) \
  X(aten_gelu,                              "aten.gelu",                            "", "default",                              pointwise) \
  X(aten_gt,                                "aten.gt",                              "", "Tensor Scalar default",                pointwise) \
  X(aten_hardtanh,                          "aten.hardtanh",                        "", "default",                              pointwise) \
  X(aten_hypot,                             "aten.hypot",                           "", "default",                              pointwise) \
  X(aten_isfinite,                          "aten.isfinite",                        "", "default",                              pointwise) \
  X(aten_isinf,                             "aten.isinf",                           "", "default",                              pointwise) \
  X(aten_isnan,                             "aten.isnan",                           "", "default",                              pointwise) \
  X(aten_le,                                "aten.le",                              "", "Tensor Scalar default",                pointwise) \
  X(aten_leaky_relu,                        "aten.leaky_relu",                      "", "default",                              pointwise) \
  X(aten_lerp,                              "aten.lerp",                            "", "Scalar Tensor",                        pointwise) \
  X(aten_lgamma,                            "aten.lgamma",                          "", "default",                              pointwise) \
  X(aten_log,                               "aten.log",                             "", "default",                              pointwise) \
  X(aten_log10,                             "aten.log10",                           "", "default",                              pointwise) \
  X(aten_log1p,                             "aten.log1p",                           "", "default",                              pointwise) \
  X(aten_log2,                              "aten.log2",                            "", "default",                              pointwise) \
  X(aten_logical_and,                       "aten.logical_and",                     "", "default",                              pointwise) \
  X(aten_logical_not,                       "aten.logical_not",                     "", "default",                              pointwise) \
  X(aten_logical_or,                        "aten.logical_or",                      "", "default",                              pointwise) \
  X(aten_logical_xor,                       "aten.logical_xor",                     "", "default",                              pointwise) \
  X(aten_logit,                             "aten.logit",                           "", "default",                              pointwise) \
  X(aten_lt,                                "aten.lt",                              "", "Tensor Scalar default",                pointwise) \
  X(aten_masked_fill,                       "aten.masked_fill",                     "", "Scalar Tensor",                        pointwise) \
  X(aten_maximum,                           "aten.maximum",                         "", "default",                              pointwise) \
  X(aten_minimum,                           "aten.minimum",                         "", "default",                              pointwise) \
  X(aten_mul,                               "aten.mul",                             "", "Tensor Scalar",                        pointwise) \
  X(aten_nan_to_num,                        "aten.nan_to_num",                      "", "default",                              pointwise) \
  X(aten_ne,                                "aten.ne",                              "", "Tensor Scalar default",                pointwise) \
  X(aten_neg,                               "aten.neg",                             "", "default",                              pointwise) \
  X(aten_nextafter,                         "aten.nextafter",                       "", "default",                              pointwise) \
  X(aten_pow,                               "aten.pow",                             "", "Tensor_Tensor Tensor_Scalar Scalar",   pointwise) \
  X(aten_reciprocal,                        "aten.reciprocal",                      "", "default",                              pointwise) \
  X(aten_relu,                              "aten.relu",                            "", "default",                              pointwise) \
  X(aten_remainder,                         "aten.remainder",                       "", "Tensor Scalar Scalar_Tensor",          pointwise) \
  X(aten_round,                             "aten.round",                           "", "default decimals",                     pointwise) \
  X(aten_rsqrt,                             "aten.rsqrt",                           "", "default",                              pointwise) \
  X(aten_rsub,                              "aten.rsub",                            "", "Tensor Scalar default",                pointwise) \
  X(aten_sigmoid,                           "aten.sigmoid",                         "", "default",                              pointwise) \
  X(aten_sign,                              "aten.sign",                            "", "default",                              pointwise) \
  X(aten_signbit,                           "aten.signbit",                         "", "default",                              pointwise) \
  X(aten_silu,                              "aten.silu",                            "", "default",                              pointwise) \
  X(aten_sin,                               "aten.sin",                             "", "default",                              pointwise) \
  X(aten_sinh,                              "aten.sinh",                            "", "default",                              pointwise) \
  X(aten_softplus,                          "aten.softplus",                        "", "default",                              pointwise) \
  X(aten_sqrt,                              "aten.sqrt",                            "", "default",                              pointwise) \
  X(aten_square,                            "aten.square",                          "", "default",                              pointwise) \
  X(aten_sub,                               "aten.sub",                             "", "Tensor Scalar",                        pointwise) \
  X(aten_tan,                               "aten.tan",                             "", "default",                              pointwise) \
  X(aten_tanh,                              "aten.tanh",                            "", "default",                              pointwise) \
  X(aten_trunc,                             "aten.trunc",                           "", "default",                              pointwise) \
  X(aten_true_divide,                       "aten.true_divide",                     "", "Tensor Scalar",                        pointwise) \
  X(aten_where,                             "aten.where",                           "", "self ScalarSelf ScalarOther Scalar",   pointwise) \
  X(aten_xlogy,                             "aten.xlogy",                           "", "Tensor Scalar_Self Scalar_Other",      pointwise) \
  X(prims_convert_element_type,             "prims.convert_element_type",           "", "default",                              pointwise) \
  X(aten_to_copy,                           "aten._to_copy",                        "", "default",                              pointwise) \
  X(aten_fmax,                              "aten.fmax",                            "", "default",                              pointwise) \
  X(aten_fmin,                              "aten.fmin",                            "", "default",                              pointwise) \
  /* Python operators on symbols */ \
  X(py_add,                                 "operator.add",                         "", "",                                     symbol_math) \
  X(py_sub,                                 "operator.sub",                         "", "",                                     symbol_math) \
  X(py_mul,                                 "operator.mul",                         "", "",                                     symbol_math) \
  X(py_truediv,                             "operator.truediv",                     "", "",                                     symbol_math) \
  X(py_floordiv,                            "operator.floordiv",                    "", "",                                     symbol_math) \
  X(py_mod,                                 "operator.mod",                         "", "",                                     symbol_math) \
  X(py_pow,                                 "operator.pow",                         "", "",                                     symbol_math) \
  X(py_neg,                                 "operator.neg",                         "", "",                                     symbol_math) \
  X(py_eq,                                  "operator.eq",                          "", "",                                     symbol_math) \
  X(py_ne,                                  "operator.ne",                          "", "",                                     symbol_math) \
  X(py_lt,                                  "operator.lt",                          "", "",                                     symbol_math) \
  X(py_le,                                  "operator.le",                          "", "",                                     symbol_math) \
  X(py_gt,                                  "operator.gt",                          "", "",                                     symbol_math) \
  X(py_ge,                                  "operator.ge",                          "", "",                                     symbol_math) \
  X(py_and,                                 "operator.and_",                        "", "",                                     symbol_math) \
  X(py_or,                                  "operator.or_",                         "", "",                                     symbol_math) \
  X(py_not,                                 "operator.not_",                        "", "",                                     symbol_math) \
  X(py_identity,                            "operator.identity",                    "", "",                                     symbol_math) \
  X(py_abs,                                 "operator.abs",                         "", "",                                     symbol_math) \
  X(py_min,                                 "operator.min",                         "", "",                                     symbol_math) \
  X(py_max,                                 "operator.max",                         "", "",                                     symbol_math) \
  X(py_int,                                 "operator.int",                         "", "",                                     symbol_math) \
  X(py_float,                               "operator.float",                       "", "",                                     symbol_math) \
  X(py_sym_min,                             "torch.sym_min",                        "", "",                                     symbol_math) \
  X(py_sym_max,                             "torch.sym_max",                        "", "",                                     symbol_math) \
  X(py_sym_float,                           "torch.sym_float",                      "", "",                                     symbol_math) \
  X(py_sym_int,                             "torch.sym_int",                        "", "",                                     symbol_math) \
  X(py_sym_not,                             "torch.sym_not",                        "", "",                                     symbol_math) \
  X(py_sym_size,                            "torch.sym_size",                       "", "",                                     symbol_math)
// clang-format on

#pragma GCC visibility push(default)

export namespace muster {

/// What a device IR node calls. A program's own operations take values from `operation_count` on.
enum class operation : std::uint16_t {
#define MUSTER_ENUMERATOR(identifier, name, long_name, overloads, category) identifier,
  MUSTER_OPERATIONS(MUSTER_ENUMERATOR)
#undef MUSTER_ENUMERATOR
};

#define MUSTER_ONE(identifier, name, long_name, overloads, category) +1
/// How many operations there are.
inline constexpr std::size_t operation_count = 0 MUSTER_OPERATIONS(MUSTER_ONE);
#undef MUSTER_ONE

/// What an operation does to the program around it.
enum class operation_category : std::uint8_t {
  symbol,       ///< a host tensor, a size, a tile's place: no computation on tiles
  symbol_math,  ///< a Python operator on symbols
  control_flow, ///< loops, branches, what they carry
  loop,         ///< the traced program's own loop constructs; resolved before a document is written
  memory,
  atomic,
  creation,
  view,
  pointwise,
  reduction,
  matmul,
  sort,
  random,
  foreign,
  debug,
  distributed,
};

/// The category's name as reports show it.
[[nodiscard]] constexpr std::string_view name(operation_category c) noexcept {
  constexpr std::string_view names[] = {
      "symbols",   "symbol arithmetic", "control flow",    "traced loops", "memory",         "atomics",        "creation",  "views",
      "pointwise", "reductions",        "matrix products", "sorting",      "random numbers", "foreign source", "debugging", "distributed"};
  return names[static_cast<std::size_t>(c)];
}

/// What is known of an operation without any backend.
struct operation_information {
  operation id{};
  std::string_view name;      ///< as messages show it: `load`, `aten.amax`
  std::string_view long_name; ///< of an API function, as documents spell it; else empty
  std::string_view overloads; ///< separated by blanks; documents spell `torch.ops.NAME.OVERLOAD`
  operation_category category{};
  operation_family family{};
};

/// All operations, indexed by their enumerators.
inline constexpr std::array<operation_information, operation_count> operation_table{{
#define MUSTER_ROW(identifier, name, long_name, overloads, category)                                                                       \
  {operation::identifier,                                                                                                                  \
   name,                                                                                                                                   \
   long_name,                                                                                                                              \
   overloads,                                                                                                                              \
   operation_category::category,                                                                                                           \
   std::string_view(long_name).empty() ? operation_family::aten : operation_family::api},
    MUSTER_OPERATIONS(MUSTER_ROW)
#undef MUSTER_ROW
}};

[[nodiscard]] constexpr const operation_information& information(operation id) noexcept {
  return operation_table[static_cast<std::size_t>(id)];
}

/// The built-in operations as a registry's set. A name in the registry is the short one; a document's spellings are resolved
/// by `operation_named`, which knows overloads too.
inline constexpr auto builtin_entries = [] {
  std::array<operation_entry<operation>, operation_count> all{};
  for (std::size_t i = 0; i < operation_count; ++i)
    all[i] = {operation_table[i].id, operation_table[i].name, operation_table[i].family, operation_table[i].long_name, false};
  return all;
}();
inline constexpr operation_set<operation> builtin_operations{.more = builtin_entries};

/// The library's version; the same as meson.build's.
inline constexpr std::string_view library_version = "0.1.0";

/// Changes with the version, and wherever an operation is inserted, removed, moved or renamed.
inline constexpr std::uint64_t operations_fingerprint = [] {
  std::uint64_t h = detail::mix(fingerprint(builtin_operations), detail::hash_whole(library_version), 0, 0, operation_count);
  for (const operation_information& o : operation_table) h = detail::mix(h, detail::hash_whole(o.overloads), 0, 0, o.overloads.size());
  return h;
}();

/// What depends on the numbers of the operations has the fingerprint of the interfaces in its symbol's name. A program that was
/// compiled against other interfaces than its library does not link or load, and the undefined symbol's name says why.
template <std::uint64_t Fingerprint> struct library_was_built_from_other_interfaces {
  static std::optional<operation> operation_named(std::string_view target) noexcept;
  static std::string_view qualified_name(operation id, std::string_view target) noexcept;
};
extern template struct library_was_built_from_other_interfaces<operations_fingerprint>;

/// The operation that a document's target names: a short or long API name, `torch.ops.aten.NAME.OVERLOAD`, `aten.NAME`,
/// `aten.NAME.OVERLOAD` or `operator.NAME`. Nothing for an unknown name. One perfect hash; no allocation.
[[nodiscard]] inline std::optional<operation> operation_named(std::string_view target) noexcept {
  return library_was_built_from_other_interfaces<operations_fingerprint>::operation_named(target);
}

/// The name under which messages report a target: `torch.ops.aten.add.Tensor` is `aten.add.Tensor`, an API function its
/// own short name.
[[nodiscard]] inline std::string_view qualified_name(operation id, std::string_view target) noexcept {
  return library_was_built_from_other_interfaces<operations_fingerprint>::qualified_name(id, target);
}

} // namespace muster

#pragma GCC visibility pop
