module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The processor: a C++20 source file, standard library only, that any recent compiler builds with `-O3 -march=native`.
///
/// It has one entry point,
///   extern "C" void muster_kernel(void* const* tensors, const muster_scalar* symbols, int threads);
/// `tensors` are the addresses of element [0, 0, …] of all the document's host tensors, in header order; `symbols` are the
/// values of `codegen::launch_symbols`, in that order, each in a union { std::int64_t integer; double real; };
/// `threads` is how many threads may run it, 0: one a processor. It returns when all is done. A tensor that the kernel
/// writes may not overlap another one.
///
/// With `generator::record` there is a second entry point,
///   extern "C" void muster_record_to(const void* recorder);
/// and a kernel that runs on one thread calls what `muster::recorder` (muster.runtime) holds for every program and for every
/// element of a tensor that it computes.
///
/// Tiles are not materialised. A node's value is an expression of its lanes' indices, and what must have a place (a store, a
/// reduction, a matrix product, what a loop carries) emits a loop nest that pulls the elements of its operands.
export module muster.backend.cpu;

import muster.error;
import muster.symbolic;
import muster.operations;
import muster.registry;
import muster.device_ir;
import muster.codegen;

#pragma GCC visibility push(default)

namespace muster::cpu {

using codegen::dimension;
using codegen::emitter;
using codegen::expression;
using codegen::variable;
using device_ir::dtype;
using device_ir::node;
using device_ir::node_id;

using indices = std::vector<expression>;
using index_span = std::span<const expression>;

/// Where the elements of a tile are kept in the emitted function.
struct buffer {
  variable v = codegen::no_variable;
  dtype type = dtype::f32;
  std::vector<dimension> shape;
  indices strides;      ///< in elements, by dimension
  bool scalar = false;  ///< one element: a plain variable
  bool filled = false;  ///< else it is filled where its value is first asked for
};

/// Which dimensions a reduction takes, ascending, and whether they stay with size 1.
struct reduction_shape {
  std::vector<std::size_t> dims;
  bool keep = false;
};

/// The state of one kernel: the loop nest that is open, what stands for each node's elements.
class cpu_emitter : public codegen::emitter {
public:
  void reset(const codegen::kernel_plan& p, const codegen::target& t, registry_view<operation, codegen::handler> r, backend_id b) override;
  /// Records a node whose elements can be computed where they are asked for; lowers the others.
  void lower_node(node_id n) override;
  /// A scalar's value, or the element of a tile that belongs to the lanes of the node being lowered.
  expression value_of(node_id n) override;
  expression tile_indices(std::int32_t block) override;
  expression parameter_value(symbolic::symbol s) override;

  // -- elements
  /// The element of a tile at an index a dimension.
  [[nodiscard]] expression element(node_id n, index_span at);
  /// The element of `n` that belongs to the index `at` of a tile of shape `from`, as broadcasting has it.
  [[nodiscard]] expression broadcast_element(node_id n, index_span at, std::span<const dimension> from);
  [[nodiscard]] indices broadcast(index_span at, std::size_t from_rank, std::span<const dimension> to);
  /// The indices of the element of the current node that its handler computes.
  [[nodiscard]] const indices& lane() const noexcept { return lane_; }
  /// Gives a tile a place now, filled with its elements.
  void materialise(node_id n);
  /// Fills every place that waits for its first use; ahead of a loop or branch that may be the first.
  void fill_pending();

  // -- buffers
  /// A new buffer in the current body.
  [[nodiscard]] std::int32_t make_buffer(std::string_view name, std::span<const dimension> shape, dtype type);
  /// A variable as the buffer of a tile of one element.
  [[nodiscard]] std::int32_t scalar_buffer(variable v, dtype type, std::span<const dimension> shape);
  [[nodiscard]] buffer& at_buffer(std::int32_t b) { return buffers_[static_cast<std::size_t>(b)]; }
  void keep_in(node_id n, std::int32_t b); ///< node `n`'s elements are those of a buffer
  [[nodiscard]] std::int32_t buffer_of(node_id n) const; ///< -1: none, or not filled
  [[nodiscard]] expression place(std::int32_t b, index_span at); ///< the element as a place to store to
  [[nodiscard]] expression read(std::int32_t b, index_span at, dtype as);
  void write(std::int32_t b, index_span at, expression value); ///< in the innermost loop
  void keep_all_in(node_id n, std::span<const std::int32_t> several); ///< of a node with several results
  void stands_for(node_id parameter, node_id argument) { alias_[device_ir::index(parameter)] = argument; }
  [[nodiscard]] node_id resolved(node_id n) const; ///< behind parameters and copies
  /// Fills a buffer with the elements of a node, or a literal.
  void fill(std::int32_t b, const device_ir::argument& from);
  void fill(std::int32_t b, node_id from);
  void fill(std::int32_t b, const std::function<expression(index_span)>& value);

