#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
#include <doctest/doctest.h>
#include <gsl/gsl>
#include <sys/mman.h>
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#include "allocations.hpp"
import muster.error;
import muster.launch;

// Rows B44 to B69 of SCENARIOS part C are the cases named by their row. B49, B62 and B63 do not apply here: they are about what the code
// generator emits (creation operations without a device, constants that are cast, the width of scalar parameters), not about arguments,
// and belong to its tests.

using namespace muster;

/// DLPack 1.x as its header declares it for C++.
namespace dlpack_1 {
enum DLDeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2, kDLMAIA = 17, kDLTrn = 18 };
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};
struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor dl_tensor;
};
} // namespace dlpack_1

namespace {

using tensor_descriptor = dlpack_1::DLTensor;

constexpr device cpu{device_type::cpu, 0};
constexpr device cuda_0{device_type::cuda, 0};
constexpr device cuda_1{device_type::cuda, 1};
constexpr device cuda_3{device_type::cuda, 3};
constexpr device tpu_0{device_type::tpu, 0};
constexpr device meta{device_type::meta, 0};

constexpr tensor_descriptor tensor_on(device where, std::int32_t rank = 1) {
  return {nullptr, {static_cast<dlpack_1::DLDeviceType>(where.type), where.index}, rank, {2, 32, 1}, nullptr, nullptr, 0};
}

/// Numbers of a type that the module was not told about.
struct host_array {
  device where;
  std::int64_t rank = 1;
};
constexpr device tensor_device(const host_array& array) noexcept { return array.where; }
constexpr std::int64_t tensor_rank(const host_array& array) noexcept { return array.rank; }

/// A tensor that can be iterated, and counts who does it.
struct counting_tensor {
  tensor_descriptor descriptor = tensor_on(cuda_1);
  mutable int calls = 0;

  const tensor_descriptor& dl_tensor() const noexcept { return descriptor; }
  const float* begin() const { return ++calls, nullptr; }
  const float* end() const { return ++calls, nullptr; }
  float operator[](std::size_t) const { return static_cast<float>(++calls); }
  std::size_t size() const { return static_cast<std::size_t>(++calls); }
};

struct wrapper { // a view that reinterprets another tensor
  const counting_tensor* base;
  const counting_tensor& dl_tensor() const noexcept { return *base; }
};
struct pointer_wrapper {
  const tensor_descriptor* base;
  const tensor_descriptor* dl_tensor() const noexcept { return base; }
};
struct value_wrapper {
  device where;
  tensor_descriptor dl_tensor() const { return tensor_on(where); }
};
struct derived_descriptor : tensor_descriptor {};
struct derived_array : host_array {};
struct derived_wrapper : wrapper {};

template <class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// `depth` lists, each the only item of the one around it, the innermost holding `inner`.
struct nested_lists {
  std::vector<argument> levels;

  nested_lists(std::size_t depth, argument inner) : levels(depth + 1) {
    levels[depth] = inner;
    for (std::size_t i = depth; i-- > 0;) levels[i] = argument::list({&levels[i + 1], 1});
  }
  std::span<const argument> args() const { return {levels.data(), 1}; }
};

template <class... Ts> bool finds_at_compile_time(Ts&&...) { return can_hold_device<Ts...>; }

} // namespace

// ---- part C ----

TEST_CASE("launch: B44 nested 0-dimensional tensor, a tensor never iterated, and nothing to find") {
  const tensor_descriptor scalar = tensor_on(cuda_1, 0);
  const std::array inner{argument(scalar)};
  const std::array outer{argument::list(inner)};
  CHECK(find_device({argument::tuple(outer)}) == cuda_1);
  CHECK(find_device(std::tuple(std::vector{scalar})) == cuda_1);

  const counting_tensor counting;
  CHECK(find_device({1, counting}) == cuda_1);
  CHECK(find_device(1, counting, std::tuple(std::vector{&counting})) == cuda_1);
  CHECK(launch_device(counting, std::tuple(std::vector{&counting})) == cuda_1);
  CHECK_NOTHROW(check_launchable(counting));
  CHECK(counting.calls == 0);

  const std::array<int, 3> ints{1, 2, 3};
  CHECK_THROWS_AS((void)find_device(std::span<const argument>()), NoTensorArgs);
  CHECK_THROWS_AS((void)find_device({argument::list({})}), NoTensorArgs);
  CHECK_THROWS_AS((void)find_device({argument::dict({})}), NoTensorArgs);
  CHECK_THROWS_AS((void)find_device({argument::scalars(std::span<const int>(ints))}), NoTensorArgs);
  CHECK_FALSE(try_find_device({argument::list({}), argument::dict({}), argument::tuple({})}).has_value());
  CHECK_THROWS_AS((void)find_device(std::vector<tensor_descriptor>()), NoTensorArgs);
  // For types that can hold no tensor find_device does not compile (test/compile_fail); this is the constant:
  static_assert(!try_find_device().has_value());
  static_assert(!try_find_device(std::tuple<>(), 3, 2.5, std::array{1, 2}).has_value());
}

