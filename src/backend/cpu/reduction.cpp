module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.backend.cpu;

namespace muster::cpu {

using codegen::block_role;
using codegen::intrinsic;
using codegen::op;
using device_ir::argument;
using device_ir::no_node;

namespace {

using element_function = std::function<expression(index_span)>;

bool truth_of(const argument* a) {
  return a != nullptr && ((a->what == argument::kind::boolean && a->boolean) || (a->what == argument::kind::integer && a->integer != 0));
}

std::int64_t lowest(dtype type) {
  switch (type) {
  case dtype::i64: return std::numeric_limits<std::int64_t>::min();
  case dtype::i32: return std::numeric_limits<std::int32_t>::min();
  case dtype::i16: return std::numeric_limits<std::int16_t>::min();
  case dtype::i8: return std::numeric_limits<std::int8_t>::min();
  default: return 0;
  }
}

std::int64_t highest(dtype type) {
  if (type == dtype::u8) return std::numeric_limits<std::uint8_t>::max();
  return type == dtype::b8 ? 1 : -(lowest(type) + 1);
}

operation kind_of(const emitter& e) { return e.plan->at(e.current).op; }

bool is_reduced(const reduction_shape& r, std::size_t d) { return std::find(r.dims.begin(), r.dims.end(), d) != r.dims.end(); }

/// The helper that reduces what a lambda gives.
std::string_view helper_of(emitter& e, operation by) {
  switch (by) {
  case operation::aten_sum: return "math::sum";
  case operation::aten_prod: return "math::product";
  case operation::aten_amax:
  case operation::aten_max: return "math::largest";
  case operation::aten_amin:
  case operation::aten_min: return "math::smallest";
  case operation::aten_any: return "math::any";
  case operation::aten_all: return "math::all";
  default: e.unsupported("this reduction has no code");
  }
}

/// The tile of a reduction's result.
std::vector<dimension> kept_shape(std::span<const dimension> shape, const reduction_shape& r) {
  std::vector<dimension> result;
  dimension one;
  one.size = 1;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!is_reduced(r, d)) result.push_back(shape[d]);
    else if (r.keep) result.push_back(one);
  return result;
}

indices kept_indices(index_span at, const reduction_shape& r, expression zero) {
  indices result;
  for (std::size_t d = 0; d < at.size(); ++d)
    if (!is_reduced(r, d)) result.push_back(at[d]);
    else if (r.keep) result.push_back(zero);
  return result;
}

bool is_single(cpu_emitter& e, const dimension& d) { return e.integer_literal(e.lanes(d)) == std::optional<std::int64_t>(1); }

/// Reduces the open element's row: the kept dimensions' loops are open and `at` holds their indices; `element` gives the
/// values. The result is a variable or literal of the innermost loop.
expression reduce_row(cpu_emitter& e, operation by, dtype type, std::span<const dimension> shape, const reduction_shape& r, indices& at,
                      const element_function& element, std::string_view wanted) {
  std::vector<std::size_t> dims;
  for (const std::size_t d : r.dims)
    if (is_single(e, shape[d])) at[d] = e.zero();
    else dims.push_back(d);
  if (dims.empty()) {
    const expression value = e.cast(element(at), type);
    return e.define_at(e.depth() - 1, wanted, value);
  }
  const std::string_view helper = e.keep(fmt::format("{}<{}>", helper_of(e, by), e.language->types[static_cast<std::size_t>(type)]));
  const std::size_t base = e.depth();
  codegen::variable total = codegen::no_variable;
  if (dims.size() > 1) {
    total = e.new_variable(wanted, type);
    const auto guard = e.into(e.innermost());
    e.declare(total, {}, neutral(e, by, type));
    for (std::size_t i = 0; i + 1 < dims.size(); ++i) at[dims[i]] = e.push_loop(shape[dims[i]]);
  }
  at[dims.back()] = e.push_closure(shape[dims.back()]);
  const expression value = e.cast(element(at), type);
  const codegen::variable row = e.pop_closure(helper, {}, value, wanted, type);
  if (dims.size() == 1) return e.name(row);
  {
    const auto guard = e.into(e.innermost());
    e.assign(total, combined(e, by, e.name(total), e.name(row)));
  }
  while (e.depth() > base) e.pop();
  return e.name(total);
}

/// Opens the loops over the kept dimensions; the reduced ones' indices are not set.
indices open_kept(cpu_emitter& e, std::span<const dimension> shape, const reduction_shape& r) {
  indices at(shape.size(), e.zero());
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!is_reduced(r, d)) at[d] = e.push_loop(shape[d]);
  return at;
}

