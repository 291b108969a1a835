module;
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
module muster.device_ir;

#include "storage.hpp"

namespace muster::device_ir {

namespace {

enum character : std::uint8_t { name_start = 1, name_part = 2, digit = 4, dotted_part = 8 };

constexpr std::array<std::uint8_t, 256> character_table = [] {
  std::array<std::uint8_t, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[static_cast<std::size_t>(c)] = name_start | name_part | dotted_part;
  for (int c = 'A'; c <= 'Z'; ++c) table[static_cast<std::size_t>(c)] = name_start | name_part | dotted_part;
  for (int c = '0'; c <= '9'; ++c) table[static_cast<std::size_t>(c)] = digit | name_part | dotted_part;
  table['_'] = name_start | name_part | dotted_part;
  table['.'] = dotted_part;
  return table;
}();

constexpr bool is(char c, character what) { return (character_table[static_cast<unsigned char>(c)] & what) != 0; }
constexpr bool is_blank(char c) { return c == ' ' || c == '\t'; }
constexpr bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

/// The end of the run of name characters (and points, where `with_points`) that starts here. On x86-64 sixteen at a time:
/// names are short and differ in length, so that a loop over characters costs a mispredicted branch a name.
template <bool with_points> const char* end_of_name(const char* at) {
#if defined(__SSE2__)
  for (;; at += 16) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i letter = _mm_sub_epi8(_mm_or_si128(c, _mm_set1_epi8(0x20)), _mm_set1_epi8('a'));
    const __m128i number = _mm_sub_epi8(c, _mm_set1_epi8('0'));
    __m128i belongs = _mm_cmpeq_epi8(_mm_min_epu8(letter, _mm_set1_epi8(25)), letter);
    belongs = _mm_or_si128(belongs, _mm_cmpeq_epi8(_mm_min_epu8(number, _mm_set1_epi8(9)), number));
    belongs = _mm_or_si128(belongs, _mm_cmpeq_epi8(c, _mm_set1_epi8('_')));
    if constexpr (with_points) belongs = _mm_or_si128(belongs, _mm_cmpeq_epi8(c, _mm_set1_epi8('.')));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(belongs));
    if (mask != 0xFFFFU) return at + std::countr_one(mask);
  }
#else
  while (is(*at, with_points ? dotted_part : name_part)) ++at;
  return at;
#endif
}

/// The first '"' before `end`, or `end`.
const char* find_quote(const char* at, const char* end) {
#if defined(__SSE2__)
  for (; at < end; at += 16) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(c, _mm_set1_epi8('"'))));
    if (mask != 0) return std::min(at + std::countr_zero(mask), end);
  }
  return end;
#else
  return std::find(at, end, '"');
#endif
}

std::string quoted(std::string_view text) {
  constexpr std::size_t longest = 60;
  if (text.size() > longest) {
    std::size_t cut = longest;
    while (cut > 0 && is_continuation(text[cut])) --cut;
    return "'" + std::string(text.substr(0, cut)) + "…'";
  }
  return "'" + std::string(text) + "'";
}

/// In the order in which they stand in a header; loops, branches and helpers come as their graphs do.
constexpr std::array<directive, 11> directives = {{
    {"device_ir", 0, "device_ir 1"},
    {"kernel", 1, "kernel NAME"},
    {"setting", 2, "setting NAME VALUE"},
    {"host_tensor", 3, "host_tensor NAME DTYPE[SIZES] strides [STRIDES]"},
    {"symbol", 4, "symbol NAME int|float KIND …"},
    {"block", 5, "block ID VAR size EXPR|None tile|reduction block_size EXPR"},
    {"root", 6, "root GRAPH blocks [IDS] phase N"},
    {"loop", 7, "loop GRAPH blocks [IDS]"},
    {"branch", 7, "branch GRAPH"},
    {"helper", 7, "helper GRAPH"},
    {"config", 8, "config JSON"},
}};

struct origin_word {
  std::string_view word;
  symbol_declaration::origin from;
};
constexpr std::array<origin_word, 6> origins = {{
    {"parameter", symbol_declaration::origin::parameter},
    {"grid", symbol_declaration::origin::grid},
    {"tile_begin", symbol_declaration::origin::tile_begin},
    {"tile_end", symbol_declaration::origin::tile_end},
    {"tile_id", symbol_declaration::origin::tile_id},
    {"tile_count", symbol_declaration::origin::tile_count},
}};

/// Words that Python gives a meaning, so that no node can have them as its name.
bool is_reserved(std::string_view word) {
  switch (word.size()) {
  case 3: return word == "inf" || word == "nan" || word == "def" || word == "not";
  case 4: return word == "None" || word == "True";
  case 5: return word == "False" || word == "torch";
  case 6: return word == "return";
  default: return false;
  }
}

void append_utf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0U | c >> 6U);
    out += static_cast<char>(0x80U | (c & 0x3FU));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0U | c >> 12U);
    out += static_cast<char>(0x80U | (c >> 6U & 0x3FU));
    out += static_cast<char>(0x80U | (c & 0x3FU));
  } else {
    out += static_cast<char>(0xF0U | c >> 18U);
    out += static_cast<char>(0x80U | (c >> 12U & 0x3FU));
    out += static_cast<char>(0x80U | (c >> 6U & 0x3FU));
    out += static_cast<char>(0x80U | (c & 0x3FU));
  }
}

/// One pass over the text, a line at a time. `at_` never passes `end_`, the end of the current line, and `*end_` is
/// always readable and never a character that continues a token, so tokens need no bounds checks.
class reader {
public:
  reader(document& into, std::string_view file) : d_(into), s_(parser::storage_of(into)) { d_.file = d_.keep(file); }

  void read(std::string_view text) {
    take(text);
    read_header();
    do read_graph();
    while (next_line_of_substance());
    for (const graph_declaration& g : s_.declared)
      if (!g.has_body)
        fail_on_line(g.line, g.name, "graph " + quoted(g.name) + " has no body: expected 'def " + std::string(g.name) + "(…):'");
  }

private:
  // ---- Lines ----

