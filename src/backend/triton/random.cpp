module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>
module muster.backend.triton;

namespace muster::triton {

using codegen::dimension;
using codegen::op;
using device_ir::argument;
using device_ir::dtype;

namespace {

/// The positions of a tile's elements in its whole dimensions, row by row: they number the random values.
expression offsets(triton_emitter& e) {
  const std::span<const dimension> shape = e.shape_of(e.current);
  expression offset = e.integer(0, dtype::i64);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const codegen::block_plan* b = e.plan->find_block(shape[d].block);
    expression extent = e.integer(shape[d].size, dtype::i64);
    expression lanes = codegen::no_expression;
    if (b != nullptr) {
      lanes = e.tile_indices(b->id);
      if (b->extent != symbolic::no_expression) extent = e.cast(e.symbolic(b->extent), dtype::i64);
    } else if (shape[d].size > 0 && (shape[d].size & (shape[d].size - 1)) == 0) {
      lanes = e.call("tl.arange", {e.integer(0), e.integer(shape[d].size)}, dtype::i32);
    } else {
      e.unsupported("Triton's tiles have powers of two of elements: random numbers of another shape");
    }
    const expression wide = e.cast(e.along(lanes, d, shape.size()), dtype::i64);
    offset = e.binary(op::add, e.binary(op::multiply, offset, extent), wide);
  }
  return shape.empty() ? e.call("tl.full", {e.list({}), e.integer(0), e.dtype_name(dtype::i64)}, dtype::i64) : offset;
}

bool is_given(const argument* a) { return a != nullptr && a->what != argument::kind::none; }

/// The four words of each element's random numbers, of which most take the first.
expression words(triton_emitter& e, std::size_t seed, std::size_t offsets_position) {
  const argument* a = e.argument_at(seed);
  if (a == nullptr) a = e.keyword("seed");
  if (!is_given(a)) e.malformed("random numbers need a seed");
  const argument* own = e.argument_at(offsets_position);
  if (own == nullptr) own = e.keyword("offsets");
  const expression counter = is_given(own) ? e.cast(e.literal(*own), dtype::i64) : offsets(e);
  return e.call("_random", {e.literal(*a), counter});
}

expression word(triton_emitter& e, expression all, std::int64_t i) { return e.subscript(all, {e.integer(i)}); }

} // namespace

/// `_rng_seed(index)`: a seed that each launch draws anew.
void rng_seed(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const argument* index = e.argument_at(0);
  if (index == nullptr || index->what != argument::kind::integer || index->integer < 0 || index->integer >= 1024)
    e.malformed("_rng_seed takes the number of a seed, from 0");
  if (e.source->tensors.empty()) e.unsupported("a seed of a kernel without tensors, which would say on which device");
  if (e.seeds == codegen::no_variable) e.seeds = e.new_parameter("rng_seeds");
  e.seed_count = std::max(e.seed_count, index->integer + 1);
  const expression place = e.untyped(e.binary(op::add, e.untyped(e.name(e.seeds)), e.integer(index->integer)));
  e.result(e.call("tl.load", {place}, dtype::i64));
}

/// `rand(shape, seed, offsets)`: in [0, 1).
void rand(emitter& base, const node&) {
  triton_emitter& e = self(base);
  e.result(e.call("_uniform", {word(e, words(e, 1, 2), 0)}, dtype::f32));
}

/// `rand4x(seed, offsets)`: four tiles in [0, 1).
void rand4x(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const expression all = e.define("random", words(e, 0, 1));
  std::vector<expression> tiles;
  for (std::int64_t i = 0; i < 4; ++i) tiles.push_back(e.call("_uniform", {word(e, all, i)}, dtype::f32));
  e.results(tiles);
}

/// `randint(shape, low, high, seed)`: in [low, high).
void randint(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const argument* low = e.argument_at(1);
  const argument* high = e.argument_at(2);
  if (low == nullptr || high == nullptr) e.malformed("randint takes a shape, two bounds and a seed");
  if (low->what == argument::kind::integer && high->what == argument::kind::integer && low->integer >= high->integer)
    e.malformed("randint's lower bound is not below its upper one");
  const expression value = e.call("_whole", {word(e, words(e, 3, 4), 0), e.literal(*low), e.literal(*high)}, dtype::i32);
  e.result(e.cast(value, e.type_of(e.current)));
}

} // namespace muster::triton
