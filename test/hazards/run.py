"""The hazards of registration, each a real program: what loses handlers elsewhere must not lose them here.

usage: run.py BUILD [--all] [ROW…]   BUILD is a finished build folder; --all: the whole matrix, with build folders of its own
       run.py BUILD --update-readme  write the comparison in README.md anew

Prints `passed NAME` or `failed NAME reason` a check; last line: N passed, N failed.
"""

import ctypes
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test"))
from toolchain import Toolchain  # noqa: E402

HERE = ROOT / "test/hazards"
JOBS = int(os.environ.get("MUSTER_JOBS") or os.cpu_count() or 2)
BACKENDS = ("triton", "tileir", "pallas", "cute", "metal", "cpu")
EVERYTHING = "--all" in sys.argv
TEMPORARY = tempfile.TemporaryDirectory(prefix="muster-")
FOLDER = Path(TEMPORARY.name)

Check = tuple[str, str | None]  # a name, and what failed


class Failed(Exception):
    """What went wrong, in a line or more."""


# --- compiling and running ----------------------------------------------------------------------------------------------------


def status_of(*command: object, cwd: Path = ROOT, stdin: str = "", env: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit status (128 + N for a signal) and output. Standard error follows standard output."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, input=stdin, text=True, capture_output=True, timeout=900, env={**os.environ, **(env or {})})
    return (done.returncode if done.returncode >= 0 else 128 - done.returncode), done.stdout + done.stderr


def output_of(*command: object, **options) -> str:
    status, output = status_of(*command, **options)
    if status != 0:
        raise Failed(f"status {status}: {output.strip()[-3000:]}\n  of {' '.join(map(str, command))}")
    return output


def in_parallel(jobs: Iterable) -> list:
    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(lambda job: job(), jobs))


def fresh(name: str) -> Path:
    """A path in the temporary folder that nobody has had."""
    fresh.count += 1
    folder = FOLDER / f"{fresh.count}"
    folder.mkdir()
    return folder / name


fresh.count = 0


