"""Tuning a network's tasks within a budget, at the operator or the subgraph level, from those
outcomes on that today's templates would still make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from math import inf

from tilewright.core.records import Candidate, KnobValue, Measurement, Outcome
from tilewright.core.results import CurvePoint, TaskSearchReport, Trial
from tilewright.core.timings import speedup_apart
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.workload import Workload
from tilewright.kernels.estimates import task_floor_s
from tilewright.kernels.search_space import SearchSpace
from tilewright.search.context import SearchContext
from tilewright.search.levels import anchor_group, bare_tasks
from tilewright.search.loop import TaskState, TuningLoop
from tilewright.search.transfer import best_elsewhere, neighbours_in_store, prior_trials
from tilewright.search.tuners import base, registry
from tilewright.store.known_candidates import known_outcomes, own

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
    groups: dict[tuple[TaskKey, str], list[Measurement]] = defaultdict(list)
    for key, outcomes in kept.items():
        for outcome in sorted(outcomes, key=lambda outcome: outcome.created_at):
            if isinstance(outcome, Measurement):
                groups[key, outcome.candidate.implementation].append(outcome)
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
            context.note(f"{self.outdated} tasks have new templates; old times are not used")
        self._tell_of_other_spaces(known)
        known |= {key: list(given[key]) for key in every if key in given}
        return {key: context.exact_enough(every[key], found) for key, found in known.items()}

    def _tell_of_other_spaces(self, known: Known) -> None:
        """Say how many records were made in spaces that have changed since: no tuner reads them."""
        strange = 0
        for key in known.keys() & self.tasks.keys():
            space = self._context.space(self.tasks[key])
            names = {part.name for part in space.parts}
            strange += sum(
                o.candidate.implementation in names and space.number(o.candidate) is None
                for o in known[key]
            )
        if strange:
            self._context.note(
                f"{strange} records are of settings that today's spaces lack; tuners skip them"
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
            ),
            estimate_s=estimates[default],
            group=anchor_group(task) if context.level == "subgraph" else "",
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
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]}…"
    return value
