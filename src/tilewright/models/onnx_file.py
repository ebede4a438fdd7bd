"""Reading ONNX files that may be missing, cut short, hostile or from another time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import (
    ExternalDataInfo,
    convert_model_to_external_data,
    load_external_data_for_model,
    write_external_data_tensors,
)

from tilewright.core.errors import ModelError
from tilewright.models.naming import quoted, quoted_matches

OLDEST_OPSET = 9
_LARGE_BYTES = 64 << 20
_ALIGNMENT_BYTES = 4096
_MAIN_DOMAINS = ("", "ai.onnx")


def read_onnx(path: Path) -> tuple[onnx.ModelProto, bool]:
    """A valid model with all weights in memory, and whether weights came from other files.

    Raises ModelError when the file is missing, broken, too new, or reaches outside its folder.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        _missing(path)
    except OSError as error:
        raise ModelError(f"cannot read {quoted(path)}: {error.strerror}") from error
    model = _parsed(data, path)
    del data
    external = _check_external(model, path)
    if external:
        load_external_data_for_model(model, str(path.parent))
    check_model(model, quoted(path))
    return model, external


def save_onnx(model: onnx.ModelProto, path: Path) -> bool:
    """Write a model; whether its weights went to a file beside it, as those of large ones do.

    A large model is used up by this: its weights are written one by one and not kept.
    """
    large = sum(tensor.ByteSize() for tensor in model.graph.initializer) > _LARGE_BYTES
    if large:
        location = path.name + ".data"
        convert_model_to_external_data(model, location=location)
        write_external_data_tensors(model, str(path.parent))
    path.write_bytes(model.SerializeToString())
    return large


def weights_elsewhere(model: onnx.ModelProto) -> str | None:
    """The name of a weight that lies in another file; None where all are in memory."""
    for tensor in _graph_tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return tensor.name
    return None


def load_saved(path: Path) -> onnx.ModelProto:
    """A model that was read or written before, with all weights in memory."""
    model = onnx.load_model_from_string(path.read_bytes())
    load_external_data_for_model(model, str(path.parent))
    return model


def copy_onnx(source: Path, path: Path) -> None:
    """Copy a model whose weights lie in other files; they go to `NAME.data` beside the copy."""
    model = onnx.load_model_from_string(source.read_bytes())
    target = path.with_name(path.name + ".data")
    with target.open("wb") as data:
        for tensor in _graph_tensors(model.graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                _append(tensor, source.parent, data, target.name)
    path.write_bytes(model.SerializeToString())


def _append(tensor: onnx.TensorProto, folder: Path, data: BinaryIO, location: str) -> None:
    info = ExternalDataInfo(tensor)
    content = np.fromfile(
        folder / info.location,
        np.uint8,
        count=-1 if info.length is None else info.length,
        offset=info.offset or 0,
    )
    offset = -(-data.tell() // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    data.seek(offset)
    content.tofile(data)
    places = {"location": location, "offset": offset, "length": content.nbytes}
    del tensor.external_data[:]
    for key, value in places.items():
        tensor.external_data.add(key=key, value=str(value))


def check_model(model: onnx.ModelProto, where: str) -> None:
    """Refuse a model without a graph, with opsets out of range or operators that do not exist."""
    opset = main_opset(model)
    if opset is None:
        raise ModelError(f"{where} names no version of the ONNX operator set")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise ModelError(
            f"{where} uses ONNX operator set {opset}; {OLDEST_OPSET} to {newest} can be read",
            hint="Export the model again with another operator set, or convert it with "
            "onnx.version_converter.",
        )
    if not model.graph.output:
        raise ModelError(f"{where} has no outputs: it may be cut short")
    local = {(function.domain, function.name) for function in model.functions}
    for index, node in enumerate(model.graph.node):
        main = node.domain in _MAIN_DOMAINS and (node.domain, node.op_type) not in local
        if main and not onnx.defs.has(node.op_type, opset, ""):
            name = quoted(node.name or f"{node.op_type}_{index}")
            raise ModelError(
                f"node {name} in {where} uses operator {quoted(node.op_type)}, "
                f"which ONNX operator set {opset} does not have"
            )
    _check_wiring(model.graph, where)


def _check_wiring(graph: onnx.GraphProto, where: str) -> None:
    """Every node reads what is there before it, as ONNX demands."""
    known = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    known.update(sparse.values.name for sparse in graph.sparse_initializer)
    for index, node in enumerate(graph.node):
        for name in node.input:
            if name not in known:
                label = quoted(node.name or f"{node.op_type}_{index}")
                raise ModelError(
                    f"node {label} in {where} reads {quoted(name)}, which nothing before it writes"
                )
        known.update(node.output)
    for value in graph.output:
        if value.name not in known:
            raise ModelError(f"nothing in {where} writes the output {quoted(value.name)}")


def main_opset(model: onnx.ModelProto) -> int | None:
    """Version of ONNX's own operator set, None when the model names none."""
    versions = [entry.version for entry in model.opset_import if entry.domain in _MAIN_DOMAINS]
    return max(versions, default=None)


def _parsed(data: bytes, path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ModelError(f"{quoted(path)} is not an ONNX model, or is cut short") from error
    if model.ir_version <= 0 or not model.HasField("graph"):
        raise ModelError(f"{quoted(path)} is not an ONNX model, or is cut short")
    return model


def _missing(path: Path) -> NoReturn:
    folder = path.parent
    siblings = (
        [entry.name for entry in folder.iterdir() if entry.suffix == ".onnx"]
        if folder.is_dir()
        else []
    )
    hint = quoted_matches(path.name, siblings) if siblings else None
    raise ModelError(f"no such file: {quoted(path)}", hint=hint)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: object) -> Iterator[onnx.TensorProto]:
    for node in nodes:  # pyright: ignore[reportGeneralTypeIssues,reportUnknownVariableType]
        for attribute in node.attribute:  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]
            yield from _attribute_tensors(attribute)  # pyright: ignore[reportUnknownArgumentType]


def _attribute_tensors(attribute: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    if attribute.HasField("sparse_tensor"):
        yield attribute.sparse_tensor.values
        yield attribute.sparse_tensor.indices
    if attribute.HasField("g"):
        yield from _graph_tensors(attribute.g)
    for graph in attribute.graphs:
        yield from _graph_tensors(graph)


def _check_external(model: onnx.ModelProto, path: Path) -> bool:
    """Whether weights lie in other files; each is inside the model's folder, there, and whole."""
    tensors = [*_graph_tensors(model.graph)]
    for function in model.functions:
        tensors.extend(_node_tensors(function.node))
    folder = path.parent.resolve()
    found = False
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            found = True
            _check_location(tensor, folder, quoted(path))
    return found


def _check_location(tensor: onnx.TensorProto, folder: Path, where: str) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    what = f"weight {quoted(tensor.name)} of {where}"
    relative = Path(location)
    if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts:
        raise ModelError(f"{what} points outside the model's folder: {quoted(location)}")
    target = (folder / relative).resolve()
    if not target.is_relative_to(folder):
        raise ModelError(f"{what} leads out of the model's folder by a link: {quoted(location)}")
    if not target.is_file():
        raise ModelError(
            f"{what} is missing: its file {quoted(location)} is not in the model's folder"
        )
    texts = [entries.get(key, "") or "0" for key in ("offset", "length")]
    if not all(text.isdecimal() for text in texts):
        raise ModelError(f"{what} has a broken offset or length")
    if sum(map(int, texts)) > target.stat().st_size:
        raise ModelError(f"{what} is cut short: {quoted(location)} ends before it")
