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
    """Powers that a compiler strength-reduces are spelled out; the exponent takes the type of the base."""
    exponent = node.scalar(1)
    base, power = node.elementwise()
    if isinstance(power, Literal) and exponent is not None and isinstance(base, str):
        reduced = _small_power(node, base, float(exponent))
        if reduced is not None:
            return reduced
    dtype = node.type(0).dtype
    if dtype.is_float and isinstance(power, Literal):
        power = Literal(float(power.value))
    elif dtype is not node.type(1).dtype and isinstance(power, str):
        power = node.cast(power, dtype)
    return node.emit("pow", base, power)


def _small_power(node: NodeView, base: str, exponent: float) -> str | None:
    if exponent == 2:
        return node.emit("square", base)
    if exponent == 3:
        return node.emit("mul", node.emit("square", base), base)
    if not node.type(0).dtype.is_float:
        return None
    if exponent == 0.5:
        return node.emit("sqrt", base)
    return node.emit("reciprocal", base) if exponent == -1 else None


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


def _scaled(node: NodeView, name: str, default: float) -> Literal:
    return Literal(float(node.attr(name, default)))


def _leaky_relu(node: NodeView) -> Operand:
    x = node.tensor(0)
    return node.emit("where", node.emit("less", x, Literal(0.0)), node.emit("mul", x, _scaled(node, "alpha", 0.01)), x)


def _prelu(node: NodeView) -> Operand:
    x, slope = node.tensor(0), node.operand(1)
    return node.emit("where", node.emit("less", x, Literal(0.0)), node.emit("mul", x, slope), x)


def _elu_of(node: NodeView, x: str, alpha: float) -> str:
    """Take x above 0, alpha * (exp(x) - 1) below."""
    below = node.emit("mul", node.emit("expm1", x), Literal(alpha))
    return node.emit("where", node.emit("less", x, Literal(0.0)), below, x)


def _elu(node: NodeView) -> Operand:
    return _elu_of(node, node.tensor(0), float(node.attr("alpha", 1.0)))


def _selu(node: NodeView) -> Operand:
    alpha = float(node.attr("alpha", 1.67326319217681884765625))
    gamma = float(node.attr("gamma", 1.05070102214813232421875))
    return node.emit("mul", _elu_of(node, node.tensor(0), alpha), Literal(gamma))


def _celu(node: NodeView) -> Operand:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha, x = float(node.attr("alpha", 1.0)), node.tensor(0)
    below = node.emit("mul", node.emit("expm1", node.emit("div", x, Literal(alpha))), Literal(alpha))
    return node.emit("add", node.emit("relu", x), node.emit("minimum", below, Literal(0.0)))


def _thresholded_relu(node: NodeView) -> Operand:
    x = node.tensor(0)
    return node.emit("where", node.emit("greater", x, _scaled(node, "alpha", 1.0)), x, Literal(0.0))


def _hard_sigmoid_of(node: NodeView, x: str, alpha: float, beta: float) -> str:
    """clip(alpha * x + beta, 0, 1)."""
    line = node.emit("add", node.emit("mul", x, Literal(alpha)), Literal(beta))
    return node.emit("clip", line, min=0.0, max=1.0)


def _hard_sigmoid(node: NodeView) -> Operand:
    return _hard_sigmoid_of(node, node.tensor(0), float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5)))


def _hard_swish(node: NodeView) -> Operand:
    x = node.tensor(0)
    return node.emit("mul", x, _hard_sigmoid_of(node, x, 1 / 6, 0.5))


def _softplus_of(node: NodeView, x: str) -> str:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which does not overflow."""
    tail = node.emit("log1p", node.emit("exp", node.emit("neg", node.emit("abs", x))))
    return node.emit("add", node.emit("relu", x), tail)


def _softplus(node: NodeView) -> Operand:
    return _softplus_of(node, node.tensor(0))


def _softsign(node: NodeView) -> Operand:
    x = node.tensor(0)
    return node.emit("div", x, node.emit("add", node.emit("abs", x), Literal(1.0)))


def _mish(node: NodeView) -> Operand:
    x = node.tensor(0)
    return node.emit("mul", x, node.emit("tanh", _softplus_of(node, x)))


def _swish(node: NodeView) -> Operand:
    """Formula: x * sigmoid(alpha * x)."""
    x, alpha = node.tensor(0), float(node.attr("alpha", 1.0))
    inner = x if alpha == 1.0 else node.emit("mul", x, Literal(alpha))
    return node.emit("mul", x, node.emit("sigmoid", inner))


def _gelu(node: NodeView) -> Operand:
    """x/2 * (1 + erf(x/sqrt 2)), or its tanh form 1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))."""
    x = node.tensor(0)
    half = node.emit("mul", x, Literal(0.5))
    if node.attr("approximate", "none") == "tanh":
        cube = node.emit("mul", node.emit("square", x), x)
        inner = node.emit("add", x, node.emit("mul", cube, Literal(0.044715)))
        bent = node.emit("tanh", node.emit("mul", inner, Literal((2 / 3.141592653589793) ** 0.5)))
    else:
        bent = node.emit("erf", node.emit("mul", x, Literal(0.5**0.5)))
    return node.emit("mul", half, node.emit("add", bent, Literal(1.0)))


def _shrink(node: NodeView) -> Operand:
    """Formula: x + bias below -lambd, x - bias above lambd, else 0."""
    x, bias, edge = node.tensor(0), float(node.attr("bias", 0.0)), float(node.attr("lambd", 0.5))
    low = node.emit("where", node.emit("less", x, Literal(-edge)), node.emit("add", x, Literal(bias)), Literal(0.0))
    return node.emit("where", node.emit("greater", x, Literal(edge)), node.emit("sub", x, Literal(bias)), low)


ELEMENTWISE: Mapping[str, Handler] = {
    **{name: _direct(op) for name, op in _DIRECT.items()},
    "Sum": _variadic("add"), "Max": _variadic("maximum"), "Min": _variadic("minimum"), "Mean": _mean,
    "Div": _div, "Mod": _mod, "Pow": _pow, "BitShift": _bit_shift, "IsInf": _is_inf, "Where": _where,
    "Cast": _cast, "CastLike": _cast_like, "Identity": _identity, "Dropout": _dropout, "Clip": _clip,
    "LeakyRelu": _leaky_relu, "PRelu": _prelu, "Elu": _elu, "Selu": _selu, "Celu": _celu,
    "ThresholdedRelu": _thresholded_relu, "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish,
    "Softplus": _softplus, "Softsign": _softsign, "Mish": _mish, "Swish": _swish, "Gelu": _gelu, "Shrink": _shrink,
}  # fmt: skip
