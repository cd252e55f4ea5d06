"""Shrunk graphs keep operators, names and structure, and are small."""

import json

import pytest

from fusesolve.bundled import bundled_dir
from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.program import build_program
from fusesolve.importers import load_graph
from fusesolve.validate.shrink import shrink_graph, work_of

GRAPHS = sorted(path.stem for path in bundled_dir("graphs").glob("*.yaml"))


def small(*ops, inputs, outputs, inner=9, outer=3):
    from fusesolve.importers.native import parse_native

    text = json.dumps({"format": "fusesolve-graph/1", "name": "g", "inputs": inputs, "ops": ops, "outputs": outputs})
    graph = parse_native(text, "g", {}, False)
    return graph, shrink_graph(graph, inner=inner, outer=outer)


def tiny(*ops, inputs, outputs):
    return small(*ops, inputs=inputs, outputs=outputs, inner=5, outer=2)


@pytest.mark.parametrize("name", GRAPHS)
def test_bundled_graphs_shrink_and_keep_their_structure(name):
    graph = load_graph(name, bind={})
    found = shrink_graph(graph, inner=17, outer=3)
    assert [(n.name, n.op, n.inputs, n.outputs, n.source) for n in found.nodes] == [
        (n.name, n.op, n.inputs, n.outputs, n.source) for n in graph.nodes
    ]
    assert work_of(found) < work_of(graph) / 100
    before, after = build_program(graph), build_program(found)
    # an update in place walks what it writes, whose extents may fall together
    pairs = [(a, b) for a, b in zip(before.operators, after.operators, strict=True) if not a.in_place]
    assert [len(a.out) for a, _ in pairs] == [len(b.out) for _, b in pairs]
    whole = tuple(range(len(before.operators)))
    if len(pairs) == len(whole):
        assert build_nest(before, whole).facts == build_nest(after, whole).facts


def test_a_reshape_keeps_its_factors():
    _, found = small("y = reshape(x; to=4-128-12-64)", inputs=["x: f32[512,768]"], outputs=["y"])
    a, b = found.type_of("x").shape
    c, d, e, f = found.type_of("y").shape
    assert c * d == a and e * f == b and f == 9


def test_slices_and_concatenations_are_divided_alike():
    _, found = small(
        "a = slice(x; axis=1, start=0, end=64)", "b = slice(x; axis=1, start=64, end=128)", "y = concat(b, a; axis=1)",
        "z = add(y, x)", inputs=["x: f32[32,128]"], outputs=["z"],
    )  # fmt: skip
    half = found.type_of("a").shape[1]
    assert half < 64 and found.type_of("x").shape[1] == 2 * half == found.type_of("y").shape[1]


