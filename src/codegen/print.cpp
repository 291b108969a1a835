module;
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
module muster.codegen;

namespace muster::codegen {

namespace {

/// How tightly an expression binds; operands that bind less tightly than they must are put into parentheses.
struct binding {
  std::string_view spelling;
  std::uint8_t python;
  std::uint8_t c;
  std::string_view c_spelling;
};

constexpr std::uint8_t atom = 20;
constexpr std::uint8_t postfix = 18;

// In the order of `op`.
constexpr std::array<binding, 24> bindings{{
    {"-", 13, 13, "-"}, {"~", 13, 13, "~"},  {"not ", 4, 13, "!"}, {"+", 10, 10, "+"},  {"-", 10, 10, "-"}, {"*", 11, 11, "*"},
    {"/", 11, 11, "/"}, {"//", 11, 11, "/"}, {"%", 11, 11, "%"},   {"**", 14, 11, ""},  {"<<", 9, 9, "<<"}, {">>", 9, 9, ">>"},
    {"&", 8, 5, "&"},   {"|", 6, 3, "|"},    {"^", 7, 4, "^"},     {"<", 5, 8, "<"},    {"<=", 5, 8, "<="}, {">", 5, 8, ">"},
    {">=", 5, 8, ">="}, {"==", 5, 7, "=="},  {"!=", 5, 7, "!="},   {"and", 3, 2, "&&"}, {"or", 2, 1, "||"}, {"if", 1, 0, "?"},
}};
static_assert(static_cast<std::size_t>(op::select) + 1 == bindings.size());

bool is_comparison(op o) { return o >= op::less && o <= op::not_equal; }
bool is_bitwise(op o) { return o >= op::shift_left && o <= op::bit_xor; }

void append_integer(std::int64_t v, std::string& out) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
}

/// The shortest decimal that reads back as `v`, always with a point or an exponent.
void append_real(double v, std::string& out) {
  char buffer[32];
  const char* const end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void append_float(float v, std::string& out) {
  char buffer[32];
  const char* const end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

/// A string literal that both languages read: escapes for quotes, backslashes and control characters; UTF-8 stays.
void append_string(std::string_view text, std::string& out) {
  constexpr std::string_view digits = "01234567";
  out += '"';
  for (const char c : text) {
    const unsigned char u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') (out += '\\') += c;
    else if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else if (u < 0x20) (((out += '\\') += '0') += digits[u >> 3U]) += digits[u & 7U]; // three digits: C's \x has no end of its own
    else out += c;
  }
  out += '"';
}

} // namespace

/// Prints expressions of one emitter in one language.
class expression_printer {
public:
  expression_printer(const emitter& e, std::string& out) : emitter_(e), out_(out), c_(e.language->language == language::c) {}

  void print(expression e) {
    const expression_node& n = emitter_.at(e);
    const std::span<const expression> parts = emitter_.operands(e);
    switch (n.what) {
    case expression_kind::none: out_ += c_ ? "nullptr" : "None"; break;
    case expression_kind::boolean: out_ += n.integer != 0 ? emitter_.language->true_ : emitter_.language->false_; break;
    case expression_kind::integer: print_integer(n); break;
    case expression_kind::real:
      if (constructs(n)) (out_ += emitter_.language->types[static_cast<std::size_t>(n.type)]) += '(';
      print_real(n);
      if (constructs(n)) out_ += ')';
      break;
    case expression_kind::string: append_string(n.text, out_); break;
    case expression_kind::name: out_ += emitter_.name_of(n.name); break;
    case expression_kind::text: out_ += n.text; break;
    case expression_kind::call: print_call(n.text, parts); break;
    case expression_kind::method:
      print(parts[0], postfix);
      out_ += '.';
      print_call(n.text, parts.subspan(1));
      break;
    case expression_kind::keyword:
      (out_ += n.text) += '=';
      print(parts[0]);
      break;
    case expression_kind::operation: print_operation(n, parts); break;
    case expression_kind::subscript:
      print(parts[0], postfix);
      print_list(parts.subspan(1), '[', ']');
      break;
    case expression_kind::cast: print_cast(n, parts[0]); break;
    case expression_kind::tuple:
      print_list(parts, '(', parts.size() == 1 ? ',' : ')');
      if (parts.size() == 1) out_ += ')';
      break;
    case expression_kind::list: print_list(parts, c_ ? '{' : '[', c_ ? '}' : ']'); break;
    }
  }

private:
  const emitter& emitter_;
  std::string& out_;
  bool c_;

  std::uint8_t precedence(const expression_node& n) const {
    if (n.what == expression_kind::operation) {
      const binding& b = bindings[static_cast<std::size_t>(n.operation)];
      if (c_ && n.operation == op::power) return postfix;
      return c_ ? b.c : b.python;
    }
    if (n.what == expression_kind::real && constructs(n)) return atom;
    const bool negative =
        (n.what == expression_kind::integer && n.integer < 0) || (n.what == expression_kind::real && std::signbit(n.real));
    if (negative) return bindings[0].python;
    if (n.what == expression_kind::integer || n.what == expression_kind::real) return c_ ? atom : 17; // `1.to(...)` needs parentheses
    if (n.what == expression_kind::keyword) return 0;
    return atom;
  }

  void print(expression e, std::uint8_t at_least) {
    const bool parentheses = precedence(emitter_.at(e)) < at_least;
    if (parentheses) out_ += '(';
    print(e);
    if (parentheses) out_ += ')';
  }

  bool starts_with_minus(const expression_node& n) const {
    if (n.what == expression_kind::operation) return n.operation == op::negate;
    return precedence(n) == bindings[0].c; // a negative literal
  }

  void print_list(std::span<const expression> items, char open, char close) {
    out_ += open;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out_ += ", ";
      print(items[i]);
    }
    out_ += close;
  }

  void print_call(std::string_view callee, std::span<const expression> arguments) {
    const std::size_t star = callee.find('*');
    if (star == std::string_view::npos) {
      out_ += callee;
      return print_list(arguments, '(', ')');
    }
    out_ += callee.substr(0, star);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (i != 0) out_ += ", ";
      print(arguments[i]);
    }
    out_ += callee.substr(star + 1);
  }

