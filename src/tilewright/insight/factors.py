"""What choices do to the time that a model predicts, and what sets two kernels apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.core.predictions import FactDifference, Factor
from tilewright.kernels.search_space import Numbers
from tilewright.kernels.spaces import TaskSpace
from tilewright.predict.base import Features, Floats, Integers
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.metrics import rank_correlation

_ALIKE = 1e-9
_ORDERS = 24


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
    shares = [part / gap if abs(gap) > _ALIKE else 0.0 for *_, part in named]
    found = [
        FactDifference(fact=name, first=_number(first), second=_number(second), share=share)
        for (name, first, second, _), share in zip(named, shares, strict=True)
    ]
    order = sorted(range(len(found)), key=lambda place: -abs(shares[place]))
    return float(np.exp(gap)), tuple(found[place] for place in order)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
