"""Questions: thresholds with a crossing known by hand, searches, sensitivities."""

import json
from functools import partial

import jsonschema
import pytest

from fusesolve import plan
from fusesolve.errors import InputError, NoPlanError
from fusesolve.hardware_yaml import load_profile, profile_from_definition
from fusesolve.importers import load_graph
from fusesolve.pipeline.options import PlanOptions
from fusesolve.report.json import format_json
from fusesolve.report.whatif import sensitivity_table
from fusesolve.schema import load_schema
from fusesolve.whatif.axes import parse_map, parse_range
from fusesolve.whatif.evaluate import Bench, enumerate_whole
from fusesolve.whatif.executors import Resources
from fusesolve.whatif.points import build_study, set_numbers
from fusesolve.whatif.questions import ask_sensitivity, ask_thresholds
from fusesolve.whatif.search import find_value
from fusesolve.whatif.sensitivity import SPREAD, TrialPart, plan_trials, stated_spread, try_out
from fusesolve.whatif.thresholds import find_thresholds

ADDS = """format: fusesolve-graph/1
name: adds
inputs: ["a: f32[4096,1024]", "b: f32[4096,1024]", "c: f32[4096,1024]", "d: f32[4096,1024]"]
ops: ["t1 = add(a, b)", "t2 = add(t1, c)", "y = add(t2, d)"]
outputs: [y]
"""
PROLOGUE = """format: fusesolve-graph/1
name: prologue
inputs: ["x: f16[2048,1024]", "w: f16[1024,1024]"]
ops: ["t = tanh(x)", "h = matmul(t, w)", "y = relu(h)"]
outputs: [y]
"""
H100 = load_profile("h100")
HERE = Resources(workers=1)


def bench_of(text, folder):
    path = folder / "graph.yaml"
    path.write_text(text)
    graph = load_graph(str(path), bind={})
    return Bench(graph=graph, space=enumerate_whole(graph, PlanOptions()), options=PlanOptions())


@pytest.fixture(scope="module")
def adds(tmp_path_factory):
    return bench_of(ADDS, tmp_path_factory.mktemp("adds"))


@pytest.fixture(scope="module")
def prologue(tmp_path_factory):
    return bench_of(PROLOGUE, tmp_path_factory.mktemp("prologue"))


def check_sides(bench, path, found, unit):
    """On both sides of each threshold the plans are what the answer says, planned from scratch."""
    for change in found.changes:
        assert change["above"] - change["below"] <= found.resolution
        for side in ("below", "above"):
            fresh = Bench(graph=bench.graph, space=bench.space, options=bench.options)
            outcome = fresh.outcome(set_numbers(H100, {path: f"{change[side]!r} {unit}"}))
            assert outcome.plan_sha256 == change[f"{side}_sha256"]
        assert change["below_sha256"] != change["above_sha256"]


def test_a_limit_is_a_threshold_to_the_byte(adds):
    # An array argument takes 56 bytes, the rest 16: two operands and a result 56 * 3 + 16 = 184, three and a result
    # 240, four and a result 296. With less than 240 bytes each add is a kernel, with less than 296 two of them are one.
    span = parse_range("limits.argument_bytes=190B..400B", "--threshold")
    found = find_thresholds(adds, H100, span, resolution=1)
    assert [(c["below"], c["above"]) for c in found.changes] == [(239, 240), (295, 296)]
    assert [s["kernels"] for s in found.segments] == [3, 2, 1]
    assert [(g["kind"], g["from"], g["to"]) for c in found.changes for g in c["groups"]] == [("merged", 2, 1)] * 2
    assert found.changes[1]["groups"][0]["nodes"] == ["t1", "t2", "y"]
    saved = found.segments[0]["high_ns"] - found.segments[1]["low_ns"]
    assert found.changes[0]["gain_ns"] == saved > 0
    check_sides(adds, "limits.argument_bytes", found, "B")


