module;
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The device IR document: one kernel as a value. Parse it from text, print it, verify it, build it.
/// Everything is stored flat: nodes, arguments and types are indices into the document's own arrays.
export module muster.device_ir;

import muster.error;
import muster.symbolic;

#pragma GCC visibility push(default)

export namespace muster::device_ir {

using symbolic::expression;
using symbolic::no_expression;
using symbolic::symbol;

/// Element types. The order is the order of the table in src/device_ir.
enum class dtype : std::uint8_t { f64, f32, f16, bf16, f8e4m3fn, f8e5m2, i64, i32, i16, i8, u8, b8 };
inline constexpr std::size_t dtype_count = 12;
[[nodiscard]] std::string_view name(dtype d) noexcept;       ///< `f16`
[[nodiscard]] std::string_view torch_name(dtype d) noexcept; ///< `float16`, as in `torch.float16`
[[nodiscard]] std::optional<dtype> dtype_named(std::string_view name) noexcept;
[[nodiscard]] std::optional<dtype> dtype_torch_named(std::string_view name) noexcept;
[[nodiscard]] constexpr bool is_float(dtype d) noexcept { return d <= dtype::f8e5m2; }
[[nodiscard]] constexpr bool is_integer(dtype d) noexcept { return d >= dtype::i64 && d <= dtype::u8; }
/// Size of an element in bytes.
[[nodiscard]] constexpr int size_of(dtype d) noexcept {
  constexpr int bytes[dtype_count] = {8, 4, 2, 2, 1, 1, 8, 4, 2, 1, 1, 1};
  return bytes[static_cast<std::size_t>(d)];
}

/// One element in memory, `size_of(d)` little endian bytes, as a number and back. To a float: rounded to nearest, ties to even;
/// beyond the largest number infinity, or NaN where the type has no infinity (f8e4m3fn). To an integer: the low bits; to b8:
/// whether it is not 0. A real number must lie within 64 bits to become an integer. As a double, integers beyond 2^53 lose digits.
[[nodiscard]] double element_to_double(dtype d, const std::byte* bytes) noexcept;
[[nodiscard]] std::int64_t element_to_integer(dtype d, const std::byte* bytes) noexcept;
void double_to_element(dtype d, double value, std::byte* bytes) noexcept;
void integer_to_element(dtype d, std::int64_t value, std::byte* bytes) noexcept;
/// `value` as an element of `d` holds it.
[[nodiscard]] double rounded(dtype d, double value) noexcept;

/// A half-open range of one of the document's arrays.
struct range {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const range&, const range&) noexcept = default;
};

enum class node_id : std::uint32_t {};
inline constexpr node_id no_node = static_cast<node_id>(0xFFFFFFFFU);
[[nodiscard]] constexpr std::uint32_t index(node_id n) noexcept { return static_cast<std::uint32_t>(n); }

/// The declared type of a node.
struct type {
  enum class kind : std::uint8_t { none, tensor, symbolic };
  kind what = kind::none;
  dtype element = dtype::f32;        ///< of a tensor
  range sizes;                       ///< of a tensor: into document::expressions; rank is its count
  expression value = no_expression;  ///< of `Sym(EXPR)`
};

/// `torch.strided`, and the memory formats that the same position of a call may hold (`torch.contiguous_format`).
enum class layout : std::uint8_t { strided, contiguous_format, preserve_format, channels_last, channels_last_3d };
[[nodiscard]] std::string_view torch_name(layout l) noexcept; ///< `strided`
[[nodiscard]] std::optional<layout> layout_torch_named(std::string_view name) noexcept;

/// One argument of a call. Compound kinds refer to further arguments of the document.
struct argument {
  enum class kind : std::uint8_t { none, boolean, integer, real, string, node, list, tuple, slice, dtype, layout, device, function };
  kind what = kind::none;
  bool boolean = false;
  device_ir::dtype element = device_ir::dtype::f32;
  device_ir::layout memory_layout = device_ir::layout::strided;
  node_id node = no_node;
  range items;                    ///< list, tuple: its items; slice: three (start, stop, step), each maybe `none`
  std::int64_t integer = 0;       ///< integer; device: its index, or -1
  double real = 0;
  std::string_view text;          ///< string: its characters, unescaped; device: its type; function: its name
};

/// A keyword argument: `name = value`.
struct keyword {
  std::string_view name;
  argument value;
};

