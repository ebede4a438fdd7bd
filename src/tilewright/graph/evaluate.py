"""Running workloads and graphs in numpy, and the scale that errors are relative to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.core.element_types import element_type, is_element_type
from tilewright.core.errors import InternalError
from tilewright.graph.fused import FusedNetwork, TaskCall
from tilewright.graph.magnitude import magnitude
from tilewright.graph.network import Array, AttributeValue, Graph, Node
from tilewright.graph.operators import OPERATORS
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Step, Workload

__all__ = ["OpaqueRunner", "in_single", "magnitude", "run_fused", "run_graph", "run_workload"]

OpaqueRunner = Callable[[str, Sequence[Array]], Sequence[Array]]
"""Runs the `model` attribute of an opaque operator on its inputs and returns all its outputs."""


def run_workload(
    workload: Workload, arrays: Sequence[Array], *, opaque: OpaqueRunner | None = None
) -> Array:
    """The result of a workload in numpy, in the arguments' own precision.

    `arrays` are the arguments in order, row-major. An opaque step needs `opaque`; without it
    `InternalError` is raised.
    """
    values = list(arrays)
    for step in workload.steps:
        values.append(_run_step(step, [values[i] for i in step.inputs], opaque))
    return values[-1]


def in_single(workload: Workload) -> Workload:
    """The same with single precision wherever there is half precision: what would come out if
    nothing were rounded on the way."""
    return Workload(
        arguments=tuple(
            replace(argument, type=TensorType(argument.type.shape, _wide(argument.type.dtype)))
            for argument in workload.arguments
        ),
        steps=tuple(
            replace(step, attributes=tuple((name, _wide(item)) for name, item in step.attributes))
            if step.operator == "cast"
            else step
            for step in workload.steps
        ),
    )


def _wide(value: AttributeValue) -> Any:
    if not isinstance(value, str) or not is_element_type(value):
        return value
    return element_type(value).accumulator


def _run_step(step: Step, inputs: Sequence[Array], opaque: OpaqueRunner | None) -> Array:
    if step.operator == "opaque" and opaque is not None:
        return opaque(str(step.attribute("model")), inputs)[step.integer("output_index")]
    return OPERATORS[step.operator].reference(tuple(inputs), step.named)


def _run_node(
    node: Node, inputs: tuple[Array, ...], opaque: OpaqueRunner | None
) -> Sequence[Array]:
    if node.operator == "opaque" and opaque is not None:
        return opaque(str(node.attribute("model")), inputs)
    return (OPERATORS[node.operator].reference(inputs, node.named),)


def run_graph(
    graph: Graph,
    inputs: Mapping[str, Array],
    *,
    opaque: OpaqueRunner | None = None,
    every: bool = False,
) -> dict[str, Array]:
    """The outputs of a graph by name, computed in numpy; all tensors when `every` is set."""
    values = _start(graph, inputs)
    left = Counter(name for node in graph.nodes for name in node.inputs)
    left.update(graph.outputs)
    for node in graph.nodes:
        results = _run_node(node, tuple(values[name] for name in node.inputs), opaque)
        values.update(zip(node.outputs, results, strict=True))
        if not every:
            _release(values, left, node.inputs)
    return values if every else {name: values[name] for name in graph.outputs}


def run_fused(
    network: FusedNetwork,
    inputs: Mapping[str, Array],
    *,
    opaque: OpaqueRunner | None = None,
    every: bool = False,
) -> dict[str, Array]:
    """The same as `run_graph`, call by call: checks that fusion kept the meaning."""
    values = _start(network.graph, inputs)
    left = Counter(name for call in network.calls for name in call.inputs)
    left.update(network.graph.outputs)
    for call in network.calls:
        values[call.output] = _run_call(call, values, opaque)
        if not every:
            _release(values, left, call.inputs)
    return values if every else {name: values[name] for name in network.graph.outputs}


def _run_call(call: TaskCall, values: Mapping[str, Array], opaque: OpaqueRunner | None) -> Array:
    return run_workload(call.workload, [values[name] for name in call.inputs], opaque=opaque)


def _start(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    missing = [name for name in graph.inputs if name not in inputs]
    if missing:
        raise InternalError(f"no value for input {', '.join(missing)}")
    return {**graph.constants, **{name: inputs[name] for name in graph.inputs}}


def _release(values: dict[str, Array], left: Counter[str], names: Sequence[str]) -> None:
    for name in names:
        left[name] -= 1
        if left[name] == 0:
            del values[name]
