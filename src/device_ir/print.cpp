module;
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module muster.device_ir;

#include "storage.hpp"

namespace muster::device_ir {

std::string_view word(symbol_declaration::origin o) noexcept {
  constexpr std::array<std::string_view, 6> words = {"parameter", "grid", "tile_begin", "tile_end", "tile_id", "tile_count"};
  return words[static_cast<std::size_t>(o)];
}

std::string_view word(graph::kind k) noexcept {
  constexpr std::array<std::string_view, 4> words = {"root", "loop", "branch", "helper"};
  return words[static_cast<std::size_t>(k)];
}

std::string_view word(precision p) noexcept {
  constexpr std::array<std::string_view, 3> words = {"tf32", "tf32x3", "ieee"};
  return words[static_cast<std::size_t>(p)];
}

namespace {

struct code_point {
  char32_t value = 0;
  std::size_t size = 1;
};

/// The first character of valid UTF-8.
code_point decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1FU) << 6U | (byte(1) & 0x3FU), 2};
  if (first < 0xF0) return {(first & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU), 3};
  return {(first & 0x07U) << 18U | (byte(1) & 0x3FU) << 12U | (byte(2) & 0x3FU) << 6U | (byte(3) & 0x3FU), 4};
}

/// Characters without a mark of their own on paper: controls, blanks other than ' ', joiners, directions, surrogates, marks of order.
bool is_invisible(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c == 0x1680 || (c >= 0x2000 && c <= 0x200F) || (c >= 0x2028 && c <= 0x202F) ||
         (c >= 0x205F && c <= 0x206F) || c == 0x3000 || c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFB) || (c & 0xFFFFU) >= 0xFFFE ||
         c >= 0xE0000;
}

void append_escape(char32_t c, std::string& out) {
  constexpr std::string_view digits = "0123456789abcdef";
  const int width = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += width == 2 ? "\\x" : width == 4 ? "\\u" : "\\U";
  for (int shift = (width - 1) * 4; shift >= 0; shift -= 4) out += digits[c >> static_cast<unsigned>(shift) & 0xFU];
}

/// As Python's repr of a string.
void append_quoted(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  while (!text.empty()) {
    const code_point c = decode(text);
    if (c.value == '\n') out += "\\n";
    else if (c.value == '\t') out += "\\t";
    else if (c.value == '\r') out += "\\r";
    else if (c.value == '\\') out += "\\\\";
    else if (c.value == static_cast<unsigned char>(quote)) (out += '\\') += quote;
    else if (is_invisible(c.value)) append_escape(c.value, out);
    else out += text.substr(0, c.size);
    text.remove_prefix(c.size);
  }
  out += quote;
}

void append_integer(std::int64_t value, std::string& out) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

class writer {
public:
  writer(const document& d, std::string& out) : d_(d), out_(out) {}

  void write() {
    write_header();
    for (const graph& g : d_.graphs) write_graph(g);
  }

private:
  // ---- The header ----

  void write_header() {
    add("device_ir 1\nkernel ", d_.kernel);
    add("\nsetting static_shapes ", d_.settings.static_shapes ? "true" : "false");
    add("\nsetting index_dtype ", name(d_.settings.index_dtype));
    add("\nsetting fast_math ", d_.settings.fast_math ? "true" : "false");
    add("\nsetting dot_precision ", word(d_.settings.dot_precision), "\n");
    for (const host_tensor& t : d_.tensors) write_tensor(t);
    for (const symbol_declaration& s : d_.declarations) write_symbol(s);
    for (const block& b : d_.blocks) write_block(b);
    write_declarations();
    write_config();
  }

  void write_tensor(const host_tensor& t) {
    add("host_tensor ", t.name, " ", name(t.element));
    write_expressions(d_.sizes(t));
    add(" strides ");
    write_expressions(d_.strides(t));
    add("\n");
  }

