"""Writes what the lookup benchmarks are compiled from: the first N names of names.txt in the form that one of them needs.

usage: generate.py {literals|cases|gperf} N NAMES OUTPUT
"""

import sys
from pathlib import Path


def literals(names: list[str]) -> str:
    """For a list of `std::string_view`, or of whatever NAME makes of one."""
    return "".join(f'NAME({i}, "{name}")\n' for i, name in enumerate(names))


def cases(names: list[str]) -> str:
    """For a switch over operations."""
    return "".join(f"CASE({i})\n" for i in range(len(names)))


def gperf(names: list[str]) -> str:
    """gperf's own input: a class gperf_N with `find(text, size)`."""
    head = f"%language=C++\n%define class-name gperf_{len(names)}\n%define lookup-function-name find\n"
    head += "%compare-lengths\n%readonly-tables\n%struct-type\n"
    head += "%define initializer-suffix ,0\n%7bit\n%enum\nstruct gperf_entry { const char* name; unsigned id; };\n%%\n"
    return head + "".join(f"{name}, {i}\n" for i, name in enumerate(names))


def main() -> None:
    kind, count, file, output = sys.argv[1:]
    names = Path(file).read_text().split()[: int(count)]
    assert len(set(names)) == int(count), f"{file} has no {count} different names"
    Path(output).write_text({"literals": literals, "cases": cases, "gperf": gperf}[kind](names))


main()
