"""The arrays that a network is given, checked against its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.core.errors import InputError, UsageError, close_matches
from tilewright.deploy.manifest import Port
from tilewright.graph.indices import IndexRange
from tilewright.graph.network import Array


def ordered_inputs(ports: Sequence[Port], inputs: Mapping[str, Array]) -> list[Array]:
    """Arrays by name in the order of a network's inputs. Raises UsageError for a wrong name,
    number, shape or type, InputError for an index out of range."""
    _require_names(ports, inputs)
    return [_checked(port, inputs[port.name]) for port in ports]


def _require_names(ports: Sequence[Port], inputs: Mapping[str, Array]) -> None:
    """Raise UsageError that names the first unknown input and the first that is missing."""
    known = [port.name for port in ports]
    unknown = [name for name in inputs if name not in known]
    missing = [port for port in ports if port.name not in inputs]
    faults = [f"no input is called {name!r}" for name in unknown[:1]]
    faults += [f"input {port.name!r} is missing" for port in missing[:1]]
    hints = [close_matches(name, known) for name in unknown[:1]]
    hints += [f"{port.name!r} is {typed_shape(port)}." for port in missing[:1]]
    if faults:
        raise UsageError(", and ".join(faults), hint=" ".join(hints))


def typed_shape(port: Port) -> str:
    """What an input must be, `float32[1, 3]` say."""
    return f"{port.dtype}{list(port.shape)}"


def _checked(port: Port, given: Array) -> Array:
    """The array for an input; raises UsageError when it is of another type, InputError for an index
    out of range."""
    wanted = typed_shape(port)
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        first = str(error).strip().splitlines() or ["it cannot be converted"]
        raise UsageError(
            f"input {port.name!r} is no array: {first[0]}", hint=f"It is {wanted}."
        ) from error
    if array.shape != port.shape or str(array.dtype) != port.dtype:
        raise UsageError(
            f"input {port.name!r} is {array.dtype}{list(array.shape)}, "
            f"the network was compiled for {wanted}"
        )
    require_valid_indices(port.name, array, port.ranges)
    return array


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
