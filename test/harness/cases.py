"""What the checks of emitted kernels share: documents scaled down, their inputs, comparison with the interpreter of device IR.

Sizes of tiled dimensions become about two tiles; ragged: sizes that no tile divides.

A document may say what its case is, in comments; then its sizes are not scaled:

    # input TENSOR EXPRESSION      the tensor's elements: NumPy of `shape`, `rng` and `cycle(value, …)`, which repeats values
    # value SYMBOL EXPRESSION      a parameter
    # offset TENSOR ELEMENTS       where in its storage the tensor begins
    # expected TENSOR EXPRESSION   what it must be after the launch: NumPy of the tensors before it, floats in double precision,
                                   of those named in such lines above (unless they are inputs) after it, and of the parameters.
                                   It tests the interpreter as well
    # stores nothing               no element changes
    # stores exactly               floats compare bit by bit, all NaNs being one
    # not run: REASON              only its text is of interest

A document is run in forms: `even` and `ragged` sizes, and variants (variants.py) of the even one: `special` (NaN, infinities and
negative zero among the floats), `strided` (padded rows and permuted dimensions), `one` and `zero` (sizes that the call gives), and
`configN` (the N-th of a seeded sequence of configs).
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from pathlib import Path

import numpy as np

import variants
from device_ir import DTYPES, FLOATS, Document, Interpreter, evaluate, rounded_array

TOLERANCES = {"f64": 1e-10, "f32": 2e-5, "f16": 3e-3, "bf16": 2.5e-2, "f8e4m3fn": 0.15, "f8e5m2": 0.3}

# Sizes that stand in relations which the scaling cannot see; parameters that must fit the sizes.
SIZES = {
    "_helion_jagged_attention_kernel": {1024: 3, 1025: 4, 785870: 192},
    "jagged_hstu_attention": {16: 3, 17: 4},
    "jagged_dense_add_2d": {256: 10, 257: 11},
    "jagged_softmax_kernel": {512: 6, 513: 7},
    "helion_gdn_fwd_h": {80: 2, 8: 2, 16: 2, 4096: 512},
    "helion_mamba2_chunk_scan_kernel": {80: 1, 8: 1, 256: 64, 4096: 1024},
    "_nvfp4_gemv_bf16in_triton_body": {},
    "rope_fwd": {},
    "two_phases": {},
    "indexing": {},
    "jagged_layer_norm_kernel": {32: 6, 33: 7},
    "jagged_sum_kernel": {},
    "segmented_reduction_helion": {2000: 150, 1999: 149},
    "helion_flex_attention_kernel": {1024: 96, 32: 2},
    "matmul_split_k": {32768: 512},
}
PARAMETERS = {"eps": 1e-5, "p": 0.25, "seed": 123, "max_seq_len": 64, "temperature": 1.5, "beta": 0.3}


def power_of_two(n):
    return 1 << max(0, n - 1).bit_length()


def statements_of_case(text, word):
    return re.findall(rf"^# {word} (\w+) (.+)$", text, re.M)


def as_written(text):
    """Whether the document says what its case is."""
    return re.search(r"^# (input|value|offset|expected|stores) \w+", text, re.M) is not None


def scaled(text, ragged):
    if as_written(text):
        return text
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


FORMS = ["even", "ragged", "special", "strided", "one", "zero"]


def formed(text, form):
    """The document in this form, or None where it has none that differs."""
    even = scaled(text, False)
    with_comment = lambda line: even.replace("\n", f"\n{line}\n", 1)
    if form == "even":
        return even
    if form == "ragged":
        changed = scaled(text, True)
    elif form == "strided":
        changed = variants.strided(even)
    elif form.startswith("config"):
        changed = variants.configured(even, int(form.removeprefix("config")))
    elif as_written(text):
        return None
    elif form == "special":
        changed = with_comment("# special values") if any(t in FLOATS for t, _, _ in Document(even).tensors.values()) else even
    else:
        sizes = variants.size_symbols(Document(even)) if Document(even).kernel not in SIZES else []
        changed = with_comment("\n".join(f"# value {s} {int(form == 'one')}" for s in sizes)) if sizes else even
    return changed if changed != even else None


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
    for name, expression in statements_of_case(d.text, "value"):
        values[name] = eval(expression, {"nan": np.nan, "inf": np.inf})
    for b in d.blocks.values():  # a block size that only the host knows
        if b.block_size.isidentifier() and b.block_size not in d.symbols and (b.block_size == b.variable or b.block_size not in d.block_of):
            inner = [int(x.block_size) for x in d.blocks.values() if x.block_size.isdigit()]
            values[b.variable] = values[b.block_size] = max(4 * max(inner, default=16), int(b.size) // 2 if b.size.isdigit() else 0)
    return values


MARGIN = 256  # bytes around a storage that nothing may store to
FILLING = 0xA5


def aligned(count, dtype):
    raw = np.full(count * dtype.itemsize + 64 + 2 * MARGIN, FILLING, np.uint8)
    start = MARGIN - (raw.ctypes.data + MARGIN) % 64 + 64
    return raw[start : start + count * dtype.itemsize].view(dtype)


def margins_kept(storage):
    raw = storage.base
    start = storage.ctypes.data - raw.ctypes.data
    return (raw[:start] == FILLING).all() and (raw[start + storage.nbytes :] == FILLING).all()


def viewed(storage, sizes, strides):
    return np.lib.stride_tricks.as_strided(storage, sizes, [s * storage.itemsize for s in strides])


def cycle(*values):
    """A maker of arrays of any shape that repeat these values."""
    return lambda shape: np.resize(np.array(values), shape)


def stated_input(expression, shape, rng):
    made = eval(expression, {"np": np, "nan": np.nan, "inf": np.inf, "cycle": cycle, "shape": shape, "rng": rng, "n": int(np.prod(shape))})
    made = made(shape) if callable(made) else np.asarray(made)
    return np.broadcast_to(made if made.ndim == 0 or made.shape == tuple(shape) else made.reshape(shape), shape)


def make_inputs(d, symbols, seed):
    rng = np.random.default_rng(seed)
    storages = {}
    stated = dict(statements_of_case(d.text, "input"))
    offsets = {name: int(n) for name, n in statements_of_case(d.text, "offset")}
    float_rows = []
    shapes = {}
    for name, (dtype, sizes, strides) in d.tensors.items():
        shapes[name] = ([int(evaluate(s, symbols)) for s in sizes], [int(evaluate(s, symbols)) for s in strides])
        if dtype in FLOATS and len(sizes) >= 2:
            float_rows.append(shapes[name][0][0])
    for name, (dtype, _, _) in d.tensors.items():
        sizes, strides = shapes[name]
        count = 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if all(sizes) else 0
        data = aligned(offsets.get(name, 0) + count, DTYPES[dtype])[offsets.get(name, 0) :]
        if name in stated:
            data[:] = rounded_array(rng.integers(0, 2, count), DTYPES[dtype])
            viewed(data, sizes, strides)[...] = rounded_array(stated_input(stated[name], sizes, rng), DTYPES[dtype])
        elif dtype in FLOATS:
            data[:] = rounded_array(rng.standard_normal(count), DTYPES[dtype])
        elif dtype == "b8":
            data[:] = rng.integers(0, 2, count)
        elif "token" in name:
            data[:] = {"sorted_to_orig_token_idx": lambda: rng.permutation(count), "expert_token_offsets": lambda: np.array([0, 12, 12, 24]),
                       "expert_token_counts": lambda: np.array([12, 0, 12])}[name]()
        elif "offsets" in name:
            flat = [shapes[n][0] for n, (t, _, _) in d.tensors.items() if t in FLOATS]
            total = min(max(s[0] for s in flat), 60 * (count - 1))
            if d.kernel.startswith("jagged_") and "attention" not in d.kernel and any(len(s) == 1 for s in flat):
                total = max(s[0] for s in flat if len(s) == 1)
                total = min(total // 128 if d.kernel != "jagged_dense_add_2d" else total, 12 * (count - 1))
            cuts = np.sort(rng.integers(0, total + 1, count - 2))
            if d.kernel == "_helion_jagged_attention_kernel":  # a tile beyond a sequence's end stores into the next one
                cuts, total = [64, 128], 192
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
            data[:] = rng.integers(0, max(1, min(float_rows or [s[0][0] for s in shapes.values() if s[0]])), count)
        storages[name] = data
    return storages


def same(a, b):
    return a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")


class Case:
    """A document, its inputs, and what its tensors must be after a launch."""

    def __init__(self, text):
        self.text = text
        self.exact = "\n# stores exactly\n" in self.text
        self.document = Document(self.text)
        self.symbols = symbols_of(self.document)
        self.storages = make_inputs(self.document, self.symbols, 0)
        if "\n# special values\n" in self.text:
            variants.sprinkle(self.document, self.storages, 1)
        self.before = {n: s.copy() for n, s in self.storages.items()}
        self.expected = {n: s.copy() for n, s in self.storages.items()}
        with np.errstate(all="ignore"):
            Interpreter(self.document, self.expected, self.symbols).run()
        self.check_interpreter()

    def parameter(self, name):
        """The value of a kernel's parameter, which is called as its symbol or has a number behind that, where the name was taken."""
        return self.symbols[name] if name in self.symbols else self.symbols[re.sub(r"_\d+$", "", name)]

    def view(self, storages, name):
        _, sizes, strides = self.document.tensors[name]
        number = lambda expressions: [int(evaluate(e, self.symbols)) for e in expressions]
        return viewed(storages[name], number(sizes), number(strides))

    def check_interpreter(self):
        """What the interpreter says against what the document says that must come out."""
        wide = lambda x: x.astype(np.float64) if x.dtype.kind not in "iub" else x
        names = {n: wide(self.view(self.before, n)) for n in self.before}
        inputs = dict(statements_of_case(self.text, "input"))
        for name, expression in statements_of_case(self.text, "expected"):
            with np.errstate(all="ignore"):
                want = eval(expression, {"np": np, "nan": np.nan, "inf": np.inf, "cycle": cycle, **names, **self.symbols})
            dtype = self.document.tensors[name][0]
            got = wide(self.view(self.expected, name))
            if name not in inputs:
                names[name] = got
            want = np.broadcast_to(want(got.shape) if callable(want) else want, got.shape)
            want = want.astype(np.int64) if want.dtype == object else want
            tolerance = TOLERANCES.get(dtype, 0)
            same_sign = dtype not in FLOATS or np.signbit(got) == np.signbit(want)
            if self.exact and not ((got == want) & same_sign | np.isnan(got) & np.isnan(want)).all():
                raise AssertionError(f"the interpreter's {name} is not as the document says: {got} for {want}")
            if not np.allclose(got, want, rtol=tolerance, atol=tolerance * 0.25 * np.abs(want[np.isfinite(want)]).max(initial=0), equal_nan=True):
                raise AssertionError(f"the interpreter's {name} is not as the document says: {got.reshape(-1)[:8]} for {want.reshape(-1)[:8]}")

    def compare(self, tolerances={}):
        """Whether `storages` are now as expected, and what to say of it. `tolerances`: by element type, in place of TOLERANCES."""
        tolerances = TOLERANCES | tolerances
        worst, stored = 0.0, 0
        for n, (dtype, _, _) in self.document.tensors.items():
            got, want = self.storages[n], self.expected[n]
            changed = ~same(want, self.before[n])
            stored += int(changed.sum())
            if not margins_kept(got):
                return False, f"there are stores outside of {n}"
            if not changed.any() and not same(got, self.before[n]).all():
                return False, f"{n} is stored to, and should not be"
            if dtype not in FLOATS:
                if not (got == want).all():
                    return False, f"{n}: {(got != want).sum()} of {len(got)} differ"
                continue
            g, w = got.astype(np.float64), want.astype(np.float64)
            if self.exact and not (same(got, want) | np.isnan(g) & np.isnan(w)).all():
                return False, f"{n} is {g[:20]}, not {w[:20]}"
            finite = np.isfinite(w)
            if not ((g == w) | (np.isnan(g) & np.isnan(w)))[~finite].all():
                return False, f"{n}: infinities and NaNs differ"
            error = np.abs(g[finite] - w[finite])
            scale = np.abs(w[finite]).max(initial=0) * tolerances[dtype] * 0.25 + np.abs(w[finite]) * tolerances[dtype]
            bad = ~(error <= scale + 1e-30)
            if bad.any():
                return False, f"{n}: {bad.sum()} of {len(g)} wrong, the first at {int(np.argmax(bad))}: {g[finite][bad][0]} for {w[finite][bad][0]}"
            worst = max(worst, (error / (scale + 1e-30)).max(initial=0))
        nothing = "\n# stores nothing\n" in self.text
        if stored and nothing or not stored and not nothing and all(len(s) for s in self.storages.values()):
            return False, "something is stored" if stored else "nothing is stored"
        return True, f"{worst:.2f} of the tolerance"


