"""Reading ONNX files that may be missing, cut short, hostile or from another time."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, NoReturn

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import convert_model_to_external_data, write_external_data_tensors

from tilewright.core.errors import ModelError
from tilewright.core.input_files import require_regular
from tilewright.models.external_weights import (
    check_external,
    graph_tensors,
    read_external,
    take_in,
)
from tilewright.models.naming import quoted, quoted_matches
from tilewright.models.well_formed import check_model

_MOST_BYTES = 2 << 30
"""What a file in the format of ONNX, protobuf, can hold; more weights lie in files beside it."""
_LARGE_BYTES = 64 << 20
_ALIGNMENT_BYTES = 4096


def read_onnx(path: Path) -> tuple[onnx.ModelProto, bool]:
    """A valid model with all weights in memory, and whether weights came from other files.

    Raises ModelError when the file is missing, broken, too new, or reaches outside its folder.
    """
    try:
        require_regular(path, limit_bytes=_MOST_BYTES)
        data = path.read_bytes()
    except FileNotFoundError:
        _missing(path)
    except OSError as error:
        raise ModelError(f"cannot read {quoted(path)}: {error.strerror or error}") from error
    model = _parsed(data, path)
    del data
    external = check_external(model, path)
    if external:
        take_in(model, path.parent)
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
    for tensor in graph_tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return tensor.name
    return None


def load_saved(path: Path) -> onnx.ModelProto:
    """A model that was read or written before, with all weights in memory."""
    model = onnx.load_model_from_string(path.read_bytes())
    take_in(model, path.parent)
    return model


def copy_onnx(source: Path, path: Path) -> None:
    """Copy a model whose weights lie in other files; they go to `NAME.data` beside the copy."""
    model = onnx.load_model_from_string(source.read_bytes())
    target = path.with_name(path.name + ".data")
    with target.open("wb") as data:
        for tensor in graph_tensors(model.graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                _append(tensor, source.parent, data, target.name)
    path.write_bytes(model.SerializeToString())


def _append(tensor: onnx.TensorProto, folder: Path, data: BinaryIO, location: str) -> None:
    content = read_external(tensor, folder)
    offset = -(-data.tell() // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    data.seek(offset)
    content.tofile(data)
    places = {"location": location, "offset": offset, "length": content.nbytes}
    del tensor.external_data[:]
    for key, value in places.items():
        tensor.external_data.add(key=key, value=str(value))


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
