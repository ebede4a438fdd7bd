"""What engines do to a model: folding by ONNX Runtime's basic offline optimisation; inlining,
raising of old operator sets and shape inference by onnx.

All of it is code in C++ that a damaged file may crash, hang or make take all memory: files that
people bring go through `tilewright.models.contained`, which runs this module as a process.
"""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter
import psutil

from tilewright.core.child import serve
from tilewright.core.settings import environment_with
from tilewright.graph.network import Array
from tilewright.models.code_noise import ROUNDING, code_noise, outputs_of
from tilewright.models.decoder import DecoderRoles
from tilewright.models.function_bodies import expanded
from tilewright.models.onnx_file import load_saved, save_onnx
from tilewright.models.onnx_model import OLDEST_OPSET, check_model, opset_of

_UNWANTED = ["MatMulAddFusion", "ConstantSharing", "PadFusion", "NhwcTransformer"]
_SILENT = 4
_LARGE_BYTES = 16384
_KEEP_SHAPE = ("Abs", "Cast", "CastLike", "Cos", "Exp", "Identity", "Log", "Neg", "Sin", "Sqrt")
_INFERRED = "unk__"
_DEEPEST = 8
"""Bodies of functions may call functions."""
_PER_CHANNEL = 13
"""The first operator set whose DequantizeLinear has a scale per channel."""
_ONE_FILE_BYTES = 1 << 30


def fold(source: str, target: str, as_quantized: bool) -> bool:
    """Write the model with constants and batch norms folded, node names kept; large weights go to
    a file beside it. Of a model `as_quantized` the constants that it has in single precision stay
    in it between codes, too; of others ONNX Runtime rounds them there.

    False when ONNX Runtime has no kernel for an operator or refuses the model.
    """
    ort: Any = import_module("onnxruntime")
    state: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    options: Any = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = target
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = 1
    entries = {
        "disable_prepacking": "1",
        "optimized_model_external_initializers_file_name": Path(target).name + ".data",
        "optimized_model_external_initializers_min_size_in_bytes": str(_LARGE_BYTES),
        "intra_op.allow_spinning": "0",
    }
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    members: dict[str, Any] = state.__dict__
    kinds = [kind for kind in members.values() if isinstance(kind, type)]
    refusals = [kind for kind in kinds if issubclass(kind, Exception)]
    try:
        ort.InferenceSession(
            source,
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=[*_UNWANTED, *([ROUNDING] if as_quantized else [])],
        )
    except (*refusals, RuntimeError):
        return False
    return Path(target).is_file()


def inline(model: bytes) -> bytes:
    """Calls of functions that the file brings along are replaced by their bodies."""
    return onnx.inliner.inline_local_functions(
        onnx.load_model_from_string(model)
    ).SerializeToString()


def convert(model: bytes) -> bytes:
    """A model of an operator set before `OLDEST_OPSET`, with that one.

    Raises ModelError where what comes out is not as ONNX has it, and ValueError for `Scan` before
    operator set 9, whose batch axis ONNX's converter leaves as it is.
    """
    old = onnx.load_model_from_string(model)
    if any(node.op_type == "Scan" for node in old.graph.node):
        raise ValueError("'Scan' before operator set 9 has a batch axis, which is not supported")
    new = onnx.version_converter.convert_version(old, OLDEST_OPSET)
    check_model(new, f"the model raised to operator set {OLDEST_OPSET}")
    return new.SerializeToString()


def infer(model: bytes, translated: Sequence[str] | None = None) -> bytes:
    """The model with the types of all tensors that ONNX can tell, and with the bodies of functions
    in the place of operators that are not `translated` and have one; None leaves all operators.

    Raises InferenceError when the shapes in the model contradict each other; operators of others
    are skipped.
    """
    light = onnx.load_model_from_string(model)
    for _ in range(_DEEPEST if translated is not None else 0):
        light = expanded(light, translated or ())
    for node in light.graph.node:  # onnx takes it for another one where it is left out
        if node.op_type == "STFT" and "onesided" not in {each.name for each in node.attribute}:
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
    try:
        inferred = onnx.shape_inference.infer_shapes(
            light, check_type=True, strict_mode=True, data_prop=True
        )
    except onnx.shape_inference.InferenceError as error:
        foreign = {node.domain for node in light.graph.node} - {"", "ai.onnx"}
        if not foreign and "[ShapeInferenceError]" in str(error):
            raise
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    _take_from_results(inferred.graph)
    return inferred.SerializeToString()


def _take_from_results(graph: onnx.GraphProto) -> None:
    """Shapes that only the results of operators tell: what goes into one that keeps shapes has that
    of its result. A size that inference gave a name is the same everywhere; people's names may not
    be."""
    values = (*graph.value_info, *graph.input, *graph.output)
    known = {value.name: value.type.tensor_type for value in values}
    named: dict[str, int] = {}
    for node in reversed(graph.node):
        names = (*node.input[:1], *node.output[:1])
        if node.op_type not in _KEEP_SHAPE or any(name not in known for name in names):
            continue
        before, after = (known[name] for name in names)
        if after.HasField("shape") and not before.HasField("shape"):
            before.shape.CopyFrom(after.shape)
        for one, other in zip(before.shape.dim, after.shape.dim, strict=False):
            if one.dim_param.startswith(_INFERRED) and other.HasField("dim_value"):
                named[one.dim_param] = other.dim_value
    for axis in (axis for tensor in known.values() for axis in tensor.shape.dim):
        if axis.dim_param in named:
            axis.dim_value = named[axis.dim_param]


def judge(model: bytes) -> list[tuple[str, tuple[int | str | None, ...]]]:
    """What ONNX Runtime says of a small model: element type and axes of each output, an axis that
    it does not know as a name or None. Raises what it raises for a model that it refuses."""
    ort: Any = import_module("onnxruntime")
    options: Any = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session: Any = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [(output.type, tuple(output.shape)) for output in session.get_outputs()]


