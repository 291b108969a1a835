"""Compiles emitted cpu kernels with the undefined behaviour sanitizer, runs them, and compares what they store with the
interpreter of device IR. The tool's own reference interpreter (`muster run --interpret`) must store the same.

usage: check_cpu.py MUSTER DOCUMENT-OR-FOLDER... [--forms even ragged …] [--configs N] [--keep FOLDER]

The compiler is $CXX, or clang++-19. Warnings are errors.
"""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import cases
import check_interpreter

COMPILER = os.environ.get("CXX", "clang++-19")
FLAGS = ["-std=c++20", "-O1", "-march=native", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-shared", "-fPIC"]
SANITIZER = ["-fsanitize=undefined,float-cast-overflow", "-fsanitize-trap=all"]  # a finding ends the process by signal 4


class Scalar(ctypes.Union):
    _fields_ = [("integer", ctypes.c_int64), ("real", ctypes.c_double)]


def arguments(source, case):
    """The symbols' values in the order that the source states."""
    listed = re.findall(r"^//   \d+: (\w+), (integer|real)", source, re.M)
    values = (Scalar * max(1, len(listed)))()
    for value, (name, kind) in zip(values, listed):
        setattr(value, kind, case.parameter(name))
    return values


def check(options, case, path):
    source, library = Path(f"{path}.cpp"), f"{path}.so"
    cases.emit(options.muster, options.backend or "cpu", case.text, source)
    done = subprocess.run([COMPILER, *FLAGS, *SANITIZER, source, "-o", library], capture_output=True, text=True)
    if done.returncode:
        return False, f"does not compile: {done.stderr[:800]}"
    kernel = ctypes.CDLL(library).muster_kernel
    kernel.restype = None
    names = list(case.document.tensors)
    tensors = (ctypes.c_void_p * max(1, len(names)))(*[case.storages[n].ctypes.data for n in names])
    kernel(tensors, arguments(source.read_text(), case), ctypes.c_int(2))
    passed, note = case.compare()
    if not passed:
        return passed, note
    for name, storage in case.storages.items():
        storage[:] = case.before[name]
    interpreted, of_interpreter = check_interpreter.check(options, case, path)
    return interpreted, note if interpreted else f"muster run --interpret: {of_interpreter}"


if __name__ == "__main__":
    sys.exit(cases.main(__doc__, check))
