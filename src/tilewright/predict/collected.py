"""Measured kernels, from a database or from a file that one wrote: as training sets, and the times
between two that differ in size alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tilewright.core.codec import canonical_json, digest
from tilewright.core.forms import form_texts
from tilewright.core.predictions import Source
from tilewright.core.records import Candidate, Measurement, Placement
from tilewright.cost.floors import Peaks
from tilewright.graph.workload import Workload
from tilewright.predict.base import Floats
from tilewright.predict.family_models import TrainingSet
from tilewright.predict.kernel_features import Kernel, kernel_table

_USUAL, _BYTES = "float32", ("int8", "uint8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kernel and its time, the median over all measurements of it; the same of the energy of a
    call, None where that was never measured."""

    workload: Workload
    candidate: Candidate
    latency_s: float
    energy_j: float | None = None


def family_of(workload: Workload) -> str:
    """The family whose model answers for a workload: its anchor's operator; depthwise convolutions
    are a family of their own, and so is every element type other than float32.

    `conv2d` of 64 groups on 64 channels → `depthwise`, of `int8` or `uint8` → `conv2d_int8`
    """
    name, anchor, dtype = workload.anchor_name, workload.anchor, workload.element_type
    if dtype in _BYTES:
        return f"{name}_int8"
    if anchor is not None and name == "conv2d":
        channels = workload.types[anchor.inputs[0]].shape[1]
        name = "depthwise" if anchor.integer("groups") == channels > 1 else name
    return name if dtype == _USUAL else f"{name}_{dtype}"


def rows_of(measurements: Iterable[Measurement], workloads: Mapping[str, Workload]) -> list[Row]:
    """A row per kernel that was measured with at least a few samples, or is slow."""
    found: dict[tuple[str, Candidate], list[Measurement]] = {}
    for one in measurements:
        if one.workload_key in workloads and one.samples_s:
            found.setdefault((one.workload_key, one.candidate), []).append(one)
    rows: list[Row] = []
    for (key, candidate), same in found.items():
        uses = [one.energy for one in same if one.energy is not None]
        energies_j = [use.energy_j for use in uses if use.energy_j is not None]
        rows.append(
            Row(
                workload=workloads[key],
                candidate=candidate,
                latency_s=median(one.latency_s for one in same),
                energy_j=median(energies_j) if energies_j else None,
            )
        )
    return rows


def by_family(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their family, each in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(family_of(row.workload), []).append(row)
    return found


def kernels_of(rows: Iterable[Row]) -> list[Kernel]:
    """The kernel of each row."""
    return [(row.workload, row.candidate) for row in rows]


def training_set(
    rows: Sequence[Row], family: str, placement: Placement, peaks: Peaks
) -> TrainingSet:
    """The features and times of a family's rows at a placement."""
    mine = [row for row in rows if family_of(row.workload) == family]
    keys = [row.workload.key for row in mine]
    return TrainingSet(
        family=family,
        features=kernel_table(kernels_of(mine), placement, peaks),
        target=np.array([row.latency_s for row in mine]),
        configurations=np.unique(keys, return_inverse=True)[1].ravel().astype(np.int64),
        groups=np.array([row.candidate.implementation for row in mine], dtype=object),
        device_class=str(placement.key),
        peaks=peaks,
        data_hash=digest("\n".join(sorted(map(_identity, mine)))),
    )


def _identity(row: Row) -> str:
    """Workload, candidate, seconds."""
    chosen = row.candidate
    kernel = [chosen.implementation, chosen.settings, form_texts(chosen.forms)]
    return canonical_json([row.workload.key, canonical_json(kernel), row.latency_s])


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
