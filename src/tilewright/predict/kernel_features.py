"""Kernels as rows of numbers: features of the operator, of the layouts, of the schedule.

A kernel is a workload with a candidate. Its columns are `op.*` (see `operator_features`),
`layout.*`, `implementation.*` (1 for its own), `knob.*` (numbers as they are, other values 1 where
chosen) and `schedule.*` (what the implementation's facts say of the setting). What a kernel does
not have is NaN, which trees take as an answer of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, KnobValue, Placement, Settings
from tilewright.cost import floors
from tilewright.cost.floors import Peaks
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import KnobColumns, knob_columns
from tilewright.kernels.estimates import facts_of_many, work_of
from tilewright.kernels.registry import implementation
from tilewright.predict.base import Features, Floats
from tilewright.predict.operator_features import (
    lanes_of,
    layout_features,
    operator_columns,
    sizes_of,
)

Kernel = tuple[Workload, Candidate]
_Columns = dict[str, Floats | float]
_NOWHERE = np.zeros(0, dtype=np.int64)
_Part = tuple[npt.NDArray[np.intp], _Columns]


_IMPLEMENTATION = "implementation."


def implementation_of(table: Features) -> npt.NDArray[Any]:
    """The name of each row's implementation."""
    found = np.full(len(table), "", dtype=object)
    for column, name in enumerate(table.names):
        if name.startswith(_IMPLEMENTATION):
            found[table.values[:, column] == 1] = name.removeprefix(_IMPLEMENTATION)
    return found


def kernel_table(kernels: Sequence[Kernel], placement: Placement, peaks: Peaks) -> Features:
    """The facts of many kernels, computed together; those of schedules operator by operator where
    an implementation does not tell those of many. The scale of a row is the floor of what its
    implementation's algorithm must do, `op.roof_s` that of the operator's definition."""
    if not kernels:
        return Features(names=(), values=np.zeros((0, 0)), scale=np.zeros(0))
    distinct = {workload.text: workload for workload, _ in kernels}
    numbers = {text: number for number, text in enumerate(distinct)}
    which = np.array([numbers[workload.text] for workload, _ in kernels])
    operators = list(distinct.values())
    facts = _of_operators(operators, placement, peaks)
    everywhere, roof_s = np.arange(len(kernels)), np.zeros(len(kernels))
    lanes = lanes_of(operators, placement.target)[which]
    parts: list[_Part] = [(everywhere, {name: found[which] for name, found in facts.items()})]
    for (name, forms), rows in _alike(kernels).items():
        listed = [dict(kernels[row][1].settings) for row in rows]
        settings = knob_columns(listed) or listed
        asked = [kernels[row][0] for row in rows]
        spec, target, resources = implementation(name), placement.target, placement.resources
        chosen, places = np.unique(which[rows], return_inverse=True)
        works = floors.columns([work_of(operators[int(n)], name, target) for n in chosen])
        roof_s[rows] = floors.floor_s(works, peaks)[places]
        facts = facts_of_many(spec, asked, target, resources, forms, settings)
        mine: _Columns = {**_of_candidate(name, forms), **_knobs(settings)}
        mine |= _vectors(settings, lanes[rows])
        mine |= _schedule(facts, placement, settings, roof_s[rows])
        parts.append((np.array(rows), mine))
    return _assembled(parts, roof_s)


def _alike(kernels: Sequence[Kernel]) -> dict[tuple[str, tuple[Form, ...]], list[int]]:
    """The kernels of each implementation with its layouts."""
    groups: dict[tuple[str, tuple[Form, ...]], list[int]] = {}
    for number, (_, candidate) in enumerate(kernels):
        groups.setdefault((candidate.implementation, candidate.forms), []).append(number)
    return groups


def _of_operators(
    workloads: Sequence[Workload], placement: Placement, peaks: Peaks
) -> dict[str, Floats]:
    """The facts that no candidate changes."""
    works = floors.columns(
        [floors.least_work(workload, placement.target) for workload in workloads]
    )
    facts = operator_columns(workloads, sizes_of(workloads), placement)
    facts["roof_s"] = np.log2(floors.floor_s(works, peaks))
    return {f"op.{name}": found for name, found in facts.items()}


