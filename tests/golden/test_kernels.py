"""The source of one group per template, line for line, with tilings that no cost model chooses."""

import json
import re
from pathlib import Path

import pytest

from fusesolve.codegen.module import generate
from fusesolve.codegen.planned import read_plan
from fusesolve.codegen.preamble import PREAMBLE
from fusesolve.group import Template
from fusesolve.importers.native import parse_native

FUNCTIONS = (
    r"k\d+(_\d+)?|g\d+|run|laid|kept|by_host|erf|rsqrt(32|64)|float_bits|bits_float"
    r"|k\d+_\d+_\d+|where|address|copy16|copies_\w+|pack_b?f16|places|strip|stand_in|products|declared"
    r"|bounded|compiled|__\w+__|loads?|stores?|code|word_of|row_slots|warp_places|no_queries|(scores|weighted)(_stand_in)?"
)
FOLDER = Path(__file__).parent / "kernels"

# name: (inputs, operators, template, tiling); what no operator reads is an output, all operators are one group.
GOLDEN = {
    "pointwise_broadcast": (
        ["x: f16[6,40]", "y: f16[40]"], ["a = add(x, y)", "b = tanh(a)"], "pointwise",
        {"threads": 128, "per_thread": 2},
    ),
    "pointwise_compared": (
        ["x: bf16[6,40]", "m: bf16[6,1]"], ["s = div(x, 3.0)", "e = equal(s, m)", "k = cast(s; to=i32)"], "pointwise",
        {"threads": 128, "per_thread": 1},
    ),
    "pointwise_vectors": (
        ["x: bf16[9,40]", "y: bf16[40]", "z: f32[9,1]"], ["a = add(x, y)", "b = cast(a; to=f32)", "c = mul(b, z)",
         "d = cast(c; to=bf16)"], "pointwise",
        {"threads": 32, "per_thread": 8},
    ),
    "pointwise_staged": (
        ["x: f16[33,2,20]", "y: f32[2,20,33]"], ["t = transpose(x; perm=1-2-0)", "r = add(t, y)"], "pointwise",
        {"threads": 256, "per_thread": 4},
    ),
    "movement_concat_transpose": (
        ["x: f32[4,6]", "y: f32[4,2]"], ["c = concat(x, y; axis=1)", "t = transpose(c; perm=1-0)"], "movement",
        {"threads": 128, "per_thread": 1},
    ),
    "row_softmax_in_registers": (
        ["x: f32[8,512]"], ["p = softmax(x; axis=1)"], "row",
        {"threads": 128, "lanes": 128, "rows": 1, "mode": 0, "split": 1},
    ),
    "row_layernorm_in_shared": (
        ["x: f16[10,100]", "g: f16[100]", "b: f16[100]"], ["n = layernorm(x, g, b; axis=1)"], "row",
        {"threads": 64, "lanes": 32, "rows": 2, "mode": 1, "split": 1},
    ),
    "reduction_columns_split": (
        ["x: f32[64,20]"], ["e = exp(x)", "s = reduce_sum(e; axis=0)", "r = sqrt(s)"], "reduction",
        {"threads": 128, "lanes": 4, "rows": 32, "mode": 2, "split": 2},
    ),
    "row_argmax": (
        ["x: f32[3,50]"], ["i = argmax(x; axis=1)"], "row",
        {"threads": 64, "lanes": 32, "rows": 2, "mode": 2, "split": 1},
    ),
    "contraction_epilogue": (
        ["a: f16[40,24]", "b: f16[24,33]", "c: f16[33]"], ["m = matmul(a, b)", "d = add(m, c)", "r = relu(d)"],
        "contraction", {"tile_m": 32, "tile_n": 32, "split": 1},
    ),
    "contraction_split": (
        ["a: f32[20,70]", "b: f32[70,9]"], ["m = matmul(a, b)", "r = relu(m)"], "contraction",
        {"tile_m": 16, "tile_n": 32, "split": 2},
    ),
    "convolution_prologue": (
        ["x: f32[1,3,7,8]", "w: f32[5,3,3,3]"], ["p = relu(x)", "c = conv2d(p, w; stride=2, pad=1)"], "contraction",
        {"tile_m": 16, "tile_n": 32, "split": 1},
    ),
    "tensor_epilogue": (
        ["a: f16[40,64]", "b: f16[64,40]", "c: f16[40]"],
        ["m = matmul(a, b)", "d = add(m, c)", "r = relu(d)"], "contraction",
        {"tile_m": 32, "tile_n": 32, "split": 1, "tile_k": 64, "stages": 3},
    ),
    "tensor_batch_bf16": (
        ["a: bf16[3,40,136]", "b: bf16[3,24,136]"], ["m = matmul(a, b; transpose_b=1)"], "contraction",
        {"tile_m": 64, "tile_n": 32, "split": 1, "tile_k": 64, "stages": 4},
    ),
    "tensor_prologue_split": (
        ["a: f16[200,40]", "b: f16[200,72]"],
        ["p = relu(a)", "m = matmul(p, b; transpose_a=1)", "e = exp(m)"], "contraction",
        {"tile_m": 16, "tile_n": 64, "split": 2, "tile_k": 64, "stages": 2},
    ),
    "tensor_few_rows": (
        ["a: f16[5,128]", "b: f16[128,64]"], ["m = matmul(a, b)"], "contraction",
        {"tile_m": 8, "tile_n": 64, "split": 1, "tile_k": 64, "stages": 3},
    ),
    "tensor_convolution": (
        ["x: f16[1,16,7,8]", "w: f16[24,16,3,3]"], ["p = relu(x)", "c = conv2d(p, w; stride=2, pad=1)"], "contraction",
        {"tile_m": 16, "tile_n": 32, "split": 1, "tile_k": 64, "stages": 3},
    ),
    "row_bf16_in_shared": (
        ["x: bf16[6,4200]", "g: bf16[4200]"], ["n = rmsnorm(x, g; axis=1)"], "row",
        {"threads": 128, "lanes": 64, "rows": 2, "mode": 1, "split": 1},
    ),
    "attention_split": (
        ["q: f32[2,5,8]", "k: f32[2,40,8]", "v: f32[2,40,8]"],
        ["s = matmul(q, k; transpose_b=1)", "p = softmax(s; axis=2)", "o = matmul(p, v)"], "attention",
        {"tile_m": 16, "tile_n": 64, "split": 2, "mode": 1},
    ),
    "flash_causal": (
        ["q: f16[2,40,24]", "k: f16[2,70,24]", "v: f16[2,70,40]", "mask: f16[40,70]"],
        ["s = matmul(q, k; transpose_b=1)", "c = mul(s, 0.125)", "m = add(c, mask)", "p = softmax(m; axis=2)",
         "o = matmul(p, v)"], "attention", {"tile_m": 64, "tile_n": 64, "split": 1, "mode": 1},
    ),
    "flash_split_bf16": (
        ["q: bf16[2,5,32]", "k: bf16[2,200,32]", "v: bf16[2,200,32]"],
        ["s = matmul(q, k; transpose_b=1)", "p = softmax(s; axis=2)", "o = matmul(p, v)"], "attention",
        {"tile_m": 16, "tile_n": 64, "split": 2, "mode": 1},
    ),
    "held_layernorm": (
        ["x: f32[2,9,12]", "w: f32[12,37]", "g: f32[37]", "b: f32[37]", "v: f32[37,21]", "z: f32[21]"],
        ["s = matmul(x, w)", "n = layernorm(s, g, b; axis=2)", "o = matmul(n, v)", "y = add(o, z)"], "attention",
        {"tile_m": 8, "tile_n": 64, "split": 1, "mode": 2},
    ),
    "one_block": (
        ["x: f32[6,20]", "i: i64[6]"],
        ["e = exp(x)", "r = reduce_sum(e; axis=1)", "c = reduce_max(x; axis=0)", "q = sqrt(r)", "d = sub(x, c)",
         "m = argmax(d; axis=1)", "k = add(m, i)"], "block", {"threads": 64},
    ),
    "ranked_topk": (
        ["x: f16[3,9,5]"], ["v, i = topk(x; k=2, axis=1)"], "opaque", {"threads": 64, "per_thread": 2},
    ),
    "window_pool": (
        ["x: f32[1,2,5,6]"], ["p = avgpool(x; k=3-3, stride=2-2, pad=1-1-1-1)"], "pointwise",
        {"threads": 128, "per_thread": 1},
    ),
    "update_in_place": (
        ["old: f16[3,8,10; alias_out=n]", "x: f32[3,1,10]"],
        ["h = cast(x; to=f16)", "n = slice_update(old, h; axis=1, start=5)"], "movement",
        {"threads": 32, "per_thread": 1},
    ),
    "siblings_sharing_tiles": (
        ["x: f16[20,72]", "g: f16[72,40]", "u: f16[72,40]"],
        ["a = matmul(x, g)", "b = matmul(x, u)", "s = sigmoid(a)", "t = mul(a, s)", "y = mul(t, b)"], "contraction",
        {"tile_m": 16, "tile_n": 64, "split": 1, "tile_k": 64, "stages": 2},
    ),
    "siblings_split": (
        ["x: f32[20,70]", "g: f32[70,30]", "u: f32[70,9]", "v: f32[70,30]", "c: f32[9]"],
        ["p = tanh(x)", "a = matmul(p, g)", "b = matmul(p, u)", "d = add(b, c)", "e = matmul(p, v)", "f = mul(a, e)"],
        "contraction", {"tile_m": 16, "tile_n": 32, "split": 2, "max_registers": 64},
    ),
    "transposed_convolution": (
        ["x: f32[2,5,6,7]", "w: f32[5,4,4,2]"],
        ["p = relu(x)", "c = conv2d_transpose(p, w; stride=2-2, pad=1-0-1-0)", "t = tanh(c)"], "contraction",
        {"tile_m": 32, "tile_n": 16, "split": 1},
    ),
    "packed": (
        ["a: f16[20,64]", "b: f16[64,40]", "c: f32[30,50]", "d: f32[50,24]", "x: f32[6,300]", "y: f32[700]",
         "z: f32[4,40]"],
        ["m = matmul(a, b)", "r = relu(m)", "f = matmul(c, d)", "s = softmax(x; axis=1)", "t = tanh(y)",
         "i = argmax(z; axis=1)"],
        "packed", {"threads": 128},
    ),
}  # fmt: skip

