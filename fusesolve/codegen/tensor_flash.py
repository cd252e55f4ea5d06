"""Attention on the tensor pipe: the CUDA C++ device functions of generated files, and their stand-ins.

A warp has 16 query rows and `sub` keys of a step. Queries, keys and values lie in shared memory row by row, `inner` or
`head` elements a row in chunks of eight that are permuted by the row. Scores and results lie in registers as the
accumulators of mma.m16n8k16 (PTX ISA); two neighbouring score accumulators are, narrowed, the left operand of the
second product, so that weights never leave the registers.
"""

from dataclasses import dataclass

from fusesolve.codegen.tensor_source import Function, fill_in, swizzle
from fusesolve.cost.gpu.layout import FLASH_HELD

_LIBRARY = r"""
// a warp's 16 rows of a strip as left operands, 16 elements of the row at a time
template <int WIDTH, int D, int G>
static __device__ __forceinline__ void left_rows(unsigned* a, const unsigned short* strip, unsigned k, unsigned tid) {
  const unsigned in = tid % 8, which = tid % 32 / 8;
  fragments4<false>(a, shared_of(strip) + place<false, WIDTH, D, G>(k + which / 2 * 8, which % 2 * 8 + in));
}
// sums of queries times keys: SUB keys from the warp's first one
template <class PIPE, int SUB, int INNER, int D, int G, bool HELD>
static __device__ __forceinline__ void scores(
    float* s, const unsigned* held, const unsigned short* queries, const unsigned short* keys, unsigned tid) {
  const unsigned in = tid % 8, which = tid % 32 / 8, at = shared_of(keys);
#pragma unroll
  for (unsigned k = 0; k < INNER; k += 16) {
    unsigned a[4];
    if (HELD)
      for (int i = 0; i < 4; ++i) a[i] = held[k / 4 + i];
    else
      left_rows<INNER, D, G>(a, queries, k, tid);
#pragma unroll
    for (int j = 0; j < SUB / 8; j += 2) {
      unsigned two[4];
      fragments4<false>(two, at + place<false, INNER, D, G>(k + which % 2 * 8, j * 8 + which / 2 * 8 + in));
      PIPE::mma(s + 4 * j, a, two);
      PIPE::mma(s + 4 * j + 4, a, two + 2);
    }
  }
}
// results plus weights times values, over the same SUB keys
template <class PIPE, class PAIR, int SUB, int HEAD, int D, int G>
static __device__ __forceinline__ void weighted(
    float* acc, const float* w, const unsigned short* values, unsigned tid) {
  const unsigned in = tid % 8, which = tid % 32 / 8, at = shared_of(values);
#pragma unroll
  for (int k = 0; k < SUB / 8; k += 2) {
    unsigned a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = PAIR::of(w[k * 4 + 2 * i], w[k * 4 + 2 * i + 1]);
#pragma unroll
    for (int d = 0; d < HEAD / 8; d += 2) {
      unsigned two[4];
      fragments4<true>(two, at + place<false, HEAD, D, G>(d * 8 + which / 2 * 8, k * 8 + which % 2 * 8 + in));
      PIPE::mma(acc + 4 * d, a, two);
      PIPE::mma(acc + 4 * d + 4, a, two + 2);
    }
  }
}
"""

_PAIR = r"""
struct @KIND@_pair {  // two floats, narrowed, in one register
  static __device__ __forceinline__ unsigned of(float low, float high) {
#if __CUDA_ARCH__ >= 800
    unsigned r;
    asm("cvt.rn.@KIND@x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#else
    return pack_@KIND@(low) | (unsigned)pack_@KIND@(high) << 16;
#endif
  }
};
"""

