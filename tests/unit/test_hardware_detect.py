"""Detecting this machine: nvidia-smi answers, fake systems, and the real one."""

import pytest

from fusesolve.detect import (
    GPU_NAMES,
    CpuFacts,
    detect_profile,
    match_gpu,
    measure_copy_bandwidth,
    query_nvidia_smi,
    read_cpu_facts,
)
from fusesolve.hardware import per_clock
from fusesolve.hardware_yaml import load_profile, profile_from_definition

AVX2 = frozenset({"avx2", "fma"})
FACTS = CpuFacts(
    model="Test CPU", vendor="AMD", cores=4, clock=3e9, clock_source="cpufreq/cpuinfo_max_freq",
    l1_data=32768, l1_code=32768, core_cache=524288, last_level=16 << 20, cache_source="/sys",
    memory=16 << 30, flags=AVX2,
)  # fmt: skip


def cpu(facts=FACTS, rates=(20e9, 25e9), answer=None):
    detection = detect_profile(lambda: answer, lambda: facts, lambda size, threads: rates)
    return detection, profile_from_definition(detection.definition, "local")


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA A40", "a40"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Tesla P4", "p4"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA A10", None),
        ("NVIDIA L40", None),
        ("NVIDIA H200 NVL", None),
        ("Tesla P40", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("Quadro RTX 4000", None),
        ("NVIDIA RTX A4000", None),
    ],
)
def test_device_names(name, profile):
    assert match_gpu(name) == profile


def test_every_matched_profile_exists():
    for _, name in GPU_NAMES:
        assert load_profile(name).kind == "gpu"


def test_a_known_gpu_is_its_profile_with_this_cards_memory_and_clock():
    detection = detect_profile(lambda: "NVIDIA H200, 143771, 1785, 9.0\nNVIDIA H200, 143771, 1980, 9.0\n")
    profile = profile_from_definition(detection.definition, "local")
    assert profile.name == "H200-SXM-141GB"
    assert profile.memory.dram.size == 143771 << 20
    assert profile.compute.clock == 1.785e9
    assert profile.sources["compute.clock"].source == "read: nvidia-smi clocks.max.sm"
    assert "2 GPUs are there; the first one is described" in detection.notes
    assert load_profile("h200").compute.clock == 1.98e9  # the bundled profile is untouched


def test_a_higher_clock_than_the_profiles_changes_nothing():
    detection = detect_profile(lambda: "NVIDIA GeForce RTX 3090, 24576, 2100, 8.6")
    assert profile_from_definition(detection.definition, "local").compute.clock == 1.695e9


def test_fields_that_the_driver_does_not_know_are_left_to_the_profile():
    detection = detect_profile(lambda: "Tesla T4, [N/A], [N/A], 7.5")
    assert profile_from_definition(detection.definition, "local").memory.dram.size == 16 << 30


def test_an_unknown_gpu_is_named_and_the_cpu_described():
    detection, profile = cpu(answer="NVIDIA L40, 46068, 2490, 8.9\n")
    assert profile.kind == "cpu"
    assert (
        "GPU 'NVIDIA L40' (compute capability 8.9) has no bundled profile: write one that extends sm_89"
        in detection.notes
    )


def test_an_answer_that_is_no_table_is_named():
    detection, profile = cpu(answer="No devices were found\n")
    assert profile.kind == "cpu"
    assert "nvidia-smi answered 'No devices were found'" in detection.notes[0]


def test_a_cpu_profile_says_what_is_measured_read_and_assumed():
    detection, profile = cpu()
    assert profile.compute.units == 4
    assert per_clock(profile.compute.pipes.fma, "f32") == 16  # two 256-bit pipes
    assert per_clock(profile.compute.pipes.fma, "f64") == 8
    assert profile.memory.dram.bandwidth == 25e9
    assert profile.memory.dram.sustained == 20e9
    assert profile.memory.l2 is not None
    assert profile.memory.l2.size == 16 << 20
    assert profile.memory.l1 is not None
    assert profile.memory.l1.latency == pytest.approx(5 / 3e9, rel=1e-2)
    kinds = {source.source.partition(":")[0] for source in profile.sources.values() if source.source}
    assert kinds == {"measured", "read", "assumed", "default"}
    assert profile.sources["memory.dram.bandwidth"].source.startswith("measured")
    assert profile.sources["launch.dispatch"].source.startswith("assumed")
    assert any(note.startswith("measured: ") for note in detection.notes)
    assert any(note.startswith("assumed: ") for note in detection.notes)


