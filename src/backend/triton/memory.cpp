module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <fmt/format.h>
module muster.backend.triton;

namespace muster::triton {

using codegen::dimension;
using codegen::op;
using device_ir::argument;
using device_ir::dtype;
using device_ir::no_node;
using device_ir::node_id;

namespace {

using index_part = codegen::access_index;

/// Works out addresses and masks of one access.
class access_builder {
public:
  access_builder(triton_emitter& e, std::int32_t tensor, std::span<const argument> indices, std::span<const dimension> shape)
      : e_(e), tensor_(tensor), declaration_(e.source->tensors[static_cast<std::size_t>(tensor)]), indices_(indices), shape_(shape) {}

  /// Where a tensor descriptor serves: the box's shape and offsets, by dimension of the descriptor, which has the tensor's
  /// contiguous dimension last.
  struct box {
    std::vector<std::int64_t> order; ///< the tensor's dimension, by dimension of the descriptor
    std::vector<std::int64_t> shape;
    std::vector<expression> offsets;
    bool drops_dimensions = false;
  };

  /// The access as a box, or nothing where the hardware could not: it wants 16-byte units, bounds that are the tensor's own,
  /// strides that are known. Nor where a tile has fewer lanes than 16 bytes hold: a box of one row costs several times what
  /// pointers do (measured on an H200: 3 to 4 times in softmax and layer_norm).
  std::optional<box> as_box() {
    read_once();
    const dtype type = declaration_.element;
    const std::size_t rank = parts_.size();
    if (rank < 2 || rank > 5 || rank != e_.source->sizes(declaration_).size() || type == dtype::b8) return std::nullopt;
    const std::int64_t bytes = device_ir::size_of(type);
    box b;
    std::optional<std::size_t> contiguous;
    std::vector<std::int64_t> lanes_of(rank);
    for (std::size_t d = 0; d < rank; ++d) {
      const std::optional<std::int64_t> step = e_.integer_literal(e_.symbolic(e_.source->strides(declaration_)[d]));
      const std::int64_t size = constant_size(d);
      if (!step || size < 1) return std::nullopt;
      if (*step == 1 && (size > 1 || d + 1 == rank)) {
        if (contiguous) return std::nullopt;
        contiguous = d;
      } else if (*step < 1 || *step * bytes % 16 != 0) {
        return std::nullopt;
      }
      const std::optional<std::int64_t> lanes = box_lanes(parts_[d], size);
      if (!lanes || *lanes > size || (parts_[d].what != index_part::kind::scalar && *lanes * bytes < 16)) return std::nullopt;
      lanes_of[d] = *lanes;
      b.drops_dimensions = b.drops_dimensions || parts_[d].what == index_part::kind::scalar;
    }
    if (!contiguous || lanes_of[*contiguous] * bytes < 16) return std::nullopt;
    if (b.drops_dimensions && *contiguous + 1 != rank) return std::nullopt;
    for (std::size_t d = 0; d < rank; ++d)
      if (d != *contiguous) b.order.push_back(static_cast<std::int64_t>(d));
    b.order.push_back(static_cast<std::int64_t>(*contiguous));
    for (const std::int64_t d : b.order) {
      b.shape.push_back(lanes_of[static_cast<std::size_t>(d)]);
      b.offsets.push_back(e_.cast(box_offset(parts_[static_cast<std::size_t>(d)]), dtype::i32));
    }
    return b;
  }

  [[nodiscard]] std::span<const index_part> parts() const noexcept { return parts_; }

