import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(4)
_BLOCK_SIZE_1 = tl.constexpr(8)
_BLOCK_SIZE_2 = tl.constexpr(8)


@triton.jit
def indexing_kernel(x, i, j, last, evens, pick, crossed, ends):
    indices_2 = tl.arange(0, _BLOCK_SIZE_2)
    pid = tl.program_id(0)
    pid_1 = pid % 2
    offset_1 = pid_1 * _BLOCK_SIZE_1
    indices_1 = offset_1 + tl.arange(0, _BLOCK_SIZE_1)
    mask_1 = indices_1 < 9
    pid_0 = pid // 2
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    mask_0 = indices_0 < 9
    load_1 = tl.load(x + (30 + indices_0 * 32), mask_0, other=0.0, eviction_policy="evict_last")
    load_2 = tl.load(x + (indices_0[:, None] * 32 + indices_2[None, :] * 4), mask_0[:, None], other=0.0, eviction_policy="evict_first")
    load_3 = tl.load(i + indices_0, mask_0, other=0)
    load_4 = tl.load(j + indices_0, mask_0, other=0)
    load_5 = tl.load(x + (load_3 * 32 + load_4 * 2), mask_0, other=0.0)
    load_8 = tl.load(j + indices_1, mask_1, other=0)
    load_6 = tl.load(x + (load_3[:, None] * 32 + load_8[None, :] * 2), mask_0[:, None] & mask_1[None, :], other=0.0)
    rsub = 8 - indices_0
    lt = indices_0 < 7
    load_7 = tl.load(x + (6 + rsub * 32), mask_0 & lt, other=0.0)
    tl.store(last + indices_0, load_1, mask_0)
    tl.store(evens + (indices_0[:, None] * 8 + indices_2[None, :]), load_2, mask_0[:, None])
    tl.store(pick + indices_0, load_5, mask_0)
    tl.store(crossed + (indices_0[:, None] * 9 + indices_1[None, :]), load_6, mask_0[:, None] & mask_1[None, :])
    tl.store(ends + indices_0, load_7, mask_0)


def launch(x, i, j, last, evens, pick, crossed, ends):
    grid = (triton.cdiv(9, 8) * triton.cdiv(9, 4),)
    indexing_kernel[grid](x, i, j, last, evens, pick, crossed, ends, num_warps=4, num_stages=1)
