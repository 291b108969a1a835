"""Checks of the project itself: the module graph, the build's completeness and increments, formatting, and the README.

usage: check.py BUILD [CHECK…]           BUILD is a finished build folder; last line: N passed, N failed
       check.py BUILD --update-readme    write the generated part of README.md anew
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test"))
from toolchain import Toolchain  # noqa: E402

BUILD = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
TOOLS = Toolchain(BUILD)
CODE_FOLDERS = ("modules", "src", "test", "bench", "fuzz")
CODE_SUFFIXES = {".cpp", ".cppm", ".hpp", ".h", ".c"}


class Failed(Exception):
    """A check's findings, one a line."""


class Skipped(Exception):
    """Why a check could not be made."""


def expect_none(findings: list[str], what: str) -> None:
    if findings:
        raise Failed(f"{what}:\n" + "\n".join(f"  {finding}" for finding in findings))


def output_of(*command: object, cwd: Path = ROOT, check: bool = True) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


@cache
def project_files() -> tuple[Path, ...]:
    names = output_of("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return tuple(ROOT / name for name in names if name and (ROOT / name).is_file())


def code_files() -> list[Path]:
    return [file for file in project_files() if file.suffix in CODE_SUFFIXES and file.relative_to(ROOT).parts[0] in CODE_FOLDERS]


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def matches_in(files: list[Path], pattern: str) -> Iterator[str]:
    expression = re.compile(pattern, re.MULTILINE)
    for file in files:
        yield from (match.group() for match in expression.finditer(text_of(file)))


def matching_lines(files: list[Path], pattern: str) -> Iterator[str]:
    expression = re.compile(pattern)
    for file in files:
        for number, line in enumerate(text_of(file).splitlines(), 1):
            if expression.search(line):
                yield f"{file.relative_to(ROOT)}:{number}: {line.strip()[:120]}"


# --- the module graph ---------------------------------------------------------------------------------------------------------


@cache
def declared_modules() -> dict[str, tuple[str, list[str]]]:
    """What meson.build says: module name -> (interface file, direct imports)."""
    table = re.search(r"^modules = (\[.*?^\])", text_of(ROOT / "meson.build"), re.MULTILINE | re.DOTALL)
    if table is None:
        raise Failed("meson.build has no `modules = [...]` table")
    return {name: (file, imports) for name, file, imports in ast.literal_eval(table.group(1))}


@cache
def scanned_units() -> dict[str, dict]:
    """What the compiler says: object -> {file, provides, requires} of every unit in the build."""
    if not TOOLS.is_clang:
        raise Skipped("clang-scan-deps reads Clang's commands alone")
    commands = json.loads(text_of(BUILD / "compile_commands.json"))
    for command in commands:  # the scanner must not write the build's own depfiles
        command["command"] = re.sub(r" -MD -MQ \S+ -MF \S+", "", command["command"])
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        database = Path(folder, "compile_commands.json")
        database.write_text(json.dumps(commands))
        scan = output_of(f"clang-scan-deps{TOOLS.version}", "-format=p1689", "-compilation-database", database)
    files = {command["output"]: (BUILD / command["file"]).resolve() for command in commands}
    return {
        rule["primary-output"]: {
            "file": files[rule["primary-output"]],
            "provides": [provided["logical-name"] for provided in rule.get("provides", [])],
            "requires": [required["logical-name"] for required in rule.get("requires", [])],
        }
        for rule in json.loads(scan)["rules"]
    }


def check_imports() -> None:
    """Each interface unit's imports, as the compiler reports them, are those that meson.build lists."""
    declared = declared_modules()
    findings = []
    seen = set()
    for unit in scanned_units().values():
        for name in unit["provides"]:
            file, imports = declared.get(name, ("", []))
            seen.add(name)
            if unit["file"] != ROOT / file:
                findings.append(f"{name}: provided by {unit['file']}, declared as '{file}'")
            if sorted(unit["requires"]) != sorted(imports):
                findings.append(f"{name}: imports {sorted(unit['requires'])}, meson.build lists {sorted(imports)}")
    findings += [f"{name}: declared, but no unit provides it" for name in declared if name not in seen]
    expect_none(findings, "imports and meson.build differ")


def check_module_files() -> None:
    """The module muster.a.b lives in modules/a/b.cppm, and comes after all that it imports."""
    findings = []
    earlier: set[str] = set()
    for name, (file, imports) in declared_modules().items():
        path = "modules/" + (name.removeprefix("muster.").replace(".", "/")) + ".cppm"
        if file != path:
            findings.append(f"{name}: in {file}, not {path}")
        findings += [f"{name}: stands before {imported}, which it imports" for imported in imports if imported not in earlier]
        earlier.add(name)
    expect_none(findings, "misplaced modules")


def check_complete() -> None:
    """Every source on disk is named in a meson.build at or above its folder; every header is included by something."""
    included = {line.split('"')[1].rsplit("/")[-1] for line in matches_in(code_files(), r'^#include "[^"]+"')}
    findings = []
    for file in code_files():
        named = file.name in included if file.suffix in (".hpp", ".h") else is_built(file)
        if not named:
            findings.append(str(file.relative_to(ROOT)))
    expect_none(findings, "in no meson.build, or included by nothing")


def is_built(file: Path) -> bool:
    for folder in file.parents:
        if (folder / "meson.build").is_file():
            # By its path, or without the suffix where a loop adds that.
            path = file.relative_to(folder)
            names = (f"'{path.as_posix()}'", f"'{path.with_suffix('').as_posix()}'", f"'{path.stem}'")
            if any(name in text_of(folder / "meson.build") for name in names):
                return True
        if folder == ROOT:
            return False
    return False


def check_recorded_dependencies() -> None:
    """What ninja recorded for each object names the built interface of every module that it imports."""
    recorded: dict[str, set[str]] = {}
    current: set[str] = set()
    for line in output_of("ninja", "-C", BUILD, "-t", "deps").splitlines():
        if line.startswith("    "):
            current.add(line.strip())
        elif ": #deps" in line:
            current = recorded.setdefault(line.split(":")[0], set())
    findings = []
    for output, unit in scanned_units().items():
        if output not in recorded:
            continue  # left out of a default build
        for name in unit["requires"]:
            if f"{name}{TOOLS.interface_suffix}" not in recorded[output]:
                findings.append(f"{unit['file'].relative_to(ROOT)} imports {name}, but {output} does not depend on its built interface")
    expect_none(findings, "an edit of these interfaces would leave stale objects")
    if not recorded:
        raise Failed(f"{BUILD} records no dependencies; is it built?")


def importers_of(name: str) -> list[str]:
    """The modules that import `name`, directly or not, in order."""
    found: list[str] = []
    for importer, (_, imports) in declared_modules().items():
        if name in imports or any(imported in found for imported in imports):
            found.append(importer)
    return found


def check_one_ninja_run() -> None:
    """In a project that has muster as a subproject: one ninja run after an edit of muster.error rebuilds every importer, the
    consumer's own included; a second has no work; a mere touch rebuilds no importer.
    """
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        consumer, build = Path(folder, "consumer"), Path(folder, "build")
        muster = consumer / "subprojects/muster"
        for file in project_files():
            target = muster / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
        shutil.copytree(ROOT / "test/consumer", consumer, dirs_exist_ok=True)
        setup = ["env", f"CXX={TOOLS.compiler}", sys.executable, "-m", "mesonbuild.mesonmain", "setup"]
        output_of(*setup, build, consumer, "-Dbuildtype=plain", "-Dwarning_level=0")
        interfaces = [f"subprojects/muster/{name}{TOOLS.interface_suffix}" for name in ["muster.error", *importers_of("muster.error")]]
        targets = [*interfaces, "subprojects/muster/libmuster.a.p/src_error.cpp.o", "consumer.p/main.cpp.o"]

        def ninja() -> str:
            return output_of("ninja", "-C", build, *targets)

        def stamps() -> dict[str, int]:
            return {target: (build / target).stat().st_mtime_ns for target in targets}

        ninja()
        first = stamps()
        interface = muster / "modules/error.cppm"
        interface.write_text(text_of(interface) + "\nexport namespace muster {\ninline constexpr int edited = 1;\n}\n")
        ninja()
        edited = stamps()
        expect_none([target for target in targets if edited[target] == first[target]], "not rebuilt after an edit of muster.error")
        again = ninja()
        if "no work to do" not in again:
            raise Failed(f"a second ninja run still had work:\n{again}")
        os.utime(interface)
        ninja()
        touched = stamps()
        expect_none([target for target in interfaces if touched[target] != edited[target]], "rebuilt after a mere touch")


# --- sources ------------------------------------------------------------------------------------------------------------------


def check_format() -> None:
    """clang-format would change nothing."""
    if shutil.which("clang-format-19") is None:
        raise Skipped("clang-format-19 is not there, and others format otherwise")
    report = output_of("clang-format-19", "--dry-run", *code_files(), check=False)
    findings = sorted({line.split(":")[0] for line in report.splitlines() if "[-Wclang-format-violations]" in line})
    expect_none([os.path.relpath(finding, ROOT) for finding in findings], "clang-format would change these (./run format does)")


def check_include_order() -> None:
    """No #include after an import: the compilers do not agree on what that means."""
    findings = []
    for file in code_files():
        imported = False
        for number, line in enumerate(text_of(file).splitlines(), 1):
            imported = imported or re.match(r"\s*(export\s+)?import\s+[\w.:]+\s*;", line) is not None
            if imported and re.match(r"\s*#\s*include\b", line):
                findings.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    expect_none(findings, "included after an import")


def check_no_conditional_backend() -> None:
    """Which backends there are is said by one composition, not by the preprocessor."""
    library = [file for file in code_files() if file.relative_to(ROOT).parts[0] in ("modules", "src")]
    names = "backend|triton|tileir|pallas|cute|metal|cpu"
    expect_none(list(matching_lines(library, rf"(?i)^\s*#\s*(if|ifdef|ifndef|elif)\b.*({names})")), "preprocessor conditions on a backend")


def check_no_static_initialiser() -> None:
    """Nothing in the library runs before main.

    Clang gives an importer of a module with a variable an initialiser that calls the module's own; that one must be empty.
    """
    findings = []
    function = ""
    for line in output_of("objdump", "-dr", "--no-show-raw-insn", BUILD / "libmuster.a").splitlines():
        if header := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            function = header.group(1)
        elif function.startswith("_GLOBAL__sub_I_") and (target := re.search(r"R_X86_64_\w+\t(\S+?)[-+]", line)):
            if not target.group(1).startswith("_ZGIW"):
                findings.append(f"{function} uses {target.group(1)}")
        elif function.startswith("_ZGIW") and (instruction := re.match(r" +[0-9a-f]+:\t(\S+)", line)):
            if instruction.group(1) not in ("ret", "nop", "nopl", "nopw", "xchg", "cs", "data16"):
                findings.append(f"the module initialiser {function} is not empty: {line.strip()}")
        elif function.startswith("__cxx_global_var_init"):
            findings.append(function)
    expect_none(sorted(set(findings)), "run before main")


def check_portable_text() -> None:
    """No path of somebody's machine and no host of a package registry in any file."""
    this = Path(__file__).resolve()
    files = [file for file in project_files() if file != this and file.suffix not in (".npy", ".png")]
    path = r"(?<![\w.~$}/-])/(work|root|home|Users|mnt|farm)/\w"
    host = r"\b((deb|security|ftp|archive)\.(debian|ubuntu)\.|pypi\.org|pythonhosted\.org|proxy\.golang|registry\.npm|crates\.io)"
    expect_none(list(matching_lines(files, f"{path}|{host}")), "not portable")


def check_scenarios() -> None:
    """Every scenario has a reason or a test that exists; none of the recorded ones is left out, and no document lacks a row."""
    rows = {part: rows_of_scenarios(file) for part, file in SCENARIOS.items()}
    named = " ".join(tests for part in rows.values() for tests in part.values())
    patterns = re.findall(r"`scenarios/([\w*]+)`", named)
    documents = [path.stem for path in (ROOT / "test/scenarios").glob("*.txt")]
    expect_none(sorted(d for d in documents if not any(fnmatch(d, p) for p in patterns)), "documents of test/scenarios without a row")
    recorded = Path(os.environ.get("MUSTER_SHARED") or ROOT.parent / "shared") / "SCENARIOS.md"
    if not recorded.is_file():
        raise Skipped(f"that all scenarios have a row: {recorded.name} is not there")
    parts = re.split(r"^## (\w)\.", text_of(recorded), flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2]))
    for names, found in rows.items():
        wanted = {n for name in names for n in re.findall(r"^\| (B\d+) \|", texts[name], re.MULTILINE)}
        expect_none(sorted(wanted ^ set(found)), f"{SCENARIOS[names]}: scenarios without a row, or rows without one")


