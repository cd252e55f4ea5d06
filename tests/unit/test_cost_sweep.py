"""The sweep over tilings: ties, blocks, refusals, and what pricing returns beside the latency."""

import numpy as np
import pytest

from fusesolve.candidates.pricing import limit_refusal, price_workloads
from fusesolve.cost import COST_MODELS
from fusesolve.cost.gpu.packed import price_packs
from fusesolve.cost.gpu.terms import register_bound
from fusesolve.cost.sweep import BLOCK, Family, sweep
from fusesolve.cost.table import FIELDS, RESOURCES, TERMS, TILING, PriceOptions, WorkloadTable
from fusesolve.group import TEMPLATES, Template, Workload
from fusesolve.hardware_yaml import list_profiles, load_profile
from tests.property.random_workloads import random_workloads
from tests.unit.cost_device import GPU, NPU, workload
from tests.unit.test_cost_layout import workload_of


def all_legal(_resources):
    """The verdict on any resources."""
    return np.asarray(True)


def family(times, *, library=False, template=Template.POINTWISE, wants=None):
    """A family whose tilings take the given seconds, whatever the row."""
    grid = np.array([times], dtype=np.float64)

    def evaluate(w, tile):
        seconds = tile["threads"] * 0 + grid + w["inner"] * 0
        return {"blocks": seconds * 0 + 1.0}, {"latency": seconds}

    return Family(
        template=TEMPLATES.index(template), tilings={"threads": np.arange(1.0, len(times) + 1.0)[None, :]},
        library=library, wants=wants, evaluate=evaluate, combine=lambda terms, off: terms["latency"],
    )  # fmt: skip


def table(count):
    return WorkloadTable([workload(Template.POINTWISE, inner=i + 1) for i in range(count)])


def test_the_fastest_tiling_wins_and_the_first_of_equals():
    found = sweep(table(2), [family([3.0, 1.0, 1.0, 2.0])], PriceOptions(), all_legal)
    assert found.latency.tolist() == [1.0, 1.0]
    assert found.tiling["threads"].tolist() == [2.0, 2.0]
    assert found.terms["latency"].tolist() == [1.0, 1.0]
    assert found.tilings == 8


def test_the_first_of_two_equally_fast_implementations_wins():
    found = sweep(table(1), [family([1.0], library=True), family([1.0])], PriceOptions(), all_legal)
    assert found.implementation.tolist() == [1]
    found = sweep(table(1), [family([1.0], library=True), family([0.5])], PriceOptions(), all_legal)
    assert found.implementation.tolist() == [0]


def test_an_implementation_takes_only_the_rows_that_it_can_do():
    mixed = WorkloadTable([workload(Template.CONTRACTION, plain=1), workload(Template.CONTRACTION, plain=0)])
    by_library = family([1.0], library=True, template=Template.CONTRACTION, wants=lambda rows: rows["plain"])
    found = sweep(mixed, [by_library, family([2.0], template=Template.CONTRACTION)], PriceOptions(), all_legal)
    assert found.latency.tolist() == [1.0, 2.0]
    assert found.implementation.tolist() == [1, 0]


def test_a_row_without_a_legal_tiling_has_no_finite_latency():
    found = sweep(table(1), [family([1.0, 2.0])], PriceOptions(), lambda resources: np.array([[False, True]]))
    assert found.latency.tolist() == [2.0]
    found = sweep(table(1), [family([1.0, 2.0])], PriceOptions(), lambda resources: np.array([[False, False]]))
    assert np.isinf(found.latency[0])


def test_more_rows_than_a_block_are_priced_alike():
    count = BLOCK // 2 + 10  # with two tilings: one block and a bit
    found = sweep(table(count), [family([2.0, 1.0])], PriceOptions(), all_legal)
    assert (found.latency == 1.0).all()
    assert found.tilings == 2 * count


def test_tilings_that_a_shape_rules_out_change_no_price_whether_or_not_they_are_evaluated(monkeypatch):
    """Many contractions are priced with fewer tilings each; all of their columns are those of pricing one by one."""
    rng = np.random.default_rng(3)
    rows = [
        workload(
            Template.CONTRACTION, m=float(rng.integers(1, 3000)), n=float(rng.integers(8, 3000)),
            k=float(rng.integers(1, 96) * 32), batch=float(rng.choice([1, 12])), operand_bytes=2, element_bytes=2,
            sum_bytes=4, joined=float(rng.choice([1, 1, 3])), parts=3.0, plain=float(rng.integers(2)), mma=1e9,
        )
        for _ in range(90)
    ]  # fmt: skip
    narrowed = price_workloads(rows, GPU, PriceOptions())
    monkeypatch.setattr("fusesolve.cost.sweep.ALIKE", len(rows))
    whole = price_workloads(rows, GPU, PriceOptions())
    assert np.isfinite(whole.latency).any()
    assert np.array_equal(narrowed.latency, whole.latency)
    assert np.array_equal(narrowed.implementation, whole.implementation)
    assert narrowed.tilings == whole.tilings
    for left, right in ((narrowed.tiling, whole.tiling), (narrowed.resources, whole.resources)):
        assert all(np.array_equal(left[name], right[name]) for name in left)
    assert all(np.array_equal(narrowed.terms[name], whole.terms[name]) for name in TERMS)


def test_nothing_is_priced_from_nothing():
    for device in (GPU, NPU):
        found = price_workloads([], device, PriceOptions())
        assert len(found.latency) == 0
        assert found.tilings == 0


