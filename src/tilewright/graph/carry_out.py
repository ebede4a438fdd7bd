"""Carrying out a plan in numpy, in the memory it plans: slow, and right where the plan is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.graph.evaluate import run_workload
from tilewright.graph.layout import to_logical, to_physical
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan, PlannedCall

_STALE = 0xA5
"""What memory holds that nothing was written to."""


def carry_out(
    plan: NetworkPlan, inputs: Mapping[str, Array], constants: Mapping[str, Array]
) -> dict[str, Array]:
    """The outputs by name; every call reads and writes bytes of arenas, inputs and outputs.

    Calls run in the order of the plan. `constants` are the graph's, as they are before packing.
    """
    memory = _Memory(plan, inputs)
    for call in plan.calls:
        _run(call, memory, constants)
    kinds = {name: plan.tensors[name].type for name in plan.outputs}
    return {
        name: memory.view(name).view(kind.dtype).reshape(kind.shape).copy()
        for name, kind in kinds.items()
    }


def results_of_calls(
    plan: NetworkPlan, inputs: Mapping[str, Array], constants: Mapping[str, Array]
) -> dict[str, Array]:
    """The logical result of every call, by its name."""
    memory = _Memory(plan, inputs)
    return {call.name: _run(call, memory, constants) for call in plan.calls}


def _run(call: PlannedCall, memory: _Memory, constants: Mapping[str, Array]) -> Array:
    """Read, compute, write; the logical result."""
    arrays: list[Array] = []
    for index, (name, argument) in enumerate(
        zip(call.inputs, call.workload.arguments, strict=True)
    ):
        kind, form = argument.type, call.candidate.forms[index]
        if index in call.constants:
            arrays.append(constants[name].reshape(kind.shape))
            continue
        raw = memory.view(name, kind.bytes).view(kind.dtype)
        arrays.append(to_logical(raw, form, kind.shape).copy())
    result = np.asarray(run_workload(call.workload, arrays))
    packed = to_physical(result, call.candidate.forms[-1])
    written = memory.view(call.output, call.workload.result.bytes)
    written[:] = packed.reshape(-1).view(np.uint8)
    return result


class _Memory:
    """An arena per device, and memory of its own for each input and output."""

    def __init__(self, plan: NetworkPlan, inputs: Mapping[str, Array]) -> None:
        self._plan = plan
        self._arenas = {
            device: np.full(memory.arena_bytes, _STALE, np.uint8)
            for device, memory in plan.memory.items()
        }
        outside = {plan.tensors[name].root for name in (*plan.inputs, *plan.outputs)}
        self._outside = {
            name: np.full(plan.tensors[name].type.bytes, _STALE, np.uint8) for name in outside
        }
        for name in plan.inputs:
            self.view(name)[:] = np.ascontiguousarray(inputs[name]).reshape(-1).view(np.uint8)

    def view(self, tensor: str, size_bytes: int | None = None) -> Array:
        """The bytes of a tensor."""
        planned = self._plan.tensors[tensor]
        begin = planned.offset_bytes
        end = begin + (planned.type.bytes if size_bytes is None else size_bytes)
        if planned.root in self._outside:
            return self._outside[planned.root][begin:end]
        offset = self._plan.memory[planned.device].offsets[planned.root]
        return self._arenas[planned.device][offset + begin : offset + end]