/// A statement, or a graph's parameter (then `is_parameter`, and there is no target).
struct node {
  std::string_view name;
  /// What is called, as the document spells it; for `VALUE[INT]` it is `operator.getitem` (arguments: VALUE, INT); for a
  /// Python operator `operator.add`, `.sub`, `.mul`, `.truediv`, `.floordiv`, `.mod`, `.pow`, `.neg`, `.eq`, `.ne`, `.lt`,
  /// `.le`, `.gt`, `.ge`, `.and_`, `.or_`, `.not_`. A bare name or literal on the right is `operator.identity`.
  std::string_view target;
  bool is_parameter = false;
  device_ir::type type;
  range arguments; ///< into document::arguments
  range keywords;  ///< into document::keywords
  std::uint32_t line = 0;   ///< where in the text, from 1; 0: built by a program
  std::uint32_t column = 0; ///< of the name, from 1
  std::uint32_t source = 0; ///< into document::sources, plus 1; 0: no `# src` line stands above
};

/// One `# src FILE:LINE CODE` line.
struct source {
  std::string_view file;
  std::uint32_t line = 0;
  std::string_view code;
};

struct graph {
  enum class kind : std::uint8_t { root, loop, branch, helper };
  std::string_view name;
  std::int32_t id = 0;       ///< the digits that end the name
  kind what = kind::branch;
  std::vector<std::int32_t> blocks; ///< of a root's grid or a loop
  std::int32_t phase = 0;    ///< of a root
  range parameters;          ///< into document::nodes
  range nodes;               ///< into document::nodes, right behind the parameters
  argument result;           ///< what `return` gives: `none`, a list or tuple, or one value
  std::uint32_t line = 0;        ///< of its `def`
  std::uint32_t header_line = 0; ///< of its root, loop, branch or helper line
  bool declared = true;      ///< false while only the header or only the body was seen
};

struct host_tensor {
  std::string_view name;
  dtype element = dtype::f32;
  range sizes;   ///< into document::expressions
  range strides; ///< in elements; as many as sizes
  std::uint32_t line = 0;
};

/// A `symbol` line.
struct symbol_declaration {
  enum class origin : std::uint8_t { parameter, grid, tile_begin, tile_end, tile_id, tile_count };
  symbolic::symbol id = symbolic::no_symbol;
  bool is_float = false;
  origin from = origin::parameter;
  std::int32_t block = -1;          ///< of every origin but `parameter`
  std::string_view host_expression; ///< of a parameter: text only
  std::optional<symbolic::number> hint;
  std::uint32_t line = 0;
};

/// A `block` line: a tiled dimension.
struct block {
  std::int32_t id = 0;
  expression variable = no_expression;  ///< the block size symbol, or a constant where the dimension is not tiled
  expression size = no_expression;      ///< the extent; `no_expression` for None
  bool is_reduction = false;
  expression block_size = no_expression; ///< `no_expression` for None
  std::vector<std::int32_t> jagged_parents;
  std::uint32_t line = 0;
};

enum class precision : std::uint8_t { tf32, tf32x3, ieee };

struct settings {
  bool static_shapes = true;
  dtype index_dtype = dtype::i32; ///< i32 or i64
  bool fast_math = false;
  precision dot_precision = precision::tf32;
};

/// How a kernel's program ids are laid out.
enum class pid_type : std::uint8_t { flat, xyz, persistent_blocked, persistent_interleaved };
enum class indexing : std::uint8_t { pointer, block_ptr, tensor_descriptor };
enum class eviction : std::uint8_t { none, first, last };

/// The tuning choices of the `config` line, read into types. What is absent is an empty vector or optional.
struct config {
  std::string_view text; ///< the JSON as it stands in the document; from `parse_config`: the text that it was given
  std::vector<std::int64_t> block_sizes;
  std::vector<std::vector<std::int32_t>> loop_orders;
  std::vector<std::int64_t> l2_groupings;
  std::vector<bool> flatten_loops;
  std::vector<std::optional<std::int64_t>> reduction_loops;
  device_ir::pid_type pid_type = device_ir::pid_type::flat;
  std::optional<std::int64_t> num_sm_multiplier;
  std::vector<device_ir::indexing> indexing;        ///< one for all, or one a load or store in document order
  std::vector<device_ir::indexing> atomic_indexing; ///< likewise for atomics
  std::vector<eviction> load_eviction_policies;     ///< one a load
  std::vector<std::int64_t> range_unroll_factors;   ///< one a loop, grid first; 0: none
  std::vector<std::int64_t> range_num_stages;
  std::vector<std::optional<bool>> range_multi_buffers;
  std::vector<std::optional<bool>> range_flattens;
  std::vector<std::optional<bool>> range_warp_specializes;
  std::vector<bool> static_ranges;
  std::optional<std::int64_t> num_warps, num_stages, num_ctas, occupancy, maxnreg;
  /// Keys that are none of the above (a kernel's own, or unknown), with their JSON value as text, in order.
  std::vector<std::pair<std::string, std::string>> others;
};

