"""What registration costs as it grows: compile time and memory, the program's start, its size. Called by report.py.

Programs of N operations and B backends are written, each cell with a handler of its own, with the table made in three ways: composed by
muster; a static object for each handler, whose constructor inserts it into a map; a hand-written switch (by ids: compile time alone).
"""

import functools
import json
import os
import re
import shlex
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SIZES = ((100, 6), (300, 6), (1000, 6), (1000, 32))


class Failed(Exception):
    """What went wrong, in a line or more."""


# --- the sources --------------------------------------------------------------------------------------------------------------

FIND_HPP = """#pragma once
#include <string_view>
using handler = int();
extern "C" __attribute__((visibility("default"))) handler* find_handler(const char* backend, std::size_t backend_size,
                                                                       const char* operation, std::size_t operation_size);
inline handler* find(std::string_view backend, std::string_view operation) {
  return find_handler(backend.data(), backend.size(), operation.data(), operation.size());
}
"""

MAIN_CPP = """#include <cstdio>
#include <iterator>
#include "find.hpp"
const char* const backends[] = {%s};
const char* const operations[] = {%s};
int main(int argc, char**) {
  if (argc == 1) return find(backends[0], operations[0])() == 0 ? 0 : 1; // what is measured: a start and one lookup
  for (unsigned b = 0; b < std::size(backends); ++b)
    for (unsigned o = 0; o < std::size(operations); ++o) {
      handler* const found = find(backends[b], operations[o]);
      if (found == nullptr || found() != static_cast<int>(b * 10000 + o)) {
        std::printf("wrong handler: %%s, %%s\\n", backends[b], operations[o]);
        return 1;
      }
    }
  return find(backends[0], "no such operation") == nullptr ? 0 : 1;
}
"""

COMPOSED_CPP = """#include <cstdint>
#include <string_view>
#include "find.hpp"
import muster.error;
import muster.registry;
enum class op : std::uint16_t {};
%(declared)s
constexpr muster::operation_set<op> operations{{
%(operations)s
}};
%(backends)s
constexpr auto registry = muster::compose<operations, %(composed)s>();
handler* find_handler(const char* b, std::size_t b_size, const char* o, std::size_t o_size) {
  return registry.find(std::string_view(b, b_size), std::string_view(o, o_size));
}
"""

REGISTRATION_HPP = """#pragma once
#include "find.hpp"
struct registration {
  registration(const char* backend, const char* operation, handler* h);
};
"""

REGISTRATION_CPP = """#include "registration.hpp"
#include <functional>
#include <string>
#include <unordered_map>
namespace {
struct hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};
template <class Value> using map = std::unordered_map<std::string, Value, hash, std::equal_to<>>;
map<map<handler*>>& table() {
  static map<map<handler*>> all;
  return all;
}
}
registration::registration(const char* backend, const char* operation, handler* h) { table()[backend][operation] = h; }
handler* find_handler(const char* b, std::size_t b_size, const char* o, std::size_t o_size) {
  const auto row = table().find(std::string_view(b, b_size));
  if (row == table().end()) return nullptr;
  const auto cell = row->second.find(std::string_view(o, o_size));
  return cell == row->second.end() ? nullptr : cell->second;
}
"""


