"""How fast blocks run while they share a unit's pipes, the L2 cache and DRAM. Compiled: plain loops over tables."""

from fusesolve.cost.events.compiled import compiled
from fusesolve.cost.events.tables import Counts, Records
from fusesolve.cost.table import Array

UNSET = -1.0
SMALL = 1e-15  # seconds; keeps divisors above zero


@compiled
def soft_maximum(power: float, first: float, second: float) -> float:
    """(a^p + b^p)^(1/p), both >= 0."""
    top = max(first, second)
    if top <= 0.0:
        return 0.0
    ratio = min(first, second) / top
    if ratio < 1e-4:
        return top
    return float(top * (1.0 + ratio**power) ** (1.0 / power))


@compiled
def fair_share(own: int, slots: Records, beside: Counts, row: int) -> float:
    """Share of a resource that each block of slot `own` may take: max-min fair among the blocks that use it.

    `beside[row, s]` blocks of slot s want `slots[s].demand` of the resource each. The others take no more than they
    want, what they leave is for the rest. Alone, n blocks get 1/n each.
    """
    blocks = 0
    for slot in range(len(slots)):
        blocks += beside[row, slot]
    level = 1.0 / max(blocks, 1)
    for _ in range(len(slots)):
        taken, sharers = 0.0, float(beside[row, own])
        for other in range(len(slots)):
            if other != own and beside[row, other] > 0:
                if slots[other].demand < level:
                    taken += beside[row, other] * slots[other].demand
                else:
                    sharers += beside[row, other]
        higher = (1.0 - taken) / sharers
        if higher <= level * (1.0 + 1e-12):
            break
        level = higher
    return level


@compiled
def share_memory(kernels: Records, blocks: Records, slots: Records, beside: Counts) -> None:
    """Fill `memory` and `private` of every slot that has blocks on units (last row of `beside`: how many)."""
    whole, busy = len(beside) - 1, 0
    for slot in range(len(slots)):
        if beside[whole, slot] > 0:
            busy += 1
            work = blocks[2 * slots[slot].kernel]
            crowd = beside[whole, slot] / max(slots[slot].units, 1)
            slots[slot].private = max(crowd * max(work.vector, work.tensor), work.latency, SMALL)
    for slot in range(len(slots)):
        if beside[whole, slot] > 0:
            kernel = kernels[slots[slot].kernel]
            if busy == 1:
                slots[slot].memory = beside[whole, slot] * (kernel.dram + kernel.l2)
                return
            for other in range(len(slots)):
                if beside[whole, other] > 0:
                    slots[other].demand = kernels[slots[other].kernel].dram / slots[other].private
            seconds = kernel.dram / fair_share(slot, slots, beside, whole)
            for other in range(len(slots)):
                if beside[whole, other] > 0:
                    slots[other].demand = kernels[slots[other].kernel].l2 / slots[other].private
            slots[slot].memory = seconds + kernel.l2 / fair_share(slot, slots, beside, whole)


@compiled
def set_speeds(
    kernels: Records, blocks: Records, slots: Records, units: Records, beside: Counts, entries: Records, size: int,
    known: Array,
) -> None:  # fmt: skip
    """Speeds of the first `size` entries. `beside[u, s]`: blocks of slot s on unit u.

    Blocks that have a unit to themselves are alike where their number is: `known[slot, last, number]` keeps their
    seconds, and is cleared here.
    """
    for slot in range(len(slots)):
        for number in range(known.shape[2]):
            known[slot, 0, number] = known[slot, 1, number] = UNSET
    for place in range(size):
        entry = entries[place]
        kernel, work = kernels[slots[entry.slot].kernel], blocks[2 * slots[entry.slot].kernel + entry.last]
        number = beside[entry.unit, entry.slot]
        alone = number == units[entry.unit].blocks
        seconds = known[entry.slot, entry.last, number] if alone else UNSET
        if seconds < 0.0:
            if alone:
                pipes = number * max(work.vector, work.tensor)
            else:
                pipes = _shared_pipes(work, kernels, blocks, slots, beside, entry.unit, entry.slot)
            memory = slots[entry.slot].memory
            if kernel.outer == 0.0:
                seconds = soft_maximum(kernel.inner, memory, max(work.latency, pipes))
            else:
                seconds = soft_maximum(kernel.outer, soft_maximum(kernel.inner, memory, work.latency), pipes)
            seconds = max(seconds, SMALL)
            if alone:
                known[entry.slot, entry.last, number] = seconds
        entries[place].speed = 1.0 / seconds


@compiled
def _shared_pipes(
    work: Records, kernels: Records, blocks: Records, slots: Records, beside: Counts, unit: int, slot: int
) -> float:
    """Seconds that a block of a slot spends on the slower of its pipes, on a unit that others use too."""
    longest = 0.0
    for tensor in range(2):
        own = work.tensor if tensor else work.vector
        if own > 0.0:
            for other in range(len(slots)):
                if beside[unit, other] > 0:
                    rival = blocks[2 * slots[other].kernel]
                    alone = soft_maximum(kernels[slots[other].kernel].inner, slots[other].memory, rival.latency)
                    slots[other].demand = (rival.tensor if tensor else rival.vector) / max(alone, SMALL)
            longest = max(longest, own / fair_share(slot, slots, beside, unit))
    return longest
