"""What outputs say beside their errors: whether the largest element is the reference's, and where
outputs of a network cannot tell right from wrong.

    one input   [0.1, 0.7, 0.2]      another [0.2, 0.5, 0.3]      the largest is always the second
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import quoted
from tilewright.graph.network import Array

_IMAGE = 4
"""Arrays of so many axes have their classes along the second one, others along the last."""
_LITTLE = 0.01
"""An output of whose power less than this differs between inputs hardly depends on them; so much of
what is not 0 is denormal where that is told."""
_NAMED = 3

Outputs = Sequence[Array]
"""What several runs made of one output."""


def top1(ours: Outputs, theirs: Outputs) -> tuple[int, int]:
    """In how many rows our largest element is the reference's, and how many rows there are, over
    several runs. A row is what has one class: the last axis, of images the second one. Elements
    that are equal in the reference count as one; rows with NaN do not count."""
    agreeing = rows = 0
    for left, right in zip(ours, theirs, strict=True):
        if left.shape != right.shape or not _classes(right):
            continue
        found, known = _rows(left), _rows(right)
        chosen = np.take_along_axis(known, found.argmax(axis=-1)[:, None], axis=-1)[:, 0]
        counted = ~np.isnan(known).any(axis=-1)
        right = (chosen == known.max(axis=-1)) & ~np.isnan(found).any(axis=-1)
        agreeing += int(np.sum(right & counted))
        rows += int(np.sum(counted))
    return agreeing, rows


def untold(theirs: Sequence[Outputs], names: Sequence[str]) -> tuple[str, ...]:
    """Sentences on what errors of a network do not tell, by what the reference made of several
    inputs, output by output: outputs that hardly depend on them, whose largest element is always
    the same, whose numbers are denormal."""
    runs = max((len(each) for each in theirs), default=0)
    several: tuple[tuple[Callable[[Outputs], bool], str], ...] = (
        (
            _alike,
            f"hardly depends on the network's inputs: less than {_LITTLE:.0%} of its power differs "
            f"between the {runs} that results were compared on. Its ratio of signal to noise says "
            "little; that of what differs between inputs says more.",
        ),
        (
            _same_largest,
            f"has its largest element at one place for all {runs} inputs that results were "
            "compared on: that it agrees says little.",
        ),
    )
    always: tuple[tuple[Callable[[Outputs], bool], str], ...] = (
        (
            _denormal,
            f"has numbers of less than {np.finfo(np.float32).tiny:.2g} in size, which are not "
            "normal in float32 and which processors may take for 0: errors relative to them say "
            "little.",
        ),
    )
    found: list[str] = []
    for holds, sentence in (*(several if runs > 1 else ()), *always):
        named = [quoted(name) for name, each in zip(names, theirs, strict=True) if holds(each)]
        if named:
            more = f" (and {len(named) - _NAMED} more)" if len(named) > _NAMED else ""
            outputs = " and ".join(named[:_NAMED])
            each = "Output" if len(named) == 1 else "Each of the outputs"
            found.append(f"{each} {outputs}{more} {sentence}")
    return tuple(found)


def _classes(array: Array) -> bool:
    """Whether rows of an output have a largest element."""
    axis = 1 if array.ndim >= _IMAGE else -1
    return array.ndim > 0 and array.dtype.kind not in "iub" and array.shape[axis] > 1


def _rows(array: Array) -> npt.NDArray[np.floating[Any]]:
    moved = np.moveaxis(array, 1, -1) if array.ndim >= _IMAGE else array
    return moved.reshape(-1, moved.shape[-1]).astype(np.float64)


def _numbers(outputs: Outputs) -> npt.NDArray[np.floating[Any]] | None:
    """Those of all runs, what is not finite as 0; None for outputs that are no fractions."""
    if outputs[0].dtype.kind in "iub":
        return None
    values = np.stack([each.astype(np.float64) for each in outputs])
    return np.where(np.isfinite(values), values, 0.0)


def _alike(outputs: Outputs) -> bool:
    values = _numbers(outputs)
    if values is None or not values.size:
        return False
    differs = values - values.mean(axis=0)
    return float(np.sum(differs**2)) <= _LITTLE * float(np.sum(values**2))


def _same_largest(outputs: Outputs) -> bool:
    if not _classes(outputs[0]):
        return False
    first, *others = (_rows(each).argmax(axis=-1) for each in outputs)
    return all(np.array_equal(first, each) for each in others)


def _denormal(outputs: Outputs) -> bool:
    values = _numbers(outputs)
    if values is None:
        return False
    sizes = np.abs(values[values != 0.0])
    few = int(np.count_nonzero(sizes < np.finfo(np.float32).tiny))
    return few > 0 and few >= _LITTLE * sizes.size
