"""Seeds: where the kernel space was cut, the groups of quick policies join it.

A cut space may hold little but small groups. The groups of the policies below are kernels like any other once priced;
the solve starts from the cheapest of their partitions, so the plan is at least as good as that, however little time is
left.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.space import Kernel
from fusesolve.strategies import POLICIES, Context, OutOfTimeError, Realised, realise

SEEDING: tuple[str, ...] = ("nvfuser", "inductor", "dp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """A priced space with the seeds beside its own kernels, and the kernels of a plan to start from, () for none."""

    priced: Priced
    start: tuple[Kernel, ...] = ()


def seed_space(priced: Priced, late: Callable[[], bool]) -> Seeded:
    """The priced space with the kernels of each seeding policy's partition beside its own.

    Once `late` returns True the policy that is at work is given up, and those behind it are not asked.
    """
    start: tuple[Kernel, ...] = ()
    least: int | None = None
    for name in SEEDING:
        context = Context(priced, late)
        try:
            realised = realise(context, POLICIES[name](context))
        except OutOfTimeError:
            break
        known = {(kernel.members, kernel.writes) for kernel in priced.space.kernels}
        fresh = [k for k in dict.fromkeys(realised.whole) if (k.members, k.writes) not in known]
        space = replace(realised.priced.space, kernels=(*priced.space.kernels, *fresh))
        priced = replace(realised.priced, space=space)
        cost = _cost(realised)
        if cost is not None and (least is None or cost < least):
            start, least = realised.whole, cost
    return Seeded(priced=priced, start=start)


def _cost(realised: Realised) -> int | None:
    """The time of a partition in ns, None where one of its groups is no kernel."""
    costs = [realised.priced.cost_ns[kernel.unique] for kernel in realised.whole]
    known = [cost for cost in costs if cost is not None]
    return None if realised.illegal or len(known) < len(costs) else sum(known)
