"""How much noise rounding puts into the outputs of a network, cause by cause.

    x ─ [conv] ─ t ─ [conv] ─ y      noise of t:        y of rounded t less y
                                     of the first conv: y of its rounded weights less y
                                     of an algorithm:   y of t with its own errors less y

Each call is a small model of its own in ONNX Runtime, and what a cause does not touch is not
computed again. What ONNX cannot say is computed by numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.compiler.islands import IslandError, Session, in_order
from tilewright.compiler.onnx_models import task_model
from tilewright.core.forms import PLAIN
from tilewright.core.noise import Powers, RoundingNoise
from tilewright.graph.arrays import rounded_to
from tilewright.graph.evaluate import run_workload
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import Array, TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.half_noise import Rounds
from tilewright.kernels.onnx_nodes import Untranslatable
from tilewright.kernels.registry import implementation


def rounding_noise(
    network: FusedNetwork,
    inputs: Sequence[Mapping[str, Array]],
    tensors: Sequence[str],
    factors: Mapping[str, int],
    algorithms: Mapping[str, Sequence[str]],
    dtype: str,
) -> RoundingNoise:
    """The noise of storing each of `tensors`, calls' results or inputs, in `dtype`, of rounding one
    argument of calls, and of their `algorithms` that round in their own way: `factors` has the
    place of the argument, `algorithms` the implementations by the calls' names."""
    graph = network.graph
    outputs = tuple(o for o in graph.outputs if "float" in graph.types[o].dtype)
    runner, calls = Runner(graph.types), network.calls
    produced = {call.output: place for place, call in enumerate(calls)}
    base: list[dict[str, Array]] = []
    found: dict[tuple[str, str], list[float]] = {}
    for given in inputs:
        values = dict(graph.constants) | {name: given[name] for name in graph.inputs}
        for call in calls:
            values[call.output] = runner.run(call, values)
        base.append({name: values[name] for name in outputs})

        def noise(
            changed: dict[str, Array], start: int, values: dict[str, Array] = values
        ) -> Powers:
            for call in calls[start:]:
                if not changed.keys().isdisjoint(call.inputs):
                    changed[call.output] = runner.run(call, values, changed)
            return tuple(_power(changed[o], values[o]) if o in changed else 0.0 for o in outputs)

        for tensor in tensors:
            powers = noise(
                {tensor: rounded_to(values[tensor], dtype)}, produced.get(tensor, -1) + 1
            )
            _add(found, ("tensor", tensor), powers)
        for place, call in enumerate(calls):
            if call.name in factors:
                name = call.inputs[factors[call.name]]
                coarse = {name: rounded_to(values[name], dtype)}
                result = runner.run(call, values, coarse)
                _add(found, ("call", call.name), noise({call.output: result}, place + 1))
            for name in algorithms.get(call.name, ()):
                result = runner.disturbed(call, values, own_errors(call, values, name, dtype))
                _add(found, (call.name, name), noise({call.output: result}, place + 1))
    return RoundingNoise(
        outputs=outputs,
        signals=tuple(sum(_power(each[o]) for each in base) for o in outputs),
        largest=tuple(
            float(max(np.abs(each[o]).max(initial=0.0) for each in base)) for o in outputs
        ),
        elements=tuple(sum(each[o].size for each in base) for o in outputs),
        tensors={name: tuple(found["tensor", name]) for name in tensors},
        calls={name: tuple(found["call", name]) for name in factors},
        algorithms={
            (call, name): tuple(found[call, name])
            for call, names in algorithms.items()
            for name in names
        },
    )


