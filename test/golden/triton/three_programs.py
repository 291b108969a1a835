import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(32)
_BLOCK_SIZE_1 = tl.constexpr(16)
_BLOCK_SIZE_2 = tl.constexpr(16)


@triton.jit
def project_kernel(x, y, out):
    pid_1 = tl.program_id(0)
    offset_1 = pid_1 * _BLOCK_SIZE_1
    indices_1 = offset_1 + tl.arange(0, _BLOCK_SIZE_1)
    pid_0 = tl.program_id(1)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    mask_0 = indices_0 < 200
    acc = tl.zeros([_BLOCK_SIZE_0, _BLOCK_SIZE_1], tl.float32)
    for offset_2 in tl.range(0, 64, _BLOCK_SIZE_2, num_stages=3):
        indices_2 = offset_2 + tl.arange(0, _BLOCK_SIZE_2)
        load = tl.load(x + (indices_0[:, None] * 64 + indices_2[None, :]), mask_0[:, None], other=0.0)
        load_1 = tl.load(y + (indices_2[:, None] * 96 + indices_1[None, :]))
        acc = tl.dot(load, load_1, acc)
    convert_element_type = acc.to(tl.float16)
    tl.store(out + (indices_0[:, None] * 96 + indices_1[None, :]), convert_element_type, mask_0[:, None])


def launch(x, y, out):
    grid = (triton.cdiv(96, 16), triton.cdiv(200, 32))
    project_kernel[grid](x, y, out, num_warps=2, num_stages=3)
