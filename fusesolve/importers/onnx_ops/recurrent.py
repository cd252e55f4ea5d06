"""ONNX recurrences (LSTM, GRU, RNN), written out step by step. Source of the formulas: the ONNX operator specification.

Shapes: T steps, N sequences of a batch, I features, H hidden units, D directions, and G gates of a cell
(4, 3, 1). The product of all steps' features with the weights is one; each step adds its state's product. A state that
starts at zero is None, and what it would be multiplied with is not emitted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, Literal, Operand, TensorType
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView

STEPS = 128  # steps, over both directions, that are written out at most; a longer recurrence is opaque
LETTERS = ("X", "W", "R", "B", "lengths", "h", "c", "P")  # the operands
_BIAS, _LENGTHS, _STATE, _CELL, _PEEPHOLES = 3, 4, 5, 6, 7
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}  # each: backwards?

Activation: TypeAlias = Callable[[NodeView, str], str]


# --- activations ---


def _primitive(op: str) -> Callable[..., str]:
    return lambda node, x: node.emit(op, x)


def _composite(name: str, *attributes: str) -> Callable[..., str]:
    def emit(node: NodeView, x: str, *numbers: float) -> str:
        attrs: dict[str, AttrValue] = dict(zip(attributes, numbers, strict=True))
        return node.composite(name, x, **attrs)[0]

    return emit


def _affine(node: NodeView, x: str, alpha: float, beta: float) -> str:
    return node.emit("add", node.emit("mul", x, Literal(alpha)), Literal(beta))


def _scaled_tanh(node: NodeView, x: str, alpha: float, beta: float) -> str:
    return node.emit("mul", node.emit("tanh", node.emit("mul", x, Literal(beta))), Literal(alpha))


# What emits each function of the standard, with the numbers that alpha and beta have where the model gives none.
_FUNCTIONS: Mapping[str, tuple[Callable[..., str], tuple[float, ...]]] = {
    "relu": (_primitive("relu"), ()), "tanh": (_primitive("tanh"), ()), "sigmoid": (_primitive("sigmoid"), ()),
    "softsign": (_composite("softsign"), ()), "softplus": (_composite("softplus"), ()),
    "elu": (_composite("elu", "alpha"), (1.0,)), "leakyrelu": (_composite("leaky_relu", "alpha"), (0.01,)),
    "thresholdedrelu": (_composite("thresholded_relu", "alpha"), (1.0,)),
    "hardsigmoid": (_composite("hardsigmoid", "alpha", "beta"), (0.2, 0.5)),
    "affine": (_affine, (1.0, 0.0)), "scaledtanh": (_scaled_tanh, (1.0, 1.0)),
}  # fmt: skip


def _functions(node: NodeView, defaults: Sequence[str], directions: int) -> list[Activation] | None:
    """The activations of all directions in order, None where one is not of the standard.

    `activation_alpha` and `activation_beta` are consumed by those functions that have such a number.
    """
    names = [str(name).lower() for name in node.attr("activations") or [*defaults] * directions]
    if len(names) != len(defaults) * directions:
        raise InputError(f"{len(names)} activations are given, not {len(defaults) * directions}")
    given = [list(node.attr(name) or ()) for name in ("activation_alpha", "activation_beta")]
    found: list[Activation] = []
    for name in names:
        if name not in _FUNCTIONS:
            return None
        function, numbers = _FUNCTIONS[name]
        own = [float(items.pop(0)) if items else number for items, number in zip(given, numbers, strict=False)]
        found.append(partial(_applied, function, own))
    return found


def _applied(function: Callable[..., str], numbers: Sequence[float], node: NodeView, x: str) -> str:
    return function(node, x, *numbers)


# --- one direction ---


@dataclass(frozen=True, slots=True)
class _Direction:
    """One of `count` directions of a node: number 0 or 1, a cell of `gates` gates of `hidden` units each."""

    node: NodeView
    number: int
    count: int
    gates: int
    hidden: int
    functions: Sequence[Activation]
    cut: dict[tuple[int, int, int], str] = field(default_factory=dict)

    def rows(self, index: int, start: int, end: int) -> str:
        """Rows of this direction's part of operand `index`, [end - start, its last extent] (B and P: [1, ...]).

        Of a constant they are a weight that is computed ahead, `source/LETTER[first:last]` in rows of the operand.
        """
        key = (index, start, end)
        if key not in self.cut:
            self.cut[key] = self._cut(*key)
        return self.cut[key]

    def _cut(self, index: int, start: int, end: int) -> str:
        node, name = self.node, self.node.tensor(index)
        shape = node.known(name).shape
        flat = node.reshape(name, (-1,) if len(shape) == 2 else (-1, shape[-1]))
        whole = node.known(flat)
        first = self.number * (whole.shape[0] // self.count)
        if end - start < whole.shape[0]:
            kind = TensorType(whole.dtype, (end - start, *whole.shape[1:]))
            if node.constant(name):
                flat = node.weight(f"{LETTERS[index]}[{first + start}:{first + end}]", kind)
            else:
                flat = node.emit("slice", flat, axis=0, start=first + start, end=first + end)
        return node.reshape(flat, (1, end - start)) if len(shape) == 2 else flat

    def bias(self, recurrent: bool) -> str:
        """The biases of the features' or of the state's product, [1, G H]."""
        size = self.gates * self.hidden
        return self.rows(_BIAS, size, 2 * size) if recurrent else self.rows(_BIAS, 0, size)

    @property
    def resets_product(self) -> bool:
        """GRU: whether the reset acts on the state's product, whose bias then stays with it, else on the state."""
        return self.gates == 3 and bool(self.node.attr("linear_before_reset", 0))

    def times(self, state: str, first: int, last: int) -> str:
        """A state by the weights of the gates from `first` to before `last`, [N, (last - first) H]."""
        weights = self.rows(2, first * self.hidden, last * self.hidden)
        return self.node.emit("matmul", state, weights, transpose_b=True)

    def gate(self, value: str, number: int) -> str:
        """One gate of [N, G H] (or fewer gates), [N, H]."""
        width = self.node.known(value).shape[1]
        start, end = number * self.hidden, (number + 1) * self.hidden
        return value if width == self.hidden else self.node.emit("slice", value, axis=1, start=start, end=end)

    def act(self, value: str, function: int) -> str:
        """An activation of the cell, its operand clipped where the node says so."""
        clip = self.node.attr("clip")
        if clip is not None:
            value = self.node.emit("clip", value, min=-float(clip), max=float(clip))
        return self.functions[function](self.node, value)

    def add(self, *values: str | None) -> str:
        """The sum of the values that are there."""
        first, *rest = [value for value in values if value is not None]
        for value in rest:
            first = self.node.emit("add", first, value)
        return first

    def start(self, index: int) -> str | None:
        """An initial state, [N, H]; None where it is zero."""
        node = self.node
        if not node.has(index):
            return None
        known = node.array(index)
        if known is not None and not known.any():
            return None
        if not node.attr("layout", 0):
            size = node.type(index).shape[1]
            return self.rows(index, 0, size)
        value = node.tensor(index)  # [N, D, H]
        size = node.type(index).shape[0]
        own = value if self.count == 1 else node.emit("slice", value, axis=1, start=self.number, end=self.number + 1)
        return node.reshape(own, (size, self.hidden))

    def given(self, x: str) -> list[str]:
        """The features' product of each step, [N, G H] each, with the biases."""
        node = self.node
        bias = None
        if node.has(_BIAS):
            bias = self.add(self.bias(recurrent=False), None if self.resets_product else self.bias(recurrent=True))
        steps, batch, features = node.known(x).shape
        size = self.gates * self.hidden
        flat = node.reshape(x, (steps * batch, features))
        made = self.add(node.emit("matmul", flat, self.rows(1, 0, size), transpose_b=True), bias)
        cuts = range(0, (steps + 1) * batch, batch)
        if steps == 1:
            return [made]
        return [node.emit("slice", made, axis=0, start=start, end=end) for start, end in pairwise(cuts)]