@pytest.mark.parametrize(
    ("flags", "lanes"), [({"avx512f", "avx2", "fma"}, 32), ({"avx2"}, 4), ({"asimd"}, 8), (set(), 4)]
)
def test_vector_units_by_flag(flags, lanes):
    facts = CpuFacts(**{name: getattr(FACTS, name) for name in FACTS.__slots__} | {"flags": frozenset(flags)})
    _, profile = cpu(facts)
    assert per_clock(profile.compute.pipes.fma, "f32") == lanes


def fake_system(root, *, cache=True):
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some Xeon @ 2.20GHz\ncpu MHz\t\t: 1000.5\n"
        "flags\t\t: fpu avx2 fma\n\nprocessor\t: 1\nmodel name\t: other\n"
    )
    (root / "proc/meminfo").write_text("MemTotal:       16384 kB\nMemFree: 1 kB\n")
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "30M")]
    ):
        if cache:
            folder = root / f"sys/devices/system/cpu/cpu0/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("type", kind), ("size", size)):
                (folder / name).write_text(f"{text}\n")


def test_facts_of_a_fake_system(tmp_path):
    fake_system(tmp_path)
    facts = read_cpu_facts(tmp_path)
    assert (facts.model, facts.vendor) == ("Some Xeon @ 2.20GHz", "Intel")
    assert (facts.l1_data, facts.l1_code, facts.last_level) == (48 << 10, 32 << 10, 30 << 20)
    assert (facts.clock, facts.clock_source) == (2.2e9, "model name in /proc/cpuinfo")
    assert facts.memory == 16 << 20
    assert facts.flags == {"fpu", "avx2", "fma"}


def test_the_highest_frequency_goes_before_the_name_plate_and_the_control_group_limits_memory(tmp_path):
    fake_system(tmp_path)
    (tmp_path / "sys/devices/system/cpu/cpu0/cpufreq").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").write_text("3700000\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("4194304\n")
    facts = read_cpu_facts(tmp_path)
    assert facts.clock == 3.7e9
    assert facts.memory == 4 << 20
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert read_cpu_facts(tmp_path).memory == 16 << 20


def test_what_the_system_does_not_say_is_assumed_and_says_so(tmp_path):
    fake_system(tmp_path, cache=False)
    (tmp_path / "proc/cpuinfo").write_text("")
    facts = read_cpu_facts(tmp_path)
    assert facts.clock_source.startswith("assumed")
    assert facts.cache_source.startswith("assumed")
    _, profile = cpu(facts)
    assert profile.sources["compute.clock"].source == "assumed: 2.5 GHz: the system does not state it"


def test_an_empty_root_still_gives_a_profile(tmp_path):
    _, profile = cpu(read_cpu_facts(tmp_path))
    assert profile.memory.dram.size == 8 << 30


def test_measured_bandwidth_is_positive_and_ordered():
    median, best = measure_copy_bandwidth(1 << 20, 2)
    assert 0 < median <= best < 1e13


def test_no_nvidia_smi_on_the_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert query_nvidia_smi() is None


def fake_smi(folder, text):
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(0o755)


def test_nvidia_smi_that_answers_and_that_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    fake_smi(tmp_path, 'echo "$1" >&2; echo "Tesla T4, 15360, 1590, 7.5"')
    assert query_nvidia_smi() == "Tesla T4, 15360, 1590, 7.5\n"
    fake_smi(tmp_path, "echo broken; exit 9")
    assert query_nvidia_smi() is None
    fake_smi(tmp_path, "true")
    assert query_nvidia_smi() is None


def test_this_machine_checks_clean(monkeypatch):
    monkeypatch.setattr("fusesolve.detect.machine.query_nvidia_smi", lambda: None)
    profile = profile_from_definition(detect_profile().definition, "local")
    assert profile.kind == "cpu"
    assert profile.compute.units >= 1
    assert profile.memory.dram.sustained <= profile.memory.dram.bandwidth
