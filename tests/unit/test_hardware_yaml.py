"""The strict loader: every problem at once, inheritance, names, and hostile files."""

import contextlib
import json
import re
from copy import deepcopy

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusesolve.errors import InputError
from fusesolve.hardware_yaml import (
    check_profile,
    find_profile,
    list_profiles,
    load_profile,
    parse_profile,
    profile_from_definition,
    show_profile,
)
from fusesolve.hardware_yaml.schema import LEAVES

GPU = """\
format: fusesolve-hardware/1
name: toy
vendor: nobody
kind: gpu
compute:
  units: 10
  clock: 1 GHz
  pipes:
    fma:
      per_clock: {f32: 64}
registers: {per_unit: 65536}
memory:
  shared: {per_unit: 64 KiB}
  l2: {size: 10 MiB, bandwidth: 1 TB/s}
  dram: {size: 16 GB, bandwidth: 500 GB/s}
limits: {threads_per_block: 1024, threads_per_unit: 2048, warps_per_unit: 64, blocks_per_unit: 32, warp_size: 32}
launch: {stream: 2 us}
"""
LAUNCH = "launch: {stream: 2 us}"


def problems(text, origin="toy.yaml"):
    with pytest.raises(InputError) as caught:
        parse_profile(text, origin)
    return str(caught.value)


def test_a_small_profile_gets_documented_defaults():
    profile = parse_profile(GPU, "toy.yaml")
    assert profile.compute.sustained_clock == 1e9
    assert profile.memory.dram.sustained == 0.88 * 500e9
    assert profile.memory.l2 is not None
    assert profile.memory.l2.knee == int(0.78 * (10 << 20))
    assert profile.memory.l2.latency == pytest.approx(260e-9)
    assert profile.registers is not None
    assert (profile.registers.per_thread_max, profile.registers.per_block_max) == (255, 65536)
    assert profile.launch.graph == profile.launch.stream == 2e-6
    assert profile.sources["memory.dram.sustained"].source == "default: prototype fit: 0.88 of the spec"
    assert profile.compute.tensor is None
    assert profile.memory.l1 is None
    assert profile.code is None
    assert profile.dma is None
    assert profile.calibration == {}


def test_the_definition_reads_back_as_the_same_profile():
    profile = parse_profile(GPU, "toy.yaml")
    again = profile_from_definition(json.loads(json.dumps(profile.definition)), "again")
    assert again == profile
    assert again.sha256 == profile.sha256


def test_key_order_does_not_change_the_profile():
    lines = GPU.splitlines()
    shuffled = "\n".join([*lines[10:], *lines[:10]])
    assert parse_profile(shuffled, "b").sha256 == parse_profile(GPU, "a").sha256


def test_json_is_yaml_too():
    assert parse_profile(json.dumps(parse_profile(GPU, "a").definition), "b").name == "toy"


