"""The constant tensors of an ONNX model as numpy arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.core.errors import ModelError
from tilewright.graph.network import Array
from tilewright.graph.tensor import DTYPE_BYTES, TensorType
from tilewright.models.naming import quoted

_PROPAGATED_ELEMENTS = 1024


def dtype_name(element_type: int, what: str) -> str:
    """Our name of an ONNX element type; ModelError when it is not one of ours."""
    known = element_type in onnx.helper.get_all_tensor_dtypes()
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type)).name if known else ""
    if name not in DTYPE_BYTES:
        label = onnx.TensorProto.DataType.Name(element_type) if known else str(element_type)
        raise ModelError(f"{what} holds elements of type {label}, which is not supported")
    return name


def array_of(tensor: onnx.TensorProto, folder: str = "") -> Array:
    """The values of a constant; ModelError when they do not fit its shape.

    `folder` is where the files of weights outside the model lie.
    """
    what = f"constant {quoted(tensor.name)}"
    dtype_name(tensor.data_type, what)
    try:
        array = numpy_helper.to_array(tensor, folder)
    except ValueError as error:
        raise ModelError(f"{what} is cut short or broken: {error}") from error
    return np.asarray(array)


def take_weights(model: onnx.ModelProto, folder: Path) -> dict[str, Array]:
    """All initializers; the large ones leave the model and become typed inputs of its graph.

    What is left is small enough for shape inference to copy freely.
    """
    graph = model.graph
    if graph.sparse_initializer:
        name = quoted(graph.sparse_initializer[0].values.name)
        raise ModelError(f"constant {name} is sparse, which is not supported")
    inputs = {value.name for value in graph.input}
    weights: dict[str, Array] = {}
    kept: list[onnx.TensorProto] = []
    for tensor in graph.initializer:
        array = array_of(tensor, str(folder))
        weights[tensor.name] = array
        if array.size <= _PROPAGATED_ELEMENTS:
            kept.append(tensor)
        elif tensor.name not in inputs:
            graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)
    return weights


def static_type(value: onnx.ValueInfoProto) -> TensorType | None:
    """The type of a tensor when its shape is fully known and its elements are supported."""
    if not value.type.HasField("tensor_type"):
        return None
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    shape = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
    if min(shape, default=0) < 0 or tensor.elem_type not in onnx.helper.get_all_tensor_dtypes():
        return None
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    return TensorType(tuple(shape), name) if name in DTYPE_BYTES else None
