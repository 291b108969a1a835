module;
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <fmt/format.h>
module muster.codegen;

namespace muster::codegen {

struct generator::state {
  registry_view<muster::operation, handler> registry;
  std::vector<const target*> targets;                ///< by backend id; null where the backend has none
  std::vector<std::unique_ptr<emitter>> emitters;    ///< by backend id, made when first asked for
  kernel_plan plan;
  std::vector<std::string> notes;
  bool recording = false;
};

namespace {

/// Throws what stands in the way of the first live node without a handler.
void require_handlers(const kernel_plan& plan, registry_view<muster::operation, handler> registry, backend_id backend) {
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (plan.nodes[i].live && !plan.source->nodes[i].is_parameter) (void)handler_of(plan, static_cast<node_id>(i), registry, backend);
}

} // namespace

template <std::uint64_t Fingerprint> constinit const char library_was_built_from_other_interfaces<Fingerprint>::marker = 0;
template struct library_was_built_from_other_interfaces<codegen_fingerprint>;

generator::generator(registry_view<muster::operation, handler> registry, std::span<const target* const> targets, const char* /*marker*/)
    : self_(std::make_unique<state>()) {
  self_->registry = registry;
  const auto backends = registry.backends();
  self_->targets.resize(backends.size(), nullptr);
  self_->emitters.resize(backends.size());
  for (const target* t : targets)
    for (std::size_t b = 0; b < backends.size(); ++b)
      if (backends[b].name == t->name) self_->targets[b] = t;
}

generator::~generator() = default;
generator::generator(generator&&) noexcept = default;
generator& generator::operator=(generator&&) noexcept = default;

void generator::generate(const document& d, std::string_view backend, std::string& out) { generate(d, d.config, backend, out); }

void generator::generate(const document& d, const device_ir::config& config, std::string_view backend, std::string& out) {
  const backend_id id = self_->registry.backend_named(backend);
  const std::size_t b = static_cast<std::size_t>(id);
  const target* const t = self_->targets[b];
  if (t == nullptr) {
    make_plan(self_->plan, d, config);
    require_handlers(self_->plan, self_->registry, id);
    throw BackendUnsupported(backend, d.kernel, "the backend has handlers but no description of how to write a kernel");
  }
  if (self_->recording && !t->records) throw BackendUnsupported(backend, d.kernel, "its kernels cannot record their nodes' values");
  std::unique_ptr<emitter>& e = self_->emitters[b];
  if (!e) e = t->make_emitter();
  const std::size_t before = out.size();
  try {
    make_plan(self_->plan, d, config);
    e->recording = self_->recording;
    e->reset(self_->plan, *t, self_->registry, id);
    for (const auto& [key, value] : config.others) e->notes.push_back(fmt::format("config key '{}' is not known; it changes nothing", key));
    t->write_kernel(*e, out);
  } catch (...) {
    out.resize(before);
    throw;
  }
  self_->notes.swap(e->notes);
}

void generator::record(bool on) noexcept { self_->recording = on; }
std::span<const std::string> generator::notes() const noexcept { return self_->notes; }
const kernel_plan& generator::plan() const noexcept { return self_->plan; }

} // namespace muster::codegen
