"""The bundled graphs: what ships is what the generator writes, and it is what the text says."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "graphs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
EXPECTED = {
    "softmax", "layer_norm", "rms_norm", "gelu_mlp", "gpt2_block", "bert_layer", "llama_block_prefill",
    "llama_block_decode", "moe_router", "conv_bn_relu", "resnet50_bottleneck", "inception_branches",
    "mobilenet_inverted_residual", "unet_up_block",
}  # fmt: skip


@pytest.fixture(scope="module")
def rendered():
    before = list(sys.path)
    sys.path.insert(0, str(FOLDER))
    try:
        return runpy.run_path(str(FOLDER / "generate.py"))["render"]()
    finally:
        sys.path[:] = before


def test_every_graph_of_the_list_ships_and_no_other():
    assert set(NAMES) == EXPECTED


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_shipped_file_is_what_the_generator_writes(name, rendered):
    shipped = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert shipped == rendered[f"{name}.yaml"], "run `make graphs`"
