"""What copying tensors to a device and back takes, by a clock of this machine.

    4 bytes   there 310 µs   back 190 µs      what a copy takes that has nothing to carry
    4 MiB     there 360 ms   back 361 ms      and what its bytes add

A copy there is what a part of a plan does for each tensor that it reads: memory of its own on the
device, then the bytes; a copy back is what it does for each that others read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

Copied = tuple[int, float, float]
"""Bytes of a tensor, and seconds of the way there and back."""
_LITTLE, _FIRST, _MOST = 4, 1 << 16, 1 << 24
"""Bytes of a tensor that carries nothing, of the first that carries something, and at most."""
_LONG_S = 0.05
"""Larger tensors are not tried when both ways take that long."""
_ROUNDS, _FEWEST, _ENOUGH_S = 9, 3, 10.0
"""Rounds of a little and a large tensor, and how many there are at least when so long is over."""


def timed_copies(device: Any, clock: Callable[[], float]) -> list[Copied]:
    """Copies of a little tensor and of a large one in turn, to a device of TVM's and back, timed by
    a `clock` that tells seconds. How large the large one is follows from how long copies take."""
    began_s = clock()
    _copied(device, _LITTLE, clock)
    size = _FIRST
    while size < _MOST and sum(_copied(device, size, clock)[1:]) < _LONG_S:
        size *= 4
    found: list[Copied] = []
    for number in range(_ROUNDS):
        if number >= _FEWEST and clock() - began_s > _ENOUGH_S:
            break
        found += [_copied(device, each, clock) for each in (_LITTLE, size)]
    return found


def _copied(device: Any, size: int, clock: Callable[[], float]) -> Copied:
    sent = np.ones(size, np.uint8)
    begin_s = clock()
    there = tvm.runtime.tensor(sent, device)
    middle_s = clock()
    there.numpy()
    return size, middle_s - begin_s, clock() - middle_s