class Build:
    """A build folder: how it compiles and links a consumer."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self.commands = {}
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            self.commands[Path(os.path.normpath(self.folder / entry["file"]))] = shlex.split(entry["command"])
        self.flags = [flag for flag in self.flags_of(ROOT / "test/consumer/main.cpp") if flag not in ("-UNDEBUG", "-DNO_SUCH_MACRO")]
        link = shlex.split(output_of("ninja", "-C", folder, "-t", "commands", "test/consumer").splitlines()[-1])
        group = link[link.index("-Wl,--start-group") + 1 : link.index("-Wl,--end-group")]
        self.compiler = link[0]
        self.library = next(self.folder / word for word in group if "libmuster." in word)
        self.others = [word for word in group if "libmuster." not in word]
        self.link_flags = [word for word in link if word.startswith(("-flto", "-fsanitize"))]
        self.objects = {}

    def flags_of(self, source: Path) -> list[str]:
        """The flags that a source is compiled with, without those that name files."""
        words = self.commands[source][1:]
        flags = []
        while words:
            word = words.pop(0)
            if word in ("-MQ", "-MF", "-o", "-c"):
                words.pop(0)
            elif word not in ("-MD", "-Mno-modules") and not word.startswith("-fmodule-output="):
                flags.append(word)
        return flags

    def library_objects(self) -> list[Path]:
        folders = [folder for folder in self.folder.glob("lib*.p") if re.match(r"lib(muster\.(a|so)|unit-.*)\.p$", folder.name)]
        return sorted(path for folder in folders for path in folder.glob("*.o"))

    def compile(self, source: Path, *flags: str, base: list[str] | None = None) -> Path:
        """An object file; the same one for the same question."""
        question = (source, flags, tuple(base or ()))
        if question not in self.objects:
            target = fresh(source.stem + ".o")
            folders = [f"-I{folder}" for folder in (documents().parent, source.parent, HERE)]
            quiet = "-Wno-unused-command-line-argument"
            output_of(self.compiler, *(base or self.flags), quiet, *folders, *flags, "-c", source, "-o", target, cwd=self.folder)
            self.objects[question] = target
        return self.objects[question]

    def compile_all(self, *questions: tuple) -> list[Path]:
        return in_parallel([lambda q=question: self.compile(*q) for question in questions])

    def link(self, name: str, objects: list[Path], *flags: str, library: list | None = None, linker: str = "") -> Path:
        target = fresh(name)
        libraries = [self.library] if library is None else library
        chosen = f"-fuse-ld={linker or TOOLS.linker}"
        output_of(self.compiler, *self.link_flags, "-o", target, *objects, *flags, *libraries, *self.others, chosen,
                  f"-Wl,-rpath,{self.library.parent}", cwd=self.folder)
        return target

    @cache
    def shared_library(self) -> Path:
        """All objects of the library in a shared library."""
        if self.library.suffix == ".so":
            return self.library
        target = fresh("libmuster.so")
        flags = (*self.link_flags, "-shared", "-Wl,-soname,libmuster.so", f"-fuse-ld={TOOLS.linker}")
        output_of(self.compiler, *flags, "-o", target, *self.library_objects(), *self.others, cwd=self.folder)
        return target


@cache
def documents() -> Path:
    """The documents as C++ string literals, for programs to include."""
    target = fresh("documents.inc")
    texts = [(ROOT / "test/documents" / name).read_text() for name in ("softmax.txt", "add.txt", "matmul.txt")]
    target.write_text(",\n".join(f'R"document({text})document"' for text in texts) + "\n")
    return target


def expect_equal(found: str, expected: str, what: str) -> None:
    if found == expected:
        return
    lines = [f"{a!r} instead of {b!r}" for a, b in itertools.zip_longest(found.splitlines(), expected.splitlines()) if a != b]
    raise Failed(f"{what}: {len(lines)} lines differ, the first: {lines[0] if lines else 'only in their ends'}")


def attempt(name: str, job) -> Check:
    try:
        job()
        return name, None
    except (Failed, subprocess.TimeoutExpired) as failure:
        return name, str(failure)


# --- 1. orders and ways of linking --------------------------------------------------------------------------------------------

MODULES = ("muster.error", "muster.registry", "muster.symbolic", "muster.device_ir", "muster.operations", "muster.codegen",
           "muster.backend.common", *(f"muster.backend.{name}" for name in BACKENDS), "muster.builtin")


def with_imports(order: Iterable[str], source: str = "dump.cpp") -> Path:
    """A copy of a program that imports these modules in this order."""
    lines = (HERE / source).read_text().split("\n")
    places = [i for i, line in enumerate(lines) if line.startswith("import ")]
    lines[places[0] : places[-1] + 1] = [f"import {name};" for name in order]
    return numbered(source, "\n".join(lines))


@cache
def numbered(name: str, text: str) -> Path:
    target = fresh(name)
    target.write_text(text)
    return target

DEFAULT_PAIR = ("umbrella", "reverse")
OTHER_PAIR = ("triton first", "pallas first")


def import_orders() -> dict[str, list[str]]:
    backends = [name for name in MODULES if ".backend." in name]
    orders = {"umbrella": ["muster"], "reverse": list(reversed(MODULES)), "triton first": ["muster.backend.triton", *MODULES],
              "pallas first": ["muster.backend.pallas", *reversed(backends), "muster"]}
    if EVERYTHING:
        orders["forward"] = list(MODULES)
        for name in MODULES:
            others = [other for other in MODULES if other != name]
            orders[f"{name} first"] = [name, *others]
            orders[f"{name} last"] = [*reversed(others), name]
    return orders


def dump_program(build: Build, first: str, second: str, *flags: str, arrange=lambda objects: objects, link: tuple = (), **options) -> str:
    """What a program of three objects prints: its main, and two dumps by two orders of imports."""
    orders = import_orders()
    objects = build.compile_all((HERE / "dump_main.cpp", *flags), (with_imports(orders[first]), "-DDUMP=dump_one", *flags),
                                (with_imports(orders[second]), "-DDUMP=dump_two", *flags))
    return output_of(build.link("dump", arrange(objects), *link, **options))


@cache
def reference() -> str:
    return dump_program(MAIN, *DEFAULT_PAIR)


def filled_cells(dump: str) -> dict[str, int]:
    """How many cells of each backend have a handler."""
    counts = dict.fromkeys(BACKENDS, 0)
    for line in dump.split("---")[0].splitlines():
        if " missing" not in line:
            counts[line.split(".")[0]] += 1
    return counts


def row_dump() -> Iterator[Check]:
    """The reference itself: every cell there is, no name that finds another handler, a kernel for each that has a code generator."""

    def whole() -> None:
        dump = reference()
        coverage = json.loads(output_of(MAIN.folder / "muster", "coverage", "--format", "json"))
        if "OTHERWISE" in dump:
            raise Failed("a name finds another handler than the id")
        if dump.count("@triton.jit") < 6 or "muster_kernel" not in dump:
            raise Failed("kernels are missing")
        told = {f"{backend}.{entry['operation']} {origin}" for entry in coverage for backend, origin in entry["backends"].items()}
        written = {" ".join(line.split()[:2]) for line in dump.split("---")[0].splitlines()}
        if told != written:
            raise Failed(f"the tool's coverage differs: {sorted(told ^ written)[:4]}")

    yield attempt("dump/whole", whole)
    for name, order in {"forward": MODULES, "reverse": tuple(reversed(MODULES))}.items():
        source = with_imports(order, "backends.cpp")
        yield attempt(f"dump/tables, imports {name}", lambda: output_of(MAIN.link("backends", [MAIN.compile(source)])))


def same_dump(name: str, build: Build, *args, **options) -> Check:
    return attempt(name, lambda: expect_equal(dump_program(build, *args, **options), reference(), "the dump"))


def row_order() -> Iterator[Check]:
    """Orders of imports, orders of objects."""
    orders = list(import_orders())
    for first, second in zip(orders, orders[1:] + orders[:1]) if EVERYTHING else [DEFAULT_PAIR, OTHER_PAIR]:
        yield same_dump(f"order/imports: {first}, then {second}", MAIN, first, second)
    arrangements = list(itertools.permutations(range(3)))
    for order in arrangements if EVERYTHING else arrangements[1::3]:
        name = f"order/objects {''.join(map(str, order))}"
        yield same_dump(name, MAIN, *OTHER_PAIR, arrange=lambda objects: [objects[i] for i in order])
    yield same_dump("order/library ahead of the objects", MAIN, *OTHER_PAIR, arrange=lambda objects: [MAIN.library, *objects])


def row_link() -> Iterator[Check]:
    """Ways of compiling and linking."""
    shared = {"library": [MAIN.shared_library()], "link": (f"-Wl,-rpath,{MAIN.shared_library().parent}",)}
    reverse = list(reversed(MAIN.library_objects()))
    sections = ("-O0", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-ffunction-sections", "-fdata-sections")
    collect = ("-Wl,--gc-sections",)
    for name, flags in {"-O3": (), "-O0, hidden, sections": sections, "ThinLTO": (TOOLS.thin_lto,)}.items():
        for linker in dict.fromkeys((TOOLS.linker, "bfd")) if name != "ThinLTO" else (TOOLS.linker,):
            yield same_dump(f"link/{name}, static, {linker}, --gc-sections", MAIN, *DEFAULT_PAIR, *flags, link=collect, linker=linker)
        yield same_dump(f"link/{name}, objects", MAIN, *DEFAULT_PAIR, *flags, library=MAIN.library_objects())
        yield same_dump(f"link/{name}, shared", MAIN, *DEFAULT_PAIR, *flags, **shared)
        if EVERYTHING:
            yield same_dump(f"link/{name}, objects in reverse", MAIN, *DEFAULT_PAIR, *flags, library=reverse)
            fixed = {"library": shared["library"], "link": ("-no-pie", *shared["link"])}
            yield same_dump(f"link/{name}, no PIE, shared", MAIN, *DEFAULT_PAIR, "-fno-pie", *flags, **fixed)
    yield attempt("link/through a library that mentions only a lookup", lambda: check_lookup_library(MAIN))
    if EVERYTHING:
        for name, build in other_builds().items():
            if name == "tsan":
                continue
            for flags in ((), ("-ffunction-sections", "-fvisibility=hidden")):
                yield same_dump(f"link/whole build {name} {' '.join(flags)}", build, *DEFAULT_PAIR, *flags, link=collect)
            yield attempt(f"link/whole build {name}, through a library that mentions only a lookup", lambda: check_lookup_library(build))


def check_lookup_library(build: Build) -> None:
    cells = [line for line in reference().split("---")[0].splitlines()]
    names = [" ".join(line.split()[0].split(".", 1)) for line in cells]
    expected = "".join(f"{name}\n" for name, line in zip(names, cells) if " missing" not in line)
    library = fresh("libconsumer.a")
    output_of(TOOLS.archiver if "-flto=thin" in build.link_flags else "ar", "rcs", library, build.compile(HERE / "lookup.cpp"))
    program = build.link("lookup", [build.compile(HERE / "lookup_main.cpp"), library])
    expect_equal(output_of(program, stdin="\n".join(names)), expected, "what is found")


@cache
def other_builds() -> dict[str, Build]:
    """The library built in other ways, in folders beside the main build."""
    options = {
        "O0": ["-Dbuildtype=debug", "-Doptimization=0", "-Dcpp_args=-ffunction-sections -fdata-sections"],
        "shared": ["-Ddefault_library=shared"],
        "thinlto": ["-Db_lto=true", "-Db_lto_mode=thin"],
        "tsan": ["-Db_sanitize=thread", "-Db_lundef=false", "-Dbuildtype=debugoptimized"],
    }
    builds = {}
    for name, extra in options.items():
        print(f"building {name}", flush=True)
        builds[name] = Build(built(f"hazards-{name}", "test/consumer", *extra))
    return builds


def built(name: str, target: str, *options: str) -> Path:
    folder = MAIN.folder / name
    if not (folder / "build.ninja").is_file():
        configure(folder, "-Dbuildtype=release", "-Dtests=true", *options)
    output_of("ninja", f"-j{JOBS}", "-C", folder, target)
    return folder


def configure(folder: Path, *options: str) -> None:
    tools = TOOLS.environment() | ({"AR": TOOLS.archiver} if "-Db_lto=true" in options else {})
    output_of(sys.executable, "-m", "mesonbuild.mesonmain", "setup", folder, ROOT, *options, env=tools)


# --- 2. before main, after main, in a signal handler, in a child ----------------------------------------------------------------


def row_lifetime() -> Iterator[Check]:
    """Lookups and code generation before main, after it, in a signal handler (lookups), in forked children."""
    ways = {"static": {}, "shared": {"library": [MAIN.shared_library()]}}
    for (way, options), early_first in itertools.product(ways.items(), (True, False)):

        def check() -> None:
            early, main, dump = MAIN.compile_all((HERE / "early.cpp",), (HERE / "lifetime.cpp",), (HERE / "dump.cpp",))
            objects = [early, dump, main] if early_first else [main, dump, early]
            link = [f"-Wl,-rpath,{options['library'][0].parent}"] if options else []
            report = output_of(MAIN.link("lifetime", objects, *link, **options)).splitlines()
            if wrong := [line for line in report if not line.endswith(": same")]:
                raise Failed("; ".join(wrong))
            if len(report) != 10:
                raise Failed(f"{len(report)} reports, not 10: {report}")

        yield attempt(f"lifetime/{way}, initialisers linked {'first' if early_first else 'last'}", check)


# --- 3. threads -----------------------------------------------------------------------------------------------------------------


def row_threads() -> Iterator[Check]:
    """64 threads' first lookups and code generations; no allocation, no lock, no guard, no initialiser."""

    def run(build: Build, *flags: str) -> None:
        objects = build.compile_all((HERE / "threads.cpp", *flags), (HERE / "dump.cpp",))
        program = build.link("threads", objects)
        for _ in range(20 if EVERYTHING else 3):
            expect_equal(output_of(program), reference(), "what the threads found")

    yield attempt("threads/first lookups and generations", lambda: run(MAIN))
    if EVERYTHING:
        yield attempt("threads/under TSan", lambda: run(other_builds()["tsan"], "-DUNDER_TSAN"))
    yield attempt("threads/a lookup needs nothing", check_lookup_object)
    project_check = (sys.executable, ROOT / "test/project/check.py", MAIN.folder, "no_static_initialiser")
    yield attempt("threads/no initialiser", lambda: output_of(*project_check))


