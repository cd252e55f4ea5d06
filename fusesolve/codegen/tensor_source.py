"""The tensor pipe in generated files: CUDA C++ device functions that Numba kernels call, stand-ins for the simulator.

A strip of an operand lies in shared memory as 64 elements of the reduced axis for each of its rows (or columns), the
reduced axis inner (`k inner`) or outer, in chunks of eight elements that are permuted so that neither a fragment load
nor a copy meets a bank twice. A warp's tile is `blocks_r` x 16 by `blocks_c` x 8 points; the layout of its accumulators
is the one that the PTX ISA gives for mma.m16n8k16, so that the Numba kernel knows which point each of them is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Protocol

STEP = 64  # elements of the reduced axis in a strip
CHUNK = 8  # elements that are copied at once: 16 bytes


@dataclass(frozen=True, slots=True)
class Function:
    """A device function: its name, the types of its arguments before the thread's number, the simulator's stand-in."""

    name: str
    arguments: str
    stand_in: str


class Piece(Protocol):
    """What a kernel needs of the tensor pipe: device functions for one shape of its tile."""

    @property
    def kind(self) -> str:
        """f16 or bf16."""

    @property
    def name(self) -> str:
        """What tells it from others."""

    @property
    def library(self) -> tuple[str, ...]:
        """C++ that its functions share with those of other shapes."""

    @property
    def text(self) -> str:
        """C++ of its functions."""

    @property
    def simulated(self) -> str:
        """Python that the stand-ins share with those of other shapes."""

    @property
    def functions(self) -> tuple[Function, ...]:
        """Its functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mma:
    """A block's tile on the tensor pipe: `rows` are on the side of 16, `columns` on the side of 8.

    `warps` share the rows; `inner_r`, `inner_c` say whether the reduced axis is inner in the strip of each side.
    """

    kind: str  # f16 or bf16
    rows: int
    columns: int
    warps: int
    blocks_r: int
    blocks_c: int
    inner_r: bool
    inner_c: bool

    @property
    def name(self) -> str:
        """The device function's name."""
        order = "".join("k" if inner else "o" for inner in (self.inner_r, self.inner_c))
        return f"mma_{self.kind}_{self.rows}x{self.columns}_{self.warps}x{self.blocks_r}x{self.blocks_c}_{order}"

    @property
    def library(self) -> tuple[str, ...]:
        """The products of any tile."""
        return (_TILE,)

    @property
    def text(self) -> str:
        """Its device function."""
        return fill_in(_FUNCTION, self.constants())

    def constants(self) -> dict[str, str | int]:
        """What the C++ text has to be filled in with."""
        (dr, gr), (dc, gc) = swizzle(self.rows), swizzle(self.columns)
        return {
            "NAME": self.name, "KIND": self.kind, "BR": self.blocks_r, "BC": self.blocks_c, "WARPS": self.warps,
            "ROWS": self.rows, "COLUMNS": self.columns, "INNER_R": int(self.inner_r), "INNER_C": int(self.inner_c),
            "DR": dr, "GR": gr, "DC": dc, "GC": gc,
        }  # fmt: skip

    @property
    def simulated(self) -> str:
        """The products of any tile."""
        return _SIMULATED_TILE

    @property
    def functions(self) -> tuple[Function, ...]:
        """Its device function."""
        numbers = (self.rows, self.columns, self.warps, self.blocks_r, self.blocks_c, self.inner_r, self.inner_c)
        return (Function(self.name, "sums, bits, bits", f"stand_in({', '.join((self.kind, *map(str, numbers)))})"),)


