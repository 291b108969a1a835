"""Runs emitted Triton kernels on a GPU against PyTorch.

    python check_triton.py FOLDER

FOLDER holds, for each kernel, NAME.txt (the device IR document) and NAME.py (`muster codegen NAME.txt --backend triton`).
Documents whose kernel has no reference here are named and counted as skipped. Last line: `N passed, N failed, N skipped`.
"""
import importlib.util
import pathlib
import re
import sys

import torch
import torch.nn.functional as F

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f8e4m3fn": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2, "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "b8": torch.bool,
}
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
SYMBOLS = {"eps": 1e-5, "p": 0.25}


def read_document(text):
    kernel = re.search(r"^kernel (\S+)", text, re.M).group(1)
    symbols = {}
    for name, kind, expression, hint in re.findall(r"^symbol (\S+) (int|float) parameter (.*?)(?: hint (\S+))?$", text, re.M):
        symbols[name] = SYMBOLS.get(expression, 0.5) if kind == "float" else int(hint) if hint else None
    tensors = []
    for name, dtype, sizes, strides in re.findall(r"^host_tensor (\S+) (\w+)\[(.*?)\] strides \[(.*?)\]$", text, re.M):
        value = lambda s: [int(eval(x, {}, symbols)) for x in s.split(",") if x.strip()]
        tensors.append((name, DTYPES[dtype], value(sizes), value(strides)))
    return kernel, symbols, tensors


def make(dtype, sizes, strides, bound):
    numel = 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if all(sizes) else 0
    if dtype.is_floating_point:
        storage = torch.randn(max(numel, 1), device="cuda", dtype=torch.float32).to(dtype)
    else:
        storage = torch.randint(0, bound, (max(numel, 1),), device="cuda").to(dtype)
    return torch.as_strided(storage, sizes, strides)


def layer_norm(t, s):
    x = t["x"].double()
    mean = x.mean(-1)
    rstd = torch.rsqrt(x.var(-1, unbiased=False) + s["zuf0"])
    out = (x - mean[:, None]) * rstd[:, None] * t["weight"].double()
    if "bias" in t:
        out = out + t["bias"].double()
    return {"out": out, "mean": mean, "rstd": rstd}


def rms_norm(t, s):
    x = t["x"].double()
    inverse = torch.rsqrt((x * x).mean(-1) + s["zuf0"])
    return {"out": (x * inverse[:, None]) * t["weight"].double(), "inv_rms": inverse}


def matmul(t, s):
    extra = [n for n in t if n not in ("x", "y", "out")]
    out = t["x"].double() @ t["y"].double()
    return {"out": out + t[extra[0]].double() if extra else out}


def dropout(source):
    def check(t, s, result):
        x, y = t[source], result["out_flat"]
        scaled = (x.double() / (1 - s["zuf0"]))
        kept = y != 0
        assert torch.allclose(y[kept].double(), scaled[kept], rtol=1e-5), "a kept value is not x / (1 - p)"
        rate = 1 - kept.double().mean().item()
        assert abs(rate - s["zuf0"]) < 0.03, f"{rate:.3f} of the values were dropped, p is {s['zuf0']}"
    return check


REFERENCES = {
    "add": lambda t, s: {"out": (t["x"].float() + t["y"].float())},
    "exp_fwd": lambda t, s: {"out": torch.exp(t["x"].double())},
    "embedding": lambda t, s: {"out": t["weight"][t["x_flat"].long()]},
    "softmax": lambda t, s: {"out": F.softmax(t["x"].double(), 1)},
    "softmax_two_pass": lambda t, s: {"out": F.softmax(t["x"].double(), 1)},
    "longsum": lambda t, s: {"out": t["x"].double().sum(-1)},
    "longsum_manual": lambda t, s: {"out": t["x"].double().sum(-1)},
    "longsum_w_red_loop": lambda t, s: {"out": t["x"].double().sum(-1)},
    "layer_norm_fwd": layer_norm,
    "rms_norm_fwd": rms_norm,
    "matmul": matmul,
    "bmm": lambda t, s: {"out": torch.bmm(t["A"].double(), t["B"].double())},
    "_geglu": lambda t, s: {"out_flat": F.gelu(t["a_flat"].float(), approximate="tanh").half().float() * t["b_flat"].float()},
}
CHECKS = {"low_mem_dropout": dropout("x_flat"), "low_mem_dropout_bwd": dropout("grad_y_flat")}


def load_module(path):
    spec = importlib.util.spec_from_file_location(path.stem.replace(".", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(document, source):
    kernel, symbols, tensors = read_document(document.read_text())
    if kernel not in REFERENCES and kernel not in CHECKS:
        return "skipped", f"no reference for {kernel}"
    module = load_module(source)
    torch.manual_seed(0)
    bound = min((sizes[0] for _, dtype, sizes, _ in tensors if dtype.is_floating_point and len(sizes) == 2), default=100)
    values = {name: make(dtype, sizes, strides, bound) for name, dtype, sizes, strides in tensors}
    arguments = [values[name] for name, *_ in tensors]
    code = module.launch.__code__
    by_position = list(code.co_varnames[: code.co_argcount])[len(tensors):]
    inputs = {name: v.clone() if 0 not in v.stride() else v for name, v in values.items()}
    for name, v in values.items():  # what is only written is poisoned
        if name in ("out", "out_flat", "mean", "rstd", "inv_rms") and v.dtype.is_floating_point:
            v.fill_(float("nan"))
    module.launch(*arguments, *[symbols[n] for n in by_position])
    torch.cuda.synchronize()
    if kernel in CHECKS:
        CHECKS[kernel](inputs, symbols, values)
        return "passed", ""
    worst = 0.0
    for name, expected in REFERENCES[kernel](inputs, symbols).items():
        got = values[name]
        if torch.isnan(got).any():
            return "failed", f"{name} has NaNs or was not written"
        error = ((got.double() - expected.double()).norm() / expected.double().norm()).item()
        worst = max(worst, error / TOLERANCES[got.dtype])
        if error > TOLERANCES[got.dtype]:
            return "failed", f"{name}: relative error {error:.2e}"
    return "passed", f"{worst:.2f} of the tolerance"


def main():
    folder = pathlib.Path(sys.argv[1])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for document in sorted(folder.glob("*.txt")):
        source = document.with_suffix(".py")
        try:
            status, note = run(document, source)
        except Exception as error:  # a kernel that does not compile or launch is a failed one
            status, note = "failed", f"{type(error).__name__}: {str(error)[:300]}"
        counts[status] += 1
        print(f"{status:8} {document.stem:50} {note}", flush=True)
        torch.cuda.empty_cache()
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
