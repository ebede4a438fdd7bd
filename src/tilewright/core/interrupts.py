"""Ctrl-C, SIGTERM and SIGHUP: the first asks to stop after the candidate in flight."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from tilewright.core.signals import heeded


class Interruption:
    """Whether a signal asked to stop."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        return self.requested


@contextmanager
def graceful_interrupt() -> Generator[Interruption]:
    """Turn the first stopping signal into a request; a second one raises KeyboardInterrupt.

    Outside the main thread signals are left alone, and so are those that the process ignores or
    has a handler of its own for; SIGINT alone is taken from any handler.
    """
    interruption = Interruption()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if interruption.requested:
            raise KeyboardInterrupt
        interruption.requested = True

    before = {number: signal.signal(number, ask) for number in heeded()}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