  // -- loop nests
  class nest; ///< RAII: an empty nest in the current body
  /// Opens a loop over the valid lanes of a dimension inside those that are open; a dimension of one lane is no loop.
  [[nodiscard]] expression push_loop(const dimension& d);
  /// The same as the parameter of a lambda, which `pop_closure` passes to a helper.
  [[nodiscard]] expression push_closure(const dimension& d);
  void pop();
  /// Closes a closure that returns `value`: `callee(arguments…, lambda)` as a new variable.
  [[nodiscard]] variable pop_closure(std::string_view callee, std::initializer_list<expression> arguments, expression value,
                                     std::string_view name, dtype type);
  [[nodiscard]] std::size_t depth() const noexcept { return levels_.size(); }
  [[nodiscard]] codegen::body innermost() const { return levels_.back().inside; }
  [[nodiscard]] codegen::body level_body(std::size_t l) const { return levels_[l].inside; }
  [[nodiscard]] std::size_t level_of(expression e) const;
  [[nodiscard]] std::size_t level_of(index_span at) const;
  [[nodiscard]] expression define_at(std::size_t level, std::string_view name, expression value); ///< atoms stay
  [[nodiscard]] expression zero() const noexcept { return zero_; }
  [[nodiscard]] expression whole(std::int64_t n) { return integer(n, dtype::i64); }

  // -- dimensions
  [[nodiscard]] expression lanes(const dimension& d);    ///< valid lanes of the current tile
  [[nodiscard]] expression full_lanes(const dimension& d); ///< lanes of a whole tile
  [[nodiscard]] expression lane_offset(std::int32_t block); ///< position of lane 0
  /// Opens a tile at `offset`, whose positions end at `end`.
  void open_lanes(std::int32_t block, expression offset, expression end, expression id = codegen::no_expression);
  /// What must hold for the index to be of a valid lane, or `no_expression` where it is by construction.
  [[nodiscard]] expression validity(std::span<const dimension> shape, index_span at);

  // -- recording
  /// Calls the recorder, in the innermost body that `at` needs, with an element of node `n`.
  void record(node_id n, index_span at, expression value);
  void record_program(std::int32_t graph); ///< at the start of a root
  void record_step();                      ///< at the start of a while loop's condition or body

  // -- shared by handlers
  [[nodiscard]] reduction_shape reduction_of(std::size_t rank);
  void read_dims(reduction_shape& r, const device_ir::argument* dims, std::size_t rank);
  [[nodiscard]] reduction_shape reduction_of_extra(node_id extra, std::size_t rank);
  [[nodiscard]] node_id finisher(node_id extra) const;
  [[nodiscard]] bool is_written(std::int32_t tensor) const { return written_[static_cast<std::size_t>(tensor)]; }
  [[nodiscard]] dtype accumulator_type(dtype declared) const;
  [[nodiscard]] bool is_tile(node_id n) const { return !shape_of(n).empty(); }
  [[nodiscard]] std::span<const dimension> operand_shape(std::size_t i);
  void start_root();
  [[nodiscard]] codegen::body root_body() const noexcept { return root_body_; }
  void set_root_body(codegen::body b) noexcept { root_body_ = b; }
  /// The carried buffer that the current node's result may be computed in, or -1.
  [[nodiscard]] std::int32_t destination(node_id n) const { return destination_[device_ir::index(n)]; }
  void set_destination(node_id n, std::int32_t b) { destination_[device_ir::index(n)] = b; }

private:
  struct level {
    codegen::body inside = codegen::no_body;
    variable index = codegen::no_variable;
    expression count = codegen::no_expression;
    bool closure = false;
  };
  struct index_fact {
    std::size_t level = 0;
    std::int32_t block = -1;
    expression count = codegen::no_expression;
  };
  struct remembered {
    node_id n = device_ir::no_node;
    indices at;
    expression value = codegen::no_expression;
    std::size_t level = 0;
  };

  void analyse();
  void record_lowered(node_id n);
  void find_contexts();
  [[nodiscard]] bool is_deferred(node_id n) const;
  [[nodiscard]] expression compute(node_id n, index_span at);
  [[nodiscard]] expression recall(node_id n, index_span at) const;
  [[nodiscard]] bool covers(node_id n, index_span at);
  [[nodiscard]] bool same_index(expression a, expression b) const;
  void remember_level(expression e, std::size_t level);
  [[nodiscard]] expression push(const dimension& d, bool closure);

