module;
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module muster.symbolic;

namespace muster::symbolic {

namespace {

constexpr std::uint32_t index(expression e) { return static_cast<std::uint32_t>(e); }
constexpr std::uint32_t index(symbol s) { return static_cast<std::uint32_t>(s); }

struct function {
  std::string_view name;
  kind what;
  std::uint8_t fewest_operands;
  std::uint8_t most_operands; ///< 0: any number
};

constexpr std::array<function, 18> functions = {{
    {"Min", kind::minimum, 2, 0},
    {"Max", kind::maximum, 2, 0},
    {"Mod", kind::mod, 2, 2},
    {"PythonMod", kind::python_mod, 2, 2},
    {"FloorDiv", kind::floor_div, 2, 2},
    {"FloatTrueDiv", kind::float_true_div, 2, 2},
    {"ToFloat", kind::to_float, 1, 1},
    {"CeilDiv", kind::ceil_div, 2, 2},
    {"Eq", kind::equal, 2, 2},
    {"Ne", kind::not_equal, 2, 2},
    {"Lt", kind::less, 2, 2},
    {"Le", kind::less_equal, 2, 2},
    {"Gt", kind::greater, 2, 2},
    {"Ge", kind::greater_equal, 2, 2},
    {"And", kind::logical_and, 2, 0},
    {"Or", kind::logical_or, 2, 0},
    {"Not", kind::logical_not, 1, 1},
    {"Where", kind::where, 3, 3},
}};

/// How tightly an expression holds together, as in Python's grammar.
enum class level : std::uint8_t { sum, product, unary, power, atom };

struct infix {
  kind what;
  level holds;
  std::string_view spelling;
};

constexpr std::array<infix, 7> infixes = {{
    {kind::add, level::sum, " + "},
    {kind::subtract, level::sum, " - "},
    {kind::multiply, level::product, "*"},
    {kind::divide, level::product, "/"},
    {kind::floor_divide, level::product, "//"},
    {kind::modulo, level::product, " % "},
    {kind::power, level::power, "**"},
}};

const infix* find_infix(kind k) {
  for (const infix& i : infixes)
    if (i.what == k) return &i;
  return nullptr;
}

const function* find_function(kind k) {
  for (const function& f : functions)
    if (f.what == k) return &f;
  return nullptr;
}

const function* find_function(std::string_view name) {
  for (const function& f : functions)
    if (f.name == name) return &f;
  return nullptr;
}

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
constexpr bool is_name(char c) { return is_name_start(c) || is_digit(c); }

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a ^ b) * 0x9E3779B97F4A7C15U;
  return h ^ (h >> 29U);
}

std::uint32_t hash_of(std::string_view text) {
  std::uint64_t h = text.size();
  const char* p = text.data();
  std::size_t left = text.size();
  for (; left >= 8; left -= 8, p += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, 8);
    h = mix(h, word);
  }
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < left; ++i) word = word << 8U | static_cast<unsigned char>(p[i]);
  h = mix(h, word);
  return static_cast<std::uint32_t>(h ^ (h >> 32U));
}

/// Names live in chunks, so that a view of one stays valid while others are added.
class name_store {
public:
  std::string_view keep(std::string_view text) {
    if (text.size() > left_) grow(text.size());
    char* at = next_;
    if (!text.empty()) std::memcpy(at, text.data(), text.size());
    next_ += text.size();
    left_ -= text.size();
    return {at, text.size()};
  }
  void clear() noexcept {
    if (chunks_.empty()) return;
    chunks_.resize(1);
    next_ = chunks_.front().get();
    left_ = first_size_;
  }

private:
  void grow(std::size_t at_least) {
    const std::size_t size = std::max<std::size_t>(at_least, 1024);
    chunks_.push_back(std::make_unique<char[]>(size));
    if (chunks_.size() == 1) first_size_ = size;
    next_ = chunks_.back().get();
    left_ = size;
  }
  std::vector<std::unique_ptr<char[]>> chunks_;
  std::size_t first_size_ = 0;
  char* next_ = nullptr;
  std::size_t left_ = 0;
};

} // namespace

struct pool::implementation {
  struct entry {
    std::int64_t value; ///< integer, boolean; a real's bits; a symbol's number
    std::uint32_t first;
    std::uint32_t count;
    std::uint32_t hash;
    kind what;
    std::uint8_t depth;
  };
  struct symbol_entry {
    std::string_view name;
    std::uint32_t hash;
  };

  std::vector<entry> entries;
  std::vector<expression> operands;
  std::vector<std::uint32_t> table; ///< open addressing; an expression plus 1, 0 is free
  std::vector<symbol_entry> symbols;
  std::vector<std::uint32_t> symbol_table;
  name_store names;
  std::vector<expression> scratch; ///< operands being collected

  implementation() : table(64), symbol_table(32) {}

  const entry& at(expression e) const { return entries[index(e)]; }
  std::span<const expression> operands_of(const entry& e) const { return std::span(operands).subspan(e.first, e.count); }

  static std::uint32_t hash_of(kind k, std::int64_t value, std::span<const expression> over) {
    std::uint64_t h = mix(static_cast<std::uint64_t>(k) + 1, static_cast<std::uint64_t>(value));
    for (const expression e : over) h = mix(h, index(e) + 1U);
    return static_cast<std::uint32_t>(h ^ (h >> 32U));
  }

  bool same(const entry& e, kind k, std::int64_t value, std::span<const expression> over) const {
    return e.what == k && e.value == value && std::ranges::equal(operands_of(e), over);
  }

