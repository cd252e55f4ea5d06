"""What a kernel costs on a device: one module per class of device, behind one function.

`COST_MODELS` is the table: kind of profile to its pricing function. A new class of device is one module and one row.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusesolve.cost import cpu, gpu, npu
from fusesolve.cost.gpu.packed import price_packs
from fusesolve.cost.table import Allowed, PriceOptions, Prices, WorkloadTable
from fusesolve.hardware import HardwareProfile

Pricer: TypeAlias = Callable[[WorkloadTable, HardwareProfile, PriceOptions, Allowed], Prices]

PackPricer: TypeAlias = Callable[[Prices, NDArray[np.intp], HardwareProfile, PriceOptions, Allowed], Prices]

COST_MODELS: Mapping[str, Pricer] = {"gpu": gpu.price, "npu": npu.price, "cpu": cpu.price}
# Prices of independent kernels in one launch, for the kinds of device that have such kernels.
PACKERS: Mapping[str, PackPricer] = {"gpu": price_packs}
