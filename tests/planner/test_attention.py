"""Attention is fused where its tiles fit, and left as products and a softmax where they do not."""

from dataclasses import replace

import pytest

from fusesolve import plan
from fusesolve.hardware_yaml import load_profile
from tests.unit.native_program import graph


def attention(heads, length, width, *, middle=("sc = mul(s, 0.1)", "p = softmax(sc; axis=2)"), dtype="f16"):
    inputs = [f"{name}: {dtype}[{heads},{length},{width}]" for name in "qkv"]
    ops = ["s = matmul(q, k; transpose_b=true)", *middle, "o = matmul(p, v)"]
    return graph(inputs, ops, ["o"])


def small_shared(name, size):
    """The device with `size` bytes of shared memory for a block and a unit."""
    device = load_profile(name)
    shared = replace(device.memory.shared, per_unit=size + 1024, per_block_max=size)
    return replace(device, memory=replace(device.memory, shared=shared))


@pytest.mark.parametrize("name", ["a100", "h100", "t4"])
@pytest.mark.parametrize("width", [64, 128])
def test_attention_with_usual_heads_is_one_kernel(name, width):
    found = plan(attention(16, 2048, width), name)
    assert found.status == "OPTIMAL"
    assert [group.template for group in found.groups] == ["attention"]
    assert found.dram_bytes == 4 * 16 * 2048 * width * 2  # three operands and the result; the scores stay on chip


def test_a_head_of_512_is_separate_where_a_block_has_64_kib():
    """One head of 512 over 9216 tokens: no tile of queries, keys and values of this width fits at a useful size."""
    found = plan(attention(1, 9216, 512), small_shared("a100", 65_536))
    assert all(group.template != "attention" for group in found.groups)
    assert all(group.shared_bytes <= 65_536 for group in found.groups)
    separate = plan(attention(1, 9216, 512), "t4")
    assert all(group.template != "attention" for group in separate.groups)


def test_sixteen_heads_of_64_are_fused_on_the_same_small_device():
    found = plan(attention(16, 2048, 64), small_shared("a100", 65_536))
    assert [group.template for group in found.groups] == ["attention"]


def test_scores_that_the_caller_wants_cannot_stay_on_chip():
    inputs = [f"{name}: f16[8,1024,64]" for name in "qkv"]
    ops = ["s = matmul(q, k; transpose_b=true)", "p = softmax(s; axis=2)", "o = matmul(p, v)"]
    found = plan(graph(inputs, ops, ["o", "p"]), "a100", recompute=False)
    writers = [group for group in found.groups if "p" in group.outputs]
    assert len(writers) == 1
    assert writers[0].template != "attention"


def test_mask_scale_and_casts_between_the_products_are_fused():
    inputs = [*(f"{name}: f16[12,1024,64]" for name in "qkv"), "mask: f16[1,1024,1024]"]
    ops = [
        "s = matmul(q, k; transpose_b=true)", "sc = mul(s, 0.125)", "m = add(sc, mask)", "p = softmax(m; axis=2)",
        "o = matmul(p, v)",
    ]  # fmt: skip
    found = plan(graph(inputs, ops, ["o"]), "a100")
    assert [group.nodes for group in found.groups] == [("s", "sc", "m", "p", "o")]


def test_attention_without_a_softmax_is_two_products():
    """A row-wise norm of the scores by their maximum is no online softmax with an exponential."""
    found = plan(attention(8, 1024, 64, middle=("p = relu(s)",)), "a100")
    assert sorted(group.template for group in found.groups) == ["contraction", "contraction"]


def test_heads_split_by_slices_and_reshapes_reach_the_attention_kernel():
    """The bundled block: q, k, v are slices of one product, reshaped and transposed on the way into attention."""
    found = plan("gpt2_block", "h100")
    (fused,) = [group for group in found.groups if group.template == "attention"]
    assert {"q", "k", "v", "qk", "scaled", "masked", "softmax", "pv"} <= set(fused.nodes)
    assert found.speedup > 2
