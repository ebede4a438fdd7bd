"""ONNX files that may be missing, cut short, hostile or from another time, and their weights, also
those in files beside them: inside the model's folder, regular, and as long as their shape says.

onnx has a reader of such weights, too, which refuses files with a second hard link, as copies of a
cache have.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import convert_model_to_external_data, write_external_data_tensors

from tilewright.core.errors import ModelError, quoted
from tilewright.core.input_files import machine_memory_bytes, require_regular
from tilewright.core.units import format_bytes
from tilewright.graph.network import Array
from tilewright.models.onnx_model import array_of, check_model, constant_bytes, nested_graphs
from tilewright.models.source import reading

_MOST_BYTES = 2 << 30
"""What a file in the format of ONNX, protobuf, can hold; more weights lie in files beside it."""
_LARGE_BYTES = 64 << 20
_PROPAGATED_ELEMENTS = 1024
_NUMBERS = 20
"""Digits of an offset or length at most."""


def read_onnx(path: Path) -> onnx.ModelProto:
    """A valid model with all weights in memory.

    Raises ModelError when the file is missing, broken, too new, or reaches outside its folder.
    """
    model = parse_onnx(path)
    _check_external(model, path)
    _take_in(model, path.parent)
    check_model(model, quoted(path))
    return model


def parse_onnx(path: Path) -> onnx.ModelProto:
    """What a file says, not checked, and without weights that lie in other files. Raises ModelError
    when it is missing or broken."""
    with reading(path, ".onnx"):
        require_regular(path, limit_bytes=_MOST_BYTES)
        data = path.read_bytes()
    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ModelError(f"{quoted(path)} is not an ONNX model, or is cut short") from error
    if model.ir_version <= 0 or not model.HasField("graph"):
        raise ModelError(f"{quoted(path)} is not an ONNX model, or is cut short")
    return model


def save_onnx(model: onnx.ModelProto, path: Path) -> None:
    """Write a model; the weights of a large one go to `NAME.data` beside it.

    A large model is used up by this: its weights are written one by one and not kept.
    """
    if sum(tensor.ByteSize() for tensor in model.graph.initializer) > _LARGE_BYTES:
        convert_model_to_external_data(model, location=path.name + ".data")
        write_external_data_tensors(model, str(path.parent))
    path.write_bytes(model.SerializeToString())


def load_saved(path: Path) -> onnx.ModelProto:
    """A model that was read or written before, with all weights in memory."""
    model = onnx.load_model_from_string(path.read_bytes())
    _take_in(model, path.parent)
    return model


def _check_external(model: onnx.ModelProto, path: Path) -> None:
    """Check the weights of the model at `path` that lie in other files.

    Raises ModelError where one is outside the model's folder, missing, no regular file or of
    another length than its shape, and where all together are more than the memory of this machine.
    """
    folder, where = path.parent, f" of {quoted(path)}"
    sizes = [_place(tensor, folder, where)[2] for tensor in external_tensors(model)]
    memory_bytes = machine_memory_bytes()
    if sum(sizes) > memory_bytes:
        raise ModelError(
            f"the weights of {quoted(path)} are {format_bytes(sum(sizes))}, more than the memory "
            f"of this machine, {format_bytes(memory_bytes)}"
        )


def _take_in(model: onnx.ModelProto, folder: Path) -> None:
    """Put the weights that lie in files of `folder` into the model itself."""
    for tensor in external_tensors(model):
        tensor.raw_data = _content(tensor, folder).tobytes()
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT


def _content(tensor: onnx.TensorProto, folder: Path) -> Array:
    """The bytes of a weight that lies in a file of `folder`. Raises ModelError."""
    path, offset_bytes, length_bytes = _place(tensor, folder, "")
    try:
        return np.fromfile(path, np.uint8, count=length_bytes, offset=offset_bytes)
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
    weights = {tensor.name: _values_of(tensor, folder) for tensor in graph.initializer}
    kept: list[onnx.TensorProto] = []
    for tensor in graph.initializer:
        if weights[tensor.name].size <= _PROPAGATED_ELEMENTS:
            kept.append(onnx.TensorProto.FromString(tensor.SerializeToString()))
        elif tensor.name not in inputs:
            graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return weights


def _values_of(tensor: onnx.TensorProto, folder: Path) -> Array:
    """The values of a constant, in the model or in a file of `folder`. Raises ModelError."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return array_of(tensor)
    content = _content(tensor, folder)
    element = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return content.view(element).reshape(tuple(tensor.dims))


def external_tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The weights that lie in other files, those of attributes, of graphs inside nodes and of
    functions included."""
    nodes = (node for function in model.functions for node in function.node)
    tensors = chain(_graph_tensors(model.graph), *map(_node_tensors, nodes))
    return [each for each in tensors if each.data_location == onnx.TensorProto.EXTERNAL]


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        yield from attribute.tensors
        if attribute.HasField("t"):
            yield attribute.t
        if attribute.HasField("sparse_tensor"):
            yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
    for graph in nested_graphs(node):
        yield from _graph_tensors(graph)


def _place(tensor: onnx.TensorProto, folder: Path, where: str) -> tuple[Path, int, int]:
    """The file of a weight, and the offset and length in it in bytes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    what = f"weight {quoted(tensor.name)}{where}"
    path = _inside(folder.resolve(), location, what)
    size = constant_bytes(tensor, what)
    offset, length = (
        _number(entries.get(key, ""), default, what)
        for key, default in (("offset", 0), ("length", size))
    )
    if length != size:
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
    if offset + size > there:
        raise ModelError(f"{what} is cut short: {quoted(location)} ends before it")
    return path, offset, size


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


def _number(text: str, default: int, what: str) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= _NUMBERS):
        raise ModelError(f"{what} has a broken offset or length")
    return int(text)
