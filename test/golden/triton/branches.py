import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(16)


@triton.jit
def branches_kernel(x, out, u3):
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    load = tl.load(x + indices_0)
    lt = offset_0 < u3
    if lt:
        doubled = load * 2.0
    else:
        doubled = load + pid_0
    tl.store(out + indices_0, doubled)


def launch(x, out, u3):
    grid = (triton.cdiv(64, 16),)
    branches_kernel[grid](x, out, u3, num_warps=4, num_stages=1)
