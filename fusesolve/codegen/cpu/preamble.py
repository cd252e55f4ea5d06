"""The fixed head of every generated CPU file: types, and functions that the compiler can turn into vector code.

`exp`, `tanh`, `erf` and `expm1` of f32 are polynomials that were fitted for this file by reweighted least squares on
Chebyshev points (ranges in the comments; relative errors below 4e-7, measured in the tests against f64): a loop that
calls the C library stays scalar. All other functions, and all of f64, are the C library's.
"""

PREAMBLE = '''\
import math

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic, overload

b1, i8, i16, i32, i64 = np.bool_, np.int8, np.int16, np.int32, np.int64
u8, u16, u64, f32, f64 = np.uint8, np.uint16, np.uint64, np.float32, np.float64
u32 = np.uint64  # indices: as wide as an address, so that a loop over them is seen to be contiguous
inf, nan = math.inf, math.nan
sqrt, fabs, atan2, fmod = math.sqrt, math.fabs, math.atan2, math.fmod
floor32 = floor64 = np.floor
ceil32 = ceil64 = np.ceil
rint32 = rint64 = np.rint
trunc32 = trunc64 = np.trunc
log, log1p, sin, cos, tan, asin, acos, atan = (
    math.log, math.log1p, math.sin, math.cos, math.tan, math.asin, math.acos, math.atan
)
sinh, cosh, asinh, acosh, atanh, pow = math.sinh, math.cosh, math.asinh, math.acosh, math.atanh, math.pow


@intrinsic
def float_of_bits(context, bits):
    """The f32 that has these 32 bits."""
    return types.float32(types.int32), lambda ctx, builder, sig, args: builder.bitcast(
        args[0], ctx.get_value_type(types.float32)
    )


@intrinsic
def bits_of_float(context, value):
    """The 32 bits of an f32."""
    return types.int32(types.float32), lambda ctx, builder, sig, args: builder.bitcast(
        args[0], ctx.get_value_type(types.int32)
    )


@intrinsic
def pick(context, condition, yes, no):
    """`yes` where the condition holds, else `no`, both computed: a branch would keep a loop from becoming vectors."""
    if yes != no:
        return None
    return yes(types.boolean, yes, no), lambda ctx, builder, sig, args: builder.select(*args)


@intrinsic
def from_f16(context, bits):
    """The f32 of an f16 that is stored as 16 bits."""

    def generate(ctx, builder, sig, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def to_f16(context, value):
    """The 16 bits of an f32 rounded to f16."""

    def generate(ctx, builder, sig, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


@njit(error_model="numpy")
def from_bf16(bits):
    """The f32 of a bf16 that is stored as 16 bits."""
    return float_of_bits(i32(i32(bits) << i32(16)))


@njit(error_model="numpy")
def to_bf16(x):
    """The 16 bits of an f32 rounded to bf16, ties to even; NaN stays NaN."""
    bits = bits_of_float(x)
    rounded = i32(bits + i32(0x7FFF) + i32((bits >> i32(16)) & i32(1))) >> i32(16)
    return u16((bits >> i32(16)) | i32(64) if x != x else rounded)


@njit(error_model="numpy")
def rsqrt32(x):
    return f32(1) / math.sqrt(x)


@njit(error_model="numpy")
def rsqrt64(x):
    return f64(1) / math.sqrt(x)


@njit(error_model="numpy")
def power_of_two(n):
    """2**n for a whole f32 n between -252 and 254, in two factors so that no exponent overflows."""
    k = i32(n)
    half = i32(k >> i32(1))
    low = float_of_bits(i32((half + i32(127)) << i32(23)))
    return low, float_of_bits(i32((k - half + i32(127)) << i32(23)))


@njit(error_model="numpy")
def exp_f32(x):
    y = pick(x < f32(-105), f32(-105), x)
    y = pick(y > f32(89), f32(89), y)
    n = np.floor(y * f32(1.4426950408889634) + f32(0.5))
    r = y - n * f32(0.693359375) - n * f32(-2.12194440e-4)  # |r| <= log(2) / 2
    p = f32(0.001395057886838913) * r + f32(0.00836894754320383)
    p = (p * r + f32(0.04166620597243309)) * r + f32(0.166665181517601)
    p = (p * r + f32(0.5)) * (r * r) + r + f32(1)
    low, high = power_of_two(n)
    return p * low * high


@njit(error_model="numpy")
def tanh_f32(x):
    s = x * x
    p = f32(-0.005714699160307646) * s + f32(0.020648587495088577)  # |x| < 0.625
    p = (p * s + f32(-0.053742919117212296)) * s + f32(0.133314847946167)
    small = (p * s + f32(-0.3333328366279602)) * s * x + x
    t = f32(1) - f32(2) / (exp_f32(f32(2) * math.fabs(x)) + f32(1))
    large = pick(x < f32(0), -t, t)
    return pick(s < f32(0.390625), small, large)


@njit(error_model="numpy")
def erf_f32(x):
    t = math.fabs(x)
    s = x * x
    p = f32(-9.680126822786406e-06) * s + f32(0.00011270541290286928)  # |x| < 1
    p = (p * s + f32(-0.0008484710706397891)) * s + f32(0.005221074912697077)
    p = (p * s + f32(-0.02686544507741928)) * s + f32(0.11283782869577408)
    small = ((p * s + f32(-0.37612637877464294)) * s + f32(1.128379225730896)) * x
    t = pick(t > f32(4), f32(4), t)
    q = f32(-0.00018638269102666527) * t + f32(0.0029476915951818228)  # -log(1 - erf(t)), 1 <= t <= 4
    q = (q * t + f32(-0.021838193759322166)) * t + f32(0.1031070128083229)
    q = (q * t + f32(0.6381445527076721)) * t + f32(1.1270893812179565)
    e = f32(1) - exp_f32(-(q * t + f32(0.0003414820821490139)))
    large = pick(x < f32(0), -e, e)
    return pick(s < f32(1), small, large)


@njit(error_model="numpy")
def expm1_f32(x):
    p = f32(0.001395057886838913) * x + f32(0.00836894754320383)  # |x| <= log(2) / 2
    p = (p * x + f32(0.04166620597243309)) * x + f32(0.166665181517601)
    small = (p * x + f32(0.5)) * (x * x) + x
    return pick(math.fabs(x) < f32(0.34), small, exp_f32(x) - f32(1))


def exp(x):
    return math.exp(x)


def tanh(x):
    return math.tanh(x)


def erf(x):
    return math.erf(x)


def expm1(x):
    return math.expm1(x)


def by_type(function, single, wide):
    """Let `function` be `single` for f32 and the C library's `wide` for f64 in compiled code."""

    @overload(function, jit_options={"error_model": "numpy"})
    def choose(x):
        return (lambda x: single(x)) if x is types.float32 else (lambda x: wide(x))


by_type(exp, exp_f32, math.exp)
by_type(tanh, tanh_f32, math.tanh)
by_type(erf, erf_f32, math.erf)
by_type(expm1, expm1_f32, math.expm1)
'''
