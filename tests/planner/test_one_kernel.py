"""Chains that belong in one kernel come out as one, with the compulsory bytes and within the limits."""

import pytest

from fusesolve import plan
from fusesolve.hardware_yaml import load_profile
from tests.unit.native_program import graph

GPUS = ("a100", "h100")
DEVICES = (*GPUS, "mobile-npu")
TENSOR = 8192 * 4096 * 4


def within_limits(found, name):
    device = load_profile(name)
    for group in found.groups:
        if device.kind == "gpu":
            assert group.shared_bytes <= device.memory.shared.per_block_max
            assert group.threads <= device.limits.threads_per_block
            assert group.registers_per_thread <= device.registers.per_thread_max
            assert group.registers_per_thread * group.threads <= device.registers.per_block_max
            assert group.argument_bytes <= device.limits.argument_bytes
            assert 0 < group.occupancy <= 1
        else:
            assert group.shared_bytes <= device.memory.shared.per_block_max
    return True


@pytest.mark.parametrize("name", GPUS)
def test_a_softmax_written_out_is_one_kernel_with_the_compulsory_bytes(name):
    """Five operators, f32[8192,4096]: read once and written once, 2 x 128 MiB."""
    found = plan("softmax", name)
    assert found.status == "OPTIMAL"
    assert [group.template for group in found.groups] == ["row"]
    assert found.groups[0].nodes == ("row_max", "centred", "exp", "row_sum", "y")
    assert found.dram_bytes == 2 * TENSOR
    # alone: max reads x; sub reads x, writes; exp reads, writes; sum reads; div reads, writes (and row vectors)
    assert found.unfused_dram_bytes == 8 * TENSOR + 4 * 8192 * 4
    assert within_limits(found, name)


@pytest.mark.parametrize("name", GPUS)
def test_a_layer_norm_written_out_is_one_kernel_with_the_compulsory_bytes(name):
    found = plan("layer_norm", name)
    assert found.status == "OPTIMAL"
    assert len(found.groups) == 1
    assert found.dram_bytes == 2 * TENSOR + 2 * 4096 * 4
    assert within_limits(found, name)


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("op", ["softmax(x; axis=1)", "layernorm(x, g, b; axis=1)", "rmsnorm(x, g; axis=1)"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_composites_come_back_as_one_kernel(name, op, dtype):
    item = 2 if dtype == "f16" else 4
    weights = [w for w in ("g", "b") if f", {w}" in op]
    source = graph([f"x: {dtype}[8192,4096]", *(f"{w}: {dtype}[4096]" for w in weights)], [f"y = {op}"], ["y"], weights)
    found = plan(source, name)
    assert len(found.groups) == 1
    assert found.groups[0].nodes == ("y",)
    assert found.dram_bytes == (2 * 8192 * 4096 + len(weights) * 4096) * item
    assert found.objective_ns == found.unfused_ns  # a source operator alone is one kernel already


CHAINS = {
    "silu": ["s = sigmoid(x)", "y = mul(x, s)"],
    "gelu by erf": ["a = mul(x, 0.70710678)", "b = erf(a)", "c = add(b, 1.0)", "d = mul(x, c)", "y = mul(d, 0.5)"],
    "gelu by tanh": [
        "a = mul(x, x)", "b = mul(a, x)", "c = mul(b, 0.044715)", "d = add(x, c)", "e = mul(d, 0.7978845608)",
        "f = tanh(e)", "g = add(f, 1.0)", "h = mul(x, g)", "y = mul(h, 0.5)",
    ],
    "hard swish": ["a = add(x, 3.0)", "b = clip(a; min=0.0, max=6.0)", "c = mul(x, b)", "y = div(c, 6.0)"],
}  # fmt: skip


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("chain", CHAINS)
def test_activation_chains_are_one_kernel(name, chain):
    found = plan(graph(["x: f16[8192,4096]"], CHAINS[chain], ["y"]), name)
    assert found.status == "OPTIMAL"
    assert len(found.groups) == 1
    assert found.dram_bytes == 2 * 8192 * 4096 * 2
    assert within_limits(found, name)


@pytest.mark.parametrize("name", DEVICES)
def test_convolution_batch_norm_and_relu_are_one_kernel(name):
    """f16[32,64,56,56] in and out, 64 x 64 x 9 weights; of the four parameters a factor and a shift remain."""
    found = plan("conv_bn_relu", name)
    assert found.status == "OPTIMAL"
    assert [group.nodes for group in found.groups] == [("conv", "bn", "relu")]
    image = 32 * 64 * 56 * 56 * 2
    parameters = 2 * 64 * (2 if name == "mobile-npu" else 4)  # the mobile NPU takes f32 as f16
    assert found.dram_bytes == 2 * image + 64 * 64 * 9 * 2 + parameters
    assert within_limits(found, name)


@pytest.mark.parametrize("name", DEVICES)
def test_a_folded_convolution_keeps_bias_and_residual_in_its_epilogue(name):
    source = graph(
        ["x: f16[8,64,56,56]", "w: f16[64,64,3,3]", "b: f16[64,1,1]", "r: f16[8,64,56,56]"],
        ["c = conv2d(x, w; pad=1)", "d = add(c, b)", "e = add(d, r)", "y = relu(e)"], ["y"], ["w", "b"],
    )  # fmt: skip
    found = plan(source, name)
    assert len(found.groups) == 1
    assert found.groups[0].template == "contraction"
    assert found.dram_bytes == 3 * 8 * 64 * 56 * 56 * 2 + 64 * 64 * 9 * 2 + 64 * 2


@pytest.mark.parametrize("name", DEVICES)
def test_every_bundled_graph_has_a_plan_within_the_limits(name):
    """The small ones here; the Llama blocks have a test of their own."""
    for graph_name in ("rms_norm", "gelu_mlp", "moe_router", "mobilenet_inverted_residual", "gpt2_block"):
        found = plan(graph_name, name)
        assert found.status == "OPTIMAL", graph_name
        assert found.objective_ns == sum(group.latency_ns for group in found.groups)
        assert found.objective_ns <= found.unfused_ns
        assert found.dram_bytes <= found.unfused_dram_bytes
        assert within_limits(found, name)


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize(("graph_name", "kernels"), [("llama_block_prefill", 14), ("llama_block_decode", 13)])
def test_the_llama_blocks_are_proven_with_few_kernels(graph_name, kernels, name):
    """Shared key heads, rotary halves and gated feed-forward: from about 70 primitives."""
    found = plan(graph_name, name)
    assert found.status == "OPTIMAL" or found.gap <= 0.01
    assert len(found.groups) <= kernels
    assert within_limits(found, name)
    (attention,) = [group for group in found.groups if group.template == "attention"]
    assert any(node in ("qk", "attention") or node.startswith("attention/") for node in attention.nodes)
    norms = [group for group in found.groups if any("norm" in node for node in group.nodes)]
    assert len(norms) >= 2


@pytest.mark.parametrize("name", DEVICES)
def test_a_bottleneck_is_three_convolutions_with_their_epilogues(name):
    found = plan("resnet50_bottleneck", name)
    assert [group.template for group in found.groups] == ["contraction"] * 3
    assert {"conv3", "res", "relu3"} <= set(found.groups[-1].nodes)
