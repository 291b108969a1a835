import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(2)
_BLOCK_SIZE_1 = tl.constexpr(32)
_BLOCK_SIZE_2 = tl.constexpr(4)


@triton.jit
def sorting_kernel(x, ascending, order, best, best_order, sums, products):
    indices_1 = tl.arange(0, _BLOCK_SIZE_1)
    indices_2 = tl.arange(0, _BLOCK_SIZE_2)
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    load = tl.load(x + (indices_0[:, None] * 32 + indices_1[None, :]))
    lanes = tl.arange(0, _BLOCK_SIZE_1)
    place = tl.sum(((load[:, None, :] < load[:, :, None]) | (load[:, :, None] != load[:, :, None]) & (load[:, None, :] == load[:, None, :]) | ((load[:, None, :] == load[:, :, None]) | (load[:, :, None] != load[:, :, None]) & (load[:, None, :] != load[:, None, :])) & (lanes[None, None, :] < lanes[None, :, None])).to(tl.int32), 2)
    order_1 = tl.sum(tl.where(place[:, None, :] == tl.arange(0, 32)[None, :, None], lanes[None, None, :], 0), 2)
    values = tl.gather(load, order_1, 1)
    lanes_1 = tl.arange(0, _BLOCK_SIZE_1)
    place_1 = tl.sum(((load[:, None, :] > load[:, :, None]) | (load[:, None, :] != load[:, None, :]) & (load[:, :, None] == load[:, :, None]) | ((load[:, None, :] == load[:, :, None]) | (load[:, :, None] != load[:, :, None]) & (load[:, None, :] != load[:, None, :])) & (lanes_1[None, None, :] < lanes_1[None, :, None])).to(tl.int32), 2)
    order_2 = tl.sum(tl.where(place_1[:, None, :] == tl.arange(0, 4)[None, :, None], lanes_1[None, None, :], 0), 2)
    values_1 = tl.gather(load, order_2, 1)
    cumsum = tl.cumsum(load, 1)
    cumprod = tl.cumprod(load, 1)
    tl.store(ascending + (indices_0[:, None] * 32 + indices_1[None, :]), values)
    tl.store(order + (indices_0[:, None] * 32 + indices_1[None, :]), order_1.to(tl.int64))
    tl.store(best + (indices_0[:, None] * 4 + indices_2[None, :]), values_1)
    tl.store(best_order + (indices_0[:, None] * 4 + indices_2[None, :]), order_2.to(tl.int64))
    tl.store(sums + (indices_0[:, None] * 32 + indices_1[None, :]), cumsum)
    tl.store(products + (indices_0[:, None] * 32 + indices_1[None, :]), cumprod)


def launch(x, ascending, order, best, best_order, sums, products):
    grid = (triton.cdiv(10, 2),)
    sorting_kernel[grid](x, ascending, order, best, best_order, sums, products, num_warps=4, num_stages=1)
