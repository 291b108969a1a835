"""Runs documents in the tool's reference interpreter, and compares what it stores with this folder's interpreter of device IR: two
implementations that share nothing.

usage: check_interpreter.py MUSTER DOCUMENT-OR-FOLDER... [--sizes even ragged] [--backend cpu]

With a backend, its kernel runs too, and every node's values must be those of the tool's interpreter (`muster run --check-nodes`):
two compilations a document, which is slow.
"""

import subprocess
import sys

import numpy as np

import cases
from device_ir import evaluate


def elements(case, name, storage):
    """A tensor's elements, in their shape, as a view of its memory."""
    _, sizes, strides = case.document.tensors[name]
    shape = [int(evaluate(s, case.symbols)) for s in sizes]
    steps = [int(evaluate(s, case.symbols)) * storage.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(storage, shape, steps)


def check(options, case, path):
    document = f"{path}.txt"
    with open(document, "w") as file:
        file.write(case.text)
    command = [options.muster, "run", document, *(["--check-nodes", "--backend", options.backend] if options.backend else ["--interpret"])]
    for name in case.document.tensors:
        bits = elements(case, name, case.storages[name])  # NumPy's files know no type that is not its own
        bits = bits.view(f"u{bits.itemsize}") if case.document.tensors[name][0] in ("bf16", "f8e4m3fn", "f8e5m2") else bits
        np.save(f"{path}.{name}.npy", np.ascontiguousarray(bits))
        command += ["--input", f"{name}={path}.{name}.npy", "--output", f"{name}={path}.{name}.npy"]
    for name, symbol in case.symbols.items():
        command += ["--symbol", f"{name}={symbol!r}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()[:1] + [x for x in done.stdout.splitlines() if x.startswith(("differs", "first node"))]
        return False, f"status {done.returncode}: {' | '.join(lines)[:500]}"
    for name, storage in case.storages.items():
        result = np.load(f"{path}.{name}.npy")
        elements(case, name, storage)[...] = result.view(storage.dtype) if result.dtype != storage.dtype else result
    return case.compare()


if __name__ == "__main__":
    sys.exit(cases.main(__doc__, check))
