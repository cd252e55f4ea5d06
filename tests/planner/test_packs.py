"""Independent kernels in one launch: where it pays, what it costs, and what keeps kernels apart."""

from dataclasses import replace

import numpy as np
import pytest

from fusesolve import plan
from fusesolve.candidates.packs import Packer, add_twins, independent_sets, pairs, price_packs, runs
from fusesolve.candidates.pricing import price_space
from fusesolve.candidates.program import build_program
from fusesolve.candidates.space import enumerate_kernels
from fusesolve.candidates.table import table_of
from fusesolve.cost import PACKERS
from fusesolve.cost.table import PriceOptions
from fusesolve.hardware_yaml import load_profile
from fusesolve.legality import allowed
from tests.unit.native_program import graph

DEVICE = load_profile("a100")


def norms(tokens):
    """FC-040: the norms of queries and keys, of different widths."""
    inputs = [f"q: bf16[{tokens},16,128]", f"k: bf16[{tokens},8,128]", "gq: bf16[128]", "gk: bf16[128]"]
    ops = ["qn = rmsnorm(q; axis=2)", "qo = mul(qn, gq)", "kn = rmsnorm(k; axis=2)", "ko = mul(kn, gk)"]
    return graph(inputs, ops, ["qo", "ko"])


def updates(count, shape="64,64"):
    """A step of momentum for each of several parameters."""
    inputs, ops, outputs = [], [], []
    for i in range(count):
        inputs += [f"p{i}: f32[{shape}]", f"g{i}: f32[{shape}]", f"m{i}: f32[{shape}]"]
        ops += [
            f"a{i} = mul(m{i}, 0.9)",
            f"n{i} = add(a{i}, g{i})",
            f"s{i} = mul(n{i}, 0.01)",
            f"q{i} = sub(p{i}, s{i})",
        ]
        outputs += [f"n{i}", f"q{i}"]
    return graph(inputs, ops, outputs)


def priced_alone(source, **options):
    """The kernels of a graph with prices, before any pack."""
    space = enumerate_kernels(build_program(source), recompute=False)
    return add_twins(price_space(space, DEVICE, PriceOptions(**options)))


def pack_of(priced, *kernels):
    """Prices of kernels (by their members' values) in one launch."""
    rows = np.array([[kernel.unique for kernel in kernels]])
    price = PACKERS["gpu"]
    return price(priced.prices, rows, DEVICE, priced.options, lambda resources: allowed(resources, DEVICE))


def whole(priced):
    """The kernels that lie in no larger one: here one for each connected part of the graph."""
    every = [frozenset(kernel.members) for kernel in priced.space.kernels]
    return [k for k in priced.space.kernels if k.full and not any(set(k.members) < other for other in every)]


@pytest.mark.parametrize("tokens", [1, 16, 256])
def test_short_norms_share_a_launch(tokens):
    found = plan(norms(tokens), "a100")
    assert [(group.template, len(group.parts)) for group in found.groups] == [("packed", 2)]
    assert {name for part in found.groups[0].parts for name in part} == {"qn", "qo", "kn", "ko"}


def test_a_pack_saves_its_launch_and_no_bytes():
    small, apart = plan(norms(16), "a100"), plan(norms(16), "a100", strategy="greedy")
    launch = apart.groups[0].terms_ns["launch"]
    assert launch <= apart.objective_ns - small.objective_ns <= launch + min(g.latency_ns for g in apart.groups)
    assert small.dram_bytes == apart.dram_bytes


def test_the_gain_of_a_pack_shrinks_with_the_launch_and_the_size():
    def gain(tokens, launch):
        packed = plan(norms(tokens), "a100", launch=launch).objective_ns
        apart = plan(norms(tokens), "a100", launch=launch, strategy="greedy").objective_ns
        return (apart - packed) / apart

    assert gain(256, "stream") > gain(256, "graph") > gain(7168, "graph") >= 0
    assert gain(7168, "graph") < 0.1


def test_an_optimizer_steps_all_its_parameters_in_one_launch():
    found = plan(updates(12), "a100")
    assert [len(group.parts) for group in found.groups] == [12]
    assert sum(len(part) for part in found.groups[0].parts) == 48


def test_arguments_bound_a_pack():
    """5 arrays of 56 bytes each a parameter: 13 parameters in 4 KiB, and 30 of them in three launches."""
    limit = replace(DEVICE, limits=replace(DEVICE.limits, argument_bytes=4096))
    found = plan(updates(30), limit)
    assert len(found.groups) == 3
    assert all(group.argument_bytes <= 4096 for group in found.groups)


def test_all_parts_get_the_registers_and_threads_of_the_greediest():
    priced = priced_alone(norms(256))
    parts = whole(priced)
    found, res = pack_of(priced, *parts), priced.prices.resources
    for name in ("registers", "threads", "shared_bytes"):
        assert found.resources[name][0] == max(res[name][part.unique] for part in parts)
    for name in ("blocks", "dram_bytes"):
        assert found.resources[name][0] == sum(res[name][part.unique] for part in parts)
    assert found.resources["argument_bytes"][0] > max(res["argument_bytes"][part.unique] for part in parts)


