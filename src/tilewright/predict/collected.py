"""Measured kernels as training sets: from a database, or from a file that one wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.forms import form_texts
from tilewright.core.records import Candidate, Measurement, Placement
from tilewright.cost.floors import Peaks
from tilewright.graph.workload import Workload
from tilewright.predict.family_models import TrainingSet
from tilewright.predict.kernel_features import Kernel, implementation_of, kernel_table

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


def kernels_of(rows: Iterable[Row]) -> list[Kernel]:
    """The kernel of each row."""
    return [(row.workload, row.candidate) for row in rows]


def training_set(
    rows: Sequence[Row], family: str, placement: Placement, peaks: Peaks
) -> TrainingSet:
    """The features and times of a family's rows at a placement."""
    mine = [row for row in rows if family_of(row.workload) == family]
    features = kernel_table(kernels_of(mine), placement, peaks)
    keys = [row.workload.key for row in mine]
    return TrainingSet(
        family=family,
        features=features,
        target=np.array([row.latency_s for row in mine]),
        configurations=np.unique(keys, return_inverse=True)[1].ravel().astype(np.int64),
        groups=implementation_of(features),
        device_class=str(placement.key),
        peaks=peaks,
        data_hash=digest("\n".join(sorted(map(_identity, mine)))),
    )


def _identity(row: Row) -> str:
    """Workload, candidate, seconds."""
    chosen = row.candidate
    kernel = [chosen.implementation, chosen.settings, form_texts(chosen.forms)]
    return canonical_json([row.workload.key, canonical_json(kernel), row.latency_s])
