"""Seeds: where the kernel space was cut, the groups of quick policies join it.

A cut space may hold little but small groups. The policies below finish in about a second on graphs of any shape; their
groups are kernels like any other once priced, so the plan is at least as good as theirs.
"""

from dataclasses import replace

from fusesolve.candidates.pricing import Priced
from fusesolve.strategies import POLICIES, Context, realise

SEEDING: tuple[str, ...] = ("nvfuser", "inductor", "dp")


def seed_space(priced: Priced) -> Priced:
    """The priced space with the kernels of each seeding policy's partition beside its own."""
    for name in SEEDING:
        context = Context(priced)
        realised = realise(context, POLICIES[name](context))
        known = {(kernel.members, kernel.writes) for kernel in priced.space.kernels}
        fresh = [k for k in dict.fromkeys(realised.whole) if (k.members, k.writes) not in known]
        space = replace(realised.priced.space, kernels=(*priced.space.kernels, *fresh))
        priced = replace(realised.priced, space=space)
    return priced
