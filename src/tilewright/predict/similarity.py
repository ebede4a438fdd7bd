"""How a device lies to those whose kernels are known: which class it is most like, and how fast it
is beside the one of its own class whose kernels came along.

Kernels that were measured on both are probes: where the ratio of the times is the same for all of
them, the new device is the old one, faster or slower, and what is known of the old one carries
over. So the class whose ratios lie closest together is the nearest. `collect` draws the same
configurations and settings everywhere, so that a few of its kernels are such probes. Without enough
of them the datasheets decide.

Machines of one class are not equally fast: clocks, memory and neighbours on a shared host differ.
Where a machine has measured some kernels of a family, their times over those that the shipped rows'
model gives have a common factor, and what the shipped rows say is moved by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2

import numpy as np

from tilewright.core.records import Candidate, Placement
from tilewright.cost.floors import Peaks
from tilewright.predict.collected import Row, kernels_of
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.kernel_features import kernel_table

LEAST_PROBES = 10
"""Fewer kernels measured on both devices than this say nothing."""

LEAST_ROWS, LEAST_OPERATORS = 20, 5
"""Fewer rows of a family, or of fewer operators, say nothing of a machine's speed."""

_MOST = 200
_ALIKE = 0.03
"""A factor nearer to 1 than this is none."""


def nearest(
    placement: Placement,
    own: Sequence[Row],
    known: Sequence[Placement],
    rows: Callable[[int], Sequence[Row]],
) -> tuple[int, int]:
    """Which of the `known` classes, at least one, a device is most like on which the `own` kernels
    were measured: the one with the least `unlikeness` where each shares `LEAST_PROBES` kernels with
    it, else the one whose datasheet is closest: its place, and how many kernels told so, 0 where
    datasheets did. `rows` reads what was measured at a place."""
    places = range(len(known))
    by_datasheet = min(places, key=lambda place: distance(known[place], placement))
    if len(own) < LEAST_PROBES or len(known) == 1:
        return by_datasheet, 0
    times = _times(own)
    told = [
        [seconds / known_s[kernel] for kernel, seconds in times.items() if kernel in known_s]
        for known_s in (_times(rows(place)) for place in places)
    ]
    if min(map(len, told)) < LEAST_PROBES:
        return by_datasheet, 0
    place = min(places, key=lambda place: unlikeness(told[place]))
    return place, len(told[place])


def _times(rows: Sequence[Row]) -> dict[tuple[str, Candidate], float]:
    return {(row.workload.key, row.candidate): row.latency_s for row in rows}


def unlikeness(ratios: Sequence[float]) -> float:
    """How far the logarithms of the ratios lie from their median, on average: 0 for a device that
    is only faster or slower."""
    logarithms = np.log(ratios)
    return float(np.abs(logarithms - np.median(logarithms)).mean())


def distance(known: Placement, placement: Placement) -> float:
    """How unlike two placements are: doublings of vector width, threads and caches; another CPU of
    the same sizes counts a little, too."""
    if known.key == placement.key:
        return -1.0
    one, other = known.target, placement.target
    return (
        2 * _doublings(one.vector_bytes, other.vector_bytes)
        + _doublings(known.resources.threads, placement.resources.threads)
        + _doublings(one.cache_bytes(2), other.cache_bytes(2)) / 2
        + _doublings(one.cache_bytes(3), other.cache_bytes(3)) / 4
        + 0.25 * (one.model != other.model)
    )


def _doublings(one: float, other: float) -> float:
    return abs(log2(max(1.0, one) / max(1.0, other)))


def slowdown(rows: Sequence[Row], model: FamilyModel, placement: Placement, peaks: Peaks) -> float:
    """The median of measured over predicted times, each operator counting once; 1 where the factor
    is too near to 1 to be told from it.

    `rows` are this machine's, `enough` of the model's family, `peaks` those that the model learnt
    with. Of many rows 200 are asked about, spread over all.
    """
    asked = [rows[int(n)] for n in np.linspace(0, len(rows) - 1, min(len(rows), _MOST)).round()]
    said = model.predict(kernel_table(kernels_of(asked), placement, peaks)).predicted
    operators: dict[str, list[float]] = {}
    for row, predicted_s in zip(asked, said, strict=True):
        ratio = float(np.log(row.latency_s / predicted_s))
        operators.setdefault(row.workload.key, []).append(ratio)
    common = float(np.median([np.median(found) for found in operators.values()]))
    return float(np.exp(common)) if abs(common) >= _ALIKE else 1.0


def enough(rows: Sequence[Row]) -> bool:
    """Whether rows of one family can tell how fast a machine is."""
    return len(rows) >= LEAST_ROWS and len({row.workload.key for row in rows}) >= LEAST_OPERATORS
