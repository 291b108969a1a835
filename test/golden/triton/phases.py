import functools

import triton
import triton.language as tl

_BLOCK_SIZE_0 = tl.constexpr(16)
_BLOCK_SIZE_1 = tl.constexpr(32)


@triton.jit
def two_phases_kernel_0(x, squares, programs: tl.constexpr):
    tiles_a_program = tl.cdiv(4, programs)
    first_tile = tl.program_id(0) * tiles_a_program
    for virtual_pid in tl.range(first_tile, min(first_tile + tiles_a_program, 4)):
        offset_0 = virtual_pid * _BLOCK_SIZE_0
        indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
        mask_0 = indices_0 < 60
        load = tl.load(x + indices_0, mask_0, other=0.0)
        mul = load * load
        tl.store(squares + indices_0, mul, mask_0)


@triton.jit
def two_phases_kernel_1(squares, out, programs: tl.constexpr):
    tiles_a_program_1 = tl.cdiv(2, programs)
    first_tile_1 = tl.program_id(0) * tiles_a_program_1
    for virtual_pid_1 in tl.range(first_tile_1, min(first_tile_1 + tiles_a_program_1, 2)):
        offset_1 = virtual_pid_1 * _BLOCK_SIZE_1
        indices_1 = offset_1 + tl.arange(0, _BLOCK_SIZE_1)
        mask_1 = indices_1 < 60
        reversed_1 = 59 - indices_1
        load_1 = tl.load(squares + reversed_1, mask_1, other=0.0)
        tl.store(out + indices_1, load_1, mask_1)


@functools.cache
def _multiprocessors_of(device):
    return triton.runtime.driver.active.utils.get_device_properties(device)["multiprocessor_count"]


def _multiprocessors():
    try:
        return _multiprocessors_of(triton.runtime.driver.active.get_current_device())
    except RuntimeError:  # no GPU: Triton's interpreter
        return 1


def launch(x, squares, out):
    grid = (min(_multiprocessors(), triton.cdiv(60, 16)),)
    two_phases_kernel_0[grid](x, squares, grid[0], num_warps=4, num_stages=1)
    grid = (min(_multiprocessors(), triton.cdiv(60, 32)),)
    two_phases_kernel_1[grid](squares, out, grid[0], num_warps=4, num_stages=1)
