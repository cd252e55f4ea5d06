"""Scalar expressions: one elementwise primitive on operands that are already in registers, as Python text.

f16, bf16 and f32 compute in f32, f64 in f64, integers and bool in their own type, wrapped by a conversion. Every
constant is converted, so that no Python number widens an expression. NaN passes through maxima, minima and clips as
it does in NumPy. Names such as `exp` and `rsqrt32` are made by the preamble of the generated file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusesolve.errors import FusesolveError
from fusesolve.graph import DType, Literal, Node, TensorType
from fusesolve.ops.rules import is_integer, promote_all
from fusesolve.reference import literal_array


class UnsupportedError(FusesolveError):
    """A group for which no source is written; the message says why. Such a group runs through the reference."""


def compute_type(dtype: DType) -> str:
    """The name of the type that values of `dtype` have in registers; UnsupportedError for 8-bit floats."""
    if dtype.value.startswith("f8"):
        raise UnsupportedError(f"{dtype.value} values are not supported in generated kernels")
    if dtype.is_float:
        return "f64" if dtype is DType.F64 else "f32"
    return "b1" if dtype is DType.BOOL else dtype.value


def constant(value: float | int | bool, kind: str) -> str:
    """A number in a register type; non-finite ones by name."""
    if kind == "b1":
        return "True" if value else "False"
    if kind in ("f32", "f64"):
        number = float(value)
        text = "nan" if number != number else "inf" if number == float("inf") else repr(number)
        return f"{kind}({'-inf' if number == float('-inf') else text})"
    return f"{kind}({int(value)})"


def literal_text(item: Literal, kind: TensorType) -> str:
    """A literal operand as the number that it is in its own type."""
    rounded = literal_array(item, kind).astype(float if kind.dtype.is_float else object).item()
    return constant(rounded, compute_type(kind.dtype))


def converted(text: str, source: str, target: str) -> str:
    """A value of register type `source` in register type `target`."""
    if source == target:
        return text
    if target == "b1":
        return f"({text} != {constant(0, source)})"
    return f"{target}({text})"


@dataclass(frozen=True, slots=True)
class Operation:
    """One primitive about to be written: operands in the type `kind` that it computes in, and its attributes."""

    args: tuple[str, ...]
    kind: str
    attrs: Mapping[str, Any]

    @property
    def floating(self) -> bool:
        """Whether it computes in a floating type."""
        return self.kind in ("f32", "f64")

    def number(self, value: float | int | bool) -> str:
        """A constant of the operation's type."""
        return constant(value, self.kind)


def _infix(sign: str, of_bool: str | None = None) -> Callable[[Operation], str]:
    def text(op: Operation) -> str:
        use = of_bool if of_bool is not None and op.kind == "b1" else sign
        return f" {use} ".join(op.args)

    return text


def _call(name: str) -> Callable[[Operation], str]:
    return lambda op: f"{name}({', '.join(op.args)})"


def _typed(name: str) -> Callable[[Operation], str]:
    """A function with one name per floating type; integers pass unchanged."""
    return lambda op: f"{name}{op.kind[1:]}({op.args[0]})" if op.floating else op.args[0]


def _greater(op: Operation) -> str:
    a, b = op.args
    return f"{a} if {a} >= {b} or {a} != {a} else {b}" if op.floating else f"{a} if {a} >= {b} else {b}"


def _lesser(op: Operation) -> str:
    a, b = op.args
    return f"{a} if {a} <= {b} or {a} != {a} else {b}" if op.floating else f"{a} if {a} <= {b} else {b}"


def _clip(op: Operation) -> str:
    text = op.args[0]
    if "min" in op.attrs:
        low = op.number(op.attrs["min"])
        text = f"({low} if {text} < {low} else {text})"
    if "max" in op.attrs:
        high = op.number(op.attrs["max"])
        text = f"({high} if {text} > {high} else {text})"
    return text


def _floats_only(text: Callable[[Operation], str], name: str) -> Callable[[Operation], str]:
    def guarded(op: Operation) -> str:
        if not op.floating:
            raise UnsupportedError(f"{name} of integers is not supported in generated kernels")
        return text(op)

    return guarded


def _remainder(op: Operation) -> str:
    a, b = op.args
    return f"{a} % {b}" if op.floating else f"({a} % {b} if {b} != {op.number(0)} else {op.number(0)})"


def _sign(op: Operation) -> str:
    x = op.args[0]
    if op.kind.startswith("u"):
        return f"{op.number(1)} if {x} > {op.number(0)} else {x}"
    return f"{op.number(1)} if {x} > {op.number(0)} else ({op.number(-1)} if {x} < {op.number(0)} else {x})"


def _quotient(op: Operation) -> str:
    a, b = op.args
    zero, one = op.number(0), op.number(1)
    exact = f"{a} % {b} == {zero} or ({a} < {zero}) == ({b} < {zero})"
    return f"({zero} if {b} == {zero} else ({a} // {b} if {exact} else {a} // {b} + {one}))"