def test_columns_are_the_fields_of_a_workload():
    item = workload(Template.ROW, outer=3, inner=5, sfu=7.0)
    columns = WorkloadTable([item, item])
    assert len(columns) == 2
    assert [columns[name][1] for name in ("outer", "inner", "sfu")] == [3, 5, 7]
    assert set(FIELDS) == set(Workload.__slots__)


def test_every_kind_of_profile_has_a_model_and_answers_in_the_stated_columns():
    for kind, device in (("gpu", GPU), ("npu", NPU)):
        assert kind in COST_MODELS
        found = price_workloads(random_workloads(2, 20), device, PriceOptions())
        assert (set(found.tiling), set(found.resources), set(found.terms)) == (set(TILING), set(RESOURCES), set(TERMS))


@pytest.mark.parametrize("summary", list_profiles(), ids=lambda summary: summary.file)
def test_every_bundled_profile_prices_every_template(summary):
    """Usual sizes of each template have a price on every device, or a refusal that names its limit."""
    device = load_profile(summary.file)
    small = {"full_reads": 1, "full_writes": 1, "arrays": 2, "read_bytes": 65_536, "write_bytes": 65_536,
             "footprint_bytes": 131_072, "element_bytes": 2, "operand_bytes": 2}  # fmt: skip
    shapes = {
        Template.POINTWISE: {"inner": 32_768}, Template.MOVEMENT: {"inner": 32_768}, Template.OPAQUE: {"inner": 32_768},
        Template.ROW: {"outer": 128, "inner": 256, "passes": 3, "held_bytes": 2.0, "reread_bytes": 65_536.0},
        Template.REDUCTION: {"outer": 256, "inner": 128, "contiguous": 0},
        Template.CONTRACTION: {"m": 128, "n": 256, "k": 64, "mma": 128.0 * 256 * 64, "tensor_rate": 6},
        Template.ATTENTION: {"batch": 2, "m": 64, "n": 64, "k": 32, "head": 32, "mma": 2.0 * 64 * 64 * 64},
    }  # fmt: skip
    if device.kind == "gpu":  # no other device has blocks
        shapes[Template.BLOCK] = {"inner": 4096, "passes": 3, "reductions": 2, "kept_bytes": 256}
    assert set(shapes) >= set(Template) - {Template.PACKED, Template.BLOCK}  # packs are priced from their parts
    items = [workload(template, **(small | shape)) for template, shape in shapes.items()]
    found = price_workloads(items, device, PriceOptions())
    assert np.isfinite(found.latency).all(), dict(zip(shapes, found.latency.tolist(), strict=True))
    assert (found.latency > 0).all()
    assert (found.latency < 1.0).all()


def test_a_workload_that_fits_nowhere_is_refused_with_numbers():
    """A row of 3 MB that must be held beside 1 MB of scratchpad."""
    item = workload(Template.ROW, outer=4, inner=750_000, passes=3, held_bytes=4.0, read_bytes=12_000_000,
                    write_bytes=12_000_000, footprint_bytes=24_000_000)  # fmt: skip
    refusal = limit_refusal(item, NPU, PriceOptions())
    assert refusal is not None
    assert refusal.rule == "shared-memory-per-block"
    assert refusal.limit == 1_000_000
    assert refusal.need > 3_000_000
    assert limit_refusal(workload(Template.POINTWISE, inner=10), NPU, PriceOptions()) is None
    many = workload(Template.POINTWISE, inner=1000, full_reads=100, full_writes=1, arrays=101)
    refusal = limit_refusal(many, GPU, PriceOptions())
    assert refusal is not None
    assert (refusal.rule, refusal.limit) == ("argument-bytes", 4096)


def test_graph_launches_are_cheaper_by_the_difference():
    item = workload(Template.POINTWISE, inner=1000, full_reads=1, full_writes=1, arrays=2)
    stream, graph = (price_workloads([item], GPU, PriceOptions(launch=mode)).latency[0] for mode in ("stream", "graph"))
    assert stream - graph == pytest.approx(2e-6)


def test_a_kernel_is_compiled_for_the_step_nearest_to_what_it_asks_for():
    wanted = np.array([8.0, 32.0, 35.0, 36.0, 43.0, 44.0, 104.0, 255.0])
    assert register_bound(wanted).tolist() == [32.0, 32.0, 32.0, 40.0, 40.0, 48.0, 104.0, 256.0]
    works = [workload_of("x: f32[4096,4096]", "s = softmax(x; axis=1)"),
             workload_of("a: f32[256,512]; b: f32[512,256]", "m = matmul(a, b)")]  # fmt: skip
    for name in ("a100", "h100"):
        made = price_workloads(works, load_profile(name), PriceOptions(implementation="generated"))
        limit = made.tiling["max_registers"]
        assert (limit % 8 == 0).all() and (made.resources["registers"] <= limit).all() and (limit <= 255).all()
        called = price_workloads(works[1:], load_profile(name), PriceOptions(implementation="library"))
        assert called.tiling["max_registers"].tolist() == [0.0]  # a library's kernel is what it is


def test_a_pack_asks_for_eight_registers_more_than_its_greediest_part():
    product = workload_of("a: f32[256,512]; b: f32[512,256]", "m = matmul(a, b)")
    works = [product, workload_of("x: f32[64]", "r = relu(x)")]
    profile, options = load_profile("a100"), PriceOptions(implementation="generated")
    found = price_workloads(works, profile, options)
    most = found.resources["registers"].max()
    pack = price_packs(found, np.array([[0, 1], [1, 1]]), profile, options, lambda resources: np.asarray(True))
    bound = pack.tiling["max_registers"].tolist()
    assert most > 32 and pack.resources["registers"][0] == most + 8.0
    assert bound[0] >= most + 4.0 and bound[1] == 32
