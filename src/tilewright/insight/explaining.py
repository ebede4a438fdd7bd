"""`explain`: why an operator is as fast as it is, from its family's model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import Stage
from tilewright.core.forms import PLAIN
from tilewright.core.predictions import ExplainResult, FactDifference, Factor, TurningPoint
from tilewright.insight.factors import differences, influences, knob_exchanges
from tilewright.insight.single_operators import (
    Measurers,
    along,
    default_kernel,
    kernel_times,
    main_task,
    numbers_of,
)
from tilewright.insight.turning_points import Sweep, confirmed, turning_points
from tilewright.kernels.spaces import default_candidate, spaces
from tilewright.measure.targeting import open_measurer
from tilewright.models import ModelOptions
from tilewright.models.configurations import collecting
from tilewright.predict.base import Floats
from tilewright.predict.collected import family_of
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.forecasting import Forecaster
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors
from tilewright.store.known_candidates import own, ranked

_SETTINGS = 400
_EXCHANGED = 100
"""Of these settings every knob is exchanged."""


@dataclass(frozen=True, kw_only=True)
class Explainer:
    """Explains operators of one device class."""

    predictors: Predictors
    options: ModelOptions
    measurers: Measurers = open_measurer

    def explain(
        self, name: str, versus: str | None = None, *, confirm: bool = False
    ) -> ExplainResult:
        """One operator, and what sets it apart from another one.

        `name` is `op:conv2d[...]`, or a task's key, for which turning points are not searched. To
        `confirm` turning points a few values around each of the largest are measured. Raises
        UsageError for anything else, for turning points of a task that are to be confirmed, and for
        two operators of different families; ModelError where the family has no model.
        """
        single = name.startswith("op:")
        if confirm and not single:
            raise UsageError(
                f"{name!r} has no turning points to confirm: they are of op:… texts, "
                "whose numbers can be changed",
                hint="tilewright explain 'op:conv2d[c=64,h=56,k=3,pad=1,out=64]' --confirm",
            )
        kernel = self._kernel(name)
        family = family_of(kernel[0])
        model = self.predictors.model(family)
        if model is None:
            raise ModelError(
                f"too little is known of {family} to explain it",
                hint=collecting(family, "--samples 500"),
            )
        (estimate,) = Forecaster(predictors=self.predictors).kernels([kernel])
        self.predictors.events(Stage(name="explain", detail=kernel[0].key))
        ratio, unlike = self._versus(kernel, versus, model) if versus is not None else (None, ())
        features = self.predictors.features([kernel], model)
        known = zip(features.names, features.values[0].tolist(), strict=True)
        return ExplainResult(
            name=name,
            family=family,
            latency_s=estimate.latency_s,
            source=estimate.source,
            factors=self._factors(kernel, model),
            turning_points=self._turning_points(name, model, confirm) if single else (),
            facts={
                "implementation": kernel[1].implementation,
                **dict(kernel[1].settings),
                **{fact: value for fact, value in known if np.isfinite(value)},
            },
            ratio=ratio,
            differences=unlike,
        )

    def _kernel(self, name: str) -> Kernel:
        """The operator with the best settings known, else the default ones."""
        store, placement = self.predictors.store, self.predictors.placement
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
            task = main_task(name, self.options, placement)
            workload, forms = task.workload, task.forms
        best = ranked(own(store.outcomes(workload.key, placement.key)))
        for measurement in best:
            if forms is None or measurement.candidate.forms == forms:
                return workload, measurement.candidate
        plain = forms or (PLAIN,) * (len(workload.arguments) + 1)
        return workload, default_candidate(workload, plain, placement)[0]

    def _times(self, model: FamilyModel, kernels: Sequence[Kernel]) -> Floats:
        return model.predict(self.predictors.features(kernels, model)).predicted

    def _factors(self, kernel: Kernel, model: FamilyModel) -> tuple[Factor, ...]:
        """What each knob, and the choice of implementation, does to the predicted time."""
        workload, candidate = kernel
        random, times = np.random.default_rng(0), partial(self._times, model)
        kinds: list[Mapping[str, object]] = []
        times_s: list[Floats] = []
        knobs: list[Factor] = []
        for space in spaces(workload, candidate.forms, self.predictors.placement):
            numbers = random.permutation(space.numbers)[:_SETTINGS]
            candidates = [space.part.candidate(int(number)) for number in numbers]
            times_s.append(times([(workload, chosen) for chosen in candidates]))
            kinds += [{"implementation": space.spec.name}] * len(candidates)
            if space.spec.name == candidate.implementation:
                exchanged = knob_exchanges(space, numbers[:_EXCHANGED], times)
                knobs = influences([dict(chosen.settings) for chosen in candidates], times_s[-1])
                knobs = [
                    replace(knob, **exchanged[knob.name]) if knob.name in exchanged else knob
                    for knob in knobs
                ]
        return *influences(kinds, np.concatenate(times_s)), *knobs

    def _turning_points(
        self, name: str, model: FamilyModel, confirm: bool
    ) -> tuple[TurningPoint, ...]:
        """Sweeps of each number of the operator, from half to twice of it, in default settings."""
        sweeps = self._sweeps(name)
        found: list[TurningPoint] = []
        for parameter, sweep in sweeps.items():
            features = self.predictors.features(sweep.kernels, model)
            times_s = model.predict(features).predicted
            found += turning_points(parameter, sweep, features, times_s)
        points = tuple(sorted(found, key=lambda point: -abs(np.log(point.ratio))))
        if not confirm:
            return points
        time = partial(
            kernel_times,
            predictors=self.predictors,
            seed=self.options.seed,
            measurers=self.measurers,
        )
        return confirmed(points, sweeps, time)

    def _sweeps(self, name: str) -> dict[str, Sweep]:
        """The operator's kernels along each of its numbers; values that make no operator are left
        out, numbers with a single value, too."""
        found: dict[str, Sweep] = {}
        made = partial(default_kernel, options=self.options, placement=self.predictors.placement)
        for parameter, value in numbers_of(name).items():
            kernels = along(name, parameter, value, made)
            if len(kernels) > 1:
                found[parameter] = Sweep(values=list(kernels), kernels=list(kernels.values()))
        return found

    def _versus(
        self, kernel: Kernel, versus: str, model: FamilyModel
    ) -> tuple[float, tuple[FactDifference, ...]]:
        other = self._kernel(versus)
        families = family_of(kernel[0]), family_of(other[0])
        if families[0] != families[1]:
            raise UsageError(
                f"a {families[0]} and a {families[1]} have no model in common to compare them by"
            )
        return differences(model, self.predictors.features([kernel, other], model))
