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
    Columns,
    Part,
    lanes_of,
    layout_features,
    operator_columns,
    spread,
)

Kernel = tuple[Workload, Candidate]
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
    operators, target = list(distinct.values()), placement.target
    of_operators = _of_operators(operators, placement, peaks)
    lanes, roof_s = lanes_of(operators, target)[which], np.zeros(len(kernels))
    parts: list[Part] = [(slice(None), {name: f[which] for name, f in of_operators.items()})]
    for (name, forms), rows in _alike(kernels).items():
        listed = [dict(kernels[row][1].settings) for row in rows]
        settings = knob_columns(listed) or listed
        chosen, places = np.unique(which[rows], return_inverse=True)
        works = floors.columns([work_of(operators[int(n)], name, target) for n in chosen])
        roof_s[rows] = floors.floor_s(works, peaks)[places]
        asked = [kernels[row][0] for row in rows]
        facts = facts_of_many(
            implementation(name), asked, target, placement.resources, forms, settings
        )
        blocks = {f"layout.{port}": block for port, block in layout_features(forms).items()}
        parts += [
            (rows, {f"{_IMPLEMENTATION}{name}": 1.0, **blocks, **_knobs(settings)}),
            (rows, _vectors(settings, lanes[rows])),
            (rows, _schedule(facts, placement, roof_s[rows])),
        ]
    columns = spread(parts, len(kernels))
    names = tuple(sorted(columns))
    values = np.array([columns[name] for name in names])
    return Features(names=names, values=np.ascontiguousarray(values.T), scale=roof_s)


def _alike(kernels: Sequence[Kernel]) -> dict[tuple[str, tuple[Form, ...]], list[int]]:
    """The kernels of each implementation with its layouts."""
    groups: dict[tuple[str, tuple[Form, ...]], list[int]] = {}
    for number, (_, candidate) in enumerate(kernels):
        groups.setdefault((candidate.implementation, candidate.forms), []).append(number)
    return groups


def _of_operators(workloads: Sequence[Workload], placement: Placement, peaks: Peaks) -> Columns:
    """The facts that no candidate changes."""
    works = floors.columns(
        [floors.least_work(workload, placement.target) for workload in workloads]
    )
    facts = operator_columns(workloads, placement)
    facts["roof_s"] = np.log2(floors.floor_s(works, peaks))
    return {f"op.{name}": found for name, found in facts.items()}


def _knobs(settings: Sequence[Settings]) -> Columns:
    """A column per number of a setting, one per text that occurs."""
    parts = (
        (places == place, dict(_knob_numbers(name, value)))
        for name, values, places in _taken_apart(settings)
        for place, value in enumerate(values)
    )
    return spread(parts, len(settings))


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


def _schedule(facts: Mapping[str, Floats], placement: Placement, roof_s: Floats) -> Columns:
    """The implementation's facts, and what follows from them the same way for all."""
    estimate_s, threads = facts["estimate_s"], placement.resources.threads
    pieces = np.fmax(1.0, facts["parallel_extent"])
    rounds = np.ceil(pieces / threads)
    columns = {
        **facts,
        "estimate_s": np.log2(estimate_s),
        "estimate_over_roof": np.log2(estimate_s / roof_s),
        "balance": pieces / (rounds * threads),
        "round_s": np.log2(estimate_s / rounds),
    } | {
        f"{name}_of_l{level}": np.log2(np.maximum(1.0, found) / placement.target.cache_bytes(level))
        for name, found in facts.items()
        if name.endswith("_bytes")
        for level in (1, 2)
    }
    return {f"schedule.{name}": found for name, found in columns.items()}


def _vectors(settings: Sequence[Settings], registers: Floats) -> Columns:
    """Whole registers in a vector of `lanes` values, the values beyond them, and how many powers
    of two these are torn into; nothing for schedules without that knob. `registers` says how many
    values fill a register."""
    for name, values, places in _taken_apart(settings):
        known = [value for value in values if isinstance(value, int)]
        if name != "lanes" or len(known) < len(values) or places.min() < 0:
            continue
        counts = np.array(known)[places]
        beyond = counts % registers
        ones = np.array([number.bit_count() for number in range(int(beyond.max()) + 1)])
        return {
            "schedule.whole_vectors": counts // registers,
            "schedule.beyond_vectors": beyond,
            "schedule.torn_pieces": np.where(counts > registers, ones[beyond.astype(int)], 0.0),
        }
    return {}
