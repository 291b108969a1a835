"""Compiles emitted Triton kernels for an H100 or H200 (cuda:90) on a machine without a GPU.

usage: compile_triton.py MUSTER DOCUMENT-OR-FOLDER...

A kernel that takes more than three minutes fails.
"""

import importlib.util
import re
import sys
import tempfile
from pathlib import Path

import cases

try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError as error:
    cases.skip(error)

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


def check(muster, document, folder):
    triton.runtime.driver.set_active(Driver())
    text = document.read_text()
    source = Path(folder, document.stem + ".py")
    cases.emit(muster, "triton", text, source)
    launches = launches_of(text, source)
    for launch in launches:
        compile_launch(*launch)
    return bool(launches) or "\n# stores nothing\n" in text, f"{len(launches)} kernels"


def main():
    options = cases.arguments_of(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-") as temporary:
        folder = options.keep or Path(temporary)
        return cases.run_all(cases.files_of(options.documents), lambda f: f.stem, lambda f: check(options.muster, f, folder), LIMIT, options.trace)


if __name__ == "__main__":
    sys.exit(main())
