import triton
import triton.language as tl

_BLOCK_SIZE_1 = tl.constexpr(16)


@triton.jit
def _floor_divide(a, b):
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def symbols_kernel(x, out, s2, zuf0, zuf1):
    pid_1 = tl.program_id(0).to(tl.int64)
    offset_1 = pid_1 * _BLOCK_SIZE_1
    indices_1 = offset_1 + tl.arange(0, _BLOCK_SIZE_1)
    mask_1 = indices_1 < s2
    offset_0 = tl.program_id(1).to(tl.int64)
    load = tl.load(x + (offset_0 * max(1, s2) + indices_1), mask_1, other=0.0)
    truediv = (1.0 - zuf0) / zuf1
    mul = load * truediv
    floordiv = _floor_divide(-offset_1 + min(offset_1 + 16, s2), tl.cdiv(s2, 16))
    add_1 = mul + floordiv
    symnode = offset_0 % 7
    add_2 = add_1 + symnode
    tl.store(out + (offset_0 * s2 + indices_1), add_2, mask_1)


def launch(x, out, s1, s2, zuf0, zuf1):
    grid = (triton.cdiv(s2, 16), s1)
    if all(grid):
        symbols_kernel[grid](x, out, s2, zuf0, zuf1, num_warps=4, num_stages=1)
