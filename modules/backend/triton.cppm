module;
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Triton: a Python module with the kernel and `launch(tensors…, symbols…)`. Values are tiles in variables.
export module muster.backend.triton;

import muster.error;
import muster.symbolic;
import muster.operations;
import muster.registry;
import muster.device_ir;
import muster.codegen;

#pragma GCC visibility push(default)

namespace muster::triton {

using codegen::emitter;
using codegen::expression;
using device_ir::node;

/// One dimension of a memory access: what it adds to the offset, and which lanes of which blocks must be valid.
struct access {
  expression pointer = codegen::no_expression;
  expression mask = codegen::no_expression; ///< `no_expression`: every lane is valid
  std::size_t rank = 0;
  bool repeats = false;  ///< lanes of a dimension of stride 0, or of one element, share their elements
  bool overlaps = false; ///< several of them are valid
};

/// A tensor's tiles of one shape, which the launcher describes to the hardware.
struct descriptor {
  std::int32_t tensor = -1;
  std::vector<std::int64_t> order;       ///< the tensor's dimension, by dimension of the descriptor: the contiguous one is last
  std::vector<std::int64_t> block_shape; ///< by dimension of the descriptor
  codegen::variable name = codegen::no_variable;
};

/// Which dimensions a reduction takes, ascending, and whether they stay with size 1.
struct reduction_shape {
  std::vector<std::int64_t> dims;
  bool keep = false;
  std::size_t rank = 0; ///< of what is reduced
};

/// The state of one Triton kernel: lanes and masks of the open tiles, helpers that the module needs.
class triton_emitter : public codegen::emitter {
public:
  void reset(const codegen::kernel_plan& p, const codegen::target& t, registry_view<operation, codegen::handler> r, backend_id b) override;

  expression block_size(std::int32_t block) override;
  expression tile_indices(std::int32_t block) override;
  expression as_tile(device_ir::node_id n, expression e) override;
  codegen::body open_loop(const codegen::loop_plan& loop, std::span<const expression> begins, std::span<const expression> ends,
                          std::span<const expression> steps) override;
  void close_loop(const codegen::loop_plan& loop) override;
  expression neutral(const codegen::accumulator& a) override;
  expression combine(const codegen::accumulator& a, expression so_far, expression chunk) override;
  expression finish(const codegen::accumulator& a, expression accumulated) override;

  /// The `tl.constexpr` that holds a block's size; the module declares it.
  [[nodiscard]] expression block_size_name(std::int32_t block);
  /// Opens the tile of a block at `offset`: its lanes and, where some may be invalid, their mask against `end`.
  void open_lanes(std::int32_t block, expression offset, expression end);
  /// A reduction dimension taken whole: opened where it is first asked for.
  void open_whole(std::int32_t block);
  /// A tile of rank 1 along dimension `at` of `rank` dimensions: `x[None, :]`.
  [[nodiscard]] expression along(expression x, std::size_t at, std::size_t rank);
  /// The validity of a tile's lanes, or `no_expression` where all are valid. `shape` says which block runs along what.
  [[nodiscard]] expression mask_of(std::span<const codegen::dimension> shape);
  [[nodiscard]] expression shape_list(std::span<const codegen::dimension> shape);
  [[nodiscard]] inline expression dtype_name(device_ir::dtype d) { return text(language->types[static_cast<std::size_t>(d)]); }
  /// Operand `i` as a whole tile of its node's shape.
  [[nodiscard]] expression tile_operand(std::size_t i);
  /// Reduces `x` over `dims` (sorted, not negative) with a Triton reduction or a helper of the module.
  [[nodiscard]] expression reduce(operation by, expression x, std::span<const std::int64_t> dims, std::size_t rank, bool keep);
  /// Whether the node is the partial result of a rolled reduction that accumulates lanes.
  [[nodiscard]] bool accumulates_lanes(device_ir::node_id n) const;
  /// Whether what is emitted now runs in a loop whose loads Triton overlaps with earlier iterations.
  [[nodiscard]] inline bool in_pipeline() const noexcept { return !loops_.empty() && loops_.back(); }

  [[nodiscard]] reduction_shape reduction_of(std::size_t rank);
  void read_dims(reduction_shape& r, const device_ir::argument* dims, std::size_t rank);
  [[nodiscard]] reduction_shape reduction_of_extra(device_ir::node_id extra, std::size_t rank);
  [[nodiscard]] device_ir::node_id finisher(device_ir::node_id extra) const;
  [[nodiscard]] expression mean_divisor(device_ir::node_id mean, const reduction_shape& r);
  [[nodiscard]] expression reduce_truth(operation by, expression x, const reduction_shape& r);
  [[nodiscard]] expression mean_count(device_ir::node_id extra, const node& finishing);
  [[nodiscard]] device_ir::dtype accumulator_type(device_ir::node_id partial) const;
  [[nodiscard]] expression jagged_mask(std::int32_t block, std::span<const codegen::dimension> shape);
  /// The lowest value of an integer type.
  [[nodiscard]] static std::int64_t lowest(device_ir::dtype type);