  expression find_or_add(kind k, std::int64_t value, std::span<const expression> over, std::uint8_t depth) {
    const std::uint32_t hash = hash_of(k, value, over);
    const std::size_t mask = table.size() - 1;
    std::size_t slot = hash & mask;
    for (; table[slot] != 0; slot = (slot + 1) & mask) {
      const entry& e = entries[table[slot] - 1];
      if (e.hash == hash && same(e, k, value, over)) return static_cast<expression>(table[slot] - 1);
    }
    const auto id = static_cast<std::uint32_t>(entries.size());
    const auto first = static_cast<std::uint32_t>(operands.size());
    append_operands(over);
    entries.push_back({value, first, static_cast<std::uint32_t>(over.size()), hash, k, depth});
    table[slot] = id + 1;
    if (entries.size() * 2 > table.size()) grow_table();
    return static_cast<expression>(id);
  }

  /// `over` may be a view into `operands` itself, which the append may move.
  void append_operands(std::span<const expression> over) {
    const std::size_t first = operands.size();
    if (!over.empty() && over.data() >= operands.data() && over.data() < operands.data() + first) {
      const auto from = static_cast<std::size_t>(over.data() - operands.data());
      operands.resize(first + over.size());
      std::copy_n(operands.begin() + static_cast<std::ptrdiff_t>(from), over.size(), operands.begin() + static_cast<std::ptrdiff_t>(first));
      return;
    }
    operands.insert(operands.end(), over.begin(), over.end());
  }

  void grow_table() {
    table.assign(table.size() * 2, 0);
    const std::size_t mask = table.size() - 1;
    for (std::uint32_t i = 0; i < entries.size(); ++i) {
      std::size_t slot = entries[i].hash & mask;
      while (table[slot] != 0) slot = (slot + 1) & mask;
      table[slot] = i + 1;
    }
  }

  std::size_t symbol_slot(std::string_view name, std::uint32_t hash) const {
    const std::size_t mask = symbol_table.size() - 1;
    std::size_t slot = hash & mask;
    for (; symbol_table[slot] != 0; slot = (slot + 1) & mask) {
      const symbol_entry& s = symbols[symbol_table[slot] - 1];
      if (s.hash == hash && s.name == name) break;
    }
    return slot;
  }

  symbol intern(std::string_view name) {
    const std::uint32_t hash = symbolic::hash_of(name);
    const std::size_t slot = symbol_slot(name, hash);
    if (symbol_table[slot] != 0) return static_cast<symbol>(symbol_table[slot] - 1);
    const auto id = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({names.keep(name), hash});
    symbol_table[slot] = id + 1;
    if (symbols.size() * 2 > symbol_table.size()) grow_symbol_table();
    return static_cast<symbol>(id);
  }

  void grow_symbol_table() {
    symbol_table.assign(symbol_table.size() * 2, 0);
    const std::size_t mask = symbol_table.size() - 1;
    for (std::uint32_t i = 0; i < symbols.size(); ++i) {
      std::size_t slot = symbols[i].hash & mask;
      while (symbol_table[slot] != 0) slot = (slot + 1) & mask;
      symbol_table[slot] = i + 1;
    }
  }

  std::size_t depth_over(std::span<const expression> over) const {
    std::size_t deepest = 0;
    for (const expression e : over) deepest = std::max<std::size_t>(deepest, at(e).depth);
    return deepest + 1;
  }
};

pool::pool() : self_(new implementation) {}
pool::~pool() { delete self_; }
pool::pool(pool&& other) noexcept : self_(std::exchange(other.self_, nullptr)) {}
pool& pool::operator=(pool&& other) noexcept {
  std::swap(self_, other.self_);
  return *this;
}
pool::pool(const pool& other) : pool() { *this = other; }
pool& pool::operator=(const pool& other) {
  if (this == &other) return *this;
  auto copy = std::make_unique<implementation>();
  copy->entries = other.self_->entries;
  copy->operands = other.self_->operands;
  copy->table = other.self_->table;
  copy->symbol_table = other.self_->symbol_table;
  for (const implementation::symbol_entry& s : other.self_->symbols) copy->symbols.push_back({copy->names.keep(s.name), s.hash});
  delete std::exchange(self_, copy.release());
  return *this;
}

expression pool::integer(std::int64_t value) { return self_->find_or_add(kind::integer, value, {}, 1); }
expression pool::real(double value) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN(); // one NaN, so that it equals itself
  return self_->find_or_add(kind::real, std::bit_cast<std::int64_t>(value), {}, 1);
}
expression pool::boolean(bool value) { return self_->find_or_add(kind::boolean, value ? 1 : 0, {}, 1); }
symbol pool::intern(std::string_view name) { return self_->intern(name); }
expression pool::reference(symbol s) { return self_->find_or_add(kind::symbol, index(s), {}, 1); }

expression pool::make(kind k, std::span<const expression> over) {
  const std::size_t depth = self_->depth_over(over);
  if (depth > maximum_depth) throw Error("An expression nests deeper than " + std::to_string(maximum_depth) + " levels");
  return self_->find_or_add(k, 0, over, static_cast<std::uint8_t>(depth));
}
expression pool::make(kind k, expression a, expression b) { return make(k, std::array{a, b}); }
expression pool::make(kind k, expression a) { return make(k, std::array{a}); }

