"""The verdict over several models: geometric means, and today against an earlier run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.core.results import CompareRow

OUR_PRECISION = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstBaseline:
    """Both runs over the models, and per model the peers, that they share.

    `ratio` is the geometric mean now divided by the one then: below 1 means slower.
    """

    models: tuple[str, ...]
    geomean_speedup: float
    baseline_geomean: float
    other_threads: bool

    @property
    def ratio(self) -> float:
        """Speed now over speed then, both relative to the peers."""
        return self.geomean_speedup / self.baseline_geomean


def fastest_peers(
    rows: Iterable[CompareRow], *, precision: str = OUR_PRECISION
) -> dict[str, CompareRow]:
    """For each model the row of its fastest peer at `precision`: the lowest speed-up."""
    fastest: dict[str, CompareRow] = {}
    for row in rows:
        if row.precision != precision or not _positive(row.speedup):
            continue
        known = fastest.get(row.model)
        if known is None or row.speedup < known.speedup:
            fastest[row.model] = row
    return fastest


def geomean_speedup(rows: Iterable[CompareRow], *, precision: str = OUR_PRECISION) -> float | None:
    """The geometric mean over the models, each against its fastest peer at `precision`.

    None when no row counts.
    """
    fastest = fastest_peers(rows, precision=precision)
    if not fastest:
        return None
    return math.exp(math.fsum(math.log(row.speedup) for row in fastest.values()) / len(fastest))


def against_baseline(
    rows: Sequence[CompareRow], earlier: Sequence[CompareRow], *, precision: str = OUR_PRECISION
) -> AgainstBaseline | None:
    """Compare two runs on what both hold, a (model, peer) at a time; None when that is nothing."""
    pairs = _pairs(rows, precision) & _pairs(earlier, precision)
    now = [row for row in rows if (row.model, row.peer) in pairs]
    then = [row for row in earlier if (row.model, row.peer) in pairs]
    now_mean = geomean_speedup(now, precision=precision)
    then_mean = geomean_speedup(then, precision=precision)
    if now_mean is None or then_mean is None:
        return None
    return AgainstBaseline(
        models=tuple(dict.fromkeys(row.model for row in now if row.precision == precision)),
        geomean_speedup=now_mean,
        baseline_geomean=then_mean,
        other_threads={row.threads for row in now} != {row.threads for row in then},
    )


def _pairs(rows: Iterable[CompareRow], precision: str) -> set[tuple[str, str]]:
    return {
        (row.model, row.peer)
        for row in rows
        if row.precision == precision and _positive(row.speedup)
    }


def _positive(value: float) -> bool:
    return value > 0 and math.isfinite(value)
