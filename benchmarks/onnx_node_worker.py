"""The child process that puts ONNX's own node tests through our importer and compiler.

`onnx_node_tests` is the other side. What is raised here and is not a refusal, a crash and a hang
are that side's to see.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from onnxruntime.capi import onnxruntime_pybind11_state

from tilewright.compiler.execute import LoadedNetwork, set_threads
from tilewright.compiler.opaque import unsupported
from tilewright.core.child import serve
from tilewright.core.errors import ModelError
from tilewright.core.records import Placement
from tilewright.graph.network import Graph
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.tasks import fused_network
from tilewright.hardware.device import local_placement
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.generic import ISLAND
from tilewright.kernels.island import reason_of
from tilewright.kernels.plans import default_settings, lay_out
from tilewright.models.loaded import LoadedModel
from tilewright.models.loading import load_model, with_islands

RIGHT, REFUSED, WRONG = "right", "refused", "wrong"
CONSTANTS = "/constants"
"""Behind the name of a test: all its inputs but the first are constants of the model."""
LIGHT = "light/"
"""Before the name of a network whose weights are all alike, from the data of the package."""
_LIGHT_FOLDER = Path(onnx.__file__).parent / "backend/test/data/light"
ENGINE = "onnxruntime/"
"""Before the name of a test that is given to ONNX Runtime."""
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomUniform", "RandomNormalLike",
           "RandomUniformLike")  # fmt: skip
_CANCELLING, _OF_LARGEST = {"DFT", "STFT"}, 1e-6
"""Transforms whose terms cancel: what should be zero is a rounding of the largest result."""
_BFLOAT16_TOLERANCE = 2.0**-6
"""Two steps of its seven digits, as ONNX's own runner allows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTest:
    """A model, what goes in, what must come out, and how far it may be off."""

    model: onnx.ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    relative: float
    absolute: float


@cache
def _collected() -> dict[str, Any]:
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def names() -> list[str]:
    """Every test in the order of the package; then those with constants; then whole networks."""
    cases = _collected()
    several = [name for name, case in cases.items() if len(case.data_sets[0][0]) > 1]
    light = [LIGHT + path.stem for path in sorted(_LIGHT_FOLDER.glob("*.onnx"))]
    return [*cases, *(name + CONSTANTS for name in several), *light]


def node_test(name: str) -> NodeTest:
    """The test of a name; it may be changed."""
    if name.startswith(LIGHT):
        return _light(name.removeprefix(LIGHT))
    case = _collected()[name.removesuffix(CONSTANTS)]
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    inputs, outputs = ([_array(value) for value in values] for values in case.data_sets[0])
    if name.endswith(CONSTANTS):
        inputs = make_constants(model, inputs)
    return NodeTest(
        model=model, inputs=inputs, outputs=outputs, relative=case.rtol, absolute=case.atol
    )


def about() -> dict[str, tuple[str, str]]:
    """Of every test of a node as it is: the operator, and why it does not count, if so."""
    cases = _collected()
    operators = {name: _operator(case.model) for name, case in cases.items()}
    return {
        name: (
            operators.get(name.partition("_expanded")[0], operators[name]),
            _left_out(case.model.graph),
        )
        for name, case in cases.items()
    }


def _operator(model: onnx.ModelProto) -> str:
    """The operator of the last node, which is the only one of most tests."""
    node = model.graph.node[-1]
    return f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").removeprefix(".")


def _left_out(graph: onnx.GraphProto) -> str:
    """Why a test does not count, empty if it does."""
    values = [value.type for value in (*graph.input, *graph.output)]
    if any(not kind.HasField("tensor_type") for kind in values):
        return "sequences, maps and optionals"
    if any(kind.tensor_type.elem_type == TensorProto.STRING for kind in values):
        return "text"
    if any(node.op_type in _RANDOM for node in graph.node):
        return "random numbers"
    return "training" if any(map(_trains, graph.node)) else ""


def _trains(node: onnx.NodeProto) -> bool:
    named = {attribute.name: attribute.i for attribute in node.attribute}
    dropout = node.op_type == "Dropout" and len(node.input) > 2
    return dropout or bool(named.get("training_mode")) or "training" in node.domain


