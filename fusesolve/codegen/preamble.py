"""The fixed head of every generated file: types, functions by one name on device and in the simulator, launching."""

PREAMBLE = """\
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
"""

PREAMBLE_BOUNDED = '''
class Bounded:
    """A kernel that is compiled for at most so many registers of a thread, or for any number where that spills."""

    def __init__(self, function, registers):
        self.py_func, self.registers, self.made = function, registers, None

    def __getitem__(self, launch):
        return lambda *arrays: self.compiled(arrays)[launch](*arrays)

    def compiled(self, arrays):
        if self.made is None:
            self.made = cuda.jit(max_registers=self.registers)(self.py_func).specialize(*arrays)
            if self.made.get_local_mem_per_thread():
                self.made = cuda.jit(self.py_func)
        return self.made


def bounded(registers):
    """The decorator of a kernel that is compiled for the registers of a thread that it was priced with."""
    return cuda.jit if SIMULATED else lambda function: Bounded(function, registers)
'''

PREAMBLE_BF16 = """
if SIMULATED:
    from ml_dtypes import bfloat16 as bf16

    stored_bf16 = bf16

    def float_bits(x):
        return f32(x).view(i32)

    def bits_float(x):
        return i32(x).view(f32)
else:
    from numba.cuda.types import bfloat16 as bf16

    try:
        from ml_dtypes import bfloat16 as stored_bf16  # the type of arrays: NumPy has none of its own
    except ImportError:
        stored_bf16 = "bfloat16: install ml_dtypes"  # what NumPy says it does not know where an array is asked for
    float_bits, bits_float = libdevice.float_as_int, libdevice.int_as_float
"""

PREAMBLE_VECTORS = '''
if SIMULATED:

    def loads(count):
        return lambda array, index: array[int(index) : int(index) + count]

    def stores(count):
        def store(array, index, values):
            array[int(index) : int(index) + count] = values

        return store
else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    def word_of(builder, array, data, index, count):
        size = array.dtype.bitwidth
        word = ir.IntType(max(size, min(32, size * count)))
        words = ir.VectorType(word, size * count // word.width)
        return builder.bitcast(builder.gep(data, [index]), words.as_pointer(data.type.addrspace)), size, word, words

    def loads(count):
        """An intrinsic: `count` aligned neighbours in one access, as a tuple; narrow ones are cut out of words."""

        @intrinsic
        def load(context, array, index):
            def code(context, builder, signature, args):
                data = context.make_array(signature.args[0])(context, builder, args[0]).data
                at, size, word, words = word_of(builder, array, data, args[1], count)
                found = builder.load(at, align=size * count // 8)
                parts, model = [], context.data_model_manager[array.dtype]
                for n in range(count):
                    part = builder.extract_element(found, ir.Constant(ir.IntType(32), n * size // word.width))
                    if size < word.width:
                        part = builder.lshr(part, ir.Constant(word, n * size % word.width))
                        part = builder.trunc(part, ir.IntType(size))
                    parts.append(model.from_data(builder, builder.bitcast(part, model.get_data_type())))
                return context.make_tuple(builder, signature.return_type, parts)

            return types.UniTuple(array.dtype, count)(array, index), code

        return load

    def stores(count):
        """An intrinsic: a tuple of `count` values into aligned neighbours in one access."""

        @intrinsic
        def store(context, array, index, values):
            def code(context, builder, signature, args):
                data = context.make_array(signature.args[0])(context, builder, args[0]).data
                at, size, word, words = word_of(builder, array, data, args[1], count)
                found, model = ir.Constant(words, None), context.data_model_manager[array.dtype]
                joined = ir.Constant(word, 0)
                for n in range(count):
                    part = model.as_data(builder, builder.extract_value(args[2], n))
                    part = builder.bitcast(part, ir.IntType(size))
                    if size < word.width:
                        part = builder.shl(builder.zext(part, word), ir.Constant(word, n * size % word.width))
                        part = joined = part if n * size % word.width == 0 else builder.or_(joined, part)
                    found = builder.insert_element(found, part, ir.Constant(ir.IntType(32), n * size // word.width))
                builder.store(found, at, align=size * count // 8)
                return context.get_dummy_value()

            return types.void(array, index, types.UniTuple(array.dtype, count)), code

        return store

load2, load4, load8, load16 = map(loads, (2, 4, 8, 16))
store2, store4, store8, store16 = map(stores, (2, 4, 8, 16))
'''
