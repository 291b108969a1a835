module;
#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// Kernel arguments, and the device they live on.
///
/// Two forms. At run time, arguments are a tree of 16-byte views (`argument`) over memory that the caller owns, or that an
/// `argument_list` owns. For typed C++ arguments the same questions are answered from the types: what cannot hold a tensor
/// costs nothing. No form reads a tensor's memory, shape or strides: its descriptor says where it is.
///
/// DLPack is recognised by shape, not by name: a `DLTensor` of any DLPack version, 0.6 or 1.x, in any namespace, is one here.
export module muster.launch;

import muster.error;

#pragma GCC visibility push(default)

export namespace muster {

/// Where a tensor lives: DLPack's numbers, and negative ones for devices that DLPack has no number for. Open: a number without
/// a name here is kept verbatim.
enum class device_type : std::int32_t {
  cpu = 1,
  cuda = 2,
  cuda_host = 3,
  opencl = 4,
  vulkan = 7,
  metal = 8,
  vpi = 9,
  rocm = 10,
  rocm_host = 11,
  ext_dev = 12,
  cuda_managed = 13,
  oneapi = 14,
  webgpu = 15,
  hexagon = 16,
  maia = 17,
  trn = 18,
  meta = -1, ///< a tensor without memory; no kernel runs there, and it is never replaced by a device that is real
  tpu = -2,
  npu = -3,
  privateuseone = -4,
};

/// A device. Layout and numbers are those of `DLDevice`, so `std::bit_cast<DLDevice>` gives one back.
struct device {
  device_type type = device_type::cpu;
  std::int32_t index = 0; ///< negative: "the current one", as some producers write it

  bool operator==(const device&) const = default;
};

/// `cuda:0`; `cpu` and `meta` without an index where that is 0; a type without a name as `device type 77:3`.
[[nodiscard]] std::string to_string(device where);

/// The device that `text` spells: a name of `device_type`, or `mps` (metal), `xpu` (oneapi), `hip` (rocm), whatever its case, and
/// `:INDEX` or nothing (index 0). Reads all that `to_string` writes. Anything else: no value. O(length), no allocation.
[[nodiscard]] std::optional<device> parse_device(std::string_view text) noexcept;

/// The device with a negative index ("the current one") replaced by 0; so `cuda`, `cuda:0` and `CUDA:0` compare equal.
[[nodiscard]] constexpr device normalized(device where) noexcept {
  return {.type = where.type, .index = where.index < 0 ? 0 : where.index};
}

/// `DLDevice` of any DLPack version.
template <class D>
concept dl_device_like = requires(const D& d) {
  d.device_type;
  { d.device_id } -> std::convertible_to<std::int32_t>;
} && sizeof(std::declval<const D&>().device_type) == sizeof(std::int32_t);

/// A `DLDevice` as a `device`, verbatim. The type is copied as bits: old headers' enumeration may not hold the values of new devices.
template <dl_device_like D> [[nodiscard]] constexpr device to_device(const D& d) noexcept {
  return {.type = static_cast<device_type>(std::bit_cast<std::int32_t>(d.device_type)), .index = static_cast<std::int32_t>(d.device_id)};
}

/// `DLTensor` of any DLPack version, or what derives from it.
template <class T>
concept dl_tensor_like = requires(const T& t) {
  t.data;
  t.shape;
  { t.ndim } -> std::convertible_to<std::int64_t>;
  { to_device(t.device) } -> std::same_as<device>;
};

/// A value that the kernel is compiled for: neither it nor what it holds is searched.
template <class T> struct constexpr_value {
  T value;
};
template <class T> constexpr_value(T) -> constexpr_value<T>;

} // namespace muster

