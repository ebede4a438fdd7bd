"""How much each knob matters: data, then chart.

The share of a knob is its main effect in a functional ANOVA (Hutter, Hoos, Leyton-Brown 2014):
the part of the variance of log time that lies between the knob's values. Theirs is estimated with
a random forest; here the trials are grouped by value, and what groups of a few trials explain by
chance is taken off (epsilon squared, Kelley 1935). A tuner tries good settings more often, so the
shares hold for what was tried and may overlap.

A knob without any effect gets a share all the same when there are few trials. With six values and
normal noise one in ten gets more than 0.66 of eight trials, 0.32 of 16, 0.17 of 30: below 30 no
share is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.grouping import grouped
from tilewright.core.results import TaskSearchReport, Trial
from tilewright.report import shown
from tilewright.report.vega import Chart, bars, usable

FEWEST = 30
"""Timed trials of one implementation from which on shares are told."""
_FEWEST_DRAWN = 8
_MOST_GROUPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """The knobs of the implementation that was tried most, the largest share first.

    `shares` are the parts of the variance of log time, from 0 to 1, that knobs explain alone; there
    are none with fewer than FEWEST trials. `trials` have a time; `varied` are the knobs that took
    more than one value.
    """

    implementation: str
    trials: int
    shares: Mapping[str, float]
    varied: tuple[str, ...]


def most_tried(trials: Sequence[Trial]) -> list[Trial]:
    """The trials of the implementation with most of them."""
    counts = Counter(trial.implementation for trial in trials)
    if not counts:
        return []
    name = counts.most_common(1)[0][0]
    return [trial for trial in trials if trial.implementation == name]


def timed_trials(search: TaskSearchReport) -> list[Trial]:
    """Those that have a time, of the implementation with most of these."""
    return most_tried([trial for trial in search.trials if usable(trial.latency_s)])


def info(search: TaskSearchReport) -> Importance | None:
    """None with so few timed trials of one implementation that nothing is worth drawing."""
    trials = timed_trials(search)
    if len(trials) < _FEWEST_DRAWN:
        return None
    log_time = np.log([trial.latency_s or 0.0 for trial in trials])
    names = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    shares: dict[str, float] = {}
    varied: list[str] = []
    for name in names:
        values = [trial.settings.get(name) for trial in trials]
        if len(set(values)) < 2:
            continue
        varied.append(name)
        share = main_effect(_groups(values), log_time) if len(trials) >= FEWEST else None
        if share is not None:
            shares[name] = share
    return Importance(
        implementation=trials[0].implementation,
        trials=len(trials),
        shares=dict(sorted(shares.items(), key=lambda item: -item[1])),
        varied=tuple(varied),
    )


def main_effect(groups: Sequence[Hashable], values: np.ndarray) -> float | None:
    """The part of the variance of `values` between the groups, corrected for their number.

    None when it cannot be told: as many groups as values, or values without variance.
    """
    members = grouped([(group, index) for index, group in enumerate(groups)])
    free = len(values) - len(members)
    total = float(((values - values.mean()) ** 2).sum())
    if free < 1 or total <= 1e-12:
        return None
    within = sum(float(((values[m] - values[m].mean()) ** 2).sum()) for m in members.values())
    between = total - within
    return min(1.0, max(0.0, (between - (len(members) - 1) * within / free) / total))


def _groups(values: Sequence[int | str | bool | None]) -> list[Hashable]:
    """The values themselves; numbers of many kinds in a few groups of neighbours."""
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) < len(values) or len(set(numbers)) <= _MOST_GROUPS:
        return [*values]
    cuts = np.quantile(numbers, np.linspace(0, 1, _MOST_GROUPS + 1)[1:-1])
    return [int(group) for group in np.searchsorted(cuts, numbers)]


def chart(importance: Importance, *, limit: int = 12) -> Chart | None:
    """Horizontal bars; None without a share."""
    rows = [
        {
            "name": knob,
            "share": share,
            "told": shown.percent(share),
            "colour": "var(--best)",
        }
        for knob, share in list(importance.shares.items())[:limit]
    ]
    label = f"Share of the variance of log time that each knob of {importance.implementation} has"
    return bars(label, rows)
