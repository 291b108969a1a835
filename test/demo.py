"""Runs the softmax document on the cpu backend and compares what it stored with a softmax in double precision, written here.

usage: demo.py MUSTER DOCUMENT    (standard library only)
"""

import array
import ast
import math
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS, COLUMNS = 1023, 777
TOLERANCE = 5e-6  # a rounding of x - max, up to 26 here, is a relative error of exp
MAGIC = b"\x93NUMPY\x01\x00"


def write_npy(path: Path, values: array.array) -> None:
    header = str({"descr": "<f4", "fortran_order": False, "shape": (ROWS, COLUMNS)})
    header += " " * (-(len(MAGIC) + 2 + len(header) + 1) % 64) + "\n"
    path.write_bytes(MAGIC + struct.pack("<H", len(header)) + header.encode() + values.tobytes())


def read_npy(path: Path) -> array.array:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<H", data, len(MAGIC))
    begin = len(MAGIC) + 2
    header = ast.literal_eval(data[begin : begin + length].decode())
    if data[: len(MAGIC)] != MAGIC or header != {"descr": "<f4", "fortran_order": False, "shape": (ROWS, COLUMNS)}:
        sys.exit(f"{path}: unexpected header {header}")
    return array.array("f", data[begin + length :])


def softmax(row: array.array) -> list[float]:
    largest = max(row)
    exponentials = [math.exp(value - largest) for value in row]
    total = math.fsum(exponentials)
    return [value / total for value in exponentials]


def main() -> None:
    muster, document = sys.argv[1:]
    generator = random.Random(1)
    x = array.array("f", (generator.gauss(0, 3) for _ in range(ROWS * COLUMNS)))
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        inputs, outputs = Path(folder, "x.npy"), Path(folder, "out.npy")
        write_npy(inputs, x)
        files = ["--input", f"x={inputs}", "--output", f"out={outputs}"]
        subprocess.run([muster, "run", document, "--backend", "cpu", "--repeat", "20", *files], check=True)
        out = read_npy(outputs)
    worst = 0.0
    for start in range(0, ROWS * COLUMNS, COLUMNS):
        for got, expected in zip(out[start : start + COLUMNS], softmax(x[start : start + COLUMNS]), strict=True):
            # NaN compares false with everything: keep it.
            error = abs(got - expected) / expected
            worst = error if not error <= worst else worst
    print(f"largest relative error against a softmax in double precision: {worst:.2e} (allowed: {TOLERANCE:.0e})")
    if not worst <= TOLERANCE:
        sys.exit("the result is wrong")


if __name__ == "__main__":
    main()