  enum class helper : std::uint8_t { maximum, minimum, product, count_ };
  [[nodiscard]] std::string_view use(helper h);

  /// Notes a store; threads of a program see each other's stores behind a barrier only.
  inline void note_store(std::int32_t tensor) { stored_[static_cast<std::size_t>(tensor)] = true; }
  inline void forget_stores() { stored_.assign(stored_.size(), false); }
  /// A barrier, if one of these tensors was stored to since the last one.
  void order_loads(std::span<const std::int32_t> tensors);
  /// The parameter that describes a tensor's tiles of this shape.
  [[nodiscard]] expression describe(std::int32_t tensor, std::span<const std::int64_t> order, std::span<const std::int64_t> block_shape);
  /// A tile with its dimensions in another order: dimension `i` of the result is dimension `order[i]` of `e`.
  [[nodiscard]] expression permuted(expression e, std::span<const std::int64_t> order);

  std::vector<descriptor> descriptors;
  codegen::variable seeds = codegen::no_variable; ///< the parameter with the launch's seeds, where the kernel takes some
  std::int64_t seed_count = 0;
  std::int64_t widest_product = 0; ///< columns of the widest matrix product of whole warp groups
  std::vector<std::int32_t> whole_open; ///< whole reductions opened so far
  codegen::body kernel_body = codegen::no_body;
  codegen::body root_body = codegen::no_body; ///< where whole reductions are opened
  std::string functions; ///< combine functions, printed ahead of the kernel

private:
  void collect_loads(std::int32_t graph, std::vector<std::int32_t>& tensors) const;
  std::vector<bool> stored_; ///< by host tensor
  std::vector<bool> loops_; ///< those that are open, outermost first: whether they are pipelined
  std::vector<device_ir::node_id> accumulating_; ///< partial results of the rolled reductions that are open
};

[[nodiscard]] std::vector<codegen::dimension> without(std::span<const codegen::dimension> shape, std::span<const std::int64_t> dims);
/// Adds the config's options of loop `index` (grids first) to the arguments of `tl.range`.
void append_range_options(emitter& e, std::vector<expression>& arguments, std::int32_t index);
/// Whether Triton overlaps the loads of loop `index` with earlier iterations.
[[nodiscard]] bool is_pipelined(const emitter& e, std::int32_t index);

inline triton_emitter& self(emitter& e) { return static_cast<triton_emitter&>(e); }

// memory.cpp
void load(emitter&, const node&);
void store(emitter&, const node&);
void atomic(emitter&, const node&);
void atomic_cas(emitter&, const node&);
void mask_to(emitter&, const node&);
void load_float4(emitter&, const node&);

// pointwise.cpp: what Triton needs otherwise than the common handlers
void inline_asm_elementwise(emitter&, const node&);
void float4_pair(emitter&, const node&);
void inline_triton(emitter&, const node&);
void triton_kernel(emitter&, const node&);

// random.cpp
void rng_seed(emitter&, const node&);
void rand(emitter&, const node&);
void rand4x(emitter&, const node&);
void randint(emitter&, const node&);

// reduction.cpp
void reduction(emitter&, const node&);
void mean(emitter&, const node&);
void any_all(emitter&, const node&);
void arg_reduction(emitter&, const node&);
void max_min_dim(emitter&, const node&);
void variance(emitter&, const node&);
void logsumexp(emitter&, const node&);
void cumulative(emitter&, const node&);
void lowering_extra(emitter&, const node&);
void associative_scan(emitter&, const node&);
void reduce_by_graph(emitter&, const node&);
void sort(emitter&, const node&);
void topk(emitter&, const node&);

// matmul.cpp
void dot(emitter&, const node&);
void mm(emitter&, const node&);
void addmm(emitter&, const node&);
void dot_scaled(emitter&, const node&);

// views.cpp
void subscript(emitter&, const node&);
void unsqueeze(emitter&, const node&);
void reshape(emitter&, const node&);
void expand(emitter&, const node&);
void permute(emitter&, const node&);
void split(emitter&, const node&);
void join(emitter&, const node&);
void stack(emitter&, const node&);
void cat(emitter&, const node&);
void gather(emitter&, const node&);
void full(emitter&, const node&);
void full_like(emitter&, const node&);
void iota(emitter&, const node&);
void arange(emitter&, const node&);
void view_dtype(emitter&, const node&);
void transpose(emitter&, const node&);

// control_flow.cpp
void barrier(emitter&, const node&);
void device_print(emitter&, const node&);
void breakpoint(emitter&, const node&);

// printer.cpp
extern const codegen::dialect language;
std::unique_ptr<codegen::emitter> make_emitter();
void write_module(triton_emitter& e, std::string& out, void (*launch_options)(const device_ir::config&, std::string&));
void write_kernel(emitter& e, std::string& out);

} // namespace muster::triton