  access build(expression extra_mask) {
    read_once();
    access a;
    a.rank = rank_;
    // One sum of offsets, what all lanes share first: it is added to the narrowest tile. Moving the pointer by what is shared
    // would cost registers, since pointers are wide.
    expression offset = codegen::no_expression;
    const auto add = [&](expression term) { offset = offset == codegen::no_expression ? term : e_.binary(op::add, offset, term); };
    const auto is_shared = [&](std::size_t i) {
      return parts_[i].what == index_part::kind::scalar || (is_single_lane(parts_[i]) && spans_tile(i));
    };
    bool has_lanes = false;
    for (const bool shared : {true, false}) {
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (is_shared(i) != shared) continue;
        const expression term = term_of(i);
        if (term == codegen::no_expression) continue;
        add(term);
        has_lanes = has_lanes || !shared;
      }
    }
    for (const index_part& p : parts_) add_mask(p);
    if (extra_mask != codegen::no_expression) and_mask(extra_mask);
    a.mask = mask_;
    a.repeats = repeats_;
    // Lanes that all have one element still need addresses of their own, where some of them are masked or where no other index
    // has lanes: a scalar address takes no tile.
    const bool is_scalar = !repeats_ && rank_ > 0 && !has_lanes;
    if (((repeats_ && mask_ != codegen::no_expression) || is_scalar) && shape_.size() == rank_) {
      const expression zeros = e_.call("tl.zeros", {e_.shape_list(shape_), e_.dtype_name(dtype::i32)}, dtype::i32);
      add(zeros);
    }
    a.pointer = e_.tensor_value(tensor_);
    if (offset != codegen::no_expression && e_.integer_literal(offset) != std::optional<std::int64_t>(0))
      a.pointer = e_.untyped(e_.binary(op::add, a.pointer, offset));
    return a;
  }

private:
  triton_emitter& e_;
  std::int32_t tensor_;
  const device_ir::host_tensor& declaration_;
  std::span<const argument> indices_;
  std::span<const dimension> shape_; ///< of the value: which block runs along which dimension
  std::vector<index_part> parts_;
  std::size_t rank_ = 0;
  expression mask_ = codegen::no_expression;
  bool repeats_ = false;  ///< a dimension of stride 0, or of one element, has lanes
  std::vector<std::int32_t> masked_;

  expression stride(std::size_t d) { return e_.stride_of(tensor_, d); }

  bool wide() const { return e_.plan->wide[static_cast<std::size_t>(tensor_)]; }

  std::int64_t constant_size(std::size_t d) const { return e_.constant_size(tensor_, d); }

  void read_once() {
    if (!parts_.empty()) return;
    codegen::access_indices read = e_.read_indices(tensor_, indices_, shape_.size());
    parts_ = std::move(read.all);
    rank_ = read.rank;
    for (index_part& p : parts_) {
      if (p.what == index_part::kind::tensor) p.value = e_.as_tile(p.tensor, e_.value_of(p.tensor));
      // A whole dimension runs along the block that the value has there, or along that of the chunks in whose loop it stands.
      if (p.what != index_part::kind::whole) continue;
      if (shape_.size() == rank_) p.block = shape_[p.first_dimension].block;
      if (p.block < 0 && p.start == 0 && p.step == 1) p.block = open_chunks_of(p);
    }
  }

  /// The block of a rolled reduction over a dimension of this extent whose loop is open, or -1.
  std::int32_t open_chunks_of(const index_part& p) const {
    const symbolic::expression extent = e_.source->sizes(declaration_)[p.storage];
    for (const codegen::block_plan& b : e_.plan->blocks) {
      const bool same = b.extent == extent || (b.constant_extent && *b.constant_extent == constant_size(p.storage));
      if (b.role == codegen::block_role::rolled && same && e_.find_tile(b.id) != nullptr) return b.id;
    }
    return -1;
  }

  /// The lanes of a box along one dimension, or nothing where the index is no run of positions that ends with the tensor.
  std::optional<std::int64_t> box_lanes(const index_part& p, std::int64_t size) {
    if (p.what == index_part::kind::scalar) return 1;
    const bool plain =
        p.what == index_part::kind::block || (p.what == index_part::kind::whole && p.start == 0 && p.step == 1 && p.size == size);
    const codegen::block_plan* b = plain ? e_.plan->find_block(p.block) : nullptr;
    if (b == nullptr || b->jagged || b->block_size < 1 || power_of_two_lanes(b->block_size) != b->block_size) return std::nullopt;
    if (b->constant_extent != std::optional(size)) return std::nullopt;
    return b->block_size;
  }

  expression box_offset(const index_part& p) {
    if (p.what == index_part::kind::scalar) return p.value;
    if (e_.find_tile(p.block) == nullptr) e_.open_whole(p.block);
    return e_.tile_offset(p.block);
  }