  void print_integer(const expression_node& n) {
    if (!c_) return append_integer(n.integer, out_);
    constexpr std::int64_t lowest32 = std::numeric_limits<std::int32_t>::min();
    constexpr std::int64_t highest32 = std::numeric_limits<std::int32_t>::max();
    if (n.integer == std::numeric_limits<std::int64_t>::min()) out_ += "(-9223372036854775807LL - 1)";
    else if (n.integer == lowest32) out_ += "(-2147483647 - 1)";
    else {
      append_integer(n.integer, out_);
      if (n.integer < lowest32 || n.integer > highest32) out_ += "LL";
    }
  }

  void print_real(const expression_node& n) {
    const dialect& d = *emitter_.language;
    if (std::isnan(n.real)) out_ += d.not_a_number;
    else if (std::isinf(n.real)) out_ += n.real > 0 ? d.infinity : d.negative_infinity;
    else if (n.real == 0 && std::signbit(n.real) && !d.negative_zero.empty()) print_negative_zero(d, n.type);
    else if (!c_ || n.type == dtype::f64) append_real(n.real, out_);
    else print_single(n.real);
  }

  void print_negative_zero(const dialect& d, dtype type) {
    const std::size_t hole = d.negative_zero.find("{}");
    ((out_ += d.negative_zero.substr(0, hole)) += d.types[static_cast<std::size_t>(type)]) += d.negative_zero.substr(hole + 2);
  }

  /// `float16(0.5f)` where the target has a type of its own for narrow floats.
  bool constructs(const expression_node& n) const { return c_ && emitter_.language->constructs_narrow && device_ir::size_of(n.type) < 4; }

  /// A literal of a C dialect's 32-bit float. A value that rounds to infinity there is infinity.
  void print_single(double v) {
    const float single = static_cast<float>(v);
    if (std::isinf(single)) {
      out_ += v > 0 ? emitter_.language->infinity : emitter_.language->negative_infinity;
      return;
    }
    append_float(single, out_);
    out_ += 'f';
  }

  void print_cast(const expression_node& n, expression value) {
    const std::string_view type = emitter_.language->types[static_cast<std::size_t>(n.type)];
    if (c_) {
      ((out_ += type) += '(');
      print(value);
      out_ += ')';
    } else if (emitter_.language->cast.empty()) {
      print(value, postfix);
      ((out_ += ".to(") += type) += ')';
    } else {
      (out_ += emitter_.language->cast) += '(';
      print(value);
      ((out_ += ", ") += type) += ')';
    }
  }

  void print_operation(const expression_node& n, std::span<const expression> parts) {
    const binding& b = bindings[static_cast<std::size_t>(n.operation)];
    const std::uint8_t level = precedence(n);
    if (n.operation == op::select) return print_select(parts, level);
    if (c_ && n.operation == op::power) return print_call(emitter_.language->functions[static_cast<std::size_t>(intrinsic::pow)], parts);
    if (parts.size() == 1) {
      out_ += c_ ? b.c_spelling : b.spelling;
      // No `--a`: in C it is another operator.
      const expression_node& operand = emitter_.at(parts[0]);
      const bool twice = c_ && n.operation == op::negate && starts_with_minus(operand);
      print(parts[0], twice ? postfix : level);
      return;
    }
    print_side(n.operation, parts[0], level, true, true);
    ((out_ += ' ') += c_ ? b.c_spelling : b.spelling) += ' ';
    print_side(n.operation, parts[1], level, false, emitter_.at(parts[0]).typed);
  }

