"""Settings of one implementation with single knobs exchanged, and what a model says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.kernels.knobspace import Numbers
from tilewright.kernels.spaces import TaskSpace
from tilewright.predict.base import Floats
from tilewright.predict.insight import Exchange, exchange
from tilewright.predict.kernel_facts import Kernel

Times = Callable[[Sequence[Kernel]], Floats]
"""Seconds of kernels."""


def knob_exchanges(space: TaskSpace, numbers: Numbers, times: Times) -> dict[str, Exchange]:
    """What each knob with more than one value does to the settings at `numbers`, at least one, all
    of them valid, while the other knobs stay."""
    knobs = space.part.knobs
    digits = knobs.digits(numbers)
    variants = {
        place: _with_each_value(digits, place, len(knob.values))
        for place, knob in enumerate(knobs.knobs)
        if len(knob.values) > 1
    }
    asked = {place: knobs.compose(rows) for place, rows in variants.items()}
    valid = {place: knobs.accepted(found) for place, found in asked.items()}
    kernels: list[Kernel] = [
        (space.workload, space.part.candidate(int(number)))
        for place, found in asked.items()
        for number in found[valid[place]]
    ]
    if not kernels:
        return {}
    said = iter(times(kernels).tolist())
    result: dict[str, Exchange] = {}
    for place, accepted in valid.items():
        table = np.full(len(accepted), np.nan)
        table[accepted] = [next(said) for _ in range(int(accepted.sum()))]
        knob = knobs.knobs[place]
        result[knob.name] = exchange(table.reshape(len(digits), -1), digits[:, place], knob.values)
    return result


def _with_each_value(digits: Numbers, place: int, values: int) -> Numbers:
    """Each row as often as there are values, with each of them at `place`."""
    rows = np.repeat(digits, values, axis=0)
    rows[:, place] = np.tile(np.arange(values), len(digits))
    return rows