namespace muster::detail {

[[noreturn]] [[gnu::cold]] void throw_no_tensor_args();
[[noreturn]] [[gnu::cold]] void throw_bad_container(bool odd);

struct tensor_facts {
  device where;
  std::int64_t rank = 1;
  const void* descriptor = nullptr; // of a dl_tensor_like that outlives the call
  bool present = true;
};

template <class T>
concept has_tensor_device = requires(const T& t) {
  { tensor_device(t) } -> std::convertible_to<device>;
};

template <class T>
concept has_tensor_rank = requires(const T& t) {
  { tensor_rank(t) } -> std::convertible_to<std::int64_t>;
};

template <class T>
concept has_dl_member = requires(const T& t) { requires dl_tensor_like<std::remove_cvref_t<decltype((t.dl_tensor))>>; };

template <class T>
concept has_dl_function = requires(const T& t) { t.dl_tensor(); };

template <class T> consteval bool is_tensor() {
  if constexpr (!std::is_class_v<T>) return false;
  else if constexpr (has_tensor_device<T> || dl_tensor_like<T> || has_dl_member<T>) return true;
  else if constexpr (has_dl_function<T>)
    return is_tensor<std::remove_cvref_t<std::remove_pointer_t<std::remove_cvref_t<decltype(std::declval<const T&>().dl_tensor())>>>>();
  else return false;
}

template <class T> consteval bool facts_are_nothrow() {
  if constexpr (has_tensor_device<T> && has_tensor_rank<T>)
    return noexcept(device(tensor_device(std::declval<const T&>()))) && noexcept(tensor_rank(std::declval<const T&>()));
  else if constexpr (has_tensor_device<T>) return noexcept(device(tensor_device(std::declval<const T&>())));
  else if constexpr (dl_tensor_like<T> || has_dl_member<T>) return true;
  else if constexpr (noexcept(std::declval<const T&>().dl_tensor()))
    return facts_are_nothrow<
        std::remove_cvref_t<std::remove_pointer_t<std::remove_cvref_t<decltype(std::declval<const T&>().dl_tensor())>>>>();
  else return false;
}

template <class T> constexpr tensor_facts facts_of(const T& t) noexcept(facts_are_nothrow<T>()) {
  if constexpr (has_tensor_device<T> && has_tensor_rank<T>) return {tensor_device(t), static_cast<std::int64_t>(tensor_rank(t))};
  else if constexpr (has_tensor_device<T>) return {tensor_device(t)};
  else if constexpr (dl_tensor_like<T>) return {to_device(t.device), static_cast<std::int64_t>(t.ndim), std::addressof(t)};
  else if constexpr (has_dl_member<T>) return facts_of(t.dl_tensor);
  else {
    decltype(auto) inner = t.dl_tensor();
    using inner_type = decltype(inner);
    if constexpr (std::is_pointer_v<std::remove_cvref_t<inner_type>>) {
      if (inner == nullptr) return {.where = {}, .present = false};
      return detail::facts_of(*inner);
    } else {
      tensor_facts facts = detail::facts_of(inner);
      if constexpr (!std::is_lvalue_reference_v<inner_type>) facts.descriptor = nullptr;
      return facts;
    }
  }
}

} // namespace muster::detail

export namespace muster {

/// A type whose objects are tensors, and are never iterated or subscripted, whatever else they can do:
/// - a `DLTensor`, a type derived from one, `DLManagedTensor`, `DLManagedTensorVersioned`, or what else has a member `dl_tensor`;
/// - a wrapper, view or descriptor with a member function `dl_tensor()`, const, that returns a tensor, or a pointer to one (null: none);
/// - any type `T` for which argument-dependent look-up finds `device tensor_device(const T&)`, and, unless its objects have
///   dimensions, `tensor_rank(const T&)`. This one is preferred where a type offers several.
template <class T>
concept tensor_like = detail::is_tensor<std::remove_cvref_t<T>>();

/// What an `argument` holds. Ordered: what cannot lead to a device, containers, what has a device.
enum class argument_kind : std::uint8_t {
  none,
  boolean,
  integer,
  real,
  string,
  object,          ///< a dtype, a function, or another object that no kernel takes
  constexpr_value, ///< wrapped: not searched
  scalars,         ///< a typed span of booleans, integers or reals
  tuple,
  list,
  dict,
  tensor,
  wide_tensor, ///< a tensor whose device type needs more than 16 bits; `kind()` calls it a tensor
  device,
};

/// What an argument of kind `object` is.
enum class object_kind : std::uint8_t { opaque, dtype, function };

/// One kernel argument: a 16-byte view, trivially copyable, that owns nothing. Strings, spans, containers and tensor descriptors that
/// it refers to must outlive it. A tensor's device and rank are copied in, so that finding it is no load more.
class argument {
public:
  constexpr argument() noexcept : argument(argument_kind::none) {}
  constexpr argument(std::nullptr_t) noexcept : argument() {}
  constexpr argument(std::nullopt_t) noexcept : argument() {}
  template <std::same_as<bool> B> constexpr argument(B value) noexcept : argument(argument_kind::boolean, value ? 1 : 0) {}
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  constexpr argument(I value) noexcept : argument(argument_kind::integer, static_cast<std::int64_t>(value)) {
    detail_ = std::is_unsigned_v<I> ? 1 : 0;
  }
  template <std::floating_point F> constexpr argument(F value) noexcept : kind_(argument_kind::real) {
    payload_.real = static_cast<double>(value);
  }
  /// A string of at most 2^32 - 1 bytes; of a longer one, those. A null `const char*` is none.
  template <std::convertible_to<std::string_view> S> constexpr argument(const S& text) noexcept : kind_(argument_kind::string) {
    if constexpr (std::is_pointer_v<S>)
      if (text == nullptr) {
        kind_ = argument_kind::none;
        return;
      }
    const std::string_view view = text;
    payload_.text = view.data();
    count_ = clamped(view.size());
  }
  constexpr argument(device where) noexcept : kind_(argument_kind::device) { payload_.where = where; }
  template <dl_device_like D> constexpr argument(const D& where) noexcept : argument(to_device(where)) {}
  /// A tensor: device, rank, and the address of its `DLTensor` where there is one that outlives this call.
  template <tensor_like T>
  constexpr argument(const T& tensor) noexcept(detail::facts_are_nothrow<T>()) : argument(detail::facts_of(tensor)) {}