# --- cells: from a step's features and the states before to the states behind ---

_Step: TypeAlias = Callable[[_Direction, str, str | None, str | None], tuple[str, str | None]]


def _rnn_step(cell: _Direction, given: str, h: str | None, c: str | None) -> tuple[str, str | None]:
    return cell.act(cell.add(None if h is None else cell.times(h, 0, 1), given), 0), c


def _lstm_step(cell: _Direction, given: str, h: str | None, c: str | None) -> tuple[str, str | None]:
    node = cell.node
    total = cell.add(None if h is None else cell.times(h, 0, 4), given)

    def gate(number: int, peephole: int, state: str | None) -> str:
        value = cell.gate(total, number)
        if state is not None and node.has(_PEEPHOLES):
            weights = cell.rows(_PEEPHOLES, peephole * cell.hidden, (peephole + 1) * cell.hidden)
            value = node.emit("add", value, node.emit("mul", state, weights))
        return cell.act(value, 0)

    entering = gate(0, 0, c)
    new = node.emit("mul", entering, cell.act(cell.gate(total, 3), 1))
    if c is not None:
        keeping = node.emit("sub", Literal(1.0), entering) if node.attr("input_forget", 0) else gate(2, 2, c)
        new = node.emit("add", node.emit("mul", keeping, c), new)
    return node.emit("mul", gate(1, 1, new), cell.act(new, 2)), new


