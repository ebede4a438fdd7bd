"""Tuning a network's tasks within a budget, at the operator or the subgraph level, from those
outcomes on that today's templates would still make; and transfer: what was measured on similar
tasks, as a tuner of a new task can use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from math import inf

import numpy as np

from tilewright.core.grouping import grouped
from tilewright.core.records import Candidate, KnobValue, Measurement, Outcome, Placement
from tilewright.core.results import CurvePoint, TaskSearchReport, Trial
from tilewright.core.timings import speedup_apart
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.workload import Workload
from tilewright.kernels.estimates import task_floor_s
from tilewright.kernels.halves import half_types
from tilewright.kernels.search_space import SearchSpace
from tilewright.kernels.spaces import search_space
from tilewright.measure.circumstances import is_usual
from tilewright.search.context import SearchContext
from tilewright.search.levels import anchor_group, bare_tasks
from tilewright.search.loop import TaskState, TuningLoop
from tilewright.search.tuners import base, registry
from tilewright.store.base import Store
from tilewright.store.known_candidates import known_outcomes, own, ranked

Hashes = Callable[[Sequence[tuple[Workload, Candidate]]], Sequence[str | None]]


def without_outdated(
    known: Mapping[TaskKey, list[Outcome]],
    workloads: Mapping[TaskKey, Workload],
    current_hashes: Hashes,
) -> tuple[dict[TaskKey, list[Outcome]], int]:
    """Outcomes that today's templates would make, and how many groups have none of them left.

    A group is what one implementation gave for one task. Templates change at some time, so the
    first measurement whose kernel still has the same hash is found by bisection, all groups side by
    side; usually that is the oldest one, and one kernel per group is lowered. What another program
    measured is never among them: its kernel was not ours.
    """
    kept = {key: own(outcomes) for key, outcomes in known.items()}
    groups = grouped(
        [
            ((key, outcome.candidate.implementation), outcome)
            for key, outcomes in kept.items()
            for outcome in sorted(outcomes, key=lambda outcome: outcome.created_at)
            if isinstance(outcome, Measurement)
        ]
    )
    low, probes = dict.fromkeys(groups, 0), dict.fromkeys(groups, 0)
    high = {group: len(found) for group, found in groups.items()}
    while probes:
        asked = {group: groups[group][index] for group, index in probes.items()}
        hashes = current_hashes([(workloads[g[0]], m.candidate) for g, m in asked.items()])
        for (group, measurement), now in zip(asked.items(), hashes, strict=True):
            if now == measurement.kernel_hash:
                high[group] = probes[group]
            else:
                low[group] = probes[group] + 1
        probes = {g: (low[g] + high[g]) // 2 for g in groups if low[g] < high[g]}
    for (key, name), first in low.items():
        since = next((m.created_at for m in groups[key, name][first:]), inf)
        if first:
            kept[key] = [
                o for o in kept[key] if o.candidate.implementation != name or o.created_at >= since
            ]
    return kept, sum(first == len(groups[group]) for group, first in low.items())


_LONGEST = 120

Known = dict[TaskKey, list[Outcome]]
"""What is believed of tasks."""


class NetworkTuner:
    """Tunes the tasks of one network against a store.

    `fused` are the network's tasks; `tasks` what is searched: the same at the subgraph level, their
    bare anchors at the operator level. `known` holds what is believed of each, by key; where
    nothing is recalled it starts empty. What is `given` is believed as it is. `outdated` counts the
    tasks whose times are those of older templates.
    """

    def __init__(
        self, fused: Mapping[TaskKey, Task], context: SearchContext, given: Known | None = None
    ) -> None:
        self.fused = fused
        self.tasks = fused if context.level == "subgraph" else bare_tasks(fused)
        self.curve: tuple[CurvePoint, ...] = ()
        self.states: dict[TaskKey, TaskState] = {}
        self.settled = frozenset[str]()
        self.outdated = 0
        self._context = context
        self._neighbours = (
            neighbours_in_store(self.tasks, context.store, context.placement)
            if context.recall
            else {}
        )
        self.known = self._current_knowledge(given or {})

    def _current_knowledge(self, given: Known) -> Known:
        """What was given; else what the store knows, less what older templates made."""
        context, every = self._context, {**self.fused, **self.tasks}
        if not context.recall:
            return {key: list(given.get(key, [])) for key in every}
        new = {key: task for key, task in every.items() if key not in given}
        known, self.outdated = without_outdated(
            {
                key: known_outcomes(task, context.store, context.placement)
                for key, task in new.items()
            },
            {key: task.workload for key, task in new.items()},
            context.measurer.current_hashes,
        )
        if self.outdated:
            context.note(
                f"{self.outdated} tasks have kernels that are generated differently now; old times "
                "are not used"
            )
        self._tell_of_other_spaces(known)
        known |= {key: list(given[key]) for key in every if key in given}
        return {key: context.exact_enough(every[key], found) for key, found in known.items()}

    def _tell_of_other_spaces(self, known: Known) -> None:
        """Say how many records were made in spaces that have changed since: no tuner reads them."""
        strange, context = 0, self._context
        for key in known.keys() & self.tasks.keys():
            space = context.space(self.tasks[key])
            names = {part.name for part in space.parts}
            strange += sum(
                o.candidate.implementation in names
                and o.candidate.forms == self.tasks[key].forms
                and space.number(o.candidate) is None
                for o in own(context.store.outcomes(key[0], context.placement.key))
            )
        if strange:
            self._context.note(
                f"{strange} records have settings that are no longer searched; tuners skip them"
            )

    @property
    def untried_libraries(self) -> bool:
        """Whether a library that is allowed was never measured on a task that it takes."""
        tried = {key: {o.candidate for o in outcomes} for key, outcomes in self.known.items()}
        return any(
            not tried[key].issuperset(self._context.libraries(task))
            for key, task in self.tasks.items()
        )

    def run(self) -> bool:
        """Spend the budget; outcomes go to the store as they come. True when all converged."""
        with ExitStack() as open_tuners:
            for key, task in self.tasks.items():
                self.states[key] = self._state(task)
                open_tuners.callback(self.states[key].tuner.close)
            loop = TuningLoop(self.states.values(), self._context)
            loop.run()
            self.curve, self.settled = tuple(loop.curve), loop.settled()
            for state in self.states.values():
                if state.tuner.problem:
                    self._context.note(f"{state.task.name}: {state.tuner.problem}")
        self.known |= {key: state.outcomes for key, state in self.states.items()}
        return loop.converged

    def _state(self, task: Task) -> TaskState:
        """A task with its tuner, which tries the best guess of every implementation first: what
        the estimates put second is measured too."""
        context, space = self._context, self._context.space(task)
        estimates = {
            candidate: seconds
            for candidate, seconds in context.defaults(task).items()
            if space.number(candidate) is not None
        }
        default = next(iter(estimates))
        tuner = base.LateTuner(lambda: self._tuner(task, space, [*estimates]))
        tuner.tell(self.known[task.key])
        return TaskState(
            task=task,
            tuner=tuner,
            space=space,
            default=default,
            floor_s=task_floor_s(
                task.workload,
                context.placement.target,
                context.placement.resources,
                context.peaks,
                context.max_error,
            ),
            estimate_s=estimates[default],
            group=anchor_group(task) if context.level == "subgraph" else "",
            libraries=tuple(context.libraries(task)),
            outcomes=list(self.known[task.key]),
        )

    def _tuner(self, task: Task, space: SearchSpace, defaults: Sequence[Candidate]) -> base.Tuner:
        """A tuner that starts from what is known by now, of similar tasks and on other devices."""
        context = self._context
        latest = {key: outcomes for key, (_, outcomes) in self._neighbours.items()}
        latest |= {key: state.outcomes for key, state in self.states.items()}
        similar = [*self.tasks.values(), *(other for other, _ in self._neighbours.values())]
        guesses = [*defaults, *context.guess(task.workload, task.forms)]
        if context.recall:
            guesses += best_elsewhere(task, context.store, context.placement)
        return registry.tuner_factory(context.tuner)(
            base.TuningTask(
                space=space,
                seed=context.seed,
                workload=task.workload,
                forms=task.forms,
                placement=context.placement,
                featurizer=lambda kind, asked: context.measurer.features(
                    task.workload, asked, kind
                ),
                prior_trials=prior_trials(task, space, latest, similar, context.placement),
                guesses=tuple(guesses),
            )
        )

    def searches(self) -> tuple[TaskSearchReport, ...]:
        """What this run's search did for each task, in order of first use."""
        return tuple(
            _search_report(key, state, converged=state.task.name in self.settled)
            for key, state in self.states.items()
        )