/// Closes the kept loops around a result of one element each, which goes to a buffer or becomes a scalar.
class result_place {
public:
  result_place(cpu_emitter& e, std::string_view name, std::span<const dimension> shape, dtype type)
      : e_(e), type_(type), shape_(shape.begin(), shape.end()) {
    single_ = std::all_of(shape.begin(), shape.end(), [&](const dimension& d) { return is_single(e, d); });
    if (!single_) buffer_ = e.make_buffer(name, shape, type);
  }
  /// In the innermost kept loop.
  void set(index_span at, expression value, std::string_view name) {
    if (!single_) return e_.write(buffer_, at, value);
    value = e_.define_at(0, name, e_.cast(value, type_));
    if (e_.at(value).what != codegen::expression_kind::name) { // a literal
      const auto guard = e_.into(e_.innermost());
      const codegen::variable v = e_.new_variable(name, type_);
      e_.assign(v, value);
      value = e_.name(v);
    }
    buffer_ = e_.scalar_buffer(e_.at(value).name, type_, shape_);
  }
  [[nodiscard]] std::int32_t close() {
    while (e_.depth() > 1) e_.pop();
    e_.at_buffer(buffer_).filled = true;
    return buffer_;
  }

private:
  cpu_emitter& e_;
  dtype type_;
  std::vector<dimension> shape_;
  bool single_ = false;
  std::int32_t buffer_ = -1;
};

/// Reduces a tile into a buffer of type `type` (rounded where it is read).
std::int32_t reduce_tile(cpu_emitter& e, operation by, dtype type, dtype result_type, const std::vector<dimension>& shape,
                         const reduction_shape& r, const element_function& element, std::string_view wanted) {
  const std::vector<dimension> kept = kept_shape(shape, r);
  // Where the last dimension stays, rows are added up side by side.
  const bool side_by_side = !shape.empty() && !is_reduced(r, shape.size() - 1) && !is_single(e, shape.back()) &&
                            std::any_of(r.dims.begin(), r.dims.end(), [&](std::size_t d) { return !is_single(e, shape[d]); });
  if (!side_by_side) {
    result_place to(e, wanted, kept, result_type);
    indices at = open_kept(e, shape, r);
    const expression value = reduce_row(e, by, type, shape, r, at, element, wanted);
    to.set(kept_indices(at, r, e.zero()), value, wanted);
    return to.close();
  }
  const std::int32_t sums = e.make_buffer(wanted, kept, type);
  e.fill(sums, [&](index_span) { return neutral(e, by, type); });
  indices at(shape.size(), e.zero());
  for (std::size_t d = 0; d + 1 < shape.size(); ++d)
    if (!is_reduced(r, d)) at[d] = e.push_loop(shape[d]);
  for (const std::size_t d : r.dims) at[d] = e.push_loop(shape[d]);
  at.back() = e.push_loop(shape.back());
  const expression value = e.cast(element(at), type);
  const indices place = kept_indices(at, r, e.zero());
  e.write(sums, place, combined(e, by, e.place(sums, place), value));
  while (e.depth() > 1) e.pop();
  return sums;
}

/// How many valid positions the reduced dimensions have.
expression extent_of(cpu_emitter& e, std::span<const dimension> shape, const reduction_shape& r) {
  expression n = e.whole(1);
  for (const std::size_t d : r.dims) {
    const codegen::block_plan* b = e.plan->find_block(shape[d].block);
    const bool whole = b != nullptr && (b->role == block_role::whole || b->role == block_role::rolled);
    // A tile that is reduced itself: torch counts its lanes.
    n = e.binary(op::multiply, n, whole ? e.symbolic(b->extent) : e.full_lanes(shape[d]));
  }
  return n;
}

/// The tile that argument 0 is, and its shape; a scalar is a tile without dimensions.
struct operand_tile {
  node_id n = no_node;
  std::vector<dimension> shape;
};

operand_tile tile_of(cpu_emitter& e) {
  operand_tile t;
  t.n = e.operand_node(0);
  if (t.n == no_node) e.malformed("a reduction needs a tile");
  t.shape.assign(e.shape_of(t.n).begin(), e.shape_of(t.n).end());
  return t;
}

element_function elements_of(cpu_emitter& e, node_id n) {
  return [&e, n](index_span at) { return e.element(n, at); };
}

expression as_truth(emitter& e, expression x) {
  const dtype type = e.type_of(x);
  if (type == dtype::b8) return x;
  return e.binary(op::not_equal, device_ir::is_float(type) ? e.cast(x, e.language->arithmetic[static_cast<std::size_t>(type)]) : x,
                  device_ir::is_float(type) ? e.real(0, e.language->arithmetic[static_cast<std::size_t>(type)]) : e.integer(0, type));
}

dtype summing_type(const cpu_emitter& e, operation by, dtype declared) {
  if (by == operation::aten_sum || by == operation::aten_prod || by == operation::aten_mean) return e.accumulator_type(declared);
  return e.language->arithmetic[static_cast<std::size_t>(declared)];
}

} // namespace

