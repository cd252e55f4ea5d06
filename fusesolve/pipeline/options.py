"""What a caller may ask of a plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fusesolve.errors import InputError
from fusesolve.pipeline.levels import check_objective

LAUNCH_MODES = ("stream", "graph")
IMPLEMENTATIONS = ("best", "library", "generated")
SIMULATORS = ("closed", "events")
VERIFIERS = ("none", "compile")
MOST_STREAMS = 128  # hardware queues of a CUDA device (CUDA C++ Programming Guide, concurrent kernels)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Everything that can change a plan, apart from the graph and the profile.

    `together`, `apart`: sets of operator names that must (not) share a kernel. `max_memory`: bytes of peak memory.
    `max_kernels`: most kernels. `work_limit`: units of deterministic solver work. `seed` >= 0. `simulate`: "events"
    runs the finished plan through the event simulator too. `streams` >= 1 that kernels may run on.
    `verify`: "compile" puts what the CUDA compiler makes of
    chosen kernels and runners-up in place of predicted resources. `objective`: levels, the first "latency"; of the
    fastest plans the one of the least "dram" bytes or of the fewest "kernels" is taken, in their order.
    """

    strategy: str = "cpsat"
    objective: tuple[str, ...] = ("latency",)
    recompute: bool = True
    launch: str = "stream"
    implementation: str = "best"
    together: tuple[tuple[str, ...], ...] = ()
    apart: tuple[tuple[str, ...], ...] = ()
    max_memory: int | None = None
    max_kernels: int | None = None
    as_dtype: str | None = None
    work_limit: float | None = None
    seed: int = 0
    simulate: str = "closed"
    streams: int = 1
    verify: str = "none"

    def check(self) -> None:
        """Raise InputError at the first option whose value is not one of its choices."""
        choices = (
            ("launch", self.launch, LAUNCH_MODES), ("implementation", self.implementation, IMPLEMENTATIONS),
            ("simulate", self.simulate, SIMULATORS), ("verify", self.verify, VERIFIERS),
        )  # fmt: skip
        for name, value, allowed in choices:
            if value not in allowed:
                raise InputError(f"{name} {value!r}: choose one of {', '.join(allowed)}")
        check_objective(self.objective, self.strategy, self.streams)
        if not 1 <= self.streams <= MOST_STREAMS:
            raise InputError(f"streams {self.streams}: expected an integer from 1 to {MOST_STREAMS}")
        for name, count in (("max_memory", self.max_memory), ("max_kernels", self.max_kernels)):
            if count is not None and count < 1:
                raise InputError(f"{name} {count}: expected an integer of at least 1")
        for name, sets in (("together", self.together), ("apart", self.apart)):
            for names in sets:
                if len(set(names)) < 2:
                    raise InputError(f"{name} {','.join(names)}: name at least two different operators")

    def to_dict(self) -> dict[str, Any]:
        """The options as plain data, in a fixed order; what came later only where it is not the default."""
        found: dict[str, Any] = {
            "strategy": self.strategy, "recompute": self.recompute, "launch": self.launch,
            "implementation": self.implementation, "together": [list(s) for s in self.together],
            "apart": [list(s) for s in self.apart], "max_memory": self.max_memory, "max_kernels": self.max_kernels,
            "as_dtype": self.as_dtype, "work_limit": self.work_limit, "seed": self.seed,
        }  # fmt: skip
        if len(self.objective) > 1:
            found["objective"] = list(self.objective)
        if self.simulate != "closed":
            found["simulate"] = self.simulate
        if self.streams != 1:
            found["streams"] = self.streams
        if self.verify != "none":
            found["verify"] = self.verify
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Progress of a running plan: the stage, kernels found so far, best objective and proven bound in ns."""

    stage: str
    candidates: int | None = None
    incumbent: int | None = None
    bound: int | None = None


Report = Callable[[Event], None]
Bindings = Mapping[str, int]
