"""Recurrences of ONNX models against NumPy, sequence by sequence, as the standard's text has them."""

import random
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from fusesolve.errors import InputError
from fusesolve.graph import Graph
from fusesolve.importers.onnx_ops.recurrent import STEPS
from fusesolve.reference import run_reference
from tests.models.numeric import shaped
from tests.unit.onnx_models import FLOAT, imported, model

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
STATES = {"LSTM": ("h", "c"), "GRU": ("h",), "RNN": ("h",)}
# each function with the alpha and beta that it is tested with; None where it has no such number
ACTIVATIONS = {
    "Relu": (lambda x, a, b: np.maximum(x, 0), None, None), "Tanh": (lambda x, a, b: np.tanh(x), None, None),
    "Sigmoid": (lambda x, a, b: 1 / (1 + np.exp(-x)), None, None),
    "Affine": (lambda x, a, b: a * x + b, 0.7, 0.1),
    "LeakyRelu": (lambda x, a, b: np.where(x < 0, a * x, x), 0.2, None),
    "ThresholdedRelu": (lambda x, a, b: np.where(x > a, x, 0), 0.3, None),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), 1.5, 0.6),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.3, 0.4),
    "Elu": (lambda x, a, b: np.where(x < 0, a * (np.exp(x) - 1), x), 0.8, None),
    "Softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "Softplus": (lambda x, a, b: np.log1p(np.exp(x)), None, None),
}  # fmt: skip


class Layer:
    """One node with random weights: what the model says, and what its text computes."""

    def __init__(self, op: str, seed: int, **attributes: Any) -> None:
        self.op, self.attributes = op, attributes
        self.draw = np.random.default_rng(seed)
        self.directions = 2 if attributes.get("direction") == "bidirectional" else 1
        self.arrays: dict[str, Any] = {}

    def fill(self, steps: int, batch: int, features: int, hidden: int, optional: set[str]) -> None:
        self.hidden = hidden
        rows = GATES[self.op] * hidden
        shapes = {
            "X": (steps, batch, features), "W": (self.directions, rows, features), "R": (self.directions, rows, hidden),
            "B": (self.directions, 2 * rows), "h": (self.directions, batch, hidden),
            "c": (self.directions, batch, hidden), "P": (self.directions, 3 * hidden),
        }  # fmt: skip
        for name, shape in shapes.items():
            if name in "XWR" or name in optional:
                self.arrays[name] = self.draw.normal(size=shape).astype("f4")
        if "lengths" in optional:
            self.arrays["lengths"] = self.draw.integers(1, steps + 1, size=batch).astype("i4")

    def wanted(self) -> dict[str, Any]:
        """Y and the last states, each direction and each sequence by itself."""
        steps, batch, _ = self.arrays["X"].shape
        names = STATES[self.op]
        every = np.zeros((steps, self.directions, batch, self.hidden))
        last = {name: np.zeros((self.directions, batch, self.hidden)) for name in names}
        for d in range(self.directions):
            backwards = d == 1 or self.attributes.get("direction") == "reverse"
            for n in range(batch):
                length = int(self.arrays.get("lengths", [steps] * batch)[n])
                state = {name: self.arrays[name][d, n].astype("f8") if name in self.arrays else 0.0 for name in names}
                for t in reversed(range(length)) if backwards else range(length):
                    state = self.step(d, self.arrays["X"][t, n].astype("f8"), state)
                    every[t, d, n] = state["h"]
                for name in names:
                    last[name][d, n] = state[name]
        return {"Y": every, **last}

    def act(self, d: int, index: int, x: Any) -> Any:
        clip = self.attributes.get("clip")
        x = x if clip is None else np.clip(x, -clip, clip)
        own = self.attributes.get("activations") or [*FUNCTIONS[self.op]] * self.directions
        function, alpha, beta = ACTIVATIONS[own[d * len(FUNCTIONS[self.op]) + index]]
        return function(x, alpha, beta)

    def step(self, d: int, x: Any, state: dict[str, Any]) -> dict[str, Any]:
        gates, size = GATES[self.op], self.hidden
        w, r = self.arrays["W"][d].astype("f8"), self.arrays["R"][d].astype("f8")
        biases = self.arrays["B"][d].astype("f8") if "B" in self.arrays else np.zeros(2 * gates * size)
        h = state["h"] + np.zeros(size)

        def part(of: Any, number: int) -> Any:
            return of[number * size : (number + 1) * size]

        given = w @ x + biases[: gates * size]
        if self.op == "RNN":
            return {"h": self.act(d, 0, given + r @ h + biases[size:])}
        own = biases[gates * size :]
        if self.op == "GRU":
            update, reset = (self.act(d, 0, part(given + r @ h + own, k)) for k in (0, 1))
            inner = part(r, 2) @ (reset * h) + part(own, 2)
            if self.attributes.get("linear_before_reset"):
                inner = reset * (part(r, 2) @ h + part(own, 2))
            candidate = self.act(d, 1, part(given, 2) + inner)
            return {"h": (1 - update) * candidate + update * h}
        c = state["c"] + np.zeros(size)
        total = given + r @ h + own
        peepholes = self.arrays["P"][d] if "P" in self.arrays else np.zeros(3 * size)
        entering = self.act(d, 0, part(total, 0) + part(peepholes, 0) * c)
        keeping = self.act(d, 0, part(total, 2) + part(peepholes, 2) * c)
        keeping = 1 - entering if self.attributes.get("input_forget") else keeping
        new = keeping * c + entering * self.act(d, 1, part(total, 3))
        leaving = self.act(d, 0, part(total, 1) + part(peepholes, 1) * new)
        return {"h": leaving * self.act(d, 2, new), "c": new}

    def graph(self, constants: set[str], outputs: set[str]) -> tuple[Graph, dict[str, Any]]:
        """The imported model with its feeds, the derived weights among them."""
        operands = ["X", "W", "R", "B", "lengths", *STATES[self.op], *(["P"] if self.op == "LSTM" else [])]
        arrays = dict(self.arrays)
        results = {"Y": 4, **dict.fromkeys(STATES[self.op], 3)}
        if self.attributes.get("layout"):
            arrays |= {name: np.swapaxes(arrays[name], 0, 1) for name in ("X", "h", "c") if name in arrays}
        node = helper.make_node(
            self.op, [name if name in arrays else "" for name in operands],
            [f"{name}_out" if name in outputs else "" for name in results], name="rnn", hidden_size=self.hidden,
            **self.attributes,
        )  # fmt: skip
        kinds = {name: TensorProto.INT32 if name == "lengths" else FLOAT for name in arrays}
        proto = model(
            [node], [(name, kinds[name], a.shape) for name, a in arrays.items() if name not in constants],
            [(f"{name}_out", FLOAT, [None] * rank) for name, rank in results.items() if name in outputs],
            constants={name: arrays[name] for name in constants}, opset=14,
        )  # fmt: skip
        graph = imported(proto)
        return graph, shaped(graph, {**arrays, **{f"rnn/{name}": array for name, array in arrays.items()}})