// -- shapes

reduction_shape cpu_emitter::reduction_of(std::size_t rank) {
  reduction_shape r;
  const argument* dims = this->keyword("dim");
  if (dims == nullptr) dims = argument_at(1);
  const argument* keep = this->keyword("keepdim");
  if (keep == nullptr) keep = argument_at(2);
  r.keep = truth_of(keep);
  read_dims(r, dims, rank);
  return r;
}

void cpu_emitter::read_dims(reduction_shape& r, const argument* dims, std::size_t rank) {
  const auto add = [&](std::int64_t d) {
    const std::int64_t n = static_cast<std::int64_t>(rank);
    if (d < -n || d >= n) malformed(fmt::format("dimension {} of a value of rank {}", d, rank));
    r.dims.push_back(static_cast<std::size_t>(d < 0 ? d + n : d));
  };
  if (dims != nullptr && dims->what == argument::kind::integer) add(dims->integer);
  else if (dims != nullptr && (dims->what == argument::kind::list || dims->what == argument::kind::tuple))
    for (const argument& a : source->items(*dims)) {
      if (a.what != argument::kind::integer) malformed("a reduction's dimensions are integers");
      add(a.integer);
    }
  if (r.dims.empty())
    for (std::size_t d = 0; d < rank; ++d) r.dims.push_back(d);
  std::sort(r.dims.begin(), r.dims.end());
}

reduction_shape cpu_emitter::reduction_of_extra(node_id extra, std::size_t rank) {
  reduction_shape r;
  const node_id finishing = finisher(extra);
  if (finishing == no_node) malformed("no operation finishes this partial reduction");
  const auto arguments = source->arguments_of(source->at(finishing));
  read_dims(r, arguments.size() > 1 ? &arguments[1] : nullptr, rank);
  r.keep = arguments.size() > 2 && truth_of(&arguments[2]);
  return r;
}

/// The node that has `extra`, or what a loop makes of it, among its `_extra_args`.
node_id cpu_emitter::finisher(node_id extra) const {
  std::vector<node_id> wanted{extra};
  for (const codegen::loop_plan& l : plan->loops)
    for (const codegen::accumulator& a : l.accumulators)
      if (a.partial == extra) wanted.push_back(a.after);
  for (std::size_t i = 0; i < source->nodes.size(); ++i) {
    const argument* extras = source->find_keyword(source->nodes[i], "_extra_args");
    if (extras == nullptr) continue;
    for (const argument& a : source->items(*extras))
      if (a.what == argument::kind::node && std::find(wanted.begin(), wanted.end(), a.node) != wanted.end()) return static_cast<node_id>(i);
  }
  return no_node;
}

/// Sums of narrow floats are f32, of integers i64.
dtype cpu_emitter::accumulator_type(dtype declared) const {
  if (device_ir::is_float(declared)) return declared == dtype::f64 ? dtype::f64 : dtype::f32;
  return dtype::i64;
}

expression neutral(cpu_emitter& e, operation by, dtype type) {
  const bool real = device_ir::is_float(type);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (by) {
  case operation::aten_sum: return real ? e.real(0, type) : e.integer(0, type);
  case operation::aten_prod: return real ? e.real(1, type) : e.integer(1, type);
  case operation::aten_amax:
  case operation::aten_max: return real ? e.real(-infinity, type) : e.integer(lowest(type), type);
  case operation::aten_amin:
  case operation::aten_min: return real ? e.real(infinity, type) : e.integer(highest(type), type);
  case operation::aten_any: return e.boolean(false);
  case operation::aten_all: return e.boolean(true);
  default: e.unsupported("this reduction has no neutral element");
  }
}

expression combined(cpu_emitter& e, operation by, expression so_far, expression value) {
  const dtype type = e.type_of(so_far);
  const bool real = device_ir::is_float(type);
  const std::string_view spelled = e.language->types[static_cast<std::size_t>(type)];
  switch (by) {
  case operation::aten_sum:
    return real ? e.typed(e.binary(op::add, so_far, value), type)
                : e.call(e.keep(fmt::format("math::add<{}>", spelled)), {so_far, value}, type);
  case operation::aten_prod:
    return real ? e.typed(e.binary(op::multiply, so_far, value), type)
                : e.call(e.keep(fmt::format("math::multiply<{}>", spelled)), {so_far, value}, type);
  case operation::aten_amax:
  case operation::aten_max: return e.call(real ? intrinsic::maximum : intrinsic::integer_maximum, {so_far, value}, type);
  case operation::aten_amin:
  case operation::aten_min: return e.call(real ? intrinsic::minimum : intrinsic::integer_minimum, {so_far, value}, type);
  case operation::aten_any: return e.binary(op::logical_or, so_far, value);
  case operation::aten_all: return e.binary(op::logical_and, so_far, value);
  default: e.unsupported("this reduction cannot be combined");
  }
}

