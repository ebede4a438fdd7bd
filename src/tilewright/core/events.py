"""Progress as events: below `cli` nothing prints; whoever wants to see progress passes a sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A new phase of a run began, e.g. `import`, `tune`, `compile`."""

    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningProgress:
    """One batch of candidates was measured.

    `network_s` is the sum over all tasks of the best known time, each times its count; None until
    every task has one. `gain` is the time of the task's default settings over its best;
    `task_measurements` and `task_failures` are this task's part of the run; `converged` says that
    no more is expected of it.

    `spent` is the part of the budget that is used, from 0 to 1, `limit_s` the whole of one in
    seconds, `remaining` the candidates that are left of one in measurements.
    """

    task: str
    measurements: int
    failures: int
    best_s: float | None
    network_s: float | None
    remaining_s: float | None
    gain: float | None = None
    task_measurements: int = 0
    task_failures: int = 0
    converged: bool = False
    spent: float | None = None
    limit_s: float | None = None
    remaining: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A warning that is shown and kept in the report, e.g. about noise."""

    message: str


Event = Stage | TuningProgress | Note
EventSink = Callable[[Event], None]


def discard(_event: Event) -> None:
    """The sink that ignores everything."""
