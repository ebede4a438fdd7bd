"""Kernels as rows of numbers: facts of the operator, of the layouts, of the schedule.

A kernel is a workload with a candidate. Its columns are `op.*` (see `operator_facts`), `layout.*`,
`implementation.*` (1 for its own), `knob.*` (sizes as logarithms, other values 1 where chosen) and
`schedule.*` (what the implementation's facts say of the setting). What a kernel does not have is
NaN, which trees take as an answer of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.core.records import Candidate, Device, KnobValue
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation
from tilewright.predict.operator_facts import layout_facts, operator_facts, roofline_s

Floats = npt.NDArray[np.float64]
Kernel = tuple[Workload, Candidate]
_Row = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """Rows × `names`, and the roofline time of each row in seconds."""

    names: tuple[str, ...]
    values: Floats
    roof_s: Floats

    def aligned(self, names: Sequence[str]) -> Floats:
        """The same rows with these columns; NaN for those that are not here."""
        place = {name: column for column, name in enumerate(self.names)}
        found = np.full((len(self.values), len(names)), np.nan)
        for column, name in enumerate(names):
            if name in place:
                found[:, column] = self.values[:, place[name]]
        return found


def kernel_table(
    kernels: Sequence[Kernel], device: Device, peaks: Mapping[str, float]
) -> KernelTable:
    """The facts of many kernels; those of one workload, implementation and layouts are computed
    together."""
    rows: list[_Row] = [{} for _ in kernels]
    roof_s = np.zeros(len(kernels))
    for numbers in _alike(kernels):
        workload, first = kernels[numbers[0]]
        shared = _shared(workload, first, device)
        roof_s[numbers] = roofline_s(workload, peaks)
        shared["op.roof_s"] = float(np.log2(roof_s[numbers[0]]))
        spec = implementation(first.implementation)
        settings = [dict(kernels[number][1].settings) for number in numbers]
        facts = spec.facts(workload, device, first.layouts, settings)
        for place, number in enumerate(numbers):
            own = {f"schedule.{name}": float(column[place]) for name, column in facts.items()}
            rows[number] = {**shared, **own, **_knobs(settings[place])}
            _derive(rows[number], float(roof_s[number]), device)
    return _table(rows, roof_s)


def _alike(kernels: Sequence[Kernel]) -> Iterable[list[int]]:
    groups: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
    for number, (workload, candidate) in enumerate(kernels):
        key = (workload.text, candidate.implementation, candidate.layouts)
        groups.setdefault(key, []).append(number)
    return groups.values()


def _shared(workload: Workload, candidate: Candidate, device: Device) -> _Row:
    row = {f"op.{name}": value for name, value in operator_facts(workload, device).items()}
    row |= {f"layout.{name}": value for name, value in layout_facts(candidate.layouts).items()}
    row[f"implementation.{candidate.implementation}"] = 1.0
    return row


def _knobs(settings: Mapping[str, KnobValue]) -> _Row:
    row: _Row = {}
    for name, value in settings.items():
        if isinstance(value, bool):
            row[f"knob.{name}"] = float(value)
        elif isinstance(value, int):
            row[f"knob.{name}"] = float(value)
        elif all(part.isdigit() for part in value.split(",")):
            for place, part in enumerate(value.split(",")):
                row[f"knob.{name}.{place}"] = float(part)
        else:
            row[f"knob.{name}={value}"] = 1.0
    return row


def _derive(row: _Row, roof_s: float, device: Device) -> None:
    """What follows from the implementation's facts, the same way for all of them."""
    estimate_s = row.pop("schedule.estimate_s")
    row["schedule.estimate_over_roof"] = float(np.log2(estimate_s / roof_s))
    row["schedule.estimate_s"] = float(np.log2(estimate_s))
    pieces = max(1.0, row.get("schedule.parallel_extent", 1.0))
    rounds = -(-pieces // device.threads)
    row["schedule.balance"] = pieces / (rounds * device.threads)
    row["schedule.piece_s"] = float(np.log2(estimate_s / rounds))
    for name in [name for name in row if name.startswith("schedule.") and name.endswith("_bytes")]:
        row[f"{name}_of_l1"] = float(np.log2(max(1.0, row[name]) / device.cpu.l1_bytes))


def _table(rows: Sequence[_Row], roof_s: Floats) -> KernelTable:
    names = tuple(sorted({name for row in rows for name in row}))
    place = {name: column for column, name in enumerate(names)}
    values = np.full((len(rows), len(names)), np.nan)
    for number, row in enumerate(rows):
        for name, value in row.items():
            values[number, place[name]] = value
    return KernelTable(names=names, values=values, roof_s=roof_s)
