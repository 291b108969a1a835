module;
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module muster.device_ir;

#include "storage.hpp"

namespace muster::device_ir {

namespace {

bool equal_reals(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Compares what two documents say. Their expressions live in two pools and their arguments at other indices, so
/// everything is compared by structure; nodes by their position.
class comparison {
public:
  comparison(const document& a, const document& b) : a_(a), b_(b) {}

  [[nodiscard]] bool equal() const {
    return a_.kernel == b_.kernel && equal_settings() && equal_configs(a_.config, b_.config) && each(a_.tensors, b_.tensors) &&
           each(a_.declarations, b_.declarations) && each(a_.blocks, b_.blocks) && each(a_.graphs, b_.graphs) && each(a_.nodes, b_.nodes);
  }

private:
  template <class As, class Bs> bool each(const As& as, const Bs& bs) const {
    return std::ranges::equal(as, bs, [this](const auto& a, const auto& b) { return this->same(a, b); });
  }

  [[nodiscard]] bool equal_settings() const {
    const settings& a = a_.settings;
    const settings& b = b_.settings;
    return a.static_shapes == b.static_shapes && a.index_dtype == b.index_dtype && a.fast_math == b.fast_math &&
           a.dot_precision == b.dot_precision;
  }

  static bool equal_configs(const config& a, const config& b) {
    return a.block_sizes == b.block_sizes && a.loop_orders == b.loop_orders && a.l2_groupings == b.l2_groupings &&
           a.flatten_loops == b.flatten_loops && a.reduction_loops == b.reduction_loops && a.pid_type == b.pid_type &&
           a.num_sm_multiplier == b.num_sm_multiplier && a.indexing == b.indexing && a.atomic_indexing == b.atomic_indexing &&
           a.load_eviction_policies == b.load_eviction_policies && a.range_unroll_factors == b.range_unroll_factors &&
           a.range_num_stages == b.range_num_stages && a.range_multi_buffers == b.range_multi_buffers &&
           a.range_flattens == b.range_flattens && a.range_warp_specializes == b.range_warp_specializes &&
           a.static_ranges == b.static_ranges && a.num_warps == b.num_warps && a.num_stages == b.num_stages && a.num_ctas == b.num_ctas &&
           a.occupancy == b.occupancy && a.maxnreg == b.maxnreg && a.others == b.others;
  }

  [[nodiscard]] bool same(expression a, expression b) const {
    if (a == no_expression || b == no_expression) return a == b;
    const symbolic::kind k = a_.symbols.kind_of(a);
    if (k != b_.symbols.kind_of(b)) return false;
    switch (k) {
    case symbolic::kind::integer:
    case symbolic::kind::boolean: return a_.symbols.integer_value(a) == b_.symbols.integer_value(b);
    case symbolic::kind::real: return equal_reals(a_.symbols.real_value(a), b_.symbols.real_value(b));
    case symbolic::kind::symbol: return same(a_.symbols.symbol_of(a), b_.symbols.symbol_of(b));
    default: return each(a_.symbols.operands(a), b_.symbols.operands(b));
    }
  }

  [[nodiscard]] bool same(symbol a, symbol b) const { return a_.symbols.name(a) == b_.symbols.name(b); }

  [[nodiscard]] bool same(const host_tensor& a, const host_tensor& b) const {
    return a.name == b.name && a.element == b.element && each(a_.sizes(a), b_.sizes(b)) && each(a_.strides(a), b_.strides(b));
  }

  [[nodiscard]] bool same(const symbol_declaration& a, const symbol_declaration& b) const {
    return same(a.id, b.id) && a.is_float == b.is_float && a.from == b.from && a.block == b.block &&
           a.host_expression == b.host_expression && same(a.hint, b.hint);
  }

  [[nodiscard]] bool same(const std::optional<symbolic::number>& a, const std::optional<symbolic::number>& b) const {
    if (!a || !b) return a.has_value() == b.has_value();
    return a->is_integer == b->is_integer && (a->is_integer ? a->integer == b->integer : equal_reals(a->real, b->real));
  }

  [[nodiscard]] bool same(const block& a, const block& b) const {
    return a.id == b.id && same(a.variable, b.variable) && same(a.size, b.size) && a.is_reduction == b.is_reduction &&
           same(a.block_size, b.block_size) && a.jagged_parents == b.jagged_parents;
  }

  [[nodiscard]] bool same(const graph& a, const graph& b) const {
    return a.name == b.name && a.id == b.id && a.what == b.what && a.blocks == b.blocks && a.phase == b.phase &&
           a.parameters == b.parameters && a.nodes == b.nodes && same(a.result, b.result);
  }

  [[nodiscard]] bool same(const node& a, const node& b) const {
    return a.name == b.name && a.target == b.target && a.is_parameter == b.is_parameter && same(a.type, b.type) &&
           same_source(a.source, b.source) && each(a_.arguments_of(a), b_.arguments_of(b)) && each(a_.keywords_of(a), b_.keywords_of(b));
  }

  [[nodiscard]] bool same(const type& a, const type& b) const {
    if (a.what != b.what) return false;
    if (a.what == type::kind::symbolic) return same(a.value, b.value);
    return a.what == type::kind::none || (a.element == b.element && each(a_.sizes(a), b_.sizes(b)));
  }

  [[nodiscard]] bool same_source(std::uint32_t a, std::uint32_t b) const {
    if (a == 0 || b == 0) return a == b;
    const source& x = a_.sources[a - 1];
    const source& y = b_.sources[b - 1];
    return x.file == y.file && x.line == y.line && x.code == y.code;
  }

  [[nodiscard]] bool same(const keyword& a, const keyword& b) const { return a.name == b.name && same(a.value, b.value); }

  [[nodiscard]] bool same(const argument& a, const argument& b) const {
    if (a.what != b.what) return false;
    switch (a.what) {
    case argument::kind::none: return true;
    case argument::kind::boolean: return a.boolean == b.boolean;
    case argument::kind::integer: return a.integer == b.integer;
    case argument::kind::real: return equal_reals(a.real, b.real);
    case argument::kind::string:
    case argument::kind::function: return a.text == b.text;
    case argument::kind::node: return a.node == b.node;
    case argument::kind::list:
    case argument::kind::tuple:
    case argument::kind::slice: return each(a_.items(a), b_.items(b));
    case argument::kind::dtype: return a.element == b.element;
    case argument::kind::layout: return a.memory_layout == b.memory_layout;
    case argument::kind::device: return a.text == b.text && a.integer == b.integer;
    }
    return false;
  }

  const document& a_;
  const document& b_;
};

} // namespace

bool equal(const document& a, const document& b) { return comparison(a, b).equal(); }

} // namespace muster::device_ir
