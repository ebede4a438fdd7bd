"""Kernels as rows of numbers: features of the operator, of the layouts, of the schedule.

A kernel is a workload with a candidate. Its columns are `op.*` (what is known of the workload
whatever computes it: sizes, as logarithms to base 2, and geometry; `docs/reference/predict.md`
names them), `layout.*`, `implementation.*` (1 for its own), `knob.*` (numbers as they are, other
values 1 where chosen) and `schedule.*` (what the implementation's facts say of the setting). What a
kernel does not have is NaN, which trees take as an answer of its own. Nothing here needs a compiler
or a measurement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import log2
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.forms import Form, channel_block, in_channel_blocks
from tilewright.core.grouping import grouped
from tilewright.core.records import Candidate, KnobValue, Placement, Settings
from tilewright.core.targets import Target
from tilewright.cost import floors
from tilewright.cost.floors import Peaks
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import KnobColumns, Numbers, by_type, knob_columns
from tilewright.kernels.convolution import convolutions
from tilewright.kernels.estimates import facts_of_many, work_of
from tilewright.kernels.registry import implementation
from tilewright.predict.base import Features, Floats

Kernel = tuple[Workload, Candidate]
Columns = dict[str, Floats]
Part = tuple[Any, Mapping[str, Any]]
"""Numbers of rows, or one of them, and by name what is known of them."""
_WINDOWED = ("strides", "padding", "dilation", "kernel")


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
    of_operators = operator_columns(operators, placement)
    least = floors.columns([floors.least_work(workload, target) for workload in operators])
    of_operators["roof_s"] = np.log2(floors.floor_s(least, peaks))
    lanes, roof_s = lanes_of(operators, target)[which], np.zeros(len(kernels))
    parts: list[Part] = [
        (slice(None), {f"op.{name}": f[which] for name, f in of_operators.items()})
    ]
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
        parts += [
            (rows, {f"implementation.{name}": 1.0, **_knobs(settings)}),
            (rows, {"layout.data_block": _block(forms[0])}),
            (rows, {"layout.result_block": _block(forms[-1])}),
            (rows, _vectors(settings, lanes[rows])),
            (rows, _schedule(facts, placement, roof_s[rows])),
        ]
    columns = spread(parts, len(kernels))
    names = tuple(sorted(columns))
    values = np.array([columns[name] for name in names])
    return Features(names=names, values=np.ascontiguousarray(values.T), scale=roof_s)


def _alike(kernels: Sequence[Kernel]) -> dict[tuple[str, tuple[Form, ...]], list[int]]:
    """The kernels of each implementation with its layouts."""
    return grouped(
        [
            ((candidate.implementation, candidate.forms), number)
            for number, (_, candidate) in enumerate(kernels)
        ]
    )


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


def spread(parts: Iterable[Part], count: int) -> Columns:
    """Columns of so many rows from parts, each the numbers of rows with what is known of these; NaN
    where no part knows anything."""
    columns: Columns = defaultdict(lambda: np.full(count, np.nan))
    for rows, known in parts:
        for name, values in known.items():
            columns[name][rows] = values
    return columns


def lanes_of(workloads: Sequence[Workload], target: Target) -> Floats:
    """How many elements of the type that each workload is computed in a vector register holds."""
    return by_type([workload.computed_in for workload in workloads], target.lanes)


def operator_columns(workloads: Sequence[Workload], placement: Placement) -> Columns:
    """The facts of many workloads, at least one; NaN where one does not have a fact."""
    target = placement.target
    flop, constant_bytes, data_bytes, result_bytes, elements, last, rank, steps, arguments = (
        np.array([_sizes(workload) for workload in workloads], dtype=np.float64).T
    )
    moved_bytes = constant_bytes + data_bytes + result_bytes
    columns = {
        "flop": np.log2(flop),
        "constant_bytes": np.log2(constant_bytes + 1),
        "data_bytes": np.log2(data_bytes + 1),
        "result_bytes": np.log2(result_bytes + 1),
        "intensity": np.log2(flop / np.maximum(1, moved_bytes)),
        "steps": steps,
        "arguments": arguments,
        "rank": rank,
        "innermost": np.log2(last),
        "innermost_whole": _filled(last, lanes_of(workloads, target)),
        "element_bytes": result_bytes / np.maximum(1, elements),
        "constants_of_l2": np.log2((constant_bytes + 1) / target.cache_bytes(2)),
        "data_of_l2": np.log2((data_bytes + result_bytes + 1) / target.cache_bytes(2)),
        "all_of_l3": np.log2((moved_bytes + 1) / max(1, target.cache_bytes(3))),
    }
    columns |= _extents("extent", [workload.result.shape for workload in workloads])
    convolved = [row for row, w in enumerate(workloads) if w.anchor_name == "conv2d"]
    rest = sorted({*range(len(workloads))}.difference(convolved))
    parts = [*_steps(workloads), *((row, _of_the_anchor(workloads[row])) for row in rest)]
    if convolved:
        parts.append((convolved, _of_convolutions([workloads[r] for r in convolved], placement)))
    return columns | spread(parts, len(workloads))


def _sizes(workload: Workload) -> tuple[int, ...]:
    """What Python looks up in each workload; everything else follows from it in columns."""
    result, constant_bytes = workload.result, workload.constant_bytes
    return (
        max(1, workload.flop),
        constant_bytes,
        workload.bytes - result.bytes - constant_bytes,
        result.bytes,
        result.elements,
        result.shape[-1] if result.shape else 1,
        len(result.shape),
        len(workload.steps),
        len(workload.arguments),
    )


def _steps(workloads: Sequence[Workload]) -> list[Part]:
    """How many steps there are of each operator; most workloads are chains like another one's."""
    chains = grouped(
        [
            (tuple(step.operator for step in workload.steps), row)
            for row, workload in enumerate(workloads)
        ]
    )
    return [
        (rows, {f"steps_{operator}": count for operator, count in Counter(operators).items()})
        for operators, rows in chains.items()
    ]


