"""`explain`: why an operator is as fast as it is, from its family's model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import EventSink, Stage
from tilewright.core.forms import PLAIN
from tilewright.core.predictions import ExplainResult, FactDifference, Factor, TurningPoint
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.insight.confirming import Sweep, confirmed
from tilewright.insight.exchanging import knob_exchanges
from tilewright.insight.single_operators import (
    KernelTimer,
    around,
    default_kernel,
    main_task,
    numbers_of,
    with_number,
)
from tilewright.kernels.spaces import default_candidate, spaces
from tilewright.measure.base import Measurer
from tilewright.measure.measurers import open_measurer
from tilewright.models import ModelOptions
from tilewright.models.configurations import collecting
from tilewright.predict.base import Floats
from tilewright.predict.collected import family_of
from tilewright.predict.forecasting import Forecaster
from tilewright.predict.insight import Exchange, Influence, differences, influences, jumps
from tilewright.predict.kernel_facts import Kernel
from tilewright.predict.kernel_models import KernelModel
from tilewright.predict.modelling import Predictors
from tilewright.store.known_candidates import own, ranked

_SETTINGS = 400
_EXCHANGED = 100
"""Of these settings every knob is exchanged."""


@dataclass(frozen=True, kw_only=True)
class Explainer:
    """Explains operators of one device class."""

    placement: Placement
    predictors: Predictors
    events: EventSink
    options: ModelOptions
    measurers: Callable[[Placement, int], Measurer] = open_measurer

    def explain(
        self, name: str, versus: str | None = None, *, confirm: bool = False
    ) -> ExplainResult:
        """One operator, and what sets it apart from another one.

        `name` is `op:conv2d[...]`, or a task's key, for which turning points are not searched. To
        `confirm` turning points a few values around each of the largest are measured. Raises
        UsageError for anything else, for turning points of a task that are to be confirmed, and for
        two operators of different families; ModelError where the family has no model.
        """
        if confirm and not name.startswith("op:"):
            raise UsageError(
                f"{name!r} has no turning points to confirm: they are of op:… texts, "
                "whose numbers can be changed",
                hint="tilewright explain 'op:conv2d[c=64,h=56,k=3,pad=1,out=64]' --confirm",
            )
        workload, candidate = self._kernel(name)
        family = family_of(workload)
        model = self._model(family)
        forecaster = Forecaster(
            placement=self.placement, predictors=self.predictors, events=self.events
        )
        estimate = forecaster.kernels([(workload, candidate)])[0]
        self.events(Stage(name="explain", detail=workload.key))
        ratio, unlike = None, ()
        if versus is not None:
            ratio, unlike = self._versus((workload, candidate), versus, model)
        table = self.predictors.table([(workload, candidate)], model)
        facts: dict[str, float | str] = {
            fact: float(value)
            for fact, value in zip(table.names, table.values[0], strict=True)
            if np.isfinite(value)
        }
        return ExplainResult(
            name=name,
            family=family,
            latency_s=estimate.latency_s,
            source=estimate.source,
            factors=self._factors(workload, candidate, model),
            turning_points=(
                self._turning_points(name, model, confirm) if name.startswith("op:") else ()
            ),
            facts={"implementation": candidate.implementation, **dict(candidate.settings), **facts},
            ratio=ratio,
            differences=unlike,
        )

    def _model(self, family: str) -> KernelModel:
        model = self.predictors.model(family)
        if model is None:
            raise ModelError(
                f"too little is known of {family} to explain it",
                hint=collecting(family, "--samples 500"),
            )
        return model

    def _kernel(self, name: str) -> Kernel:
        """The operator with the best settings known, else the default ones."""
        store = self.predictors.store
        workload = store.workload(name)
        forms = None
        if workload is None:
            if not name.startswith("op:"):
                raise UsageError(
                    f"{name!r} is neither an operator nor a task that was measured",
                    hint="tilewright explain 'op:conv2d[c=64,h=56,k=3,pad=1,out=64]'; of "
                    f"a network the best number of threads: tilewright explain {name} "
                    "--threads",
                )
            task = main_task(name, self.options, self.placement)
            workload, forms = task.workload, task.forms
        best = ranked(own(store.outcomes(workload.key, self.placement.key)))
        fitting = [m.candidate for m in best if forms is None or m.candidate.forms == forms]
        plain = forms or (PLAIN,) * (len(workload.arguments) + 1)
        return workload, (
            fitting[0] if fitting else default_candidate(workload, plain, self.placement)[0]
        )

    def _factors(
        self, workload: Workload, candidate: Candidate, model: KernelModel
    ) -> tuple[Factor, ...]:
        """What each knob, and the choice of implementation, does to the predicted time."""
        random = np.random.default_rng(0)
        kinds: list[Mapping[str, object]] = []
        times_s: list[Floats] = []
        found: list[Influence] = []
        exchanges: Mapping[str, Exchange] = {}

        def times(kernels: Sequence[Kernel]) -> Floats:
            return model.times(self.predictors.table(kernels, model)).latency_s

        for space in spaces(workload, candidate.forms, self.placement):
            numbers = random.permutation(space.numbers)[:_SETTINGS]
            candidates = [space.part.candidate(int(number)) for number in numbers]
            times_s.append(times([(workload, chosen) for chosen in candidates]))
            kinds += [{"implementation": space.spec.name}] * len(candidates)
            if space.spec.name == candidate.implementation:
                found = influences([dict(chosen.settings) for chosen in candidates], times_s[-1])
                exchanges = knob_exchanges(space, numbers[:_EXCHANGED], times)
        return tuple(
            _factor(influence, exchanges.get(influence.name))
            for influence in (*influences(kinds, np.concatenate(times_s)), *found)
        )

    def _turning_points(
        self, name: str, model: KernelModel, confirm: bool
    ) -> tuple[TurningPoint, ...]:
        """Sweeps of each number of the operator, from half to twice of it, in default settings."""
        sweeps = self._sweeps(name)
        found: list[TurningPoint] = []
        for parameter, sweep in sweeps.items():
            table = self.predictors.table(sweep.kernels, model)
            times = model.times(table)
            found += [
                TurningPoint(
                    parameter=parameter,
                    value=jump.value,
                    fact=jump.fact,
                    before=jump.before,
                    after=jump.after,
                    ratio=jump.ratio,
                )
                for jump in jumps(sweep.values, table, times.latency_s, sweep.work)
            ]
        points = tuple(sorted(found, key=lambda point: -abs(np.log(point.ratio))))
        if not confirm:
            return points
        timer = KernelTimer(
            placement=self.placement,
            store=self.predictors.store,
            events=self.events,
            seed=self.options.seed,
            measurers=self.measurers,
        )
        return confirmed(points, sweeps, timer)

    def _sweeps(self, name: str) -> dict[str, Sweep]:
        """The operator's kernels along each of its numbers; values that make no operator are left
        out, numbers with a single value, too."""
        found: dict[str, Sweep] = {}
        for parameter, value in numbers_of(name).items():
            kernels: list[Kernel] = []
            values: list[int] = []
            for step in around(value):
                text = with_number(name, parameter, step)
                try:
                    kernels.append(default_kernel(text, self.options, self.placement))
                except (UsageError, ModelError):
                    continue
                values.append(step)
            if len(values) > 1:
                found[parameter] = Sweep(values=values, kernels=kernels)
        return found

    def _versus(
        self, kernel: Kernel, versus: str, model: KernelModel
    ) -> tuple[float, tuple[FactDifference, ...]]:
        other = self._kernel(versus)
        families = family_of(kernel[0]), family_of(other[0])
        if families[0] != families[1]:
            raise UsageError(
                f"a {families[0]} and a {families[1]} have no model in common to compare them by"
            )
        table = self.predictors.table([kernel, other], model)
        ratio, found = differences(model, table)
        return ratio, tuple(
            FactDifference(fact=d.fact, first=d.first, second=d.second, share=d.share)
            for d in found
        )


def _factor(influence: Influence, exchange: Exchange | None) -> Factor:
    return Factor(
        name=influence.name,
        importance=influence.importance,
        rank_correlation=influence.rank_correlation,
        effects=dict(influence.effects),
        permutation_importance=None if exchange is None else exchange.importance,
        partial_dependence={} if exchange is None else dict(exchange.dependence),
    )