  /// Left operands may bind as tightly as the operator itself, right ones must bind more tightly, but for chains of one
  /// associative operator of integers or booleans (a pointer is neither: what is added to it is summed first). Comparisons do not chain. C: mixed bitwise and logical operators get
  /// parentheses, as compilers ask for them.
  void print_side(op outer, expression e, std::uint8_t level, bool left, bool other_is_number) {
    const expression_node& n = emitter_.at(e);
    std::uint8_t least = left && !is_comparison(outer) && outer != op::power ? level : static_cast<std::uint8_t>(level + 1);
    const bool chains = outer == op::logical_and || outer == op::logical_or || outer == op::bit_and || outer == op::bit_or ||
                        outer == op::bit_xor ||
                        ((outer == op::add || outer == op::multiply) && other_is_number && n.typed && !device_ir::is_float(n.type));
    if (!left && chains && n.what == expression_kind::operation && n.operation == outer) least = level;
    if (c_ && n.what == expression_kind::operation && n.operation != outer && emitter_.operands(e).size() == 2 &&
        (is_bitwise(outer) || is_bitwise(n.operation) || outer == op::logical_or || (is_comparison(outer) && is_comparison(n.operation))))
      least = postfix;
    print(e, least);
  }

  void print_select(std::span<const expression> parts, std::uint8_t level) {
    const std::uint8_t inner = static_cast<std::uint8_t>(level + 1);
    if (c_) {
      const expression_node& test = emitter_.at(parts[0]);
      const bool asked_for =
          test.what == expression_kind::operation && is_bitwise(test.operation) && emitter_.operands(parts[0]).size() == 2;
      print(parts[0], asked_for ? postfix : inner); // compilers ask for parentheses
      out_ += " ? ";
      print(parts[1], inner);
      out_ += " : ";
      print(parts[2], inner);
    } else {
      print(parts[1], inner);
      out_ += " if ";
      print(parts[0], inner);
      out_ += " else ";
      print(parts[2], inner);
    }
  }
};

/// Prints the live statements of a body.
class statement_printer {
public:
  statement_printer(const emitter& e, std::string& out)
      : emitter_(const_cast<emitter&>(e)), out_(out), c_(e.language->language == language::c) {}

  void print(body b, int indent) {
    bool any = false;
    for (statement s = first(b); s != no_statement; s = emitter_.at(s).next) {
      const statement_node& n = emitter_.at(s);
      if (!n.live) continue;
      print_source(n.source, indent);
      print(n, indent);
      any = true;
    }
    if (!any && !c_) line(indent, "pass");
  }

private:
  emitter& emitter_;
  std::string& out_;
  bool c_;
  std::uint32_t shown_source_ = 0;

  statement first(body b) const { return emitter_.first_statement(b); }
  bool has_live(body b) const {
    for (statement s = first(b); s != no_statement; s = emitter_.at(s).next)
      if (emitter_.at(s).live) return true;
    return false;
  }

  void start(int indent) { out_.append(static_cast<std::size_t>(indent) * (c_ ? 2 : 4), ' '); }
  void line(int indent, std::string_view text) {
    start(indent);
    (out_ += text) += '\n';
  }
  void end() { out_ += c_ ? ";\n" : "\n"; }
  void value(expression e) { expression_printer(emitter_, out_).print(e); }

  void print_source(std::uint32_t source, int indent) {
    if (source == 0 || source == shown_source_) return;
    shown_source_ = source;
    const device_ir::source& s = emitter_.source->sources[source - 1];
    start(indent);
    ((out_ += c_ ? "// " : "# ") += s.code) += '\n';
  }

  std::string_view type_of(const variable_node& v) const {
    if (!v.spelled_type.empty()) return v.spelled_type;
    if (v.typed) return emitter_.language->types[static_cast<std::size_t>(v.type)];
    return "auto";
  }

  void print(const statement_node& n, int indent) {
    switch (n.what) {
    case statement_kind::assign: print_assign(n, indent); break;
    case statement_kind::declare: print_declare(n, indent); break;
    case statement_kind::store:
      start(indent);
      value(n.target);
      out_ += ' ';
      if (n.compound != op::select) out_ += bindings[static_cast<std::size_t>(n.compound)].c_spelling;
      out_ += "= ";
      value(n.value);
      end();
      break;
    case statement_kind::evaluate:
      start(indent);
      value(n.value);
      end();
      break;
    case statement_kind::for_range: print_for(n, indent); break;
    case statement_kind::if_: print_if(n, indent); break;
    case statement_kind::while_: print_block(n, indent, "while "); break;
    case statement_kind::break_: line(indent, c_ ? "break;" : "break"); break;
    case statement_kind::return_:
      start(indent);
      out_ += "return ";
      value(n.value);
      end();
      break;
    case statement_kind::comment:
      start(indent);
      ((out_ += c_ ? "// " : "# ") += n.text) += '\n';
      break;
    case statement_kind::verbatim: print_verbatim(n.text, indent); break;
    case statement_kind::closure: print_closure(n, indent); break;
    case statement_kind::scope:
      line(indent, "{");
      print(n.inner, indent + 1);
      line(indent, "}");
      break;
    }
  }