def check_lookup_object() -> None:
    """What the object of a lookup refers to: the table, and perhaps a comparison of bytes."""
    needed = output_of("nm", "-uj", "--demangle", MAIN.compile(HERE / "lookup.cpp")).splitlines()
    table = r"muster::library_was_built_from_other_interfaces_or_backends\S*<\d+ul>::table"
    allowed = rf"{table}|initializer for module muster\.\w+|strlen|bcmp|memcmp|_GLOBAL_OFFSET_TABLE_"
    if other := [name for name in map(str.strip, needed) if not re.fullmatch(allowed, name)]:
        raise Failed(f"it refers to {other}")
    if not any("::table" in name for name in needed):
        raise Failed(f"no table among {needed}")


# --- 4. plugins -----------------------------------------------------------------------------------------------------------------


def row_plugins() -> Iterator[Check]:
    """One plugin under two names with RTLD_LOCAL and once with RTLD_GLOBAL; exceptions; unloading in several orders."""
    # Bound to itself, each copy is on its own. Otherwise the loader binds later copies to the global one, and keeps that for them.
    ways = {"hidden, bound to itself": ("gone", "-fvisibility=hidden", "-Wl,-Bsymbolic"), "default": ("kept", "-fvisibility=default")}
    for way, (unloading, visibility, *link) in ways.items():

        def plugins() -> tuple[Path, list[Path]]:
            flags = ("-fPIC", visibility)
            plugin, dump, host = MAIN.compile_all((HERE / "plugin.cpp", *flags), (HERE / "dump.cpp", *flags), (HERE / "host.cpp",))
            first = MAIN.link("plugin-one.so", [plugin, dump], "-shared", *link)
            copies = [first.with_name(f"plugin-{name}.so") for name in ("two", "three")]
            for copy in copies:
                shutil.copy(first, copy)
            return MAIN.link("host", [host], "-ldl"), [first, *copies]

        def check(order: tuple[int, ...]) -> None:
            host, files = plugins()
            arguments = [f"{flag}:{file}" for flag, file in zip(("l", "l", "g"), files)]
            expect_equal(output_of(host, unloading, *(arguments[i] for i in order)), reference(), "a plugin's dump")

        orders = list(itertools.permutations(range(3)))
        for order in orders if EVERYTHING else orders[::5]:
            names = ", ".join(("one", "two", "the global one")[i] for i in order)
            yield attempt(f"plugins/{way}: {names}", lambda: check(order))


