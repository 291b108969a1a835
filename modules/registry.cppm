module;
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// The registry: operations × backends → handler, built, resolved and checked by the compiler. Generic: it knows nothing of
/// what an operation or a handler is. Nothing in it is registered at run time, so nothing can be lost, raced or reordered.
export module muster.registry;

export import muster.error;

#pragma GCC visibility push(default)

export namespace muster {

// ---------------------------------------------------------------------------------------------------- what a user writes

/// One operation of a set. `Op` is an enumeration; the ids of a set are 0 … size - 1, in any order.
template <class Op> struct operation_entry {
  Op id{};
  std::string_view name{};                        ///< unique in the set; no blanks
  operation_family family = operation_family::api;
  std::string_view alias{};                       ///< a second name that lookups accept, or empty
  bool required = false;                          ///< every backend that is not experimental must resolve it
};

/// The operations that a registry knows: `constexpr operation_set<op> operations{{{op::load, "load"}, {op::dot, "dot"}}};`
template <class Op> struct operation_set {
  std::initializer_list<operation_entry<Op>> entries{};
  std::span<const operation_entry<Op>> more{};    ///< entries of a static array (see `extended`)
};

/// One row of a backend's table: the function that lowers one operation.
template <class Op, class Handler> struct handler_row {
  Op op{};
  Handler* handler = nullptr;
};

/// A backend: a name, whose handlers it falls back on, and its own handlers. A value; registering is composing it.
/// GCC 16 and older can not read the braces of `handlers`, or of a set's `entries`, in a constant that another module exports:
/// there, give the rows a name and hand that to `parts`, or to `more`.
template <class Op, class Handler> struct backend {
  using operation_type = Op;
  using handler_type = Handler;
  std::string_view name{};
  std::string_view codegen_name{};                                ///< the backend whose handlers it inherits; empty: none
  std::initializer_list<handler_row<Op, Handler>> handlers{};     ///< one row an operation
  std::span<const handler_row<Op, Handler>> parts{};              ///< rows of a static array, or of several (see `merged`)
  bool experimental = false;                                      ///< then required operations may be missing
  std::span<const std::string_view> reserved_launch_parameters{}; ///< of a static array
};

/// Names of backends that exist but are not part of this composition; asking for one throws BackendNotBuilt.
struct left_out {
  std::initializer_list<std::string_view> names{};
};

/// Where a cell's handler comes from. The precedence is:
enum class provenance : std::uint8_t {
  missing,   ///< 4. nobody has one
  own,       ///< 1. the backend's own
  inherited, ///< 2. else its codegen name's (or that one's codegen name's, and so on)
  common,    ///< 3. else the fallback's
};

[[nodiscard]] constexpr std::string_view name(provenance p) noexcept {
  constexpr std::string_view names[] = {"missing", "own", "inherited", "common"};
  return names[static_cast<std::size_t>(p)];
}

/// A backend of a composed registry, by position in its composition.
enum class backend_id : std::uint16_t {};

/// What is known of a composed backend beside its handlers.
struct backend_description {
  std::string_view name{};
  std::string_view codegen_name{}; ///< its own name where it inherits from none
  bool experimental = false;
  std::span<const std::string_view> reserved_launch_parameters{};
};

/// A cell of the table.
template <class Handler> struct registry_cell {
  Handler* handler = nullptr; ///< null if missing
  muster::provenance provenance = muster::provenance::missing;
};

/// One line of `coverage`.
struct coverage_entry {
  std::string_view backend{};
  std::string_view operation{};
  muster::provenance provenance = muster::provenance::missing;
};

} // namespace muster

// ------------------------------------------------------------------------------------------------- names, found by hashing

export namespace muster::detail {

/// Eight bytes as a number. One expression each, so that a constant evaluation takes few steps.
constexpr std::uint64_t read64(const char* p) noexcept {
  if (std::is_constant_evaluated()) {
    return std::uint64_t{static_cast<unsigned char>(p[0])} | std::uint64_t{static_cast<unsigned char>(p[1])} << 8U |
           std::uint64_t{static_cast<unsigned char>(p[2])} << 16U | std::uint64_t{static_cast<unsigned char>(p[3])} << 24U |
           std::uint64_t{static_cast<unsigned char>(p[4])} << 32U | std::uint64_t{static_cast<unsigned char>(p[5])} << 40U |
           std::uint64_t{static_cast<unsigned char>(p[6])} << 48U | std::uint64_t{static_cast<unsigned char>(p[7])} << 56U;
  }
  std::uint64_t value = 0;
  std::memcpy(&value, p, sizeof value);
  if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
  return value;
}

constexpr std::uint64_t read32(const char* p) noexcept {
  return std::uint64_t{static_cast<unsigned char>(p[0])} | std::uint64_t{static_cast<unsigned char>(p[1])} << 8U |
         std::uint64_t{static_cast<unsigned char>(p[2])} << 16U | std::uint64_t{static_cast<unsigned char>(p[3])} << 24U;
}

// Lengths are not predictable, so names are read in pieces of a fixed size, which overlap, and not in loops.

/// A name of fewer than 16 characters, its length aside.
struct short_name {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  constexpr bool operator==(const short_name&) const = default;
};
constexpr short_name read_short(const char* p, std::size_t n) noexcept {
  if (n >= 8) return {read64(p), read64(p + n - 8)};
  if (n >= 4) return {read32(p), read32(p + n - 4)};
  if (n == 0) return {};
  return {static_cast<unsigned char>(p[0]),
          std::uint64_t{static_cast<unsigned char>(p[n / 2])} << 8U | std::uint64_t{static_cast<unsigned char>(p[n - 1])}};
}

/// The 128 bits of a product, folded: each bit of the result depends on all of both.
constexpr std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using wide = unsigned __int128;
  const wide product = static_cast<wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t n) noexcept {
  return fold(a ^ 0x9e3779b97f4a7c15ULL, b ^ n ^ 0xff51afd7ed558ccdULL);
}
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d, std::uint64_t n) noexcept {
  return mix(a, b, n) ^ fold(c ^ 0xc4ceb9fe1a85ec53ULL, d ^ 0xd6e8feb86659fd93ULL);
}

/// A hash of the length and the last 32 characters: names of one family differ at their ends.
constexpr std::uint64_t hash_tail(std::string_view s) noexcept {
  const char* const p = s.data();
  const std::size_t n = s.size();
  if (n >= 16) [[likely]]
    return mix(read64(p + n - 8), read64(p + n - 16), read64(p + (n < 24 ? 0 : n - 24)), read64(p + (n < 32 ? 0 : n - 32)), n);
  const short_name all = read_short(p, n);
  return mix(all.first, all.last, n);
}

/// The same over the whole name, for sets in which tails coincide.
constexpr std::uint64_t hash_whole(std::string_view s) noexcept {
  std::uint64_t h = hash_tail(s);
  for (std::size_t i = 0; i + 32 < s.size(); i += 8) h = mix(h, read64(s.data() + i), i);
  return h;
}

