"""Times of kernels between two measured ones that differ from them in size alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilewright.core.records import Candidate
from tilewright.graph.workload import Step, Workload

NEAR = 1.25
"""Each of the two is at most this factor away in every extent."""

_SAME_DIRECTION = 0.999

Floats = npt.NDArray[np.float64]
_Form = tuple[tuple[tuple[str, int, str], ...], tuple[Step, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """Seconds, and the interval that the two ends span."""

    latency_s: float
    low_s: float
    high_s: float


@dataclass(slots=True)
class MeasuredKernels:
    """What was measured, by workload, and the workloads by form: those of one form have the same
    steps and differ in size alone."""

    _times: dict[str, dict[Candidate, float]] = field(
        default_factory=dict[str, dict[Candidate, float]]
    )
    _kin: dict[_Form, list[Workload]] = field(default_factory=dict[_Form, list[Workload]])

    def add(self, workload: Workload, candidate: Candidate, latency_s: float) -> None:
        """Take in a kernel's time."""
        times = self._times.get(workload.text)
        if times is None:
            times = self._times[workload.text] = {}
            self._kin.setdefault(_form(workload), []).append(workload)
        times[candidate] = latency_s

    def exact(self, workload: Workload, candidate: Candidate) -> float | None:
        """The measured time of this very kernel, None where there is none."""
        return self._times.get(workload.text, {}).get(candidate)

    def between(self, workload: Workload, candidate: Candidate) -> Between | None:
        """The time on the line between the two nearest kernels that lie on either side, in
        logarithms of sizes and times; None where there are no such two."""
        known = [
            (_extents(other), self._times[other.text][candidate])
            for other in self._kin.get(_form(workload), ())
            if candidate in self._times[other.text]
        ]
        if len(known) < 2:
            return None
        steps = np.array([extents for extents, _ in known]) - _extents(workload)
        lengths = np.linalg.norm(steps, axis=1)
        near = np.flatnonzero((np.abs(steps).max(1) <= np.log(NEAR)) & (lengths > 0))
        best: tuple[float, int, int] | None = None
        for first in near:
            along = steps[near] @ steps[first] / (lengths[near] * lengths[first])
            for second in near[along <= -_SAME_DIRECTION]:
                span = float(lengths[first] + lengths[second])
                if best is None or span < best[0]:
                    best = (span, int(first), int(second))
        if best is None:
            return None
        span, first, second = best
        share = lengths[first] / span
        ends = np.log([known[first][1], known[second][1]])
        middle = float(np.exp((1 - share) * ends[0] + share * ends[1]))
        return Between(
            latency_s=middle,
            low_s=float(np.exp(ends.min())),
            high_s=float(np.exp(ends.max())),
        )


def measured_kernels(
    rows: Sequence[tuple[Workload, Candidate, float]],
) -> MeasuredKernels:
    """What these rows tell."""
    found = MeasuredKernels()
    for workload, candidate, latency_s in rows:
        found.add(workload, candidate, latency_s)
    return found


def _form(workload: Workload) -> _Form:
    """Everything of a workload but its extents."""
    return (
        tuple((a.type.dtype, len(a.type.shape), a.role) for a in workload.arguments),
        workload.steps,
    )


def _extents(workload: Workload) -> Floats:
    """Logarithms of all extents, arguments first, then the result."""
    shapes = [argument.type.shape for argument in workload.arguments] + [workload.result.shape]
    return np.log(np.array([max(1, size) for shape in shapes for size in shape], dtype=np.float64))