/// Reads a JSON object of tuning choices. Errors are `DeviceIRError` with `file`, `line` and the column in the text.
/// Keys that are absent keep the values of `base`.
[[nodiscard]] config parse_config(std::string_view json, const config& base = {}, std::string_view file = "<config>", std::size_t line = 1,
                                  std::size_t column = 1);

/// Appends the config as a JSON object on one line, from its fields (not from `text`): what is absent is left out.
void print(const config& c, std::string& out);

/// One kernel. Move-only: string views point into its own storage (`clone` copies).
class document {
public:
  document();
  ~document();
  document(document&&) noexcept;
  document& operator=(document&&) noexcept;
  document(const document&) = delete;
  document& operator=(const document&) = delete;
  [[nodiscard]] document clone() const;

  std::string_view file = "<document>"; ///< for messages
  std::string_view kernel;
  device_ir::settings settings;
  device_ir::config config;
  symbolic::pool symbols;
  std::vector<host_tensor> tensors;
  std::vector<symbol_declaration> declarations;
  std::vector<block> blocks;
  std::vector<graph> graphs; ///< in the order of their bodies in the text
  std::vector<node> nodes;   ///< graph by graph
  std::vector<argument> arguments;
  std::vector<keyword> keywords;
  std::vector<expression> expressions;
  std::vector<source> sources;

  [[nodiscard]] inline const node& at(node_id n) const noexcept { return nodes[index(n)]; }
  [[nodiscard]] inline std::span<const argument> arguments_of(const node& n) const noexcept { return slice(arguments, n.arguments); }
  [[nodiscard]] inline std::span<const keyword> keywords_of(const node& n) const noexcept { return slice(keywords, n.keywords); }
  [[nodiscard]] inline std::span<const argument> items(const argument& a) const noexcept { return slice(arguments, a.items); }
  [[nodiscard]] inline std::span<const expression> sizes(const type& t) const noexcept { return slice(expressions, t.sizes); }
  [[nodiscard]] inline std::span<const expression> sizes(const host_tensor& t) const noexcept { return slice(expressions, t.sizes); }
  [[nodiscard]] inline std::span<const expression> strides(const host_tensor& t) const noexcept { return slice(expressions, t.strides); }
  [[nodiscard]] const argument* find_keyword(const node& n, std::string_view name) const noexcept;
  [[nodiscard]] const graph* find_graph(std::int64_t id) const noexcept;
  [[nodiscard]] const block* find_block(std::int64_t id) const noexcept;
  [[nodiscard]] const host_tensor* find_tensor(std::string_view name) const noexcept;
  [[nodiscard]] const symbol_declaration* find_declaration(symbolic::symbol s) const noexcept;

  /// Copies text into the document's storage; the view lives as long as the document.
  std::string_view keep(std::string_view text);
  /// The line of the text that the document was parsed from, or an empty view.
  [[nodiscard]] std::string_view source_text_line(std::size_t line) const noexcept;
  /// An error located at a node (for passes behind the parser): message with file:line:column, the line and a caret.
  [[nodiscard]] DeviceIRError error_at(const node& n, std::string_view message) const;

  /// Forgets everything but keeps the memory, for reuse.
  void clear() noexcept;

private:
  friend class parser;
  template <class T> [[nodiscard]] static std::span<const T> slice(const std::vector<T>& all, range r) noexcept {
    return std::span<const T>(all).subspan(r.first, r.count);
  }
  struct storage;
  std::unique_ptr<storage> storage_;
};

