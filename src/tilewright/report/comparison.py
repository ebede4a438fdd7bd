"""The verdict over several models: geometric means, and today against an earlier run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from tilewright.core.comparisons import EQUAL, LESS, CompareRow
from tilewright.core.timings import Speedup

OUR_PRECISION = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstBaseline:
    """Both runs over the models, and per model the peers, that they share.

    `ratio` is the geometric mean now divided by the one then: below 1 means slower.
    """

    models: tuple[str, ...]
    now: Speedup
    then: Speedup
    other_threads: bool

    @property
    def ratio(self) -> float:
        """Speed now over speed then, both relative to the peers."""
        return self.now.value / self.then.value

    @property
    def ratio_bounds(self) -> tuple[float | None, float | None]:
        """The least and the greatest ratio within both intervals; None where one has none."""
        now, then = self.now, self.then
        if now.low is None or now.high is None or then.low is None or then.high is None:
            return None, None
        return now.low / then.high, now.high / then.low


def coarsest(row: CompareRow) -> str:
    """The precision of our network, of a mixture `auto (bf16)` the coarsest one in it."""
    return row.own_precision.removeprefix("auto (").removesuffix(")")


def counts(row: CompareRow) -> bool:
    """Whether a peer ran in the coarsest precision of our network, and was timed."""
    return row.precision == coarsest(row) and _positive(row.speedup)


def no_more_error(row: CompareRow) -> bool:
    """Whether a peer, in whatever precision, has no more error than our network, and was timed."""
    return row.peer_error in (LESS, EQUAL) and _positive(row.speedup)


def fastest_peers(
    rows: Iterable[CompareRow], counted: Callable[[CompareRow], bool] = counts
) -> dict[str, CompareRow]:
    """For each model the row of its fastest peer among those that count, by default in our
    network's precision: the lowest speed-up."""
    fastest: dict[str, CompareRow] = {}
    for row in filter(counted, rows):
        known = fastest.get(row.model)
        if known is None or row.speedup < known.speedup:
            fastest[row.model] = row
    return fastest


def geomean_speedup(
    rows: Iterable[CompareRow], counted: Callable[[CompareRow], bool] = counts
) -> Speedup | None:
    """The geometric mean over the models, each against its fastest peer among those that count, by
    default in the same precision.

    Its bounds are the geometric means of the models' bounds, as though all erred to the same side:
    wider than needed. None when no row counts.
    """
    fastest = fastest_peers(rows, counted).values()
    if not fastest:
        return None
    lows = [row.speedup_low for row in fastest if row.speedup_low is not None]
    highs = [row.speedup_high for row in fastest if row.speedup_high is not None]
    bounded = len(lows) == len(highs) == len(fastest)
    return Speedup(
        value=geometric_mean(row.speedup for row in fastest),
        low=geometric_mean(lows) if bounded else None,
        high=geometric_mean(highs) if bounded else None,
    )


def against_baseline(
    rows: Sequence[CompareRow], earlier: Sequence[CompareRow]
) -> AgainstBaseline | None:
    """Compare two runs on what both hold, a (model, peer) at a time; None when that is nothing."""
    pairs = _pairs(rows) & _pairs(earlier)
    now = [row for row in rows if _identity(row) in pairs]
    then = [row for row in earlier if _identity(row) in pairs]
    now_mean = geomean_speedup(now)
    then_mean = geomean_speedup(then)
    if now_mean is None or then_mean is None:
        return None
    return AgainstBaseline(
        models=tuple(dict.fromkeys(row.model for row in now if counts(row))),
        now=now_mean,
        then=then_mean,
        other_threads={row.threads for row in now} != {row.threads for row in then},
    )


def _pairs(rows: Iterable[CompareRow]) -> set[tuple[str, str, str]]:
    return {_identity(row) for row in rows if counts(row)}


def _identity(row: CompareRow) -> tuple[str, str, str]:
    return row.model, row.peer, coarsest(row)


def _positive(value: float) -> bool:
    return value > 0 and math.isfinite(value)