def _gru_step(cell: _Direction, given: str, h: str | None, c: str | None) -> tuple[str, str | None]:
    node = cell.node
    bias = cell.bias(recurrent=True) if cell.resets_product and node.has(_BIAS) else None
    product = None if h is None else cell.times(h, 0, 3 if cell.resets_product else 2)
    recurrent = None if product is None and bias is None else cell.add(product, bias)

    def gate(number: int) -> str:
        return cell.act(cell.add(recurrent and cell.gate(recurrent, number), cell.gate(given, number)), 0)

    candidate = cell.gate(given, 2)
    if cell.resets_product and recurrent is not None:
        candidate = node.emit("add", node.emit("mul", gate(1), cell.gate(recurrent, 2)), candidate)
    elif h is not None:
        candidate = node.emit("add", cell.times(node.emit("mul", gate(1), h), 2, 3), candidate)
    update = gate(0)
    new = node.emit("mul", node.emit("sub", Literal(1.0), update), cell.act(candidate, 1))
    return new if h is None else node.emit("add", new, node.emit("mul", update, h)), c


# --- the node ---


def _check_shapes(node: NodeView, gates: int, count: int) -> None:
    """InputError where an operand has not the shape that the standard gives it; its inference lets that pass."""
    x, r = node.type(0).shape, node.type(2).shape
    if len(x) != 3 or len(r) != 3:
        raise InputError(f"X and R have 3 axes, not {len(x)} and {len(r)}")
    batch, hidden = x[0 if node.attr("layout", 0) else 1], r[2]
    rows = gates * hidden
    state = (batch, count, hidden) if node.attr("layout", 0) else (count, batch, hidden)
    wanted: dict[int, tuple[int, ...]] = {
        1: (count, rows, x[2]), 2: (count, rows, hidden), _BIAS: (count, 2 * rows), _LENGTHS: (batch,), _STATE: state,
        _CELL: state, _PEEPHOLES: (count, 3 * hidden),
    }  # fmt: skip
    for index, shape in wanted.items():
        if node.has(index) and node.type(index).shape != shape:
            raise InputError(f"{LETTERS[index]} is {list(node.type(index).shape)}, not {list(shape)}")
    if node.attr("hidden_size", hidden) != hidden:
        raise InputError(f"hidden_size is {node.attr('hidden_size')}, but R has {hidden} columns")


