"""From calls, forms and candidates to the plan of a network, and to its packed weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from tilewright.core.codec import digest
from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, Form, form_texts
from tilewright.core.records import Candidate, Placement
from tilewright.graph.arrange import Allocation, KernelCalls, arrange
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array
from tilewright.graph.plan import (
    MAIN,
    Lane,
    NetworkPlan,
    PackedConstant,
    PlannedCall,
    PlannedTensor,
)
from tilewright.graph.tasks import TaskKey
from tilewright.graph.workload import Workload
from tilewright.kernels.in_place import overwritable
from tilewright.kernels.registry import implementation, packed_type
from tilewright.kernels.spaces import default_candidate

Choose = Callable[[Workload, tuple[Form, ...]], Candidate]
"""(workload, forms of its ports) → what computes it."""


def default_settings(placement: Placement, max_error: float | None = None) -> Choose:
    """Our default settings, from facts and device alone, none with an error bound above
    `max_error` where a more exact one is to be had."""
    return lambda workload, forms: default_candidate(workload, forms, placement, max_error)[0]


def lay_out(
    network: FusedNetwork, forms: Mapping[str, Form], lane: Lane, choose: Choose
) -> NetworkPlan:
    """The network with its tensors in `forms`, call after call on one lane; `choose` is asked once
    for each task."""
    arranged = arrange(network, forms)
    chosen = {key: choose(task.workload, task.forms) for key, task in arranged.tasks.items()}
    return in_sequence(arranged, lane, chosen)


def in_sequence(
    arranged: KernelCalls, lane: Lane, chosen: Mapping[TaskKey, Candidate]
) -> NetworkPlan:
    """Kernel calls one after the other on one lane; `chosen` has what computes each task."""
    network = arranged.network
    known = network.graph.constants
    calls = [
        PlannedCall(
            name=item.call.name,
            workload=item.call.workload,
            candidate=chosen[item.call.workload.key, item.forms],
            inputs=item.call.inputs,
            output=item.call.output,
            nodes=item.call.nodes,
            kind=item.call.kind,
            constants={
                index: name
                for index, (name, argument) in enumerate(
                    zip(item.call.inputs, item.call.workload.arguments, strict=True)
                )
                if argument.role == "constant" or name in known
            },
        )
        for item in arranged.calls
    ]
    packed, constants = _packed_all(calls)
    return NetworkPlan(
        inputs=tuple(network.graph.inputs),
        outputs=tuple(network.graph.outputs),
        tensors=_tensors(arranged, calls, lane),
        calls=packed,
        lanes={MAIN: lane},
        constants=constants,
    )


def with_candidates(plan: NetworkPlan, chosen: Mapping[TaskKey, Candidate]) -> NetworkPlan:
    """The plan with other candidates for some of its tasks, see `with_each`."""
    return with_each(plan, {c.name: chosen[c.task] for c in plan.calls if c.task in chosen})


def with_each(plan: NetworkPlan, chosen: Mapping[str, Candidate]) -> NetworkPlan:
    """The plan with other candidates for the calls that are named; weights are packed as they want.

    Raises InternalError for a candidate in other forms than its task's.
    """
    calls: list[PlannedCall] = []
    for call in plan.calls:
        candidate = chosen.get(call.name, call.candidate)
        if candidate.forms != call.candidate.forms:
            raise InternalError(f"a candidate in other forms for call {call.name!r}: {candidate}")
        calls.append(replace(call, candidate=candidate))
    packed, constants = _packed_all(calls)
    return replace(plan, calls=packed, constants=constants)


def with_calls(plan: NetworkPlan, calls: tuple[PlannedCall, ...], output: str) -> NetworkPlan:
    """A plan of some of a plan's calls, and others that read what these write, whose only output
    is tensor `output`: one of the plan's, or that of the last call, in plain form."""
    last = calls[-1]
    tensors = dict(plan.tensors)
    if output not in tensors:
        kind, device = last.workload.result, plan.lanes[last.lane].device
        tensors[output] = PlannedTensor(type=kind, root=output, device=device)
    used = {output, *plan.inputs}
    used |= {
        tensor
        for call in calls
        for index, tensor in enumerate((*call.inputs, call.output))
        if index not in call.constants
    }
    used |= {tensors[name].root for name in used}
    packed, constants = _packed_all(calls)
    return replace(
        plan,
        outputs=(output,),
        tensors={name: tensor for name, tensor in tensors.items() if name in used},
        calls=packed,
        constants=constants,
    )