/// Limits of the format; what passes one is a located error. Generous against real kernels (the largest has ~1,000 nodes).
struct limits {
  static constexpr std::size_t text_bytes = 64U << 20U;
  static constexpr std::size_t line_bytes = 1U << 20U;
  static constexpr std::size_t nodes = 1U << 20U;
  static constexpr std::size_t argument_depth = 64;
  static constexpr std::size_t rank = 32; ///< dimensions of a tensor, blocks of a graph
  static constexpr std::size_t arguments = 4U << 20U;
  static constexpr std::size_t keywords = 256; ///< of one node
  static constexpr std::size_t expressions = 1U << 20U;
  static constexpr std::size_t declarations = 4096; ///< host tensors, symbols, blocks, graphs: of each
};

/// Reads a document. The text need not outlive the call. Verifies nothing beyond the grammar (see `verify`).
/// Throws DeviceIRError at the first fault. Linear in the text: about 100 ns a node.
[[nodiscard]] document parse(std::string_view text, std::string_view file = "<text>");
/// The same into an existing document, whose memory is reused.
void parse_into(document& into, std::string_view text, std::string_view file = "<text>");

/// Checks what the grammar cannot: names defined before use, graph ids exist and have fitting parameters, blocks and
/// symbols declared once and where used, types consistent where the format fixes them (a node's tensor type, a host
/// tensor's declaration, a dtype argument), results exist, no graph contains itself. Throws DeviceIRError at the first fault.
void verify(const document& d);

/// Appends the document as text. parse(print(d)) equals d (last-use marks, blank lines and comments other than `# src` go).
void print(const document& d, std::string& out);
[[nodiscard]] std::string to_string(const document& d);
/// Whether two documents say the same (names, types, arguments, header; not line numbers).
[[nodiscard]] bool equal(const document& a, const document& b);

/// Writes a document from a program.
///
///   builder b("copy");
///   b.host_tensor("x", dtype::f32, {"1024"}, {"1"});
///   b.host_tensor("out", dtype::f32, {"1024"}, {"1"});
///   b.block(0, "u0", "1024", "128");
///   b.graph("root_graph_0", graph::kind::root, {0});
///   b.call("x", "f32[1024]", "helion_language__tracing_ops__host_tensor", "'x'");
///   b.call("block_size_0", "Sym(u0)", "helion_language__tracing_ops__get_symnode", "'block_size_0'");
///   …
///   b.result("None");
///   document d = b.finish();
///
/// Types, sizes and arguments are given in the format's own spelling, and values by the names of their nodes. What is
/// malformed throws DeviceIRError: a line break at once, everything else in `finish`, which shows the line that was built.
class builder {
public:
  explicit builder(std::string_view kernel);
  ~builder();
  builder(builder&&) noexcept;
  builder& operator=(builder&&) noexcept;

  device_ir::settings& settings() noexcept;
  void config(std::string_view json);
  void host_tensor(std::string_view name, dtype element, std::span<const std::string_view> sizes,
                   std::span<const std::string_view> strides);
  void host_tensor(std::string_view name, dtype element, std::initializer_list<std::string_view> sizes,
                   std::initializer_list<std::string_view> strides);
  void parameter(std::string_view symbol, bool is_float, std::string_view host_expression, std::optional<symbolic::number> hint = {});
  void block_symbol(std::string_view symbol, symbol_declaration::origin from, std::int32_t block);
  /// `size` empty: None. `variable` is the block size's symbol (or a constant).
  void block(std::int32_t id, std::string_view variable, std::string_view size, std::string_view block_size, bool is_reduction = false,
             std::span<const std::int32_t> jagged_parents = {});
  /// Starts a graph's body; calls go into the graph begun last. Its id is the number that ends `name`.
  void graph(std::string_view name, device_ir::graph::kind what, std::span<const std::int32_t> blocks = {}, std::int32_t phase = 0);
  void graph(std::string_view name, device_ir::graph::kind what, std::initializer_list<std::int32_t> blocks, std::int32_t phase = 0);
  /// A parameter of the current graph. Before its first call.
  node_id parameter_node(std::string_view name, std::string_view type);
  /// A statement `name: "type" = target(arguments…)`; `type` may be empty.
  node_id call(std::string_view name, std::string_view type, std::string_view target, std::string_view arguments);
  /// Ends the current graph: `return VALUE` in the format's spelling (`None`, `[acc]`).
  void result(std::string_view value);
  /// The document, verified. The builder is empty afterwards. Throws DeviceIRError.
  [[nodiscard]] document finish();

private:
  struct implementation;
  std::unique_ptr<implementation> self_;
};

} // namespace muster::device_ir

#pragma GCC visibility pop