// -- handlers

void reduction(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const operand_tile x = tile_of(e);
  if (x.shape.empty()) return e.result(e.operand(0));
  const operation by = kind_of(e);
  const dtype declared = e.type_of(e.current);
  e.keep_in(e.current, reduce_tile(e, by, summing_type(e, by, declared), declared, x.shape, e.reduction_of(x.shape.size()),
                                   elements_of(e, x.n), n.name));
}

void lowering_extra(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const argument* list = e.argument_at(0);
  const auto items = list == nullptr ? std::span<const argument>() : e.source->items(*list);
  if (items.size() != 1 || items[0].what != argument::kind::node) e.unsupported("a partial reduction of more than one value");
  const node_id x = items[0].node;
  const std::vector<dimension> shape(e.shape_of(x).begin(), e.shape_of(x).end());
  const dtype type = e.accumulator_type(e.type_of(e.current));
  e.keep_in(e.current, reduce_tile(e, operation::aten_sum, type, type, shape, e.reduction_of_extra(e.current, shape.size()),
                                   elements_of(e, x), n.name));
}

namespace {

/// The number of elements behind a partial sum: found where the partial sum was taken.
expression mean_count(cpu_emitter& e, node_id extra, const node& finishing) {
  for (const codegen::loop_plan& l : e.plan->loops)
    for (const codegen::accumulator& a : l.accumulators)
      if (a.after == extra) extra = a.partial;
  const auto arguments = e.source->arguments_of(e.source->at(extra));
  const auto items = arguments.empty() ? std::span<const argument>() : e.source->items(arguments[0]);
  if (items.empty() || items[0].what != argument::kind::node) e.malformed("the partial sum names no value");
  const std::span<const dimension> shape = e.plan->shape(items[0].node);
  reduction_shape r;
  const auto own = e.source->arguments_of(finishing);
  e.read_dims(r, own.size() > 1 ? &own[1] : nullptr, shape.size());
  return extent_of(e, shape, r);
}

} // namespace

void mean(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const node_id own = e.current;
  const dtype declared = e.type_of(own);
  const dtype type = e.accumulator_type(declared);
  std::int32_t b = -1;
  if (const argument* extras = e.keyword("_extra_args")) {
    const auto items = e.source->items(*extras);
    if (items.size() != 1 || items[0].what != argument::kind::node) e.malformed("mean is finished from one partial sum");
    const expression count = e.cast(mean_count(e, items[0].node, n), type);
    if (e.shape_of(own).empty()) return e.result(e.binary(op::divide, e.cast(e.value_of(items[0].node), type), count));
    const std::vector<dimension> shape(e.shape_of(own).begin(), e.shape_of(own).end());
    result_place to(e, n.name, shape, declared);
    indices at;
    for (const dimension& d : shape) at.push_back(e.push_loop(d));
    to.set(at, e.binary(op::divide, e.cast(e.broadcast_element(items[0].node, at, shape), type), count), n.name);
    b = to.close();
  } else {
    const operand_tile x = tile_of(e);
    if (x.shape.empty()) return e.result(e.operand(0));
    const reduction_shape r = e.reduction_of(x.shape.size());
    const expression count = e.cast(extent_of(e, x.shape, r), type);
    const std::vector<dimension> kept = kept_shape(x.shape, r);
    const std::int32_t sums = reduce_tile(e, operation::aten_sum, type, type, x.shape, r, elements_of(e, x.n), "sum");
    result_place to(e, n.name, kept, declared);
    indices at;
    for (const dimension& d : kept) at.push_back(e.push_loop(d));
    to.set(at, e.binary(op::divide, e.read(sums, at, type), count), n.name);
    b = to.close();
  }
  e.keep_in(own, b);
}

void any_all(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const operand_tile x = tile_of(e);
  if (x.shape.empty()) return e.result(as_truth(e, e.operand(0)));
  const auto truth = [&](index_span at) { return as_truth(e, e.element(x.n, at)); };
  e.keep_in(e.current, reduce_tile(e, kind_of(e), dtype::b8, dtype::b8, x.shape, e.reduction_of(x.shape.size()), truth, n.name));
}