  /// Index `i` times its stride, shaped to the access.
  expression term_of(std::size_t i) {
    const index_part& p = parts_[i];
    if (p.what == index_part::kind::none) return codegen::no_expression;
    const expression by = stride(p.storage);
    expression value = p.value;
    if (e_.integer_literal(by) == std::optional<std::int64_t>(0)) {
      const bool has_lanes =
          p.what != index_part::kind::scalar && !is_single_lane(p) && !(p.what == index_part::kind::whole && p.size == 1);
      repeats_ = repeats_ || has_lanes;
      return codegen::no_expression;
    }
    if (is_single_lane(p) && spans_tile(i)) return single_lane(p, by);
    if (p.what == index_part::kind::block || (p.what == index_part::kind::whole && p.block >= 0)) value = e_.tile_indices(p.block);
    else if (p.what == index_part::kind::whole)
      value = e_.call("tl.arange", {e_.integer(0), e_.integer(power_of_two_lanes(p.size))}, dtype::i32);
    if (wide() && e_.type_of(value) != dtype::i64) value = e_.cast(value, dtype::i64);
    if (p.what == index_part::kind::tensor) value = shaped(value, p.first_dimension, e_.shape_of(p.tensor).size());
    else if (p.what != index_part::kind::scalar) value = e_.along(value, p.first_dimension, rank_);
    if (p.what != index_part::kind::whole) return e_.binary(op::multiply, value, by);
    const dtype index = wide() ? dtype::i64 : e_.plan->index_dtype;
    const expression steps = e_.binary(op::multiply, value, e_.binary(op::multiply, by, e_.integer(p.step, index)));
    return e_.binary(op::add, steps, e_.binary(op::multiply, by, e_.integer(p.start, index)));
  }

  /// A tile of one lane is at its offset: a scalar, where another index gives the access its shape.
  bool is_single_lane(const index_part& p) const {
    return p.what == index_part::kind::block && e_.plan->blocks[static_cast<std::size_t>(p.block)].block_size == 1;
  }

  /// Whether an index other than `i` is a tile that is shaped to the whole access.
  bool spans_tile(std::size_t i) {
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      const index_part& p = parts_[k];
      const bool tile = p.what != index_part::kind::scalar && p.what != index_part::kind::none;
      if (k != i && tile && !is_single_lane(p) && e_.integer_literal(stride(p.storage)) != std::optional<std::int64_t>(0)) return true;
    }
    return false;
  }

  expression single_lane(const index_part& p, expression by) {
    expression offset = e_.tile_offset(p.block);
    if (wide() && e_.type_of(offset) != dtype::i64) offset = e_.call("tl.cast", {offset, e_.dtype_name(dtype::i64)}, dtype::i64);
    return e_.binary(op::multiply, offset, by);
  }

  static std::int64_t power_of_two_lanes(std::int64_t n) {
    std::int64_t lanes = 1;
    while (lanes < n) lanes *= 2;
    return lanes;
  }

  /// A tile of `own` dimensions put at dimension `first` of the access.
  expression shaped(expression value, std::size_t first, std::size_t own) {
    if (own == rank_) return value;
    std::vector<expression> items;
    for (std::size_t d = 0; d < rank_; ++d) items.push_back(d >= first && d < first + own ? e_.text(":") : e_.none());
    return e_.subscript(value, items);
  }

  void and_mask(expression m) { mask_ = mask_ == codegen::no_expression ? m : e_.binary(op::bit_and, mask_, m); }

  void add_mask(const index_part& p) {
    if (p.what == index_part::kind::whole && p.block < 0 && power_of_two_lanes(p.size) != p.size) {
      const expression lanes = e_.call("tl.arange", {e_.integer(0), e_.integer(power_of_two_lanes(p.size))}, dtype::i32);
      return and_mask(e_.along(e_.binary(op::less, lanes, e_.integer(p.size)), p.first_dimension, rank_));
    }
    if (p.what == index_part::kind::block || p.what == index_part::kind::whole) return mask_block(p.block, p.first_dimension);
    if (p.what != index_part::kind::tensor) return;
    const std::span<const dimension> shape = e_.shape_of(p.tensor);
    for (std::size_t d = 0; d < shape.size(); ++d) mask_block(shape[d].block, p.first_dimension + d);
  }

