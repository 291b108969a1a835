module;
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
module muster.operations;

namespace muster {

namespace {

constexpr std::string_view torch_prefix = "torch.ops.";

constexpr std::size_t count_words(std::string_view words) {
  std::size_t n = words.empty() ? 0 : 1;
  for (const char c : words) n += c == ' ' ? 1 : 0;
  return n;
}

constexpr std::size_t overload_count = [] {
  std::size_t n = 0;
  for (const operation_information& o : operation_table) n += count_words(o.overloads);
  return n;
}();

/// `NAME.OVERLOAD` of every operation, in one text.
struct overload_text {
  static constexpr std::size_t size = [] {
    std::size_t n = 0;
    for (const operation_information& o : operation_table) n += o.overloads.size() + count_words(o.overloads) * (o.name.size() + 1);
    return n;
  }();
  char characters[size]{};
};

struct overload_place {
  std::uint32_t first = 0;
  std::uint32_t size = 0;
};

struct overloads {
  overload_text text;
  overload_place places[overload_count]{};
  operation ids[overload_count]{};
};

constexpr overloads all_overloads = [] {
  overloads all{};
  std::size_t at = 0;
  std::size_t next = 0;
  for (const operation_information& o : operation_table) {
    if (o.overloads.empty()) continue;
    const char* word = o.overloads.data();
    const char* const end = word + o.overloads.size();
    while (word < end) {
      all.places[next].first = static_cast<std::uint32_t>(at);
      all.ids[next] = o.id;
      for (const char c : o.name) all.text.characters[at++] = c;
      all.text.characters[at++] = '.';
      while (word < end && *word != ' ') all.text.characters[at++] = *word++;
      ++word;
      all.places[next].size = static_cast<std::uint32_t>(at) - all.places[next].first;
      ++next;
    }
  }
  return all;
}();

constexpr std::size_t api_count = [] {
  std::size_t n = 0;
  for (const operation_information& o : operation_table) n += o.long_name.empty() ? 0 : 1;
  return n;
}();

/// Every spelling that a document may use, `torch.ops.` taken off.
constexpr auto spellings = [] {
  std::array<detail::named, operation_count + api_count + overload_count> all{};
  std::size_t next = 0;
  for (const operation_information& o : operation_table) {
    all[next++] = {o.name.data(), static_cast<std::uint32_t>(o.name.size()), static_cast<std::uint32_t>(o.id)};
    if (!o.long_name.empty())
      all[next++] = {o.long_name.data(), static_cast<std::uint32_t>(o.long_name.size()), static_cast<std::uint32_t>(o.id)};
  }
  for (std::size_t i = 0; i < overload_count; ++i)
    all[next++] = {all_overloads.text.characters + all_overloads.places[i].first, all_overloads.places[i].size,
                   static_cast<std::uint32_t>(all_overloads.ids[i])};
  return all;
}();

constexpr auto spelling_hash = detail::make_perfect_hash<spellings.size()>(spellings);
static_assert(spelling_hash.built, "two operations have one spelling");
constexpr detail::name_table spelling_table = spelling_hash.view();

} // namespace

template <std::uint64_t Fingerprint>
std::optional<operation> library_was_built_from_other_interfaces<Fingerprint>::operation_named(std::string_view target) noexcept {
  if (target.starts_with(torch_prefix)) target.remove_prefix(torch_prefix.size());
  const std::uint32_t id = spelling_table.find(target);
  return id == detail::name_table::none ? std::nullopt : std::optional(static_cast<operation>(id));
}

template <std::uint64_t Fingerprint>
std::string_view library_was_built_from_other_interfaces<Fingerprint>::qualified_name(operation id, std::string_view target) noexcept {
  if (information(id).family == operation_family::api) return information(id).name;
  if (target.starts_with(torch_prefix)) target.remove_prefix(torch_prefix.size());
  return target;
}

template struct library_was_built_from_other_interfaces<operations_fingerprint>;

} // namespace muster