def _masks(node: NodeView, steps: int) -> list[str] | None:
    """For each step which sequences it belongs to, [N, 1]; None where all are as long as there are steps."""
    if not node.has(_LENGTHS):
        return None
    known = node.array(_LENGTHS)
    if known is not None and bool((known >= steps).all()):
        return None
    lengths = node.tensor(_LENGTHS)
    return [node.reshape(node.emit("greater", lengths, Literal(step)), (-1, 1)) for step in range(steps)]


@dataclass(slots=True)
class _Run:
    """The results of one direction: h of each step (zeros behind a sequence's end), the last h and c; [N, H] each."""

    every: list[str]
    h: str
    c: str | None


def _run(cell: _Direction, step: _Step, given: Sequence[str], masks: Sequence[str] | None, backwards: bool) -> _Run:
    node = cell.node
    h, c = cell.start(_STATE), cell.start(_CELL)
    every: dict[int, str] = {}
    for number in reversed(range(len(given))) if backwards else range(len(given)):
        new_h, new_c = step(cell, given[number], h, c)
        every[number] = new_h
        if masks is not None:
            mask = masks[number]
            every[number] = node.emit("where", mask, new_h, Literal(0.0))
            new_h = node.emit("where", mask, new_h, Literal(0.0) if h is None else h)
            new_c = new_c and node.emit("where", mask, new_c, Literal(0.0) if c is None else c)
        h, c = new_h, new_c
    assert h is not None
    return _Run([every[number] for number in range(len(given))], h, c)


def _joined(node: NodeView, parts: Sequence[str], shape: Sequence[int], batch_first: Sequence[int]) -> str:
    """Parts [N, H] as one result of `shape`, its axes in the order `batch_first` where the node's layout asks so."""
    made = node.reshape(parts[0] if len(parts) == 1 else node.emit("concat", *parts, axis=0), shape)
    return node.emit("transpose", made, perm=tuple(batch_first)) if node.attr("layout", 0) else made


def _recurrence(step: _Step, gates: int, *activations: str) -> Handler:
    def emit(node: NodeView) -> Sequence[Operand | None] | None:
        backwards = _DIRECTIONS[node.attr("direction", "forward")]  # inference knows no result for any other
        count = len(backwards)
        _check_shapes(node, gates, count)
        hidden = node.type(2).shape[2]
        functions = _functions(node, activations, count)
        shape = node.type(0).shape
        steps, batch = (shape[1], shape[0]) if node.attr("layout", 0) else shape[:2]
        if functions is None or not node.type(0).size or not hidden:
            return None
        if steps * count > STEPS:
            node.warn(f"{steps * count} steps are not written out; up to {STEPS} are")
            return None
        x = node.emit("transpose", node.tensor(0), perm=(1, 0, 2)) if node.attr("layout", 0) else node.tensor(0)
        masks = _masks(node, steps)
        runs = []
        for number, backward in enumerate(backwards):
            own = functions[number * len(activations) : (number + 1) * len(activations)]
            cell = _Direction(node, number, count, gates, hidden, own)
            runs.append(_run(cell, step, cell.given(x), masks, backward))
        every: str | None = None
        if node.wants(0):
            parts = [run.every[number] for number in range(steps) for run in runs]
            every = _joined(node, parts, (steps, count, batch, hidden), (2, 0, 1, 3))
        states = [[run.h for run in runs], [run.c for run in runs if run.c is not None]]
        last = [
            _joined(node, parts, (count, batch, hidden), (1, 0, 2)) if node.wants(index) else None
            for index, parts in enumerate(states, 1)
        ]
        return [every, *last]

    return emit


RECURRENCES: Mapping[str, Handler] = {
    "LSTM": _recurrence(_lstm_step, 4, "sigmoid", "tanh", "tanh"),
    "GRU": _recurrence(_gru_step, 3, "sigmoid", "tanh"),
    "RNN": _recurrence(_rnn_step, 1, "tanh"),
}