  /// Containers. `items` is referred to, not copied; at most 2^32 - 1 of them, else `ArgumentNestingError`.
  [[nodiscard]] static constexpr argument tuple(std::span<const argument> items) { return {argument_kind::tuple, items, items.size()}; }
  [[nodiscard]] static constexpr argument list(std::span<const argument> items) { return {argument_kind::list, items, items.size()}; }
  /// `values_then_keys` holds the n values, then their n keys (strings, or other plain arguments), both in the dict's order: the
  /// search reads the first half only. An odd number is refused with `ArgumentNestingError`.
  [[nodiscard]] static constexpr argument dict(std::span<const argument> values_then_keys) {
    if (values_then_keys.size() % 2 != 0) detail::throw_bad_container(true);
    return {argument_kind::dict, values_then_keys, values_then_keys.size() / 2};
  }
  /// A list of numbers or booleans that is one argument, whatever its length (more than 2^32 - 1 are seen as that many).
  template <class T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] static constexpr argument scalars(std::span<const T> values) noexcept {
    argument result(argument_kind::scalars);
    result.payload_.address = values.data();
    result.count_ = clamped(values.size());
    result.detail_ = scalar_code<T>();
    return result;
  }
  /// Something that no kernel takes; `address` is the caller's own and is not read.
  [[nodiscard]] static constexpr argument object(object_kind kind = object_kind::opaque, const void* address = nullptr) noexcept {
    argument result(argument_kind::object);
    result.detail_ = static_cast<std::uint8_t>(kind);
    result.payload_.address = address;
    return result;
  }
  /// A value wrapped as constexpr; `address` is the caller's own and is not read.
  [[nodiscard]] static constexpr argument constexpr_wrapped(const void* address = nullptr) noexcept {
    argument result(argument_kind::constexpr_value);
    result.payload_.address = address;
    return result;
  }

  [[nodiscard]] constexpr argument_kind kind() const noexcept {
    return kind_ == argument_kind::wide_tensor ? argument_kind::tensor : kind_;
  }
  /// Neither a container nor a tensor nor a device: one compare.
  [[nodiscard]] constexpr bool is_plain() const noexcept { return kind_ <= argument_kind::scalars; }
  [[nodiscard]] constexpr bool is_container() const noexcept { return kind_ >= argument_kind::tuple && kind_ <= argument_kind::dict; }
  /// A tensor or a device: `where()` may be asked.
  [[nodiscard]] constexpr bool has_device() const noexcept { return kind_ >= argument_kind::tensor; }

  /// The first argument in [next, end) that is not plain, or `end`.
  [[nodiscard]] static constexpr const argument* skip_plain(const argument* next, const argument* end) noexcept {
    static_assert(static_cast<unsigned>(argument_kind::scalars) == 7);
    if (next != end && !next->is_plain()) return next;
    // Plain kinds are those below 8, so four are plain if their bitwise or is.
    const auto bits = [](const argument& one) { return static_cast<unsigned>(one.kind_); };
    while (end - next >= 4 && (bits(next[0]) | bits(next[1]) | bits(next[2]) | bits(next[3])) < 8) next += 4;
    while (next != end && next->is_plain()) ++next;
    return next;
  }

  /// Of a tensor or a device.
  [[nodiscard]] constexpr device where() const noexcept {
    if (kind_ == argument_kind::tensor) return {.type = static_cast<device_type>(type_), .index = static_cast<std::int32_t>(count_)};
    return payload_.where;
  }
  /// Of a tensor: the number of its dimensions, 255 standing for that or more.
  [[nodiscard]] constexpr std::uint8_t rank() const noexcept { return detail_; }
  /// Of a tensor: its `DLTensor`, or null where it has none that lives on, or where its device type needs more than 16 bits.
  [[nodiscard]] constexpr const void* descriptor() const noexcept { return kind_ == argument_kind::tensor ? payload_.address : nullptr; }

  /// Each of the matching kind only.
  [[nodiscard]] constexpr bool as_boolean() const noexcept { return payload_.integer != 0; }
  [[nodiscard]] constexpr std::int64_t as_integer() const noexcept { return payload_.integer; }
  [[nodiscard]] constexpr bool is_unsigned() const noexcept { return detail_ != 0; } ///< `as_integer` is the bits of a `uint64_t`
  [[nodiscard]] constexpr double as_real() const noexcept { return payload_.real; }
  [[nodiscard]] constexpr std::string_view as_string() const noexcept { return {payload_.text, count_}; }
  [[nodiscard]] constexpr object_kind as_object() const noexcept { return static_cast<object_kind>(detail_); }
  [[nodiscard]] constexpr const void* address() const noexcept { return payload_.address; } ///< as given to `object`, `constexpr_wrapped`

  /// Of a typed span: its values if `T` is what it was made from, else none.
  template <class T> [[nodiscard]] std::span<const T> scalars_as() const noexcept {
    if (kind_ != argument_kind::scalars || detail_ != scalar_code<T>()) return {};
    return {static_cast<const T*>(payload_.address), count_};
  }

