"""Kernels of the `cpu` backend beside NumPy and PyTorch eager: time a call on the same inputs, with as many threads. Called by report.py.

usage: cpu.py MUSTER   runs them (in a process of its own) and prints {row: {who: [milliseconds of each round]}} as JSON

The documents are those of bench/kernels. What a kernel stores is compared with NumPy's result in double precision before anything is timed.
Each round calls every subject twice, in random order, and times the second call: the others' threads have come to rest by then, and
what one subject takes from the caches it takes from all.
"""

import ctypes
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

KERNELS = Path(__file__).resolve().parent / "kernels"
FLAGS = ["-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"]  # as muster::compile has them
ROUNDS, SECONDS = 31, 8.0  # of a row: so many rounds, or fewer where they take longer

# (document, NumPy expression, PyTorch expression, what PyTorch is called in the row). `out` is where the result belongs, where a function
# takes one; PyTorch's memory is kept between calls by malloc (ENVIRONMENT).
ROWS = [
    ("add", "np.add(x, y, out=out)", "torch.add(x, y, out=out)", ""),
    ("pointwise", "np.square(x / (1 + np.exp(-1.702 * x)) + y)", "torch.square(x * torch.sigmoid(1.702 * x) + y)", ""),
    ("softmax", "softmax(x)", "torch.softmax(x, -1)", ""),
    ("layer_norm", "layer_norm(x, eps) * weight + bias", "F.layer_norm(x, (x.shape[-1],), weight, bias, eps)", ""),
    ("rms_norm", "x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight", "F.rms_norm(x, (x.shape[-1],), weight, eps)", ""),
    ("cross_entropy", "cross_entropy(logits, labels)", "F.cross_entropy(logits, labels, reduction='none')", ""),
    ("jagged_sum", "np.add.reduceat(x_flat.reshape(-1, 128), x_offsets[:-1])",
     "torch.segment_reduce(x_flat.view(-1, 128), 'sum', offsets=x_offsets)", ""),
    ("matmul", "np.matmul(x, y, out=out)", "torch.matmul(x, y, out=out)", ""),
    ("attention", "softmax(q @ k.transpose(0, 2, 1) / 8) @ v", "torch.softmax(q @ k.transpose(1, 2) / 8, -1) @ v", ""),
    ("attention", None, "F.scaled_dot_product_attention(q[None], k[None], v[None])[0]", "fused"),
]  # fmt: skip
# The threads of PyTorch's OpenMP sleep between calls: spinning ones take the cores from whoever else computes, and a call then waits
# for whole ticks of the scheduler.
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
PARAMETERS = {"zuf0": 1e-5}
TOLERANCE = 2e-5


class Row(NamedTuple):
    """Milliseconds of each round; empty where there is no such subject."""

    muster: list[float]
    numpy: list[float]
    torch: list[float]


def measure(build: Path) -> dict[str, Row]:
    """Every row by its name. Throws RuntimeError where a result is wrong or a tool fails."""
    command = [sys.executable, __file__, str(build / "muster")]
    done = subprocess.run(command, text=True, capture_output=True, env=os.environ | ENVIRONMENT)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-4000:])
    return {name: Row(**times) for name, times in json.loads(done.stdout).items()}


def has(name: str) -> bool:
    """Whether this Python has the package. NumPy makes the inputs and the expected results, so nothing is measured without it."""
    return subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode == 0


# --- in the process of its own -------------------------------------------------------------------------------------------------


class Scalar(ctypes.Union):
    _fields_ = [("integer", ctypes.c_int64), ("real", ctypes.c_double)]


def compiled(muster: str, document: Path, folder: Path):
    """The kernel's entry point, and its source."""
    source = subprocess.run([muster, "codegen", document, "--backend", "cpu"], text=True, capture_output=True, check=True).stdout
    file, library = folder / f"{document.stem}.cpp", folder / f"{document.stem}.so"
    file.write_text(source)
    subprocess.run([os.environ.get("CXX", "clang++-19"), *FLAGS, file, "-o", library], check=True)
    kernel = ctypes.CDLL(str(library)).muster_kernel
    kernel.restype = None
    return kernel, source