  void write_symbol(const symbol_declaration& s) {
    add("symbol ", d_.symbols.name(s.id), s.is_float ? " float " : " int ", word(s.from), " ");
    if (s.from == symbol_declaration::origin::parameter) add(s.host_expression);
    else append_integer(s.block, out_);
    if (s.hint) {
      add(" hint ");
      if (s.hint->is_integer) append_integer(s.hint->integer, out_);
      else symbolic::print_real(s.hint->real, out_);
    }
    add("\n");
  }

  void write_block(const block& b) {
    add("block ");
    append_integer(b.id, out_);
    add(" ");
    write_expression(b.variable);
    add(" size ");
    write_expression(b.size);
    add(b.is_reduction ? " reduction" : " tile", " block_size ");
    write_expression(b.block_size);
    if (!b.jagged_parents.empty()) {
      add(" jagged_parents ");
      write_ids(b.jagged_parents);
    }
    add("\n");
  }

  /// Roots first, and otherwise in the order of the lines that were read.
  void write_declarations() {
    std::vector<const graph*> order;
    for (const graph& g : d_.graphs) order.push_back(&g);
    const auto key = [](const graph* g) { return std::tuple(g->what != graph::kind::root, g->header_line, g); };
    std::ranges::sort(order, {}, key);
    for (const graph* g : order) write_declaration(*g);
  }

  void write_declaration(const graph& g) {
    add(word(g.what), " ", g.name);
    if (g.what == graph::kind::root || g.what == graph::kind::loop) {
      add(" blocks ");
      write_ids(g.blocks);
    }
    if (g.what == graph::kind::root) {
      add(" phase ");
      append_integer(g.phase, out_);
    }
    add("\n");
  }

  /// The text where there is one; a config that a program filled in is written from its fields.
  void write_config() {
    std::string made;
    if (d_.config.text.empty()) print(d_.config, made);
    const std::string_view json = d_.config.text.empty() ? std::string_view(made) : d_.config.text;
    if (json == "{}" && d_.config.text.empty()) return;
    add("config ");
    for (const char c : json) out_ += c == '\n' || c == '\r' ? ' ' : c;
    add("\n");
  }

  // ---- Graphs ----

  void write_graph(const graph& g) {
    source_ = 0;
    out_ += '\n';
    const std::span<const node> parameters = std::span(d_.nodes).subspan(g.parameters.first, g.parameters.count);
    if (!parameters.empty()) write_source(parameters.front(), "");
    add("def ", g.name, "(");
    for (const node& n : parameters) {
      if (&n != &parameters.front()) add(", ");
      add(n.name);
      write_type(n.type);
    }
    add("):\n");
    for (const node& n : std::span(d_.nodes).subspan(g.nodes.first, g.nodes.count)) write_statement(n);
    add("    return ");
    write_argument(g.result);
    add("\n");
  }

  void write_source(const node& n, std::string_view indentation) {
    if (n.source == 0 || n.source == source_) return;
    const source& s = d_.sources[n.source - 1];
    const bool repeated = source_ != 0 && is_same(s, d_.sources[source_ - 1]);
    source_ = n.source;
    if (repeated) return;
    add(indentation, "# src ", s.file, ":");
    append_integer(s.line, out_);
    add(s.code.empty() ? "" : " ", s.code, "\n");
  }

  static bool is_same(const source& a, const source& b) { return a.file == b.file && a.line == b.line && a.code == b.code; }

  void write_statement(const node& n) {
    constexpr std::string_view indentation = "    ";
    write_source(n, indentation);
    add(indentation, n.name);
    write_type(n.type);
    add(" = ");
    if (!write_special(n)) write_call(n);
    out_ += '\n';
  }

  void write_type(const type& t) {
    if (t.what == type::kind::none) return;
    if (t.what == type::kind::symbolic) {
      add(": \"Sym(");
      write_expression(t.value);
      add(")\"");
      return;
    }
    add(": \"", name(t.element));
    write_expressions(d_.sizes(t));
    add("\"");
  }