def drawn(seed: int) -> tuple[Layer, set[str], set[str]]:
    pick = random.Random(seed)
    op = pick.choice([*GATES])
    attributes: dict[str, Any] = {}
    if pick.random() < 0.7:
        attributes["direction"] = pick.choice(["forward", "reverse", "bidirectional", "bidirectional"])
    flags = {"LSTM": "input_forget", "GRU": "linear_before_reset", "RNN": "layout"}
    for name in (flags[op], "layout"):
        if pick.random() < 0.4:
            attributes[name] = 1
    if pick.random() < 0.3:
        attributes["clip"] = 0.5
    if pick.random() < 0.5:
        count = len(FUNCTIONS[op]) * (2 if attributes.get("direction") == "bidirectional" else 1)
        own = attributes["activations"] = [pick.choice([*ACTIVATIONS]) for _ in range(count)]
        for index, name in enumerate(("activation_alpha", "activation_beta"), 1):
            numbers = [ACTIVATIONS[item][index] for item in own if ACTIVATIONS[item][index] is not None]
            attributes |= {name: numbers} if numbers else {}
    layer = Layer(op, seed, **attributes)
    optional = [*("B", "lengths"), *STATES[op], *(["P"] if op == "LSTM" else [])]
    given = {name for name in optional if pick.random() < 0.5}
    layer.fill(pick.choice([1, 2, 5]), pick.choice([1, 3]), pick.choice([1, 4]), pick.choice([1, 3]), given)
    constants = {name for name in layer.arrays if name != "X" and pick.random() < 0.6}
    outputs = {name for name in ("Y", *STATES[op]) if pick.random() < 0.7} or {"Y"}
    return layer, constants, outputs


@pytest.mark.parametrize("seed", range(80))
def test_a_recurrence_computes_what_the_standard_says(seed: int) -> None:
    layer, constants, outputs = drawn(seed)
    graph, feeds = layer.graph(constants, outputs)
    assert not [node for node in graph.nodes if node.op == "opaque"]
    found = run_reference(graph, feeds)
    for name, wanted in layer.wanted().items():
        if name in outputs:
            if layer.attributes.get("layout"):
                wanted = np.transpose(wanted, (2, 0, 1, 3)) if name == "Y" else np.swapaxes(wanted, 0, 1)
            np.testing.assert_allclose(found[f"{name}_out"], wanted, rtol=2e-4, atol=2e-5, err_msg=name)


def layer_of(op: str, steps: int, optional: set[str], **attributes: Any) -> Layer:
    layer = Layer(op, 0, **attributes)
    layer.fill(steps, 2, 4, 3, optional)
    return layer