  /// Of a container: its items; of a dict, its values. Else none.
  [[nodiscard]] constexpr std::span<const argument> items() const noexcept {
    return is_container() ? std::span<const argument>{payload_.items, count_} : std::span<const argument>{};
  }
  /// Of a dict: its keys, in the order of the values. Else none.
  [[nodiscard]] constexpr std::span<const argument> keys() const noexcept {
    return kind_ == argument_kind::dict ? std::span<const argument>{payload_.items + count_, count_} : std::span<const argument>{};
  }

private:
  static constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();

  static constexpr std::uint32_t clamped(std::size_t size) noexcept { return static_cast<std::uint32_t>(size < most ? size : most); }

  template <class T> static constexpr std::uint8_t scalar_code() noexcept {
    return static_cast<std::uint8_t>(sizeof(T) | (std::same_as<T, bool>         ? 0xC0U
                                                  : std::is_floating_point_v<T> ? 0x80U
                                                  : std::is_signed_v<T>         ? 0x40U
                                                                                : 0U));
  }

  explicit constexpr argument(argument_kind kind, std::int64_t value = 0) noexcept : kind_(kind) { payload_.integer = value; }
  constexpr argument(argument_kind kind, std::span<const argument> items, std::size_t count) : kind_(kind) {
    if (count > most) detail::throw_bad_container(false);
    payload_.items = items.data();
    count_ = static_cast<std::uint32_t>(count);
  }
  explicit constexpr argument(const detail::tensor_facts& facts) noexcept {
    if (!facts.present) return;
    detail_ = static_cast<std::uint8_t>(facts.rank < 0 ? 0 : facts.rank < 255 ? facts.rank : 255);
    type_ = static_cast<std::int16_t>(facts.where.type);
    if (static_cast<std::int32_t>(facts.where.type) == type_) {
      kind_ = argument_kind::tensor;
      count_ = static_cast<std::uint32_t>(facts.where.index);
      payload_.address = facts.descriptor;
    } else {
      kind_ = argument_kind::wide_tensor;
      payload_.where = facts.where;
    }
  }

  argument_kind kind_ = argument_kind::none;
  std::uint8_t detail_ = 0;  // a tensor's rank, an integer's sign, an object's kind, a span's element type
  std::int16_t type_ = 0;    // a tensor's device type
  std::uint32_t count_ = 0;  // of items or bytes; a tensor's device index
  union payload {
    constexpr payload() noexcept : integer(0) {}

    std::int64_t integer;
    double real;
    const char* text;
    const void* address;
    const argument* items;
    device where;
  };
  payload payload_;
};

static_assert(sizeof(argument) == 16 && std::is_trivially_copyable_v<argument>);

/// Containers nested this deep are searched; the arguments themselves are level 0.
inline constexpr std::size_t maximum_nesting = 10'000;
/// To this level a search allocates nothing, as long as it meets fewer than `unremembered_items` items.
inline constexpr std::size_t nesting_without_allocation = 64;
/// A search that has met this many items in containers without success begins to remember which containers it has exhausted, so that
/// arguments which share containers are searched in time linear in the distinct ones, and not in the paths to them.
inline constexpr std::size_t unremembered_items = std::size_t{1} << 22U;

} // namespace muster

namespace muster::detail {

/// Searches on from `next`, an item of `args`.
std::optional<device> find_nested(std::span<const argument> args, const argument* next);

/// What a launch has met so far.
struct launch_devices {
  std::optional<device> tensor;  // of the first tensor that decides
  std::optional<device> named;   // of the first device argument
  std::optional<device> scalar;  // of the first 0-dimensional host tensor
  bool tensors_differ = false;
  bool named_differ = false;

