"""Regret of tuners against the share of a space they measured: one picture per sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tilewright.core.results import TunerStudyRow
from tilewright.report import shown
from tilewright.report.svg import SERIES, Axis, Drawing

DEFAULT = "default"
_LEAST, _MOST = 1e-3, 10.0
"""Regret is drawn between a tenth of a percent and tenfold; what lies beyond sits at the edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hue:
    """The colour class of a tuner in every picture of a study."""

    tuner: str
    kind: str


def hues(rows: Sequence[TunerStudyRow]) -> tuple[Hue, ...]:
    """A colour per tuner, by median regret: `default` stands out, the last may share grey."""
    names = dict.fromkeys(row.tuner for row in rows)
    regret = {name: median(r.regret_median for r in rows if r.tuner == name) for name in names}
    ordered = sorted(names, key=lambda name: (name != DEFAULT, _finite(regret[name]), name))
    kinds = iter(SERIES)
    return tuple(
        Hue(tuner=name, kind="best" if name == DEFAULT else next(kinds, "faded"))
        for name in ordered
    )


def sweeps(rows: Sequence[TunerStudyRow]) -> tuple[str, ...]:
    """The sweeps, in order."""
    return tuple(dict.fromkeys(row.sweep for row in rows))


def figure(
    rows: Sequence[TunerStudyRow], sweep: str, *, width: int = 530, height: int = 300
) -> str:
    """The median regret of every tuner on one sweep as an SVG element, both axes logarithmic.

    Empty text when the sweep has no row.
    """
    here = [row for row in rows if row.sweep == sweep and row.measured_share > 0]
    if not here:
        return ""
    shares = [100 * row.measured_share for row in here]
    known = [100 * _drawn(row.regret_median) for row in here]
    high = min(100 * _MOST, 1.3 * max(known))
    x_axis = Axis(low=min(shares) / 1.15, high=max(shares) * 1.15, start=56, end=width - 16)
    y_axis = Axis(low=min(0.5 * high, *known), high=high, start=height - 48, end=24)
    drawing = Drawing(width=width, height=height, label=f"Regret of tuners on {sweep}")
    drawing.grid(x_axis, y_axis, x_label="% of the space measured", y_label="regret, %")
    for hue in reversed(hues(rows)):
        own = sorted((r for r in here if r.tuner == hue.tuner), key=lambda r: r.measured_share)
        corners = [
            (x_axis.at(100 * r.measured_share), y_axis.at(100 * _drawn(r.regret_median)))
            for r in own
        ]
        drawing.path([corners], kind=hue.kind, title=hue.tuner)
        for row, (x, y) in zip(own, corners, strict=True):
            drawing.dot(x, y, radius=3, kind=hue.kind, title=_title(row))
    return drawing.svg()


def _title(row: TunerStudyRow) -> str:
    return (
        f"{row.tuner}, {shown.percent(row.measured_share)} measured: regret "
        f"{shown.percent(row.regret_median)}, in 9 of 10 runs below {shown.percent(row.regret_p90)}"
    )


def _finite(regret: float) -> float:
    return regret if not math.isnan(regret) else math.inf


def _drawn(regret: float) -> float:
    return min(max(_finite(regret), _LEAST), _MOST)