def test_all_problems_are_reported_at_once_each_with_its_path():
    text = (
        GPU.replace("clock: 1 GHz", "clock: 0 GHz")
        .replace("bandwidth: 500 GB/s", "bandwidth: 25e9")
        .replace("launch: {stream: 2 us}", "launch: {stream: 2 parsec}")
        .replace("units: 10", "units: 10.5\n  unit: 3")
        .replace("kind: gpu", "kind: tpu")
        .replace("{f32: 64}", "{f32: -64, float: 3}")
    )
    message = problems(text)
    lines = message.splitlines()
    assert lines[0].startswith("toy.yaml: ")
    assert [line.strip().partition(": ")[0] for line in lines[1:]] == [
        "$.compute.units",
        "$.compute.unit",
        "$.compute.clock",
        "$.compute.pipes.fma.per_clock.f32",
        "$.compute.pipes.fma.per_clock.float",
        "$.memory.dram.bandwidth",
        "$.launch.stream",
        "$.kind",
    ]
    assert lines[0] == f"toy.yaml: {len(lines) - 1} problems in the hardware profile"
    assert "'0 GHz' is impossible: it must be above 0" in message
    assert "'25e9' has no unit: expected bytes per second such as '3.35 TB/s'" in message
    assert "unknown key 'unit': did you mean 'units'?" in message
    assert "expected a whole number" in message
    assert "expected one of gpu, npu, cpu, got 'tpu'" in message


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("shared: {per_unit: 64 KiB}", "shared: {per_unit: 64 KiB, per_block_max: 65 KiB}",
         "$.memory.shared.per_block_max: 66,560 is more than memory.shared.per_unit = 65,536: impossible"),
        ("l2: {size: 10 MiB,", "l2: {size: 10 MiB, knee: 11 MiB,", "$.memory.l2.knee: "),
        ("bandwidth: 500 GB/s", "bandwidth: 500 GB/s, sustained: 501 GB/s", "$.memory.dram.sustained: "),
        ("bandwidth: 500 GB/s", "bandwidth: 500 GB/s, sustained: 101 %", "$.memory.dram.sustained: "),
        ("bandwidth: 500 GB/s", "bandwidth: 500 GB/s, sustained: 0 %", "$.memory.dram.sustained: '0 %' is impossible"),
        ("clock: 1 GHz", "clock: 1 GHz\n  sustained_clock: 2 GHz", "$.compute.sustained_clock: "),
        ("threads_per_block: 1024", "threads_per_block: 4096", "$.limits.threads_per_block: 4,096 is more than"),
        ("warps_per_unit: 64", "warps_per_unit: 63", "$.limits.warps_per_unit: 63 warps of 32 threads are not"),
        ("{per_unit: 65536}", "{per_unit: 65536, per_thread_max: 99999}", "$.registers.per_thread_max: "),
        ("{per_unit: 64 KiB}", "{per_unit: 64 KiB, carveouts: [64 KiB, 32 KiB]}", "expected ascending numbers"),
        ("format: fusesolve-hardware/1", "format: fusesolve-hardware/9", "$.format: expected 'fusesolve-hardware/1'"),
        ("name: toy", "name: 7", "$.name: expected text, got 7: put it in quotes"),
        ("name: toy", "name:", "$.name: expected text"),
        ("vendor: nobody", "", "$.vendor: missing: expected text"),
        (LAUNCH, "", "$.launch.stream: missing: expected seconds"),
        ("registers: {per_unit: 65536}", "", "$.registers.per_unit: missing: expected a bare count"),
        ("registers: {per_unit: 65536}", "registers: 65536", "$.registers: expected a block (per_unit"),
        ("  units: 10\n", "", "$.compute.units: missing"),
        ("fma:\n      per_clock: {f32: 64}", "alu:\n      per_clock: {i32: 64}", "a GPU needs its FMA results"),
        ("{f32: 64}", "{f32: {value: 64, sauce: x}}", "$.compute.pipes.fma.per_clock.f32.sauce: unknown key 'sauce'"),
        ("{f32: 64}", "{f32: {source: x}}", "expected a number or {value: ..., source: ...}"),
        ("{f32: 64}", "{f32: {value: 64, source: [1]}}", "$.compute.pipes.fma.per_clock.f32.source: expected text"),
        ("{f32: 64}", "{f32: true}", "expected a bare count"),
        ("{f32: 64}", "{f32: .nan}", "expected a finite number"),
        ("{f32: 64}", "{f32: 64, f32: 65}", "$.compute.pipes.fma.per_clock.f32: duplicate key, line 10"),
        ("name: toy", "name: toy\nname: toy2", "$.name: duplicate key, line 3"),
        ("units: 10", "units: !!python/object:os.system 10", "YAML tags are not allowed"),
        ("name: toy", "name: toy\n7: seven", "$: key 7 is not text"),
        (LAUNCH, LAUNCH + "\ncalibration: 7", "$.calibration: expected constants"),
        (LAUNCH, LAUNCH + "\ncalibration: {gem_t0: 1 us}", "did you mean 'gemm_t0'"),
        (LAUNCH, LAUNCH + "\ncalibration: {gemm_t0: 0.5}", "$.calibration.gemm_t0: 0.5 has no unit"),
        (LAUNCH, LAUNCH + "\ncalibration: {gemm_t0: {value: 1 us, row: 7}}", "unknown key 'row'"),
        (LAUNCH, LAUNCH + "\ncalibration: {gemm_t0: {rows: 7}}", "$.calibration.gemm_t0: expected"),
        (LAUNCH, LAUNCH + "\ncalibration: {uncalibrated: maybe}", "expected true or false"),
        (LAUNCH, LAUNCH + "\ndma: {channels: 2}", "$.dma.bandwidth: missing"),
    ],
)  # fmt: skip
def test_one_mistake_one_clear_line(old, new, says):
    assert old in GPU
    assert says in problems(GPU.replace(old, new))


