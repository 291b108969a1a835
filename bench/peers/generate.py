"""Writes what the lookup benchmarks are compiled from: the first N names of names.txt in the form that one of them needs.

usage: generate.py {literals|cases|gperf} N NAMES OUTPUT
"""

import sys
from pathlib import Path


def literals(names: list[str]) -> str:
    """A macro that applies another to each number and name: EACH_NAME(X)."""
    return "#define EACH_NAME(X) \\\n" + " \\\n".join(f'  X({i}, "{name}")' for i, name in enumerate(names)) + "\n"


def cases(names: list[str]) -> str:
    """A macro that applies another to each number: EACH_OF_N(X)."""
    return f"#define EACH_OF_{len(names)}(X) " + " ".join(f"X({i})" for i in range(len(names))) + "\n"


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