  void mask_block(std::int32_t block, std::size_t at) {
    if (block < 0 || std::find(masked_.begin(), masked_.end(), block) != masked_.end()) return;
    const codegen::block_plan& b = e_.plan->blocks[static_cast<std::size_t>(block)];
    if (!b.mask) return;
    masked_.push_back(block);
    if (b.jagged && shape_.size() == rank_) {
      // The rows' ends lie along other dimensions of the value: the whole shape is needed.
      std::vector<dimension> only(shape_.begin(), shape_.end());
      for (dimension& d : only)
        if (d.block != block && std::find(b.jagged_parents.begin(), b.jagged_parents.end(), d.block) == b.jagged_parents.end())
          d.block = -1;
      return and_mask(e_.jagged_mask(block, only));
    }
    if (e_.find_tile(block) == nullptr) e_.open_whole(block);
    if (const expression m = e_.tile(block).mask; m != codegen::no_expression) and_mask(e_.along(m, at, rank_));
  }
};

expression extra_mask(emitter& e, std::size_t position) {
  const argument* a = e.argument_at(position);
  if (a == nullptr || a->what == argument::kind::none) return codegen::no_expression;
  return e.literal(*a);
}

/// `load(tile, [:, None])` of a value that is no host tensor only inserts dimensions.
void load_from_tile(triton_emitter& e) {
  std::vector<expression> items;
  for (const argument& a : e.index_list(1)) {
    if (a.what == argument::kind::none) items.push_back(e.none());
    else if (a.what == argument::kind::slice) items.push_back(e.text(":"));
    else e.unsupported("a load from a tile that picks elements");
  }
  const expression x = e.operand(0);
  e.set_value(e.current, e.is_literal(x) ? x : e.subscript(x, items));
}

std::string_view eviction_policy(device_ir::eviction policy) {
  switch (policy) {
  case device_ir::eviction::none: return {};
  case device_ir::eviction::first: return "evict_first";
  case device_ir::eviction::last: return "evict_last";
  }
  return {};
}

std::span<const dimension> value_shape(emitter& e, std::size_t operand) {
  const node_id n = e.operand_node(operand);
  return n == no_node ? std::span<const dimension>() : e.shape_of(n);
}

const codegen::access_plan& plan_of_access(const emitter& e) {
  return e.plan->accesses[static_cast<std::size_t>(e.plan->access_of_node[device_ir::index(e.current)])];
}

/// Whether the config asks for a descriptor here, and nothing else in the kernel touches the tensor in the other direction:
/// descriptors and pointers do not see each other's writes.
bool wants_descriptor(const emitter& e, std::int32_t tensor, bool stores) {
  if (plan_of_access(e).indexing != device_ir::indexing::tensor_descriptor) return false;
  for (const codegen::access_plan& a : e.plan->accesses) {
    const auto arguments = e.source->arguments_of(e.source->at(a.node));
    const bool same = !arguments.empty() && arguments[0].what == argument::kind::node && e.tensor_of(arguments[0].node) == tensor;
    if (same && e.plan->at(a.node).live && (e.plan->at(a.node).op != operation::load) != stores) return false;
  }
  return true;
}

bool has_argument(const emitter& e, std::size_t i) {
  const argument* a = e.argument_at(i);
  return a != nullptr && a->what != argument::kind::none;
}

bool in_order(std::span<const std::int64_t> order) { return std::is_sorted(order.begin(), order.end()); }

bool load_box(triton_emitter& e, access_builder& builder, std::int32_t tensor) {
  if (!wants_descriptor(e, tensor, false) || has_argument(e, 2)) return false;
  const auto box = builder.as_box();
  if (!box) return false;
  const dtype type = e.source->tensors[static_cast<std::size_t>(tensor)].element;
  expression value = e.typed(e.method(e.describe(tensor, box->order, box->shape), "load", {e.list(box->offsets)}), type);
  if (!in_order(box->order)) {
    std::vector<std::int64_t> back(box->order.size());
    for (std::size_t i = 0; i < back.size(); ++i) back[static_cast<std::size_t>(box->order[i])] = static_cast<std::int64_t>(i);
    value = e.permuted(value, back);
  }
  if (box->drops_dimensions) value = e.call("tl.reshape", {value, e.shape_list(e.shape_of(e.current))}, type);
  e.result(value);
  return true;
}