# By the parts of the recorded list.
SCENARIOS = {"AB": "test/hazards/scenarios.md", "D": "test/scenarios/scenarios.md"}


def rows_of_scenarios(file: str) -> dict[str, str]:
    rows = dict(re.findall(r"^\| (B\d+) \|[^|]*\|(.*)\|$", text_of(ROOT / file), re.MULTILINE))
    driver = text_of(ROOT / "test/hazards/run.py")
    findings = []
    for number, tests in rows.items():
        named = 0
        for test in re.findall(r"`([^`]+)`", tests):
            if found := re.fullmatch(r"run\.py (\w+)", test):
                exists = f"def row_{found[1]}()" in driver
            elif found := re.fullmatch(r"compile_fail/(\w+)", test):
                exists = f"'{found[1]}'" in text_of(ROOT / "test/meson.build")
            elif found := re.fullmatch(r"scenarios/([\w*]+)", test):
                exists = any((ROOT / "test/scenarios").glob(f"{found[1]}.txt"))
            elif found := re.fullmatch(r'(test/\w+\.cpp) "(.+)"', test):
                exists = re.search(r'TEST_CASE\("[^"]*' + re.escape(found[2]), text_of(ROOT / found[1])) is not None
            else:
                continue
            named += 1
            if not exists:
                findings.append(f"{number}: no test {test}")
        if named == 0 and "does not apply: " not in tests:
            findings.append(f"{number}: neither a test nor a reason")
    expect_none(findings, file)
    return rows


