module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.backend.cpu;

namespace muster::cpu {

using codegen::op;
using device_ir::argument;
using device_ir::no_node;

namespace {

/// A matrix in memory: its first element and how far apart its rows are.
struct matrix {
  expression first = codegen::no_expression;
  expression stride = codegen::no_expression;
};

/// One product of (batches of) tiles, with what is added to it.
struct product {
  node_id a = no_node;
  node_id b = no_node;
  node_id accumulator = no_node; ///< or no_node: zeros
  const argument* literal = nullptr;
  expression factor = codegen::no_expression;             ///< of the product
  expression accumulator_factor = codegen::no_expression;
};

class multiplication {
public:
  multiplication(cpu_emitter& e, const product& p)
      : e_(e), p_(p), a_shape_(e.shape_of(p.a).begin(), e.shape_of(p.a).end()), b_shape_(e.shape_of(p.b).begin(), e.shape_of(p.b).end()),
        shape_(e.shape_of(e.current).begin(), e.shape_of(e.current).end()) {
    rank_ = a_shape_.size();
    if (rank_ < 2 || b_shape_.size() != rank_ || shape_.size() != rank_)
      e.malformed("a matrix product needs two tiles of one rank, at least 2");
    const dtype operands = codegen::promote(e.type_of(p.a), e.type_of(p.b));
    type_ = device_ir::is_float(operands) ? (operands == dtype::f64 ? dtype::f64 : dtype::f32) : dtype::i64;
    if (!device_ir::is_float(operands) && device_ir::size_of(e.type_of(e.current)) <= 4) type_ = dtype::i32;
  }

  void write() {
    const node_id own = e_.current;
    const std::int32_t carried = e_.destination(own);
    const bool in_place = carried >= 0 && e_.at_buffer(carried).type == type_;
    const std::int32_t result = in_place ? carried : e_.make_buffer(e_.source->at(own).name, shape_, type_);
    start(result, in_place);
    const std::int32_t a = packed_or_kept(p_.a, a_shape_, "left");
    const std::int32_t b = packed_or_kept(p_.b, b_shape_, "right");
    indices batch;
    for (std::size_t d = 0; d + 2 < rank_; ++d) batch.push_back(e_.push_loop(shape_[d]));
    if (a < 0) pack(left_, p_.a, a_shape_, batch);
    if (b < 0) pack(right_, p_.b, b_shape_, batch);
    const matrix to = matrix_of(result, batch, shape_);
    const matrix left = a < 0 ? matrix_of(left_, {}, without_batch(a_shape_)) : matrix_of(a, batch, a_shape_);
    const matrix right = b < 0 ? matrix_of(right_, {}, without_batch(b_shape_)) : matrix_of(b, batch, b_shape_);
    {
      const auto guard = e_.into(e_.innermost());
      const codegen::statement s = e_.evaluate(
          e_.call("math::multiply_add", {e_.lanes(shape_[rank_ - 2]), e_.lanes(shape_[rank_ - 1]), e_.lanes(a_shape_[rank_ - 1]),
                                         left.first, left.stride, right.first, right.stride, to.first, to.stride}));
      e_.defines(s, e_.at_buffer(result).v);
    }
    while (e_.depth() > 1) e_.pop();
    e_.at_buffer(result).filled = true;
    e_.keep_in(own, result);
  }

private:
  cpu_emitter& e_;
  product p_;
  std::vector<dimension> a_shape_;
  std::vector<dimension> b_shape_;
  std::vector<dimension> shape_;
  std::size_t rank_ = 0;
  dtype type_ = dtype::f32;
  std::int32_t left_ = -1;
  std::int32_t right_ = -1;

  static std::vector<dimension> without_batch(const std::vector<dimension>& shape) { return {shape.end() - 2, shape.end()}; }