def test_a_single_mistake_gives_a_single_problem():
    for old, new in (("clock: 1 GHz", "clock: 1"), ("size: 10 MiB", "size: ten"), ("stream: 2 us", "stream: -2 us")):
        assert len(problems(GPU.replace(old, new)).splitlines()) == 2


def test_anything_but_a_gpu_needs_neither_limits_nor_registers_but_a_dispatch():
    npu = "\n".join(line for line in GPU.splitlines() if not line.startswith(("registers", "limits", "launch")))
    npu = npu.replace("kind: gpu", "kind: npu")
    assert "$.launch.dispatch: missing" in problems(npu)
    profile = parse_profile(npu + "\nlaunch: {dispatch: 1 us}\n", "npu")
    assert profile.limits is None
    assert profile.registers is None
    assert profile.launch.stream is None


def test_constants_keep_rows_error_and_source():
    text = GPU + "calibration: {gemm_t0: {value: 1.87 us, source: fit, rows: 1582, error: 7.8 %}, gemm_multicast: 0}\n"
    profile = parse_profile(text, "toy")
    found = profile.calibration["gemm_t0"]
    assert (found.value, found.source, found.rows, found.error) == (1.87e-6, "fit", 1582, 0.078)
    assert profile.calibration["gemm_multicast"].value == 0
    assert not profile.uncalibrated


def test_cache_constants_may_be_a_share_of_the_cache():
    text = GPU + "calibration: {l2_stream: 60 %, gemm_l2_per_unit: {value: 150 %, source: fit}}\n"
    profile = parse_profile(text, "toy")
    assert profile.constant("l2_stream", 0.0) == pytest.approx(0.6e12)
    assert profile.constant("gemm_l2_per_unit", 0.0) == pytest.approx(1.5e12 / 10)  # ten units
    assert "is ratio" not in problems(text.replace("l2_stream: 60 %", "l2_stream: 60"))
    broken = problems(text.replace("bandwidth: 1 TB/s", "bandwidth: 1"))
    assert "$.calibration.l2_stream: is a share of memory.l2.bandwidth, which is missing or wrong" in broken
    assert "$.calibration.gemm_t0: '5 %' is a ratio" in problems(GPU + "calibration: {gemm_t0: 5 %}\n")


# --- hostile and broken files ---------------------------------------------------------------------------------------


def test_aliases_are_refused_so_that_no_bomb_can_grow():
    bomb = "a: &a [x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\n" + GPU
    assert "alias '*a' is not allowed" in problems(bomb)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- a list\n", "expected keys and values"),
        ("just text", "expected keys and values"),
        ("a: 1\n---\nb: 2\n", "more than one YAML document"),
        ("a: [1, 2\nb: 3\n", "not valid YAML: line 2"),
        ("a: \x00\n", "not valid YAML"),
        ("a: 'unfinished\n", "not valid YAML"),
        ("a: " + "[" * 200 + "]" * 200, "nested more than 16 levels deep"),
        ("a: " + "{b: " * 500 + "1" + "}" * 500, "nested more than 16 levels deep"),
        ("x" * (1 << 20) + "y", "the limit is 1048576"),
        ("a: " + "9" * 5000, "text of 5000 characters"),
    ],
)
def test_broken_files_get_one_clear_line(text, says):
    assert says in problems(text)


def test_files_that_are_no_text(tmp_path):
    binary = tmp_path / "model.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="not UTF-8 text"):
        load_profile(str(binary))
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"a" * ((1 << 20) + 1))
    with pytest.raises(InputError, match="the limit is 1048576"):
        load_profile(str(huge))


def test_yaml_1_1_surprises_stay_text():
    # `on`, `1:30`, `0x10` are a truth value, 90 and 16 for PyYAML; `010` is 8 there and 10 here
    assert parse_profile(GPU.replace("units: 10", "units: 010"), "toy.yaml").compute.units == 10
    for word in ("on", "1:30", "0x10", "1_000.5"):
        assert f"'{word}'" in problems(GPU.replace("units: 10", f"units: {word}"))


# --- names and inheritance ------------------------------------------------------------------------------------------


