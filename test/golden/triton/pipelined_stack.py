import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(8)
_BLOCK_SIZE_1 = tl.constexpr(16)
_BLOCK_SIZE_2 = tl.constexpr(2)


@triton.jit
def interleave_kernel(x, y, pairs):
    indices_2 = tl.arange(0, _BLOCK_SIZE_2)
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    for offset_1 in tl.range(0, 40, _BLOCK_SIZE_1, num_stages=3):
        indices_1 = offset_1 + tl.arange(0, _BLOCK_SIZE_1)
        mask_1 = indices_1 < 40
        above = tl.load(x + (indices_0[:, None] * 40 + indices_1[None, :]), mask_1[None, :], other=0.0)
        below = tl.load(y + (indices_0[:, None] * 40 + indices_1[None, :]), mask_1[None, :], other=0.0)
        both = tl.where(tl.arange(0, 2)[None, :, None] == 0, above[:, None, :], below[:, None, :])
        tl.store(pairs + (indices_0[:, None, None] * 80 + indices_2[None, :, None] * 40 + indices_1[None, None, :]), both, mask_1[None, None, :])


def launch(x, y, pairs):
    grid = (triton.cdiv(16, 8),)
    interleave_kernel[grid](x, y, pairs, num_warps=4, num_stages=1)
