"""What engines have in common: a process serves one, asleep but while it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from tilewright.core.child import serve, wait_until_asleep

Arrays = dict[str, np.ndarray[Any, Any]]


class EventClock(Protocol):
    """What tells when a processor that works by itself got to some place of its work."""

    def event(self) -> Any:
        """An event."""

    def record(self, event: Any) -> None:
        """Let it be the moment at which all is done that was asked for so far."""

    def elapsed_s(self, first: Any, second: Any) -> float:
        """Seconds between two such moments; waits for the second one."""
        ...


class Engine(ABC):
    """An engine that holds one model, from `load` on.

    Where it has several ways to compute, `mode` says which one it took. A `clock` times calls that
    return before what they asked for is done.
    """

    mode = ""
    clock: EventClock | None = None

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

    def start(self, model_path: str, threads: int, precision: str) -> tuple[str, str]:
        """As `load`; returns the precision and the mode."""
        used = self.load(model_path, threads, precision)
        wait_until_asleep()
        return used, self.mode

    def run(self, inputs: Arrays) -> Arrays:
        """One call; outputs by name."""
        outputs = self.outputs(self.bind(inputs)())
        wait_until_asleep()
        return outputs

    def time(self, inputs: Arrays, repeats: int, warmup: int) -> list[float]:
        """Seconds per call with the inputs converted ahead."""
        return time_calls(self.bind(inputs), repeats, warmup, self.clock)

    def serve(self) -> None:
        """Answer the requests of a `ProcessPeer` until it is stopped."""
        serve({"start": self.start, "run": self.run, "time": self.time})


def time_calls(
    call: Callable[[], object], repeats: int, warmup: int, clock: EventClock | None = None
) -> list[float]:
    """Seconds of each of `repeats` calls after `warmup` untimed ones.

    The engine's threads may spin from one call to the next, as they would in use; before the
    samples go back, they have gone to sleep. With a `clock`, calls are asked for one behind the
    other, with an event between two of them.
    """
    for _ in range(warmup):
        call()
    samples_s = _timed(call, repeats) if clock is None else _between_events(call, repeats, clock)
    wait_until_asleep()
    return samples_s


def _timed(call: Callable[[], object], repeats: int) -> list[float]:
    samples_s: list[float] = []
    for _ in range(repeats):
        before_s = perf_counter()
        call()
        samples_s.append(perf_counter() - before_s)
    return samples_s


def _between_events(call: Callable[[], object], repeats: int, clock: EventClock) -> list[float]:
    events = [clock.event() for _ in range(repeats + 1)]
    clock.record(events[0])
    for event in events[1:]:
        call()
        clock.record(event)
    return [clock.elapsed_s(one, next_one) for one, next_one in pairwise(events)]
