module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module muster.backend.triton;

namespace muster::triton {

using codegen::dimension;
using codegen::op;
using device_ir::argument;
using device_ir::dtype;
using device_ir::no_node;
using device_ir::node_id;

namespace {

/// tl.dot's least K.
std::int64_t smallest_inner(dtype type) { return device_ir::size_of(type) == 1 ? 32 : 16; }

std::string_view precision_name(device_ir::precision p) {
  switch (p) {
  case device_ir::precision::tf32: return "tf32";
  case device_ir::precision::tf32x3: return "tf32x3";
  case device_ir::precision::ieee: return "ieee";
  }
  return "tf32";
}

/// One matrix product: operands, their shapes, an accumulator or none.
struct product {
  expression a = codegen::no_expression;
  expression b = codegen::no_expression;
  node_id a_node = no_node;
  node_id b_node = no_node;
  expression accumulator = codegen::no_expression;
};

dtype operand_type(dtype a, dtype b) { return codegen::promote(a, b); }

std::int64_t lanes(const dimension& d) { return d.size; }

/// Too narrow for tl.dot: a product of broadcast tiles, summed.
expression by_broadcast(triton_emitter& e, const product& p, std::size_t rank, dtype type) {
  std::vector<expression> left(rank + 1, e.text(":"));
  std::vector<expression> right(rank + 1, e.text(":"));
  left[rank] = e.none();
  right[rank - 2] = e.none();
  const expression a = e.subscript(e.cast(p.a, type), left);
  const expression b = e.subscript(e.cast(p.b, type), right);
  // Triton makes a product of a sum of products, and rounds its operands to tf32; a sum of fused ones stays as it is.
  const bool exact = type == dtype::f32 && e.source->settings.dot_precision != device_ir::precision::tf32;
  const expression products = exact ? e.call(codegen::intrinsic::fma, {a, b, e.real(0.0)}, type) : e.binary(op::multiply, a, b);
  const expression sum = e.call("tl.sum", {products, e.integer(static_cast<std::int64_t>(rank) - 1)}, type);
  return p.accumulator == codegen::no_expression ? sum : e.binary(op::add, p.accumulator, sum);
}

void multiply(triton_emitter& e, product p) {
  const std::span<const dimension> a_shape = e.shape_of(p.a_node);
  const std::span<const dimension> b_shape = e.shape_of(p.b_node);
  const std::size_t rank = a_shape.size();
  if (rank < 2 || b_shape.size() != rank) e.malformed("a matrix product needs two tiles of one rank, at least 2");
  const dtype declared = e.type_of(e.current);
  const dtype type = operand_type(e.type_of(p.a), e.type_of(p.b));
  const bool integers = !device_ir::is_float(type);
  const dtype sum = integers ? dtype::i32 : type == dtype::f64 ? dtype::f64 : dtype::f32;
  if (p.accumulator != codegen::no_expression) p.accumulator = e.cast(p.accumulator, sum);
  if (lanes(a_shape[rank - 1]) != 0 && lanes(a_shape[rank - 1]) < smallest_inner(type)) return e.result(by_broadcast(e, p, rank, sum));
  const bool eight_bits = device_ir::is_float(type) && device_ir::size_of(type) == 1;
  if (e.type_of(p.a) != e.type_of(p.b) && !(eight_bits && device_ir::size_of(e.type_of(p.a)) == 1)) {
    p.a = e.cast(p.a, type);
    p.b = e.cast(p.b, type);
  }
  if (lanes(a_shape[rank - 2]) >= 64) e.widest_product = std::max(e.widest_product, std::min<std::int64_t>(lanes(b_shape[rank - 1]), 256));
  // One matrix of a batch: the plain product.
  const bool single = rank == 3 && lanes(a_shape[0]) == 1 && lanes(b_shape[0]) == 1;
  const auto flat = [&](expression x, std::span<const dimension> shape) {
    return e.call("tl.reshape", {x, e.shape_list(shape.subspan(1))}, e.type_of(x));
  };
  if (single) {
    p.a = flat(p.a, a_shape);
    p.b = flat(p.b, b_shape);
    if (p.accumulator != codegen::no_expression) p.accumulator = flat(p.accumulator, e.shape_of(e.current));
  }
  std::vector<expression> arguments{p.a, p.b};
  if (p.accumulator != codegen::no_expression) arguments.push_back(p.accumulator);
  if (type == dtype::f32)
    arguments.push_back(e.keyword_argument("input_precision", e.string(precision_name(e.source->settings.dot_precision))));
  if (sum != dtype::f32) arguments.push_back(e.keyword_argument("out_dtype", e.dtype_name(sum)));
  expression result = e.typed(e.call("tl.dot", arguments), sum);
  if (single) result = e.call("tl.reshape", {result, e.shape_list(e.shape_of(e.current))}, sum);
  (void)declared;
  e.result(result);
}

product operands(triton_emitter& e, std::size_t first) {
  product p;
  p.a_node = e.operand_node(first);
  p.b_node = e.operand_node(first + 1);
  if (p.a_node == no_node || p.b_node == no_node) e.malformed("a matrix product needs two tiles");
  p.a = e.tile_operand(first);
  p.b = e.tile_operand(first + 1);
  return p;
}

bool is_none(const argument* a) { return a == nullptr || a->what == argument::kind::none; }

} // namespace

void dot(emitter& base, const node&) {
  triton_emitter& e = self(base);
  product p = operands(e, 0);
  if (!is_none(e.argument_at(2))) p.accumulator = e.tile_operand(2);
  multiply(e, p);
}

void mm(emitter& base, const node&) { multiply(self(base), operands(self(base), 0)); }

void addmm(emitter& base, const node&) {
  triton_emitter& e = self(base);
  for (const std::string_view factor : {"alpha", "beta"})
    if (const argument* a = e.keyword(factor);
        a != nullptr && !(a->what == argument::kind::integer && a->integer == 1) && !(a->what == argument::kind::real && a->real == 1))
      e.unsupported("a scaled accumulator or product (alpha, beta)");
  product p = operands(e, 1);
  p.accumulator = e.tile_operand(0);
  // A row or column that is added to every row or column.
  const node_id acc = e.operand_node(0);
  if (acc != no_node && e.shape_of(acc).size() != e.shape_of(e.current).size())
    p.accumulator = e.call("tl.broadcast_to", {p.accumulator, e.shape_list(e.shape_of(e.current))}, e.type_of(p.accumulator));
  multiply(e, p);
}

/// `dot_scaled(a, a_scale, a_format, b, b_scale, b_format, acc, out_dtype)`.
void dot_scaled(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const auto format = [&](std::size_t i) {
    const argument* a = e.argument_at(i);
    if (a == nullptr || a->what != argument::kind::string) e.malformed("a scaled product names its operands' formats");
    return e.string(a->text);
  };
  const auto scale = [&](std::size_t i) { return is_none(e.argument_at(i)) ? e.none() : e.tile_operand(i); };
  std::vector<expression> arguments{e.tile_operand(0), scale(1), format(2), e.tile_operand(3), scale(4), format(5)};
  if (!is_none(e.argument_at(6))) arguments.push_back(e.keyword_argument("acc", e.cast(e.tile_operand(6), dtype::f32)));
  e.result(e.typed(e.call("tl.dot_scaled", arguments), dtype::f32));
}

} // namespace muster::triton
