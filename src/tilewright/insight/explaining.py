"""`explain`: why an operator is as fast as it is, from its family's model: what choices do to the
time that it predicts, and what sets two kernels apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import Stage
from tilewright.core.forms import PLAIN
from tilewright.core.predictions import ExplainResult, FactDifference, Factor, TurningPoint
from tilewright.insight.single_operators import (
    Measurers,
    along,
    default_kernel,
    kernel_times,
    main_task,
    numbers_of,
)
from tilewright.insight.turning_points import Sweep, confirmed, turning_points
from tilewright.kernels.search_space import Numbers
from tilewright.kernels.spaces import TaskSpace, default_candidate, spaces
from tilewright.measure.targeting import open_measurer
from tilewright.models import ModelOptions
from tilewright.models.configurations import collecting
from tilewright.predict.base import Features, Floats, Integers, rank_correlation
from tilewright.predict.collected import family_of
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.forecasting import Forecaster
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors
from tilewright.store.known_candidates import allowed_outcomes, own, ranked

_SETTINGS = 400
_EXCHANGED = 100
"""Of these settings every knob is exchanged."""

_ALIKE = 1e-9
_ORDERS = 24


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
                f"{name!r} has no turning points to confirm: only operators given as op:… have "
                "numbers that can be varied",
                hint="tilewright explain 'op:conv2d[c=64,h=56,k=3,pad=1,out=64]' --confirm",
            )
        kernel = self._kernel(name)
        family = family_of(kernel[0])
        model = self.predictors.model(family)
        if model is None:
            raise ModelError(
                f"too few kernels of {family} were measured to explain it",
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
                    hint="tilewright explain 'op:conv2d[c=64,h=56,k=3,pad=1,out=64]'; for the best "
                    f"number of threads of a network: tilewright explain {name} --threads",
                )
            task = main_task(name, self.options, placement)
            workload, forms = task.workload, task.forms
        measured = ranked(own(allowed_outcomes(workload, store, placement)))
        known = (m.candidate for m in measured if forms is None or m.candidate.forms == forms)
        plain = forms or (PLAIN,) * (len(workload.arguments) + 1)
        return workload, next(known, None) or default_candidate(workload, plain, placement)[0]

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
        made = partial(default_kernel, options=self.options, placement=self.predictors.placement)
        every = {p: along(name, p, value, made) for p, value in numbers_of(name).items()}
        return {
            parameter: Sweep(values=list(kernels), kernels=list(kernels.values()))
            for parameter, kernels in every.items()
            if len(kernels) > 1
        }

    def _versus(
        self, kernel: Kernel, versus: str, model: FamilyModel
    ) -> tuple[float, tuple[FactDifference, ...]]:
        other = self._kernel(versus)
        families = family_of(kernel[0]), family_of(other[0])
        if families[0] != families[1]:
            raise UsageError(
                f"{families[0]} and {families[1]} have no model in common, so they cannot be "
                "compared"
            )
        return differences(model, self.predictors.features([kernel, other], model))


def influences(settings: Sequence[Mapping[str, object]], times_s: Floats) -> list[Factor]:
    """The choices by their importance, the largest first; those that never vary are left out.

    Everything that follows from a choice moves with it, since whole settings are compared: a
    functional ANOVA's main effects (Hutter, Hoos & Leyton-Brown 2014).
    """
    logs = np.log(times_s)
    total = float(logs.var())
    found: list[Factor] = []
    for name in sorted({key for chosen in settings for key in chosen}):
        values = np.array([str(chosen.get(name, "")) for chosen in settings], dtype=object)
        means = {value: logs[values == value].mean() for value in dict.fromkeys(values)}
        if len(means) < 2:
            continue
        between = float(np.var([means[value] for value in values]))
        numbers = [float(value) for value in values if value.isdigit()]
        ordered = len(numbers) == len(values)
        best = min(means.values())
        found.append(
            Factor(
                name=name,
                importance=between / total if total > _ALIKE else 0.0,
                rank_correlation=rank_correlation(np.array(numbers), times_s) if ordered else None,
                effects={value: float(np.exp(mean - best)) for value, mean in means.items()},
            )
        )
    return sorted(found, key=lambda factor: -factor.importance)


def exchange(times_s: Floats, own: Integers, values: Sequence[object]) -> dict[str, Any]:
    """What exchanging one choice does while all others stay: its permutation importance, that is,
    how much predicted times change in the mean, relatively, where it is exchanged for that of
    another setting, and its partial dependence, the time of each value over the best value's, both
    within the same settings, geometric means; under their names in a `Factor`.

    `times_s` are settings × values, seconds of each setting with that value, NaN where this is not
    possible; `own` is the place of the value that it has.
    The mean is over all pairs of settings that can be exchanged, so that no draw decides it
    (Fisher, Rudin & Dominici 2019). Partial dependence after Friedman 2001; settings count by how
    far a value is from the mean over those possible there, since some values exclude each other.
    Values that are never possible beside another one have no dependence.
    """
    rows = np.arange(len(own))
    possible = np.isfinite(times_s)
    weights = np.bincount(own, minlength=times_s.shape[1]) * possible
    changes = np.abs(np.where(possible, times_s, 0.0) / times_s[rows, own][:, None] - 1.0)
    logs = np.log(np.where(possible, times_s, 1.0))
    compared = possible & (possible.sum(axis=1, keepdims=True) > 1)
    mean = logs.sum(axis=1, keepdims=True) / possible.sum(axis=1, keepdims=True)
    counts = compared.sum(axis=0)
    off = np.where(compared, logs - mean, 0.0).sum(axis=0) / np.maximum(1, counts)
    best = off[counts > 0].min() if counts.any() else 0.0
    dependence = {
        str(value): float(np.exp(further - best))
        for value, further, count in zip(values, off, counts, strict=True)
        if count
    }
    return {
        "permutation_importance": float((weights * changes).sum() / weights.sum()),
        "partial_dependence": dependence,
    }


def knob_exchanges(
    space: TaskSpace, numbers: Numbers, times: Callable[[Sequence[Kernel]], Floats]
) -> dict[str, dict[str, Any]]:
    """What each knob with more than one value does to the settings at `numbers`, at least one, all
    of them valid, while the other knobs stay; see `exchange`. `times` gives seconds."""
    knobs = space.part.knobs
    digits = knobs.digits(numbers)
    variants = {
        place: _with_each_value(digits, place, len(knob.values))
        for place, knob in enumerate(knobs.knobs)
        if len(knob.values) > 1
    }
    asked = {place: knobs.compose(rows) for place, rows in variants.items()}
    valid = {place: knobs.accepted(found) for place, found in asked.items()}
    kernels: list[Kernel] = [
        (space.workload, space.part.candidate(int(number)))
        for place, found in asked.items()
        for number in found[valid[place]]
    ]
    if not kernels:
        return {}
    said = iter(times(kernels).tolist())
    result: dict[str, dict[str, Any]] = {}
    for place, accepted in valid.items():
        table = np.full(len(accepted), np.nan)
        table[accepted] = [next(said) for _ in range(int(accepted.sum()))]
        knob = knobs.knobs[place]
        result[knob.name] = exchange(table.reshape(len(digits), -1), digits[:, place], knob.values)
    return result


def _with_each_value(digits: Numbers, place: int, values: int) -> Numbers:
    """Each row as often as there are values, with each of them at `place`."""
    rows = np.repeat(digits, values, axis=0)
    rows[:, place] = np.tile(np.arange(values), len(digits))
    return rows


def differences(model: FamilyModel, features: Features) -> tuple[float, tuple[FactDifference, ...]]:
    """The predicted time of row 0 over that of row 1, and what it comes from, most first: parts add
    up to 1, some may be negative.

    Each fact's part is its Shapley value between the two rows, sampled over random orders in which
    the facts of the one replace those of the other (Štrumbelj & Kononenko 2014).
    """
    values = features.aligned(model.names)
    scale = np.log(features.scale)
    unlike = [
        column
        for column in range(values.shape[1])
        if not np.array_equal(values[0, column], values[1, column], equal_nan=True)
    ]
    margins = model.margin(values)
    gap = float((scale[0] - margins[0]) - (scale[1] - margins[1]))
    parts = dict.fromkeys(unlike, 0.0)
    random = np.random.default_rng(0)
    for _ in range(_ORDERS):
        order = random.permutation(unlike)
        walk = np.repeat(values[1:2], len(order) + 1, axis=0)
        for step, column in enumerate(order):
            walk[step + 1 :, column] = values[0, column]
        said = -model.margin(walk)
        for step, column in enumerate(order):
            parts[int(column)] += float(said[step + 1] - said[step]) / _ORDERS
    named = [(model.names[column], *values[:, column], part) for column, part in parts.items()]
    named.append(("roofline time", *features.scale, float(scale[0] - scale[1])))
    found = (
        FactDifference(
            fact=name,
            first=_number(first),
            second=_number(second),
            share=part / gap if abs(gap) > _ALIKE else 0.0,
        )
        for name, first, second, part in named
    )
    return float(np.exp(gap)), tuple(sorted(found, key=lambda each: -abs(each.share or 0.0)))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
