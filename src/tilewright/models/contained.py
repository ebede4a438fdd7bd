"""Engines at work on a model that may be damaged or hostile, in a process of their own.

One process serves all models of ours; where it crashes, takes too long or too much memory, the
model is at fault, and the next one gets a new process. See docs/decisions/0034.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from tilewright.core.element_types import is_element_type
from tilewright.core.errors import ModelError, printable
from tilewright.core.noise import RoundingNoise
from tilewright.core.processes import (
    Child,
    ChildCrash,
    ChildOutOfMemory,
    ChildTimeout,
    RemoteError,
)
from tilewright.graph.clean.simplify import MOST_FOLDED_BYTES
from tilewright.graph.network import UNKNOWN, Array, TensorType
from tilewright.models import clean
from tilewright.models.decoder import DecoderRoles
from tilewright.models.input_shapes import keep_inputs
from tilewright.models.loaded import Calibrator
from tilewright.models.onnx_file import take_weights
from tilewright.models.onnx_import.translate import TRANSLATIONS, InferredModel
from tilewright.models.onnx_model import OLDEST_OPSET, opset_of, static_type, weights_bytes

_WORKER = "tilewright.models.clean"
_START_S = 120.0
_PATIENCE_S = 15.0
_PATIENCE_S_PER_BYTE = 60.0 / (1 << 30)
_RUNS_S = 900.0
_MEMORY_BYTES = 3 << 29
_COPIES = 4
"""Of the weights that an engine makes, above what any model may take."""


def fold(
    source: Path, target: Path, size_bytes: int, *, as_quantized: bool = False
) -> onnx.ModelProto | None:
    """The model at `source` with constants and batch norms folded, as written to `target`.

    `size_bytes` are those of its weights. Those of a model `as_quantized` by us that are in single
    precision between codes stay so. None where ONNX Runtime does not take the model, or
    folding would create more than `MOST_FOLDED_BYTES`. Raises ModelError where it breaks down.
    """
    try:
        if not _asked("fold", str(source), str(target), as_quantized, size_bytes=size_bytes):
            return None
        folded = onnx.load_model_from_string(target.read_bytes())
    except (ChildOutOfMemory, RemoteError, OSError, DecodeError):
        return None
    return folded if weights_bytes(folded) <= size_bytes + MOST_FOLDED_BYTES else None


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Calls of functions that the file brings along are replaced by their bodies.

    Raises ModelError for functions that call themselves or grow beyond all bounds.
    """
    if not model.functions:
        return model
    content = _answer("inline", model.SerializeToString(), size_bytes=weights_bytes(model))
    return onnx.load_model_from_string(content)


def infer_types(model: onnx.ModelProto, folder: Path, *, trusted: bool = False) -> InferredModel:
    """The model without its weights, the weights, and the static type of every tensor known;
    operators of old sets are raised to `OLDEST_OPSET`, those without a translation replaced by the
    function bodies that ONNX has for them.

    `folder` is where weights outside the model lie. A model that tilewright has made itself may be
    `trusted`: its types are inferred in this process.

    Raises ModelError for weights that cannot be read and for shapes that contradict each other.
    """
    inputs = [value.name for value in model.graph.input]
    weights = take_weights(model, folder)
    content, opset = model.SerializeToString(), opset_of(model)
    if opset is not None and opset < OLDEST_OPSET:
        content = _answer("convert", content)
    known = sorted(TRANSLATIONS)
    content = clean.infer(content, known) if trusted else _answer("infer", content, known)
    inferred = onnx.load_model_from_string(content)
    graph = inferred.graph
    values = (*graph.value_info, *graph.input, *graph.output)
    types = {value.name: kind for value in values if (kind := static_type(value)) is not None}
    keep_inputs(inferred, inputs)
    return InferredModel(model=inferred, weights=weights, types=types)


def judged(model: onnx.ModelProto) -> list[TensorType]:
    """The types of the outputs of an island, as ONNX Runtime tells them. Raises ModelError where it
    does not take the model, or an output is no tensor of numbers."""
    content, kinds = model.SerializeToString(), list[TensorType]()
    for element, axes in _answer("judge", content, size_bytes=len(content)):
        dtype = clean.element_name(str(element))
        if not is_element_type(dtype):
            raise ModelError(f"a result of type {element} cannot leave it")
        shape = tuple(axis if isinstance(axis, int) and axis >= 0 else UNKNOWN for axis in axes)
        kinds.append(TensorType(shape, dtype))
    return kinds


