"""Measured kernels as training sets: from a database, or from a file that one wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from tilewright.core.fingerprints import canonical_json
from tilewright.core.forms import form_texts
from tilewright.core.records import Candidate, Measurement, Placement
from tilewright.graph.workload import Workload
from tilewright.predict.kernel_facts import KernelTable, kernel_table
from tilewright.predict.kernel_models import TrainingSet, data_hash

ELEMENTWISE = "elementwise"
_FEW_SAMPLES = 3

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
    samples: dict[tuple[str, Candidate], list[float]] = {}
    energies: dict[tuple[str, Candidate], list[float]] = {}
    for measurement in measurements:
        if measurement.workload_key in workloads and measurement.samples_s:
            key = (measurement.workload_key, measurement.candidate)
            samples.setdefault(key, []).append(measurement.latency_s)
            if measurement.energy is not None and measurement.energy.energy_j is not None:
                energies.setdefault(key, []).append(measurement.energy.energy_j)
    return [
        Row(
            workload=workloads[key],
            candidate=candidate,
            latency_s=float(np.median(times)),
            energy_j=median(energies[key, candidate]) if (key, candidate) in energies else None,
        )
        for (key, candidate), times in samples.items()
    ]


def training_set(
    rows: Sequence[Row], family: str, placement: Placement, peaks: Mapping[str, float]
) -> TrainingSet:
    """The facts and times of a family's rows at a placement."""
    mine = [row for row in rows if family_of(row.workload) == family]
    table = (
        kernel_table([(row.workload, row.candidate) for row in mine], placement, peaks)
        if mine
        else KernelTable(names=(), values=np.empty((0, 0)), roof_s=np.empty(0))
    )
    keys = [row.workload.key for row in mine]
    return TrainingSet(
        family=family,
        device_class=str(placement.key),
        peaks=peaks,
        table=table,
        latency_s=np.array([row.latency_s for row in mine]),
        configurations=np.unique(keys, return_inverse=True)[1].ravel().astype(np.int64),
        data_hash=data_hash(
            [(row.workload.key, _identity(row.candidate), row.latency_s) for row in mine]
        ),
    )


def _identity(candidate: Candidate) -> str:
    return canonical_json(
        [candidate.implementation, candidate.settings, form_texts(candidate.forms)]
    )
