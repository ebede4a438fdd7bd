"""The constant tensors of an ONNX model as numpy arrays."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.core.element_types import element_type, is_element_type
from tilewright.core.errors import ModelError
from tilewright.graph.network import Array
from tilewright.graph.tensor import TensorType
from tilewright.models.naming import quoted


def dtype_name(element_type: int, what: str) -> str:
    """Our name of an ONNX element type; ModelError when it is not one of ours."""
    known = element_type in onnx.helper.get_all_tensor_dtypes()
    if element_type == onnx.TensorProto.STRING:
        raise ModelError(f"{what} holds text, which is not supported")
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type)).name if known else ""
    if not is_element_type(name):
        label = onnx.TensorProto.DataType.Name(element_type) if known else str(element_type)
        raise ModelError(f"{what} holds elements of type {label}, which is not supported")
    return name


def constant_bytes(tensor: onnx.TensorProto, what: str) -> int:
    """How many bytes the shape and the type of a constant stand for. Raises ModelError."""
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{what} has the shape {list(tensor.dims)}, which is not possible")
    return prod(tensor.dims) * element_type(dtype_name(tensor.data_type, what)).bytes


def weights_bytes(model: onnx.ModelProto) -> int:
    """Of all constants of a model beside those in attributes, wherever they lie."""
    return sum(
        prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for tensor in model.graph.initializer
        if tensor.data_type in _PLAIN_TYPES
    )


def check_constant(tensor: onnx.TensorProto) -> None:
    """Refuse a constant whose bytes do not fit its shape; those of types that are not ours stay
    unread."""
    what = f"constant {quoted(tensor.name)}"
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{what} has the shape {list(tensor.dims)}, which is not possible")
    if tensor.HasField("raw_data") and tensor.data_type in _PLAIN_TYPES:
        wanted, given = constant_bytes(tensor, what), len(tensor.raw_data)
        if wanted != given:
            raise ModelError(
                f"{what} is cut short or broken: {given} bytes for a shape {list(tensor.dims)} of "
                f"{wanted}"
            )


def array_of(tensor: onnx.TensorProto) -> Array:
    """The values of a constant inside the model; ModelError when they do not fit its shape."""
    what = f"constant {quoted(tensor.name)}"
    dtype_name(tensor.data_type, what)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise ModelError(f"{what} is cut short or broken: {error}") from error
    return np.asarray(array)


def static_type(value: onnx.ValueInfoProto) -> TensorType | None:
    """The type of a tensor when its shape is fully known and its elements are supported."""
    tensor = value.type.tensor_type
    shape = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
    known = tensor.HasField("shape") and tensor.elem_type in onnx.helper.get_all_tensor_dtypes()
    if not known or min(shape, default=0) < 0:
        return None
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    return TensorType(tuple(shape), name) if is_element_type(name) else None


_PLAIN_TYPES = frozenset(
    element
    for element in onnx.helper.get_all_tensor_dtypes()
    if element != onnx.TensorProto.STRING
    and is_element_type(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element)).name)
)