# The kernels that are packed: their operators, and the tiling of each.
PARTS = {
    "packed": [
        (["m", "r"], {"tile_m": 32, "tile_n": 64, "split": 1, "tile_k": 64, "stages": 3}),
        (["f"], {"tile_m": 32, "tile_n": 32, "split": 1}),
        (["s"], {"threads": 128, "lanes": 64, "rows": 2, "mode": 1, "split": 1}),
        (["t"], {"threads": 128, "per_thread": 2}),
        (["i"], {"threads": 64, "lanes": 32, "rows": 2, "mode": 2, "split": 1}),
    ],
}  # fmt: skip


def golden_document(name):
    """Graph and plan document of one golden case: one group of everything."""
    inputs, ops, template, tiling = GOLDEN[name]
    results = [item.strip() for op in ops for item in op.split("=")[0].split(",")]
    outputs = [name for name in results if not any(re.search(rf"[(, ]{name}[,;)]", op) for op in ops)]
    text = json.dumps(
        {"format": "fusesolve-graph/1", "name": "golden", "inputs": inputs, "ops": ops, "outputs": outputs}
    )
    graph = parse_native(text, "golden", {}, False)
    group = {
        "id": 0, "nodes": list(dict.fromkeys(node.source for node in graph.nodes)), "inputs": list(graph.inputs),
        "outputs": outputs, "template": template, "implementation": "generated", "tiling": tiling,
    }  # fmt: skip
    if name in PARTS:
        group |= {"parts": [nodes for nodes, _ in PARTS[name]], "part_tilings": [found for _, found in PARTS[name]]}
    return graph, {"groups": [group], "status": "OPTIMAL"}


