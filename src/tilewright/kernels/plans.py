"""From calls with forms, and a candidate for each task, to the plan of a network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.fingerprints import digest
from tilewright.core.forms import PLAIN, form_texts
from tilewright.core.records import Candidate
from tilewright.graph.arrange import Arrangement, KernelCall
from tilewright.graph.network import Array
from tilewright.graph.plan import (
    MAIN,
    Lane,
    NetworkPlan,
    PackedConstant,
    PlannedCall,
    PlannedTensor,
)
from tilewright.graph.tasks import TaskKey, task_key
from tilewright.kernels.registry import implementation


def sequential_plan(
    arrangement: Arrangement, chosen: Mapping[TaskKey, Candidate], lane: Lane
) -> NetworkPlan:
    """All calls one after the other on one lane, each with the candidate of its task.

    Raises InternalError where a task has none.
    """
    graph = arrangement.network.graph
    stored: dict[str, PackedConstant] = {}
    calls: list[PlannedCall] = []
    for item in arrangement.calls:
        candidate = chosen.get(task_key(item))
        if candidate is None:
            raise InternalError(f"no candidate for task {task_key(item)}")
        constants = _constants(item, candidate, graph.constants)
        stored |= {entry.name: entry for entry in constants.values()}
        calls.append(
            PlannedCall(
                name=item.call.name,
                workload=item.call.workload,
                candidate=candidate,
                inputs=item.call.inputs,
                output=item.call.output,
                nodes=item.call.nodes,
                kind=item.call.kind,
                constants={index: entry.name for index, entry in constants.items()},
            )
        )
    return NetworkPlan(
        inputs=tuple(graph.inputs),
        outputs=tuple(graph.outputs),
        tensors=_tensors(arrangement, calls, lane),
        calls=tuple(calls),
        lanes={MAIN: lane},
        constants=tuple(stored.values()),
    )


def packed_constant(stored: PackedConstant, values: Mapping[str, Array]) -> Array:
    """The physical form of one constant; `values` holds the graph's constants."""
    spec = implementation(stored.candidate.implementation)
    logical = {
        index: values[name].reshape(stored.workload.arguments[index].type.shape)
        for index, name in stored.sources.items()
    }
    if stored.index not in spec.packed_shapes(stored.workload, stored.candidate):
        return np.asarray(logical[stored.index], order="C")
    packed = spec.pack(stored.workload, stored.candidate, logical)
    return np.asarray(packed[stored.index], order="C")


def _tensors(
    arrangement: Arrangement, calls: list[PlannedCall], lane: Lane
) -> dict[str, PlannedTensor]:
    """Every tensor that calls read or write, or that goes in or out, and what they lie in."""
    graph = arrangement.network.graph
    named = dict.fromkeys((*graph.inputs, *graph.outputs))
    for call in calls:
        read = [t for index, t in enumerate(call.inputs) if index not in call.constants]
        named |= dict.fromkeys((*read, call.output))
    named |= dict.fromkeys(arrangement.place(tensor).root for tensor in list(named))
    sliced = {call.output: call.workload.result for call in calls}
    return {
        tensor: PlannedTensor(
            type=graph.types[tensor] if tensor in graph.types else sliced[tensor],
            root=arrangement.place(tensor).root,
            offset_bytes=arrangement.place(tensor).offset_bytes,
            form=arrangement.forms.get(tensor, PLAIN),
            device=lane.device,
        )
        for tensor in named
    }


def _constants(
    item: KernelCall, candidate: Candidate, known: Mapping[str, Array]
) -> dict[int, PackedConstant]:
    """The packed constants of a call, by argument index."""
    sources = {
        index: name
        for index, (name, argument) in enumerate(
            zip(item.call.inputs, item.call.workload.arguments, strict=True)
        )
        if argument.role == "constant" or name in known
    }
    return {index: _packed(item, candidate, index, sources) for index in sources}


def _packed(
    item: KernelCall, candidate: Candidate, index: int, sources: Mapping[int, str]
) -> PackedConstant:
    workload = item.call.workload
    spec = implementation(candidate.implementation)
    kind = workload.arguments[index].type
    packed = spec.packed_shapes(workload, candidate)
    shape = packed.get(index, kind.shape)
    # packing may fold several constants into one, so all of them take part in the name
    origin = [sources[i] for i in sorted(sources)] if index in packed else [sources[index]]
    form = f"{candidate.implementation}{candidate.settings}{form_texts(candidate.forms)}{index}"
    identity = digest("\0".join([*origin, str(shape), form if index in packed else ""]))
    return PackedConstant(
        name=f"w_{identity}",
        shape=shape,
        dtype=kind.dtype,
        workload=workload,
        candidate=candidate,
        index=index,
        sources=sources,
    )