# --- 5. circular dependence -------------------------------------------------------------------------------------------------------


def interface_flags(name: str, flags: list[str]) -> tuple[list[str], list[str]]:
    """The flags that a module's interface is compiled with, and those by which importers find it. GCC has one list of all modules,
    so these replace what `flags` has."""
    interface = fresh(name + TOOLS.interface_suffix)
    if TOOLS.is_clang:
        return ["-x", "c++-module", f"-fmodule-output={interface}"], [f"-fmodule-file={name}={interface}"]
    mappers = [flag.split("=", 1)[1] for flag in flags if flag.startswith("-fmodule-mapper=")]
    known = (MAIN.folder / (mappers[-1] if mappers else "modules.map")).read_text().splitlines()
    mapper = fresh("modules.map")
    mapper.write_text("\n".join([*(line for line in known if line.split()[0] != name), f"{name} {interface}", ""]))
    return ["-x", "c++", f"-fmodule-mapper={mapper}"], [f"-fmodule-mapper={mapper}"]


def row_circular() -> Iterator[Check]:
    """Backends whose handlers call each other's through the registry that imports both; handlers that throw."""

    def check(*flags: str) -> None:
        folder = HERE / "circular"
        mapped = list(flags)
        objects = []
        for name in ("operations", "left", "right", "registry"):
            made, found = interface_flags(f"hazard.{name}", mapped)
            objects.append(MAIN.compile(folder / f"{name}.cppm", *mapped, *made))
            mapped += found
        objects += MAIN.compile_all(*((folder / f"{name}.cpp", *mapped) for name in ("left", "right", "main")))
        for order in (objects, list(reversed(objects))):
            output_of(MAIN.link("circular", order))

    for level in ("-O0", "-O3"):
        yield attempt(f"circular/{level}", lambda: check(level))


# --- 6. composition ---------------------------------------------------------------------------------------------------------------


