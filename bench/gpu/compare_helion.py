"""Times emitted Triton kernels beside the kernels that Helion generates for the same device IR and configs, on one GPU.

usage: compare_helion.py MUSTER EXPORT EXAMPLES DOCUMENTS [--example REGEX] [--only REGEX]
                         [--library FILE] [--random N] [--sources REGEX] [--out FOLDER]

MUSTER: the tool; EXPORT: the module that writes a bound kernel as a device IR document; EXAMPLES: Helion's folder of examples;
DOCUMENTS: a folder of documents exported from them, MODULE.KERNEL.N[.VARIANT].txt, whose configs are taken; an example
without one gets its default config. --random adds N random configs a kernel. Needs Helion, PyTorch, Triton and a GPU.

Each example runs once, with every call of its kernels caught. Each caught kernel is exported with each config, emitted, and
called with the arguments of the kernel that Helion makes of it; what both store must agree. Both sources go into
FOLDER/sources.txt where ours is slower or --sources matches the name. Times are of replayed CUDA graphs,
the two alternating; the ratio is the median of the pairs, over several loads of both modules. Processes, one an example,
compile side by side and take turns at timing.
"""

import argparse
import ctypes
import importlib.util
import inspect
import json
import multiprocessing
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

LOADS = 3
ROUNDS = 5


def load(path):
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", path.stem), path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Document:
    def __init__(self, name, text):
        self.name, self.text = name, text
        self.tensors = re.findall(r"^host_tensor (\S+) (\w+)\[(.*?)\] strides \[(.*?)\]$", text, re.M)
        self.symbols = re.findall(r"^symbol (\S+) (int|float) parameter (.*?)(?: hint (\S+))?$", text, re.M)


def only_stored(text):
    """The host tensors that a document's kernel writes and never reads."""
    stored, other = set(), set()
    for graph in re.split(r"(?=^def )", text, flags=re.M):
        tensors = dict(re.findall(r"^    (\w+): .* = helion_language__tracing_ops__host_tensor\('(.*?)'\)", graph, re.M))
        for operation, node in re.findall(r"helion_language_(\w+)\((\w+)[,)]", graph):
            if node in tensors:
                (stored if operation == "memory_ops_store" else other).add(tensors[node])
    return stored - other


