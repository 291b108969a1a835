"""Runs the benchmarks and prints what they found as tables.

usage: report.py BUILD [--readme] [PART…]   BUILD is a finished build folder; parts: lookup growth find_device documents cpu
                                            --readme: write what these found into the table of ratios in README.md

Times are medians of many short repetitions in random order, in nanoseconds a call; what is compared is compared in one process.
Beside them stand instructions a call, which valgrind counts: they do not depend on how busy the machine is. A wrong result ends the
run with status 1; what can not be measured here is told in a line that begins with `skipped:`.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import cpu
import scale

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()


Failed = scale.Failed
STEP_LIMIT = 1 << 20  # Clang's default, of a constant expression


def skipped(reason: str) -> None:
    print(f"skipped: {reason}")


def on_one_core() -> None:
    """In a child: the last core that it may use, so that it does not wander."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def output_of(*command: object, **options) -> str:
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, preexec_fn=on_one_core, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr[-4000:]}")
    return done.stdout


# --- measuring ----------------------------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A call of one subject."""

    ns: float
    instructions: float | None

    def over(self, other: "Measured") -> "Measured":
        return Measured(self.ns / other.ns, self.instructions and other.instructions and self.instructions / other.instructions)


def measured(program: Path, repetitions: int = 31) -> dict[str, Measured]:
    """What a program that is linked with measure.cpp says of its subjects."""
    report = json.loads(
        output_of(
            program,
            "--benchmark_format=json",
            "--benchmark_enable_random_interleaving=true",
            "--benchmark_report_aggregates_only=true",
            f"--benchmark_repetitions={repetitions}",
            "--benchmark_min_time=0.001",
        )
    )
    counts = instructions(program)
    found = {}
    for entry in report["benchmarks"]:
        if entry["aggregate_name"] == "median":
            assert entry["time_unit"] == "ns"
            name, calls = entry["run_name"], entry["calls"]
            found[name] = Measured(entry["cpu_time"] / calls, counts[name] / calls if counts else None)
    return found


def instructions(program: Path) -> dict[str, float]:
    """Those of one pass of each subject; empty where they can not be counted."""
    if not can_count():
        return {}
    counted = {}
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        output_of("valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=counts", program, "--count", cwd=folder)
        for file in Path(folder).glob("counts.*"):
            text = file.read_text()
            if subject := re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE):
                counted[subject[1]] = float(re.search(r"^summary: (\d+)$", text, re.MULTILINE)[1])
    return counted


@cache
def can_count() -> bool:
    if shutil.which("valgrind") is None:
        skipped("instructions: no valgrind (Debian: valgrind)")
        return False
    return True


# --- tables -------------------------------------------------------------------------------------------------------------------


