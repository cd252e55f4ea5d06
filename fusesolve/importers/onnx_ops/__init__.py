"""How ONNX operators become primitives: one handler per operator of the standard, by family."""

from collections.abc import Mapping
from types import MappingProxyType

from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_ops.attention import ATTENTION
from fusesolve.importers.onnx_ops.contraction import CONTRACTIONS
from fusesolve.importers.onnx_ops.elementwise import ELEMENTWISE
from fusesolve.importers.onnx_ops.indexing import INDEXING
from fusesolve.importers.onnx_ops.movement import MOVEMENT
from fusesolve.importers.onnx_ops.normalise import NORMALISATION
from fusesolve.importers.onnx_ops.quantise import QUANTISATION
from fusesolve.importers.onnx_ops.recurrent import RECURRENCES
from fusesolve.importers.onnx_ops.reduction import REDUCTIONS
from fusesolve.importers.onnx_ops.window import WINDOWS

__all__ = ["HANDLERS"]

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **ELEMENTWISE,
        **REDUCTIONS,
        **CONTRACTIONS,
        **MOVEMENT,
        **WINDOWS,
        **INDEXING,
        **NORMALISATION,
        **QUANTISATION,
        **ATTENTION,
        **RECURRENCES,
    }
)
