"""Sibling calls as one: convolutions of one image, or dense layers of one row, whose weights are
stacked, so that one kernel computes all output channels.

    image ─ conv → a ─ …                   image ─ conv + conv → all ─┬─ channels of a ─ …
    image ─ conv → b ─ concat(b, c)    →                              └─ concat(all, c) ─ channels
                                                                          of b and c ─ …

Results are slices along the output channels, which are views where these are the outermost axis in
memory (`graph.arrange`). A part that a concatenation begins with is stacked last: the concatenation
joins the whole, and what it was is a slice of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.core.grouping import grouped
from tilewright.graph.arrange import is_concatenation, operands
from tilewright.graph.canonical import build_workload
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import (
    Array,
    AttributeValue,
    Graph,
    Node,
    TensorType,
    attributes,
    fresh_name,
)
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Argument, Step, Workload

_WEIGHT_AXIS = {"conv2d": 0, "dense": 1}
"""The axis of output channels in the weights of what can be stacked."""

Group = tuple[str, ...]
"""Calls that become one, by their names, in the order in which their channels are stacked."""


def stacked_name(names: Sequence[str]) -> str:
    """What the call is named that some calls become: "a + b"."""
    return " + ".join(names)


def sibling_groups(network: FusedNetwork) -> list[Group]:
    """The calls that can become one: as many as possible of each operand, none of them twice."""
    known = _Siblings(network)
    alike = grouped((key, call) for call in network.calls for key in known.keys(call))
    ordered = (known.ordered(calls) for calls in alike.values())
    return [tuple(call.name for call in calls) for calls in ordered if len(calls) > 1]


def inner_parts(network: FusedNetwork, groups: Sequence[Group]) -> list[Group]:
    """Of groups whose last call begins a concatenation the others, where these are several."""
    known = _Siblings(network)
    calls = {call.name: call for call in network.calls}
    cut = (group[:-1] for group in groups if known.joining(calls[group[-1]]) is not None)
    return [group for group in cut if len(group) > 1]


def with_stacked(network: FusedNetwork, groups: Sequence[Group]) -> FusedNetwork:
    """The network with the calls of each group as one, all others as they are. Raises ModelError
    for calls that are not there or cannot be stacked."""
    for group in groups:
        network = _stacked(network, group)
    return network


def _stacked(network: FusedNetwork, group: Group) -> FusedNetwork:
    known = _Siblings(network)
    calls = [call for name in group for call in network.calls if call.name == name]
    keys, again = [[*known.keys(call)] for call in calls], known.ordered(calls)
    alike = all(each and each == keys[0] for each in keys) and again == calls
    if not (alike and 1 < len({*group}) == len(group) == len(calls)):
        told = ", ".join(map(repr, group))
        raise ModelError(f"the calls {told} cannot be stacked in this order")
    return _Stacking(network=network, calls=calls).network_of(known.joining(calls[-1]))


@dataclass(frozen=True)
class _Siblings:
    """What is known of the calls of a network beside each other."""

    network: FusedNetwork

    @cached_property
    def _readers(self) -> dict[str, list[TaskCall]]:
        pairs = ((t, call) for call in self.network.calls for t in dict.fromkeys(call.inputs))
        return grouped(pairs)

    def keys(self, call: TaskCall) -> Iterator[tuple[Any, ...]]:
        """What calls have in common that can become one; nothing for others."""
        workload, constants = call.workload, self.network.graph.constants
        data = [t for t in call.inputs if t not in constants]
        anchor = workload.anchor
        if anchor is None or anchor.operator not in _WEIGHT_AXIS or len(data) != 1:
            return
        stacks = (
            workload.anchor_index == 0
            and call.inputs[anchor.inputs[0]] == data[0]
            and anchor.named.get("groups", 1) == 1
            and all(self._goes_along(step, anchor.inputs[0]) for step in workload.steps[1:])
            and call.output not in self.network.pinned
        )
        if stacks and workload.is_constant(anchor.inputs[1]) and not self._is_joined_inside(call):
            yield (
                data[0],
                workload.steps,
                *(self._signature(call, at) for at in range(len(call.inputs))),
            )

    @staticmethod
    def _goes_along(step: Step, data: int) -> bool:
        """Whether a step behind the anchor is computed of stacked channels as it is: it does not
        read the operand again, which has as many channels as one of the results."""
        return OPERATORS[step.operator].elementwise and data not in step.inputs

    def _signature(self, call: TaskCall, at: int) -> tuple[Any, ...]:
        """What the operands at a place of calls have in common: what is stacked its shape but for
        the channels, everything else its values."""
        kind, axis = call.workload.types[at], channel_axis(call.workload, at)
        if axis is not None:
            return (kind.dtype, *kind.shape[:axis], *kind.shape[axis + 1 :])
        value = self.network.graph.constants.get(call.inputs[at])
        return kind, None if value is None else value.tobytes()

    def _is_joined_inside(self, call: TaskCall) -> bool:
        """Whether a concatenation reads a result that does not begin it: a slice of what is stacked
        would have to be copied there."""
        joins = any(is_concatenation(reader) for reader in self._readers.get(call.output, ()))
        return joins and self.joining(call) is None

    def joining(self, call: TaskCall) -> TaskCall | None:
        """The concatenation that begins with what a call writes, along the stacked channels, and
        that no other one reads; None without one."""
        readers, pinned = self._readers, self.network.pinned
        joins = [each for each in readers.get(call.output, ()) if is_concatenation(each)]
        axis = _result_axis(call.workload)
        for join in joins if len(joins) == 1 else ():
            read = operands(join)
            first = read[0] == call.output and read.count(call.output) == 1
            along = join.workload.steps[0].integer("axis") == axis
            inside = any(is_concatenation(each) for each in readers.get(join.output, ()))
            if first and along and not inside and join.output not in pinned and len(read) > 1:
                return join
        return None

    def ordered(self, calls: Sequence[TaskCall]) -> list[TaskCall]:
        """Calls in the order in which they are stacked: one that begins a concatenation last; of
        several such the first."""
        inner = [call for call in calls if self.joining(call) is None]
        return [*inner, *[call for call in calls if self.joining(call) is not None][:1]]


def _result_axis(workload: Workload) -> int:
    """The axis of output channels in a result."""
    images = workload.anchor is not None and workload.anchor.operator == "conv2d"
    return 1 if images else len(workload.result.shape) - 1


def channel_axis(workload: Workload, at: int) -> int | None:
    """The axis of output channels in an operand of a call that can be stacked; None where it has
    none: the data, or what is the same for all channels."""
    anchor, kind = workload.anchor, workload.types[at]
    if anchor is None or not workload.is_constant(at):
        return None
    if at == anchor.inputs[1]:
        return _WEIGHT_AXIS[anchor.operator]
    axis, channels = _result_axis(workload), workload.result.shape[_result_axis(workload)]
    own = axis - len(workload.result.shape) + len(kind.shape)
    return own if own >= 0 and channels > 1 and kind.shape[own] == channels else None


@dataclass(frozen=True, kw_only=True)
class _Stacking:
    """A network in which some calls become one. What these write is cut from `whole`, which that
    one writes."""

    network: FusedNetwork
    calls: Sequence[TaskCall]

    @cached_property
    def _axis(self) -> int:
        return _result_axis(self.calls[0].workload)

    @cached_property
    def _channels(self) -> list[int]:
        types = self.network.graph.types
        return [types[call.output].shape[self._axis] for call in self.calls]

    def network_of(self, join: TaskCall | None) -> FusedNetwork:
        """The network; `join` is the concatenation that begins with the last call's result."""
        graph, whole = self.network.graph, stacked_name([call.output for call in self.calls])
        whole = fresh_name(whole, graph.types)
        types, constants = {**graph.types}, {**graph.constants}
        workload, inputs = self._workload(types, constants)
        nodes = self._nodes(workload, inputs, whole, types)
        starts = [sum(self._channels[:number]) for number in range(len(self.calls))]
        cuts = [
            self._slice(call.output, whole, types, start)
            for call, start in zip(self.calls, starts, strict=True)
            if self._read_beside(join, call.output)
        ]
        joining = list[Node]()
        if join is not None:
            joined = fresh_name(f"{join.output} + {whole}", types)
            node = self._producers[join.output]
            read = (whole, *operands(join)[1:])
            node = replace(node, inputs=read, outputs=(joined,))
            types[joined] = OPERATORS["concat"].infer(tuple(types[t] for t in read), node.named)
            joining = [node, self._slice(join.output, joined, types, starts[-1])]
        made = self._rebuilt([*nodes, *cuts], joining, inputs, types, constants)
        named = {call.name for call in self.calls}
        one = TaskCall(
            name=stacked_name([call.name for call in self.calls]),
            workload=workload,
            inputs=inputs,
            output=whole,
            nodes=tuple(name for call in self.calls for name in call.nodes),
        )
        calls = list[TaskCall]()
        for call in self.network.calls:
            if call.name in named:
                calls += [one, *(_call_of(made, node) for node in cuts)] if one not in calls else []
            elif join is not None and call.name == join.name:
                again, cut = (_call_of(made, node) for node in joining)
                calls += [replace(again, name=join.name, nodes=join.nodes), cut]
            else:
                calls.append(call)
        return FusedNetwork(graph=made, calls=tuple(calls))

    def _read_beside(self, join: TaskCall | None, part: str) -> bool:
        """Whether something reads a part itself: all but a concatenation that begins with it."""
        if join is None or part != operands(join)[0]:
            return True
        return any(part in call.inputs for call in self.network.calls if call is not join)

    def _workload(
        self, types: dict[str, TensorType], constants: dict[str, Array]
    ) -> tuple[Workload, tuple[str, ...]]:
        """What computes all channels, and the tensors behind its arguments; stacked constants are
        put to the others."""
        first = self.calls[0]
        arguments, inputs = list(first.workload.arguments), list(first.inputs)
        for at, argument in enumerate(first.workload.arguments):
            axis = channel_axis(first.workload, at)
            if axis is not None:
                names = [call.inputs[at] for call in self.calls]
                name = inputs[at] = fresh_name(stacked_name(names), types)
                # the rows of an image may be collapsed in the argument, channels never are
                constants[name] = np.concatenate([constants[each] for each in names], axis=axis)
                types[name] = replace(types[names[0]], shape=constants[name].shape)
                channels = constants[name].shape[axis]
                shape = argument.type.shape
                shape = (*shape[:axis], channels, *shape[axis + 1 :])
                kind = replace(argument.type, shape=shape)
                arguments[at] = Argument(type=kind, role=argument.role)
        return Workload(arguments=tuple(arguments), steps=first.workload.steps), tuple(inputs)

    def _nodes(
        self,
        workload: Workload,
        inputs: tuple[str, ...],
        whole: str,
        types: dict[str, TensorType],
    ) -> list[Node]:
        """The nodes of the graph that a workload stands for."""
        names, found = list(inputs), list[Node]()
        for number, step in enumerate(workload.steps):
            last = number == len(workload.steps) - 1
            output = whole if last else fresh_name(f"{whole}/{number}", types)
            read = tuple(names[value] for value in step.inputs)
            node = Node(
                name=output,
                operator=step.operator,
                inputs=read,
                outputs=(output,),
                attributes=tuple((name, _number(value)) for name, value in step.attributes),
            )
            types[output] = OPERATORS[step.operator].infer(
                tuple(types[each] for each in read), node.named
            )
            names.append(output)
            found.append(node)
        return found

    def _slice(self, part: str, whole: str, types: Mapping[str, TensorType], start: int) -> Node:
        """The node that cuts a tensor from another one's channels."""
        shape, ends = types[part].shape, list(types[part].shape)
        ends[self._axis] += start
        starts = (start if axis == self._axis else 0 for axis in range(len(shape)))
        return Node(
            name=f"{stacked_name([call.name for call in self.calls])}: {part}",
            operator="slice",
            inputs=(whole,),
            outputs=(part,),
            attributes=attributes(starts=tuple(starts), stops=tuple(ends), steps=(1,) * len(shape)),
        )

    def _rebuilt(
        self,
        nodes: Sequence[Node],
        joining: Sequence[Node],
        inputs: Sequence[str],
        types: Mapping[str, TensorType],
        constants: Mapping[str, Array],
    ) -> Graph:
        """The graph with new nodes behind what they read, and a concatenation in its old place."""
        graph = self.network.graph
        gone = {node.outputs for call in self.calls for node in self._own(call)}
        places = {t: place for place, node in enumerate(graph.nodes) for t in node.outputs}
        joins = joining[-1].output if joining else None
        kept = list[Node]()
        place = max((places[name] + 1 for name in inputs if name in places), default=0)
        for number, node in enumerate(graph.nodes):
            kept += nodes if number == place else []
            if joins in node.outputs:
                kept += joining
            elif node.outputs not in gone:
                kept.append(node)
        return graph.rebuilt(kept, types=types, constants=constants)

    def _own(self, call: TaskCall) -> Iterator[Node]:
        """The nodes of the graph that a call stands for."""
        left, known = [call.output], {*call.inputs}
        while left:
            node = self._producers.get(left.pop())
            if node is None:
                continue  # an input, or a constant that the workload does without
            yield node
            left += [tensor for tensor in node.inputs if tensor not in known]
            known.update(node.inputs)

    @cached_property
    def _producers(self) -> dict[str, Node]:
        return self.network.graph.producers()


def _call_of(graph: Graph, node: Node) -> TaskCall:
    """A node as a call of its own."""
    workload, inputs = build_workload(graph, (node,), (node,))
    return TaskCall(
        name=node.name, workload=workload, inputs=inputs, output=node.output, nodes=(node.name,)
    )


def _number(value: AttributeValue) -> AttributeValue:
    """An attribute as nodes have it: infinities are text in workloads."""
    return float(value) if value in ("inf", "-inf") else value