TEST_CASE("launch: B45 a wrapper, view or descriptor around a tensor, alone and nested") {
  const counting_tensor base;
  const tensor_descriptor descriptor = tensor_on(cuda_1);
  const wrapper wrapped{&base};
  const pointer_wrapper pointed{&descriptor};
  CHECK(find_device({wrapped}) == cuda_1);
  CHECK(find_device(wrapped) == cuda_1);
  CHECK(find_device(pointed) == cuda_1);
  CHECK(find_device(value_wrapper{cuda_3}) == cuda_3);
  CHECK(find_device(std::tuple(1, std::vector{wrapped})) == cuda_1);
  const std::array nested{argument(1), argument(pointed)};
  CHECK(find_device({argument::list(nested)}) == cuda_1);
  CHECK(find_device(std::ref(wrapped)) == cuda_1);

  CHECK(argument(wrapped).descriptor() == &base.descriptor);
  CHECK(argument(pointed).descriptor() == &descriptor);
  CHECK(argument(value_wrapper{cuda_3}).descriptor() == nullptr); // it does not outlive the call
  CHECK(argument(pointer_wrapper{nullptr}).kind() == argument_kind::none);
  CHECK_FALSE(try_find_device(pointer_wrapper{nullptr}).has_value());
}

TEST_CASE("launch: B46 text, none and numbers are skipped, a list in a map is searched") {
  const tensor_descriptor tensor = tensor_on(cuda_1);
  const std::array list{argument(tensor)};
  const std::array map{argument::list(list), argument("weights")};
  CHECK(find_device({nullptr, "text", argument::dict(map), 3}) == cuda_1);
  CHECK(find_device(nullptr, "text", std::map<std::string, std::vector<tensor_descriptor>>{{"weights", {tensor}}}, 3) == cuda_1);
}

TEST_CASE("launch: B48 derived from or adapting a tensor, by value, reference and pointer") {
  const derived_descriptor derived{tensor_on(cuda_1)};
  const derived_array array{{cuda_3}};
  const counting_tensor base;
  const derived_wrapper wrapped{{&base}};
  const auto all_forms = [](const auto& tensor, device where) {
    using T = std::remove_cvref_t<decltype(tensor)>;
    CHECK(find_device({tensor}) == where);
    CHECK(find_device(T(tensor)) == where);
    CHECK(find_device(tensor) == where);
    CHECK(find_device(std::cref(tensor)) == where);
    CHECK(find_device(&tensor) == where);
    CHECK(find_device(std::make_unique<T>(tensor)) == where);
    CHECK(find_device(std::make_shared<const T>(tensor)) == where);
    CHECK(find_device(gsl::not_null<const T*>(&tensor)) == where);
    CHECK(find_device(std::optional<T>(tensor)) == where);
    CHECK(find_device(std::variant<int, T>(tensor)) == where);
    CHECK(find_device(std::array{tensor}) == where);
    CHECK(find_device(std::pair(1, tensor)) == where);
    CHECK(find_device(std::tie(tensor)) == where);
    CHECK(find_device(std::unordered_map<int, std::shared_ptr<T>>{{1, nullptr}, {2, std::make_shared<T>(tensor)}}) == where);
    CHECK(launch_device(1, std::list<std::tuple<T>>{tensor, tensor}) == where);
  };
  all_forms(derived, cuda_1);
  all_forms(array, cuda_3);
  all_forms(wrapped, cuda_1);
  CHECK(launch_device(std::optional<derived_array>(), std::unique_ptr<tensor_descriptor>(), static_cast<const tensor_descriptor*>(nullptr),
                      derived) == cuda_1);
}

TEST_CASE("launch: B51 scalars bring no device in, 0-dimensional host tensors neither") {
  const host_array scalar{cpu, 0};
  const host_array tensor{tpu_0};
  CHECK(launch_device({2.5, tensor}) == tpu_0);
  CHECK(launch_device({scalar, tensor}) == tpu_0);
  CHECK(launch_device(2.5, tensor) == tpu_0);
  CHECK(launch_device(scalar, tensor) == tpu_0);
  CHECK(launch_device({host_array{{device_type::cuda_host, 0}, 0}, tensor}) == tpu_0);
  CHECK(launch_device({scalar}) == cpu);
  CHECK(launch_device(scalar, 3) == cpu);
  CHECK(launch_device({scalar, cuda_1}) == cuda_1);
  // A 0-dimensional tensor on another device is not a scalar, nor is a host tensor that has a dimension.
  CHECK_THROWS_AS((void)launch_device({host_array{cuda_1, 0}, tensor}), DeviceMismatch);
  CHECK_THROWS_AS((void)launch_device({host_array{cpu, 1}, tensor}), DeviceMismatch);
}

