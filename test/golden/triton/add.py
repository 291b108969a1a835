import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(16)
_BLOCK_SIZE_1 = tl.constexpr(32)


@triton.jit
def add_kernel(x, y, out):
    pid = tl.program_id(0)
    pid_1 = pid % 3
    offset_1 = pid_1 * _BLOCK_SIZE_1
    indices_1 = offset_1 + tl.arange(0, _BLOCK_SIZE_1)
    mask_1 = indices_1 < 70
    pid_0 = pid // 3
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    mask_0 = indices_0 < 100
    load = tl.load(x + (indices_0[:, None] * 70 + indices_1[None, :]), mask_0[:, None] & mask_1[None, :], other=0.0)
    load_1 = tl.load(y + indices_1, mask_1, other=0.0)
    # out[tile_m, tile_n] = x[tile_m, tile_n] + y[tile_n]
    add = load.to(tl.float32) + load_1
    tl.store(out + (indices_0[:, None] * 70 + indices_1[None, :]), add, mask_0[:, None] & mask_1[None, :])


def launch(x, y, out):
    grid = (triton.cdiv(70, 32) * triton.cdiv(100, 16),)
    add_kernel[grid](x, y, out, num_warps=4, num_stages=1)
