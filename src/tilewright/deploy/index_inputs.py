"""The check of inputs that a network takes for indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.core.errors import InputError
from tilewright.graph.indices import IndexRange
from tilewright.graph.network import Array


def require_valid_indices(name: str, array: Array, ranges: Sequence[IndexRange]) -> None:
    """Raise InputError, naming the value and where it is, when one is outside its range."""
    if not ranges or not array.size:
        return
    lowest = np.array([item.lowest for item in ranges])
    highest = np.array([item.highest for item in ranges])
    columns: Any = array.reshape(-1, len(ranges))
    if np.all(columns.min(axis=0) >= lowest) and np.all(columns.max(axis=0) <= highest):
        return
    row, column = np.argwhere((columns < lowest) | (columns > highest))[0]
    place = np.unravel_index(int(row) * len(ranges) + int(column), array.shape)
    raise InputError(
        f"input {name!r} is {columns[row, column]} at {[int(i) for i in place]}; "
        f"the network takes its values for indices, which are {ranges[column]} there",
        hint="Negative indices count from the end.",
    )
