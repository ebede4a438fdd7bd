"""Cutting a graph into fused calls.

conv ─ add bias ─ add residual ─ relu ─ pool     →     [conv add add relu] [pool]
mul ─ add ─ relu ─ conv                          →     [mul add relu] [conv]
int8 conv ─ requantize ─ add dequantized residual ─ quantize      →     one group
slice, slice, slice ─ attention                  →     [slice slice slice attention]
reshape ─ transpose ─ mul                        →     [reshape transpose mul]
mul ─ reduce sum ─ sqrt                          →     [mul reduce_sum sqrt]

A group has one result that is read outside, written by its last node, so running the groups in
the order of their last nodes has every argument ready and no cycle can arise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal

from tilewright.core.codec import canonical_json, digest
from tilewright.graph.canonical import build_workload, drop_round_trips
from tilewright.graph.clean.simplify import produce_outputs
from tilewright.graph.network import Graph, Node, attributes, fresh_name
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload

CallKind = Literal["kernel", "conversion", "transfer"]
"""What a call is for: an operator of the network, a tensor in another form, a tensor on another
device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    """One fused subgraph in its place: which tensors of the graph it reads and writes.

    `inputs` are the graph tensors behind the workload's arguments, in their order; `nodes` are the
    names of the graph's nodes it covers; `name` is a readable name, unique in the network.
    """

    name: str
    workload: Workload
    inputs: tuple[str, ...]
    output: str
    nodes: tuple[str, ...] = ()
    kind: CallKind = "kernel"


@dataclass(frozen=True, kw_only=True)
class FusedNetwork:
    """Calls in execution order over the tensors of `graph`."""

    graph: Graph
    calls: tuple[TaskCall, ...]

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """The distinct workloads by key, in order of first use."""
        return {call.workload.key: call.workload for call in self.calls}

    @cached_property
    def pinned(self) -> frozenset[str]:
        """Tensors whose memory is given: inputs, outputs, constants."""
        return frozenset((*self.graph.inputs, *self.graph.outputs, *self.graph.constants))

    @cached_property
    def key(self) -> str:
        """Identity of the fused network: its calls and how they are wired, not its weights."""
        wiring = [[c.workload.text, list(c.inputs), c.output] for c in self.calls]
        return digest(canonical_json([wiring, list(self.graph.inputs), list(self.graph.outputs)]))


@dataclass(frozen=True, slots=True)
class _Limits:
    """How many steps and arguments a workload has at the most."""

    steps: int
    arguments: int

    def allow(self, nodes: Sequence[Node]) -> bool:
        """Whether nodes may be one workload."""
        read = {name for node in nodes for name in node.inputs}
        arguments = read.difference(node.output for node in nodes)
        return len(nodes) <= self.steps and len(arguments) <= self.arguments


_USUAL = _Limits(steps=12, arguments=8)
_INTEGER = _Limits(steps=24, arguments=12)
"""Behind sums of integers: requantizing takes many small steps and constants of one element."""
_MOST_READS = 16
"""Elements that one element of a chain of movements may be made of: interpolations that follow
each other multiply, and what is between them is computed anew for each."""
_MOST_COSTLY = 2
"""Transcendental steps behind one anchor: more of them make the compiler very slow."""
_BYTES = ("int8", "uint8")
_VIEWS = ("slice", "reshape", "transpose")
_ATTENTION = ("attention", "quantized_attention")