def write_sources(folder: Path, operations: list[str], backends: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    cells = [[f"h{b}_{o}" for o in range(len(operations))] for b in range(len(backends))]
    declared = "\n".join(f"int {name}();" for row in cells for name in row)

    def write(name: str, text: str) -> None:
        (folder / name).write_text(text)

    write("find.hpp", FIND_HPP)
    write("main.cpp", MAIN_CPP % (", ".join(f'"{name}"' for name in backends), ",\n".join(f'"{name}"' for name in operations)))
    write("empty.cpp", "int main() { return 0; }\n")
    write(
        "handlers.cpp",
        "\n".join(f"int {name}() {{ return {10000 * b + o}; }}" for b, row in enumerate(cells) for o, name in enumerate(row)),
    )
    write(
        "composed.cpp",
        COMPOSED_CPP
        % {
            "declared": declared,
            "operations": ",\n".join(f'{{op({o}), "{name}"}}' for o, name in enumerate(operations)),
            "backends": "\n".join(
                f'constexpr muster::backend<op, handler> b{b}{{.name = "{name}", .handlers = {{\n'
                + ",\n".join(f"{{op({o}), {cell}}}" for o, cell in enumerate(cells[b]))
                + "}};"
                for b, name in enumerate(backends)
            ),
            "composed": ", ".join(f"b{b}" for b in range(len(backends))),
        },
    )
    write("registration.hpp", REGISTRATION_HPP)
    write("registration.cpp", REGISTRATION_CPP)
    for b, backend in enumerate(backends):
        lines = [
            f'int {cell}();\nstatic const registration r{o}("{backend}", "{operations[o]}", {cell});' for o, cell in enumerate(cells[b])
        ]
        write(f"registered{b}.cpp", '#include "registration.hpp"\n' + "\n".join(lines) + "\n")
        rows = "\n".join(f"  case {o}: return {cell};" for o, cell in enumerate(cells[b]))
        write(
            f"switch{b}.cpp",
            "\n".join(
                [
                    "using handler = int();",
                    *(f"int {cell}();" for cell in cells[b]),
                    f"handler* in_backend_{b}(unsigned o) {{",
                    "  switch (o) {",
                    rows,
                    "  default: return nullptr;",
                    "  }",
                    "}",
                    "",
                ]
            ),
        )
    rows = "\n".join(f"  case {b}: return in_backend_{b}(o);" for b in range(len(backends)))
    write(
        "switch.cpp",
        "\n".join(
            [
                "using handler = int();",
                *(f"handler* in_backend_{b}(unsigned o);" for b in range(len(backends))),
                "handler* find(unsigned b, unsigned o) {",
                "  switch (b) {",
                rows,
                "  default: return nullptr;",
                "  }",
                "}",
                "",
            ]
        ),
    )


# --- compiling ----------------------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    seconds: float  # of processor time
    megabytes: float  # the most that one compiler had

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.seconds + other.seconds, max(self.megabytes, other.megabytes))


class Compiler:
    """The build's own compiler, with the built interfaces of the registry."""

    def __init__(self, build: Path):
        self.build = build
        entries = json.loads((build / "compile_commands.json").read_text())
        words = next(shlex.split(entry["command"]) for entry in entries if entry["file"].endswith("bench/peers/lookup.cpp"))
        self.command = words[0]
        self.interfaces = [word for word in words if word.startswith(("-fmodule-file=muster.error=", "-fmodule-file=muster.registry="))]
        kept = ("-std=", "-pthread", "-D_FILE", "-DNDEBUG")
        self.flags = [word for word in words if word.startswith(kept)] + ["-O2", "-fPIC", "-fvisibility=hidden"]
        objects = ("libunit-muster.registry.a.p/*.o", "libunit-muster.error.a.p/*.o", "libmuster.a.p/src_error.cpp.o")
        self.library = [path for pattern in objects for path in sorted(build.glob(pattern))]

    def compile(self, source: Path, *flags: str) -> Cost:
        """Into an object file beside the source; the costs are the compiler's own."""
        return self.run(*self.flags, *self.interfaces, *flags, "-c", source, "-o", source.with_suffix(".o"))

    def compile_all(self, folder: Path, names: list[str]) -> Cost:
        return functools.reduce(Cost.__add__, (self.compile(folder / f"{name}.cpp") for name in names))

    def link(self, target: Path, *words: object) -> Path:
        self.run("-fuse-ld=lld-19", "-o", target, *words)
        return target

    def run(self, *words: object) -> Cost:
        child = subprocess.Popen([self.command, *map(str, words)], cwd=self.build, stderr=subprocess.PIPE)
        errors = child.stderr.read().decode()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise Failed(f"{self.command} {' '.join(map(str, words))}\n{errors[-3000:]}")
        return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


# --- starting -----------------------------------------------------------------------------------------------------------------


def start_times(programs: dict[str, Path], rounds: int = 60) -> dict[str, float]:
    """Milliseconds from the start of a process to its end: the median, the programs in turn."""
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            before = time.perf_counter()
            child = os.posix_spawn(program, [str(program)], os.environ)
            _, status = os.waitpid(child, 0)
            found[name].append(1e3 * (time.perf_counter() - before))
            if status != 0:
                raise Failed(f"{program}: status {status}")
    return {name: statistics.median(times) for name, times in found.items()}


def all_instructions(program: Path) -> int:
    """Those of a process, from its first, the loader's, to its last."""
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program)], text=True, capture_output=True)
    if done.returncode != 0:
        raise Failed(f"valgrind {program}: status {done.returncode}\n{done.stderr[-2000:]}")
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


class Contents(NamedTuple):
    kilobytes: float  # of the file, without symbols
    initialisers: int
    relative: int  # relocations that need no symbol
    symbolic: int  # those that need a handler's


