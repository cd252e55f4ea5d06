"""Operators of tables as workloads: bytes, work and launch shapes by hand."""

import pytest

from fusesolve.group import TEMPLATES, Template
from fusesolve.study.operators import LIBRARY_ROWS, OPERATORS, workload_of
from fusesolve.study.samples import Spec

SIZES = {
    "matmul": (16, 32, 64), "product_by_rows": (16, 32, 64), "bmm": (2, 16, 32, 64), "conv2d": (2, 8, 16, 3, 28, 1, 1),
    "attention": (2, 4, 128, 8, 2, 64, 1), "embedding": (20, 64, 1000),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_is_one_kernel(op, dtype):
    found = workload_of(Spec(op, dtype, SIZES.get(op, (10, 64))))
    assert found.read_bytes > 0 and found.write_bytes > 0
    assert (found.row_threads > 0) == (op in LIBRARY_ROWS)


def test_bytes_of_an_addition():
    found = workload_of(Spec("add", "f32", (100, 200)))
    assert (found.read_bytes, found.write_bytes) == (2 * 80_000, 80_000)


def test_a_linear_layer_has_weights():
    found = workload_of(Spec("matmul", "bf16", (16, 32, 64)))
    assert (found.m, found.n, found.k, found.plain) == (16, 32, 64, 1)
    assert found.weight_bytes == 64 * 32 * 2
    assert found.alu == 0  # a matrix unit takes 16-bit operands as they are


def test_attention_of_one_query_reads_every_key_once():
    found = workload_of(Spec("attention", "bf16", (4, 1, 128, 8, 2, 64, 1)))
    assert found.read_bytes == (4 * 8 * 64 + 2 * 4 * 2 * 128 * 64) * 2
    assert (found.batch, found.m, found.n, found.shared_heads, found.causal) == (8, 4, 128, 4, 0)
    assert found.mma == 2 * 4 * 8 * 128 * 64


def test_attention_over_many_queries_is_causal_where_the_row_says_so():
    assert workload_of(Spec("attention", "bf16", (1, 64, 64, 2, 2, 64, 1))).causal == 1
    assert workload_of(Spec("attention", "bf16", (1, 64, 64, 2, 2, 64, 0))).causal == 0


@pytest.mark.parametrize(("cols", "threads", "passes"), [(64, 32, 1), (1024, 32, 1), (2048, 256, 3), (8192, 512, 3)])
def test_softmax_takes_a_warp_or_a_block(cols, threads, passes):
    found = workload_of(Spec("softmax", "f32", (10, cols)))
    assert (found.row_threads, found.passes) == (threads, passes)


def test_a_serving_kernel_has_a_thread_per_column():
    found = workload_of(Spec("silu_mul", "f16", (10, 11008)))
    assert TEMPLATES[found.template] is Template.ROW
    assert (found.outer, found.inner, found.row_threads, found.row_load_bytes) == (10, 11008, 1024, 2)


def test_a_rotation_has_a_thread_per_pair_of_a_query():
    # 1,024 columns of queries and 256 of keys: 512 threads, 640 pairs, 84 integer instructions each beside its own
    found = workload_of(Spec("rope", "f16", (10, 1280, 1024)))
    assert (found.outer, found.inner, found.row_threads, found.row_load_bytes) == (10, 1280, 512, 4)
    assert found.alu >= 84 * 10 * 640


def test_the_largest_of_a_tensor_is_found_by_one_grid_whatever_the_shape():
    wide, tall = (workload_of(Spec("largest", "bf16", sizes)) for sizes in ((16, 65536), (65536, 16)))
    assert (wide.outer, wide.inner, wide.row_threads) == (tall.outer, tall.inner, tall.row_threads) == (1024, 1024, 256)


@pytest.mark.parametrize(("cols", "threads"), [(32, 128), (200, 200), (4096, 256)])
def test_quantising_rows_takes_a_block_of_up_to_256_threads(cols, threads):
    assert workload_of(Spec("token_quantise", "bf16", (10, cols))).row_threads == threads


def test_few_indices_are_walked_one_after_the_other():
    few, many = (workload_of(Spec("embedding", "f16", (rows, 1024, 32000))) for rows in (16, 17))
    assert (few.outer, few.inner, few.row_threads, few.row_load_bytes) == (8, 16 * 128, 128, 2)
    assert many.row_threads == 0
