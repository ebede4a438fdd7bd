"""Times of kernels on any number of cores, from what is known of some numbers.

    core_forecaster(placement, store, events).modes(network, (1, 2, 4))[2][task].estimate

What was measured on as many cores is the answer. Else a time that is known on another number of
cores, measured or predicted, is carried over by a curve (see `predict.core_curves`); between two
measured numbers the answer goes through both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, hypot, log

import numpy as np

from tilewright.core.events import EventSink, Note
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import threads_alone
from tilewright.graph.tasks import TaskKey
from tilewright.kernels.plans import default_settings
from tilewright.kernels.spaces import MAX_ERROR
from tilewright.models.loaded import PreparedNetwork
from tilewright.predict.collected import Estimate, shipped_data
from tilewright.predict.core_curves import MOST_CORES, CoreCurves, CurveTable
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.forecasting import Forecaster, forecaster_of
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.timed_on_cores import curve_model
from tilewright.store.base import Store
from tilewright.store.known_candidates import SettingsName, choose_plan

Points = dict[int, Estimate]
"""What is known of a kernel, by the number of cores."""

Seconds = dict[int, float]
"""Seconds of a kernel, by the number of cores that they follow from."""

_MEASURED = ("exact", "interpolated")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreMode:
    """What computes a task on a number of cores, and how long it takes there."""

    candidate: Candidate
    estimate: Estimate


@dataclass(frozen=True, kw_only=True)
class CoreForecaster:
    """Answers for kernels of a device on any number of cores. `forecaster` knows the usual number,
    from which what nobody measured is carried over."""

    forecaster: Forecaster
    _others: dict[int, Forecaster] = field(default_factory=dict[int, Forecaster], init=False)

    def modes(
        self, network: PreparedNetwork, counts: Sequence[int], settings: SettingsName = "default"
    ) -> dict[int, dict[TaskKey, CoreMode]]:
        """Each task of a network on each number of cores, in the forms of the network's plan on the
        usual number. On fewer cores it has the same candidate, which is about as fast there as the
        default one for them; on more the default one for these.

        Raises UsageError as `choose_plan` does.
        """
        predictors, allowed = self.forecaster.predictors, self.forecaster.max_error
        plan = choose_plan(network, predictors.store, predictors.placement, settings, allowed)
        tasks = plan.tasks
        chosen = {cores: dict(plan.candidates) for cores in counts}
        for cores in (cores for cores in counts if cores > self.usual):
            choose = default_settings(self.placement(cores), allowed)
            chosen[cores] = {key: choose(one.workload, one.forms) for key, one in tasks.items()}
        kernels = list(
            dict.fromkeys(
                (tasks[key].workload, c) for of in chosen.values() for key, c in of.items()
            )
        )
        places = {kernel: number for number, kernel in enumerate(kernels)}
        estimates = self.kernels(kernels, counts)
        return {
            cores: {
                key: CoreMode(
                    candidate=candidate,
                    estimate=estimates[cores][places[tasks[key].workload, candidate]],
                )
                for key, candidate in chosen[cores].items()
            }
            for cores in counts
        }

    def kernels(
        self, kernels: Sequence[Kernel], counts: Sequence[int]
    ) -> dict[int, list[Estimate]]:
        """What each kernel takes on each number of cores."""
        known = self._known(kernels, counts)
        carried = self._carried_s(kernels, known, counts)
        reach = self._curves(kernels).reach
        return {
            cores: [
                _on(cores, points, carried[cores][number], reach)
                for number, points in enumerate(known)
            ]
            for cores in counts
        }

    def _known(self, kernels: Sequence[Kernel], counts: Sequence[int]) -> list[Points]:
        """Of each kernel, by the number of cores, what was measured; where nothing was, what is
        predicted for the usual number."""
        each = [
            (cores, [self._at(cores).known(kernel) for kernel in kernels])
            for cores in sorted({*self.measured, *counts})
        ]
        found: list[Points] = [
            {cores: here for cores, everything in each if (here := everything[number])}
            for number in range(len(kernels))
        ]
        unknown = [number for number, points in enumerate(found) if not points]
        answers = self.forecaster.modelled([kernels[number] for number in unknown])
        for number, answer in zip(unknown, answers, strict=True):
            found[number] = {self.usual: answer}
        return found

    def _carried_s(
        self, kernels: Sequence[Kernel], known: Sequence[Points], counts: Sequence[int]
    ) -> dict[int, list[Seconds]]:
        """By the number of cores that is wanted, of each kernel: seconds there as each known number
        of cores tells them."""
        found: dict[int, list[Seconds]] = {cores: [{} for _ in kernels] for cores in counts}
        for origin in sorted({cores for points in known for cores in points}):
            rows = [n for n, points in enumerate(known) if origin in points]
            curves = self._curves([kernels[n] for n in rows])
            times_s = np.array([known[n][origin].latency_s for n in rows])
            for cores, there_s in curves.carried_s(times_s, origin, counts).items():
                for n, time_s in zip(rows, there_s.tolist(), strict=True):
                    found[cores][n][origin] = time_s
        return found

    def _curves(self, kernels: Sequence[Kernel]) -> CoreCurves:
        target = self.forecaster.predictors.placement.target
        return CoreCurves(table=CurveTable(kernels=kernels, target=target), model=self._model)

    @cached_property
    def _model(self) -> FamilyModel:
        return curve_model(self.forecaster.predictors)

    def placement(self, cores: int) -> Placement:
        """The same device with as many threads, each on a core of its own. The device need not have
        so many."""
        usual = self.forecaster.predictors.placement
        if cores == usual.resources.threads:
            return usual
        resources = replace(threads_alone(cores), kind=usual.resources.kind)
        return replace(usual, resources=resources)

    @property
    def usual(self) -> int:
        """The number of cores that the device has by itself."""
        return self.forecaster.predictors.placement.resources.threads

    @cached_property
    def measured(self) -> tuple[int, ...]:
        """Numbers of cores on which kernels of the device's class were measured."""
        predictors = self.forecaster.predictors
        device_class = predictors.placement.device.class_key
        places = [*predictors.store.placements(), *(one.placement for one in shipped_data())]
        alone = [
            place.resources.threads
            for place in places
            if place.device.class_key == device_class
            and place.resources == self.placement(place.resources.threads).resources
        ]
        return tuple(sorted({self.usual, *alone}))

    def _at(self, cores: int) -> Forecaster:
        if cores == self.usual:
            return self.forecaster
        if cores not in self._others:
            predictors, allowed = self.forecaster.predictors, self.forecaster.max_error
            self._others[cores] = forecaster_of(
                self.placement(cores), predictors.store, predictors.events, allowed
            )
        return self._others[cores]


