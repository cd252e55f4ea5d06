"""Writes the bundled graphs anew: `python graphs/generate.py [FOLDER]` (default: the folder of this file).

Each graph is a part of a model with the shapes that it has in practice, as `fusesolve-graph/1` text that is the same
on every run. Types of results are inferred and checked by the very builder that the importers use.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import transformers
import vision
from sheet import Sheet

GRAPHS: tuple[Callable[[], Sheet], ...] = (
    transformers.softmax,
    transformers.layer_norm_rows,
    transformers.rms_norm_rows,
    transformers.gelu_mlp,
    transformers.gpt2_block,
    transformers.bert_layer,
    transformers.llama_block_prefill,
    transformers.llama_block_decode,
    transformers.moe_router,
    vision.conv_bn_relu,
    vision.resnet50_bottleneck,
    vision.inception_branches,
    vision.mobilenet_inverted_residual,
    vision.unet_up_block,
)


def render() -> dict[str, str]:
    """Name of file to its text, for every bundled graph."""
    sheets = [make() for make in GRAPHS]
    for sheet in sheets:
        sheet.graph()
    return {f"{sheet.name}.yaml": sheet.text() for sheet in sheets}


def write(folder: Path) -> None:
    """Write every bundled graph into `folder`."""
    for name, text in render().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
