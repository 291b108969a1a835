"""Compiles emitted Triton kernels for an H100 or H200 (cuda:90) on a machine without a GPU.

usage: compile_triton.py MUSTER DOCUMENT-OR-FOLDER...

Without Triton, or where there is no document, it ends with 77: skipped. A kernel that takes more than three minutes fails.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TARGET = GPUTarget("cuda", 90, 32)
LIMIT = 180
TYPES = {"f64": ("fp64", 8), "f32": ("fp32", 4), "f16": ("fp16", 2), "bf16": ("bf16", 2), "f8e4m3fn": ("fp8e4nv", 1), "f8e5m2": ("fp8e5", 1),
         "i64": ("i64", 8), "i32": ("i32", 4), "i16": ("i16", 2), "i8": ("i8", 1), "u8": ("u8", 1), "b8": ("i1", 1)}


class Tensor:
    class Dtype(str):
        itemsize = 1

    def __init__(self, dtype):
        spelled, size = TYPES[dtype]
        self.dtype = Tensor.Dtype(spelled)
        self.dtype.itemsize = size

    def data_ptr(self):
        return 0


class Driver:
    class utils:
        @staticmethod
        def get_device_properties(device):
            return {"multiprocessor_count": 132, "max_shared_mem": 232448}

    def get_current_device(self):
        return 0

    def get_current_target(self):
        return TARGET


class Recorder:
    """Stands for a kernel and remembers how it is launched."""

    def __init__(self, launches, function):
        self.launches, self.function = launches, function

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.launches.append((self.function, arguments, options))


def launches_of(text, source):
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", source.stem), source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    launches = []
    for name, value in list(vars(module).items()):
        if isinstance(value, triton.runtime.JITFunction) and name in module.launch.__code__.co_names:
            vars(module)[name] = Recorder(launches, value)
    tensors = re.findall(r"^host_tensor \S+ (\w+)\[", text, re.M)
    symbols = {n: (kind, hint) for n, kind, hint in re.findall(r"^symbol (\S+) (int|float) parameter .*?(?: hint (\S+))?$", text, re.M)}
    code = module.launch.__code__
    values = [Tensor(dtype) for dtype in tensors]
    for name in code.co_varnames[len(tensors) : code.co_argcount]:
        kind, hint = symbols.get(name, ("int", "64"))
        values.append(0.5 if kind == "float" else int(float(hint or 64)))
    module.launch(*values)
    return launches


def compile_launch(function, arguments, options):
    signature, constants, attributes = {}, {}, {}
    for i, (parameter, a) in enumerate(zip(function.params, arguments)):
        divisible = [["tt.divisibility", 16]]
        if parameter.is_constexpr:
            signature[parameter.name], constants[(i,)] = "constexpr", a
        elif isinstance(a, TensorDescriptor):
            signature[parameter.name] = f"tensordesc<{a.base.dtype}{list(a.block_shape)}>"
        elif isinstance(a, Tensor):
            signature[parameter.name], attributes[(i,)] = f"*{a.dtype}", divisible
        elif isinstance(a, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32"
            if a % 16 == 0:
                attributes[(i,)] = divisible
    triton.compile(ASTSource(function, signature, constants, attributes), target=TARGET, options=options)


def compile_all(text, source):
    triton.runtime.driver.set_active(Driver())
    try:
        for launch in launches_of(text, source):
            compile_launch(*launch)
    except BaseException as error:  # a compiler error may be of any type
        print(f"  {type(error).__name__}: {str(error)[-600:]}", flush=True)
        return 1
    return 0


def within_limit(text, source):
    """In a process of its own, as the compiler cannot be interrupted. Whether it ended well, and in how many seconds."""
    sys.stdout.flush()
    started = time.time()
    child = os.fork()
    if child == 0:
        os._exit(compile_all(text, source))
    while time.time() - started < LIMIT:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0, time.time() - started
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False, LIMIT


def main():
    muster, *paths = sys.argv[1:]
    files = [f for path in map(Path, paths) for f in (sorted(path.glob("*.txt")) if path.is_dir() else [path])]
    if not any(f.is_file() for f in files):
        print("skipped: no documents")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        for document in files:
            source = Path(folder, document.stem + ".py")
            done = subprocess.run([muster, "codegen", document, "--backend", "triton", "-o", source], capture_output=True, text=True)
            if done.returncode:
                ok, note = False, done.stderr.strip()
            else:
                ok, seconds = within_limit(document.read_text(), source)
                note = f"{seconds:.1f} s"
            failed += not ok
            print(f"{'passed' if ok else 'failed'} {document.stem:55} {note}", flush=True)
    print(f"{len(files) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
