"""The bundled graphs: made by the generator, readable, verified, and found from an installed copy."""

import runpy
from pathlib import Path

import jsonschema
import pytest
import yaml

from fusesolve.importers import bundled_graphs, load_graph
from fusesolve.schema import load_schema
from fusesolve.verify import check_graph

FOLDER = Path(__file__).parents[2] / "graphs"
GENERATOR = runpy.run_path(str(FOLDER / "generate.py"))
PROMISED = {
    "softmax", "layernorm", "rmsnorm", "gelu_mlp", "gpt2_block", "llama_block_prefill", "llama_block_decode",
    "bert_layer", "conv_bn_relu", "resnet50_bottleneck", "inception_branches", "moe_router", "unet_up_block",
    "mobilenet_inverted_residual",
}  # fmt: skip


def test_the_files_are_what_the_generator_writes(tmp_path):
    GENERATOR["write_graphs"](tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in FOLDER.glob("*.yaml")}
    assert made == kept, "graphs/*.yaml are behind graphs/generate.py: run `make graphs`"


def test_every_promised_graph_is_there():
    assert set(bundled_graphs()) >= PROMISED
    assert set(bundled_graphs()) == set(GENERATOR["GRAPHS"])


@pytest.mark.parametrize("name", sorted(GENERATOR["GRAPHS"]))
def test_every_graph_loads_clean(name):
    graph = load_graph(name, bind={}, strict=True, as_dtype=None)
    check_graph(graph, "load")
    assert graph.name == name
    assert graph.warnings == ()


@pytest.mark.parametrize("name", sorted(GENERATOR["GRAPHS"]))
def test_every_file_is_as_the_schema_says(name):
    jsonschema.validate(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()), load_schema("graph"))


@pytest.mark.parametrize(
    ("name", "value", "shape"),
    [
        ("gpt2_block", "add_2", (1, 1024, 768)),
        ("gpt2_block", "attn", (1, 12, 1024, 64)),
        ("llama_block_decode", "add_2", (16, 1, 4096)),
        ("llama_block_decode", "k_new", (16, 8, 2048, 128)),
        ("bert_layer", "output_ln", (8, 128, 768)),
        ("inception_branches", "y", (32, 256, 35, 35)),
        ("moe_router", "weight", (4096, 2)),
        ("unet_up_block", "y", (2, 640, 32, 32)),
        ("mobilenet_inverted_residual", "y", (1, 24, 56, 56)),
    ],
)
def test_shapes_by_hand(name, value, shape):
    graph = load_graph(name, bind={}, strict=True, as_dtype=None)
    assert graph.type_of(value).shape == shape


def test_gpt2_is_twelve_blocks():
    block = load_graph("gpt2_block", bind={}, strict=True, as_dtype=None)
    whole = load_graph("gpt2", bind={}, strict=True, as_dtype=None)
    norm = load_graph("layernorm", bind={}, strict=True, as_dtype=None)
    # the last norm is f16 and computes in f32, so it may hold casts that the f32 one does not
    assert 0 <= len(whole.nodes) - 12 * len(block.nodes) - len(norm.nodes) <= 4
