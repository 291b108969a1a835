module;
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// From a device IR document to a backend's source, in three steps: plan (facts that every backend needs), lower (one
/// registry lookup and one handler call a node), print. This module names no backend.
export module muster.codegen;

import muster.error;
import muster.symbolic;
import muster.device_ir;
import muster.operations;
import muster.registry;

#pragma GCC visibility push(default)

export namespace muster::codegen {

using device_ir::argument;
using device_ir::document;
using device_ir::dtype;
using device_ir::node;
using device_ir::node_id;

// ------------------------------------------------------------------------------------------------------------- plan

/// Where the lanes of a block come from.
enum class block_role : std::uint8_t {
  unused,
  grid,           ///< a program id: one tile a program
  loop,           ///< a `_for_loop` over its tiles
  whole,          ///< a reduction dimension taken in one tile
  rolled,         ///< a reduction dimension rolled into a loop
};

/// A tiled dimension, resolved for one config.
struct block_plan {
  std::int32_t id = 0;
  block_role role = block_role::unused;
  std::int64_t block_size = 0; ///< lanes of a tile; 0: known only at run time (`block_size_expression`)
  symbolic::expression block_size_expression = symbolic::no_expression; ///< over symbols; a constant where `block_size` is
  symbolic::expression extent = symbolic::no_expression; ///< number of valid positions; `no_expression`: the loop's end says it
  std::optional<std::int64_t> constant_extent;
  symbolic::symbol variable = symbolic::no_symbol; ///< the symbol in shapes; `no_symbol` for a dimension of constant size
  bool mask = true;       ///< some tile can have lanes beyond the extent
  bool jagged = false;    ///< the extent differs by lane of `jagged_parents`
  std::vector<std::int32_t> jagged_parents;
  node_id jagged_extent = device_ir::no_node; ///< of a jagged block: the tensor (shape: the parents) that holds each row's end
  std::int32_t owner = -1; ///< root or loop graph (index into document::graphs) that defines its lanes
};

/// One dimension of a tile.
struct dimension {
  std::int32_t block = -1; ///< the block whose lanes run along it, or -1
  std::int64_t size = 0;   ///< lanes: the block size, or the constant size; 0: known only at run time
  symbolic::expression expression = symbolic::no_expression; ///< as declared
  friend bool operator==(const dimension&, const dimension&) noexcept = default;
};

/// What is known of one node.
struct node_plan {
  operation op{};
  bool known = false;        ///< `op` was found (else UnknownOperation is thrown where the node is lowered)
  bool live = false;         ///< its value is used, or it has an effect
  bool is_host_tensor = false;
  std::uint32_t uses = 0;    ///< live nodes (and results) that take its value
  device_ir::range shape;    ///< into kernel_plan::dimensions; empty for scalars
  std::int32_t graph = -1;   ///< index into document::graphs
  node_id same_as = device_ir::no_node; ///< the value is that node's (phi, new_var of a value that is not carried …)
};

/// What a loop carries in a variable from one iteration to the next.
struct carried {
  node_id before = device_ir::no_node;    ///< the value ahead of the loop (an argument of the loop)
  node_id parameter = device_ir::no_node; ///< what the body calls it, or no_node: the body never reads it
  std::int32_t result = -1;               ///< the body's result that replaces it
  node_id after = device_ir::no_node;     ///< the getitem that takes the last value, or no_node
  node_id joined = device_ir::no_node;    ///< the `_phi` of both, or no_node
};

/// A rolled reduction's accumulator: the loop's `result` is combined across iterations by `by`.
struct accumulator {
  std::int32_t result = -1;
  operation by{};     ///< aten_sum, aten_amax, …
  node_id partial = device_ir::no_node; ///< the node in the body that reduces one chunk
  node_id after = device_ir::no_node;   ///< the getitem
};

/// One `_for_loop`, `_for_loop_step` or `_while_loop` node.
struct loop_plan {
  node_id node = device_ir::no_node;
  std::int32_t body = -1;      ///< index into document::graphs
  std::int32_t condition = -1; ///< of a while loop: likewise
  std::vector<std::int32_t> blocks; ///< as the begins and ends are listed
  std::vector<std::int32_t> order;  ///< the same, fastest (innermost) first
  std::vector<carried> carries;
  std::vector<accumulator> accumulators;
  std::vector<std::pair<std::int32_t, node_id>> last_values; ///< results read after the loop that are neither: last iteration's value
  std::int32_t range_index = 0; ///< position among the config's range options (grid loops come first)
};

/// One output of an `_if`: where each side's value comes from.
struct branch_output {
  std::int32_t then_result = -1;              ///< index into the branch's results, or -1: passes `then_passes`
  std::int32_t else_result = -1;
  node_id passes = device_ir::no_node;        ///< the outer value, where a side does not replace it
  node_id then_value = device_ir::no_node;    ///< the getitem of the first half
  node_id else_value = device_ir::no_node;    ///< the getitem of the second half
  node_id joined = device_ir::no_node;        ///< their `_phi`
};

struct branch_plan {
  node_id node = device_ir::no_node;
  std::int32_t then_graph = -1; ///< index into document::graphs
  std::int32_t else_graph = -1; ///< -1: an else that does nothing
  std::optional<bool> constant_test; ///< the test is known: only that side is generated
  std::vector<branch_output> outputs;
};

/// One root graph and its grid.
struct root_plan {
  std::int32_t graph = -1;
  std::int32_t phase = 0;
  std::vector<std::int32_t> blocks; ///< of the grid, in the order in which they map to program ids, fastest first
  std::int64_t l2_grouping = 1;
};

/// A memory access in document order, with its config choices.
struct access_plan {
  node_id node = device_ir::no_node;
  device_ir::indexing indexing = device_ir::indexing::pointer;
  device_ir::eviction eviction = device_ir::eviction::none;
};

/// The facts that every backend needs and none may decide differently. No backend is named here.
/// Views and spans point into the document it was made from.
struct kernel_plan {
  const document* source = nullptr;
  const device_ir::config* config = nullptr;
  std::vector<block_plan> blocks;       ///< by block id
  std::vector<dimension> dimensions;
  std::vector<node_plan> nodes;         ///< by node_id
  std::vector<root_plan> roots;
  std::vector<loop_plan> loops;
  std::vector<branch_plan> branches;
  std::vector<access_plan> accesses;
  std::vector<bool> wide;               ///< by host tensor: an offset into it can pass 2^31
  std::vector<std::int32_t> tensors;    ///< host tensors really used, header order: indices into document::tensors
  std::vector<symbolic::symbol> parameters; ///< parameter symbols really used (sizes and strides included), header order
  std::vector<symbolic::symbol> grid_parameters; ///< those that only the launcher needs, to compute the grid
  dtype index_dtype = dtype::i32;
  std::vector<std::optional<symbolic::number>> known; ///< by symbol: block sizes resolved
  std::vector<std::int32_t> block_of_symbol; ///< by symbol: the block whose size it is, or -1
  std::vector<node_id> definitions; ///< by symbol: the node whose value it is, where the header does not say; or no_node
  std::vector<std::int32_t> loop_of_node;   ///< by node_id: index into loops, or -1
  std::vector<std::int32_t> branch_of_node; ///< by node_id: index into branches, or -1
  std::vector<std::int32_t> access_of_node; ///< by node_id: index into accesses, or -1
  std::vector<bool> real_symbol;            ///< by symbol: declared float
  std::vector<bool> size_symbol;            ///< by symbol: a tensor's size, and so at least 0

