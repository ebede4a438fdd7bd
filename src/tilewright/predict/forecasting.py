"""`predict`: what a network will take, without compiling or running it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, sqrt

import numpy as np

from tilewright.core.events import EventSink, Note
from tilewright.core.predictions import (
    METRICS,
    NetworkForecast,
    OperatorForecast,
    PredictResult,
    Source,
)
from tilewright.core.records import Candidate, Placement
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.kernels.planned_memory import planned_memory
from tilewright.models.prepared import PreparedNetwork
from tilewright.predict.collected import family_of
from tilewright.predict.energies import EnergyPredictors, known_metrics, why_none
from tilewright.predict.kernel_facts import Kernel
from tilewright.predict.kernel_models import KernelModel
from tilewright.predict.modelling import Predictors, predictors_of
from tilewright.predict.operator_facts import roofline_s
from tilewright.store.base import Store
from tilewright.store.known_candidates import MAX_ERROR, SettingsName, choose_plan

IN_SEQUENCE = 1.04
"""A network's time over the sum of its kernels' times alone; docs/benchmarks-predictors.md has how
it was measured."""

_TOGETHER = 0.3
"""How much the errors of a network's operators go together: 0 for chance, 1 for one cause."""

_REPEATS = 0.17
"""Half width of an exact answer's interval, in the logarithm, where nothing says how far repeated
times lie apart on its class: that of a shared Xeon (docs/benchmarks-predictors.md)."""

_OVER_ROOF = 20.0
"""A roofline alone: the time may be as long as this many times it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of one call of a kernel, with the interval that holds 90 % of such."""

    latency_s: float
    low_s: float
    high_s: float
    source: Source
    outside: bool = False


