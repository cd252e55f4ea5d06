"""Device texts of measured tables and the bundled profiles that they mean."""

from collections.abc import Mapping

# The table's own text -> bundled profile.
DEVICES: Mapping[str, str] = {
    "A100-PCIE-40GB": "a100-pcie-40gb",
    "A100-PCIE-80GB": "a100-pcie-80gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "A100": "a100",
    "A10G": "a10g",
    "A40": "a40",
    "A6000": "a6000",
    "B200": "b200",
    "H100-80GB": "h100-sxm",
    "H100": "h100-sxm",
    "H100-PCIE": "h100-pcie",
    "H100-PCIe": "h100-pcie",
    "H100-PCIe-80GB": "h100-pcie",
    "H100-PCIE-80GB": "h100-pcie",
    "H100-SXM5-80GB": "h100-sxm",
    "H200": "h200",
    "H200-SXM-141GB": "h200",
    "L4": "l4",
    "L40S": "l40s",
    "MI210": "mi210",
    "P100": "p100",
    "P100-PCIE-16GB": "p100",
    "P4": "p4",
    "RTX 3090": "rtx-3090",
    "RTX 4090": "rtx-4090",
    "RTX3090": "rtx-3090",
    "RTX4090": "rtx-4090",
    "RTXPRO6000": "rtx-pro-6000",
    "RTXPRO6000-MaxQ": "rtx-pro-6000",
    "T4": "t4",
    "V100": "v100",
    "V100-PCIE-32GB": "v100-pcie",
}
# (bundled profile, vintage of the library) -> the profile of the device with that library, where it makes a difference.
VINTAGES: Mapping[tuple[str, str], str] = {("h100-sxm", "2023"): "h100-sxm-2023"}


def profile_name(device: str, library: str = "") -> str | None:
    """The bundled profile of a table's device text and library vintage, None where there is none."""
    name = DEVICES.get(device)
    return None if name is None else VINTAGES.get((name, library), name)
