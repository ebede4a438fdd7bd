"""Why a kernel is as fast as it is: which choices matter, where times jump, why two differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.predict.base import Floats
from tilewright.predict.kernel_facts import KernelTable
from tilewright.predict.kernel_models import KernelModel
from tilewright.predict.metrics import rank_correlation
from tilewright.predict.splits import Integers

_ALIKE = 1e-9
_CACHES = ("_of_l1", "_of_l2", "_of_l3")
_WHOLE = ("balance", "_whole", "threads_over_rows")
_LEAST_DROP = 0.02
_ORDERS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """What a choice does to the predicted time over many settings. `importance` is the part of the
    variance of log time between its values; `rank_correlation` Spearman's with the time, None for
    values that have no order; `effects` the mean time of each value over the best value's."""

    name: str
    importance: float
    rank_correlation: float | None
    effects: Mapping[str, float]


def influences(settings: Sequence[Mapping[str, object]], times_s: Floats) -> list[Influence]:
    """The choices by their importance, the largest first; those that never vary are left out.

    Everything that follows from a choice moves with it, since whole settings are compared: a
    functional ANOVA's main effects (Hutter, Hoos & Leyton-Brown 2014).
    """
    logs = np.log(times_s)
    total = float(logs.var())
    found: list[Influence] = []
    for name in sorted({key for chosen in settings for key in chosen}):
        values = np.array([str(chosen.get(name, "")) for chosen in settings], dtype=object)
        groups = {value: logs[values == value] for value in dict.fromkeys(values)}
        if len(groups) < 2:
            continue
        between = sum(len(g) * (float(g.mean()) - float(logs.mean())) ** 2 for g in groups.values())
        best = min(float(group.mean()) for group in groups.values())
        found.append(
            Influence(
                name=name,
                importance=between / len(logs) / total if total > _ALIKE else 0.0,
                rank_correlation=_ordered(values, times_s),
                effects={v: float(np.exp(g.mean() - best)) for v, g in groups.items()},
            )
        )
    return sorted(found, key=lambda influence: -influence.importance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What a choice does while all others stay. `importance` is its permutation importance: how
    much predicted times change in the mean, relatively, where it is exchanged for that of another
    setting. `dependence` is the partial dependence: the time of each value over the best value's,
    both within the same settings, geometric means."""

    importance: float
    dependence: Mapping[str, float]


def exchange(times_s: Floats, own: Integers, values: Sequence[object]) -> Exchange:
    """What exchanging one choice does.

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
    return Exchange(
        importance=float((weights * changes).sum() / weights.sum()),
        dependence={
            str(value): float(np.exp(further - best))
            for value, further, count in zip(values, off, counts, strict=True)
            if count
        },
    )


def _ordered(values: np.ndarray, times_s: Floats) -> float | None:
    numbers = [value for value in values if value.isdigit()]
    if len(numbers) < len(values):
        return None
    return rank_correlation(np.array([float(value) for value in values]), times_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """A value of a parameter from which on a fact is another one: vectors or rounds of threads that
    are not full any more, a working set that leaves a cache. `ratio` is the predicted time there
    over the one right before, per FLOP."""

    value: int
    fact: str
    before: float
    after: float
    ratio: float


def jumps(
    values: Sequence[int], table: KernelTable, times_s: Floats, flop: Sequence[float]
) -> list[Jump]:
    """Where structure changes along a sweep; row n of the table is for `values[n]`, in order."""
    found: list[Jump] = []
    cost = times_s / np.maximum(1.0, np.asarray(flop, dtype=np.float64))
    for column, name in enumerate(table.names):
        facts = table.values[:, column]
        for row in range(1, len(values)):
            before, after = float(facts[row - 1]), float(facts[row])
            leaves = name.endswith(_CACHES) and before <= 0 < after
            drops = name.endswith(_WHOLE) and after < before - _LEAST_DROP
            if leaves or drops:
                found.append(
                    Jump(
                        value=values[row],
                        fact=name,
                        before=before,
                        after=after,
                        ratio=float(cost[row] / cost[row - 1]),
                    )
                )
    return sorted(found, key=lambda jump: (-abs(np.log(jump.ratio)), jump.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact in which two kernels differ, and its part of the predicted gap between them: the
    parts add up to 1, some may be negative."""

    fact: str
    first: float | None
    second: float | None
    share: float


def differences(model: KernelModel, table: KernelTable) -> tuple[float, list[Difference]]:
    """The predicted time of row 0 over that of row 1, and what it comes from, most first.

    Each fact's part is its Shapley value between the two rows, sampled over random orders in which
    the facts of the one replace those of the other (Štrumbelj & Kononenko 2014).
    """
    values = table.aligned(model.names)
    scale = np.log(table.roof_s)
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
    roof = float(scale[0] - scale[1])
    found = [
        Difference(
            fact=model.names[column],
            first=_number(values[0, column]),
            second=_number(values[1, column]),
            share=_share(part, gap),
        )
        for column, part in parts.items()
    ]
    found.append(
        Difference(
            fact="roofline time",
            first=float(table.roof_s[0]),
            second=float(table.roof_s[1]),
            share=_share(roof, gap),
        )
    )
    return float(np.exp(gap)), sorted(found, key=lambda difference: -abs(difference.share))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _share(part: float, gap: float) -> float:
    return part / gap if abs(gap) > _ALIKE else 0.0
