"""Mutated models: refused in words, or compiled to what ONNX Runtime computes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from fuzzing import byte_changes, model_changes
from fuzzing.cases import Case, Ground, generator
from fuzzing.seed_models import seed_model
from fuzzing.verdicts import Fault, group_of
from fuzzing.warm import Ended
from tilewright.core.errors import TargetError, TilewrightError

_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial")
_RANDOM += ("Bernoulli", "Dropout")
_TOLERANCES = {"float16": 2e-2, "bfloat16": 5e-2, "float64": 1e-3, "float32": 1e-3}
_SELDOM = 0.02
"""Of integer results so many may differ by rounding: a quantized value by one, an index."""
_LARGE = 1e12
"""Sums of values beyond this overflow, or cancel, as the order of adding has it."""


def model_case(ground: Ground, seed: int, folder: Path) -> Case:
    """A good model with changes, optimized without a measurement."""
    rng = generator("models", seed)
    model, name = seed_model(rng)
    told: list[str] = []
    if rng.random() < 0.93:
        told.append(model_changes.change(model, rng))
    content = model.SerializeToString()
    if not told or rng.random() < 0.03:
        content, change = byte_changes.changed(content, rng)
        told.append(change)
    path = folder / "model.onnx"
    path.write_bytes(content)
    words = ["optimize", "model.onnx", "--budget", "0", "--threads", "1", "--out", "out"]
    if rng.random() < 0.15:
        words += ["--batch", rng.choice(("1", "2", "3"))]
    commands = [(*words, "--format", "json")]
    if rng.random() < 0.15:
        commands.append(("predict", "model.onnx", "--threads", "1", "--format", "json"))
    return Case(
        what=f"{name}: {'; '.join(told)}",
        commands=commands,
        given_bytes=len(content),
        check=lambda ended: compare(folder, seed, ended),
    )


def compare(folder: Path, seed: int, ended: Sequence[Ended]) -> list[Fault]:
    """What was compiled beside ONNX Runtime, on inputs that `optimize` did not see."""
    if ended[0].code == TargetError.exit_code:
        text = ended[0].err.strip()[-300:]
        return [Fault(group="the target is blamed for a bad model", text=text)]
    if ended[0].code != 0:
        return []
    import tilewright

    network = tilewright.load(folder / "out", threads=1)
    manifest = json.loads((folder / "out" / "manifest.json").read_text(encoding="utf-8"))
    inputs = {
        entry["name"]: _values(entry, np.random.default_rng([seed, place]))
        for place, entry in enumerate(manifest["inputs"])
    }
    model = _reference_model(folder, manifest)
    try:
        ours = network.run(inputs)
    except TilewrightError as error:
        if isinstance(reference(model, inputs), str):
            return []
        return [Fault(group="refuses inputs that ONNX Runtime takes", text=error.message)]
    return [] if _is_random(model) else judged(ours, _opinions(model, inputs))


def judged(
    ours: Mapping[str, np.ndarray[Any, Any]],
    opinions: Iterable[dict[str, np.ndarray[Any, Any]] | str],
) -> list[Fault]:
    """Our outputs beside those of others: right where one of them agrees; a text says why one has
    none."""
    refusal, wrong = "", list[str]()
    for theirs in opinions:
        if isinstance(theirs, str):
            refusal = refusal or theirs
            continue
        found = differences(ours, theirs)
        if not found:
            return []
        wrong = wrong or found
    if wrong:
        return [Fault(group=f"wrong number: {group_of(text)}", text=text) for text in wrong]
    return [Fault(group=f"answers where ONNX Runtime raises: {group_of(refusal)}", text=refusal)]


def _opinions(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray[Any, Any]]
) -> Iterator[dict[str, np.ndarray[Any, Any]] | str]:
    """Outputs by name, or why there are none: of ONNX Runtime as it is written, of ONNX Runtime
    with its optimizer, which leaves out what nothing reads, and of the onnx package."""
    yield reference(model, inputs)
    yield reference(model, inputs, optimized=True)
    yield _specified(model, inputs)


def _reference_model(folder: Path, manifest: Mapping[str, Any]) -> onnx.ModelProto:
    """The model with the shapes it was compiled for."""
    model = onnx.load(folder / "model.onnx")
    shapes = {entry["name"]: entry["shape"] for entry in manifest["inputs"]}
    for value in model.graph.input:
        if value.name in shapes and value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            for dim, extent in zip(dims, shapes[value.name], strict=False):
                dim.dim_value = extent
    if manifest["source"]["batch"] is not None:
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
    return model


def _is_random(model: onnx.ModelProto) -> bool:
    return any(node.op_type in _RANDOM for node in model.graph.node)


def _values(entry: Mapping[str, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Random values of an input; every third integer input has some far out of any range."""
    shape, dtype = tuple(entry["shape"]), entry["dtype"]
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        values = rng.integers(0, 4, shape).astype(dtype)
        if values.size and rng.random() < 0.33:
            bounds = np.iinfo(dtype)
            values.reshape(-1)[0] = rng.choice((bounds.min, bounds.max, 127), shuffle=False)
        return values
    return rng.standard_normal(shape, dtype=np.float32).astype(_numpy_type(dtype))


