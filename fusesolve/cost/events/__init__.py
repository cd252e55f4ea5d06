"""The event-level simulator: blocks of kernels on the units of a GPU, streams, launches and shared memory bandwidth.

It takes the tiling and the terms that the closed form chose for each kernel, and says when each kernel of a plan runs.
docs/MODEL.md tells what it models and where it differs from the closed form.
"""

from fusesolve.cost.events.launches import Step
from fusesolve.cost.events.simulator import Timeline, check_events, simulate_events

__all__ = ["Step", "Timeline", "check_events", "simulate_events"]
