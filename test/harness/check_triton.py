"""Runs emitted Triton kernels in Triton's interpreter and compares what they store with the interpreter of device IR.

usage: check_triton.py MUSTER [--backend triton] [--ragged] [--keep FOLDER] DOCUMENT-OR-FOLDER...

Without Triton, or where there is no document, it ends with 77: skipped.

Documents are scaled down: sizes of tiled dimensions to about two tiles. --ragged: to sizes that no tile divides.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

try:
    import numpy as np
    import triton
    from triton.runtime import interpreter
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from device_ir import DTYPES, FLOATS, Document, Interpreter, evaluate, rounded_array

TOLERANCES = {"f64": 1e-10, "f32": 2e-5, "f16": 3e-3, "bf16": 2.5e-2, "f8e4m3fn": 0.15, "f8e5m2": 0.3}

# Sizes that stand in relations which the scaling cannot see; parameters that must fit the sizes.
SIZES = {
    "_helion_jagged_attention_kernel": {1024: 3, 1025: 4, 785870: 160},
    "jagged_hstu_attention": {16: 3, 17: 4},
    "jagged_dense_add_2d": {256: 10, 257: 11},
    "jagged_softmax_kernel": {512: 6, 513: 7},
    "helion_gdn_fwd_h": {80: 2, 8: 2, 16: 2, 4096: 512},
    "helion_mamba2_chunk_scan_kernel": {80: 2, 8: 2, 256: 64, 4096: 1024},
    "_nvfp4_gemv_bf16in_triton_body": {},
    "rope_fwd": {},
    "two_phases": {},
    "indexing": {},
    "jagged_layer_norm_kernel": {32: 6, 33: 7},
    "jagged_sum_kernel": {},
    "segmented_reduction_helion": {2000: 150, 1999: 149},
    "helion_flex_attention_kernel": {1024: 96, 32: 2},
}
PARAMETERS = {"eps": 1e-5, "p": 0.25, "seed": 123, "max_seq_len": 64, "temperature": 1.5, "beta": 0.3}


class Tensor:
    """What a kernel needs of a tensor: an address and an element type."""

    class Dtype(str):
        itemsize = 1

    def __init__(self, storage, dtype):
        self.storage = storage
        self.dtype = Tensor.Dtype({"f64": "fp64", "f32": "fp32", "f16": "fp16", "f8e4m3fn": "fp8e4nv", "f8e5m2": "fp8e5", "b8": "i1"}.get(dtype, dtype))
        self.dtype.itemsize = storage.itemsize

    def data_ptr(self):
        return self.storage.ctypes.data


def aligned(count, dtype):
    raw = np.zeros(count * dtype.itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * dtype.itemsize].view(dtype)


def patch_interpreter():
    interpreter.GridExecutor._init_args_hst = lambda self, args, kwargs: (args, kwargs)
    interpreter.GridExecutor._restore_args_dev = lambda self, *a: None
    convert = interpreter._implicit_cvt

    def implicit(arg):
        if isinstance(arg, Tensor):
            ty = triton.language.str_to_ty("*" + str(arg.dtype), None)
            return triton.language.tensor(interpreter.TensorHandle(np.array([arg.data_ptr()], np.uint64), ty), ty)
        return convert(arg)

    interpreter._implicit_cvt = implicit
    # What the interpreter gets wrong: conversions to and from narrow floats, products of bf16, tensors as loop bounds.
    tl, builder = triton.language, interpreter.InterpreterBuilder
    narrow = {tl.bfloat16: DTYPES["bf16"], tl.float8e4nv: DTYPES["f8e4m3fn"], tl.float8e5: DTYPES["f8e5m2"]}

    def values(handle):
        of = narrow.get(handle.dtype.scalar)
        return handle.data if of is None else handle.data.view(of).astype(np.float32)

    def cast(original):
        def convert(self, src, dst_type, *rest):
            to, of = dst_type.scalar, src.dtype.scalar
            if to not in narrow and of not in narrow:
                return original(self, src, dst_type, *rest)
            wanted = narrow.get(to) or interpreter._get_np_dtype(to)
            data = rounded_array(values(src).astype(np.float32), wanted)
            return interpreter.TensorHandle(data.view(interpreter._get_np_dtype(to)), to)
        return convert

    builder.cast_impl = cast(builder.cast_impl)
    builder.create_fp_to_fp = cast(lambda self, src, dst_type, mode=None: builder.cast_impl(self, src, dst_type))

    def create_dot(self, a, b, d, precision, imprecise):
        product = np.matmul(values(a), values(b), dtype=d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    builder.create_dot = create_dot

    def inline_assembly(self, text, constraints, values, types, pure, pack):
        if "e4m3x2" not in text:
            raise NotImplementedError("inline assembly")
        data = values[0].data.astype(np.uint8).view(DTYPES["f8e4m3fn"]).astype(np.float32)
        return InlineResult(interpreter.TensorHandle(data, tl.float32))

    class InlineResult:
        def __init__(self, handle):
            self.handle = handle

        def get_result(self, i):
            return self.handle

    builder.create_inline_asm = inline_assembly
    builder.get_bf16 = lambda self, v: interpreter.TensorHandle(np.array([v], DTYPES["bf16"]).view(np.uint16), tl.bfloat16)
    patch_tensor = interpreter._patch_lang_tensor

    def patch_index(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_index
    patch_libdevice()


def patch_libdevice():
    """Functions of NumPy in place of CUDA's, which the interpreter cannot call."""
    from triton.language.extra import libdevice

    def function(f):
        def call(*tiles):
            data = [t.handle.data if isinstance(t, triton.language.tensor) else t for t in tiles]
            model = next(t for t in tiles if isinstance(t, triton.language.tensor))
            with np.errstate(all="ignore"):
                out = np.asarray(f(*data))
            if out.dtype == bool:
                out = out.astype(np.int32)
                element = triton.language.int32
            else:
                out, element = out.astype(data[0].dtype), model.dtype
            return triton.language.tensor(interpreter.TensorHandle(out, element), triton.language.block_type(element, list(out.shape)) if out.ndim else element)
        return call

    for name, numpy_name in {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atan2": "arctan2",
                             "atanh": "arctanh", "pow": "power", "rint": "rint"}.items():
        setattr(libdevice, name, function(getattr(np, numpy_name)))
    for name in ("copysign", "cosh", "sinh", "tan", "expm1", "fmod", "hypot", "log10", "log1p", "nextafter", "signbit", "tanh", "trunc"):
        setattr(libdevice, name, function(getattr(np, name)))
    for name in ("erfc", "lgamma"):
        setattr(libdevice, name, function(np.vectorize(getattr(__import__("math"), name), otypes=[np.float64])))