def _on(
    cores: int, known: Points, carried_s: Seconds, reach: Callable[[int, int], float]
) -> Estimate:
    """What a kernel takes, from what it takes on the nearest other numbers of cores."""
    if cores in known:
        return known[cores]
    below = max((n for n in known if n < cores), default=None)
    above = min((n for n in known if n > cores), default=None)
    near = [n for n in (below, above) if n is not None]
    share = log(cores / near[0]) / log(near[1] / near[0]) if len(near) > 1 else 0.0
    time_s = carried_s[near[0]] ** (1 - share) * carried_s[near[-1]] ** share
    nearest = min(near, key=lambda n: abs(log(cores / n)))
    there, further = known[nearest], reach(nearest, cores)
    return Estimate(
        latency_s=time_s,
        low_s=time_s / exp(hypot(log(there.latency_s / there.low_s), further)),
        high_s=time_s * exp(hypot(log(there.high_s / there.latency_s), further)),
        source="interpolated" if there.source == "exact" else there.source,
        outside=there.outside or cores > MOST_CORES,
    )


@dataclass(frozen=True, kw_only=True)
class CarriedForecaster(Forecaster):
    """Answers for a number of cores on which nothing was measured, from others of the same device.
    Its `predictors` are those of the number that is asked about."""

    elsewhere: CoreForecaster

    def kernels(self, kernels: Sequence[Kernel]) -> list[Estimate]:
        """What was measured of each kernel on other numbers of cores, carried over. What is only
        predicted is so for fewer cores with their own facts, for more than there are by curves,
        too."""
        cores = self.predictors.placement.resources.threads
        found = self.elsewhere.kernels(kernels, [cores])[cores]
        if cores > self.elsewhere.usual:
            return found
        guessed = [n for n, one in enumerate(found) if one.source not in _MEASURED]
        answers = self.modelled([kernels[n] for n in guessed])
        better = dict(zip(guessed, answers, strict=True))
        return [better.get(n, one) for n, one in enumerate(found)]

    def tell(self, estimates: Sequence[Estimate]) -> None:
        """Notes about answers: what they rest on."""
        cores = self.predictors.placement.resources.threads
        known = ", ".join(map(str, self.elsewhere.measured))
        further = f", and beyond {MOST_CORES} the curves are extrapolated"
        self.predictors.events(
            Note(
                message=f"no kernels were measured on {cores} cores: what is known of them on "
                f"{known} is carried over by curves of kernels on 1 to {MOST_CORES} cores"
                f"{further if cores > MOST_CORES else ''}"
            )
        )
        super().tell(estimates)


def forecaster_on_cores(
    usual: Placement,
    placement: Placement,
    store: Store,
    events: EventSink,
    max_error: float = MAX_ERROR,
) -> Forecaster:
    """What answers for a placement: where nothing was measured on as many cores, from other numbers
    of the same device; `usual` is the device with the number that it has by itself."""
    direct = forecaster_of(placement, store, events, max_error)
    cores = placement.resources.threads
    known = core_forecaster(usual, store, events, max_error)
    alone = known.placement(cores).resources == placement.resources
    if usual.target.kind != "cpu" or not alone or cores in known.measured:
        return direct
    return CarriedForecaster(
        predictors=direct.predictors, max_error=direct.max_error, elsewhere=known
    )


def core_forecaster(
    placement: Placement, store: Store, events: EventSink, max_error: float = MAX_ERROR
) -> CoreForecaster:
    """What answers with the predictors that go with a database; `placement` has the usual number of
    cores, at best one that kernels were measured on."""
    return CoreForecaster(forecaster=forecaster_of(placement, store, events, max_error))