  void take(std::string_view text) {
    if (text.size() > limits::text_bytes) throw DeviceIRError(d_.file, 1, 1, "", "the text is longer than 64 MiB");
    s_.text.assign(text);
    s_.text.resize(text.size() + config_padding() + 1);
    s_.text_size = text.size();
    line_begin_ = end_ = at_ = s_.text.data();
    text_end_ = at_ + text.size();
    next_begin_ = at_ + (text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
    if (!is_valid_utf8(text)) fail_at_invalid_utf8();
    d_.nodes.reserve(text.size() / 96);
    d_.arguments.reserve(text.size() / 48);
  }

  [[noreturn]] void fail_at_invalid_utf8() {
    const char* const bad = s_.text.data() + first_invalid_utf8(s_.whole());
    while (next_line())
      if (bad <= end_) break;
    fail(bad, "invalid UTF-8");
  }

  bool next_line() {
    if (next_begin_ == nullptr) return false;
    if (next_begin_ == text_end_ && line_ != 0) {
      next_begin_ = nullptr;
      return false;
    }
    line_begin_ = at_ = next_begin_;
    ++line_;
    const auto* stop = static_cast<const char*>(std::memchr(line_begin_, '\n', static_cast<std::size_t>(text_end_ - line_begin_)));
    end_ = stop == nullptr ? text_end_ : stop;
    next_begin_ = stop == nullptr ? nullptr : stop + 1;
    if (end_ != line_begin_ && end_[-1] == '\r') --end_;
    if (static_cast<std::size_t>(end_ - line_begin_) > limits::line_bytes)
      fail(line_begin_ + limits::line_bytes, "the line is longer than 1 MiB");
    return true;
  }

  /// The next line that is neither blank nor a comment; `at_` is its first character that is no blank.
  bool next_line_of_substance() {
    constexpr std::string_view indentation = "    ";
    while (next_line()) {
      if (std::memcmp(at_, indentation.data(), indentation.size()) == 0) at_ += indentation.size();
      skip_blanks();
      if (at_ == end_) continue;
      if (*at_ != '#') return true;
      read_comment();
    }
    at_ = end_;
    return false;
  }

  [[nodiscard]] bool is_indented() const { return at_ != line_begin_; }

  /// `# src FILE:LINE CODE`; any other comment means nothing.
  void read_comment() {
    constexpr std::string_view mark = "# src ";
    const std::string_view line = rest();
    if (!line.starts_with(mark)) return;
    const std::string_view said = line.substr(mark.size());
    for (std::size_t colon = said.find(':'); colon != std::string_view::npos; colon = said.find(':', colon + 1)) {
      std::uint32_t number = 0;
      const auto [stop, error] = std::from_chars(said.data() + colon + 1, said.data() + said.size(), number);
      if (error != std::errc() || (stop != end_ && *stop != ' ')) continue;
      std::string_view code(stop == end_ ? stop : stop + 1, end_);
      while (!code.empty() && is_blank(code.back())) code.remove_suffix(1);
      return add_source({said.substr(0, colon), number, code});
    }
  }

  void add_source(const source& s) {
    for (const char& c : std::string_view(at_, end_))
      if (static_cast<unsigned char>(c) < 0x20 && c != '\t') fail(&c, "a control character in a source line");
    if (d_.sources.size() >= limits::nodes) fail(at_, "more than " + std::to_string(limits::nodes) + " source lines");
    d_.sources.push_back(s);
    source_ = static_cast<std::uint32_t>(d_.sources.size());
  }

  // ---- Faults ----

  [[noreturn]] [[gnu::cold]] [[gnu::noinline]] void fail(const char* at, std::string_view message) const {
    const auto column = 1 + std::count_if(line_begin_, at, [](char c) { return !is_continuation(c); });
    throw DeviceIRError(d_.file, line_, static_cast<std::size_t>(column), std::string_view(line_begin_, end_), message);
  }
  [[noreturn]] [[gnu::cold]] [[gnu::noinline]] void fail(std::string_view message) const { fail(at_, message); }

  /// `expected X, found Y`, with what stands at the current place.
  [[noreturn]] [[gnu::cold]] [[gnu::noinline]] void fail_expecting(std::string_view what) const {
    std::string message = "expected " + std::string(what) + ", found ";
    if (at_ == end_) message += "the end of the line";
    else message += quoted(found());
    if (!usage_.empty()) message += "; the line's form is: " + std::string(usage_);
    fail(at_, message);
  }

  [[nodiscard]] std::string_view found() const {
    const char* stop = at_;
    if (is(*stop, name_part)) {
      while (is(*stop, name_part)) ++stop;
    } else {
      do ++stop;
      while (stop != end_ && is_continuation(*stop));
    }
    return {at_, stop};
  }

  [[noreturn]] void fail_on_line(std::uint32_t line, std::string_view where, std::string_view message) {
    const std::string_view text = d_.source_text_line(line);
    throw DeviceIRError(d_.file, line, 1 + static_cast<std::size_t>(where.data() - text.data()), text, message);
  }

  // ---- Tokens ----

  [[nodiscard]] std::string_view rest() const { return {at_, end_}; }
  /// Mostly there is one, or none.
  void skip_blanks() {
    if (*at_ == ' ') ++at_;
    if (static_cast<unsigned char>(*at_) <= ' ') skip_more_blanks();
  }
  [[gnu::noinline]] void skip_more_blanks() {
    while (is_blank(*at_)) ++at_;
  }

  void expect_blank() {
    if (!is_blank(*at_)) fail_expecting("a blank");
    skip_blanks();
  }

  void expect(char c) {
    if (*at_ != c) fail_expecting(std::string{'\'', c, '\''});
    ++at_;
  }

  bool accept(char c) {
    if (*at_ != c) return false;
    ++at_;
    return true;
  }

  void expect_end_of_line() {
    skip_blanks();
    if (at_ != end_) fail_expecting("the end of the line");
  }

  [[nodiscard]] std::string_view peek_name() const { return {at_, is(*at_, name_start) ? end_of_name<false>(at_) : at_}; }

  std::string_view expect_name(std::string_view what) {
    const std::string_view word = peek_name();
    if (word.empty()) fail_expecting(what);
    at_ += word.size();
    return word;
  }

  /// A directive's fixed word, between blanks.
  void expect_word(std::string_view word) {
    if (peek_name() != word) fail_expecting("'" + std::string(word) + "'");
    at_ += word.size();
  }

  /// Everything up to a blank.
  std::string_view expect_text(std::string_view what) {
    const char* const begin = at_;
    while (at_ != end_ && !is_blank(*at_)) ++at_;
    if (begin == at_) fail_expecting(what);
    return {begin, at_};
  }

  std::int32_t expect_id(std::string_view what) {
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(at_, end_, id);
    if (error == std::errc::result_out_of_range) fail(std::string(what) + " must fit 31 bits");
    if (error != std::errc() || id < 0 || is(*stop, name_part)) fail_expecting(what);
    at_ = stop;
    return id;
  }

  const std::vector<std::int32_t>& expect_ids() {
    s_.ids.clear();
    expect('[');
    skip_blanks();
    while (!accept(']')) {
      if (!s_.ids.empty()) {
        expect(',');
        skip_blanks();
      }
      if (s_.ids.size() >= limits::rank) fail("more than " + std::to_string(limits::rank) + " blocks");
      s_.ids.push_back(expect_id("a block's number"));
      skip_blanks();
    }
    return s_.ids;
  }

  // ---- Expressions and types ----

  /// Nearly always a plain symbol or integer: those are read here, everything else by the pool.
  expression expect_expression() {
    if (is(*at_, name_start)) {
      const char* const stop = end_of_name<false>(at_);
      const std::string_view word(at_, stop);
      if (ends_expression(stop) && !is_reserved(word)) {
        at_ = stop;
        return d_.symbols.reference(d_.symbols.intern(word));
      }
    } else if (is(*at_, digit) && *at_ != '0') {
      const char* stop = at_;
      std::int64_t value = 0;
      for (; is(*stop, digit) && stop - at_ < 18; ++stop) value = value * 10 + (*stop - '0');
      if (ends_expression(stop)) {
        at_ = stop;
        return d_.symbols.integer(value);
      }
    }
    return expect_compound_expression();
  }

  /// In a list or type, or ahead of a directive's next word. Where it says no, the pool's parser decides.
  static bool ends_expression(const char* at) { return *at == ',' || *at == ']' || *at == ')' || (*at == ' ' && is(at[1], name_start)); }

  expression expect_compound_expression() {
    std::size_t read = 0;
    symbolic::parse_failure failure;
    const expression e = d_.symbols.parse_prefix(rest(), read, failure);
    if (e == no_expression) fail(at_ + failure.offset, failure.message);
    if (d_.symbols.size() > limits::expressions) fail("more than " + std::to_string(limits::expressions) + " expressions");
    at_ += read;
    return e;
  }

  expression expect_expression_or_none() {
    if (peek_name() != "None") return expect_expression();
    at_ += 4;
    return no_expression;
  }

  range expect_sizes() {
    range sizes{static_cast<std::uint32_t>(d_.expressions.size()), 0};
    expect('[');
    skip_blanks();
    while (!accept(']')) {
      if (sizes.count != 0) {
        expect(',');
        skip_blanks();
      }
      if (sizes.count >= limits::rank) fail("more than " + std::to_string(limits::rank) + " dimensions");
      if (d_.expressions.size() >= limits::expressions) fail("more than " + std::to_string(limits::expressions) + " expressions");
      d_.expressions.push_back(expect_expression());
      ++sizes.count;
      skip_blanks();
    }
    return sizes;
  }

  dtype expect_dtype() {
    const char* const begin = at_;
    const std::string_view word = expect_name("a data type");
    if (const auto d = dtype_named(word)) return *d;
    fail(begin, "unknown data type " + quoted(word) + ": expected f64, f32, f16, bf16, f8e4m3fn, f8e5m2, i64, i32, i16, i8, u8 or b8");
  }

  /// `"f32[u0, 64]"` or `"Sym(EXPR)"`, the quotes included.
  type expect_type() {
    expect('"');
    const char* const close = closing_quote();
    const std::string_view text(at_, close);
    if (const std::uint32_t known = s_.type_texts.find(text); known != text_index<true>::absent) {
      at_ = close + 1;
      return s_.types[known];
    }
    const type t = text.starts_with("Sym(") ? expect_symbolic_type() : expect_tensor_type();
    expect('"');
    s_.type_texts.set(text, static_cast<std::uint32_t>(s_.types.size()));
    s_.types.push_back(t);
    return t;
  }

  [[nodiscard]] const char* closing_quote() const {
    const char* const close = find_quote(at_, end_);
    if (close == end_) fail(at_ - 1, "the type's closing '\"' is missing");
    return close;
  }

  type expect_symbolic_type() {
    type t;
    t.what = type::kind::symbolic;
    at_ += 4;
    t.value = expect_expression();
    skip_blanks();
    expect(')');
    return t;
  }

  type expect_tensor_type() {
    type t;
    t.what = type::kind::tensor;
    t.element = expect_dtype();
    t.sizes = expect_sizes();
    return t;
  }

  // ---- The header ----

  void read_header() {
    if (!next_line_of_substance() || is_indented() || peek_name() != "device_ir") fail_expecting("'device_ir 1', the format's first line");
    int rank = 0;
    do {
      const directive* const read = read_directive(rank);
      if (read == nullptr) break;
      rank = read->rank;
    } while (next_line_of_substance());
    usage_ = {};
    if (d_.kernel.empty()) fail("the header has no 'kernel NAME' line");
    if (!std::ranges::any_of(s_.declared, [](const graph_declaration& g) { return g.what == graph::kind::root; }))
      fail("the header has no 'root GRAPH blocks [IDS] phase N' line");
    if (next_begin_ == nullptr && (at_ == end_ || peek_name() != "def")) fail_expecting("'def GRAPH(…):'");
  }

  /// The directive that was read, or null at the first line of a graph.
  const directive* read_directive(int rank) {
    usage_ = {};
    const char* const begin = at_;
    if (is_indented()) fail("unexpected indentation in the header");
    const std::string_view word = expect_name("a directive or 'def'");
    if (word == "def") {
      at_ = begin;
      return nullptr;
    }
    const auto* const found = std::ranges::find(directives, word, &directive::word);
    if (found == directives.end()) fail_unknown_directive(begin, word);
    check_order(*found, rank, begin);
    usage_ = found->usage;
    if (at_ == end_ || !is_blank(*at_)) fail_expecting("'" + std::string(found->usage) + "'");
    skip_blanks();
    read_directive_body(found - directives.begin());
    expect_end_of_line();
    return found;
  }

  void read_directive_body(std::ptrdiff_t row) {
    switch (row) {
    case 0: return read_version();
    case 1: return read_kernel();
    case 2: return read_setting();
    case 3: return read_host_tensor();
    case 4: return read_symbol();
    case 5: return read_block();
    case 6: return read_graph_declaration(graph::kind::root);
    case 7: return read_graph_declaration(graph::kind::loop);
    case 8: return read_graph_declaration(graph::kind::branch);
    case 9: return read_graph_declaration(graph::kind::helper);
    default: return read_config_line();
    }
  }

  [[noreturn]] void fail_unknown_directive(const char* begin, std::string_view word) {
    std::vector<std::string_view> words{"def"};
    for (const directive& d : directives) words.push_back(d.word);
    const std::string_view near = nearest_name(word, words);
    fail(begin, "unknown directive " + quoted(word) + (near.empty() ? std::string() : "; did you mean " + quoted(near) + "?"));
  }

  void check_order(const directive& d, int rank, const char* begin) {
    std::uint32_t& line = line_of_[static_cast<std::size_t>(&d - directives.data())];
    const bool once = d.word == "device_ir" || d.word == "kernel" || d.word == "config";
    if (once && line != 0) fail(begin, "'" + std::string(d.word) + "' is given twice; the first is on line " + std::to_string(line));
    if (d.rank < rank)
      fail(begin, "'" + std::string(d.word) + "' must come before '" +
                      std::string(std::ranges::find(directives, rank, &directive::rank)->word) + "'");
    if (d.rank > 1 && d_.kernel.empty()) fail(begin, "expected 'kernel NAME' before '" + std::string(d.word) + "'");
    line = line_;
  }

  template <class T> void check_count(const std::vector<T>& all, std::string_view what) {
    if (all.size() >= limits::declarations)
      fail(line_begin_, "more than " + std::to_string(limits::declarations) + " " + std::string(what));
  }

  void read_version() {
    const char* const begin = at_;
    if (expect_text("the format's version, 1") != "1")
      fail(begin, "unknown version " + quoted({begin, at_}) + " of the format: this is a reader of 'device_ir 1'");
  }

  void read_kernel() {
    const char* const begin = at_;
    d_.kernel = expect_name("the kernel's name, a Python identifier");
    if (is_reserved(d_.kernel)) fail(begin, quoted(d_.kernel) + " is a word of Python, not a kernel's name");
  }

  void read_setting() {
    constexpr std::array<std::string_view, 4> names = {"static_shapes", "index_dtype", "fast_math", "dot_precision"};
    const char* const begin = at_;
    const std::string_view name = expect_name("a setting's name");
    const auto* const found = std::ranges::find(names, name);
    if (found == names.end())
      fail(begin, "unknown setting " + quoted(name) + ": expected static_shapes, index_dtype, fast_math or dot_precision");
    const auto which = static_cast<unsigned>(found - names.begin());
    if ((settings_seen_ >> which & 1U) != 0) fail(begin, "setting " + quoted(name) + " is given twice");
    settings_seen_ |= 1U << which;
    expect_blank();
    switch (which) {
    case 0: d_.settings.static_shapes = expect_choice({"false", "true"}) == 1; break;
    case 1: d_.settings.index_dtype = expect_choice({"i32", "i64"}) == 1 ? dtype::i64 : dtype::i32; break;
    case 2: d_.settings.fast_math = expect_choice({"false", "true"}) == 1; break;
    default: d_.settings.dot_precision = static_cast<precision>(expect_choice({"tf32", "tf32x3", "ieee"})); break;
    }
  }

  std::size_t expect_choice(std::initializer_list<std::string_view> choices) {
    const std::string_view word = peek_name();
    const auto* const found = std::ranges::find(choices, word);
    if (found == choices.end()) {
      std::string what;
      for (std::size_t i = 0; i < choices.size(); ++i)
        what += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + std::string(choices.begin()[i]);
      fail_expecting(what);
    }
    at_ += word.size();
    return static_cast<std::size_t>(found - choices.begin());
  }

  void read_host_tensor() {
    check_count(d_.tensors, "host tensors");
    host_tensor t;
    t.line = line_;
    t.name = expect_text("the host tensor's name");
    expect_blank();
    t.element = expect_dtype();
    t.sizes = expect_sizes();
    expect_blank();
    expect_word("strides");
    expect_blank();
    const char* const strides_at = at_;
    t.strides = expect_sizes();
    if (t.strides.count != t.sizes.count)
      fail(strides_at, std::to_string(t.strides.count) + " strides for " + std::to_string(t.sizes.count) + " sizes");
    d_.tensors.push_back(t);
  }

  void read_symbol() {
    check_count(d_.declarations, "symbols");
    symbol_declaration s;
    s.line = line_;
    const char* const name_at = at_;
    const std::string_view name = expect_name("the symbol's name");
    if (is_reserved(name)) fail(name_at, quoted(name) + " is not a symbol's name");
    s.id = d_.symbols.intern(name);
    expect_blank();
    s.is_float = expect_choice({"int", "float"}) == 1;
    expect_blank();
    const std::string_view word = peek_name();
    const auto* const found = std::ranges::find(origins, word, &origin_word::word);
    if (found == origins.end()) fail_expecting("parameter, grid, tile_begin, tile_end, tile_id or tile_count");
    at_ += word.size();
    s.from = found->from;
    expect_blank();
    if (s.from == symbol_declaration::origin::parameter) read_parameter(s);
    else s.block = expect_id("a block's number");
    d_.declarations.push_back(s);
  }

  /// `EXPR [hint N]`, where EXPR is any text.
  void read_parameter(symbol_declaration& s) {
    constexpr std::string_view mark = " hint ";
    std::string_view text = rest();
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    if (const std::size_t hint = text.rfind(mark); hint != std::string_view::npos) {
      at_ = text.data() + hint + mark.size();
      s.hint = expect_hint();
      text = text.substr(0, hint);
    } else {
      at_ = text.data() + text.size();
    }
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    if (text.empty() || text.starts_with(mark.substr(1))) fail(text.data(), "expected the host's expression for the parameter");
    s.host_expression = text;
  }

  symbolic::number expect_hint() {
    const char* const begin = at_;
    const argument a = read_number();
    if (a.what == argument::kind::integer) return {true, a.integer, 0};
    if (a.what == argument::kind::real) return {false, 0, a.real};
    at_ = begin;
    fail_expecting("a number behind 'hint'");
  }

  void read_block() {
    check_count(d_.blocks, "blocks");
    block b;
    b.line = line_;
    b.id = expect_id("the block's number");
    expect_blank();
    b.variable = expect_expression();
    expect_blank();
    expect_word("size");
    expect_blank();
    b.size = expect_expression_or_none();
    expect_blank();
    b.is_reduction = expect_choice({"tile", "reduction"}) == 1;
    expect_blank();
    expect_word("block_size");
    expect_blank();
    b.block_size = expect_expression_or_none();
    skip_blanks();
    if (at_ != end_) {
      expect_word("jagged_parents");
      expect_blank();
      b.jagged_parents = expect_ids();
    }
    d_.blocks.push_back(std::move(b));
  }

  void read_graph_declaration(graph::kind what) {
    check_count(s_.declared, "graphs");
    graph_declaration g;
    g.line = line_;
    g.what = what;
    const char* const begin = at_;
    g.name = expect_name("a graph's name");
    if (std::ranges::find(s_.declared, g.name, &graph_declaration::name) != s_.declared.end())
      fail(begin, "graph " + quoted(g.name) + " is declared twice");
    if (what == graph::kind::root || what == graph::kind::loop) {
      expect_blank();
      expect_word("blocks");
      expect_blank();
      g.blocks = expect_ids();
    }
    if (what == graph::kind::root) {
      expect_blank();
      expect_word("phase");
      expect_blank();
      g.phase = expect_id("the phase's number");
    }
    s_.declared.push_back(std::move(g));
  }

  void read_config_line() {
    std::string_view json = rest();
    while (!json.empty() && is_blank(json.back())) json.remove_suffix(1);
    if (s_.reader == nullptr) s_.reader = make_config_reader();
    try {
      read_config(*s_.reader, json, d_.config);
    } catch (const config_fault& fault) {
      fail(json.data() + fault.offset, fault.message);
    }
    d_.config.text = json;
    at_ = end_;
  }

  // ---- Graphs ----

  void read_graph() {
    if (is_indented() || peek_name() != "def") fail_expecting("'def GRAPH(…):'");
    if (d_.graphs.size() >= limits::declarations) fail("more than " + std::to_string(limits::declarations) + " graphs");
    at_ += 3;
    expect_blank();
    graph g;
    g.line = line_;
    const char* const name_at = at_;
    g.name = expect_name("a graph's name");
    find_declaration(g, name_at);
    g.id = id_of(g.name, name_at);
    s_.names.clear();
    g.parameters = read_parameters();
    read_body(g);
    d_.graphs.push_back(std::move(g));
    source_ = 0;
  }

  void find_declaration(graph& g, const char* name_at) {
    const auto found = std::ranges::find(s_.declared, g.name, &graph_declaration::name);
    if (found == s_.declared.end()) fail(name_at, "graph " + quoted(g.name) + " has no root, loop, branch or helper line in the header");
    if (found->has_body) fail(name_at, "graph " + quoted(g.name) + " is defined twice");
    found->has_body = true;
    g.what = found->what;
    g.blocks = std::move(found->blocks);
    g.phase = found->phase;
    g.header_line = found->line;
  }

  std::int32_t id_of(std::string_view name, const char* name_at) const {
    std::size_t begin = name.size();
    while (begin > 0 && is(name[begin - 1], digit)) --begin;
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(name.data() + begin, name.data() + name.size(), id);
    if (error != std::errc()) fail(name_at, "a graph's name must end in its number, below 2147483648");
    return id;
  }

  /// `-> name`, which some versions of the exporter write behind a helper's parameters, says nothing that the graph does not.
  void skip_result_annotation() {
    skip_blanks();
    if (!accept('-')) return;
    expect('>');
    skip_blanks();
    (void)expect_name("the name of a result's type");
  }

  range read_parameters() {
    range parameters{static_cast<std::uint32_t>(d_.nodes.size()), 0};
    expect('(');
    skip_blanks();
    while (!accept(')')) {
      if (parameters.count != 0) {
        expect(',');
        skip_blanks();
      }
      const std::string_view name = expect_name("a parameter or ')'");
      node& n = begin_node(name, column_of(name.data()));
      n.is_parameter = true;
      if (accept(':')) {
        skip_blanks();
        n.type = expect_type();
      }
      define(n);
      ++parameters.count;
      skip_blanks();
    }
    skip_result_annotation();
    expect(':');
    expect_end_of_line();
    return parameters;
  }

  node& begin_node(std::string_view name, std::uint32_t column) {
    if (is_reserved(name)) fail(name.data(), quoted(name) + " is not a node's name");
    if (d_.nodes.size() >= limits::nodes) fail(name.data(), "more than " + std::to_string(limits::nodes) + " nodes");
    node& n = d_.nodes.emplace_back();
    n.name = name;
    n.line = line_;
    n.column = column;
    n.source = source_;
    return n;
  }

  /// From now on its name means this node.
  void define(const node& n) { s_.names.set(n.name, static_cast<std::uint32_t>(&n - d_.nodes.data())); }

  /// The column of a place, counted on from the last one that was asked for on this line.
  std::uint32_t column_of(const char* at) {
    if (column_from_ < line_begin_ || column_from_ > at) {
      column_from_ = line_begin_;
      column_ = 1;
    }
    for (; column_from_ != at; ++column_from_) column_ += static_cast<std::uint32_t>(!is_continuation(*column_from_));
    return column_;
  }

  void read_body(graph& g) {
    g.nodes.first = static_cast<std::uint32_t>(d_.nodes.size());
    while (next_line_of_substance()) {
      if (!is_indented()) fail("graph " + quoted(g.name) + " has no 'return': expected an indented statement");
      const std::string_view name = expect_name("a statement or 'return'");
      if (name == "return") {
        g.result = read_return();
        g.nodes.count = static_cast<std::uint32_t>(d_.nodes.size()) - g.nodes.first;
        return;
      }
      read_statement(name);
    }
    fail(end_, "graph " + quoted(g.name) + " has no 'return'");
  }

  argument read_return() {
    expect_blank();
    const argument result = read_argument(0);
    expect_end_of_line();
    return result;
  }

  void read_statement(std::string_view name) {
    // Nothing but blanks stands before it, so its column is its offset.
    node& n = begin_node(name, static_cast<std::uint32_t>(name.data() - line_begin_) + 1);
    if (accept(':')) {
      skip_blanks();
      n.type = expect_type();
    }
    skip_blanks();
    if (*at_ != '=') fail_expecting(n.type.what == type::kind::none ? "':' or '='" : "'='");
    ++at_;
    skip_blanks();
    read_value(n);
    if (at_ != end_) read_last_uses();
    define(n);
  }

  /// `;  x = y = None`: says where values are used last, which whoever needs it can see for himself.
  void read_last_uses() {
    skip_blanks();
    if (at_ == end_) return;
    if (*at_ != ';') fail_expecting("an operator, ';' or the end of the line");
    ++at_;
    std::string_view word;
    do {
      skip_blanks();
      word = expect_name("a name of which this is the last use");
      skip_blanks();
    } while (accept('='));
    if (word != "None") fail_expecting("'= None'");
    if (at_ != end_) fail_expecting("the end of the line");
  }

  // ---- The right side of a statement ----

  void read_value(node& n) {
    if (is(*at_, name_start)) {
      const char* const stop = end_of_name<true>(at_);
      const std::string_view word(at_, stop);
      if (*stop == '(' && word != "slice" && word != "device") return read_call(n, word);
      if (*stop == '[') return read_item(n, word);
      if (word == "not" && is_blank(*stop)) return read_unary(n, word.size(), not_target);
    } else if (*at_ == '-' && !is(at_[1], digit) && at_[1] != '.' && !at_negative_word()) {
      return read_unary(n, 1, negation_target);
    }
    read_operation(n);
  }

  /// `-inf` and `-nan`
  [[nodiscard]] bool at_negative_word() const {
    const std::string_view word(at_ + 1, std::min<const char*>(at_ + 4, end_));
    return (word == "inf" || word == "nan") && !is(at_[4], name_part);
  }

  void read_call(node& n, std::string_view target) {
    n.target = target;
    at_ += target.size() + 1;
    const std::size_t base = s_.stack.size();
    n.keywords.first = static_cast<std::uint32_t>(d_.keywords.size());
    skip_blanks();
    while (!accept(')')) {
      if (s_.stack.size() != base || n.keywords.count != 0) {
        expect_comma_or(')');
        if (accept(')')) break;
      }
      read_call_argument(n);
      skip_blanks();
    }
    n.arguments = take_from_stack(base);
  }

  /// A comma and the blanks behind it; `close` may follow it, as in Python.
  void expect_comma_or(char close) {
    if (*at_ != ',') fail_expecting(std::string("',' or '") + close + "'");
    ++at_;
    skip_blanks();
  }

  void read_call_argument(node& n) {
    if (is(*at_, name_start)) {
      const std::string_view word = peek_name();
      const char* stop = word.data() + word.size();
      while (is_blank(*stop)) ++stop;
      if (*stop == '=' && stop[1] != '=') return read_keyword(n, word, stop + 1);
      if (n.keywords.count == 0) return s_.stack.push_back(read_word(word, 0));
    }
    if (n.keywords.count != 0) fail("expected 'name = value' behind another");
    s_.stack.push_back(read_argument(0));
  }

  void read_keyword(node& n, std::string_view name, const char* value_at) {
    for (const keyword& k : std::span(d_.keywords).subspan(n.keywords.first))
      if (k.name == name) fail("the keyword " + quoted(name) + " is given twice");
    if (n.keywords.count >= limits::keywords) fail("more than " + std::to_string(limits::keywords) + " keywords");
    at_ = value_at;
    skip_blanks();
    const argument value = read_argument(0);
    d_.keywords.push_back({name, value});
    ++n.keywords.count;
  }

  void read_item(node& n, std::string_view word) {
    n.target = getitem_target;
    const std::size_t base = s_.stack.size();
    s_.stack.push_back(resolve(word));
    at_ += word.size() + 1;
    skip_blanks();
    const char* const index_at = at_;
    const argument item = read_number();
    if (item.what != argument::kind::integer) {
      at_ = index_at;
      fail_expecting("an integer");
    }
    s_.stack.push_back(item);
    skip_blanks();
    expect(']');
    n.arguments = take_from_stack(base);
  }

  void read_unary(node& n, std::size_t size, std::string_view target) {
    at_ += size;
    skip_blanks();
    n.target = target;
    const std::size_t base = s_.stack.size();
    s_.stack.push_back(read_argument(0));
    n.arguments = take_from_stack(base);
  }

  /// A value by itself, or two with an operator between them.
  void read_operation(node& n) {
    const std::size_t base = s_.stack.size();
    s_.stack.push_back(read_argument(0));
    skip_blanks();
    n.target = identity_target;
    if (const std::string_view target = accept_operator(); !target.empty()) {
      n.target = target;
      skip_blanks();
      s_.stack.push_back(read_argument(0));
    }
    n.arguments = take_from_stack(base);
  }

  std::string_view accept_operator() {
    if (at_ == end_ || *at_ == ';') return {};
    const std::string_view text = rest();
    for (const std::string_view word : {"and ", "or "})
      if (text.starts_with(word)) {
        at_ += word.size();
        return word == "or " ? "operator.or_" : "operator.and_";
      }
    for (const python_operator& o : python_operators) {
      if (!text.starts_with(o.spelling)) continue;
      at_ += o.spelling.size();
      return o.target;
    }
    fail_expecting("an operator, ';' or the end of the line");
  }

  // ---- Arguments ----

  range take_from_stack(std::size_t base) {
    const range taken{static_cast<std::uint32_t>(d_.arguments.size()), static_cast<std::uint32_t>(s_.stack.size() - base)};
    if (d_.arguments.size() + taken.count > limits::arguments) fail("more than " + std::to_string(limits::arguments) + " arguments");
    d_.arguments.insert(d_.arguments.end(), s_.stack.data() + base, s_.stack.data() + s_.stack.size());
    s_.stack.resize(base);
    return taken;
  }

  argument read_argument(std::size_t depth) {
    const char c = *at_;
    if (is(c, name_start)) return read_word(peek_name(), depth);
    if (c == '[') return read_items(argument::kind::list, ']', depth);
    if (c == '(') return read_items(argument::kind::tuple, ')', depth);
    if (c == '\'' || c == '"') return read_string();
    if (is(c, digit) || c == '-' || c == '.') return read_number();
    if (c == '<') return read_function();
    fail_expecting("an argument");
  }

  argument read_items(argument::kind what, char close, std::size_t depth) {
    if (depth >= limits::argument_depth) fail("arguments nest deeper than " + std::to_string(limits::argument_depth) + " levels");
    ++at_;
    const std::size_t base = s_.stack.size();
    bool has_comma = false;
    skip_blanks();
    while (!accept(close)) {
      if (s_.stack.size() != base) {
        expect_comma_or(close);
        has_comma = true;
        if (accept(close)) break;
      }
      s_.stack.push_back(read_argument(depth + 1));
      skip_blanks();
    }
    if (what == argument::kind::tuple && s_.stack.size() == base + 1 && !has_comma) {
      const argument inner = s_.stack.back(); // parentheses around a value
      s_.stack.pop_back();
      return inner;
    }
    argument a;
    a.what = what;
    a.items = take_from_stack(base);
    return a;
  }

  argument read_word(std::string_view word, std::size_t depth) {
    argument a;
    switch (word.front()) {
    case 'N':
      if (word != "None") break;
      at_ += 4;
      return a;
    case 'T':
    case 'F':
      if (word != "True" && word != "False") break;
      at_ += word.size();
      a.what = argument::kind::boolean;
      a.boolean = word == "True";
      return a;
    case 'i':
    case 'n':
      if (word == "inf" || word == "nan") return read_number();
      break;
    case 's':
      if (word == "slice" && at_[5] == '(') return read_slice(depth);
      break;
    case 't':
      if (word == "torch" && at_[5] == '.') return read_torch_constant();
      break;
    case 'd':
      if (word == "device" && at_[6] == '(') return read_device();
      break;
    default: break;
    }
    a = resolve(word);
    at_ += word.size();
    return a;
  }

  argument resolve(std::string_view name) {
    argument a;
    a.what = argument::kind::node;
    const std::uint32_t found = s_.names.find(name);
    if (found == text_index<true>::absent) fail_undefined(name);
    a.node = static_cast<node_id>(found);
    return a;
  }

  [[noreturn]] void fail_undefined(std::string_view name) const {
    constexpr std::size_t most = 256; // nearest_name is quadratic in a name's length
    std::vector<std::string_view> names;
    for (auto n = d_.nodes.rbegin(); n != d_.nodes.rend() && names.size() < most; ++n)
      if (s_.names.find(n->name) != text_index<true>::absent) names.push_back(n->name);
    const std::string_view near = nearest_name(name, names);
    fail(name.data(),
         "the name " + quoted(name) + " is not defined" + (near.empty() ? std::string() : "; did you mean " + quoted(near) + "?"));
  }

  argument read_slice(std::size_t depth) {
    if (depth >= limits::argument_depth) fail("arguments nest deeper than " + std::to_string(limits::argument_depth) + " levels");
    const char* const begin = at_;
    at_ += 6;
    const std::size_t base = s_.stack.size();
    skip_blanks();
    for (int i = 0; i < 3; ++i) {
      if (i != 0) {
        if (*at_ == ')') fail(begin, "a slice has three parts: slice(start, stop, step)");
        expect(',');
        skip_blanks();
      }
      s_.stack.push_back(read_argument(depth + 1));
      skip_blanks();
    }
    if (*at_ == ',') fail(begin, "a slice has three parts: slice(start, stop, step)");
    expect(')');
    argument a;
    a.what = argument::kind::slice;
    a.items = take_from_stack(base);
    return a;
  }

  argument read_torch_constant() {
    const char* const begin = at_;
    at_ += 6;
    const std::string_view word = expect_name("a data type or 'strided' behind 'torch.'");
    argument a;
    if (const auto d = dtype_torch_named(word)) {
      a.what = argument::kind::dtype;
      a.element = *d;
    } else if (const auto l = layout_torch_named(word)) {
      a.what = argument::kind::layout;
      a.memory_layout = *l;
    } else {
      fail(begin, "unknown constant " + quoted({begin, at_}) + ": expected a data type as 'torch.float32', or 'torch.strided'");
    }
    return a;
  }

  /// `<function NAME at 0x7f00>`, as Python writes one; of a dotted name the last part, the address may be left out.
  argument read_function() {
    ++at_;
    expect_word("function");
    skip_blanks();
    argument a;
    a.what = argument::kind::function;
    do {
      if (accept('<')) { // `outer.<locals>.inner`
        expect_word("locals");
        expect('>');
      } else {
        a.text = expect_name("the function's name");
      }
    } while (accept('.'));
    if (a.text.empty()) fail_expecting("the function's name");
    skip_blanks();
    if (*at_ != '>') {
      expect_word("at");
      skip_blanks();
      if (at_[0] != '0' || at_[1] != 'x') fail_expecting("the function's address");
      for (at_ += 2; is(*at_, name_part); ++at_) {
      }
    }
    expect('>');
    return a;
  }

  /// `device(type='cuda', index=0)`, the index may be left out.
  argument read_device() {
    at_ += 7;
    skip_blanks();
    argument a;
    a.what = argument::kind::device;
    a.integer = -1;
    expect_device_key("type");
    if (*at_ != '\'' && *at_ != '"') fail_expecting("the device's type in quotes");
    a.text = read_string().text;
    skip_blanks();
    if (accept(',')) {
      skip_blanks();
      expect_device_key("index");
      a.integer = expect_id("the device's index");
      skip_blanks();
    }
    expect(')');
    return a;
  }

  void expect_device_key(std::string_view key) {
    expect_word(key);
    skip_blanks();
    expect('=');
    skip_blanks();
  }

  argument read_number() {
    const char* const begin = at_;
    const bool negative = accept('-');
    argument a;
    if (*at_ == 'i' || *at_ == 'n') {
      const std::string_view word = peek_name();
      if (word != "inf" && word != "nan") fail_expecting("a number");
      a.what = argument::kind::real;
      a.real = word == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
      if (negative && word == "inf") a.real = -a.real;
      at_ += 3;
      return a;
    }
    const char* const digits = at_;
    while (is(*at_, digit)) ++at_;
    if (*at_ == '.' || ((*at_ == 'e' || *at_ == 'E') && at_ != digits)) return read_real(begin);
    if (at_ == digits) fail_expecting("a number");
    if (is(*at_, name_part)) fail(begin, "malformed number");
    if (*digits == '0' && at_ - digits > 1) fail(begin, "an integer does not start with 0");
    a.what = argument::kind::integer;
    const auto [stop, error] = std::from_chars(begin, at_, a.integer);
    if (error != std::errc()) fail(begin, "an integer must fit 64 bits");
    return a;
  }

  argument read_real(const char* begin) {
    argument a;
    a.what = argument::kind::real;
    const auto [stop, error] = std::from_chars(begin, end_, a.real);
    if (error == std::errc::result_out_of_range) fail(begin, "a number beyond the range of f64");
    if (error != std::errc() || is(*stop, dotted_part)) fail(begin, "malformed number");
    at_ = stop;
    return a;
  }

  // ---- Strings ----

  argument read_string() {
    const char* const open = at_;
    const char quote = *at_++;
    argument a;
    a.what = argument::kind::string;
    for (const char* stop = at_;; ++stop) {
      if (stop == end_) fail(open, "the string's closing quote is missing");
      if (*stop == '\\') return read_escaped_string(open);
      if (static_cast<unsigned char>(*stop) < 0x20 || *stop == 0x7F) fail(stop, "a control character in a string");
      if (*stop != quote) continue;
      a.text = {at_, stop};
      at_ = stop + 1;
      return a;
    }
  }

  argument read_escaped_string(const char* open) {
    argument a;
    a.what = argument::kind::string;
    s_.unescaped.clear();
    while (true) {
      if (at_ == end_) fail(open, "the string's closing quote is missing");
      const char c = *at_;
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) fail("a control character in a string");
      ++at_;
      if (c == *open) break;
      if (c == '\\') read_escape();
      else s_.unescaped += c;
    }
    a.text = d_.keep(s_.unescaped);
    return a;
  }

