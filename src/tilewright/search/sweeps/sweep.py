"""Exhaustive sweeps, every setting of a declared space with its time; and tuners compared on them
by their regret against the number of measurements.

A sweep stands in for the hardware, so that tuners are compared in seconds (after Kernel Tuner's
simulation mode). Both what a tuner is shown and what its choice is worth are the second look's time
where there was one: noise among the best is for second looks to settle, not for the comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import (
    Candidate,
    Failure,
    KnobValue,
    Measurement,
    Outcome,
    Placement,
    Protocol,
)
from tilewright.core.results import TunerStudyRow
from tilewright.core.targets import threads_alone
from tilewright.graph.workload import Workload
from tilewright.kernels.knobs import Knob
from tilewright.kernels.search_space import Estimate, Floats, KnobSpace, Part, SearchSpace, each
from tilewright.search.tuners.base import TunerFactory, TuningTask

BATCH = 8
SHARES = (0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """All settings of one space with their times.

    `seconds` maps numbers of the space to the first look's time, None where the setting failed;
    `again` holds the second look of the best ones. `origin` says where the data are from.
    """

    name: str
    part: Part
    seconds: Mapping[int, float | None]
    again: Mapping[int, float] = field(default_factory=dict[int, float])
    origin: str = ""
    workload: Workload | None = None
    placement: Placement | None = None

    @cached_property
    def space(self) -> SearchSpace:
        """What a tuner searches: the settings that were swept."""
        return SearchSpace([self.part])

    @property
    def size(self) -> int:
        """How many settings were swept, failures included."""
        return len(self.seconds)

    def worth_s(self, number: int) -> float:
        """What a setting's time is believed to be; infinite for failures."""
        first = self.seconds[number]
        return self.again.get(number, np.inf if first is None else first)

    @cached_property
    def best_s(self) -> float:
        """The least believed time."""
        return min(self.worth_s(number) for number in self.seconds)

    def task(self, seed: int) -> TuningTask:
        """What a tuner is made from to search this sweep."""
        return TuningTask(space=self.space, seed=seed)

    def outcome(self, candidate: Candidate) -> Outcome:
        """What measuring this candidate gave in the sweep."""
        number = self.space.number(candidate)
        if number is None or self.seconds.get(number) is None:
            return Failure(
                workload_key=self.name,
                candidate=candidate,
                device_class=self.name,
                resources=threads_alone(1),
                kind="build",
                message="failed in the sweep" if number in self.seconds else "not in the sweep",
            )
        return Measurement(
            workload_key=self.name,
            candidate=candidate,
            device_class=self.name,
            resources=threads_alone(1),
            protocol=Protocol(),
            kernel_hash="",
            samples_s=(self.worth_s(number),),
            build_s=0.0,
        )


def listed_part(
    name: str,
    knobs: Sequence[Knob],
    rows: Sequence[tuple[Mapping[str, KnobValue], float | None]],
) -> tuple[Part, dict[int, float | None]]:
    """A part that holds exactly the settings of some rows, and their times by number."""
    whole = KnobSpace(knobs=tuple(knobs))
    seconds: dict[int, float | None] = {}
    for settings, value in rows:
        number = whole.number(settings)
        if number is None:
            raise ValueError(f"{settings} does not fit the knobs")
        if number in seconds:
            raise ValueError(f"it has the settings {dict(settings)} twice")
        seconds[number] = value
    return swept_part(name, (), tuple(knobs), usable_times(seconds), None), seconds


def swept_part(
    name: str,
    forms: tuple[Form, ...],
    knobs: tuple[Knob, ...],
    seconds: Mapping[int, float | None],
    estimate_s: Estimate | None,
) -> Part:
    """A part that holds the settings with these numbers."""
    whole = KnobSpace(knobs=knobs)

    swept = each(lambda settings: whole.number(settings) in seconds)
    space = KnobSpace(knobs=knobs, accepts=swept)
    return Part(name=name, forms=forms, knobs=space, estimate_s=estimate_s)


def usable_times(seconds: dict[int, float | None]) -> dict[int, float | None]:
    """The times themselves; raises ValueError where none can be the best, or one is no time."""
    times = [value for value in seconds.values() if value is not None]
    if not times:
        raise ValueError("no setting has a time")
    if not all(0 < value < np.inf for value in times):
        raise ValueError("it has times that are not positive and finite")
    return seconds


def regret_curve(factory: TunerFactory, sweep: Sweep, *, seed: int, measurements: int) -> Floats:
    """Regret after 1, 2, … measurements of one tuner with one seed.

    The choice after each is the setting that looked fastest so far; before any has a time, regret
    is infinite. A tuner that stops early keeps its choice.
    """
    tuner = factory(sweep.task(seed))
    regrets: list[float] = []
    least_s = np.inf
    while len(regrets) < measurements:
        candidates = tuner.ask(min(BATCH, measurements - len(regrets)))
        if not candidates:
            break
        outcomes = [sweep.outcome(candidate) for candidate in candidates]
        for outcome in outcomes:
            if isinstance(outcome, Measurement):
                least_s = min(least_s, outcome.latency_s)
            regrets.append(least_s / sweep.best_s - 1.0)
        tuner.tell(outcomes)
    last = regrets[-1] if regrets else np.inf
    return np.array([*regrets, *([last] * (measurements - len(regrets)))])


def compare_tuners(
    named: Sequence[tuple[str, TunerFactory]],
    sweeps: Sequence[Sweep],
    *,
    seeds: int,
    shares: Sequence[float] = SHARES,
) -> list[TunerStudyRow]:
    """Regret of every tuner on every sweep at each share, over `seeds` seeds."""
    rows: list[TunerStudyRow] = []
    for sweep in sweeps:
        points = [max(1, ceil(share * sweep.size)) for share in shares]
        for name, factory in named:
            curves = [
                regret_curve(factory, sweep, seed=seed, measurements=max(points))
                for seed in range(seeds)
            ]
            for share, point in zip(shares, points, strict=True):
                reached = [curve[point - 1] for curve in curves]
                rows.append(
                    TunerStudyRow(
                        tuner=name,
                        sweep=sweep.name,
                        measured_share=share,
                        regret_median=float(np.median(reached)),
                        regret_p90=float(np.percentile(reached, 90)),
                    )
                )
    return rows
