"""Which operators of a network on codes go back to single precision, so that the noise is allowed
and the time least.

    x → Conv a → t → Conv b → y      four causes: x, t, y and the weights of a and b on codes

An operator on codes reads and writes codes, so that a tensor is in single precision only where all
around it are. Times are those of default settings as they are estimated. It is the problem of
`plan.assignment.budgeted`, noise being the second cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.core.forms import PLAIN
from tilewright.core.noise import Powers, RoundingNoise, largest_share
from tilewright.core.records import Placement
from tilewright.core.solutions import PICOSECONDS
from tilewright.graph.arrange import copying
from tilewright.graph.network import TensorType
from tilewright.kernels.spaces import default_candidate
from tilewright.models.loaded import PreparedNetwork
from tilewright.models.quantizing import CodedNode
from tilewright.plan.assignment.budgeted import Front, fastest_within
from tilewright.plan.assignment.problem import FORBIDDEN, Problem, Table, Variable

_VALUES = ("codes", "single")
_NODE, _TENSOR = "node ", "tensor "


@dataclass(slots=True, kw_only=True)
class CodeChoice:
    """The choice for one network, which is prepared in single precision and as a whole on codes.

    `noise` is that of its tensors and of its nodes' constants on codes, `allowed` what its outputs
    may have.
    """

    nodes: Sequence[CodedNode]
    single: PreparedNetwork
    codes: PreparedNetwork
    placement: Placement
    noise: RoundingNoise
    allowed: Powers
    problem: Problem = field(init=False)

    def __post_init__(self) -> None:
        names = [_NODE + node.name for node in self.nodes]
        names += [_TENSOR + name for name in self.tensors]
        self.problem = Problem(
            variables=tuple(Variable(name=name, kind="choice", values=_VALUES) for name in names),
            tables=tuple(self._tables()),
        )

    @property
    def tensors(self) -> dict[str, None]:
        """Those on codes, each once."""
        return dict.fromkeys(name for n in self.nodes for name in (*n.inputs, n.output))

    def within(self, budget: float) -> Front:
        """The fastest choice whose noise is at most this part of what is allowed."""
        noises = {
            name: np.array([largest_share(powers, self.allowed), 0.0])
            for name, powers in self._powers().items()
        }
        return fastest_within(self.problem, noises, budget)

    def kept(self, front: Front) -> list[str]:
        """The nodes that go back to single precision."""
        chosen = front.chosen.assignment
        return [n.name for n in self.nodes if chosen[_NODE + n.name] != _VALUES[0]]

    def sqnr_db(self, assignment: Mapping[str, str]) -> float:
        """The least ratio of signal to noise of an output that is predicted of a choice."""
        causes = [
            (powers, 1.0)
            for name, powers in self._powers().items()
            if assignment[name] == _VALUES[0]
        ]
        return self.noise.sqnr_db(self.noise.total(causes))

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
            found[node.name] = self.noise.total((each, 1.0) for each in causes)
        return found

    def _powers(self) -> dict[str, Powers]:
        nodes = {_NODE + name: powers for name, powers in self.noise.calls.items()}
        tensors = {_TENSOR + name: powers for name, powers in self.noise.tensors.items()}
        return {name: p for name, p in (nodes | tensors).items() if name in self.problem.numbers}

    def _tables(self) -> Iterator[Table]:
        times = self._times()
        needs = np.array([[0, FORBIDDEN], [0, 0]], np.int64)
        for node in self.nodes:
            name = _NODE + node.name
            yield _table([name], np.array(times[node.name], np.int64))
            yield _table([name, _TENSOR + node.output], needs)
            for each in dict.fromkeys(node.inputs):
                read_ps = self._copied_ps(each) if node.product else 0
                read = np.array([[0, FORBIDDEN], [read_ps, 0]], np.int64)
                yield _table([name, _TENSOR + each], read)
        for each in self.tensors:
            yield _table([_TENSOR + each], np.zeros(2, np.int64))

    def _times(self) -> dict[str, tuple[int, int]]:
        """Picoseconds of each node on codes and in single precision: those of the call that has it,
        of which the first product counts, or else the first node."""
        order = sorted(self.nodes, key=lambda node: not node.product)
        found: list[dict[str, int]] = []
        for network in (self.codes, self.single):
            times: dict[str, int] = {}
            for call in network.plan.calls:
                owner = next((node.name for node in order if node.name in call.nodes), None)
                if owner is not None:
                    forms = call.candidate.forms
                    seconds = default_candidate(call.workload, forms, self.placement)[1]
                    times[owner] = times.get(owner, 0) + round(seconds * PICOSECONDS)
            found.append(times)
        return {
            node.name: (found[0].get(node.name, 0), found[1].get(node.name, 0))
            for node in self.nodes
        }

    def _copied_ps(self, tensor: str) -> int:
        """Picoseconds that making singles of the codes of a tensor takes, about."""
        kind = self.single.graph.types.get(tensor, TensorType((1,), "uint8"))
        workload = copying(kind)
        return round(default_candidate(workload, (PLAIN, PLAIN), self.placement)[1] * PICOSECONDS)


def _table(names: Sequence[str], costs: np.typing.NDArray[np.int64]) -> Table:
    return Table(variables=tuple(names), costs=costs)