def _power(op: Operation) -> str:
    """Of integers: repeated products that wrap; a negative power is what is left of a fraction, 0, 1 or -1."""
    a, b = op.args
    if op.floating:
        return f"pow({a}, {b})"
    if op.kind.startswith("u"):
        return f"{a} ** {b}"
    zero, one, less = op.number(0), op.number(1), op.number(-1)
    whole = f"{a} == {one} or ({a} == {less} and {b} & {one} == {zero})"
    left = f"({one} if {whole} else ({less} if {a} == {less} else {zero}))"
    return f"({a} ** {b} if {b} >= {zero} else {left})"


EXPRESSIONS: Mapping[str, Callable[[Operation], str]] = {
    "add": _infix("+", "|"), "sub": _infix("-"), "mul": _infix("*", "&"), "div": _infix("/"),
    "intdiv": _quotient, "pow": _power, "maximum": _greater, "minimum": _lesser,
    "mod": _remainder, "fmod": _floats_only(_call("fmod"), "fmod"), "atan2": _call("atan2"),
    "equal": _infix("=="), "not_equal": _infix("!="), "less": _infix("<"), "less_equal": _infix("<="),
    "greater": _infix(">"), "greater_equal": _infix(">="), "and": _infix("&"), "or": _infix("|"), "xor": _infix("^"),
    "shift_left": _infix("<<"), "shift_right": _infix(">>"),
    "neg": lambda op: f"-{op.args[0]}" if op.floating else f"{op.number(0)} - {op.args[0]}",
    "abs": lambda op: f"fabs({op.args[0]})" if op.floating else f"abs({op.args[0]})", "sign": _sign,
    "square": lambda op: f"{op.args[0]} * {op.args[0]}",
    "relu": lambda op: f"{op.number(0)} if {op.args[0]} < {op.number(0)} else {op.args[0]}",
    "floor": _typed("floor"), "ceil": _typed("ceil"), "round": _typed("rint"), "trunc": _typed("trunc"),
    "exp": _call("exp"), "expm1": _call("expm1"), "log": _call("log"), "log1p": _call("log1p"), "sqrt": _call("sqrt"),
    "rsqrt": _typed("rsqrt"), "reciprocal": lambda op: f"{op.number(1)} / {op.args[0]}", "tanh": _call("tanh"),
    "sigmoid": lambda op: f"{op.number(1)} / ({op.number(1)} + exp(-{op.args[0]}))", "erf": _call("erf"),
    "sin": _call("sin"), "cos": _call("cos"), "tan": _call("tan"), "asin": _call("asin"), "acos": _call("acos"),
    "atan": _call("atan"), "sinh": _call("sinh"), "cosh": _call("cosh"), "asinh": _call("asinh"),
    "acosh": _call("acosh"), "atanh": _call("atanh"),
    "not": lambda op: f"not {op.args[0]}" if op.kind == "b1" else f"~{op.args[0]}",
    "isnan": lambda op: f"{op.args[0]} != {op.args[0]}" if op.floating else "False",
    "isinf": lambda op: f"fabs({op.args[0]}) == {op.number(float('inf'))}" if op.floating else "False",
    "clip": _clip, "cast": lambda op: op.args[0], "copy": lambda op: op.args[0],
}  # fmt: skip
_RESULT_TYPED = frozenset({
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "tanh", "sigmoid", "erf", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "atan2", "div",
})  # fmt: skip
_TO_BOOL = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf"})


def elementwise_text(node: Node, texts: Sequence[str], types: Sequence[TensorType], result: TensorType) -> str:
    """The expression of an elementwise node, in the register type of its result.

    `texts` are its operands, each in the register type of its own type. UnsupportedError where there is none.
    """
    kinds = [compute_type(item.dtype) for item in types]
    goal = compute_type(result.dtype)
    if node.op == "where":
        a, b = (converted(texts[i], kinds[i], goal) for i in (1, 2))
        return f"{a} if {texts[0]} else {b}"
    if node.op not in EXPRESSIONS:
        raise UnsupportedError(f"{node.op} is not supported in generated kernels")
    kind = compute_type(promote_all([item.dtype for item in types]))
    if node.op in _RESULT_TYPED:
        kind = "f64" if goal == "f64" else "f32"
    args = tuple(converted(text, own, kind) for text, own in zip(texts, kinds, strict=True))
    text = EXPRESSIONS[node.op](Operation(args, kind, dict(node.attrs)))
    made = "b1" if node.op in _TO_BOOL else kind
    if made == goal:
        wraps = not result.dtype.is_float and is_integer(result.dtype) and node.op not in ("cast", "copy", "clip")
        return f"{goal}({text})" if wraps else text
    return converted(f"({text})", made, goal)
