module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <fmt/format.h>
module muster.codegen;

namespace muster::codegen {

using device_ir::no_node;

namespace {

std::size_t at_index(std::int32_t i) { return static_cast<std::size_t>(i); }

} // namespace

// -- symbols

expression emitter::symbol_value(symbolic::symbol s) {
  const std::size_t i = static_cast<std::size_t>(s);
  if (symbol_values_[i] != codegen::no_expression) return symbol_values_[i];
  if (const std::int32_t block = plan->block_of_symbol[i]; block >= 0) return block_size(block);
  const device_ir::symbol_declaration* d = source->find_declaration(s);
  if (d == nullptr) malformed(fmt::format("the symbol {} is declared nowhere", source->symbols.name(s)));
  using origin = device_ir::symbol_declaration::origin;
  switch (d->from) {
  case origin::parameter: return parameter_value(s);
  case origin::grid:
  case origin::tile_begin: return tile_offset(d->block);
  case origin::tile_end: return tile_end(d->block);
  case origin::tile_id: return tile_id(d->block);
  case origin::tile_count: return tile_count(d->block);
  }
  malformed("a symbol of no known origin");
}

expression emitter::parameter_value(symbolic::symbol s) {
  const std::size_t i = static_cast<std::size_t>(s);
  parameter_used_[i] = true;
  if (symbol_values_[i] == codegen::no_expression) {
    const variable v = new_parameter(source->symbols.name(s), plan->real_symbol[i] ? language->symbol_real : plan->index_dtype);
    at(v).non_negative = plan->size_symbol[i];
    symbol_values_[i] = name(v);
  }
  return symbol_values_[i];
}

symbolic::symbol emitter::defined_symbol(node_id n) const noexcept {
  const device_ir::type& type = source->at(n).type;
  if (type.what != device_ir::type::kind::symbolic || source->symbols.kind_of(type.value) != symbolic::kind::symbol)
    return symbolic::no_symbol;
  const symbolic::symbol s = source->symbols.symbol_of(type.value);
  return plan->definitions[static_cast<std::size_t>(s)] == n ? s : symbolic::no_symbol;
}

bool emitter::parameter_used(symbolic::symbol s) const noexcept { return parameter_used_[static_cast<std::size_t>(s)]; }

// -- tensors

expression emitter::tensor_value(std::int32_t tensor) {
  tensor_used_[at_index(tensor)] = true;
  if (tensor_values_[at_index(tensor)] == codegen::no_expression) malformed("the host tensor is bound to nothing");
  return tensor_values_[at_index(tensor)];
}

void emitter::bind_tensor(std::int32_t tensor, expression e) { tensor_values_[at_index(tensor)] = e; }
bool emitter::tensor_used(std::int32_t tensor) const noexcept { return tensor_used_[at_index(tensor)]; }

std::int32_t emitter::tensor_of(node_id n) const noexcept {
  if (n == no_node || !plan->at(n).is_host_tensor) return -1;
  const std::span<const argument> arguments = source->arguments_of(source->at(n));
  const device_ir::host_tensor* t = arguments.empty() ? nullptr : source->find_tensor(arguments[0].text);
  return t == nullptr ? -1 : static_cast<std::int32_t>(t - source->tensors.data());
}

// -- tiles

tile_binding& emitter::tile(std::int32_t block) {
  if (block < 0 || at_index(block) >= tiles_.size() || !tiles_[at_index(block)].open)
    malformed(fmt::format("no loop or grid over block {} is open here", block));
  return tiles_[at_index(block)];
}

const tile_binding* emitter::find_tile(std::int32_t block) const noexcept {
  return block >= 0 && at_index(block) < tiles_.size() && tiles_[at_index(block)].open ? &tiles_[at_index(block)] : nullptr;
}

void emitter::open_tile(std::int32_t block, const tile_binding& t) {
  tiles_[at_index(block)] = t;
  tiles_[at_index(block)].open = true;
}

void emitter::close_tile(std::int32_t block) { tiles_[at_index(block)] = {}; }

expression emitter::tile_offset(std::int32_t block) { return tile(block).offset; }

expression emitter::tile_indices(std::int32_t block) {
  const tile_binding& t = tile(block);
  if (t.indices == codegen::no_expression) malformed(fmt::format("block {} has no lanes here", block));
  return t.indices;
}

expression emitter::block_size(std::int32_t block) {
  const block_plan& b = plan->blocks[at_index(block)];
  if (b.block_size > 0) return integer(b.block_size, plan->index_dtype);
  const symbolic::pool& pool = source->symbols;
  // A block size that only the host knows: the parameter named after its symbol.
  if (b.variable != symbolic::no_symbol && source->find_declaration(b.variable) == nullptr) return parameter_value(b.variable);
  if (b.block_size_expression == symbolic::no_expression) malformed(fmt::format("block {} has no block size", block));
  if (pool.kind_of(b.block_size_expression) == symbolic::kind::symbol) return parameter_value(pool.symbol_of(b.block_size_expression));
  return symbolic(b.block_size_expression);
}

expression emitter::tile_end(std::int32_t block) {
  const tile_binding& t = tile(block);
  const block_plan& b = plan->blocks[at_index(block)];
  const expression end = binary(op::add, t.offset, block_size(block));
  if (!b.mask || t.end == codegen::no_expression) return end;
  return least(end, t.end);
}

expression emitter::tile_id(std::int32_t block) {
  const tile_binding& t = tile(block);
  if (t.id != codegen::no_expression) return t.id;
  return binary(op::floor_divide, t.offset, block_size(block));
}

expression emitter::tile_count(std::int32_t block) {
  const tile_binding& t = tile(block);
  if (t.end == codegen::no_expression) malformed(fmt::format("the end of block {} is not known here", block));
  const expression size = block_size(block);
  if (integer_literal(size) == 1) return t.end;
  if (const auto n = integer_literal(t.end); n && integer_literal(size))
    return integer((*n + *integer_literal(size) - 1) / *integer_literal(size), plan->index_dtype);
  return call(intrinsic::ceil_divide, {t.end, size}, plan->index_dtype);
}

std::int32_t emitter::block_of(node_id n) const noexcept {
  if (n == no_node) return -1;
  const device_ir::type& type = source->at(n).type;
  if (type.what != device_ir::type::kind::symbolic || source->symbols.kind_of(type.value) != symbolic::kind::symbol) return -1;
  return plan->block_of_symbol[static_cast<std::size_t>(source->symbols.symbol_of(type.value))];
}

std::int32_t emitter::block_of(const argument& a) const noexcept { return a.what == argument::kind::node ? block_of(a.node) : -1; }

// -- control flow: what a backend without its own says

body emitter::open_loop(const loop_plan&, std::span<const expression>, std::span<const expression>, std::span<const expression>) {
  unsupported("the backend has no loops over tiles");
}
void emitter::close_loop(const loop_plan& loop) {
  for (const std::int32_t b : loop.blocks) close_tile(b);
}
expression emitter::neutral(const accumulator&) { unsupported("the backend has no rolled reductions"); }

expression emitter::combine(const accumulator& a, expression so_far, expression chunk) {
  const dtype type = type_of(so_far);
  const bool real = device_ir::is_float(type);
  switch (a.by) {
  case operation::aten_sum: return binary(op::add, so_far, chunk);
  case operation::aten_prod: return binary(op::multiply, so_far, chunk);
  case operation::aten_amax:
  case operation::aten_max: return call(real ? intrinsic::maximum : intrinsic::integer_maximum, {so_far, chunk}, type);
  case operation::aten_amin:
  case operation::aten_min: return call(real ? intrinsic::minimum : intrinsic::integer_minimum, {so_far, chunk}, type);
  case operation::aten_any: return binary(op::bit_or, so_far, chunk);
  case operation::aten_all: return binary(op::bit_and, so_far, chunk);
  default: unsupported("this reduction cannot be rolled into a loop");
  }
}

expression emitter::finish(const accumulator&, expression accumulated) { return accumulated; }

} // namespace muster::codegen