kind pool::kind_of(expression e) const noexcept { return self_->at(e).what; }
std::span<const expression> pool::operands(expression e) const noexcept { return self_->operands_of(self_->at(e)); }
std::int64_t pool::integer_value(expression e) const noexcept { return self_->at(e).value; }
double pool::real_value(expression e) const noexcept { return std::bit_cast<double>(self_->at(e).value); }
symbol pool::symbol_of(expression e) const noexcept { return static_cast<symbol>(self_->at(e).value); }
std::string_view pool::name(symbol s) const noexcept { return self_->symbols[index(s)].name; }
std::optional<symbol> pool::find_symbol(std::string_view name) const noexcept {
  const std::size_t slot = self_->symbol_slot(name, hash_of(name));
  if (self_->symbol_table[slot] == 0) return std::nullopt;
  return static_cast<symbol>(self_->symbol_table[slot] - 1);
}
std::size_t pool::symbol_count() const noexcept { return self_->symbols.size(); }
std::size_t pool::size() const noexcept { return self_->entries.size(); }

void pool::clear() noexcept {
  // A table that one huge document grew would make every later clear slow.
  if (self_->entries.size() * 16 < self_->table.size() && self_->table.size() > 1024) self_->table.resize(1024);
  std::ranges::fill(self_->table, 0U);
  if (self_->symbols.size() * 16 < self_->symbol_table.size() && self_->symbol_table.size() > 1024) self_->symbol_table.resize(1024);
  std::ranges::fill(self_->symbol_table, 0U);
  self_->entries.clear();
  self_->operands.clear();
  self_->symbols.clear();
  self_->names.clear();
  self_->scratch.clear();
}

// ---- Parsing -----------------------------------------------------------------------------------------------------------

namespace {

/// A recursive descent parser. Every method returns `no_expression` once `failure.message` is set.
class reader {
public:
  reader(pool& into, std::vector<expression>& scratch, std::string_view text, parse_failure& failure)
      : pool_(into), scratch_(scratch), text_(text), failure_(failure) {
    failure_.message.clear();
  }

  expression sum() {
    expression left = product();
    while (left != no_expression) {
      skip_blanks();
      const char c = peek();
      if (c != '+' && c != '-') break;
      const std::size_t operator_at = at_++;
      left = operation(c == '+' ? kind::add : kind::subtract, left, product(), operator_at);
    }
    return left;
  }

  [[nodiscard]] std::size_t at() const { return at_; }
  /// Where the last token ended: blanks behind an expression are not part of it.
  [[nodiscard]] std::size_t end() const { return end_; }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  expression fail(std::size_t offset, std::string message) {
    if (failure_.message.empty()) failure_ = {offset, std::move(message)};
    return no_expression;
  }

private:
  [[nodiscard]] char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  expression product() {
    expression left = unary();
    while (left != no_expression) {
      skip_blanks();
      const std::size_t operator_at = at_;
      const char c = peek();
      kind k = kind::multiply;
      if (c == '*' && peek(1) != '*') k = kind::multiply;
      else if (c == '/' && peek(1) == '/') k = kind::floor_divide;
      else if (c == '/') k = kind::divide;
      else if (c == '%') k = kind::modulo;
      else break;
      at_ += k == kind::floor_divide ? 2 : 1;
      left = operation(k, left, unary(), operator_at);
    }
    return left;
  }

  expression unary() {
    skip_blanks();
    if (peek() != '-') return power(atom(false));
    const std::size_t minus_at = at_++;
    if (++nesting_ > pool::maximum_depth) return too_deep(minus_at);
    const expression negated = negation(minus_at);
    --nesting_;
    return negated;
  }

  /// What follows a minus. A literal takes the sign (so that the least integer can be written), unless `**` binds it first.
  expression negation(std::size_t minus_at) {
    skip_blanks();
    if (!at_number()) return operation(kind::negate, unary(), minus_at);
    const std::size_t literal_at = at_;
    const expression literal = atom(true);
    if (literal == no_expression) return literal;
    skip_blanks();
    if (peek() != '*' || peek(1) != '*') return literal;
    at_ = literal_at;
    return operation(kind::negate, power(atom(false)), minus_at);
  }

  expression power(expression base) {
    if (base == no_expression) return base;
    skip_blanks();
    if (peek() != '*' || peek(1) != '*') return base;
    const std::size_t operator_at = at_;
    at_ += 2;
    if (++nesting_ > pool::maximum_depth) return too_deep(operator_at);
    const expression raised = operation(kind::power, base, unary(), operator_at);
    --nesting_;
    return raised;
  }

  [[nodiscard]] bool at_number() const {
    if (is_digit(peek()) || (peek() == '.' && is_digit(peek(1)))) return true;
    const std::string_view word = text_.substr(at_, 4);
    return (word.starts_with("inf") || word.starts_with("nan")) && !(word.size() == 4 && is_name(word[3]));
  }

  expression atom(bool negative) {
    skip_blanks();
    if (at_number()) return number_literal(negative);
    if (is_name_start(peek())) return name();
    if (peek() != '(') return fail(at_, at_ < text_.size() ? "expected an expression" : "expected an expression, found the end");
    const std::size_t open_at = at_++;
    if (++nesting_ > pool::maximum_depth) return too_deep(open_at);
    const expression inner = sum();
    --nesting_;
    return inner == no_expression || !close() ? no_expression : inner;
  }

  bool close() {
    skip_blanks();
    if (peek() != ')') {
      fail(at_, "expected ')' or an operator");
      return false;
    }
    end_ = ++at_;
    return true;
  }

  expression number_literal(bool negative) {
    if (!is_digit(peek()) && peek() != '.') {
      const double value = peek() == 'i' ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
      end_ = at_ += 3;
      return pool_.real(negative ? -value : value);
    }
    const std::size_t begin = at_;
    while (is_digit(peek())) ++at_;
    const bool whole = peek() != '.' && peek() != 'e' && peek() != 'E';
    if (!whole) skip_fraction();
    if (is_name(peek()) || peek() == '.') return fail(at_, "malformed number");
    end_ = at_;
    const std::string_view digits = text_.substr(begin, at_ - begin);
    return whole ? integer_literal(digits, negative, begin) : real_literal(digits, negative, begin);
  }

