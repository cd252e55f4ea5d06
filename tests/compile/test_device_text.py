"""The CUDA C++ of the tensor pipe, run on the host: its indices meet an emulated ldmatrix and mma of the PTX ISA.

A warp is 32 host threads. Collective instructions gather what all lanes give and leave each lane what the ISA says
that it gets; the text between them (which address, which fragment, which accumulator) is the text of generated files.
"""

import shutil
import subprocess

import pytest

from fusesolve.codegen import tensor_source
from fusesolve.codegen.tensor_flash import Flash
from fusesolve.codegen.tensor_source import Mma, device_text, swizzle

needs_host_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

TILES = {
    "both along k": Mma(
        kind="f16", rows=32, columns=48, warps=1, blocks_r=2, blocks_c=3, inner_r=True, inner_c=True
    ),
    "both across k": Mma(
        kind="f16", rows=64, columns=32, warps=2, blocks_r=2, blocks_c=4, inner_r=False, inner_c=False
    ),
    "one column block": Mma(
        kind="bf16", rows=48, columns=8, warps=1, blocks_r=3, blocks_c=1, inner_r=False, inner_c=True
    ),
}  # fmt: skip

_WARP = r"""
#include <barrier>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>
#define __device__
#define __forceinline__ inline
typedef unsigned short u16;
static u16 shared_memory[65536];
static std::barrier<> *sync_warp;
static thread_local int my_lane;
static unsigned gathered[32][6];
static unsigned shared_of(const void* p) { return (unsigned)((const char*)p - (const char*)shared_memory); }
static u16 half_at(unsigned bytes) { return shared_memory[bytes / 2]; }
template <bool T> static void fragments(unsigned* r, unsigned at, int count) {
  gathered[my_lane][0] = at;
  sync_warp->arrive_and_wait();
  for (int m = 0; m < count; ++m) {  // matrix m: rows at the addresses of lanes 8m .. 8m+7, 16 bytes each
    u16 two[2];
    for (int e = 0; e < 2; ++e) {
      int row = T ? my_lane % 4 * 2 + e : my_lane / 4, column = T ? my_lane / 4 : my_lane % 4 * 2 + e;
      two[e] = half_at(gathered[m * 8 + row][0] + column * 2);
    }
    r[m] = two[0] | (unsigned)two[1] << 16;
  }
  sync_warp->arrive_and_wait();
}
template <bool T> static void fragments4(unsigned* r, unsigned at) { fragments<T>(r, at, 4); }
template <bool T> static void fragments2(unsigned* r, unsigned at) { fragments<T>(r, at, 2); }
static float value(unsigned pair, int high) { return (float)(short)(high ? pair >> 16 : pair & 0xffff); }
struct host_pipe {
  static void mma(float* c, const unsigned* a, const unsigned* b) {  // m16n8k16; elements are small integers
    for (int i = 0; i < 4; ++i) gathered[my_lane][i] = a[i];
    for (int i = 0; i < 2; ++i) gathered[my_lane][4 + i] = b[i];
    sync_warp->arrive_and_wait();
    for (int i = 0; i < 4; ++i) {
      int row = my_lane / 4 + i / 2 * 8, column = my_lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) {
        int of_a = row % 8 * 4 + k % 8 / 2, of_b = column * 4 + k % 8 / 2;
        c[i] += value(gathered[of_a][row / 8 + k / 8 * 2], k % 2) * value(gathered[of_b][4 + k / 8], k % 2);
      }
    }
    sync_warp->arrive_and_wait();
  }
};
"""

