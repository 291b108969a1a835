module;
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.runtime;

import muster.symbolic;
import muster.codegen;
import muster.builtin;

namespace muster {

namespace {

using entry_point = void(void* const*, const scalar*, int);

} // namespace

struct compiled_kernel::state {
  shared_object object;
  entry_point* entry = nullptr;
  std::string source;
  std::vector<std::string> symbols;
  std::size_t tensors = 0;
};

void compiled_kernel::operator()(std::span<void* const> tensors, std::span<const scalar> symbols, int threads) const {
  if (tensors.size() != self_->tensors)
    throw Error(fmt::format("The kernel takes {} tensors, {} were given", self_->tensors, tensors.size()));
  if (symbols.size() != self_->symbols.size())
    throw Error(fmt::format("The kernel takes {} symbols, {} were given", self_->symbols.size(), symbols.size()));
  self_->entry(tensors.data(), symbols.data(), threads);
}

void compiled_kernel::operator()(std::span<void* const> tensors, std::span<const scalar> symbols, const recorder& to) const {
  auto* const record_to = reinterpret_cast<void (*)(const void*)>(self_->object.symbol("muster_record_to"));
  struct guard {
    void (*set)(const void*);
    ~guard() { set(nullptr); }
  };
  record_to(&to);
  const guard reset{record_to};
  (*this)(tensors, symbols, 1);
}

const std::vector<std::string>& compiled_kernel::symbol_names() const noexcept { return self_->symbols; }
const std::string& compiled_kernel::source() const noexcept { return self_->source; }
bool compiled_kernel::from_cache() const noexcept { return self_->object.from_cache(); }

compiled_kernel compile(codegen::generator& generator, const device_ir::document& d, const device_ir::config& config,
                        const compile_options& options) {
  auto state = std::make_shared<compiled_kernel::state>();
  generator.generate(d, config, "cpu", state->source);
  for (const symbolic::symbol s : codegen::launch_symbols(generator.plan())) state->symbols.emplace_back(d.symbols.name(s));
  state->tensors = d.tensors.size();
  state->object = compile_source(state->source, options);
  state->entry = reinterpret_cast<entry_point*>(state->object.symbol("muster_kernel"));
  compiled_kernel kernel;
  kernel.self_ = std::move(state);
  return kernel;
}

compiled_kernel compile(const device_ir::document& d, const device_ir::config& config, const compile_options& options) {
  codegen::generator generator = builtin_generator();
  return compile(generator, d, config, options);
}

compiled_kernel compile(const device_ir::document& d, const compile_options& options) { return compile(d, d.config, options); }

} // namespace muster
