"""Operators outside the vocabulary, carried as a small ONNX model."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.core.element_types import is_element_type
from tilewright.core.errors import InternalError
from tilewright.core.fingerprints import canonical_json
from tilewright.graph.network import Array
from tilewright.graph.operators.base import Named, Operator, Types
from tilewright.graph.operators.checks import expect, integer, text
from tilewright.graph.tensor import TensorType


def results_text(types: Sequence[TensorType]) -> str:
    """The `results` attribute: JSON `[["float32",[1,3]],…]`, one entry per output."""
    return canonical_json([[kind.dtype, list(kind.shape)] for kind in types])


def result_types(named: Named) -> tuple[TensorType, ...]:
    """The types of all outputs of an opaque node, from its `results` attribute."""
    return tuple(
        TensorType(tuple(int(size) for size in shape), str(dtype))
        for dtype, shape in json.loads(text(named, "results"))
    )


def _infer(_types: Types, named: Named) -> TensorType:
    types = result_types(named)
    index = integer(named, "output_index") if "output_index" in named else 0
    expect(0 <= index < len(types), "opaque", f"has {len(types)} results, no number {index}")
    expect(is_element_type(types[index].dtype), "opaque", f"result type {types[index].dtype}")
    return types[index]


def _flop(_types: Types, _result: TensorType, _named: Named) -> int:
    return 0


def _reference(_arrays: tuple[Array, ...], _named: Named) -> Array:
    raise InternalError("an opaque operator has no numpy reference; run its ONNX model instead")


OPAQUE = (Operator(name="opaque", infer=_infer, flop=_flop, reference=_reference),)
