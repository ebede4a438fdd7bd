"""Times of kernels on any number of cores, from what is known of some numbers.

    core_forecaster(placement, store, events).modes(network, (1, 2, 4))[2][task].estimate

What was measured on as many cores is the answer. Else a time that is known on another number of
cores, measured or predicted, is carried over by a curve (see `predict.core_curves`); between two
measured numbers the answer goes through both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, hypot, log

from tilewright.core.events import EventSink
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import threads_alone
from tilewright.graph.tasks import TaskKey
from tilewright.kernels.plans import default_settings
from tilewright.kernels.spaces import MAX_ERROR
from tilewright.models.loaded import PreparedNetwork
from tilewright.predict.collected import Estimate, shipped_data
from tilewright.predict.core_curves import CoreCurves, core_curves
from tilewright.predict.forecasting import Forecaster, forecaster_of
from tilewright.predict.kernel_features import Kernel
from tilewright.store.base import Store
from tilewright.store.known_candidates import SettingsName, choose_plan


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
        usual number. On fewer cores it has the same candidate, on more the default one for them;
        on one core the default one for one.

        Raises UsageError as `choose_plan` does.
        """
        usual = self._usual
        predictors = self.forecaster.predictors
        allowed = self.forecaster.max_error
        plan = choose_plan(network, predictors.store, predictors.placement, settings, allowed)
        tasks = plan.tasks
        found: dict[int, dict[TaskKey, CoreMode]] = {}
        for count in counts:
            chosen = dict(plan.candidates)
            if count > usual:
                choose = default_settings(self.placement(count), allowed)
                chosen |= {key: choose(task.workload, task.forms) for key, task in tasks.items()}
            kernels = [(task.workload, chosen[key]) for key, task in tasks.items()]
            estimates = self.kernels(kernels, [count])[count]
            found[count] = {
                key: CoreMode(candidate=chosen[key], estimate=estimate)
                for key, estimate in zip(tasks, estimates, strict=True)
            }
        return found

    def kernels(
        self, kernels: Sequence[Kernel], counts: Sequence[int]
    ) -> dict[int, list[Estimate]]:
        """What each kernel takes on each number of cores."""
        usual = self._usual
        measured = {
            cores: [self._at(cores).known(kernel) for kernel in kernels]
            for cores in dict.fromkeys([*self._measured, *counts])
        }
        answers = self.forecaster.kernels(kernels)
        curves = core_curves(kernels, self.forecaster.predictors.placement)
        known: list[dict[int, Estimate]] = [
            {cores: found for cores, each in measured.items() if (found := each[number])}
            or {usual: answers[number]}
            for number in range(len(kernels))
        ]
        return {
            cores: [_on(cores, points, curves, number) for number, points in enumerate(known)]
            for cores in counts
        }

    def placement(self, cores: int) -> Placement:
        """The same device with as many threads, each on a core of its own. The device need not have
        so many."""
        usual = self.forecaster.predictors.placement
        if cores == usual.resources.threads:
            return usual
        resources = replace(threads_alone(cores), kind=usual.resources.kind)
        return replace(usual, resources=resources)

    @property
    def _usual(self) -> int:
        return self.forecaster.predictors.placement.resources.threads

    @cached_property
    def _measured(self) -> tuple[int, ...]:
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
        return tuple(sorted({self._usual, *alone}))

    def _at(self, cores: int) -> Forecaster:
        if cores == self._usual:
            return self.forecaster
        if cores not in self._others:
            predictors, allowed = self.forecaster.predictors, self.forecaster.max_error
            self._others[cores] = forecaster_of(
                self.placement(cores), predictors.store, predictors.events, allowed
            )
        return self._others[cores]


def _on(cores: int, known: Mapping[int, Estimate], curves: CoreCurves, number: int) -> Estimate:
    """What a kernel takes, from what it takes on the nearest other numbers of cores."""
    if cores in known:
        return known[cores]
    below = max((n for n in known if n < cores), default=None)
    above = min((n for n in known if n > cores), default=None)
    near = [n for n in (below, above) if n is not None]
    logs = [log(curves.carried_s(number, known[n].latency_s, n, cores)) for n in near]
    share = 0.0
    if below is not None and above is not None:
        share = log(cores / below) / log(above / below)
    time_s = exp((1 - share) * logs[0] + share * logs[-1])
    nearest = min(near, key=lambda n: abs(log(cores / n)))
    from_there = known[nearest]
    reach = curves.reach(nearest, cores)
    measured = from_there.source in ("exact", "interpolated")
    return Estimate(
        latency_s=time_s,
        low_s=time_s / exp(hypot(log(from_there.latency_s / from_there.low_s), reach)),
        high_s=time_s * exp(hypot(log(from_there.high_s / from_there.latency_s), reach)),
        source="interpolated" if measured else from_there.source,
        outside=from_there.outside or cores > curves.most_cores,
    )


def core_forecaster(
    placement: Placement, store: Store, events: EventSink, max_error: float = MAX_ERROR
) -> CoreForecaster:
    """What answers with the predictors that go with a database; `placement` has the usual number of
    cores, at best one that kernels were measured on."""
    return CoreForecaster(forecaster=forecaster_of(placement, store, events, max_error))