def _search_report(key: TaskKey, state: TaskState, *, converged: bool) -> TaskSearchReport:
    default, best = state.default_measured, state.best
    gain = (
        speedup_apart(ours=best.samples_s, theirs=default.samples_s) if default and best else None
    )
    measurements, failures = state.tried
    return TaskSearchReport(
        task=state.task.name,
        key=key[0],
        first_s=default.latency_s if default else None,
        best_s=best.latency_s if best else None,
        gain=gain.value if gain else None,
        gain_low=gain.low if gain else None,
        gain_high=gain.high if gain else None,
        measurements=measurements,
        failures=failures,
        converged=converged,
        trials=tuple(
            Trial(
                number=number,
                elapsed_s=elapsed_s,
                latency_s=outcome.latency_s if isinstance(outcome, Measurement) else None,
                implementation=outcome.candidate.implementation,
                settings={name: _brief(value) for name, value in outcome.candidate.settings},
            )
            for number, (elapsed_s, outcome) in enumerate(state.trials, start=1)
        ),
    )


def _brief(value: KnobValue) -> KnobValue:
    """A long text, a schedule's trace say, cut: the database has it whole."""
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value


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
) -> tuple[base.PriorTrials, ...]:
    """What was measured on the neighbours of a task: same anchor and element type, most similar
    amount of work first."""
    others = sorted(
        (
            other
            for other in tasks
            if other.key != task.key and _kind(other.workload) == _kind(task.workload)
        ),
        key=lambda other: (_doublings(task.workload, other.workload), other.key),
    )
    measured = ((other, ranked(list(known.get(other.key, ())))) for other in others)
    found = (_in_features(space, *each, placement) for each in measured)
    return tuple(islice((trials for trials in found if trials is not None), _TASKS))


