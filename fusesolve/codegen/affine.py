"""Index expressions: sums of loop variables times strides. From them come offsets, reshapes and range checks.

An `Affine` is `const + sum(coef * var)` over variables with `0 <= var < extent`. Reshapes are exact: an index is
flattened with the strides of one shape and taken apart with those of another, and where the parts do not separate
(`split` returns None) the caller divides at run time.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Var:
    """An unsigned variable of the emitted code, `0 <= name < extent`."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Affine:
    """`const + sum(coef * var)`; terms sorted by variable, no zero coefficients."""

    terms: tuple[tuple[Var, int], ...] = ()
    const: int = 0

    def __add__(self, other: "Affine") -> "Affine":
        found = dict(self.terms)
        for var, coef in other.terms:
            found[var] = found.get(var, 0) + coef
        return _made(found, self.const + other.const)

    def shifted(self, by: int) -> "Affine":
        """The expression plus a number."""
        return Affine(self.terms, self.const + by)

    def scaled(self, by: int) -> "Affine":
        """The expression times a number."""
        return Affine(tuple((var, coef * by) for var, coef in self.terms) if by else (), self.const * by)

    @property
    def low(self) -> int:
        """Least value."""
        return self.const + sum(min(0, coef * (var.extent - 1)) for var, coef in self.terms)

    @property
    def high(self) -> int:
        """Greatest value."""
        return self.const + sum(max(0, coef * (var.extent - 1)) for var, coef in self.terms)

    @property
    def names(self) -> frozenset[str]:
        """Names of the variables."""
        return frozenset(var.name for var, _ in self.terms)


ZERO = Affine()


def _made(terms: dict[Var, int], const: int) -> Affine:
    return Affine(tuple(sorted((var, coef) for var, coef in terms.items() if coef and var.extent > 1)), const)


def number(value: int) -> Affine:
    """A constant."""
    return Affine((), value)


def variable(var: Var) -> Affine:
    """A variable; 0 where its extent is 1."""
    return _made({var: 1}, 0)


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of a shape in elements."""
    found, step = [], 1
    for extent in reversed(shape):
        found.append(step)
        step *= max(1, extent)
    return tuple(reversed(found))


def flatten(index: Sequence[Affine], shape: Sequence[int]) -> Affine:
    """The row-major offset of an index into a dense tensor."""
    total = ZERO
    for part, step in zip(index, strides(shape), strict=True):
        total = total + part.scaled(step)
    return total


def split(offset: Affine, shape: Sequence[int]) -> tuple[Affine, ...] | None:
    """The index into `shape` of a flat offset; None where its terms do not separate along the shape's strides."""
    rest = dict(offset.terms)
    const = offset.const
    found: list[Affine] = []
    if const < 0 or any(coef < 0 for coef in rest.values()):
        return None
    for extent, step in zip(shape, strides(shape), strict=True):
        part = {var: coef // step for var, coef in rest.items() if coef % step == 0 and coef >= step}
        for var in part:
            del rest[var]
        whole, const = divmod(const, step)
        piece = _made(part, whole)
        inner = const + sum(coef * (var.extent - 1) for var, coef in rest.items())
        if piece.high >= max(extent, 1) or inner >= step:
            return None
        found.append(piece)
    return tuple(found)