def row_composition() -> Iterator[Check]:
    """Backends from several translation units; a user's operation and handler; backends left out of the build."""

    def parts(*flags: str) -> None:
        objects = MAIN.compile_all(*((HERE / "parts" / name, *flags) for name in ("main.cpp", "memory.cpp", "reductions.cpp")))
        for order in itertools.permutations(objects):
            output_of(MAIN.link("parts", list(order)))

    yield attempt("composition/two backends from several translation units", parts)
    yield attempt("composition/the same at -O0", lambda: parts("-O0"))
    extend = lambda: output_of(MAIN.link("extend", [MAIN.compile(HERE / "extend.cpp")]))  # noqa: E731
    yield attempt("composition/an operation added, a handler replaced", extend)
    yield attempt("composition/two extensions collide", check_collision)
    yield from backend_subsets()


def check_collision() -> None:
    """The compiler's words for two extensions that add the same: both are named. test/compile_fail has the exact errors."""
    names = ("two_extensions_one_operation", "two_extensions_one_id", "two_extensions_one_handler")
    for name in names:
        status, output = status_of(MAIN.compiler, *MAIN.flags, "-fsyntax-only", ROOT / f"test/compile_fail/{name}.cpp", cwd=MAIN.folder)
        # GCC names them on a line below the error.
        error = next((line for line in output.splitlines() if ("error:" if TOOLS.is_clang else "evaluates to false") in line), "no error")
        error = re.sub(r"@muster[\w.]*", "", error)
        if status == 0 or not re.search(r"<one::(entries|rows), two::(entries|rows), ", error):
            raise Failed(f"{name}: {error}")


def backend_subsets() -> Iterator[Check]:
    """`-Dbackends=…`: what is left out is not compiled, and is told apart from what is unknown."""
    subsets = [("triton", "tileir")]
    if EVERYTHING:
        every = [chosen for n in range(len(BACKENDS) + 1) for chosen in itertools.combinations(BACKENDS, n)]
        subsets = [chosen for chosen in every if "tileir" not in chosen or "triton" in chosen]

    def check(subset: tuple[str, ...]) -> Check:
        return attempt(f"composition/-Dbackends={','.join(subset)}", lambda: check_subset(subset))

    yield from in_parallel([lambda s=subset: check(s) for subset in subsets])

    def refused() -> None:
        setup = (sys.executable, "-m", "mesonbuild.mesonmain", "setup", fresh("build"), ROOT, "-Dbackends=tileir")
        status, output = status_of(*setup, env=TOOLS.environment())
        if status == 0 or "backend 'tileir' inherits from 'triton', which -Dbackends leaves out" not in output:
            raise Failed(output[-500:])

    yield attempt("composition/-Dbackends=tileir is refused", refused)
    if EVERYTHING:
        yield attempt("composition/a whole build with -Dbackends=cpu", check_cpu_build)


def check_subset(chosen: tuple[str, ...]) -> None:
    folder = fresh("build")
    configure(folder, f"-Dbackends={','.join(chosen)}", "-Dtests=false")
    compiled = (folder / "compile_commands.json").read_text()
    if stray := [name for name in BACKENDS if name not in chosen and f"backend/{name}" in compiled]:
        raise Failed(f"compiles {stray}")
    # The rest of the library is the main build's; the archive's own composition is not taken, since this one is there first.
    composition = MAIN.compile(folder / "builtin.cpp", base=MAIN.flags_of(MAIN.folder / "builtin.cpp"))
    listed = "', '".join(chosen)
    expected = ""
    for name in BACKENDS:
        built_line = f"{name}: built, number {chosen.index(name)}\n" if name in chosen else ""
        expected += built_line or f"not built: Backend '{name}' was left out of this build. Built backends: ['{listed}']\n"
    expected += f"unknown: Unknown backend: 'vulkan'. Available backends: ['{listed}']\n"
    counts = filled_cells(reference())
    expected += f"{len(chosen)} backends, {sum(counts[name] for name in chosen)} cells filled\n"
    expect_equal(output_of(MAIN.link("not_built", [MAIN.compile(HERE / "not_built.cpp"), composition])), expected, "what the backends say")


def check_cpu_build() -> None:
    folder = built("hazards-cpu", "muster", "-Dbackends=cpu")
    tool = folder / "muster"
    if names := [name for name in BACKENDS if name in output_of(tool, "backends") and name != "cpu"]:
        raise Failed(f"it has {names}")
    status, output = status_of(tool, "codegen", ROOT / "test/documents/add.txt", "--backend", "triton")
    if status != 1 or "Backend 'triton' was left out of this build. Built backends: ['cpu']" not in output:
        raise Failed(f"status {status}: {output}")
    output_of(tool, "codegen", ROOT / "test/documents/add.txt", "--backend", "cpu")


# --- 7. another version -----------------------------------------------------------------------------------------------------------

REFUSAL = r"library_was_built_from_other_interfaces"