@dataclass(frozen=True, kw_only=True)
class Forecaster:
    """Answers for kernels and networks from what is known of a device class; kernels with an error
    bound above `max_error` are not chosen where there are more exact ones."""

    placement: Placement
    predictors: Predictors
    events: EventSink
    max_error: float = MAX_ERROR

    def network(
        self,
        network: PreparedNetwork,
        settings: SettingsName,
        metrics: Sequence[str] = METRICS,
    ) -> PredictResult:
        """What `metrics` name of a network, and every kernel's latency where that is among them.

        Raises UsageError for a metric that is not known.
        """
        metrics = known_metrics(metrics)
        store = self.predictors.store
        plan = choose_plan(network, store, self.placement, settings, max_error=self.max_error)
        tasks = list(plan.tasks.values())
        kernels = [(task.workload, plan.candidates[key]) for key, task in plan.tasks.items()]
        estimates = self.kernels(kernels) if set(metrics) != {"memory"} else []
        energies_j, reason = self._energies(kernels, metrics)
        self._tell(estimates)
        forecast = composed(tasks, estimates, energies_j)
        if "memory" in metrics:
            forecast = replace(forecast, peak_memory_bytes=self._peak_bytes(plan))
        shown = range(len(tasks)) if "latency" in metrics else ()
        return PredictResult(
            model=network.model.name,
            target=self.placement.tvm_target,
            threads=self.placement.resources.threads,
            settings=settings,
            network=only_asked(forecast, metrics),
            operators=tuple(
                replace(
                    _forecast(tasks[number], kernels[number][1], estimates[number]),
                    energy_j=energies_j[number] if "energy" in metrics else None,
                )
                for number in shown
            ),
            metrics=tuple(metrics),
            energy_reason=reason,
        )

    def operators(
        self,
        operators: Iterable[tuple[str, PreparedNetwork]],
        settings: SettingsName,
        metrics: Sequence[str] = METRICS,
    ) -> PredictResult:
        """Single operators, each an `op:…` text with its network: the latency of the heaviest
        kernel of each, and what else `metrics` name (all where there are none); memory is that of
        all its kernels.

        Raises UsageError for a metric that is not known.
        """
        named, metrics = bool(metrics), known_metrics(metrics)
        tasks: list[Task] = []
        kernels: list[Kernel] = []
        peaks_bytes: list[int | None] = []
        texts: list[str] = []
        for text, network in operators:
            texts.append(text)
            store = self.predictors.store
            plan = choose_plan(network, store, self.placement, settings, max_error=self.max_error)
            heaviest = max(plan.tasks.values(), key=lambda task: task.workload.flop)
            tasks.append(heaviest)
            kernels.append((heaviest.workload, plan.candidates[heaviest.key]))
            peaks_bytes.append(self._peak_bytes(plan) if "memory" in metrics else None)
        estimates = self.kernels(kernels)
        energies_j, reason = self._energies(kernels, metrics)
        self._tell(estimates)
        if named and reason:
            self.events(Note(message=f"some energies are unknown: {reason}"))
        return PredictResult(
            model=f"{len(texts)} operators",
            target=self.placement.tvm_target,
            threads=self.placement.resources.threads,
            settings=settings,
            network=None,
            operators=tuple(
                replace(
                    _forecast(tasks[number], kernels[number][1], estimates[number]),
                    name=text,
                    energy_j=energies_j[number] if "energy" in metrics else None,
                    power_w=_power_w(energies_j[number], estimates[number], metrics),
                    peak_memory_bytes=peaks_bytes[number],
                )
                for number, text in enumerate(texts)
            ),
            metrics=tuple(metrics),
            energy_reason=reason,
        )

    def _energies(
        self, kernels: Sequence[Kernel], metrics: Sequence[str]
    ) -> tuple[list[float | None], str]:
        """Joules of each kernel where energy or power is asked for, and why some are missing."""
        if not {"power", "energy"} & {*metrics}:
            return [None] * len(kernels), ""
        energies_j = EnergyPredictors(predictors=self.predictors).energies_j(kernels)
        return energies_j, why_none(kernels, energies_j)

    def _peak_bytes(self, plan: NetworkPlan) -> int:
        return planned_memory(plan, self.placement.target).peak_bytes

    def kernels(self, kernels: Sequence[Kernel]) -> list[Estimate]:
        """The best answer there is for each: this very kernel measured, its neighbours in size, the
        family's model, the roofline."""
        known = [self._known(*kernel) for kernel in kernels]
        unknown = [number for number, answer in enumerate(known) if answer is None]
        modelled = self.modelled([kernels[number] for number in unknown])
        found = dict(zip(unknown, modelled, strict=True))
        return [answer or found[number] for number, answer in enumerate(known)]

    def modelled(self, kernels: Sequence[Kernel]) -> list[Estimate]:
        """What the models say, or the roofline, also of kernels that were measured; those of one
        family are answered together."""
        families: dict[str, list[int]] = {}
        for number, (workload, _) in enumerate(kernels):
            families.setdefault(family_of(workload), []).append(number)
        found: dict[int, Estimate] = {}
        for family, numbers in families.items():
            mine = [kernels[number] for number in numbers]
            model = self.predictors.model(family)
            answers = self._modelled(mine, model) if model is not None else self._roofs(mine)
            found |= zip(numbers, answers, strict=True)
        return [found[number] for number in range(len(kernels))]

    def _known(self, workload: Workload, candidate: Candidate) -> Estimate | None:
        measured = self.predictors.measured(family_of(workload))
        exact_s = measured.exact(workload, candidate)
        doubt = exp(self.predictors.repeats or _REPEATS)
        if exact_s is not None:
            return Estimate(
                latency_s=exact_s,
                low_s=exact_s / doubt,
                high_s=exact_s * doubt,
                source="exact",
            )
        between = measured.between(workload, candidate)
        if between is None:
            return None
        return Estimate(
            latency_s=between.latency_s,
            low_s=between.low_s / doubt,
            high_s=between.high_s * doubt,
            source="interpolated",
        )

    def _modelled(self, kernels: Sequence[Kernel], model: KernelModel) -> list[Estimate]:
        times = model.times(self.predictors.table(kernels, model))
        columns = (times.latency_s, times.low_s, times.high_s, times.outside)
        return [
            Estimate(
                latency_s=latency_s, low_s=low_s, high_s=high_s, source="model", outside=outside
            )
            for latency_s, low_s, high_s, outside in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]

    def _roofs(self, kernels: Sequence[Kernel]) -> list[Estimate]:
        roofs = [roofline_s(workload, self.predictors.peaks) for workload, _ in kernels]
        return [
            Estimate(latency_s=roof, low_s=roof, high_s=_OVER_ROOF * roof, source="roofline")
            for roof in roofs
        ]

    def _tell(self, estimates: Sequence[Estimate]) -> None:
        roofs = sum(estimate.source == "roofline" for estimate in estimates)
        outside = sum(estimate.outside for estimate in estimates)
        if roofs:
            self.events(
                Note(
                    message=f"{roofs} tasks are of families that nothing was measured of: their "
                    "times are the roofline's, the least there can be"
                )
            )
        if outside:
            self.events(
                Note(
                    message=f"{outside} tasks are unlike all that was measured: their intervals "
                    "are twice as wide"
                )
            )
        self._tell_pace()
        shipped, probes = self.predictors.shipped, self.predictors.probes
        if shipped is None or shipped.exact:
            return
        known = shipped.placement.key
        if not self.predictors.own_rows:
            self.events(
                Note(
                    message="this device class was never measured; the nearest one that was is "
                    f"{known}: intervals are twice as wide"
                )
            )
        elif probes:
            self.events(
                Note(
                    message=f"of the known device classes, {known} is the nearest by "
                    f"{probes} kernels that were measured on both"
                )
            )

    def _tell_pace(self) -> None:
        moved = ", ".join(f"{name} {factor:.2f}" for name, factor in self.predictors.paces())
        if moved:
            self.events(
                Note(
                    message="this machine's kernels take another time than those that came along "
                    f"for its class ({moved} times it): predictions follow"
                )
            )