  /// Whether a symbolic expression is a real number.
  [[nodiscard]] bool is_real(symbolic::expression e) const noexcept;

  [[nodiscard]] inline std::span<const dimension> shape(node_id n) const noexcept {
    const device_ir::range r = nodes[device_ir::index(n)].shape;
    return std::span<const dimension>(dimensions).subspan(r.first, r.count);
  }
  [[nodiscard]] inline const node_plan& at(node_id n) const noexcept { return nodes[device_ir::index(n)]; }
  [[nodiscard]] inline const block_plan* find_block(std::int32_t id) const noexcept {
    return id >= 0 && static_cast<std::size_t>(id) < blocks.size() ? &blocks[static_cast<std::size_t>(id)] : nullptr;
  }
};

/// Makes the plan. The config is the document's own, or another one of the same kernel (then block sizes are resolved
/// from its `block_sizes` and `reduction_loops`). Throws DeviceIRError where the document contradicts itself.
/// Linear in the document. `into` is reused.
void make_plan(kernel_plan& into, const document& d, const device_ir::config& config);
/// The symbols that a launcher takes, in header order: those that the kernel or its grid may need (block sizes that only
/// the host knows come last). The same for every backend.
[[nodiscard]] std::vector<symbolic::symbol> launch_symbols(const kernel_plan& plan);
/// The plan as readable text (`muster codegen --stage plan`).
void print_plan(const kernel_plan& plan, std::string& out);

/// Throws DeviceIRError at the first reason why the document can not be generated from with its `block_sizes` replaced.
/// Returns the document's block sizes as that config resolves them, by block id (0: as declared).
[[nodiscard]] std::vector<std::int64_t> resolve_block_sizes(const document& d, const device_ir::config& config);

// ------------------------------------------------------------------------------------------------- expressions to emit

/// An expression of the target's language: an index into the emitter's arena.
enum class expression : std::uint32_t {};
inline constexpr expression no_expression = static_cast<expression>(0xFFFFFFFFU);
/// A variable of the emitted function. Its spelling is decided when all names are known.
enum class variable : std::uint32_t {};
inline constexpr variable no_variable = static_cast<variable>(0xFFFFFFFFU);
/// A list of statements.
enum class body : std::uint32_t {};
inline constexpr body no_body = static_cast<body>(0xFFFFFFFFU);
enum class statement : std::uint32_t {};
inline constexpr statement no_statement = static_cast<statement>(0xFFFFFFFFU);

/// Operators; the printers know how each is written and how tightly it binds.
enum class op : std::uint8_t {
  negate,
  bit_not,
  logical_not,
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  shift_left,
  shift_right,
  bit_and,
  bit_or,
  bit_xor,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  logical_and,
  logical_or,
  select, ///< test, value, else value: `a if t else b`, `t ? a : b` (scalars; tiles use `intrinsic::where`)
};

/// Functions that every dialect is asked to spell; a dialect leaves out what it lacks (an empty spelling).
enum class intrinsic : std::uint8_t {
  abs,
  acos,
  acosh,
  asin,
  asinh,
  atan,
  atan2,
  atanh,
  ceil,
  copysign,
  cos,
  cosh,
  digamma,
  erf,
  erfc,
  erfinv,
  exp,
  exp2,
  expm1,
  floor,
  fmod,
  hypot,
  isfinite,
  isinf,
  isnan,
  lgamma,
  log,
  log10,
  log1p,
  log2,
  maximum,
  minimum,           ///< of floats; NaN in either operand gives NaN
  integer_maximum,
  integer_minimum,
  fmax,
  fmin,                 ///< NaN loses
  nextafter,
  pow,
  round_even,
  rsqrt,
  sigmoid,
  signbit,
  sin,
  sinh,
  sqrt,
  tan,
  tanh,
  trunc,
  fma,
  floor_divide,
  floor_modulo, ///< of integers, Python's
  trunc_divide,
  trunc_modulo, ///< of integers, C's
  where,                      ///< elementwise: test, value, else value
  ceil_divide,                ///< of integers; non-negative, positive
  count_,
};
inline constexpr std::size_t intrinsic_count = static_cast<std::size_t>(intrinsic::count_);

enum class expression_kind : std::uint8_t {
  none,
  boolean,
  integer,
  real,
  string,
  name,
  text,
  call,
  method,
  keyword,
  operation,
  subscript,
  cast,
  tuple,
  list,
};

struct expression_node {
  expression_kind what = expression_kind::none;
  codegen::op operation{};
  dtype type = dtype::i32;   ///< the element type of the value, as the target computes it
  bool weak : 1 = false;     ///< a literal, which takes the other operand's type
  bool non_negative : 1 = false;
  bool typed : 1 = false;    ///< `type` means something
  std::uint32_t first = 0;   ///< operands: into the emitter's operand array
  std::uint32_t count = 0;
  std::string_view text;     ///< text, string; call: the callee; method, keyword: its name
  union {
    std::int64_t integer = 0; ///< integer, boolean
    double real;
    codegen::variable name;
  };
};

enum class language : std::uint8_t { python, c };

/// How a backend writes what the common code asks for: data, not code. A function's spelling is a callee (`tl.exp`), or a
/// pattern whose `*` stands for the arguments (`tl.maximum(*, propagate_nan=tl.PropagateNan.ALL)`).
struct dialect {
  codegen::language language = codegen::language::python;
  std::array<std::string_view, device_ir::dtype_count> types{};   ///< empty: the backend has no such type
  std::array<std::string_view, intrinsic_count> functions{};      ///< empty: none
  std::string_view cast;      ///< Python: callee of a cast with the type as second argument (`tl.cast`); empty: method `.to`
  std::string_view infinity;  ///< `float("inf")`, `INFINITY`
  std::string_view negative_infinity;
  std::string_view negative_zero = {}; ///< where the literal would lose its sign: an expression, `{}` being the element type
  std::string_view not_a_number;
  std::string_view least;     ///< callee of the least of two scalars (`min`); empty: a choice between them
  std::string_view greatest;
  std::string_view true_;     ///< `True`, `true`
  std::string_view false_;
  /// The type in which `+ - *` are computed on values of a type, and that of everything else (transcendentals, division).
  std::array<dtype, device_ir::dtype_count> arithmetic{};
  std::array<dtype, device_ir::dtype_count> transcendental{};
  dtype symbol_real = dtype::f32;  ///< the type of a float symbol
  bool promotes_like_torch = true; ///< mixed operand types need no cast where torch would promote the same way
  bool minus_is_subtraction = false; ///< unary minus of a float is `0 - x` there, which loses the sign of zero
  bool constructs_narrow = false;  ///< a literal of a float narrower than 32 bits is a constructor's call: `float16(0.5f)`
  std::span<const std::string_view> reserved; ///< keywords, builtins and the frame's own names, sorted
};

// --------------------------------------------------------------------------------------------------------- statements

enum class statement_kind : std::uint8_t {
  assign,
  declare,
  store,
  evaluate,
  for_range,
  if_,
  while_,
  break_,
  return_,
  comment,
  verbatim,
  scope,
  closure ///< C: a call whose last argument is a lambda of one index: `value` is the call, `variable` takes its result
};

struct statement_node {
  statement_kind what = statement_kind::evaluate;
  bool effect = false;              ///< kept even if nothing reads what it defines
  bool live = false;
  codegen::op compound = op::select; ///< of a store: `op::select` is `=`, `op::add` is `+=`, …
  codegen::variable variable = no_variable; ///< assigned, declared, or the loop's index
  expression value = no_expression; ///< assigned or evaluated; store: the right side; if, while: the test; for: a call of the range
  expression target = no_expression;///< store: the left side
  codegen::body inner = no_body;
  codegen::body orelse = no_body;
  std::string_view text{};          ///< comment, verbatim; declare: what follows the name in C (`[64]`), for: C pragma
  statement next = no_statement;
  statement next_definition = no_statement; ///< the next statement that assigns the same variable
  codegen::body parent = no_body;
  std::uint32_t source = 0;         ///< the `# src` line it comes from (device_ir::node::source)
};

struct variable_node {
  std::string_view preferred;       ///< the name it would like
  std::string_view name;            ///< the name it got (after `resolve_names`)
  dtype type = dtype::f32;
  std::string_view spelled_type;    ///< C: its type where `type` does not say it (`auto`, `const float*`)
  bool typed = false;
  bool reassigned = false;          ///< assigned more than once
  bool non_negative = false;
  statement definition = no_statement; ///< the first statement that assigns it
  node_id origin = device_ir::no_node; ///< the document's node whose value it holds
  bool declared = false;            ///< C: declared by a `declare` statement, so an assignment is no declaration
  bool live = false;
};

struct body_node {
  statement first = no_statement;
  statement last = no_statement;
  statement owner = no_statement;   ///< the control statement it belongs to
  statement ahead = no_statement;   ///< the last one put by `ahead_of`
};

struct target;

/// The current tile of a block, while a grid, loop or reduction over it is open. Backends fill in what they have; what is
/// `no_expression` is derived from `offset`, or is an error where it is asked for.
struct tile_binding {
  bool open = false;
  expression offset = no_expression;  ///< position of the tile's first lane
  expression end = no_expression;     ///< one past the last valid position of the loop or grid
  expression indices = no_expression; ///< the lanes' positions: a tile of rank 1
  expression mask = no_expression;    ///< the lanes' validity: a tile of rank 1; `no_expression`: all are valid
  expression id = no_expression;      ///< number of the tile
};

/// What lowering a node gave: nothing, one value, or several (`getitem` picks).
struct lowered {
  expression value = no_expression;
  device_ir::range several; ///< into emitter::values
};

/// What one index of an access to a host tensor is, and where its dimensions lie in the access.
struct access_index {
  enum class kind : std::uint8_t {
    scalar, ///< one position: `value`, counted from 0
    block,  ///< the current tile of `block`
    whole,  ///< a slice: `size` positions from `start` in steps of `step`
    tensor, ///< positions that node `tensor` holds
    none    ///< a dimension of size 1 that the tensor does not have
  };
  kind what = kind::scalar;
  expression value = no_expression;
  node_id tensor = device_ir::no_node;
  std::int32_t block = -1;
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t size = 0;           ///< 0 where the tensor's size is known only at run time
  std::size_t storage = 0;         ///< the tensor's dimension
  std::size_t first_dimension = 0; ///< of the access: of all that the index has
};

/// The indices of an access, and how many dimensions they have together.
struct access_indices {
  std::vector<access_index> all;
  std::size_t rank = 0;
};

/// The state of one code generation: what is emitted, and what each node became. Handlers are free functions over it.
/// A backend that needs more derives from it.
class emitter {
public:
  emitter();
  virtual ~emitter();
  emitter(const emitter&) = delete;
  emitter& operator=(const emitter&) = delete;

