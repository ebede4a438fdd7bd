"""Kernels as rows of numbers: facts of the operator, of the layouts, of the schedule.

A kernel is a workload with a candidate. Its columns are `op.*` (see `operator_facts`), `layout.*`,
`implementation.*` (1 for its own), `knob.*` (numbers as they are, other values 1 where chosen) and
`schedule.*` (what the implementation's facts say of the setting). What a kernel does not have is
NaN, which trees take as an answer of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.records import Candidate, Device, KnobValue, Settings
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation
from tilewright.predict.operator_facts import layout_facts, operator_facts, roofline_s

Floats = npt.NDArray[np.float64]
Kernel = tuple[Workload, Candidate]
_Columns = dict[str, Floats | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """Rows × `names`, and the roofline time of each row in seconds."""

    names: tuple[str, ...]
    values: Floats
    roof_s: Floats

    def __len__(self) -> int:
        return len(self.values)

    def aligned(self, names: Sequence[str]) -> Floats:
        """The same rows with these columns; NaN for those that are not here."""
        if tuple(names) == self.names:
            return self.values
        place = {name: column for column, name in enumerate(self.names)}
        found = np.full((len(self.values), len(names)), np.nan)
        for column, name in enumerate(names):
            if name in place:
                found[:, column] = self.values[:, place[name]]
        return found


_IMPLEMENTATION = "implementation."


def implementation_of(table: KernelTable) -> npt.NDArray[Any]:
    """The name of each row's implementation."""
    found = np.full(len(table), "", dtype=object)
    for column, name in enumerate(table.names):
        if name.startswith(_IMPLEMENTATION):
            found[table.values[:, column] == 1] = name.removeprefix(_IMPLEMENTATION)
    return found


def kernel_table(
    kernels: Sequence[Kernel], device: Device, peaks: Mapping[str, float]
) -> KernelTable:
    """The facts of many kernels; those of one workload, implementation and layouts are computed
    together. `peaks` as in `roofline_s`."""
    roof_s = np.zeros(len(kernels))
    parts: list[tuple[list[int], _Columns]] = []
    known: dict[str, tuple[dict[str, float], float]] = {}
    for numbers in _alike(kernels):
        workload, first = kernels[numbers[0]]
        if workload.text not in known:
            known[workload.text] = _of_operator(workload, device, peaks)
        facts, floor_s = known[workload.text]
        settings = [dict(kernels[number][1].settings) for number in numbers]
        roof_s[numbers] = floor_s
        columns: _Columns = {**facts, **_of_candidate(first)}
        columns |= _knobs(settings)
        columns |= _schedule(workload, first, device, settings, floor_s)
        parts.append((numbers, columns))
    return _assembled(parts, roof_s)


def _alike(kernels: Sequence[Kernel]) -> Iterable[list[int]]:
    groups: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
    for number, (workload, candidate) in enumerate(kernels):
        key = (workload.text, candidate.implementation, candidate.layouts)
        groups.setdefault(key, []).append(number)
    return groups.values()


def _of_operator(
    workload: Workload, device: Device, peaks: Mapping[str, float]
) -> tuple[dict[str, float], float]:
    """The facts that no candidate changes, and the roofline's time in seconds."""
    floor_s = roofline_s(workload, peaks)
    facts = {f"op.{name}": value for name, value in operator_facts(workload, device).items()}
    return {**facts, "op.roof_s": float(np.log2(floor_s))}, floor_s


def _of_candidate(candidate: Candidate) -> dict[str, float]:
    layouts = layout_facts(candidate.layouts)
    return {
        **{f"layout.{name}": value for name, value in layouts.items()},
        f"{_IMPLEMENTATION}{candidate.implementation}": 1.0,
    }


def _knobs(settings: Sequence[Settings]) -> _Columns:
    """A column per number of a setting, one per text that occurs."""
    columns: dict[str, Floats] = {}
    for row, chosen in enumerate(settings):
        for name, value in chosen.items():
            for column, number in _knob_numbers(name, value):
                if column not in columns:
                    columns[column] = np.full(len(settings), np.nan)
                columns[column][row] = number
    return dict(columns)


def _knob_numbers(name: str, value: KnobValue) -> Iterable[tuple[str, float]]:
    if isinstance(value, (bool, int)):
        return [(f"knob.{name}", float(value))]
    parts = value.split(",")
    if all(part.isdigit() for part in parts):
        return [(f"knob.{name}.{place}", float(part)) for place, part in enumerate(parts)]
    return [(f"knob.{name}={value}", 1.0)]


def _schedule(
    workload: Workload,
    candidate: Candidate,
    device: Device,
    settings: Sequence[Settings],
    roof_s: float,
) -> _Columns:
    """The implementation's facts, and what follows from them the same way for all."""
    spec = implementation(candidate.implementation)
    facts = dict(spec.facts(workload, device, candidate.layouts, settings))
    estimate_s = np.asarray(facts.pop("estimate_s"), dtype=np.float64)
    columns: _Columns = {f"schedule.{name}": np.asarray(found) for name, found in facts.items()}
    columns |= _vectors(settings, device)
    pieces = np.maximum(1.0, facts.get("parallel_extent", np.ones(len(settings))))
    rounds = np.ceil(pieces / device.threads)
    columns["schedule.estimate_s"] = np.log2(estimate_s)
    columns["schedule.estimate_over_roof"] = np.log2(estimate_s / roof_s)
    columns["schedule.balance"] = pieces / (rounds * device.threads)
    columns["schedule.round_s"] = np.log2(estimate_s / rounds)
    for name, found in facts.items():
        if name.endswith("_bytes"):
            sizes = np.maximum(1.0, found)
            columns[f"schedule.{name}_of_l1"] = np.log2(sizes / device.cpu.l1_bytes)
            columns[f"schedule.{name}_of_l2"] = np.log2(sizes / device.cpu.l2_bytes)
    return columns


def _vectors(settings: Sequence[Settings], device: Device) -> _Columns:
    """Whole registers in a vector of `lanes` values, the values beyond them, and how many powers
    of two these are torn into; nothing for schedules without that knob."""
    lanes = [chosen.get("lanes") for chosen in settings]
    if not all(isinstance(value, int) for value in lanes):
        return {}
    counts = np.array(lanes, dtype=np.int64)
    beyond = counts % device.lanes_f32
    torn = np.array([int(value).bit_count() for value in beyond], dtype=np.float64)
    return {
        "schedule.whole_vectors": (counts // device.lanes_f32).astype(np.float64),
        "schedule.beyond_vectors": beyond.astype(np.float64),
        "schedule.torn_pieces": np.where(counts > device.lanes_f32, torn, 0.0),
    }


def _assembled(parts: Sequence[tuple[list[int], _Columns]], roof_s: Floats) -> KernelTable:
    names = tuple(sorted({name for _, columns in parts for name in columns}))
    place = {name: column for column, name in enumerate(names)}
    values = np.full((len(roof_s), len(names)), np.nan)
    for numbers, columns in parts:
        block = np.empty((len(columns), len(numbers)))
        for row, found in enumerate(columns.values()):
            block[row] = found
        values[np.ix_(numbers, [place[name] for name in columns])] = block.T
    return KernelTable(names=names, values=values, roof_s=roof_s)
