"""Operators outside the vocabulary, carried as a small ONNX model."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.core.element_types import is_element_type
from tilewright.core.errors import InternalError
from tilewright.core.fingerprints import canonical_json
from tilewright.graph.network import Array
from tilewright.graph.operators.base import Operator, Types, expect
from tilewright.graph.tensor import TensorType


def results_text(types: Sequence[TensorType]) -> str:
    """The `results` attribute: JSON `[["float32",[1,3]],…]`, one entry per output."""
    return canonical_json([[kind.dtype, list(kind.shape)] for kind in types])


def _type(_types: Types, results: str, output_index: int = 0, **_named: object) -> TensorType:
    found = json.loads(results)
    expect(0 <= output_index < len(found), f"has {len(found)} results, no number {output_index}")
    dtype, shape = found[output_index]
    expect(is_element_type(str(dtype)), f"result type {dtype}")
    return TensorType(tuple(int(size) for size in shape), str(dtype))


def _reference(*_arrays: Array, **_named: object) -> Array:
    raise InternalError("an opaque operator has no numpy reference; run its ONNX model instead")


OPAQUE = (Operator(name="opaque", result_type=_type, compute=_reference, arity=None),)