def contents(program: Path) -> Contents:
    stripped = program.with_suffix(".stripped")
    output_of("objcopy", "--strip-all", program, stripped)
    sections = output_of("readelf", "-SW", program)
    found = re.search(r"\.init_array +INIT_ARRAY +\w+ +\w+ +(\w+)", sections)
    relocations = output_of("readelf", "-rW", program)
    relative = len(re.findall(r"R_X86_64_RELATIVE|R_AARCH64_RELATIV", relocations))
    if packed := re.search(r"^  (\d+) offsets$", relocations, re.MULTILINE):
        relative += int(packed[1])
    return Contents(
        stripped.stat().st_size / 1024, int(found[1], 16) // 8 if found else 0, relative, len(re.findall(r" _Z\d+h\d+_\d+v", relocations))
    )


def output_of(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


# --- the whole ----------------------------------------------------------------------------------------------------------------


def operations_of(count: int) -> list[str]:
    return (ROOT / "bench/peers/names.txt").read_text().split()[:count]


def compile_costs(build: Path) -> dict[tuple[int, int], dict[str, Cost]]:
    """Of each size, by way. Leaves the objects in the folder of each size."""
    compiler = Compiler(build)
    found = {}
    for operations, backends in SIZES:
        folder = folder_of(build, operations, backends)
        write_sources(folder, operations_of(operations), [f"backend_{b:02}" for b in range(backends)])
        ways = {
            "muster": ["composed"],
            "self-registration": ["registration", *(f"registered{b}" for b in range(backends))],
            "switch": ["switch", *(f"switch{b}" for b in range(backends))],
        }
        found[operations, backends] = {way: compiler.compile_all(folder, units) for way, units in ways.items()}
    return found


def folder_of(build: Path, operations: int, backends: int) -> Path:
    return build / "bench" / "scale" / f"{operations}x{backends}"


def programs(build: Path) -> dict[str, Path]:
    """Of the largest size, from the objects that `compile_costs` left; each has looked up every cell, and been right."""
    compiler = Compiler(build)
    operations, backends = SIZES[-1]
    folder = folder_of(build, operations, backends)
    for name in ("handlers", "main", "empty"):
        compiler.compile(folder / f"{name}.cpp", "-O0")
    main, handlers = folder / "main.o", folder / "handlers.o"
    composed = [folder / "composed.o", *compiler.library, "-lfmt"]
    registered = [folder / "registration.o", *(folder / f"registered{b}.o" for b in range(backends))]
    made = {
        "nothing": compiler.link(folder / "nothing", folder / "empty.o", "-pie"),
        "muster": compiler.link(folder / "muster", main, handlers, *composed, "-pie"),
        "muster, relocations packed": compiler.link(
            folder / "muster-packed", main, handlers, *composed, "-pie", "-Wl,-z,pack-relative-relocs"
        ),
        "muster, not PIE": compiler.link(folder / "muster-fixed", main, handlers, *composed, "-no-pie"),
        "self-registration": compiler.link(folder / "registering", main, handlers, *registered, "-pie"),
    }
    for name, program in made.items():
        if name != "nothing":
            output_of(program, "check")
    return made


def shared_library(build: Path) -> Contents:
    """muster's table in a shared library that shows the lookup alone."""
    compiler = Compiler(build)
    folder = folder_of(build, *SIZES[-1])
    return contents(
        compiler.link(folder / "libmuster-table.so", "-shared", folder / "handlers.o", folder / "composed.o", *compiler.library, "-lfmt")
    )


def steps_are_few(build: Path, limit: int) -> bool:
    """Whether the compiler makes the table of names of 1,000 operations within so many steps."""
    names = operations_of(1000)
    source = build / "bench" / "scale" / "steps.cpp"
    rows = ",\n".join(f'{{"{name}", {len(name)}, {i}}}' for i, name in enumerate(names))
    source.write_text(
        "#include <array>\nimport muster.error;\nimport muster.registry;\n"
        f"constexpr std::array<muster::detail::named, {len(names)}> names{{{{\n{rows}}}}};\n"
        f"constexpr auto table = muster::detail::make_perfect_hash<{len(names)}>(names);\nstatic_assert(table.built);\n"
    )
    try:
        Compiler(build).compile(source, f"-fconstexpr-steps={limit}")
    except Failed as failure:
        if "maximum step limit" in str(failure):
            return False
        raise
    return True