_TILE = r"""
@TILE@
static const unsigned ROWS = @ROWS@, COLUMNS = @COLUMNS@, WARPS = @WARPS@, BR = @BR@, BC = @BC@;
static int element(unsigned line, unsigned k, int side) { return (int)((line * 7 + k * 3 + side * 5) % 11) - 5; }
template <bool INNER, int WIDTH, int D, int G> static void fill(u16* strip, int side) {
  for (unsigned line = 0; line < (unsigned)WIDTH; ++line)
    for (unsigned k = 0; k < 64; ++k) {
      unsigned slot = INNER ? line * 64 + ((k / 8) ^ (line % 8)) * 8 + k % 8
                            : k * WIDTH + ((line / 8) ^ (k / D % G)) * 8 + line % 8;
      strip[slot] = (u16)(short)element(line, k, side);
    }
}
int main() {
  u16 *rows = shared_memory, *columns = shared_memory + ROWS * 64;
  fill<@INNER_R@, @ROWS@, @DR@, @GR@>(rows, 0);
  fill<@INNER_C@, @COLUMNS@, @DC@, @GC@>(columns, 1);
  int wrong = 0, points = 0;
  for (unsigned warp = 0; warp < ROWS * COLUMNS / (BR * BC * 128); ++warp) {
    std::barrier<> barrier(32);
    sync_warp = &barrier;
    std::vector<std::vector<float>> acc(32, std::vector<float>(BR * BC * 4, 0.0f));
    std::vector<std::thread> lanes;
    for (int lane = 0; lane < 32; ++lane)
      lanes.emplace_back([&, lane] {
        my_lane = lane;
        products<host_pipe, @BR@, @BC@, @WARPS@, @ROWS@, @COLUMNS@, @INNER_R@, @INNER_C@, @DR@, @GR@, @DC@, @GC@>(
            acc[lane].data(), rows, columns, warp * 32 + lane);
      });
    for (auto& lane : lanes) lane.join();
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned r = 0; r < 2 * BR; ++r)
        for (unsigned c = 0; c < 2 * BC; ++c) {  // as the emitted kernel names its points
          unsigned row = warp % WARPS * (BR * 16) + lane / 4 + r * 8;
          unsigned column = warp / WARPS * (BC * 8) + lane % 4 * 2 + c / 2 * 8 + c % 2;
          int wanted = 0;
          for (unsigned k = 0; k < 64; ++k) wanted += element(row, k, 0) * element(column, k, 1);
          wrong += acc[lane][(r / 2 * BC + c / 2) * 4 + r % 2 * 2 + c % 2] != (float)wanted;
          ++points;
        }
  }
  std::printf("%d %d\n", points, wrong);
}
"""

_FLASH = r"""
struct f16_pipe : host_pipe {};
struct f16_pair {
  static unsigned of(float low, float high) { return (u16)(short)low | (unsigned)(u16)(short)high << 16; }
};
@TEXT@
static const unsigned SUB = @SUB@, INNER = @INNER@, HEAD = @HEAD@;
static int element(unsigned row, unsigned column, int side) { return (int)((row * 5 + column * 3 + side * 7) % 9) - 4; }
static void fill(u16* strip, unsigned rows, unsigned width, int side) {  // as a generated kernel lays it
  unsigned period = width / 8 % 8 == 0 ? 8 : width / 8 % 4 == 0 ? 4 : width / 8 % 2 == 0 ? 2 : 1;
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned c = 0; c < width; ++c)
      strip[row * width + ((c / 8) ^ (row / (8 / period) % period)) * 8 + c % 8] = (u16)(short)element(row, c, side);
}
int main() {
  u16 *queries = shared_memory, *keys = queries + 16 * INNER, *values = keys + SUB * INNER;
  fill(queries, 16, INNER, 0);
  fill(keys, SUB, INNER, 1);
  fill(values, SUB, HEAD, 2);
  std::barrier<> barrier(32);
  sync_warp = &barrier;
  std::vector<std::vector<float>> s(32, std::vector<float>(SUB / 2, 0.0f)), acc(32, std::vector<float>(HEAD / 2, 1.0f));
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < 32; ++lane)
    lanes.emplace_back([&, lane] {
      my_lane = lane;
      std::vector<unsigned> held(INNER / 4);
      queries_@NAME@(held.data(), queries, lane);
      scores_@NAME@(s[lane].data(), held.data(), queries, keys, lane);
      std::vector<float> weights(SUB / 2);
      for (unsigned c = 0; c < SUB / 2; ++c) weights[c] = (float)((int)s[lane][c] % 5);
      weighted_@NAME@(acc[lane].data(), weights.data(), values, lane);
    });
  for (auto& lane : lanes) lane.join();
  int wrong = 0, points = 0, weight[16][SUB];
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned key = 0; key < SUB; ++key) {
      int wanted = 0;
      for (unsigned k = 0; k < INNER; ++k) wanted += element(row, k, 0) * element(key, k, 1);
      weight[row][key] = wanted % 5;
      wrong += s[row % 8 * 4 + key % 8 / 2][key / 8 * 4 + row / 8 * 2 + key % 2] != (float)wanted;
      ++points;
    }
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned column = 0; column < HEAD; ++column) {
      int wanted = 1;
      for (unsigned key = 0; key < SUB; ++key) wanted += weight[row][key] * element(key, column, 2);
      wrong += acc[row % 8 * 4 + column % 8 / 2][column / 8 * 4 + row / 8 * 2 + column % 2] != (float)wanted;
      ++points;
    }
  std::printf("%d %d\n", points, wrong);
}
"""