namespace {

/// Loops over the reduced dimensions one element at a time: the first of the best values, and its position.
struct best_of_row {
  expression value = codegen::no_expression;
  expression position = codegen::no_expression;
};

best_of_row find_best(cpu_emitter& e, bool largest, dtype type, std::span<const dimension> shape, const reduction_shape& r, indices& at,
                      const element_function& element) {
  const codegen::variable value = e.new_variable("best", type);
  const codegen::variable position = e.new_variable("position", dtype::i64);
  const std::size_t base = e.depth();
  {
    const auto guard = e.into(e.innermost());
    e.declare(value, {}, neutral(e, largest ? operation::aten_amax : operation::aten_amin, type));
    e.declare(position, {}, e.whole(-1));
  }
  expression flat = e.zero();
  for (const std::size_t d : r.dims) {
    at[d] = e.push_loop(shape[d]);
    flat = e.binary(op::add, e.binary(op::multiply, flat, e.full_lanes(shape[d])), at[d]);
  }
  const expression x = e.define_at(e.depth() - 1, "candidate", e.cast(element(at), type));
  {
    const auto guard = e.into(e.innermost());
    // A NaN is better than any number; the first element is better than none.
    const expression better = e.call(largest ? "math::is_larger" : "math::is_smaller", {x, e.name(value)}, dtype::b8);
    const codegen::statement s = e.if_then(e.binary(op::logical_or, e.binary(op::less, e.name(position), e.zero()), better));
    const auto inside = e.into(e.inner(s));
    e.assign(value, x);
    e.assign(position, flat);
  }
  while (e.depth() > base) e.pop();
  return {e.name(value), e.name(position)};
}

} // namespace

void arg_reduction(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const operand_tile x = tile_of(e);
  const bool largest = kind_of(e) == operation::aten_argmax;
  const dtype type = e.language->arithmetic[static_cast<std::size_t>(e.type_of(x.n))];
  const reduction_shape r = e.reduction_of(x.shape.size());
  result_place to(e, n.name, kept_shape(x.shape, r), e.type_of(e.current));
  indices at = open_kept(e, x.shape, r);
  const best_of_row best = find_best(e, largest, type, x.shape, r, at, elements_of(e, x.n));
  to.set(kept_indices(at, r, e.zero()), best.position, n.name);
  e.keep_in(e.current, to.close());
}

void max_min(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const operand_tile x = tile_of(e);
  const bool largest = kind_of(e) == operation::aten_max;
  if (n.arguments.count < 2) return reduction(base, n);
  const dtype declared = e.type_of(x.n);
  const dtype type = e.language->arithmetic[static_cast<std::size_t>(declared)];
  const reduction_shape r = e.reduction_of(x.shape.size());
  const std::vector<dimension> kept = kept_shape(x.shape, r);
  result_place values(e, "values", kept, declared);
  result_place positions(e, "positions", kept, dtype::i64);
  indices at = open_kept(e, x.shape, r);
  const best_of_row best = find_best(e, largest, type, x.shape, r, at, elements_of(e, x.n));
  const indices place = kept_indices(at, r, e.zero());
  values.set(place, best.value, "values");
  positions.set(place, best.position, "positions");
  const std::int32_t both[] = {values.close(), positions.close()};
  e.keep_all_in(e.current, both);
}

void variance(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const operand_tile x = tile_of(e);
  const bool with_mean = kind_of(e) == operation::aten_var_mean;
  const dtype declared = with_mean ? e.type_of(x.n) : e.type_of(e.current);
  const dtype type = e.accumulator_type(declared);
  reduction_shape r;
  e.read_dims(r, e.argument_at(1), x.shape.size());
  r.keep = truth_of(e.keyword("keepdim"));
  const argument* correction = e.keyword("correction");
  const double less = correction == nullptr || correction->what == argument::kind::none ? 1.0
                      : correction->what == argument::kind::integer                     ? static_cast<double>(correction->integer)
                                                                                        : correction->real;
  const std::vector<dimension> kept = kept_shape(x.shape, r);
  result_place variances(e, n.name, kept, declared);
  std::optional<result_place> means;
  if (with_mean) means.emplace(e, "mean", kept, declared);
  const expression count = e.cast(extent_of(e, x.shape, r), type);
  indices at = open_kept(e, x.shape, r);
  const std::size_t row = e.depth() - 1;
  const expression sum = reduce_row(e, operation::aten_sum, type, x.shape, r, at, elements_of(e, x.n), "sum");
  const expression average = e.define_at(row, "average", e.binary(op::divide, sum, count));
  const auto squares = [&](index_span i) {
    const expression centered = e.define_at(e.level_of(i), "centered", e.binary(op::subtract, e.cast(e.element(x.n, i), type), average));
    const expression valid = e.validity(x.shape, i);
    const expression square = e.binary(op::multiply, centered, centered);
    return valid == codegen::no_expression ? square : e.typed(e.select(valid, square, e.real(0, type)), type);
  };
  const expression total = reduce_row(e, operation::aten_sum, type, x.shape, r, at, squares, "squares");
  const indices place = kept_indices(at, r, e.zero());
  variances.set(place, e.binary(op::divide, total, e.binary(op::subtract, count, e.real(less, type))), n.name);
  if (means) means->set(place, average, "mean");
  const std::int32_t first = variances.close();
  if (!means) return e.keep_in(e.current, first);
  const std::int32_t both[] = {first, means->close()};
  e.keep_all_in(e.current, both);
}

