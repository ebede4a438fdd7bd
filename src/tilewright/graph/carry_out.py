"""Carrying out a plan in numpy, in the memory it plans: slow, and right where the plan is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.graph.arrays import to_logical, to_physical
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan, PlannedCall

_STALE = 0xA5
"""What memory holds that nothing was written to."""


def carry_out(
    plan: NetworkPlan, inputs: Mapping[str, Array], constants: Mapping[str, Array]
) -> dict[str, Array]:
    """The outputs by name, of numpy: every call reads and writes bytes of arenas, inputs and
    outputs.

    Calls run in the order of the plan. `constants` are the graph's, as they are before packing.
    """
    memory = PlanMemory(plan, inputs, constants)
    for call in plan.calls:
        memory.run(call)
    return memory.outputs()


def results_of_calls(
    plan: NetworkPlan, inputs: Mapping[str, Array], constants: Mapping[str, Array]
) -> dict[str, Array]:
    """The logical result of every call, by its name."""
    memory = PlanMemory(plan, inputs, constants)
    return {call.name: memory.run(call) for call in plan.calls}


class PlanMemory:
    """The memory of one run of a plan: an arena per device, and memory of its own for each input
    and output. Tensors lie in their forms, codes are refused."""

    def __init__(
        self, plan: NetworkPlan, inputs: Mapping[str, Array], constants: Mapping[str, Array]
    ) -> None:
        self._plan = plan
        self._constants = constants
        self._arenas = {
            device: np.full(memory.arena_bytes, _STALE, np.uint8)
            for device, memory in plan.memory.items()
        }
        outside = dict.fromkeys(plan.tensors[name].root for name in (*plan.inputs, *plan.outputs))
        self._outside = {
            name: np.full(plan.tensors[name].bytes, _STALE, np.uint8) for name in outside
        }
        for name in plan.inputs:
            self._view(name)[:] = np.ascontiguousarray(inputs[name]).reshape(-1).view(np.uint8)

    def run(self, call: PlannedCall) -> Array:
        """Carry a call out in numpy; its logical result."""
        result = np.asarray(run_workload(call.workload, self.operands(call)))
        self.write(call, result)
        return result

    def operands(self, call: PlannedCall) -> list[Array]:
        """Copies of what a call reads, logical, in the types of its arguments."""
        arrays: list[Array] = []
        for index, (name, argument) in enumerate(
            zip(call.inputs, call.workload.arguments, strict=True)
        ):
            kind, form = argument.type, call.candidate.forms[index]
            if index in call.constants:
                arrays.append(self._constants[name].reshape(kind.shape))
                continue
            raw = self._view(name, form.size_bytes(kind.shape, kind.dtype))
            stored = raw.view(element_type(form.element(kind.dtype)).numpy)
            logical = to_logical(stored, form, kind.shape)
            arrays.append(logical.astype(element_type(kind.dtype).numpy))
        return arrays

    def write(self, call: PlannedCall, result: Array) -> None:
        """Put the logical result of a call where the plan has it."""
        kind, form = call.workload.result, call.candidate.forms[-1]
        written = self._view(call.output, form.size_bytes(kind.shape, kind.dtype))
        written[:] = to_physical(result, form).reshape(-1).view(np.uint8)

    def outputs(self) -> dict[str, Array]:
        """Copies of the network's outputs as they are now, by name."""
        kinds = {name: self._plan.tensors[name].type for name in self._plan.outputs}
        return {
            name: self._view(name).view(element_type(kind.dtype).numpy).reshape(kind.shape).copy()
            for name, kind in kinds.items()
        }

    def _view(self, tensor: str, size_bytes: int | None = None) -> Array:
        """The bytes of a tensor."""
        planned = self._plan.tensors[tensor]
        memory = self._outside.get(planned.root)
        if memory is None:
            offset = self._plan.memory[planned.device].offsets[planned.root]
            memory = self._arenas[planned.device][offset:]
        size_bytes = planned.bytes if size_bytes is None else size_bytes
        return memory[planned.offset_bytes :][:size_bytes]
