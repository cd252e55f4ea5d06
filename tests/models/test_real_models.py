"""Real models import fully static: exact counts of operators and bytes, and values where they are cheap to compute."""

from collections import Counter
from functools import cache
from pathlib import Path

import onnx
import pytest

from fusesolve.graph import Graph
from fusesolve.importers.onnx import load_onnx
from fusesolve.verify import check_graph
from tests.models.fetch import LIGHT_CNNS, REAL_MODELS, FetchError, fetch, light_path
from tests.models.numeric import compare_with_standard

pytestmark = pytest.mark.models

PEERS = Path(__file__).parents[2] / ".." / "shared" / "peers" / "graphs"


def real_path(name: str) -> Path:
    try:
        return fetch(name)
    except FetchError as error:
        pytest.skip(str(error))


@cache
def real_graph(name: str) -> Graph:
    return load_onnx(real_path(name), bind=REAL_MODELS[name].bind, strict=False)


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


@pytest.mark.parametrize("name", REAL_MODELS)
def test_a_real_model_is_a_valid_static_graph(name: str) -> None:
    graph = real_graph(name)
    check_graph(graph, "import")
    declared = [item.name for item in onnx.load_model(real_path(name), load_external_data=False).graph.output]
    assert list(graph.outputs) == declared


@pytest.mark.parametrize(
    ("name", "sources"),
    # operators left after folding, by hand from the notes on these files: 330, 403, 234, 326 with copies and views;
    # one Identity (cls) is gone
    [("pp-ocr-det", 330), ("pp-ocr-rec", 403), ("pp-ocr-cls", 233), ("minilm-int8", 326), ("magika", 75)],
)
def test_constants_are_folded_and_nothing_else(name: str, sources: int) -> None:
    graph = real_graph(name)
    assert len({node.source for node in graph.nodes}) == sources
    assert graph.warnings == ()


@pytest.mark.parametrize("name", REAL_MODELS)
def test_weights_are_as_large_as_the_file(name: str) -> None:
    """Every weight is in the file, and what the file holds beside weights is small; silero files hold two networks."""
    graph = real_graph(name)
    weights = sum(graph.type_of(item).nbytes for item in graph.weights)
    size = real_path(name).stat().st_size
    assert weights <= size
    if name not in ("silero", "silero-ifless", "basic-pitch"):
        assert weights > 0.85 * size


def test_ocr_detection_keeps_its_structure() -> None:
    found = operators(real_graph("pp-ocr-det"))
    assert found["conv2d"] == 62
    assert found["conv2d_transpose"] == 2
    assert found["resize_nearest"] == 6
    assert real_graph("pp-ocr-det").type_of("sigmoid_0.tmp_0").shape == (1, 1, 736, 736)


def test_minilm_keeps_its_structure() -> None:
    graph = real_graph("minilm")
    found = operators(graph)
    assert found["matmul"] == 24
    assert found["erf"] == 3
    assert found["exp"] == 3  # one per softmax
    assert found["rsqrt"] == 7  # one per layer normalisation
    assert graph.type_of("output").shape == (1, 128)  # a projection of the 384 features


def test_eight_bit_weights_are_read_as_eight_bit() -> None:
    graph = real_graph("minilm-int8")
    by_type = Counter()
    for name in graph.weights:
        by_type[graph.type_of(name).dtype.value] += graph.type_of(name).nbytes
    assert by_type["i8"] > 0.95 * by_type.total()
    assert operators(graph)["cast"] >= 38  # the dequantisation stays, as a prologue of the products


@pytest.mark.parametrize("name", ["silero-16k", "silero", "silero-half", "silero-sequence", "silero-openvino"])
def test_folded_branches_leave_one_cell_and_nothing_opaque(name: str) -> None:
    graph = real_graph(name)
    assert not [node for node in graph.nodes if node.op == "opaque"]
    assert not graph.warnings
    found = operators(graph)
    assert found["tanh"] == 2
    assert found["matmul"] == 2
    assert found["sigmoid"] == 4  # three gates and the answer


