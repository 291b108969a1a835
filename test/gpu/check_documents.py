"""Runs emitted Triton kernels on a GPU and compares what they store with the interpreter of device IR.

usage: check_documents.py --emit MUSTER FOLDER DOCUMENT-OR-FOLDER... [--forms even ragged …] [--configs N] [--wide] [--backend triton]
       check_documents.py --run FOLDER [--workers N]

The first form needs no GPU: it writes each document, in the forms of test/harness/cases.py, and its kernel into FOLDER. --wide adds
a form with tensors that reach beyond 2^31 elements: 8 GiB for one of f32.
The second needs PyTorch, Triton and a GPU, and that folder.
"""

import argparse
import importlib.util
import multiprocessing
import re
import sys
import time
from pathlib import Path
from queue import Empty

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "harness"))
import cases
import variants


def emit(options):
    folder = Path(options.paths[1])
    folder.mkdir(parents=True, exist_ok=True)
    refused = 0
    for file in cases.files_of(map(Path, options.paths[2:])):
        for form, text in cases.forms_of(options, file):
            try:
                cases.emit(options.paths[0], options.backend, text, f"{folder}/{file.stem}.{form}.py")
            except RuntimeError as error:
                print(f"failed {file.stem} {form} {error}")
                refused += 1
        if options.wide and (even := cases.formed(file.read_text(), "even")) and (text := variants.wide(even)):
            path = f"{folder}/{file.stem}.wide.py"
            try:
                cases.emit(options.paths[0], options.backend, text, path)
            except RuntimeError as error:
                print(f"failed {file.stem} wide {error}")
                refused += 1
            Path(f"{path}.txt").rename(f"{path}.wide")
            Path(f"{path}.txt").write_text(even)  # the same tensors, dense: what the interpreter runs
    return 1 if refused else 0


def module_of(path):
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", path.stem), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bits(tensor):
    """The tensor as integers, which are copied bit by bit."""
    import torch

    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize])


def check(source):
    """Whether the kernel is right, and what to say of it. None: it cannot run here."""
    import torch
    from triton.runtime.errors import OutOfResources

    types = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f8e4m3fn": torch.float8_e4m3fn,
             "f8e5m2": torch.float8_e5m2, "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "b8": torch.bool}
    case = cases.Case(Path(f"{source}.txt").read_text())
    flat, dense, tensors = {}, [], []
    spread = Path(f"{source}.wide")
    placed = cases.Document(spread.read_text()).tensors if spread.exists() else case.document.tensors
    for name, (dtype, sizes, strides) in case.document.tensors.items():
        raw = torch.from_numpy(case.storages[name].view("uint8")).cuda()
        flat[name] = raw
        number = lambda expressions: [int(cases.evaluate(e, case.symbols)) for e in expressions]
        tensor = raw.view(types[dtype]).as_strided(number(sizes), number(strides))
        dense.append(tensor)
        wanted = number(placed[name][2])
        if list(tensor.stride()) != wanted:
            extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, wanted))
            tensor = torch.empty(extent * tensor.itemsize, dtype=torch.uint8, device="cuda").view(types[dtype]).as_strided(tensor.shape, wanted)
            bits(tensor).copy_(bits(dense[-1]))
        tensors.append(tensor)
    module = module_of(source)
    code = module.launch.__code__
    names = code.co_varnames[len(tensors) : code.co_argcount]
    try:
        module.launch(*tensors, *[case.parameter(n) for n in names])
    except OutOfResources as error:
        return None, f"its blocks do not fit this GPU: {error}"
    torch.cuda.synchronize()
    for tensor, where in zip(tensors, dense):
        if tensor is not where:
            bits(where).copy_(bits(tensor))
    for name, raw in flat.items():
        case.storages[name].view("uint8")[:] = raw.cpu().numpy()
    products = re.search(r"aten\.(add|b|badd)?mm|matmul_ops_dot", case.text)
    reduced = products and "setting dot_precision tf32\n" in case.text
    return case.compare({"f32": 2e-3 if reduced else 1e-4})


def worker(waiting, done):
    import torch

    torch.cuda.init()
    while (source := waiting.get()) is not None:
        done.put((source, "started", "", 0.0))
        started = time.time()
        passed, note = cases.report(check, source, False)
        torch.cuda.empty_cache()
        done.put((source, {True: "passed", False: "failed", None: "skipped:"}[passed], note, time.time() - started))
        if passed is False:
            return  # a failed kernel may have spoiled the process


def run(options):
    sources = sorted(Path(options.paths[0]).glob("*.py"))
    if not sources:
        cases.skip("no kernels")
    waiting, done = multiprocessing.Queue(), multiprocessing.Queue()
    for source in sources:
        waiting.put(source)
    running, failed, skipped, left = {}, 0, 0, len(sources)
    for _ in range(options.workers):
        waiting.put(None)
    start = lambda: multiprocessing.Process(target=worker, args=(waiting, done), daemon=True)
    alive = [start() for _ in range(min(options.workers, left))]
    for w in alive:
        w.start()
    last = time.time()
    while left:
        try:
            source, status, note, seconds = done.get(timeout=1)
        except Empty:
            if time.time() - last > 150:
                print(f"failed: nothing ends; {left} are left: {' '.join(s.stem for s in running)}")
                return 1
            alive = [w for w in alive if w.is_alive()]
            while len(alive) < min(options.workers, left):  # those that failed
                alive.append(start())
                alive[-1].start()
            continue
        if status == "started":
            running[source] = True
            continue
        last = time.time()
        running.pop(source, None)
        left -= 1
        failed += status == "failed"
        skipped += status == "skipped:"
        print(f"{status} {source.stem:62} {note}  ({seconds:.1f} s)", flush=True)
    print(f"{len(sources) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emit", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("paths", nargs="+")
    cases.add_forms(parser)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--backend", default="triton")
    parser.add_argument("--workers", type=int, default=12)
    arguments = parser.parse_args()
    sys.exit(emit(arguments) if arguments.emit else run(arguments))
