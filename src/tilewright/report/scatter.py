"""Predicted against measured: both axes logarithmic, the ±10 % lines, the band of the intervals."""

from __future__ import annotations

import numpy as np

from tilewright.predict.evaluation import HeldOut
from tilewright.report.vega import SERIES, Chart

MOST_POINTS = 2000
"""More rows than this are drawn as a random part of them."""

_TOLERANCE = 1.1
_ROOM = 1.25


def chart(judged: HeldOut, *, most: int = MOST_POINTS) -> Chart:
    """Points on the diagonal are right; dashed lines are 10 % off; the band is the 90 % interval of
    the middle row. Each group has a colour, the largest first; from the ninth on they share grey.
    """
    both = np.concatenate([judged.measured, judged.predicted])
    ends = [float(both.min()) / _ROOM, float(both.max()) * _ROOM]
    reach = float(np.exp(np.median(judged.reach)))
    banded = ends if np.isfinite(reach) and reach < ends[1] / ends[0] else []
    names, counts = np.unique(judged.groups.astype(str), return_counts=True)
    ordered = [str(names[place]) for place in np.argsort(-counts, kind="stable")]
    drawn = _part(judged, most)
    points: list[dict[str, object]] = []
    for index, name in enumerate(ordered):
        mine = drawn.part(drawn.groups == name)
        group = name if index < len(SERIES) else "others"
        for x, y in zip(mine.measured, mine.predicted, strict=True):
            points.append({"measured": float(x), "predicted": float(y), "group": group})
    return Chart(
        name="scatter",
        label=f"Predicted against measured {judged.family}",
        rows={
            "points": points,
            "lines": [
                {"measured": x, "predicted": x * factor, "factor": name}
                for name, factor in (("0.9", 1 / _TOLERANCE), ("1", 1.0), ("1.1", _TOLERANCE))
                for x in ends
            ],
            "band": [{"measured": x, "low": x / reach, "high": x * reach} for x in banded],
        },
        parameters={"unit": judged.unit},
    )


def _part(judged: HeldOut, most: int) -> HeldOut:
    """At most so many rows, the same ones every time."""
    if len(judged.measured) <= most:
        return judged
    chosen = np.zeros(len(judged.measured), dtype=bool)
    chosen[np.random.default_rng(0).permutation(len(chosen))[:most]] = True
    return judged.part(chosen)