  void skip_fraction() {
    if (peek() == '.') ++at_;
    while (is_digit(peek())) ++at_;
    if (peek() != 'e' && peek() != 'E') return;
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    while (is_digit(peek())) ++at_;
  }

  expression integer_literal(std::string_view digits, bool negative, std::size_t begin) {
    if (digits.size() > 1 && digits.front() == '0') return fail(begin, "an integer does not start with 0");
    std::uint64_t magnitude = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude);
    const std::uint64_t most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) + (negative ? 1U : 0U);
    if (error != std::errc() || magnitude > most) return fail(begin, "an integer must fit 64 bits");
    return pool_.integer(static_cast<std::int64_t>(negative ? 0U - magnitude : magnitude));
  }

  expression real_literal(std::string_view digits, bool negative, std::size_t begin) {
    double value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc::result_out_of_range) return fail(begin, "a number beyond the range of f64");
    if (error != std::errc() || stop != digits.data() + digits.size()) return fail(begin, "malformed number");
    return pool_.real(negative ? -value : value);
  }

  expression name() {
    const std::size_t begin = at_;
    while (is_name(peek())) ++at_;
    end_ = at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "True" || word == "False") return pool_.boolean(word == "True");
    if (peek() == '(') return call(word, begin);
    return pool_.reference(pool_.intern(word));
  }

  expression call(std::string_view word, std::size_t begin) {
    const function* f = find_function(word);
    if (f == nullptr) return unknown_function(word, begin);
    ++at_;
    if (++nesting_ > pool::maximum_depth) return too_deep(begin);
    const std::size_t base = scratch_.size();
    const bool complete = call_operands(base) && has_fitting_count(*f, scratch_.size() - base, begin);
    --nesting_;
    const std::vector<expression> operands(scratch_.begin() + static_cast<std::ptrdiff_t>(base), scratch_.end());
    scratch_.resize(base);
    if (!complete) return no_expression;
    for (const expression e : operands)
      if (depth_of(e) >= pool::maximum_depth) return too_deep(begin);
    return pool_.make(f->what, operands);
  }

  bool call_operands(std::size_t base) {
    while (true) {
      if (scratch_.size() - base >= pool::maximum_operands) {
        fail(at_, "more than " + std::to_string(pool::maximum_operands) + " operands");
        return false;
      }
      const expression operand = sum();
      if (operand == no_expression) return false;
      scratch_.push_back(operand);
      skip_blanks();
      if (peek() != ',') return close();
      ++at_;
    }
  }

  bool has_fitting_count(const function& f, std::size_t count, std::size_t begin) {
    if (count >= f.fewest_operands && (f.most_operands == 0 || count <= f.most_operands)) return true;
    fail(begin, std::string(f.name) + " takes " + (f.most_operands == 0 ? "at least " : "") + std::to_string(f.fewest_operands) +
                    (f.fewest_operands == 1 ? " operand" : " operands") + ", not " + std::to_string(count));
    return false;
  }

  expression unknown_function(std::string_view word, std::size_t begin) {
    std::vector<std::string_view> names;
    for (const function& f : functions) names.push_back(f.name);
    const std::string_view near = nearest_name(word, names);
    return fail(begin,
                "unknown function '" + std::string(word) + "'" + (near.empty() ? "" : "; did you mean '" + std::string(near) + "'?"));
  }

  expression operation(kind k, expression a, expression b, std::size_t operator_at) {
    if (a == no_expression || b == no_expression) return no_expression;
    if (std::max(depth_of(a), depth_of(b)) >= pool::maximum_depth) return too_deep(operator_at);
    return pool_.make(k, a, b);
  }
  expression operation(kind k, expression a, std::size_t operator_at) {
    if (a == no_expression) return no_expression;
    if (depth_of(a) >= pool::maximum_depth) return too_deep(operator_at);
    return pool_.make(k, a);
  }
  [[nodiscard]] std::size_t depth_of(expression e) const { return pool_.depth(e); }

  expression too_deep(std::size_t offset) {
    return fail(offset, "the expression nests deeper than " + std::to_string(pool::maximum_depth) + " levels");
  }

  pool& pool_;
  std::vector<expression>& scratch_;
  std::string_view text_;
  parse_failure& failure_;
  std::size_t at_ = 0;
  std::size_t end_ = 0;
  std::size_t nesting_ = 0;
};

} // namespace

std::size_t pool::depth(expression e) const noexcept { return self_->at(e).depth; }

expression pool::parse_prefix(std::string_view text, std::size_t& read, parse_failure& failure) {
  self_->scratch.clear();
  reader r(*this, self_->scratch, text, failure);
  const expression e = r.sum();
  read = r.end();
  return e;
}

expression pool::parse(std::string_view text, parse_failure& failure) {
  self_->scratch.clear();
  reader r(*this, self_->scratch, text, failure);
  const expression e = r.sum();
  if (e == no_expression) return e;
  r.skip_blanks();
  return r.at() == text.size() ? e : r.fail(r.at(), "expected an operator or the end of the expression");
}

// ---- Printing ----------------------------------------------------------------------------------------------------------

void print_real(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
    return;
  }
  char buffer[40];
  const double magnitude = std::fabs(value);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof buffer, value, fixed ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
  out += digits;
  if (fixed && digits.find('.') == std::string_view::npos) out += ".0";
}

