module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
module muster.backend.cpu;

namespace muster::cpu {

using codegen::block_role;
using device_ir::index;

/// An element is known by its node, by where the tiles of the grid and of the loops around the node begin, and by its position
/// along each dimension; inside a while loop by how often a condition or body began. A rolled reduction's tile is no part of it:
/// its elements have their positions along the whole dimension.
void cpu_emitter::find_contexts() {
  contexts_.assign(source->graphs.size(), {});
  const auto enter = [&](std::int32_t graph, std::int32_t parent, std::span<const std::int32_t> blocks, bool stepped) {
    if (graph < 0) return;
    context& c = contexts_[static_cast<std::size_t>(graph)];
    if (parent >= 0) c = contexts_[static_cast<std::size_t>(parent)];
    c.helper = false;
    c.stepped = c.stepped || stepped;
    c.blocks.insert(c.blocks.end(), blocks.begin(), blocks.end());
    std::ranges::sort(c.blocks);
  };
  for (const codegen::root_plan& r : plan->roots) enter(r.graph, -1, r.blocks, false);
  // Graphs nest in no particular order of the document: each pass reaches one level more.
  std::vector<bool> known(source->graphs.size());
  for (const codegen::root_plan& r : plan->roots) known[static_cast<std::size_t>(r.graph)] = true;
  for (bool changed = true; changed;) {
    changed = false;
    const auto reach = [&](std::int32_t graph, node_id owner, std::span<const std::int32_t> blocks, bool stepped) {
      const std::int32_t parent = plan->at(owner).graph;
      if (graph < 0 || known[static_cast<std::size_t>(graph)] || !known[static_cast<std::size_t>(parent)]) return;
      enter(graph, parent, blocks, stepped);
      known[static_cast<std::size_t>(graph)] = changed = true;
    };
    for (const codegen::loop_plan& l : plan->loops) {
      reach(l.body, l.node, l.blocks, l.condition >= 0);
      reach(l.condition, l.node, {}, true);
    }
    for (const codegen::branch_plan& b : plan->branches) {
      reach(b.then_graph, b.node, {}, false);
      reach(b.else_graph, b.node, {}, false);
    }
  }
}

void cpu_emitter::record(node_id n, index_span at_elements, expression value) {
  if (!recording || source->at(n).type.what != device_ir::type::kind::tensor || plan->at(n).is_host_tensor) return;
  const std::int32_t graph = plan->at(n).graph;
  if (graph < 0 || contexts_[static_cast<std::size_t>(graph)].helper) return;
  const context& c = contexts_[static_cast<std::size_t>(graph)];
  std::vector<expression> arguments{whole(static_cast<std::int64_t>(index(n))), boolean(c.stepped), value};
  for (const std::int32_t b : c.blocks)
    if (plan->blocks[static_cast<std::size_t>(b)].role != block_role::rolled) arguments.push_back(lane_offset(b));
  const std::span<const dimension> shape = shape_of(n);
  for (std::size_t d = 0; d < at_elements.size(); ++d) {
    const bool placed = d < shape.size() && std::ranges::binary_search(c.blocks, shape[d].block);
    arguments.push_back(placed ? binary(codegen::op::add, lane_offset(shape[d].block), at_elements[d]) : at_elements[d]);
  }
  evaluate(call("record::element", arguments));
}

/// What is kept in a variable or buffer, where it has just been put there.
void cpu_emitter::record_lowered(node_id n) {
  if (!recording) return;
  const std::vector<dimension> shape(shape_of(n).begin(), shape_of(n).end());
  if (shape.empty()) {
    if (has_value(n)) record(n, {}, emitter::value_of(n));
    return;
  }
  const std::int32_t b = buffer_of_[index(n)];
  if (b < 0 || !at_buffer(b).filled) return;
  const nest own(*this);
  indices at;
  for (const dimension& d : shape) at.push_back(push_loop(d));
  {
    const auto guard = into(levels_.back().inside);
    record(n, at, read(b, at, type_of(n)));
  }
  while (depth() > 1) pop();
}

void cpu_emitter::record_program(std::int32_t graph) {
  if (!recording) return;
  std::vector<expression> arguments{whole(graph)};
  for (const std::int32_t b : contexts_[static_cast<std::size_t>(graph)].blocks) arguments.push_back(lane_offset(b));
  evaluate(call("record::program", arguments));
}

void cpu_emitter::record_step() {
  if (recording) evaluate(call("record::step", std::span<const expression>()));
}

} // namespace muster::cpu
