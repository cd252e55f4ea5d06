"""Whole networks on NPUs by rank: what a table says of a network (products, weights, layers) as work of an engine.

A table gives totals, no graph. A network is its layers, all alike: each a contraction with an equal share of the
products and weights, priced by the model of scratchpad engines. Totals say nothing of shapes, so only the order of a
device's networks is meant to be right; the errors of the times are shown as they are.

Engines without a bundled profile stand on three published numbers each, in the place of those of the Hexagon profile.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from fusesolve.candidates.pricing import price_workloads
from fusesolve.cost.table import PriceOptions
from fusesolve.group import TEMPLATES, TENSOR_TYPES, Template, Workload
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import load_profile
from fusesolve.study.gains.outcome import Outcome, Request, Times
from fusesolve.study.samples import Skipped

Row: TypeAlias = Mapping[str, str]

HAILO_COLUMNS = frozenset({"device", "task", "model", "fps_batch1", "fps_batch8", "params_M", "ops_G"})
QUALCOMM_COLUMNS = frozenset({
    "model", "component", "precision", "chipset", "runtime", "compute_unit", "latency_ms", "layers_npu", "n_params_M",
    "input_resolution",
})  # fmt: skip
FEWEST = 8  # networks of a kind on a device whose order says anything
PATCH = 16  # pixels a side of an image over which most products of a network use each weight once
BATCH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A profile to start from, and what a published sheet says instead: multiply-adds/s (i8) and bytes/s outside."""

    profile: str
    products: float | None = None
    external: float | None = None