def changed_interfaces(change: str) -> list[str]:
    """Module flags under which a program sees interfaces of another version."""
    edits = {
        "an operation inserted": (
            "operations", "  X(get_symnode,", '  X(inserted, "inserted", "helion_inserted", "", symbol) \\\n  X(get_symnode,'),
        "another version": ("operations", 'library_version = "', 'library_version = "9.'),
        "a backend added": ("builtin", '{"triton", ', '{"added", "triton", '),
    }
    module, old, new = edits[change]
    flags: list[str] = []
    for name in ("operations", "codegen", "builtin") if module == "operations" else ("builtin",):
        source = ROOT / f"modules/{name}.cppm"
        text = source.read_text()
        if name == module:
            if text.count(old) != 1:
                raise Failed(f"{source}: {text.count(old)} times {old!r}")
            text = text.replace(old, new)
        copy = fresh(f"{name}.cppm")
        copy.write_text(text)
        made, found = interface_flags(f"muster.{name}", flags)
        output_of(MAIN.compiler, *MAIN.flags_of(source), *flags, *made, "-c", copy, "-o", fresh("unit.o"), cwd=MAIN.folder)
        flags += found
    return flags


def row_version() -> Iterator[Check]:
    """A program that was compiled against another version's interfaces is refused when it is linked or loaded."""
    uses = {1: "lookup", 2: "generator", 3: "operation names", 4: "built-in generator"}
    affected = {"an operation inserted": (1, 2, 3, 4), "a backend added": (1, 4), "another version": (1, 2, 3, 4)}
    if not EVERYTHING:
        affected = {"an operation inserted": (1, 2), "a backend added": (1,)}
    for use in uses if EVERYTHING else (1, 2):
        yield attempt(f"version/the same, {uses[use]}", lambda: output_of(MAIN.link("skew", [skewed(use, [])])))
    for change, affected_uses in affected.items():
        flags: list[str] = []
        yield attempt(f"version/{change}: interfaces compile", lambda: flags.extend(changed_interfaces(change)))
        for use in affected_uses:
            yield attempt(f"version/{change}, {uses[use]}: not linked", lambda: check_not_linked(use, flags))
            if EVERYTHING or use == 1:
                yield attempt(f"version/{change}, {uses[use]}: not loaded", lambda: check_not_loaded(use, flags))


def skewed(use: int, flags: list[str], *more: str) -> Path:
    return MAIN.compile(HERE / "skew.cpp", f"-DUSE={use}", *flags, *more)


def check_not_linked(use: int, flags: list[str]) -> None:
    for linker in dict.fromkeys((TOOLS.linker, "bfd")):
        try:
            MAIN.link("skew", [skewed(use, flags)], linker=linker)
        except Failed as failure:
            if not re.search(rf"undefined (symbol|reference).*{REFUSAL}", str(failure)):
                raise
        else:
            raise Failed(f"{linker} links it")


def check_not_loaded(use: int, flags: list[str]) -> None:
    """The program meets its own version when it is linked, and ours when it is loaded; a plugin meets ours. Use 3 is of a function alone,
    which a lazy loader looks for at its first call: that call ends the program, with the same message."""
    missing = [name for name in output_of("nm", "-uj", skewed(use, flags)).split() if "6muster" in name]
    source = fresh("theirs.s")
    objects = [f".globl {name}\n.type {name}, @object\n.size {name}, 256\n{name}: .zero 256\n" for name in missing]
    source.write_text(".data\n" + "".join(objects))
    theirs = fresh("libmuster.so")
    output_of(MAIN.compiler, "-shared", "-o", theirs, source, "-Wl,-soname,libmuster.so")
    ours = MAIN.shared_library()
    program = MAIN.link("skew", [skewed(use, flags)], f"-Wl,-rpath,{ours.parent}", library=[theirs])
    status, output = status_of(program)
    if status == 0 or not re.search(rf"undefined symbol: \S*{REFUSAL}", output):
        raise Failed(f"the program: status {status}: {output}")
    plugin = MAIN.link("skew.so", [skewed(use, flags, "-fPIC")], "-shared", f"-Wl,-rpath,{ours.parent}", library=[ours])
    try:
        ctypes.CDLL(str(plugin), mode=os.RTLD_NOW if use == 3 else os.RTLD_LAZY)
    except OSError as error:
        if not re.search(rf"undefined symbol: \S*{REFUSAL}", str(error)):
            raise Failed(f"the plugin: {error}") from None
    else:
        raise Failed("the plugin is loaded")


# --- documents --------------------------------------------------------------------------------------------------------------------


def generated(document: str, backend: str, *edits: tuple[str, str]) -> tuple[int, str]:
    text = (ROOT / "test/documents" / document).read_text()
    for old, new in edits:
        if old not in text:
            raise Failed(f"{document} has no {old!r}")
        text = text.replace(old, new)
    return status_of(MAIN.folder / "muster", "codegen", "-", "--backend", backend, stdin=text)