/// For names of 16 to 64 characters: four pieces of 16.
inline bool same_pieces(const char* a, const char* b, std::size_t n) noexcept {
  __extension__ using piece = unsigned long long __attribute__((vector_size(16)));
  const auto difference = [a, b](std::size_t at) {
    piece x;
    piece y;
    std::memcpy(&x, a + at, sizeof x);
    std::memcpy(&y, b + at, sizeof y);
    return x ^ y;
  };
  const piece all = difference(0) | difference(n < 32 ? n - 16 : 16) | difference(n < 32 ? 0 : n - 32) | difference(n - 16);
  return (all[0] | all[1]) == 0;
}

constexpr bool same_characters(const char* a, const char* b, std::size_t n) noexcept {
  if (n < 16) return read_short(a, n) == read_short(b, n);
  if (!std::is_constant_evaluated() && n <= 64) return same_pieces(a, b, n);
  for (std::size_t i = 0; i + 8 < n; i += 8)
    if (read64(a + i) != read64(b + i)) return false;
  return read64(a + n - 8) == read64(b + n - 8);
}

/// A name and what it stands for.
struct named {
  static constexpr std::uint32_t none = 0xFFFFFFFFU;
  const char* text = nullptr;
  std::uint32_t size = 0;
  std::uint32_t value = none;
};

/// What a lookup needs of a perfect hash table, its sizes forgotten.
struct name_table {
  const named* names = nullptr;
  const std::uint16_t* slots = nullptr; ///< into `names`; that of an empty slot is the last, the empty name for no value
  const std::uint16_t* pilots = nullptr;
  std::uint32_t slot_mask = 0;
  std::uint8_t bucket_shift = 63;
  bool whole = false;

  static constexpr std::uint32_t none = named::none;

  /// The value that `name` stands for, or `none`. A few loads and one comparison of the characters.
  [[nodiscard]] constexpr std::uint32_t find(std::string_view name) const noexcept {
    return has_usual_size(name) ? find_usual(name) : find_other(name);
  }

  // The parts of `find`, for lookups that call nothing in the common case: an operation's name has 16 to 64 characters, a backend's fewer.

  [[nodiscard]] constexpr bool has_usual_size(std::string_view name) const noexcept { return name.size() - 16 <= 48 && !whole; }
  [[nodiscard]] constexpr std::uint32_t find_usual(std::string_view name) const noexcept {
    const named& found = candidate(hash_tail(name));
    if (found.size != name.size()) return none;
    if (std::is_constant_evaluated()) return same_characters(found.text, name.data(), name.size()) ? found.value : none;
    return same_pieces(found.text, name.data(), name.size()) ? found.value : none;
  }

  [[nodiscard]] constexpr bool is_short(std::string_view name) const noexcept { return name.size() < 16 && !whole; }
  [[nodiscard]] constexpr std::uint32_t find_short(std::string_view name) const noexcept {
    const short_name all = read_short(name.data(), name.size());
    const named& found = candidate(mix(all.first, all.last, name.size()));
    return found.size == name.size() && read_short(found.text, name.size()) == all ? found.value : none;
  }

private:
  [[nodiscard]] constexpr const named& candidate(std::uint64_t h) const noexcept {
    const std::uint16_t pilot = pilots[h >> bucket_shift];
    return names[slots[((h >> (pilot & 15U)) ^ (pilot >> 4U)) & slot_mask]];
  }
  [[nodiscard, gnu::noinline]] constexpr std::uint32_t find_other(std::string_view name) const noexcept {
    const named& found = candidate(whole ? hash_whole(name) : hash_tail(name));
    return found.size == name.size() && same_characters(found.text, name.data(), name.size()) ? found.value : none;
  }
};

/// A perfect hash table over N names (compress, hash and displace): names fall into buckets of about four by their high
/// hash bits; a bucket's pilot, a shift and an exclusive or, sends each of its names to a slot of its own.
template <std::size_t N> struct perfect_hash {
  static_assert(N < 0xFFFFU, "a table has at most 65,534 names");
  static constexpr std::size_t bucket_count = std::bit_ceil(N / 4 + 2);
  static constexpr std::size_t slot_count = std::bit_ceil(2 * N + 2);
  named names[N + 1]{};
  std::uint16_t slots[slot_count]{};
  std::uint16_t pilots[bucket_count]{};
  bool whole = false;
  bool built = false;
  std::size_t clash[2]{}; ///< two names with one hash, if they differ
  bool clashes = false;

  static constexpr unsigned bucket_shift = 64U - static_cast<unsigned>(std::bit_width(bucket_count) - 1);

  [[nodiscard]] constexpr name_table view() const noexcept {
    return {names, slots, pilots, static_cast<std::uint32_t>(slot_count - 1), bucket_shift, whole};
  }
};

template <std::size_t N> struct hashed_names {
  std::uint64_t hash[N == 0 ? 1 : N]{};
  std::uint32_t order[N == 0 ? 1 : N]{}; ///< names by bucket
  std::uint32_t first[perfect_hash<N>::bucket_count + 1]{}; ///< of a bucket: into `order`
};

/// Hashes names and sorts them by bucket. Gives whether two different hashes are the same.
template <std::size_t N>
constexpr bool hash_names(hashed_names<N>& out, const std::array<named, N>& names, bool whole, std::size_t (&clash)[2]) {
  constexpr unsigned shift = perfect_hash<N>::bucket_shift;
  for (std::size_t b = 0; b <= perfect_hash<N>::bucket_count; ++b) out.first[b] = 0;
  for (std::size_t i = 0; i < N; ++i) {
    out.hash[i] = whole ? hash_whole({names[i].text, names[i].size}) : hash_tail({names[i].text, names[i].size});
    ++out.first[(out.hash[i] >> shift) + 1];
  }
  for (std::size_t b = 0; b < perfect_hash<N>::bucket_count; ++b) out.first[b + 1] += out.first[b];
  std::uint32_t next[perfect_hash<N>::bucket_count]{};
  for (std::size_t i = 0; i < N; ++i) {
    const std::size_t b = out.hash[i] >> shift;
    const std::uint32_t place = out.first[b] + next[b]++;
    for (std::uint32_t j = out.first[b]; j < place; ++j)
      if (out.hash[out.order[j]] == out.hash[i]) {
        clash[0] = out.order[j];
        clash[1] = i;
        return true;
      }
    out.order[place] = static_cast<std::uint32_t>(i);
  }
  return false;
}

/// Finds a pilot under which the names of bucket `b` fall into free slots.
template <std::size_t N> constexpr bool place_bucket(perfect_hash<N>& table, const hashed_names<N>& h, std::size_t b) {
  constexpr std::uint64_t mask = perfect_hash<N>::slot_count - 1;
  const std::uint32_t begin = h.first[b];
  const std::uint32_t end = h.first[b + 1];
  for (std::uint32_t pilot = 0; pilot < 0x10000U; ++pilot) {
    std::uint32_t placed = begin;
    for (; placed < end; ++placed) {
      std::uint16_t& slot = table.slots[((h.hash[h.order[placed]] >> (pilot & 15U)) ^ (pilot >> 4U)) & mask];
      if (slot != N) break;
      slot = static_cast<std::uint16_t>(h.order[placed]);
    }
    if (placed == end) {
      table.pilots[b] = static_cast<std::uint16_t>(pilot);
      return true;
    }
    while (placed-- > begin) table.slots[((h.hash[h.order[placed]] >> (pilot & 15U)) ^ (pilot >> 4U)) & mask] = N;
  }
  return false;
}