def packed_constant(stored: PackedConstant, values: Mapping[str, Array]) -> Array:
    """The physical form of one constant; `values` holds the graph's constants."""
    spec = implementation(stored.candidate.implementation)
    logical = {
        index: values[name].reshape(stored.workload.arguments[index].type.shape)
        for index, name in stored.sources.items()
    }
    packs = stored.index in spec.packed_shapes(stored.workload, stored.candidate)
    physical = spec.pack(stored.workload, stored.candidate, logical) if packs else logical
    return np.asarray(physical[stored.index], order="C")


def _tensors(
    arranged: KernelCalls, calls: list[PlannedCall], lane: Lane
) -> dict[str, PlannedTensor]:
    """Every tensor that calls read or write, or that goes in or out, and what they lie in."""

    def allocation(tensor: str) -> Allocation:
        return arranged.allocations.get(tensor, Allocation(root=tensor, offset_bytes=0))

    graph = arranged.network.graph
    named = dict.fromkeys((*graph.inputs, *graph.outputs))
    for call in calls:
        read = [t for index, t in enumerate(call.inputs) if index not in call.constants]
        named |= dict.fromkeys((*read, call.output))
    named |= dict.fromkeys(allocation(tensor).root for tensor in list(named))
    sliced = {call.output: call.workload.result for call in calls}
    return {
        tensor: PlannedTensor(
            type=graph.types[tensor] if tensor in graph.types else sliced[tensor],
            root=allocation(tensor).root,
            offset_bytes=allocation(tensor).offset_bytes,
            form=arranged.forms.get(tensor, PLAIN),
            device=lane.device,
        )
        for tensor in named
    }


def _packed_all(
    calls: Sequence[PlannedCall],
) -> tuple[tuple[PlannedCall, ...], tuple[PackedConstant, ...]]:
    """The calls with what their candidates decide: the names of packed constants, and what the
    result may overwrite; and these constants, in order of first use."""
    packed = [{index: _packed(call, index) for index in call.constants} for call in calls]
    stored: dict[str, PackedConstant] = {}
    for entry in chain.from_iterable(entries.values() for entries in packed):
        stored.setdefault(entry.name, entry)
    named = tuple(
        replace(
            call,
            constants={index: entry.name for index, entry in entries.items()},
            overwritable=overwritable(call.workload, call.candidate),
        )
        for call, entries in zip(calls, packed, strict=True)
    )
    return named, tuple(stored.values())


def _packed(call: PlannedCall, index: int) -> PackedConstant:
    """Operand `index` of a call as its kernel wants it."""
    workload, candidate = call.workload, call.candidate
    sources = {number: call.inputs[number] for number in call.constants}
    kind = workload.arguments[index].type
    packed = implementation(candidate.implementation).packed_shapes(workload, candidate)
    shape = packed.get(index, kind.shape)
    # packing may fold several constants into one, so all of them take part in the name
    origin = [sources[i] for i in sorted(sources)] if index in packed else [sources[index]]
    form = f"{candidate.implementation}{candidate.settings}{form_texts(candidate.forms)}{index}"
    identity = digest("\0".join([*origin, str(shape), form if index in packed else ""]))
    return PackedConstant(
        name=f"w_{identity}",
        shape=shape,
        dtype=packed_type(workload, candidate, index),
        workload=workload,
        candidate=candidate,
        index=index,
        sources=sources,
    )