def check_version() -> None:
    """The version that the interfaces have is the build's."""
    versions = [re.search(pattern, text_of(ROOT / file)) for file, pattern in (
        ("meson.build", r"^project\(.*\bversion: '([^']+)'"), ("modules/operations.cppm", r'library_version = "([^"]+)"'))]
    if None in versions or versions[0][1] != versions[1][1]:
        raise Failed(f"meson.build and modules/operations.cppm: {[version and version[1] for version in versions]}")


def check_backends() -> None:
    """meson.build, its options and modules/builtin.cppm list the same backends, in one order."""
    lists = {
        "meson.build": re.findall(r"^  \['(\w+)', '\w*', (?:true|false), ", text_of(ROOT / "meson.build"), re.MULTILINE),
        "meson_options.txt": re.findall(r"'(\w+)'", re.search(r"choices: \[(.*?)\]", text_of(ROOT / "meson_options.txt"))[1]),
        "modules/builtin.cppm": re.findall(
            r'"(\w+)"', re.search(r"builtin_backends\[\] = \{(.*?)\}", text_of(ROOT / "modules/builtin.cppm"))[1]),
        "modules/backend": [name.rsplit(".")[-1] for name in declared_modules() if name.startswith("muster.backend.")],
    }
    lists["modules/backend"].remove("common")
    if len({tuple(names) for names in lists.values()}) != 1:
        raise Failed("\n".join(f"  {file}: {', '.join(names)}" for file, names in lists.items()))