/// Builds the table; `built` says whether that worked. About 100 constant evaluation steps a name.
template <std::size_t N> constexpr perfect_hash<N> make_perfect_hash(const std::array<named, N>& names) {
  perfect_hash<N> table{};
  hashed_names<N> h{};
  if (hash_names<N>(h, names, false, table.clash)) {
    table.whole = true;
    if (hash_names<N>(h, names, true, table.clash)) {
      table.clashes = true;
      return table;
    }
  }
  for (std::size_t i = 0; i < N; ++i) table.names[i] = names[i];
  for (std::uint16_t& slot : table.slots) slot = N;
  std::size_t largest = 0;
  for (std::size_t b = 0; b < perfect_hash<N>::bucket_count; ++b)
    if (h.first[b + 1] - h.first[b] > largest) largest = h.first[b + 1] - h.first[b];
  // The fullest buckets first, while there is room.
  for (std::size_t size = largest; size > 0; --size)
    for (std::size_t b = 0; b < perfect_hash<N>::bucket_count; ++b)
      if (h.first[b + 1] - h.first[b] == size && !place_bucket<N>(table, h, b)) return table;
  table.built = true;
  return table;
}

/// A string as a template argument, so that the compiler's messages show it.
template <std::size_t N> struct fixed_string {
  char text[N]{};
  constexpr fixed_string() = default;
  constexpr explicit fixed_string(std::string_view s) {
    for (std::size_t i = 0; i < s.size(); ++i) text[i] = s[i];
  }
};

} // namespace muster::detail

// ---------------------------------------------------------------------------------------------------- what must hold

export namespace muster::must_hold {

// Class templates that are true only for empty names: in a failed assertion the compiler spells their arguments out.
template <detail::fixed_string Backend, detail::fixed_string Operation> struct each_operation_is_registered_once {
  static constexpr bool value = Operation.text[0] == '\0';
};
template <detail::fixed_string Backend, std::int64_t OperationId> struct each_operation_is_in_the_set {
  static constexpr bool value = OperationId < 0;
};
template <detail::fixed_string Backend, detail::fixed_string Operation> struct each_handler_is_a_function {
  static constexpr bool value = Operation.text[0] == '\0';
};
template <detail::fixed_string Backend> struct each_backend_name_is_unique {
  static constexpr bool value = Backend.text[0] == '\0';
};
template <detail::fixed_string Backend> struct each_backend_has_a_name_without_blanks {
  static constexpr bool value = Backend.text[0] == '\0';
};
template <detail::fixed_string Backend, detail::fixed_string CodegenName> struct each_codegen_name_is_a_backend {
  static constexpr bool value = CodegenName.text[0] == '\0';
};
template <detail::fixed_string Backend> struct codegen_names_form_no_cycle {
  static constexpr bool value = Backend.text[0] == '\0';
};
/// Instantiated once for each hole, so that every one has its own message.
template <detail::fixed_string Backend, detail::fixed_string Operation> struct required_operation_is_implemented {
  static constexpr bool value = Operation.text[0] == '\0';
  static_assert(required_operation_is_implemented::value, "a backend that is not experimental lacks a required operation");
};
template <detail::fixed_string Operation> struct each_operation_name_is_unique {
  static constexpr bool value = Operation.text[0] == '\0';
};
template <detail::fixed_string Operation> struct each_operation_has_a_name_without_blanks {
  static constexpr bool value = Operation.text[0] == '\0';
};
template <detail::fixed_string Operation, std::int64_t OperationId> struct operation_ids_are_dense {
  static constexpr bool value = OperationId < 0;
};
template <detail::fixed_string First, detail::fixed_string Second> struct names_have_different_hashes {
  static constexpr bool value = First.text[0] == '\0';
};
// The tables themselves as arguments, so that a message names both.
template <const auto& First, const auto& Second, std::int64_t OperationId> struct tables_have_one_handler_an_operation {
  static constexpr bool value = OperationId < 0;
};
template <const auto& First, const auto& Second, detail::fixed_string Operation> struct extensions_add_different_operations {
  static constexpr bool value = Operation.text[0] == '\0';
};
template <const auto& First, const auto& Second, std::int64_t OperationId> struct extensions_use_different_ids {
  static constexpr bool value = OperationId < 0;
};

} // namespace muster::must_hold

// ------------------------------------------------------------------------------------------------------------ the registry

export namespace muster::detail {

/// What the errors of lookups are made of: a registry without its types.
struct outline {
  const backend_description* backends = nullptr;
  const std::string_view* left_out = nullptr;
  const name_table* operation_names = nullptr;
  const provenance* origins = nullptr; ///< [backend][operation]
  std::uint32_t operation_count = 0;
  std::uint32_t backend_count = 0;
  std::uint32_t left_out_count = 0;
};

// No templates: a program that looks something up needs none of the headers that these need.
[[noreturn]] void raise_unknown_backend(const outline& registry, std::string_view name);
[[noreturn]] void raise_unknown_operation(const outline& registry, std::string_view name);
[[noreturn]] void raise_out_of_range(const outline& registry, std::uint32_t backend, std::uint32_t operation);
[[noreturn]] void raise_implementation_missing(const outline& registry, std::uint32_t backend, std::uint32_t operation,
                                               std::string_view name, operation_family family, bool has_common);

} // namespace muster::detail