  /// Starts over for a kernel; keeps the memory.
  virtual void reset(const kernel_plan& p, const target& t, registry_view<muster::operation, void(emitter&, const node&)> r, backend_id b);

  const kernel_plan* plan = nullptr;
  const document* source = nullptr;
  const codegen::target* target = nullptr;
  const codegen::dialect* language = nullptr;
  node_id current = device_ir::no_node; ///< the node being lowered
  bool recording = false; ///< the kernel shall record every node's values (`generator::record`)

  // -- operands of the node being lowered
  /// Argument `i` as an expression: a node's value, a literal. For a `None` that repeats an operand, that operand's.
  [[nodiscard]] expression operand(std::size_t i);
  /// The node behind argument `i`, or no_node where it is a literal.
  [[nodiscard]] node_id operand_node(std::size_t i) const;
  [[nodiscard]] const argument* argument_at(std::size_t i) const noexcept; ///< null beyond the last
  [[nodiscard]] const argument* keyword(std::string_view name) const noexcept;
  [[nodiscard]] std::span<const expression> values_of(node_id n) const noexcept; ///< of a node with several results
  [[nodiscard]] bool has_value(node_id n) const noexcept;
  [[nodiscard]] virtual expression value_of(node_id n); ///< what a node was lowered to; throws DeviceIRError if it was not
  [[nodiscard]] expression literal(const argument& a, std::optional<dtype> as = {});
  [[nodiscard]] inline std::span<const dimension> shape_of(node_id n) const noexcept { return plan->shape(n); }
  [[nodiscard]] inline const node& current_node() const noexcept { return source->at(current); }
  /// The declared element type of a node (tensor), or of a symbol: i32/i64 as the index type, f32 for a float.
  [[nodiscard]] dtype type_of(node_id n) const noexcept;