  /// True once there is no answer any more.
  constexpr bool add_tensor(device where, bool zero_dimensional) noexcept {
    where = normalized(where);
    const bool host = where.type == device_type::cpu || where.type == device_type::cuda_host || where.type == device_type::rocm_host;
    if (zero_dimensional && host) {
      if (!scalar) scalar = where;
      return false;
    }
    if (!tensor) tensor = where;
    tensors_differ = *tensor != where;
    return tensors_differ;
  }
  constexpr void add_named(device where) noexcept {
    where = normalized(where);
    if (!named) named = where;
    named_differ = named_differ || *named != where;
  }
  [[nodiscard]] constexpr bool differ() const noexcept { return tensors_differ || (!tensor && named_differ); }
  [[nodiscard]] constexpr std::optional<device> answer() const noexcept { return tensor ? tensor : named ? named : scalar; }
};

void add_launch_devices(std::span<const argument> args, launch_devices& devices);
[[noreturn]] [[gnu::cold]] void throw_device_mismatch(std::span<const argument> args, bool of_tensors);

template <class T> inline constexpr bool is_constexpr = false;
template <class T> inline constexpr bool is_constexpr<constexpr_value<T>> = true;
template <class T, T V> inline constexpr bool is_constexpr<std::integral_constant<T, V>> = true;

template <class... Ts> struct type_list {};

template <class T> struct fixed_parts { // std::tuple, std::pair, std::variant: their elements
  static constexpr bool is_variant = false;
  static constexpr bool is_tuple = false;
};
template <class... Ts> struct fixed_parts<std::tuple<Ts...>> {
  static constexpr bool is_variant = false;
  static constexpr bool is_tuple = true;
  using types = type_list<std::remove_reference_t<Ts>...>;
};
template <class A, class B> struct fixed_parts<std::pair<A, B>> : fixed_parts<std::tuple<A, B>> {};
template <class... Ts> struct fixed_parts<std::variant<Ts...>> {
  static constexpr bool is_variant = true;
  static constexpr bool is_tuple = false;
  using types = type_list<Ts...>;
};

template <class T> inline constexpr bool is_reference_wrapper = false;
template <class T> inline constexpr bool is_reference_wrapper<std::reference_wrapper<T>> = true;

template <class T>
concept object_pointer = std::is_pointer_v<T> && std::is_object_v<std::remove_pointer_t<T>>;

template <class T>
concept nullable = object_pointer<T> || (std::is_class_v<T> && requires(T& t) {
                     static_cast<bool>(t);
                     t.operator->();
                     *t;
                   });

template <class T>
concept views = std::ranges::contiguous_range<T> && std::ranges::sized_range<T> && std::same_as<std::ranges::range_value_t<T>, argument>;

/// How a C++ type is searched.
enum class form : std::uint8_t { plain, tensor, named, view, views, nullable, wrapper, alternatives, tuple, map, range };

template <class T> consteval form form_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::same_as<U, argument>) return form::view;
  else if constexpr (std::is_arithmetic_v<U> || is_constexpr<U>) return form::plain;
  else if constexpr (std::same_as<U, device> || dl_device_like<U>) return form::named;
  else if constexpr (tensor_like<U>) return form::tensor;
  else if constexpr (std::convertible_to<const U&, std::string_view>) return form::plain;
  else if constexpr (detail::views<T>) return form::views;
  else if constexpr (is_reference_wrapper<U>) return form::wrapper;
  else if constexpr (detail::nullable<U>) return form::nullable;
  else if constexpr (fixed_parts<U>::is_variant) return form::alternatives;
  else if constexpr (fixed_parts<U>::is_tuple) return form::tuple;
  else if constexpr (std::ranges::forward_range<T>) {
    if constexpr (std::same_as<std::ranges::range_value_t<T>, U>) return form::plain; // std::filesystem::path
    else if constexpr (requires { typename U::mapped_type; }) return form::map;
    else return form::range;
  } else return form::plain;
}

template <class T> consteval auto parts_of() {
  using U = std::remove_cv_t<T>;
  constexpr form f = form_of<T>();
  if constexpr (f == form::nullable) return type_list<std::remove_reference_t<decltype(*std::declval<T&>())>>{};
  else if constexpr (f == form::wrapper) return type_list<typename U::type>{};
  else if constexpr (f == form::alternatives || f == form::tuple) return typename fixed_parts<U>::types{};
  else if constexpr (f == form::map)
    return type_list<std::remove_reference_t<decltype((std::declval<std::ranges::range_reference_t<T&>>().second))>>{};
  else if constexpr (f == form::range) return type_list<std::remove_reference_t<std::ranges::range_reference_t<T&>>>{};
  else return type_list<>{};
}

/// Whether a tensor or a device can be in a `T` at all. `Within` are the types that it is part of.
template <class T, class... Within> consteval bool can_hold() {
  constexpr form f = form_of<T>();
  if constexpr ((std::same_as<std::remove_cv_t<T>, Within> || ...)) return false;
  else if constexpr (f == form::tensor || f == form::named || f == form::view || f == form::views) return true;
  else return []<class... Parts>(type_list<Parts...>) { return (can_hold<Parts, Within..., std::remove_cv_t<T>>() || ...); }(parts_of<T>());
}

template <class T, class... Within> consteval bool is_recursive() {
  if constexpr ((std::same_as<std::remove_cv_t<T>, Within> || ...)) return true;
  else
    return
        []<class... Parts>(type_list<Parts...>) { return (is_recursive<Parts, Within..., std::remove_cv_t<T>>() || ...); }(parts_of<T>());
}

template <class T> consteval bool walks_nothrow() {
  constexpr form f = form_of<T>();
  if constexpr (!can_hold<T>() || f == form::named || f == form::wrapper) return true;
  else if constexpr (f == form::tensor) return facts_are_nothrow<std::remove_cv_t<T>>();
  else if constexpr (f == form::view || f == form::views || is_recursive<T>()) return false;
  else {
    constexpr bool parts = []<class... Parts>(type_list<Parts...>) { return (walks_nothrow<Parts>() && ...); }(parts_of<T>());
    if constexpr (f == form::nullable) return parts && noexcept(static_cast<bool>(std::declval<T&>())) && noexcept(*std::declval<T&>());
    else if constexpr (f == form::map || f == form::range) {
      using iterator = std::ranges::iterator_t<T&>;
      return parts && noexcept(std::ranges::begin(std::declval<T&>())) && noexcept(std::ranges::end(std::declval<T&>())) &&
             noexcept(++std::declval<iterator&>()) && noexcept(*std::declval<iterator&>()) &&
             noexcept(std::declval<iterator&>() != std::declval<std::ranges::sentinel_t<T&>>());
    } else return parts;
  }
}

