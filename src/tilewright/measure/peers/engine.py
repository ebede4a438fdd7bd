"""What engines have in common: a process serves one, asleep but while it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from tilewright.core.child import serve, wait_until_asleep

Arrays = dict[str, np.ndarray[Any, Any]]


class Engine(ABC):
    """An engine that holds one model, from `load` on."""

    @abstractmethod
    def load(self, model_path: str, threads: int, precision: str) -> str:
        """Load a model; returns the precision that it is computed in. Whatever is raised here
        becomes an `EngineRefused` with its type and text, and leaves the peer out for the model."""

    @abstractmethod
    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        """A call on these inputs, which are converted ahead: it alone is timed."""

    @abstractmethod
    def outputs(self, result: Any) -> Arrays:
        """The outputs by name of the call that gave `result`."""

    def start(self, model_path: str, threads: int, precision: str) -> str:
        """As `load`."""
        used = self.load(model_path, threads, precision)
        wait_until_asleep()
        return used

    def run(self, inputs: Arrays) -> Arrays:
        """One call; outputs by name."""
        outputs = self.outputs(self.bind(inputs)())
        wait_until_asleep()
        return outputs

    def time(self, inputs: Arrays, repeats: int, warmup: int) -> list[float]:
        """Seconds per call with the inputs converted ahead."""
        return time_calls(self.bind(inputs), repeats, warmup)

    def serve(self) -> None:
        """Answer the requests of a `ProcessPeer` until it is stopped."""
        serve({"start": self.start, "run": self.run, "time": self.time})


def time_calls(call: Callable[[], object], repeats: int, warmup: int) -> list[float]:
    """Seconds of each of `repeats` calls after `warmup` untimed ones.

    The engine's threads may spin from one call to the next, as they would in use; before the
    samples go back, they have gone to sleep.
    """
    for _ in range(warmup):
        call()
    samples_s: list[float] = []
    for _ in range(repeats):
        before_s = perf_counter()
        call()
        samples_s.append(perf_counter() - before_s)
    wait_until_asleep()
    return samples_s