FLASHES = {
    "held queries": Flash(kind="f16", sub=32, inner=48, head=64),
    "queries read again": Flash(kind="f16", sub=16, inner=144, head=16),
}


def host_text(tile: Mma) -> str:
    """The tile's text with the host's collectives."""
    text = (_WARP + _TILE).replace("@TILE@", tensor_source._PLACE + tensor_source._TILE)
    return tensor_source.fill_in(text, tile.constants())


def run_on_host(text: str, folder) -> tuple[int, int]:
    """Points that the program compares, and how many are wrong."""
    (folder / "warp.cpp").write_text(text)
    command = ["g++", "-std=c++20", "-O1", "-w", "-pthread", "-o", str(folder / "warp"), str(folder / "warp.cpp")]
    subprocess.run(command, check=True)
    found = subprocess.run([str(folder / "warp")], check=True, capture_output=True, text=True)
    points, wrong = map(int, found.stdout.split())
    return points, wrong


@needs_host_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", TILES)
def test_every_accumulator_is_the_product_of_its_point(name, tmp_path):
    tile = TILES[name]
    assert run_on_host(host_text(tile), tmp_path) == (tile.rows * tile.columns, 0)


@needs_host_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", FLASHES)
def test_scores_and_weighted_values_of_a_warp_are_those_of_their_points(name, tmp_path):
    flash = FLASHES[name]
    text = _WARP + _FLASH.replace("@TEXT@", tensor_source._PLACE + flash.library[0] + flash.text)
    for key in ("sub", "inner", "head", "name"):
        text = text.replace(f"@{key.upper()}@", str(getattr(flash, key)))
    assert run_on_host(text, tmp_path) == (16 * (flash.sub + flash.head), 0)


def test_the_text_has_what_its_tiles_need_and_no_more():
    text = device_text([TILES["both along k"]], [1])
    assert "copies_wait1" in text and "copies_wait2" not in text and "bf16" not in text
    text = device_text(TILES.values(), [0, 1, 1])
    assert text.count('extern "C" __device__ void copies_wait1()') == 1 and "pack_bf16" in text
    assert all(text.count(f"void {tile.name}(") == 1 for tile in TILES.values())
    text = device_text(FLASHES.values(), [0])
    assert text.count("void scores_f16_") == 2 and text.count("struct f16_pair") == 1 and "products" not in text


@pytest.mark.parametrize(("width", "wanted"), [(8, (8, 1)), (16, (4, 2)), (32, (2, 4)), (64, (1, 8)), (96, (2, 4)),
                                               (128, (1, 8)), (192, (1, 8)), (224, (2, 4))])  # fmt: skip
def test_a_permuted_chunk_stays_in_its_row(width, wanted):
    assert swizzle(width) == wanted
    apart, period = wanted
    for k in range(64):
        assert sorted(chunk ^ k // apart % period for chunk in range(width // 8)) == list(range(width // 8))