_FUNCTIONS = r"""extern "C" __device__ void queries_@NAME@(unsigned* held, const unsigned short* strip, unsigned tid) {
  if (@HELD@)
#pragma unroll
    for (unsigned k = 0; k < @INNER@; k += 16) left_rows<@INNER@, @DI@, @GI@>(held + k / 4, strip, k, tid);
}
extern "C" __device__ void scores_@NAME@(
    float* s, const unsigned* held, const unsigned short* queries, const unsigned short* keys, unsigned tid) {
  scores<@KIND@_pipe, @SUB@, @INNER@, @DI@, @GI@, @HELD@>(s, held, queries, keys, tid);
}
extern "C" __device__ void weighted_@NAME@(
    float* acc, const float* w, const unsigned short* values, unsigned tid) {
  weighted<@KIND@_pipe, @KIND@_pair, @SUB@, @HEAD@, @DH@, @GH@>(acc, w, values, tid);
}
"""

_SIMULATED = """
    def row_slots(rows, columns, width):
        period = math.gcd(width // 8, 8)
        return rows * width + ((columns // 8) ^ (rows // (8 // period) % period)) * 8 + columns % 8

    @functools.cache
    def warp_places(lane, sub, inner, head):
        r, k = lane // 4 + 8 * np.arange(2), np.arange(inner)
        s, h = np.arange(sub // 4), np.arange(head // 4)
        s, h = (lane % 4 * 2 + c // 2 * 8 + c % 2 for c in (s, h))
        queries, keys = row_slots(r[:, None], k, inner), row_slots(s[:, None], k, inner)
        return r, queries, keys, row_slots(np.arange(sub)[:, None], h, head)

    def no_queries(held, strip, tid):
        pass

    def scores_stand_in(kind, *shape):
        def scores(s, held, queries, keys, tid):
            _, q, k, _ = warp_places(int(tid) % 32, *shape)
            a = queries[0][queries[1] + q].view(kind).astype(f32)
            b = keys[0][keys[1] + k].view(kind).astype(f32)
            s[0][:] += (a @ b.T).reshape(2, -1, 2).transpose(1, 0, 2).reshape(-1)

        return scores

    def weighted_stand_in(kind, sub, inner, head):
        def weighted(acc, w, values, tid):
            r, _, _, v = warp_places(int(tid) % 32, sub, inner, head)
            given = w[0][w[1] : w[1] + 16 * sub].reshape(16, sub)[r].astype(kind).astype(f32)
            found = given @ values[0][values[1] + v].view(kind).astype(f32)
            acc[0][:] += found.reshape(2, -1, 2).transpose(1, 0, 2).reshape(-1)

        return weighted
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flash:
    """A warp's step of attention: `sub` keys, query rows of `inner` elements, value rows of `head` (multiples of 16).

    `kind` is f16 or bf16.
    """

    kind: str
    sub: int
    inner: int
    head: int

    @property
    def name(self) -> str:
        """The end of the names of its three device functions."""
        return f"{self.kind}_{self.sub}_{self.inner}_{self.head}"

    @property
    def library(self) -> tuple[str, ...]:
        """C++ that its functions need."""
        return _LIBRARY, _PAIR.replace("@KIND@", self.kind)

    @property
    def text(self) -> str:
        """C++ of its functions."""
        (di, gi), (dh, gh) = swizzle(self.inner), swizzle(self.head)
        return fill_in(_FUNCTIONS, {
            "NAME": self.name, "KIND": self.kind, "SUB": self.sub, "INNER": self.inner, "HEAD": self.head,
            "HELD": int(self.inner <= FLASH_HELD), "DI": di, "GI": gi, "DH": dh, "GH": gh,
        })  # fmt: skip

    @property
    def simulated(self) -> str:
        """Python that the simulator's stand-ins need."""
        return _SIMULATED

    @property
    def functions(self) -> tuple[Function, ...]:
        """Its functions as a Numba kernel calls them."""
        shape = f"{self.kind}, {self.sub}, {self.inner}, {self.head}"
        return (
            Function(f"queries_{self.name}", "words, bits", "no_queries"),
            Function(f"scores_{self.name}", "sums, words, bits, bits", f"scores_stand_in({shape})"),
            Function(f"weighted_{self.name}", "sums, sums, bits", f"weighted_stand_in({shape})"),
        )