void logsumexp(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const operand_tile x = tile_of(e);
  const dtype declared = e.type_of(e.current);
  const dtype type = e.accumulator_type(declared);
  const reduction_shape r = e.reduction_of(x.shape.size());
  result_place to(e, n.name, kept_shape(x.shape, r), declared);
  indices at = open_kept(e, x.shape, r);
  const std::size_t row = e.depth() - 1;
  const expression highest_value = reduce_row(e, operation::aten_amax, type, x.shape, r, at, elements_of(e, x.n), "highest");
  // A row of nothing but -inf stays -inf.
  const expression shift = e.define_at(row, "shift", e.call("math::finite_or_zero", {highest_value}, type));
  const auto exponentials = [&](index_span i) {
    return e.call(intrinsic::exp, {e.binary(op::subtract, e.cast(e.element(x.n, i), type), shift)}, type);
  };
  const expression sum = reduce_row(e, operation::aten_sum, type, x.shape, r, at, exponentials, "sum");
  to.set(kept_indices(at, r, e.zero()), e.binary(op::add, e.call(intrinsic::log, {sum}, type), shift), n.name);
  e.keep_in(e.current, to.close());
}

// -- scans

namespace {

std::size_t scanned_axis(cpu_emitter& e, const argument* dim, std::size_t rank) {
  reduction_shape r;
  if (dim == nullptr || dim->what != argument::kind::integer) return 0;
  e.read_dims(r, dim, rank);
  return r.dims[0];
}

} // namespace

void cumulative(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const operand_tile x = tile_of(e);
  const operation by = kind_of(e) == operation::aten_cumsum ? operation::aten_sum : operation::aten_prod;
  const dtype declared = e.type_of(e.current);
  const dtype type = e.accumulator_type(declared);
  const std::size_t axis = scanned_axis(e, e.argument_at(1), x.shape.size());
  const std::int32_t b = e.make_buffer(n.name, x.shape, declared);
  indices at(x.shape.size(), e.zero());
  for (std::size_t d = 0; d < x.shape.size(); ++d)
    if (d != axis) at[d] = e.push_loop(x.shape[d]);
  const codegen::variable total = e.new_variable("total", type);
  {
    const auto guard = e.into(e.innermost());
    e.declare(total, {}, neutral(e, by, type));
  }
  at[axis] = e.push_loop(x.shape[axis]);
  const expression value = e.cast(e.element(x.n, at), type);
  {
    const auto guard = e.into(e.innermost());
    e.assign(total, combined(e, by, e.name(total), value));
  }
  e.write(b, at, e.name(total));
  while (e.depth() > 1) e.pop();
  e.at_buffer(b).filled = true;
  e.keep_in(e.current, b);
}

namespace {

/// The tiles that a scan or reduction by a graph takes.
std::vector<node_id> scanned_tiles(cpu_emitter& e) {
  std::vector<node_id> all;
  const argument* a = e.argument_at(1);
  if (a == nullptr) e.malformed("a scan needs values");
  const auto add = [&](const argument& x) {
    if (x.what != argument::kind::node || !e.is_tile(x.node)) e.malformed("a scan is of tiles");
    all.push_back(x.node);
  };
  if (a->what == argument::kind::tuple || a->what == argument::kind::list)
    for (const argument& x : e.source->items(*a)) add(x);
  else add(*a);
  return all;
}

bool is_tuple(const argument* a) { return a != nullptr && (a->what == argument::kind::tuple || a->what == argument::kind::list); }

std::int32_t graph_of(cpu_emitter& e) {
  const argument* a = e.argument_at(0);
  const device_ir::graph* g = a != nullptr && a->what == argument::kind::integer ? e.source->find_graph(a->integer) : nullptr;
  if (g == nullptr) e.malformed("expected the id of a combine graph");
  return static_cast<std::int32_t>(g - e.source->graphs.data());
}

/// Assigns to `totals` what the combine graph makes of them and `values`, in the innermost loop.
void combine_by_graph(cpu_emitter& e, std::int32_t graph, std::span<const codegen::variable> totals, std::span<const expression> values) {
  const device_ir::graph& g = e.source->graphs[static_cast<std::size_t>(graph)];
  if (g.parameters.count != 2 * totals.size()) e.malformed("a combine graph takes two values an operand");
  const node_id saved = e.current;
  const auto guard = e.into(e.innermost());
  // The graph may have been used before.
  for (std::uint32_t i = 0; i < g.nodes.count; ++i) e.set_value(static_cast<node_id>(g.nodes.first + i), codegen::no_expression);
  const auto parameter = [&](std::size_t i) { return static_cast<node_id>(g.parameters.first + i); };
  for (std::size_t i = 0; i < totals.size(); ++i) {
    e.set_value(parameter(i), e.cast(e.name(totals[i]), e.type_of(parameter(i))));
    e.set_value(parameter(totals.size() + i), e.cast(values[i], e.type_of(parameter(totals.size() + i))));
  }
  std::vector<expression> results;
  {
    const cpu_emitter::nest own(e, e.innermost());
    e.lower_graph(graph);
    const bool several = g.result.what == argument::kind::tuple || g.result.what == argument::kind::list;
    const std::size_t count = several ? e.source->items(g.result).size() : 1;
    if (count != totals.size()) e.malformed("a combine graph returns one value an operand");
    for (std::size_t i = 0; i < count; ++i) {
      const node_id r = e.graph_result_node(graph, i);
      expression value = codegen::no_expression;
      if (r == no_node) value = e.graph_result(graph, i);
      else value = e.is_tile(r) ? e.element(r, indices(e.shape_of(r).size(), e.zero())) : e.value_of(r);
      results.push_back(e.cast(value, e.at(totals[i]).type));
    }
  }
  // All at once: a later result may read an earlier total.
  for (std::size_t i = 0; i < totals.size(); ++i)
    if (totals.size() > 1 && !e.is_literal(results[i])) {
      const codegen::variable v = e.new_variable("next", e.at(totals[i]).type);
      e.assign(v, results[i]);
      results[i] = e.name(v);
    }
  for (std::size_t i = 0; i < totals.size(); ++i) e.assign(totals[i], results[i]);
  e.current = saved;
}

} // namespace