# --- the README ---------------------------------------------------------------------------------------------------------------


def readme_section(marker: str) -> str:
    section = re.search(rf"<!-- {marker}:begin -->\n(.*?)<!-- {marker}:end -->", text_of(ROOT / "README.md"), re.DOTALL)
    if section is None:
        raise Failed(f"README.md has no section between <!-- {marker}:begin --> and <!-- {marker}:end -->")
    return section.group(1).strip()


def check_readme_snippets() -> None:
    """Every block of code in the README is named and built: C++ by the build, those of other languages by test/consumer/run.py."""
    named = re.findall(r"^```cpp *(\S*)$", text_of(ROOT / "README.md"), re.MULTILINE)
    built = {path.name.removeprefix("readme-") for path in (BUILD / "test/project").glob("readme-*") if path.is_file() and not path.suffix}
    findings = [f"README.md: the block '{name}' is not built by test/project/meson.build" for name in named if name not in built]
    findings += [f"README.md has no block '{name}'" for name in built if name not in named]
    used = set(re.findall(r'readme_block\("(\w+)", "(\w+)"\)', text_of(ROOT / "test/consumer/run.py")))
    for language, name in re.findall(r"^```(cmake|meson|c|python|sh) *(\w*)$", text_of(ROOT / "README.md"), re.MULTILINE):
        if (language, name) not in used and (language, name) != ("sh", ""):  # shell lines without a name are examples
            findings.append(f"README.md: the block '{language} {name}' is not built by test/consumer/run.py")
    expect_none(findings, "README snippets")


