module;
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
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

/// In the order of `dtype`.
constexpr std::array<named_dtype, dtype_count> dtypes = {{
    {"f64", "float64"},
    {"f32", "float32"},
    {"f16", "float16"},
    {"bf16", "bfloat16"},
    {"f8e4m3fn", "float8_e4m3fn"},
    {"f8e5m2", "float8_e5m2"},
    {"i64", "int64"},
    {"i32", "int32"},
    {"i16", "int16"},
    {"i8", "int8"},
    {"u8", "uint8"},
    {"b8", "bool"},
}};

/// In the order of `layout`.
constexpr std::array<std::string_view, 5> layouts = {"strided", "contiguous_format", "preserve_format", "channels_last",
                                                     "channels_last_3d"};

} // namespace

std::string_view name(dtype d) noexcept { return dtypes[static_cast<std::size_t>(d)].name; }
std::string_view torch_name(dtype d) noexcept { return dtypes[static_cast<std::size_t>(d)].torch_name; }

std::optional<dtype> dtype_named(std::string_view name) noexcept {
  for (std::size_t i = 0; i < dtype_count; ++i)
    if (dtypes[i].name == name) return static_cast<dtype>(i);
  return std::nullopt;
}

std::optional<dtype> dtype_torch_named(std::string_view name) noexcept {
  for (std::size_t i = 0; i < dtype_count; ++i)
    if (dtypes[i].torch_name == name) return static_cast<dtype>(i);
  return std::nullopt;
}

std::string_view torch_name(layout l) noexcept { return layouts[static_cast<std::size_t>(l)]; }

std::optional<layout> layout_torch_named(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(layouts, name);
  if (found == layouts.end()) return std::nullopt;
  return static_cast<layout>(found - layouts.begin());
}

std::string_view text_store::keep(std::string_view text) {
  if (text.size() > left_) grow(text.size());
  char* const at = next_;
  if (!text.empty()) std::memcpy(at, text.data(), text.size());
  next_ += text.size();
  left_ -= text.size();
  return {at, text.size()};
}

void text_store::grow(std::size_t at_least) {
  const std::size_t size = std::max<std::size_t>(at_least, 4096);
  chunks_.push_back(std::make_unique<char[]>(size));
  if (chunks_.size() == 1) first_size_ = size;
  next_ = chunks_.back().get();
  left_ = size;
}

void text_store::clear() noexcept {
  if (chunks_.empty()) return;
  chunks_.resize(1);
  next_ = chunks_.front().get();
  left_ = first_size_;
}

document::document() : storage_(std::make_unique<storage>()) {}
document::~document() = default;
document::document(document&&) noexcept = default;
document& document::operator=(document&&) noexcept = default;

const argument* document::find_keyword(const node& n, std::string_view name) const noexcept {
  for (const keyword& k : keywords_of(n))
    if (k.name == name) return &k.value;
  return nullptr;
}

const graph* document::find_graph(std::int64_t id) const noexcept {
  const auto found = std::ranges::find(graphs, id, &graph::id);
  return found == graphs.end() ? nullptr : &*found;
}

const block* document::find_block(std::int64_t id) const noexcept {
  const auto found = std::ranges::find(blocks, id, &block::id);
  return found == blocks.end() ? nullptr : &*found;
}

const host_tensor* document::find_tensor(std::string_view name) const noexcept {
  const auto found = std::ranges::find(tensors, name, &host_tensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

const symbol_declaration* document::find_declaration(symbolic::symbol s) const noexcept {
  const auto found = std::ranges::find(declarations, s, &symbol_declaration::id);
  return found == declarations.end() ? nullptr : &*found;
}

namespace {

/// Moves views of one document's storage to another's: into the text where they point there, else to a copy.
class view_mover {
public:
  view_mover(std::string_view from, std::string_view to, document& owner) : from_(from), to_(to), owner_(owner) {}

  void move(std::string_view& view) {
    const std::less_equal<> before; // a total order over pointers of any origin
    const bool is_inside = before(from_.data(), view.data()) && before(view.data() + view.size(), from_.data() + from_.size());
    view = is_inside ? to_.substr(static_cast<std::size_t>(view.data() - from_.data()), view.size()) : owner_.keep(view);
  }
  void move(argument& a) {
    if (!a.text.empty()) move(a.text);
  }

private:
  std::string_view from_;
  std::string_view to_;
  document& owner_;
};

} // namespace

document document::clone() const {
  document copy;
  copy.storage_->text = storage_->text;
  copy.storage_->text_size = storage_->text_size;
  view_mover mover(storage_->whole(), copy.storage_->whole(), copy);
  const auto moved = [&mover](auto all, auto... views) {
    for (auto& row : all) (mover.move(row.*views), ...);
    return all;
  };
  const auto moved_one = [&mover](std::string_view view) {
    mover.move(view);
    return view;
  };
  copy.file = moved_one(file);
  copy.kernel = moved_one(kernel);
  copy.settings = settings;
  copy.config = config;
  copy.config.text = moved_one(config.text);
  copy.symbols = symbols;
  copy.tensors = moved(tensors, &host_tensor::name);
  copy.declarations = moved(declarations, &symbol_declaration::host_expression);
  copy.blocks = blocks;
  copy.graphs = moved(graphs, &graph::name, &graph::result);
  copy.nodes = moved(nodes, &node::name, &node::target);
  copy.arguments = arguments;
  for (argument& a : copy.arguments) mover.move(a);
  copy.keywords = moved(keywords, &keyword::name, &keyword::value);
  copy.expressions = expressions;
  copy.sources = moved(sources, &source::file, &source::code);
  return copy;
}

std::string_view document::keep(std::string_view text) { return storage_->kept.keep(text); }

std::string_view document::source_text_line(std::size_t line) const noexcept {
  std::string_view rest = storage_->whole();
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  for (; line > 1 && !rest.empty(); --line) {
    const std::size_t stop = rest.find('\n');
    rest.remove_prefix(stop == std::string_view::npos ? rest.size() : stop + 1);
  }
  rest = line == 0 ? std::string_view() : rest.substr(0, rest.find('\n'));
  if (rest.ends_with('\r')) rest.remove_suffix(1);
  return rest;
}

DeviceIRError document::error_at(const node& n, std::string_view message) const {
  return {file, n.line, n.column, source_text_line(n.line), message};
}

void document::clear() noexcept {
  file = "<document>";
  kernel = {};
  settings = {};
  config.text = {};
  config.block_sizes.clear();
  config.loop_orders.clear();
  config.l2_groupings.clear();
  config.flatten_loops.clear();
  config.reduction_loops.clear();
  config.pid_type = pid_type::flat;
  config.indexing.clear();
  config.atomic_indexing.clear();
  config.load_eviction_policies.clear();
  config.range_unroll_factors.clear();
  config.range_num_stages.clear();
  config.range_multi_buffers.clear();
  config.range_flattens.clear();
  config.range_warp_specializes.clear();
  config.static_ranges.clear();
  config.num_sm_multiplier = config.num_warps = config.num_stages = config.num_ctas = config.occupancy = config.maxnreg = std::nullopt;
  config.others.clear();
  symbols.clear();
  tensors.clear();
  declarations.clear();
  blocks.clear();
  graphs.clear();
  nodes.clear();
  arguments.clear();
  keywords.clear();
  expressions.clear();
  sources.clear();
  storage_->text_size = 0;
  storage_->kept.clear();
  storage_->names.clear();
  storage_->type_texts.clear();
  storage_->types.clear();
  storage_->stack.clear();
  storage_->declared.clear();
}

} // namespace muster::device_ir