TEST_CASE("launch: B53 the search goes on past siblings without a tensor") {
  const tensor_descriptor tensor = tensor_on(cuda_1);
  const std::array with_none{argument(), argument(tensor)};
  const std::array map{argument(5), argument::list({}), argument::list(with_none), argument("a"), argument("b"), argument("c")};
  CHECK(find_device({argument::dict(map)}) == cuda_1);
  CHECK(find_device({argument::list({}), argument::dict({}), tensor}) == cuda_1);
  const std::array list{argument::list({}), argument::dict({}), argument(tensor)};
  CHECK(find_device({argument::list(list)}) == cuda_1);
  CHECK(find_device(std::vector<tensor_descriptor>(), std::map<int, tensor_descriptor>(),
                    std::tuple(std::vector<tensor_descriptor*>{nullptr}), tensor) == cuda_1);
}

TEST_CASE("launch: B54 a list that contains itself, and deep nesting") {
  const auto self = std::make_shared<std::vector<argument>>(3);
  (*self)[1] = argument::list(*self);
  CHECK(message_of([&] { (void)find_device({1, argument::list(*self)}); }) == "args[1] contains itself");
  CHECK(message_of([&] { (void)find_device(*self); }) == "args contains itself");
  CHECK_THROWS_AS((void)try_find_device({argument::list(*self)}), ArgumentNestingError);
  CHECK_THROWS_AS((void)launch_device({argument::list(*self)}), ArgumentNestingError);
  CHECK_THROWS_AS(check_launchable({argument::list(*self)}), ArgumentNestingError);
  (*self)[0] = cuda_1; // found before the list is met again
  CHECK(find_device({argument::list(*self)}) == cuda_1);

  // Twice in itself, by way of a dict: a search of every path would not end.
  std::vector<argument> a(2);
  std::vector<argument> b(4);
  b[2] = "x";
  b[3] = "y";
  a[0] = a[1] = argument::dict(b);
  b[0] = b[1] = argument::list(a);
  CHECK(message_of([&] { (void)find_device({argument::tuple(a)}); }) == "args[0] contains itself");

  for (const std::size_t depth :
       {std::size_t{1}, nesting_without_allocation, nesting_without_allocation + 1, std::size_t{1000}, maximum_nesting}) {
    const nested_lists lists(depth, cuda_1);
    CHECK(find_device(lists.args()) == cuda_1);
    CHECK(launch_device(lists.args()) == cuda_1);
    const nested_lists empty(depth, 1);
    CHECK_FALSE(try_find_device(empty.args()).has_value());
  }
  for (const std::size_t depth : {maximum_nesting + 1, std::size_t{100'000}}) {
    const nested_lists lists(depth, cuda_1);
    CHECK_THROWS_AS((void)find_device(lists.args()), ArgumentNestingError);
    const std::string what = message_of([&] { (void)find_device(lists.args()); });
    CHECK(what.starts_with("Arguments are nested more than 10000 levels deep, in args[0][0]"));
    CHECK(what.size() < 300);
  }
}

TEST_CASE("launch: B58 cuda, cuda:0 and CUDA:0 are equal") {
  CHECK(parse_device("cuda") == cuda_0);
  CHECK(parse_device("cuda:0") == cuda_0);
  CHECK(parse_device("CUDA:0") == cuda_0);
  CHECK(normalized({device_type::cuda, -1}) == cuda_0);
  CHECK(launch_device({host_array{*parse_device("cuda")}, host_array{*parse_device("CUDA:0")}, host_array{{device_type::cuda, -1}}}) ==
        cuda_0);
  CHECK(launch_device(host_array{{device_type::cuda, -1}}, host_array{cuda_0}) == cuda_0);
  CHECK(find_device({host_array{{device_type::cuda, -1}}}) == device{device_type::cuda, -1}); // verbatim
}

TEST_CASE("launch: B59 meta beside cpu is a mismatch, meta alone is meta") {
  CHECK(message_of([] { (void)launch_device({host_array{meta}, host_array{cpu}}); }) ==
        "Arguments are on different devices: args[0] is on meta, args[1] is on cpu");
  CHECK(launch_device({host_array{meta}}) == meta);
  CHECK(find_device({host_array{meta}}) == meta);
  CHECK(launch_device(host_array{meta}) == meta);
}

TEST_CASE("launch: B61 two devices in one call are a mismatch with both positions") {
  const tensor_descriptor first = tensor_on(cuda_0);
  const tensor_descriptor second = tensor_on(cuda_3);
  const std::string what = "Arguments are on different devices: args[1] is on cuda:0, args[2]['w'][1] is on cuda:3";
  const std::array list{argument(first), argument(second)};
  const std::array map{argument(7), argument::list(list), argument("v"), argument("w")};
  CHECK(message_of([&] { (void)launch_device({5, first, argument::dict(map)}); }) == what);
  CHECK(message_of([&] {
          (void)launch_device(5, first, std::map<std::string, std::vector<tensor_descriptor>>{{"v", {}}, {"w", {first, second}}});
        }) == what);
  CHECK(message_of([&] { (void)launch_device(argument_list(5, &first, std::tuple(second))); }) ==
        "Arguments are on different devices: args[1] is on cuda:0, args[2][0] is on cuda:3");
  // Tensors decide, whatever devices stand among the arguments; without tensors these must agree.
  CHECK(launch_device({cuda_3, first}) == cuda_0);
  CHECK(launch_device(cuda_3, first, cuda_1) == cuda_0);
  CHECK(launch_device({cuda_3, 1, cuda_3}) == cuda_3);
  CHECK(message_of([&] { (void)launch_device({cuda_3, host_array{cpu, 0}, cuda_1}); }) ==
        "Arguments are on different devices: args[0] is on cuda:3, args[2] is on cuda:1");
  CHECK_THROWS_AS((void)launch_device(cuda_3, cuda_1), DeviceMismatch);
  CHECK_THROWS_AS((void)launch_device({1, "text"}), NoTensorArgs);
  CHECK_THROWS_AS((void)launch_device(std::optional<tensor_descriptor>()), NoTensorArgs);
}

TEST_CASE("launch: B64 a dtype, a string and a function are skipped by find_device, and refused with their position") {
  const tensor_descriptor tensor = tensor_on(cuda_1);
  const argument dtype = argument::object(object_kind::dtype);
  const argument function = argument::object(object_kind::function);
  CHECK(find_device({dtype, "relu", function, tensor}) == cuda_1);
  CHECK(message_of([&] { check_launchable({tensor, dtype}); }) == "args[1] is a dtype, which a kernel does not take: make it constexpr");
  CHECK(message_of([&] { check_launchable({tensor, 1, "relu"}); }) ==
        "args[2] is a string, which a kernel does not take: make it constexpr");
  CHECK(message_of([&] { check_launchable({function}); }) == "args[0] is a function, which a kernel does not take: make it constexpr");
  CHECK_NOTHROW(check_launchable({tensor, nullptr, true, 1, 2.5, cuda_1, argument::constexpr_wrapped(), argument::list({})}));

  CHECK(find_device(tensor.dtype, std::string("relu"), &tensor_on, tensor) == cuda_1);
  CHECK(message_of([&] { check_launchable(tensor, tensor.dtype); }).starts_with("args[1] is a dtype"));
  CHECK(message_of([&] { check_launchable(tensor, std::string("relu")); }).starts_with("args[1] is a string"));
  CHECK(message_of([&] { check_launchable(tensor, "relu"); }).starts_with("args[1] is a string"));
  CHECK(message_of([&] { check_launchable(tensor, &tensor_on); }).starts_with("args[1] is a function"));
  CHECK_NOTHROW(check_launchable(tensor, 1, 2.5, nullptr, constexpr_value{std::string_view("relu")}, std::vector{1, 2}));
}

TEST_CASE("launch: B66 the path of an unsupported object is in the message") {
  const std::array list{argument(1), argument::object()};
  const std::array map{argument::list(list), argument("w")};
  CHECK(message_of([&] { check_launchable({1, 2, argument::dict(map)}); }) ==
        "args[2]['w'][1] is an object, which a kernel does not take: make it constexpr");
  struct opaque {};
  CHECK(message_of([&] { check_launchable(1, 2, std::map<std::string, std::tuple<int, opaque>>{{"w", {1, {}}}}); }) ==
        "args[2]['w'][1] is an object, which a kernel does not take: make it constexpr");
}

TEST_CASE("launch: B68 numbers have no device") {
  const tensor_descriptor tensor = tensor_on(cpu);
  CHECK(find_device({5, tensor}) == cpu);
  CHECK(launch_device({5, tensor}) == cpu);
  CHECK(find_device(5, tensor) == cpu);
  CHECK(launch_device(5, tensor) == cpu);
}

TEST_CASE("launch: B69 a device that no backend is for is kept verbatim") {
  for (const std::string_view spelled :
       {"privateuseone:0", "npu:0", "npu:3", "device type 77:3", "device type 70000:1", "device type -2147483648:-1"}) {
    const std::optional<device> where = parse_device(spelled);
    REQUIRE(where.has_value());
    CHECK(to_string(*where) == spelled);
    CHECK(find_device({host_array{*where}}) == *where);
    CHECK(find_device({*where}) == *where);
    CHECK(find_device(host_array{*where}) == *where);
  }
  CHECK(find_device({tensor_on({device_type::ext_dev, 0})}) == device{device_type::ext_dev, 0}); // what DLPack carries for both
  // The look-up of a backend by such a name is muster.registry's; its tests have UnknownBackend.
}

// ---- devices ----

TEST_CASE("launch: devices are spelled and read") {
  CHECK(to_string(cuda_0) == "cuda:0");
  CHECK(to_string(cpu) == "cpu");
  CHECK(to_string({device_type::cpu, 1}) == "cpu:1");
  CHECK(to_string(meta) == "meta");
  CHECK(to_string({device_type{77}, 3}) == "device type 77:3");
  CHECK(to_string({device_type::metal, 0}) == "metal:0");
  CHECK(parse_device("mps") == device{device_type::metal, 0});
  CHECK(parse_device("hip:1") == device{device_type::rocm, 1});
  CHECK(parse_device("xpu:2") == device{device_type::oneapi, 2});
  for (std::int32_t type = -4; type <= 18; ++type)
    for (const std::int32_t index : {0, 7}) {
      const device where{device_type{type}, index};
      CHECK(parse_device(to_string(where)) == where);
    }
  for (const std::string_view bad : {"", ":", "cuda:", "cuda:x", "cuda:0 ", " cuda", "cuda:0:0", "cuda:99999999999", "foo", "foo:0",
                                     "device type :0", "device type x:0", ":0"})
    CHECK_FALSE(parse_device(bad).has_value());
}

TEST_CASE("launch: DLPack 1.x, and unknown types as bits") {
  const dlpack_1::DLManagedTensorVersioned managed{{1, 1}, nullptr, nullptr, 0, tensor_on({device_type::trn, 2})};
  CHECK(find_device({managed}) == device{device_type::trn, 2});
  CHECK(find_device(managed) == device{device_type::trn, 2});
  CHECK(find_device(&managed, 1) == device{device_type::trn, 2});
  CHECK(argument(managed).descriptor() == &managed.dl_tensor);
  CHECK(find_device({dlpack_1::DLDevice{dlpack_1::kDLMAIA, 1}}) == device{device_type::maia, 1});
  CHECK(find_device(dlpack_1::DLDevice{dlpack_1::kDLMAIA, 1}) == device{device_type::maia, 1});
  CHECK(std::bit_cast<dlpack_1::DLDevice>(cuda_3).device_id == 3);
}

#if __has_include(<dlpack/dlpack.h>)
TEST_CASE("launch: the installed DLPack's types") {
  ::DLTensor tensor{};
  tensor.device = {kDLCUDA, 1};
  const DLManagedTensor managed{tensor, nullptr, nullptr};
  CHECK(find_device({tensor}) == cuda_1);
  CHECK(find_device(managed) == cuda_1);
  CHECK(find_device(1, &tensor) == cuda_1);
  CHECK(find_device({::DLDevice{kDLCUDA, 3}}) == cuda_3);
  // A type that this header's enumeration does not have, as a producer with a newer one writes it.
  const device unknown{device_type{77}, 3};
  tensor.device = std::bit_cast<::DLDevice>(unknown);
  CHECK(find_device({tensor}) == unknown);
  CHECK(find_device(tensor) == unknown);
  CHECK(message_of([&] { (void)launch_device({managed, tensor}); }) ==
        "Arguments are on different devices: args[0] is on cuda:1, args[1] is on device type 77:3");
}
#endif

// ---- what is never read ----

TEST_CASE("launch: a tensor's memory, shape and strides are never read") {
  void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  tensor_descriptor poisoned = tensor_on(cuda_1, 2);
  poisoned.data = page;
  poisoned.shape = poisoned.strides = static_cast<std::int64_t*>(page);
  const auto answers = [](const tensor_descriptor& tensor) {
    CHECK(find_device({1, tensor}) == cuda_1);
    CHECK(find_device(1, std::tuple(&tensor)) == cuda_1);
    CHECK(launch_device({1, tensor, tensor}) == cuda_1);
    CHECK_NOTHROW(check_launchable({tensor}));
  };
  answers(poisoned);
  munmap(page, 4096);

  std::int64_t rows = std::int64_t{1} << 40;
  tensor_descriptor huge = tensor_on(cuda_1);
  huge.shape = &rows;
  answers(huge);
  answers(tensor_on(cuda_1, 0));
  tensor_descriptor dangling = tensor_on(cuda_1, 300);
  dangling.data = std::bit_cast<void*>(~std::uintptr_t{0xFF});
  answers(dangling);
}

TEST_CASE("launch: what is wrapped as constexpr is not searched") {
  const tensor_descriptor tensor = tensor_on(cuda_3);
  const std::array wrapped{argument(tensor)};
  CHECK(find_device({argument::constexpr_wrapped(wrapped.data()), cuda_1}) == cuda_1);
  CHECK(find_device(constexpr_value{&tensor}, std::integral_constant<int, 3>(), cuda_1) == cuda_1);
  CHECK_FALSE(try_find_device(constexpr_value{std::tuple(tensor)}).has_value());
  CHECK_FALSE(can_hold_device<constexpr_value<tensor_descriptor>>);
}

TEST_CASE("launch: a dict's keys are not searched, nor iterated with its values") {
  const std::array items{argument(1), argument(cuda_1), argument(cuda_3), argument("b")};
  CHECK(find_device({argument::dict(items)}) == cuda_1);
  CHECK_THROWS_AS((void)argument::dict(std::span(items).subspan(1)), ArgumentNestingError);
}

// ---- allocation, sharing, size ----

TEST_CASE("launch: no allocation within 64 levels") {
  const nested_lists found(nesting_without_allocation, cuda_1);
  const nested_lists empty(nesting_without_allocation, 1);
  const tensor_descriptor tensor = tensor_on(cuda_1);
  const std::vector<argument> thousand(1000, argument(1));
  const std::map<std::string, std::vector<tensor_descriptor>> map{{"w", {tensor}}};
  const std::size_t before = allocations_of_this_thread();
  const bool right = find_device(found.args()) == cuda_1 && launch_device(found.args()) == cuda_1 && !try_find_device(empty.args()) &&
                     find_device({argument::list(thousand), tensor}) == cuda_1 && find_device(1, map) == cuda_1 &&
                     launch_device(map, tensor) == cuda_1;
  CHECK(allocations_of_this_thread() == before);
  CHECK(right);

  const nested_lists deeper(nesting_without_allocation + 1, cuda_1);
  CHECK(find_device(deeper.args()) == cuda_1);
  CHECK(allocations_of_this_thread() > before); // so the count counts
}

TEST_CASE("launch: containers that share containers are searched in linear time") {
  // 60 levels of four references to the next: 4^60 paths, 60 containers.
  constexpr std::size_t levels = 60;
  const auto shared = [](argument innermost) {
    std::vector<std::array<argument, 4>> items(levels);
    items[levels - 1].fill(innermost);
    for (std::size_t i = levels - 1; i-- > 0;) items[i].fill(argument::list(items[i + 1]));
    return items;
  };
  const auto none = shared(1);
  CHECK_FALSE(try_find_device({argument::list(none[0])}).has_value());
  CHECK(find_device({argument::list(none[0]), cuda_1}) == cuda_1);
  CHECK_NOTHROW(check_launchable({argument::list(none[0])}));
  const auto some = shared(host_array{cuda_1});
  CHECK(find_device({argument::list(some[0])}) == cuda_1);
  CHECK(launch_device({argument::list(some[0])}) == cuda_1);
  CHECK_THROWS_AS((void)launch_device({argument::list(some[0]), host_array{cuda_3}}), DeviceMismatch);
  // A long list met often, and a search that goes round and meets it on every level.
  const std::vector<argument> numbers(1'000'000, argument(1));
  const std::vector<argument> often(100'000, argument::list(numbers));
  CHECK_FALSE(try_find_device(often).has_value());
  std::array<argument, 2> round{argument::list(numbers)};
  round[1] = argument::list(round);
  CHECK_THROWS_AS((void)find_device(round), ArgumentNestingError);
}

TEST_CASE("launch: an argument is what it was made from") {
  CHECK(sizeof(argument) == 16);
  CHECK(argument().kind() == argument_kind::none);
  CHECK(argument(true).as_boolean());
  CHECK(argument(true).kind() == argument_kind::boolean);
  CHECK(argument(std::numeric_limits<std::int64_t>::min()).as_integer() == std::numeric_limits<std::int64_t>::min());
  CHECK(argument(std::numeric_limits<std::uint64_t>::max()).is_unsigned());
  CHECK_FALSE(argument(1).is_unsigned());
  CHECK(argument(0.1).as_real() == 0.1);
  CHECK(argument(std::string_view("a\0b", 3)).as_string() == std::string_view("a\0b", 3));
  CHECK(argument(static_cast<const char*>(nullptr)).kind() == argument_kind::none);
  CHECK(argument::object(object_kind::dtype, &cpu).address() == &cpu);
  const std::array<float, 2> reals{1, 2};
  const argument scalars = argument::scalars(std::span<const float>(reals));
  CHECK(scalars.scalars_as<float>().size() == 2);
  CHECK(scalars.scalars_as<float>().data() == reals.data());
  CHECK(scalars.scalars_as<std::int32_t>().empty());
  CHECK(scalars.scalars_as<double>().empty());
  CHECK(argument::scalars(std::span<const bool>()).kind() == argument_kind::scalars);
  const std::array items{argument(1), argument("k")};
  CHECK(argument::tuple(items).items().size() == 2);
  CHECK(argument::tuple(items).keys().empty());
  CHECK(argument::dict(items).items().size() == 1);
  CHECK(argument::dict(items).keys()[0].as_string() == "k");
  CHECK(argument(1).items().empty());
  CHECK(argument(host_array{cuda_1, 300}).rank() == 255);
  CHECK(argument(host_array{cuda_1, 3}).rank() == 3);
  CHECK(argument(host_array{{device_type{70'000}, 1}, 3}).kind() == argument_kind::tensor);
  CHECK(argument(host_array{{device_type{70'000}, 1}, 3}).rank() == 3);
  CHECK(argument(host_array{{device_type::cuda, std::numeric_limits<std::int32_t>::min()}}).where().index ==
        std::numeric_limits<std::int32_t>::min());
}

TEST_CASE("launch: paths write keys as Python's repr does") {
  const auto path_with = [](argument key) {
    const std::array items{argument::object(), key};
    const std::string what = message_of([&] { check_launchable({argument::dict(items)}); });
    return what.substr(0, what.find(" is an object"));
  };
  CHECK(path_with("w") == "args[0]['w']");
  CHECK(path_with("") == "args[0]['']");
  CHECK(path_with("it's") == "args[0][\"it's\"]");
  CHECK(path_with("say \"it's\"") == "args[0]['say \"it\\'s\"']");
  CHECK(path_with("a\\b\n\t\r\x01\x7F") == "args[0]['a\\\\b\\n\\t\\r\\x01\\x7f']");
  CHECK(path_with("größe") == "args[0]['größe']");
  CHECK(path_with("\xC2\xA0\xE2\x80\xA8\xF3\xA0\x80\x81") == "args[0]['\\xa0\\u2028\\U000e0001']");
  CHECK(path_with("\xFF\xC3") == "args[0]['\\udcff\\udcc3']");
  CHECK(path_with("\xED\xA0\x80") == "args[0]['\\udced\\udca0\\udc80']");
  CHECK(path_with(3) == "args[0][3]");
  CHECK(path_with(-3) == "args[0][-3]");
  CHECK(path_with(std::numeric_limits<std::uint64_t>::max()) == "args[0][18446744073709551615]");
  CHECK(path_with(true) == "args[0][True]");
  CHECK(path_with(nullptr) == "args[0][None]");
  CHECK(path_with(2.0) == "args[0][2.0]");
  CHECK(path_with(0.1) == "args[0][0.1]");
  CHECK(path_with(argument::tuple({})) == "args[0][...]");
}

// ---- typed arguments ----

TEST_CASE("launch: typed arguments are resolved at compile time") {
  static_assert(find_device(1, 2.5, tensor_on(cuda_1), tensor_on(cuda_3)) == cuda_1);
  static_assert(find_device(std::tuple(1, std::pair(2, std::optional<tensor_descriptor>())), std::array{tensor_on(cuda_3)}) == cuda_3);
  static_assert(launch_device(host_array{cpu, 0}, tensor_on(cuda_1), std::optional(tensor_on(cuda_1))) == cuda_1);
  static_assert(can_hold_device<int, std::vector<std::pair<std::string, tensor_descriptor*>>>);
  static_assert(!can_hold_device<int, std::string, const char*, void*, float*, std::vector<std::string>, std::map<tensor_descriptor*, int>,
                                 std::filesystem::path, std::nullptr_t, void (*)(), std::monostate, std::tuple<>, std::vector<bool>>);
  static_assert(can_hold_device<argument> && can_hold_device<argument_list&> && can_hold_device<device> &&
                can_hold_device<std::vector<argument>>);
  static_assert(
      noexcept(try_find_device(std::declval<std::tuple<int, tensor_descriptor>&>(), std::declval<std::vector<tensor_descriptor*>&>(),
                               std::declval<std::map<std::string, std::shared_ptr<tensor_descriptor>>&>())));
  static_assert(!noexcept(try_find_device(std::declval<argument&>())));
  static_assert(!noexcept(try_find_device(std::declval<const value_wrapper&>())));
  static_assert(tensor_like<host_array> && tensor_like<wrapper> && tensor_like<derived_descriptor> && !tensor_like<int> &&
                !tensor_like<argument>);
  CHECK(finds_at_compile_time(1, tensor_on(cpu)));
  CHECK_FALSE(finds_at_compile_time(1, "text"));
}

TEST_CASE("launch: typed arguments of every form") {
  const tensor_descriptor tensor = tensor_on(cuda_1);
  tensor_descriptor array[2] = {tensor, tensor};
  CHECK(find_device(array) == cuda_1);
  std::vector<int> numbers{1, 2, 3};
  auto made = numbers | std::views::filter([](int i) { return i > 1; }) |
              std::views::transform([](int i) { return tensor_on({device_type::cuda, i}); });
  CHECK(find_device(made) == device{device_type::cuda, 2}); // a range that only a non-const object can iterate
  CHECK(find_device(std::variant<int, std::string, tensor_descriptor>("text"), tensor) == cuda_1);
  CHECK(find_device(std::variant<std::monostate, std::vector<tensor_descriptor>>(std::vector{tensor})) == cuda_1);
  CHECK(find_device(std::optional<device>(cuda_3), tensor) == cuda_3);
  CHECK(find_device(std::vector<std::optional<std::unique_ptr<tensor_descriptor>>>(3), tensor) == cuda_1);
  CHECK(find_device(std::string("text"), std::filesystem::path("/"), std::vector<std::string>(3), static_cast<float*>(nullptr), tensor) ==
        cuda_1);
  // A pointer to numbers may be a device's: it is never followed.
  float* const elsewhere = std::bit_cast<float*>(std::uintptr_t{8});
  CHECK(find_device(elsewhere, tensor) == cuda_1);
  CHECK_THROWS_AS((void)launch_device(elsewhere, tensor, tensor_on(cuda_3)), DeviceMismatch);
  CHECK_NOTHROW(check_launchable(elsewhere, static_cast<void*>(elsewhere), tensor));
}

TEST_CASE("launch: argument views among typed arguments") {
  const nested_lists lists(3, cuda_1);
  CHECK(find_device(1, lists.levels[0], cuda_3) == cuda_1);
  CHECK(find_device(lists.levels) == cuda_1);
  CHECK(find_device(std::array{argument(1)}, cuda_3) == cuda_3);
  const std::array mixed{argument(1), argument(tensor_on(cuda_3))};
  CHECK(message_of([&] { (void)launch_device(tensor_on(cuda_1), mixed); }) ==
        "Arguments are on different devices: args[0] is on cuda:1, args[1][1] is on cuda:3");
  const std::vector both{argument(tensor_on(cuda_1)), argument(tensor_on(cuda_3))};
  CHECK(message_of([&] { (void)launch_device(both); }) == "Arguments are on different devices: args[0] is on cuda:1, args[1] is on cuda:3");
}

TEST_CASE("launch: an argument list owns its tree") {
  const tensor_descriptor tensor = tensor_on(cuda_1);
  argument_list args;
  {
    const std::string name = "a name too long to be kept in the string object itself";
    const std::vector<std::int64_t> sizes{1, 2, 3};
    args.add(name)
        .add(sizes)
        .add(std::map<std::string, std::vector<const tensor_descriptor*>>{{name, {nullptr, &tensor}}})
        .add(std::vector{true, false});
    args.add_list(argument_list(1, name)).add_tuple(argument_list()).add_dict(argument_list(name, 2), argument_list(name, tensor));
  }
  REQUIRE(args.size() == 7);
  const argument_list copy = args;
  args = argument_list();
  const std::span<const argument> view = copy;
  CHECK(view[0].as_string().starts_with("a name too long"));
  CHECK(view[1].scalars_as<std::int64_t>()[2] == 3);
  CHECK(view[2].kind() == argument_kind::dict);
  CHECK(view[2].keys()[0].as_string() == view[0].as_string());
  CHECK(view[2].items()[0].kind() == argument_kind::list);
  CHECK(view[3].scalars_as<bool>()[0]);
  CHECK(view[4].items()[1].as_string() == view[0].as_string());
  CHECK(view[5].kind() == argument_kind::tuple);
  CHECK(view[6].keys()[1].as_integer() == 2);
  CHECK(find_device(copy) == cuda_1);
  CHECK(launch_device(copy) == cuda_1);
  CHECK_THROWS_AS(args.add_dict(argument_list(1), argument_list()), ArgumentNestingError);

  argument_list nested(tensor);
  for (std::size_t i = 0; i < maximum_nesting; ++i) {
    argument_list outer;
    outer.add_list(std::move(nested));
    nested = std::move(outer);
  }
  CHECK(find_device(nested) == cuda_1);
}
