"""The fixed head of every generated CPU file: types, and functions that the compiler can turn into vector code.

`exp`, `tanh`, `erf` and `expm1` of f32 are polynomials, for `erf` a quotient of two, that were fitted for this file by
reweighted least squares on Chebyshev points (ranges in the comments; relative errors below 4e-7, measured in the tests
against f64; `exp` gives 0 below 2**-125): a loop that calls the C library stays scalar. All other functions, and all of
f64, are the C library's.
"""

PREAMBLE = '''\
import math

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.np.arrayobj import make_array
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
def hidden(context, count):
    """A number of turns that the compiler does not see.

    It makes one vector of partial results of a sum that it sees to be short, and each then waits for the one before.
    """

    def generate(ctx, builder, sig, args):
        kind = args[0].type
        return builder.asm(ir.FunctionType(kind, [kind]), "", "=r,0", [args[0]], False)

    return types.int64(types.int64), generate


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def sum_any(a, b):
    """a + b in a sum whose order is free: a loop of them becomes one of vectors."""
    return a + b


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def product_any(a, b):
    """a * b in a product whose order is free."""
    return a * b


def extreme(name):
    """The LLVM operation of that name on two floats: NaN where one of them is NaN."""

    @intrinsic
    def call(context, a, b):
        def generate(ctx, builder, sig, args):
            kind = args[0].type
            made = ir.FunctionType(kind, [kind, kind])
            return builder.call(builder.module.declare_intrinsic(name, [kind], made), args)

        return (a(a, a), generate) if a == b else None

    return call


most, least = extreme("llvm.maximum"), extreme("llvm.minimum")


@intrinsic
def place_of(context, array, at):
    """The address of an element."""

    def generate(ctx, builder, sig, args):
        data = make_array(sig.args[0])(ctx, builder, args[0]).data
        return builder.ptrtoint(builder.gep(data, [args[1]]), ir.IntType(64))

    return types.uint64(array, types.uint64), generate


@intrinsic
def pass_by(context, to, source):
    """Copy 32 bytes to an address that is a multiple of 32, around the caches."""

    def generate(ctx, builder, sig, args):
        vector = ir.VectorType(ir.IntType(32), 8).as_pointer()
        store = builder.store(
            builder.load(builder.inttoptr(args[1], vector), align=1), builder.inttoptr(args[0], vector), align=32
        )
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return ctx.get_dummy_value()

    return types.void(types.uint64, types.uint64), generate


@intrinsic
def put(context, array, at, value):
    """Store an element around the caches. The loop that does so for neighbours must begin at a block of 32 bytes.

    The alignment is that of the vectors that the compiler makes of such a loop: it makes none without it.
    """

    def generate(ctx, builder, sig, args):
        data = make_array(sig.args[0])(ctx, builder, args[0]).data
        store = builder.store(args[2], builder.gep(data, [args[1]]), align=32)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return ctx.get_dummy_value()

    return (types.void(array, types.uint64, value), generate) if value == array.dtype else None


def check_start(array):
    """An array that `put` writes must start at a block of 32 bytes; ValueError where it does not."""
    if array.ctypes.data % 32:
        raise ValueError("an array that is written around the caches must start at a multiple of 32 bytes")


@intrinsic
def touch(context, array, at):
    """Ask for the cache line of an element, and do not wait for it; it may lie behind the array."""

    def generate(ctx, builder, sig, args):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        place = builder.bitcast(builder.gep(make_array(sig.args[0])(ctx, builder, args[0]).data, [args[1]]), byte)
        made = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        how = [ir.Constant(number, item) for item in (0, 3, 1)]  # to read, into every cache, data
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", [byte], made), [place, *how])
        return ctx.get_dummy_value()

    return types.void(array, types.uint64), generate


@njit(error_model="numpy")
def ahead(array, at, count):
    """Ask for `count` elements from `at` on."""
    for i in range(0, count, 64 // array.itemsize):
        touch(array, u64(at) + u64(i))


@intrinsic
def fence(context):
    """Let every store that went around the caches be seen before what follows."""
    return types.void(), lambda ctx, builder, sig, args: (builder.fence("seq_cst"), ctx.get_dummy_value())[1]


@njit(error_model="numpy")
def stream(array, at, strip, count):
    """Copy `count` elements of `strip` into `array` from `at` on; whole blocks of 32 bytes go around the caches."""
    size, to = u64(array.itemsize), place_of(array, u64(at))
    head = min(u64(count), (u64(0) - to) % u64(32) // size)
    blocks = (u64(count) - head) * size // u64(32)
    for i in range(head):
        array[u64(at) + u64(i)] = strip[u64(i)]
    source = place_of(strip, head)
    for i in range(blocks):
        pass_by(to + head * size + u64(i) * u64(32), source + u64(i) * u64(32))
    for i in range(head + blocks * u64(32) // size, u64(count)):
        array[u64(at) + u64(i)] = strip[u64(i)]


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
def exp_f32(x):
    y = pick(x < f32(-105), f32(-105), x)
    y = pick(y > f32(89), f32(89), y)
    t = y * f32(1.4426950408889634) + f32(12583038)  # the sum has no fraction: its low bits are n + 126
    n = t - f32(12583038)
    r = y - n * f32(0.693359375) - n * f32(-2.12194440e-4)  # |r| <= log(2) / 2
    s = r * r
    p = f32(0.016580458730459213) * r + f32(0.08379678428173065)  # 2 * exp(r), in pairs: a chain would wait for itself
    p = p * s + (f32(0.33335280418395996) * r + f32(0.9999828934669495))
    p = p * s + (f32(1.9999994039535522) * r + f32(2))
    k = i32(bits_of_float(t) << i32(23))  # the exponent of 2 ** (n - 1); below 0 where that is too small for f32
    return p * float_of_bits(pick(k < i32(0), i32(0), k))


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
    s = x * x
    s = pick(s > f32(14.44), f32(14.44), s)  # |x| < 3.8; beyond, the quotient is over 1
    u = s * s
    p = f32(0.05485447496175766) * s + f32(7.30638313293457)
    p = p * u + (f32(92.18940734863281) * s + f32(1333.9954833984375))
    p = p * u + (f32(4749.61962890625) * s + f32(28775.216796875))
    q = (s + f32(28.9466552734375)) * u + (f32(374.0355224609375) * s + f32(2868.69921875))
    q = q * u + (f32(12709.6884765625) * s + f32(25501.37109375))
    e = x * p / q
    e = pick(e < f32(-1), f32(-1), e)
    return pick(e > f32(1), f32(1), e)


@njit(error_model="numpy")
def expm1_f32(x):
    p = f32(0.00019780528964474797) * x + f32(0.0014049821766093373)  # |x| < 0.66: beyond, exp(x) - 1 loses less
    p = (p * x + f32(0.00833445880562067)) * x + f32(0.041664257645606995)
    small = ((p * x + f32(0.16666649281978607)) * x + f32(0.5)) * (x * x) + x
    return pick(math.fabs(x) < f32(0.66), small, exp_f32(x) - f32(1))


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
