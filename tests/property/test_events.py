"""The event simulator beside the closed form: the same for one kernel of whole waves, and lawful for whole plans."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusesolve.candidates.pricing import price_workloads
from fusesolve.cost.events import Step, Timeline, simulate_events
from fusesolve.cost.events.loads import explained_share, read_loads
from fusesolve.cost.table import PriceOptions, Prices
from fusesolve.group import TEMPLATES, Template, Workload
from fusesolve.hardware import HardwareProfile, launch_overhead
from fusesolve.hardware_yaml import load_profile
from tests.property.random_workloads import random_workloads

PROFILES = ("a100", "h100", "t4", "mi300x")
AGREEMENT = 0.02
COUNT = 120
FEW = settings(max_examples=2, deadline=None, derandomize=True)
SEEDS = st.integers(0, 10_000)


@cache
def profile(name: str) -> HardwareProfile:
    return load_profile(name)


@cache
def priced(seed: int, name: str, launch: str) -> tuple[list[Workload], Prices]:
    """Workloads that have a legal tiling, and their prices."""
    found = random_workloads(seed, COUNT)
    options = PriceOptions(launch=launch)
    known = np.isfinite(price_workloads(found, profile(name), options).latency)
    legal = [w for w, fits in zip(found, known, strict=True) if fits]
    return legal, price_workloads(legal, profile(name), options)


def alone(seed: int, name: str, launch: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulated over closed-form time of each kernel alone, whether its waves are whole, one wave over all."""
    workloads, prices = priced(seed, name, launch)
    templates = np.array([w.template for w in workloads])
    kernels, blocks = read_loads(prices, np.arange(len(workloads)), templates, profile(name))
    ratio = np.array(
        [
            simulate_events([Step(row=i, template=w.template)], prices, profile(name), launch).total
            / prices.latency[i]
            for i, w in enumerate(workloads)
        ]
    )
    units = profile(name).compute.units
    count, slots = kernels["blocks"], kernels["most"] * units
    whole = (count % slots == 0) | (count <= units) | ((count < slots) & (count % units == 0))
    pipes = np.maximum(blocks["vector"], blocks["tensor"])[::2] * kernels["most"]
    wave = blocks["latency"][::2] + slots * (kernels["dram"] + kernels["l2"]) + pipes
    return ratio, whole, wave / prices.latency


@pytest.mark.parametrize("launch", ["stream", "graph"])
@pytest.mark.parametrize("name", PROFILES)
@FEW
@given(seed=SEEDS)
def test_one_kernel_of_whole_waves_takes_the_time_of_the_closed_form(name, launch, seed):
    ratio, whole, _ = alone(seed, name, launch)
    assert whole.sum() >= 10
    assert np.abs(ratio[whole] - 1.0).max() <= AGREEMENT


@pytest.mark.parametrize("name", PROFILES)
@FEW
@given(seed=SEEDS)
def test_the_terms_of_a_kernel_explain_its_price(name, seed):
    """The laws of the loads are those of the closed form: nothing is stretched but kernels of several stages."""
    workloads, prices = priced(seed, name, "stream")
    templates = np.array([w.template for w in workloads])
    share = explained_share(prices, np.arange(len(workloads)), templates)
    library = (templates == TEMPLATES.index(Template.CONTRACTION)) & (prices.implementation == 1)
    stages = library & (prices.terms["prologue"] > 0)
    assert np.abs(share[~stages] - 1.0).max() <= AGREEMENT
    assert (share <= 1.0 + AGREEMENT).all()


@pytest.mark.parametrize("name", PROFILES)
@FEW
@given(seed=SEEDS)
def test_a_last_wave_costs_at_most_one_wave_more(name, seed):
    ratio, _, wave = alone(seed, name, "stream")
    assert (ratio >= 1.0 - 1e-6).all()
    assert (ratio <= 1.0 + wave + 1e-6).all()


def test_the_agreement_is_over_every_template():
    seen = dict.fromkeys(Template, 0)
    for name in PROFILES:
        workloads, _ = priced(1, name, "stream")
        _, whole, _ = alone(1, name, "stream")
        for workload, uniform in zip(workloads, whole, strict=True):
            seen[TEMPLATES[workload.template]] += bool(uniform)
    drawn = {TEMPLATES[w.template] for seed in range(3) for w in random_workloads(seed, 300)}
    assert all(seen[template] > 0 for template in drawn)


def random_steps(seed: int, name: str, streams: int) -> list[Step]:
    """Some of the workloads in a random order, each waiting for up to two earlier ones."""
    rng = np.random.default_rng(seed)
    workloads, _ = priced(seed, name, "stream")
    steps = []
    for place in range(30):
        row = int(rng.integers(len(workloads)))
        after = tuple(sorted({int(rng.integers(place)) for _ in range(int(rng.integers(3)))})) if place else ()
        stream = int(rng.integers(streams))
        steps.append(Step(row=row, template=workloads[row].template, stream=stream, after=after))
    return steps


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("name", PROFILES)
@FEW
@given(seed=SEEDS)
def test_a_plan_keeps_its_order_and_the_device_its_limits(name, streams, seed):
    steps = random_steps(seed, name, streams)
    _, prices = priced(seed, name, "stream")
    found = simulate_events(steps, prices, profile(name), "stream")
    launch = launch_overhead(profile(name), "stream")
    last: dict[int, float] = {}
    for place, step in enumerate(steps):
        assert found.end[place] >= found.start[place]
        assert found.start[place] >= (place + 1) * launch * (1 - 1e-9)
        assert all(found.start[place] > found.end[source] for source in step.after)
        assert found.start[place] > last.get(step.stream, -1.0)
        last[step.stream] = found.end[place]
    assert found.total == max(found.end)
    _check_resources(steps, prices, name, found)


def _check_resources(steps: list[Step], prices: Prices, name: str, found: Timeline) -> None:
    """No resource is busy for longer than the whole takes, and nothing waits for nothing."""
    rows = np.array([step.row for step in steps])
    kernels, _ = read_loads(prices, rows, np.array([step.template for step in steps]), profile(name))
    for resource in ("dram", "l2"):
        assert (kernels[resource] * kernels["blocks"]).sum() <= found.total * (1 + 1e-6)
    alone = sum(simulate_events([Step(row=s.row, template=s.template)], prices, profile(name), "stream").total
                for s in steps)  # fmt: skip
    waits = len(steps) * 2 * launch_overhead(profile(name), "stream")
    assert found.total <= 1.1 * alone + waits


@pytest.mark.parametrize("name", ["h100"])
@FEW
@given(seed=SEEDS)
def test_the_same_plan_takes_the_same_time(name, seed):
    steps = random_steps(seed, name, 3)
    _, prices = priced(seed, name, "stream")
    first = simulate_events(steps, prices, profile(name), "stream")
    assert first == simulate_events(steps, prices, profile(name), "stream")