_ENGINE_TYPES = {"float": "float32", "double": "float64"}
"""ONNX Runtime's names of element types, where they are not ours."""


def element_name(text: str) -> str:
    """Our name of an element type, `tensor(float)` say; what is no tensor keeps ONNX Runtime's."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return _ENGINE_TYPES.get(name, name)


def decode(source: str, decoder: DecoderRoles, parts: Sequence[Array]) -> list[Array]:
    """ONNX Runtime's logits behind each part of a text, [1,tokens] or [1,tokens,width], with a
    cache that grows from nothing."""
    ort: Any = import_module("onnxruntime")
    options: Any = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = 1
    session: Any = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    kinds = {each.name: each for each in session.get_inputs()}

    def numbers(name: str, values: Any) -> Any:
        wanted = values.astype(element_name(kinds[name].type))
        return wanted.reshape(-1) if len(kinds[name].shape) == 1 else wanted

    feed: dict[str, Any] = {}
    for cache in decoder.caches:
        shape = [n if isinstance(n, int) else 1 for n in kinds[cache.past].shape]
        shape[cache.axis] = 0
        feed[cache.past] = numbers(cache.past, np.zeros(shape))
    length, logits = 0, list[Array]()
    for part in parts:
        begin, length = length, length + part.shape[1]
        feed[decoder.tokens] = numbers(decoder.tokens, part)
        feed[decoder.mask] = numbers(decoder.mask, np.ones((1, length)))
        places = np.array([range(begin, length)], np.int64)
        feed |= {name: numbers(name, places) for name in decoder.positions}
        wanted = [decoder.logits, *(cache.present for cache in decoder.caches)]
        found, *caches = session.run(wanted, feed)
        feed |= {cache.past: rows for cache, rows in zip(decoder.caches, caches, strict=True)}
        logits.append(found[0, -1])
    return logits


def quantize(
    source: str, target: str, inputs: Sequence[Mapping[str, Array]], nodes: Sequence[str]
) -> None:
    """Write the model with some of its nodes, by name, between DequantizeLinear and QuantizeLinear:
    weights `int8`, one scale per channel; activations `uint8` whose zero point is 0, or 128 where
    there are negative ones, by the least and the largest value that the inputs cause."""
    quantization: Any = import_module("onnxruntime.quantization")
    logging.disable(logging.WARNING)
    model = _with_channel_scales(Path(source))
    size_bytes = model.ByteSize()
    feeds = iter(inputs)
    quantization.quantize_static(
        source,
        target,
        SimpleNamespace(get_next=lambda: next(feeds, None)),
        op_types_to_quantize=sorted({n.op_type for n in model.graph.node if n.name in nodes}),
        nodes_to_quantize=[*nodes],
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        use_external_data_format=size_bytes > _ONE_FILE_BYTES,
        extra_options={"ActivationRestrictedAsymmetric": True},
    )


def quantize_with_nncf(
    source: str, target: str, inputs: Sequence[Mapping[str, Array]], nodes: Sequence[str]
) -> None:
    """The same by NNCF: what the nodes read is on codes with the zero point 0, `int8` where there
    are negative values; what is read in single precision is not rounded.

    NNCF sends nothing to anyone. Its corrections of biases and SmoothQuant are left out: see
    docs/decisions/0097.
    """
    modules: dict[str, Any] = sys.modules
    modules["torch"] = None  # NNCF asks where it is, which `core.child` takes for an import
    with environment_with("NNCF_CI", "1"):  # no telemetry
        nncf: Any = import_module("nncf")
    del modules["torch"]
    parameters: Any = import_module("nncf.quantization.advanced_parameters")
    ranges: Any = import_module("nncf.quantization.range_estimator")
    logging.disable(logging.WARNING)
    model, chosen = _with_channel_scales(Path(source)), {*nodes}
    others = [node.name for node in model.graph.node if node.name not in chosen]
    with redirect_stdout(StringIO()):  # bars of progress
        made = nncf.quantize(
            model,
            nncf.Dataset([*inputs]),
            preset=nncf.QuantizationPreset.PERFORMANCE,
            subset_size=len(inputs),
            ignored_scope=nncf.IgnoredScope(names=others, validate=False),
            advanced_parameters=parameters.AdvancedQuantizationParameters(
                overflow_fix=parameters.OverflowFix.DISABLE,
                disable_bias_correction=True,
                activations_range_estimator_params=ranges.RangeEstimatorParametersSet.MINMAX,
            ),
        )
    save_onnx(made, Path(target))


def _with_channel_scales(path: Path) -> onnx.ModelProto:
    """The model there, of an operator set that has a scale per channel, there as well."""
    model = load_saved(path)
    if (opset_of(model) or _PER_CHANNEL) < _PER_CHANNEL:
        model = onnx.version_converter.convert_version(model, _PER_CHANNEL)
        save_onnx(model, path)
    return model


def _ready() -> None:
    """Everything is imported: what takes long from here on is the model's doing."""


def _limited(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same with one more argument: how many bytes this process may allocate beside its own."""

    def limited(*arguments: Any) -> Any:
        *given, extra_bytes = arguments
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        has: int = psutil.Process().memory_info().data
        resource.setrlimit(resource.RLIMIT_DATA, (has + extra_bytes, hard))
        try:
            return work(*given)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))

    return limited


if __name__ == "__main__":
    quantizers = (quantize, quantize_with_nncf)
    works = (fold, inline, convert, infer, judge, decode, *quantizers, code_noise, outputs_of)
    serve({"ready": _ready, **{work.__name__: _limited(work) for work in works}})
