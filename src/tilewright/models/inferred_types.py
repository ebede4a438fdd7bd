"""The static types of a model's tensors, and its weights taken out of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

from tilewright.graph.network import Array
from tilewright.graph.tensor import TensorType
from tilewright.models import clean
from tilewright.models.external_weights import take_weights
from tilewright.models.input_shapes import keep_inputs
from tilewright.models.weights import static_type

Infer = Callable[[onnx.ModelProto], onnx.ModelProto]
"""Adds the types of all tensors to a model without large weights; ModelError where it has none."""


def infer_here(model: onnx.ModelProto) -> onnx.ModelProto:
    """Infer types in this process: for models that tilewright has made itself."""
    return onnx.load_model_from_string(clean.infer(model.SerializeToString()))


def infer_types(
    model: onnx.ModelProto, folder: Path, infer: Infer
) -> tuple[onnx.ModelProto, dict[str, Array], dict[str, TensorType]]:
    """The model without its weights, the weights, and the static type of every tensor known.

    `folder` is where weights outside the model lie. Raises ModelError for weights that cannot be
    read, and as `infer`.
    """
    inputs = [value.name for value in model.graph.input]
    weights = take_weights(model, folder)
    inferred = infer(model)
    graph = inferred.graph
    types: dict[str, TensorType] = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        kind = static_type(value)
        if kind is not None:
            types[value.name] = kind
    keep_inputs(inferred, inputs)
    return inferred, weights, types
