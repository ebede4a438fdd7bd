"""Shape inference, and folding by ONNX Runtime's basic offline optimisation."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from tilewright.core.errors import ModelError
from tilewright.graph.network import Array
from tilewright.graph.tensor import TensorType
from tilewright.models.input_shapes import keep_inputs
from tilewright.models.naming import quoted
from tilewright.models.weights import static_type, take_weights

_UNWANTED = ["MatMulAddFusion", "ConstantSharing", "PadFusion", "NhwcTransformer"]
_SILENT = 4
_LARGE_BYTES = 16384


def fold(source: Path, folder: Path) -> onnx.ModelProto | None:
    """The model with constants and batch norms folded, node names kept; weights in `folder`.

    None when ONNX Runtime has no kernel for an operator, refuses the model, or brings in operators
    that are not ONNX's.
    """
    ort: Any = import_module("onnxruntime")
    state: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    target = folder / "folded.onnx"
    options: Any = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_file_name", target.name + ".data"
    )
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_min_size_in_bytes", str(_LARGE_BYTES)
    )
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    members: dict[str, Any] = state.__dict__
    refusals = tuple(
        kind for kind in members.values() if isinstance(kind, type) and issubclass(kind, Exception)
    )
    try:
        session: Any = ort.InferenceSession(
            str(source), options, providers=["CPUExecutionProvider"], disabled_optimizers=_UNWANTED
        )
        del session
        return onnx.load_model_from_string(target.read_bytes())
    except (*refusals, RuntimeError, OSError, DecodeError):
        return None


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Calls of functions that the file brings along are replaced by their bodies."""
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def infer_types(
    model: onnx.ModelProto, folder: Path
) -> tuple[onnx.ModelProto, dict[str, Array], dict[str, TensorType]]:
    """The model without its weights, the weights, and the static type of every tensor known.

    `folder` is where weights outside the model lie.

    Raises ModelError when the shapes in the model contradict each other.
    """
    inputs = [value.name for value in model.graph.input]
    weights = take_weights(model, folder)
    try:
        inferred = onnx.shape_inference.infer_shapes(
            model, check_type=True, strict_mode=True, data_prop=True
        )
    except onnx.shape_inference.InferenceError as error:
        inferred = _tolerant(model, error)
    types: dict[str, TensorType] = {}
    graph = inferred.graph
    for value in (*graph.value_info, *graph.input, *graph.output):
        kind = static_type(value)
        if kind is not None:
            types[value.name] = kind
    keep_inputs(inferred, inputs)
    return inferred, weights, types


def _tolerant(model: onnx.ModelProto, error: Exception) -> onnx.ModelProto:
    """Inference that skips operators it does not know, for models with foreign ones."""
    domains = {node.domain for node in model.graph.node} - {"", "ai.onnx"}
    text = str(error)
    if not domains and "[ShapeInferenceError]" in text:
        raise ModelError(f"the shapes in the model do not fit together: {_printable(text)}")
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _printable(text: str) -> str:
    return quoted(" ".join(text.split())[:400])[1:-1]
