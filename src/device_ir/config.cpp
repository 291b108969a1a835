module;
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <simdjson.h>
module muster.device_ir;

#include "storage.hpp"

namespace muster::device_ir {

namespace json = simdjson::ondemand;

struct config_reader {
  json::parser parser;
};

void config_reader_deleter::operator()(config_reader* reader) const noexcept { delete reader; }
config_reader_owner make_config_reader() { return config_reader_owner(new config_reader); }
std::size_t config_padding() noexcept { return simdjson::SIMDJSON_PADDING; }

bool is_valid_utf8(std::string_view text) noexcept { return simdjson::validate_utf8(text.data(), text.size()); }

std::size_t first_invalid_utf8(std::string_view text) noexcept {
  // A prefix of valid text is valid but for a cut last character, so the shortest invalid prefix ends 1 to 4 bytes behind the fault.
  std::size_t good = 0;
  while (good < text.size()) {
    const auto first = static_cast<unsigned char>(text[good]);
    const std::size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (size > text.size() - good || (size > 1 && !is_valid_utf8(text.substr(good, size)))) break;
    good += size;
  }
  return good;
}

namespace {

constexpr std::array<std::string_view, 4> pid_type_words = {"flat", "xyz", "persistent_blocked", "persistent_interleaved"};
constexpr std::array<std::string_view, 3> indexing_words = {"pointer", "block_ptr", "tensor_descriptor"};
constexpr std::array<std::string_view, 3> eviction_words = {"", "first", "last"};

constexpr std::size_t maximum_nesting = 32;
constexpr std::size_t maximum_entries = 4096; ///< of a list

/// Reads one JSON object into a config. simdjson gives the tokens and their places; the meaning of each key is a row of `keys`.
class reader {
public:
  reader(config_reader& with, std::string_view text, config& into) : with_(with), text_(text), into_(into) {}

  void read() {
    const simdjson::padded_string_view padded(text_.data(), text_.size(), text_.size() + simdjson::SIMDJSON_PADDING);
    json::document document;
    check(with_.parser.iterate(padded).get(document), 0);
    json::object object;
    if (document.get_object().get(object) != simdjson::SUCCESS) fail(0, "expected a JSON object: {\"KEY\": VALUE, …}");
    for (auto field : object) {
      json::field f;
      check_here(std::move(field).get(f), document);
      read_field(f);
    }
    const char* behind = nullptr;
    if (document.current_location().get(behind) == simdjson::SUCCESS) fail(offset_of(behind), "expected the end behind the JSON object");
  }

private:
  using handler = void (reader::*)(json::value);
  struct key {
    std::string_view name;
    handler read;
  };