def print_table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """The first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    print(f"\n{title}")
    for row in [head, *rows]:
        print(
            "  "
            + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
        )


def over(one: float | None, other: float) -> float | None:
    return None if one is None else one / other


def ratios(one: Measured | None, other: Measured) -> list[str]:
    ratio = one.over(other) if one else Measured(None, None)
    return [number(ratio.ns), number(ratio.instructions)]


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# --- lookups ------------------------------------------------------------------------------------------------------------------

ORDERS = ("hot", "random", "miss")


def lookup() -> dict[str, Measured]:
    for reason in (BUILD / "bench/peers/left-out.txt").read_text().split("\n"):
        if reason:
            skipped(reason)
    found = measured(BUILD / "bench/peers/lookup-bench")
    for table, ours in (("ids", "muster, unchecked"), ("operation name", "muster"), ("both names", "muster")):
        for size in sorted({name.split("/")[1] for name in found}, key=lambda size: [int(n) for n in reversed(size.split("x"))]):
            print_lookups(f"lookup by {table}, {size.replace('x', ' operations x ')} backends", f"{table}/{size}", ours, found)
    if (BUILD / "bench/peers/torch-bench").is_file():
        dispatcher = measured(BUILD / "bench/peers/torch-bench")
        print_lookups("lookup by operation name beside PyTorch's dispatcher, 1,000 operations", "dispatcher/1000", "muster", dispatcher)
        found |= dispatcher
    return found


def print_lookups(title: str, prefix: str, ours: str, found: dict[str, Measured]) -> None:
    orders = [order for order in ORDERS if f"{prefix}/{order}/{ours}" in found]
    head = ["", *(text for order in orders for text in (f"{order}: ns", "/ ours", "instructions", "/ ours"))]
    rows = []
    whose = {name.split("/")[-1]: one.ns for name, one in found.items() if name.startswith(f"{prefix}/{orders[-1]}/")}
    for who in sorted(whose, key=whose.get):
        row = [who]
        for order in orders:
            one = found[f"{prefix}/{order}/{who}"]
            ratio = one.over(found[f"{prefix}/{order}/{ours}"])
            row += map(number, (one.ns, ratio.ns, one.instructions, ratio.instructions))
        rows.append(row)
    print_table(title, head, rows)


# --- growth -------------------------------------------------------------------------------------------------------------------


def growth() -> dict[str, Measured]:
    costs = scale.compile_costs(BUILD)
    ways = ("muster", "self-registration", "switch")
    rows = [
        [f"{operations} x {backends}", *(number(value) for way in ways for value in one[way])]
        for (operations, backends), one in costs.items()
    ]
    print_table(
        "compiling the table (processor seconds, and the most memory that one compiler had, in MB)",
        ["operations x backends", *(head for way in ways for head in (way + ": s", "MB"))],
        rows,
    )
    within = scale.steps_are_few(BUILD, STEP_LIMIT // 4)
    share = "at most" if within else "MORE than"
    print(f"  all within the compiler's default limits; a table of 1,000 names takes {share} a quarter of its steps")

    programs = scale.programs(BUILD)
    times = scale.start_times(programs)
    counts = {name: scale.all_instructions(program) for name, program in programs.items()} if can_count() else {}
    held = {name: scale.contents(program) for name, program in programs.items()}
    rows = []
    for name in programs:
        more = times[name] - times["nothing"]
        rows.append(
            [
                name,
                number(times[name]),
                number(more),
                f"{(counts[name] - counts['nothing']) / 1e6:.2f}" if counts else "-",
                f"{held[name].kilobytes:.0f}",
                str(held[name].initialisers - held["nothing"].initialisers),
                str(held[name].relative),
                str(held[name].symbolic),
            ]
        )
    rows.append(["muster, in a shared library", "", "", "", *shared_row(scale.shared_library(BUILD), held["nothing"])])
    operations, backends = scale.SIZES[-1]
    print_table(
        f"a program with {operations} operations x {backends} backends that starts, looks one up and ends",
        ["", "ms", "over nothing", "million instructions", "KB", "initialisers", "relocations", "of handlers by name"],
        rows,
    )
    found = {
        f"compiling/{operations}x{backends}/{way}": Measured(1e9 * cost.seconds, None)
        for (operations, backends), one in costs.items()
        for way, cost in one.items()
    }
    return found | {
        f"starting/{name}": Measured(1e6 * (times[name] - times["nothing"]), counts and float(counts[name] - counts["nothing"]) or None)
        for name in programs
    }


def shared_row(held: scale.Contents, nothing: scale.Contents) -> list[str]:
    return [f"{held.kilobytes:.0f}", str(held.initialisers - nothing.initialisers), str(held.relative), str(held.symbolic)]


# --- the other benchmarks -----------------------------------------------------------------------------------------------------


CASES = (
    "first",
    "last of 16",
    "nested 5 deep",
    "dict of 64",
    "list of 1000",
    "typed span of 1000",
    "none",
    "last of 4096",
    "typed arguments",
)


def find_device() -> dict[str, Measured]:
    """The peer's figures are its own, recorded on another machine."""
    found = measured(BUILD / "bench/find_device-bench")
    python = json.loads(output_of(sys.executable, ROOT / "bench/find_device.py"))
    peer = published_find_device()
    rows = []
    for case in CASES:
        ours, tree, floor = (found.get(f"find_device/{case}/{who}") for who in ("muster", "std::variant tree", "every view read"))
        launch = found.get(f"launch_device/{case}/muster")
        row = [
            case,
            number(ours.ns),
            number(ours.instructions),
            *ratios(tree, ours),
            number(floor and floor.ns),
            number(launch and launch.ns),
        ]
        rows.append(
            row
            + [
                number(value)
                for value in (python.get(case), over(python.get(case), ours.ns), peer.get(case), over(peer.get(case), ours.ns))
            ]
        )
    print_table(
        "find_device",
        [
            "",
            "muster: ns",
            "instructions",
            "std::variant tree: / ours",
            "instructions",
            "every view read: ns",
            "launch_device: ns",
            "CPython: ns",
            "/ ours",
            "Helion, as published: ns",
            "/ ours",
        ],
        rows,
    )
    scalar = (found["find_device/last of 4096/muster"].ns - found["find_device/last of 16/muster"].ns) / (4096 - 16)
    print(f"  a skipped scalar: {scalar:.2f} ns")
    return found | {f"find_device/{case}/CPython": Measured(ns, None) for case, ns in python.items()}