def catch_calls(example):
    """Runs an example's main with benchmarks reduced to one call each: the arguments of every kernel call, by kernel."""
    import helion
    import helion._testing
    from helion.runtime.kernel import BoundKernel

    calls = []
    original = BoundKernel.__call__

    def call(self, *args):
        calls.append((self, args))
        return original(self, *args)

    BoundKernel.__call__ = call
    BoundKernel.autotune = lambda self, *a, **k: self.config_spec.default_config()

    def once(kernel_fn, baseline_fn, args, **_):
        for f in (kernel_fn if isinstance(kernel_fn, dict) else {"": kernel_fn}).values():
            try:
                f(*args)
            except Exception as error:
                print(f"  {example.stem}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return {}

    helion._testing.run_example = once
    module = load(example)
    for name in ("run_example", "do_bench"):
        if hasattr(module, name):
            setattr(module, name, once if name == "run_example" else lambda f, *a, **k: (f(), 1.0)[1])
    try:
        module.main()
    except Exception as error:
        print(f"  {example.stem}: main: {type(error).__name__}: {str(error)[:300]}", flush=True)
    BoundKernel.__call__ = original
    return calls


class Library:
    """muster's code generator in this process, through its C interface."""

    def __init__(self, path):
        self.functions = ctypes.CDLL(path)
        self.functions.muster_last_error_message.restype = ctypes.c_char_p

    def codegen(self, text):
        source = ctypes.c_void_p()
        status = self.functions.muster_codegen(text, ctypes.c_size_t(len(text)), None, b"triton", None, ctypes.byref(source), None)
        if status:
            raise RuntimeError(self.functions.muster_last_error_message().decode())
        self.functions.muster_free(source)


def seconds(f, times):
    """The median of some calls' times."""
    measured = []
    for _ in range(times):
        started = time.perf_counter()
        f()
        measured.append(time.perf_counter() - started)
    return statistics.median(measured)


class Launch:
    """A caught launch of a Triton kernel."""

    def __init__(self):
        self.kernel = None

    def __call__(self, kernel, grid, *args, num_warps, num_stages, ptx_options=None, launch_cooperative_grid=False, **options):
        if self.kernel is not None:
            raise RuntimeError("a second launch")
        self.options = dict(num_warps=num_warps, num_stages=num_stages, **options)
        if launch_cooperative_grid:
            self.options["launch_cooperative_grid"] = True
        if ptx_options is not None:
            self.options["ptx_options"] = ptx_options
        self.kernel, self.grid, self.args = kernel, grid, args

    def run(self, args):
        self.kernel.run(*args, grid=self.grid, warmup=False, **self.options)

    def tensors(self):
        import torch

        return {n: a for n, a in zip(self.kernel.arg_names, self.args) if isinstance(a, torch.Tensor)}


def dtype_of(t):
    names = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8", "int16": "i16", "int32": "i32",
             "int64": "i64", "uint8": "u8", "bool": "b8", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2"}
    return names[str(t.dtype).removeprefix("torch.")]


def fits(declared, t):
    _, dtype, sizes, strides = declared
    if dtype_of(t) != dtype:
        return False
    for text, values in ((sizes, t.shape), (strides, t.stride())):
        parts = [p.strip() for p in re.split(r",(?![^(]*\))", text) if p.strip()]
        if len(parts) != len(values) or any(p.isdigit() and int(p) != v for p, v in zip(parts, values)):
            return False
    return True


def place_tensors(document, launch, arguments):
    """The document's tensors among those that the launch got, by name, else by type and shape."""
    given = launch.tensors()
    placed, left = {}, dict(given)
    for d in document.tensors:
        name = re.sub(r"\W+", "_", d[0]).strip("_")
        for candidate in (d[0], name):
            if candidate in left and fits(d, left[candidate]):
                placed[d[0]] = left.pop(candidate)
                break
    for d in document.tensors:
        if d[0] in placed:
            continue
        found = next((n for n, t in left.items() if fits(d, t)), None)
        if found is not None:
            placed[d[0]] = left.pop(found)
        else:  # an argument that the peer's kernel does not take
            other = [a for a in arguments.values() if hasattr(a, "stride") and fits(d, a)]
            if d[0] in arguments and hasattr(arguments[d[0]], "stride") and fits(d, arguments[d[0]]):
                placed[d[0]] = arguments[d[0]]
            elif other:
                placed[d[0]] = other[0]
            else:
                return None
    return placed


def symbol_value(expression, kind, hint, tensors, arguments):
    names = {**arguments, **tensors}
    try:
        value = eval(expression, {}, names)
        return float(value) if kind == "float" else int(value)
    except Exception:
        if hint is None:
            raise
        return float(hint) if kind == "float" else int(hint)


def graph_of(f, repeat):
    """A CUDA graph of `repeat` calls."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        f()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(repeat):
                f()
    torch.cuda.synchronize()
    return graph, repeat


def repeats_of(f):
    """How many calls take about 8 ms of the GPU's time."""
    graph = graph_of(f, 5)
    replay(*graph)
    return max(1, min(400, int(8000 / replay(*graph))))


def replay(graph, repeat):
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1000 / repeat


def compiled(kernel):
    return [c for device in kernel.device_caches.values() for c in device[0].values()]


def machine_code(compiled_kernel):
    """The instructions in a compiled kernel: the `.text` sections of its ELF file."""
    elf = compiled_kernel.asm["cubin"]
    table, = struct.unpack_from("<Q", elf, 40)
    size, count, names_at = struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    names = sections[names_at][4]
    is_text = lambda name: elf[names + name :].startswith(b".text.")
    return b"".join(elf[offset : offset + length] for name, _, _, _, offset, length in sections if is_text(name))


class Pair:
    """One document: the peer's launch and ours, with the same arguments."""

    def __init__(self, document, muster, bound, args, config):
        import torch

        self.document = document
        self.peer_codegen = lambda: bound.to_triton_code(config)
        self.peer_code = self.peer_codegen()
        source = Path(tempfile.gettempdir(), document.name + ".py")
        written = source.with_suffix(".txt")
        written.write_text(document.text)
        done = subprocess.run([muster, "codegen", written, "--backend", "triton", "-o", source], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"muster: {done.stderr.strip()[:300]}")
        self.code = source.read_text()
        try:
            function = bound.compile_config(config, allow_print=False)
            self.peer = Launch()
            function(*args, _launcher=self.peer)
            self.peer.run(self.peer.args)
            torch.cuda.synchronize()
        except Exception as error:
            raise RuntimeError(f"the peer's own: {type(error).__name__}: {error}") from error
        arguments = dict(zip(bound.kernel.signature.parameters, args))
        placed = place_tensors(document, self.peer, arguments)
        if placed is None:
            raise LookupError("its tensors are not those of the call")
        self.tensors = [placed[d[0]] for d in document.tensors]
        self.module = module = load(source)
        names = inspect.signature(module.launch).parameters
        symbols = {n: symbol_value(e, k, h, placed, arguments) for n, k, e, h in document.symbols}
        values = [symbols[n] for n in list(names)[len(document.tensors) :]]
        self.ours = lambda: module.launch(*self.tensors, *values)
        self.theirs = lambda: self.peer.run(self.peer.args)
        before = {t.data_ptr(): (t, t.clone()) for t in list(self.peer.tensors().values()) + self.tensors}
        restore = lambda: [t.copy_(saved) for t, saved in before.values() if not any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape))]
        for name in only_stored(document.text):  # so that a kernel which does nothing is found
            placed[name].view(torch.uint8).fill_(77) if placed[name].is_contiguous() else placed[name].fill_(1)
        before = {p: (t, t.clone()) for p, (t, _) in before.items()}
        results = []
        for f in (self.theirs, self.ours):
            restore()
            torch.cuda.synchronize()
            f()
            torch.cuda.synchronize()
            results.append([t.clone() for t, _ in before.values()])
        restore()
        self.worst, self.stored = 0.0, 0
        for a, b, (t, saved) in zip(*results, before.values()):
            same = lambda x, y: torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
            self.stored += not same(b, saved)
            if same(a, b):
                continue
            a, b = a.double(), b.double()
            if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
                self.worst = float("inf")
                continue
            scale = torch.nan_to_num(a, posinf=0, neginf=0).abs().max().clamp_min(1e-12)
            self.worst = max(self.worst, (torch.nan_to_num(a - b).abs().max() / scale).item())

    def time(self):
        """Microseconds of the peer's and of ours, the median of their ratios, how much the peer's own time varies from one load of
        its module to the next (its largest over its smallest), and both kernels' sizes in instructions ("same" where equal)."""
        import torch

        kernels = [self.peer.kernel, *(k for k in vars(self.module).values() if hasattr(k, "device_caches"))]
        pairs, loads = [], []
        for _ in range(LOADS):  # where a module lies in memory changes its time too
            for k in kernels:
                k.device_caches.clear()
            repeat = repeats_of(self.theirs)  # the same for both: a graph's launch has a cost of its own
            graphs = [graph_of(f, repeat) for f in (self.theirs, self.ours)]
            for g in graphs:
                replay(*g)
            for i in range(ROUNDS):
                order = graphs if i % 2 == 0 else graphs[::-1]
                times = [replay(*g) for g in order]
                pairs.append(times if i % 2 == 0 else times[::-1])
            loads.append(statistics.median(t for t, _ in pairs[-ROUNDS:]))
            del graphs
        torch.cuda.empty_cache()
        theirs, ours = zip(*pairs)
        codes = [machine_code(c) for k in kernels for c in compiled(k)]
        sizes = "same" if len(codes) == 2 and codes[0] == codes[1] else "/".join(str(len(c) // 16) for c in codes)
        ratio = statistics.median(o / t for t, o in pairs)
        return statistics.median(theirs), statistics.median(ours), ratio, max(loads) / min(loads), sizes


def configs_of(module, name, n, documents, bound, random_count):
    """The variants of one kernel: their names and configs, and the document that the config was taken from."""
    import helion
    from helion.autotuner.config_generation import ConfigGeneration

    prefix = f"{module}.{name.strip('_')}.{n}"
    found = [(p.stem, helion.Config(**json.loads(re.search(r"^config (.*)$", p.read_text(), re.M)[1])), p)
             for p in sorted(documents.glob(f"{module}.*.txt")) if p.stem == prefix or p.stem.startswith(prefix + ".")]
    if not found:
        found = [(prefix, bound.config_spec.default_config(), None)]
    if random_count:
        generation = ConfigGeneration(bound.config_spec)
        found += [(f"{prefix}.random{i}", generation.random_config(), None) for i in range(random_count)]
    return found


def child(example, options, pipe):
    os.environ["HELION_AUTOTUNE_EFFORT"] = "none"
    log = open(f"/tmp/{example.stem}.log", "w")
    os.dup2(log.fileno(), 2)
    pairs, problems, same = [], [], []
    try:
        import random

        import torch

        random.seed(1)
        torch.manual_seed(0)
        calls = catch_calls(example)
        sys.path.insert(0, str(options.export.parent))
        export = load(options.export).export
        seen, counts = set(), {}
        for bound, args in calls:
            if id(bound) in seen or counts.get(bound.kernel.name, 0) >= options.most:
                continue
            seen.add(id(bound))
            n = counts[bound.kernel.name] = counts.get(bound.kernel.name, -1) + 1
            for name, config, taken_from in configs_of(example.stem, bound.kernel.name, n, options.documents, bound, options.random):
                if not re.search(options.only, name):
                    continue
                try:
                    with torch.no_grad():
                        with bound.env, bound.host_function, bound.host_function.device_ir:
                            text = export(bound, config)
                        if taken_from is not None:
                            same.append(text == taken_from.read_text())
                        pairs.append(Pair(Document(name, text), options.muster, bound, args, config))
                except Exception as error:
                    problems.append((name, f"{type(error).__name__}: {str(error)[:300]}".replace("\n", " ")))
                    traceback.print_exc()
                    if "CUDA error" in str(error):
                        raise
    except BaseException as error:
        traceback.print_exc()
        problems.append((example.stem, f"{type(error).__name__}: {str(error)[:300]}".replace("\n", " ")))
    pipe.send((problems, sum(same), len(same)))
    pipe.recv()
    library = Library(options.library) if options.library else None
    for p in pairs:
        try:
            text = p.document.text.encode()
            peer_ms = seconds(p.peer_codegen, 1) * 1e3
            ours_us = seconds(lambda: library.codegen(text), 21) * 1e6 if library else None
            pipe.send((p.document.name, p.worst, p.stored, *p.time(), peer_ms, ours_us, p.document.text, p.peer_code, p.code))
        except BaseException as error:
            traceback.print_exc()
            pipe.send((p.document.name, f"timing: {type(error).__name__}: {str(error)[:300]}"))
    pipe.send(None)


def main():
    parser = argparse.ArgumentParser()
    for name in ("muster", "export", "examples", "documents"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--example", default="", metavar="REGEX", help="examples by file name")
    parser.add_argument("--only", default="", metavar="REGEX", help="kernels by document name")
    parser.add_argument("--library", help="libmuster_c.so: times code generation too")
    parser.add_argument("--random", type=int, default=0, help="random configs a kernel")
    parser.add_argument("--most", type=int, default=8, help="specialisations of one kernel")
    parser.add_argument("--unseen", action="store_true", help="only the examples that no document was exported from")
    parser.add_argument("--sources", help="documents whose sources are kept")
    parser.add_argument("--out", type=Path, help="a folder for the table, new documents, and sources where ours is slower or wrong")
    parser.add_argument("--limit", type=float, default=330, help="seconds for compiling")
    options = parser.parse_args()
    known = {p.stem.split(".")[0] for p in options.documents.glob("*.txt")}
    examples = [p for p in sorted(options.examples.glob("*.py")) if "def main" in p.read_text() and (p.stem in known) != options.unseen
                and re.search(options.example, p.stem)]
    started = time.time()
    context = multiprocessing.get_context("fork")
    children = []
    for example in examples:
        here, there = context.Pipe()
        process = context.Process(target=child, args=(example, options, there), daemon=True)
        process.start()
        there.close()
        children.append((example.stem, process, here))
    ready, problems, same, compared = [], [], 0, 0
    for name, process, pipe in children:
        try:
            if not pipe.poll(max(1, options.limit - (time.time() - started))):
                problems.append((name, "not compiled in time"))
                process.kill()
                continue
            found, equal, of = pipe.recv()
            problems += found
            same, compared = same + equal, compared + of
            ready.append((name, process, pipe))
        except EOFError:
            problems.append((name, "the process ended"))
    print(f"compiled in {time.time() - started:.0f} s; {same} of {compared} documents exported anew are the recorded ones", flush=True)
    rows = []
    for name, process, pipe in ready:
        pipe.send("go")
        try:
            while (row := pipe.recv()) is not None:
                (problems if len(row) == 2 else rows).append(row)
        except EOFError:
            problems.append((name, "the process ended while timing"))
        process.join(5)
    lines = ["document\tdifference\tstored\tpeer_us\tours_us\tratio\tpeer_varies\tinstructions\tpeer_codegen_ms\tours_codegen_us"]
    rows.sort(key=lambda r: r[5])
    for name, worst, stored, theirs, ours, ratio, varies, sizes, peer_ms, ours_us, *_ in rows:
        lines.append(f"{name}\t{worst:.2e}\t{stored}\t{theirs:.2f}\t{ours:.2f}\t{ratio:.3f}\t{varies:.3f}\t{sizes}\t"
                     f"{peer_ms:.1f}\t{ours_us or 0:.1f}")
    lines += [f"problem\t{n}\t{r}" for n, r in problems]
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        Path(options.out, "compare.tsv").write_text("\n".join(lines) + "\n")
        Path(options.out, "documents.txt").write_text("".join(f"==== {r[0]}\n{r[10]}" for r in rows))
        Path(options.out, "sources.txt").write_text("".join(
            f"==== {r[0]} {r[5]:.3f} {r[1]:.2e}\n---- peer\n{r[11]}\n---- ours\n{r[12]}\n" for r in rows
            if r[5] > 1.03 or r[1] > 0.01 or (options.sources and re.search(options.sources, r[0]))))
    print("\n".join(lines))
    if rows:
        ratios = [r[5] for r in rows]
        print(f"{len(rows)} kernels; ratio ours/theirs: median {statistics.median(ratios):.3f}, largest {max(ratios):.3f}, "
              f"over 1.05: {sum(r > 1.05 for r in ratios)}, of these with the same machine code: "
              f"{sum(r[5] > 1.05 and r[7] == 'same' for r in rows)}; "
              f"results that differ by more than 2%: {[r[0] for r in rows if r[1] > 0.02]}")
    if rows and options.library:
        print(f"code generation: the peer's time over ours, text to text: median {statistics.median(r[8] * 1e3 / r[9] for r in rows):.0f}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
