import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(16)
_BLOCK_SIZE_1 = tl.constexpr(16)


@triton.jit
def embedding_kernel(indices, weight, out):
    pid = tl.program_id(0).to(tl.int64)
    pid_0 = pid % 4
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    mask_0 = indices_0 < 50
    pid_1 = pid // 4
    offset_1 = pid_1 * _BLOCK_SIZE_1
    indices_1 = offset_1 + tl.arange(0, _BLOCK_SIZE_1)
    rows = tl.load(indices + indices_0, mask_0, other=0)
    load = tl.load(weight + (rows[:, None] * 48 + indices_1[None, :]), mask_0[:, None], other=0.0)
    tl.store(out + (indices_0[:, None] * 48 + indices_1[None, :]), load, mask_0[:, None])


def launch(indices, weight, out):
    grid = (triton.cdiv(50, 16) * triton.cdiv(48, 16),)
    embedding_kernel[grid](indices, weight, out, num_warps=4, num_stages=1)