# The table's device -> its engine. Hailo: product pages (26, 20, 20 and 7 TOPS of 8 bits, an operation is half a
# multiply-add); a Hailo-8 reads weights over four lanes of PCIe 3.0, the others from LPDDR4 (64, 64 and 32 bit).
ENGINES: Mapping[str, Engine] = MappingProxyType({
    "Hailo-8": Engine(profile="hexagon", products=13e12, external=3.9e9),
    "Hailo-10H": Engine(profile="hexagon", products=10e12, external=17e9),
    "Hailo-15H": Engine(profile="hexagon", products=10e12, external=17e9),
    "Hailo-15L": Engine(profile="hexagon", products=3.5e12, external=8.5e9),
    **dict.fromkeys(("Snapdragon-8-Gen3", "Snapdragon-8-Elite", "Snapdragon-X-Elite"), Engine(profile="hexagon")),
})  # fmt: skip
# Precision -> element type of the products, bytes of a weight.
PRECISIONS: Mapping[str, tuple[str, int]] = {
    "float": ("f16", 2), "w8a8": ("i8", 1), "w8a16": ("i8", 1), "w8a16_mixed_int16": ("i8", 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Totals of one run: multiply-adds, bytes of weights, layers; seconds that it took."""

    label: str
    products: float
    weights: float
    layers: int
    dtype: str
    latency: float


def read_hailo(request: Request, rows: Sequence[Row]) -> Outcome:
    """Networks of the Hailo model zoo: throughput at batch 1 and 8 as seconds an image."""
    return _read(request, rows, "device", _hailo)


def read_qualcomm(request: Request, rows: Sequence[Row]) -> Outcome:
    """Networks of the Qualcomm AI Hub that run on the NPU alone, by precision and runtime."""
    return _read(request, rows, "chipset", _qualcomm)


def _read(
    request: Request, rows: Sequence[Row], column: str, networks: Callable[[Row], dict[str, Network] | str]
) -> Outcome:
    outcome = Outcome()
    kinds: dict[tuple[str, str], list[Network]] = defaultdict(list)
    for row in rows:
        device = row[column]
        found = networks(row) if request.hardware or device in ENGINES else f"no profile and no engine for {device}"
        if isinstance(found, str):
            outcome.skipped.append(Skipped(device, found))
            continue
        for kind, network in found.items():
            kinds[device, kind].append(network)
    for (device, kind), members in kinds.items():
        if len(members) < FEWEST:
            why = f"only {len(members)} networks of the kind '{kind}'"
            outcome.skipped.extend([Skipped(device, why)] * len(members))
            continue
        name, profile = engine_profile(device, request.hardware)
        outcome.times.append(
            Times(
                device=device, profile=name, op=f"network {kind}", timing="device",
                labels=tuple(network.label for network in members),
                measured=tuple(network.latency for network in members),
                predicted=tuple(network_seconds(members, profile)),
            )
        )  # fmt: skip
    return outcome


def engine_profile(device: str, hardware: str | None = None) -> tuple[str, HardwareProfile]:
    """The name and the profile that stand for a device of the tables."""
    if hardware is not None:
        return hardware, load_profile(hardware)
    engine = ENGINES[device]
    profile = load_profile(engine.profile)
    if engine.products is None or engine.external is None or profile.compute.tensor is None:
        return engine.profile, profile
    rates = {**profile.compute.tensor.per_clock, "i8": engine.products / profile.compute.sustained_clock}
    compute = replace(profile.compute, units=1, tensor=replace(profile.compute.tensor, per_clock=rates))
    dram = replace(profile.memory.dram, bandwidth=engine.external, sustained=engine.external)
    return f"{engine.profile} with the rates of {device}", replace(
        profile, name=device, compute=compute, memory=replace(profile.memory, dram=dram), dma=None
    )


def network_seconds(networks: Sequence[Network], profile: HardwareProfile) -> list[float]:
    """Seconds of each network: its layers one after the other."""
    workloads = [_layer(network) for network in networks]
    prices = price_workloads(workloads, profile, PriceOptions()).latency
    return [float(price) * network.layers for price, network in zip(prices, networks, strict=True)]


def _layer(network: Network) -> Workload:
    """An average layer: a contraction with its share of the products over square weights."""
    weights = max(1, round(network.weights / network.layers))
    products = network.products / network.layers
    points = max(1, round(products / weights))
    return Workload(
        template=TEMPLATES.index(Template.CONTRACTION), m=points, n=max(1, weights), k=1, mma=products,
        tensor_rate=TENSOR_TYPES.index(network.dtype), read_bytes=weights, weight_bytes=weights, plain=1, arrays=3,
    )  # fmt: skip


def _hailo(row: Row) -> dict[str, Network] | str:
    """A dataflow chip holds all layers at once: one kernel; at batch 8 its weights serve eight images."""
    if not row["ops_G"] or not row["params_M"]:
        return "the row lacks operations or parameters"
    products, weights = float(row["ops_G"]) * 1e9 / 2, float(row["params_M"]) * 1e6
    found = {}
    for batch in (1, BATCH):
        rate = row[f"fps_batch{batch}"]
        if rate and float(rate) > 0:
            found[f"batch {batch}"] = Network(
                label=row["model"], products=products, weights=weights / batch, layers=1, dtype="i8",
                latency=1.0 / float(rate),
            )  # fmt: skip
    return found or "the row has no throughput"


def _qualcomm(row: Row) -> dict[str, Network] | str:
    if row["compute_unit"] != "NPU" or float(row["layers_cpu"] or 0) or float(row["layers_gpu"] or 0):
        return "not all layers run on the NPU"
    uses = uses_of_a_weight(row["input_resolution"])
    if not row["n_params_M"] or uses is None or not float(row["layers_npu"] or 0):
        return "the row lacks parameters, layers or an input resolution"
    dtype, width = PRECISIONS[row["precision"]]
    parameters = float(row["n_params_M"]) * 1e6
    network = Network(
        label=f"{row['model']} {row['component']}", products=parameters * uses, weights=parameters * width,
        layers=int(float(row["layers_npu"])), dtype=dtype, latency=float(row["latency_ms"]) * 1e-3,
    )  # fmt: skip
    return {f"{row['precision']} {row['runtime']}": network}


def uses_of_a_weight(resolution: str) -> float | None:
    """How often a network uses each weight, from its input: once a token, or once a patch of an image.

    None where the text gives no sizes.
    """
    sizes = [int(text) for text in re.findall(r"\d+", resolution.split("(")[0].split(",")[0])]
    if not sizes:
        return None
    height, width = sorted(sizes, reverse=True)[:2] if len(sizes) > 1 else (sizes[0], 1)
    return max(1.0, height * width / PATCH**2) if width > 1 else float(height)