def power_of_two(n):
    return 1 << max(0, n - 1).bit_length()


def scaled(text, ragged):
    d = Document(text)
    sizes = {}
    if d.kernel in SIZES:
        sizes = SIZES[d.kernel]
    else:
        for b in d.blocks.values():
            if not (b.size.isdigit() and b.block_size.isdigit()):
                continue
            size, block = int(b.size), int(b.block_size)
            whole = b.kind == "reduction" and block >= size
            if whole:
                wanted = size if size <= 64 else 96 if size != power_of_two(size) else 64
            elif ragged:
                wanted = size if size <= block else 2 * block + max(1, block // 4) + 1
            else:
                wanted = min(size, 2 * block)
            if wanted < size:
                sizes[size] = max(sizes.get(size, 0), wanted)
    if not sizes:
        return text
    header, body = re.split(r"(?=^def )", text, maxsplit=1, flags=re.M)
    lines = []
    replace = lambda s: re.sub(r"(?<![\w.])\d+(?![\w.])", lambda m: str(sizes.get(int(m[0]), int(m[0]))), s)
    for line in header.splitlines():
        if m := re.fullmatch(r"(host_tensor \S+ \w+\[)(.*?)(\] strides \[)(.*?)(\])", line):
            old = [s.strip() for s in m[2].split(",") if s.strip()]
            strides = [s.strip() for s in m[4].split(",") if s.strip()]
            new = [replace(s) for s in old]
            if all(s.isdigit() for s in old + strides):
                dense = lambda z: [int(np.prod([int(x) for x in z[i + 1 :]], dtype=np.int64)) for i in range(len(z))]
                order = sorted(range(len(old)), key=lambda i: -int(strides[i]))
                made, step = [0] * len(old), 1
                for i in reversed(order):
                    made[i] = 0 if strides[i] == "0" else step
                    step *= 1 if strides[i] == "0" else int(new[i])
                strides = [str(x) for x in made]
            line = f"{m[1]}{', '.join(new)}{m[3]}{', '.join(strides)}{m[5]}"
        elif m := re.fullmatch(r"(block \d+ )(\S+)( size )(.*?)( reduction block_size )(\d+)", line):
            size = replace(m[4])
            old = int(m[4]) if m[4].isdigit() else None
            block = int(m[6])
            if old is not None and block >= old:
                block = power_of_two(int(size))
            line = f"{m[1]}{replace(m[2])}{m[3]}{size}{m[5]}{block}"
        elif m := re.fullmatch(r"(block \d+ \S+ size )(.*?)( tile .*)", line):
            line = f"{m[1]}{replace(m[2])}{m[3]}"
        lines.append(line)
    return "\n".join(lines) + "\n" + replace(body)


def symbols_of(d):
    values = {}
    for name, (kind, origin, expression, hint) in d.symbols.items():
        if origin != "parameter":
            continue
        if expression in PARAMETERS:
            values[name] = PARAMETERS[expression]
        elif kind == "float":
            values[name] = 0.5
        else:
            values[name] = min(int(hint), 1 << 30) if hint else 4
    if d.kernel == "matmul_bf16_int4":
        values.update(s55=256, s84=512, s85=4, s86=40)
    if d.kernel == "moe_matmul_ogs":
        values.update(s8=20, s28=3, s37=4, s55=3, s62=24, s63=30, s84=24, s85=30, u0=12)
    if d.kernel.startswith("low_mem_dropout"):
        values[next(iter(values))] = 600
    for b in d.blocks.values():  # a block size that only the host knows
        if not b.block_size.isdigit() and b.block_size == b.variable:
            inner = [int(x.block_size) for x in d.blocks.values() if x.block_size.isdigit()]
            values[b.variable] = max(4 * max(inner, default=16), int(b.size) // 2 if b.size.isdigit() else 0)
    return values


def make_inputs(d, symbols, seed):
    rng = np.random.default_rng(seed)
    storages = {}
    float_rows = []
    shapes = {}
    for name, (dtype, sizes, strides) in d.tensors.items():
        shapes[name] = ([int(evaluate(s, symbols)) for s in sizes], [int(evaluate(s, symbols)) for s in strides])
        if dtype in FLOATS and len(sizes) >= 2:
            float_rows.append(shapes[name][0][0])
    for name, (dtype, _, _) in d.tensors.items():
        sizes, strides = shapes[name]
        count = 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if all(sizes) else 0
        data = aligned(count, DTYPES[dtype])
        if dtype in FLOATS:
            data[:] = rounded_array(rng.standard_normal(count), DTYPES[dtype])
        elif dtype == "b8":
            data[:] = rng.integers(0, 2, count)
        elif "token" in name:
            data[:] = {"sorted_to_orig_token_idx": lambda: rng.permutation(count), "expert_token_offsets": lambda: np.array([0, 9, 9, 21]),
                       "expert_token_counts": lambda: np.array([9, 0, 12])}[name]()
        elif "offsets" in name:
            flat = [shapes[n][0] for n, (t, _, _) in d.tensors.items() if t in FLOATS]
            total = min(max(s[0] for s in flat), 60 * (count - 1))
            if d.kernel.startswith("jagged_") and "attention" not in d.kernel and any(len(s) == 1 for s in flat):
                total = max(s[0] for s in flat if len(s) == 1)
                total = min(total // 128 if d.kernel != "jagged_dense_add_2d" else total, 12 * (count - 1))
            cuts = np.sort(rng.integers(0, total + 1, count - 2))
            if d.kernel == "_helion_jagged_attention_kernel":  # a tile beyond a sequence's end stores into the next one
                cuts = cuts // 32 * 32
            data[:] = np.concatenate([[0], cuts, [total]])
        elif "kv_indices" in name:
            data[:] = 0
        elif "num_blocks" in name:
            data[:] = 1
        elif d.kernel == "segmented_reduction_helion":
            data[:] = np.sort(rng.integers(0, 100, count))
        elif dtype in ("i16",):
            data[:] = rng.integers(-8, 8, count)
        elif dtype in ("i8", "u8"):
            data[:] = rng.integers(-128 if dtype == "i8" else 0, 128 if dtype == "i8" else 256, count)
        else:
            data[:] = rng.integers(0, min(float_rows or [s[0][0] for s in shapes.values() if s[0]]), count)
        storages[name] = data
    return storages


def load_module(path):
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", path.stem), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(muster, backend, path, ragged, folder):
    text = scaled(path.read_text(), ragged)
    name = path.stem
    document, source = folder / f"{name}.txt", folder / f"{name}.py"
    document.write_text(text)
    done = subprocess.run([muster, "codegen", document, "--backend", backend, "-o", source], capture_output=True, text=True)
    if done.returncode:
        return "failed", f"codegen: {done.stderr.strip().splitlines()[0][:300]}"
    d = Document(text)
    symbols = symbols_of(d)
    storages = make_inputs(d, symbols, 0)
    expected = {n: s.copy() for n, s in storages.items()}
    before = {n: s.copy() for n, s in storages.items()}
    started = time.time()
    with np.errstate(all="ignore"):
        Interpreter(d, expected, symbols).run()
        middle = time.time()
        module = load_module(source)
        code = module.launch.__code__
        names = code.co_varnames[: code.co_argcount][len(d.tensors) :]
        module.launch(*[Tensor(storages[n], d.tensors[n][0]) for n in d.tensors], *[symbols[n] for n in names])
    seconds = f"reference {middle - started:.1f} s, kernel {time.time() - middle:.1f} s"
    worst, stored = 0.0, 0
    for n, (dtype, _, _) in d.tensors.items():
        got, want = storages[n], expected[n]
        changed = ~same(want, before[n])
        stored += int(changed.sum())
        if not same(got[~changed], before[n][~changed]).all() and not changed.any():
            return "failed", f"{n} is stored to, and should not be"
        if dtype not in FLOATS:
            if not (got == want).all():
                return "failed", f"{n}: {(got != want).sum()} of {len(got)} differ"
            continue
        g, w = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(w)
        if not ((g == w) | (np.isnan(g) & np.isnan(w)))[~finite].all():
            return "failed", f"{n}: infinities and NaNs differ"
        error = np.abs(g[finite] - w[finite])
        scale = np.abs(w[finite]).max(initial=0) * TOLERANCES[dtype] * 0.25 + np.abs(w[finite]) * TOLERANCES[dtype]
        bad = ~(error <= scale + 1e-30)
        if bad.any():
            return "failed", f"{n}: {bad.sum()} of {len(g)} wrong, the first at {int(np.argmax(bad))}: {g[finite][bad][0]} for {w[finite][bad][0]}"
        worst = max(worst, (error / (scale + 1e-30)).max(initial=0))
    if stored == 0:
        return "failed", "nothing is stored"
    return "passed", f"{worst:.2f} of the tolerance; {seconds}"


def same(a, b):
    return a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("muster")
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--backend", default="triton")
    parser.add_argument("--ragged", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--trace", action="store_true")
    arguments = parser.parse_args()
    patch_interpreter()
    failed = 0
    files = [f for path in arguments.documents for f in (sorted(path.glob("*.txt")) if path.is_dir() else [path])]
    if not any(f.is_file() for f in files):
        print("skipped: no documents")
        return 77
    with tempfile.TemporaryDirectory(prefix="muster-") as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for path in files:
            try:
                status, note = check(arguments.muster, arguments.backend, path, arguments.ragged, folder)
            except Exception as error:
                status = "failed"
                note = f"{type(error).__name__}: {str(error)[:300]} {' '.join(getattr(error, '__notes__', []))[:300]}"
                if arguments.trace:
                    traceback.print_exc()
            failed += status == "failed"
            print(f"{status} {path.stem:55} {note}", flush=True)
    print(f"{len(files) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