  void read_field(json::field& f) {
    const char* const key_at = f.key().raw();
    const std::size_t offset = offset_of(key_at) - 1; // the quote
    std::string_view name;
    check(f.unescaped_key().get(name), offset);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i].name != name) continue;
      if ((seen_ >> i & 1U) != 0) fail(offset, "the key '" + std::string(name) + "' is given twice");
      seen_ |= 1U << i;
      key_ = name;
      (this->*keys[i].read)(f.value());
      return;
    }
    keep_other(std::string(name), f.value(), offset);
  }

  // ---- What the keys mean ----

  void read_block_sizes(json::value v) { read_integers(v, into_.block_sizes, 1); }
  void read_loop_orders(json::value v) {
    into_.loop_orders.clear();
    for_each(v, "a list of lists", [this](json::value row) {
      std::vector<std::int32_t> order;
      const std::size_t row_at = place(row);
      for_each(row, "a list of block positions",
               [&](json::value item) { order.push_back(static_cast<std::int32_t>(integer(item, 0, maximum_entries))); });
      if (!is_permutation(order)) fail(row_at, "'loop_orders' must hold permutations of 0, 1, …");
      into_.loop_orders.push_back(std::move(order));
    });
  }
  void read_l2_groupings(json::value v) { read_integers(v, into_.l2_groupings, 1); }
  void read_flatten_loops(json::value v) { read_booleans(v, into_.flatten_loops); }
  void read_reduction_loops(json::value v) {
    into_.reduction_loops.clear();
    for_each(v, "a list of integers and nulls", [this](json::value item) { into_.reduction_loops.push_back(optional_integer(item)); });
  }
  void read_pid_type(json::value v) { into_.pid_type = static_cast<pid_type>(choice(v, pid_type_words)); }
  void read_num_sm_multiplier(json::value v) { into_.num_sm_multiplier = optional_integer(v); }
  void read_indexing(json::value v) { read_indexing_into(v, into_.indexing); }
  void read_atomic_indexing(json::value v) { read_indexing_into(v, into_.atomic_indexing); }
  void read_load_eviction_policies(json::value v) {
    into_.load_eviction_policies.clear();
    for_each(v, "a list of strings",
             [this](json::value item) { into_.load_eviction_policies.push_back(static_cast<eviction>(choice(item, eviction_words))); });
  }
  void read_range_unroll_factors(json::value v) { read_integers(v, into_.range_unroll_factors, 0); }
  void read_range_num_stages(json::value v) { read_integers(v, into_.range_num_stages, 0); }
  void read_range_multi_buffers(json::value v) { read_optional_booleans(v, into_.range_multi_buffers); }
  void read_range_flattens(json::value v) { read_optional_booleans(v, into_.range_flattens); }
  void read_range_warp_specializes(json::value v) { read_optional_booleans(v, into_.range_warp_specializes); }
  void read_static_ranges(json::value v) { read_booleans(v, into_.static_ranges); }
  void read_num_warps(json::value v) { into_.num_warps = optional_integer(v); }
  void read_num_stages(json::value v) { into_.num_stages = optional_integer(v); }
  void read_num_ctas(json::value v) { into_.num_ctas = optional_integer(v); }
  void read_occupancy(json::value v) { into_.occupancy = optional_integer(v); }
  void read_maxnreg(json::value v) { into_.maxnreg = optional_integer(v); }

  static constexpr std::array<key, 21> keys = {{
      {"block_sizes", &reader::read_block_sizes},
      {"loop_orders", &reader::read_loop_orders},
      {"l2_groupings", &reader::read_l2_groupings},
      {"flatten_loops", &reader::read_flatten_loops},
      {"reduction_loops", &reader::read_reduction_loops},
      {"pid_type", &reader::read_pid_type},
      {"num_sm_multiplier", &reader::read_num_sm_multiplier},
      {"indexing", &reader::read_indexing},
      {"atomic_indexing", &reader::read_atomic_indexing},
      {"load_eviction_policies", &reader::read_load_eviction_policies},
      {"range_unroll_factors", &reader::read_range_unroll_factors},
      {"range_num_stages", &reader::read_range_num_stages},
      {"range_multi_buffers", &reader::read_range_multi_buffers},
      {"range_flattens", &reader::read_range_flattens},
      {"range_warp_specializes", &reader::read_range_warp_specializes},
      {"static_ranges", &reader::read_static_ranges},
      {"num_warps", &reader::read_num_warps},
      {"num_stages", &reader::read_num_stages},
      {"num_ctas", &reader::read_num_ctas},
      {"occupancy", &reader::read_occupancy},
      {"maxnreg", &reader::read_maxnreg},
  }};

  // ---- Values ----

  template <class F> void for_each(json::value v, std::string_view what, F&& f) {
    const std::size_t at = place(v);
    json::array array;
    if (v.get_array().get(array) != simdjson::SUCCESS) fail_expecting(at, what);
    std::size_t count = 0;
    for (auto item : array) {
      json::value value;
      check(std::move(item).get(value), at);
      if (++count > maximum_entries) fail(at, "'" + std::string(key_) + "' has more than " + std::to_string(maximum_entries) + " entries");
      f(value);
    }
  }

  void read_integers(json::value v, std::vector<std::int64_t>& into, std::int64_t least) {
    into.clear();
    for_each(v, "a list of integers", [&](json::value item) { into.push_back(integer(item, least)); });
  }

  void read_booleans(json::value v, std::vector<bool>& into) {
    into.clear();
    for_each(v, "a list of true and false", [&](json::value item) { into.push_back(boolean(item, "true or false")); });
  }

  void read_optional_booleans(json::value v, std::vector<std::optional<bool>>& into) {
    into.clear();
    for_each(v, "a list of true, false and null",
             [&](json::value item) { into.push_back(is_null(item) ? std::nullopt : std::optional(boolean(item, "true, false or null"))); });
  }

  void read_indexing_into(json::value v, std::vector<indexing>& into) {
    into.clear();
    if (type_of(v) == json::json_type::string) {
      into.push_back(static_cast<indexing>(choice(v, indexing_words)));
      return;
    }
    for_each(v, "a string or a list of strings",
             [&](json::value item) { into.push_back(static_cast<indexing>(choice(item, indexing_words))); });
  }

  std::int64_t integer(json::value v, std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    const std::size_t at = place(v);
    std::int64_t value = 0;
    if (v.get_int64().get(value) != simdjson::SUCCESS) fail_expecting(at, "an integer of 64 bits");
    if (value < least || value > most) fail_expecting(at, least == 1 ? "a positive integer" : "an integer that is not negative");
    return value;
  }

  std::optional<std::int64_t> optional_integer(json::value v) {
    if (is_null(v)) return std::nullopt;
    return integer(v, 1);
  }

  bool boolean(json::value v, std::string_view what) {
    const std::size_t at = place(v);
    bool value = false;
    if (v.get_bool().get(value) != simdjson::SUCCESS) fail_expecting(at, what);
    return value;
  }

  std::size_t choice(json::value v, std::span<const std::string_view> names) {
    const std::size_t at = place(v);
    std::string_view value;
    const bool is_string = v.get_string().get(value) == simdjson::SUCCESS;
    const auto found = std::ranges::find(names, value);
    if (is_string && found != names.end()) return static_cast<std::size_t>(found - names.begin());
    std::string what = "one of";
    for (const std::string_view name : names) what += (name == names.front() ? " \"" : ", \"") + std::string(name) + "\"";
    fail_expecting(at, what);
  }

  bool is_null(json::value& v) {
    bool null = false;
    return v.is_null().get(null) == simdjson::SUCCESS && null;
  }

  json::json_type type_of(json::value& v) {
    json::json_type type{};
    check(v.type().get(type), place(v));
    return type;
  }

  static bool is_permutation(const std::vector<std::int32_t>& order) {
    std::vector<bool> seen(order.size());
    for (const std::int32_t i : order) {
      if (static_cast<std::size_t>(i) >= order.size() || seen[static_cast<std::size_t>(i)]) return false;
      seen[static_cast<std::size_t>(i)] = true;
    }
    return true;
  }

  // ---- Keys of the kernel's own ----

  void keep_other(std::string name, json::value v, std::size_t key_at) {
    const std::size_t begin = place(v);
    key_ = name;
    walk(v, 0);
    std::size_t end = begin;
    // The walk has stopped at the token behind the value.
    end = walked_to_;
    while (end > begin && (text_[end - 1] == ' ' || text_[end - 1] == '\t' || text_[end - 1] == '\n' || text_[end - 1] == '\r')) --end;
    std::string value(text_.substr(begin, end - begin));
    const auto same = std::ranges::find(into_.others, name, &std::pair<std::string, std::string>::first);
    if (same == into_.others.end()) {
      if (into_.others.size() >= maximum_entries) fail(key_at, "more than " + std::to_string(maximum_entries) + " keys");
      into_.others.emplace_back(std::move(name), std::move(value));
      new_others_.push_back(into_.others.size() - 1);
      return;
    }
    const auto index = static_cast<std::size_t>(same - into_.others.begin());
    if (std::ranges::find(new_others_, index) != new_others_.end()) fail(key_at, "the key '" + name + "' is given twice");
    same->second = std::move(value);
    new_others_.push_back(index);
  }

  /// Reads a value of any kind through, which is what validates it, and remembers where it ends.
  void walk(json::value v, std::size_t depth) {
    const std::size_t at = place(v);
    if (depth > maximum_nesting) fail(at, "the value of '" + std::string(key_) + "' nests too deep");
    switch (type_of(v)) {
    case json::json_type::array: {
      json::array array;
      check(v.get_array().get(array), at);
      for (auto item : array) {
        json::value inner;
        check(std::move(item).get(inner), at);
        walk(inner, depth + 1);
      }
      break;
    }
    case json::json_type::object: {
      json::object object;
      check(v.get_object().get(object), at);
      for (auto field : object) {
        json::field f;
        check(std::move(field).get(f), at);
        std::string_view name;
        check(f.unescaped_key().get(name), at);
        walk(f.value(), depth + 1);
      }
      break;
    }
    case json::json_type::string: {
      std::string_view value;
      check(v.get_string().get(value), at);
      break;
    }
    case json::json_type::number: {
      double value = 0;
      check(v.get_double().get(value), at);
      break;
    }
    case json::json_type::boolean: boolean(v, "true or false"); break;
    default:
      if (!is_null(v)) fail(at, "malformed JSON value");
    }
    const char* next = nullptr;
    walked_to_ = v.current_location().get(next) == simdjson::SUCCESS ? offset_of(next) : text_.size();
  }

  // ---- Faults ----

  [[nodiscard]] std::size_t offset_of(const char* at) const { return std::min(static_cast<std::size_t>(at - text_.data()), text_.size()); }
  std::size_t place(json::value& v) const {
    const char* at = nullptr;
    if (v.current_location().get(at) != simdjson::SUCCESS) return text_.size();
    return offset_of(at);
  }

  [[noreturn]] static void fail(std::size_t offset, std::string message) { throw config_fault{offset, std::move(message)}; }
  [[noreturn]] void fail_expecting(std::size_t offset, std::string_view what) const {
    fail(offset, "'" + std::string(key_) + "' expects " + std::string(what));
  }
  static void check(simdjson::error_code error, std::size_t offset) {
    if (error != simdjson::SUCCESS) fail(offset, std::string("malformed JSON: ") + simdjson::error_message(error));
  }
  void check_here(simdjson::error_code error, json::document& document) const {
    if (error == simdjson::SUCCESS) return;
    const char* at = nullptr;
    check(error, document.current_location().get(at) == simdjson::SUCCESS ? offset_of(at) : text_.size());
  }

  config_reader& with_;
  std::string_view text_;
  config& into_;
  std::string_view key_;
  std::uint32_t seen_ = 0;
  std::vector<std::size_t> new_others_;
  std::size_t walked_to_ = 0;
};

} // namespace