void associative_scan(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const std::vector<node_id> tiles = scanned_tiles(e);
  const std::vector<dimension> shape(e.shape_of(tiles[0]).begin(), e.shape_of(tiles[0]).end());
  const std::size_t axis = scanned_axis(e, e.argument_at(2), shape.size());
  const bool reverse = truth_of(e.argument_at(3));
  const std::int32_t graph = graph_of(e);
  std::vector<std::int32_t> results;
  for (const node_id t : tiles) results.push_back(e.make_buffer(n.name, shape, e.type_of(t)));
  indices at(shape.size(), e.zero());
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (d != axis) at[d] = e.push_loop(shape[d]);
  std::vector<codegen::variable> totals;
  {
    const auto guard = e.into(e.innermost());
    for (const node_id t : tiles) {
      totals.push_back(e.new_variable("total", e.type_of(t)));
      e.declare(totals.back(), "{}");
    }
  }
  const expression step = e.push_loop(shape[axis]);
  at[axis] = step;
  if (reverse)
    at[axis] = e.define_at(e.depth() - 1, "index",
                           e.mark_non_negative(e.binary(op::subtract, e.binary(op::subtract, e.lanes(shape[axis]), e.whole(1)), step)));
  std::vector<expression> values;
  for (const node_id t : tiles) values.push_back(e.element(t, at));
  {
    const auto guard = e.into(e.innermost());
    const codegen::statement s = e.if_then(e.binary(op::equal, step, e.zero()));
    {
      const auto first = e.into(e.inner(s));
      for (std::size_t i = 0; i < tiles.size(); ++i) e.at(e.assign(totals[i], values[i])).effect = false;
    }
    {
      const auto rest = e.into(e.orelse(s));
      const cpu_emitter::nest own(e, e.orelse(s));
      combine_by_graph(e, graph, totals, values);
    }
  }
  for (std::size_t i = 0; i < tiles.size(); ++i) e.write(results[i], at, e.name(totals[i]));
  while (e.depth() > 1) e.pop();
  for (const std::int32_t b : results) e.at_buffer(b).filled = true;
  if (is_tuple(e.argument_at(1))) e.keep_all_in(e.current, results);
  else e.keep_in(e.current, results[0]);
}

