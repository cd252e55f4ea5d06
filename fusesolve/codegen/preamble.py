"""The fixed head of every generated file: types, functions by one name on device and in the simulator, launching."""

PREAMBLE = '''\
import math

import numpy as np
from numba import config, cuda

SIMULATED = bool(config.ENABLE_CUDASIM)
SHUFFLES = not SIMULATED  # the simulator has no warp shuffles: folds go through shared memory there
LANES = 0xFFFFFFFF
b1, i8, i16, i32, i64 = np.bool_, np.int8, np.int16, np.int32, np.int64
u8, u16, u32, u64, f16, f32, f64 = np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32, np.float64
d_i8, d_i16, d_i32, d_i64, d_u8, d_u16, d_u32, d_u64 = map(np.dtype, (i8, i16, i32, i64, u8, u16, u32, u64))
d_f16, d_f32, d_f64, d_b1 = map(np.dtype, (f16, f32, f64, b1))  # memory asked for at launch: the simulator wants these
inf, nan = math.inf, math.nan

if SIMULATED:
    np.seterr(all="ignore")
    exp, expm1, log, log1p, sqrt, tanh = np.exp, np.expm1, np.log, np.log1p, np.sqrt, np.tanh
    sin, cos, tan, asin, acos, atan, atan2 = np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan, np.arctan2
    sinh, cosh, asinh, acosh, atanh = np.sinh, np.cosh, np.arcsinh, np.arccosh, np.arctanh
    fabs, fmod, pow = np.abs, np.fmod, np.power
    floor32 = floor64 = np.floor
    ceil32 = ceil64 = np.ceil
    rint32 = rint64 = np.rint
    trunc32 = trunc64 = np.trunc

    def rsqrt32(x):
        return f32(1) / np.sqrt(x)

    def rsqrt64(x):
        return f64(1) / np.sqrt(x)

    def erf(x):
        return type(x)(math.erf(x))

    device_part = cuda.jit(device=True)
else:
    from numba.cuda import libdevice

    from math import acos, acosh, asin, asinh, atan, atan2, atanh, cos, cosh, erf, exp, expm1, fabs, fmod, log, log1p
    from math import pow, sin, sinh, sqrt, tan, tanh

    floor32, ceil32, rint32, trunc32 = libdevice.floorf, libdevice.ceilf, libdevice.rintf, libdevice.truncf
    floor64, ceil64, rint64, trunc64 = libdevice.floor, libdevice.ceil, libdevice.rint, libdevice.trunc
    rsqrt32, rsqrt64 = libdevice.rsqrtf, libdevice.rsqrt
    device_part = cuda.jit(device=True, inline="always")  # a kernel that shares its launch with others
'''

PREAMBLE_BF16 = '''
if SIMULATED:
    from ml_dtypes import bfloat16 as bf16

    def float_bits(x):
        return f32(x).view(i32)

    def bits_float(x):
        return i32(x).view(f32)
else:
    from numba.cuda.types import bfloat16 as bf16

    float_bits, bits_float = libdevice.float_as_int, libdevice.int_as_float
'''
