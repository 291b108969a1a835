module;
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.launch;

import muster.error;

namespace muster {

namespace {

// ---- devices ----

struct device_name {
  device_type type;
  std::string_view name;
};

/// The first name of a type is the one that is written.
// clang-format off
constexpr std::array device_names{
  device_name{.type = device_type::cpu,          .name = "cpu"},
  device_name{.type = device_type::cuda,         .name = "cuda"},
  device_name{.type = device_type::cuda_host,    .name = "cuda_host"},
  device_name{.type = device_type::opencl,       .name = "opencl"},
  device_name{.type = device_type::vulkan,       .name = "vulkan"},
  device_name{.type = device_type::metal,        .name = "metal"},
  device_name{.type = device_type::metal,        .name = "mps"},
  device_name{.type = device_type::vpi,          .name = "vpi"},
  device_name{.type = device_type::rocm,         .name = "rocm"},
  device_name{.type = device_type::rocm,         .name = "hip"},
  device_name{.type = device_type::rocm_host,    .name = "rocm_host"},
  device_name{.type = device_type::ext_dev,      .name = "ext_dev"},
  device_name{.type = device_type::cuda_managed, .name = "cuda_managed"},
  device_name{.type = device_type::oneapi,       .name = "oneapi"},
  device_name{.type = device_type::oneapi,       .name = "xpu"},
  device_name{.type = device_type::webgpu,       .name = "webgpu"},
  device_name{.type = device_type::hexagon,      .name = "hexagon"},
  device_name{.type = device_type::maia,         .name = "maia"},
  device_name{.type = device_type::trn,          .name = "trn"},
  device_name{.type = device_type::meta,         .name = "meta"},
  device_name{.type = device_type::tpu,          .name = "tpu"},
  device_name{.type = device_type::npu,          .name = "npu"},
  device_name{.type = device_type::privateuseone, .name = "privateuseone"},
};
// clang-format on

constexpr std::string_view unnamed_type = "device type ";

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_but_for_case(std::string_view a, std::string_view b) { return std::ranges::equal(a, b, {}, lower, lower); }

/// The whole of `text` as a number.
std::optional<std::int32_t> parse_number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<device_type> parse_device_type(std::string_view text) {
  for (const device_name& named : device_names)
    if (equal_but_for_case(text, named.name)) return named.type;
  if (text.size() <= unnamed_type.size() || !equal_but_for_case(text.substr(0, unnamed_type.size()), unnamed_type)) return std::nullopt;
  const std::optional<std::int32_t> number = parse_number(text.substr(unnamed_type.size()));
  return number ? std::optional(static_cast<device_type>(*number)) : std::nullopt;
}

// ---- the search ----

struct frame {
  const argument* container;
  std::uint32_t next; // the item to go on with
};

/// The containers that the search is in, outermost first. Those of the first levels lie in the object itself.
class frame_stack {
public:
  frame_stack() noexcept = default; // leaves the frames uninitialised: clearing them would cost more than most searches
  frame_stack(const frame_stack&) = delete;
  frame_stack& operator=(const frame_stack&) = delete;
  ~frame_stack() = default;

  [[nodiscard]] std::span<const frame> frames() const noexcept { return {data_, size_}; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  void push(frame f) {
    if (size_ == capacity_) [[unlikely]]
      grow();
    data_[size_++] = f;
  }
  frame pop() noexcept { return data_[--size_]; }

private:
  static constexpr std::size_t levels_here = nesting_without_allocation + 1; // and the place in the innermost

  [[gnu::cold]] [[gnu::noinline]] void grow() {
    std::vector<frame> larger(capacity_ * 4);
    std::copy_n(data_, size_, larger.data());
    heap_ = std::move(larger);
    data_ = heap_.data();
    capacity_ = heap_.size();
  }

  std::size_t size_ = 0;
  std::size_t capacity_ = levels_here;
  frame* data_ = here_;
  std::vector<frame> heap_;
  frame here_[levels_here];
};

/// Two views of the same items are the same container.
struct container_identity {
  const argument* items;
  std::size_t count;

