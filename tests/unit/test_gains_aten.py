"""Traced ATen calls as native graphs: what the shapes say, and what they cannot."""

from math import prod

import pytest

from fusesolve.graph import DType
from fusesolve.study.gains.aten import NoFormError, lower_trace, parse_op
from fusesolve.study.gains.aten_ops import ATEN, conv_form, conv_window, reduced_axes


def trace(*rows):
    """The graph of rows (op, inputs, outputs, flops)."""
    fields = ("op", "inputs", "outputs", "flops")
    ops = [parse_op(dict(zip(fields, row, strict=True)) | {"out_dtype": "float32"}) for row in rows]
    return lower_trace("trace", ops, ATEN)


def sources(traced):
    return list(dict.fromkeys(node.source for node in traced.graph.nodes if not node.source.startswith("view")))


def test_a_convolution_and_its_bias_are_two_kernels():
    found = trace(
        ("convolution", "in0:8x4x32x32;p:16x4x3x3;p:16", "8x16x30x30", "8294400"),
        ("relu", "#0:8x16x30x30", "8x16x30x30", "0"),
    )
    assert sources(found) == ["convolution_0", "convolution_0_bias", "relu_1"]
    call = found.calls["convolution_0"]
    assert (call.kind, call.channels, call.taps, call.first, call.last) == ("conv2d", 4, 9, True, False)
    assert found.graph.values[found.graph.outputs[0]].type.shape == (8, 16, 30, 30)


@pytest.mark.parametrize(
    ("image", "weight", "result", "flops", "wanted"),
    [
        ((8, 16, 32, 32), (16, 16, 3, 3), (8, 16, 30, 30), 2 * 8 * 16 * 30 * 30 * 16 * 9, (False, 1)),
        ((8, 16, 32, 32), (16, 16, 3, 3), (8, 16, 34, 34), 2 * 8 * 16 * 32 * 32 * 16 * 9, (True, 1)),
        ((8, 16, 32, 32), (16, 1, 3, 3), (8, 16, 30, 30), 2 * 8 * 16 * 30 * 30 * 9, (False, 16)),
    ],
)
def test_flops_tell_a_transposed_convolution_from_a_forward_one(image, weight, result, flops, wanted):
    assert conv_form(image, weight, result, flops) == wanted


@pytest.mark.parametrize(
    ("extent", "kernel", "result", "transposed"),
    [(224, 7, 112, False), (32, 3, 28, False), (32, 4, 64, True), (17, 5, 33, True)],
)
def test_a_window_gives_the_result_that_is_listed(extent, kernel, result, transposed):
    stride, pad, dilation, extra = conv_window(extent, kernel, result, transposed=transposed)
    span = dilation * (kernel - 1)
    if transposed:
        assert (extent - 1) * stride - 2 * pad + span + 1 + extra == result
    else:
        assert (extent + 2 * pad - span - 1) // stride + 1 == result


def test_axes_follow_from_the_shapes():
    assert reduced_axes((4, 8, 16), (4, 1, 16)) == (1,)
    assert reduced_axes((4, 8, 16, 16), (4, 8)) == (2, 3)
    assert reduced_axes((4, 8), (1,)) == (0, 1)
    with pytest.raises(NoFormError):
        reduced_axes((4, 8), (3, 8, 2))


def test_a_norm_in_training_mode_is_statistics_and_a_pass():
    found = trace(("native_batch_norm", "in0:8x4x6x6;p:4;p:4;p:4;p:4", "8x4x6x6;4;4", "0"))
    assert sources(found) == ["native_batch_norm_0_stats", "native_batch_norm_0"]
    grouped = trace(("native_group_norm", "in0:8x4x6x6;p:4;p:4", "8x4x6x6;8x2;8x2", "0"))
    assert grouped.calls["native_group_norm_0_stats"].kind == "row-moments"


def test_pools_keep_their_indices_only_in_eager_mode():
    found = trace(("max_pool2d_with_indices", "in0:8x4x6x6", "8x4x3x3;8x4x3x3", "0"))
    assert found.calls["max_pool2d_with_indices_0"].extra_write == 8 * 8 * 4 * 3 * 3


def test_what_has_no_form_is_named():
    with pytest.raises(NoFormError, match="diag_embed"):
        trace(("diag_embed", "in0:8", "8x8", "0"))
    with pytest.raises(NoFormError, match="cannot be seen"):
        trace(("relu", "in0:128x5", "128x5", "0"), ("relu", "#0:127x5", "127x5", "0"))


def test_views_between_calls_are_reshapes():
    found = trace(("relu", "in0:8x4", "8x4", "0"), ("mul", "#0:4x8;in1:8", "4x8", "0"))
    assert any(node.op == "reshape" for node in found.graph.nodes)
    assert {value.type.dtype for value in found.graph.values.values()} == {DType.F32}


@pytest.mark.parametrize("op", sorted(set(ATEN) - {"convolution"}))
def test_every_call_of_the_table_is_built(op):
    shape = "4x8x6x6"
    samples = {
        "mm": ("in0:4x8;in1:8x6", "4x6"), "bmm": ("in0:2x4x8;in1:2x8x6", "2x4x6"),
        "addmm": ("p:6;in0:4x8;in1:8x6", "4x6"), "baddbmm": ("p:2x4x6;in0:2x4x8;in1:2x8x6", "2x4x6"),
        "cat": ("in0:4x2;in1:4x3", "4x5"), "nll_loss_forward": ("in0:4x8;in1:4", "1;1"),
        "native_layer_norm": (f"in0:{shape};p:6;p:6", f"{shape};4x8x6x1;4x8x6x1"),
        "native_group_norm": (f"in0:{shape};p:8;p:8", f"{shape};4x2;4x2"),
        "native_batch_norm": (f"in0:{shape};p:8;p:8", f"{shape};8;8"), "xlogy": ("in0:4x8;in1:4x8", "4x8"),
        "smooth_l1_loss": ("in0:4x8;in1:4x8", "1"), "tril": ("in0:4x8", "4x8"), "triu": ("in0:4x8", "4x8"),
        "avg_pool1d": ("in0:4x8x6", "4x8x3"), "avg_pool2d": (f"in0:{shape}", "4x8x3x3"),
        "avg_pool3d": ("in0:2x4x6x6x6", "2x4x3x3x3"), "max_pool2d_with_indices": (f"in0:{shape}", "4x8x3x3;4x8x3x3"),
        "max_pool3d_with_indices": ("in0:2x4x6x6x6", "2x4x3x3x3;2x4x3x3x3"),
    }  # fmt: skip
    reduced = {"sum", "mean", "max", "min", "norm", "linalg_vector_norm", "amax", "amin", "prod", "var", "std"}
    usual = (
        f"in0:{shape}",
        "4x8x6" if op in reduced | {"argmax", "argmin"} else "4x1x6x6" if op == "logsumexp" else shape,
    )
    inputs, outputs = samples.get(op, usual)
    found = trace((op, inputs, outputs, "0"))
    assert found.graph.nodes
    first = tuple(map(int, outputs.split(";")[0].split("x")))
    assert found.graph.values[found.graph.outputs[0]].type.size == (1 if first == (1,) else prod(first))
