# pyright: basic
"""Whole networks on other machines over TVM RPC: load, run, time, on the device's own clock.

Nothing but TVM's runtime is needed there. Its virtual machine keeps the weights; a network with its
inputs is a closure that the device calls by itself, so that no round trip is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tilewright.compiler.execute import check_constants, load_weights, undamaged
from tilewright.compiler.network import CALLED, LIBRARY, MAIN, OUTSIDE, TIMED, WEIGHTS, mark_rows
from tilewright.compiler.remote import RemoteSession, export
from tilewright.core.errors import DamagedArtifact, InputError, LinkError, last_line

ARCHIVE = "model.tar"
"""What lies in place of the library until a device has linked it."""
_WEIGHTED, _READY, _TIMED = "weighted", "ready", "timed_ready"
"""Closures: the network with its weights; with its inputs, too; the same with a clock."""
_LEAST_REPEATS = 3
"""A loop over seconds asks the device for so many runs at a time at least."""


def export_network(executable: Any, target: Any, folder: Path) -> Path:
    """Write the library for another machine, or an archive of objects; its path."""
    for name in (LIBRARY, ARCHIVE):
        (folder / name).unlink(missing_ok=True)
    return export(executable, target, folder, Path(LIBRARY).stem)


@dataclass(slots=True, kw_only=True)
class _Loaded:
    """A network on a device, and the inputs that it has there."""

    machine: Any
    weights: list[Any]
    inputs: list[np.ndarray] | None = None


class RemoteNetworks:
    """Networks by name on the device of one session."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._networks: dict[str, _Loaded] = {}
        self._numbers = count()

    def load(self, name: str, folder: Path, order: Sequence[str]) -> None:
        """Upload library and weights; `order` are the constants' names in parameter order.

        Raises DamagedArtifact when the library takes others, or a file is damaged.
        """
        self.unload(name)
        with undamaged(folder):
            known = load_weights(folder / WEIGHTS)
            weights = [known[key] for key in order]
        library = self._session.library(self._linked(folder), f"network-{next(self._numbers)}.so")
        machine = relax.VirtualMachine(library, self._session.cpu)
        check_constants(machine, folder, order)
        machine.save_function(MAIN, _WEIGHTED, *map(self._uploaded, weights))
        self._networks[name] = _Loaded(machine=machine, weights=weights)

    def unload(self, name: str) -> None:
        """Forget a network."""
        self._networks.pop(name, None)

    def run(self, name: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of one run. Raises InputError where an index is out of range."""
        network = self._with_inputs(name, inputs)
        return [tensor.numpy() for tensor in self._tensors(_called(network.machine[_READY]))]

    def time(
        self, name: str, inputs: Sequence[np.ndarray], repeats: int, warmup: int
    ) -> list[float]:
        """Seconds of each run, in order, after so many that are not counted (one at least)."""
        return self._seconds(self._with_inputs(name, inputs), repeats, warmup)

    def repeat(self, name: str, inputs: Sequence[np.ndarray], seconds: float) -> int:
        """Run again and again for at least so many seconds; returns how often."""
        network = self._with_inputs(name, inputs)
        done, spent_s = 0, 0.0
        while spent_s < seconds:
            mean_s = spent_s / done if done else 0.0
            left = (seconds - spent_s) / mean_s if mean_s else 0.0
            samples = self._seconds(network, max(_LEAST_REPEATS, int(left)), 0)
            done, spent_s = done + len(samples) + 1, spent_s + sum(samples) + min(samples)
        return done

    def time_calls(
        self, name: str, inputs: Sequence[np.ndarray], repeats: int
    ) -> list[tuple[str, float]]:
        """Symbol and median seconds of each of the network's calls in its place, in order; none
        where the library has no function for that."""
        network = self._with_inputs(name, inputs)
        machine = network.machine
        try:
            symbols = str(machine[CALLED]()).split()
        except (AttributeError, tvm.error.RPCError):
            return []
        marks = np.zeros((mark_rows(len(symbols)), 2), np.int64)
        given = [tvm.runtime.tensor(a, self._session.cpu) for a in (*(network.inputs or ()), marks)]
        machine.save_function(TIMED, _TIMED, *given, *map(self._uploaded, network.weights))
        rows: list[np.ndarray] = []
        for _ in range(repeats + 1):
            (noted,) = self._tensors(machine[_TIMED]())
            times_s = noted.numpy()[1:].astype(np.float64) @ np.array((1.0, 1e-9))
            rows.append(times_s[1::2] - times_s[0::2])
        machine.save_function(CALLED, _TIMED)  # lets the second copy of the weights go
        medians_s = np.median(rows[1:], axis=0)
        return [(symbol, float(s)) for symbol, s in zip(symbols, medians_s, strict=True)]

    def _with_inputs(self, name: str, inputs: Sequence[np.ndarray]) -> _Loaded:
        """The network with these inputs on the device; they go there when they are others than
        before."""
        network = self._networks[name]
        arrays = [np.asarray(array, order="C") for array in inputs]
        if network.inputs is None or _contents(arrays) != _contents(network.inputs):
            given = [tvm.runtime.tensor(array, self._session.cpu) for array in arrays]
            network.machine.save_function(_WEIGHTED, _READY, *given)
            network.inputs = [array.copy() for array in arrays]
        return network

    def _seconds(self, network: _Loaded, repeats: int, warmup: int) -> list[float]:
        """The device's evaluator makes one call that it does not count."""
        more = max(0, warmup - 1)
        timer = network.machine.time_evaluator(
            _READY, self._session.cpu, number=1, repeat=repeats + more
        )
        return [float(value) for value in _called(timer).results][more:]

    def _uploaded(self, tensor: Any) -> Any:
        there = tvm.runtime.empty(tensor.shape, tensor.dtype, self._session.cpu)
        tensor.copyto(there)
        return there

    def _tensors(self, result: Any) -> list[Any]:
        """The tensors of a result: one, or a reference to an array of them."""
        if hasattr(result, "numpy"):
            return [result]
        item, size = (self._session.function(f"ffi.Array{name}") for name in ("GetItem", "Size"))
        return [item(result, index) for index in range(int(size(result)))]

    def _linked(self, folder: Path) -> Path:
        """The library; linked by the device first where that was left to it."""
        path = folder / LIBRARY
        if not path.is_file() and (folder / ARCHIVE).is_file():
            try:
                path.write_bytes(self._session.linked(folder / ARCHIVE))
            except tvm.error.RPCError as error:
                raise LinkError(f"on the device, {' '.join(str(error).split())}") from error
            (folder / ARCHIVE).unlink()
        if not path.is_file():
            raise DamagedArtifact(folder, f"{LIBRARY} is not there")
        return path


def _contents(arrays: Sequence[np.ndarray]) -> list[Any]:
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def _called(function: Any) -> Any:
    try:
        return function()
    except tvm.error.RPCError as error:
        if OUTSIDE in str(error):
            raise InputError(last_line(error)) from error
        raise