def emit(muster, backend, text, path, *options):
    """Writes the document to path + ".txt" and its kernel to `path`. Throws what the tool printed."""
    document = Path(f"{path}.txt")
    document.write_text(text)
    done = subprocess.run([muster, "codegen", document, "--backend", backend, "-o", path, *options], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"codegen: {done.stderr.strip().splitlines()[0][:300]}")


def skip(reason):
    """Ends the check: it could not be made."""
    print(f"skipped: {reason}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)


def report(check, item, trace):
    try:
        return check(item)
    except Exception as error:  # whatever the kernel or its compiler throws
        if trace:
            traceback.print_exc()
        return False, f"{type(error).__name__}: {str(error)[:600]} {' '.join(getattr(error, '__notes__', []))[:300]}"


def run_all(items, name, check, limit, trace=False):
    """Calls check(item), which gives (passed, note), in a process an item, as many at once as there are processors: a crash, or
    more than `limit` seconds, is a failure of that item alone. Prints a line an item and the closing line."""
    waiting, running, failed = list(items)[::-1], {}, 0
    jobs = len(os.sched_getaffinity(0))
    while waiting or running:
        while waiting and len(running) < jobs:
            item = waiting.pop()
            sys.stdout.flush()
            log = tempfile.TemporaryFile("w+")
            child = os.fork()
            if child == 0:
                os.dup2(log.fileno(), 2)
                passed, note = report(check, item, trace)
                log.write(f"{note}\n")
                log.flush()
                os._exit(0 if passed else 1)
            running[child] = (item, log, time.time())
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            time.sleep(0.01)
            for late in [c for c, (_, _, started) in running.items() if time.time() - started > limit]:
                os.kill(late, signal.SIGKILL)
            continue
        item, log, started = running.pop(child)
        log.seek(0)
        note = log.read().strip()
        if os.WIFSIGNALED(status):
            note += f" ended by signal {os.WTERMSIG(status)} after {time.time() - started:.0f} s"
        failed += status != 0
        print(f"{'passed' if status == 0 else 'failed'} {name(item):62} {note}  ({time.time() - started:.1f} s)", flush=True)
    total = len(items)
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


def add_forms(parser):
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=["even", "ragged"])
    parser.add_argument("--configs", type=int, default=0, metavar="N", help="besides, N seeded configs a document")
    parser.add_argument("--part", type=int, default=1, metavar="N", help="of every N forms beyond even and ragged one")


