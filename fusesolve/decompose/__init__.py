"""Composites: operators that are written as primitives, so that the planner can find their fusions itself."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fusesolve.builder import GraphBuilder, check_call
from fusesolve.decompose.activations import ACTIVATIONS
from fusesolve.decompose.attention import ATTENTION
from fusesolve.decompose.emit import Composite, Emit
from fusesolve.decompose.layout import LAYOUT
from fusesolve.decompose.norms import NORMS
from fusesolve.errors import FusesolveError, InputError
from fusesolve.graph import AttrValue, Operand

__all__ = ["COMPOSITES", "Composite", "add_operator", "expand_composite"]

COMPOSITES: Mapping[str, Composite] = MappingProxyType(
    {row.name: row for family in (ACTIVATIONS, NORMS, ATTENTION, LAYOUT) for row in family}
)

_NO_ATTRS: Mapping[str, AttrValue] = MappingProxyType({})


def expand_composite(
    builder: GraphBuilder,
    name: str,
    inputs: Sequence[Operand],
    attrs: Mapping[str, AttrValue] = _NO_ATTRS,
    *,
    outputs: Sequence[str] | None = None,
    source: str = "",
) -> tuple[str, ...]:
    """Append the primitives of the composite `name`; returns the names of its results.

    `outputs` names the first results (further ones keep fresh names and are not returned); where it is None all
    results keep fresh names. A result that is an operand as it stands becomes a `copy` where it is named. Raises
    InputError, with the operator's name in front, where operands or attributes do not fit.
    """
    row = COMPOSITES[name]
    source = source or (outputs[0] if outputs else name)
    emit = Emit(builder, source)
    try:
        check_call(row, len(inputs), attrs)
        missing = [key for key, (required, _) in row.attrs.items() if required and key not in attrs]
        if missing:
            raise InputError(f"{name} needs the attribute {missing[0]}: {row.attrs[missing[0]][1]}")
        results = row.expand(emit, inputs, attrs)
    except FusesolveError as error:
        text = str(error)
        raise error.__class__(text if text.startswith(f"{source}: ") else f"{source}: {text}") from None
    named = list(results) if outputs is None else list(results[: len(outputs)])
    if outputs is not None and len(named) < len(outputs):
        raise InputError(f"{source}: {name} has {len(results)} results, {len(outputs)} names were given")
    given, seen, names = set(inputs), set[Operand](), []
    for position, result in enumerate(named):
        final = result
        if not isinstance(final, str) or ((final in given or final in seen) and outputs is not None):
            final = emit("copy", final)
        seen.add(result)
        names.append(builder.rename(final, outputs[position]) if outputs is not None else final)
    return tuple(names)


def add_operator(
    builder: GraphBuilder,
    name: str,
    inputs: Sequence[Operand],
    attrs: Mapping[str, AttrValue] = _NO_ATTRS,
    *,
    outputs: Sequence[str] | None = None,
    source: str = "",
) -> tuple[str, ...]:
    """Append the operator `name`, a composite or a primitive; composites come first where both exist (`pow`)."""
    if name in COMPOSITES:
        return expand_composite(builder, name, inputs, attrs, outputs=outputs, source=source)
    return builder.add(name, inputs, attrs, outputs=outputs, source=source)
