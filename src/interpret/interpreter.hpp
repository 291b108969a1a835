// Members defined here are marked inline: in a module a member is not, by being defined in its class.
// Included behind `module muster.interpret;` by the units of src/interpret: what they share and nobody else sees.

namespace muster::interpret {

using device_ir::argument;
using device_ir::node;
using shape = std::vector<std::int64_t>;
using positions = std::vector<std::size_t>;

// -- arrays

/// Elements in C order: doubles, or 64-bit integers (truths are 0 and 1).
struct array {
  interpret::shape shape;
  bool real = false;
  std::vector<double> reals;
  std::vector<std::int64_t> integers;

  [[nodiscard]] inline std::size_t count() const noexcept { return real ? reals.size() : integers.size(); }
  [[nodiscard]] inline double real_at(std::size_t i) const noexcept { return real ? reals[i] : static_cast<double>(integers[i]); }
  [[nodiscard]] inline bool truth_at(std::size_t i) const noexcept { return real ? reals[i] != 0 : integers[i] != 0; }
  [[nodiscard]] std::int64_t integer_at(std::size_t i) const noexcept; ///< towards zero
};

[[nodiscard]] std::size_t count_of(std::span<const std::int64_t> s);
[[nodiscard]] array make_array(interpret::shape s, bool real);
[[nodiscard]] array scalar_array(double value);
[[nodiscard]] array scalar_array(std::int64_t value);
[[nodiscard]] std::int64_t truncated(double value) noexcept; ///< NaN and what 64 bits do not hold is the least integer
[[nodiscard]] array as_real(const array& a);
[[nodiscard]] array as_integer(const array& a);
/// As elements of `d` hold the values.
[[nodiscard]] array rounded(array a, dtype d);
/// The elements of `a` at these positions, in this shape.
[[nodiscard]] array picked(const array& a, interpret::shape s, const positions& at);
/// For every element of `to` the position of the element of `from` that broadcasts to it.
[[nodiscard]] positions broadcast_positions(std::span<const std::int64_t> from, std::span<const std::int64_t> to);
[[nodiscard]] std::optional<interpret::shape> broadcast_shape(std::span<const std::int64_t> a, std::span<const std::int64_t> b);
/// For every element of the array with its axes in this order, its position in the array as it was.
[[nodiscard]] positions permuted_positions(std::span<const std::int64_t> s, std::span<const std::size_t> order);
[[nodiscard]] array permuted(const array& a, std::span<const std::size_t> order);

// -- values

/// A node's value, or an argument's.
struct value {
  enum class kind : std::uint8_t { none, data, tensor, list };
  kind what = kind::none;
  std::shared_ptr<const array> data;
  std::optional<dtype> element;              ///< nothing: a symbol, a literal
  std::vector<symbolic::expression> dims;    ///< the declared dimensions; no_expression: no block
  node_id origin = device_ir::no_node;       ///< the node that gave it last
  std::size_t tensor = 0;                    ///< of a host tensor: index into document::tensors
  std::vector<value> items;

  [[nodiscard]] inline bool is_tile() const noexcept { return what == kind::data && !data->shape.empty(); }
};

[[nodiscard]] value value_of(array a);

struct tile {
  bool open = false;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::shared_ptr<const array> extents; ///< of a jagged block: each row's end
};

/// Where the elements of an access lie.
struct access {
  interpret::shape shape;
  std::vector<std::int64_t> offsets;
  std::vector<char> valid;
};

// -- the machine

class machine {
public:
  machine(const document& d, std::span<const std::span<std::byte>> tensors, std::span<const std::optional<number>> symbols,
          const options& how);
  void run();

private:
  const document& d_;
  std::span<const std::span<std::byte>> tensors_;
  const options& how_;
  std::vector<std::optional<number>> symbols_;          ///< by symbol: parameters, block sizes, places of open tiles
  std::vector<std::optional<number>> given_;            ///< as they were given
  std::vector<std::int64_t> block_of_expression_;       ///< by expression: index into document::blocks, or -1
  std::vector<std::vector<std::int64_t>> sizes_, strides_; ///< by host tensor
  std::vector<tile> tiles_;                             ///< by index into document::blocks
  std::vector<value> values_;                           ///< by node
  std::vector<std::size_t> graph_of_;                   ///< by node: index into document::graphs
  std::size_t root_ = 0;
  std::int64_t steps_ = 0;
  int helpers_ = 0; ///< graphs that combine elements, being run
  node_id current_ = device_ir::no_node;

  // control_flow.cpp
  [[nodiscard]] std::vector<value> run_graph(const device_ir::graph& g, std::span<const value> arguments);
  void execute(node_id n);
  [[nodiscard]] symbolic::symbol defined_symbol(const node& n, operation o) const;
  [[nodiscard]] value evaluate(const node& n);
  [[nodiscard]] value call(const node& n, operation o);
  void observe(node_id n, const value& v) const;
  [[nodiscard]] value for_loop(const node& n, operation o);
  [[nodiscard]] value while_loop(const node& n);
  [[nodiscard]] value branch(const node& n);
  [[nodiscard]] std::size_t count_of_outputs(const node& n) const;
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> carried(const node& n, std::span<const argument> arguments) const;
  [[nodiscard]] std::shared_ptr<const array> row_ends(const argument& end) const;
  [[nodiscard]] value symbol_math(operation o);