def published_find_device() -> dict[str, float]:
    """Nanoseconds of the peer's own, by case, where they are recorded."""
    file = Path(os.environ.get("MUSTER_SHARED") or ROOT.parent / "shared") / "PERFORMANCE.md"
    if not file.is_file():
        skipped("Helion's published find_device: the recorded figures are not there")
        return {}
    table = re.search(r"^## find_device, ns\n(\|.*?)\n\n", file.read_text(), re.MULTILINE | re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()] if table else [[]]
    if "Helion" not in rows[0]:
        skipped(f"Helion's published find_device: no such table in {file.name}")
        return {}
    column = rows[0].index("Helion")
    cases = ("first", "last of 16", "nested 5 deep", "dict of 64", "list of 1000", "none")
    return {
        case: float(row[column].replace(",", ""))
        for case in cases
        for row in rows[2:]
        if row[0].replace(",", "").startswith(case) and row[column]
    }


def documents() -> dict[str, Measured]:
    """Parsing and code generation, with the peer's recorded times where they are there."""
    for name in ("parse", "codegen"):
        print(output_of(BUILD / f"bench/{name}-bench"))
    return {}


def cpu_kernels() -> dict[str, Measured]:
    """Kernels of the cpu backend beside NumPy and PyTorch eager; a ratio is the median of those of each round."""
    if not cpu.has("numpy"):
        skipped("kernels of the cpu backend: no numpy (bench/requirements-torch.txt), which makes their inputs and expected results")
        return {}
    pytorch = "PyTorch eager" if cpu.has("torch") else "no PyTorch"
    if pytorch == "no PyTorch":
        skipped("kernels of the cpu backend beside PyTorch: no torch (bench/requirements-torch.txt)")
    try:
        times = cpu.measure(BUILD)
    except RuntimeError as error:
        raise Failed(str(error)) from error
    rows = []
    found = {}
    for name, row in times.items():
        ours = statistics.median(row.muster)
        found[f"cpu/{name}/muster"] = Measured(1e6 * ours, None)
        cells = [name, number(ours)]
        for who, others in (("NumPy", row.numpy), ("PyTorch", row.torch)):
            ratio = statistics.median(other / own for other, own in zip(others, row.muster)) if others else None
            cells += [number(statistics.median(others) if others else None), number(ratio)]
            if ratio is not None:
                found[f"cpu/{name}/{who}"] = Measured(1e6 * ours * ratio, None)
        rows.append(cells)
    print_table("kernels of the cpu backend, f32", ["", "muster: ms", "NumPy: ms", "/ ours", f"{pytorch}: ms", "/ ours"], rows)
    return found


# --- goals --------------------------------------------------------------------------------------------------------------------


class Goal(NamedTuple):
    """How many times as much the other takes as muster; for `at_most`, how many times as much muster takes as the other."""

    what: str
    other: str
    ours: str
    ratio: float
    at_most: bool = False