/// Calls `visitor` on each tensor, device and argument view in `x`, depth first, in order, until it returns true. Only what can hold
/// a tensor is touched; the recursion is over types, so its depth is a constant.
template <class T, class Visitor> constexpr bool walk(T& x, Visitor& visitor) {
  constexpr form f = form_of<T>();
  if constexpr (!can_hold<T>()) return false;
  else if constexpr (f == form::tensor) return visitor.tensor(detail::facts_of(x));
  else if constexpr (f == form::named && dl_device_like<std::remove_cv_t<T>>) return visitor.named(to_device(x));
  else if constexpr (f == form::named) return visitor.named(x);
  else if constexpr (f == form::view) return visitor.views(std::span<const argument>(std::addressof(x), 1));
  else if constexpr (f == form::views) return visitor.views(std::span<const argument>(std::ranges::data(x), std::ranges::size(x)));
  else if constexpr (f == form::wrapper) return detail::walk(x.get(), visitor);
  else if constexpr (f == form::nullable) {
    if (!static_cast<bool>(x)) return false;
    auto&& inner = *x;
    return detail::walk(inner, visitor);
  } else if constexpr (f == form::alternatives) {
    if (x.valueless_by_exception()) return false;
    return std::visit([&visitor](auto& alternative) { return detail::walk(alternative, visitor); }, x);
  } else if constexpr (f == form::tuple) {
    return std::apply([&visitor](auto&... elements) { return (detail::walk(elements, visitor) || ...); }, x);
  } else if constexpr (f == form::map) {
    for (auto&& entry : x)
      if (detail::walk(entry.second, visitor)) return true;
    return false;
  } else {
    for (auto&& element : x)
      if (detail::walk(element, visitor)) return true;
    return false;
  }
}

struct first_device {
  std::optional<device> found;

  constexpr bool tensor(const tensor_facts& facts) noexcept {
    if (facts.present) found = facts.where;
    return facts.present;
  }
  constexpr bool named(device where) noexcept {
    found = where;
    return true;
  }
  constexpr bool views(std::span<const argument> args) {
    const argument* const end = args.data() + args.size();
    const argument* const one = argument::skip_plain(args.data(), end);
    if (one == end) return false;
    found = one->has_device() ? one->where() : find_nested(args, one);
    return found.has_value();
  }
};

struct launch_visitor {
  launch_devices devices;

  constexpr bool tensor(const tensor_facts& facts) noexcept { return facts.present && devices.add_tensor(facts.where, facts.rank == 0); }
  constexpr bool named(device where) noexcept {
    devices.add_named(where);
    return false;
  }
  inline bool views(std::span<const argument> args) {
    add_launch_devices(args, devices);
    return devices.tensors_differ;
  }
};

template <class... Ts> consteval bool none_recursive() { return !((is_recursive<Ts>() && can_hold<Ts>()) || ...); }

} // namespace muster::detail