def test_a_launch_crosses_where_two_straight_lines_do(prologue):
    # Two plans: tanh alone and the matmul with relu, 2 launches; or tanh computed in every tile of it, 1 launch. Their
    # times are a + 2 L and b + L, equal at L = b - a; a and b from the times at both ends of the range.
    span = parse_range("launch.stream=0.1us..50us", "--threshold")
    found = find_thresholds(prologue, H100, span)
    low, high = found.segments
    assert (low["kernels"], high["kernels"]) == (2, 1)
    crossing = (high["high_ns"] * 1e-9 - 50e-6) - (low["low_ns"] * 1e-9 - 2 * 0.1e-6)
    (change,) = found.changes
    assert change["below"] - 2e-9 <= crossing <= change["above"] + 2e-9
    assert found.resolution == pytest.approx(49.9e-6 / 4096)
    # beyond the crossing the plan with one launch less saves what the launch is longer by
    assert change["gain_at_end_ns"] == pytest.approx((50e-6 - crossing) * 1e9, abs=3)
    check_sides(prologue, "launch.stream", found, "s")


def test_a_range_without_a_threshold_is_one_segment(adds):
    found = find_thresholds(adds, H100, parse_range("launch.stream=1us..9us", "--threshold"))
    assert found.changes == ()
    assert [(s["low"], s["high"]) for s in found.segments] == [(1e-6, 9e-6)]


def test_where_no_plan_exists_is_a_segment_too(adds):
    span = parse_range("limits.argument_bytes=100B..200B", "--threshold")
    found = find_thresholds(adds, H100, span, resolution=1)
    assert [(s["kernels"], s["plan_sha256"] is None) for s in found.segments] == [(None, True), (3, False)]
    (change,) = found.changes
    assert (change["below"], change["above"], change["gain_ns"]) == (183, 184, None)


def test_a_map_has_a_line_for_each_value_of_the_second_number(prologue):
    span, axis = parse_map(["launch.stream=0.1us..50us", "memory.dram.bandwidth=1TB/s..4TB/s:2"])
    study = build_study([prologue.graph], [H100], [axis], PlanOptions())
    seen = []
    document = ask_thresholds(study, span, HERE, progress=lambda event: seen.append(event.stage))
    assert document["set"] == ["memory.dram.bandwidth"]
    assert [line["set"] for line in document["lines"]] == [
        {"memory.dram.bandwidth": 1e12},
        {"memory.dram.bandwidth": 4e12},
    ]
    assert [text.partition(",")[0] for text in seen] == ["1 of 2 lines", "2 of 2 lines"]
    jsonschema.validate(json.loads(format_json(document)), load_schema("thresholds"))


def test_the_maps_second_number_has_nine_lines_unless_said():
    assert parse_map(["launch.stream=1us..2us", "memory.dram.bandwidth=1TB/s..4TB/s"])[1].steps == 9
    with pytest.raises(InputError, match="twice"):
        parse_map(["launch.stream=1us..2us", "launch.stream=1us..2us"])
    with pytest.raises(InputError, match="3 times"):
        parse_map(["launch.stream=1us..2us"] * 3)


def test_the_smallest_value_that_meets_a_target(adds):
    span = parse_range("memory.dram.bandwidth=1TB/s..4TB/s", "--minimise")
    found = find_value(adds, H100, span, 40_000)
    assert found.outcome.objective_ns <= 40_000 < found.misses_ns
    assert 0 < found.value - found.misses <= found.resolution
    own = plan(adds.graph, set_numbers(H100, {"memory.dram.bandwidth": f"{found.value!r} B/s"}))
    assert own.objective_ns == found.outcome.objective_ns


