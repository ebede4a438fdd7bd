"""Running workloads and graphs in numpy, and the scale that errors are relative to.

A sum of products that cancels has an error in proportion to sum |w||x|, not to its small value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.core.element_types import element_type, is_element_type
from tilewright.core.errors import InternalError
from tilewright.graph.network import Applied, Array, AttributeValue, Graph, TensorType
from tilewright.graph.operators import OPERATORS
from tilewright.graph.operators.attention import scores
from tilewright.graph.workload import Step, Workload

OpaqueRunner = Callable[[str, Sequence[Array]], Sequence[Array]]
"""Runs the `model` attribute of an opaque operator on its inputs and returns all its outputs."""

_LINEAR = frozenset(
    {
        "conv2d", "conv2d_transpose", "dense", "batch_matmul", "reduce_sum", "reduce_mean",
        "avg_pool2d", "max_pool2d", "reduce_max", "add", "multiply", "maximum", "reshape",
        "transpose", "slice", "concat", "pad", "expand", "resize_nearest", "identity",
    }
)  # fmt: skip
"""Operators whose reference, applied to magnitudes, gives the magnitude of the result."""

_ROUNDINGS = 8
"""As many roundings, one after the other, as an operand may be off by."""

_BOUNDLESS = 1e30

_SAME_AS = {"subtract": "add", "minimum": "maximum", "reduce_min": "reduce_max"}


def run_workload(
    workload: Workload, arrays: Sequence[Array], *, opaque: OpaqueRunner | None = None
) -> Array:
    """The result of a workload in numpy, in the arguments' own precision.

    `arrays` are the arguments in order, row-major. An opaque step needs `opaque`; without it
    `InternalError` is raised.
    """
    values = list(arrays)
    for step in workload.steps:
        inputs = tuple(values[i] for i in step.inputs)
        whole = step.operator != "opaque"
        values.append(_results(step, inputs, opaque)[0 if whole else step.integer("output_index")])
    return values[-1]


def _results(
    applied: Applied, inputs: tuple[Array, ...], opaque: OpaqueRunner | None = None
) -> Sequence[Array]:
    if applied.operator == "opaque" and opaque is not None:
        return opaque(str(applied.attribute("model")), inputs)
    return [OPERATORS[applied.operator].reference(inputs, applied.named)]


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
    named = isinstance(value, str) and is_element_type(value)
    return element_type(str(value)).accumulator if named else value


def run_graph(
    graph: Graph, inputs: Mapping[str, Array], *, opaque: OpaqueRunner | None = None
) -> dict[str, Array]:
    """The outputs of a graph by name, computed in numpy."""
    missing = [name for name in graph.inputs if name not in inputs]
    if missing:
        raise InternalError(f"no value for input {', '.join(missing)}")
    values = {**graph.constants, **{name: inputs[name] for name in graph.inputs}}
    left = Counter(name for node in graph.nodes for name in node.inputs)
    left.update(graph.outputs)
    for node in graph.nodes:
        read = tuple(values[name] for name in node.inputs)
        values.update(zip(node.outputs, _results(node, read, opaque), strict=True))
        left.subtract(node.inputs)
        for name in node.inputs:
            if left[name] == 0:
                values.pop(name, None)
    return {name: values[name] for name in graph.outputs}


def magnitude(workload: Workload, arrays: Sequence[Array], coarse: float = 0.0) -> Array:
    """For each element of the result, the scale its error is relative to.

    Convolutions, products, sums and means give sum |w||x|; additions add magnitudes, products
    multiply them, operators of bounded slope scale them; anything else gives the largest absolute
    value of its result, or, where that is more, how much its result sways with its operands: a
    logarithm near zero passes errors on many times as large, a remainder jumps. What jumps does so
    for errors of a few roundings, or where that is more of `coarse`, relative to what it reads.
    Always positive and never below the absolute value of the result.
    """
    values: list[Any] = list(arrays)
    sizes: list[Any] = [_absolute(array) for array in arrays]
    for step in workload.steps:
        inputs = tuple(values[i] for i in step.inputs)
        value = _results(step, inputs)[0]
        with np.errstate(all="ignore"):
            size = _step_size(step, inputs, tuple(sizes[i] for i in step.inputs), value, coarse)
            sizes.append(np.fmax(size, _absolute(value)))
        values.append(value)
    return _positive(sizes[-1])


def _absolute(value: Any) -> Any:
    if value.dtype == np.float64:
        return np.abs(value)
    return np.abs(value.astype(np.float64 if value.dtype.kind in "iu" else np.float32))


def _step_size(
    step: Step, inputs: tuple[Any, ...], sizes: tuple[Any, ...], value: Any, coarse: float
) -> Any:
    name = _SAME_AS.get(step.operator, step.operator)
    named = step.named
    if name in _LINEAR:
        return OPERATORS[name].reference(_one_type(sizes), named)
    slope = OPERATORS[name].slope
    if slope is not None:
        return sizes[0] * (slope(**named) if callable(slope) else slope)
    real = value.dtype.kind == "f"
    match name:
        case "divide":
            bottom: Any = np.abs(inputs[1])
            return np.fmax(sizes[0] / bottom * (sizes[1] / bottom), _sway(step, inputs, sizes))
        case "where":
            return OPERATORS[name].reference((inputs[0], *_one_type(sizes[1:])), named)
        case "prelu":
            return sizes[0] * np.maximum(1.0, sizes[1])
        case "gather" | "interpolate" | "cache_write":
            at = 2 if name == "cache_write" else 1
            operands = (*sizes[:at], inputs[at], *sizes[at + 1 :])
            return OPERATORS[name].reference(operands, named)
        case "cast":
            return _cast_size(inputs[0], sizes[0], value)
        case "attention":
            # an error of a score grows with what is summed up to it, and changes every share
            apart = {**named, "scale": abs(step.number("scale"))}
            reach: Any = scores(sizes[0], sizes[1], None, apart).max(initial=0.0)
            return OPERATORS[name].reference((*inputs[:2], sizes[2], *inputs[3:]), named) * (
                1.0 + reach
            )
        case "exp":
            return sizes[0] * np.abs(value)
        case _:
            least = coarse if OPERATORS[name].jumps else 0.0
            sway = (
                _sway(step, inputs, sizes, least) if real and OPERATORS[name].elementwise else 0.0
            )
            return np.fmax(_largest(_absolute(value)), sway)


def _cast_size(x: Any, size: Any, value: Any) -> Any:
    """A number keeps its size; a whole number of one that was rounded may have jumped with it."""
    if value.dtype.kind == "f":
        return size
    whole = _largest(_absolute(value))
    return np.fmax(whole, size) if x.dtype.kind == "f" else whole


def _sway(step: Step, inputs: tuple[Any, ...], sizes: tuple[Any, ...], least: float = 0.0) -> Any:
    """How much the result changes, for a change of the operands by their sizes: seen from changes
    as small as rounding makes them, or of `least`, and boundless where one of those leaves the
    domain."""
    kinds = [array.dtype for array in inputs if array.dtype.kind == "f"]
    if not kinds:
        return np.float64(0)
    reach = max(least, _ROUNDINGS * float(np.finfo(np.result_type(*kinds)).eps))
    wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in inputs]

    def result(at: int, change: Any) -> Any:
        moved = [array + change if index == at else array for index, array in enumerate(wide)]
        return OPERATORS[step.operator].reference(tuple(moved), step.named)

    middle, sway = result(-1, 0.0), np.float64(0)
    for index, (array, size) in enumerate(zip(inputs, sizes, strict=True)):
        if array.dtype.kind == "f":
            change = reach * size.astype(np.float64)
            for side in (result(index, change), result(index, -change)):
                sway = np.fmax(sway, np.nan_to_num(np.abs(side - middle) / reach, nan=_BOUNDLESS))
    return np.minimum(sway, _BOUNDLESS)


def _one_type(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(size.astype(np.result_type(*sizes), copy=False) for size in sizes)


def _largest(size: Any) -> Any:
    finite = size[np.isfinite(size)]
    return np.full_like(size, finite.max() if finite.size else 1.0)


def _positive(size: Any) -> Array:
    if not size.size:
        return size
    top = float(_largest(size).flat[0]) or 1.0
    return np.where(size > 0, size, np.asarray(top, size.dtype))
