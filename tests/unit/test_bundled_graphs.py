"""The bundled graphs: what ships is what the generator writes, and it is what the text says."""

import runpy
import sys
from pathlib import Path

import pytest

from fusesolve.importers import bundled_graphs, load_graph

FOLDER = Path(__file__).parents[2] / "graphs"
EXPECTED = {
    "softmax", "layer_norm", "rms_norm", "gelu_mlp", "gpt2_block", "bert_layer", "llama_block_prefill",
    "llama_block_decode", "moe_router", "conv_bn_relu", "resnet50_bottleneck", "inception_branches",
    "mobilenet_inverted_residual", "unet_up_block",
}  # fmt: skip


@pytest.fixture(scope="module")
def generator():
    before = list(sys.path)
    sys.path.insert(0, str(FOLDER))
    try:
        yield runpy.run_path(str(FOLDER / "generate.py"))
    finally:
        sys.path[:] = before


def test_every_graph_of_the_list_ships_and_nothing_else_is_listed():
    assert set(bundled_graphs()) == EXPECTED
    assert {path.stem for path in FOLDER.glob("*.yaml")} == EXPECTED


def test_shipped_files_are_what_the_generator_writes(generator):
    for name, text in generator["render"]().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name}: run `make graphs`"


def test_the_text_reads_back_as_the_graph_that_was_built(generator):
    """Writing types by the builder and reading them by the parser are two programs: they must agree."""
    for make in generator["GRAPHS"]:
        sheet = make()
        built, read = sheet.graph(), load_graph(sheet.name, bind={})
        assert [(n.op, n.inputs, n.outputs, n.attrs, n.source) for n in built.nodes] == [
            (n.op, n.inputs, n.outputs, n.attrs, n.source) for n in read.nodes
        ]
        assert (built.inputs, built.weights, built.outputs) == (read.inputs, read.weights, read.outputs)
        assert dict(built.values) == dict(read.values)
        assert not read.warnings


def test_the_gpt2_block_has_the_weights_of_gpt2_small():
    """Per layer: qkv 768*2304 + 2304, projection 768*768 + 768, MLP 2 * 768*3072 + 3072 + 768, norms 4 * 768."""
    graph = load_graph("gpt2_block", bind={})
    assert sum(graph.type_of(name).size for name in graph.weights) == (
        768 * 2304 + 2304 + 768 * 768 + 768 + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    ) == 7_087_872  # the published 124 M parameters hold 12 of these
    contractions = [node.source for node in graph.nodes if node.op == "matmul"]
    assert contractions == ["c_attn", "qk", "pv", "attn_proj", "c_fc", "mlp_proj"]


def test_the_llama_blocks_have_the_weights_of_llama_3_8b():
    """Attention 2 * 4096*4096 + 2 * 4096*1024, feed-forward 3 * 4096*14336, norms 2 * 4096."""
    for name in ("llama_block_prefill", "llama_block_decode"):
        graph = load_graph(name, bind={})
        found = sum(graph.type_of(weight).size for weight in graph.weights)
        assert found == 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096 == 218_112_000


def test_the_decode_block_updates_its_caches_in_place():
    graph = load_graph("llama_block_decode", bind={})
    assert graph.values["k_cache"].alias_out == "k_new"
    assert {"k_new", "v_new"} <= set(graph.outputs)


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("softmax", ["f32[8192,4096]"]),
        ("layer_norm", ["f32[8192,4096]"]),
        ("rms_norm", ["bf16[8192,4096]"] * 2),
        ("gelu_mlp", ["f16[4096,1024]"]),
        ("bert_layer", ["f16[8,512,768]"]),
        ("moe_router", ["bf16[8192,4096]", "f32[8192]", "i64[8192]"]),
        ("conv_bn_relu", ["f16[32,64,56,56]"]),
        ("resnet50_bottleneck", ["f16[32,256,56,56]"]),
        ("inception_branches", ["f16[32,256,28,28]"]),
        ("mobilenet_inverted_residual", ["f16[16,24,56,56]"]),
        ("unet_up_block", ["f16[2,320,64,64]"]),
    ],
)
def test_results_have_the_published_shapes(name, outputs):
    graph = load_graph(name, bind={})
    assert [str(graph.type_of(value)) for value in graph.outputs] == outputs
