"""What finishing takes after a search, for a budget to keep back: checks, compiling, racing."""

from __future__ import annotations

from dataclasses import dataclass

_BUILD_S = 0.16
_AGAIN_S = 0.5
_CHECK_S = 0.2
_LOAD_BYTES_PER_S = 1.3e8
_SIDE_BY_SIDE = 0.65
"""What compiling takes of its time where networks are compiled side by side."""
_START_S = 16.0
_HEAT_S = 8.0
"""What it takes to race the winner against one more network, compiling apart."""
_LOOKS_MOST = 0.15
"""Part of the budget for second looks at most."""
_MOST = 0.5
"""Where finishing takes more of the budget than this, fewer networks race."""
_GRAPH_LEAST = 3.0
"""The graph tuner pays where the budget is so many times what finishing with it takes."""


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
PLAIN = LineUp(networks=2, checked=1, looked_at=1, challengers=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finishing:
    """Estimates for a network of so many distinct tasks, compiled on `cpus`; all in seconds."""

    tasks: int
    weight_bytes: int
    budget_s: float
    cpus: int = 1

    @property
    def affords_graph(self) -> bool:
        """Whether the graph tuner pays within the budget."""
        return self.budget_s >= _GRAPH_LEAST * (self.all_s(FEW) + self.looks_s(FEW))

    def line_up(self, *, with_graph: bool) -> LineUp:
        """Who races: fewer networks where a full race takes too much of the budget."""
        if not with_graph:
            return PLAIN
        full_s = self.all_s(FULL) + self.looks_s(FULL)
        return FEW if full_s > _MOST * self.budget_s else FULL

    def all_s(self, line_up: LineUp) -> float:
        """Checks, compiling and comparing at the end."""
        checks_s = line_up.checked * _CHECK_S * self.tasks
        compile_s = line_up.networks * self._compile_s
        if min(line_up.networks, self.cpus) > 1:
            compile_s *= _SIDE_BY_SIDE
        return _START_S + compile_s + checks_s + line_up.challengers * self.heat_s

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
        return _BUILD_S * self.tasks + self.weight_bytes / _LOAD_BYTES_PER_S