def _numpy_type(dtype: str) -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)


def reference(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray[Any, Any]], *, optimized: bool = False
) -> dict[str, np.ndarray[Any, Any]] | str:
    """ONNX Runtime's outputs by name, or what it says against running the model."""
    import onnxruntime as ort

    options: Any = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session: Any = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        known = {value.name for value in session.get_inputs()}
        names = [value.name for value in session.get_outputs()]
        given = {name: array for name, array in inputs.items() if name in known}
        return dict(zip(names, session.run(names, given), strict=True))
    except Exception as error:  # noqa: BLE001 - its errors share no other base
        return f"{type(error).__name__}: {str(error)[:300]}"


def _specified(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]] | str:
    """What the onnx package computes, or what it says."""
    from onnx.reference import ReferenceEvaluator

    names = [value.name for value in model.graph.output]
    try:
        with np.errstate(all="ignore"):
            results: Any = ReferenceEvaluator(model).run(None, dict(inputs))
        return dict(zip(names, (np.asarray(result) for result in results), strict=True))
    except Exception as error:  # noqa: BLE001 - it raises whatever its numpy code raises
        return f"{type(error).__name__}: {str(error)[:300]}"


def differences(
    ours: Mapping[str, np.ndarray[Any, Any]], theirs: Mapping[str, np.ndarray[Any, Any]]
) -> list[str]:
    """What is wrong with our outputs; theirs are right. Empty where nothing is."""
    if list(ours) != list(theirs):
        return [f"outputs are {list(ours)}, not {list(theirs)}"]
    told = (_difference(ours[name], np.asarray(theirs[name])) for name in ours)
    return [f"output {name!r}: {text}" for name, text in zip(ours, told, strict=True) if text]


def _difference(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> str:
    if ours.shape != theirs.shape or str(ours.dtype) != str(theirs.dtype):
        return f"is {ours.dtype}{list(ours.shape)}, not {theirs.dtype}{list(theirs.shape)}"
    if not ours.size:
        return ""
    if str(theirs.dtype) not in _TOLERANCES:
        differing = float(np.mean(ours != theirs))
        return f"{differing:.0%} of the integers differ" if differing > _SELDOM else ""
    left, right = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(right)
    largest = float(np.max(np.abs(right[finite]), initial=0.0))
    if largest > _LARGE:
        return ""
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return "other values are not finite"
    with np.errstate(all="ignore"):
        error = float(np.max(np.abs(left[finite] - right[finite]), initial=0.0)) / (largest or 1.0)
    return "" if error <= _TOLERANCES[str(theirs.dtype)] else f"off by {error:.2g} of the largest"