def goals() -> list[Goal]:
    checked = "ids/{}x6/random/muster, "
    named = "operation name/{}x6/random/"
    both = "both names/{}x6/"
    all_goals = []
    for count in ("300", "1000"):
        size = f"{int(count):,} operations"
        all_goals.append(
            Goal(
                f"by ids: checked / unchecked, {size}",
                checked.format(count) + "unchecked",
                checked.format(count) + "checked (throws)",
                1.6,
                True,
            )
        )
        for who, ratio in (
            ("std::unordered_map", 3),
            ("llvm::StringMap", 2),
            ("absl::flat_hash_map", 2.5),
            ("gperf", 1.3),
            ("frozen::unordered_map", 6),
            ("boost::unordered_flat_map", 0),
            ("std::map", 0),
            ("TVM FFI GetGlobal", 0),
        ):
            all_goals.append(
                Goal(f"by the operation's name: {who}, {size}", named.format(count) + who, named.format(count) + "muster", ratio)
            )
        all_goals.append(
            Goal(
                f"by the operation's name: muster / name compared, id known, {size}",
                named.format(count) + "id known, name compared",
                named.format(count) + "muster",
                2.2,
                True,
            )
        )
        all_goals.append(
            Goal(
                f"by both names: std::unordered_map of them, {size}",
                both.format(count) + "random/std::unordered_map",
                both.format(count) + "random/muster",
                5,
            )
        )
        all_goals.append(
            Goal(
                f"no such name, both given: std::unordered_map of them, {size}",
                both.format(count) + "miss/std::unordered_map",
                both.format(count) + "miss/muster",
                4,
            )
        )
    all_goals.append(
        Goal(
            "by the operation's name: PyTorch's c10::Dispatcher, 1,000 operations more than its own",
            "dispatcher/1000/random/c10::Dispatcher::findOp",
            "dispatcher/1000/random/muster",
            0,
        )
    )
    for who, ratios_of in (("std::variant tree", (1.3, 2, 6, 2)), ("CPython", (50, 300, 1000, 1000))):
        for case, ratio in zip(("first", "last of 16", "dict of 64", "list of 1000"), ratios_of):
            all_goals.append(Goal(f"find_device: {who}, {case}", f"find_device/{case}/{who}", f"find_device/{case}/muster", ratio))
    all_goals.append(Goal("start: self-registration, 1,000 operations x 32 backends", "starting/self-registration", "starting/muster", 20))
    all_goals.append(Goal("compiling: self-registration, 1,000 x 32", "compiling/1000x32/self-registration", "compiling/1000x32/muster", 0))
    for row in dict.fromkeys(f"{document}, {variant}" if variant else document for document, _, _, variant in cpu.ROWS):
        ratio = 0.5 if row == "matmul" else 0 if row == "attention, fused" else 1
        all_goals.append(Goal(f"cpu, {row}: PyTorch eager", f"cpu/{row}/PyTorch", f"cpu/{row}/muster", ratio))
        all_goals.append(Goal(f"cpu, {row}: NumPy", f"cpu/{row}/NumPy", f"cpu/{row}/muster", 0))
    return all_goals


def goal_rows(found: dict[str, Measured]) -> list[list[str]]:
    """What, the goal, the ratio of times, that of instructions."""
    rows = []
    for goal in goals():
        if goal.other in found and goal.ours in found:
            one, other = (goal.ours, goal.other) if goal.at_most else (goal.other, goal.ours)
            wanted = f"{'at most' if goal.at_most else 'at least'} {goal.ratio:g}" if goal.ratio else ""
            rows.append([goal.what, wanted, *ratios(found[one], found[other])])
    return rows


def write_readme(rows: list[list[str]]) -> None:
    """In the order of the goals; what this run did not measure keeps its row."""
    file = ROOT / "README.md"
    text = file.read_text()
    begin, end = "<!-- bench:begin -->\n", "<!-- bench:end -->"
    before, rest = text.split(begin)
    old, after = rest.split(end)
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines()[2:]}
    lines |= {row[0]: f"| {' | '.join(row)} |" for row in rows}
    table = ["| what, over muster's | goal | time | instructions |", "|---|---|---|---|"]
    table += [lines[goal.what] for goal in goals() if goal.what in lines]
    file.write_text(before + begin + "\n".join(table) + "\n" + end + after)


