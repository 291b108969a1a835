"""Builds and runs projects that use an installed muster, from a prefix that was moved after the installation.

usage: run.py BUILD [--all]     BUILD is a finished build folder; a line a consumer, last line: N passed, N failed[, N skipped]

What README.md tells other projects to write is what these projects consist of. Without --all a selection that takes a minute.
"""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test"))
from toolchain import Toolchain  # noqa: E402

BUILD = Path(sys.argv[1]).resolve()
TOOLS = Toolchain(BUILD)
ALL = "--all" in sys.argv[2:]
WORK = Path(tempfile.mkdtemp(prefix="muster-consumers-"))
CXX = TOOLS.compiler
# Built interfaces are in the folder, or in its gcm.cache.
IMPORTER_FLAGS = ["-fprebuilt-module-path=."] if TOOLS.is_clang else ["-fmodules"]
MESON = [sys.executable, "-m", "mesonbuild.mesonmain"]
DOCUMENT = ROOT / "test/documents/softmax.txt"
REGISTRY_MODULES = ("muster.error", "muster.registry")


class Failed(Exception):
    """What a consumer did that it should not."""


class Skipped(Exception):
    """Why a consumer could not be built here."""


@cache
def readme_block(language: str, name: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(rf"^```{language} {name}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if block is None:
        raise Failed(f"README.md has no block ```{language} {name}")
    return re.sub(r"clang\+\+-19|g\+\+-15", CXX, block.group(1))


def run(*command: object, cwd: Path, env: dict[str, str] | None = None, stdin: bytes = b"", status: int | None = 0) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=env, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode(errors="replace")
    if status is not None and done.returncode != status:
        raise Failed(f"{shlex.join(words)}: status {done.returncode}\n{output[-4000:]}")
    return output


def expect(condition: bool, reason: str) -> None:
    if not condition:
        raise Failed(reason)


@cache
def kernel() -> str:
    """The source that every consumer must print: the tool's."""
    return run(BUILD / "muster", "codegen", DOCUMENT, "--backend", "triton", cwd=WORK)


def project(name: str, **files: str) -> Path:
    """A new folder with these files; in their names, two underscores stand for a dot."""
    folder = WORK / name
    folder.mkdir()
    for file, content in files.items():
        (folder / file.replace("__", ".")).write_text(content, encoding="utf-8")
    return folder


# --- the installed prefix -----------------------------------------------------------------------------------------------------


class Prefix:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.libraries = next(folder.glob("**/libmuster_c.so")).parent
        self.environment = os.environ | {
            "CXX": CXX,
            "PKG_CONFIG_PATH": str(self.libraries / "pkgconfig"),
            "LD_LIBRARY_PATH": str(self.libraries),
            "LC_ALL": "C.UTF-8",
        }

    def run(self, *command: object, cwd: Path, **options: object) -> str:
        return run(*command, cwd=cwd, env=self.environment, **options)

    def config(self, *arguments: str) -> list[str]:
        return shlex.split(self.run("pkg-config", *arguments, cwd=WORK))

    def expect_kernel(self, program: Path) -> None:
        expect(self.run(program, DOCUMENT, cwd=WORK) == kernel(), f"{program} printed another kernel than the tool")


def install(build: Path, name: str) -> Prefix:
    """Installs, moves the prefix, and leaves nothing where it was."""
    stage = WORK / f"stage-{name}"
    run(*MESON, "install", "-C", build, "--no-rebuild", "--destdir", stage, cwd=WORK)
    options = {option["name"]: option["value"] for option in json.loads(run(*MESON, "introspect", build, "--buildoptions", cwd=WORK))}
    moved = WORK / f"moved-{name}"
    shutil.move(stage / options["prefix"].lstrip("/"), moved)
    shutil.rmtree(stage)
    return Prefix(moved)


@cache
def static() -> Prefix:
    return install(BUILD, "static")


@cache
def shared() -> Prefix:
    build = WORK / "build-shared"
    environment = os.environ | {"CXX": CXX}
    run(*MESON, "setup", build, ROOT, "-Ddefault_library=shared", "-Dtests=false", "-Dbuildtype=release", cwd=WORK, env=environment)
    run("ninja", "-C", build, cwd=WORK)
    return install(build, "shared")


# --- the compiler alone -------------------------------------------------------------------------------------------------------


class Interfaces:
    """The built interfaces for one set of flags, in a folder of their own."""

    def __init__(self, prefix: Prefix, name: str, flags: str, modules: tuple[str, ...] = (), backends: bool = False) -> None:
        self.prefix = prefix
        self.folder = project(name)
        self.flags = [*flags.split(), *prefix.config("--cflags", "muster"), "-Wall", "-Wextra", "-Werror", *IMPORTER_FLAGS]
        sources = Path(prefix.config("--variable=modulesdir", "muster")[0])
        units = prefix.config("--variable=modules", "muster") + (prefix.config("--variable=backend_modules", "muster") if backends else [])
        for module, file in (unit.split("=") for unit in units):
            if not modules or module in modules:
                if TOOLS.is_clang:
                    self.compile("-x", "c++-module", "--precompile", sources / file, "-o", f"{module}.pcm")
                else:
                    self.compile("-fmodule-only", "-x", "c++", "-c", sources / file)

    def compile(self, *arguments: object, **options: object) -> str:
        return self.prefix.run(CXX, *self.flags, *arguments, cwd=self.folder, **options)

    def program(self, name: str, source: str, *arguments: object) -> Path:
        (self.folder / f"{name}.cpp").write_text(source, encoding="utf-8")
        self.compile(*arguments, f"{name}.cpp", "-o", name, *self.prefix.config("--libs", "--static", "muster"))
        return self.folder / name


def prefix_contents() -> None:
    """What is installed names no folder of the build, and what it names is there."""
    prefix = static()
    for file in prefix.folder.glob("**/*"):
        if file.suffix in (".pc", ".cmake", ".json", ".h", ".cppm"):
            text = file.read_text(encoding="utf-8")
            for place in (BUILD, ROOT, WORK, "/usr/local"):
                expect(str(place) not in text, f"{file.name} names {place}")
    metadata = json.loads((prefix.libraries / "libmuster.modules.json").read_text())
    expect(metadata["version"] == 1 and len(metadata["modules"]) > 10, "libmuster.modules.json")
    for module in metadata["modules"]:
        source = prefix.libraries / module["source-path"]
        expect(f"export module {module['logical-name']};" in source.read_text(), f"{source} is not {module['logical-name']}")
    listed = prefix.config("--variable=modules", "muster") + prefix.config("--variable=backend_modules", "muster")
    expect(sorted(unit.split("=")[0] for unit in listed) == sorted(m["logical-name"] for m in metadata["modules"]), "two lists of modules")
    installed = run(prefix.folder / "bin/muster", "codegen", DOCUMENT, "--backend", "triton", cwd=WORK)
    expect(installed == kernel(), "the installed tool prints another kernel")


plain_lock = threading.Lock()


@cache
def plain_folder() -> Path:
    folder = project("plain", main__cpp=readme_block("cpp", "generate"))
    static().run("sh", "-euc", readme_block("sh", "installed") if TOOLS.is_clang else readme_block("sh", "gcc"), cwd=folder)
    return folder


def plain() -> None:
    """The README's lines for a compiler alone."""
    with plain_lock:
        static().expect_kernel(plain_folder() / "consumer")


def includes(place: str) -> Callable[[], None]:
    """Standard headers, doctest and GSL before the import, after it, or on both sides."""

    def build() -> None:
        headers = "".join(f"#include <{name}>\n" for name in ("algorithm", "iostream", "string", "vector", "doctest/doctest.h", "gsl/gsl"))
        body = """
TEST_CASE("an importer of muster") {
  std::vector<int> values{3, 1, 2};
  std::ranges::sort(values);
  const gsl::not_null<const int*> first = values.data();
  CHECK(*first == 1);
  CHECK_THROWS_AS((void)muster::builtin_registry().backend_named("x"), const muster::UnknownBackend&);
}
"""
        start = {"before": headers + "import muster;\n", "after": "import muster;\n" + headers,
                 "around": "#include <vector>\nimport muster;\n" + headers}[place]
        with plain_lock:
            folder = plain_folder()
        (folder / f"{place}.cpp").write_text("#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN\n" + start + body)
        links = static().config("--libs", "--static", "muster")
        static().run(CXX, "-std=c++20", "-pthread", *IMPORTER_FLAGS, f"{place}.cpp", "-o", place, *links, cwd=folder)
        static().run(folder / place, cwd=folder)

    return build


def refusals() -> None:
    """Clang refuses built interfaces of other flags, rather than miscompile."""
    if not TOOLS.is_clang:
        raise Skipped("what Clang refuses")
    with plain_lock:
        folder = plain_folder()
    (folder / "import.cpp").write_text("import muster;\n")
    command = [CXX, "-fprebuilt-module-path=.", "-fsyntax-only", "import.cpp", "-std=c++20"]
    refused = ("-std=gnu++20", "-std=c++23", "-fno-rtti", "-fno-exceptions", "-fstack-protector-strong", "-ffast-math")
    for flag in (*refused, "without -pthread"):
        flags = [] if flag == "without -pthread" else ["-pthread", flag]
        output = static().run(*command, *flags, cwd=folder, status=None)
        expect("configuration mismatch" in output, f"{flag} was not refused:\n{output}")
    for flag in ("-fPIC", "-O2", "-DNDEBUG", "-g", "-fsanitize=address", "-D_GLIBCXX_ASSERTIONS"):
        static().run(*command, "-pthread", flag, cwd=folder)


def with_flags(flags: str) -> Callable[[], None]:
    """A program that generates a kernel, interfaces and importer with these flags."""

    def build() -> None:
        interfaces = Interfaces(static(), "generate " + flags, flags)
        static().expect_kernel(interfaces.program("consumer", readme_block("cpp", "generate")))

    return build


def registry_with_flags(flags: str) -> Callable[[], None]:
    """A program that uses the registry alone."""

    def build() -> None:
        interfaces = Interfaces(static(), "registry " + flags, flags, modules=REGISTRY_MODULES)
        static().run(interfaces.program("consumer", readme_block("cpp", "registry")), cwd=WORK)

    return build


def composition() -> None:
    """A registry of single backends: the units that `backend_modules` lists."""
    source = """
#include <span>
#include <string_view>
import muster;
import muster.backend.common;
import muster.backend.triton;

int main() {
  const auto registry = muster::compose<muster::builtin_operations, muster::common_backend, muster::triton_backend>();
  return registry.backends().size() == 1 && registry.backends()[0].name == "triton" ? 0 : 1;
}
"""
    interfaces = Interfaces(static(), "composition", "-std=c++20", backends=True)
    static().run(interfaces.program("consumer", source), cwd=WORK)


def no_exceptions() -> None:
    """Without exceptions and RTTI: what does not fail works; what fails ends the program, in words."""
    interfaces = Interfaces(static(), "no exceptions", "-std=c++20 -fno-exceptions -fno-rtti")
    program = interfaces.program("consumer", readme_block("cpp", "generate"))
    static().expect_kernel(program)
    output = static().run(program, "/dev/null", cwd=WORK, status=-signal.SIGABRT)
    expect("terminate" in output and "DeviceIRError" in output, output)


def registry_without_exceptions() -> None:
    """The registry alone, where every question has an answer that is no exception."""
    source = readme_block("cpp", "registry")
    begin = source.index("int main() {")
    source = source[:begin] + '''int main() {
  return registry.find("metal", op::dot) == nullptr && registry.at("metal", op::load)(0) == "*pointer" ? 0 : 1;
}
'''
    interfaces = Interfaces(static(), "registry without exceptions", "-std=c++20 -fno-exceptions", modules=REGISTRY_MODULES)
    static().run(interfaces.program("consumer", source), cwd=WORK)


# --- build systems ------------------------------------------------------------------------------------------------------------


@cache
def cmake() -> str:
    beside = Path(sys.executable).parent / "cmake"
    for program in (str(beside), shutil.which("cmake")):
        if program and Path(program).exists():
            version = re.search(r"version (\d+)\.(\d+)", run(program, "--version", cwd=WORK))
            if version and (int(version[1]), int(version[2])) >= (3, 28):
                return program
    raise Skipped("no CMake 3.28 or newer, neither beside Python nor in PATH")


def cmake_build(prefix: Prefix, name: str, lists: str, *options: str, main: str | None = None, **files: str) -> Path:
    folder = project(name, CMakeLists__txt=lists, main__cpp=main or readme_block("cpp", "generate"), **files)
    prefix.run(cmake(), "-G", "Ninja", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix.folder}", *options, cwd=folder)
    prefix.run(cmake(), "--build", "build", cwd=folder)
    expect("no work to do" in prefix.run(cmake(), "--build", "build", cwd=folder), "a second build had work")
    return folder / "build"


def cmake_with(*options: str) -> Callable[[], None]:
    """The README's CMake project."""

    def build() -> None:
        folder = cmake_build(static(), " ".join(["cmake", *options]), readme_block("cmake", "installed"), *options)
        static().expect_kernel(folder / "consumer")

    return build


def cmake_prefix_with_blanks() -> None:
    """The README's CMake project, from a prefix whose name has blanks."""
    folder = WORK / "a prefix with blanks"
    shutil.copytree(static().folder, folder, symlinks=True)
    prefix = Prefix(folder)
    prefix.expect_kernel(cmake_build(prefix, "cmake of blanks", readme_block("cmake", "installed")) / "consumer")


def cmake_library() -> None:
    """A shared library of the consumer's own holds muster; its user needs to know nothing of modules."""
    lists = (
        readme_block("cmake", "installed")
        .replace("add_executable(consumer main.cpp)", "add_library(consumer SHARED main.cpp)")
        .replace("PRIVATE muster::muster)", "PRIVATE muster::muster)\nadd_executable(user user.cpp)\ntarget_link_libraries(user consumer)")
    )
    source = readme_block("cpp", "generate").replace("int main(", "int generate(int, char**);\nint generate(").replace(
        "std::cout << source;", "std::cout << source;\n  return 0;"
    )
    user = "int generate(int, char**);\nint main(int argc, char** argv) { return generate(argc, argv); }\n"
    static().expect_kernel(cmake_build(static(), "cmake library", lists, main=source, user__cpp=user) / "user")


def cmake_c() -> None:
    """The C interface through CMake, in a project of C alone."""
    lists = readme_block("cmake", "installed").replace("CXX", "C").replace("main.cpp", "main.c").replace("::muster)", "::muster_c)")
    folder = cmake_build(static(), "cmake c", lists, main__c=readme_block("c", "generate"))
    expect_two_kernels(static().run(folder / "consumer", cwd=WORK, stdin=DOCUMENT.read_bytes()))


def cmake_too_old() -> None:
    """An older CMake says what is needed."""
    old = shutil.which("cmake", path="/usr/bin")
    version = re.search(r"version 3\.(\d+)", run(old, "--version", cwd=WORK)) if old else None
    if version is None or int(version[1]) >= 28:
        raise Skipped("the system's CMake is not an older one")
    lists = readme_block("cmake", "installed").replace("VERSION 3.28", "VERSION 3.20")
    folder = project("cmake too old", CMakeLists__txt=lists, main__cpp="")
    command = [old, "-G", "Ninja", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={static().folder}"]
    output = static().run(*command, cwd=folder, status=1)
    expect("need CMake 3.28 or newer" in output, output)


def meson_installed() -> None:
    """The README's Meson project for an installed muster."""
    if not TOOLS.is_clang:
        raise Skipped("the README's lines for Meson are Clang's")
    folder = project("meson installed", meson__build=readme_block("meson", "installed"), main__cpp=readme_block("cpp", "generate"))
    static().run(*MESON, "setup", "build", cwd=folder)
    static().run("ninja", "-C", "build", cwd=folder)
    expect("no work to do" in static().run("ninja", "-C", "build", cwd=folder), "a second build had work")
    static().expect_kernel(folder / "build/consumer")


def meson_subproject() -> None:
    """The README's Meson project with muster as a subproject, in a language mode of its own."""
    lists = readme_block("meson", "subproject").replace("cpp_std=c++20", "cpp_std=gnu++20")
    folder = project("meson subproject", meson__build=lists, main__cpp=readme_block("cpp", "generate"))
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, names):
        target = folder / "subprojects/muster" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    static().run(*MESON, "setup", "build", "-Dmuster:cpp_std=gnu++20", cwd=folder)
    static().run("ninja", "-C", "build", "consumer", cwd=folder)
    static().expect_kernel(folder / "build/consumer")


# --- C and Python -------------------------------------------------------------------------------------------------------------


def expect_two_kernels(output: str) -> None:
    wanted = ""
    for number, warps in enumerate((4, 8), 1):
        config = f'{{"num_warps": {warps}}}'
        source = run(BUILD / "muster", "codegen", DOCUMENT, "--backend", "triton", "--config", config, cwd=WORK)
        wanted += f"# ---- config {number}\n{source}"
    expect(output == wanted, f"not the tool's two kernels:\n{output}")


def c() -> None:
    """The README's C program and its line for the compiler."""
    folder = project("c", main__c=readme_block("c", "generate"))
    static().run("sh", "-euc", readme_block("sh", "c"), cwd=folder)
    expect_two_kernels(static().run(folder / "consumer", cwd=folder, stdin=DOCUMENT.read_bytes()))


def python() -> None:
    """The README's Python program."""
    folder = project("python", main__py=readme_block("python", "generate"))
    output = static().run(sys.executable, "main.py", DOCUMENT, cwd=folder)
    wanted = run(BUILD / "muster", "codegen", DOCUMENT, "--backend", "triton", "--config", '{"num_warps": 8}', cwd=WORK)
    expect(output == wanted, f"not the tool's kernel:\n{output}")
    output = static().run(sys.executable, "main.py", "/dev/null", cwd=folder, status=1)
    expect("<text>:1:1: error:" in output, output)


# --- the shared library -------------------------------------------------------------------------------------------------------


def shared_library() -> None:
    """The C++ library as a shared one: plain, registry, CMake, and the C interface beside it."""
    prefix = shared()
    interfaces = Interfaces(prefix, "shared plain", "-std=c++23 -O2")
    prefix.expect_kernel(interfaces.program("consumer", readme_block("cpp", "generate")))
    prefix.run(interfaces.program("registry", readme_block("cpp", "registry")), cwd=WORK)
    expect("libmuster.so" in prefix.run("ldd", interfaces.folder / "consumer", cwd=WORK), "libmuster.so is not used")
    prefix.expect_kernel(cmake_build(prefix, "shared cmake", readme_block("cmake", "installed")) / "consumer")
    symbols = prefix.run("nm", "-D", "--defined-only", prefix.libraries / "libmuster_c.so", cwd=WORK).split()[2::3]
    expect(bool(symbols) and all(symbol.startswith("muster_") for symbol in symbols), f"libmuster_c shows {symbols}")
    folder = project("shared c", main__c=readme_block("c", "generate"))
    prefix.run("sh", "-euc", readme_block("sh", "c"), cwd=folder)
    expect_two_kernels(prefix.run(folder / "consumer", cwd=folder, stdin=DOCUMENT.read_bytes()))


# --- running them -------------------------------------------------------------------------------------------------------------

SELECTION: dict[str, Callable[[], None]] = {
    "prefix": prefix_contents,
    "plain": plain,
    "cmake": cmake_with(),
    "meson installed": meson_installed,
    **{f"includes {place}": includes(place) for place in ("before", "after", "around")},
    "refusals": refusals,
    "registry -std=gnu++20 -fPIC": registry_with_flags("-std=gnu++20 -fPIC"),
    "registry -std=c++23 -O2": registry_with_flags("-std=c++23 -O2"),
    "registry -fno-exceptions": registry_without_exceptions,
    "c": c,
    "python": python,
}
REST: dict[str, Callable[[], None]] = {
    "shared library": shared_library,
    "meson subproject": meson_subproject,
    "no exceptions": no_exceptions,
    **{
        flags: with_flags(flags)
        for flags in (
            "-std=c++20 -fPIC -O2",
            "-std=gnu++20 -O3 -DNDEBUG -fno-rtti",
            "-std=c++23 -O0 -g -D_GLIBCXX_ASSERTIONS",
            "-std=gnu++23 -O1 -march=x86-64-v2 -fstack-protector-strong -fvisibility=hidden",
            "-std=c++26 -O2 -fno-strict-aliasing",
            "-std=c++20 -O1 -fsanitize=address,undefined -fno-sanitize-recover=all",
        )
    },
    "registry -fno-rtti": registry_with_flags("-std=c++20 -fno-rtti"),
    "composition": composition,
    "cmake Debug": cmake_with("-DCMAKE_BUILD_TYPE=Debug"),
    "cmake Release, standard 23": cmake_with("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_STANDARD=23"),
    "cmake without extensions": cmake_with("-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_CXX_STANDARD=20", "-DCMAKE_CXX_EXTENSIONS=OFF"),
    "cmake, flags": cmake_with("-DCMAKE_CXX_FLAGS=-pthread -fsanitize=address", "-DTHREADS_PREFER_PTHREAD_FLAG=ON"),
    "cmake, prefix with blanks": cmake_prefix_with_blanks,
    "cmake, shared library of the consumer": cmake_library,
    "cmake c": cmake_c,
    "cmake too old": cmake_too_old,
}


def attempt(name: str, consumer: Callable[[], None]) -> str:
    try:
        consumer()
        print(f"passed {name}", flush=True)
        return "passed"
    except Skipped as reason:
        print(f"skipped: {name}: {reason}", flush=True)
        return "skipped"
    except Exception as error:  # a consumer that breaks the driver has failed
        print(f"failed {name} {error}", flush=True)
        return "failed"


def main() -> int:
    consumers = SELECTION | (REST if ALL else {})
    try:
        static()
        with concurrent.futures.ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            results = list(pool.map(lambda item: attempt(*item), consumers.items()))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    passed, failed, skipped = (results.count(word) for word in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
