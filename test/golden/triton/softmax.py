import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(4)
_BLOCK_SIZE_1 = tl.constexpr(1024)


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_kernel(x, out):
    indices_1 = tl.arange(0, _BLOCK_SIZE_1)
    mask_1 = indices_1 < 777
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    mask_0 = indices_0 < 1023
    load = tl.load(x + (indices_0[:, None] * 777 + indices_1[None, :]), mask_0[:, None] & mask_1[None, :], other=0.0)
    mask_to = tl.where(mask_0[:, None] & mask_1[None, :], load, float("-inf"))
    amax = tl.reduce(mask_to, 1, _maximum, keep_dims=True)
    sub = load - amax
    exp = tl.exp(sub)
    mask_to_1 = tl.where(mask_0[:, None] & mask_1[None, :], exp, 0.0)
    sum_1 = tl.sum(mask_to_1, 1, keep_dims=True)
    div = exp / sum_1
    tl.store(out + (indices_0[:, None] * 777 + indices_1[None, :]), div, mask_0[:, None] & mask_1[None, :])


def launch(x, out):
    grid = (triton.cdiv(1023, 4),)
    softmax_kernel[grid](x, out, num_warps=4, num_stages=1)