export namespace muster {

/// What a composed registry is made of, all of it constant and static.
template <class Op, class Handler> struct registry_data {
  Handler* const* handlers = nullptr; ///< [backend][operation]
  const provenance* origins = nullptr; ///< likewise
  const operation_entry<Op>* operations = nullptr; ///< by id
  const backend_description* backends = nullptr;
  const std::string_view* missing_backends = nullptr; ///< left out of the build
  Handler* const* common = nullptr; ///< by operation: the fallback's handler
  std::uint32_t operation_count = 0;
  std::uint32_t backend_count = 0;
  std::uint32_t left_out_count = 0;
  detail::name_table operation_names{};
  detail::name_table backend_names{};
};

template <class Op, class Handler> class registry_view;

/// The error paths of lookups, out of line: a lookup stays small enough to be inlined.
template <class Op, class Handler>
[[noreturn]] void throw_implementation_missing(const registry_data<Op, Handler>& d, std::uint32_t backend, std::uint32_t operation);
template <class Op, class Handler> [[noreturn]] void throw_unknown_backend(const registry_data<Op, Handler>& d, std::string_view name);
template <class Op, class Handler> [[noreturn]] void throw_unknown_operation(const registry_data<Op, Handler>& d, std::string_view name);

/// A composed registry: a pointer to its table, cheap to copy. Every function is safe from any thread, from a signal handler
/// (those that are noexcept), before main and after it.
template <class Op, class Handler> class registry_view {
public:
  using operation_type = Op;
  using handler_type = Handler;

  constexpr registry_view() = default;
  constexpr explicit registry_view(const registry_data<Op, Handler>& d) noexcept : data_(&d) {}

  /// The handler, or null: missing, or an id out of range. One load and a comparison.
  [[nodiscard]] constexpr Handler* find(backend_id b, Op o) const noexcept {
    const std::size_t backend = static_cast<std::size_t>(b);
    const std::size_t operation = static_cast<std::size_t>(o);
    if (backend >= data_->backend_count || operation >= data_->operation_count) [[unlikely]]
      return nullptr;
    return data_->handlers[backend * data_->operation_count + operation];
  }
  /// The handler. Throws BackendImplementationMissing; UnknownOperation or UnknownBackend for an id out of range.
  constexpr Handler& at(backend_id b, Op o) const {
    if (Handler* const h = find(b, o)) [[likely]]
      return *h;
    fail(b, o);
  }
  /// The handler, for ids known to be in range (not checked). Null if missing.
  [[nodiscard]] constexpr Handler* unchecked(backend_id b, Op o) const noexcept {
    return data_->handlers[static_cast<std::size_t>(b) * data_->operation_count + static_cast<std::size_t>(o)];
  }
  /// Handler and where it comes from. A caller that will not have the fallback refuses `provenance::common`.
  [[nodiscard]] constexpr registry_cell<Handler> cell(backend_id b, Op o) const noexcept {
    Handler* const h = find(b, o);
    if (h == nullptr) return {};
    return {h, data_->origins[static_cast<std::size_t>(b) * data_->operation_count + static_cast<std::size_t>(o)]};
  }

  [[nodiscard]] constexpr Handler* find(std::string_view backend, Op o) const noexcept {
    const std::uint32_t b = data_->backend_names.find(backend);
    return b == detail::name_table::none ? nullptr : find(static_cast<backend_id>(b), o);
  }
  constexpr Handler& at(std::string_view backend, Op o) const { return at(backend_named(backend), o); }
  [[nodiscard]] constexpr registry_cell<Handler> cell(std::string_view backend, Op o) const noexcept {
    const std::uint32_t b = data_->backend_names.find(backend);
    return b == detail::name_table::none ? registry_cell<Handler>{} : cell(static_cast<backend_id>(b), o);
  }

  /// By the operation's name; its alias is as good. Null if the name is unknown, the id out of range or the cell empty.
  [[nodiscard]] constexpr Handler* find(backend_id b, std::string_view operation) const noexcept {
    const std::size_t backend = static_cast<std::size_t>(b);
    if (backend >= data_->backend_count) [[unlikely]]
      return nullptr;
    if (data_->operation_names.has_usual_size(operation)) [[likely]]
      return in_row(backend, data_->operation_names.find_usual(operation));
    return find_other(backend, operation);
  }
  constexpr Handler& at(backend_id b, std::string_view operation) const { return at(b, operation_named(operation)); }
  [[nodiscard]] constexpr registry_cell<Handler> cell(backend_id b, std::string_view operation) const noexcept {
    const std::uint32_t o = data_->operation_names.find(operation);
    return o == detail::name_table::none ? registry_cell<Handler>{} : cell(b, static_cast<Op>(o));
  }

  /// By names alone. Null if either is unknown or the cell is empty.
  [[nodiscard]] constexpr Handler* find(std::string_view backend, std::string_view operation) const noexcept {
    if (data_->backend_names.is_short(backend) && data_->operation_names.has_usual_size(operation)) [[likely]] {
      const std::uint32_t b = data_->backend_names.find_short(backend);
      return b == detail::name_table::none ? nullptr : in_row(b, data_->operation_names.find_usual(operation));
    }
    return find_other(backend, operation);
  }
  /// Throws UnknownBackend, BackendNotBuilt, UnknownOperation (with the nearest name), BackendImplementationMissing.
  constexpr Handler& at(std::string_view backend, std::string_view operation) const {
    const backend_id b = backend_named(backend);
    return at(b, operation_named(operation));
  }
  [[nodiscard]] constexpr registry_cell<Handler> cell(std::string_view backend, std::string_view operation) const noexcept {
    const std::uint32_t b = data_->backend_names.find(backend);
    return b == detail::name_table::none ? registry_cell<Handler>{} : cell(static_cast<backend_id>(b), operation);
  }

  /// Whether a backend of that name is part of the composition. Exact spelling: case and blanks count.
  [[nodiscard]] constexpr bool has_backend(std::string_view name) const noexcept {
    return data_->backend_names.find(name) != detail::name_table::none;
  }
  /// Throws UnknownBackend (with those there are, and the nearest), or BackendNotBuilt.
  constexpr backend_id backend_named(std::string_view name) const {
    const std::uint32_t b = data_->backend_names.find(name);
    if (b == detail::name_table::none) [[unlikely]]
      throw_unknown_backend(*data_, name);
    return static_cast<backend_id>(b);
  }
  [[nodiscard]] constexpr bool has_operation(std::string_view name) const noexcept {
    return data_->operation_names.find(name) != detail::name_table::none;
  }
  /// Throws UnknownOperation, with the nearest name.
  constexpr Op operation_named(std::string_view name) const {
    const std::uint32_t o = data_->operation_names.find(name);
    if (o == detail::name_table::none) [[unlikely]]
      throw_unknown_operation(*data_, name);
    return static_cast<Op>(o);
  }

  /// The backends, in the order in which they were composed; a backend_id is a position here.
  [[nodiscard]] constexpr std::span<const backend_description> backends() const noexcept { return {data_->backends, data_->backend_count}; }
  /// The operations, by id.
  [[nodiscard]] constexpr std::span<const operation_entry<Op>> operations() const noexcept {
    return {data_->operations, data_->operation_count};
  }

  /// The whole matrix, backend by backend, operations by id. Allocates.
  [[nodiscard]] std::vector<coverage_entry> coverage() const {
    std::vector<coverage_entry> all;
    all.reserve(std::size_t{data_->backend_count} * data_->operation_count);
    for (std::uint32_t b = 0; b < data_->backend_count; ++b)
      for (std::uint32_t o = 0; o < data_->operation_count; ++o)
        all.push_back(
            {data_->backends[b].name, data_->operations[o].name, cell(static_cast<backend_id>(b), static_cast<Op>(o)).provenance});
    return all;
  }

private:
  [[nodiscard]] constexpr Handler* in_row(std::size_t backend, std::uint32_t operation) const noexcept {
    return operation == detail::name_table::none ? nullptr : data_->handlers[backend * data_->operation_count + operation];
  }
  // Out of line, so that the common cases need no stack.
  [[nodiscard, gnu::noinline]] constexpr Handler* find_other(std::size_t backend, std::string_view operation) const noexcept {
    return in_row(backend, data_->operation_names.find(operation));
  }
  [[nodiscard, gnu::noinline]] constexpr Handler* find_other(std::string_view backend, std::string_view operation) const noexcept {
    const std::uint32_t b = data_->backend_names.find(backend);
    return b == detail::name_table::none ? nullptr : find_other(b, operation);
  }
  [[noreturn]] void fail(backend_id b, Op o) const {
    throw_implementation_missing(*data_, static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(o));
  }
  const registry_data<Op, Handler>* data_ = nullptr;
};

namespace detail {
template <class Op, class Handler> outline outline_of(const registry_data<Op, Handler>& d) noexcept {
  return {d.backends, d.missing_backends, &d.operation_names, d.origins, d.operation_count, d.backend_count, d.left_out_count};
}
} // namespace detail

template <class Op, class Handler>
[[gnu::cold, gnu::noinline]] void throw_unknown_backend(const registry_data<Op, Handler>& d, std::string_view name) {
  detail::raise_unknown_backend(detail::outline_of(d), name);
}

template <class Op, class Handler>
[[gnu::cold, gnu::noinline]] void throw_unknown_operation(const registry_data<Op, Handler>& d, std::string_view name) {
  detail::raise_unknown_operation(detail::outline_of(d), name);
}

template <class Op, class Handler>
[[gnu::cold, gnu::noinline]] void throw_implementation_missing(const registry_data<Op, Handler>& d, std::uint32_t backend,
                                                               std::uint32_t operation) {
  if (backend >= d.backend_count || operation >= d.operation_count) detail::raise_out_of_range(detail::outline_of(d), backend, operation);
  detail::raise_implementation_missing(detail::outline_of(d), backend, operation, d.operations[operation].name,
                                       d.operations[operation].family, d.common[operation] != nullptr);
}

} // namespace muster