  explicit container_identity(const argument& container) noexcept : items(container.items().data()), count(container.items().size()) {}
  bool operator==(const container_identity&) const = default;
};

struct container_hash {
  std::size_t operator()(const container_identity& container) const noexcept {
    return std::hash<const argument*>()(container.items) ^ (container.count * 0x9E3779B97F4A7C15U);
  }
};

/// The containers that were searched to their end, once the search has become long.
class exhausted_containers {
public:
  void count(std::size_t items) noexcept { items_met_ += items; }
  [[nodiscard]] bool contains(const argument& container) const { return remembering() && known(container); }
  void add(const argument& container) {
    if (remembering()) remember(container);
  }

private:
  [[nodiscard]] bool remembering() const noexcept { return items_met_ >= unremembered_items; }
  [[nodiscard]] [[gnu::cold]] [[gnu::noinline]] bool known(const argument& container) const {
    return known_ && known_->contains(container_identity(container));
  }
  [[gnu::cold]] [[gnu::noinline]] void remember(const argument& container) {
    if (!known_) known_ = std::make_unique<identities>();
    known_->insert(container_identity(container));
  }

  using identities = std::unordered_set<container_identity, container_hash>;

  std::size_t items_met_ = 0;
  std::unique_ptr<identities> known_;
};

std::string path_of(std::span<const frame> frames);

[[noreturn]] [[gnu::cold]] void throw_too_deep(std::span<const frame> frames, const argument& container) {
  // The search goes the same way each time it meets a container, so a path this long that has a cycle ends in it.
  for (std::size_t level = 0; level < frames.size(); ++level)
    if (container_identity(*frames[level].container) == container_identity(container))
      throw ArgumentNestingError(fmt::format("{} contains itself", path_of(frames.subspan(0, level))));
  throw ArgumentNestingError(fmt::format("Arguments are nested more than {} levels deep, in {}", maximum_nesting, path_of(frames)));
}

/// Calls `leaf` on the arguments under `root` that are neither containers nor plain (unless `Plain`), depth first and in order, from its
/// item `next`, until it returns true; `path` is then the path to that argument.
template <bool Plain = false, class Leaf> bool walk(const argument& root, const argument* next, frame_stack& path, Leaf&& leaf) {
  exhausted_containers exhausted;
  const argument* container = &root;
  const argument* begin = root.items().data();
  const argument* end = begin + root.items().size();
  for (;;) {
    if constexpr (!Plain) next = argument::skip_plain(next, end);
    if (next == end) {
      exhausted.add(*container);
      if (path.size() == 0) return false;
      const frame outer = path.pop();
      container = outer.container;
      begin = container->items().data();
      end = begin + container->items().size();
      next = begin + outer.next;
      continue;
    }
    const argument& met = *next++;
    const frame here{.container = container, .next = static_cast<std::uint32_t>(next - begin)};
    if (!met.is_container()) {
      if (!leaf(met)) continue;
      path.push(here);
      return true;
    }
    const std::span<const argument> items = met.items();
    if (items.empty() || exhausted.contains(met)) continue;
    path.push(here);
    if (path.size() > maximum_nesting) throw_too_deep(path.frames(), met);
    exhausted.count(items.size());
    container = &met;
    begin = items.data();
    end = begin + items.size();
    next = begin;
  }
}

// ---- paths ----

/// The code point that begins `text`, and its length in bytes; length 0 if it is not well-formed UTF-8.
std::pair<char32_t, std::size_t> decode(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xF0 && lead < 0xF5 ? 4 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xC2 && lead < 0xE0 ? 2 : 0;
  if (length == 0 || length > text.size()) return {0, 0};
  char32_t point = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {0, 0};
    point = (point << 6U) | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  if (point < least[length] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return {0, 0};
  return {point, length};
}

struct code_points {
  char32_t first;
  char32_t last;
};

/// What would be invisible, or turn the line: controls, spaces but the plain one, separators, marks of direction, private use, tags.
// clang-format off
constexpr std::array unprintable{
    code_points{.first = 0x00,    .last = 0x1F},   code_points{.first = 0x7F,   .last = 0xA0},   code_points{.first = 0xAD,   .last = 0xAD},
    code_points{.first = 0x1680,  .last = 0x1680}, code_points{.first = 0x2000, .last = 0x200F}, code_points{.first = 0x2028, .last = 0x202F},
    code_points{.first = 0x205F,  .last = 0x206F}, code_points{.first = 0x3000, .last = 0x3000}, code_points{.first = 0xE000, .last = 0xF8FF},
    code_points{.first = 0xFEFF,  .last = 0xFEFF}, code_points{.first = 0xE0000, .last = 0x10FFFF},
};
// clang-format on

bool is_printable(char32_t c) {
  return std::ranges::none_of(unprintable, [c](const code_points& range) { return range.first <= c && c <= range.last; });
}

/// As Python's repr writes it; bytes that are not UTF-8 as its `surrogateescape` does.
std::string repr(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const auto [point, length] = decode(text);
    if (length == 0) out += fmt::format("\\udc{:02x}", static_cast<unsigned char>(text[0]));
    else if (point == '\\' || point == static_cast<char32_t>(quote)) (out += '\\') += text[0];
    else if (point == '\n') out += "\\n";
    else if (point == '\r') out += "\\r";
    else if (point == '\t') out += "\\t";
    else if (is_printable(point)) out += text.substr(0, length);
    else if (point < 0x100) out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(point));
    else if (point < 0x10000) out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(point));
    else out += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(point));
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out += quote;
}

std::string repr(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

/// A dict's key.
std::string repr(const argument& key) {
  switch (key.kind()) {
  case argument_kind::none: return "None";
  case argument_kind::boolean: return key.as_boolean() ? "True" : "False";
  case argument_kind::integer:
    return key.is_unsigned() ? fmt::format("{}", static_cast<std::uint64_t>(key.as_integer())) : fmt::format("{}", key.as_integer());
  case argument_kind::real: return repr(key.as_real());
  case argument_kind::string: return repr(key.as_string());
  default: return "...";
  }
}

std::string step_of(const frame& f) {
  const std::size_t index = f.next - 1;
  const std::span<const argument> keys = f.container->keys();
  return fmt::format("[{}]", keys.empty() ? fmt::format("{}", index) : repr(keys[index]));
}

/// `args[2]['w'][1]`; of a very deep one, the beginning and the end.
std::string path_of(std::span<const frame> frames) {
  constexpr std::size_t shown = 32;
  std::string path = "args";
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (i == shown / 2 && frames.size() > shown) {
      path += "...";
      i = frames.size() - shown / 2;
    }
    path += step_of(frames[i]);
  }
  return path;
}

std::string_view refused_as(const argument& one) {
  if (one.kind() == argument_kind::string) return "a string";
  if (one.kind() != argument_kind::object) return {};
  switch (one.as_object()) {
  case object_kind::dtype: return "a dtype";
  case object_kind::function: return "a function";
  case object_kind::opaque: break;
  }
  return "an object";
}

} // namespace

