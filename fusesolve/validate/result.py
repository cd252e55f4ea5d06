"""What a validation found: one row per kernel and the verdict on the plan, as `fusesolve-validation/1`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORMAT = "fusesolve-validation/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResult:
    """One kernel. What a step does not give is None.

    `ok` is None where the step says nothing about this kernel (an opaque operator has no reference; a kernel behind
    a failed one was not reached). `error` and `tolerance` as in `fusesolve.validate.oracle`. `generated` is false for
    library and opaque kernels. `ratio` is measured by predicted time, where the plan is for the device that ran.
    `note` says in words what is wrong or why the kernel was not judged.
    """

    id: int
    nodes: tuple[str, ...]
    ok: bool | None
    generated: bool
    error: float | None = None
    tolerance: float | None = None
    predicted: Mapping[str, Any] | None = None
    compiled: Mapping[str, Any] | None = None
    measured: Mapping[str, Any] | None = None
    ratio: float | None = None
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The kernel's row in the document."""
        return {
            "id": self.id, "ok": self.ok, "error": self.error, "tolerance": self.tolerance, "generated": self.generated,
            "predicted": None if self.predicted is None else dict(self.predicted),
            "compiled": None if self.compiled is None else dict(self.compiled),
            "measured": None if self.measured is None else dict(self.measured),
            "ratio": self.ratio, "note": self.note,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """One step over one plan. `ok` is False where a kernel, or the plan as a whole (`fault`), fails.

    `extents` says at which extents the step ran: those of the plan, or shrunk ones. `target` is what was compiled for
    or run on, None for NumPy. `agreement`: shares of the compiled kernels whose predicted numbers are right.
    `spearman`, `median_ape`: rank correlation and median error of predicted against measured times of the groups.
    `winner`: the plan against its source operators one by one, predicted and measured (`Winner`).
    """

    on: str
    plan: str
    target: str | None
    ok: bool
    extents: str
    groups: tuple[KernelResult, ...]
    fault: str | None = None
    agreement: Mapping[str, Any] | None = None
    spearman: float | None = None
    median_ape: float | None = None
    winner: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The `fusesolve-validation/1` document as plain data, keys in a fixed order."""
        return {
            "format": FORMAT, "on": self.on, "plan": self.plan, "target": self.target, "ok": self.ok,
            "fault": self.fault, "extents": self.extents,
            "groups": [item.to_dict() for item in self.groups], "spearman": self.spearman,
            "median_ape": self.median_ape, "winner": None if self.winner is None else dict(self.winner),
            "agreement": None if self.agreement is None else dict(self.agreement),
        }  # fmt: skip

    def failure(self) -> str | None:
        """The first failure in one line, with the group's number and operators; None where all is well."""
        for item in self.groups:
            if item.ok is False:
                names = ", ".join(item.nodes[:4]) + (", ..." if len(item.nodes) > 4 else "")
                return f"group {item.id} ({names}) fails --on {self.on}: {item.note}"
        return self.fault
