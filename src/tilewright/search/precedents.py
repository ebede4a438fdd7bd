"""Transfer: what was measured on similar tasks, as a tuner of a new task can use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Measurement, Outcome, Placement
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.workload import Workload
from tilewright.kernels.search_space import Floats, SearchSpace
from tilewright.kernels.spaces import search_space
from tilewright.measure.circumstances import is_usual
from tilewright.search.tuners.base import Precedent
from tilewright.store.base import Store
from tilewright.store.known_candidates import ranked

_TASKS = 6
_LEAST = 8
_STORED = 12
_ROWS = 24
_GUESSES = 2


def precedents(
    task: Task,
    space: SearchSpace,
    known: Mapping[TaskKey, Sequence[Outcome]],
    tasks: Iterable[Task],
    placement: Placement,
) -> tuple[Precedent, ...]:
    """The measured neighbours of a task: same anchor and element type, most similar amount of work
    first."""
    others = [
        other
        for other in tasks
        if other.key != task.key and _kind(other.workload) == _kind(task.workload)
    ]
    others.sort(key=lambda other: (_doublings(task.workload, other.workload), other.key))
    found: list[Precedent] = []
    for other in others:
        measured = ranked(list(known.get(other.key, ())))
        if len(measured) >= _LEAST and len(found) < _TASKS:
            precedent = _precedent(space, other, measured, placement)
            found += [precedent] if precedent is not None else []
    return tuple(found)


def best_elsewhere(task: Task, store: Store, placement: Placement) -> tuple[Candidate, ...]:
    """The settings that were fastest for this very task elsewhere, on other devices or with other
    resources, in this task's layouts: worth a try here, their times are worth nothing."""
    found: list[Candidate] = []
    elsewhere = store.stored_measurements(workload_key=task.workload.key)
    others = (m.placement_key for m in elsewhere if m.placement_key != placement.key)
    classes = dict.fromkeys(name for name in others if is_usual(name.device_class))
    for name in classes:
        of_class = [
            m for m in elsewhere if m.placement_key == name and m.candidate.forms == task.forms
        ]
        found += [m.candidate for m in ranked(list(of_class))[:_GUESSES]]
    return tuple(dict.fromkeys(found))[: 2 * _GUESSES]


def neighbours_in_store(
    tasks: Mapping[TaskKey, Task], store: Store, placement: Placement
) -> dict[TaskKey, tuple[Task, list[Outcome]]]:
    """Measured tasks of other networks with the same anchors and element types, those with similar
    work first.

    Their times serve as hints only, so they are not checked against today's templates.
    """
    kinds = dict.fromkeys(_kind(task.workload) for task in tasks.values() if task.workload.anchor)
    own = {task.workload.key for task in tasks.values()}
    found: dict[TaskKey, tuple[Task, list[Outcome]]] = {}
    for kind in kinds:
        mine = [task for task in tasks.values() if _kind(task.workload) == kind]
        others = [w for w in store.workloads() if _kind(w) == kind and w.key not in own]
        others.sort(key=lambda w: (min(_doublings(task.workload, w) for task in mine), w.key))
        for workload in others[:_STORED]:
            grouped: dict[tuple[Form, ...], list[Outcome]] = {}
            for outcome in store.outcomes(workload.key, placement.key):
                grouped.setdefault(outcome.candidate.forms, []).append(outcome)
            for forms, outcomes in grouped.items():
                key = (workload.key, forms)
                task = Task(key=key, name=key[0], workload=workload, forms=forms, count=1, nodes=())
                found[key] = (task, outcomes)
    return found


def _kind(workload: Workload) -> tuple[str, str]:
    """What tasks that say something of each other have in common: anchor and element type."""
    return workload.anchor_name, workload.element_type


def _doublings(one: Workload, other: Workload) -> float:
    """How many doublings of work lie between two workloads."""
    return abs(float(np.log2(max(1, other.flop) / max(1, one.flop))))


def _precedent(
    space: SearchSpace, other: Task, measured: Sequence[Measurement], placement: Placement
) -> Precedent | None:
    """Candidates of another task in the features of this one's space, where they have a place."""
    own = search_space(other.workload, other.forms, placement)
    rows: list[Floats] = []
    numbers: list[int] = []
    seconds: list[float] = []
    for measurement in measured[:: -(-len(measured) // _ROWS)]:
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
