"""`predict`: what a network will take, and which settings will be fastest, before anything is
compiled or measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, hypot, log, sqrt

import numpy as np

from tilewright.core.events import EventSink, Note
from tilewright.core.forms import Form
from tilewright.core.grouping import grouped
from tilewright.core.predictions import METRICS, NetworkForecast, OperatorForecast, PredictResult
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import GPU_PIECE_BYTES
from tilewright.cost.floors import datasheet_peaks, floor_s
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.kernels.estimates import estimate_s, work_of
from tilewright.kernels.planned_memory import planned_memory
from tilewright.kernels.spaces import MAX_ERROR, spaces
from tilewright.models.loaded import PreparedNetwork
from tilewright.predict.collected import Estimate, family_of
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors, predictors_of
from tilewright.predict.powers import Power, PowerPredictors, known_metrics, why_none
from tilewright.store.base import Store
from tilewright.store.known_candidates import SettingsName, choose_plan

IN_SEQUENCE = 1.04
"""A network's time over the sum of its kernels' times alone; how it was measured is said in
docs/benchmarks-predictors/networks.md."""

_TOGETHER = 0.3
"""How much the errors of a network's operators go together: 0 for chance, 1 for one cause."""

_REPEATS = 0.17
"""Half width of an exact answer's interval, in the logarithm, where nothing says how far repeated
times lie apart on its class: that of a shared Xeon (docs/benchmarks-predictors/new-devices.md)."""

_OVER_ROOF = 20.0
"""A roofline alone: the time may be as long as this many times it."""

_OVER_FACTS = 4.0
"""What facts and a datasheet say: the time may be as long as this many times it. No card was there
to compare it with."""