// ------------------------------------------------------------------------------------------------------------- composition

export namespace muster::detail {

inline constexpr std::string_view common_name = "common";

constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
constexpr bool has_blank(std::string_view s) {
  for (const char c : s)
    if (is_blank(c)) return true;
  return s.empty();
}

/// Equality without string_view's own, which is a loop over characters in some standard libraries.
constexpr bool equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && same_characters(a.data(), b.data(), a.size());
}

template <class T> inline constexpr bool is_backend = false;
template <class Op, class Handler> inline constexpr bool is_backend<backend<Op, Handler>> = true;

/// Visits a set's entries, those of both its parts.
template <class Op> constexpr std::size_t count(const operation_set<Op>& s) { return s.entries.size() + s.more.size(); }
template <class Op, class Visit> constexpr void for_each(const operation_set<Op>& s, const Visit& visit) {
  for (const operation_entry<Op>& e : s.entries) visit(e);
  for (const operation_entry<Op>& e : s.more) visit(e);
}
template <class B, class Visit> constexpr void for_each_row(const B& b, const Visit& visit) {
  for (const auto& row : b.handlers) visit(row, false);
  for (const auto& row : b.parts) visit(row, true);
}

/// What is wrong with a composition, in a form that template arguments can be made of.
struct finding {
  std::string_view backend{};
  std::string_view operation{};
  std::int64_t id = -1;
};

template <class Op, class Handler, std::size_t Ops, std::size_t Backends> struct tables {
  Handler* handlers[Backends == 0 ? 1 : Backends * Ops]{};
  provenance origins[Backends == 0 ? 1 : Backends * Ops]{};
  Handler* common[Ops]{};
};

/// Finds the types of a composition: those of its first backend.
template <class... Parts> struct types_of;
template <class Op, class Handler, class... Rest> struct types_of<backend<Op, Handler>, Rest...> {
  using op = Op;
  using handler = Handler;
};
template <class... Rest> struct types_of<left_out, Rest...> : types_of<Rest...> {};

