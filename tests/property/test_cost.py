"""The simulators over random workloads: a better device is never slower, no term helps by being there, no nonsense."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusesolve.candidates.pricing import price_workloads
from fusesolve.cost.table import TERMS, PriceOptions, Prices
from fusesolve.group import TEMPLATES, Template, Workload
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import load_profile
from tests.property.random_workloads import LEVERS, random_workloads

PROFILES = ("a100", "h100", "t4", "mobile-npu")
COUNT = 200  # workloads priced at once, of all templates
ROUNDING = 1.0 + 1e-9
FEW = settings(max_examples=2, deadline=None, derandomize=True)
SEEDS = st.integers(0, 10_000)


@cache
def profile(name: str) -> HardwareProfile:
    return load_profile(name)


@cache
def workloads(seed: int) -> tuple[Workload, ...]:
    return tuple(random_workloads(seed, COUNT))


@cache
def priced(seed: int, name: str) -> Prices:
    return price_workloads(workloads(seed), profile(name), PriceOptions())


def assert_no_slower(seed: int, before: np.ndarray, after: np.ndarray) -> None:
    """Where a workload had a legal tiling it has one still, and none takes longer."""
    known = np.isfinite(before)
    worse = known & ~(after <= before * ROUNDING)
    assert not worse.any(), [(before[i], after[i], workloads(seed)[i]) for i in np.flatnonzero(worse)[:3]]


@pytest.mark.parametrize("lever", LEVERS)
@pytest.mark.parametrize("name", PROFILES)
@FEW
@given(seed=SEEDS, factor=st.sampled_from((1.05, 1.3, 2.0, 3.7)))
def test_a_better_device_is_never_slower(name, lever, seed, factor):
    better = LEVERS[lever](profile(name), factor)
    after = price_workloads(workloads(seed), better, PriceOptions()).latency
    assert_no_slower(seed, priced(seed, name).latency, after)


@pytest.mark.parametrize("launch", ["stream", "graph"])
@pytest.mark.parametrize("name", PROFILES)
def test_every_lever_of_the_table_moves_some_device(name, launch):
    """A lever that changed nothing anywhere would prove nothing; those of each kind of device must bite."""
    options = PriceOptions(launch=launch)
    before = price_workloads(workloads(2), profile(name), options).latency
    bites = {
        lever
        for lever, better in LEVERS.items()
        if (price_workloads(workloads(2), better(profile(name), 4.0), options).latency < before).any()
    }
    common = {"clock", "units", "fma rate", "alu rate", "sfu rate", "tensor rate", "launch", "memory bandwidth"}
    gpu = {"l2 knee", "dram latency", "shared per unit and block", "registers", "code cache"}
    npu = {"dma latency", "dma channels", "shared per unit and block"}
    assert common | (npu if name == "mobile-npu" else gpu) <= bites


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("name", PROFILES)
@FEW
@given(seed=SEEDS)
def test_a_term_that_is_switched_off_never_costs(name, term, seed):
    options = PriceOptions(without=frozenset({term}))
    assert_no_slower(seed, priced(seed, name).latency, price_workloads(workloads(seed), profile(name), options).latency)


@pytest.mark.parametrize("name", PROFILES)
def test_every_term_of_the_device_can_be_switched_off_with_effect(name):
    """Over 1,000 workloads each term of this kind of device is part of some latency."""
    many = tuple(random_workloads(5, 1000))
    before = price_workloads(many, profile(name), PriceOptions()).latency
    idle = set()
    for term in TERMS:
        options = PriceOptions(without=frozenset({term}))
        if not (price_workloads(many, profile(name), options).latency < before).any():
            idle.add(term)
    gpu_only = {"floor", "l2", "latency", "spill", "code", "arguments", "staging", "reread", "prologue", "split"}
    assert idle <= ({"dma", "exposed", "arguments"} if name != "mobile-npu" else gpu_only)


@pytest.mark.parametrize("name", PROFILES)
@FEW
@given(seed=SEEDS)
def test_latencies_terms_and_resources_are_sane(name, seed):
    found = priced(seed, name)
    assert not np.isnan(found.latency).any()
    assert (found.latency > 0).all()
    known = np.isfinite(found.latency)
    for columns in (found.terms, found.resources, found.tiling):
        for key, column in columns.items():
            assert np.isfinite(column[known]).all(), key
            assert (column >= 0).all(), key
    assert (found.terms["launch"][known] > 0).all()
    assert (found.latency >= found.terms["launch"])[known].all()


@pytest.mark.parametrize("name", ["a100", "h100", "t4"])
@FEW
@given(seed=SEEDS)
def test_the_tiling_that_is_taken_keeps_the_limits(name, seed):
    """The limits once more, from the profile's numbers and not through the legality table."""
    found, device = priced(seed, name), profile(name)
    known = np.isfinite(found.latency)
    resources = {key: column[known] for key, column in found.resources.items()}
    assert (resources["threads"] <= device.limits.threads_per_block).all()
    assert (resources["shared_bytes"] <= device.memory.shared.per_block_max).all()
    assert (resources["registers"] <= device.registers.per_thread_max).all()
    assert (resources["registers"] * resources["threads"] <= device.registers.per_block_max).all()
    assert (resources["argument_bytes"] <= device.limits.argument_bytes).all()
    assert (resources["blocks"] < 2**31).all()
    assert ((resources["occupancy"] > 0) & (resources["occupancy"] <= 1)).all()


