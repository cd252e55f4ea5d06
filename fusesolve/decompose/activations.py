"""Activation functions and powers as primitives.

Formulas are those of the ONNX operator specification and of PyTorch's functional reference; GELU is Hendrycks and
Gimpel (2016), Mish is Misra (2019), SELU's constants are Klambauer et al. (2017).
"""

import math
from collections.abc import Callable, Sequence

from fusesolve.decompose.emit import Attrs, Composite, Emit, float_attr, unary
from fusesolve.errors import InputError
from fusesolve.graph import Literal, Operand

SELU_ALPHA, SELU_GAMMA = 1.6732632423543772, 1.0507009873554805


def _gelu(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    kind = attrs.get("approximate", "none")
    if kind == "none":
        inner = emit("erf", emit("mul", x, 1 / math.sqrt(2)))
    elif kind == "tanh":
        cube = emit("mul", emit("mul", emit("square", x), x), 0.044715)
        inner = emit("tanh", emit("mul", emit("add", x, cube), math.sqrt(2 / math.pi)))
    else:
        raise InputError(f"approximate must be none or tanh, not {kind!r}")
    return emit("mul", emit("mul", emit("add", inner, 1.0), x), 0.5)


def _quick_gelu(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    return emit("mul", x, emit("sigmoid", emit("mul", x, float_attr(attrs, "alpha", 1.702))))


def _silu(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    alpha = float_attr(attrs, "alpha", 1.0)
    return emit("mul", x, emit("sigmoid", x if alpha == 1.0 else emit("mul", x, alpha)))


def softplus(emit: Emit, x: Operand) -> Operand:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which never overflows."""
    tail = emit("log1p", emit("exp", emit("neg", emit("abs", x))))
    return emit("add", emit("relu", x), tail)


def _softplus(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    return softplus(emit, x)


def _mish(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    return emit("mul", x, emit("tanh", softplus(emit, x)))


def _softsign(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    return emit("div", x, emit("add", emit("abs", x), 1.0))


def _hardsigmoid(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    alpha, beta = float_attr(attrs, "alpha", 0.2), float_attr(attrs, "beta", 0.5)
    return emit("clip", emit("add", emit("mul", x, alpha), beta), min=0.0, max=1.0)


def _hardswish(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    gate = emit("clip", emit("add", emit("mul", x, 1 / 6), 0.5), min=0.0, max=1.0)
    return emit("mul", x, gate)


def _elu(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    low = emit("mul", emit("expm1", x), float_attr(attrs, "alpha", 1.0))
    return emit("where", emit("greater", x, 0.0), x, low)


def _celu(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    alpha = float_attr(attrs, "alpha", 1.0)
    if alpha == 0:
        raise InputError("celu divides by alpha, which is 0")
    low = emit("mul", emit("expm1", emit("mul", x, 1 / alpha)), alpha)
    return emit("add", emit("relu", x), emit("minimum", low, 0.0))


def _selu(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    alpha, gamma = float_attr(attrs, "alpha", SELU_ALPHA), float_attr(attrs, "gamma", SELU_GAMMA)
    low = emit("mul", emit("expm1", x), alpha)
    return emit("mul", emit("where", emit("greater", x, 0.0), x, low), gamma)


def _leaky_relu(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    return emit("where", emit("greater", x, 0.0), x, emit("mul", x, float_attr(attrs, "alpha", 0.01)))


def _thresholded_relu(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    return emit("where", emit("greater", x, float_attr(attrs, "alpha", 1.0)), x, 0.0)


def _shrink(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    limit, bias = float_attr(attrs, "lambd", 0.5), float_attr(attrs, "bias", 0.0)
    low = emit("where", emit("less", x, -limit), emit("add", x, bias), 0.0)
    return emit("where", emit("greater", x, limit), emit("sub", x, bias), low)


def _prelu(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    x, slope = inputs
    return (emit("where", emit("greater", x, 0), x, emit("mul", x, slope)),)


# Exponents that one cheaper primitive computes exactly.
_POWERS = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


def _pow(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    x, exponent = inputs
    if not isinstance(exponent, Literal) or isinstance(x, Literal) or isinstance(exponent.value, bool):
        return (emit("pow", x, exponent),)
    value, dtype = float(exponent.value), emit.type(x).dtype
    if not dtype.is_float:  # a float exponent changes the type of the result: only whole ones are simplified
        value = value if isinstance(exponent.value, int) and exponent.value in (1, 2, 3) else math.nan
    if value == 1.0:
        return (x,)
    if value == 3.0:
        return (emit("mul", emit("square", x), x),)
    if value in _POWERS:
        return (emit(_POWERS[value], x),)
    return (emit("pow", x, exponent),)


_ALPHA = "slope or scale of the function, a number"


def _row(name: str, doc: str, body: Callable[[Emit, Operand, Attrs], Operand], **attrs: str) -> Composite:
    optional = {key: (False, text) for key, text in attrs.items()}
    return Composite(name=name, doc=doc, operands=(1, 1), expand=unary(body), attrs=optional)


def _reversed_sub(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    return (emit("sub", inputs[1], inputs[0]),)


ACTIVATIONS: tuple[Composite, ...] = (
    _row("gelu", "x * Phi(x), by erf or by tanh.", _gelu, approximate="none (erf) or tanh"),
    _row("quick_gelu", "x * sigmoid(1.702 x).", _quick_gelu, alpha=_ALPHA),
    _row("silu", "x * sigmoid(alpha x).", _silu, alpha=_ALPHA),
    _row("softplus", "log(1 + exp(x)).", _softplus),
    _row("mish", "x * tanh(softplus(x)).", _mish),
    _row("softsign", "x / (1 + |x|).", _softsign),
    _row("hardsigmoid", "clip(alpha x + beta, 0, 1).", _hardsigmoid, alpha=_ALPHA, beta="offset, a number"),
    _row("hardswish", "x * clip(x / 6 + 1/2, 0, 1).", _hardswish),
    _row("elu", "x above 0, alpha (exp(x) - 1) below.", _elu, alpha=_ALPHA),
    _row("celu", "max(x, 0) + min(0, alpha (exp(x / alpha) - 1)).", _celu, alpha=_ALPHA),
    _row("selu", "gamma * elu(x, alpha).", _selu, alpha=_ALPHA, gamma="outer scale, a number"),
    _row("leaky_relu", "x above 0, alpha x below.", _leaky_relu, alpha=_ALPHA),
    _row("thresholded_relu", "x above alpha, else 0.", _thresholded_relu, alpha="threshold, a number"),
    _row("shrink", "0 within lambd of 0, else x moved towards 0 by bias.", _shrink, lambd="threshold", bias="offset"),
    Composite(name="prelu", doc="x above 0, slope x below; the slope broadcasts.", operands=(2, 2), expand=_prelu),
    Composite(name="rsub", doc="y - x.", operands=(2, 2), expand=_reversed_sub),
    Composite(name="pow", doc="x ** y; 2, 3, 1/2, -1/2, -1 and 1 as cheaper primitives.", operands=(2, 2), expand=_pow),
)
