"""Regret of tuners against the share of a space they measured: one picture per sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from tilewright.core.results import TunerStudyRow
from tilewright.report import shown
from tilewright.report.vega import SERIES, Chart

DEFAULT = "default"
_LEAST, _MOST = 1e-3, 10.0
"""Regret is drawn between a tenth of a percent and tenfold; what lies beyond sits at the edge."""


def hues(rows: Sequence[TunerStudyRow]) -> dict[str, str]:
    """The name of each tuner's colour in every chart of a study, a variable of the style sheet, by
    median regret: `default` stands out, the last may share grey."""
    names = dict.fromkeys(row.tuner for row in rows)
    regret = {name: median(r.regret_median for r in rows if r.tuner == name) for name in names}
    ordered = sorted(names, key=lambda name: (name != DEFAULT, _finite(regret[name]), name))
    kinds = iter(SERIES)
    return {name: "best" if name == DEFAULT else next(kinds, "faded") for name in ordered}


def sweeps(rows: Sequence[TunerStudyRow]) -> tuple[str, ...]:
    """The sweeps, in order."""
    return tuple(dict.fromkeys(row.sweep for row in rows))


def chart(rows: Sequence[TunerStudyRow], sweep: str) -> Chart | None:
    """The median regret of every tuner on one sweep; None when the sweep has no row."""
    colours = hues(rows)
    here = [row for row in rows if row.sweep == sweep and row.measured_share > 0]
    drawn = [
        {
            "tuner": row.tuner,
            "share": row.measured_share,
            "regret": _drawn(row.regret_median),
            "colour": f"var(--{colours[row.tuner]})",
            "measured": shown.percent(row.measured_share),
            "median": shown.percent(row.regret_median),
            "worst": shown.percent(row.regret_p90),
        }
        for row in sorted(here, key=lambda row: (row.tuner, row.measured_share))
    ]
    label = f"Regret of tuners on {sweep}"
    return Chart(name="regret", label=label, rows={"regret": drawn}) if drawn else None


def _finite(regret: float) -> float:
    return regret if not math.isnan(regret) else math.inf


def _drawn(regret: float) -> float:
    return min(max(_finite(regret), _LEAST), _MOST)
