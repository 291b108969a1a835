"""Runs emitted Triton kernels in Triton's interpreter and compares what they store with the interpreter of device IR.

usage: check_triton.py MUSTER DOCUMENT-OR-FOLDER... [--backend triton] [--forms even ragged …] [--configs N] [--keep FOLDER]
"""

import ctypes
import importlib.util
import os
import re
import sys
from pathlib import Path

import cases

os.environ["TRITON_INTERPRET"] = "1"

try:
    import numpy as np
    import triton
    from triton.runtime import interpreter
except ImportError as error:
    cases.skip(error)

from device_ir import DTYPES, rounded_array


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
    # What the interpreter gets wrong: conversions, comparisons, products and atomic sums of narrow floats, tensors as loop bounds.
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
    for name in [n for n in vars(builder) if n.startswith("create_fcmp")]:
        def compare(self, a, b, original=getattr(builder, name)):
            if a.dtype.scalar not in narrow:
                return original(self, a, b)
            as_f32 = [interpreter.TensorHandle(values(h), tl.float32) for h in (a, b)]
            return original(self, *as_f32)

        setattr(builder, name, compare)
    atomic = builder.create_atomic_rmw

    def create_atomic_rmw(self, kind, pointer, value, mask, *rest):
        if value.dtype.scalar is not tl.bfloat16:
            return atomic(self, kind, pointer, value, mask, *rest)
        if "FADD" not in str(kind):
            raise NotImplementedError(f"{kind} of bf16")
        before = np.zeros(value.data.shape, np.uint16)
        for at in np.ndindex(before.shape):
            if mask.data[at]:
                element = np.frombuffer((ctypes.c_char * 2).from_address(int(pointer.data[at])), DTYPES["bf16"])
                before[at] = element.view(np.uint16)[0]
                element[0] = element[0].astype(np.float32) + values(value)[at]
        return interpreter.TensorHandle(before, tl.bfloat16)

    builder.create_atomic_rmw = create_atomic_rmw

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


def load_module(path):
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", path.stem), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(options, case, path):
    source = Path(f"{path}.py")
    cases.emit(options.muster, options.backend or "triton", case.text, source)
    module = load_module(source)
    code = module.launch.__code__
    tensors = case.document.tensors
    names = code.co_varnames[len(tensors) : code.co_argcount]
    with np.errstate(all="ignore"):
        module.launch(*[Tensor(case.storages[n], tensors[n][0]) for n in tensors], *[case.parameter(n) for n in names])
    return case.compare()


if __name__ == "__main__":
    patch_interpreter()
    sys.exit(cases.main(__doc__, check))
