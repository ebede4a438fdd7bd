"""Times of kernels that were measured, and of those between two that differ in size alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.core.predictions import Source
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.predict.base import Floats
from tilewright.predict.collected import Row

NEAR = 1.25
"""Each of the two is at most this factor away in every extent."""

_SAME_DIRECTION = 0.999


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of one call of a kernel, with the interval that holds 90 % of such."""

    latency_s: float
    low_s: float
    high_s: float
    source: Source
    outside: bool = False


class MeasuredKernels:
    """What was measured, by workload, and the workloads by form: those of one form have the same
    steps and differ in size alone."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._times: dict[str, dict[Candidate, float]] = {}
        self._kin: dict[Any, dict[str, Workload]] = {}
        for row in rows:
            text = row.workload.text
            self._times.setdefault(text, {})[row.candidate] = row.latency_s
            self._kin.setdefault(_form(row.workload), {})[text] = row.workload

    def estimate(self, workload: Workload, candidate: Candidate) -> Estimate | None:
        """The measured time of this very kernel, else that on the line between the two nearest
        kernels that lie on either side, in logarithms of sizes and times, whose ends are the
        interval; None where there are no such two."""
        exact_s = self._times.get(workload.text, {}).get(candidate)
        if exact_s is not None:
            return Estimate(latency_s=exact_s, low_s=exact_s, high_s=exact_s, source="exact")
        known = [
            (_extents(other), self._times[text][candidate])
            for text, other in self._kin.get(_form(workload), {}).items()
            if candidate in self._times[text]
        ]
        if len(known) < 2:
            return None
        steps = np.array([extents for extents, _ in known]) - _extents(workload)
        lengths = np.linalg.norm(steps, axis=1)
        near = np.flatnonzero((np.abs(steps).max(1) <= np.log(NEAR)) & (lengths > 0))
        along = steps[near] @ steps[near].T / np.outer(lengths[near], lengths[near])
        spans = np.add.outer(lengths[near], lengths[near])
        spans = np.where(along <= -_SAME_DIRECTION, spans, np.inf)
        if not np.isfinite(spans).any():
            return None
        first, second = (int(near[n]) for n in np.unravel_index(np.argmin(spans), spans.shape))
        share = lengths[first] / (lengths[first] + lengths[second])
        ends = np.log([known[first][1], known[second][1]])
        return Estimate(
            latency_s=float(np.exp((1 - share) * ends[0] + share * ends[1])),
            low_s=float(np.exp(ends.min())),
            high_s=float(np.exp(ends.max())),
            source="interpolated",
        )


def _form(workload: Workload) -> object:
    """Everything of a workload but its extents."""
    return (
        tuple((a.type.dtype, len(a.type.shape), a.role) for a in workload.arguments),
        workload.steps,
    )


def _extents(workload: Workload) -> Floats:
    """Logarithms of all extents, arguments first, then the result."""
    shapes = [argument.type.shape for argument in workload.arguments] + [workload.result.shape]
    return np.log(np.array([max(1, size) for shape in shapes for size in shape], dtype=np.float64))