export namespace muster {

// clang-format off
constexpr handler_row<operation, codegen::handler> triton_rows[] = {
  // memory
  {operation::load,                     triton::load},
  {operation::store,                    triton::store},
  {operation::atomic_add,               triton::atomic},
  {operation::atomic_xchg,              triton::atomic},
  {operation::atomic_and,               triton::atomic},
  {operation::atomic_or,                triton::atomic},
  {operation::atomic_xor,               triton::atomic},
  {operation::atomic_max,               triton::atomic},
  {operation::atomic_min,               triton::atomic},
  {operation::atomic_cas,               triton::atomic_cas},
  {operation::mask_to,                  triton::mask_to},
  {operation::load_float4_e2m1fn_x16_to_float16,triton::load_float4},
  // pointwise
  {operation::inline_asm_elementwise,   triton::inline_asm_elementwise},
  {operation::float4_e2m1fn_x2_to_float32,triton::float4_pair},
  {operation::inline_triton,              triton::inline_triton},
  {operation::triton_kernel,              triton::triton_kernel},
  // random numbers
  {operation::rng_seed,                   triton::rng_seed},
  {operation::rand,                       triton::rand},
  {operation::rand4x,                     triton::rand4x},
  {operation::randint,                    triton::randint},
  // reductions and scans
  {operation::aten_sum,                 triton::reduction},
  {operation::aten_amax,                triton::reduction},
  {operation::aten_amin,                triton::reduction},
  {operation::aten_prod,                triton::reduction},
  {operation::aten_mean,                triton::mean},
  {operation::aten_any,                 triton::any_all},
  {operation::aten_all,                 triton::any_all},
  {operation::aten_argmax,              triton::arg_reduction},
  {operation::aten_argmin,              triton::arg_reduction},
  {operation::aten_max,                 triton::max_min_dim},
  {operation::aten_min,                 triton::max_min_dim},
  {operation::aten_var,                 triton::variance},
  {operation::aten_var_mean,            triton::variance},
  {operation::aten_logsumexp,           triton::logsumexp},
  {operation::aten_cumsum,              triton::cumulative},
  {operation::aten_cumprod,             triton::cumulative},
  {operation::inductor_lowering_extra,  triton::lowering_extra},
  {operation::device_associative_scan,  triton::associative_scan},
  {operation::device_reduce,            triton::reduce_by_graph},
  {operation::aten_sort,                  triton::sort},
  {operation::aten_topk,                  triton::topk},
  // matrix products
  {operation::dot,                      triton::dot},
  {operation::dot_scaled,                 triton::dot_scaled},
  {operation::aten_mm,                  triton::mm},
  {operation::aten_bmm,                 triton::mm},
  {operation::aten_bmm_dtype,           triton::mm},
  {operation::aten_addmm,               triton::addmm},
  {operation::aten_baddbmm,             triton::addmm},
  // views
  {operation::subscript,                triton::subscript},
  {operation::aten_view,                triton::reshape},
  {operation::aten_reshape,             triton::reshape},
  {operation::aten_unsqueeze,           triton::unsqueeze},
  {operation::aten_squeeze,             triton::reshape},
  {operation::aten_expand,              triton::expand},
  {operation::aten_permute,             triton::permute},
  {operation::aten_transpose,           triton::transpose},
  {operation::aten_t,                   triton::transpose},
  {operation::split,                    triton::split},
  {operation::join,                     triton::join},
  {operation::aten_stack,               triton::stack},
  {operation::aten_cat,                   triton::cat},
  {operation::aten_gather,              triton::gather},
  {operation::aten_view_dtype,          triton::view_dtype},
  // creation
  {operation::full,                     triton::full},
  {operation::aten_full,                triton::full},
  {operation::aten_full_like,             triton::full_like},
  {operation::aten_zeros_like,            triton::full_like},
  {operation::aten_ones_like,             triton::full_like},
  {operation::prims_iota,               triton::iota},
  {operation::aten_arange,              triton::arange},
  // control flow, debugging
  {operation::barrier,                  triton::barrier},
  {operation::device_print,             triton::device_print},
  {operation::breakpoint,                 triton::breakpoint},
};
// clang-format on

constexpr std::string_view triton_launch_parameters[] = {"grid", "num_stages", "num_warps", "warmup"};

constexpr backend<operation, codegen::handler> triton_backend{
    .name = "triton", .parts = triton_rows, .reserved_launch_parameters = triton_launch_parameters};

/// How a Triton kernel is written.
constexpr codegen::target triton_target{
    .name = "triton", .language = &triton::language, .make_emitter = triton::make_emitter, .write_kernel = triton::write_kernel};
/// Writes a module for a target that shares Triton's language but not its launch parameters: `launch_options` appends them
/// (`, num_warps=8`) for a config. The emitter is one that `triton_target` made.
void write_triton_module(codegen::emitter& e, std::string& out, void (*launch_options)(const device_ir::config&, std::string&));

} // namespace muster

#pragma GCC visibility pop
