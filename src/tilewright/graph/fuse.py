"""Cutting a graph into fused calls.

conv ─ add bias ─ add residual ─ relu ─ pool     →     [conv add add relu] [pool]
mul ─ add ─ relu ─ conv                          →     [mul add relu] [conv]
int8 conv ─ requantize ─ add dequantized residual ─ quantize      →     one group
reshape ─ transpose ─ mul                        →     [reshape transpose mul]

A group has one result that is read outside, written by its last node, so running the groups in
the order of their last nodes has every argument ready and no cycle can arise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.graph.canonical import build_workload
from tilewright.graph.clean.simplify import produce_outputs
from tilewright.graph.codes import drop_round_trips
from tilewright.graph.fused import FusedNetwork, TaskCall
from tilewright.graph.network import Graph, Node, attributes
from tilewright.graph.operators import OPERATORS

MAXIMUM_STEPS = 12
MAXIMUM_ARGUMENTS = 8
MAXIMUM_INTEGER_STEPS = 24
MAXIMUM_INTEGER_ARGUMENTS = 12
"""Behind sums of integers: requantizing takes many small steps and constants of one element."""
MAXIMUM_READS = 16
"""Elements that one element of a chain of movements may be made of: interpolations that follow
each other multiply, and what is between them is computed anew for each."""
MAXIMUM_COSTLY = 2
"""Transcendental steps behind one anchor: more of them make the compiler very slow."""
COSTLY = frozenset(
    {"sigmoid", "tanh", "exp", "log", "erf", "softplus", "silu", "gelu", "elu", "selu"}
    | {"power", "sin", "cos"}
)


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
    for group in sorted(grouping.groups, key=lambda g: position[g.exit.outputs[0]]):
        if group.exit.operator == "opaque":
            calls.extend(_opaque_calls(graph, group.exit, grouping.read, names))
            continue
        nodes = drop_round_trips(graph, group.nodes)
        workload, inputs = build_workload(graph, nodes, group.lead)
        covered = sorted(group.nodes, key=lambda node: position[node.output])
        calls.append(
            TaskCall(
                name=_unique(_readable_name(group), names),
                workload=workload,
                inputs=inputs,
                output=group.exit.output,
                nodes=tuple(node.name for node in covered),
            )
        )
    return FusedNetwork(graph=graph, calls=tuple(calls))


@dataclass(frozen=True, slots=True)
class _Limits:
    steps: int
    arguments: int


_BYTES = ("int8", "uint8")
_USUAL = _Limits(MAXIMUM_STEPS, MAXIMUM_ARGUMENTS)
_INTEGER = _Limits(MAXIMUM_INTEGER_STEPS, MAXIMUM_INTEGER_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class _Group:
    """`lead` come first in the workload: the anchor, or the chain of movements."""

    nodes: tuple[Node, ...]
    lead: tuple[Node, ...]
    exit: Node


def _readable_name(group: _Group) -> str:
    return group.lead[0].name if group.lead else group.exit.name


def _unique(name: str, taken: set[str]) -> str:
    candidate, count = name, 2
    while candidate in taken:
        candidate, count = f"{name}.{count}", count + 1
    taken.add(candidate)
    return candidate


def _opaque_calls(graph: Graph, node: Node, read: set[str], names: set[str]) -> list[TaskCall]:
    calls: list[TaskCall] = []
    for index, output in enumerate(node.outputs):
        if output not in read:
            continue
        named = attributes(**{**node.named, "output_index": index})
        single = Node(
            name=node.name,
            operator="opaque",
            inputs=node.inputs,
            outputs=(output,),
            attributes=named,
        )
        workload, inputs = build_workload(graph, (single,), (single,))
        calls.append(
            TaskCall(
                name=_unique(node.name, names),
                workload=workload,
                inputs=inputs,
                output=output,
                nodes=(node.name,),
            )
        )
    return calls


class _Grouping:
    """Assigns every node of a graph to one group."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.groups: list[_Group] = []
        self._readers = graph.consumers()
        self._producers = graph.producers()
        self._taken: set[str] = set()
        self._outputs = set(graph.outputs)
        self.read = self._outputs | set(self._readers)

    def assign(self) -> None:
        """Anchors first, the last one in order first, then elementwise, then movements."""
        backward = tuple(reversed(self.graph.nodes))
        for node in backward:
            if node.operator == "opaque":
                self._add((node,), (node,))
            elif OPERATORS[node.operator].anchor:
                chain = self._epilogue((node,))
                self._add((*self._dequantized(chain), *chain), (node,), exit_node=chain[-1])
        for node in backward:
            if OPERATORS[node.operator].elementwise and self._free(node):
                members = self._grow_elementwise(node)
                lead = self._leading_movements(members)
                self._add((*lead, *members), lead, exit_node=node)
        for node in backward:
            if self._free(node):
                chain = self._movement_chain(node) if _mergeable(node) else (node,)
                self._add(chain, chain)

    def _add(
        self, nodes: tuple[Node, ...], lead: tuple[Node, ...], *, exit_node: Node | None = None
    ) -> None:
        self._taken.update(name for node in nodes for name in node.outputs)
        self.groups.append(_Group(nodes, lead, exit_node or nodes[-1]))

    def _free(self, node: Node) -> bool:
        return node.outputs[0] not in self._taken

    def _only_read_by(self, tensor: str, members: Sequence[Node]) -> bool:
        """Whether nobody but `members` sees a tensor."""
        if tensor in self._outputs:
            return False
        inside = {node.outputs[0] for node in members}
        return all(reader.outputs[0] in inside for reader in self._readers.get(tensor, ()))

    def _arguments(self, members: Sequence[Node]) -> int:
        written = {node.output for node in members}
        return len({name for node in members for name in node.inputs} - written)

    def _epilogue(self, chain: tuple[Node, ...]) -> tuple[Node, ...]:
        """Follow single readers that are elementwise and keep shape and type.

        Behind a sum of integers the type may change, for requantizing goes along, and behind a
        reduction to bytes.
        """
        types = self.graph.types
        kind = types[chain[0].output]
        whole = kind.dtype == "int32"
        reduced = chain[0].operator.startswith("reduce_")
        limits = _INTEGER if whole else _USUAL
        while len(chain) < limits.steps:
            readers = self._readers.get(chain[-1].output, [])
            if not readers or not self._only_read_by(chain[-1].output, readers[:1]):
                break
            following = readers[0]
            fits = (
                OPERATORS[following.operator].elementwise
                and self._free(following)
                and types[following.output].shape == kind.shape
                and (
                    types[following.output] == types[chain[-1].output]
                    or whole
                    or (reduced and types[following.output].dtype in _BYTES)
                )
                and self._arguments((*chain, following)) <= limits.arguments
                and sum(node.operator in COSTLY for node in (*chain, following)) <= MAXIMUM_COSTLY
            )
            if not fits:
                break
            chain = (*chain, following)
        return chain

    def _dequantized(self, chain: tuple[Node, ...]) -> tuple[Node, ...]:
        """What makes floats of bytes for a chain behind a sum of integers, and for nobody else."""
        taken: tuple[Node, ...] = ()
        if self.graph.types[chain[0].output].dtype != "int32":
            return taken
        for node in chain[1:]:
            for tensor in node.inputs:
                path = self._path_to_bytes(tensor, (*taken, *chain))
                total = (*path, *taken, *chain)
                if self._arguments(total) <= _INTEGER.arguments and len(total) <= _INTEGER.steps:
                    taken = (*path, *taken)
        return taken

    def _path_to_bytes(self, tensor: str, members: tuple[Node, ...]) -> tuple[Node, ...]:
        """The elementwise nodes from a cast of bytes to `tensor`; empty where there are others."""
        types, path = self.graph.types, tuple[Node, ...]()
        while True:
            producer = self._producers.get(tensor)
            if (
                producer is None
                or producer in members
                or not OPERATORS[producer.operator].elementwise
                or not self._free(producer)
                or types[tensor].shape != types[members[-1].output].shape
                or not self._only_read_by(tensor, (*path, *members))
            ):
                return ()
            path = (producer, *path)
            data = [name for name in producer.inputs if name not in self.graph.constants]
            if len(data) != 1:
                return ()
            (tensor,) = data
            if types[tensor].dtype in _BYTES:
                return path if producer.operator == "cast" else ()

    def _grow_elementwise(self, last: Node) -> tuple[Node, ...]:
        """Take producers along whose every reader is already in the group."""
        shape = self.graph.types[last.output].shape
        members: tuple[Node, ...] = (last,)
        grown = True
        while grown:
            grown = False
            for name in [name for node in members for name in node.inputs]:
                producer = self._producers.get(name)
                fits = (
                    producer is not None
                    and len(members) < MAXIMUM_STEPS
                    and producer not in members
                    and self._free(producer)
                    and OPERATORS[producer.operator].elementwise
                    and self.graph.types[name].shape == shape
                    and self._only_read_by(name, members)
                    and self._arguments((producer, *members)) <= MAXIMUM_ARGUMENTS
                )
                if producer is not None and fits:
                    members = (producer, *members)
                    grown = True
        return members

    def _leading_movements(self, members: tuple[Node, ...]) -> tuple[Node, ...]:
        """The first chain of movements that only this group reads; not one of mere reshapes."""
        shape = self.graph.types[members[-1].output].shape
        for name in dict.fromkeys(name for node in members for name in node.inputs):
            producer = self._producers.get(name)
            if producer is None or not self._free(producer) or not _mergeable(producer):
                continue
            if self.graph.types[name].shape != shape or not self._only_read_by(name, members):
                continue
            chain = self._movement_chain(producer)
            total = (*chain, *members)
            if (
                any(node.operator != "reshape" for node in chain)
                and len(total) <= MAXIMUM_STEPS
                and self._arguments(total) <= MAXIMUM_ARGUMENTS
            ):
                return chain
        return ()

    def _movement_chain(self, last: Node) -> tuple[Node, ...]:
        """Movements that end in `last`, linked through their first inputs."""
        chain = (last,)
        while len(chain) < MAXIMUM_STEPS:
            tensor = chain[0].inputs[0]
            producer = self._producers.get(tensor)
            if (
                producer is None
                or not _mergeable(producer)
                or not self._free(producer)
                or tensor in chain[0].inputs[1:]
                or prod(self._taps(node) for node in (producer, *chain)) > MAXIMUM_READS
                or not self._only_read_by(tensor, chain[:1])
            ):
                break
            chain = (producer, *chain)
        return chain

    def _taps(self, node: Node) -> int:
        """How many elements an element of a movement's result is made of."""
        return self.graph.types[node.inputs[1]].shape[0] if node.operator == "interpolate" else 1


def _mergeable(node: Node) -> bool:
    return OPERATORS[node.operator].movement and node.operator != "concat"
