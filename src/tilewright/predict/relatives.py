"""Which known device class a new one is most like.

Kernels that were measured on both are probes: where the ratio of the times is the same for all of
them, the new device is the old one, faster or slower, and what is known of the old one carries
over. So the class whose ratios lie closest together is the nearest. `collect` draws the same
configurations and settings everywhere, so that a few of its kernels are such probes. Without enough
of them the datasheets decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.records import Candidate, Placement
from tilewright.predict.collected import Row
from tilewright.predict.shipped import distance

LEAST_PROBES = 10
"""Fewer kernels measured on both devices than this say nothing."""

_Times = Mapping[tuple[str, Candidate], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A known device class: one device of it, and what reads the kernels measured there."""

    placement: Placement
    rows: Callable[[], Sequence[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The place of the class that a device is most like; `probes` is the number of kernels that
    told so, 0 where datasheets did."""

    place: int
    probes: int = 0


def nearest(placement: Placement, own: Sequence[Row], known: Sequence[Relative]) -> Nearest:
    """Which of the `known` classes, at least one, a device is most like on which the `own` kernels
    were measured: the one with the least `unlikeness` where each shares `LEAST_PROBES` kernels with
    it, else the one whose datasheet is closest."""
    places = range(len(known))
    by_datasheet = min(places, key=lambda place: distance(known[place].placement, placement))
    if len(own) < LEAST_PROBES or len(known) == 1:
        return Nearest(place=by_datasheet)
    times = _times(own)
    told = [_shared(times, _times(other.rows())) for other in known]
    if min(map(len, told)) < LEAST_PROBES:
        return Nearest(place=by_datasheet)
    place = min(places, key=lambda place: unlikeness(told[place]))
    return Nearest(place=place, probes=len(told[place]))


def unlikeness(ratios: Sequence[float]) -> float:
    """How far the logarithms of the ratios lie from their median, on average: 0 for a device that
    is only faster or slower."""
    logarithms = np.log(ratios)
    return float(np.abs(logarithms - np.median(logarithms)).mean())


def _times(rows: Sequence[Row]) -> _Times:
    return {(row.workload.key, row.candidate): row.latency_s for row in rows}


def _shared(own: _Times, known: _Times) -> list[float]:
    """The ratio of the times of each kernel measured on both."""
    return [seconds / known[kernel] for kernel, seconds in own.items() if kernel in known]
