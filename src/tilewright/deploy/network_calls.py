"""Calling a compiled network that is in this process: arrays in the order of its inputs or by their
names, checked before it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.core import arguments
from tilewright.core.errors import (
    InputError,
    TilewrightError,
    UsageError,
    close_matches,
    last_line,
)
from tilewright.deploy.engines import Engine, LoadedNetwork
from tilewright.deploy.manifest import Port
from tilewright.graph.inputs import IndexRange
from tilewright.graph.network import Array
from tilewright.report import formats, tables


class NamedCalls(ABC):
    """What is called with arrays in the order of `inputs`, or by the names of the ONNX file. With
    one output it returns the array, with several a dictionary by name."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @abstractmethod
    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on inputs by name; returns outputs by name. Raises as a call does."""

    def __call__(self, *arrays: Array, **named: Array) -> Array | dict[str, Array]:
        """Run once. Raises UsageError for a wrong name, number, shape or type of input, InputError
        for an index out of range."""
        results = self.run(self._by_name(arrays, named))
        return results[self.outputs[0]] if len(self.outputs) == 1 else results

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<compiled network {self._title()!r}: {facts}>"

    def _repr_html_(self) -> str:
        facts = [(name, value, value) for name, value in self._facts().items()]
        return formats.notebook_fragment([tables.facts_table(self._title(), facts)])

    @abstractmethod
    def _title(self) -> str:
        """What it is called where it is printed."""

    @abstractmethod
    def _facts(self) -> dict[str, str]:
        """What is told of it, by name."""

    def _by_name(self, arrays: tuple[Array, ...], named: Mapping[str, Array]) -> dict[str, Array]:
        if len(arrays) > len(self.inputs):
            raise UsageError(
                f"{len(arrays)} arrays given for {len(self.inputs)} inputs",
                hint="Its inputs: " + ", ".join(map(repr, self.inputs)),
            )
        in_order = dict(zip(self.inputs, arrays, strict=False))
        twice = [name for name in in_order if name in named]
        if twice:
            raise UsageError(f"input {twice[0]!r} is given twice: in order and by its name")
        return {**in_order, **named}


class CallableNetwork(NamedCalls):
    """A compiled network, ready to run in this process.

    Call it with arrays in the order of `inputs`, or by the names of the ONNX file. With one output
    it returns the array, with several a dictionary by name. `threads` is how many a call uses. Any
    thread may call it. `islands` says of each part that ONNX Runtime computes what and why.
    """

    islands: tuple[str, ...] = ()

    def __init__(
        self,
        ports: tuple[Sequence[Port], Sequence[Port]],
        engine: Engine,
        opening: Callable[[], LoadedNetwork],
    ) -> None:
        """`ports` are the inputs and the outputs; `opening` gives the network, called by the
        engine."""
        self._inputs, self._outputs = ports
        self.inputs, self.outputs = (tuple(port.name for port in each) for each in ports)
        self.threads = engine.threads
        self._call = engine.caller()
        self._network = self._call(opening)

    def _facts(self) -> dict[str, str]:
        """What it takes and gives, and with how many threads."""
        return {
            "inputs": ports_text(self._inputs),
            "outputs": ports_text(self._outputs),
            "threads": str(self.threads),
            **({"islands": str(len(self.islands))} if self.islands else {}),
        }

    @abstractmethod
    def _broken(self, reason: str) -> TilewrightError:
        """The error for a network that does not run as it was made to."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on inputs by name; returns outputs by name. Raises as a call does."""
        ordered = ordered_inputs(self._inputs, arguments.named_of(inputs, "inputs"))
        try:
            results = self._call(lambda: self._network(ordered))
        except (RuntimeError, ValueError, TypeError) as error:
            raise self._broken(last_line(error)) from error
        return named_outputs(self._outputs, results, self._broken)


def named_outputs(
    ports: Sequence[Port], results: Sequence[Array], broken: Callable[[str], TilewrightError]
) -> dict[str, Array]:
    """The outputs by name. Raises what `broken` makes when they are others than the ports say."""
    agree = len(ports) == len(results) and all(
        port.type.admits(array.shape) and port.dtype == str(array.dtype)
        for port, array in zip(ports, results, strict=False)
    )
    if not agree:
        raise broken("it gave other outputs")
    return {port.name: array for port, array in zip(ports, results, strict=True)}


def ordered_inputs(ports: Sequence[Port], inputs: Mapping[str, Array]) -> list[Array]:
    """Arrays by name in the order of a network's inputs. Raises UsageError for a wrong name,
    number, shape or type, InputError for an index out of range."""
    require_names(ports, inputs)
    return [_checked(port, inputs[port.name]) for port in ports]


def require_names(ports: Sequence[Port], inputs: Mapping[str, Array]) -> None:
    """Raise UsageError that names the first unknown input and the first that is missing."""
    known = [port.name for port in ports]
    unknown = [name for name in inputs if name not in known]
    missing = [port for port in ports if port.name not in inputs]
    faults = [f"no input is called {name!r}" for name in unknown[:1]]
    faults += [f"input {port.name!r} is missing" for port in missing[:1]]
    hints = [close_matches(name, known) for name in unknown[:1]]
    hints += [f"{port.name!r} is {typed(port)}." for port in missing[:1]]
    if faults:
        raise UsageError(", and ".join(faults), hint=" ".join(hints))


def ports_text(ports: Sequence[Port]) -> str:
    """`x float32[1, 3], ids int64[1, 8]`."""
    return ", ".join(f"{port.name} {typed(port)}" for port in ports)


def typed_arrays(ports: Sequence[Port], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays by name, of the types of a network's inputs and whatever size. Raises UsageError for a
    wrong name, a missing array, another type and another number of axes."""
    require_names(ports, inputs)
    found = {port.name: _converted(port, inputs[port.name]) for port in ports}
    for port in ports:
        array = found[port.name]
        if array.ndim != len(port.shape) or str(array.dtype) != port.dtype:
            raise UsageError(
                f"input {port.name!r} is {array.dtype}{list(array.shape)}, the network takes one "
                f"like {typed(port)}"
            )
    return found


def typed(port: Port) -> str:
    """What an input must be, `float32[1, 3]` say."""
    return f"{port.dtype}{list(port.shape)}"


def _checked(port: Port, given: Array) -> Array:
    """The array for an input; raises UsageError when it is of another type, InputError for an index
    out of range."""
    wanted, array = typed(port), _converted(port, given)
    if array.shape != port.shape or str(array.dtype) != port.dtype:
        raise UsageError(
            f"input {port.name!r} is {array.dtype}{list(array.shape)}, "
            f"the network was compiled for {wanted}"
        )
    require_valid_indices(port.name, array, port.ranges)
    return array


def _converted(port: Port, given: Array) -> Array:
    try:
        return np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        first = str(error).strip().splitlines() or ["it cannot be converted"]
        raise UsageError(
            f"input {port.name!r} is no array: {first[0]}", hint=f"It is {typed(port)}."
        ) from error


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
        f"the network uses its values as indices or sizes, which must be {ranges[column]} there",
        hint="Negative indices count from the end.",
    )