  std::vector<buffer> buffers_;
  std::vector<std::int32_t> buffer_of_;   ///< by node
  std::vector<std::vector<std::int32_t>> several_buffers_;
  std::vector<std::int32_t> several_of_;  ///< by node: into several_buffers_
  std::vector<node_id> alias_;            ///< by node
  std::vector<std::int32_t> destination_; ///< by node
  std::vector<bool> stored_;              ///< by node: worth a place of its own
  std::vector<bool> written_;             ///< by host tensor
  std::vector<node_id> pending_;
  std::vector<level> levels_;
  std::vector<remembered> memo_;
  std::vector<index_fact> facts_;         ///< by variable
  struct context {
    std::vector<std::int32_t> blocks; ///< open where a graph's nodes are, by id
    bool stepped = false;             ///< inside a while loop
    bool helper = true;               ///< combines elements
  };
  std::vector<context> contexts_;         ///< by graph, where values are recorded
  indices lane_;
  std::vector<expression> lane_counts_;   ///< by block
  expression zero_ = codegen::no_expression;
  codegen::body root_body_ = codegen::no_body;
};

/// Restores the nest that was open before.
class cpu_emitter::nest {
public:
  explicit nest(cpu_emitter& e);
  nest(cpu_emitter& e, codegen::body base); ///< inside the innermost loop of another, whose indices stay visible
  ~nest();
  nest(const nest&) = delete;
  nest& operator=(const nest&) = delete;

private:
  cpu_emitter& emitter_;
  std::vector<level> levels_;
  std::vector<remembered> memo_;
};

inline cpu_emitter& self(emitter& e) { return static_cast<cpu_emitter&>(e); }

// memory.cpp
void load(emitter&, const node&);
void store(emitter&, const node&);
void atomic(emitter&, const node&);
void atomic_cas(emitter&, const node&);
void mask_to(emitter&, const node&);
void load_float4(emitter&, const node&);

// pointwise.cpp: integers wrap around
void add(emitter&, const node&);
void sub(emitter&, const node&);
void rsub(emitter&, const node&);
void mul(emitter&, const node&);
void neg(emitter&, const node&);
void abs(emitter&, const node&);
void square(emitter&, const node&);
void pow(emitter&, const node&);
void shift_left(emitter&, const node&);
void shift_right(emitter&, const node&);
void nextafter(emitter&, const node&);
void inline_asm_elementwise(emitter&, const node&);
void rand(emitter&, const node&);
void randint(emitter&, const node&);

// reduction.cpp
void reduction(emitter&, const node&);
void mean(emitter&, const node&);
void any_all(emitter&, const node&);
void arg_reduction(emitter&, const node&);
void max_min(emitter&, const node&);
void variance(emitter&, const node&);
void logsumexp(emitter&, const node&);
void cumulative(emitter&, const node&);
void lowering_extra(emitter&, const node&);
void associative_scan(emitter&, const node&);
void reduce_by_graph(emitter&, const node&);
void sort(emitter&, const node&);
void topk(emitter&, const node&);
/// The neutral element of a rolled reduction, and its combination with one more chunk's result.
expression neutral(cpu_emitter& e, operation by, dtype type);
expression combined(cpu_emitter& e, operation by, expression so_far, expression value);

// matmul.cpp
void dot(emitter&, const node&);
void mm(emitter&, const node&);
void addmm(emitter&, const node&);

// views.cpp
void subscript(emitter&, const node&);
void reshape(emitter&, const node&);
void expand(emitter&, const node&);
void permute(emitter&, const node&);
void transpose(emitter&, const node&);
void join(emitter&, const node&);
void stack(emitter&, const node&);
void cat(emitter&, const node&);
void pad(emitter&, const node&);
void gather(emitter&, const node&);
void getitem(emitter&, const node&);
void full(emitter&, const node&);
void full_like(emitter&, const node&);
void iota(emitter&, const node&);
void arange(emitter&, const node&);
void view_dtype(emitter&, const node&);

// control_flow.cpp
void for_loop(emitter&, const node&);
void while_loop(emitter&, const node&);
void if_(emitter&, const node&);
void phi(emitter&, const node&);
void device_print(emitter&, const node&);
void barrier(emitter&, const node&);

// printer.cpp
extern const codegen::dialect language;
std::unique_ptr<codegen::emitter> make_emitter();
void write_kernel(emitter& e, std::string& out);

// helpers.cpp
/// Appends the includes and those helpers that `code` uses.
void append_helpers(const std::string& code, std::string& out);

} // namespace muster::cpu

