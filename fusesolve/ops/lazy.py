"""References by name: the NumPy implementations load at the first call, so that importing OPS stays light."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusesolve.graph import TensorType


@dataclass(frozen=True, slots=True)
class NumpyReference:
    """The reference of the operator `name`, found in `numpy_reference.REFERENCES` at the first call."""

    name: str

    def __call__(
        self, arrays: Sequence[Any], attrs: Mapping[str, Any], results: Sequence[TensorType]
    ) -> tuple[Any, ...]:
        """Result arrays of one call, exactly of the types `results`."""
        from fusesolve.ops.numpy_reference import run

        return run(self.name, arrays, attrs, results)
