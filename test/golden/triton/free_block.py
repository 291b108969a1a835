import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(16)


@triton.jit
def free_block_kernel(x, out):
    offset_1 = tl.program_id(0)
    iota = tl.arange(0, _BLOCK_SIZE_0)
    add = iota + 2
    load = tl.load(x + add)
    tl.store(out + (offset_1 * 20 + add), load)


def launch(x, out):
    grid = (4,)
    free_block_kernel[grid](x, out, num_warps=1, num_stages=1)
