"""ONNX operators that work element by element. Source of the formulas: the ONNX operator specification."""

from collections.abc import Mapping

from fusesolve.graph import DType, Literal, Operand
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView, dtype_of

_DIRECT = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "And": "and", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseAnd": "and", "BitwiseNot": "not", "BitwiseOr": "or", "BitwiseXor": "xor",
    "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Equal": "equal", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "IsNaN": "isnan", "Less": "less",
    "LessOrEqual": "less_equal", "Log": "log", "Mul": "mul", "Neg": "neg", "Not": "not", "Or": "or",
    "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Sqrt": "sqrt", "Sub": "sub", "Tan": "tan", "Tanh": "tanh", "Xor": "xor",
}  # fmt: skip


def _direct(op: str) -> Handler:
    def emit(node: NodeView) -> Operand:
        return node.emit(op, *node.elementwise())

    return emit


def _variadic(op: str) -> Handler:
    """Sum, Max, Min: a chain of two-operand primitives."""

    def emit(node: NodeView) -> Operand:
        first, *rest = node.elementwise()
        for item in rest:
            first = node.emit(op, first, item)
        return first

    return emit


def _mean(node: NodeView) -> Operand:
    total = _variadic("add")(node)
    assert isinstance(total, str)
    return total if node.count == 1 else node.emit("div", total, Literal(float(node.count)))


def _div(node: NodeView) -> Operand:
    return node.emit("div" if node.type(0).dtype.is_float else "intdiv", *node.elementwise())


def _mod(node: NodeView) -> Operand:
    return node.emit("fmod" if node.attr("fmod", 0) else "mod", *node.elementwise())


def _pow(node: NodeView) -> Operand:
    """Powers that a compiler strength-reduces are cheaper primitives; the exponent takes the type of the base."""
    exponent = node.scalar(1)
    base, power = node.elementwise()
    dtype = node.type(0).dtype
    if isinstance(power, Literal) and exponent is not None and isinstance(base, str):
        whole = not dtype.is_float and float(exponent).is_integer()
        return node.composite("pow", base, Literal(int(exponent) if whole else float(exponent)))[0]
    return node.emit("pow", base, node.cast(power, dtype) if isinstance(power, str) else power)


def _bit_shift(node: NodeView) -> Operand:
    return node.emit("shift_left" if node.attr("direction") == "LEFT" else "shift_right", *node.elementwise())


def _is_inf(node: NodeView) -> Operand:
    x = node.tensor(0)
    found = node.emit("isinf", x)
    if node.attr("detect_negative", 1) and node.attr("detect_positive", 1):
        return found
    sign = "greater" if node.attr("detect_positive", 1) else "less"
    if not node.attr("detect_negative", 1) and not node.attr("detect_positive", 1):
        return node.emit("and", found, Literal(False))
    return node.emit("and", found, node.emit(sign, x, Literal(0.0)))


def _where(node: NodeView) -> Operand:
    condition, yes, no = node.elementwise()
    if isinstance(yes, Literal) and isinstance(no, Literal):  # two numbers alone have no type: one is a tensor
        yes = node.reshape(node.tensor(1), ())
    return node.emit("where", condition if isinstance(condition, str) else node.tensor(0), yes, no)


_LARGEST = {DType.F8E4M3: 448.0, DType.F8E5M2: 57344.0}


def _converted(node: NodeView, target: DType) -> Operand:
    """A cast; to an 8-bit float it saturates unless the node says otherwise."""
    x, largest = node.tensor(0), _LARGEST.get(target)
    if largest is not None and node.attr("saturate", 1) and node.type(0).dtype.is_float:
        x = node.emit("clip", x, min=-largest, max=largest)
    return node.cast(x, target)


def _cast(node: NodeView) -> Operand:
    return _converted(node, dtype_of(node.attr("to")))


def _cast_like(node: NodeView) -> Operand:
    return _converted(node, node.type(1).dtype)


def _identity(node: NodeView) -> Operand:
    return node.tensor(0)


def _dropout(node: NodeView) -> list[Operand | None] | None:
    """Inference passes the data on; the mask, where somebody reads it, is all true."""
    training = node.has(2) and node.scalar(2)
    if training or (node.has(2) and node.scalar(2) is None):
        return None
    if not node.wants(1):
        return [node.tensor(0), None]
    mask = node.result(1)
    return [node.tensor(0), node.emit("fill", value=1, shape=mask.shape, dtype=mask.dtype.value)]


def _clip(node: NodeView) -> Operand | None:
    """Bounds are attributes up to opset 10, operands after; bounds that depend on data are tensors."""
    bounds: dict[str, float] = {}
    x = node.tensor(0)
    for index, (name, op) in enumerate((("min", "maximum"), ("max", "minimum")), 1):
        bound = node.attr(name) if node.opset < 11 else node.scalar(index)
        if bound is not None:
            bounds[name] = float(bound) if node.type(0).dtype.is_float else int(bound)
        elif node.opset >= 11 and node.has(index):
            x = node.emit(op, x, node.operand(index))
    if not bounds:
        return x
    if bounds.get("min", float("-inf")) > bounds.get("max", float("inf")):  # the standard: all become max
        return node.emit("minimum", node.emit("maximum", x, Literal(bounds["min"])), Literal(bounds["max"]))
    return node.emit("clip", x, **bounds)


# --- activations ---


def _activation(composite: str, *names: str) -> Handler:
    """A composite of one operand; `names`: the attributes that both have, by the same name and meaning."""

    def emit(node: NodeView) -> Operand:
        given = {name: node.attr(name) for name in names if node.attr(name) is not None}
        return node.composite(composite, node.tensor(0), **given)[0]

    return emit


def _prelu(node: NodeView) -> Operand:
    return node.composite("prelu", node.tensor(0), node.operand(1))[0]


_ACTIVATIONS: Mapping[str, Handler] = {
    "LeakyRelu": _activation("leaky_relu", "alpha"), "Elu": _activation("elu", "alpha"), "PRelu": _prelu,
    "Selu": _activation("selu", "alpha", "gamma"), "Celu": _activation("celu", "alpha"),
    "ThresholdedRelu": _activation("thresholded_relu", "alpha"), "HardSwish": _activation("hardswish"),
    "HardSigmoid": _activation("hardsigmoid", "alpha", "beta"), "Softplus": _activation("softplus"),
    "Softsign": _activation("softsign"), "Mish": _activation("mish"), "Swish": _activation("silu", "alpha"),
    "Gelu": _activation("gelu", "approximate"), "Shrink": _activation("shrink", "lambd", "bias"),
}  # fmt: skip

ELEMENTWISE: Mapping[str, Handler] = {
    **{name: _direct(op) for name, op in _DIRECT.items()},
    "Sum": _variadic("add"), "Max": _variadic("maximum"), "Min": _variadic("minimum"), "Mean": _mean,
    "Div": _div, "Mod": _mod, "Pow": _pow, "BitShift": _bit_shift, "IsInf": _is_inf, "Where": _where,
    "Cast": _cast, "CastLike": _cast_like, "Identity": _identity, "Dropout": _dropout, "Clip": _clip,
    **_ACTIVATIONS,
}  # fmt: skip
