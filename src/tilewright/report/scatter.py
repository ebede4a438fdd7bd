"""Predicted against measured: both axes logarithmic, the ±10 % lines, the band of the intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.predict.metrics import HeldOut
from tilewright.report.axes import time_unit
from tilewright.report.svg import SERIES, Axis, Drawing

MOST_POINTS = 2000
"""More rows than this are drawn as a random part of them."""

_TOLERANCE = 1.1
_ROOM = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The colour class of a group of points, and how many rows it has."""

    name: str
    kind: str
    rows: int


def series(judged: HeldOut) -> tuple[Series, ...]:
    """A colour per group, the largest first; from the ninth on they share grey."""
    names, counts = np.unique(judged.groups.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    kinds = iter(SERIES)
    return tuple(
        Series(name=str(names[place]), kind=next(kinds, "faded"), rows=int(counts[place]))
        for place in order
    )


def drawing(judged: HeldOut, *, width: int = 430, most: int = MOST_POINTS) -> Drawing:
    """A square picture. Points on the diagonal are right; dashed lines are 10 % off; the band is
    the 90 % interval of the middle row."""
    both = np.concatenate([judged.measured, judged.predicted])
    unit_size, unit = time_unit(float(both.max())) if judged.unit == "s" else (1.0, judged.unit)
    low, high = float(both.min()) / _ROOM / unit_size, float(both.max()) * _ROOM / unit_size
    height = width - 24
    x_axis = Axis(low=low, high=high, start=56, end=width - 12)
    y_axis = Axis(low=low, high=high, start=height - 44, end=22)
    found = Drawing(width=width, height=height, label=f"Predicted against measured {judged.family}")

    def at(x: float, y: float) -> tuple[float, float]:
        return x_axis.at(x), y_axis.at(y)

    reach = float(np.exp(np.median(judged.reach)))
    if np.isfinite(reach) and reach < high / low:
        upper = [at(low, low), at(low, low * reach), at(high / reach, high), at(high, high)]
        found.area([*upper, at(high, high / reach), at(low * reach, low)])
    found.grid(x_axis, y_axis, x_label=f"measured, {unit}", y_label=f"predicted, {unit}")
    inside = high / _TOLERANCE, low * _TOLERANCE
    lines = [
        [at(low, low * _TOLERANCE), at(inside[0], high)],
        [at(inside[1], low), at(high, high / _TOLERANCE)],
    ]
    found.path(lines, kind="base", title="10 % off")
    found.path([[at(low, low), at(high, high)]], kind="axis", title="predicted = measured")
    drawn = _part(judged, most)
    for one in series(judged):
        mine = drawn.part(drawn.groups == one.name)
        places = [
            at(x / unit_size, y / unit_size)
            for x, y in zip(mine.measured, mine.predicted, strict=True)
        ]
        found.points(places, kind=one.kind, title=f"{one.name}: {one.rows} rows")
    _legend(found, series(judged))
    return found


def _legend(drawing: Drawing, groups: Sequence[Series]) -> None:
    """The groups' names in the upper left corner, where hardly a point is."""
    for place, one in enumerate(groups[: len(SERIES)]):
        y = 36 + 16 * place
        drawing.dot(68, y, radius=4, kind=one.kind, title=f"{one.rows} rows")
        drawing.mark(78, y + 4, one.name)


def _part(judged: HeldOut, most: int) -> HeldOut:
    """At most so many rows, the same ones every time."""
    if len(judged.measured) <= most:
        return judged
    chosen = np.zeros(len(judged.measured), dtype=bool)
    chosen[np.random.default_rng(0).permutation(len(chosen))[:most]] = True
    return judged.part(chosen)