def check_readme_coverage() -> None:
    """The coverage table of the README is what the tool prints."""
    if readme_section("coverage") != coverage():
        raise Failed(f"README.md differs from `muster coverage --format markdown` (./run readme mends it), which prints:\n{coverage()}")


def coverage() -> str:
    return output_of(tool(), "coverage", "--format", "markdown").strip()


def update_readme() -> None:
    text = text_of(ROOT / "README.md")
    text = text.replace(f"<!-- coverage:begin -->\n{readme_section('coverage')}", f"<!-- coverage:begin -->\n{coverage()}")
    (ROOT / "README.md").write_text(text)


def check_readme_usage() -> None:
    """The command line reference of the README names every command and option that the tool has, and no other."""
    documented = set()
    for command in re.split(r"^muster ", readme_section("usage"), flags=re.MULTILINE)[1:]:
        name = command.split()[0]
        documented |= {f"muster {name}"} | {f"muster {name} {option}" for option in re.findall(r"--[a-z][a-z-]*", command)}
    offered = set()
    commands = re.split("subcommands:", output_of(tool(), "--help"), flags=re.IGNORECASE)[1]  # CLI11 2.6 writes it in capitals
    for name in re.findall(r"^  ([a-z]+) ", commands, re.MULTILINE):
        options = re.findall(r"^ +(?:-\w, *)?(--[a-z][a-z-]*)", output_of(tool(), name, "--help"), re.MULTILINE)
        offered |= {f"muster {name}"} | {f"muster {name} {option}" for option in options if option != "--help"}
    findings = [f"{missing}: not in the README" for missing in sorted(offered - documented)]
    findings += [f"{unknown}: only in the README" for unknown in sorted(documented - offered)]
    expect_none(findings, "README and --help")


def tool() -> Path:
    if not (BUILD / "muster").is_file():
        raise Skipped("the tool is not built")
    return BUILD / "muster"


# --- running them -------------------------------------------------------------------------------------------------------------


def main() -> int:
    if sys.argv[2:] == ["--update-readme"]:
        update_readme()
        return 0
    checks = {name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")}
    wanted = sys.argv[2:] or list(checks)
    failed = skipped = 0
    for name in wanted:
        try:
            checks[name]()
            print(f"ok      {name}", flush=True)
        except Skipped as reason:
            skipped += 1
            print(f"skipped: {name}: {reason}", flush=True)
        except Exception as error:  # a check that breaks is a check that fails
            failed += 1
            print(f"FAILED  {name}: {checks[name].__doc__.splitlines()[0]}\n{error}", flush=True)
    print(f"{len(wanted) - failed - skipped} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
