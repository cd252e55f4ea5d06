"""This machine as a hardware profile: its NVIDIA GPU if it is a bundled one, else its CPU."""

from fusesolve.detect.cpu_facts import CpuFacts, measure_copy_bandwidth, read_cpu_facts
from fusesolve.detect.machine import GPU_NAMES, Detection, cpu_definition, detect_profile, match_gpu, query_nvidia_smi

__all__ = [
    "GPU_NAMES",
    "CpuFacts",
    "Detection",
    "cpu_definition",
    "detect_profile",
    "match_gpu",
    "measure_copy_bandwidth",
    "query_nvidia_smi",
    "read_cpu_facts",
]