  // -- results of the node being lowered
  void result(expression e);
  void results(std::span<const expression> several);
  /// As `result`, for a value whose computation has an effect: the statement stays even if nothing reads the value.
  void effect_result(expression e);
  void set_value(node_id n, expression e);
  void set_values(node_id n, std::span<const expression> several);
  /// Assigns `e` to a new variable named after node `n` (its name in the document), with its declared type, and returns
  /// the name; atoms (names, literals) come back unchanged.
  expression define_for(node_id n, expression e);

  // -- expressions
  [[nodiscard]] expression none();
  [[nodiscard]] expression boolean(bool v);
  [[nodiscard]] expression integer(std::int64_t v, dtype as = dtype::i32);
  [[nodiscard]] expression real(double v, dtype as = dtype::f32);
  [[nodiscard]] expression string(std::string_view text);
  [[nodiscard]] expression name(variable v);
  /// An atom spelled as it stands; `text` must outlive the emitter's reset (a literal, or `keep`).
  [[nodiscard]] expression text(std::string_view spelled);
  [[nodiscard]] expression text(std::string_view spelled, dtype as);
  [[nodiscard]] expression call(std::string_view callee, std::span<const expression> arguments);
  [[nodiscard]] expression call(std::string_view callee, std::initializer_list<expression> arguments);
  [[nodiscard]] expression call(std::string_view callee, std::initializer_list<expression> arguments, dtype as);
  [[nodiscard]] expression method(expression object, std::string_view name, std::span<const expression> arguments);
  [[nodiscard]] expression method(expression object, std::string_view name, std::initializer_list<expression> arguments);
  [[nodiscard]] expression keyword_argument(std::string_view name, expression value);
  [[nodiscard]] expression subscript(expression object, std::span<const expression> items);
  [[nodiscard]] expression subscript(expression object, std::initializer_list<expression> items);
  [[nodiscard]] expression tuple(std::span<const expression> items);
  [[nodiscard]] expression list(std::span<const expression> items);
  /// An operator. Folds constants and neutral operands of integers (x+0, x*1; not x*0, which may have a tile's shape); the
  /// result's type is torch's promotion (comparisons: b8).
  [[nodiscard]] expression unary(op o, expression a);
  [[nodiscard]] expression binary(op o, expression a, expression b);
  [[nodiscard]] expression select(expression test, expression a, expression b);
  [[nodiscard]] expression least(expression a, expression b); ///< of two scalars
  [[nodiscard]] expression greatest(expression a, expression b);
  [[nodiscard]] expression mark_non_negative(expression e); ///< the same expression, known to be at least 0
  [[nodiscard]] bool is_zero(expression e) const noexcept; ///< a literal 0 (negative zero is not)
  [[nodiscard]] expression typed(expression e, dtype as); ///< the same expression, known to have that type
  [[nodiscard]] expression untyped(expression e); ///< the same expression, known to be no number: a pointer
  /// Converts; nothing where the type already is that one. Literals are converted exactly.
  [[nodiscard]] expression cast(expression e, dtype to);
  /// A function that the dialect spells. Throws BackendUnsupported where it has none.
  [[nodiscard]] expression call(intrinsic f, std::initializer_list<expression> arguments, dtype as);
  [[nodiscard]] bool has(intrinsic f) const noexcept;

