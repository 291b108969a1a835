"""Builds muster and runs its tests with the newest compilers of Debian testing, in a chroot that it makes.

usage: run.py FOLDER [COMPILER…]     as root, on Debian; FOLDER is for the chroot and the logs; a compiler is `clang++-22`, `g++-15`

Without compilers: the newest Clang and the newest GCC. The chroot is made once, and builds go on where they were. For each
compiler a line a suite, then a table, then what failed and what was skipped, with the reason; last line: N passed, N failed, N skipped.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KNOWN = Path(__file__).with_name("known_failures.txt")
JOBS = os.environ.get("MUSTER_JOBS") or str(os.cpu_count() or 2)
PACKAGES = ("dpkg-dev", "gcc", "meson", "ninja-build", "cmake", "pkg-config", "python3", "python3-venv", "git", "ca-certificates",
            "libmsgsl-dev", "libfmt-dev", "libsimdjson-dev", "nlohmann-json3-dev", "libcli11-dev", "libdlpack-dev", "doctest-dev",
            "libbenchmark-dev")
PYTHON_PACKAGES = ("numpy", "ml_dtypes", "triton")  # not the versions of test/requirements.txt: those have no builds for a newer Python
SUITE_SECONDS = 1800


class Impossible(Exception):
    """Why nothing can be built here."""


def run(*command: object, log: Path | None = None, **options) -> subprocess.CompletedProcess:
    """What it says goes into a log, or is returned."""
    words = [str(word) for word in command]
    if log is None:
        return subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        return subprocess.run(words, text=True, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)


def needed(what: str, *command: object, log: Path, **options) -> None:
    if run(*command, log=log, **options).returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise Impossible(f"{what} failed:\n{tail}\n({log})")


# --- the chroot ---------------------------------------------------------------------------------------------------------------


class Chroot:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.logs = folder / "logs"
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root",
                            "DEBIAN_FRONTEND": "noninteractive", "MUSTER_JOBS": JOBS,
                            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        of_network = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.lower().endswith("_proxy")}
        self.environment |= of_network

    def run(self, *command: object, log: Path | None = None, env: dict[str, str] | None = None, **options) -> subprocess.CompletedProcess:
        return run("chroot", self.root, *command, log=log, env=self.environment | (env or {}), **options)

    def needed(self, what: str, *command: object, log: str, env: dict[str, str] | None = None) -> None:
        needed(what, "chroot", self.root, *command, log=self.logs / log, env=self.environment | (env or {}))

    def make(self) -> None:
        """A minimal Debian testing from the mirror that this system's apt uses. It has its name only when it is complete."""
        if self.root.is_dir():
            return
        partial = self.folder / "root.partial"
        shutil.rmtree(partial, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        print("making a chroot of Debian testing", flush=True)
        settings = acquire_settings()
        proxy = settings.get("Acquire::http::Proxy")
        needed("debootstrap", "debootstrap", "--variant=minbase", "testing", partial, mirror(), log=self.logs / "debootstrap.log",
               env=os.environ | ({"http_proxy": proxy} if proxy else {}))
        lines = "".join(f'{name} "{value}";\n' for name, value in settings.items())
        (partial / "etc/apt/apt.conf.d/90host").write_text(lines)
        partial.rename(self.root)

    def install(self, compilers: list[str]) -> list[str]:
        """The libraries and compilers; those that are asked for, or the newest of each kind. Returns their names."""
        stamp = self.root / "installed"
        done = stamp.read_text().split() if stamp.exists() else []
        for file in ("/etc/resolv.conf", "/etc/pip.conf"):
            if Path(file).exists():
                shutil.copy(file, self.root / file[1:])
        compilers = compilers or [f"clang++-{self.newest('clang-')}", f"g++-{self.newest('g++-')}"]
        wanted = [*PACKAGES, *(package for compiler in compilers for package in packages_of(compiler))]
        if missing := [package for package in wanted if package not in done]:
            print(f"installing {' '.join(missing)}", flush=True)
            self.run("dpkg", "--configure", "-a")
            install = ("apt-get", "install", "-q", "-y", "--no-install-recommends", *missing)
            # With the lists that debootstrap left; new ones are needed when the archive has moved on.
            if self.run(*install, log=self.logs / "apt-install.log").returncode != 0:
                self.needed("apt-get update", "apt-get", "update", "-q", log="apt-update.log")
                self.needed("the installation", *install, log="apt-install.log")
            bundle = Path("/etc/ssl/certs/ca-certificates.crt")  # this system may trust more than Debian does
            if bundle.exists():
                shutil.copy(bundle, self.root / str(bundle)[1:])
            stamp.write_text(" ".join([*done, *missing]))
        return compilers

    def newest(self, prefix: str) -> str:
        names = self.run("apt-cache", "pkgnames", prefix).stdout.split()
        versions = [int(name[len(prefix):]) for name in names if re.fullmatch(re.escape(prefix) + r"\d+", name)]
        if not versions:
            raise Impossible(f"Debian testing has no package {prefix}N")
        return str(max(versions))

    def python(self) -> str | None:
        """The virtual environment that the tests' Python programs run in; says what could not be installed, if anything."""
        if not (self.root / "venv/bin/python").exists():
            self.needed("the virtual environment", "python3", "-m", "venv", "--system-site-packages", "/venv", log="venv.log")
        stamp = self.root / "venv/installed"
        if not stamp.exists():
            log = self.logs / "pip.log"
            if self.run("/venv/bin/python", "-m", "pip", "install", "-q", *PYTHON_PACKAGES, log=log).returncode != 0:
                return f"pip could not install {', '.join(PYTHON_PACKAGES)}: {log.read_text(errors='replace').strip().splitlines()[-1]}"
            stamp.touch()
        return None

    def bring(self, folder: Path, name: str) -> None:
        """The folder as /NAME: mounted, for reading alone, or a copy of the files that git would have."""
        target = self.root / name
        if target.is_mount():  # by somebody else: removing it would remove what is mounted
            raise Impossible(f"{target} is a mount point already")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        if run("mount", "--bind", folder, target).returncode == 0:
            if run("mount", "-o", "remount,bind,ro", target).returncode == 0:
                return
            run("umount", target)
        if folder != ROOT:
            shutil.copytree(folder, target, dirs_exist_ok=True)
            return
        listed = run("git", "-C", folder, "-c", f"safe.directory={folder}", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for file in filter(None, listed.stdout.split("\0")):
            if (folder / file).is_file():
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / file, target / file)
        self.run("git", "-C", f"/{name}", "init", "-q")
        self.run("git", "-C", f"/{name}", "add", "-A")


def mirror() -> str:
    """The address of Debian's archive, as apt's configuration has it."""
    for attempt in range(2):
        listed = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages").stdout
        for line in listed.splitlines():
            origin, _, address = line.partition(" ")
            if origin == "Debian" and "security" not in address:
                return address
        if attempt == 0:
            run("apt-get", "update", "-q")  # without lists apt does not know whose they are
    raise Impossible("apt's sources name no archive of Debian")


def acquire_settings() -> dict[str, str]:
    """How apt fetches here: proxies, certificates, retries."""
    dump = run("apt-config", "dump").stdout
    return dict(re.findall(r'^(Acquire::(?:https?|ftp|Retries)(?:::[\w:.-]+)?) "([^"]+)";$', dump, re.MULTILINE))


def packages_of(compiler: str) -> list[str]:
    version = compiler.rsplit("-", 1)[1]
    if compiler.startswith("clang++-"):
        return [f"{name}-{version}" for name in ("clang", "clang-tools", "lld", "llvm")] + [f"libclang-rt-{version}-dev"]
    return [compiler]


# --- suites -------------------------------------------------------------------------------------------------------------------


@dataclass
class Results:
    """What a suite's checks came to."""
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # with reasons
    known: list[str] = field(default_factory=list)    # failures that are listed, with reasons

    def counts(self) -> str:
        return (f"{len(self.passed)} passed, {len(self.failed)} failed" + (f", {len(self.skipped)} skipped" if self.skipped else "")
                + (f", {len(self.known)} known not to work" if self.known else ""))


def from_lines(output: str) -> Results:
    """The lines of this project's own drivers."""
    results = Results()
    for word, rest in re.findall(r"^(passed|ok|failed|FAILED|skipped:) +(\S.*)$", output, re.MULTILINE):
        {"passed": results.passed, "ok": results.passed, "skipped:": results.skipped}.get(word, results.failed).append(rest)
    return results


def from_junit(file: Path) -> Results:
    results = Results()
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        bad = case.find("failure") is not None or case.find("error") is not None
        (results.failed if bad else results.passed).append(case.get("name", "?"))
    return results


def from_meson(file: Path) -> Results:
    results = Results()
    for line in file.read_text().splitlines():
        test = json.loads(line)
        kind = {"OK": results.passed, "EXPECTEDFAIL": results.passed, "SKIP": results.skipped}.get(test["result"], results.failed)
        kind.append(test["name"].split(" / ")[-1].split(":")[-1])
    return results


class Compiler:
    """A compiler, its builds, and the suites that run them. Each suite returns its results and an exit status."""

    def __init__(self, chroot: Chroot, name: str, no_python: str | None) -> None:
        self.chroot, self.name, self.no_python = chroot, name, no_python
        self.is_clang = name.startswith("clang")
        self.build = f"/build/{name}"
        self.tools = {"CXX": name} | ({"CXX_LD": f"lld-{name.rsplit('-', 1)[1]}"} if self.is_clang else {})
        self.shared = (chroot.root / "shared/device_ir").is_dir()

    def log(self, suite: str) -> Path:
        return self.chroot.logs / self.name / f"{suite}.log"

    def meson_build(self, folder: str, *options: str, targets: tuple[str, ...] = ()) -> None:
        if not (self.chroot.root / folder[1:] / "build.ninja").exists():
            shutil.rmtree(self.chroot.root / folder[1:], ignore_errors=True)
            self.chroot.needed(f"{self.name}: configuring", "meson", "setup", folder, "/source", "-Dtests=true", *options,
                               log=f"{self.name}/configure.log", env=self.tools)
        self.chroot.needed(f"{self.name}: the build", "ninja", "-j", JOBS, "-C", folder, *targets, log=f"{self.name}/build.log")

    def suite(self, name: str, *command: object, **env: str) -> tuple[str, int]:
        log = self.log(name)
        shared = {"MUSTER_SHARED": "/shared"} if self.shared else {}
        try:
            status = self.chroot.run(*command, log=log, env=self.tools | shared | env, timeout=SUITE_SECONDS).returncode
        except subprocess.TimeoutExpired:
            status = 124
        return log.read_text(errors="replace"), status

    def driver(self, name: str, *command: object) -> tuple[Results, int]:
        output, status = self.suite(name, "/venv/bin/python", *command)
        return from_lines(output), status

    def doctest(self, name: str, build: str, **env: str) -> tuple[Results, int]:
        report = self.chroot.root / build[1:] / "report.xml"
        report.unlink(missing_ok=True)
        _, status = self.suite(name, f"{build}/test/muster-test", "--reporters=junit", f"--out={build}/report.xml", **env)
        try:
            return from_junit(report), status
        except (OSError, ElementTree.ParseError):
            return Results(), status or 1

    def harness(self, script: str) -> tuple[Results, int]:
        if self.no_python:
            return Results(skipped=[f"{script}: {self.no_python}"]), 0
        documents = ["/source/test/documents", "/source/test/golden/triton", *(["/shared/device_ir"] if self.shared else [])]
        name = script.removeprefix("check_").removesuffix(".py")
        results, status = self.driver(name, f"/source/test/harness/{script}", f"{self.build}/muster", *documents)
        if not self.shared:
            results.skipped.append("the recorded documents: they are not there")
        return results, status

    def run_unit(self) -> tuple[Results, int]:
        return self.doctest("unit", self.build)

    def run_compile(self) -> tuple[Results, int]:
        report = self.chroot.root / self.build[1:] / "meson-logs/testlog.json"
        report.unlink(missing_ok=True)
        _, status = self.suite("compile", "meson", "test", "-C", self.build, "--no-rebuild", "--no-suite", "unit")
        return (from_meson(report), status) if report.exists() else (Results(), status or 1)

    def run_project(self) -> tuple[Results, int]:
        return self.driver("project", "/source/test/project/check.py", self.build)

    def run_consumers(self) -> tuple[Results, int]:
        return self.driver("consumers", "/source/test/consumer/run.py", self.build)

    def run_hazards(self) -> tuple[Results, int]:
        return self.driver("hazards", "/source/test/hazards/run.py", self.build)

    def run_cpu(self) -> tuple[Results, int]:
        return self.harness("check_cpu.py")

    def run_triton(self) -> tuple[Results, int]:
        return self.harness("check_triton.py")

    def run_cuda(self) -> tuple[Results, int]:
        return Results(skipped=["cuda: what is compiled for the GPU is text, the same whichever compiler built muster"]), 0

    def run_sanitized(self) -> tuple[Results, int]:
        folder = f"{self.build}-sanitized"
        sanitizers = "address,undefined" if self.is_clang else "address"
        self.meson_build(folder, "-Dbuildtype=debug", "-Db_ndebug=false", f"-Db_sanitize={sanitizers}", "-Db_lundef=false",
                         f"-Dfuzz={str(self.is_clang).lower()}", targets=("test/muster-test",))
        results, status = self.doctest("sanitized", folder, UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
                                       ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:detect_leaks=0")
        if not self.is_clang:
            results.skipped.append("undefined behaviour: with -fsanitize=undefined GCC 15 ends at a module's interface (internal compiler "
                                   "error: in tree_node, at cp/module.cc)")
        return results, status

    def run_fuzz(self) -> tuple[Results, int]:
        if not self.is_clang:
            return Results(skipped=["fuzz: libFuzzer is a part of Clang"]), 0
        folder = f"{self.build}-sanitized"
        self.meson_build(folder, targets=("fuzz/fuzz-device_ir",))
        (self.chroot.root / folder[1:] / "corpus").mkdir(exist_ok=True)
        _, status = self.suite("fuzz", f"{folder}/fuzz/fuzz-device_ir", "-max_total_time=60", "-timeout=10", "-rss_limit_mb=2048",
                               f"-artifact_prefix={folder}/", f"{folder}/corpus", "/source/test/documents")
        return (Results(passed=["device_ir"]) if status == 0 else Results(failed=["device_ir"])), status

    def run_all(self) -> dict[str, Results]:
        results = {}
        self.meson_build(self.build, "-Dbuildtype=release", "-Dbench=true")
        for name in ("unit", "compile", "project", "consumers", "hazards", "cpu", "triton", "cuda", "sanitized", "fuzz"):
            started = time.monotonic()
            try:
                found, status = getattr(self, f"run_{name}")()
            except Impossible as reason:
                found, status = Results(failed=[str(reason)]), 1
            if status != 0 and not found.failed:
                found.failed.append(f"ended with status {status} and no failed check: see {self.log(name)}")
            elif not (found.passed or found.failed or found.skipped):
                found.failed.append(f"checked nothing: see {self.log(name)}")
            apply_known(self.name, name, found)
            results[name] = found
            print(f"  {self.name:11} {name:10} {found.counts()}  ({time.monotonic() - started:.0f} s)", flush=True)
        return results


def apply_known(compiler: str, suite: str, results: Results) -> None:
    """Listed failures are apart from the others; a listed check that passed has failed to fail."""
    for line in KNOWN.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        compilers, suites, check, reason = (part.strip() for part in line.split("|", 3))
        if not fnmatch.fnmatch(compiler, compilers) or suite != suites:
            continue
        matched = [name for name in results.failed if fnmatch.fnmatch(name, check) or fnmatch.fnmatch(name, f"{check} *")]
        results.failed = [name for name in results.failed if name not in matched]
        results.known += [f"{check}: {reason}" for _ in matched]
        passing = [name for name in results.passed if fnmatch.fnmatch(name, check) or fnmatch.fnmatch(name, f"{check} *")]
        results.passed = [name for name in results.passed if name not in passing]
        results.failed += [f"{name}: passes, but {KNOWN.name} lists it" for name in passing]
        if not matched and not passing:
            results.failed.append(f"{check}: {KNOWN.name} lists it, but there is no such check")


def report(chroot: Chroot, results: dict[str, dict[str, Results] | str]) -> int:
    """The table, what does not work, and the counts."""
    total = Results()
    print("\n| compiler | " + " | ".join(("suite", "passed", "failed", "known", "skipped")) + " |\n|---|---|---|---|---|---|")
    for compiler, suites in results.items():
        version = chroot.run(compiler, "-dumpfullversion" if compiler.startswith("g++") else "-dumpversion").stdout.strip()
        if isinstance(suites, str):
            print(f"| {compiler} {version} | does not build | | | | |")
            continue
        for name, found in suites.items():
            counts = [str(len(kind)) for kind in (found.passed, found.failed, found.known, found.skipped)]
            print(f"| {compiler} {version} | {name} | {' | '.join(counts)} |")
    for compiler, suites in results.items():
        for name, found in ({"build": Results(failed=[suites])} if isinstance(suites, str) else suites).items():
            for kind, lines in (("failed", found.failed), ("known not to work", found.known), ("skipped", found.skipped)):
                for line in dict.fromkeys(lines):
                    print(f"{kind}: {compiler} {name}: {line}")
            total.passed += found.passed
            total.failed += found.failed
            total.skipped += found.skipped + found.known
    print(f"{len(total.passed)} passed, {len(total.failed)} failed, {len(total.skipped)} skipped")
    return bool(total.failed)


def main() -> int:
    if os.geteuid() != 0:
        raise Impossible("a chroot needs root")
    for tool in ("debootstrap", "apt-config", "chroot", "mount", "unshare"):
        if shutil.which(tool) is None:
            raise Impossible(f"{tool} is missing: this needs Debian, with the package debootstrap")
    for compiler in sys.argv[2:]:
        if not re.fullmatch(r"(clang\+\+|g\+\+)-\d+", compiler):
            raise Impossible(f"'{compiler}' is no compiler: write clang++-22 or g++-15, for example")
    # Mounts are in a namespace of this process's own: however it ends, they end with it.
    if "MUSTER_OWN_MOUNTS" not in os.environ:
        own = ["unshare", "--mount", "--propagation", "private"]
        if run(*own, "true").returncode == 0:
            os.environ["MUSTER_OWN_MOUNTS"] = "1"
            os.execvp(own[0], [*own, sys.executable, *sys.argv])
        raise Impossible("mount namespaces are not permitted here")
    chroot = Chroot(Path(sys.argv[1]).resolve())
    chroot.make()
    run("mount", "-t", "proc", "proc", chroot.root / "proc")
    compilers = chroot.install(sys.argv[2:])
    no_python = chroot.python()
    chroot.bring(ROOT, "source")
    shared = Path(os.environ.get("MUSTER_SHARED") or ROOT.parent / "shared")
    if shared.is_dir():
        chroot.bring(shared, "shared")
    results: dict[str, dict[str, Results] | str] = {}
    for name in compilers:
        print(f"building with {name}: {shlex.join(packages_of(name))}", flush=True)
        try:
            results[name] = Compiler(chroot, name, no_python).run_all()
        except Impossible as reason:
            print(reason, flush=True)
            results[name] = str(reason)
    return report(chroot, results)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Impossible as reason:
        sys.exit(f"portability: {reason}")