def _costly(node: Node) -> bool:
    return OPERATORS[node.operator].transcendental > 0


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes whose last one writes the result. `lead` come first in the workload: the anchor, or the
    chain of movements."""

    nodes: tuple[Node, ...]
    lead: tuple[Node, ...]


def fuse(graph: Graph) -> FusedNetwork:
    """Cut a (cleaned) graph into calls, in execution order.

    Every anchor takes the elementwise chain behind it along; an addition of two convolutions goes
    to the later one. A convolution of integers also takes what only its chain reads and bytes
    become on the way, such as a residual that is dequantized. What is left of the elementwise
    operators merges among itself, data movements merge along chains and take elementwise operators
    behind them along. Concatenations and lone reshapes stay calls of their own. An opaque node
    gives one call per output that is used.
    """
    graph = produce_outputs(graph)
    grouping = _Grouping(graph)
    grouping.assign()
    calls: list[TaskCall] = []
    names: set[str] = set()
    position = {node.outputs[0]: index for index, node in enumerate(graph.nodes)}
    for group in sorted(grouping.groups, key=lambda g: position[g.nodes[-1].outputs[0]]):
        covered = sorted(group.nodes, key=lambda node: position[node.outputs[0]])
        for part in grouping.parts(group):
            workload, inputs = build_workload(graph, part.nodes, part.lead)
            name = fresh_name((*part.lead, part.nodes[-1])[0].name, names)
            names.add(name)
            calls.append(
                TaskCall(
                    name=name,
                    workload=workload,
                    inputs=inputs,
                    output=part.nodes[-1].output,
                    nodes=tuple(node.name for node in covered),
                )
            )
    return FusedNetwork(graph=graph, calls=tuple(calls))


class _Grouping:
    """Assigns every node of a graph to one group."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.groups: list[_Group] = []
        self._readers = graph.consumers()
        self._producers = graph.producers()
        self._taken: set[str] = set()
        self._outputs = set(graph.outputs)
        self._position = {node: index for index, node in enumerate(graph.nodes)}

    def assign(self) -> None:
        """Anchors first, the last one in order first, then elementwise, then movements."""
        backward = tuple(reversed(self.graph.nodes))
        for node in backward:
            if node.operator == "opaque":
                self._add((node,), (node,))
            elif OPERATORS[node.operator].anchor:
                chain = self._epilogue((node,))
                self._add((*self._dequantized(chain), *self._in_place(chain), *chain), (node,))
        for node in backward:
            if OPERATORS[node.operator].elementwise and self._free(node):
                members = self._grow_elementwise(node)
                if self._reduced(members):
                    continue
                lead = self._leading_movements(members)
                self._add((*lead, *members), lead)
        for node in backward:
            if self._free(node):
                chain = self._movement_chain(node) if _mergeable(node) else (node,)
                self._add(chain, chain)

    def parts(self, group: _Group) -> Iterator[_Group]:
        """What a group is computed by: itself without detours, or an opaque node for each output
        that is read."""
        node = group.nodes[-1]
        if node.operator != "opaque":
            yield replace(group, nodes=drop_round_trips(self.graph, group.nodes))
            return
        for index, output in enumerate(node.outputs):
            if output in self._outputs or output in self._readers:
                named = attributes(**node.named, output_index=index)
                single = (replace(node, outputs=(output,), attributes=named),)
                yield _Group(single, single)

    def _add(self, nodes: tuple[Node, ...], lead: tuple[Node, ...]) -> None:
        self._taken.update(name for node in nodes for name in node.outputs)
        self.groups.append(_Group(nodes, lead))

    def _free(self, node: Node) -> bool:
        return node.outputs[0] not in self._taken

    def _only_read_by(self, tensor: str, members: Sequence[Node]) -> bool:
        """Whether nobody but `members` sees a tensor."""
        readers = self._readers.get(tensor, ())
        return tensor not in self._outputs and all(reader in members for reader in readers)

    def _elementwise(self, tensor: str, members: Sequence[Node]) -> Node | None:
        """The elementwise node that writes a tensor in the shape of what `members` write last, if
        it is free and nobody else reads the tensor."""
        node, types = self._producers.get(tensor), self.graph.types
        fits = (
            node is not None
            and node not in members
            and OPERATORS[node.operator].elementwise
            and self._free(node)
            and types[tensor].shape == types[members[-1].output].shape
            and self._only_read_by(tensor, members)
        )
        return node if fits else None

    def _movement(self, tensor: str, members: Sequence[Node]) -> Node | None:
        """The movement that writes a tensor, if it is free and nobody else reads the tensor."""
        node = self._producers.get(tensor)
        fits = node is not None and self._free(node) and _mergeable(node)
        return node if fits and self._only_read_by(tensor, members) else None

    def _epilogue(self, chain: tuple[Node, ...]) -> tuple[Node, ...]:
        """Take readers along that are elementwise and keep shape and type, as long as others see
        one result only.

        Behind a sum of integers the type may change, for requantizing goes along, and behind every
        anchor to bytes.
        """
        longer = chain
        while longer:
            chain, longer = longer, self._rejoined(longer)
        return chain

    def _rejoined(self, chain: tuple[Node, ...]) -> tuple[Node, ...]:
        """A chain with what reads its result, up to where the ways from there are one again; empty
        where they never are.

        before: d          after: d ─ multiply ─ tanh ─ multiply
                                  └─────────────────────┘
        """
        last, longer = chain[-1].output, chain
        while longer == chain or not all(
            self._only_read_by(node.output, longer) for node in longer[:-1]
        ):
            open_ends = [node.output for node in longer if node not in chain[:-1]]
            readers = [r for end in open_ends for r in self._readers.get(end, ())]
            waiting = [reader for reader in readers if reader not in longer]
            if not waiting or not self._outputs.isdisjoint(open_ends[:-1] or open_ends):
                return ()
            longer = (*longer, min(waiting, key=self._position.__getitem__))
            if not self._prolongs(longer, last):
                return ()
        return longer

    def _prolongs(self, longer: tuple[Node, ...], last: str) -> bool:
        """Whether the last of these nodes may be computed with the others, behind a tensor."""
        types, node = self.graph.types, longer[-1]
        kind, result = types[longer[0].output], types[node.outputs[0]]
        whole = kind.dtype == "int32"
        return (
            OPERATORS[node.operator].elementwise
            and self._free(node)
            and result.shape == kind.shape
            and (result == types[last] or whole or result.dtype in _BYTES)
            and (_INTEGER if whole else _USUAL).allow(longer)
            and sum(map(_costly, longer)) <= _MOST_COSTLY
        )

    def _dequantized(self, chain: tuple[Node, ...]) -> tuple[Node, ...]:
        """What makes floats of bytes for a chain behind a sum of integers, and for nobody else."""
        taken: tuple[Node, ...] = ()
        if self.graph.types[chain[0].output].dtype == "int32":
            for tensor in [tensor for node in chain[1:] for tensor in node.inputs]:
                path = self._path_to_bytes(tensor, (*taken, *chain))
                if _INTEGER.allow((*path, *taken, *chain)):
                    taken = (*path, *taken)
        return taken

    def _in_place(self, chain: tuple[Node, ...]) -> tuple[Node, ...]:
        """The views that attention reads its queries, keys and values through, and nobody else: its
        kernel copies these anyway."""
        taken: tuple[Node, ...] = ()
        limits = _INTEGER if self.graph.types[chain[0].output].dtype == "int32" else _USUAL
        for tensor in chain[0].inputs if chain[0].operator in _ATTENTION else ():
            view = self._movement(tensor, chain[:1])
            while view is not None and view.operator in _VIEWS and view not in taken:
                longer: tuple[Node, ...] = (view, *taken)
                if not limits.allow((*longer, *chain)):
                    break
                taken, view = longer, self._movement(view.inputs[0], (view,))
        return taken

    def _path_to_bytes(self, tensor: str, members: tuple[Node, ...]) -> tuple[Node, ...]:
        """The elementwise nodes from a cast of bytes to `tensor`; empty where there are others."""
        path: tuple[Node, ...] = ()
        while True:
            producer = self._elementwise(tensor, (*path, *members))
            constants = self.graph.constants
            data = [] if producer is None else [n for n in producer.inputs if n not in constants]
            if producer is None or len(data) != 1:
                return ()
            path, (tensor,) = (producer, *path), data
            if self.graph.types[tensor].dtype in _BYTES:
                return path if producer.operator == "cast" else ()

    def _grow_elementwise(self, last: Node) -> tuple[Node, ...]:
        """Take producers along whose every reader is already in the group."""
        members: tuple[Node, ...] = (last,)
        grown = True
        while grown:
            grown = False
            for name in [name for node in members for name in node.inputs]:
                producer = self._elementwise(name, members)
                if producer is not None and _USUAL.allow((producer, *members)):
                    members = (producer, *members)
                    grown = True
        return members

    def _reduced(self, members: tuple[Node, ...]) -> bool:
        """Give elementwise nodes to the reduction that alone reads what they write, if one does."""
        result = members[-1].output
        kind, (reader, *_) = self.graph.types[result], (*self._readers.get(result, ()), None)
        found = next((group for group in self.groups if group.lead == (reader,)), None)
        if found is None or not found.lead[0].operator.startswith("reduce_"):
            return False
        nodes = (*members, *found.nodes)
        if (
            kind.dtype not in ("float32", "float64")
            or not self._only_read_by(result, found.lead)
            or not _USUAL.allow(nodes)
            or sum(map(_costly, nodes)) > _MOST_COSTLY
        ):
            return False
        self.groups.remove(found)
        self._add(nodes, found.lead)
        return True

    def _leading_movements(self, members: tuple[Node, ...]) -> tuple[Node, ...]:
        """The first chain of movements that only this group reads; not one of mere reshapes."""
        types = self.graph.types
        for name in dict.fromkeys(name for node in members for name in node.inputs):
            producer = self._movement(name, members)
            if producer is None or types[name].shape != types[members[-1].output].shape:
                continue
            chain = self._movement_chain(producer)
            if any(n.operator != "reshape" for n in chain) and _USUAL.allow((*chain, *members)):
                return chain
        return ()

    def _movement_chain(self, last: Node) -> tuple[Node, ...]:
        """Movements that end in `last`, linked through their first inputs."""
        chain = (last,)
        while len(chain) < _USUAL.steps:
            tensor, *others = chain[0].inputs
            producer = self._movement(tensor, chain[:1])
            if (
                producer is None
                or tensor in others
                or prod(self._taps(node) for node in (producer, *chain)) > _MOST_READS
            ):
                break
            chain = (producer, *chain)
        return chain

    def _taps(self, node: Node) -> int:
        """How many elements an element of a movement's result is made of."""
        return self.graph.types[node.inputs[1]].shape[0] if node.operator == "interpolate" else 1


def _mergeable(node: Node) -> bool:
    return OPERATORS[node.operator].movement and node.operator not in ("concat", "cache_write")
