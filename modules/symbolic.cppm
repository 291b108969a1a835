module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Integer and real expressions over symbols: the sizes, strides and loop bounds of a device IR document.
/// Expressions live in a `pool`, are immutable, and are hash-consed: two equal expressions of one pool have equal ids.
export module muster.symbolic;

import muster.error;

#pragma GCC visibility push(default)

export namespace muster::symbolic {

/// What an expression is. The functions are those that sympy prints.
// clang-format off
enum class kind : std::uint8_t {
  integer, real, boolean, symbol,
  negate, add, subtract, multiply, divide, floor_divide, modulo, power, // - + - * / // % **
  minimum, maximum,                                                    // Min Max (two or more operands)
  mod, python_mod,                                                     // Mod PythonMod: the sign of the divisor
  floor_div, float_true_div, to_float, ceil_div,                       // FloorDiv FloatTrueDiv ToFloat CeilDiv
  equal, not_equal, less, less_equal, greater, greater_equal,          // Eq Ne Lt Le Gt Ge
  logical_and, logical_or, logical_not, where,                         // And Or Not Where
};
// clang-format on

/// An expression of a pool: an index, meaningless without its pool.
enum class expression : std::uint32_t {};
/// A symbol of a pool.
enum class symbol : std::uint32_t {};

inline constexpr expression no_expression = static_cast<expression>(0xFFFFFFFFU);
inline constexpr symbol no_symbol = static_cast<symbol>(0xFFFFFFFFU);

/// An integer (64 bits) or a real number.
struct number {
  bool is_integer = true;
  std::int64_t integer = 0; ///< if `is_integer`
  double real = 0;          ///< if not
  [[nodiscard]] constexpr double as_real() const noexcept { return is_integer ? static_cast<double>(integer) : real; }
  friend constexpr bool operator==(const number&, const number&) noexcept = default;
};

/// Appends a real number as Python's repr writes it: the shortest digits that read back exactly, with a point or an
/// exponent (`0.5`, `1.0`, `1e-05`, `inf`, `-inf`, `nan`).
void print_real(double value, std::string& out);

/// A failure to parse: where in the text (byte offset from its start) and what was expected there.
struct parse_failure {
  std::size_t offset = 0;
  std::string message;
};

/// Owns expressions and symbols. Appending never invalidates an id. Moves leave ids valid for the new owner.
class pool {
public:
  /// Expressions nest at most this deep; a deeper text is a parse failure.
  static constexpr std::size_t maximum_depth = 200;
  /// A function of a text has at most this many operands.
  static constexpr std::size_t maximum_operands = 256;

  pool();
  ~pool();
  pool(pool&&) noexcept;
  pool& operator=(pool&&) noexcept;
  pool(const pool&);
  pool& operator=(const pool&);

  [[nodiscard]] expression integer(std::int64_t value);
  [[nodiscard]] expression real(double value);
  [[nodiscard]] expression boolean(bool value);
  /// The symbol of that name, made if it is new. O(1) on average.
  [[nodiscard]] symbol intern(std::string_view name);
  [[nodiscard]] expression reference(symbol s);
  /// An operation over operands of this pool; kept exactly as given, nothing is folded. Throws Error beyond maximum_depth.
  [[nodiscard]] expression make(kind k, std::span<const expression> operands);
  [[nodiscard]] expression make(kind k, expression a, expression b);
  [[nodiscard]] expression make(kind k, expression a);

  [[nodiscard]] kind kind_of(expression e) const noexcept;
  [[nodiscard]] std::size_t depth(expression e) const noexcept; ///< levels of nesting; 1 for a literal or symbol
  /// The operands; empty for literals and symbols. Valid until the pool grows.
  [[nodiscard]] std::span<const expression> operands(expression e) const noexcept;
  [[nodiscard]] std::int64_t integer_value(expression e) const noexcept; ///< of an `integer` or `boolean`
  [[nodiscard]] double real_value(expression e) const noexcept;          ///< of a `real`
  [[nodiscard]] symbol symbol_of(expression e) const noexcept;           ///< of a `symbol`
  [[nodiscard]] std::string_view name(symbol s) const noexcept;
  [[nodiscard]] std::optional<symbol> find_symbol(std::string_view name) const noexcept;
  [[nodiscard]] std::size_t symbol_count() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept; ///< number of distinct expressions

  /// Parses exactly `text`. Precedence and associativity are Python's. Linear in the text.
  /// On failure returns `no_expression` and fills `failure`. Integers must fit 64 bits.
  [[nodiscard]] expression parse(std::string_view text, parse_failure& failure);
  /// Parses the longest expression at the front of `text` and says how much of it was read (for use inside lists).
  [[nodiscard]] expression parse_prefix(std::string_view text, std::size_t& read, parse_failure& failure);

  /// Appends the expression as Python would write it, with the fewest parentheses; parse(print(e)) == e.
  void print(expression e, std::string& out) const;
  [[nodiscard]] std::string to_string(expression e) const;

  /// The value with symbols replaced by `values[symbol]` (a symbol beyond the span or with no value: no result).
  /// Arithmetic is Python's: // and % floor, / is real, Mod takes the divisor's sign. Overflow of 64 bits, division by
  /// zero and 0**-1 give no result. Booleans are the integers 0 and 1.
  [[nodiscard]] std::optional<number> evaluate(expression e, std::span<const std::optional<number>> values) const;
  /// The same without values. Two functions, since GCC can not read the interface of a default argument that needs `number` whole.
  [[nodiscard]] std::optional<number> evaluate(expression e) const;
  /// An equal expression with constants folded and neutral operands dropped (x+0, x*1, x//1, Min(x, x)). Idempotent.
  [[nodiscard]] expression simplify(expression e);
  /// Replaces symbols: `replacements[symbol]`, `no_expression` or beyond the span keeps the symbol. Not simplified.
  [[nodiscard]] expression substitute(expression e, std::span<const expression> replacements);
  /// Whether `e` is, for all integer values of its symbols, a multiple of `divisor` (> 0). May say no where it is.
  /// `known[symbol]` gives a known divisor of that symbol (0: none known).
  [[nodiscard]] bool divisible(expression e, std::int64_t divisor, std::span<const std::int64_t> known = {}) const;
  /// Appends the symbols in `e`, each once, in order of first use.
  void collect_symbols(expression e, std::vector<symbol>& out) const;
  /// Forgets everything but keeps the memory, for reuse.
  void clear() noexcept;

private:
  struct implementation;
  implementation* self_;
};

} // namespace muster::symbolic

#pragma GCC visibility pop