export namespace muster {

/// Whether a tensor or a device can be in any object of these types.
template <class... Ts> inline constexpr bool can_hold_device = (detail::can_hold<std::remove_reference_t<Ts>>() || ...);

/// The device of the first tensor or device among `args`, depth first, in order, in nested tuples, lists and dicts (a dict's values).
/// Plain arguments are skipped, and what a constexpr wraps is not searched. The device is verbatim, as the descriptor has it.
///
/// Neither recursion nor, on a path that finds a device within `nesting_without_allocation` levels, allocation (but see
/// `unremembered_items`). Linear in the distinct items before the answer: a container met again by another path costs nothing more,
/// once the search remembers.
/// Throws `NoTensorArgs` if there is none, `ArgumentNestingError` on meeting, before a device, what is nested more than
/// `maximum_nesting` deep or a container that contains itself, `std::bad_alloc`.
[[nodiscard]] inline device find_device(std::span<const argument> args) {
  const argument* const end = args.data() + args.size();
  const argument* const one = argument::skip_plain(args.data(), end);
  if (one != end) {
    if (one->has_device()) return one->where();
    if (const std::optional<device> found = detail::find_nested(args, one)) return *found;
  }
  detail::throw_no_tensor_args();
}
[[nodiscard]] inline device find_device(std::initializer_list<argument> args) {
  return find_device(std::span<const argument>(args.begin(), args.size()));
}

/// The same, with an empty optional in place of `NoTensorArgs`.
[[nodiscard]] inline std::optional<device> try_find_device(std::span<const argument> args) {
  const argument* const end = args.data() + args.size();
  const argument* const one = argument::skip_plain(args.data(), end);
  if (one == end) return std::nullopt;
  if (one->has_device()) return one->where();
  return detail::find_nested(args, one);
}
[[nodiscard]] inline std::optional<device> try_find_device(std::initializer_list<argument> args) {
  return try_find_device(std::span<const argument>(args.begin(), args.size()));
}

/// The same for typed C++ arguments. Searched are tensors (`tensor_like`), devices, argument views, and, where such a thing can be in them:
/// raw and smart pointers, optionals (null: skipped), `std::reference_wrapper`, `std::variant`, `std::tuple`, `std::pair`, maps (their
/// mapped values), forward ranges. A type that can hold none is not touched, a string never iterated, a tensor never iterated or
/// subscripted. Where nothing can hold a tensor, `try_find_device` is the constant `std::nullopt`. A type that contains itself (a range of
/// shared pointers to such ranges) is refused at compile time: its depth is known at run time only, which is what argument views are for.
/// Allocates nothing. Throws only what dereferencing and iterating throws, and for argument views as above; else it is `noexcept`.
template <class... Ts>
[[nodiscard]] constexpr std::optional<device>
try_find_device(Ts&&... args) noexcept((detail::walks_nothrow<std::remove_reference_t<Ts>>() && ...)) {
  static_assert(detail::none_recursive<std::remove_reference_t<Ts>...>(),
                "a type that contains itself cannot be searched as a type: pass argument views");
  detail::first_device first;
  static_cast<void>((detail::walk(args, first) || ...));
  return first.found;
}

/// The same; throws `NoTensorArgs` if there is none. Where nothing can hold a tensor or a device this is a compile-time error.
template <class... Ts> [[nodiscard]] constexpr device find_device(Ts&&... args) {
  static_assert(can_hold_device<Ts...>, "no argument can hold a tensor or a device: find_device could only throw NoTensorArgs");
  const std::optional<device> found = try_find_device(args...);
  if (!found) detail::throw_no_tensor_args();
  return *found;
}

/// Arguments that own what they refer to: for those who put a tree together in C++. A contiguous range of `argument`, so it is passed to
/// all that takes a span of them. Strings, numbers and the tree are copied; tensor descriptors are referred to and must live on.
/// Copies share the immutable parts. Views of it end with the next `add`.
class argument_list {
public:
  argument_list() = default;
  /// One argument for each value, as by `add`.
  template <class... Ts>
    requires(sizeof...(Ts) > 0 && !(sizeof...(Ts) == 1 && (std::same_as<std::remove_cvref_t<Ts>, argument_list> && ...)))
  explicit argument_list(Ts&&... values) {
    (add(values), ...);
  }

  /// Appends a C++ value as one argument: what the typed `find_device` searches becomes what it stands for (tuple, pair: a tuple; map: a
  /// dict; range: a list, one of numbers a typed span; null: none), a number, string, enumeration or `constexpr_value` itself, a function
  /// or a `DLDataType` such an object, a pointer to what holds no tensor an integer, and the rest opaque objects.
  template <class T> argument_list& add(T&& value) {
    static_assert(!detail::is_recursive<std::remove_reference_t<T>>(), "a type that contains itself cannot be converted: add its parts");
    items_.push_back(convert(value));
    return *this;
  }
  argument_list& add_tuple(argument_list items);
  argument_list& add_list(argument_list items);
  /// `keys` and `values` in the same order; `ArgumentNestingError` if there are not as many.
  argument_list& add_dict(const argument_list& keys, argument_list values);

  [[nodiscard]] inline const argument* begin() const noexcept { return items_.data(); }
  [[nodiscard]] inline const argument* end() const noexcept { return items_.data() + items_.size(); }
  [[nodiscard]] inline const argument* data() const noexcept { return items_.data(); }
  [[nodiscard]] inline std::size_t size() const noexcept { return items_.size(); }

private:
  using owner = std::shared_ptr<const void>;

  template <class T> argument convert(T& value);
  template <class T> argument keep_scalars(T& values);
  std::span<const argument> keep(std::vector<argument> items);
  argument keep_string(std::string_view text);
  void absorb(argument_list& other);