/// Everything of one composition, computed by the compiler; each check is an assertion of its own.
template <const auto& Operations, const auto&... Parts> struct composed {
  using op = typename types_of<std::remove_cvref_t<decltype(Parts)>...>::op;
  using handler = typename types_of<std::remove_cvref_t<decltype(Parts)>...>::handler;
  using backend_type = backend<op, handler>;
  static_assert(((std::is_same_v<std::remove_cvref_t<decltype(Parts)>, backend_type> ||
                  std::is_same_v<std::remove_cvref_t<decltype(Parts)>, left_out>) &&
                 ...),
                "a composition's parts are backends of one operation and handler type, and left_out");

  static constexpr std::size_t operation_count = count(Operations);
  static constexpr std::size_t part_count =
      (std::size_t{0} + ... + (std::is_same_v<std::remove_cvref_t<decltype(Parts)>, backend_type> ? 1U : 0U));

  /// Every backend, `common` included, as composed.
  static constexpr std::array<const backend_type*, part_count == 0 ? 1 : part_count> parts = [] {
    std::array<const backend_type*, part_count == 0 ? 1 : part_count> all{};
    std::size_t next = 0;
    const auto add = [&](const auto& part) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(part)>, backend_type>) all[next++] = &part;
    };
    (add(Parts), ...);
    return all;
  }();
  static constexpr bool is_common(std::size_t i) { return equal(parts[i]->name, common_name); }
  static constexpr std::size_t common_count = [] {
    std::size_t n = 0;
    for (std::size_t i = 0; i < part_count; ++i) n += is_common(i) ? 1 : 0;
    return n;
  }();
  static constexpr std::size_t backend_count = part_count - (common_count > 0 ? 1 : 0);

  // -- the operations

  static constexpr std::array<operation_entry<op>, operation_count> listed = [] {
    std::array<operation_entry<op>, operation_count> all{};
    std::size_t next = 0;
    for_each(Operations, [&](const auto& e) { all[next++] = e; });
    return all;
  }();
  static constexpr finding sparse = [] {
    std::array<bool, operation_count> seen{};
    for (const auto& e : listed) {
      const std::size_t id = static_cast<std::size_t>(e.id);
      if (id >= operation_count || seen[id]) return finding{{}, e.name, static_cast<std::int64_t>(id)};
      seen[id] = true;
    }
    return finding{};
  }();
  static_assert(must_hold::operation_ids_are_dense<fixed_string<sparse.operation.size() + 1>(sparse.operation), sparse.id>::value,
                "an operation's id is used twice or is not below the number of operations");
  static constexpr finding nameless = [] {
    for (const auto& e : listed)
      if (has_blank(e.name)) return finding{{}, e.name.empty() ? std::string_view("(empty)") : e.name};
    return finding{};
  }();
  static_assert(must_hold::each_operation_has_a_name_without_blanks<fixed_string<nameless.operation.size() + 1>(nameless.operation)>::value,
                "an operation's name is empty or has blanks");

  static constexpr std::array<operation_entry<op>, operation_count> by_id = [] {
    std::array<operation_entry<op>, operation_count> all{};
    for (const auto& e : listed)
      if (static_cast<std::size_t>(e.id) < operation_count) all[static_cast<std::size_t>(e.id)] = e;
    return all;
  }();

  static constexpr std::size_t name_count = [] {
    std::size_t n = operation_count;
    for (const auto& e : listed) n += e.alias.empty() ? 0 : 1;
    return n;
  }();
  static constexpr std::array<named, name_count> operation_names = [] {
    std::array<named, name_count> all{};
    std::size_t next = 0;
    for (const auto& e : listed) {
      all[next++] = {e.name.data(), static_cast<std::uint32_t>(e.name.size()), static_cast<std::uint32_t>(e.id)};
      if (!e.alias.empty()) all[next++] = {e.alias.data(), static_cast<std::uint32_t>(e.alias.size()), static_cast<std::uint32_t>(e.id)};
    }
    return all;
  }();
  static constexpr perfect_hash<name_count> operation_hash = make_perfect_hash<name_count>(operation_names);
  static constexpr std::string_view clash(std::size_t i) {
    return operation_hash.clashes
               ? std::string_view(operation_names[operation_hash.clash[i]].text, operation_names[operation_hash.clash[i]].size)
               : std::string_view();
  }
  static constexpr std::string_view twice = operation_hash.clashes && equal(clash(0), clash(1)) ? clash(0) : std::string_view();
  static_assert(must_hold::each_operation_name_is_unique<fixed_string<twice.size() + 1>(twice)>::value, "two operations have one name");
  static constexpr std::string_view first_clash = twice.empty() ? clash(0) : std::string_view();
  static constexpr std::string_view second_clash = twice.empty() ? clash(1) : std::string_view();
  static_assert(must_hold::names_have_different_hashes<fixed_string<first_clash.size() + 1>(first_clash),
                                                       fixed_string<second_clash.size() + 1>(second_clash)>::value,
                "two names have one hash: rename one");
  static_assert(operation_hash.built || operation_hash.clashes, "no perfect hash was found for the operations' names");

  // -- the backends' names

  static constexpr finding bad_name = [] {
    for (std::size_t i = 0; i < part_count; ++i)
      if (has_blank(parts[i]->name)) return finding{parts[i]->name.empty() ? std::string_view("(empty)") : parts[i]->name};
    return finding{};
  }();
  static_assert(must_hold::each_backend_has_a_name_without_blanks<fixed_string<bad_name.backend.size() + 1>(bad_name.backend)>::value,
                "a backend's name is empty or has blanks");
  static constexpr finding repeated_name = [] {
    for (std::size_t i = 0; i < part_count; ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (equal(parts[i]->name, parts[j]->name)) return finding{parts[i]->name};
    return finding{};
  }();
  static_assert(must_hold::each_backend_name_is_unique<fixed_string<repeated_name.backend.size() + 1>(repeated_name.backend)>::value,
                "two backends have one name (there is one 'common')");

  /// The part whose handlers part `i` inherits, or `part_count`.
  static constexpr std::size_t base_of(std::size_t i) {
    const std::string_view wanted = parts[i]->codegen_name;
    if (wanted.empty() || equal(wanted, parts[i]->name)) return part_count;
    for (std::size_t j = 0; j < part_count; ++j)
      if (equal(parts[j]->name, wanted)) return j;
    return part_count;
  }
  static constexpr finding unknown_codegen_name = [] {
    for (std::size_t i = 0; i < part_count; ++i) {
      const std::string_view wanted = parts[i]->codegen_name;
      const bool self = wanted.empty() || equal(wanted, parts[i]->name);
      if (!self && (base_of(i) == part_count || equal(wanted, common_name))) return finding{parts[i]->name, wanted};
    }
    return finding{};
  }();
  static_assert(must_hold::each_codegen_name_is_a_backend<
                    fixed_string<unknown_codegen_name.backend.size() + 1>(unknown_codegen_name.backend),
                    fixed_string<unknown_codegen_name.operation.size() + 1>(unknown_codegen_name.operation)>::value,
                "a backend's codegen name is no backend of this composition");
  static constexpr finding cycle = [] {
    for (std::size_t i = 0; i < part_count; ++i) {
      std::size_t at = i;
      for (std::size_t steps = 0; at != part_count; ++steps, at = base_of(at))
        if (steps > part_count) return finding{parts[i]->name};
    }
    return finding{};
  }();
  static_assert(must_hold::codegen_names_form_no_cycle<fixed_string<cycle.backend.size() + 1>(cycle.backend)>::value,
                "a backend inherits from itself through its codegen name");

  // -- the rows

  static constexpr finding out_of_set = [] {
    finding f{};
    for (std::size_t i = 0; i < part_count; ++i)
      for_each_row(*parts[i], [&](const auto& row, bool) {
        if (static_cast<std::size_t>(row.op) >= operation_count) f = finding{parts[i]->name, {}, static_cast<std::int64_t>(row.op)};
      });
    return f;
  }();
  static_assert(
      must_hold::each_operation_is_in_the_set<fixed_string<out_of_set.backend.size() + 1>(out_of_set.backend), out_of_set.id>::value,
      "a backend has a handler for an operation that is not in the set");
  static constexpr finding null_handler = [] {
    finding f{};
    for (std::size_t i = 0; i < part_count; ++i)
      for_each_row(*parts[i], [&](const auto& row, bool) {
        if (row.handler == nullptr && static_cast<std::size_t>(row.op) < operation_count)
          f = finding{parts[i]->name, by_id[static_cast<std::size_t>(row.op)].name};
      });
    return f;
  }();
  static_assert(must_hold::each_handler_is_a_function<fixed_string<null_handler.backend.size() + 1>(null_handler.backend),
                                                      fixed_string<null_handler.operation.size() + 1>(null_handler.operation)>::value,
                "a handler is null");
  static constexpr finding duplicate = [] {
    finding f{};
    for (std::size_t i = 0; i < part_count; ++i) {
      handler* seen[operation_count]{};
      for_each_row(*parts[i], [&](const auto& row, bool from_parts) {
        const std::size_t id = static_cast<std::size_t>(row.op);
        if (id >= operation_count) return;
        // Parts may repeat a registration, as modules may be imported twice; one list may not.
        if (seen[id] != nullptr && !(from_parts && seen[id] == row.handler)) f = finding{parts[i]->name, by_id[id].name};
        seen[id] = row.handler;
      });
    }
    return f;
  }();
  static_assert(must_hold::each_operation_is_registered_once<fixed_string<duplicate.backend.size() + 1>(duplicate.backend),
                                                             fixed_string<duplicate.operation.size() + 1>(duplicate.operation)>::value,
                "a backend registers an operation twice");

  // -- the table

  using table_type = tables<op, handler, operation_count, backend_count>;
  /// Adds the rows of part `i` where row `b` is still empty.
  static constexpr void add_rows(table_type& t, std::size_t b, std::size_t i, provenance from) {
    for_each_row(*parts[i], [&](const auto& row, bool) {
      const std::size_t cell = b * operation_count + static_cast<std::size_t>(row.op);
      if (static_cast<std::size_t>(row.op) >= operation_count || t.handlers[cell] != nullptr) return;
      t.handlers[cell] = row.handler;
      t.origins[cell] = from;
    });
  }
  static constexpr table_type table = [] {
    table_type t{};
    std::size_t common_part = part_count;
    for (std::size_t i = 0; i < part_count; ++i)
      if (is_common(i)) common_part = i;
    if (common_part != part_count)
      for_each_row(*parts[common_part], [&](const auto& row, bool) {
        if (static_cast<std::size_t>(row.op) < operation_count) t.common[static_cast<std::size_t>(row.op)] = row.handler;
      });
    std::size_t b = 0;
    for (std::size_t i = 0; i < part_count; ++i) {
      if (i == common_part) continue;
      add_rows(t, b, i, provenance::own); // 1.
      std::size_t steps = 0;
      for (std::size_t base = base_of(i); base != part_count && steps <= part_count; base = base_of(base), ++steps)
        add_rows(t, b, base, provenance::inherited); // 2.
      if (common_part != part_count) add_rows(t, b, common_part, provenance::common); // 3.
      ++b; // 4. what is left is missing
    }
    return t;
  }();

  // A list inside a backend lives with the backend's module; what is needed at run time is copied.
  static constexpr std::size_t reserved_count = [] {
    std::size_t n = 0;
    for (std::size_t i = 0; i < part_count; ++i) n += parts[i]->reserved_launch_parameters.size();
    return n;
  }();
  static constexpr std::array<std::string_view, reserved_count + 1> reserved = [] {
    std::array<std::string_view, reserved_count + 1> all{};
    std::size_t next = 0;
    for (std::size_t i = 0; i < part_count; ++i)
      for (const std::string_view n : parts[i]->reserved_launch_parameters) all[next++] = n;
    return all;
  }();
  static constexpr std::array<backend_description, backend_count == 0 ? 1 : backend_count> descriptions = [] {
    std::array<backend_description, backend_count == 0 ? 1 : backend_count> all{};
    std::size_t b = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < part_count; ++i) {
      const backend_type& p = *parts[i];
      if (!is_common(i))
        all[b++] = {p.name, p.codegen_name.empty() ? p.name : p.codegen_name, p.experimental,
                    std::span<const std::string_view>(reserved.data() + first, p.reserved_launch_parameters.size())};
      first += p.reserved_launch_parameters.size();
    }
    return all;
  }();

  static constexpr std::array<named, backend_count> backend_names = [] {
    std::array<named, backend_count> all{};
    for (std::size_t b = 0; b < backend_count; ++b)
      all[b] = {descriptions[b].name.data(), static_cast<std::uint32_t>(descriptions[b].name.size()), static_cast<std::uint32_t>(b)};
    return all;
  }();
  static constexpr perfect_hash<backend_count> backend_hash = make_perfect_hash<backend_count>(backend_names);
  static_assert(backend_hash.built || backend_hash.clashes, "no perfect hash was found for the backends' names");

  // -- required operations

  static constexpr std::size_t most_holes = 64;
  struct hole_list {
    finding holes[most_holes]{};
    std::size_t count = 0;
  };
  static constexpr hole_list holes = [] {
    hole_list all{};
    for (std::size_t o = 0; o < operation_count; ++o) {
      if (!by_id[o].required) continue;
      for (std::size_t b = 0; b < backend_count; ++b)
        if (!descriptions[b].experimental && table.handlers[b * operation_count + o] == nullptr && all.count < most_holes)
          all.holes[all.count++] = {descriptions[b].name, by_id[o].name};
    }
    return all;
  }();
  template <class Indices> struct hole_checks;
  template <std::size_t... I>
  struct hole_checks<std::index_sequence<I...>>
      : must_hold::required_operation_is_implemented<fixed_string<holes.holes[I].backend.size() + 1>(holes.holes[I].backend),
                                                     fixed_string<holes.holes[I].operation.size() + 1>(holes.holes[I].operation)>... {};
  static_assert(std::is_class_v<hole_checks<std::make_index_sequence<holes.count>>> &&
                sizeof(hole_checks<std::make_index_sequence<holes.count>>) > 0);

  // -- what was left out

  static constexpr std::size_t left_out_count = [] {
    std::size_t n = 0;
    const auto add = [&](const auto& part) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(part)>, left_out>) n += part.names.size();
    };
    (add(Parts), ...);
    return n;
  }();
  static constexpr std::array<std::string_view, left_out_count == 0 ? 1 : left_out_count> left_out_names = [] {
    std::array<std::string_view, left_out_count == 0 ? 1 : left_out_count> all{};
    std::size_t next = 0;
    const auto add = [&](const auto& part) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(part)>, left_out>)
        for (const std::string_view n : part.names) all[next++] = n;
    };
    (add(Parts), ...);
    return all;
  }();

  static constexpr registry_data<op, handler> data{
      .handlers = table.handlers,
      .origins = table.origins,
      .operations = by_id.data(),
      .backends = descriptions.data(),
      .missing_backends = left_out_names.data(),
      .common = table.common,
      .operation_count = static_cast<std::uint32_t>(operation_count),
      .backend_count = static_cast<std::uint32_t>(backend_count),
      .left_out_count = static_cast<std::uint32_t>(left_out_count),
      .operation_names = operation_hash.view(),
      .backend_names = backend_hash.view(),
  };
};

} // namespace muster::detail