def forecaster_of(
    placement: Placement, store: Store, events: EventSink, max_error: float = MAX_ERROR
) -> Forecaster:
    """What answers with the predictors that go with a database. It reads each of them once."""
    predictors = predictors_of(placement, store, events)
    return Forecaster(
        placement=placement, predictors=predictors, events=events, max_error=max_error
    )


def _forecast(task: Task, candidate: Candidate, estimate: Estimate) -> OperatorForecast:
    return OperatorForecast(
        name=task.name,
        family=family_of(task.workload),
        implementation=candidate.implementation,
        count=task.count,
        latency_s=estimate.latency_s,
        low_s=estimate.low_s,
        high_s=estimate.high_s,
        source=estimate.source,
    )


def _power_w(energy_j: float | None, estimate: Estimate, metrics: Sequence[str]) -> float | None:
    return energy_j / estimate.latency_s if energy_j is not None and "power" in metrics else None


def composed(
    tasks: Sequence[Task], estimates: Sequence[Estimate], energies_j: Sequence[float | None]
) -> NetworkForecast:
    """The network's figures from its kernels': latencies add up and grow a little in sequence, and
    so do energies, which hold idle power; errors partly cancel. Without `estimates` all is None."""
    if not estimates:
        return NetworkForecast(
            latency_s=None,
            latency_low_s=None,
            latency_high_s=None,
            power_w=None,
            energy_j=None,
            peak_memory_bytes=None,
        )
    counted = list(zip([task.count for task in tasks], estimates, strict=True))
    total_s = sum(count * estimate.latency_s for count, estimate in counted)
    below = _widths([(e.latency_s - e.low_s) * count for count, e in counted])
    above = _widths([(e.high_s - e.latency_s) * count for count, e in counted])
    known_j = [energy_j for energy_j in energies_j if energy_j is not None]
    energy_j = None
    if len(known_j) == len(tasks):
        parts_j = [task.count * energy for task, energy in zip(tasks, known_j, strict=True)]
        energy_j = IN_SEQUENCE * sum(parts_j)
    return NetworkForecast(
        latency_s=IN_SEQUENCE * total_s,
        latency_low_s=IN_SEQUENCE * (total_s - below),
        latency_high_s=IN_SEQUENCE * (total_s + above),
        power_w=None if energy_j is None else energy_j / (IN_SEQUENCE * total_s),
        energy_j=energy_j,
        peak_memory_bytes=None,
    )


def only_asked(forecast: NetworkForecast, metrics: Sequence[str]) -> NetworkForecast:
    """The forecast with None for what was not asked for."""
    if "latency" not in metrics:
        forecast = replace(forecast, latency_s=None, latency_low_s=None, latency_high_s=None)
    if "power" not in metrics:
        forecast = replace(forecast, power_w=None)
    if "energy" not in metrics:
        forecast = replace(forecast, energy_j=None)
    return forecast


def _widths(widths: Sequence[float]) -> float:
    """The half width of a sum whose terms' errors go together in part."""
    each = np.array(widths)
    apart = float((each**2).sum())
    return sqrt(_TOGETHER * float(each.sum()) ** 2 + (1 - _TOGETHER) * apart)
