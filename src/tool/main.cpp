#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include "commands.hpp"
import muster.error;

namespace {

using namespace muster::tool;

using pairs = std::vector<std::pair<std::string, std::string>>;

/// An option that is given as NAME=VALUE, any number of times.
void add_pairs(CLI::App& command, const std::string& name, pairs& into, const std::string& description) {
  command
      .add_option_function<std::vector<std::string>>(
          name,
          [&into, name](const std::vector<std::string>& given) {
            for (const std::string& one : given) {
              const std::size_t equals = one.find('=');
              if (equals == std::string::npos || equals == 0 || equals + 1 == one.size())
                throw CLI::ValidationError(name, fmt::format("expected NAME=VALUE, got '{}'", one));
              into.emplace_back(one.substr(0, equals), one.substr(equals + 1));
            }
          },
          description)
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
}

struct command_line {
  codegen_options codegen_choices;
  run_options run_choices;
  coverage_options coverage_choices;
  std::vector<std::string> check_files;
  std::string stage;
  std::function<int()> chosen;

  void describe(CLI::App& app) {
    app.require_subcommand(1);
    app.set_version_flag("--version", "muster " MUSTER_VERSION);
    app.footer(
        "FILE may be - for standard input. Exit status: 0; 1 an error; 2 usage; 3 an operation that the backend does not implement.");
    describe_codegen(*app.add_subcommand("codegen", "Print a kernel's source for one backend"));
    describe_check(*app.add_subcommand("check", "Say which backends can generate each document, and what is missing where"));
    describe_run(*app.add_subcommand("run", "Compile a kernel, run it, print its time and a checksum a tensor"));
    CLI::App* list = app.add_subcommand("backends", "List the backends");
    list->callback([this] { chosen = [] { return backends(); }; });
    describe_coverage(*app.add_subcommand("coverage", "Print which backend implements which operation, and where the handler comes from"));
  }

private:
  void describe_codegen(CLI::App& c) {
    codegen_options& o = codegen_choices;
    c.add_option("FILE", o.file, "The device IR document")->required();
    c.add_option("--backend", o.backend, "The backend's name (see `muster backends`)")->required();
    c.add_option("-o,--output", o.output, "Write here instead of standard output; the file appears whole or not at all");
    CLI::Option* one = c.add_option("--config", o.config, "Tuning choices as a JSON object; keys override the document's config");
    c.add_option("--configs", o.configs, "A file with one JSON object a line: one kernel a line, each after a line that numbers it")
        ->excludes(one);
    c.add_option("--stage", stage, "Stop behind this stage and print it")->check(CLI::IsMember({"plan"}));
    c.add_flag("--explain", o.explain, "List each operation that the document uses, with where its handler comes from");
    c.callback([this] {
      chosen = [this] {
        codegen_choices.plan = stage == "plan";
        return codegen(codegen_choices);
      };
    });
  }

  void describe_check(CLI::App& c) {
    c.add_option("FILE", check_files, "Device IR documents")->required();
    c.callback([this] { chosen = [this] { return check(check_files); }; });
  }

  void describe_run(CLI::App& c) {
    run_options& o = run_choices;
    c.add_option("FILE", o.file, "The device IR document")->required();
    c.add_option("--backend", o.backend, "The backend to run on")->capture_default_str();
    c.add_option("--seed", o.seed, "Seed of the random inputs")->capture_default_str();
    c.add_option("--repeat", o.repeat, "Run this often and report the best time")->check(CLI::Range(1, 1000000))->capture_default_str();
    c.add_option("--threads", o.threads, "Threads to use; 0: one a processor")->check(CLI::Range(0, 4096))->capture_default_str();
    c.add_option("--config", o.config, "Tuning choices as a JSON object; keys override the document's config");
    CLI::Option* check =
        c.add_flag("--check", o.check,
                   "Compare what the kernel stores with what the reference interpreter stores on the same inputs: within "
                   "2e-5 for f32, 3e-3 for f16, 2.5e-2 for bf16, 0.15 and 0.3 for f8e4m3fn and f8e5m2, 1e-10 for f64, relative "
                   "to the element and a quarter of that to the tensor's largest; integers exactly. Where they differ, the first node "
                   "whose values do is named, and the status is 1");
    c.add_flag("--check-nodes", o.check_nodes, "As --check, and compare nodes even where nothing that is stored differs");
    c.add_flag("--interpret", o.interpret, "Run the reference interpreter in place of the kernel")->excludes(check);
    c.add_flag("--trace", o.trace,
               "Print for every node what its values are in the reference interpreter, over all programs and iterations, without lanes "
               "beyond a block's extent: least, largest, mean, and how many are NaN or infinite");
    add_pairs(c, "--input", o.inputs, "NAME=FILE.npy: a host tensor's values; what is not given is random");
    add_pairs(c, "--output", o.outputs, "NAME=FILE.npy: write a host tensor after the run");
    add_pairs(c, "--symbol", o.symbols, "NAME=VALUE: a symbol's value; without it the document's hint, or the inputs' shapes, decide");
    c.callback([this] { chosen = [this] { return run(run_choices); }; });
  }

  void describe_coverage(CLI::App& c) {
    c.add_option("--backend", coverage_choices.backend, "Only this backend");
    c.add_option("--format", coverage_choices.format, "How to print")
        ->check(CLI::IsMember({"table", "markdown", "json"}))
        ->capture_default_str();
    c.callback([this] { chosen = [this] { return coverage(coverage_choices); }; });
  }
};

int report(const char* what, exit_status status) {
  fmt::print(stderr, "{}\n", what);
  return status;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Generates kernel source for several backends from a device IR document.", "muster");
  command_line line;
  line.describe(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? success : usage;
  }
  try {
    const int status = line.chosen();
    if (std::fflush(stdout) != 0) return report("Cannot write 'standard output'", failure);
    return status;
  } catch (const muster::BackendImplementationMissing& error) {
    return report(error.what(), implementation_missing);
  } catch (const muster::Error& error) {
    return report(error.what(), failure);
  } catch (const std::bad_alloc&) {
    return report("Out of memory", failure);
  } catch (const std::exception& error) {
    return report(error.what(), failure);
  }
}
