import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(4)
_BLOCK_SIZE_1 = tl.constexpr(16)
_BLOCK_SIZE_2 = tl.constexpr(2)
_BLOCK_SIZE_3 = tl.constexpr(32)
_BLOCK_SIZE_4 = tl.constexpr(4)


@triton.jit
def views_kernel(x, y, at, pairs, stacked, four, wide, turned, flat, picked, spread):
    indices_1 = tl.arange(0, _BLOCK_SIZE_1)
    indices_2 = tl.arange(0, _BLOCK_SIZE_2)
    indices_4 = tl.arange(0, _BLOCK_SIZE_4)
    indices_3 = tl.arange(0, _BLOCK_SIZE_3)
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    load = tl.load(x + (indices_0[:, None] * 16 + indices_1[None, :]))
    load_1 = tl.load(y + (indices_0[:, None] * 16 + indices_1[None, :]))
    load_2 = tl.load(at + (indices_0[:, None] * 16 + indices_1[None, :]))
    join = tl.join(load, load_1)
    stack = tl.permute(tl.join(load, load_1), [0, 2, 1])
    stack_1_position = tl.arange(0, 4)[None, :, None]
    stack_1 = tl.where(stack_1_position == 0, load[:, None, :], tl.where(stack_1_position == 1, load_1[:, None, :], tl.where(stack_1_position == 2, load_1[:, None, :], load[:, None, :])))
    cat = tl.reshape(tl.permute(tl.join(load, load_1), [0, 2, 1]), [_BLOCK_SIZE_0, _BLOCK_SIZE_3])
    permute = tl.trans(load)
    split = tl.split(join)
    split_first = split[0]
    split_second = split[1]
    even = split_first - split_second
    gather = tl.gather(load, load_2, 1)
    sum_1 = tl.sum(load, 1)
    expand = tl.broadcast_to(sum_1[:, None], [_BLOCK_SIZE_0, _BLOCK_SIZE_1])
    tl.store(pairs + (indices_0[:, None, None] * 32 + indices_1[None, :, None] * 2 + indices_2[None, None, :]), join)
    tl.store(stacked + (indices_0[:, None, None] * 32 + indices_2[None, :, None] * 16 + indices_1[None, None, :]), stack)
    tl.store(four + (indices_0[:, None, None] * 64 + indices_4[None, :, None] * 16 + indices_1[None, None, :]), stack_1)
    tl.store(wide + (indices_0[:, None] * 32 + indices_3[None, :]), cat)
    tl.store(turned + (indices_1[:, None] * 8 + indices_0[None, :]), permute)
    tl.store(flat + (indices_0[:, None] * 16 + indices_1[None, :]), even)
    tl.store(picked + (indices_0[:, None] * 16 + indices_1[None, :]), gather)
    tl.store(spread + (indices_0[:, None] * 16 + indices_1[None, :]), expand)


def launch(x, y, at, pairs, stacked, four, wide, turned, flat, picked, spread):
    grid = (triton.cdiv(8, 4),)
    views_kernel[grid](x, y, at, pairs, stacked, four, wide, turned, flat, picked, spread, num_warps=4, num_stages=1)