namespace {

class printer {
public:
  printer(const pool& from, std::string& out) : pool_(from), out_(out) {}

  void print(expression e) {
    switch (pool_.kind_of(e)) {
    case kind::integer: out_ += std::to_string(pool_.integer_value(e)); return;
    case kind::real: print_real(pool_.real_value(e), out_); return;
    case kind::boolean: out_ += pool_.integer_value(e) != 0 ? "True" : "False"; return;
    case kind::symbol: out_ += pool_.name(pool_.symbol_of(e)); return;
    case kind::negate: print_negation(pool_.operands(e)[0]); return;
    default: break;
    }
    if (const infix* i = find_infix(pool_.kind_of(e))) print_infix(*i, pool_.operands(e));
    else print_call(find_function(pool_.kind_of(e))->name, pool_.operands(e));
  }

private:
  [[nodiscard]] level holds(expression e) const {
    const kind k = pool_.kind_of(e);
    if (k == kind::negate || is_negative_literal(e)) return level::unary;
    const infix* i = find_infix(k);
    return i == nullptr ? level::atom : i->holds;
  }

  [[nodiscard]] bool is_literal(expression e) const { return pool_.kind_of(e) == kind::integer || pool_.kind_of(e) == kind::real; }

  [[nodiscard]] bool is_negative_literal(expression e) const {
    if (pool_.kind_of(e) == kind::integer) return pool_.integer_value(e) < 0;
    return pool_.kind_of(e) == kind::real && !std::isnan(pool_.real_value(e)) && std::signbit(pool_.real_value(e));
  }

  void print_at(expression e, level least) {
    const bool parenthesized = holds(e) < least;
    if (parenthesized) out_ += '(';
    print(e);
    if (parenthesized) out_ += ')';
  }

  void print_negation(expression e) {
    out_ += '-';
    // A bare literal behind a minus would be read as a negative literal.
    if (is_literal(e) && !is_negative_literal(e)) {
      out_ += '(';
      print(e);
      out_ += ')';
      return;
    }
    print_at(e, level::unary);
  }

  void print_infix(const infix& i, std::span<const expression> operands) {
    const bool is_power = i.what == kind::power;
    const auto tighter = static_cast<level>(static_cast<int>(i.holds) + 1);
    print_at(operands[0], is_power ? level::atom : i.holds);
    out_ += i.spelling;
    print_at(operands[1], is_power ? level::unary : tighter);
  }

  void print_call(std::string_view name, std::span<const expression> operands) {
    out_ += name;
    out_ += '(';
    for (std::size_t n = 0; n < operands.size(); ++n) {
      if (n != 0) out_ += ", ";
      print(operands[n]);
    }
    out_ += ')';
  }

  const pool& pool_;
  std::string& out_;
};

} // namespace

void pool::print(expression e, std::string& out) const { printer(*this, out).print(e); }
std::string pool::to_string(expression e) const {
  std::string out;
  print(e, out);
  return out;
}

// ---- Evaluation --------------------------------------------------------------------------------------------------------

namespace {

using result = std::optional<number>;

number of(std::int64_t value) { return {true, value, 0}; }
number of(double value) { return {false, 0, value}; }
number truth(bool value) { return of(static_cast<std::int64_t>(value)); }
bool is_true(const number& n) { return n.is_integer ? n.integer != 0 : n.real != 0; }
bool is_zero(const number& n) { return !is_true(n); }

/// Exact between a 64-bit integer and a double: long double holds both.
long double exact(const number& n) { return n.is_integer ? static_cast<long double>(n.integer) : static_cast<long double>(n.real); }

result floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min())) return std::nullopt;
  const std::int64_t quotient = a / b;
  return of(quotient - static_cast<std::int64_t>(a % b != 0 && (a < 0) != (b < 0)));
}

result modulo(std::int64_t a, std::int64_t b) {
  if (b == 0) return std::nullopt;
  if (b == -1) return of(std::int64_t{0});
  const std::int64_t remainder = a % b;
  return of(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);
}

result ceil_divide(std::int64_t a, std::int64_t b) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min())) return std::nullopt;
  const std::int64_t quotient = a / b;
  return of(quotient + static_cast<std::int64_t>(a % b != 0 && (a < 0) == (b < 0)));
}

double modulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

/// As CPython: derived from the remainder, so that a == (a // b) * b + a % b as nearly as doubles allow.
double floor_divide(double a, double b) {
  const double remainder = modulo(a, b);
  const double quotient = (a - remainder) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

result raise(std::int64_t base, std::int64_t exponent) {
  std::int64_t product = 1;
  while (exponent != 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(product, base, &product)) return std::nullopt;
    exponent >>= 1;
    if (exponent != 0 && __builtin_mul_overflow(base, base, &base)) return std::nullopt;
  }
  return of(product);
}

result power(const number& a, const number& b) {
  if (a.is_integer && b.is_integer && b.integer >= 0) return raise(a.integer, b.integer);
  if (is_zero(a) && b.as_real() < 0) return std::nullopt;
  const double value = std::pow(a.as_real(), b.as_real());
  const bool was_finite = std::isfinite(a.as_real()) && std::isfinite(b.as_real());
  if (was_finite && !std::isfinite(value)) return std::nullopt; // overflow, or a complex number
  return of(value);
}

