"""Ctrl-C during long work: the first asks to stop after the candidate in flight."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        return self.requested


@contextmanager
def graceful_interrupt() -> Generator[Interruption]:
    """Turn the first SIGINT into a request; a second one raises KeyboardInterrupt as usual.

    Outside the main thread signals are left alone, and so is a process that was told to ignore
    them, as shells tell what they start in the background.
    """
    interruption = Interruption()
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous == signal.SIG_IGN:
        yield interruption
        return

    def ask(_number: int, _frame: FrameType | None) -> None:
        if interruption.requested:
            raise KeyboardInterrupt
        interruption.requested = True

    signal.signal(signal.SIGINT, ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, previous)
