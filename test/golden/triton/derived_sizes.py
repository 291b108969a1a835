import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(8)
_BLOCK_SIZE_1 = tl.constexpr(4)


@triton.jit
def derived_sizes_kernel(x, out, u3: tl.constexpr):
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    mask_0 = indices_0 < 12
    end = offset_0 + 13
    beyond = end + 3
    zero = tl.zeros([_BLOCK_SIZE_0], tl.float32)
    for offset_1 in tl.range(offset_0, beyond, _BLOCK_SIZE_1):
        indices_1 = offset_1 + tl.arange(0, _BLOCK_SIZE_1)
        mask_1 = indices_1 < beyond
        part = tl.load(x + (indices_0[:, None] * 64 + indices_1[None, :]), mask_0[:, None] & mask_1[None, :], other=0.0)
        zeroed = tl.where(mask_0[:, None] & mask_1[None, :], part, 0.0)
        total = tl.sum(zeroed, 1)
        zero = zero + total
    zero_1 = tl.zeros([_BLOCK_SIZE_0], tl.float32)
    for offset_2 in tl.range(0, 64, u3):
        indices_2 = offset_2 + tl.arange(0, u3)
        mask_2 = indices_2 < 64
        part_1 = tl.load(x + (indices_0[:, None] * 64 + indices_2[None, :]), mask_0[:, None] & mask_2[None, :], other=0.0)
        zeroed_1 = tl.where(mask_0[:, None] & mask_2[None, :], part_1, 0.0)
        total_1 = tl.sum(zeroed_1, 1)
        zero_1 = zero_1 + total_1
    tl.store(out + indices_0 * 2, zero, mask_0)
    tl.store(out + (1 + indices_0 * 2), zero_1, mask_0)


def launch(x, out, u3):
    grid = (triton.cdiv(12, 8),)
    derived_sizes_kernel[grid](x, out, u3, num_warps=4, num_stages=1)
