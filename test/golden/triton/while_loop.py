import triton
import triton.language as tl


@triton.jit
def _floor_divide(a, b):
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def halvings_kernel(n, out):
    offset_0 = tl.program_id(0)
    value = tl.load(n + offset_0)
    steps = 0
    gt = value > 1
    condition = gt
    while condition:
        value = _floor_divide(value, 2)
        steps = steps + 1
        gt_1 = value > 1
        condition = gt_1
    tl.store(out + offset_0, steps)


def launch(n, out):
    grid = (48,)
    halvings_kernel[grid](n, out, num_warps=1, num_stages=1)