export namespace muster {

/// Changes wherever an operation is inserted, removed, moved or renamed. In the name of a symbol, as the argument of a template,
/// it keeps a program from being linked or loaded with a library whose operations have other numbers.
template <class Op> [[nodiscard]] constexpr std::uint64_t fingerprint(const operation_set<Op>& operations) noexcept {
  std::uint64_t h = 0;
  detail::for_each(operations, [&](const operation_entry<Op>& e) {
    h = detail::mix(h, detail::hash_whole(e.name), detail::hash_whole(e.alias), static_cast<std::uint64_t>(e.id), e.name.size());
  });
  return h;
}

namespace detail {

/// The number above the ids of a table's rows or of a set's entries.
template <class Ids> constexpr std::size_t id_limit(std::size_t count, const Ids& id) {
  std::size_t limit = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (id(i) >= limit) limit = id(i) + 1;
  return limit;
}

/// The first operation for which two tables have different handlers, or -1.
template <const auto& First, const auto& Second>
inline constexpr std::int64_t conflict = [] {
  constexpr std::size_t limit = id_limit(std::size(First), [](std::size_t i) { return static_cast<std::size_t>(First[i].op); });
  std::array<decltype(First[0].handler), limit + 1> seen{};
  for (const auto& row : First) seen[static_cast<std::size_t>(row.op)] = row.handler;
  for (const auto& row : Second) {
    const std::size_t id = static_cast<std::size_t>(row.op);
    if (id < limit && seen[id] != nullptr && seen[id] != row.handler) return static_cast<std::int64_t>(id);
  }
  return std::int64_t{-1};
}();

template <const auto& First, const auto& Second> struct agreement {
  static_assert(must_hold::tables_have_one_handler_an_operation<First, Second, conflict<First, Second>>::value,
                "two tables have different handlers for one operation");
};

/// What two lists of operations have in common: a name, an id.
template <std::size_t First, std::size_t Second, class Op>
constexpr finding common_entry(const std::array<operation_entry<Op>, First + Second>& all) {
  std::array<named, First + Second> names{};
  for (std::size_t i = 0; i < First + Second; ++i)
    names[i] = {all[i].name.data(), static_cast<std::uint32_t>(all[i].name.size()), static_cast<std::uint32_t>(i)};
  hashed_names<First + Second> h{};
  std::size_t clash[2]{};
  finding f{};
  if (hash_names<First + Second>(h, names, true, clash) && clash[0] < First && clash[1] >= First &&
      equal(all[clash[0]].name, all[clash[1]].name))
    f.operation = all[clash[0]].name;
  return f;
}

template <const auto& Table> constexpr std::size_t entry_count() {
  if constexpr (requires { Table.entries; }) return count(Table);
  else return std::size(Table);
}
template <const auto& Table, class Visit> constexpr void each_entry(const Visit& visit) {
  if constexpr (requires { Table.entries; }) for_each(Table, visit);
  else
    for (const auto& e : Table) visit(e);
}

template <class Op, const auto&... Tables>
inline constexpr auto all_entries = [] {
  std::array<operation_entry<Op>, (std::size_t{0} + ... + entry_count<Tables>())> all{};
  std::size_t next = 0;
  (each_entry<Tables>([&](const operation_entry<Op>& e) { all[next++] = e; }), ...);
  return all;
}();

template <class Op, const auto& First, const auto& Second> struct different_operations {
  static constexpr std::size_t first_count = entry_count<First>();
  static constexpr finding name = common_entry<first_count, entry_count<Second>(), Op>(all_entries<Op, First, Second>);
  static constexpr std::int64_t id = [] {
    constexpr const auto& all = all_entries<Op, First, Second>;
    constexpr std::size_t limit = id_limit(first_count, [](std::size_t i) { return static_cast<std::size_t>(all[i].id); });
    std::array<bool, limit + 1> seen{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t o = static_cast<std::size_t>(all[i].id);
      if (i < first_count) seen[o] = true;
      else if (o < limit && seen[o]) return static_cast<std::int64_t>(o);
    }
    return std::int64_t{-1};
  }();
  static_assert(
      must_hold::extensions_add_different_operations<First, Second, fixed_string<name.operation.size() + 1>(name.operation)>::value,
      "two lists add an operation of one name");
  static_assert(must_hold::extensions_use_different_ids<First, Second, id>::value, "two lists give one id to an operation each");
};

/// Instantiates a relation, which asserts itself, for every two of a list.
template <template <const auto&, const auto&> class Relation, const auto&... All> struct each_two {};
template <template <const auto&, const auto&> class Relation, const auto& First, const auto&... Rest>
struct each_two<Relation, First, Rest...> : each_two<Relation, Rest...> {
  static_assert(((sizeof(Relation<First, Rest>) > 0) && ... && true));
};

template <class Op> struct operations_of {
  template <const auto& First, const auto& Second> using differ = different_operations<Op, First, Second>;
};

} // namespace detail

/// Tables of handlers as one: `parts = merged<memory_handlers, pointwise_handlers>`. The same operation with the same
/// handler in two of them is one registration; with different handlers it is a compile error that names both tables.
template <const auto& First, const auto&... Rest>
inline constexpr auto merged = [] {
  (void)sizeof(detail::each_two<detail::agreement, First, Rest...>);
  using row = std::remove_cvref_t<decltype(First[0])>;
  std::array<row, (std::size(First) + ... + std::size(Rest))> all{};
  std::size_t next = 0;
  const auto append = [&](const auto& table) {
    for (const row& r : table) all[next++] = r;
  };
  append(First);
  (append(Rest), ...);
  return all;
}();

/// A backend with single handlers replaced or added: `constexpr auto mine = overriding<triton, my_rows>();`
template <const auto& Base, const auto& Rows>
inline constexpr auto overridden_rows = [] {
  using row = std::remove_cvref_t<decltype(Rows[0])>;
  const auto replaced = [](const row& r) {
    for (const row& mine : Rows)
      if (mine.op == r.op) return true;
    return false;
  };
  constexpr std::size_t kept = [&] {
    std::size_t n = 0;
    detail::for_each_row(Base, [&](const row& r, bool) { n += replaced(r) ? 0 : 1; });
    return n;
  }();
  std::array<row, kept + std::size(Rows)> all{};
  std::size_t next = 0;
  detail::for_each_row(Base, [&](const row& r, bool) {
    if (!replaced(r)) all[next++] = r;
  });
  for (const row& mine : Rows) all[next++] = mine;
  return all;
}();

template <const auto& Base, const auto& Rows> [[nodiscard]] consteval auto overriding() {
  auto copy = Base;
  copy.handlers = decltype(copy.handlers){};
  copy.parts = overridden_rows<Base, Rows>;
  return copy;
}

/// An operation set with the entries of lists added; their ids go on where the set's end: `extended<operations, mine, yours>()`.
/// Two lists that add one name, or take one id, are a compile error that names both.
template <const auto& Base, const auto&... More> [[nodiscard]] consteval auto extended() {
  using set_type = std::remove_cvref_t<decltype(Base)>;
  using op = decltype([]<class Op>(const operation_set<Op>&) { return Op{}; }(Base));
  (void)sizeof(detail::each_two<detail::operations_of<op>::template differ, Base, More...>);
  set_type set{};
  set.more = detail::all_entries<op, Base, More...>;
  return set;
}

/// Composes backends into a registry, all of it at compile time: `constexpr auto registry = compose<operations, common,
/// triton, metal>();`. Parts are backends, one of which may be named `common` (the fallback that serves all others), and
/// `left_out`. What does not fit together is a compile error that names backend and operation: an operation registered
/// twice, an id outside the set, two backends of one name, an unknown or cyclic codegen name, a name that is empty or has
/// blanks, a required operation that a backend which is not experimental lacks.
template <const auto& Operations, const auto&... Parts> [[nodiscard]] consteval auto compose() {
  using all = detail::composed<Operations, Parts...>;
  return registry_view<typename all::op, typename all::handler>(all::data);
}

} // namespace muster

