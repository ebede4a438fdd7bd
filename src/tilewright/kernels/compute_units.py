"""The type in which a kernel multiplies, and the unit that does it: `bfloat16`, `avx512bf16`."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.core.element_types import element_type
from tilewright.core.targets import Target
from tilewright.graph.workload import Workload
from tilewright.kernels.amx import FEATURES
from tilewright.kernels.attention_amx import AmxAttention
from tilewright.kernels.attention_int8 import Int8Attention
from tilewright.kernels.base import CODED_WEIGHTS, SINGLE, Coarse, TakesCodes
from tilewright.kernels.batch_matmul_amx import AmxBatchMatmul
from tilewright.kernels.batch_matmul_int8 import Int8BatchMatmul
from tilewright.kernels.codes import CODES
from tilewright.kernels.conv2d_amx import AmxConvolution
from tilewright.kernels.conv2d_int8 import Int8Convolution
from tilewright.kernels.conv2d_transposed_int8 import Int8TransposedConvolution
from tilewright.kernels.conv2d_winograd_int8 import CodeWinograd
from tilewright.kernels.cuda.code_products import CudaCodeProducts
from tilewright.kernels.dense_amx import AmxDense
from tilewright.kernels.dense_int8 import Int8Dense
from tilewright.kernels.registry import implementation, is_ours

ON_CODES = "int8"
(_SINGLES,) = SINGLE
_MATRICES = (AmxConvolution, AmxDense, AmxBatchMatmul, AmxAttention)
"""What multiplies matrices, if the target has units for that."""
_DOTS = (
    Int8Convolution,
    CodeWinograd,
    Int8TransposedConvolution,
    Int8Dense,
    Int8BatchMatmul,
    Int8Attention,
    CudaCodeProducts,
)
"""What multiplies codes as codes; others widen them to singles."""


def multiplied_type(workload: Workload, name: str) -> str:
    """The type in which an implementation of a workload multiplies: `int8` for all codes of eight
    bits, `int8-weights` for singles times codes, that of singles for what has no other."""
    anchor, spec = workload.anchor, implementation(name)
    if anchor is not None and len(anchor.inputs) > 1 and workload.element_type in CODES:
        return ON_CODES
    if isinstance(spec, TakesCodes):
        return CODED_WEIGHTS
    return spec.multiplies_in if isinstance(spec, Coarse) else _SINGLES


def multiplying_unit(workload: Workload, name: str, target: Target) -> str:
    """The name of the unit that multiplies for an implementation: `vector` for singles, and for
    types that are widened to them; empty where the target does not tell its units."""
    dtype, spec = multiplied_type(workload, name), implementation(name)
    widened = dtype == CODED_WEIGHTS or (dtype == ON_CODES and not isinstance(spec, _DOTS))
    dtype = _SINGLES if widened else dtype
    unit = target.unit(dtype, tiles=isinstance(spec, _MATRICES))
    if unit is None:
        computed_in = element_type(dtype).computed_in
        unit = target.unit(computed_in if dtype != ON_CODES else "int32", tiles=False)
    return unit.name if unit is not None else ""


def needed_features(names: Iterable[str], target: Target) -> tuple[str, ...]:
    """The instruction sets of a target that a processor must have to run kernels of these
    implementations: those of tile registers only where one multiplies in them, or is another
    package's and may. Compilers use all others unasked."""
    tiles = any(isinstance(implementation(n), _MATRICES) or not is_ours(n) for n in set(names))
    return tuple(each for each in target.features if tiles or not each.startswith(FEATURES))
