"""Which elements of its arguments a kernel reads for elements of its result, found by following
positions through elementwise steps and movements.

    elements_read(transposed, [0, 1, 2])    [(0, [0, 512, 1024])]: argument 0, 512 elements apart

What is gathered by the values of another tensor is taken to lie at its first row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graph.operators import OPERATORS
from tilewright.graph.operators.movement import nearest_index
from tilewright.graph.workload import Step, Workload
from tilewright.kernels.columns import Bools, Floats, Numbers

SECTOR_BYTES = 32
"""What moves at once from the second-level cache."""

_BANKS = 32
Places = list[Numbers]
"""Positions: one array per axis, negative where nothing is read."""
Parts = list[Places]


def elements_read(
    workload: Workload, positions: Numbers, value: int | None = None
) -> list[tuple[int, Numbers]]:
    """(argument, flat element or -1 for each position) of everything that is read for elements of a
    `value`, by default the result, that are numbered row by row. An anchor is not looked through.
    """
    found: list[tuple[int, Numbers]] = []

    def follow(number: int, at: Places) -> None:
        shape = workload.types[number].shape
        if number < len(workload.arguments):
            found.append((number, _flat(at, shape, len(positions))))
            return
        index = number - len(workload.arguments)
        step = workload.steps[index]
        if OPERATORS[step.operator].anchor:
            return
        operands, result = workload.step_types(index)
        if OPERATORS[step.operator].elementwise:
            parts = [_broadcast(at, kind.shape) for kind in operands]
        else:
            parts = _MOVES[step.operator](at, [o.shape for o in operands], result.shape, step)
        for source, part in zip(step.inputs, parts, strict=False):
            follow(source, part)

    start = len(workload.types) - 1 if value is None else value
    follow(start, list(np.unravel_index(positions, workload.types[start].shape or (1,))))
    return found


def _flat(at: Places, shape: tuple[int, ...], count: int) -> Numbers:
    flat, inside = np.zeros(count, np.int64), np.ones(count, np.bool_)
    for place, extent in zip(at[len(at) - len(shape) :], shape, strict=True):
        flat, inside = flat * extent + place, inside & (place >= 0) & (place < extent)
    return np.where(inside, flat, -1)


def _broadcast(at: Places, shape: tuple[int, ...]) -> Places:
    trailing = at[len(at) - len(shape) :]
    return [
        np.minimum(i, 0) if extent == 1 else i for i, extent in zip(trailing, shape, strict=True)
    ]


def _inside(at: Numbers, extent: int) -> Numbers:
    return np.where((at >= 0) & (at < extent), at, -1)


def _reshape(at: Places, shapes: Sequence[Any], result: Any, _: Step) -> Parts:
    flat = _flat(at, result, len(at[0]) if at else 1)
    moved = np.unravel_index(np.maximum(flat, 0), shapes[0] or (1,))
    return [[np.where(flat < 0, -1, place) for place in moved]]


def _transpose(at: Places, shapes: Sequence[Any], _: Any, step: Step) -> Parts:
    permutation = step.integers("permutation")
    return [[at[permutation.index(axis)] for axis in range(len(permutation))]]


def _slice(at: Places, shapes: Sequence[Any], _: Any, step: Step) -> Parts:
    along = zip(at, step.integers("starts"), step.integers("steps"), strict=True)
    return [[np.where(i < 0, -1, start + i * by) for i, start, by in along]]


def _concat(at: Places, shapes: Sequence[Any], _: Any, step: Step) -> Parts:
    axis, offset, parts = step.integer("axis"), 0, Parts()
    for shape in shapes:
        own = _inside(at[axis] - offset, shape[axis])
        parts.append([*at[:axis], own, *at[axis + 1 :]])
        offset += shape[axis]
    return parts


def _pad(at: Places, shapes: Sequence[Any], _: Any, step: Step) -> Parts:
    moved = [i - before for i, before in zip(at, step.integers("before"), strict=True)]
    if step.named["mode"] == "constant":
        return [[_inside(i, extent) for i, extent in zip(moved, shapes[0], strict=True)]]
    return [[np.clip(i, 0, extent - 1) for i, extent in zip(moved, shapes[0], strict=True)]]


def _gather(at: Places, shapes: Sequence[Any], _: Any, step: Step) -> Parts:
    axis = step.integer("axis")
    beyond = axis + len(shapes[1])
    row = np.zeros_like(at[0]) if at else np.zeros(1, np.int64)
    return [[*at[:axis], row, *at[beyond:]], at[axis:beyond]]


def _cache_write(at: Places, shapes: Sequence[Any], _: Any, step: Step) -> Parts:
    axis, place = step.integer("axis"), [np.zeros_like(at[0]) for _ in shapes[2]]
    rows = np.clip(at[axis], 0, shapes[1][axis] - 1)
    return [at, [*at[:axis], rows, *at[axis + 1 :]], place]


def _resize(at: Places, shapes: Sequence[Any], result: Any, step: Step) -> Parts:
    named: dict[str, Any] = dict(step.named)
    moved = Places()
    for axis, (before, after) in enumerate(zip(shapes[0], result, strict=True)):
        asked, back = np.unique(at[axis], return_inverse=True)
        scale = float(named["scales"][axis])
        table = [nearest_index(int(i), before, after, scale, named) for i in asked]
        moved.append(np.array(table, np.int64)[back.reshape(-1)])
    return [moved]


def _interpolate(at: Places, shapes: Sequence[Any], result: Any, step: Step) -> Parts:
    axis, before = step.integer("axis"), shapes[0][step.integer("axis")]
    near = at[axis] * before // max(1, result[step.integer("axis")])
    tap = [np.zeros_like(near), at[axis]]
    return [[*at[:axis], near, *at[axis + 1 :]], tap, tap]


_MOVES: dict[str, Callable[[Places, Sequence[Any], Any, Step], Parts]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "expand": lambda at, shapes, result, step: [_broadcast(at, shapes[0])],
    "gather": _gather,
    "cache_write": _cache_write,
    "resize_nearest": _resize,
    "interpolate": _interpolate,
}


def distinct(rows: Numbers) -> Floats:
    """How many different numbers each row has."""
    return _firsts(np.sort(rows, axis=1)).sum(axis=1).astype(np.float64)


def turns_of_banks(words: Numbers) -> Floats:
    """How often the busiest bank of shared memory is asked for another of the words that the lanes
    of a warp, a row each, access at once: 1 without conflicts."""
    ordered = np.sort(words, axis=1)
    first, row = _firsts(ordered), np.arange(len(words))[:, None]
    places = (row * _BANKS + ordered % _BANKS)[first]
    counts = np.bincount(places, minlength=len(words) * _BANKS)
    return counts.reshape(-1, _BANKS).max(axis=1).astype(np.float64)


def _firsts(ordered: Numbers) -> Bools:
    """Where in each sorted row a number comes first."""
    new = np.diff(ordered, axis=1) != 0
    return np.concatenate([np.ones((len(ordered), 1), np.bool_), new], axis=1)


def sectors(elements: Numbers, element_bytes: int) -> float:
    """The sectors that a row of flat elements (-1 for none) touches, on average over the rows."""
    touched = np.sort(np.where(elements < 0, -1, elements * element_bytes // SECTOR_BYTES), axis=1)
    return float((_firsts(touched) & (touched >= 0)).sum() / max(1, len(elements)))
