"""Fusion policies of other compilers, each written from its published rules, over one program and one simulator.

A policy returns groups of operators; the same operator may be in several where the policy computes it again. What a
policy thinks of times is its own; what its groups cost is the simulator's verdict (`realise`).
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from fusesolve.strategies.chains import fuse_chains
from fusesolve.strategies.context import Context, Members, OutOfTimeError
from fusesolve.strategies.greedy import fuse_edges
from fusesolve.strategies.inductor import fuse_pairs
from fusesolve.strategies.iree import form_dispatches
from fusesolve.strategies.mincut import fuse_by_cuts
from fusesolve.strategies.nvfuser import fuse_accepted
from fusesolve.strategies.realise import Illegal, Realised, realise
from fusesolve.strategies.tinygrad import inline_by_default
from fusesolve.strategies.tvm import fuse_dominated
from fusesolve.strategies.welder import grow_groups
from fusesolve.strategies.xla import fuse_by_priority

Policy: TypeAlias = Callable[[Context], list[Members]]

# Name -> policy. `cpsat` and `unfused` choose among the columns of the space: they are in `fusesolve.solve`.
POLICIES: Mapping[str, Policy] = {
    "greedy": fuse_edges,
    "dp": fuse_chains,
    "mincut": fuse_by_cuts,
    "xla": fuse_by_priority,
    "inductor": fuse_pairs,
    "tvm": fuse_dominated,
    "nvfuser": fuse_accepted,
    "welder": grow_groups,
    "iree": form_dispatches,
    "tinygrad": inline_by_default,
}

__all__ = ["POLICIES", "Context", "Illegal", "Members", "OutOfTimeError", "Policy", "Realised", "realise"]