void read_config(config_reader& with, std::string_view json, config& into) { reader(with, json, into).read(); }

config parse_config(std::string_view json, const config& base, std::string_view file, std::size_t line, std::size_t column) {
  std::string padded(json);
  padded.resize(json.size() + config_padding());
  const config_reader_owner with = make_config_reader();
  config read = base;
  try {
    read_config(*with, std::string_view(padded).substr(0, json.size()), read);
  } catch (const config_fault& fault) {
    const std::string_view before = json.substr(0, fault.offset);
    const std::size_t line_begin = before.rfind('\n') + 1; // npos + 1 is 0
    const std::string_view shown = json.substr(line_begin, json.find('\n', line_begin) - line_begin);
    const auto characters = static_cast<std::size_t>(
        std::ranges::count_if(before.substr(line_begin), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    const auto lines = static_cast<std::size_t>(std::ranges::count(before, '\n'));
    throw DeviceIRError(file, line + lines, characters + (lines == 0 ? column : 1), shown, fault.message);
  }
  read.text = json;
  return read;
}

namespace {

/// Writes a config's fields; the order of keys is Helion's.
class config_writer {
public:
  explicit config_writer(std::string& out) : out_(out) {}

  void write(const config& c) {
    out_ += '{';
    list("block_sizes", c.block_sizes);
    list("loop_orders", c.loop_orders);
    list("l2_groupings", c.l2_groupings);
    list("flatten_loops", c.flatten_loops);
    list("reduction_loops", c.reduction_loops);
    list("range_unroll_factors", c.range_unroll_factors);
    list("range_warp_specializes", c.range_warp_specializes);
    list("range_num_stages", c.range_num_stages);
    list("range_multi_buffers", c.range_multi_buffers);
    list("range_flattens", c.range_flattens);
    list("static_ranges", c.static_ranges);
    list("load_eviction_policies", c.load_eviction_policies);
    field("num_warps", c.num_warps);
    field("num_stages", c.num_stages);
    field("num_ctas", c.num_ctas);
    field("occupancy", c.occupancy);
    list("indexing", c.indexing);
    list("atomic_indexing", c.atomic_indexing);
    if (c.pid_type != pid_type::flat) value(key("pid_type"), c.pid_type);
    field("num_sm_multiplier", c.num_sm_multiplier);
    field("maxnreg", c.maxnreg);
    for (const auto& [name, json] : c.others) {
      key(name);
      out_ += json;
    }
    out_ += '}';
  }

private:
  struct written {};

  written key(std::string_view name) {
    if (out_.back() != '{') out_ += ", ";
    string(name);
    out_ += ": ";
    return {};
  }

  template <class T> void field(std::string_view name, const std::optional<T>& v) {
    if (v) value(key(name), *v);
  }
  template <class T> void list(std::string_view name, const std::vector<T>& all) {
    if (!all.empty()) value(key(name), all);
  }

  template <class T> void value(written, const std::vector<T>& all) {
    out_ += '[';
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i != 0) out_ += ", ";
      value({}, static_cast<T>(all[i]));
    }
    out_ += ']';
  }
  template <class T> void value(written, const std::optional<T>& v) {
    if (v) value({}, *v);
    else out_ += "null";
  }
  void value(written, bool v) { out_ += v ? "true" : "false"; }
  void value(written, std::int64_t v) { out_ += std::to_string(v); }
  void value(written, std::int32_t v) { out_ += std::to_string(v); }
  void value(written, pid_type v) { string(pid_type_words[static_cast<std::size_t>(v)]); }
  void value(written, indexing v) { string(indexing_words[static_cast<std::size_t>(v)]); }
  void value(written, eviction v) { string(eviction_words[static_cast<std::size_t>(v)]); }

  void string(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    out_ += '"';
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') (out_ += '\\') += c;
      else if (byte < 0x20) ((out_ += "\\u00") += digits[byte >> 4U]) += digits[byte & 0xFU];
      else out_ += c;
    }
    out_ += '"';
  }

  std::string& out_;
};

} // namespace

void print(const config& c, std::string& out) { config_writer(out).write(c); }

} // namespace muster::device_ir