  std::vector<argument> items_;
  std::vector<owner> owned_;
};

/// The device on which to launch: the one that all tensors share (a negative index, "the current one", is 0). 0-dimensional tensors in
/// host memory count as scalars, so one beside a GPU's tensors is no mismatch. Without other tensors the answer is that of the
/// device arguments, if any, else that of the first 0-dimensional host tensor; `meta` is an answer, and never turned into a real device.
/// Throws `DeviceMismatch`, which names the paths (`args[2]['w'][1]`) and devices of the first two tensors (or, without tensors, device
/// arguments) that differ; `NoTensorArgs`; `ArgumentNestingError` as `find_device` does, though here every argument is searched.
[[nodiscard]] device launch_device(std::span<const argument> args);
[[nodiscard]] inline device launch_device(std::initializer_list<argument> args) {
  return launch_device(std::span<const argument>(args.begin(), args.size()));
}

/// The same for typed C++ arguments, as searched by `find_device`. Allocates only for a message.
template <class... Ts> [[nodiscard]] constexpr device launch_device(Ts&&... args) {
  static_assert(can_hold_device<Ts...>, "no argument can hold a tensor or a device: launch_device could only throw NoTensorArgs");
  static_assert(detail::none_recursive<std::remove_reference_t<Ts>...>(),
                "a type that contains itself cannot be searched as a type: pass argument views");
  detail::launch_visitor visitor;
  static_cast<void>((detail::walk(args, visitor) || ...));
  if (visitor.devices.differ()) {
    if constexpr (sizeof...(Ts) == 1 && (detail::views<std::remove_reference_t<Ts>> && ...))
      (detail::throw_device_mismatch(std::span<const argument>(args), visitor.devices.tensors_differ), ...);
    else detail::throw_device_mismatch(argument_list(args...), visitor.devices.tensors_differ);
  }
  const std::optional<device> answer = visitor.devices.answer();
  if (!answer) detail::throw_no_tensor_args();
  return *answer;
}

/// Throws `UnsupportedArgument` for the first argument, depth first, that no kernel takes: a string, a dtype, a function, another object.
/// The message has its path and says `make it constexpr`. None, numbers, tensors, devices and what is wrapped as constexpr pass.
/// `ArgumentNestingError` as for `launch_device`.
void check_launchable(std::span<const argument> args);
inline void check_launchable(std::initializer_list<argument> args) {
  check_launchable(std::span<const argument>(args.begin(), args.size()));
}
/// The same for typed C++ arguments; allocates.
template <class... Ts> void check_launchable(Ts&&... args) {
  if constexpr (sizeof...(Ts) == 1 && (detail::views<std::remove_reference_t<Ts>> && ...))
    (check_launchable(std::span<const argument>(args)), ...);
  else check_launchable(std::span<const argument>(argument_list(args...)));
}

} // namespace muster

namespace muster {

template <class T> argument argument_list::keep_scalars(T& values) {
  using element = std::ranges::range_value_t<T>;
  const auto count = static_cast<std::size_t>(std::ranges::distance(values));
  const std::shared_ptr<element[]> kept(new element[count]);
  std::ranges::copy(values, kept.get());
  owned_.emplace_back(kept, kept.get());
  return argument::scalars(std::span<const element>(kept.get(), count));
}

template <class T> argument argument_list::convert(T& value) {
  using U = std::remove_cv_t<T>;
  constexpr detail::form f = detail::form_of<T>();
  if constexpr (f == detail::form::view) return value;
  else if constexpr (f == detail::form::views) return argument::list(keep({std::ranges::begin(value), std::ranges::end(value)}));
  else if constexpr (f == detail::form::tensor || f == detail::form::named) return argument(value);
  else if constexpr (f == detail::form::wrapper) return convert(value.get());
  else if constexpr (f == detail::form::nullable) {
    // A pointer to plain data may be a device's: it is not followed.
    if constexpr (std::is_pointer_v<U> && !detail::can_hold<U>()) return argument(std::bit_cast<std::uintptr_t>(value));
    else {
      if (!static_cast<bool>(value)) return {};
      auto&& inner = *value;
      return convert(inner);
    }
  } else if constexpr (f == detail::form::alternatives) {
    if (value.valueless_by_exception()) return {};
    return std::visit([&](auto& alternative) { return this->convert(alternative); }, value);
  } else if constexpr (f == detail::form::tuple) {
    return argument::tuple(keep(std::apply([&](auto&... elements) { return std::vector<argument>{this->convert(elements)...}; }, value)));
  } else if constexpr (f == detail::form::map) {
    std::vector<argument> items;
    std::vector<argument> keys;
    for (auto&& entry : value) {
      items.push_back(convert(entry.second));
      keys.push_back(convert(entry.first));
    }
    items.insert(items.end(), keys.begin(), keys.end());
    return argument::dict(keep(std::move(items)));
  } else if constexpr (f == detail::form::range) {
    if constexpr (std::is_arithmetic_v<std::ranges::range_value_t<T>>) return keep_scalars(value);
    else {
      std::vector<argument> items;
      for (auto&& element : value) items.push_back(convert(element));
      return argument::list(keep(std::move(items)));
    }
  } else if constexpr (detail::is_constexpr<U>) return argument::constexpr_wrapped();
  else if constexpr (std::is_null_pointer_v<U> || std::same_as<U, std::nullopt_t> || std::same_as<U, std::monostate>) return {};
  else if constexpr (std::is_enum_v<U>) return argument(static_cast<std::underlying_type_t<U>>(value));
  else if constexpr (std::is_arithmetic_v<U>) return argument(value);
  else if constexpr (std::convertible_to<const U&, std::string_view>) {
    if constexpr (std::is_pointer_v<U>)
      if (value == nullptr) return {};
    return keep_string(value);
  } else if constexpr (std::is_function_v<U> || std::is_function_v<std::remove_pointer_t<U>>)
    return argument::object(object_kind::function);
  else if constexpr (requires { value.code, value.bits, value.lanes; }) return argument::object(object_kind::dtype);
  else if constexpr (std::is_pointer_v<U>) return argument(std::bit_cast<std::uintptr_t>(value));
  else return argument::object();
}

} // namespace muster

#pragma GCC visibility pop