  /// The result before anything is added: the accumulator.
  void start(std::int32_t result, bool in_place) {
    if (in_place && p_.accumulator_factor == codegen::no_expression && e_.buffer_of(p_.accumulator) == result) { // it already lies there
      return;
    }
    e_.fill(result, [&](index_span at) {
      if (p_.accumulator == no_node) return p_.literal == nullptr ? e_.cast(e_.integer(0), type_) : e_.literal(*p_.literal, type_);
      const expression value = e_.cast(e_.broadcast_element(p_.accumulator, at, shape_), type_);
      return p_.accumulator_factor == codegen::no_expression
                 ? value
                 : e_.typed(e_.binary(op::multiply, e_.cast(p_.accumulator_factor, type_), value), type_);
    });
  }

  /// A buffer that holds the operand as it is needed already, or -1, with a buffer for its copy made ready.
  std::int32_t packed_or_kept(node_id n, const std::vector<dimension>& shape, std::string_view name) {
    const std::int32_t b = e_.buffer_of(n);
    if (b >= 0 && e_.at_buffer(b).type == type_ && e_.type_of(n) == type_ && !e_.at_buffer(b).scalar) return b;
    (name == "left" ? left_ : right_) = e_.make_buffer(name, without_batch(shape), type_);
    return -1;
  }

  void pack(std::int32_t to, node_id n, const std::vector<dimension>& shape, const indices& batch) {
    const std::size_t base = e_.depth();
    indices at;
    for (std::size_t d = 0; d + 2 < rank_; ++d) at.push_back(shape[d].size == 1 ? e_.zero() : batch[d]);
    const expression row = e_.push_loop(shape[rank_ - 2]);
    const expression column = e_.push_loop(shape[rank_ - 1]);
    at.push_back(row);
    at.push_back(column);
    expression value = e_.cast(e_.element(n, at), type_);
    if (to == left_ && p_.factor != codegen::no_expression) value = e_.binary(op::multiply, e_.cast(p_.factor, type_), value);
    const expression place[] = {row, column};
    e_.write(to, place, value);
    while (e_.depth() > base) e_.pop();
    e_.at_buffer(to).filled = true;
  }

  matrix matrix_of(std::int32_t b, const indices& batch, const std::vector<dimension>& shape) {
    const buffer& from = e_.at_buffer(b);
    const std::size_t rank = from.strides.size();
    if (from.scalar) return {e_.call("std::addressof", {e_.name(from.v)}), e_.whole(1)};
    expression offset = e_.zero();
    for (std::size_t d = 0; d + 2 < rank; ++d)
      offset = e_.binary(op::add, offset, e_.binary(op::multiply, shape[d].size == 1 ? e_.zero() : batch[d], from.strides[d]));
    expression first = e_.name(from.v);
    if (e_.integer_literal(offset) != std::optional<std::int64_t>(0)) first = e_.binary(op::add, first, offset);
    // Rows of one element lie next to each other.
    expression stride = from.strides[rank - 2];
    if (e_.integer_literal(stride) == std::optional<std::int64_t>(0)) stride = e_.whole(1);
    return {first, stride};
  }
};

bool is_none(const argument* a) { return a == nullptr || a->what == argument::kind::none; }

product operands(cpu_emitter& e, std::size_t first) {
  product p;
  p.a = e.operand_node(first);
  p.b = e.operand_node(first + 1);
  if (p.a == no_node || p.b == no_node) e.malformed("a matrix product needs two tiles");
  return p;
}

void accumulate(cpu_emitter& e, product& p, std::size_t i) {
  const argument* a = e.argument_at(i);
  if (is_none(a)) return;
  if (a->what == argument::kind::node) p.accumulator = a->node;
  else p.literal = a;
}

expression factor(cpu_emitter& e, std::string_view name) {
  const argument* a = e.keyword(name);
  if (is_none(a)) return codegen::no_expression;
  const bool one = (a->what == argument::kind::integer && a->integer == 1) || (a->what == argument::kind::real && a->real == 1);
  return one ? codegen::no_expression : e.literal(*a);
}

} // namespace

void dot(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  product p = operands(e, 0);
  accumulate(e, p, 2);
  multiplication(e, p).write();
}

void mm(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  multiplication(e, operands(e, 0)).write();
}

void addmm(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  product p = operands(e, 1);
  accumulate(e, p, 0);
  p.factor = factor(e, "alpha");
  p.accumulator_factor = factor(e, "beta");
  multiplication(e, p).write();
}

} // namespace muster::cpu
