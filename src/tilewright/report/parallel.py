"""All trials of a task in parallel coordinates (Inselberg 1985): an axis per knob, one for time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.results import TaskSearchReport, Trial
from tilewright.report import importance, shown
from tilewright.report.vega import Chart, usable

_MOST_KNOBS = 10
_MOST_FADED = 150
_MOST_LABELS = 9
_BEST_PART, _MOST_BEST = 0.1, 40
_TIME, _FAILED = "time", -0.08
_FAR = 8.0
Value = int | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """The knobs that varied, the most important last, with the values each took, in order.

    `best` are the fastest tenth of the timed trials, fastest first, but few enough to be told
    apart; `others` the rest of them; `failed` those without a time.
    """

    knobs: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    best: tuple[Trial, ...]
    others: tuple[Trial, ...]
    failed: tuple[Trial, ...]


def info(search: TaskSearchReport) -> Coordinates | None:
    """The trials of the implementation that was tried most; None with too few of them."""
    found = importance.info(search)
    if found is None:
        return None
    order = list(dict.fromkeys([*found.shares, *found.varied]))
    if not order:
        return None
    knobs = tuple(reversed(order[:_MOST_KNOBS]))
    trials = [trial for trial in search.trials if trial.implementation == found.implementation]
    timed = sorted(
        (trial for trial in trials if usable(trial.latency_s)), key=lambda t: t.latency_s or 0.0
    )
    cut = min(_MOST_BEST, max(1, math.ceil(_BEST_PART * len(timed))))
    return Coordinates(
        knobs=knobs,
        values=tuple(_distinct(name, trials) for name in knobs),
        best=tuple(timed[:cut]),
        others=tuple(timed[cut:]),
        failed=tuple(trial for trial in trials if not usable(trial.latency_s)),
    )


def _distinct(name: str, trials: Sequence[Trial]) -> tuple[Value, ...]:
    """The values of a knob, numbers by size before text."""
    values = {trial.settings.get(name) for trial in trials}
    return tuple(
        sorted(
            values,
            key=lambda v: (0, v, "") if isinstance(v, int) else (1, 0, "" if v is None else v),
        )
    )


def chart(coordinates: Coordinates) -> Chart:
    """Fast is up, the best tenth is highlighted, what failed ends below."""
    places = [
        {value: index / max(1, len(values) - 1) for index, value in enumerate(values)}
        for values in coordinates.values
    ]
    knobs = list(zip(coordinates.knobs, places, strict=True))
    timed = [math.log(_drawn_s(coordinates, t)) for t in (*coordinates.best, *coordinates.others)]
    low, high = min(timed), max(timed)

    def lines(trials: Sequence[Trial], colour: str, opacity: float) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for trial in trials:
            log_s = math.log(_drawn_s(coordinates, trial)) if usable(trial.latency_s) else None
            height = _FAILED if log_s is None else _fast(log_s, low, high)
            own = [(name, heights[trial.settings.get(name)]) for name, heights in knobs]
            about: dict[str, object] = {
                "trial": trial.number,
                "colour": colour,
                "opacity": opacity,
            }
            if opacity == 1.0:
                about["time"] = shown.seconds(trial.latency_s)
                about["settings"] = shown.pairs(trial.settings)
            rows += [about | {"knob": name, "height": at} for name, at in own]
            rows.append(about | {"knob": _TIME, "height": height})
        return rows

    trials = [
        *lines(_thinned(coordinates.others), "var(--faded)", 0.3),
        *lines(_thinned(coordinates.failed), "var(--failed)", 0.6),
        *lines(coordinates.best, "var(--best)", 1.0),
    ]
    values = [
        {"knob": name, "height": at, "value": shown.plain(value)}
        for name, heights in knobs
        for value, at in list(heights.items())[:: 1 + (len(heights) - 1) // _MOST_LABELS]
    ]
    for part in (0.0, 0.5, 1.0) if high > low else (0.5,):
        time_s = math.exp(high - part * (high - low))
        values.append({"knob": _TIME, "height": part, "value": shown.seconds(time_s)})
    if coordinates.failed:
        values.append({"knob": _TIME, "height": _FAILED, "value": "failed"})
    label = "Trials in parallel coordinates"
    return Chart(name="parallel", label=label, rows={"trials": trials, "values": values})


def _drawn_s(coordinates: Coordinates, trial: Trial) -> float:
    """Times far from the best are drawn together."""
    return min(trial.latency_s or 0.0, _FAR * (coordinates.best[0].latency_s or 0.0))


def _fast(log_s: float, low: float, high: float) -> float:
    return (high - log_s) / (high - low) if high > low else 0.5


def _thinned(trials: Sequence[Trial]) -> Sequence[Trial]:
    """Every so many, so that few enough are left; an empty sequence stays empty."""
    return trials[:: max(1, -(-len(trials) // _MOST_FADED))]
