"""Emitted source: lines with indentation, fresh names, and scopes in which what was computed can be used again."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fusesolve.codegen.affine import Affine, Var

INDENT = "    "


@dataclass(slots=True)
class _Scope:
    known: dict[Hashable, str] = field(default_factory=dict)
    masked: bool = False


class Source:
    """The body of one kernel while it is written.

    Names are made here and nowhere else: a prefix and a number. `recall` finds a value that an enclosing scope has
    computed; leaving a scope forgets what was computed in it.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.used: set[str] = set()
        self._count: dict[str, int] = {}
        self._scopes = [_Scope()]

    def fresh(self, prefix: str) -> str:
        """A new name."""
        number = self._count.get(prefix, 0)
        self._count[prefix] = number + 1
        return f"{prefix}{number}"

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self.lines.append(INDENT * self.depth + text)

    def value(self, text: str, prefix: str = "v") -> str:
        """Assign an expression to a new name and return the name."""
        name = self.fresh(prefix)
        self.line(f"{name} = {text}")
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block behind `head`, with a scope of its own."""
        self.line(head)
        self.depth += 1
        self._scopes.append(_Scope())
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self.line("pass")
        self._scopes.pop()
        self.depth -= 1

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A scope without a block: what is computed in it is forgotten behind it."""
        self._scopes.append(_Scope())
        yield
        self._scopes.pop()

    def recall(self, key: Hashable) -> str | None:
        """The name under which `key` was computed in an open scope, or None."""
        for scope in reversed(self._scopes):
            if key in scope.known:
                return scope.known[key]
        return None

    def keep(self, key: Hashable, name: str) -> str:
        """Remember that `key` is in `name` for the rest of the innermost scope."""
        self._scopes[-1].known[key] = name
        return name

    def index(self, expression: Affine) -> str:
        """An unsigned index expression as text; every number is u32 so that no signed integer enters it."""
        plus = [(var, coef) for var, coef in expression.terms if coef > 0]
        minus = [(var, -coef) for var, coef in expression.terms if coef < 0]
        self.used.update(expression.names)
        parts = [_term(var, coef) for var, coef in plus]
        if expression.const > 0 or not parts:
            parts.append(f"u32({max(expression.const, 0)})")
        text = " + ".join(parts)
        taken = [_term(var, coef) for var, coef in minus]
        if expression.const < 0:
            taken.append(f"u32({-expression.const})")
        return text + "".join(f" - {item}" for item in taken)


def _term(var: Var, coef: int) -> str:
    return var.name if coef == 1 else f"{var.name} * u32({coef})"