def forms_of(options, file):
    """(form, text) of every form of a document that is asked for; of the variants a fixed sample where a part is."""
    text = file.read_text()
    for form in options.forms + [f"config{i}" for i in range(options.configs)]:
        if form not in ("even", "ragged") and zlib.crc32(f"{file.stem} {form}".encode()) % options.part:
            continue
        if (changed := formed(text, form)) is not None:
            yield form, changed


def arguments_of(description):
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("muster", help="the tool")
    parser.add_argument("documents", nargs="+", type=Path, help="device IR documents, or folders of them")
    parser.add_argument("--backend")
    add_forms(parser)
    parser.add_argument("--keep", type=Path, help="keep the emitted kernels in this folder")
    parser.add_argument("--trace", action="store_true")
    return parser


def files_of(paths):
    files = [f for path in paths for f in (sorted(path.glob("*.txt")) if path.is_dir() else [path])]
    if not any(f.is_file() for f in files):
        skip("no documents")
    reasons = {f: re.search(r"^# not run: (.*)$", f.read_text(), re.M) for f in files}
    for f, reason in reasons.items():
        if reason:
            print(f"skipped: {f.stem}: {reason[1]}")
    return [f for f, reason in reasons.items() if not reason]


def main(description, check, limit=300):
    """The program around check(options, case, path without suffix): runs every document in every form."""
    options = arguments_of(description).parse_args()
    items = [(file.stem, *form) for file in files_of(options.documents) for form in forms_of(options, file)]

    def one(item):
        stem, form, text = item
        return check(options, Case(text), f"{folder}/{stem}.{form}")

    with tempfile.TemporaryDirectory(prefix="muster-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return run_all(items, lambda item: f"{item[0]} {item[1]}", one, limit, options.trace)
