"""The meaning of a native graph's statements: what a declared type supplies, decompositions, opaque operators."""

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import COMPOSITES, add_operator
from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, DType, Literal, Operand, TensorType
from fusesolve.importers.native_syntax import Statement, bind_type, parse_attr, parse_number, unquote
from fusesolve.ops import OPS, OpKind

_TYPED = frozenset({"cast", "arange", "fill", "random_uniform"})
_SHAPED = frozenset({"reshape", "broadcast", "resize_nearest", "resize_linear"})
_METADATA_READERS = frozenset({"reshape", "broadcast", "fill", "random_uniform", "resize_nearest", "resize_linear"})
_KEEPDIMS = frozenset(
    {name for name, row in OPS.items() if row.kind is OpKind.REDUCE}
    | {name for name, row in COMPOSITES.items() if "keepdims" in row.attrs}
)
_WINDOWED = frozenset({"conv1d", "conv2d", "conv3d", "maxpool", "avgpool"})


class Lowering:
    """Turns statements, in topological order, into primitives of a builder."""

    def __init__(self, builder: GraphBuilder, bind: Mapping[str, int], *, strict: bool) -> None:
        self.builder = builder
        self.bind = bind
        self.strict = strict
        self._metadata: dict[str, TensorType] = {}
        self._opaque: dict[str, list[str]] = {}

    def lower(self, statement: Statement) -> None:
        """Append one statement; InputError, with its file and line, where it does not fit."""
        try:
            self._lower(statement)
        except InputError as error:
            raise InputError(f"{statement.where}: {error} in {statement.text!r}") from None

    def finish(self) -> None:
        """Leave the warnings about opaque operators with the builder, one per kind."""
        for kind, names in self._opaque.items():
            shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            self.builder.warn(f"{kind} is unknown and becomes an opaque kernel, priced by its bytes: {shown}")

    def _lower(self, statement: Statement) -> None:
        types = [bind_type(item, self.bind) for item in statement.types]
        attrs = {name: parse_attr(value, self.bind) for name, value in statement.attrs.items()}
        if statement.op == "shape":
            self._shape(statement, types)
        elif statement.op in COMPOSITES or (statement.op in OPS and statement.op != "opaque"):
            self._known(statement, types, attrs)
        else:
            self._unknown(statement, types, attrs)
        self._mark(statement)

    # shape: known while planning

    def _shape(self, statement: Statement, types: Sequence[TensorType]) -> None:
        (result,) = statement.results
        rank = len(self.builder.type(statement.operands[0]).shape) if len(statement.operands) == 1 else -1
        if rank < 0:
            raise InputError("shape takes one operand")
        self._metadata[result] = types[0] if types else TensorType(DType.I64, (rank,))

    def _operands(self, statement: Statement) -> list[Operand]:
        """Operands without those that only carry a shape; a shape read as data becomes a constant of the model."""
        kept: list[Operand] = []
        for item in statement.operands:
            if isinstance(item, str) and item in self._metadata and item not in self.builder:
                if statement.op in _METADATA_READERS:
                    continue
                self.builder.input(item, self._metadata[item], weight=True)
            kept.append(item)
        return kept

    # known operators

    def _known(self, statement: Statement, types: Sequence[TensorType], attrs: dict[str, AttrValue]) -> None:
        operands = self._operands(statement)
        source = self._source(statement)
        exact = source is not None
        if "const" in attrs and not self._takes(statement.op, "const"):
            value = attrs.pop("const")
            if isinstance(value, str | tuple):
                raise InputError(f"const must be a number, not {value!r}")
            operands.append(Literal(value))
        if types:
            if statement.op == "gather_elements":
                operands = self._lifted(operands, types[0], statement)
            attrs |= open_attrs(self.builder, statement.op, operands, attrs, types[0])
        if statement.op == "split" and "sizes" not in attrs and "parts" not in attrs:
            attrs["parts"] = len(statement.results)
        source = source or statement.results[0]
        if exact and statement.op in OPS:
            found = self.builder.add(statement.op, operands, attrs, source=source)
        else:
            found = add_operator(self.builder, statement.op, operands, attrs, source=source)
        if len(found) < len(statement.results) or (len(found) > len(statement.results) and statement.op in OPS):
            raise InputError(f"{statement.op} gives {len(found)} results, not {len(statement.results)}")
        for index, result in enumerate(statement.results):
            declared = types[index] if types else None
            self._name(found[index], result, declared, statement, source)

    def _lifted(self, operands: list[Operand], declared: TensorType, statement: Statement) -> list[Operand]:
        """Operands of gather_elements, the index under the declared shape where it lacks axes of extent 1."""
        if len(operands) != 2 or not isinstance(operands[1], str):
            return operands
        index = self.builder.type(operands[1]).shape
        if len(index) >= len(declared.shape) or _solid(index) != _solid(declared.shape):
            return operands
        source = self._source(statement) or statement.results[0]
        return [operands[0], self.builder.one("reshape", [operands[1]], {"to": declared.shape}, source=source)]

    def _name(
        self, found: str, result: str, declared: TensorType | None, statement: Statement, source: str
    ) -> None:
        """Give the computed value `found` the statement's name, cast or reshaped to the declared type first."""
        builder = self.builder
        actual = builder.type(found)
        if declared is not None and declared.shape != actual.shape:
            if statement.op not in _KEEPDIMS or _solid(declared.shape) != _solid(actual.shape):
                raise InputError(f"declared {declared}, but {statement.op} gives {actual}")
            found = builder.one("reshape", [found], {"to": declared.shape}, source=source)
        if declared is not None and declared.dtype is not actual.dtype:
            found = builder.one("cast", [found], {"to": declared.dtype.value}, source=source)
        if found in statement.operands:
            found = builder.one("copy", [found], source=source)
        builder.rename(found, result)

    @staticmethod
    def _takes(op: str, attr: str) -> bool:
        row = COMPOSITES.get(op) or OPS[op]
        return attr in row.attrs

    # unknown operators

    def _unknown(self, statement: Statement, types: Sequence[TensorType], attrs: dict[str, AttrValue]) -> None:
        kind = str(attrs.pop("kind", statement.op)) if statement.op == "opaque" else statement.op
        if not types:
            near = get_close_matches(kind, [*OPS, *COMPOSITES], 2)
            hint = f"; did you mean {' or '.join(near)}?" if near and not kind.startswith("opaque") else ""
            raise InputError(f"{kind} is no operator that fusesolve knows: declare its result's type{hint}")
        if self.strict:
            raise InputError(f"{kind} is no operator that fusesolve knows, and unknown operators are refused (strict)")
        source = self._source(statement) or statement.results[0]
        self.builder.add(
            "opaque", self._operands(statement), attrs | {"kind": kind}, outputs=statement.results, source=source,
            types=types,
        )  # fmt: skip
        self._opaque.setdefault(kind, []).append(statement.results[0])

    # attributes of values

    @staticmethod
    def _source(statement: Statement) -> str | None:
        """The source operator that the first result's type names, or None."""
        if not statement.types or "source" not in statement.types[0].attrs:
            return None
        text = statement.types[0].attrs["source"]
        return unquote(text) if text[:1] == '"' else text

    def _mark(self, statement: Statement) -> None:
        for result, declared in zip(statement.results, statement.types, strict=False):
            if not declared.attrs:
                continue
            storage = storage_attrs(declared.attrs, self.bind, allowed=("external", "strides", "source"))
            if storage and result in self.builder:
                self.builder.mark(result, external=storage.external, strides=storage.strides)


