import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(8)
_BLOCK_SIZE_1 = tl.constexpr(128)


@triton.jit
def rms_norm_kernel(x, weight, out, zuf0):
    indices_1 = tl.arange(0, _BLOCK_SIZE_1)
    mask_1 = indices_1 < 96
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    load = tl.load(x + (indices_0[:, None] * 96 + indices_1[None, :]), mask_1[None, :], other=0.0, eviction_policy="evict_first")
    x_tile = load.to(tl.float32)
    x_squared = x_tile * x_tile
    mean_extra = tl.sum(x_squared, 1)
    mean = mean_extra / 96.0
    add = mean + zuf0
    rsqrt = tl.rsqrt(add)
    normalized = x_tile * rsqrt[:, None]
    load_1 = tl.load(weight + indices_1, mask_1, other=0.0)
    mul = normalized * load_1
    convert_element_type = mul.to(tl.float16)
    tl.store(out + (indices_0[:, None] * 96 + indices_1[None, :]), convert_element_type, mask_1[None, :])


def launch(x, weight, out, zuf0):
    grid = (triton.cdiv(40, 8),)
    rms_norm_kernel[grid](x, weight, out, zuf0, num_warps=4, num_stages=1)
