"""What ends a process from outside: signals, and the death of its parent.

The first of Ctrl-C, SIGTERM and SIGHUP may ask to stop after the candidate in flight.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a polite kill (of `kill`, `timeout`, a scheduler, a container's stop), a closed terminal:
all three ask for the same."""
_PR_SET_PDEATHSIG = 1


def _heeded() -> list[signal.Signals]:
    """Those of `STOPPING` that end this process as it stands.

    None outside the main thread. Signals that are ignored stay so: shells tell what they start in
    the background to ignore Ctrl-C, and `nohup` the end of the terminal. A program's own handlers
    for the other two stay as well.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    ending = (signal.SIG_DFL, signal.default_int_handler)
    return [
        number
        for number in STOPPING
        if (handler := signal.getsignal(number)) in ending
        or (number == signal.SIGINT and handler != signal.SIG_IGN)
    ]


@contextmanager
def graceful_interrupt() -> Generator[Callable[[], bool]]:
    """Turn the first stopping signal into a request; a second one raises KeyboardInterrupt.

    The block is given a function that says whether a signal asked to stop.

    Outside the main thread signals are left alone, and so are those that the process ignores or
    has a handler of its own for; SIGINT alone is taken from any handler.
    """
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    with handled_by(ask):
        yield asked.is_set


def as_interrupts() -> AbstractContextManager[None]:
    """Let every stopping signal raise KeyboardInterrupt, as Ctrl-C does, so that blocks clean up
    behind themselves."""
    return handled_by(signal.default_int_handler)


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Have a function called at each stopping signal that would end this process as it stands."""
    before = {number: signal.signal(number, handler) for number in _heeded()}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


def left_to_parent() -> None:
    """Ignore stopping signals, which may reach a whole group of processes: the parent decides."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies; leave at once when it already did."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