def _extents(name: str, shapes: Sequence[tuple[int, ...]]) -> Columns:
    """Extents of shapes, the innermost first."""
    most = max(len(shape) for shape in shapes)
    none = (np.nan,) * most
    table = np.array([(shape[::-1] + none)[:most] for shape in shapes], dtype=np.float64)
    return {f"{name}_{n}": np.log2(np.maximum(1, table[:, n])) for n in range(most)}


def _of_the_anchor(workload: Workload) -> dict[str, float]:
    """Of any but convolutions."""
    index, anchor = workload.anchor_index, workload.anchor
    if index is None or anchor is None:
        return _of_movement(workload)
    inputs, output = workload.step_types(index)
    windows = {
        f"{name}_{n}": float(part)
        for name, value in anchor.attributes
        if name in _WINDOWED and isinstance(value, tuple)
        for n, part in enumerate(value)
    }
    depth = log2(max(1.0, workload.flop / (2 * max(1, output.elements))))
    return {**_inputs(inputs[0].shape), "depth": depth, **windows}


def _of_movement(workload: Workload) -> dict[str, float]:
    """Where the innermost axis comes from decides how data moves."""
    moves = [step for step in workload.steps if OPERATORS[step.operator].movement]
    axes = {
        f"axis_{n}": float(part)
        for name, value in (moves[0].attributes if moves else ())
        if isinstance(value, tuple) and name in ("permutation", "axes", "perm")
        for n, part in enumerate(value[::-1])
    }
    return _inputs(workload.arguments[0].type.shape) | axes


def _inputs(shape: tuple[int, ...]) -> dict[str, float]:
    """Extents of the first operand, the innermost first."""
    return {f"input_{n}": log2(max(1, size)) for n, size in enumerate(shape[::-1])}


def _of_convolutions(workloads: Sequence[Workload], placement: Placement) -> Mapping[str, Floats]:
    conv = convolutions(workloads)
    lanes = by_type(conv.computed_in, placement.target.lanes)
    top, left, bottom, right = conv.padding
    padded = (conv.in_height + top + bottom) * (conv.in_width + left + right)
    steps = conv.strides[0] * conv.strides[1]
    columns = {
        "batch": conv.batch,
        "in_channels": np.log2(conv.in_channels),
        "out_channels": np.log2(conv.out_channels),
        "group_in": np.log2(conv.group_in),
        "group_out": np.log2(conv.group_out),
        "groups": np.log2(conv.groups),
        "in_whole": _filled(conv.group_in, lanes),
        "out_whole": _filled(conv.group_out, lanes),
        "in_height": np.log2(conv.in_height),
        "out_height": np.log2(conv.out_height),
        "out_width": np.log2(conv.out_width),
        "out_pixels": np.log2(conv.pixels),
        "kernel_height": conv.kernel[0],
        "kernel_width": conv.kernel[1],
        "stride": conv.strides[0],
        "dilation": conv.dilation[0],
        "padding": top + left + bottom + right,
        "border_share": 1 - conv.in_height * conv.in_width / padded,
        "halo": conv.taps * conv.pixels / np.maximum(1, padded) / steps,
        "depth": np.log2(conv.group_in * conv.taps),
        "threads_over_rows": _filled(conv.batch * conv.out_height, placement.resources.threads),
    }
    return {name: np.asarray(found, dtype=np.float64) for name, found in columns.items()}


def _block(form: Form) -> float:
    """The block of channels, 0 where there are none."""
    return float(channel_block(form)) if in_channel_blocks(form) else 0.0


def _filled(extent: Floats | Numbers, whole: Floats | int) -> Floats:
    """Share that an extent fills of the whole vectors it takes, or of the threads' rounds."""
    return extent / (np.ceil(extent / whole) * whole)