  [[nodiscard]] inline const expression_node& at(expression e) const noexcept { return expressions_[static_cast<std::size_t>(e)]; }
  [[nodiscard]] inline std::span<const expression> operands(expression e) const noexcept {
    const expression_node& n = at(e);
    return std::span<const expression>(operands_).subspan(n.first, n.count);
  }
  [[nodiscard]] inline dtype type_of(expression e) const noexcept { return at(e).type; }
  [[nodiscard]] bool is_literal(expression e) const noexcept;
  [[nodiscard]] std::optional<std::int64_t> integer_literal(expression e) const noexcept;
  [[nodiscard]] bool is_atom(expression e) const noexcept;
  /// A symbolic expression (a size, a stride, a loop's bound) as an expression of the target, symbols through `symbol_value`.
  [[nodiscard]] expression symbolic(symbolic::expression e);
  /// The list of indices that argument `position` of the node being lowered is. Throws DeviceIRError where it is none.
  [[nodiscard]] std::span<const argument> index_list(std::size_t position) const;
  /// Reads the indices of an access to a host tensor whose value has `value_rank` dimensions (0: a scalar). Tensor indices
  /// broadcast together, or have dimensions of their own each: the value's rank says it, and where the value is a scalar,
  /// one-dimensional ones have. Throws DeviceIRError where the indices do not fit the tensor, BackendUnsupported for a slice
  /// that begins before 0, steps backwards, or has bounds that are no constants.
  [[nodiscard]] access_indices read_indices(std::int32_t tensor, std::span<const argument> list, std::size_t value_rank);
  /// The size of a host tensor's dimension where it is known, else 0.
  [[nodiscard]] std::int64_t constant_size(std::int32_t tensor, std::size_t d) const;
  /// A host tensor's stride along dimension `d` as an access uses it: 0 along a dimension of one element, where every index means
  /// that element.
  [[nodiscard]] expression stride_of(std::int32_t tensor, std::size_t d);
  /// Throws BackendUnsupported where several lanes of a store have one element, as along a dimension of stride 0.
  void refuse_overlap(std::int32_t tensor, std::span<const access_index> all);
  /// A small whole power is a product, any other a call.
  [[nodiscard]] expression power_of(expression base, expression exponent);
  /// The expression that holds a symbol: a parameter, a block size, a tile's begin … Backends override what differs.
  [[nodiscard]] virtual expression symbol_value(symbolic::symbol s);
  /// The current tile of a block. Throws DeviceIRError where none is open.
  [[nodiscard]] tile_binding& tile(std::int32_t block);
  [[nodiscard]] const tile_binding* find_tile(std::int32_t block) const noexcept; ///< null where none is open
  void open_tile(std::int32_t block, const tile_binding& t);
  void close_tile(std::int32_t block);
  [[nodiscard]] virtual expression tile_offset(std::int32_t block);
  [[nodiscard]] virtual expression tile_indices(std::int32_t block);
  [[nodiscard]] virtual expression tile_end(std::int32_t block); ///< min(offset + block size, end)
  [[nodiscard]] virtual expression tile_id(std::int32_t block);
  [[nodiscard]] virtual expression tile_count(std::int32_t block);
  [[nodiscard]] virtual expression block_size(std::int32_t block); ///< a literal, or a parameter's name
  /// The block that an argument names (a block size symbol of declared type `Sym(uN)`), or -1.
  [[nodiscard]] std::int32_t block_of(const argument& a) const noexcept;
  [[nodiscard]] std::int32_t block_of(node_id n) const noexcept;
  /// A parameter symbol's variable; the first use makes it a parameter of the kernel (`used_parameters`).
  [[nodiscard]] virtual expression parameter_value(symbolic::symbol s);
  [[nodiscard]] bool parameter_used(symbolic::symbol s) const noexcept;
  /// A host tensor of the document (index into document::tensors). Backends bind what stands for it.
  [[nodiscard]] virtual expression tensor_value(std::int32_t tensor);
  void bind_tensor(std::int32_t tensor, expression e);
  [[nodiscard]] bool tensor_used(std::int32_t tensor) const noexcept;
  /// The host tensor behind a node, or -1.
  [[nodiscard]] std::int32_t tensor_of(node_id n) const noexcept;

