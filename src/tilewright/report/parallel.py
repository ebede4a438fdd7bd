"""All trials of a task in parallel coordinates (Inselberg 1985): an axis per knob, one for time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tilewright.core.results import TaskSearchReport, Trial
from tilewright.report import importance, shown
from tilewright.report.axes import TimeAxis, time_axis, usable
from tilewright.report.svg import Drawing

_MOST_KNOBS = 10
_MOST_FADED = 150
_MOST_LABELS = 9
_BEST_PART, _MOST_BEST = 0.1, 40
_NAME_LENGTH, _VALUE_LENGTH = 15, 9
_FAR = 8.0
Value = int | str | bool | None
Corners = list[tuple[float, float]]


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
    ranked = [share.knob for share in found.shares]
    order = [*ranked, *(name for name in found.varied if name not in ranked)]
    if not order:
        return None
    knobs = tuple(reversed(order[:_MOST_KNOBS]))
    trials = [trial for trial in search.trials if trial.implementation == found.implementation]
    timed = sorted(
        (trial for trial in trials if usable(trial.latency_s)), key=lambda t: t.latency_s or 0.0
    )
    cut = min(_MOST_BEST, max(1, ceil(_BEST_PART * len(timed))))
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


def figure(coordinates: Coordinates, *, width: int = 1080, height: int = 300) -> str:
    """The drawing as an SVG element; fast is up, the best tenth is highlighted."""
    timed = [*coordinates.best, *coordinates.others]
    least_s = timed[0].latency_s or 0.0
    times = [min(t.latency_s or 0.0, _FAR * least_s) for t in timed]
    axis = time_axis(times, 44, height - 44)
    if axis is None:
        return ""
    drawing = Drawing(width=width, height=height, label="Trials in parallel coordinates")
    between = (width - 140) / len(coordinates.knobs)
    columns = [50 + between * index for index in range(len(coordinates.knobs) + 1)]
    paths = _Paths(coordinates, columns, axis, height)
    drawing.path([paths.of(trial) for trial in _thinned(coordinates.others)], kind="faded")
    drawing.path([paths.of(trial) for trial in _thinned(coordinates.failed)], kind="failed")
    for trial in reversed(coordinates.best):
        title = f"trial {trial.number}: {shown.seconds(trial.latency_s)}, "
        title += shown.pairs(trial.settings)
        drawing.path([paths.of(trial)], kind="best", title=title)
    _draw_axes(drawing, coordinates, paths)
    return drawing.svg()


def _thinned(trials: Sequence[Trial]) -> Sequence[Trial]:
    """Every so many, so that few enough are left; an empty sequence stays empty."""
    return trials[:: max(1, -(-len(trials) // _MOST_FADED))]


class _Paths:
    """Where every trial's line goes."""

    def __init__(
        self, coordinates: Coordinates, columns: Sequence[float], axis: TimeAxis, height: int
    ) -> None:
        self.columns = columns
        self.axis = axis
        self.top, self.bottom, self.failed_y = 44.0, height - 44.0, height - 16.0
        self._knobs = coordinates.knobs
        self.places = [
            {value: self._place(index, len(values)) for index, value in enumerate(values)}
            for values in coordinates.values
        ]

    def _place(self, index: int, count: int) -> float:
        if count < 2:
            return (self.top + self.bottom) / 2
        return self.bottom - (self.bottom - self.top) * index / (count - 1)

    def of(self, trial: Trial) -> Corners:
        corners = [
            (x, places[trial.settings.get(knob)])
            for x, knob, places in zip(self.columns, self._knobs, self.places, strict=False)
        ]
        known = trial.latency_s is not None and usable(trial.latency_s)
        end = self.axis.at(trial.latency_s or 0.0) if known else self.failed_y
        return [*corners, (self.columns[-1], end)]


def _draw_axes(drawing: Drawing, coordinates: Coordinates, paths: _Paths) -> None:
    for index, (x, knob) in enumerate(zip(paths.columns, coordinates.knobs, strict=False)):
        drawing.path([[(x, paths.top), (x, paths.bottom)]], kind="axis")
        places = list(paths.places[index].items())
        for value, y in places[:: 1 + (len(places) - 1) // _MOST_LABELS]:
            drawing.mark(x + 5, y + 4, _short(_word(value), _VALUE_LENGTH))
        drawing.text(x, 18 if index % 2 else 32, _short(knob, _NAME_LENGTH), anchor="middle")
    x = paths.columns[-1]
    drawing.path([[(x, paths.top), (x, paths.bottom)]], kind="axis")
    for tick, label in paths.axis.ticks():
        drawing.mark(x + 6, paths.axis.at(tick) + 4, f"{label} {paths.axis.unit}")
    drawing.text(x, 18, "time", anchor="middle")
    if coordinates.failed:
        drawing.mark(x + 6, paths.failed_y + 4, "failed")


def _word(value: Value) -> str:
    if value is None:
        return shown.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
