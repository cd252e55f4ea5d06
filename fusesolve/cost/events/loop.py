"""The event loop: kernels open when launch and predecessors allow, blocks fill units, time jumps to the next end.

Blocks share the pipes of their unit, the L2 cache and DRAM. Compiled: plain loops over the tables of
`fusesolve.cost.events.tables`. All compiled code is in this file: Numba compiles anew where the file has changed.
"""

import numpy as np

from fusesolve.cost.events.compiled import compiled
from fusesolve.cost.events.tables import COMING, ENDING, RUNNING, WAITING, Counts, Records
from fusesolve.cost.table import Array

NEVER = 1e300  # seconds
ROUNDING = 1e-9  # share of a block's work that counts as done
UNSET = -1.0
SMALL = 1e-15  # seconds; keeps divisors above zero


@compiled
def run(
    kernels: Records, blocks: Records, after: Counts, across: float, capacity: Records, slots: Records,
    units: Records, beside: Counts, entries: Records, known: Array,
) -> int:  # fmt: skip
    """Fill `start` and `end` of every kernel (s); returns the number of events. See `fusesolve.cost.events.tables`.

    `after`: successors, those of kernel k from `kernels[k].first` on; `across`: seconds more that a kernel waits for
    one of another stream. `capacity`: the room of one unit (one UNIT record). Zeroed tables to work on: `slots`,
    `units`, `beside` (blocks of each slot on each unit, and in all in a last row), `entries` (a row for each block
    that could be on a unit at once), `known` (see `set_speeds`). Kernels that wait in a circle keep their end.
    """
    for slot in range(len(slots)):
        slots[slot].kernel = slots[slot].queue = -1
    for kernel in range(len(kernels)):
        kernels[kernel].ready = kernels[kernel].issued
        if kernels[kernel].wanted == 0:
            _announce(kernel, kernels, slots)
    now, size, events = 0.0, int(np.int64(0)), 0
    while True:
        _turn(now, kernels, after, across, slots, beside)
        size = _fill(kernels, slots, units, beside, entries, size, capacity)
        share_memory(kernels, blocks, slots, beside)
        set_speeds(kernels, blocks, slots, units, beside, entries, size, known)
        now = _skip_waves(now, kernels, slots, entries, size, len(units))
        step = _next_step(now, slots, entries, size)
        if step >= NEVER:
            break
        events += 1
        now += step
        size = _advance(step, kernels, slots, units, beside, entries, size)
    return events


@compiled
def _announce(kernel: int, kernels: Records, slots: Records) -> None:
    """Nothing is in the way of `kernel` but time: give it its slot."""
    slot = kernels[kernel].slot
    kernels[kernel].start = kernels[kernel].ready
    slots[slot].kernel = kernel
    slots[slot].phase = COMING
    slots[slot].until = kernels[kernel].ready + kernels[kernel].head


@compiled
def _turn(
    now: float, kernels: Records, after: Counts, across: float, slots: Records, beside: Counts
) -> None:
    """Pass kernels whose phase ends now to their next phase, as long as there are any."""
    whole, moved = len(beside) - 1, True
    while moved:
        moved = False
        for number in range(len(slots)):
            slot = slots[number]
            if slot.phase == COMING and slot.until <= now:
                moved = True
                slot.phase = RUNNING
                slot.left = kernels[slot.kernel].blocks
                _push(slots, number)
            if slot.phase == RUNNING and slot.left == 0 and beside[whole, number] == 0:
                moved = True
                slot.phase = ENDING
                slot.until = now + kernels[slot.kernel].post
                _drop(slots, number)
            if slot.phase == ENDING and slot.until <= now:
                moved = True
                kernel = slot.kernel
                kernels[kernel].end = now
                slot.phase = WAITING
                slot.kernel = -1
                _release(kernel, now, kernels, after, across, slots)


@compiled
def _release(kernel: int, now: float, kernels: Records, after: Counts, across: float, slots: Records) -> None:
    """`kernel` has ended: its successors have one thing less to wait for."""
    stop = kernels[kernel + 1].first if kernel + 1 < len(kernels) else len(after)
    for place in range(kernels[kernel].first, stop):
        follower = kernels[after[place]]
        gap = follower.gap
        if follower.stream != kernels[kernel].stream:
            gap += across
        follower.ready = max(follower.ready, now + gap)
        follower.wanted -= 1
        if follower.wanted == 0:
            _announce(after[place], kernels, slots)


@compiled
def _push(slots: Records, number: int) -> None:
    for place in range(len(slots)):
        if slots[place].queue < 0:
            slots[place].queue = number
            return


@compiled
def _drop(slots: Records, number: int) -> None:
    kept = 0
    for place in range(len(slots)):
        found = slots[place].queue
        slots[place].queue = -1
        if found >= 0 and found != number:
            slots[kept].queue = found
            kept += 1