result arithmetic(kind k, std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  switch (k) {
  case kind::add: return __builtin_add_overflow(a, b, &value) ? result() : of(value);
  case kind::subtract: return __builtin_sub_overflow(a, b, &value) ? result() : of(value);
  case kind::multiply: return __builtin_mul_overflow(a, b, &value) ? result() : of(value);
  case kind::floor_divide:
  case kind::floor_div: return floor_divide(a, b);
  case kind::ceil_div: return ceil_divide(a, b);
  default: return modulo(a, b);
  }
}

result arithmetic(kind k, double a, double b) {
  switch (k) {
  case kind::add: return of(a + b);
  case kind::subtract: return of(a - b);
  case kind::multiply: return of(a * b);
  default: break;
  }
  if (b == 0) return std::nullopt;
  switch (k) {
  case kind::floor_divide:
  case kind::floor_div: return of(floor_divide(a, b));
  case kind::ceil_div: return of(-floor_divide(-a, b));
  default: return of(modulo(a, b));
  }
}

result compare(kind k, const number& a, const number& b) {
  const long double x = exact(a);
  const long double y = exact(b);
  switch (k) {
  case kind::equal: return truth(x == y);
  case kind::not_equal: return truth(x != y);
  case kind::less: return truth(x < y);
  case kind::less_equal: return truth(x <= y);
  case kind::greater: return truth(x > y);
  default: return truth(x >= y);
  }
}

result binary(kind k, const number& a, const number& b) {
  switch (k) {
  case kind::divide:
  case kind::float_true_div: return is_zero(b) ? result() : of(a.as_real() / b.as_real());
  case kind::power: return power(a, b);
  case kind::minimum: return exact(b) < exact(a) ? b : a;
  case kind::maximum: return exact(b) > exact(a) ? b : a;
  case kind::logical_and: return truth(is_true(a) && is_true(b));
  case kind::logical_or: return truth(is_true(a) || is_true(b));
  case kind::equal:
  case kind::not_equal:
  case kind::less:
  case kind::less_equal:
  case kind::greater:
  case kind::greater_equal: return compare(k, a, b);
  default: return a.is_integer && b.is_integer ? arithmetic(k, a.integer, b.integer) : arithmetic(k, a.as_real(), b.as_real());
  }
}

result negated(const number& a) {
  if (!a.is_integer) return of(-a.real);
  return arithmetic(kind::subtract, 0, a.integer);
}

class evaluator {
public:
  evaluator(const pool& from, std::span<const result> values) : pool_(from), values_(values) {}

  [[nodiscard]] result evaluate(expression e) const {
    const std::span<const expression> operands = pool_.operands(e);
    switch (const kind k = pool_.kind_of(e)) {
    case kind::integer:
    case kind::boolean: return of(pool_.integer_value(e));
    case kind::real: return of(pool_.real_value(e));
    case kind::symbol: return value_of(pool_.symbol_of(e));
    case kind::where: return chosen(operands);
    case kind::negate:
    case kind::to_float:
    case kind::logical_not: return unary(k, evaluate(operands[0]));
    default: return folded(k, operands);
    }
  }

private:
  [[nodiscard]] result value_of(symbol s) const { return index(s) < values_.size() ? values_[index(s)] : std::nullopt; }

  [[nodiscard]] result chosen(std::span<const expression> operands) const {
    const result condition = evaluate(operands[0]);
    return condition ? evaluate(operands[is_true(*condition) ? 1 : 2]) : std::nullopt;
  }

  static result unary(kind k, const result& operand) {
    if (!operand) return std::nullopt;
    if (k == kind::negate) return negated(*operand);
    return k == kind::to_float ? of(operand->as_real()) : truth(!is_true(*operand));
  }

  [[nodiscard]] result folded(kind k, std::span<const expression> operands) const {
    result value = evaluate(operands[0]);
    for (const expression e : operands.subspan(1)) {
      if (!value) return value;
      const result next = evaluate(e);
      value = next ? binary(k, *value, *next) : std::nullopt;
    }
    return value;
  }

  const pool& pool_;
  std::span<const result> values_;
};

} // namespace

std::optional<number> pool::evaluate(expression e) const { return evaluate(e, {}); }

std::optional<number> pool::evaluate(expression e, std::span<const std::optional<number>> values) const {
  return evaluator(*this, values).evaluate(e);
}

// ---- Rewriting ---------------------------------------------------------------------------------------------------------

namespace {

bool is_commutative(kind k) { return k == kind::add || k == kind::multiply; }
bool is_boolean(kind k) { return k == kind::boolean || (k >= kind::equal && k <= kind::logical_not); }

class simplifier {
public:
  explicit simplifier(pool& in) : pool_(in) {}

  expression simplify(expression e) {
    const std::span<const expression> given = pool_.operands(e);
    if (given.empty()) return e;
    std::vector<expression> operands(given.begin(), given.end());
    for (expression& operand : operands) operand = simplify(operand);
    return rewrite(pool_.kind_of(e), std::move(operands));
  }

private:
  using operand_list = std::vector<expression>;

  [[nodiscard]] bool is_literal(expression e) const { return pool_.kind_of(e) <= kind::boolean; }
  [[nodiscard]] std::optional<std::int64_t> integer(expression e) const {
    return pool_.kind_of(e) == kind::integer ? std::optional(pool_.integer_value(e)) : std::nullopt;
  }
  [[nodiscard]] bool is(expression e, std::int64_t value) const { return integer(e) == value; }

  /// Whether the value is an integer where all symbols are.
  [[nodiscard]] bool is_integral(expression e) const {
    const kind k = pool_.kind_of(e);
    if (k == kind::real || k == kind::divide || k == kind::float_true_div || k == kind::to_float) return false;
    if (k == kind::power && integer(pool_.operands(e)[1]).value_or(-1) < 0) return false;
    return std::ranges::all_of(pool_.operands(e), [this](expression operand) { return is_integral(operand); });
  }

