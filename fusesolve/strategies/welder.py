"""`welder`: grow groups output by output in topological order while the simulator says that it gains."""

from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members

STEP_LIMIT = 10  # operators beside the new output that one step may bring along


def grow_groups(context: Context) -> list[Members]:
    """Welder's breadth-first growth: from each operator not yet in a group, take in readers while the group gains.

    A step adds one reader of the group and the operators that it needs beside it (at most STEP_LIMIT, none of another
    group). A group where a tensor is both used inside and needed outside is refused (nothing is written that is also
    kept). The step stands if the group is a kernel and sum(alone) - group does not fall; where Welder tunes the group
    on the device, the simulator prices it. Nothing is computed twice. Source: Shi et al., "Welder: Scheduling deep
    learning memory access via tile-graph" (OSDI 2023), and NNFusion 00c13173, branch osdi2023welder.
    """
    taken: set[int] = set()
    groups: list[Members] = []
    for index in range(len(context.operators)):
        if index not in taken:
            group = _grow(context, index, taken)
            taken.update(group)
            groups.append(group)
    return groups


def _grow(context: Context, start: int, taken: set[int]) -> Members:
    group: Members = (start,)
    refused: set[int] = set()
    gain = 0
    while True:
        readers = sorted({r for m in group for r in context.succs[m]} - set(group) - refused)
        if not readers:
            return group
        step = _step(context, group, readers[0], taken)
        new_gain = None if step is None else _gain(context, step)
        if step is None or new_gain is None or new_gain < gain:
            refused.add(readers[0])
        else:
            group, gain = step, new_gain


def _step(context: Context, group: Members, output: int, taken: set[int]) -> Members | None:
    """The group with one more output and what that needs, or None where the step is refused."""
    _, descendants = context.reach
    inside = set(group)
    after = 0
    for member in group:
        after |= descendants[member]
    needed = {output}
    stack = [output]
    while stack:
        for maker in context.preds[stack.pop()]:
            on_path = after >> maker & 1
            if maker not in inside and maker not in needed and (on_path or _is_light(context, maker, taken)):
                needed.add(maker)
                stack.append(maker)
    if needed & taken or len(needed) > STEP_LIMIT + 1 or context.kind(output) is OpKind.OPAQUE:
        return None
    members = tuple(sorted(inside | needed))
    return members if context.is_convex(members) and not _both(context, members) else None


def _is_light(context: Context, index: int, taken: set[int]) -> bool:
    """An operator without producers of its own that is still free: it comes along with its reader."""
    return index not in taken and not context.preds[index] and context.is_pointwise(index)


def _both(context: Context, members: Members) -> bool:
    """Whether a tensor is read inside and needed outside."""
    inside = set(members)
    for member in members:
        for value in context.operators[member].writes:
            storage = context.program.storage[value]
            used = [r in inside for r in storage.readers]
            if any(used) and (storage.required or not all(used)):
                return True
    return False


def _gain(context: Context, members: Members) -> int | None:
    """Sum of the operators alone less the group, ns; None where one of them is no kernel."""
    together, *alone = context.costs([members, *((m,) for m in members)])
    if together is None or any(cost is None for cost in alone):
        return None
    return sum(cost for cost in alone if cost is not None) - together