// ---- devices ----

std::string to_string(device where) {
  const auto* named = std::ranges::find(device_names, where.type, &device_name::type);
  if (named == device_names.end()) return fmt::format("{}{}:{}", unnamed_type, static_cast<std::int32_t>(where.type), where.index);
  if (where.index == 0 && (where.type == device_type::cpu || where.type == device_type::meta)) return std::string(named->name);
  return fmt::format("{}:{}", named->name, where.index);
}

std::optional<device> parse_device(std::string_view text) noexcept {
  const std::size_t colon = text.find(':');
  const std::optional<device_type> type = parse_device_type(text.substr(0, colon));
  if (!type) return std::nullopt;
  if (colon == std::string_view::npos) return device{.type = *type, .index = 0};
  const std::optional<std::int32_t> index = parse_number(text.substr(colon + 1));
  return index ? std::optional(device{.type = *type, .index = *index}) : std::nullopt;
}

// ---- find_device ----

namespace detail {

void throw_no_tensor_args() { throw NoTensorArgs(); }

void throw_bad_container(bool odd) {
  if (odd) throw ArgumentNestingError("A dict's arguments are its values and then as many keys: their number is odd");
  throw ArgumentNestingError(fmt::format("A container of more than {} arguments", std::numeric_limits<std::uint32_t>::max()));
}

std::optional<device> find_nested(std::span<const argument> args, const argument* next) {
  frame_stack path;
  std::optional<device> found;
  walk(argument::tuple(args), next, path, [&found](const argument& one) {
    found = one.where();
    return true;
  });
  return found;
}

// ---- launch_device ----

void add_launch_devices(std::span<const argument> args, launch_devices& devices) {
  frame_stack path;
  walk(argument::tuple(args), args.data(), path, [&devices](const argument& one) {
    if (one.kind() == argument_kind::tensor) return devices.add_tensor(one.where(), one.rank() == 0);
    devices.add_named(one.where());
    return false;
  });
}

void throw_device_mismatch(std::span<const argument> args, bool of_tensors) {
  const argument root = argument::tuple(args);
  // Those that decide, up to the first that `stop` picks; its path and device.
  const auto locate = [args, &root, of_tensors](auto stop) {
    frame_stack path;
    device where;
    walk(root, args.data(), path, [&](const argument& one) {
      launch_devices alone;
      if (one.kind() == argument_kind::tensor) alone.add_tensor(one.where(), one.rank() == 0);
      else alone.add_named(one.where());
      const std::optional<device> decides = of_tensors ? alone.tensor : alone.named;
      if (!decides || !stop(*decides)) return false;
      where = *decides;
      return true;
    });
    return std::pair(path_of(path.frames()), where);
  };
  const auto [first_path, first] = locate([](device) { return true; });
  const auto [second_path, second] = locate([first = first](device where) { return where != first; });
  throw DeviceMismatch(first_path, to_string(first), second_path, to_string(second));
}

} // namespace detail