def test_the_features_product_of_all_steps_is_one() -> None:
    graph, _ = layer_of("LSTM", 6, {"B"}).graph({"W", "R", "B"}, {"h"})
    products = [node for node in graph.nodes if node.op == "matmul"]
    assert len(products) == 1 + 5  # the first step's state is zero
    assert graph.type_of(products[0].outputs[0]).shape == (12, 12)


def test_constant_parts_are_weights_that_are_computed_ahead() -> None:
    graph, _ = layer_of("GRU", 3, {"B"}, direction="bidirectional").graph({"W", "R", "B"}, {"h"})
    assert {name for name in graph.weights if name.startswith("rnn/R")} == {
        "rnn/R[0:6]", "rnn/R[6:9]", "rnn/R[9:15]", "rnn/R[15:18]"
    }  # fmt: skip
    assert not [node for node in graph.nodes if node.op == "slice" and node.inputs[0] in graph.weights]


def test_a_constant_state_of_zeros_is_no_operand() -> None:
    layer = layer_of("LSTM", 2, {"h", "c"})
    layer.arrays["h"][:] = 0
    layer.arrays["c"][:] = 0
    graph, _ = layer.graph({"W", "R", "h", "c"}, {"h"})
    assert set(graph.weights) == {"W", "R"}


def test_constant_lengths_of_whole_sequences_cost_nothing() -> None:
    layer = layer_of("RNN", 3, {"lengths"})
    layer.arrays["lengths"][:] = 3
    graph, _ = layer.graph({"W", "R", "lengths"}, {"Y"})
    assert not [node for node in graph.nodes if node.op in ("where", "greater")]


def test_a_long_recurrence_is_opaque_and_says_why() -> None:
    graph, _ = layer_of("GRU", STEPS, set()).graph({"W", "R"}, {"h"})
    assert not graph.warnings
    graph, _ = layer_of("GRU", STEPS + 1, set()).graph({"W", "R"}, {"h"})
    assert [node.attr("kind") for node in graph.nodes] == ["GRU"]
    assert graph.warnings == (
        f"node 'rnn' (GRU): {STEPS + 1} steps are not written out; up to {STEPS} are",
        "node 'rnn' (GRU) is planned as an opaque kernel",
    )


def test_an_activation_outside_the_standard_is_opaque() -> None:
    graph, _ = layer_of("RNN", 2, set(), activations=["Cosine"]).graph({"W", "R"}, {"h"})
    assert graph.nodes[0].op == "opaque"


def test_activations_of_another_number_are_an_error() -> None:
    with pytest.raises(InputError, match=r"node 'rnn' \(LSTM\): 2 activations are given, not 3"):
        layer_of("LSTM", 2, set(), activations=["Tanh", "Tanh"]).graph({"W", "R"}, {"h"})


WRONG = {
    "W": (lambda layer: layer.arrays.update(W=np.zeros((1, 11, 4), "f4")), "W is [1, 11, 4], not [1, 12, 4]"),
    "R": (lambda layer: layer.arrays.update(R=np.zeros((1, 12, 5), "f4")), "W is [1, 12, 4], not [1, 20, 4]"),
    "rank": (lambda layer: layer.arrays.update(R=np.zeros((12, 3), "f4")), "X and R have 3 axes, not 3 and 2"),
    "B": (lambda layer: layer.arrays.update(B=np.zeros((1, 12), "f4")), "B is [1, 12], not [1, 24]"),
    "h": (lambda layer: layer.arrays.update(h=np.zeros((1, 1, 3), "f4")), "h is [1, 1, 3], not [1, 2, 3]"),
    "P": (lambda layer: layer.arrays.update(P=np.zeros((1, 3), "f4")), "P is [1, 3], not [1, 9]"),
    "lengths": (lambda layer: layer.arrays.update(lengths=np.ones(3, "i4")), "lengths is [3], not [2]"),
    "hidden": (lambda layer: setattr(layer, "hidden", 4), "hidden_size is 4, but R has 3 columns"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_malformed_recurrence_is_one_clear_line(what: str) -> None:
    change, line = WRONG[what]
    layer = layer_of("LSTM", 2, set())
    change(layer)
    with pytest.raises(InputError) as raised:
        layer.graph({"W", "R"}, {"h"})
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_direction_is_one_clear_line() -> None:
    """Also with a declared result: inference leaves its shape open."""
    node = helper.make_node("RNN", ["x", "w", "r"], ["", "h"], name="rnn", direction="sideways")
    shapes = {"x": (2, 1, 4), "w": (1, 3, 4), "r": (1, 3, 3)}
    proto = model([node], [(name, FLOAT, shape) for name, shape in shapes.items()], [("h", FLOAT, (1, 1, 3))])
    with pytest.raises(InputError, match=r"node 'rnn' \(RNN\): the shape of its result 'h' stays \[None, 1, None\]"):
        imported(proto)