def plot(found: dict[str, Measured]) -> None:
    """Lookups by name in random order, the compiler's time against the number of cells, and kernels on the processor, of which
    what was measured: build/bench/bench.svg."""
    try:
        import matplotlib
    except ImportError:
        skipped("the plot: no matplotlib (bench/requirements.txt)")
        return
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "muster"
    from matplotlib import pyplot

    drawn: list[Callable] = []
    if any(name.startswith("operation name/") for name in found):
        drawn += [lambda panel, table=table: plot_lookups(panel, table, found) for table in ("operation name", "both names")]
    if any(name.startswith("compiling/") for name in found):
        drawn.append(lambda panel: plot_compiling(panel, found))
    if any(name.startswith("cpu/") for name in found):
        drawn.append(lambda panel: plot_kernels(panel, found))
    if not drawn:
        return
    figure, panels = pyplot.subplots(1, len(drawn), figsize=(5.5 * len(drawn), 6), layout="constrained", squeeze=False)
    for draw, panel in zip(drawn, panels[0]):
        draw(panel)
    target = BUILD / "bench/bench.svg"
    figure.savefig(target, metadata={"Date": None})
    print(f"\nplot: {target.relative_to(ROOT) if target.is_relative_to(ROOT) else target}")


def plot_compiling(panel, found: dict[str, Measured]) -> None:
    for way in ("muster", "self-registration", "switch"):
        points = [
            (operations * backends, found[f"compiling/{operations}x{backends}/{way}"].ns / 1e9) for operations, backends in scale.SIZES
        ]
        panel.loglog(*zip(*points), marker="o", label=way)
    panel.set(title="compiling the table", xlabel="operations x backends", ylabel="processor seconds")
    panel.legend()


def plot_lookups(panel, table: str, found: dict[str, Measured]) -> None:
    counts = ("100", "300", "1000")
    who = sorted(
        {name.split("/")[-1] for name in found if name.startswith(f"{table}/")}, key=lambda name: -found[f"{table}/300x6/random/{name}"].ns
    )
    for i, count in enumerate(counts):
        panel.barh(
            [y + (i - 1) * 0.27 for y in range(len(who))],
            [found[f"{table}/{count}x6/random/{name}"].ns for name in who],
            0.25,
            label=f"{int(count):,} operations",
        )
    panel.set(title=f"lookup by {table}, random order, 6 backends", xlabel="ns", xscale="log", yticks=range(len(who)), yticklabels=who)
    panel.legend()


def plot_kernels(panel, found: dict[str, Measured]) -> None:
    rows = sorted({name.split("/")[1] for name in found if name.startswith("cpu/")})
    for i, who in enumerate(("NumPy", "PyTorch")):
        points = [
            (y + (i - 0.5) * 0.35, found[f"cpu/{row}/{who}"].ns / found[f"cpu/{row}/muster"].ns)
            for y, row in enumerate(rows)
            if f"cpu/{row}/{who}" in found
        ]
        panel.barh([y for y, _ in points], [ratio - 1 for _, ratio in points], 0.33, left=1, label=who)
    panel.axvline(1, color="black", linewidth=1)
    panel.set(title="cpu backend, f32", xlabel="time / muster's", yticks=range(len(rows)), yticklabels=rows)
    panel.set_xscale("log")
    panel.legend()


# --- running ------------------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[], dict[str, Measured]]] = {
    "lookup": lookup,
    "growth": growth,
    "find_device": find_device,
    "documents": documents,
    "cpu": cpu_kernels,
}


def main() -> int:
    chosen = [word for word in sys.argv[2:] if word != "--readme"] or list(PARTS)
    readme = "--readme" in sys.argv
    if unknown := [name for name in chosen if name not in PARTS]:
        print(f"no part {unknown[0]}; there are: {' '.join(PARTS)}", file=sys.stderr)
        return 2
    found: dict[str, Measured] = {}
    for name in chosen:
        try:
            found |= PARTS[name]()
        except Failed as failure:
            print(f"failed: {name}: {failure}", file=sys.stderr)
            return 1
    if rows := goal_rows(found):
        print_table("times as much as muster's, and the goals", ["", "goal", "time", "instructions"], rows)
    plot(found)
    if readme:
        write_readme(rows)
    return 0


sys.exit(main())