bool store_box(triton_emitter& e, access_builder& builder, std::int32_t tensor) {
  if (!wants_descriptor(e, tensor, true) || has_argument(e, 3)) return false;
  const auto box = builder.as_box();
  const node_id value_node = e.operand_node(2);
  if (!box || value_node == no_node) return false;
  // Boxes do not broadcast: the value has all their lanes.
  std::int64_t lanes = 1;
  for (const dimension& d : e.shape_of(value_node)) lanes *= d.size;
  std::int64_t wanted = 1;
  for (const std::int64_t n : box->shape) wanted *= n;
  if (lanes != wanted) return false;
  const dtype type = e.source->tensors[static_cast<std::size_t>(tensor)].element;
  expression value = e.cast(e.tile_operand(2), type);
  if (e.shape_of(value_node).size() != box->shape.size()) {
    std::vector<expression> sizes;
    for (std::size_t d = 0; d < box->order.size(); ++d)
      for (std::size_t i = 0; i < box->order.size(); ++i)
        if (box->order[i] == static_cast<std::int64_t>(d)) sizes.push_back(e.integer(box->shape[i]));
    value = e.call("tl.reshape", {value, e.list(sizes)}, type);
  }
  if (!in_order(box->order)) value = e.permuted(value, box->order);
  e.evaluate(e.method(e.describe(tensor, box->order, box->shape), "store", {e.list(box->offsets), value}));
  return true;
}

} // namespace

expression triton_emitter::describe(std::int32_t tensor, std::span<const std::int64_t> order, std::span<const std::int64_t> block_shape) {
  for (const descriptor& d : descriptors)
    if (d.tensor == tensor && std::ranges::equal(d.order, order) && std::ranges::equal(d.block_shape, block_shape)) return name(d.name);
  const std::string_view of = source->tensors[static_cast<std::size_t>(tensor)].name;
  const codegen::variable v = new_parameter(keep_joined(of, std::string_view("_tiles")));
  descriptors.push_back(
      {.tensor = tensor, .order = {order.begin(), order.end()}, .block_shape = {block_shape.begin(), block_shape.end()}, .name = v});
  return name(v);
}

void load(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const std::int32_t tensor = e.tensor_of(e.operand_node(0));
  if (tensor < 0) return load_from_tile(e);
  const std::int32_t loaded[] = {tensor};
  e.order_loads(loaded);
  access_builder builder(e, tensor, e.index_list(1), e.shape_of(e.current));
  if (load_box(e, builder, tensor)) return;
  const access a = builder.build(extra_mask(e, 2));
  std::vector<expression> arguments{a.pointer};
  const dtype type = e.source->tensors[static_cast<std::size_t>(tensor)].element;
  if (a.mask != codegen::no_expression) {
    arguments.push_back(a.mask);
    arguments.push_back(e.keyword_argument("other", e.cast(e.integer(0), device_ir::is_float(type) ? type : dtype::i32)));
  }
  if (const std::string_view policy = eviction_policy(plan_of_access(e).eviction); !policy.empty())
    arguments.push_back(e.keyword_argument("eviction_policy", e.string(policy)));
  expression value = e.typed(e.call("tl.load", arguments), type);
  if (a.repeats && a.mask == codegen::no_expression) value = e.call("tl.broadcast_to", {value, e.shape_list(e.shape_of(e.current))}, type);
  e.result(value);
}

void store(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const std::int32_t tensor = e.tensor_of(e.operand_node(0));
  if (tensor < 0) e.malformed("store needs a host tensor");
  e.note_store(tensor);
  access_builder builder(e, tensor, e.index_list(1), value_shape(e, 2));
  if (store_box(e, builder, tensor)) return;
  const access a = builder.build(extra_mask(e, 3));
  e.refuse_overlap(tensor, builder.parts());
  const dtype type = e.source->tensors[static_cast<std::size_t>(tensor)].element;
  expression value = e.cast(e.operand(2), type);
  // A bare number of Python's is of single precision.
  if (type == dtype::f64 && e.is_literal(value)) value = e.call("tl.full", {e.list({}), value, e.dtype_name(type)}, type);
  std::vector<expression> arguments{a.pointer, value};
  if (a.mask != codegen::no_expression) arguments.push_back(a.mask);
  e.evaluate(e.call("tl.store", arguments));
}