def golden_kernel(name):
    """Source of one golden case, its only kernel, and the element types of that one's arrays."""
    graph, document = golden_document(name)
    planned = read_plan(document, graph)
    made = generate(planned)
    (item,) = made.kernels[0]
    return made.text, item, [planned.program.storage[s].type.dtype.value for s in item.emitted.arguments]


def source_of(name):
    graph, document = golden_document(name)
    made = generate(read_plan(document, graph))
    assert not made.refused, made.refused
    return made.text


@pytest.mark.parametrize("name", GOLDEN)
def test_source_is_as_it_was(name, request):
    text = source_of(name)
    body = text[text.index(PREAMBLE) + len(PREAMBLE) :]
    path = FOLDER / f"{name}.txt"
    if request.config.getoption("--update-golden", default=False):
        path.write_text(body, encoding="utf-8")
    assert body == path.read_text(encoding="utf-8"), "look at the difference, then pytest tests/golden --update-golden"


@pytest.mark.parametrize("name", GOLDEN)
def test_source_is_python_and_made_of_our_names(name):
    import ast

    text = source_of(name)
    tree = ast.parse(text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    body = text[text.index(PREAMBLE) + len(PREAMBLE) :]
    made = set(re.findall(r"\b[A-Za-z_]\w*\b", body))
    assert not {"golden", "softmax", "layernorm", "reduce_sum", "argmax", "relu"} & made
    assert all(re.fullmatch(FUNCTIONS, item) for item in functions)
    assert names
    assert max(len(line) for line in body.splitlines()) < 400


def test_no_golden_file_is_left_over():
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(GOLDEN)


def test_every_template_has_a_golden_file():
    assert {template for _, _, template, _ in GOLDEN.values()} == {template.value for template in Template}