class Storage:
    """The storage attributes of a value: `alias_out`, `external`, `strides` in elements."""

    def __init__(self, alias_out: str | None, external: bool, strides: tuple[int, ...] | None) -> None:
        self.alias_out = alias_out
        self.external = external
        self.strides = strides

    def __bool__(self) -> bool:
        return self.alias_out is not None or self.external or self.strides is not None


def storage_attrs(attrs: Mapping[str, str], bind: Mapping[str, int], *, allowed: Sequence[str]) -> Storage:
    """The attributes after a type, understood; InputError where one is not among `allowed` or has a wrong form."""
    for name in attrs:
        if name not in allowed:
            raise InputError(f"unknown attribute {name!r} of a value; it may be {', '.join(allowed)}")
    alias = attrs.get("alias_out")
    external = parse_number(attrs.get("external", "0"))
    if external not in (0, 1):
        raise InputError(f"external must be 0 or 1, not {attrs['external']}")
    strides = parse_attr(attrs["strides"], bind) if "strides" in attrs else None
    if isinstance(strides, int) and not isinstance(strides, bool):
        strides = (strides,)
    if strides is not None and not isinstance(strides, tuple):
        raise InputError(f"strides must be whole numbers joined by '-', not {attrs['strides']}")
    return Storage(unquote(alias) if alias and alias[0] == '"' else alias, bool(external), strides)