namespace {

expression atomic_call(triton_emitter& e, std::string_view callee, std::size_t first_value, std::size_t values) {
  const std::int32_t tensor = e.tensor_of(e.operand_node(0));
  if (tensor < 0) e.malformed("an atomic operation needs a host tensor");
  e.note_store(tensor);
  const dtype type = e.source->tensors[static_cast<std::size_t>(tensor)].element;
  const access a = access_builder(e, tensor, e.index_list(1), value_shape(e, first_value)).build(codegen::no_expression);
  std::vector<expression> arguments{a.pointer};
  for (std::size_t i = 0; i < values; ++i) arguments.push_back(e.cast(e.tile_operand(first_value + i), type));
  if (a.mask != codegen::no_expression) {
    if (values > 1) e.unsupported("a compare-and-swap of which some lanes are masked");
    arguments.push_back(e.keyword_argument("mask", a.mask));
  }
  const argument* order = e.keyword("sem");
  if (order == nullptr) order = e.argument_at(first_value + values);
  if (order != nullptr && order->what == argument::kind::string) arguments.push_back(e.keyword_argument("sem", e.string(order->text)));
  return e.typed(e.call(callee, arguments), type);
}

/// What Triton can do atomically on an element type.
void check_atomic(triton_emitter& e, operation o, dtype type) {
  const bool real = device_ir::is_float(type);
  const int bytes = device_ir::size_of(type);
  if (type == dtype::b8 || (bytes < 4 && !(o == operation::atomic_add && (type == dtype::f16 || type == dtype::bf16))))
    e.unsupported(fmt::format("Triton has no such atomic operation on {}", device_ir::name(type)));
  const bool bitwise = o == operation::atomic_and || o == operation::atomic_or || o == operation::atomic_xor;
  if (real && bitwise) e.unsupported("bitwise operations are of integers");
}

} // namespace

void atomic(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const operation o = e.plan->at(e.current).op;
  const std::int32_t tensor = e.tensor_of(e.operand_node(0));
  if (tensor >= 0) check_atomic(e, o, e.source->tensors[static_cast<std::size_t>(tensor)].element);
  const expression previous = atomic_call(e, e.keep_joined(std::string_view("tl."), information(o).name), 2, 1);
  if (e.plan->at(e.current).uses == 0) e.evaluate(previous);
  else e.effect_result(previous);
}

void atomic_cas(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const expression previous = atomic_call(e, "tl.atomic_cas", 2, 2);
  if (e.plan->at(e.current).uses == 0) e.evaluate(previous);
  else e.effect_result(previous);
}

void mask_to(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const node_id x = e.operand_node(0);
  const expression value = e.tile_operand(0);
  const expression mask = x == no_node ? codegen::no_expression : e.mask_of(e.shape_of(x));
  if (mask == codegen::no_expression) return e.set_value(e.current, value);
  const dtype type = e.type_of(x);
  const argument* other = e.argument_at(1);
  if (other == nullptr) e.malformed("_mask_to needs a value");
  e.result(e.call("tl.where", {mask, value, e.literal(*other, type)}, type));
}

/// Sixteen 4-bit floats, the lowest bits first, loaded as one 64-bit word: `load(storage, word's position, mask)`.
void load_float4(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const std::int32_t tensor = e.tensor_of(e.operand_node(0));
  if (tensor < 0) e.malformed("a load of packed floats needs a host tensor");
  const expression words = e.method(e.tensor_value(tensor), "to", {e.call("tl.pointer_type", {e.dtype_name(dtype::i64)})});
  std::vector<expression> arguments{e.binary(op::add, words, e.tile_operand(1))};
  if (const expression mask = extra_mask(e, 2); mask != codegen::no_expression) {
    arguments.push_back(mask);
    arguments.push_back(e.keyword_argument("other", e.integer(0)));
  }
  const expression packed = e.define("packed", e.typed(e.call("tl.load", arguments), dtype::i64));
  std::vector<expression> all;
  for (std::int64_t i = 0; i < 16; ++i) all.push_back(e.call("_float4", {packed, e.integer(i)}, dtype::f16));
  e.results(all);
}

} // namespace muster::triton
