"""The closed-form GPU simulator: template by template, all candidates and tilings at once."""

from collections.abc import Callable
from functools import partial

import numpy as np

from fusesolve.cost.gpu import attention, block, contraction, convolution, library_rows, opaque, pointwise, rows, vector
from fusesolve.cost.gpu import terms as shared_terms
from fusesolve.cost.gpu.device import Device, read_device
from fusesolve.cost.sweep import Family, sweep
from fusesolve.cost.table import Allowed, Array, Columns, PriceOptions, Prices, WorkloadTable
from fusesolve.group import TEMPLATES, Template
from fusesolve.hardware import HardwareProfile

_MEMORY = shared_terms.combine


def families(device: Device, options: PriceOptions) -> tuple[Family, ...]:
    """Which rows are priced by which template module, once per implementation that the options allow."""

    def simple(
        template: Template, module_tilings: dict[str, Array], run: Callable[..., object],
        wants: Callable[[WorkloadTable], Array] | None = None, *, library: bool = False,
    ) -> Family:  # fmt: skip
        return Family(
            template=TEMPLATES.index(template), tilings=module_tilings, library=library,
            evaluate=lambda w, tile: run(device, w, tile), combine=_MEMORY, wants=wants,
        )  # fmt: skip

    found = [
        simple(Template.POINTWISE, pointwise.tilings(), pointwise.evaluate),
        simple(Template.MOVEMENT, pointwise.tilings(), pointwise.evaluate),
        simple(Template.ROW, rows.tilings(contiguous=True), rows.evaluate, _own_rows),
        simple(Template.ROW, library_rows.tilings(), library_rows.evaluate, _library_rows, library=True),
        simple(Template.REDUCTION, rows.tilings(contiguous=False), rows.evaluate),
        simple(Template.BLOCK, block.tilings(), block.evaluate),
        simple(Template.OPAQUE, opaque.tilings(), opaque.evaluate),
    ]
    for library in (True, False):  # a library kernel wins a tie
        if options.implementation != ("generated" if library else "library"):
            found += [_contraction(device, library=library), _attention(device, library=library)]
            found += [*_winograd(device), _vector(device)] if library else []
    return tuple(found)


def _winograd(device: Device) -> list[Family]:
    """The two forms of a convolution that only libraries have."""
    forms = (
        (convolution.fused_tilings(), convolution.evaluate_fused),
        (contraction.tilings(device), convolution.evaluate_apart),
    )
    return [
        Family(
            template=TEMPLATES.index(Template.CONTRACTION), tilings=tilings, library=True,
            evaluate=partial(run, device), combine=convolution.combine, wants=_bare_images,
        )
        for tilings, run in forms
    ]  # fmt: skip


def _vector(device: Device) -> Family:
    """Matrix-vector products, which only libraries have as kernels of their own."""
    return Family(
        template=TEMPLATES.index(Template.CONTRACTION), tilings=vector.tilings(), library=True,
        evaluate=partial(vector.evaluate, device), combine=_MEMORY, wants=partial(vector.wanted, device),
    )  # fmt: skip


def _contraction(device: Device, *, library: bool) -> Family:
    return Family(
        template=TEMPLATES.index(Template.CONTRACTION), tilings=contraction.tilings(device), library=library,
        evaluate=lambda w, tile: contraction.evaluate(device, w, tile, library=library), combine=contraction.combine,
        wants=_plain if library else None,
        worth=lambda w, tile: contraction.worth(device, w, tile, library=library),
    )  # fmt: skip


def _attention(device: Device, *, library: bool) -> Family:
    return Family(
        template=TEMPLATES.index(Template.ATTENTION), tilings=attention.tilings(library=library), library=library,
        evaluate=lambda w, tile: attention.evaluate(device, w, tile, library=library), combine=attention.combine,
        wants=_plain if library else None,
    )  # fmt: skip


def _plain(table: WorkloadTable) -> Array:
    """A library call does one bare contraction, or bare attention, and nothing else."""
    return table["plain"]


def _bare_images(table: WorkloadTable) -> Array:
    """A library's convolution of the kind that Winograd's forms exist for."""
    return table["plain"] * table["image_rows"]


def _library_rows(table: WorkloadTable) -> Array:
    """Rows that a library's kernel does, with a launch shape of its own."""
    return table["row_threads"]


def _own_rows(table: WorkloadTable) -> Array:
    """All other rows."""
    return 1.0 - np.minimum(table["row_threads"], 1.0)


def price(table: WorkloadTable, profile: HardwareProfile, options: PriceOptions, allowed: Allowed) -> Prices:
    """The fastest legal tiling of every row on a GPU; see `Prices`."""
    device = read_device(profile, options.launch)
    return sweep(table, families(device, options), options, allowed)


__all__ = ["Columns", "price", "read_device"]