  /// A node's value as a tile of its declared shape, where `e` may be a literal that broadcasts. Backends whose loops need
  /// a whole tile (Triton) make one.
  [[nodiscard]] virtual expression as_tile(node_id n, expression e) {
    (void)n;
    return e;
  }

  // -- control flow of the targets whose variables hold whole tiles (`muster.backend.common` drives it)
  /// Opens a loop over its blocks with the given bounds (listed as `loop.blocks`): the innermost body, tiles opened.
  [[nodiscard]] virtual body open_loop(const loop_plan& loop, std::span<const expression> begins, std::span<const expression> ends,
                                       std::span<const expression> steps);
  virtual void close_loop(const loop_plan& loop);
  /// The neutral element of a rolled reduction, shaped and typed as its accumulator.
  [[nodiscard]] virtual expression neutral(const accumulator& a);
  /// The accumulator combined with one more chunk's result.
  [[nodiscard]] virtual expression combine(const accumulator& a, expression so_far, expression chunk);
  /// What an accumulator gives behind the loop.
  [[nodiscard]] virtual expression finish(const accumulator& a, expression accumulated);

  /// Makes `e` the value of a symbol from here on (a grid index, a tile's begin).
  void bind_symbol(symbolic::symbol s, expression e);
  /// The symbol that a node defines by its value, or `no_symbol`.
  [[nodiscard]] symbolic::symbol defined_symbol(node_id n) const noexcept;

  // -- variables and statements; a statement goes to the end of the current body
  [[nodiscard]] variable new_variable(std::string_view preferred, std::optional<dtype> type = {});
  /// A variable that the frame declares (a parameter). It is named at once: like `wanted`, made an identifier of its own.
  [[nodiscard]] variable new_parameter(std::string_view wanted, std::optional<dtype> type = {});
  /// A name that nothing else has, as near to `preferred` as the target's keywords and the names taken so far allow.
  [[nodiscard]] std::string_view unique_name(std::string_view preferred);
  [[nodiscard]] inline variable_node& at(variable v) noexcept { return variables_[static_cast<std::size_t>(v)]; }
  expression define(std::string_view preferred, expression value); ///< a new variable assigned once; returns its name
  statement assign(variable v, expression value);
  /// Makes an assignment assign to `v` instead.
  void redirect(statement assignment, variable v);
  statement declare(variable v, std::string_view suffix = {}, expression initial = no_expression);
  statement store(expression target, expression value, op compound = op::select);
  statement evaluate(expression effect);
  /// `for v in range_call:` in Python; in C `for (v = begin; v < end; v += step)`, where `range_call` has three arguments.
  statement for_range(variable v, expression range_call, std::string_view pragma = {});
  /// As `for_range`, around a body that was filled before.
  statement for_range(variable v, expression range_call, body inside);
  /// `[result =] call(arguments…, [&](index) { inside });` in C. `result` may be `no_variable`; then it is kept for its effects.
  statement closure(variable result, expression call, variable index, body inside);
  /// Makes a store or call what gives `v` its value: it is kept if `v` is read, and only then.
  void defines(statement s, variable v);
  statement if_then(expression test);
  statement loop_while(expression test);
  statement return_value(expression value);
  statement break_out();
  statement scope();
  statement comment(std::string_view text);
  statement verbatim(std::string_view line); ///< one or more lines as they stand, indented to the place
  [[nodiscard]] inline statement_node& at(statement s) noexcept { return statements_[static_cast<std::size_t>(s)]; }
  [[nodiscard]] body inner(statement s);
  [[nodiscard]] body orelse(statement s);
  [[nodiscard]] inline body current_body() const noexcept { return body_; }
  [[nodiscard]] body new_body();
  /// Statements go into `b` until the guard dies.
  class insertion;
  [[nodiscard]] insertion into(body b);
  /// Statements go ahead of those already in body `b` but behind those put there this way before.
  [[nodiscard]] insertion ahead_of(body b);
  /// The control statement that a body belongs to, or `no_statement`.
  [[nodiscard]] inline statement owner_of(body b) const noexcept { return bodies_[static_cast<std::size_t>(b)].owner; }
  [[nodiscard]] inline statement first_statement(body b) const noexcept { return bodies_[static_cast<std::size_t>(b)].first; }
  [[nodiscard]] inline bool is_empty(body b) const noexcept { return bodies_[static_cast<std::size_t>(b)].first == no_statement; }