  void print_assign(const statement_node& n, int indent) {
    const variable_node& v = emitter_.at(n.variable);
    start(indent);
    if (c_ && !v.declared && !v.reassigned) out_ += "const ";
    if (c_ && !v.declared) (out_ += type_of(v)) += ' ';
    (out_ += v.name) += " = ";
    value(n.value);
    end();
  }

  void print_closure(const statement_node& n, int indent) {
    start(indent);
    if (n.variable != no_variable) {
      const variable_node& v = emitter_.at(n.variable);
      if (!v.declared && !v.reassigned) out_ += "const ";
      if (!v.declared) (out_ += type_of(v)) += ' ';
      (out_ += v.name) += " = ";
    }
    value(n.value);
    out_.pop_back(); // the lambda is the call's last argument
    if (out_.back() != '(') out_ += ", ";
    const variable_node& index = emitter_.at(emitter_.at(n.target).name);
    (out_ += "[&](") += type_of(index);
    const std::size_t at = out_.size();
    out_ += ") {\n";
    const std::size_t start_of_body = out_.size();
    print(n.inner, indent + 1);
    if (has_name(std::string_view(out_).substr(start_of_body), index.name)) out_.insert(at, std::string(" ").append(index.name));
    line(indent, "});");
  }

  /// Whether an identifier stands in some text.
  static bool has_name(std::string_view text, std::string_view name) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
    for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
      const bool begins = at == 0 || !letter(text[at - 1]);
      const std::size_t end = at + name.size();
      if (begins && (end == text.size() || !letter(text[end]))) return true;
    }
    return false;
  }

  void print_declare(const statement_node& n, int indent) {
    if (!c_) return;
    const variable_node& v = emitter_.at(n.variable);
    start(indent);
    (((out_ += type_of(v)) += ' ') += v.name) += n.text;
    if (n.value != no_expression) {
      out_ += " = ";
      value(n.value);
    }
    end();
  }

  void print_for(const statement_node& n, int indent) {
    const variable_node& v = emitter_.at(n.variable);
    if (!c_) {
      start(indent);
      ((out_ += "for ") += v.name) += " in ";
      value(n.value);
      out_ += ":\n";
      print(n.inner, indent + 1);
      return;
    }
    if (!n.text.empty()) line(indent, n.text);
    const std::span<const expression> bounds = emitter_.operands(n.value);
    start(indent);
    (((out_ += "for (") += type_of(v)) += ' ') += v.name;
    out_ += " = ";
    value(bounds[0]);
    ((out_ += "; ") += v.name) += " < ";
    value(bounds[1]);
    out_ += "; ";
    if (emitter_.integer_literal(bounds[2]) == 1) {
      (out_ += "++") += v.name;
    } else {
      (out_ += v.name) += " += ";
      value(bounds[2]);
    }
    out_ += ") {\n";
    print(n.inner, indent + 1);
    line(indent, "}");
  }

  void print_block(const statement_node& n, int indent, std::string_view keyword) {
    start(indent);
    out_ += keyword;
    if (c_) out_ += '(';
    value(n.value);
    out_ += c_ ? ") {\n" : ":\n";
    print(n.inner, indent + 1);
    if (c_) line(indent, "}");
  }

  void print_if(const statement_node& n, int indent) {
    print_block(n, indent, "if ");
    if (n.orelse == no_body || !has_live(n.orelse)) return;
    if (c_) out_.pop_back(); // `} else {` on one line
    if (c_) out_ += " else {\n";
    else line(indent, "else:");
    print(n.orelse, indent + 1);
    if (c_) line(indent, "}");
  }

  void print_verbatim(std::string_view text, int indent) {
    while (!text.empty()) {
      const std::size_t end_of_line = text.find('\n');
      const std::string_view one = text.substr(0, end_of_line);
      if (one.empty()) out_ += '\n';
      else line(indent, one);
      if (end_of_line == std::string_view::npos) break;
      text.remove_prefix(end_of_line + 1);
    }
  }
};

void emitter::print_body(body b, std::string& out, int indent) const { statement_printer(*this, out).print(b, indent); }
void emitter::print_expression(expression e, std::string& out) const { expression_printer(*this, out).print(e); }

} // namespace muster::codegen
