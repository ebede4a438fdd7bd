"""What a budget keeps back for the end of a run: checking winners, compiling plans, racing them.

Building a kernel takes from 0.05 s (a copy) to 0.3 s (an unrolled convolution), so that a network's
kernels decide. A search begins with a careful guess and corrects it by the kernels it builds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.measure.base import TimeSpent
from tilewright.measure.network_timing import ROUNDS

_BUILD_S = 0.16
"""Building a kernel, where none was built yet."""
_AGAIN_S = 0.5
_CHECK_S = 0.03
"""Checking a kernel that is built: random data, its result, numpy's."""
_LOAD_BYTES_PER_S = 1.3e8
_SIDE_BY_SIDE = 0.65
"""What compiling and checking take of their time side by side, where nothing was built yet."""
_UNEVEN = 1.3
"""They keep workers less busy than the kernels of a search do."""
_START_S = 4.0
"""Starting ONNX Runtime, writing the report."""
_RACE_PART = 0.0035
_LONGEST_ROUND_S, _SHORTEST_ROUND_S = 0.6, 0.2
_HEAT_S = 12.0
"""What it takes to race the winner against one more network and the default settings, compiling
apart."""
_LOOKS_MOST = 0.08
"""Part of the budget for second looks at most."""
_MOST = 0.5
"""Where the end takes more of the budget than this, fewer networks race."""
_GRAPH_LEAST = 3.0
"""The graph tuner pays where the budget is so many times what the end of a run with it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineUp:
    """How many networks race, how many times all tasks are checked and looked at again, and how
    many networks challenge the winner afterwards."""

    networks: int
    checked: int
    looked_at: int
    challengers: int


FULL = LineUp(networks=5, checked=3, looked_at=2, challengers=1)
FEW = LineUp(networks=3, checked=2, looked_at=2, challengers=1)
TYPES = LineUp(networks=4, checked=3, looked_at=2, challengers=1)
"""Where types are chosen: beside the chosen network that in one half type races, and no rivals."""
PLAIN = LineUp(networks=2, checked=1, looked_at=1, challengers=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What to keep back, in seconds, for a network of so many distinct tasks that is compiled on
    `cpus`. `build_s` is what building one of its kernels takes, `side_by_side` which part of that
    passes for each of many.
    """

    tasks: int
    weight_bytes: int
    budget_s: float
    cpus: int = 1
    build_s: float = _BUILD_S
    side_by_side: float = _SIDE_BY_SIDE

    def corrected(self, spent: TimeSpent) -> Reserve:
        """With what a search's kernels took to build, of which there are some; a builder may say
        that they took nothing."""
        part = self.side_by_side
        if spent.kernels_s > 0:
            part = min(1.0, _UNEVEN * spent.build_s / spent.kernels_s)
        return replace(self, build_s=spent.kernels_s / spent.kernels, side_by_side=part)

    @property
    def affords_graph(self) -> bool:
        """Whether the graph tuner pays within the budget."""
        return self.budget_s >= _GRAPH_LEAST * (self.all_s(FEW) + self.looks_s(FEW))

    def line_up(self, *, with_graph: bool, mixed: bool = False) -> LineUp:
        """Who races: fewer networks where a full race takes too much of the budget."""
        if not with_graph:
            return PLAIN
        if mixed:
            return TYPES
        return FEW if self.all_s(FULL) + self.looks_s(FULL) > _MOST * self.budget_s else FULL

    def all_s(self, line_up: LineUp) -> float:
        """Checks, compiling and comparing at the end."""
        check_s = self.build_s + _CHECK_S
        if self.cpus > 1:
            check_s *= self.side_by_side
        compile_s = line_up.networks * self._compile_s
        if min(line_up.networks, self.cpus) > 1:
            compile_s *= self.side_by_side
        race_s = (line_up.networks + 1) * ROUNDS * self.round_s
        checked_s = line_up.checked * check_s * self.tasks
        return _START_S + race_s + compile_s + checked_s + line_up.challengers * self.heat_s

    @property
    def round_s(self) -> float:
        """What each network, and the reference, runs in each round of a race."""
        return max(_SHORTEST_ROUND_S, min(_LONGEST_ROUND_S, _RACE_PART * self.budget_s))

    def looks_s(self, line_up: LineUp) -> float:
        """Second looks at finalists."""
        return min(line_up.looked_at * _AGAIN_S * self.tasks, _LOOKS_MOST * self.budget_s)

    @property
    def heat_s(self) -> float:
        """One more network against the winner of the race."""
        return _HEAT_S + self._compile_s

    @property
    def _compile_s(self) -> float:
        """Compiling and loading one network."""
        return self.build_s * self.tasks + self.weight_bytes / _LOAD_BYTES_PER_S