def row_documents() -> Iterator[Check]:
    """What a document can do to a dispatcher: other counts of indices, loops without a barrier, element types without an atomic."""
    call = "for_loop(0, [0], [80], [acc])"
    refused = {
        "three begins for one block": (
            "matmul.txt", [(call, "for_loop(0, [0, 0, 0], [80], [acc])")], "'_for_loop' has 3 begins and 1 end for the 1 block"),
        "one begin for two blocks": (
            "matmul.txt", [("for_loop_0 blocks [2]", "for_loop_0 blocks [2, 1]")], "'_for_loop' has 1 begin and 1 end for the 2 blocks"),
        "three arguments for one parameter": (
            "matmul.txt", [(call, "for_loop(0, [0], [80], [acc, acc, acc])")], "passes 3 values to graph 'for_loop_0', which has 1"),
        "a block twice in a grid": ("matmul.txt", [("blocks [0, 1]", "blocks [0, 0]")], "'root_graph_1' iterates over block 0 twice"),
        "a block in two grids": (
            "phases.txt", [("root_graph_1 blocks [1]", "root_graph_1 blocks [0]")], "block 0 is in the grids of both 'root_graph_0' and"),
        "read beside the loop that writes": (
            "phases.txt", [("phase 1", "phase 0")], "'squares' is written by 'root_graph_0' and read by 'root_graph_1'"),
        "written by two loops side by side": (
            "phases.txt",
            [("phase 1", "phase 0"), ("tensor('squares')\n    load", "tensor('x')\n    load"), ("tensor('out')", "tensor('squares')")],
            "'squares' is written by 'root_graph_0' and written by 'root_graph_1'"),
    }

    def check(document: str, edits: list, message: str) -> None:
        for backend in BACKENDS:
            status, output = generated(document, backend, *edits)
            if status != 1 or message not in output:
                raise Failed(f"{backend}: status {status}: {output[-300:]}")

    for name, arguments in refused.items():
        yield attempt(f"documents/{name}", lambda: check(*arguments))

    def check_atomics() -> None:
        for backend, element in itertools.product(BACKENDS, ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "b8")):
            status, output = generated("atomics.txt", backend, ("counts i32", f"counts {element}"), ('counts: "i32', f'counts: "{element}'))
            written = status == 0 and re.search(r"atomic_add|fetch_add|atomic_ref|compare_exchange", output)
            missing = status == 3 and "missing required implementation: codegen for API function" in output
            unsupported = status == 1 and re.search(r"does not support this use of (atomic_add|load|full)", output)
            if not (written or missing or unsupported):
                raise Failed(f"{backend}, {element}: status {status}: {output[-300:]}")

    yield attempt("documents/atomic_add on every element type", check_atomics)


# --- the comparison ---------------------------------------------------------------------------------------------------------------

COMPARE = HERE / "compare"
MUSTER, USUAL = "composed", "self_registering"


def pieces(kind: str, *flags: str) -> list[Path]:
    """Both backends and the registry, as objects."""
    flags = (*flags, "-DCOMPOSED") if kind == MUSTER else flags
    return MAIN.compile_all(*((COMPARE / f"{name}.cpp", "-fPIC", *flags) for name in ("triton", "cpu", kind)))


def piece(kind: str, name: str, *flags: str) -> Path:
    return MAIN.compile(COMPARE / f"{name}.cpp", "-fPIC", *flags, *(["-DCOMPOSED"] if kind == MUSTER else []))


def counted(word: str, output: str) -> str:
    """`N of 12`, as the line that begins with the word has it."""
    found = re.search(rf"^{word} (\d+)(?: (\d+))?$", output, re.MULTILINE)
    if found is None:
        raise Failed(f"no line '{word} N' in {output!r}")
    return f"{found[1]} of 12" + (f", {found[2]} wrong" if found[2] not in (None, "0") else "")


def linked_as_objects(kind: str, *flags: str, link: tuple = ()) -> str:
    return counted("main", output_of(MAIN.link("main", [piece(kind, "main", *flags), *pieces(kind, *flags)], *link)))


def linked_from_archive(kind: str) -> str:
    archive = fresh("libbackends.a")
    output_of("ar", "rcs", archive, *pieces(kind))
    return counted("main", output_of(MAIN.link("main", [piece(kind, "main"), archive])))


def shared_libraries(kind: str, folder: Path) -> list[Path]:
    """The registry and each backend as a shared library. The composed registry refers to the backends, the others to the registry."""
    triton, cpu, registry = pieces(kind)

    def library(name: str, *objects: Path) -> Path:
        target = folder / f"lib{name}.so"
        output_of(MAIN.compiler, "-shared", "-o", target, *objects, f"-Wl,-rpath,{folder}", f"-Wl,-soname,lib{name}.so",
                  f"-fuse-ld={TOOLS.linker}", *([MAIN.library, *MAIN.others] if registry in objects else []), cwd=MAIN.folder)
        return target

    if kind == MUSTER:
        backends = [library("triton", triton), library("cpu", cpu)]
        return [library("registry", registry, *backends), *backends]
    base = library("registry", registry)
    return [base, library("triton", triton, base), library("cpu", cpu, base)]


def linked_shared(kind: str) -> str:
    folder = fresh("").resolve()
    libraries = shared_libraries(kind, folder)
    return counted("main", output_of(MAIN.link("main", [piece(kind, "main")], "-Wl,--as-needed", *libraries, f"-Wl,-rpath,{folder}")))


def asked(word: str, first: bool, kind: str) -> str:
    """Before main or after it, by an object that is linked ahead of all others or behind them, under the address sanitizer."""
    sanitizer = "-fsanitize=address"
    early = piece(kind, "early", sanitizer, *(["-DONLY_AFTER"] if word == "after" else []))
    rest = [piece(kind, "main", sanitizer), *pieces(kind, sanitizer)]
    program = MAIN.link("early", [early, *rest] if first else [*rest, early], sanitizer)
    _, output = status_of(program, env={"ASAN_OPTIONS": "detect_leaks=0"})
    answered = re.search(rf"^{word} ", output, re.MULTILINE)
    return "use after free" if "heap-use-after-free" in output and not answered else counted(word, output)