def test_extents_behind_windows_follow():
    _, found = small(
        "c = conv2d(x, w; stride=2, pad=1)", "y = relu(c)", inputs=["x: f32[8,64,56,56]", "w: f32[128,64,3,3]"],
        outputs=["y"],
    )  # fmt: skip
    _, _, height, width = found.type_of("x").shape
    assert found.type_of("w").shape[2:] == (3, 3)
    assert found.type_of("y").shape[2:] == ((height - 1) // 2 + 1, (width - 1) // 2 + 1)


def test_a_reshape_that_cuts_across_keeps_its_extents():
    _, found = small("y = reshape(x; to=80-30)", inputs=["x: f32[60,40]"], outputs=["y"])
    assert found.type_of("x").shape == (60, 40)


def test_the_last_position_stays_the_last():
    _, found = small(
        "y = slice_update(x, u; axis=1, start=4095)", inputs=["x: f32[4,4096,8]", "u: f32[4,1,8]"], outputs=["y"]
    )
    extent = found.type_of("x").shape[1]
    assert extent < 20 and found.nodes[0].attr("start") == extent - 1


def test_small_graphs_stay_as_they_are():
    graph, found = small("y = relu(x)", inputs=["x: f32[2,3]"], outputs=["y"])
    assert found.values == graph.values


def test_a_picture_is_as_large_as_its_windows_need():
    _, found = small(
        "a = conv2d(x, w; stride=4)", "b = maxpool(a; k=3-3, stride=2-2)", "c = conv2d(b, w2; pad=2)",
        "d = maxpool(c; k=3-3, stride=2-2)", "e = avgpool(d; k=13-13)",
        inputs=["x: f32[1,3,227,227]", "w: f32[96,3,11,11]", "w2: f32[64,96,5,5]"], outputs=["e"], inner=5, outer=2,
    )  # fmt: skip
    extent = found.type_of("x").shape[2]
    assert 11 < extent < 100
    assert found.type_of("e").shape[2:] == (1, 1)
    assert found.nodes[-1].attr("k") == found.type_of("d").shape[2:]


def test_a_flattened_picture_keeps_its_factors():
    _, found = small(
        "a = conv2d(x, w; stride=2, pad=1)", "b = maxpool(a; k=3-3, stride=2-2)", "f = reshape(b; to=1-50176)",
        "y = matmul(f, v)", inputs=["x: f32[1,3,116,116]", "w: f32[64,3,3,3]", "v: f32[50176,10]"], outputs=["y"],
    )  # fmt: skip
    channels, height, width = found.type_of("b").shape[1:]
    assert found.type_of("v").shape[0] == channels * height * width < 5000


def test_channels_of_a_grouped_convolution_shrink_by_groups_and_within():
    _, found = tiny(
        "a = conv2d(x, w; group=4)", "y = conv2d(a, v; group=8, pad=1)",
        inputs=["x: f32[1,256,28,28]", "w: f32[512,64,1,1]", "v: f32[128,64,3,3]"], outputs=["y"],
    )  # fmt: skip
    for node in found.nodes:
        group = node.attr("group")
        x, w = (found.type_of(name).shape for name in node.reads)
        assert 1 < group <= 8 and x[1] == group * w[1] and w[0] % group == 0 and 1 < w[1] < 64
    assert found.type_of("y").size < 10_000


def test_a_channel_shuffle_between_grouped_convolutions_keeps_its_factors():
    _, found = tiny(
        "a = conv2d(x, w; group=4)", "b = reshape(a; to=1-4-34-28-28)", "c = transpose(b; perm=0-2-1-3-4)",
        "d = reshape(c; to=1-136-28-28)", "y = conv2d(d, v; group=136, pad=1)",
        inputs=["x: f32[1,272,28,28]", "w: f32[136,68,1,1]", "v: f32[136,1,3,3]"], outputs=["y"],
    )  # fmt: skip
    _, groups, part, _, _ = found.type_of("b").shape
    assert groups < 5 and part < 10 and found.type_of("c").shape[1:3] == (part, groups)
    assert [node.attr("group") for node in found.nodes if node.op == "conv2d"] == [groups, groups * part]


def test_a_grouped_transposed_convolution_shrinks():
    graph, found = tiny(
        "y = conv2d_transpose(x, w; group=4, stride=2)", inputs=["x: f32[1,64,28,28]", "w: f32[64,32,2,2]"],
        outputs=["y"],
    )  # fmt: skip
    group = found.nodes[0].attr("group")
    assert graph.type_of("y").shape[1] == 128
    assert found.type_of("y").shape[1] == group * found.type_of("w").shape[1] < 30


def test_several_channels_a_group_of_one_shrink():
    _, found = tiny(
        "y = conv2d(x, w; group=96)", inputs=["x: f32[1,96,28,28]", "w: f32[288,1,3,3]"], outputs=["y"],
    )  # fmt: skip
    assert found.nodes[0].attr("group") == found.type_of("x").shape[1] < 10
    assert found.type_of("w").shape[1] == 1 and found.type_of("y").shape[1] % found.type_of("x").shape[1] == 0


def test_groups_that_a_reshape_cuts_across_keep_their_channels():
    _, found = tiny(
        "a = reshape(x; to=1-6-4-28-28)", "b = reshape(a; to=1-24-28-28)", "y = conv2d(b, w; group=4)",
        inputs=["x: f32[1,24,28,28]", "w: f32[8,6,1,1]"], outputs=["y"],
    )  # fmt: skip
    assert found.type_of("x").shape[:2] == (1, 24) and found.nodes[-1].attr("group") == 4
    assert found.type_of("x").shape[2] < 28


def test_pictures_that_are_resized_to_one_meet_at_a_small_extent():
    _, found = tiny(
        "a = resize_nearest(x; to=1-24-184-184)", "b = resize_nearest(y; to=1-24-184-184)", "s = relu(y)",
        "z = add(u, v)", "c = concat(a, b, z; axis=1)",
        inputs=["u: f32[1,24,184,184]", "v: f32[1,24,184,184]", "x: f32[1,24,23,23]", "y: f32[1,24,92,92]"],
        outputs=["c", "s"],
    )  # fmt: skip
    assert found.type_of("c").size < 50_000
    x, y, z = (found.type_of(name).shape[2] for name in "xyz")
    assert z == 8 * x == 2 * y
