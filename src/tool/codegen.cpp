#include <cstddef>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <fmt/format.h>
#include "commands.hpp"
#include "files.hpp"
import muster.error;
import muster.registry;
import muster.device_ir;
import muster.operations;
import muster.codegen;
import muster.builtin;

namespace muster::tool {

namespace {

void print_notes(const codegen::generator& generator) {
  for (const std::string& note : generator.notes()) fmt::print(stderr, "note: {}\n", note);
}

/// The operations of a document in order of first use, each with the handler's provenance.
std::string explain(const device_ir::document& d, const codegen::kernel_plan& plan, std::string_view backend) {
  const auto registry = builtin_registry();
  const backend_id id = registry.backend_named(backend);
  std::vector<bool> seen(operation_count);
  std::string out;
  for (std::size_t i = 0; i < d.nodes.size(); ++i) {
    const codegen::node_plan& p = plan.nodes[i];
    if (d.nodes[i].is_parameter || !p.live) continue;
    if (!p.known) {
      out += fmt::format("{:<44} unknown operation\n", d.nodes[i].target);
      continue;
    }
    if (seen[static_cast<std::size_t>(p.op)]) continue;
    seen[static_cast<std::size_t>(p.op)] = true;
    out += fmt::format("{:<44} {}\n", qualified_name(p.op, d.nodes[i].target), name(registry.cell(id, p.op).provenance));
  }
  return out;
}

/// One config a line; blank lines count but say nothing.
std::vector<device_ir::config> read_configs(const std::string& file, const device_ir::config& base) {
  const std::string text = read_file(file);
  std::vector<device_ir::config> all;
  std::string_view rest = text;
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const std::size_t end = rest.find('\n');
    const std::string_view one = rest.substr(0, end);
    if (one.find_first_not_of(" \t\r") != std::string_view::npos) all.push_back(device_ir::parse_config(one, base, file, line));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return all;
}

} // namespace

int codegen(const codegen_options& options) {
  const auto registry = builtin_registry();
  (void)registry.backend_named(options.backend); // an unknown backend is reported before anything is read
  const device_ir::document d = device_ir::parse(read_file(options.file), options.file == "-" ? "<stdin>" : options.file);
  device_ir::verify(d);
  std::optional<device_ir::config> config;
  if (options.config) config = device_ir::parse_config(*options.config, d.config, "--config");
  const device_ir::config& chosen = config ? *config : d.config;
  std::string out;
  if (options.plan || options.explain) {
    codegen::kernel_plan plan;
    codegen::make_plan(plan, d, chosen);
    if (options.plan) codegen::print_plan(plan, out);
    if (options.explain) out += explain(d, plan, options.backend);
    write_file(options.output, out);
    return success;
  }
  codegen::generator generator = builtin_generator();
  if (!options.configs) {
    generator.generate(d, chosen, options.backend, out);
    print_notes(generator);
  } else {
    std::size_t number = 0;
    for (const device_ir::config& c : read_configs(*options.configs, d.config)) {
      out += fmt::format("# ---- config {}\n", ++number);
      generator.generate(d, c, options.backend, out);
    }
    print_notes(generator);
  }
  write_file(options.output, out);
  return success;
}

namespace {

/// What stops a backend from generating a document, or an empty string.
std::string obstacle(codegen::generator& generator, const device_ir::document& d, std::string_view backend, std::string& scratch) {
  scratch.clear();
  try {
    generator.generate(d, backend, scratch);
    return {};
  } catch (const BackendImplementationMissing& missing) {
    return fmt::format("missing {}", missing.operation());
  } catch (const Error& error) {
    return error.what();
  }
}

} // namespace

int check(const std::vector<std::string>& files) {
  codegen::generator generator = builtin_generator();
  const auto registry = builtin_registry();
  std::string scratch;
  std::size_t bad = 0;
  for (const std::string& file : files) {
    try {
      const device_ir::document d = device_ir::parse(read_file(file), file == "-" ? "<stdin>" : file);
      device_ir::verify(d);
      fmt::print("{}: {}\n", file, d.kernel);
      for (const auto& backend : registry.backends()) {
        const std::string reason = obstacle(generator, d, backend.name, scratch);
        fmt::print("  {:<8} {}\n", backend.name, reason.empty() ? "ok" : reason);
      }
    } catch (const Error& error) {
      std::fflush(stdout);
      fmt::print(stderr, "{}\n", error.what());
      ++bad;
    }
  }
  if (bad > 0) fmt::print(stderr, "{} of {} documents cannot be read\n", bad, files.size());
  return bad == 0 ? success : failure;
}

} // namespace muster::tool
