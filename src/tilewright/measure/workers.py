"""Processes that build and run with TVM: how they start, and what their failures mean."""

from __future__ import annotations

from typing import Any

from tilewright.core.processes import (
    Child,
    ChildCrash,
    ChildError,
    ChildOutOfMemory,
    ChildTimeout,
    RemoteError,
)
from tilewright.core.records import FailureKind, Placement

START_TIMEOUT_S = 60.0


class BoardLost(ChildError):
    """The connection to a device broke in the middle of a request."""


_KINDS: dict[type[Exception], FailureKind] = {
    ChildTimeout: "timeout",
    ChildOutOfMemory: "out of memory",
    ChildCrash: "crash",
    BoardLost: "device lost",
}


class Worker(Child):
    """A child process that serves `prepare`, which it is asked before anything else, also when it
    has started anew.

    One that runs kernels, `here`, has the placement's CPUs and as many threads.
    """

    def __init__(
        self,
        module: str,
        placement: Placement,
        *,
        here: bool = True,
        memory_limit_bytes: int | None = None,
    ) -> None:
        super().__init__(
            module,
            environment={"TVM_NUM_THREADS": str(placement.resources.threads)} if here else None,
            memory_limit_bytes=memory_limit_bytes,
            cpus=placement.binding.cpus if here else None,
        )
        self._preparing = ("prepare", placement.resources.threads, placement.binding.cpus)
        self._prepared: int | None = None

    def request(self, message: tuple[Any, ...], timeout_s: float) -> Any:
        self.get_ready()
        return super().request(message, timeout_s)

    def get_ready(self) -> None:
        """Start the process where it does not run, and wait until it can be asked."""
        if self.pid is None or self._prepared != self.pid:
            super().request(self._preparing, START_TIMEOUT_S)
            self._prepared = self.pid


def classify(error: ChildError | RemoteError, otherwise: FailureKind) -> tuple[FailureKind, str]:
    """Kind and message of the failure that an error of a worker means."""
    return _KINDS.get(type(error), otherwise), str(error)
