"""The operator vocabulary: one module per group, and here the operator `opaque`, which stands for
those outside the vocabulary and carries a small ONNX model. See `docs/reference/operators.md`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.core.codec import canonical_json
from tilewright.core.element_types import is_element_type
from tilewright.core.errors import InternalError
from tilewright.graph.network import TensorType
from tilewright.graph.operators.attention import ATTENTION, QUANTIZED_ATTENTION
from tilewright.graph.operators.base import Operator, Types, expect
from tilewright.graph.operators.elementwise import ELEMENTWISE
from tilewright.graph.operators.movement import MOVEMENT
from tilewright.graph.operators.recurrent import RECURRENT
from tilewright.graph.operators.reduction import REDUCTION
from tilewright.graph.operators.windows import WINDOWS


def results_text(types: Sequence[TensorType]) -> str:
    """The attribute `results` of `opaque`: JSON `[["float32",[1,3]],…]`, one entry per output."""
    return canonical_json([[kind.dtype, list(kind.shape)] for kind in types])


def island_text(nodes: Sequence[str], reason: str) -> str:
    """The attribute `island` of `opaque`: JSON `[["nonzero","gather"],"why"]`."""
    return canonical_json([list(nodes), reason])


def _opaque_type(
    _types: Types, results: str, output_index: int = 0, **_named: object
) -> TensorType:
    found = json.loads(results)
    expect(0 <= output_index < len(found), f"has {len(found)} results, no number {output_index}")
    dtype, shape = found[output_index]
    expect(is_element_type(str(dtype)), f"result type {dtype}")
    return TensorType(tuple(int(size) for size in shape), str(dtype))


def _opaque(*_arrays: object, **_named: object) -> object:
    raise InternalError("an opaque operator has no numpy reference; run its ONNX model instead")


OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        *(*WINDOWS, *REDUCTION, *RECURRENT, *ELEMENTWISE, *MOVEMENT),
        ATTENTION,
        QUANTIZED_ATTENTION,
        Operator(name="opaque", result_type=_opaque_type, compute=_opaque, arity=None),
    )
}
"""Every operator by name."""
