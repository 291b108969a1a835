#include <cstddef>
#include <string>
#include <string_view>
#include <vector>
#include <doctest/doctest.h>

import muster.error;
import muster.device_ir;
import muster.codegen;
import muster.builtin;

// What the handlers of pointwise operations write, where torch's meaning is not what the target's operator would give.

namespace {

using namespace muster;

/// `RESULT r = CALL` of the operands `A a` and `B b`.
struct call {
  std::string_view a;
  std::string_view b;
  std::string_view result;
  std::string_view text;
};

std::string document_of(const call& c) {
  std::string t = "device_ir 1\nkernel k\nsetting static_shapes true\nsetting index_dtype i32\nsetting fast_math false\n"
                  "setting dot_precision tf32\n";
  const auto add = [&](auto... parts) { (t.append(parts), ...); };
  add("host_tensor x ", c.a, "[64] strides [1]\nhost_tensor y ", c.b, "[64] strides [1]\nhost_tensor out ", c.result, "[64] strides [1]\n");
  add("block 0 u0 size 64 tile block_size 64\nroot root_graph_0 blocks [0] phase 0\nconfig {\"block_sizes\": [64]}\n\ndef "
      "root_graph_0():\n");
  add("    x_host: \"", c.a, "[64]\" = helion_language__tracing_ops__host_tensor('x')\n");
  add("    y_host: \"", c.b, "[64]\" = helion_language__tracing_ops__host_tensor('y')\n");
  add("    out: \"", c.result, "[64]\" = helion_language__tracing_ops__host_tensor('out')\n");
  add("    lanes: \"Sym(u0)\" = helion_language__tracing_ops__get_symnode('block_size_0')\n");
  add("    a: \"", c.a, "[u0]\" = helion_language_memory_ops_load(x_host, [lanes], None, None)\n");
  add("    b: \"", c.b, "[u0]\" = helion_language_memory_ops_load(y_host, [lanes], None, None)\n");
  add("    r: \"", c.result, "[u0]\" = torch.ops.", c.text, "\n");
  add("    store = helion_language_memory_ops_store(out, [lanes], r, None)\n    return None\n");
  return t;
}

std::string_view without_blanks(std::string_view line) {
  const std::size_t first = line.find_first_not_of(' ');
  return first == std::string_view::npos ? std::string_view() : line.substr(first);
}

/// The lines between the last load and the store, or, where there are none, what is stored.
std::string emitted(const call& c, std::string_view backend) {
  std::string out;
  builtin_generator().generate(device_ir::parse(document_of(c), "pointwise.txt"), backend, out);
  std::string between;
  for (std::size_t at = 0; at < out.size();) {
    const std::size_t end = out.find('\n', at);
    const std::string_view line = without_blanks(std::string_view(out).substr(at, end - at));
    at = end + 1;
    const bool loads = line.find(" = tl.load(") != std::string_view::npos || line.find(" = x[") != std::string_view::npos ||
                       line.find(" = y[") != std::string_view::npos;
    // What stands ahead of the first load: the lanes' indices, the loop.
    if (loads || line.starts_with("indices_0 = ") || line.starts_with("for (std::int64_t i")) {
      between.clear();
    } else if (line.starts_with("tl.store(") || line.starts_with("out[")) {
      if (!between.empty()) return between;
      const bool c_language = line.starts_with("out[");
      const std::size_t value = line.find(c_language ? "] = " : ", ") + (c_language ? 4 : 2);
      return "-> " + std::string(line.substr(value, line.size() - 1 - value));
    } else {
      if (!between.empty()) between += '\n';
      between += line;
    }
  }
  FAIL("nothing is stored");
  return {};
}

struct row {
  call what;
  std::string_view triton;
  std::string_view cpu;
};

void check(const std::vector<row>& rows) {
  for (const row& r : rows) {
    CAPTURE(r.what.text);
    CAPTURE(r.what.a);
    CAPTURE(r.what.b);
    CHECK(emitted(r.what, "triton") == r.triton);
    CHECK(emitted(r.what, "cpu") == r.cpu);
  }
}

} // namespace