@compiled
def _fill(
    kernels: Records, slots: Records, units: Records, beside: Counts, entries: Records, size: int, capacity: Records
) -> int:
    """Give waiting blocks to units that have room, those of the kernel that opened first before the others'.

    Returns the number of entries.
    """
    for place in range(len(slots)):
        number = slots[place].queue
        if number < 0:
            break
        kernel = kernels[slots[number].kernel]
        for last in range(2):
            begun = kernel.blocks - slots[number].left
            wanted = kernel.tail - begun if last == 0 else slots[number].left
            if wanted > 0 and (last == 0 or begun >= kernel.tail):
                _share_out(wanted, number, kernel, units, beside, capacity)
                for unit in range(len(units)):
                    given = units[unit].given
                    if given > 0:
                        entry = entries[size]
                        entry.unit, entry.slot, entry.last, entry.count, entry.todo = unit, number, last, given, 1.0
                        _hold(unit, number, given, kernel, slots, units, beside)
                        slots[number].left -= given
                        size += 1
    return size


@compiled
def _share_out(wanted: int, slot: int, kernel: Records, units: Records, beside: Counts, capacity: Records) -> None:
    """Blocks for each unit: all that fit, or `wanted` in all so that no unit has many more warps than another."""
    room = 0
    for unit in range(len(units)):
        held = units[unit]
        found = min(kernel.most - beside[unit, slot], capacity[0].blocks - held.blocks)
        found = min(found, (capacity[0].warps - held.warps) // max(kernel.warps, 1))
        found = min(found, (capacity[0].registers - held.registers) // max(kernel.registers, 1))
        held.given = max(0, min(found, (capacity[0].shared - held.shared) // max(kernel.shared, 1)))
        room += held.given
    while room > wanted:  # take back from the units that would have the most warps, the last ones first
        most = 0
        for unit in range(len(units)):
            if units[unit].given > 0:
                most = max(most, units[unit].warps + units[unit].given * kernel.warps)
        for back in range(len(units)):
            held = units[len(units) - 1 - back]
            if room > wanted and held.given > 0 and held.warps + held.given * kernel.warps == most:
                held.given -= 1
                room -= 1


@compiled
def _hold(
    unit: int, slot: int, count: int, kernel: Records, slots: Records, units: Records, beside: Counts
) -> None:
    """`count` more blocks of a slot's kernel on a unit (fewer where negative)."""
    before = beside[unit, slot]
    beside[unit, slot] += count
    beside[len(units), slot] += count
    if before == 0:
        slots[slot].units += 1
    elif beside[unit, slot] == 0:
        slots[slot].units -= 1
    held = units[unit]
    held.blocks += count
    held.warps += count * kernel.warps
    held.registers += count * kernel.registers
    held.shared += count * kernel.shared


@compiled
def _next_step(now: float, slots: Records, entries: Records, size: int) -> float:
    """Seconds to the next end of a phase or of some blocks."""
    step = NEVER
    for number in range(len(slots)):
        if slots[number].phase == COMING or slots[number].phase == ENDING:
            step = min(step, max(slots[number].until - now, 0.0))
    for place in range(size):
        step = min(step, entries[place].todo / entries[place].speed)
    return step


@compiled
def _advance(
    step: float, kernels: Records, slots: Records, units: Records, beside: Counts, entries: Records, size: int
) -> int:
    """Let all blocks run for `step` seconds; those that are done leave their units. Returns the number of entries."""
    kept = 0
    for place in range(size):
        entry = entries[place]
        todo = entry.todo - step * entry.speed
        if todo <= ROUNDING:
            _hold(entry.unit, entry.slot, -entry.count, kernels[slots[entry.slot].kernel], slots, units, beside)
        else:
            entries[kept] = entry
            entries[kept].todo = todo
            kept += 1
    return kept


@compiled
def _skip_waves(now: float, kernels: Records, slots: Records, entries: Records, size: int, units: int) -> float:
    """The time after all but one of the equal waves ahead: one kernel alone, every unit full with fresh blocks.

    Waves end before the next end of a phase; what the loop would do one by one is done at once.
    """
    if size != units or entries[0].last == 1:
        return now
    slot, each = entries[0].slot, entries[0].count
    for place in range(size):
        entry = entries[place]
        if entry.slot != slot or entry.todo != 1.0 or entry.count != each or entry.last == 1:
            return now
    wave = 1.0 / entries[0].speed
    kernel = kernels[slots[slot].kernel]
    ahead = (kernel.tail - (kernel.blocks - slots[slot].left)) // (each * units)
    for number in range(len(slots)):
        if slots[number].phase == COMING or slots[number].phase == ENDING:
            ahead = min(ahead, int((slots[number].until - now) / wave) - 1)
    if ahead < 1:
        return now
    slots[slot].left -= ahead * each * units
    return float(now + ahead * wave)


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