  /// An operation over simplified operands, simplified. Every rewriting goes to fewer operations, so this ends.
  expression rewrite(kind k, operand_list operands) {
    if (const expression literal = folded(k, operands); literal != no_expression) return literal;
    switch (k) {
    case kind::minimum:
    case kind::maximum: return extremum(k, std::move(operands));
    case kind::logical_and:
    case kind::logical_or: return connective(k, std::move(operands));
    case kind::negate: return negation(operands[0]);
    case kind::where: return chosen(operands);
    default: break;
    }
    if (operands.size() != 2) return pool_.make(k, operands);
    const expression neutral = without_neutral(k, operands[0], operands[1]);
    return neutral != no_expression ? neutral : reassociated(k, operands[0], operands[1]);
  }

  expression folded(kind k, const operand_list& operands) {
    if (!std::ranges::all_of(operands, [this](expression e) { return is_literal(e); })) return no_expression;
    const std::optional<number> value = pool_.evaluate(pool_.make(k, operands));
    if (!value) return no_expression;
    if (is_boolean(k)) return pool_.boolean(value->integer != 0);
    return value->is_integer ? pool_.integer(value->integer) : pool_.real(value->real);
  }

  expression without_neutral(kind k, expression a, expression b) const {
    switch (k) {
    case kind::add:
      if (is(a, 0)) return b;
      return is(b, 0) ? a : no_expression;
    case kind::subtract: return is(b, 0) ? a : no_expression;
    case kind::multiply:
      if (is(a, 1)) return b;
      return is(b, 1) ? a : no_expression;
    case kind::power: return is(b, 1) ? a : no_expression;
    case kind::floor_divide:
    case kind::floor_div:
    case kind::ceil_div: return is(b, 1) && is_integral(a) ? a : no_expression;
    default: return no_expression;
    }
  }

  /// (x + 1) + 2 is x + 3, and 2*(3*x) is 6*x, over integers.
  expression reassociated(kind k, expression a, expression b) {
    expression constant = b;
    expression rest = a;
    kind outer = k;
    if (is_commutative(k) && integer(a)) std::swap(constant, rest);
    if (k == kind::subtract) outer = kind::add;
    if (!is_commutative(outer) || !integer(constant) || !is_integral(rest)) return pool_.make(k, a, b);
    if (k == kind::subtract && *integer(constant) == std::numeric_limits<std::int64_t>::min()) return pool_.make(k, a, b);
    const std::int64_t value = k == kind::subtract ? -*integer(constant) : *integer(constant);
    const auto inner = constant_part(outer, rest);
    if (!inner) return pool_.make(k, a, b);
    const auto both = binary(outer, of(value), of(inner->first));
    if (!both) return pool_.make(k, a, b);
    return joined(outer, inner->second, both->integer);
  }

  /// e as (constant, rest) of a sum or product; no constant, no result.
  [[nodiscard]] std::optional<std::pair<std::int64_t, expression>> constant_part(kind outer, expression e) const {
    const kind k = pool_.kind_of(e);
    const bool negative = outer == kind::add && k == kind::subtract;
    if (k != outer && !negative) return std::nullopt;
    const std::span<const expression> operands = pool_.operands(e);
    if (const auto right = integer(operands[1])) {
      if (negative && *right == std::numeric_limits<std::int64_t>::min()) return std::nullopt;
      return std::pair(negative ? -*right : *right, operands[0]);
    }
    if (negative) return std::nullopt;
    if (const auto left = integer(operands[0])) return std::pair(*left, operands[1]);
    return std::nullopt;
  }

  expression joined(kind outer, expression rest, std::int64_t constant) {
    if (outer == kind::multiply) return rewrite(kind::multiply, {pool_.integer(constant), rest});
    if (constant < 0 && constant != std::numeric_limits<std::int64_t>::min())
      return rewrite(kind::subtract, {rest, pool_.integer(-constant)});
    return rewrite(kind::add, {rest, pool_.integer(constant)});
  }

  expression negation(expression e) { return pool_.kind_of(e) == kind::negate ? pool_.operands(e)[0] : pool_.make(kind::negate, e); }

  expression chosen(const operand_list& operands) {
    if (operands[1] == operands[2]) return operands[1];
    if (!is_literal(operands[0])) return pool_.make(kind::where, operands);
    const auto condition = pool_.evaluate(operands[0]);
    return operands[is_true(*condition) ? 1 : 2];
  }

  /// Each operand once; the integer constants are one.
  expression extremum(kind k, operand_list operands) {
    operand_list kept;
    std::optional<std::size_t> constant;
    for (const expression e : operands) {
      if (std::ranges::find(kept, e) != kept.end()) continue;
      if (integer(e) && constant) {
        kept[*constant] = pool_.integer(binary(k, of(*integer(kept[*constant])), of(*integer(e)))->integer);
        continue;
      }
      if (integer(e)) constant = kept.size();
      kept.push_back(e);
    }
    return kept.size() == 1 ? kept[0] : pool_.make(k, kept);
  }

  expression connective(kind k, operand_list operands) {
    const bool neutral = k == kind::logical_and;
    operand_list kept;
    for (const expression e : operands) {
      if (is_literal(e)) {
        if (is_true(*pool_.evaluate(e)) != neutral) return pool_.boolean(!neutral);
      } else if (std::ranges::find(kept, e) == kept.end()) {
        kept.push_back(e);
      }
    }
    if (kept.size() == 1 && is_boolean(pool_.kind_of(kept[0]))) return kept[0];
    return kept.size() < 2 ? pool_.make(k, operands) : pool_.make(k, kept);
  }