export namespace muster {

// clang-format off
constexpr handler_row<operation, codegen::handler> cpu_rows[] = {
  // memory
  {operation::load,                     cpu::load},
  {operation::store,                    cpu::store},
  {operation::atomic_add,               cpu::atomic},
  {operation::atomic_xchg,              cpu::atomic},
  {operation::atomic_and,               cpu::atomic},
  {operation::atomic_or,                cpu::atomic},
  {operation::atomic_xor,               cpu::atomic},
  {operation::atomic_max,               cpu::atomic},
  {operation::atomic_min,               cpu::atomic},
  {operation::atomic_cas,               cpu::atomic_cas},
  {operation::mask_to,                  cpu::mask_to},
  {operation::load_float4_e2m1fn_x16_to_float16, cpu::load_float4},
  // pointwise
  {operation::aten_add,                 cpu::add},
  {operation::aten_sub,                 cpu::sub},
  {operation::aten_rsub,                cpu::rsub},
  {operation::aten_mul,                 cpu::mul},
  {operation::aten_neg,                 cpu::neg},
  {operation::aten_abs,                 cpu::abs},
  {operation::aten_square,              cpu::square},
  {operation::aten_pow,                 cpu::pow},
  {operation::aten_bitwise_left_shift,  cpu::shift_left},
  {operation::aten_bitwise_right_shift, cpu::shift_right},
  {operation::aten_lshift,              cpu::shift_left},
  {operation::aten_rshift,              cpu::shift_right},
  {operation::aten_nextafter,           cpu::nextafter},
  {operation::inline_asm_elementwise,   cpu::inline_asm_elementwise},
  // reductions and scans
  {operation::aten_sum,                 cpu::reduction},
  {operation::aten_amax,                cpu::reduction},
  {operation::aten_amin,                cpu::reduction},
  {operation::aten_prod,                cpu::reduction},
  {operation::aten_mean,                cpu::mean},
  {operation::aten_any,                 cpu::any_all},
  {operation::aten_all,                 cpu::any_all},
  {operation::aten_argmax,              cpu::arg_reduction},
  {operation::aten_argmin,              cpu::arg_reduction},
  {operation::aten_max,                 cpu::max_min},
  {operation::aten_min,                 cpu::max_min},
  {operation::aten_var,                 cpu::variance},
  {operation::aten_var_mean,            cpu::variance},
  {operation::aten_logsumexp,           cpu::logsumexp},
  {operation::aten_cumsum,              cpu::cumulative},
  {operation::aten_cumprod,             cpu::cumulative},
  {operation::inductor_lowering_extra,  cpu::lowering_extra},
  {operation::device_associative_scan,  cpu::associative_scan},
  {operation::device_reduce,            cpu::reduce_by_graph},
  // sorting
  {operation::aten_sort,                cpu::sort},
  {operation::aten_topk,                cpu::topk},
  // matrix products
  {operation::dot,                      cpu::dot},
  {operation::aten_mm,                  cpu::mm},
  {operation::aten_bmm,                 cpu::mm},
  {operation::aten_bmm_dtype,           cpu::mm},
  {operation::aten_addmm,               cpu::addmm},
  {operation::aten_baddbmm,             cpu::addmm},
  // views
  {operation::subscript,                cpu::subscript},
  {operation::getitem,                  cpu::getitem},
  {operation::aten_view,                cpu::reshape},
  {operation::aten_reshape,             cpu::reshape},
  {operation::aten_unsqueeze,           cpu::reshape},
  {operation::aten_squeeze,             cpu::reshape},
  {operation::aten_expand,              cpu::expand},
  {operation::pre_broadcast_tile,       cpu::expand},
  {operation::aten_permute,             cpu::permute},
  {operation::aten_transpose,           cpu::transpose},
  {operation::aten_t,                   cpu::transpose},
  {operation::join,                     cpu::join},
  {operation::aten_stack,               cpu::stack},
  {operation::aten_cat,                 cpu::cat},
  {operation::aten_constant_pad_nd,     cpu::pad},
  {operation::aten_gather,              cpu::gather},
  {operation::aten_view_dtype,          cpu::view_dtype},
  // creation
  {operation::full,                     cpu::full},
  {operation::aten_full,                cpu::full},
  {operation::aten_full_like,           cpu::full_like},
  {operation::aten_zeros_like,          cpu::full_like},
  {operation::aten_ones_like,           cpu::full_like},
  {operation::prims_iota,               cpu::iota},
  {operation::aten_arange,              cpu::arange},
  // random numbers
  {operation::rand,                     cpu::rand},
  {operation::randint,                  cpu::randint},
  // control flow, debugging
  {operation::for_loop,                 cpu::for_loop},
  {operation::for_loop_step,            cpu::for_loop},
  {operation::while_loop,               cpu::while_loop},
  {operation::if_,                      cpu::if_},
  {operation::phi,                      cpu::phi},
  {operation::barrier,                  cpu::barrier},
  {operation::device_print,             cpu::device_print},
};
// clang-format on

constexpr backend<operation, codegen::handler> cpu_backend{.name = "cpu", .parts = cpu_rows};

/// How a kernel for the processor is written.
extern const codegen::target cpu_target;

} // namespace muster

#pragma GCC visibility pop