def decoded(path: Path, decoder: DecoderRoles, parts: Sequence[Array]) -> list[Array]:
    """ONNX Runtime's logits behind each part of a text, [1,tokens] or [1,tokens,width], from the
    decoder at `path` as it is, its cache growing from nothing. Raises ModelError where it does not
    take the model."""
    size_bytes = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    return _answer("decode", str(path.absolute()), decoder, [*parts], size_bytes=size_bytes)


def quantize(
    source: Path,
    target: Path,
    inputs: Sequence[Mapping[str, Array]],
    nodes: Sequence[str],
    size_bytes: int,
    calibrator: Calibrator,
) -> None:
    """Write the model at `source` to `target` with some of its nodes, by name, on codes that are
    calibrated on inputs by name. Raises ModelError where the calibrator cannot do that."""
    given = str(source), str(target), [dict(each) for each in inputs], list(nodes)
    task = "quantize_with_nncf" if calibrator == "nncf" else "quantize"
    _patiently(task, *given, size_bytes=size_bytes)


def code_noise(
    source: Path, quantized: Path, inputs: Sequence[Mapping[str, Array]], size_bytes: int
) -> RoundingNoise:
    """The noise of codes, cause by cause (`models.code_noise`). Raises ModelError where ONNX
    Runtime cannot tell."""
    given = str(source), str(quantized), [dict(each) for each in inputs]
    return _patiently("code_noise", *given, size_bytes=size_bytes)


def outputs_of(
    path: Path, inputs: Sequence[Mapping[str, Array]], size_bytes: int
) -> list[list[Array]]:
    """ONNX Runtime's outputs for each of some inputs by name. Raises ModelError where it does not
    run the model."""
    return _patiently(
        "outputs_of", str(path), [dict(each) for each in inputs], size_bytes=size_bytes
    )


def _patiently(task: str, *arguments: Any, size_bytes: int) -> Any:
    """The same as `_answer` for what runs the network many times."""
    return _answer(task, *arguments, size_bytes=size_bytes, patience_s=_RUNS_S)


def _answer(
    task: str, *arguments: Any, size_bytes: int = 0, patience_s: float | None = None
) -> Any:
    try:
        return _asked(task, *arguments, size_bytes=size_bytes, patience_s=patience_s)
    except ChildOutOfMemory:
        raise ModelError(f"{_DOING[task]} takes too much memory") from None
    except RemoteError as error:
        said = " ".join(error.message.split())[:400]
        raise ModelError(f"{_FAULTS[task]}: {printable(said)}") from None


def _asked(task: str, *arguments: Any, size_bytes: int, patience_s: float | None = None) -> Any:
    """What the process answers. Raises ModelError where it crashed or took too long."""
    patience_s = _PATIENCE_S if patience_s is None else patience_s
    child = _process(os.getpid())
    memory_bytes = _MEMORY_BYTES + _COPIES * size_bytes
    patience_s += _PATIENCE_S_PER_BYTE * size_bytes
    try:
        child.request(("ready",), _START_S)
        return child.request((task, *arguments, memory_bytes), patience_s)
    except ChildTimeout:
        raise ModelError(
            f"{_DOING[task]} takes more than {patience_s:.0f} s",
            hint="Constants that are expensive to compute, or functions that call each other many "
            "times: simplify the model before it is brought here.",
        ) from None
    except ChildCrash as error:
        what = str(error).partition("\n")[0].removeprefix("child process ended with ")
        raise ModelError(f"{_DOING[task]} breaks down: {what}") from None


_DOING = {
    "fold": "cleaning the model with ONNX Runtime",
    "inline": "putting the model's functions in the places of their calls",
    "convert": "raising the model's old operator set",
    "infer": "inferring the shapes of the model",
    "judge": "asking ONNX Runtime about an island",
    "decode": "running the decoder with ONNX Runtime",
    "quantize": "quantizing the model with ONNX Runtime",
    "quantize_with_nncf": "quantizing the model with NNCF",
    "code_noise": "measuring the noise of codes",
    "outputs_of": "running the model with ONNX Runtime",
}
_FAULTS = {
    "inline": "the functions in the model cannot be taken",
    "convert": f"the model's operator set cannot be raised to {OLDEST_OPSET}",
    "infer": "the shapes in the model do not fit together",
    "judge": "the model is refused",
    "decode": "ONNX Runtime does not run the decoder",
    "quantize": "ONNX Runtime does not quantize the model",
    "quantize_with_nncf": "NNCF does not quantize the model",
    "code_noise": "the noise of codes cannot be measured",
    "outputs_of": "ONNX Runtime does not run the model",
}


@cache
def _process(_owner: int) -> Child:
    """The process of the process `_owner`: one that was forked has none of its own yet."""
    return Child(_WORKER)