  /// What the format has a spelling of its own for. Whether it fits: the same text must read as the same node.
  bool write_special(const node& n) {
    if (n.keywords.count != 0) return false;
    const std::span<const argument> arguments = d_.arguments_of(n);
    if (n.target == identity_target && arguments.size() == 1) return write_argument(arguments[0]);
    if ((n.target == negation_target || n.target == not_target) && arguments.size() == 1) return write_prefix(n.target, arguments[0]);
    if (arguments.size() != 2) return false;
    if (n.target == getitem_target) return write_item(arguments);
    const auto* const found = std::ranges::find(python_operators, n.target, &python_operator::target);
    if (found == python_operators.end() || n.target == negation_target) return false;
    write_argument(arguments[0]);
    add(" ", found->spelling, " ");
    return write_argument(arguments[1]);
  }

  bool write_prefix(std::string_view target, const argument& operand) {
    if (operand.what != argument::kind::node) return false;
    add(target == not_target ? "not " : "-");
    return write_argument(operand);
  }

  bool write_item(std::span<const argument> arguments) {
    if (arguments[0].what != argument::kind::node || arguments[1].what != argument::kind::integer) return false;
    write_argument(arguments[0]);
    add("[");
    write_argument(arguments[1]);
    add("]");
    return true;
  }

  void write_call(const node& n) {
    add(n.target, "(");
    bool first = true;
    for (const argument& a : d_.arguments_of(n)) {
      if (!std::exchange(first, false)) add(", ");
      write_argument(a);
    }
    for (const keyword& k : d_.keywords_of(n)) {
      if (!std::exchange(first, false)) add(", ");
      add(k.name, " = ");
      write_argument(k.value);
    }
    add(")");
  }

  // ---- Arguments ----

  /// Returns true.
  bool write_argument(const argument& a) {
    switch (a.what) {
    case argument::kind::none: add("None"); break;
    case argument::kind::boolean: add(a.boolean ? "True" : "False"); break;
    case argument::kind::integer: append_integer(a.integer, out_); break;
    case argument::kind::real: symbolic::print_real(a.real, out_); break;
    case argument::kind::string: append_quoted(a.text, out_); break;
    case argument::kind::node: add(d_.at(a.node).name); break;
    case argument::kind::list: write_items("[", a, "]"); break;
    case argument::kind::tuple: write_items("(", a, a.items.count == 1 ? ",)" : ")"); break;
    case argument::kind::slice: write_items("slice(", a, ")"); break;
    case argument::kind::dtype: add("torch.", torch_name(a.element)); break;
    case argument::kind::layout: add("torch.", torch_name(a.memory_layout)); break;
    case argument::kind::device: write_device(a); break;
    case argument::kind::function: add("<function ", a.text, ">"); break;
    }
    return true;
  }

  void write_items(std::string_view open, const argument& a, std::string_view close) {
    add(open);
    bool first = true;
    for (const argument& item : d_.items(a)) {
      if (!std::exchange(first, false)) add(", ");
      write_argument(item);
    }
    add(close);
  }

  void write_device(const argument& a) {
    add("device(type=");
    append_quoted(a.text, out_);
    if (a.integer >= 0) {
      add(", index=");
      append_integer(a.integer, out_);
    }
    add(")");
  }

  // ---- Pieces ----

  template <class... Pieces> void add(const Pieces&... pieces) { (out_.append(std::string_view(pieces)), ...); }

  void write_expression(expression e) {
    if (e == no_expression) add("None");
    else d_.symbols.print(e, out_);
  }

  void write_expressions(std::span<const expression> all) {
    out_ += '[';
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i != 0) add(", ");
      write_expression(all[i]);
    }
    out_ += ']';
  }

  void write_ids(const std::vector<std::int32_t>& ids) {
    out_ += '[';
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i != 0) add(", ");
      append_integer(ids[i], out_);
    }
    out_ += ']';
  }

  const document& d_;
  std::string& out_;
  std::uint32_t source_ = 0; ///< the last one written in this graph
};

} // namespace

void print(const document& d, std::string& out) { writer(d, out).write(); }

std::string to_string(const document& d) {
  std::string out;
  print(d, out);
  return out;
}

} // namespace muster::device_ir