  std::string_view keep(std::string_view text); ///< a copy that lives until reset
  // What is stored as a view may not come from a temporary: `keep` it first.
  template <std::same_as<std::string> S> std::string_view unique_name(S&&) = delete;
  template <std::same_as<std::string> S> void reserve_name(S&&) = delete;
  template <std::same_as<std::string> S> variable new_variable(S&&, std::optional<dtype> = {}) = delete;
  template <std::same_as<std::string> S> variable new_parameter(S&&, std::optional<dtype> = {}) = delete;
  template <std::same_as<std::string> S> expression define(S&&, expression) = delete;
  template <std::same_as<std::string> S> expression text(S&&) = delete;
  template <std::same_as<std::string> S> expression string(S&&) = delete;
  template <std::same_as<std::string> S> statement comment(S&&) = delete;
  template <std::same_as<std::string> S> statement verbatim(S&&) = delete;
  template <class... Parts> std::string_view keep_joined(const Parts&... parts) {
    scratch_.clear();
    (scratch_.append(parts), ...);
    return keep(scratch_);
  }

  // -- lowering
  /// Lowers the live nodes of a graph in order, each through the registry, into the current body.
  void lower_graph(std::int32_t graph);
  /// Lowers, ahead of a loop over `graph`, the symbol arithmetic in it and in its inner loops that no iteration changes.
  /// `lower_graph` leaves those out until they are given to `end_invariants`.
  [[nodiscard]] std::vector<node_id> lower_invariants(std::int32_t graph);
  void end_invariants(std::span<const node_id> nodes);
  /// One node: its lookup and its handler's call. Throws BackendImplementationMissing, located, with the node's own name.
  virtual void lower_node(node_id n);
  /// A reference to graph result `i` (or the single result) after `lower_graph`.
  [[nodiscard]] expression graph_result(std::int32_t graph, std::size_t i);
  [[nodiscard]] node_id graph_result_node(std::int32_t graph, std::size_t i) const;
  /// Throws BackendUnsupported for the node being lowered, located.
  [[noreturn]] void unsupported(std::string_view reason) const;
  /// Throws DeviceIRError at the node being lowered.
  [[noreturn]] void malformed(std::string_view message) const;

  // -- finishing
  /// Marks what is live: statements with effects, and what they use. Others are not printed.
  void mark_live(body root);
  /// Gives every live variable below `root` a name of its own that is no reserved word.
  void resolve_names(body root);
  void reserve_name(std::string_view exact); ///< a name that the frame takes
  [[nodiscard]] inline std::string_view name_of(variable v) const noexcept { return variables_[static_cast<std::size_t>(v)].name; }
  void print_body(body b, std::string& out, int indent) const;
  void print_expression(expression e, std::string& out) const;