def test_export_styles_of_one_network_give_the_same_operators() -> None:
    variants = ("silero-half", "silero", "silero-openvino")
    first, *rest = (operators(real_graph(name)) for name in variants)
    assert all(found == first for found in rest)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("magika", 1e-5),
        ("silero-ifless", 1e-4),
        ("silero-sequence", 1e-4),
        ("pp-ocr-cls", 1e-3),
        pytest.param("minilm", 1e-4, marks=pytest.mark.slow),
        pytest.param("minilm-int8", 1e-4, marks=pytest.mark.slow),
    ],
)
def test_values_equal_the_standards_evaluator(name: str, tolerance: float) -> None:
    assert compare_with_standard(real_path(name), REAL_MODELS[name].bind, tolerance) > 0


# --- models of the onnx package ---

# name -> (convolutions, operators of the source model that compute): counted in the files; the rest is constants,
# Dropout, and layout operators of constants.
LIGHT_CONVOLUTIONS = {
    "bvlc_alexnet": 5, "densenet121": 121, "inception_v1": 57, "inception_v2": 69, "resnet50": 53,
    "shufflenet": 49, "squeezenet": 26, "vgg19": 16, "zfnet512": 5,
}  # fmt: skip


@cache
def light_graph(name: str) -> Graph:
    return load_onnx(light_path(name), bind={}, strict=True)


@pytest.mark.parametrize("name", LIGHT_CNNS)
def test_a_light_network_keeps_its_convolutions(name: str) -> None:
    graph = light_graph(name)
    check_graph(graph, "import")
    assert operators(graph)["conv2d"] == LIGHT_CONVOLUTIONS[name]
    assert len(graph.inputs) == 1
    assert not any(node.op in ("fill", "opaque") for node in graph.nodes)


def test_resnet50_has_its_parameters() -> None:
    """25.557 M parameters; each of the 53 batch normalisations is two vectors instead of four.

    The published count has 2 x 26,560 scale and bias entries and leaves out the statistics, so factor and offset take
    just their place; the bias of the last layer is 1000.
    """
    graph = light_graph("resnet50")
    parameters = sum(graph.type_of(name).size for name in graph.weights)
    assert parameters == 25_557_032


def test_batch_normalisation_is_one_multiply_add() -> None:
    graph = light_graph("resnet50")
    sources = Counter(node.source for node in graph.nodes)
    names = [node.source for node in graph.nodes if node.op == "mul"]
    assert len(names) == 53
    assert all(sources[name] == 2 for name in names)


# --- graphs that peers were measured on ---

PEER_NODES = {
    "branches": 39, "ew_chain": 12, "layernorm": 9, "llama": 58, "resnet50": 228, "softmax": 5, "transformer": 54,
}  # fmt: skip


def peer_path(name: str) -> Path:
    path = PEERS / f"{name}.input.onnx"
    if not path.is_file():
        pytest.skip(f"no file {path.name}: the folder of peers' graphs is not beside this checkout")
    return path


@pytest.mark.parametrize(("name", "nodes"), PEER_NODES.items())
def test_a_peer_graph_keeps_every_node_name(name: str, nodes: int) -> None:
    graph = load_onnx(peer_path(name), bind={}, strict=True)
    model = onnx.load_model(peer_path(name))
    assert {node.source for node in graph.nodes} == {node.name for node in model.graph.node}
    assert len({node.source for node in graph.nodes}) == nodes


@pytest.mark.parametrize("name", ["softmax", "layernorm", "ew_chain"])
def test_a_peer_graph_computes_what_the_standard_does(name: str, tmp_path: Path) -> None:
    model = onnx.load_model(peer_path(name))
    for item in (*model.graph.input, *model.graph.output):
        for dim in item.type.tensor_type.shape.dim:
            dim.dim_value = 64 if dim.dim_value == 4096 else 16
    del model.graph.value_info[:]
    if name == "ew_chain":  # its rows and columns are both 4096
        for item in (*model.graph.input, *model.graph.output):
            assert {dim.dim_value for dim in item.type.tensor_type.shape.dim} == {64}
    small = tmp_path / "small.onnx"
    onnx.save_model(model, small)
    assert compare_with_standard(small, {}, 1e-5) == 1
