"""Transfer: what was measured on similar tasks, as a tuner of a new task can use it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np

from tilewright.core.records import Candidate, Measurement, Outcome, Placement
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.workload import Workload
from tilewright.kernels.search_space import SearchSpace
from tilewright.kernels.spaces import search_space
from tilewright.measure.circumstances import is_usual
from tilewright.search.tuners.base import PriorTrials
from tilewright.store import base, known_candidates

_TASKS = 6
_LEAST = 8
_STORED = 12
_ROWS = 24
_GUESSES = 2


def prior_trials(
    task: Task,
    space: SearchSpace,
    known: Mapping[TaskKey, Sequence[Outcome]],
    tasks: Iterable[Task],
    placement: Placement,
) -> tuple[PriorTrials, ...]:
    """What was measured on the neighbours of a task: same anchor and element type, most similar
    amount of work first."""
    others = [
        other
        for other in tasks
        if other.key != task.key and _kind(other.workload) == _kind(task.workload)
    ]
    others.sort(key=lambda other: (_doublings(task.workload, other.workload), other.key))
    measured = (
        (other, known_candidates.ranked(list(known.get(other.key, ())))) for other in others
    )
    found = (_in_features(space, *each, placement) for each in measured)
    return tuple(islice((trials for trials in found if trials is not None), _TASKS))


def best_elsewhere(task: Task, store: base.Store, placement: Placement) -> tuple[Candidate, ...]:
    """The settings that were fastest for this very task elsewhere, on other devices or with other
    resources, in this task's layouts: worth a try here, their times are worth nothing."""
    elsewhere: dict[str, list[Outcome]] = defaultdict(list)
    for measurement in store.stored_measurements(workload_key=task.workload.key):
        where = measurement.placement_key
        usual = where != placement.key and is_usual(where.device_class)
        if usual and measurement.candidate.forms == task.forms:
            elsewhere[str(where)].append(measurement)
    best = (
        m.candidate
        for found in elsewhere.values()
        for m in known_candidates.ranked(found)[:_GUESSES]
    )
    return tuple(dict.fromkeys(best))[: 2 * _GUESSES]


def neighbours_in_store(
    tasks: Mapping[TaskKey, Task], store: base.Store, placement: Placement
) -> dict[TaskKey, tuple[Task, list[Outcome]]]:
    """Measured tasks of other networks with the same anchors and element types, those with similar
    work first.

    Their times serve as hints only, so they are not checked against today's templates.
    """
    own = {task.workload.key for task in tasks.values()}
    kinds: dict[tuple[str, str], list[Workload]] = defaultdict(list)
    for task in tasks.values():
        if task.workload.anchor:
            kinds[_kind(task.workload)].append(task.workload)
    found: dict[TaskKey, tuple[Task, list[Outcome]]] = {}
    for kind, mine in kinds.items():
        others = [w for w in store.workloads() if _kind(w) == kind and w.key not in own]
        others.sort(key=lambda w: (min(_doublings(one, w) for one in mine), w.key))
        for workload in others[:_STORED]:
            for outcome in store.outcomes(workload.key, placement.key):
                key = (workload.key, outcome.candidate.forms)
                task = Task(
                    key=key, name=key[0], workload=workload, forms=key[1], count=1, nodes=()
                )
                found.setdefault(key, (task, []))[1].append(outcome)
    return found


def _kind(workload: Workload) -> tuple[str, str]:
    """What tasks that say something of each other have in common: anchor and element type."""
    return workload.anchor_name, workload.element_type


def _doublings(one: Workload, other: Workload) -> float:
    """How many doublings of work lie between two workloads."""
    return abs(float(np.log2(max(1, other.flop) / max(1, one.flop))))


def _in_features(
    space: SearchSpace, other: Task, measured: Sequence[Measurement], placement: Placement
) -> PriorTrials | None:
    """Measurements of another task in the features of this one's space, where they have a place;
    None where these are too few."""
    own = search_space(other.workload, other.forms, placement)
    read = [
        (space.encode(m.candidate), own.number(m.candidate), m.latency_s)
        for m in measured[:: max(1, -(-len(measured) // _ROWS))]
    ]
    rows = [(row, n, seconds) for row, n, seconds in read if row is not None and n is not None]
    if len(rows) < _LEAST:
        return None
    estimates = own.estimates_s([number for _, number, _ in rows])
    times = np.array([seconds for _, _, seconds in rows])
    return PriorTrials(
        features=np.stack([row for row, _, _ in rows]),
        relative=times / times.min(),
        estimated=None if estimates is None else estimates / estimates.min(),
    )