TEST_SUITE("codegen: pointwise") {
  // Triton's // and % and C's / and % round towards zero; so floor and remainder are functions of both.
  TEST_CASE("integer division: true, floor, trunc") {
    check({
        {{"i32", "i32", "f32", "aten.div.Tensor(a, b)"}, "r = a.to(tl.float32) / b.to(tl.float32)", "const float r = float(a) / float(b);"},
        {{"i64", "i64", "f32", "aten.div.Tensor(a, 2)"}, "r = a.to(tl.float32) / 2.0", "const float r = float(a) / 2.0f;"},
        {{"i32", "i32", "i32", "aten.div.Tensor_mode(a, b, rounding_mode = 'floor')"},
         "r = _floor_divide(a, b)",
         "const std::int32_t r = math::floor_divide(a, b);"},
        {{"i32", "i32", "i32", "aten.div.Tensor_mode(a, 2, rounding_mode = 'floor')"},
         "r = _floor_divide(a, 2)",
         "const std::int32_t r = math::floor_divide(a, 2);"},
        {{"i32", "i32", "i32", "aten.div.Tensor_mode(a, b, rounding_mode = 'trunc')"},
         "r = _trunc_divide(a, b)",
         "const std::int32_t r = math::trunc_divide(a, b);"},
        {{"i32", "i32", "i32", "aten.floor_divide.default(a, b)"},
         "r = _floor_divide(a, b)",
         "const std::int32_t r = math::floor_divide(a, b);"},
        {{"i32", "i32", "i32", "aten.remainder.Tensor(a, b)"},
         "r = _floor_modulo(a, b)",
         "const std::int32_t r = math::floor_modulo(a, b);"},
        {{"i32", "i32", "i32", "aten.fmod.Tensor(a, b)"}, "r = _trunc_modulo(a, b)", "const std::int32_t r = math::trunc_modulo(a, b);"},
    });
    CHECK_THROWS_AS(emitted({"i32", "i32", "i32", "aten.div.Tensor_mode(a, b, rounding_mode = 'up')"}, "triton"), DeviceIRError);
  }

  TEST_CASE("division of floats") {
    check({
        {{"f32", "f32", "f32", "aten.div.Tensor_mode(a, b, rounding_mode = 'trunc')"},
         "r = _trunc(a / b)",
         "const float r = std::trunc(a / b);"},
        {{"f32", "f32", "f32", "aten.fmod.Tensor(a, b)"}, "r = libdevice.fmod(a, b)", "const float r = std::fmod(a, b);"},
        // The remainder has the divisor's sign; where there is none, that of fmod, a zero's too.
        {{"f32", "f32", "f32", "aten.remainder.Tensor(a, b)"},
         "remainder = libdevice.fmod(a, b)\n"
         "r = tl.where((remainder != 0.0) & ((remainder < 0.0) != (b < 0.0)), remainder + b, remainder)",
         "const float remainder = std::fmod(a, b);\n"
         "const float r = ((remainder != 0.0f) & ((remainder < 0.0f) != (b < 0.0f))) ? remainder + b : remainder;"},
        // -1 // inf is -1, though -1 % inf is inf; 0 has the sign of the quotient; by 0 it is the quotient.
        {{"f32", "f32", "f32", "aten.floor_divide.default(a, b)"},
         "remainder = libdevice.fmod(a, b)\n"
         "quotient = a / b\n"
         "whole = libdevice.rint((a - remainder) / b)\n"
         "down = tl.where((remainder != 0.0) & ((remainder < 0.0) != (b < 0.0)), whole - 1.0, whole)\n"
         "r = tl.where(b == 0.0, quotient, tl.where(down == 0.0, quotient * 0.0, down))",
         "const float remainder = std::fmod(a, b);\n"
         "const float quotient = a / b;\n"
         "const float whole = std::nearbyint((a - remainder) / b);\n"
         "const float down = ((remainder != 0.0f) & ((remainder < 0.0f) != (b < 0.0f))) ? whole - 1.0f : whole;\n"
         "const float r = b == 0.0f ? quotient : (down == 0.0f ? quotient * 0.0f : down);"},
    });
  }

  // Triton's unary minus is a difference from 0.0, which makes 0.0 of 0.0; so would be one from -0.0, which is 0.0 as a literal there.
  TEST_CASE("the sign of zero") {
    check({
        {{"f32", "f32", "f32", "aten.neg.default(a)"}, "r = a * -1.0", "const float r = -a;"},
        {{"f16", "f16", "f16", "aten.neg.default(a)"}, "r = a * -1.0", "const float16 r = float16(-float(a));"},
        {{"bf16", "bf16", "bf16", "aten.neg.default(a)"},
         "r = (a.to(tl.float32) * -1.0).to(tl.bfloat16)",
         "const bfloat16 r = bfloat16(-float(a));"},
        {{"i32", "i32", "i32", "aten.neg.default(a)"}, "r = -a", "const std::int32_t r = math::subtract<std::int32_t>(0, a);"},
        {{"f32", "f32", "f32", "aten.add.Tensor(a, 0.0)"}, "r = a + 0.0", "const float r = a + 0.0f;"},
        {{"f32", "f32", "f32", "aten.mul.Tensor(a, 1.0)"}, "r = a * 1.0", "const float r = a * 1.0f;"},
        {{"f32", "f32", "f32", "aten.copysign.Tensor(a, b)"}, "r = libdevice.copysign(a, b)", "const float r = std::copysign(a, b);"},
        {{"f32", "f32", "b8", "aten.signbit.default(a)"}, "r = (libdevice.signbit(a) != 0)", "const bool r = std::signbit(a);"},
        {{"i32", "i32", "b8", "aten.signbit.default(a)"}, "r = a < 0", "const bool r = a < 0;"},
    });
  }

  // math::maximum and propagate_nan give NaN where either is; fmax, and Triton's own default, the other one.
  TEST_CASE("NaN") {
    check({
        {{"f32", "f32", "f32", "aten.maximum.default(a, b)"},
         "r = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
         "const float r = math::maximum(a, b);"},
        {{"f16", "f16", "f16", "aten.minimum.default(a, b)"},
         "r = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
         "const float16 r = float16(math::minimum(float(a), float(b)));"},
        {{"i32", "i32", "i32", "aten.maximum.default(a, b)"},
         "r = tl.maximum(a, b)",
         "const std::int32_t r = math::integer_maximum(a, b);"},
        {{"f32", "f32", "f32", "aten.fmax.default(a, b)"}, "r = tl.maximum(a, b)", "const float r = std::fmax(a, b);"},
        {{"f32", "f32", "f32", "aten.fmin.default(a, b)"}, "r = tl.minimum(a, b)", "const float r = std::fmin(a, b);"},
        // Of crossed bounds the upper one wins.
        {{"f32", "f32", "f32", "aten.clamp.default(a, 0.0, 1.0)"},
         "r = tl.minimum(tl.maximum(a, 0.0, propagate_nan=tl.PropagateNan.ALL), 1.0, propagate_nan=tl.PropagateNan.ALL)",
         "const float r = math::minimum(math::maximum(a, 0.0f), 1.0f);"},
        {{"f32", "f32", "f32", "aten.clamp.default(a, None, 1.0)"},
         "r = tl.minimum(a, 1.0, propagate_nan=tl.PropagateNan.ALL)",
         "const float r = math::minimum(a, 1.0f);"},
        {{"f32", "f32", "f32", "aten.clamp_min.default(a, 0)"},
         "r = tl.maximum(a, 0.0, propagate_nan=tl.PropagateNan.ALL)",
         "const float r = math::maximum(a, 0.0f);"},
        {{"i32", "i32", "f32", "aten.clamp.default(a, 0.5)"},
         "r = tl.maximum(a.to(tl.float32), 0.5, propagate_nan=tl.PropagateNan.ALL)",
         "const float r = math::maximum(float(a), 0.5f);"},
        // A comparison with NaN is false, so that it is the operand that stays.
        {{"f32", "f32", "f32", "aten.relu.default(a)"}, "r = tl.where(a <= 0.0, 0.0, a)", "const float r = a <= 0.0f ? 0.0f : a;"},
        {{"f32", "f32", "b8", "aten.isnan.default(a)"}, "r = a != a", "const bool r = std::isnan(a);"},
        {{"f32", "f32", "b8", "aten.isinf.default(a)"}, "r = tl.abs(a) == float(\"inf\")", "const bool r = std::isinf(a);"},
        {{"f32", "f32", "b8", "aten.isfinite.default(a)"}, "r = tl.abs(a) < float(\"inf\")", "const bool r = std::isfinite(a);"},
        {{"i32", "i32", "b8", "aten.isnan.default(a)"}, "-> False", "-> false"},
        {{"i32", "i32", "b8", "aten.isfinite.default(a)"}, "-> True", "-> true"},
        // f16's largest number, where infinity becomes one.
        {{"f16", "f16", "f16", "aten.nan_to_num.default(a, 1.0)"},
         "r = tl.where(a != a, 1.0, tl.where(a == float(\"-inf\"), -65504.0, tl.where(a == float(\"inf\"), 65504.0, a)))",
         "const float16 r = float16(float(a) != float(a) ? 1.0f : (float(a) == -math::infinity ? -65504.0f : (float(a) == math::infinity ? "
         "65504.0f : float(a))));"},
    });
  }

  TEST_CASE("rounding: halves to even; what is whole stays") {
    check({
        {{"f32", "f32", "f32", "aten.round.default(a)"}, "r = libdevice.rint(a)", "const float r = std::nearbyint(a);"},
        {{"f32", "f32", "f32", "aten.round.decimals(a, decimals = 2)"},
         "r = libdevice.rint(a * 100.0) / 100.0",
         "const float r = std::nearbyint(a * 100.0f) / 100.0f;"},
        {{"f32", "f32", "f32", "aten.round.decimals(a, decimals = -2)"},
         "r = libdevice.rint(a / 100.0) * 100.0",
         "const float r = std::nearbyint(a / 100.0f) * 100.0f;"},
        {{"f32", "f32", "f32", "aten.trunc.default(a)"}, "r = _trunc(a)", "const float r = std::trunc(a);"},
        {{"f16", "f16", "f16", "aten.floor.default(a)"},
         "r = tl.floor(a.to(tl.float32)).to(tl.float16)",
         "const float16 r = float16(std::floor(float(a)));"},
        {{"i32", "i32", "i32", "aten.round.default(a)"}, "-> a", "-> a"},
        {{"i64", "i64", "i64", "aten.ceil.default(a)"}, "-> a", "-> a"},
    });
  }

  TEST_CASE("booleans: a sum is an or, a product an and; with a number they are 0 and 1") {
    check({
        {{"b8", "b8", "b8", "aten.add.Tensor(a, b)"}, "r = a | b", "const bool r = a | b;"},
        {{"b8", "b8", "b8", "aten.mul.Tensor(a, b)"}, "r = a & b", "const bool r = a & b;"},
        {{"b8", "b8", "b8", "aten.maximum.default(a, b)"}, "r = a | b", "const bool r = a | b;"},
        {{"b8", "b8", "b8", "aten.minimum.default(a, b)"}, "r = a & b", "const bool r = a & b;"},
        {{"b8", "b8", "i64", "aten.add.Tensor(a, 1)"},
         "r = a.to(tl.int64) + 1",
         "const std::int64_t r = math::add<std::int64_t>(std::int64_t(a), 1);"},
        {{"b8", "i32", "i32", "aten.mul.Tensor(a, b)"},
         "r = a * b",
         "const std::int32_t r = math::multiply<std::int32_t>(std::int32_t(a), b);"},
        {{"b8", "b8", "f32", "aten.mul.Tensor(a, 2.5)"}, "r = a.to(tl.float32) * 2.5", "const float r = float(a) * 2.5f;"},
        // ~True is -2 in Python and C.
        {{"b8", "b8", "b8", "aten.bitwise_not.default(a)"}, "r = a == False", "const bool r = a == false;"},
        {{"b8", "b8", "b8", "aten.logical_not.default(a)"}, "r = a == False", "const bool r = a == false;"},
        {{"b8", "b8", "b8", "aten.bitwise_xor.Tensor(a, b)"}, "r = a ^ b", "const bool r = a ^ b;"},
        {{"b8", "b8", "b8", "aten.eq.Scalar(a, 1)"}, "r = a.to(tl.int32) == 1", "const bool r = std::int32_t(a) == 1;"},
        {{"i32", "i32", "b8", "aten.logical_and.default(a, b)"}, "r = (a != 0) & (b != 0)", "const bool r = (a != 0) & (b != 0);"},
        {{"i32", "f32", "b8", "aten.logical_xor.default(a, b)"}, "r = (a != 0) != (b != 0.0)", "const bool r = (a != 0) != (b != 0.0f);"},
        {{"f32", "f32", "b8", "aten.logical_not.default(a)"}, "r = a == 0.0", "const bool r = a == 0.0f;"},
        {{"f32", "f32", "b8", "prims.convert_element_type.default(a, torch.bool)"}, "r = a != 0.0", "const bool r = a != 0.0f;"},
        {{"u8", "u8", "u8", "aten.bitwise_not.default(a)"}, "r = ~a", "const std::uint8_t r = ~a;"},
    });
  }

  TEST_CASE("None repeats the other operand") {
    check({
        {{"f32", "f32", "f32", "aten.mul.Tensor(a, None)"}, "r = a * a", "const float r = a * a;"},
        {{"f32", "f32", "f32", "aten.mul.Tensor(None, a)"}, "r = a * a", "const float r = a * a;"},
        {{"f32", "f32", "f32", "aten.sub.Tensor(a, None)"}, "r = a - a", "const float r = a - a;"},
        {{"f32", "f32", "f32", "aten.maximum.default(a, None)"},
         "r = tl.maximum(a, a, propagate_nan=tl.PropagateNan.ALL)",
         "const float r = math::maximum(a, a);"},
    });
  }

  TEST_CASE("operands of two types; a cast where the target would not promote as torch does, and nowhere else") {
    check({
        {{"f64", "f32", "f64", "aten.add.Tensor(a, b)"}, "r = a + b", "const double r = a + double(b);"},
        {{"bf16", "f32", "f32", "aten.add.Tensor(a, b)"}, "r = a.to(tl.float32) + b", "const float r = float(a) + b;"},
        {{"bf16", "bf16", "bf16", "aten.add.Tensor(a, b)"},
         "r = (a.to(tl.float32) + b.to(tl.float32)).to(tl.bfloat16)",
         "const bfloat16 r = bfloat16(float(a) + float(b));"},
        {{"i32", "i64", "i64", "aten.add.Tensor(a, b)"},
         "r = a + b",
         "const std::int64_t r = math::add<std::int64_t>(std::int64_t(a), b);"},
        {{"u8", "i8", "i16", "aten.add.Tensor(a, b)"},
         "r = a + b",
         "const std::int16_t r = math::add<std::int16_t>(std::int16_t(a), std::int16_t(b));"},
        {{"i32", "f32", "b8", "aten.lt.Tensor(a, b)"}, "r = a < b", "const bool r = float(a) < b;"},
        {{"i32", "i32", "b8", "aten.gt.Scalar(a, 0.5)"}, "r = a.to(tl.float32) > 0.5", "const bool r = float(a) > 0.5f;"},
        {{"f32", "f32", "f32", "prims.convert_element_type.default(a, torch.float32)"}, "-> a", "-> a"},
        {{"i32", "i32", "f32", "aten.sqrt.default(a)"}, "r = tl.sqrt_rn(a.to(tl.float32))", "const float r = math::sqrt(float(a));"},
        {{"f32", "f32", "f32", "aten.sub.Tensor(a, b, alpha = 1)"}, "r = a - b", "const float r = a - b;"},
        {{"i32", "i32", "i32", "aten.sub.Tensor(a, b, alpha = 2)"},
         "r = a - 2 * b",
         "const std::int32_t r = math::subtract<std::int32_t>(a, math::multiply<std::int32_t>(2, b));"},
        {{"f32", "f32", "f32", "aten.rsub.Scalar(a, 1, 2)"}, "r = 1.0 - 2.0 * a", "const float r = 1.0f - 2.0f * a;"},
    });
  }

  // A literal has the type of the tile that it meets: 300 is 44 as u8, -1 is 255, and 0.1 as f16 is 0.0999755859375.
  TEST_CASE("a literal that the operand's type does not have") {
    check({
        {{"u8", "u8", "u8", "aten.add.Tensor(a, 300)"}, "r = a + 44", "const std::uint8_t r = math::add<std::uint8_t>(a, 44);"},
        {{"u8", "u8", "b8", "aten.gt.Scalar(a, -1)"}, "r = a > 255", "const bool r = a > 255;"},
        {{"i8", "i8", "i8", "aten.bitwise_and.Scalar(a, 255)"}, "r = a & -1", "const std::int8_t r = a & -1;"},
        {{"i32", "i32", "i32", "aten.bitwise_and.Scalar(a, 4294967295)"}, "r = a & -1", "const std::int32_t r = a & -1;"},
        {{"f16", "f16", "b8", "aten.eq.Scalar(a, 0.1)"}, "r = a == 0.0999755859375", "const bool r = float(a) == 0.099975586f;"},
        // 0.1 in eight bits of precision is 205 / 2048.
        {{"bf16", "bf16", "b8", "aten.lt.Scalar(a, 0.1)"},
         "r = a.to(tl.float32) < 0.10009765625",
         "const bool r = float(a) < 0.100097656f;"},
        {{"f16", "f16", "b8", "aten.ge.Scalar(a, 1e6)"}, "r = a >= float(\"inf\")", "const bool r = float(a) >= math::infinity;"},
        {{"f16", "f16", "b8", "aten.gt.Scalar(a, 0.5)"}, "r = a > 0.5", "const bool r = float(a) > 0.5f;"},
        {{"f32", "f32", "b8", "aten.gt.Scalar(a, 0.1)"}, "r = a > 0.1", "const bool r = a > 0.1f;"},
        {{"f16", "f16", "f16", "aten.add.Tensor(a, 1)"}, "r = a + 1.0", "const float16 r = float16(float(a) + 1.0f);"},
    });
  }

  // Of two literals Triton makes a tile of f32 or i32, whatever the declared type.
  TEST_CASE("a choice between literals has the declared type") {
    check({
        {{"b8", "f32", "f32", "aten.where.ScalarSelf(a, 1.0, 0.0)"}, "r = tl.where(a, 1.0, 0.0)", "const float r = a ? 1.0f : 0.0f;"},
        {{"b8", "f32", "f16", "aten.where.ScalarSelf(a, 1.0, 0.0)"},
         "r = tl.where(a, tl.full([_BLOCK_SIZE_0], 1.0, tl.float16), 0.0)",
         "const float16 r = a ? float16(1.0f) : float16(0.0f);"},
        {{"b8", "f32", "f64", "aten.where.ScalarSelf(a, 0.1, 0.0)"},
         "r = tl.where(a, tl.full([_BLOCK_SIZE_0], 0.1, tl.float64), 0.0)",
         "const double r = a ? 0.1 : 0.0;"},
        {{"b8", "f32", "i64", "aten.where.ScalarSelf(a, 1, 0)"},
         "r = tl.where(a, tl.full([_BLOCK_SIZE_0], 1, tl.int64), 0)",
         "const std::int64_t r = a ? 1 : 0;"},
        {{"f32", "f32", "f32", "aten.sign.default(a)"},
         "r = tl.where(a > 0.0, 1.0, tl.where(a < 0.0, -1.0, 0.0))",
         "const float r = a > 0.0f ? 1.0f : (a < 0.0f ? -1.0f : 0.0f);"},
        {{"f16", "f16", "f16", "aten.sign.default(a)"},
         "r = tl.where(a > 0.0, 1.0, tl.where(a < 0.0, tl.full([_BLOCK_SIZE_0], -1.0, tl.float16), 0.0))",
         "const float16 r = float16(float(a) > 0.0f ? 1.0f : (float(a) < 0.0f ? -1.0f : 0.0f));"},
        {{"b8", "f32", "f32", "aten.where.self(a, b, 0.0)"}, "r = tl.where(a, b, 0.0)", "const float r = a ? b : 0.0f;"},
    });
  }

  TEST_CASE("powers") {
    check({
        {{"f32", "f32", "f32", "aten.pow.Tensor_Scalar(a, 2)"}, "r = a * a", "const float r = a * a;"},
        {{"f32", "f32", "f32", "aten.pow.Tensor_Scalar(a, 3.0)"}, "r = a * a * a", "const float r = a * a * a;"},
        {{"f32", "f32", "f32", "aten.pow.Tensor_Scalar(a, 0.5)"}, "r = tl.sqrt_rn(a)", "const float r = math::sqrt(a);"},
        {{"f32", "f32", "f32", "aten.pow.Tensor_Scalar(a, -1)"}, "r = 1.0 / a", "const float r = 1.0f / a;"},
        {{"f32", "f32", "f32", "aten.pow.Tensor_Scalar(a, 1)"}, "-> a", "-> a"},
        {{"f32", "f32", "f32", "aten.pow.Tensor_Scalar(a, 0)"}, "r = libdevice.pow(a, 0.0)", "const float r = std::pow(a, 0.0f);"},
        {{"f32", "f32", "f32", "aten.pow.Scalar(2.0, a)"}, "r = libdevice.pow(2.0, a)", "const float r = std::pow(2.0f, a);"},
        {{"i32", "i32", "i32", "aten.pow.Tensor_Scalar(a, 2)"}, "r = a * a", "const std::int32_t r = math::power<std::int32_t>(a, 2);"},
    });
  }

  // Exact at both ends: at 1 it is b, whatever a is.
  TEST_CASE("lerp from the nearer end") {
    check({
        {{"f32", "f32", "f32", "aten.lerp.Scalar(a, b, 0.25)"},
         "difference = b - a\nr = a + 0.25 * difference",
         "const float difference = b - a;\nconst float r = a + 0.25f * difference;"},
        {{"f32", "f32", "f32", "aten.lerp.Scalar(a, b, 0.75)"},
         "difference = b - a\nr = b - (1.0 - 0.75) * difference",
         "const float difference = b - a;\nconst float r = b - (1.0f - 0.75f) * difference;"},
    });
  }

  TEST_CASE("what a backend cannot do is refused with the reason") {
    const call c{"f16", "f16", "f16", "aten.nextafter.default(a, b)"};
    CHECK_THROWS_WITH_AS(emitted(c, "triton"),
                         "pointwise.txt:21: Backend 'triton' does not support this use of aten.nextafter.default: nextafter of floats "
                         "narrower than f32",
                         BackendUnsupported);
    CHECK(emitted(c, "cpu") == "const float16 r = math::nextafter(a, b);");
  }
}
