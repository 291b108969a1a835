module;
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
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

constexpr std::string_view builder_file = "<builder>";

/// Every piece must stay on its line: the pieces become a document's text.
std::string_view on_one_line(std::string_view piece, std::string_view what) {
  for (const char c : piece)
    if (c == '\n' || c == '\r')
      throw DeviceIRError(builder_file, 0, 0, "", "a line break in " + std::string(what) + ": '" + std::string(piece) + "'");
  return piece;
}

template <class T, class F> std::string bracketed(std::span<const T> items, F&& spell) {
  std::string out = "[";
  for (const T& item : items) {
    if (out.size() > 1) out += ", ";
    out += spell(item);
  }
  return out + "]";
}

std::string spelled(std::span<const std::string_view> expressions) {
  return bracketed(expressions, [](std::string_view e) { return on_one_line(e, "an expression"); });
}

std::string spelled(std::span<const std::int32_t> ids) {
  return bracketed(ids, [](std::int32_t id) { return std::to_string(id); });
}

} // namespace

/// The document's text in the making. So a builder accepts exactly what the parser does, and its errors show the line.
struct builder::implementation {
  device_ir::settings settings;
  std::string kernel;
  std::string tensors, symbols, blocks, roots, graphs, config, bodies;
  std::string parameters; ///< of the graph begun last, whose `def` line is not written yet
  std::string graph_name;
  bool has_calls = false;
  std::uint32_t nodes = 0;

  [[nodiscard]] std::string header() const {
    std::string out = "device_ir 1\nkernel " + kernel;
    out += std::string("\nsetting static_shapes ") + (settings.static_shapes ? "true" : "false");
    out += "\nsetting index_dtype " + std::string(name(settings.index_dtype));
    out += std::string("\nsetting fast_math ") + (settings.fast_math ? "true" : "false");
    out += "\nsetting dot_precision " + std::string(word(settings.dot_precision)) + "\n";
    return out + tensors + symbols + blocks + roots + graphs + config;
  }

  /// Writes the `def` line once its parameters are known.
  void begin_calls() {
    if (graph_name.empty()) throw DeviceIRError(builder_file, 0, 0, "", "a call outside of a graph: begin one with graph()");
    if (has_calls) return;
    bodies += "\ndef " + graph_name + "(" + parameters + "):\n";
    has_calls = true;
  }
};

builder::builder(std::string_view kernel) : self_(std::make_unique<implementation>()) {
  self_->kernel = on_one_line(kernel, "a kernel's name");
}
builder::~builder() = default;
builder::builder(builder&&) noexcept = default;
builder& builder::operator=(builder&&) noexcept = default;

settings& builder::settings() noexcept { return self_->settings; }

void builder::config(std::string_view json) {
  self_->config = "config " + std::string(json);
  // JSON may break its lines between any two tokens, and only there.
  std::ranges::replace_if(self_->config, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  self_->config += '\n';
}

void builder::host_tensor(std::string_view name, dtype element, std::span<const std::string_view> sizes,
                          std::span<const std::string_view> strides) {
  self_->tensors += "host_tensor " + std::string(on_one_line(name, "a host tensor's name")) + " " + std::string(device_ir::name(element)) +
                    spelled(sizes) + " strides " + spelled(strides) + "\n";
}

void builder::host_tensor(std::string_view name, dtype element, std::initializer_list<std::string_view> sizes,
                          std::initializer_list<std::string_view> strides) {
  host_tensor(name, element, std::span(sizes.begin(), sizes.size()), std::span(strides.begin(), strides.size()));
}

void builder::parameter(std::string_view symbol, bool is_float, std::string_view host_expression, std::optional<symbolic::number> hint) {
  std::string& out = self_->symbols;
  out += "symbol " + std::string(on_one_line(symbol, "a symbol's name")) + (is_float ? " float" : " int");
  out += " parameter " + std::string(on_one_line(host_expression, "a host expression"));
  if (hint && hint->is_integer) out += " hint " + std::to_string(hint->integer);
  if (hint && !hint->is_integer) symbolic::print_real(hint->real, out += " hint ");
  out += '\n';
}

void builder::block_symbol(std::string_view symbol, symbol_declaration::origin from, std::int32_t block) {
  self_->symbols += "symbol " + std::string(on_one_line(symbol, "a symbol's name")) + " int " + std::string(word(from)) + " " +
                    std::to_string(block) + "\n";
}

void builder::block(std::int32_t id, std::string_view variable, std::string_view size, std::string_view block_size, bool is_reduction,
                    std::span<const std::int32_t> jagged_parents) {
  std::string& out = self_->blocks;
  out += "block " + std::to_string(id) + " " + std::string(on_one_line(variable, "a block's variable"));
  out += " size " + std::string(size.empty() ? "None" : on_one_line(size, "a block's size")) + (is_reduction ? " reduction" : " tile");
  out += " block_size " + std::string(block_size.empty() ? "None" : on_one_line(block_size, "a block size"));
  if (!jagged_parents.empty()) out += " jagged_parents " + spelled(jagged_parents);
  out += '\n';
}

void builder::graph(std::string_view name, device_ir::graph::kind what, std::span<const std::int32_t> blocks, std::int32_t phase) {
  const bool is_root = what == device_ir::graph::kind::root;
  std::string& out = is_root ? self_->roots : self_->graphs;
  out += std::string(word(what)) + " " + std::string(on_one_line(name, "a graph's name"));
  if (is_root || what == device_ir::graph::kind::loop) out += " blocks " + spelled(blocks);
  if (is_root) out += " phase " + std::to_string(phase);
  out += '\n';
  self_->graph_name = name;
  self_->parameters.clear();
  self_->has_calls = false;
}

void builder::graph(std::string_view name, device_ir::graph::kind what, std::initializer_list<std::int32_t> blocks, std::int32_t phase) {
  graph(name, what, std::span(blocks.begin(), blocks.size()), phase);
}

node_id builder::parameter_node(std::string_view name, std::string_view type) {
  if (self_->has_calls || self_->graph_name.empty())
    throw DeviceIRError(builder_file, 0, 0, "", "the parameter '" + std::string(name) + "' must stand between graph() and its first call");
  if (!self_->parameters.empty()) self_->parameters += ", ";
  self_->parameters += on_one_line(name, "a parameter's name");
  if (!type.empty()) self_->parameters += ": \"" + std::string(on_one_line(type, "a type")) + "\"";
  return static_cast<node_id>(self_->nodes++);
}

node_id builder::call(std::string_view name, std::string_view type, std::string_view target, std::string_view arguments) {
  self_->begin_calls();
  std::string& out = self_->bodies;
  out += "    " + std::string(on_one_line(name, "a node's name"));
  if (!type.empty()) out += ": \"" + std::string(on_one_line(type, "a type")) + "\"";
  out += " = " + std::string(on_one_line(target, "a target")) + "(" + std::string(on_one_line(arguments, "arguments")) + ")\n";
  return static_cast<node_id>(self_->nodes++);
}

void builder::result(std::string_view value) {
  self_->begin_calls();
  self_->bodies += "    return " + std::string(on_one_line(value, "a result")) + "\n";
  self_->graph_name.clear();
}

document builder::finish() {
  const std::unique_ptr<implementation> built = std::exchange(self_, std::make_unique<implementation>());
  document d = parse(built->header() + built->bodies, builder_file);
  verify(d);
  return d;
}

} // namespace muster::device_ir