  pool& pool_;
};

} // namespace

expression pool::simplify(expression e) { return simplifier(*this).simplify(e); }

expression pool::substitute(expression e, std::span<const expression> replacements) {
  if (kind_of(e) == kind::symbol) {
    const std::uint32_t s = index(symbol_of(e));
    return s < replacements.size() && replacements[s] != no_expression ? replacements[s] : e;
  }
  const std::span<const expression> given = operands(e);
  if (given.empty()) return e;
  std::vector<expression> replaced(given.begin(), given.end());
  for (expression& operand : replaced) operand = substitute(operand, replacements);
  return make(kind_of(e), replaced);
}

namespace {

/// gcd(e, modulus) as far as it is known, for every value of the symbols: a divisor of `modulus`.
class divisor {
public:
  divisor(const pool& from, std::span<const std::int64_t> known) : pool_(from), known_(known) {}

  [[nodiscard]] std::uint64_t of(expression e, std::uint64_t modulus) const {
    if (modulus == 1) return 1;
    const std::span<const expression> operands = pool_.operands(e);
    switch (pool_.kind_of(e)) {
    case kind::integer:
    case kind::boolean: return std::gcd(magnitude(pool_.integer_value(e)), modulus);
    case kind::symbol: return of_symbol(pool_.symbol_of(e), modulus);
    case kind::negate: return of(operands[0], modulus);
    case kind::multiply: return of_product(operands[0], operands[1], modulus);
    case kind::power: return of_power(operands[0], operands[1], modulus);
    case kind::floor_divide:
    case kind::floor_div:
    case kind::ceil_div: return of_quotient(operands[0], operands[1], modulus);
    case kind::where: return of_all(operands.subspan(1), modulus);
    case kind::add:
    case kind::subtract:
    case kind::minimum:
    case kind::maximum:
    case kind::modulo:
    case kind::mod:
    case kind::python_mod: return of_all(operands, modulus);
    default: return 1;
    }
  }

private:
  static std::uint64_t magnitude(std::int64_t value) {
    return value < 0 ? 0U - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  }

  [[nodiscard]] std::uint64_t of_symbol(symbol s, std::uint64_t modulus) const {
    if (index(s) >= known_.size() || known_[index(s)] == 0) return 1;
    return std::gcd(magnitude(known_[index(s)]), modulus);
  }

  [[nodiscard]] std::uint64_t of_all(std::span<const expression> operands, std::uint64_t modulus) const {
    for (const expression e : operands) modulus = of(e, modulus);
    return modulus;
  }

  [[nodiscard]] std::uint64_t of_product(expression a, expression b, std::uint64_t modulus) const {
    const std::uint64_t left = of(a, modulus);
    // A real factor has no divisor, and makes the product real.
    if (!is_integral(a) || !is_integral(b)) return 1;
    return left * of(b, modulus / left);
  }

  [[nodiscard]] std::uint64_t of_power(expression base, expression exponent, std::uint64_t modulus) const {
    if (pool_.kind_of(exponent) != kind::integer || pool_.integer_value(exponent) < 1) return 1;
    std::uint64_t found = 1;
    for (std::int64_t n = std::min<std::int64_t>(pool_.integer_value(exponent), 64); n > 0; --n) {
      const std::uint64_t more = of(base, modulus / found);
      if (more == 1) break;
      found *= more;
    }
    return found;
  }

  [[nodiscard]] std::uint64_t of_quotient(expression a, expression b, std::uint64_t modulus) const {
    if (pool_.kind_of(b) != kind::integer || pool_.integer_value(b) == 0) return 1;
    const std::uint64_t by = magnitude(pool_.integer_value(b));
    std::uint64_t both = 0;
    if (__builtin_mul_overflow(by, modulus, &both)) return 1;
    const std::uint64_t found = of(a, both);
    return found % by == 0 ? std::gcd(found / by, modulus) : 1;
  }

  [[nodiscard]] bool is_integral(expression e) const {
    const kind k = pool_.kind_of(e);
    if (k == kind::real || k == kind::divide || k == kind::float_true_div || k == kind::to_float) return false;
    return std::ranges::all_of(pool_.operands(e), [this](expression operand) { return is_integral(operand); });
  }

  const pool& pool_;
  std::span<const std::int64_t> known_;
};

} // namespace

bool pool::divisible(expression e, std::int64_t by, std::span<const std::int64_t> known) const {
  if (by <= 0) return false;
  return divisor(*this, known).of(e, static_cast<std::uint64_t>(by)) == static_cast<std::uint64_t>(by);
}

namespace {

void collect(const pool& from, expression e, std::vector<bool>& seen, std::vector<symbol>& out) {
  if (from.kind_of(e) == kind::symbol) {
    const symbol s = from.symbol_of(e);
    if (!seen[index(s)]) out.push_back(s);
    seen[index(s)] = true;
    return;
  }
  for (const expression operand : from.operands(e)) collect(from, operand, seen, out);
}

} // namespace

void pool::collect_symbols(expression e, std::vector<symbol>& out) const {
  if (kind_of(e) == kind::integer || kind_of(e) == kind::real) return;
  if (kind_of(e) == kind::symbol) {
    if (std::find(out.begin(), out.end(), symbol_of(e)) == out.end()) out.push_back(symbol_of(e));
    return;
  }
  std::vector<bool> seen(symbol_count());
  for (const symbol s : out) seen[index(s)] = true;
  collect(*this, e, seen, out);
}

} // namespace muster::symbolic