def fill_in(text: str, values: Mapping[str, str | int]) -> str:
    """C++ text with `@KEY@` replaced by the value of each key."""
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def swizzle(width: int) -> tuple[int, int]:
    """(d, g): in a strip of `width` with the reduced axis outer, row k has its chunks permuted by (k // d) % g.

    g divides the chunks of a row, so that a permuted chunk stays in its row; d rows lie in g chunks of banks.
    """
    period = gcd(width // CHUNK, 8)
    return 8 // period, period


_HEAD = r"""
static __device__ __forceinline__ unsigned shared_of(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __device__ void copy16(unsigned short* to, const unsigned short* from, unsigned bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(shared_of(to)), "l"(from), "r"(bytes) : "memory");
#else
  uint4 x = make_uint4(0, 0, 0, 0);
  if (bytes) x = *(const uint4*)from;
  *(uint4*)to = x;
#endif
}
extern "C" __device__ void copies_end() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
extern "C" __device__ unsigned short pack_f16(float x) {
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
template <bool TRANSPOSED> static __device__ __forceinline__ void fragments4(unsigned* r, unsigned at) {
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
template <bool TRANSPOSED> static __device__ __forceinline__ void fragments2(unsigned* r, unsigned at) {
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
      : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
      : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory");
}
struct f16_pipe {
  static __device__ __forceinline__ void mma(float* c, const unsigned* a, const unsigned* b) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int h = 0; h < 2; ++h)
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2 * h]), "r"(a[2 * h + 1]), "r"(b[h]));
#endif
  }
};
"""

_BF16 = r"""
extern "C" __device__ unsigned short pack_bf16(float x) {
  unsigned short r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
struct bf16_pipe {
  static __device__ __forceinline__ void mma(float* c, const unsigned* a, const unsigned* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
"""

_PLACE = r"""
// bytes from the start of a strip to its chunk: `line` along the strip, `chunk` of eight along k (k inner); or swapped
template <bool INNER, int WIDTH, int D, int G>
static __device__ __forceinline__ unsigned place(unsigned along, unsigned k) {
  return INNER ? along * 128 + ((((k >> 3) ^ along) & 7) << 4)
               : k * (WIDTH * 2) + (((along >> 3) ^ ((k / D) % G)) << 4);
}
"""

_TILE = r"""// the products of one step: lane / 8 chooses the 8 x 8 matrix that a lane points at
template <class PIPE, int BR, int BC, int WARPS, int ROWS, int COLUMNS, bool INNER_R, bool INNER_C,
          int DR, int GR, int DC, int GC>
static __device__ __forceinline__ void products(
    float* acc, const unsigned short* rows, const unsigned short* columns, unsigned tid) {
  const unsigned lane = tid % 32, warp = tid / 32, in = lane % 8, which = lane / 8;
  const unsigned r0 = warp % WARPS * (BR * 16), c0 = warp / WARPS * (BC * 8);
  const unsigned sr = shared_of(rows), sc = shared_of(columns);
#pragma unroll
  for (unsigned k = 0; k < 64; k += 16) {
    unsigned a[BR][4], b[BC][2];
#pragma unroll
    for (int i = 0; i < BR; ++i) {
      unsigned row = r0 + i * 16 + (which % 2) * 8, kk = k + (which / 2) * 8;
      fragments4<!INNER_R>(a[i], sr + place<INNER_R, ROWS, DR, GR>(INNER_R ? row + in : row, INNER_R ? kk : kk + in));
    }
#pragma unroll
    for (int j = 0; j < BC; j += 2) {
      unsigned column = c0 + j * 8 + (j + 1 < BC ? which / 2 * 8 : 0), kk = k + (which % 2) * 8;
      unsigned at = sc + place<INNER_C, COLUMNS, DC, GC>(INNER_C ? column + in : column, INNER_C ? kk : kk + in);
      unsigned two[4];
      if (j + 1 < BC) {
        fragments4<!INNER_C>(two, at);
        b[j + 1 < BC ? j + 1 : j][0] = two[2];
        b[j + 1 < BC ? j + 1 : j][1] = two[3];
      } else {
        fragments2<!INNER_C>(two, at);
      }
      b[j][0] = two[0];
      b[j][1] = two[1];
    }
#pragma unroll
    for (int i = 0; i < BR; ++i)
#pragma unroll
      for (int j = 0; j < BC; ++j) PIPE::mma(acc + (i * BC + j) * 4, a[i], b[j]);
  }
}
"""

_FUNCTION = r"""extern "C" __device__ void @NAME@(
    float* acc, const unsigned short* rows, const unsigned short* columns, unsigned tid) {
  products<@KIND@_pipe, @BR@, @BC@, @WARPS@, @ROWS@, @COLUMNS@, @INNER_R@, @INNER_C@, @DR@, @GR@, @DC@, @GC@>(
      acc, rows, columns, tid);
}
"""


def device_text(tiles: Iterable[Piece], waits: Iterable[int]) -> str:
    """The CUDA C++ of a file: copies, one wait for each number of groups in flight, the functions of each tile."""
    shapes = _in_order(tiles)
    parts = [_HEAD, *([_BF16] if any(item.kind == "bf16" for item in shapes) else []), _PLACE]
    parts += dict.fromkeys(text for item in shapes for text in item.library)
    for count in sorted(set(waits)):
        parts.append(
            f'extern "C" __device__ void copies_wait{count}() {{\n#if __CUDA_ARCH__ >= 800\n'
            f'  asm volatile("cp.async.wait_group {count};" ::: "memory");\n#endif\n}}\n'
        )
    return "".join((*parts, *(item.text for item in shapes)))


def _in_order(tiles: Iterable[Piece]) -> list[Piece]:
    return sorted(set(tiles), key=lambda item: item.name)


_SIMULATED = """\
    def where(array, index):
        return array, int(index)

    def copy16(to, source, count):
        (strip, at), (array, start) = to, source
        found = [array[start + n] for n in range(8)] if count else [u16(0)] * 8
        strip[at : at + 8] = np.array(found).view(u16)

    def copies_end():
        pass

    def pack_f16(x):
        return f16(x).view(u16)
"""

_SIMULATED_TILE = """
    @functools.cache
    def places(tid, rows, columns, warps, blocks_r, blocks_c, inner_r, inner_c):
        lane, warp, k = tid % 32, tid // 32, np.arange(64)

        def strip(along, width, inner):
            period = math.gcd(width // 8, 8)
            if inner:
                return along[:, None] * 64 + ((k // 8) ^ (along[:, None] % 8)) * 8 + k % 8
            return k * width + ((along[:, None] // 8) ^ (k // (8 // period) % period)) * 8 + along[:, None] % 8

        r = warp % warps * blocks_r * 16 + lane // 4 + 8 * np.arange(2 * blocks_r)
        c = np.arange(2 * blocks_c)
        c = warp // warps * blocks_c * 8 + lane % 4 * 2 + c // 2 * 8 + c % 2
        return strip(r, rows, inner_r), strip(c, columns, inner_c)

    def stand_in(kind, *shape):
        def products(acc, rows, columns, tid):
            r, c = places(int(tid), *shape)
            a = rows[0][rows[1] + r].view(kind).astype(f32)
            b = columns[0][columns[1] + c].view(kind).astype(f32)
            found = (a @ b.T).reshape(len(r) // 2, 2, len(c) // 2, 2)  # row block, its half, column block, neighbour
            acc[0][:] += found.transpose(0, 2, 1, 3).reshape(-1)

        return products
"""

_DEVICE = """\
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    @intrinsic
    def where(context, array, index):
        def address(context, builder, signature, args):
            return builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])

        return types.CPointer(array.dtype)(array, index), address

    def declared(name, result, *arguments):
        return cuda.declare_device(name, result(*arguments), link=[DEVICE], abi="c")

    bits, sums = types.CPointer(types.uint16), types.CPointer(types.float32)
    copies_end = declared("copies_end", types.void)
    pack_f16 = declared("pack_f16", types.uint16, types.float32)
"""


def tensor_preamble(tiles: Iterable[Piece], waits: Iterable[int]) -> str:
    """The part of a file's head that kernels on the tensor pipe need."""
    shapes, counts = _in_order(tiles), sorted(set(waits))
    types = sorted({item.kind for item in shapes})
    functions = [function for item in shapes for function in item.functions]
    text = device_text(shapes, counts)
    lines = [f"import functools\n\nDEVICE_TEXT = r'''{text}'''\n\nif SIMULATED:\n", _SIMULATED]
    lines += dict.fromkeys(item.simulated for item in shapes)
    if "bf16" in types:
        lines.append("\n    def pack_bf16(x):\n        return f32(x).astype(bf16).view(u16)\n")
    lines += [f"\n    def copies_wait{count}():\n        pass\n" for count in counts]
    lines += ["\n", *(f"    copy16_{kind} = copy16\n" for kind in types)]
    lines += [f"    {item.name} = {item.stand_in}\n" for item in functions]
    lines += ["else:\n    DEVICE = cuda.CUSource(DEVICE_TEXT, name='device.cu')\n", _DEVICE]
    if any("words" in item.arguments for item in functions):
        lines.append("    words = types.CPointer(types.uint32)\n")
    for kind in types:
        numba_type = "types.bfloat16" if kind == "bf16" else "types.float16"
        lines.append(
            f"    copy16_{kind} = declared('copy16', types.void, bits, types.CPointer({numba_type}), types.uint32)\n"
        )
    if "bf16" in types:
        lines.append('    pack_bf16 = declared("pack_bf16", types.uint16, types.float32)\n')
    lines += [f'    copies_wait{count} = declared("copies_wait{count}", types.void)\n' for count in counts]
    lines += [
        f'    {item.name} = declared("{item.name}", types.void, {item.arguments}, types.uint32)\n' for item in functions
    ]
    return "".join(lines)