  // machine.cpp
  [[nodiscard]] inline const node& current() const { return d_.at(current_); }
  [[noreturn]] void fail(std::string_view message) const;
  [[noreturn]] void unsupported(std::string_view reason) const;
  [[nodiscard]] inline std::span<const argument> arguments() const { return d_.arguments_of(current()); }
  [[nodiscard]] const argument* argument_at(std::size_t i) const; ///< null where there is none, or `None`
  [[nodiscard]] const argument* keyword(std::string_view name) const;
  [[nodiscard]] std::span<const argument> list(const argument* a) const;
  [[nodiscard]] value read(const argument& a) const;
  [[nodiscard]] value operand(std::size_t i) const;   ///< a `None` repeats a neighbour
  [[nodiscard]] value required(std::size_t i) const;  ///< data, or an error
  [[nodiscard]] const array& tile_operand(std::size_t i) const;
  [[nodiscard]] number scalar(const value& v) const;
  [[nodiscard]] std::int64_t integer(const argument& a) const;
  [[nodiscard]] std::int64_t integer_or(const argument* a, std::int64_t otherwise) const;
  [[nodiscard]] bool truth_or(const argument* a, bool otherwise) const;
  [[nodiscard]] std::size_t axis(std::int64_t d, std::size_t rank) const;
  [[nodiscard]] value typed(array a) const;  ///< rounded to the current node's declared type, with its dimensions
  [[nodiscard]] value typed(array a, dtype element, std::vector<symbolic::expression> dims) const;
  [[nodiscard]] std::vector<symbolic::expression> declared_dims(const device_ir::type& t) const;
  [[nodiscard]] interpret::shape declared_shape() const;
  [[nodiscard]] const array& kept(const value& v) const; ///< data, or an error

  // blocks and tiles
  [[nodiscard]] std::int64_t block_index(std::int32_t id) const;
  [[nodiscard]] std::int64_t block_of(symbolic::expression e) const; ///< index into document::blocks, or -1
  [[nodiscard]] std::int64_t block_of(const argument& a) const;
  [[nodiscard]] std::int64_t block_size(std::size_t b) const;
  [[nodiscard]] number evaluate(symbolic::expression e) const;
  [[nodiscard]] std::int64_t evaluate_integer(symbolic::expression e) const;
  [[nodiscard]] std::int64_t lane_count(std::size_t b) const;
  [[nodiscard]] inline std::int64_t first_lane(std::size_t b) const { return tiles_[b].open ? tiles_[b].begin : 0; }
  [[nodiscard]] std::int64_t dimension(symbolic::expression e) const;
  void open(std::size_t b, std::int64_t begin, std::int64_t end, std::shared_ptr<const array> extents = {});
  void set_symbols();
  /// By element: whether it lies within the extents of the open tiles. Empty: all do.
  [[nodiscard]] std::vector<char> validity(std::span<const symbolic::expression> dims, std::span<const std::int64_t> s) const;

  // memory.cpp
  [[nodiscard]] access access_of(std::size_t tensor, std::span<const argument> indices, std::optional<std::size_t> rank) const;
  [[nodiscard]] access target_of(std::size_t tensor, const value& v) const;
  void restrict(access& a, const argument* mask) const;
  void check(const access& a, std::size_t tensor) const;
  [[nodiscard]] array gathered(const access& a, std::size_t tensor) const;
  void note_stored(const access& a, std::size_t tensor) const;
  [[nodiscard]] std::size_t tensor_operand() const;
  [[nodiscard]] value load();
  [[nodiscard]] value store();
  [[nodiscard]] value atomic(operation o);
  [[nodiscard]] value mask_to();
  [[nodiscard]] value load_packed(operation o);

  // views.cpp
  [[nodiscard]] value view(operation o);
  [[nodiscard]] value subscript() const;
  [[nodiscard]] value creation(operation o);
  [[nodiscard]] value tile_index() const;
  [[nodiscard]] value random(operation o);

  // reduction.cpp
  struct reduced_axes {
    std::vector<std::size_t> axes, kept;
    bool keep = false;
    interpret::shape result; ///< of a reduction
    std::vector<symbolic::expression> dims;
  };
  [[nodiscard]] reduced_axes axes_of(const value& x, const argument* dims, bool keep) const;
  [[nodiscard]] value reduction(operation o);
  [[nodiscard]] value scan(operation o);
  [[nodiscard]] value scan_by_graph();
  [[nodiscard]] value reduce_by_graph();
  [[nodiscard]] value sort(operation o);
  [[nodiscard]] value matmul(operation o);
  [[nodiscard]] array product(const array& a, const array& b) const;
  [[nodiscard]] array sum(const array& a, const array& b) const;
  [[nodiscard]] std::vector<value> combined(const device_ir::graph& g, std::span<const value> left, std::span<const value> right);

  // pointwise.cpp
  [[nodiscard]] value pointwise(operation o);
  /// f of the elements that broadcast together.
  template <class F> [[nodiscard]] inline array map(std::span<const array* const> operands, bool real, const F& f) const {
    interpret::shape s;
    for (const array* a : operands) {
      auto both = broadcast_shape(s, a->shape);
      if (!both) fail("the shapes of the operands do not broadcast");
      s = std::move(*both);
    }
    array r = make_array(s, real);
    std::vector<positions> at;
    for (const array* a : operands) at.push_back(broadcast_positions(a->shape, s));
    constexpr bool of_reals = std::is_invocable_v<const F&, std::span<const double>>;
    using element = std::conditional_t<of_reals, double, std::int64_t>;
    element x[4] = {};
    for (std::size_t i = 0; i < r.count(); ++i) {
      for (std::size_t k = 0; k < operands.size(); ++k) {
        if constexpr (of_reals) x[k] = operands[k]->real_at(at[k][i]);
        else x[k] = operands[k]->integer_at(at[k][i]);
      }
      const auto y = f(std::span<const element>(x, operands.size()));
      if (real) r.reals[i] = static_cast<double>(y);
      else r.integers[i] = static_cast<std::int64_t>(y);
    }
    return r;
  }
};

} // namespace muster::interpret