def test_the_largest_value_that_meets_a_target(adds):
    # one kernel: time = rest + L, so the longest launch that meets it is the launch at hand plus what is left
    now = adds.outcome(H100).objective_ns
    span = parse_range("launch.stream=0.1us..50us", "--maximise")
    found = find_value(adds, H100, span, now + 5_000, largest=True, resolution=1e-9)
    assert found.value == pytest.approx(H100.launch.stream + 5e-6, abs=2e-9)
    assert found.misses > found.value


def test_a_target_that_the_whole_range_meets_is_met_at_its_end(adds):
    span = parse_range("memory.dram.bandwidth=1TB/s..4TB/s", "--minimise")
    found = find_value(adds, H100, span, 10**9)
    assert (found.value, found.misses) == (1e12, None)


def test_a_target_out_of_reach_says_the_best(adds):
    span = parse_range("memory.dram.bandwidth=1TB/s..4TB/s", "--minimise")
    with pytest.raises(NoPlanError, match=r"no memory\.dram\.bandwidth of the range meets 1 us; the best is"):
        find_value(adds, H100, span, 1_000)


@pytest.mark.parametrize("resolution", [0.0, -1.0, 1e13])
def test_a_resolution_is_within_the_range(adds, resolution):
    with pytest.raises(InputError, match="--resolution"):
        find_thresholds(
            adds, H100, parse_range("memory.dram.bandwidth=1TB/s..4TB/s", "--threshold"), resolution=resolution
        )


@pytest.fixture(scope="module")
def sensitivity(adds):
    return ask_sensitivity(build_study([adds.graph], [H100], [], PlanOptions()), HERE)["lines"][0]


def test_the_elasticity_of_a_launch_is_its_share_of_the_time(sensitivity):
    # one kernel: time = rest + L, so d(time)/time over dL/L is L / time (to the rounding of 24 ns to whole ns)
    numbers = {number["path"]: number for number in sensitivity["numbers"]}
    launch = numbers["launch.stream"]
    share = H100.launch.stream * 1e9 / sensitivity["objective_ns"]
    assert launch["elasticity"] == pytest.approx(share, rel=0.05)
    assert launch["step"] == pytest.approx(0.01)
    bandwidth = numbers["memory.dram.bandwidth"]
    assert sensitivity["numbers"][0]["path"] in ("memory.dram.bandwidth", "calibration.stream_share")
    assert -1 < bandwidth["elasticity"] < -0.8


def test_numbers_that_change_nothing_and_numbers_that_cannot_move(sensitivity):
    numbers = {number["path"]: number for number in sensitivity["numbers"]}
    assert numbers["memory.dram.size"]["elasticity"] == 0
    assert "warps" in numbers["limits.warp_size"]["stuck"]
    assert numbers["limits.warp_size"]["elasticity"] is None
    sizes = [abs(number["elasticity"] or 0) for number in sensitivity["numbers"]]
    assert sizes == sorted(sizes, reverse=True)
    assert not any(number["could_flip"] for number in sensitivity["numbers"])


def test_a_number_that_is_known_badly_can_flip_the_plan(prologue):
    # a launch that is known to 5 % and is 3 % below the crossing could be above it
    (change,) = find_thresholds(prologue, H100, parse_range("launch.stream=0.1us..50us", "--threshold")).changes
    launch = {"stream": {"value": f"{0.97e6 * change['below']} us", "accuracy": "microbenchmark"}}
    profile = profile_from_definition({**H100.definition, "launch": launch}, "test")
    study = build_study([prologue.graph], [profile], [], PlanOptions())
    trials = [t for t in plan_trials(study.points[0]).trials if t.path in ("launch.stream", "memory.dram.size")]
    part = TrialPart(subject=study.subjects[0], options=PlanOptions(), base=profile, trials=tuple(trials))
    _, tried = try_out(part)
    assert {t.path for t, outcome in zip(trials, tried, strict=True) if outcome.flips} == {"launch.stream"}