  std::vector<std::string> notes; ///< what a user should know of the output (a hint not honoured, an unknown key); one line each

protected:
  std::vector<lowered> values_; ///< by node_id
  std::vector<expression> several_;
  std::vector<tile_binding> tiles_; ///< by block id
  std::vector<expression> tensor_values_; ///< by host tensor
  std::vector<bool> tensor_used_;
  std::vector<bool> invariant_; ///< by node: lowered ahead of the loop that is open
  std::vector<bool> parameter_used_; ///< by symbol
  std::vector<expression> symbol_values_; ///< by symbol; no_expression: not bound
  inline const kernel_plan& the_plan() const noexcept { return *plan; }

private:
  [[nodiscard]] expression floor_of_floats(op o, expression a, expression b);
  [[nodiscard]] bool lanes_overlap(std::int32_t tensor, const access_index& i);
  void read_slice(access_index& to, const argument& slice, std::int64_t size) const;
  [[nodiscard]] expression scalar_index(const argument& a, std::int32_t tensor, std::size_t d);
  [[nodiscard]] expression push_extreme(std::string_view callee, expression a, expression b);
  [[nodiscard]] const argument* repeated(std::size_t i) const noexcept;
  [[nodiscard]] std::string place() const; ///< file:line of the node being lowered
  expression push(const expression_node& n);
  expression push(expression_node n, std::span<const expression> operands);
  expression push(expression_node n, expression object, std::span<const expression> rest); ///< operands: `object`, if any, and the rest
  statement push(const statement_node& n);
  void mark(expression e);
  void mark(variable v);
  void mark(statement s);
  void mark_effects(body b);
  void name_variables(body b);
  std::vector<expression_node> expressions_;
  std::vector<expression> operands_;
  std::vector<statement_node> statements_;
  std::vector<body_node> bodies_;
  std::vector<variable_node> variables_;
  std::vector<statement> pending_; ///< of mark_live
  struct text_block {
    std::unique_ptr<char[]> text;
    std::size_t size = 0;
  };
  std::vector<text_block> kept_; ///< what `keep` copied; reused from one kernel to the next
  std::size_t kept_block_ = 0; ///< the block that is being filled
  std::size_t kept_used_ = 0; ///< its characters in use
  std::string scratch_;
  body body_ = no_body;
  statement insert_after_ = no_statement; ///< with `ahead_`: where `ahead_of` puts the next
  bool ahead_ = false;
  class names;
  std::unique_ptr<names> names_;
  registry_view<muster::operation, void(emitter&, const node&)> registry_{};
  backend_id backend_{};
};

/// Lowers one operation for one backend: reads the node's operands, adds statements, sets its result.
using handler = void(emitter&, const node&);

/// The handler of a live node. Throws UnknownOperation, and BackendImplementationMissing with the node's own overload's name.
[[nodiscard]] handler& handler_of(const kernel_plan& plan, node_id n, registry_view<muster::operation, handler> registry,
                                  backend_id backend);

/// What a backend gives the code generator beside its handlers.
struct target {
  std::string_view name;
  const codegen::dialect* language = nullptr;
  std::unique_ptr<emitter> (*make_emitter)() = nullptr; ///< the backend's own state
  /// Lowers the whole kernel and appends the module's source.
  void (*write_kernel)(emitter&, std::string& out) = nullptr;
  bool records = false; ///< it honours `emitter::recording`
};

/// Restores where statements go.
class emitter::insertion {
public:
  insertion(emitter& e, body b, bool ahead) noexcept;
  ~insertion();
  insertion(const insertion&) = delete;
  insertion& operator=(const insertion&) = delete;

private:
  emitter& emitter_;
  body saved_;
  statement saved_after_;
  bool saved_ahead_;
};

/// torch's promotion of two element types of tensors.
[[nodiscard]] dtype promote(dtype a, dtype b) noexcept;

// ------------------------------------------------------------------------------------------------------------ generate

/// Changes with the operations and with the sizes of what a program and the library hand each other.
inline constexpr std::uint64_t codegen_fingerprint =
    detail::mix(operations_fingerprint, sizeof(registry_data<muster::operation, handler>) << 32U | sizeof(backend_description),
                sizeof(document) << 32U | sizeof(node), sizeof(device_ir::config) << 32U | sizeof(kernel_plan),
                sizeof(emitter) << 32U | sizeof(target));

/// As in muster.operations: a program that was compiled against other interfaces does not link or load. Data, since data is
/// looked for when a program is loaded, and a function perhaps at its first call.
template <std::uint64_t Fingerprint> struct library_was_built_from_other_interfaces {
  static const char marker;
};
extern template struct library_was_built_from_other_interfaces<codegen_fingerprint>;

/// Generates one kernel. `generator` holds reusable state: one a thread.
class generator {
public:
  inline generator(registry_view<muster::operation, handler> registry, std::span<const target* const> targets)
      : generator(registry, targets, &library_was_built_from_other_interfaces<codegen_fingerprint>::marker) {}
  ~generator();
  generator(generator&&) noexcept;
  generator& operator=(generator&&) noexcept;

  /// Appends the kernel's source for a backend. Errors: UnknownBackend, BackendImplementationMissing, BackendUnsupported,
  /// UnknownOperation, DeviceIRError; then `out` is as it was. Deterministic: same document and config, same bytes.
  void generate(const document& d, std::string_view backend, std::string& out);
  void generate(const document& d, const device_ir::config& config, std::string_view backend, std::string& out);
  /// From here on: kernels that record the value of every node that they compute, element by element, for whoever debugs a
  /// handler. Where the backend cannot, generating throws BackendUnsupported.
  void record(bool on) noexcept;
  /// Notes of the last generation (hints not honoured, unknown config keys), one line each.
  [[nodiscard]] std::span<const std::string> notes() const noexcept;
  [[nodiscard]] const kernel_plan& plan() const noexcept;

private:
  generator(registry_view<muster::operation, handler> registry, std::span<const target* const> targets, const char* marker);
  struct state;
  std::unique_ptr<state> self_;
};

} // namespace muster::codegen

#pragma GCC visibility pop
