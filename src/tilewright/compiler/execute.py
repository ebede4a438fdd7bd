"""Running compiled networks with the Relax VM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tilewright.compiler.network import LIBRARY, WEIGHTS
from tilewright.compiler.weights import load_weights
from tilewright.core.errors import DamagedArtifact, InputError, last_line
from tilewright.core.scratch import scratch_folder

_USE_GIVEN_CPUS = -2
_GO_ON = 0
"""What an instrument answers for the call to be made as usual."""


def set_threads(threads: int, cpus: Sequence[int]) -> None:
    """Give the calling thread's pool `threads` threads on `cpus`; before its first kernel."""
    configure = tvm_ffi.get_global_func("runtime.config_threadpool")
    chosen = [str(cpu) for cpu in cpus[:threads]]
    if len(chosen) == threads:
        configure(_USE_GIVEN_CPUS, threads, chosen)
    else:
        configure(1, threads)


def _load_library(path: Path) -> Any:
    """Load by a name never used before.

    The dynamic loader takes a path it has loaded from for the same library, although the file was
    replaced meanwhile; `tvm.runtime.load_module` would resolve the link.
    """
    with scratch_folder() as scratch:
        link = scratch / path.name
        link.symlink_to(path.resolve())
        return tvm_ffi.load_module(str(link))


class _CallClock:
    """An instrument of the Relax VM that notes how long each call takes.

    A call's own handling by the instrument counts: a few microseconds.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self._began = 0.0

    def __call__(
        self, _function: object, symbol: str, before: bool, _result: object, *_arguments: object
    ) -> int:
        now = perf_counter()
        if before:
            self._began = perf_counter()
        else:
            self.calls.append((str(symbol), now - self._began))
        return _GO_ON


class LoadedNetwork:
    """A network in memory: inputs in the model's order in, outputs in order out."""

    def __init__(self, library: Any, weights: dict[str, Any], order: Sequence[str]) -> None:
        self._library = library
        self._machine = relax.VirtualMachine(library, tvm.cpu())
        self._weights = [weights[name] for name in order]

    @classmethod
    def open(cls, folder: Path, order: Sequence[str]) -> LoadedNetwork:
        """Load what `compile` wrote; `order` are the constants' names in parameter order.

        Raises ModelError when the library takes others, or a file is damaged.
        """
        try:
            library = _load_library(folder / LIBRARY)
            network = cls(library, load_weights(folder / WEIGHTS), order)
        except (RuntimeError, OSError, KeyError, ValueError) as error:
            raise DamagedArtifact(folder, last_line(error)) from error
        if network.constants != tuple(order):
            raise DamagedArtifact(folder, f"{LIBRARY} does not take the constants of the manifest")
        return network

    @property
    def constants(self) -> tuple[str, ...]:
        """The last parameters' names in the library, as many as there are constants."""
        first = self.input_count
        name_of = self._machine.module["get_function_param_name"]
        last = first + len(self._weights)
        return tuple(str(name_of("main", index)) for index in range(max(first, 0), last))

    @property
    def input_count(self) -> int:
        """How many parameters come before the constants."""
        arity_of = self._machine.module["get_function_arity"]
        return int(arity_of("main")) - len(self._weights)

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run once. Raises InputError where an index is out of range."""
        tensors = [tvm.runtime.tensor(np.asarray(array, order="C")) for array in inputs]
        return [tensor.numpy() for tensor in self._outputs(self._run(tensors))]

    def time(self, inputs: Sequence[np.ndarray], repeats: int, warmup: int) -> list[float]:
        """Seconds of each call, conversion of inputs and outputs left out."""
        tensors = [tvm.runtime.tensor(np.asarray(array, order="C")) for array in inputs]
        for _ in range(warmup):
            self._run(tensors)
        samples = []
        for _ in range(repeats):
            began = perf_counter()
            self._run(tensors)
            samples.append(perf_counter() - began)
        return samples

    def repeat(self, inputs: Sequence[np.ndarray], seconds: float) -> int:
        """Run again and again, for at least so many seconds and once; returns how often."""
        tensors = [tvm.runtime.tensor(np.asarray(array, order="C")) for array in inputs]
        count, end = 0, perf_counter() + seconds
        while count == 0 or perf_counter() < end:
            self._run(tensors)
            count += 1
        return count

    def time_calls(self, inputs: Sequence[np.ndarray], repeats: int) -> list[tuple[str, float]]:
        """Symbol and median seconds of every call in its place in the network, in order.

        Calls of the machine's own functions are among them.
        """
        tensors = [tvm.runtime.tensor(np.asarray(array, order="C")) for array in inputs]
        clock = _CallClock()
        watched = relax.VirtualMachine(self._library, tvm.cpu())
        watched.set_instrument(clock)
        runs: list[list[tuple[str, float]]] = []
        for _ in range(repeats + 1):
            clock.calls = []
            watched["main"](*tensors, *self._weights)
            runs.append(clock.calls)
        return [(calls[0][0], median(s for _, s in calls)) for calls in zip(*runs[1:], strict=True)]

    def _run(self, tensors: Sequence[Any]) -> Any:
        try:
            return self._machine["main"](*tensors, *self._weights)
        except IndexError as error:  # what guards raise
            raise InputError(str(error)) from error

    @staticmethod
    def _outputs(result: Any) -> list[Any]:
        return [result] if hasattr(result, "numpy") else list(result)
