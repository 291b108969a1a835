import triton
import triton.language as tl
from triton.language.extra import libdevice

_BLOCK_SIZE_0 = tl.constexpr(64)


@triton.jit
def _tanh(x):
    if x.dtype == tl.float64:
        return libdevice.tanh(x)
    # Near 0 the difference would cancel: a polynomial instead.
    s = x * x
    near = ((((-5.70498872745e-3 * s + 2.06390887954e-2) * s - 5.37397155531e-2) * s + 1.33314422036e-1) * s - 3.33332819422e-1) * s * x + x
    far = 1.0 - 2.0 / (tl.exp2(2.885390082 * x) + 1.0)
    return tl.where(tl.abs(x) < 0.625, near, far)


@triton.jit
def _trunc(x):
    return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))


@triton.jit
def pointwise_kernel(x, y, out):
    pid_0 = tl.program_id(0)
    offset_0 = pid_0 * _BLOCK_SIZE_0
    indices_0 = offset_0 + tl.arange(0, _BLOCK_SIZE_0)
    load = tl.load(x + indices_0)
    load_1 = tl.load(y + indices_0)
    abs_0 = tl.abs(load)
    positive = abs_0 + 0.5
    more = positive + 1.0
    inside = load / 8.0
    abs_1 = tl.abs(load)
    tl.store(out + indices_0, abs_1)
    acos_1 = libdevice.acos(inside)
    tl.store(out + (64 + indices_0), acos_1)
    acosh_1 = libdevice.acosh(more)
    tl.store(out + (128 + indices_0), acosh_1)
    asin_1 = libdevice.asin(inside)
    tl.store(out + (192 + indices_0), asin_1)
    asinh_1 = libdevice.asinh(load)
    tl.store(out + (256 + indices_0), asinh_1)
    atan_1 = libdevice.atan(load)
    tl.store(out + (320 + indices_0), atan_1)
    atanh_1 = libdevice.atanh(inside)
    tl.store(out + (384 + indices_0), atanh_1)
    ceil_1 = tl.ceil(load)
    tl.store(out + (448 + indices_0), ceil_1)
    cos_1 = tl.cos(load)
    tl.store(out + (512 + indices_0), cos_1)
    cosh_1 = libdevice.cosh(load)
    tl.store(out + (576 + indices_0), cosh_1)
    erf_1 = tl.erf(load)
    tl.store(out + (640 + indices_0), erf_1)
    exp_1 = tl.exp(load)
    tl.store(out + (704 + indices_0), exp_1)
    exp2_1 = tl.exp2(load)
    tl.store(out + (768 + indices_0), exp2_1)
    expm1_1 = libdevice.expm1(load)
    tl.store(out + (832 + indices_0), expm1_1)
    floor_1 = tl.floor(load)
    tl.store(out + (896 + indices_0), floor_1)
    gelu_1 = 0.5 * load * (1.0 + tl.erf(load * 0.7071067811865476))
    tl.store(out + (960 + indices_0), gelu_1)
    log_1 = tl.log(positive)
    tl.store(out + (1024 + indices_0), log_1)
    log10_1 = libdevice.log10(positive)
    tl.store(out + (1088 + indices_0), log10_1)
    log1p_1 = libdevice.log1p(positive)
    tl.store(out + (1152 + indices_0), log1p_1)
    log2_1 = tl.log2(positive)
    tl.store(out + (1216 + indices_0), log2_1)
    neg_1 = load * -1.0
    tl.store(out + (1280 + indices_0), neg_1)
    reciprocal_1 = 1.0 / load
    tl.store(out + (1344 + indices_0), reciprocal_1)
    relu_1 = tl.where(load <= 0.0, 0.0, load)
    tl.store(out + (1408 + indices_0), relu_1)
    round_1 = libdevice.rint(load)
    tl.store(out + (1472 + indices_0), round_1)
    rsqrt_1 = tl.rsqrt(positive)
    tl.store(out + (1536 + indices_0), rsqrt_1)
    sigmoid_1 = tl.sigmoid(load)
    tl.store(out + (1600 + indices_0), sigmoid_1)
    sign_1 = tl.where(load > 0.0, 1.0, tl.where(load < 0.0, -1.0, 0.0))
    tl.store(out + (1664 + indices_0), sign_1)
    silu_1 = load * tl.sigmoid(load)
    tl.store(out + (1728 + indices_0), silu_1)
    sin_1 = tl.sin(load)
    tl.store(out + (1792 + indices_0), sin_1)
    sinh_1 = libdevice.sinh(load)
    tl.store(out + (1856 + indices_0), sinh_1)
    sqrt_1 = tl.sqrt_rn(positive)
    tl.store(out + (1920 + indices_0), sqrt_1)
    square_1 = load * load
    tl.store(out + (1984 + indices_0), square_1)
    tan_1 = libdevice.tan(load)
    tl.store(out + (2048 + indices_0), tan_1)
    tanh_1 = _tanh(load)
    tl.store(out + (2112 + indices_0), tanh_1)
    trunc_1 = _trunc(load)
    tl.store(out + (2176 + indices_0), trunc_1)
    atan2_1 = libdevice.atan2(load, load_1)
    tl.store(out + (2240 + indices_0), atan2_1)
    fmod_1 = libdevice.fmod(load, load_1)
    tl.store(out + (2304 + indices_0), fmod_1)
    remainder = libdevice.fmod(load, load_1)
    remainder_1 = tl.where((remainder != 0.0) & ((remainder < 0.0) != (load_1 < 0.0)), remainder + load_1, remainder)
    tl.store(out + (2368 + indices_0), remainder_1)
    hypot_1 = libdevice.hypot(load, load_1)
    tl.store(out + (2432 + indices_0), hypot_1)
    copysign_1 = libdevice.copysign(load, load_1)
    tl.store(out + (2496 + indices_0), copysign_1)
    pow_1 = libdevice.pow(positive, load_1)
    tl.store(out + (2560 + indices_0), pow_1)
    maximum_1 = tl.maximum(load, load_1, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + (2624 + indices_0), maximum_1)
    minimum_1 = tl.minimum(load, load_1, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + (2688 + indices_0), minimum_1)
    remainder_2 = libdevice.fmod(load, load_1)
    quotient = load / load_1
    whole = libdevice.rint((load - remainder_2) / load_1)
    down = tl.where((remainder_2 != 0.0) & ((remainder_2 < 0.0) != (load_1 < 0.0)), whole - 1.0, whole)
    div_1 = tl.where(load_1 == 0.0, quotient, tl.where(down == 0.0, quotient * 0.0, down))
    tl.store(out + (2752 + indices_0), div_1)
    clamp = tl.minimum(tl.maximum(load, -0.5, propagate_nan=tl.PropagateNan.ALL), 0.75, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + (2816 + indices_0), clamp)


def launch(x, y, out):
    grid = (1,)
    pointwise_kernel[grid](x, y, out, num_warps=1, num_stages=1)