def in_threads(kind: str) -> str:
    folder = fresh("").resolve()
    registry, *backends = shared_libraries(kind, folder)
    program = MAIN.link("threads", [piece(kind, "threads")], registry, f"-Wl,-rpath,{folder}")
    complete = int(counted("threads", output_of(program, *([] if kind == MUSTER else backends))).split()[0])
    return "12 of 12 in each" if complete == 64 else "none in some" if complete > 0 else "none in all"


def after_unloading(kind: str) -> str:
    """Two copies of a plugin, of which one is unloaded. Where handlers register, they do it in the host's registry."""
    folder = fresh("").resolve()
    triton, cpu, registry = pieces(kind)
    shared = shared_libraries(kind, folder)[0]
    plugin = piece(kind, "plugin")
    inside = [plugin, triton, cpu, registry] if kind == MUSTER else [plugin, triton, cpu]
    one = MAIN.link("one.so", inside, "-shared", f"-Wl,-rpath,{folder}", library=[MAIN.library] if kind == MUSTER else [shared])
    two = shutil.copy(one, one.with_name("two.so"))
    status, output = status_of(MAIN.link("host", [MAIN.compile(COMPARE / "host.cpp")]), one, two)
    if counted("both", output) != "12 of 12":
        raise Failed(output)
    return "crash" if status == 128 + signal.SIGSEGV else counted("one", output)


def with_newer_library(kind: str) -> str:
    """An operation was inserted; the program is not compiled again."""
    try:
        return counted("main", output_of(MAIN.link("main", [piece(kind, "main"), *pieces(kind, "-DNEWER_VERSION")])))
    except Failed as failure:
        if not re.search(r"undefined (symbol|reference).*library_has_other_operations", str(failure)):
            raise
        return "not linked"


SITUATIONS = {
    "linked as objects": linked_as_objects,
    "the same with `-flto=thin` and `--gc-sections`": lambda kind: linked_as_objects(
        kind, TOOLS.thin_lto, "-ffunction-sections", link=(TOOLS.thin_lto, "-Wl,--gc-sections")),
    "static library; the program mentions only the lookup": linked_from_archive,
    "shared libraries, `--as-needed`": linked_shared,
    "asked before `main`, by an object linked last": lambda kind: asked("before", False, kind),
    "asked before `main`, by an object linked first": lambda kind: asked("before", True, kind),
    "asked after `main`, by an object linked first": lambda kind: asked("after", True, kind),
    "64 threads, the first of which loads the backends": in_threads,
    "plugin loaded under two names, one unloaded": after_unloading,
    "an operation inserted, the program not compiled again": with_newer_library,
}
RIGHT = {"64 threads, the first of which loads the backends": "12 of 12 in each",
         "an operation inserted, the program not compiled again": "not linked"}


@cache
def comparison() -> str:
    found = in_parallel([lambda s=situation, k=kind: s(k) for situation in SITUATIONS.values() for kind in (MUSTER, USUAL)])
    rows = [f"| {name} | {found[2 * i]} | {found[2 * i + 1]} |" for i, name in enumerate(SITUATIONS)]
    return "\n".join(["| handlers found | muster | self-registering |", "|---|---|---|", *rows])


def readme_section() -> re.Match[str]:
    section = re.search(r"<!-- hazards:begin -->\n(.*?)\n<!-- hazards:end -->", (ROOT / "README.md").read_text(), re.DOTALL)
    if section is None:
        raise Failed("README.md has no section between <!-- hazards:begin --> and <!-- hazards:end -->")
    return section


def row_comparison() -> Iterator[Check]:
    """The same twelve handlers in muster's registry and in the usual kind, side by side."""
    for line in comparison().splitlines()[2:]:
        name, ours, _ = (cell.strip() for cell in line.strip("|").split("|"))
        expected = RIGHT.get(name, "12 of 12")
        yield f"comparison/{name}", None if ours == expected else f"muster: {ours}, not {expected}"
    print(comparison())
    hint = "README.md (run.py BUILD --update-readme mends it)"
    yield attempt("comparison/README", lambda: expect_equal(readme_section()[1], comparison(), hint))


def update_readme() -> None:
    text = (ROOT / "README.md").read_text()
    begin, end = readme_section().span(1)
    (ROOT / "README.md").write_text(text[:begin] + comparison() + text[end:])


# --- running them -----------------------------------------------------------------------------------------------------------------


def main() -> int:
    if "--update-readme" in sys.argv:
        update_readme()
        return 0
    rows = {name.removeprefix("row_"): row for name, row in globals().items() if name.startswith("row_")}
    wanted = [word for word in sys.argv[2:] if not word.startswith("--")] or list(rows)
    passed = failed = 0
    for row in wanted:
        started = time.monotonic()
        try:
            for name, reason in rows[row]():
                print(f"passed {name}" if reason is None else f"failed {name} {reason}", flush=True)
                passed, failed = passed + (reason is None), failed + (reason is not None)
        except Exception as error:  # a row that breaks is a row that fails
            print(f"failed {row} {type(error).__name__}: {error}", flush=True)
            failed += 1
        print(f"{row}: {time.monotonic() - started:.0f} s", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    TOOLS = Toolchain(Path(sys.argv[1]))
    MAIN = Build(Path(sys.argv[1]))
    sys.exit(main())