@dataclass(frozen=True, kw_only=True)
class Forecaster:
    """Answers for kernels and networks from what is known of a device class; kernels with an error
    bound above `max_error` are not chosen where there are more exact ones."""

    predictors: Predictors
    max_error: float = MAX_ERROR

    def network(
        self,
        network: PreparedNetwork,
        settings: SettingsName,
        metrics: Sequence[str] = METRICS,
        plan: NetworkPlan | None = None,
    ) -> PredictResult:
        """What `metrics` name of a network, and every kernel's latency where that is among them;
        its kernels are those of the settings, or of the `plan` that is given.

        Raises UsageError for a metric that is not known.
        """
        metrics = known_metrics(metrics)
        plan = plan or self._plan(network, settings)
        tasks = list(plan.tasks.values())
        kernels = [(task.workload, plan.candidates[key]) for key, task in plan.tasks.items()]
        estimates = self.kernels(kernels) if set(metrics) != {"memory"} else []
        powers, reason = self._powers(kernels, metrics)
        self.tell(estimates)
        each = _forecasts(tasks, kernels, estimates) if "latency" in metrics else []
        if "energy" in metrics:
            found = zip(each, energies_j(estimates, powers), strict=False)
            each = [replace(forecast, energy_j=energy_j) for forecast, energy_j in found]
        whole = _composed(tasks, estimates, powers, metrics, self._peak_bytes(plan, metrics))
        return self._result(network.model.name, settings, metrics, each, reason, whole)

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
        plans = [(text, self._plan(network, settings)) for text, network in operators]
        tasks = [max(plan.tasks.values(), key=lambda t: t.workload.flop) for _, plan in plans]
        kernels = [
            (task.workload, plan.candidates[task.key])
            for task, (_, plan) in zip(tasks, plans, strict=True)
        ]
        estimates = self.kernels(kernels)
        powers, reason = self._powers(kernels, metrics)
        self.tell(estimates)
        if named and reason:
            self._note(f"some energies are unknown: {reason}")
        each = [
            replace(
                found,
                name=text,
                energy_j=power.power_w * found.latency_s if power and "energy" in metrics else None,
                power_w=power.power_w if power and "power" in metrics else None,
                peak_memory_bytes=self._peak_bytes(plan, metrics),
            )
            for (text, plan), found, power in zip(
                plans, _forecasts(tasks, kernels, estimates), powers, strict=True
            )
        ]
        return self._result(f"{len(plans)} operators", settings, metrics, each, reason)

    def _plan(self, network: PreparedNetwork, settings: SettingsName) -> NetworkPlan:
        store, placement = self.predictors.store, self.predictors.placement
        return choose_plan(network, store, placement, settings, max_error=self.max_error)

    def _result(
        self,
        model: str,
        settings: SettingsName,
        metrics: Sequence[str],
        operators: Sequence[OperatorForecast],
        reason: str,
        network: NetworkForecast | None = None,
    ) -> PredictResult:
        placement = self.predictors.placement
        return PredictResult(
            model=model,
            target=placement.tvm_target,
            threads=placement.resources.threads,
            settings=settings,
            network=network,
            operators=tuple(operators),
            metrics=tuple(metrics),
            energy_reason=reason,
            precision=placement.precision,
        )

    def _powers(
        self, kernels: Sequence[Kernel], metrics: Sequence[str]
    ) -> tuple[list[Power | None], str]:
        """The power of each kernel where energy or power is asked for, and why some are missing."""
        if not {"power", "energy"} & {*metrics}:
            return [None] * len(kernels), ""
        powers = PowerPredictors(predictors=self.predictors).powers(kernels)
        return powers, why_none(kernels, powers)

    def _peak_bytes(self, plan: NetworkPlan, metrics: Sequence[str]) -> int | None:
        """What the network holds at most; on a GPU, what its driver takes for that."""
        target = self.predictors.placement.target
        if "memory" not in metrics:
            return None
        piece = GPU_PIECE_BYTES if target.launch is not None else 1
        return -(-planned_memory(plan, target).peak_bytes // piece) * piece

    def kernels(self, kernels: Sequence[Kernel]) -> list[Estimate]:
        """The best answer there is for each: this very kernel measured, its neighbours in size, the
        family's model, its facts, the roofline."""
        known = [self.known(kernel) for kernel in kernels]
        asked = [kernel for kernel, found in zip(kernels, known, strict=True) if found is None]
        modelled = iter(self.modelled(asked))
        return [found or next(modelled) for found in known]

    def modelled(self, kernels: Sequence[Kernel]) -> list[Estimate]:
        """What the models say, or the roofline, also of kernels that were measured; those of one
        family are answered together."""
        families = grouped([(family_of(kernel[0]), n) for n, kernel in enumerate(kernels)])
        found: dict[int, Estimate] = {}
        for family, numbers in families.items():
            mine = [kernels[number] for number in numbers]
            model = self.predictors.model(family)
            answers = self._modelled(mine, model) if model is not None else self._unmeasured(mine)
            found |= zip(numbers, answers, strict=True)
        return [found[number] for number in range(len(kernels))]

    def known(self, kernel: Kernel) -> Estimate | None:
        """The time of this very kernel, or of its neighbours in size, where they were measured."""
        found = self.predictors.measured(family_of(kernel[0])).estimate(*kernel)
        if found is None:
            return None
        came = self.predictors.came_along
        doubt = exp((came and came.repeats) or _REPEATS)
        return replace(found, low_s=found.low_s / doubt, high_s=found.high_s * doubt)

    def _modelled(self, kernels: Sequence[Kernel], model: FamilyModel) -> list[Estimate]:
        said = model.predict(self.predictors.features(kernels, model))
        factor = np.exp(said.reach)
        columns = (said.predicted, said.predicted / factor, said.predicted * factor, said.outside)
        return [
            Estimate(latency_s=time_s, low_s=low_s, high_s=high_s, source="model", outside=outside)
            for time_s, low_s, high_s, outside in zip(*(c.tolist() for c in columns), strict=True)
        ]

    def _unmeasured(self, kernels: Sequence[Kernel]) -> list[Estimate]:
        """The roofline; where kernels have facts in which a GPU's datasheet is, their estimates,
        with the roofline as the lower end."""
        placement, roofs = self.predictors.placement, self._roofs(kernels)
        if datasheet_peaks(placement.target) is None:
            return roofs
        each_s = [estimate_s(*kernel, placement.target, placement.resources) for kernel in kernels]
        return [
            Estimate(
                latency_s=time_s,
                low_s=min(roof.low_s, time_s),
                high_s=_OVER_FACTS * time_s,
                source="facts",
            )
            for time_s, roof in zip(each_s, roofs, strict=True)
        ]

    def _roofs(self, kernels: Sequence[Kernel]) -> list[Estimate]:
        target, peaks = self.predictors.placement.target, self.predictors.peaks
        works = [work_of(workload, chosen.implementation, target) for workload, chosen in kernels]
        return [
            Estimate(latency_s=roof, low_s=roof, high_s=_OVER_ROOF * roof, source="roofline")
            for roof in (float(floor_s(work, peaks)) for work in works)
        ]

    def _note(self, message: str) -> None:
        self.predictors.events(Note(message=message))

    def tell(self, estimates: Sequence[Estimate]) -> None:
        """Notes about answers: what they rest on, where that is not plain measurement."""
        roofs = sum(estimate.source == "roofline" for estimate in estimates)
        facts = sum(estimate.source == "facts" for estimate in estimates)
        outside = sum(estimate.outside for estimate in estimates)
        if roofs:
            self._note(
                f"{roofs} tasks are of families that were never measured: their times are those of "
                "the roofline, which are lower bounds"
            )
        if facts:
            self._note(
                f"{facts} tasks are of families that were never measured on this device class: "
                "their times are estimated from their kernels' facts and the datasheet"
            )
        if outside:
            self._note(
                f"{outside} tasks are unlike everything that was measured: their intervals are "
                "twice as wide"
            )
        moved = ", ".join(f"{name} {factor:.2f}" for name, factor in self.predictors.slowdowns())
        if moved:
            self._note(
                "kernels on this machine are slower or faster than in the shipped measurements of "
                f"its class: predictions are multiplied by {moved}"
            )
        lender, probes = self.predictors.lender, self.predictors.probes
        if lender is None:
            return
        if not self.predictors.own_rows:
            self._note(
                "nothing was measured on this device class: predictions are those of the nearest "
                f"one, {lender.placement.key}, with intervals twice as wide"
            )
        elif probes:
            self._note(
                f"predictions start from the device class {lender.placement.key}: of the known "
                "classes its times are most similar to this one's, judged by "
                f"{probes} kernels that were measured on both"
            )


def forecaster_of(
    placement: Placement, store: Store, events: EventSink, max_error: float = MAX_ERROR
) -> Forecaster:
    """What answers with the predictors that go with a database. It reads each of them once."""
    return Forecaster(predictors=predictors_of(placement, store, events), max_error=max_error)


def _forecasts(
    tasks: Sequence[Task], kernels: Sequence[Kernel], estimates: Sequence[Estimate]
) -> list[OperatorForecast]:
    return [
        OperatorForecast(
            name=task.name,
            family=family_of(task.workload),
            implementation=candidate.implementation,
            count=task.count,
            latency_s=estimate.latency_s,
            low_s=estimate.low_s,
            high_s=estimate.high_s,
            source=estimate.source,
        )
        for task, (_, candidate), estimate in zip(tasks, kernels, estimates, strict=True)
    ]


def energies_j(estimates: Sequence[Estimate], powers: Sequence[Power | None]) -> list[float | None]:
    """Joules of one call of each kernel, where its power is known."""
    each = zip(estimates, powers, strict=True)
    return [power.power_w * estimate.latency_s if power else None for estimate, power in each]


def _composed(
    tasks: Sequence[Task],
    estimates: Sequence[Estimate],
    powers: Sequence[Power | None],
    metrics: Sequence[str],
    peak_bytes: int | None,
) -> NetworkForecast:
    """The network's figures from its kernels': latencies add up and grow a little in sequence, and
    so do energies, which hold idle power; errors partly cancel. What was not asked for is None, and
    so are energy and power where the power of a kernel is not known."""
    nothing = None, None, None
    counts = [task.count * IN_SEQUENCE for task in tasks]
    times = [
        (count * one.latency_s, count * one.low_s, count * one.high_s)
        for count, one in zip(counts, estimates, strict=bool(estimates))
    ]
    latency_s, low_s, high_s = _summed(times) if "latency" in metrics else nothing
    energy_j, low_j, high_j = power_w, low_w, high_w = nothing
    if all(powers) and len(times) == len(powers):
        known = [(time_s, power) for time_s, power in zip(times, powers, strict=True) if power]
        total_s = sum(time_s for time_s, _, _ in times)
        if "energy" in metrics:
            energy_j, low_j, high_j = _summed([_product(*one) for one in known])
        if "power" in metrics and total_s > 0:
            shares = [(time_s / total_s, one) for (time_s, _, _), one in known]
            power_w, low_w, high_w = _summed(
                [(n * one.power_w, n * one.low_w, n * one.high_w) for n, one in shares]
            )
    return NetworkForecast(
        latency_s=latency_s,
        latency_low_s=low_s,
        latency_high_s=high_s,
        power_w=power_w,
        power_low_w=low_w,
        power_high_w=high_w,
        energy_j=energy_j,
        energy_low_j=low_j,
        energy_high_j=high_j,
        peak_memory_bytes=peak_bytes,
    )


Within = tuple[float, float, float]
"""A value, and the ends of the interval that holds 90 % of such."""


def _product(time_s: Within, power: Power) -> Within:
    """Joules of seconds at a power, whose errors have nothing to do with each other."""
    middle_s, least_s, most_s = time_s
    energy_j = middle_s * power.power_w
    below = hypot(log(middle_s / least_s), log(power.power_w / power.low_w))
    above = hypot(log(most_s / middle_s), log(power.high_w / power.power_w))
    return energy_j, energy_j / exp(below), energy_j * exp(above)


def _summed(parts: Sequence[Within]) -> Within:
    """The sum of values, each `Within`, whose errors go together in part."""
    middle, low, high = np.array(parts).reshape(-1, 3).T
    total = float(middle.sum())
    below, above = (
        sqrt(_TOGETHER * each.sum() ** 2 + (1 - _TOGETHER) * (each**2).sum())
        for each in (middle - low, high - middle)
    )
    return total, total - below, total + above


_CONSIDERED = 256
"""Settings per implementation that the facts' rough time puts first; the model ranks these."""

_GUESSES = 3


def best_guesses(
    predictors: Predictors, max_error: float = MAX_ERROR, *, fitting: bool = True
) -> Callable[[Workload, tuple[Form, ...]], tuple[Candidate, ...]]:
    """What gives the best settings of a workload in layouts by its family's model, a few, the most
    promising first; none where no model knows this class. Models that are not there yet are made
    with `fitting` only."""

    @cache
    def guesses(workload: Workload, forms: tuple[Form, ...]) -> tuple[Candidate, ...]:
        made = fitting and predictors.lender is None
        model = predictors.model(family_of(workload), fitting=made)
        if model is None or model.origin != str(predictors.placement.key):
            return ()
        kernels: list[Kernel] = []
        for space in spaces(workload, forms, predictors.placement, max_error):
            first = np.argsort(space.estimates_s, kind="stable")[:_CONSIDERED]
            kernels += [(workload, space.part.candidate(int(space.numbers[n]))) for n in first]
        said = model.predict(predictors.features(kernels, model))
        order = np.argsort(said.predicted, kind="stable")[:_GUESSES]
        return tuple(kernels[int(number)][1] for number in order)

    return guesses
