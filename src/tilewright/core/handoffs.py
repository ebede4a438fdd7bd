"""What handing over from one call to the next on other cores takes: fields of the JSON contract.

between lanes of one process     0.7 µs, measured on 2026-11-28
between parts in processes       0.7 ms, assumed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.core.records import Placement

HandoffKind = Literal["lanes", "parts"]
"""Between lanes of one process, which are threads of its pool, or between processes that compute
parts of networks."""

HandoffSamples = Callable[[Placement], Sequence[float]]
"""Measures some hand-offs, in seconds; none where it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """Seconds of a hand-off of a kind, the median of those that were measured on `day` (a date of
    UTC), half of which lie from `low_s` to `high_s`; without a day it is assumed."""

    kind: HandoffKind
    seconds: float
    low_s: float
    high_s: float
    day: str = ""


def _assumed(kind: HandoffKind, seconds: float) -> Handoff:
    return Handoff(kind=kind, seconds=seconds, low_s=seconds, high_s=seconds)


ASSUMED: dict[HandoffKind, Handoff] = {
    "lanes": _assumed("lanes", 2e-6),
    "parts": _assumed("parts", 7e-4),
}
"""Those of machines on which nobody measured them: of a Xeon, on which a parallel loop begins after
1.9 µs on two cores and 4.7 µs on sixteen (docs/benchmarks-cores.md), and 0.5 to 0.9 ms pass between
kernels of two processes (docs/decisions/0091-plans-in-parts.md)."""


def nobody_measures(_placement: Placement) -> Sequence[float]:
    """No hand-offs."""
    return ()