def best_elsewhere(task: Task, store: Store, placement: Placement) -> tuple[Candidate, ...]:
    """The settings that were fastest for this very task elsewhere, on other devices or with other
    resources, in this task's layouts: worth a try here, their times are worth nothing."""
    elsewhere = grouped(
        [
            (str(one.placement_key), one)
            for one in store.stored_measurements(workload_key=task.workload.key)
            if one.placement_key != placement.key
            and is_usual(one.device_class)
            and one.candidate.forms == task.forms
        ]
    )
    best = (m.candidate for found in elsewhere.values() for m in ranked(found)[:_GUESSES])
    return tuple(dict.fromkeys(best))[: 2 * _GUESSES]


def neighbours_in_store(
    tasks: Mapping[TaskKey, Task], store: Store, placement: Placement
) -> dict[TaskKey, tuple[Task, list[Outcome]]]:
    """Measured tasks of other networks with the same anchors and element types, those with similar
    work first.

    Their times serve as hints only, so they are not checked against today's templates.
    """
    own = {task.workload.key for task in tasks.values()}
    allowed = {None, *(half_types(placement) or (placement.precision,))}
    kinds = grouped(
        [(_kind(task.workload), task.workload) for task in tasks.values() if task.workload.anchor]
    )
    others = grouped([(_kind(w), w) for w in store.workloads() if w.key not in own])
    near = [
        sorted(others.get(kind, ()), key=lambda w: (min(_doublings(m, w) for m in mine), w.key))
        for kind, mine in kinds.items()
    ]
    measured = grouped(
        [
            ((workload, outcome.candidate.forms), outcome)
            for similar in near
            for workload in similar[:_STORED]
            for outcome in store.outcomes(workload.key, placement.key)
            if all(form.dtype in allowed for form in outcome.candidate.forms)
        ]
    )
    return {
        (w.key, forms): (
            Task(key=(w.key, forms), name=w.key, workload=w, forms=forms, count=1, nodes=()),
            outcomes,
        )
        for (w, forms), outcomes in measured.items()
    }


def _kind(workload: Workload) -> tuple[str, str]:
    """What tasks that say something of each other have in common: anchor and element type."""
    return workload.anchor_name, workload.element_type


def _doublings(one: Workload, other: Workload) -> float:
    """How many doublings of work lie between two workloads."""
    return abs(float(np.log2(max(1, other.flop) / max(1, one.flop))))


def _in_features(
    space: SearchSpace, other: Task, measured: Sequence[Measurement], placement: Placement
) -> base.PriorTrials | None:
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
    return base.PriorTrials(
        features=np.stack([row for row, _, _ in rows]),
        relative=times / times.min(),
        estimated=None if estimates is None else estimates / estimates.min(),
    )