def _of_candidate(name: str, forms: tuple[Form, ...]) -> dict[str, float]:
    blocks = {f"layout.{port}": value for port, value in layout_features(forms).items()}
    return {**blocks, f"{_IMPLEMENTATION}{name}": 1.0}


def _knobs(settings: Sequence[Settings]) -> _Columns:
    """A column per number of a setting, one per text that occurs."""
    columns: dict[str, Floats] = {}
    for name, values, places in _taken_apart(settings):
        for place, value in enumerate(values):
            for column, number in _knob_numbers(name, value):
                numbers = columns.setdefault(column, np.full(len(settings), np.nan))
                numbers[places == place] = number
    return dict(columns)


def _taken_apart(
    settings: Sequence[Settings],
) -> Iterable[tuple[str, Sequence[KnobValue], npt.NDArray[np.int64]]]:
    """Each knob with its values, and which of them each setting has; −1 for one without it."""
    if isinstance(settings, KnobColumns):
        for name in settings.names:
            yield name, settings.values(name), settings.places(name)
        return
    for name in dict.fromkeys(chain.from_iterable(settings)):
        values = list(dict.fromkeys(one[name] for one in settings if name in one))
        places = [values.index(one[name]) if name in one else -1 for one in settings]
        yield name, values, np.array(places)


def _knob_numbers(name: str, value: KnobValue) -> Iterable[tuple[str, float]]:
    if isinstance(value, (bool, int)):
        return [(f"knob.{name}", float(value))]
    parts = value.split(",")
    if all(part.isdigit() for part in parts):
        return [(f"knob.{name}.{place}", float(part)) for place, part in enumerate(parts)]
    return [(f"knob.{name}={value}", 1.0)]


def _schedule(
    facts: Mapping[str, Floats], placement: Placement, settings: Sequence[Settings], roof_s: Floats
) -> _Columns:
    """The implementation's facts, and what follows from them the same way for all."""
    columns: _Columns = {f"schedule.{name}": np.asarray(found) for name, found in facts.items()}
    estimate_s = np.asarray(facts["estimate_s"], dtype=np.float64)
    pieces = np.fmax(1.0, facts.get("parallel_extent", np.ones(len(settings))))
    rounds = np.ceil(pieces / placement.resources.threads)
    columns["schedule.estimate_s"] = np.log2(estimate_s)
    columns["schedule.estimate_over_roof"] = np.log2(estimate_s / roof_s)
    columns["schedule.balance"] = pieces / (rounds * placement.resources.threads)
    columns["schedule.round_s"] = np.log2(estimate_s / rounds)
    for name, found in facts.items():
        if name.endswith("_bytes"):
            sizes = np.maximum(1.0, found)
            columns[f"schedule.{name}_of_l1"] = np.log2(sizes / placement.target.cache_bytes(1))
            columns[f"schedule.{name}_of_l2"] = np.log2(sizes / placement.target.cache_bytes(2))
    return columns


def _vectors(settings: Sequence[Settings], registers: Floats) -> _Columns:
    """Whole registers in a vector of `lanes` values, the values beyond them, and how many powers
    of two these are torn into; nothing for schedules without that knob. `registers` says how many
    values fill a register."""
    _, values, places = next(
        (knob for knob in _taken_apart(settings) if knob[0] == "lanes"), ("lanes", (), _NOWHERE)
    )
    known = [value for value in values if isinstance(value, int)]
    if not known or len(known) < len(values) or places.min() < 0:
        return {}
    counts = np.array(known)[places]
    beyond = counts % registers
    ones = np.array([number.bit_count() for number in range(int(beyond.max()) + 1)])
    return {
        "schedule.whole_vectors": counts // registers,
        "schedule.beyond_vectors": beyond,
        "schedule.torn_pieces": np.where(counts > registers, ones[beyond.astype(int)], 0.0),
    }


def _assembled(parts: Sequence[_Part], roof_s: Floats) -> Features:
    names = tuple(sorted({name for _, columns in parts for name in columns}))
    place = {name: column for column, name in enumerate(names)}
    values = np.full((len(names), len(roof_s)), np.nan)
    for rows, columns in parts:
        for name, found in columns.items():
            values[place[name], rows] = found
    return Features(names=names, values=np.ascontiguousarray(values.T), scale=roof_s)