def _solid(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)


def open_attrs(
    builder: GraphBuilder,
    op: str,
    operands: Sequence[Operand],
    attrs: Mapping[str, AttrValue],
    declared: TensorType,
) -> dict[str, AttrValue]:
    """The attributes that are left open and that the declared result type supplies."""
    found: dict[str, AttrValue] = {}
    if op in _TYPED and "to" not in attrs:
        found["to"] = declared.dtype.value
    if op in _SHAPED and "to" not in attrs:
        found["to"] = declared.shape
    if op in ("fill", "random_uniform") and "shape" not in attrs:
        found["shape"] = declared.shape
    if op == "arange" and "n" not in attrs and "end" not in attrs and len(declared.shape) == 1:
        found["n"] = declared.shape[0]
    if not operands:
        return found
    shape = builder.type(operands[0]).shape
    if op in _KEEPDIMS and "keepdims" not in attrs:
        found["keepdims"] = len(declared.shape) == len(shape) and len(shape) > 0
    elif op in ("squeeze", "unsqueeze") and "axis" not in attrs:
        found["axis"] = _unit_axes(shape, declared.shape) if op == "squeeze" else _unit_axes(declared.shape, shape)
    elif op in _WINDOWED and "pad" not in attrs:
        found |= _open_window(builder, op, operands, attrs, declared)
    return found


def _unit_axes(longer: tuple[int, ...], shorter: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of extent 1 whose removal makes `shorter` of `longer`; () where there are none."""
    axes: list[int] = []
    for axis, extent in enumerate(longer):
        position = axis - len(axes)
        if extent == 1 and (position >= len(shorter) or shorter[position] != 1):
            axes.append(axis)
    return tuple(axes)


def _open_window(
    builder: GraphBuilder,
    op: str,
    operands: Sequence[Operand],
    attrs: Mapping[str, AttrValue],
    declared: TensorType,
) -> dict[str, AttrValue]:
    """Stride and padding, where they are left open, that give the declared extents; nothing where none do.

    The least stride that fits is taken, with the least padding, its odd element behind.
    """
    shape = builder.type(operands[0]).shape
    rank = len(shape) - 2
    kernel = builder.type(operands[1]).shape[2:] if op.startswith("conv") and len(operands) > 1 else attrs.get("k", ())
    sizes = [_per_axis(item, rank) for item in (kernel, attrs.get("dilation", 1), attrs.get("stride", 1))]
    if rank < 1 or any(len(item) != rank for item in sizes) or len(declared.shape) != rank + 2:
        return {}
    spans = [dilation * (k - 1) + 1 for k, dilation in zip(sizes[0], sizes[1], strict=True)]
    steps = [range(1, extent + 1) for extent in shape[2:]] if "stride" not in attrs else [(step,) for step in sizes[2]]
    fits = list(map(_fit, declared.shape[2:], shape[2:], spans, steps))
    found = [fit for fit in fits if fit is not None]
    if len(found) < rank:
        return {}
    pads = [pad for _, pad in found]
    return {
        "stride": tuple(stride for stride, _ in found),
        "pad": (*(pad // 2 for pad in pads), *(math.ceil(pad / 2) for pad in pads)),
    }


def _fit(count: int, extent: int, span: int, strides: Sequence[int]) -> tuple[int, int] | None:
    """The first of `strides` at which `span` takes `count` positions in `extent`, and the padding that it needs."""
    for stride in strides:
        pad = max(0, (count - 1) * stride + span - extent)
        if stride > 0 and (extent + pad - span) // stride + 1 == count:
            return stride, pad
    return None


def _per_axis(value: object, rank: int) -> tuple[int, ...]:
    """`value` for each of `rank` axes; of another length, or (), where it is not that."""
    items = value if isinstance(value, tuple) else (value,) * max(rank, 0)
    return tuple(item for item in items if isinstance(item, int))
