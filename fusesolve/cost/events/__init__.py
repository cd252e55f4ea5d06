"""The event-level simulator: blocks of kernels on the units of a GPU, streams, launches and shared memory bandwidth.

It takes the tiling and the terms that the closed form chose for each kernel, and says when each kernel of a plan runs.
docs/MODEL.md tells what it models and where it differs from the closed form.
"""

from fusesolve.cost.events.launches import Part, Step, event_seconds
from fusesolve.cost.events.needs import Need, capacity_of, read_needs
from fusesolve.cost.events.simulator import Timeline, check_events, simulate_events

__all__ = [
    "Need", "Part", "Step", "Timeline", "capacity_of", "check_events", "event_seconds", "read_needs", "simulate_events",
]  # fmt: skip