  void read_escape() {
    constexpr std::string_view letters = "ntr\\'\"abfv0";
    constexpr std::string_view meanings = {"\n\t\r\\'\"\a\b\f\v\0", 11};
    const char* const begin = at_ - 1;
    if (at_ == end_) fail(begin, "an escape without a letter");
    const char c = *at_++;
    if (const std::size_t found = letters.find(c); found != std::string_view::npos) {
      if (c == '0' && is(*at_, digit)) fail(begin, "octal escapes are not read: write \\x");
      s_.unescaped += meanings[found];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_utf8(read_code_point(begin, c == 'x' ? 2 : c == 'u' ? 4 : 8), s_.unescaped);
    } else {
      fail(begin, "unknown escape in a string: expected one of \\n \\t \\r \\\\ \\' \\\" \\a \\b \\f \\v \\0 \\x \\u \\U");
    }
  }

  char32_t read_code_point(const char* begin, int digits) {
    std::uint32_t value = 0;
    const char* const stop = at_ + std::min<std::ptrdiff_t>(digits, end_ - at_);
    const auto [read, error] = std::from_chars(at_, stop, value, 16);
    if (error != std::errc() || read != at_ + digits)
      fail(begin, "expected " + std::to_string(digits) + " hexadecimal digits in the escape");
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail(begin, "the escape is not a Unicode character");
    at_ = read;
    return value;
  }

  document& d_;
  parser::storage& s_;
  const char* at_ = nullptr;
  const char* end_ = nullptr;        ///< of the current line, its terminator excluded
  const char* line_begin_ = nullptr;
  const char* next_begin_ = nullptr; ///< of the next line; null behind the last
  const char* text_end_ = nullptr;
  std::uint32_t line_ = 0;
  std::uint32_t source_ = 0; ///< of the nodes to come
  std::array<std::uint32_t, directives.size()> line_of_{}; ///< of each directive's last line
  const char* column_from_ = nullptr; ///< a place and its column
  std::uint32_t column_ = 1;
  unsigned settings_seen_ = 0;
  std::string_view usage_; ///< of the directive being read
};

} // namespace

void parse_into(document& into, std::string_view text, std::string_view file) {
  into.clear();
  try {
    reader(into, file).read(text);
  } catch (...) {
    into.clear();
    throw;
  }
}

document parse(std::string_view text, std::string_view file) {
  document d;
  parse_into(d, text, file);
  return d;
}

} // namespace muster::device_ir