@pytest.mark.parametrize("name", PROFILES)
@FEW
@given(seed=SEEDS, more=st.sampled_from((1.5, 4.0)))
def test_a_kernel_that_reads_and_computes_more_is_never_faster(name, seed, more):
    """Bytes and instructions of a workload rise together, its shape stays."""
    grown = tuple(
        replace(
            w, fma=w.fma * more, alu=w.alu * more, sfu=w.sfu * more, read_bytes=int(w.read_bytes * more) + 1,
            write_bytes=int(w.write_bytes * more) + 1,
            footprint_bytes=int(w.read_bytes * more) + int(w.write_bytes * more) + 2,
        )
        for w in workloads(seed)
    )  # fmt: skip
    after = price_workloads(grown, profile(name), PriceOptions()).latency
    before = priced(seed, name).latency
    known = np.isfinite(before)
    assert (after[known] * ROUNDING >= before[known]).all()


@pytest.mark.parametrize("template", [t for t in Template if t is not Template.PACKED])  # priced from its parts
@pytest.mark.parametrize("name", PROFILES)
def test_an_empty_kernel_costs_its_launch_and_little_more(name, template):
    """Tensors of size zero: nothing to read, nothing to compute, and still a number."""
    nothing = Workload(
        template=TEMPLATES.index(template), outer=0, inner=0, batch=0, m=0, n=0, k=0, head=0, full_reads=1,
        full_writes=1, arrays=2, tensor_rate=2, operand_bytes=2,
    )  # fmt: skip
    found = price_workloads([nothing], profile(name), PriceOptions())
    launch = profile(name).launch.stream or profile(name).launch.dispatch
    if template is Template.BLOCK and profile(name).kind != "gpu":
        assert found.latency[0] == np.inf  # only GPUs have blocks
        return
    assert launch <= found.latency[0] < launch + 20e-6


def test_prices_do_not_depend_on_what_is_priced_beside_them():
    """A row alone, in a small table and in a large one that is priced in several blocks."""
    many = tuple(random_workloads(9, 3000))
    together = price_workloads(many, profile("a100"), PriceOptions())
    for index in (0, 1, 1499, 2998, 2999):
        alone = price_workloads([many[index]], profile("a100"), PriceOptions())
        assert alone.latency[0] == together.latency[index]
        for key, column in alone.tiling.items():
            assert column[0] == together.tiling[key][index]


@pytest.mark.parametrize("name", ["a100", "h100"])
@FEW
@given(seed=SEEDS)
def test_best_is_the_better_of_library_and_generated(name, seed):
    by = {
        kind: price_workloads(workloads(seed), profile(name), PriceOptions(implementation=kind))
        for kind in ("best", "library", "generated")
    }
    plain = np.array([w.plain for w in workloads(seed)], dtype=bool)
    product = np.isin([w.template for w in workloads(seed)], [3, 4])
    best = np.where(plain & product, np.fmin(by["library"].latency, by["generated"].latency), by["generated"].latency)
    assert (by["best"].latency == best).all()