def test_bundled_names_with_and_without_suffix_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_profile("h100.yaml") == load_profile("h100")


def test_a_file_goes_before_a_bundled_name(tmp_path, monkeypatch):
    (tmp_path / "h100.yaml").write_text(GPU)
    monkeypatch.chdir(tmp_path)
    assert load_profile("h100.yaml").name == "toy"
    assert load_profile("h100").name == "H100-SXM5-80GB"


def test_an_unknown_name_lists_near_matches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"no hardware profile 'h10'.*did you mean h100"):
        load_profile("h10")
    with pytest.raises(InputError, match="bundled are a100"):
        load_profile("zzzzzz")
    with pytest.raises(InputError, match="no hardware profile"):
        load_profile("")
    with pytest.raises(InputError, match="no hardware profile"):
        load_profile(str(tmp_path))


@pytest.mark.parametrize("name", ["x" * 5000, "a\x00b", ".", "..", "/", "base/sm_90", "sm_90/../h100"])
def test_names_that_no_file_can_have_are_no_profile(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no hardware profile"):
        load_profile(name)


def test_a_what_if_profile_is_three_lines(tmp_path):
    path = tmp_path / "what-if.yaml"
    path.write_text("format: fusesolve-hardware/1\nextends: h100\nmemory: {dram: {bandwidth: 5 TB/s}}\n")
    profile = load_profile(str(path))
    assert profile.memory.dram.bandwidth == 5e12
    assert profile.memory.dram.size == load_profile("h100").memory.dram.size
    assert profile.memory.dram.sustained == pytest.approx(0.9 * 5e12)
    assert "extends" not in profile.definition


def test_extends_finds_files_beside_the_extending_one(tmp_path):
    (tmp_path / "lower").mkdir()
    (tmp_path / "base.yaml").write_text(GPU)
    (tmp_path / "lower/child.yaml").write_text("extends: ../base.yaml\nname: child\n")
    (tmp_path / "lower/grandchild.yaml").write_text("extends: child\nlaunch: {graph: 1 us}\n")
    profile = load_profile(str(tmp_path / "lower/grandchild.yaml"))
    assert (profile.name, profile.launch.stream, profile.launch.graph) == ("child", 2e-6, 1e-6)


def test_a_file_may_have_the_name_of_the_bundled_profile_that_it_extends(tmp_path, monkeypatch):
    (tmp_path / "h100.yaml").write_text("extends: h100\nname: mine\n")
    monkeypatch.chdir(tmp_path)
    assert load_profile("h100.yaml").name == "mine"
    assert load_profile(str(tmp_path / "h100.yaml")).compute.units == 132


def test_files_of_the_current_folder_never_get_into_a_bundled_chain(tmp_path, monkeypatch):
    (tmp_path / "sm_90").write_text("name: intruder\n")
    (tmp_path / "h100-sxm").write_text("name: intruder\n")
    monkeypatch.chdir(tmp_path)
    assert load_profile("h100").name == "H100-SXM5-80GB"


def test_null_takes_an_inherited_key_away(tmp_path):
    path = tmp_path / "plain.yaml"
    path.write_text("extends: h100\ncompute: {tensor: null}\ncalibration: null\n")
    profile = load_profile(str(path))
    assert profile.compute.tensor is None
    assert profile.calibration == {}


def test_circles_and_missing_parents_are_named(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(InputError, match=r"inherit in a circle: a.yaml -> b.yaml -> a.yaml"):
        load_profile(str(tmp_path / "a.yaml"))
    (tmp_path / "self.yaml").write_text("extends: self.yaml\n")
    with pytest.raises(InputError, match="circle"):
        load_profile(str(tmp_path / "self.yaml"))
    (tmp_path / "c.yaml").write_text("extends: h1000\n")
    with pytest.raises(InputError, match="no hardware profile 'h1000'"):
        load_profile(str(tmp_path / "c.yaml"))
    (tmp_path / "d.yaml").write_text("extends: [h100]\n")
    with pytest.raises(InputError, match=r"\$\.extends: expected the name or path"):
        load_profile(str(tmp_path / "d.yaml"))


def test_long_chains_end(tmp_path):
    (tmp_path / "p0.yaml").write_text(GPU)
    for index in range(1, 20):
        (tmp_path / f"p{index}.yaml").write_text(f"extends: p{index - 1}.yaml\n")
    assert load_profile(str(tmp_path / "p15.yaml")).name == "toy"
    with pytest.raises(InputError, match="more than 16 profiles"):
        load_profile(str(tmp_path / "p19.yaml"))


def test_a_duplicate_key_in_a_parent_names_the_parent(tmp_path):
    (tmp_path / "base.yaml").write_text(GPU + "name: again\n")
    (tmp_path / "child.yaml").write_text("extends: base.yaml\n")
    with pytest.raises(InputError, match=r"base.yaml: \$\.name: duplicate key"):
        load_profile(str(tmp_path / "child.yaml"))


def test_a_resolved_definition_cannot_inherit():
    with pytest.raises(InputError, match="cannot inherit"):
        profile_from_definition({"extends": "h100"}, "plan")


def test_a_name_cannot_leave_the_bundled_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no hardware profile"):
        find_profile("../hardware/h100")


# --- the operations of `fusesolve profiles` -------------------------------------------------------------------------


def test_the_list_has_bundled_devices_and_no_bases():
    found = {summary.file: summary for summary in list_profiles()}
    assert {"a100", "h100", "mobile-npu", "mi300x", "ethos-u55-128"} <= set(found)
    assert not any(name.startswith(("sm_", "cdna", "ethos_")) for name in found)
    assert found["h100"].units == 132
    assert found["h100"].calibrated
    assert found["h100"].tensor_type == "f16"
    assert not found["b200"].calibrated
    assert found["ethos-u55-128"].tensor_type == "i8"
    assert found["p4"].tensor_peak is None


def test_showing_a_profile_gives_every_number_with_its_source():
    shown = {leaf.path: leaf for leaf in show_profile("h100")}
    assert shown["memory.dram.bandwidth"].value == "3.35 TB/s"
    assert shown["memory.dram.bandwidth"].source == "xla_h100_dump"
    assert shown["compute.pipes.fma.per_clock.f16"].value == "256"
    assert shown["compute.sustained_clock"].source.startswith("default: ")
    assert shown["memory.shared.carveouts"].value.endswith("233472")
    assert re.fullmatch(r"[\d.]+ us", shown["calibration.gemm_t0"].value)
    assert 0.8 < float(shown["calibration.gemm_efficiency"].value) < 1.1
    assert next(iter(shown)) == "name"


def test_checking_gives_problems_as_lines(tmp_path):
    assert check_profile("h100") == []
    path = tmp_path / "bad.yaml"
    path.write_text(GPU.replace("1 GHz", "1").replace("2 us", "2"))
    assert [line.partition(":")[0] for line in check_profile(str(path))] == ["$.compute.clock", "$.launch.stream"]
    assert "no hardware profile" in check_profile(str(tmp_path / "absent.yaml"))[0]


# --- whatever comes: a profile or an InputError, nothing else --------------------------------------------------------

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["1 GHz", "5 %"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(LEAVES)), PLAIN)
@settings(max_examples=150, deadline=None)
def test_any_value_at_any_key_is_a_profile_or_an_input_error(path, value):
    definition = deepcopy(dict(parse_profile(GPU, "toy.yaml").definition))
    *blocks, leaf = path.replace("*", "f32").split(".")
    node = definition
    for key in blocks:
        node = node.setdefault(key, {})
        assume(isinstance(node, dict))
    node[leaf] = value
    message, profile = "", None
    try:
        profile = profile_from_definition(definition, "fuzz")
    except InputError as error:
        message = str(error)
    assert profile is not None or "$." in message
    if profile is not None:
        assert profile_from_definition(profile.definition, "again").sha256 == profile.sha256


@given(st.text(max_size=200) | st.text("abc:-[]{}&*!#|>'\"\n 1", max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_is_refused_with_an_input_error(text):
    with pytest.raises(InputError, match=r"fuzz\.yaml"):
        parse_profile(text, "fuzz.yaml")


@given(st.integers(0, len(GPU)), st.integers(0, 40), st.text(max_size=3))
@settings(max_examples=150, deadline=None)
def test_a_damaged_profile_is_a_profile_or_an_input_error(start, length, inserted):
    with contextlib.suppress(InputError):
        parse_profile(GPU[:start] + inserted + GPU[start + length :], "damaged.yaml")
