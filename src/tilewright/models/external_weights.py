"""The weights of a model, also those in files beside it: inside its folder, regular, and as long
as their shape says.

onnx has a reader, too, which refuses files with a second hard link, as copies of a cache have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from tilewright.core.errors import ModelError
from tilewright.core.input_files import machine_memory_bytes, require_regular
from tilewright.core.units import format_bytes
from tilewright.graph.network import Array
from tilewright.models.naming import quoted
from tilewright.models.weights import array_of, constant_bytes

_PROPAGATED_ELEMENTS = 1024
_NUMBERS = 20
"""Digits of an offset or length at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """A part of a file."""

    path: Path
    offset_bytes: int
    length_bytes: int

    def read(self) -> Array:
        """The bytes. Raises OSError."""
        return np.fromfile(self.path, np.uint8, count=self.length_bytes, offset=self.offset_bytes)


def check_external(model: onnx.ModelProto, path: Path) -> bool:
    """Whether weights of the model at `path` lie in other files.

    Raises ModelError where one is outside the model's folder, missing, no regular file or of
    another length than its shape, and where all together are more than the memory of this machine.
    """
    total_bytes = 0
    found = False
    for tensor in _external(model):
        found = True
        total_bytes += _stretch(tensor, path.parent, f" of {quoted(path)}").length_bytes
    memory_bytes = machine_memory_bytes()
    if total_bytes > memory_bytes:
        raise ModelError(
            f"the weights of {quoted(path)} are {format_bytes(total_bytes)}, more than the memory "
            f"of this machine, {format_bytes(memory_bytes)}"
        )
    return found


def take_in(model: onnx.ModelProto, folder: Path) -> None:
    """Put the weights that lie in files of `folder` into the model itself."""
    for tensor in _external(model):
        content = read_external(tensor, folder)
        tensor.raw_data = content.tobytes()
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT


def read_external(tensor: onnx.TensorProto, folder: Path) -> Array:
    """The bytes of a weight that lies in a file of `folder`. Raises ModelError."""
    stretch = _stretch(tensor, folder, "")
    try:
        return stretch.read()
    except OSError as error:
        what = f"weight {quoted(tensor.name)}"
        raise ModelError(f"{what} cannot be read: {error.strerror or error}") from error


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
        array = values_of(tensor, folder)
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


def values_of(tensor: onnx.TensorProto, folder: Path) -> Array:
    """The values of a constant, in the model or in a file of `folder`. Raises ModelError."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return array_of(tensor)
    content = read_external(tensor, folder)
    element = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return content.view(element).reshape(tuple(tensor.dims))


def graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph, those of attributes and of graphs inside its nodes included."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        yield from _node_tensors(node)


def _external(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    tensors = [*graph_tensors(model.graph)]
    for function in model.functions:
        for node in function.node:
            tensors.extend(_node_tensors(node))
    return [each for each in tensors if each.data_location == onnx.TensorProto.EXTERNAL]


def _node_tensors(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        if attribute.HasField("sparse_tensor"):
            yield attribute.sparse_tensor.values
            yield attribute.sparse_tensor.indices
        if attribute.HasField("g"):
            yield from graph_tensors(attribute.g)
        for graph in attribute.graphs:
            yield from graph_tensors(graph)


def _stretch(tensor: onnx.TensorProto, folder: Path, where: str) -> _Stretch:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    what = f"weight {quoted(tensor.name)}{where}"
    path = _inside(folder.resolve(), location, what)
    offset, length = (_number(entries.get(key, ""), what) for key in ("offset", "length"))
    size = constant_bytes(tensor, what)
    if length is not None and length != size:
        raise ModelError(
            f"{what} has a length of {length} bytes, which does not fit its shape "
            f"{list(tensor.dims)}"
        )
    try:
        there = require_regular(path, limit_bytes=1 << 62)
    except OSError as error:
        raise ModelError(
            f"{what} is missing: its file {quoted(location)} is not in the model's folder"
        ) from error
    if (offset or 0) + size > there:
        raise ModelError(f"{what} is cut short: {quoted(location)} ends before it")
    return _Stretch(path=path, offset_bytes=offset or 0, length_bytes=size)


def _inside(folder: Path, location: str, what: str) -> Path:
    relative = Path(location)
    if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts:
        raise ModelError(f"{what} points outside the model's folder: {quoted(location)}")
    try:
        target = (folder / relative).resolve()
    except (OSError, RuntimeError) as error:
        raise ModelError(f"{what} has a file that cannot be: {quoted(location)}") from error
    if not target.is_relative_to(folder):
        raise ModelError(f"{what} leads out of the model's folder by a link: {quoted(location)}")
    return target


def _number(text: str, what: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _NUMBERS):
        raise ModelError(f"{what} has a broken offset or length")
    return int(text)
