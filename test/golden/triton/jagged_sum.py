import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(8)
_BLOCK_SIZE_1 = tl.constexpr(16)


@triton.jit
def jagged_sum_kernel(x_offsets, x_data, out):
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    starts = tl.load(x_offsets + indices_0)
    add = indices_0 + 1
    ends = tl.load(x_offsets + add)
    lengths = ends - starts
    amax = tl.max(lengths, 0)
    row_sums = tl.zeros([_BLOCK_SIZE_0], tl.float32)
    for offset_1 in tl.range(0, amax.to(tl.int32), _BLOCK_SIZE_1, loop_unroll_factor=2):
        indices_1 = offset_1 + tl.arange(0, _BLOCK_SIZE_1)
        flat_indices = starts[:, None] + indices_1[None, :]
        x_slice = tl.load(x_data + flat_indices, indices_1[None, :] < lengths[:, None], other=0.0)
        mask_to = tl.where(indices_1[None, :] < lengths[:, None], x_slice, 0.0)
        sum_1 = tl.sum(mask_to, 1)
        row_sums = row_sums + sum_1
    tl.store(out + indices_0, row_sums)


def launch(x_offsets, x_data, out):
    grid = (triton.cdiv(32, 8),)
    jagged_sum_kernel[grid](x_offsets, x_data, out, num_warps=4, num_stages=1)
