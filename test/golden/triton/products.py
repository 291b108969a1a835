import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(16)
_BLOCK_SIZE_1 = tl.constexpr(8)
_BLOCK_SIZE_2 = tl.constexpr(32)
_BLOCK_SIZE_3 = tl.constexpr(64)


@triton.jit
def products_kernel(a, b, c, d, e, f, narrow, out, whole):
    indices_1 = tl.arange(0, _BLOCK_SIZE_1)
    indices_2 = tl.arange(0, _BLOCK_SIZE_2)
    indices_3 = tl.arange(0, _BLOCK_SIZE_3)
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    load = tl.load(a + (indices_0[:, None] * 8 + indices_1[None, :]))
    load_1 = tl.load(b + (indices_1[:, None] * 32 + indices_2[None, :]))
    small = tl.sum(tl.fma(load[:, :, None], load_1[None, :, :], 0.0), 1)
    load_2 = tl.load(c + (indices_0[:, None] * 64 + indices_3[None, :]))
    load_3 = tl.load(d + (indices_3[:, None] * 32 + indices_2[None, :]))
    ieee = tl.dot(load_2, load_3, small, input_precision="ieee")
    load_4 = tl.load(e + (indices_0[:, None] * 64 + indices_3[None, :]))
    load_5 = tl.load(f + (indices_3[:, None] * 32 + indices_2[None, :]))
    integers = tl.dot(load_4, load_5, out_dtype=tl.int32)
    tl.store(narrow + (indices_0[:, None] * 32 + indices_2[None, :]), small)
    tl.store(out + (indices_0[:, None] * 32 + indices_2[None, :]), ieee)
    tl.store(whole + (indices_0[:, None] * 32 + indices_2[None, :]), integers)


def launch(a, b, c, d, e, f, narrow, out, whole):
    grid = (1,)
    products_kernel[grid](a, b, c, d, e, f, narrow, out, whole, num_warps=4, num_stages=1)
