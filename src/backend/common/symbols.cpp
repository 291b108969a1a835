module;
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <fmt/format.h>
module muster.backend.common;

import muster.symbolic;

namespace muster::common {

using codegen::expression;
using device_ir::argument;

void host_tensor(emitter& e, const node&) {
  const std::int32_t tensor = e.tensor_of(e.current);
  if (tensor < 0) e.malformed("no host tensor of that name is declared");
  e.set_value(e.current, e.tensor_value(tensor));
}

namespace {

/// `_get_symnode('rdim3')` without a declared type is the extent of reduction block 3.
std::int32_t reduction_label(std::string_view label) {
  constexpr std::string_view prefix = "rdim";
  if (!label.starts_with(prefix) || label.size() == prefix.size() || label.size() > prefix.size() + 6) return -1;
  std::int32_t id = 0;
  for (const char c : label.substr(prefix.size())) {
    if (c < '0' || c > '9') return -1;
    id = id * 10 + (c - '0');
  }
  return id;
}

expression apply_operator(emitter& e, operation o) {
  using codegen::op;
  const auto binary = [&](op what) { return e.binary(what, e.operand(0), e.operand(1)); };
  switch (o) {
  case operation::py_add: return binary(op::add);
  case operation::py_sub: return binary(op::subtract);
  case operation::py_mul: return binary(op::multiply);
  case operation::py_truediv: return binary(op::divide);
  case operation::py_floordiv: return binary(op::floor_divide);
  case operation::py_mod: return binary(op::modulo);
  case operation::py_pow: return e.power_of(e.operand(0), e.operand(1));
  case operation::py_neg: return e.unary(op::negate, e.operand(0));
  case operation::py_eq: return binary(op::equal);
  case operation::py_ne: return binary(op::not_equal);
  case operation::py_lt: return binary(op::less);
  case operation::py_le: return binary(op::less_equal);
  case operation::py_gt: return binary(op::greater);
  case operation::py_ge: return binary(op::greater_equal);
  case operation::py_and:
  case operation::and_: return binary(op::logical_and);
  case operation::py_or:
  case operation::or_: return binary(op::logical_or);
  case operation::py_not:
  case operation::py_sym_not:
  case operation::not_: return e.unary(op::logical_not, e.operand(0));
  case operation::py_abs: return e.select(e.binary(op::less, e.operand(0), e.integer(0)), e.unary(op::negate, e.operand(0)), e.operand(0));
  case operation::py_min:
  case operation::py_sym_min: return e.least(e.operand(0), e.operand(1));
  case operation::py_max:
  case operation::py_sym_max: return e.greatest(e.operand(0), e.operand(1));
  case operation::py_float:
  case operation::py_sym_float: return e.cast(e.operand(0), e.language->symbol_real);
  case operation::py_int:
  case operation::py_sym_int: return e.cast(e.operand(0), e.plan->index_dtype);
  default: return e.operand(0);
  }
}

} // namespace

void symbol_expression(emitter& e, const node& n) {
  const bool defines = e.defined_symbol(e.current) != symbolic::no_symbol;
  if (n.type.what == device_ir::type::kind::symbolic && !defines) return e.result(e.symbolic(n.type.value));
  const operation o = e.plan->at(e.current).op;
  if (o != operation::get_symnode) return e.result(apply_operator(e, o));
  const argument* label = e.argument_at(0);
  const std::int32_t block = label != nullptr ? reduction_label(label->text) : -1;
  const codegen::block_plan* b = e.plan->find_block(block);
  if (b == nullptr || b->extent == symbolic::no_expression)
    e.malformed("a symbol without a declared type, whose label names no reduction dimension");
  e.result(e.symbolic(b->extent));
}

void constant_tensor(emitter& e, const node& n) { e.result(e.cast(e.operand(0), n.type.element)); }

void tile_index(emitter& e, const node&) {
  const argument* a = e.argument_at(0);
  const std::int32_t block = a != nullptr ? e.block_of(*a) : -1;
  if (block < 0) e.malformed("tile_index needs a block's size symbol");
  e.set_value(e.current, e.tile_indices(block));
}

void tile_symbol(emitter& e, const node& n) {
  const bool defines = e.defined_symbol(e.current) != symbolic::no_symbol;
  if (n.type.what == device_ir::type::kind::symbolic && !defines) return e.result(e.symbolic(n.type.value));
  const argument* a = e.argument_at(0);
  const std::int32_t block = a != nullptr ? e.block_of(*a) : -1;
  if (block < 0) e.malformed("expected a block's size symbol");
  switch (e.plan->at(e.current).op) {
  case operation::tile_begin: return e.result(e.tile_offset(block));
  case operation::tile_end: return e.result(e.tile_end(block));
  case operation::tile_id: return e.result(e.tile_id(block));
  case operation::tile_count: return e.result(e.tile_count(block));
  default: return e.result(e.block_size(block));
  }
}

void identity(emitter& e, const node&) { e.set_value(e.current, e.operand(0)); }

void getitem(emitter& e, const node&) {
  if (e.has_value(e.current)) return; // the loop or branch has set it
  const argument* position = e.argument_at(1);
  const device_ir::node_id from = e.operand_node(0);
  if (from == device_ir::no_node || position == nullptr || position->what != argument::kind::integer)
    e.malformed("expected VALUE[INTEGER]");
  const std::span<const expression> all = e.values_of(from);
  if (position->integer < 0 || static_cast<std::size_t>(position->integer) >= all.size())
    e.malformed(fmt::format("'{}' has {} values, there is no number {}", e.source->at(from).name, all.size(), position->integer));
  e.set_value(e.current, all[static_cast<std::size_t>(position->integer)]);
}

void scalar_tensor(emitter& e, const node& n) {
  const argument* a = e.argument_at(0);
  if (a == nullptr) e.malformed("scalar_tensor needs a value");
  e.set_value(e.current, e.cast(e.operand(0), n.type.element));
}

} // namespace muster::common