void reduce_by_graph(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const std::vector<node_id> tiles = scanned_tiles(e);
  const std::vector<dimension> shape(e.shape_of(tiles[0]).begin(), e.shape_of(tiles[0]).end());
  reduction_shape r;
  e.read_dims(r, e.argument_at(2), shape.size());
  r.keep = truth_of(e.argument_at(3));
  const std::int32_t graph = graph_of(e);
  const std::vector<dimension> kept = kept_shape(shape, r);
  std::vector<result_place> places;
  for (const node_id t : tiles) places.emplace_back(e, n.name, kept, e.type_of(t));
  indices at = open_kept(e, shape, r);
  std::vector<codegen::variable> totals;
  const codegen::variable any = e.new_variable("any", dtype::b8);
  {
    const auto guard = e.into(e.innermost());
    for (const node_id t : tiles) {
      totals.push_back(e.new_variable("total", e.type_of(t)));
      e.declare(totals.back(), "{}");
    }
    e.declare(any, {}, e.boolean(false));
  }
  const std::size_t base_depth = e.depth();
  for (const std::size_t d : r.dims) at[d] = e.push_loop(shape[d]);
  std::vector<expression> values;
  for (const node_id t : tiles) values.push_back(e.element(t, at));
  {
    const auto guard = e.into(e.innermost());
    const codegen::statement s = e.if_then(e.unary(op::logical_not, e.name(any)));
    {
      const auto first = e.into(e.inner(s));
      for (std::size_t i = 0; i < tiles.size(); ++i) e.assign(totals[i], values[i]);
      e.assign(any, e.boolean(true));
    }
    {
      const auto rest = e.into(e.orelse(s));
      const cpu_emitter::nest own(e, e.orelse(s));
      combine_by_graph(e, graph, totals, values);
    }
  }
  while (e.depth() > base_depth) e.pop();
  const indices place = kept_indices(at, r, e.zero());
  for (std::size_t i = 0; i < tiles.size(); ++i) places[i].set(place, e.name(totals[i]), n.name);
  std::vector<std::int32_t> results;
  for (result_place& p : places) results.push_back(p.close());
  if (is_tuple(e.argument_at(1))) e.keep_all_in(e.current, results);
  else e.keep_in(e.current, results[0]);
}

// -- sorting

namespace {

/// Sorts every row of a tile along an axis; `count` values stay. Gives values and positions.
void sort_rows(cpu_emitter& e, std::size_t axis, bool descending, std::optional<dimension> kept) {
  const operand_tile x = tile_of(e);
  const dtype type = e.type_of(x.n);
  const std::vector<dimension> row{x.shape[axis]};
  std::vector<dimension> result = x.shape;
  if (kept) result[axis] = *kept;
  const std::int32_t values = e.make_buffer("values", result, type);
  const std::int32_t positions = e.make_buffer("positions", result, dtype::i64);
  const std::int32_t row_values = e.make_buffer("row", row, type);
  const std::int32_t row_positions = e.make_buffer("order", row, dtype::i64);
  indices at(x.shape.size(), e.zero());
  for (std::size_t d = 0; d < x.shape.size(); ++d)
    if (d != axis) at[d] = e.push_loop(x.shape[d]);
  const std::size_t base = e.depth();
  at[axis] = e.push_loop(x.shape[axis]);
  const indices own{at[axis]};
  const auto keep = [&](std::int32_t b, index_span i, expression value) {
    const auto guard = e.into(e.innermost());
    e.store(e.place(b, i), value);
  };
  keep(row_values, own, e.element(x.n, at));
  keep(row_positions, own, own[0]);
  while (e.depth() > base) e.pop();
  {
    const auto guard = e.into(e.innermost());
    const auto address = [&](std::int32_t b) {
      const buffer& from = e.at_buffer(b);
      return from.scalar ? e.call("&", {e.name(from.v)}) : e.name(from.v);
    };
    e.evaluate(e.call("math::sort", {e.lanes(row[0]), address(row_values), address(row_positions), e.boolean(descending)}));
  }
  at[axis] = e.push_loop(result[axis]);
  const indices sorted{at[axis]};
  keep(values, at, e.place(row_values, sorted));
  keep(positions, at, e.place(row_positions, sorted));
  while (e.depth() > 1) e.pop();
  e.at_buffer(values).filled = e.at_buffer(positions).filled = true;
  const std::int32_t both[] = {values, positions};
  e.keep_all_in(e.current, both);
}

} // namespace

void sort(emitter& base, const node& n) {
  cpu_emitter& e = self(base);
  const std::size_t rank = e.operand_shape(0).size();
  const bool stable = n.target.find(".stable") != std::string_view::npos; // its dimension comes by keyword
  const argument* dim = e.keyword("dim");
  if (dim == nullptr && !stable) dim = e.argument_at(1);
  const argument* descending = e.keyword("descending");
  if (descending == nullptr && !stable) descending = e.argument_at(2);
  sort_rows(e, dim == nullptr ? rank - 1 : scanned_axis(e, dim, rank), truth_of(descending), std::nullopt);
}

void topk(emitter& base, const node&) {
  cpu_emitter& e = self(base);
  const std::size_t rank = e.operand_shape(0).size();
  const argument* count = e.argument_at(1);
  const argument* dim = e.argument_at(2);
  const argument* largest = e.argument_at(3);
  if (count == nullptr || count->what != argument::kind::integer) e.unsupported("a number of values that is no constant");
  dimension kept;
  kept.size = count->integer;
  const bool descending = largest == nullptr || largest->what == argument::kind::none || truth_of(largest);
  sort_rows(e, dim == nullptr ? rank - 1 : scanned_axis(e, dim, rank), descending, kept);
}

} // namespace muster::cpu
