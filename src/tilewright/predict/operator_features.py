"""What is known of a workload whatever computes it: sizes, geometry.

Sizes are logarithms to base 2 of what `docs/reference/predict.md` names; a fact that a workload
does not have is absent, in a column NaN. Nothing here needs a compiler or a measurement. Many
workloads are described together, as columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
import numpy.typing as npt

from tilewright.core.forms import Form, channel_block, in_channel_blocks
from tilewright.core.records import Placement
from tilewright.core.targets import Target
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import Numbers, by_type
from tilewright.kernels.convolution import convolutions

Floats = npt.NDArray[np.float64]
Columns = dict[str, Floats]
_WINDOWED = ("strides", "padding", "dilation", "kernel")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of many workloads, one array entry each: operations, bytes, elements of the result and
    of its innermost axis, how much there is of what."""

    flop: Floats
    constant_bytes: Floats
    data_bytes: Floats
    result_bytes: Floats
    elements: Floats
    last: Floats
    rank: Floats
    steps: Floats
    arguments: Floats


def sizes_of(workloads: Sequence[Workload]) -> Sizes:
    """Sizes of workloads, at least one."""
    return Sizes(*np.array([_sizes(workload) for workload in workloads], dtype=np.float64).T)


def _sizes(workload: Workload) -> tuple[int, ...]:
    result, constants = workload.result, workload.constant_bytes
    return (
        workload.flop,
        constants,
        workload.bytes - result.bytes - constants,
        result.bytes,
        result.elements,
        result.shape[-1] if result.shape else 1,
        len(result.shape),
        len(workload.steps),
        len(workload.arguments),
    )


def lanes_of(workloads: Sequence[Workload], target: Target) -> Floats:
    """How many elements of the type that each workload is computed in a vector register holds."""
    return by_type([workload.computed_in for workload in workloads], target.lanes)


def operator_columns(workloads: Sequence[Workload], sizes: Sizes, placement: Placement) -> Columns:
    """The facts of many workloads, `sizes` being theirs; NaN where one does not have a fact."""
    moved_bytes = sizes.constant_bytes + sizes.data_bytes + sizes.result_bytes
    flop = np.maximum(1, sizes.flop)
    columns = {
        "flop": np.log2(flop),
        "constant_bytes": np.log2(sizes.constant_bytes + 1),
        "data_bytes": np.log2(sizes.data_bytes + 1),
        "result_bytes": np.log2(sizes.result_bytes + 1),
        "intensity": np.log2(flop / np.maximum(1, moved_bytes)),
        "steps": sizes.steps,
        "arguments": sizes.arguments,
        "rank": sizes.rank,
        "innermost": np.log2(sizes.last),
        "innermost_whole": _filled(sizes.last, lanes_of(workloads, placement.target)),
        "element_bytes": sizes.result_bytes / np.maximum(1, sizes.elements),
        "constants_of_l2": np.log2((sizes.constant_bytes + 1) / placement.target.cache_bytes(2)),
        "data_of_l2": np.log2(
            (sizes.data_bytes + sizes.result_bytes + 1) / placement.target.cache_bytes(2)
        ),
        "all_of_l3": np.log2((moved_bytes + 1) / max(1, placement.target.cache_bytes(3))),
    }
    columns |= _steps(workloads)
    columns |= _extents("extent", [workload.result.shape for workload in workloads])
    convolved = np.array([workload.anchor_name == "conv2d" for workload in workloads])
    if not convolved.all():
        none: dict[str, float] = {}
        rest = [none if c else _of_the_anchor(w) for c, w in zip(convolved, workloads, strict=True)]
        columns |= _gathered(rest)
    if convolved.any():
        chosen = [w for c, w in zip(convolved, workloads, strict=True) if c]
        for name, found in _of_convolutions(chosen, placement).items():
            column = columns.setdefault(name, np.full(len(workloads), np.nan))
            column[convolved] = found
    return columns


def _gathered(rows: Sequence[Mapping[str, float]]) -> Columns:
    """Features of single workloads as columns."""
    places: dict[str, tuple[list[int], list[float]]] = {}
    for row, facts in enumerate(rows):
        for name, value in facts.items():
            numbers, values = places.setdefault(name, ([], []))
            numbers.append(row)
            values.append(value)
    columns: Columns = {}
    for name, (numbers, values) in places.items():
        columns[name] = np.full(len(rows), np.nan)
        columns[name][numbers] = values
    return columns


def _steps(workloads: Sequence[Workload]) -> Columns:
    """How many steps there are of each operator; most workloads are chains like another one's."""
    chains: dict[tuple[str, ...], list[int]] = {}
    for row, workload in enumerate(workloads):
        chains.setdefault(tuple(step.operator for step in workload.steps), []).append(row)
    columns: Columns = {}
    for operators, rows in chains.items():
        for operator, count in Counter(operators).items():
            column = columns.setdefault(f"steps_{operator}", np.full(len(workloads), np.nan))
            column[rows] = count
    return columns


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
    facts = _inputs(inputs[0].shape) | {
        "depth": log2(max(1.0, workload.flop / (2 * max(1, output.elements))))
    }
    for name, value in anchor.attributes:
        if name in _WINDOWED and isinstance(value, tuple):
            facts |= {f"{name}_{n}": float(part) for n, part in enumerate(value)}
    return facts


def _of_movement(workload: Workload) -> dict[str, float]:
    """Where the innermost axis comes from decides how data moves."""
    facts = _inputs(workload.arguments[0].type.shape)
    moves = [step for step in workload.steps if OPERATORS[step.operator].movement]
    for name, value in moves[0].attributes if moves else ():
        if isinstance(value, tuple) and name in ("permutation", "axes", "perm"):
            facts |= {f"axis_{n}": float(part) for n, part in enumerate(value[::-1])}
    return facts


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


def layout_features(forms: tuple[Form, ...]) -> dict[str, float]:
    """The blocks of channels of the first operand and of the result, 0 where they are none."""
    return {
        "data_block": _block(forms[0]),
        "result_block": _block(forms[-1]),
    }


def _block(form: Form) -> float:
    return float(channel_block(form)) if in_channel_blocks(form) else 0.0


def _filled(extent: Floats | Numbers, whole: Floats | int) -> Floats:
    """Share that an extent fills of the whole vectors it takes, or of the threads' rounds."""
    return extent / (np.ceil(extent / whole) * whole)
