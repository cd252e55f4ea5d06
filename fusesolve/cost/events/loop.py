"""The event loop: kernels open when launch and predecessors allow, blocks fill units, time jumps to the next end.

Compiled: plain loops over the tables of `fusesolve.cost.events.tables`.
"""

import numpy as np

from fusesolve.cost.events.compiled import compiled
from fusesolve.cost.events.speeds import set_speeds, share_memory
from fusesolve.cost.events.tables import COMING, ENDING, RUNNING, WAITING, Counts, Records
from fusesolve.cost.table import Array

NEVER = 1e300  # seconds
ROUNDING = 1e-9  # share of a block's work that counts as done


@compiled
def run(
    kernels: Records, blocks: Records, after: Counts, across: float, capacity: Records, slots: Records,
    units: Records, beside: Counts, entries: Records, known: Array,
) -> int:  # fmt: skip
    """Fill `start` and `end` of every kernel (s); returns the number of events. See `fusesolve.cost.events.tables`.

    `after`: successors, those of kernel k from `kernels[k].first` on; `across`: seconds more that a kernel waits for
    one of another stream. `capacity`: the room of one unit (one UNIT record). Zeroed tables to work on: `slots`,
    `units`, `beside` (blocks of each stream on each unit, and in all in a last row), `entries` (a row for each block
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
    """Nothing is in the way of `kernel` but time: give it its stream."""
    slot = kernels[kernel].stream
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