def inputs(np, text: str) -> dict:
    """The document's tensors, aligned as PyTorch's are."""
    rng = np.random.default_rng(0)
    types = {"f32": np.float32, "i64": np.int64}
    made = {}
    for name, dtype, sizes in re.findall(r"^host_tensor (\w+) (\w+)\[(.*?)\]", text, re.M):
        shape = [int(size) for size in sizes.split(",")]
        count = int(np.prod(shape))
        storage = np.zeros(count * np.dtype(types[dtype]).itemsize + 64, np.uint8)
        start = -storage.ctypes.data % 64
        made[name] = storage[start : start + storage.nbytes - 64].view(types[dtype]).reshape(shape)
        if dtype == "f32":
            made[name][...] = rng.standard_normal(shape, np.float32)
    if "logits_flat" in made:
        made["logits_flat"] = made["logits"].reshape(-1)
        made["labels"][...] = rng.integers(0, made["logits"].shape[1], made["labels"].shape)
    if "x_offsets" in made:
        rows, segments = made["x_flat"].size // 128, made["x_offsets"].size - 1
        lengths = rng.integers(1, 2 * rows // segments, segments)
        made["x_offsets"][1:] = np.minimum(np.cumsum(lengths), rows)
        made["x_flat"] = made["x_flat"][: int(made["x_offsets"][-1]) * 128]
    return made


def run(muster: str) -> None:
    threads = len(os.sched_getaffinity(0))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    import numpy as np

    functions = {"np": np}
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:
        torch = None
    else:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        functions |= {"torch": torch, "F": F}

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layer_norm(x, eps):
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt(np.mean(centered * centered, -1, keepdims=True) + eps)

    def cross_entropy(logits, labels):
        largest = logits.max(-1)
        total = np.exp(logits - largest[:, None]).sum(-1)
        return largest + np.log(total) - logits[np.arange(len(labels)), labels]

    functions |= {"softmax": softmax, "layer_norm": layer_norm, "cross_entropy": cross_entropy}
    found = {}
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        for document, numpy_says, torch_says, variant in ROWS:
            text = (KERNELS / f"{document}.txt").read_text()
            kernel, source = compiled(muster, KERNELS / f"{document}.txt", Path(folder))
            arrays = inputs(np, text)
            names = list(arrays)
            stored = names[-1]
            pointers = (ctypes.c_void_p * len(names))(*[arrays[name].ctypes.data for name in names])
            listed = re.findall(r"^//   \d+: (\w+), (integer|real)", source, re.M)
            scalars = (Scalar * max(1, len(listed)))()
            for scalar, (name, kind) in zip(scalars, listed):
                setattr(scalar, kind, PARAMETERS[name])
            eps = PARAMETERS["zuf0"]
            of_numpy = {name: a.copy() if name == stored else a for name, a in arrays.items()} | {"eps": eps}
            evaluate = lambda code, values: eval(code, functions | values)
            reference = next(n for d, n, _, _ in ROWS if d == document)
            wide = {n: a.astype(np.float64) if getattr(a, "dtype", None) == np.float32 else a for n, a in of_numpy.items()}
            expected = evaluate(reference, wide)
            subjects = {
                "muster": lambda: (kernel(pointers, scalars, ctypes.c_int(threads)), arrays[stored])[1],
            }
            if torch is not None:
                of_torch = {name: torch.from_numpy(a.copy() if name == stored else a) for name, a in arrays.items()} | {"eps": eps}
                subjects["torch"] = lambda code=compile(torch_says, document, "eval"), values=of_torch: evaluate(code, values)
            if numpy_says is not None:
                subjects["numpy"] = lambda code=compile(numpy_says, document, "eval"), values=of_numpy: evaluate(code, values)
            for who, call in subjects.items():
                got = np.asarray(call(), np.float64)
                error = np.abs(got - expected).max() / np.abs(expected).max()
                if got.shape != expected.shape or not error < TOLERANCE:
                    sys.exit(f"{document}: {who} is wrong by {error:g} of the largest value")
            found[f"{document}, {variant}" if variant else document] = timed(subjects)
    print(json.dumps(found))


def timed(subjects: dict) -> dict[str, list[float]]:
    times = {"muster": [], "numpy": [], "torch": []}
    order = random.Random(0)
    until = time.perf_counter() + SECONDS
    while len(times["muster"]) < ROUNDS and (len(times["muster"]) < 5 or time.perf_counter() < until):
        for who in order.sample(sorted(subjects), len(subjects)):
            subjects[who]()
            before = time.perf_counter_ns()
            subjects[who]()
            times[who].append((time.perf_counter_ns() - before) / 1e6)
    return times


if __name__ == "__main__":
    run(sys.argv[1])