def test_every_word_of_accuracy_in_the_bundled_profiles_has_a_spread():
    for name in ("h100", "a100", "b200", "mi300x", "mobile-npu", "ethos-u85-512", "rtx-4090"):
        said = {item.accuracy for item in load_profile(name).sources.values()} - {None}
        assert said <= set(SPREAD), name


def test_the_spread_of_a_fitted_constant_is_its_error():
    assert stated_spread(H100, "calibration.gemm_t0") == H100.calibration["gemm_t0"].error
    assert stated_spread(H100, "launch.stream") == SPREAD["microbenchmark"]


def test_a_step_that_the_profile_forbids_goes_down(sensitivity):
    # 1 % more than 227 KiB in a block is more than the 228 KiB of a unit
    steps = {number["path"]: number["step"] for number in sensitivity["numbers"]}
    assert -0.0101 < steps["memory.shared.per_block_max"] < -0.0099
    assert 0.0099 < steps["launch.stream"] < 0.0101


@pytest.fixture
def run(call, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # test runners set it
    (tmp_path / "adds.yaml").write_text(ADDS)

    return partial(call, "whatif", tmp_path / "adds.yaml", "--hw", "h100", "--workers", "1")


def test_the_command_shows_thresholds(run):
    code, out, err = run("--threshold", "limits.argument_bytes=190B..400B", "--resolution", "1B")
    assert (code, err) == (0, "")
    assert "239 B .. 240 B" in out
    assert "merged 2 > 1: t1+t2+y" in out
    code, out, _ = run(
        "--threshold", "limits.argument_bytes=190B..400B", "--format", "json", "--set", "launch.stream=1,2us"
    )
    assert [line["set"] for line in json.loads(out)["lines"]] == [{"launch.stream": 1e-6}, {"launch.stream": 2e-6}]


def test_the_command_searches(run):
    code, out, err = run("--minimise", "memory.dram.bandwidth=1..4TB/s", "--target", "40us")
    assert (code, err) == (0, "")
    assert "smallest 2" in out
    found = json.loads(run("--minimise", "memory.dram.bandwidth=1..4TB/s", "--target", "40us", "--format", "json")[1])
    jsonschema.validate(found, load_schema("search"))
    assert run("--minimise", "memory.dram.bandwidth=1..4TB/s", "--target", "1us")[0] == 3


def test_sensitivities_as_a_table(sensitivity):
    document = {"format": "fusesolve-sensitivity/1", "set": [], "lines": [sensitivity]}
    jsonschema.validate(json.loads(format_json(document)), load_schema("sensitivity"))
    out = sensitivity_table(document, width=160, colour=False)
    assert out.splitlines()[2].startswith(("memory.dram.bandwidth", "calibration.stream_share"))
    assert "the plan hangs on: no number within its stated accuracy" in out
    assert "cannot move alone: limits.threads_per_unit" in out


def test_a_sweep_as_a_table_for_people(run):
    code, out, _ = run("--set", "launch.stream=1us,2us", "--format", "table")
    assert code == 0
    head, names, first, _ = out.splitlines()
    assert head.startswith("all: graph adds, hardware H100-SXM5-80GB, plan ")
    assert names.split()[:2] == ["launch.stream", "time"]
    assert first.split()[:2] == ["1", "us"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--sensitivity", "--threshold", "launch.stream=1us..2us"], "two questions"),
        (["--minimise", "launch.stream=1us..2us"], "go together"),
        (["--target", "1us"], "go together"),
        (["--minimise", "launch.stream=1us..2us", "--target", "1"], "--target: '1' has no unit"),
        (["--minimise", "launch.stream=1us..2us", "--target", "0us"], "at least 1 ns"),
        (["--resolution", "1us"], "--resolution goes with"),
        (["--threshold", "launch.stream=2us..1us"], "must be below"),
        (["--sensitivity", "--format", "csv"], "only sweeps have csv"),
    ],
)
def test_questions_that_make_no_sense(run, argv, said):
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert said in err