device launch_device(std::span<const argument> args) {
  detail::launch_devices devices;
  detail::add_launch_devices(args, devices);
  if (devices.differ()) detail::throw_device_mismatch(args, devices.tensors_differ);
  const std::optional<device> answer = devices.answer();
  if (!answer) detail::throw_no_tensor_args();
  return *answer;
}

void check_launchable(std::span<const argument> args) {
  const argument root = argument::tuple(args);
  frame_stack path; // refers to the root
  std::string_view what;
  const bool refused = walk<true>(root, args.data(), path, [&what](const argument& one) {
    what = refused_as(one);
    return !what.empty();
  });
  if (refused) throw UnsupportedArgument(path_of(path.frames()), what);
}

// ---- argument_list ----

std::span<const argument> argument_list::keep(std::vector<argument> items) {
  const auto kept = std::make_shared<const std::vector<argument>>(std::move(items));
  owned_.emplace_back(kept, kept->data());
  return *kept;
}

argument argument_list::keep_string(std::string_view text) {
  const auto kept = std::make_shared<const std::string>(text);
  owned_.emplace_back(kept, kept->data());
  return {*kept};
}

/// Takes over what `other` owns; the smaller into the larger, so that a tree built from the inside out is linear.
void argument_list::absorb(argument_list& other) {
  if (owned_.size() < other.owned_.size()) owned_.swap(other.owned_);
  owned_.insert(owned_.end(), std::make_move_iterator(other.owned_.begin()), std::make_move_iterator(other.owned_.end()));
  other.owned_.clear();
}

argument_list& argument_list::add_tuple(argument_list items) {
  absorb(items);
  items_.push_back(argument::tuple(keep(std::move(items.items_))));
  return *this;
}

argument_list& argument_list::add_list(argument_list items) {
  absorb(items);
  items_.push_back(argument::list(keep(std::move(items.items_))));
  return *this;
}

argument_list& argument_list::add_dict(const argument_list& keys, argument_list values) {
  if (keys.size() != values.size())
    throw ArgumentNestingError(fmt::format("A dict has as many keys as values: {} keys, {} values", keys.size(), values.size()));
  argument_list names = keys;
  absorb(names);
  absorb(values);
  std::vector<argument> items = std::move(values.items_);
  items.insert(items.end(), keys.begin(), keys.end());
  items_.push_back(argument::dict(keep(std::move(items))));
  return *this;
}

} // namespace muster