def make_constants(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """Put all inputs but the first into the model, as far as they are tensors; those left."""
    left = list(inputs[:1])
    for value, array in list(zip(model.graph.input, inputs, strict=True))[1:]:
        if isinstance(array, np.ndarray | np.generic):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
        else:
            left.append(array)
    return left


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _light(name: str) -> NodeTest:
    model = onnx.load(_LIGHT_FOLDER / f"{name}.onnx")
    weights = {tensor.name for tensor in model.graph.initializer}
    given = [value for value in model.graph.input if value.name not in weights]
    plain = name.removeprefix("light_")
    inputs = [
        Runner.generate_dummy_data(value, seed=0, name=plain, random=False) for value in given
    ]
    outputs = [
        numpy_helper.to_array(onnx.load_tensor(_LIGHT_FOLDER / f"{name}_output_{index}.pb"))
        for index in range(len(model.graph.output))
    ]
    return NodeTest(model=model, inputs=inputs, outputs=outputs, relative=2e-3, absolute=1e-7)


@cache
def _placement() -> Placement:
    placement = local_placement()
    set_threads(placement.resources.threads, placement.binding.cpus)
    return placement


def judge(name: str) -> tuple[str, str]:
    """The verdict over a test, and what was wrong or why it was refused.

    Where ONNX Runtime computes parts of a network, what was right has a detail, which says why.
    What is not a `ModelError` is raised.
    """
    if name.startswith(ENGINE):
        return _judge_engine(node_test(name.removeprefix(ENGINE)))
    test = node_test(name)
    try:
        with redirect_stdout(io.StringIO()):
            model = _with_islands(load_model(test.model, name.replace("/", "-")))
            network, plan = _compiled(model.graph)
    except ModelError as error:
        return REFUSED, error.message
    found = network([np.asarray(array) for array in test.inputs])
    problem = difference(found, test)
    reasons = (reason_of(call.workload) for call in plan.calls)
    return (WRONG, problem) if problem else (RIGHT, next(filter(None, reasons), ""))


def _judge_engine(test: NodeTest) -> tuple[str, str]:
    """The verdict over ONNX Runtime."""
    refusals = tuple(
        kind
        for kind in vars(onnxruntime_pybind11_state).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    )
    options: Any = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session: Any = onnxruntime.InferenceSession(
            test.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [value.name for value in session.get_inputs()]
        feed = dict(zip(names, map(np.asarray, test.inputs), strict=True))
        problem = difference(session.run(None, feed), test)
    except (*refusals, RuntimeError, TypeError, ValueError) as error:
        return REFUSED, str(error)
    return (WRONG, problem) if problem else (RIGHT, "")


def _with_islands(model: LoadedModel) -> LoadedModel:
    """The model, with what TVM does not take as islands: as `plan.preparation` has it, but in this
    process."""
    nodes = [n for n in model.graph.nodes if n.operator == "opaque" and not n.named.get(ISLAND)]
    light = replace(model.graph, nodes=tuple(nodes), constants={})
    refused = unsupported(light, _placement().tvm_target) if nodes else {}
    return with_islands(model, {name: ModelError(text) for name, (text, _) in refused.items()})


def _compiled(graph: Graph) -> tuple[LoadedNetwork, NetworkPlan]:
    """The network in memory, with default settings: as `optimize --budget 0` without its race."""
    placement = _placement()
    fused = fused_network(graph)
    forms = choose_forms(fused, placement.target, placement.resources)
    plan = lay_out(fused, forms, lane_of(placement), default_settings(placement))
    return LoadedNetwork.compiled(plan, placement.target, fused.graph.constants), plan


def difference(found: Sequence[Any], test: NodeTest) -> str:
    """The first output that is not what it should be, in words; empty when all are right."""
    if len(found) != len(test.outputs):
        return f"{len(found)} outputs instead of {len(test.outputs)}"
    for index, (ours, wanted) in enumerate(zip(found, test.outputs, strict=True)):
        expected = np.asarray(wanted)
        if ours.shape != expected.shape or ours.dtype != expected.dtype:
            return (
                f"output {index} is {ours.dtype}{list(ours.shape)} instead of "
                f"{expected.dtype}{list(expected.shape)}"
            )
        relative, absolute = test.relative, test.absolute
        if expected.dtype.name == "bfloat16":
            relative = max(relative, _BFLOAT16_TOLERANCE)
        if expected.dtype.kind not in "iub":
            ours, expected = ours.astype(np.float64), expected.astype(np.float64)
        if {node.op_type for node in test.model.graph.node} & _CANCELLING:
            absolute = _OF_LARGEST * float(np.max(np.abs(expected), initial=0.0))
        if not np.allclose(ours, expected, rtol=relative, atol=absolute, equal_nan=True):
            off = ~np.isclose(ours, expected, relative, absolute, equal_nan=True)
            place = tuple(int(axis[0]) for axis in np.nonzero(off))
            return (
                f"output {index}: {int(off.sum())} of {off.size} elements are off, the "
                f"first at {list(place)}: {ours[place]} instead of {expected[place]}"
            )
    return ""


if __name__ == "__main__":
    serve({"names": names, "judge": judge, "about": about})
