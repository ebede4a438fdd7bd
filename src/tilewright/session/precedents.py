"""Transfer: what was measured on similar tasks, as a tuner of a new task can use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tilewright.core.records import Device, Measurement, Outcome
from tilewright.kernels.blueprint import TaskKey
from tilewright.session.choices import ranked
from tilewright.session.preparation import Task
from tilewright.tune.base import Precedent
from tilewright.tune.search import Floats, SearchSpace
from tilewright.tune.space import search_space

_TASKS = 6
_LEAST = 8


def precedents(
    task: Task,
    space: SearchSpace,
    known: Mapping[TaskKey, Sequence[Outcome]],
    tasks: Iterable[Task],
    device: Device,
) -> tuple[Precedent, ...]:
    """The measured neighbours of a task: same anchor, most similar amount of work first."""
    others = [
        other
        for other in tasks
        if other.key != task.key and other.workload.anchor_name == task.workload.anchor_name
    ]
    others.sort(key=lambda other: (_apart(task, other), other.key))
    found: list[Precedent] = []
    for other in others:
        measured = ranked(list(known.get(other.key, ())))
        if len(measured) >= _LEAST and len(found) < _TASKS:
            precedent = _precedent(space, other, measured, device)
            found += [precedent] if precedent is not None else []
    return tuple(found)


def _apart(task: Task, other: Task) -> float:
    """How many doublings of work lie between two tasks."""
    return abs(float(np.log2(max(1, other.workload.flop) / max(1, task.workload.flop))))


def _precedent(
    space: SearchSpace, other: Task, measured: Sequence[Measurement], device: Device
) -> Precedent | None:
    """Candidates of another task in the features of this one's space, where they have a place."""
    own = search_space(other.workload, other.layouts, device)
    rows: list[Floats] = []
    numbers: list[int] = []
    seconds: list[float] = []
    for measurement in measured:
        row, number = space.encode(measurement.candidate), own.number(measurement.candidate)
        if row is not None and number is not None:
            rows.append(row)
            numbers.append(number)
            seconds.append(measurement.latency_s)
    if len(rows) < _LEAST:
        return None
    estimates = own.estimates_s(numbers)
    return Precedent(
        features=np.stack(rows),
        relative=np.array(seconds) / min(seconds),
        estimated=None if estimates is None else estimates / estimates.min(),
    )