// -------------------------------------------------------------------------------------------------------- errors of lookups

namespace muster::detail {

void raise_unknown_backend(const outline& registry, std::string_view name) {
  std::vector<std::string> names;
  for (std::uint32_t b = 0; b < registry.backend_count; ++b) names.emplace_back(registry.backends[b].name);
  for (std::uint32_t b = 0; b < registry.left_out_count; ++b)
    if (registry.left_out[b] == name) raise(BackendNotBuilt(name, names));
  raise(UnknownBackend(name, names));
}

void raise_unknown_operation(const outline& registry, std::string_view name) {
  std::vector<std::string_view> names;
  for (const named* n = registry.operation_names->names; n->value != named::none; ++n) names.emplace_back(n->text, n->size);
  raise(UnknownOperation(name, nearest_name(name, names)));
}

void raise_out_of_range(const outline& registry, std::uint32_t backend, std::uint32_t operation) {
  if (backend >= registry.backend_count) raise_unknown_backend(registry, "number " + std::to_string(backend));
  raise_unknown_operation(registry, "number " + std::to_string(operation));
}

void raise_implementation_missing(const outline& registry, std::uint32_t backend, std::uint32_t operation, std::string_view name,
                                  operation_family family, bool has_common) {
  std::vector<std::string> implemented_by;
  for (std::uint32_t b = 0; b < registry.backend_count; ++b)
    if (registry.origins[std::size_t{b} * registry.operation_count + operation] != provenance::missing)
      implemented_by.emplace_back(registry.backends[b].name);
  raise(BackendImplementationMissing(registry.backends[backend].name, name, family, std::move(implemented_by), has_common));
}

} // namespace muster::detail

#pragma GCC visibility pop
