"""Which operators of a network are on codes of eight bits, in halves or in single precision, for
the least time whose noise is allowed.

    x → Conv a → t → Conv b → y      causes: x, t and y on codes, or in halves, and so the weights
                                     of a and b

An operator on codes reads and writes codes, and one in halves reads halves, or a copy of codes as
halves; a tensor is in single precision only where nothing around it is on codes. Times are those of
default settings as they are estimated. It is the problem of `plan.assignment.budgeted`, noise being
the second cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.core.forms import PLAIN
from tilewright.core.mixtures import FrontPoint
from tilewright.core.noise import Powers, RoundingNoise, largest_share
from tilewright.core.records import Placement
from tilewright.core.solutions import PICOSECONDS
from tilewright.graph.arrange import copying
from tilewright.graph.network import TensorType
from tilewright.kernels.base import HALF
from tilewright.kernels.spaces import default_candidate
from tilewright.models.loaded import ON_CODES, ModelOptions, PreparedNetwork
from tilewright.models.quantizing import CodedNode
from tilewright.plan.assignment.budgeted import Front, fastest_within
from tilewright.plan.assignment.problem import FORBIDDEN, Problem, Table, Variable

SINGLE = ModelOptions().precision
_NODE, _TENSOR = "node ", "tensor "
Causes = Mapping[str, Powers]


@dataclass(slots=True, kw_only=True)
class CodeChoice:
    """The choice for one network, which is prepared as a whole in each of some types: `networks`
    has it on codes, in single precision, and in halves where these may be chosen.

    `noise` is that of its tensors and of its nodes' constants on codes, `halves` what they and its
    calls make in halves, on the same inputs; `allowed` is what its outputs may have. Tensors that
    are `single` stay so. Noise of codes counts `scale` times as much as it was predicted.
    """

    nodes: Sequence[CodedNode]
    networks: Mapping[str, PreparedNetwork]
    placement: Placement
    noise: RoundingNoise
    allowed: Powers
    halves: RoundingNoise | None = None
    single: Collection[str] = ()
    scale: float = 1.0
    values: tuple[str, ...] = field(init=False)
    problem: Problem = field(init=False)
    _halved: dict[str, Powers] = field(init=False, default_factory=dict[str, Powers])

    def __post_init__(self) -> None:
        values = (ON_CODES, HALF, SINGLE)
        self.values = tuple(value for value in values if value in self.networks)
        names = [_NODE + node.name for node in self.nodes]
        names += [_TENSOR + name for name in self.tensors]
        variables = [Variable(name=name, kind="choice", values=self.values) for name in names]
        self.problem = Problem(variables=tuple(variables), tables=tuple(self._tables()))

    @property
    def tensors(self) -> dict[str, None]:
        """Those that nodes read and write, each once."""
        return dict.fromkeys(name for n in self.nodes for name in (*n.inputs, n.output))

    def within(self, budget: float) -> Front:
        """The fastest choice whose noise is at most this part of what is allowed."""
        noises = {
            name: np.array([largest_share(powers, self.allowed) for powers in by_value])
            for name, by_value in self._powers().items()
        }
        return fastest_within(self.problem, noises, budget)

    def kept(self, front: Front) -> list[str]:
        """The nodes that are not on codes."""
        chosen = front.chosen.assignment
        return [n.name for n in self.nodes if chosen[_NODE + n.name] != ON_CODES]

    def in_halves(self, assignment: Mapping[str, str]) -> Powers:
        """The part of a choice's noise that comes of halves."""
        return self._total(assignment, {HALF})

    def on_codes(self, assignment: Mapping[str, str]) -> Powers:
        """The part of a choice's noise that comes of codes."""
        return self._total(assignment, {ON_CODES})

    def sqnr_db(self, assignment: Mapping[str, str]) -> float:
        """The least ratio of signal to noise of an output that is predicted of a choice."""
        return self.noise.sqnr_db(self._total(assignment, {*self.values}))

    def points(self, front: Front) -> tuple[FrontPoint, ...]:
        """The front as it is told, the fastest first."""
        every = {id(point): point for point in (*front.points, front.chosen)}
        return tuple(
            FrontPoint(
                predicted_s=point.cost_ps / PICOSECONDS,
                sqnr_db=self.sqnr_db(point.assignment),
                chosen=point is front.chosen,
            )
            for point in sorted(every.values(), key=lambda each: each.cost_ps)
        )

    def by_node(self, kept: Collection[str]) -> dict[str, Powers]:
        """The noise of each node that is not kept: of its constants, of what it writes, and of what
        the network is given and it is the first to read."""
        found: dict[str, Powers] = {}
        left = dict(self.noise.tensors)
        written = {node.output for node in self.nodes if node.name not in kept}
        for node in self.nodes:
            if node.name in kept:
                continue
            read = [name for name in dict.fromkeys(node.inputs) if name not in written]
            causes = [left.pop(name) for name in (node.output, *read) if name in left]
            if node.name in self.noise.calls:
                causes.append(self.noise.calls[node.name])
            found[node.name] = self.noise.total((each, self.scale) for each in causes)
        return found

    def _total(self, assignment: Mapping[str, str], values: Collection[str]) -> Powers:
        return self.noise.total(
            (by_value[self.values.index(assignment[name])], 1.0)
            for name, by_value in self._powers().items()
            if assignment[name] in values
        )

    def _powers(self) -> dict[str, list[Powers]]:
        """The noise of each variable by its values, where one makes some."""
        codes = _named(self.noise.calls, self.noise.tensors)
        halved = _named(self._halved, self._tensors_in_halves())
        none = self.noise.total(())
        scaled = {name: self.noise.total([(p, self.scale)]) for name, p in codes.items()}
        by_value = {ON_CODES: scaled, HALF: halved, SINGLE: dict[str, Powers]()}
        return {
            name: [by_value[value].get(name, none) for value in self.values]
            for name in self.problem.numbers
            if name in codes or name in halved
        }

    def _tensors_in_halves(self) -> dict[str, Powers]:
        """What rounding each tensor makes; of one inside a call that of what the call writes."""
        if self.halves is None:
            return {}
        known, inside = self.halves.tensors, self._results()
        named = (
            (name, known.get(name) or known.get(inside.get(name, ""))) for name in self.tensors
        )
        return {name: powers for name, powers in named if powers}

    def _results(self) -> dict[str, str]:
        """For the result of each node what the call that has it writes, in single precision."""
        calls = self.networks[SINGLE].fused.calls
        results = {node: call.output for call in calls for node in call.nodes}
        return {node.output: results.get(node.name, node.output) for node in self.nodes}

    def _tables(self) -> Iterator[Table]:
        times, inside = self._times(), self._results()
        for node in self.nodes:
            name = _NODE + node.name
            yield _table([name], [times[value].get(node.name, 0) for value in self.values])
            yield self._pairs(
                name, node.output, dict.fromkeys(((ON_CODES, HALF), (ON_CODES, SINGLE)), FORBIDDEN)
            )
            for each in dict.fromkeys(node.inputs):
                yield self._pairs(name, each, self._reading(node, each))
        for each in self.tensors:
            fixed = not {each, inside.get(each)}.isdisjoint(self.single)
            yield _table(
                [_TENSOR + each], [FORBIDDEN * (fixed and v != SINGLE) for v in self.values]
            )

    def _reading(self, node: CodedNode, tensor: str) -> dict[tuple[str, str], int]:
        """Picoseconds that a node in one type takes more because a tensor is in another: it reads a
        copy, which is never one that rounds."""
        costs = dict.fromkeys(((ON_CODES, HALF), (ON_CODES, SINGLE)), FORBIDDEN)
        if node.product:
            copied_ps = self._copied_ps(tensor)
            pairs = ((SINGLE, ON_CODES), (SINGLE, HALF), (HALF, ON_CODES))
            costs |= dict.fromkeys(pairs, copied_ps)
            costs[HALF, SINGLE] = FORBIDDEN
        return costs

    def _pairs(self, node: str, tensor: str, costs: Mapping[tuple[str, str], int]) -> Table:
        """What types of a node and of a tensor that it reads or writes cost together."""
        rows = [[costs.get((own, its), 0) for its in self.values] for own in self.values]
        return _table([node, _TENSOR + tensor], rows)

    def _times(self) -> dict[str, dict[str, int]]:
        """Picoseconds of each node in each type: those of the call that has it, of which the first
        product counts, or else the first node."""
        order = sorted(self.nodes, key=lambda node: not node.product)
        found: dict[str, dict[str, int]] = {}
        for value, network in self.networks.items():
            placement = replace(self.placement, precision=network.precision)
            times = found[value] = {}
            for call in network.plan.calls:
                owner = next((node for node in order if node.name in call.nodes), None)
                if owner is None:
                    continue
                forms = call.candidate.forms
                best, seconds = default_candidate(call.workload, forms, placement)
                times[owner.name] = times.get(owner.name, 0) + round(seconds * PICOSECONDS)
                if value == HALF and owner.product:
                    self._halved[owner.name] = self._own_noise(call.name, best.implementation)
        return found

    def _own_noise(self, call: str, implementation: str) -> Powers:
        """What a call makes of its own in halves."""
        halves = self.halves
        if halves is None:
            return ()
        usual = halves.calls.get(call, halves.total(()))
        return halves.algorithms.get((call, implementation), usual)

    def _copied_ps(self, tensor: str) -> int:
        """Picoseconds that making singles of the codes of a tensor takes, about."""
        kind = self.networks[SINGLE].graph.types.get(tensor, TensorType((1,), "uint8"))
        workload = copying(kind)
        return round(default_candidate(workload, (PLAIN, PLAIN), self.placement)[1] * PICOSECONDS)


def _named(nodes: Causes, tensors: Causes) -> dict[str, Powers]:
    """Causes by the names of variables."""
    of_nodes = {_NODE + name: powers for name, powers in nodes.items()}
    return of_nodes | {_TENSOR + name: powers for name, powers in tensors.items()}


def _table(names: Sequence[str], costs: Sequence[int] | Sequence[Sequence[int]]) -> Table:
    return Table(variables=tuple(names), costs=np.array(costs, np.int64))
