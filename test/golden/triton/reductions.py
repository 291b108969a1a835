import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(8)
_BLOCK_SIZE_1 = tl.constexpr(64)


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _argmax(a, i, b, j):
    first = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def _argmin(a, i, b, j):
    first = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def reductions_kernel(x, best, least, low, total, some, every, spread, centre, lse, top, where_top):
    indices_1 = tl.arange(0, _BLOCK_SIZE_1)
    mask_1 = indices_1 < 37
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    mask_0 = indices_0 < 20
    load = tl.load(x + (indices_0[:, None] * 37 + indices_1[None, :]), mask_0[:, None] & mask_1[None, :], other=0.0)
    lowest = tl.where(mask_0[:, None] & mask_1[None, :], load, float("-inf"))
    highest = tl.where(mask_0[:, None] & mask_1[None, :], load, float("inf"))
    zeroed = tl.where(mask_0[:, None] & mask_1[None, :], load, 0.0)
    oned = tl.where(mask_0[:, None] & mask_1[None, :], load, 1.0)
    extreme = tl.reduce((lowest, tl.broadcast_to(indices_1[None, :], [_BLOCK_SIZE_0, _BLOCK_SIZE_1])), 1, _argmax)
    argmax = extreme[1].to(tl.int64)
    extreme_1 = tl.reduce((highest, tl.broadcast_to(indices_1[None, :], [_BLOCK_SIZE_0, _BLOCK_SIZE_1])), 1, _argmin)
    argmin = extreme_1[1].to(tl.int64)
    amin = tl.reduce(highest, 1, _minimum)
    prod = tl.reduce(oned, 1, _product)
    gt = zeroed > 2.0
    any_1 = tl.max(gt.to(tl.int32), 1) != 0
    lt = oned < 1.5
    all_1 = tl.min(lt.to(tl.int32), 1) != 0
    average = tl.sum(tl.where(mask_0[:, None] & mask_1[None, :], load, 0.0), 1, keep_dims=True) / 37.0
    centered = tl.where(mask_0[:, None] & mask_1[None, :], load - average, 0.0)
    variance = tl.sum(centered * centered, 1) / (37.0 - 1.0)
    mean = tl.sum(zeroed, 1) / 37.0
    highest_1 = tl.reduce(lowest, 1, _maximum, keep_dims=True)
    shift = tl.where(tl.abs(highest_1) == float("inf"), 0.0, highest_1)
    logsumexp = tl.reshape(tl.log(tl.sum(tl.exp(lowest - shift), 1, keep_dims=True)) + shift, [_BLOCK_SIZE_0])
    extreme_2 = tl.reduce((lowest, tl.broadcast_to(indices_1[None, :], [_BLOCK_SIZE_0, _BLOCK_SIZE_1])), 1, _argmax)
    tl.store(best + indices_0, argmax, mask_0)
    tl.store(least + indices_0, argmin, mask_0)
    tl.store(low + indices_0, amin, mask_0)
    tl.store(total + indices_0, prod, mask_0)
    tl.store(some + indices_0, any_1, mask_0)
    tl.store(every + indices_0, all_1, mask_0)
    tl.store(spread + indices_0, variance, mask_0)
    tl.store(centre + indices_0, mean, mask_0)
    tl.store(lse + indices_0, logsumexp, mask_0)
    tl.store(top + indices_0, extreme_2[0], mask_0)
    tl.store(where_top + indices_0, extreme_2[1].to(tl.int64), mask_0)


def launch(x, best, least, low, total, some, every, spread, centre, lse, top, where_top):
    grid = (triton.cdiv(20, 8),)
    reductions_kernel[grid](x, best, least, low, total, some, every, spread, centre, lse, top, where_top, num_warps=4, num_stages=1)