def test_a_pack_takes_at_least_as_long_as_each_part_and_saves_at_most_what_overlaps():
    priced = priced_alone(updates(5, "700,300"))
    parts = whole(priced)
    alone = [priced.prices.latency[part.unique] for part in parts]
    found = pack_of(priced, *parts).latency[0]
    streams = sum(priced.prices.terms["dram"][part.unique] for part in parts)
    assert max(max(alone), streams) <= found <= sum(alone)


def test_a_pack_beyond_a_limit_has_no_price():
    priced = priced_alone(updates(12))
    tight = replace(DEVICE, limits=replace(DEVICE.limits, argument_bytes=1024))
    rows = np.array([[kernel.unique for kernel in whole(priced)]])
    found = PACKERS["gpu"](priced.prices, rows, tight, priced.options, lambda res: allowed(res, tight))
    assert np.isinf(found.latency[0])


def parts_of(priced):
    """All kernels that may be parts, with no slack, by level."""
    table = table_of(priced.space.kernels)
    return Packer(priced).parts(table)


def test_kernels_of_different_levels_or_that_need_each_other_are_no_pack():
    """y starts two operators later than x; z needs x."""
    inputs = ["x: f32[64,64]", "w: f32[64]"]
    ops = ["a = opaque(x) : f32[64,64]", "b = opaque(a) : f32[64,64]", "y = exp(b)", "v = tanh(w)", "z = relu(v)"]
    levels = parts_of(priced_alone(graph(inputs, ops, ["y", "z"])))
    assert set(levels) == {0, 1, 2}
    for parts in levels.values():
        for pack in (*pairs(parts), *runs(parts), *independent_sets(parts, 100)):
            first, second = pack[0].kernel, pack[1].kernel
            assert set(first.members).isdisjoint(second.members)
            assert set(first.writes).isdisjoint(second.reads)


def test_every_set_of_independent_kernels_is_counted():
    """Five updates of one fused kernel each: 2^5 - 5 - 1 sets of two and more."""
    parts = parts_of(priced_alone(updates(5)))[0]
    whole_ones = [part for part in parts if len(part.kernel.members) == 4]
    assert len(independent_sets(whole_ones, 26)) == 26
    assert len(set(independent_sets(whole_ones, 26))) == 26
    assert independent_sets(whole_ones, 25) is None


def test_an_opaque_kernel_is_no_part():
    priced = priced_alone(graph(["x: f16[512,512]"], ["o = opaque(x) : f16[4]"], ["o"]))
    assert parts_of(priced) == {}


def test_a_product_that_a_library_does_best_is_packed_as_its_generated_twin():
    """Two short products (FORK of test_streams.py): one generated launch beats two calls of a library."""
    inputs = ["x: f16[256,1024]", "y: f16[256,1024]", "a: f16[1024,512]", "b: f16[1024,256]"]
    source = graph(inputs, ["u = matmul(x, a)", "v = matmul(y, b)"], ["u", "v"])
    priced = priced_alone(source)
    row = priced.space.kernels[0].unique
    assert priced.prices.implementation[row] == 1
    assert priced.prices.implementation[priced.packed_row(row)] == 0
    assert priced.space.workloads[priced.packed_row(row)] == priced.space.workloads[row]
    best, generated = plan(source, "h100"), plan(source, "h100", implementation="generated")
    assert [group.template for group in best.groups] == ["packed"]
    assert best.objective_ns == generated.objective_ns
    tilings = best.groups[0].part_tilings  # those of the generated kernels, which are what is written
    assert tilings == generated.groups[0].part_tilings
    assert best.groups[0].tiling["threads"] == max(max(32, t["tile_m"] * t["tile_n"] // 64) for t in tilings)
    assert [group.implementation for group in plan(source, "h100", implementation="library").groups] == ["library"] * 2


def test_a_pack_that_spares_next_to_nothing_is_no_kernel():
    """A launch of 1 ns: two norms side by side save too little to be measured."""
    cheap = replace(DEVICE, launch=replace(DEVICE.launch, stream=1e-9))
    space = enumerate_kernels(build_program(norms(4096)), recompute=False)
    priced = add_twins(price_space(space, cheap, PriceOptions()))
    packer = Packer(priced)
    parts = parts_of(priced)[0]
    found = price_packs(packer, independent_sets(parts, 1000))
    cost = np.array([part.cost for part in parts])
    for pack, latency in zip(found.kernels, found.prices.latency, strict=True):
        apart = sum(cost[[part.kernel is kernel for part in parts]].sum() for kernel in pack)
        assert apart - 1e9 * latency >= 0.1 * packer.launch * (len(pack) - 1)


def test_too_many_sets_are_searched_and_the_space_says_so():
    found = plan(updates(14), "a100")
    assert [len(group.parts) for group in found.groups] == [14]
    assert found.space.truncated
    assert found.space.cut_by[0] == "packs: more than 3000 sets of kernels beside a0"
    assert not plan(updates(4), "a100").space.truncated


@pytest.mark.parametrize("hardware", ["npu", "cpu"])
def test_only_gpus_pack(hardware):
    assert hardware not in PACKERS


def test_a_strategy_of_pairs_is_not_given_packs():
    assert all(not group.parts for group in plan(updates(6), "a100", strategy="greedy").groups)
