"""Runs the benchmarks and prints what they found as tables.

usage: report.py BUILD [PART…]   BUILD is a finished build folder; parts: lookup growth find_device documents

Times are medians of many short repetitions in random order, in nanoseconds a call; what is compared is compared in one process.
Beside them stand instructions a call, which valgrind counts: they do not depend on how busy the machine is. A wrong result ends the
run with status 1; what can not be measured here is told in a line that begins with `skipped:`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
    report = json.loads(output_of(program, "--benchmark_format=json", "--benchmark_enable_random_interleaving=true",
                                  "--benchmark_report_aggregates_only=true", f"--benchmark_repetitions={repetitions}",
                                  "--benchmark_min_time=0.001"))
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
        print("  " + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# --- lookups ------------------------------------------------------------------------------------------------------------------

ORDERS = ("hot", "random", "miss")


def lookup() -> None:
    for reason in (BUILD / "bench/peers/left-out.txt").read_text().split("\n"):
        if reason:
            skipped(reason)
    found = measured(BUILD / "bench/peers/lookup-bench")
    for table, ours in (("ids", "muster, unchecked"), ("operation name", "muster"), ("both names", "muster")):
        for size in sorted({name.split("/")[1] for name in found}, key=lambda size: [int(n) for n in reversed(size.split("x"))]):
            print_lookups(f"lookup by {table}, {size.replace('x', ' operations x ')} backends", f"{table}/{size}", ours, found)


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


def growth() -> None:
    costs = scale.compile_costs(BUILD)
    ways = ("muster", "self-registration", "switch")
    rows = [[f"{operations} x {backends}", *(number(value) for way in ways for value in one[way])] for (operations, backends), one in costs.items()]
    print_table("compiling the table (processor seconds, and the most memory that one compiler had, in MB)",
                ["operations x backends", *(head for way in ways for head in (way + ": s", "MB"))], rows)
    within = scale.steps_are_few(BUILD, STEP_LIMIT // 4)
    print(f"  all within the compiler's default limits; a table of 1,000 names takes {'at most' if within else 'MORE than'} a quarter of its steps")

    programs = scale.programs(BUILD)
    times = scale.start_times(programs)
    counts = {name: scale.all_instructions(program) for name, program in programs.items()} if can_count() else {}
    held = {name: scale.contents(program) for name, program in programs.items()}
    rows = []
    for name in programs:
        more = times[name] - times["nothing"]
        rows.append([name, number(times[name]), number(more), f"{(counts[name] - counts['nothing']) / 1e6:.2f}" if counts else "-",
                     f"{held[name].kilobytes:.0f}", str(held[name].initialisers - held["nothing"].initialisers), str(held[name].relative),
                     str(held[name].symbolic)])
    rows.append(["muster, in a shared library", "", "", "", *shared_row(scale.shared_library(BUILD), held["nothing"])])
    operations, backends = scale.SIZES[-1]
    print_table(f"a program with {operations} operations x {backends} backends that starts, looks one up and ends",
                ["", "ms", "over nothing", "million instructions", "KB", "initialisers", "relocations", "of handlers by name"], rows)


def shared_row(held: scale.Contents, nothing: scale.Contents) -> list[str]:
    return [f"{held.kilobytes:.0f}", str(held.initialisers - nothing.initialisers), str(held.relative), str(held.symbolic)]


# --- the other benchmarks -----------------------------------------------------------------------------------------------------


def find_device() -> None:
    print(output_of(BUILD / "bench/find_device-bench"))


def documents() -> None:
    """Parsing and code generation, with the peer's recorded times where they are there."""
    for name in ("parse", "codegen"):
        print(output_of(BUILD / f"bench/{name}-bench"))


# --- running ------------------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[], None]] = {"lookup": lookup, "growth": growth, "find_device": find_device, "documents": documents}


def main() -> int:
    chosen = sys.argv[2:] or list(PARTS)
    if unknown := [name for name in chosen if name not in PARTS]:
        print(f"no part {unknown[0]}; there are: {' '.join(PARTS)}", file=sys.stderr)
        return 2
    for name in chosen:
        try:
            PARTS[name]()
        except Failed as failure:
            print(f"failed: {name}: {failure}", file=sys.stderr)
            return 1
    return 0


sys.exit(main())
