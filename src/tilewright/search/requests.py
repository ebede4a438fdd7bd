"""What `optimize` and `tune` are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from tilewright.core.budget import Limit
from tilewright.core.errors import UsageError
from tilewright.models import ModelOptions
from tilewright.search.levels import GraphLevel, Level, Scope
from tilewright.search.tuners.registry import DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeRequest:
    """What was asked for. `folder` is where the artifact goes; `command` is the verb.
    `origin` says in words what `model` was made from, where Python handed over an object.

    `max_error` is the allowed error of each output relative to its largest value; implementations
    with a larger error bound are not used.
    """

    model: str
    options: ModelOptions
    budget: Limit
    folder: Path
    max_error: float
    seed: int
    origin: str = ""
    tuner: str = DEFAULT
    level: Scope = "subgraph"
    command: str = "optimize"

    @property
    def graph(self) -> GraphLevel | None:
        """How the graph tuner is asked to work, None without it."""
        return self.level if isinstance(self.level, GraphLevel) else None

    @property
    def only_predicted(self) -> bool:
        """Whether the graph tuner is to choose from records and facts, with nothing built."""
        return self.command == "tune" and self.graph is not None and self.budget.nothing

    @property
    def searched_level(self) -> Level:
        """What single tasks are tuned at; the graph tuner works on fused subgraphs."""
        return "op" if self.level == "op" else "subgraph"


def checked_error(max_error: float) -> float:
    """An allowed relative error; raises UsageError unless it is finite and above 0."""
    if not (isfinite(max_error) and max_error > 0):
        raise UsageError(f"max_error must be a number above 0, not {max_error}.")
    return max_error