def own_errors(call: TaskCall, values: Mapping[str, Array], name: str, dtype: str) -> Array:
    """What rounding in an implementation adds to what the anchor of a call computes of arguments,
    where data among these are rounded already."""
    workload, spec = call.workload, implementation(name)
    assert workload.anchor is not None and isinstance(spec, Rounds), "it rounds no products"
    operands: list[Array] = []
    for index in workload.anchor.inputs:
        argument, value = workload.arguments[index], values[call.inputs[index]]
        found = rounded_to(value, dtype) if argument.role == "data" else value
        operands.append(found.reshape(argument.type.shape))
    return spec.rounding_errors(workload, operands)


def disturbable(workload: Workload) -> Workload:
    """The same with one more argument, the last one, which is added to the anchor's result."""
    assert workload.anchor_index is not None, "nothing is multiplied"
    count, at = len(workload.arguments), workload.anchor_index
    added = Argument(type=workload.types[count + at])
    steps = [
        replace(
            step,
            inputs=tuple(
                index + (0 if index < count else 1 if index < count + at else 2)
                for index in step.inputs
            ),
        )
        for step in workload.steps
    ]
    steps.insert(at + 1, Step(operator="add", attributes=(), inputs=(count + 1 + at, count)))
    return Workload(arguments=(*workload.arguments, added), steps=tuple(steps))


def _add(found: dict[tuple[str, str], list[float]], key: tuple[str, str], powers: Powers) -> None:
    known = found.get(key, [0.0] * len(powers))
    found[key] = [a + b for a, b in zip(known, powers, strict=True)]


def _power(array: Array, other: Array | None = None) -> float:
    """The sum of the squares of an array, or of its differences from another; infinite where what
    is finite in one is not in the other."""
    values = array.astype(np.float64)
    if other is not None:
        right = other.astype(np.float64)
        finite = np.isfinite(right)
        values = np.where(finite, values, 0.0) - np.where(finite, right, 0.0)
    else:
        values = np.where(np.isfinite(values), values, 0.0)
    power = float(np.sum(np.square(values)))
    return power if np.isfinite(power) else float("inf")


@dataclass(slots=True)
class Runner:
    """Computes calls; those of one workload by one session."""

    types: Mapping[str, TensorType]
    sessions: dict[str, Session | None] = field(default_factory=dict[str, Session | None])

    def run(
        self,
        call: TaskCall,
        values: Mapping[str, Array],
        changed: Mapping[str, Array] | None = None,
    ) -> Array:
        """The result of a call on values by name, some of them changed."""
        other = changed or {}
        arrays = [other[name] if name in other else values[name] for name in call.inputs]
        result = self._computed(call.workload, arrays)
        return result.reshape(self.types[call.output].shape)

    def disturbed(self, call: TaskCall, values: Mapping[str, Array], errors: Array) -> Array:
        """The result of a call whose anchor's result has errors."""
        arrays = [*(values[name] for name in call.inputs), errors]
        result = self._computed(disturbable(call.workload), arrays)
        return result.reshape(self.types[call.output].shape)

    def _computed(self, workload: Workload, arrays: Sequence[Array]) -> Array:
        """The result in the workload's shapes, in which rows may be one."""
        last, index = workload.steps[-1], 0
        given = [
            np.asarray(array, order="C").reshape(argument.type.shape)
            for array, argument in zip(arrays, workload.arguments, strict=True)
        ]
        session = self._session(workload)
        if session is None:
            return run_workload(workload, given)
        if last.operator == "opaque":
            given, index = in_order(workload, given), last.integer("output_index")
        session.abandon()
        return session.call(index, given, None)

    def _session(self, workload: Workload) -> Session | None:
        if workload.key not in self.sessions:
            self.sessions[workload.key] = _opened(workload)
        return self.sessions[workload.key]


def _opened(workload: Workload) -> Session | None:
    """A session that computes a workload; None where ONNX Runtime cannot."""
    last = workload.steps[-1]
    if last.operator == "opaque":
        return Session(str(last.attribute("model")))
    try:
        return Session(task_model(workload, (PLAIN,) * (len(workload.arguments) + 1)))
    except (Untranslatable, IslandError):
        return None
