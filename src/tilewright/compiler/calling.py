"""On which thread a network in memory is called."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tilewright.compiler.execute import set_threads

_Answer = TypeVar("_Answer")


class _Pool(threading.local):
    """What the calling thread's pool was last set to."""

    threads: int = 0
    cpus: tuple[int, ...] = ()


class _Process:
    """What this process knows about its own birth: whether `fork` made it, and then the thread on
    which its networks are called."""

    def __init__(self, *, forked: bool) -> None:
        self.forked = forked
        self._opening = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None

    @property
    def thread(self) -> ThreadPoolExecutor:
        """One thread, started with its first call."""
        with self._opening:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="tilewright")
            return self._thread


_pool = _Pool()
_process = _Process(forked=False)


def _begin_in_child() -> None:
    global _process
    _process = _Process(forked=True)


os.register_at_fork(after_in_child=_begin_in_child)


class Caller:
    """Calls functions where TVM's pool has so many threads on these CPUs, one at a time.

    The pool belongs to the thread that calls: each thread that does has one of its own, which is
    sized at its first call. A process that `fork` made has its parent's pools without their
    threads, and a kernel would wait for these for ever; there every call is made on one thread that
    was born in that process.
    """

    def __init__(self, threads: int, cpus: Sequence[int]) -> None:
        self._threads = threads
        self._cpus = tuple(cpus[:threads])
        self._turn = threading.Lock()

    def __call__(self, function: Callable[[], _Answer]) -> _Answer:
        """What the function answers or raises."""
        if _process.forked:
            # whoever had the turn in the parent never gives it back here; one thread needs none
            return _process.thread.submit(self._call, function).result()
        with self._turn:
            return self._call(function)

    def _call(self, function: Callable[[], _Answer]) -> _Answer:
        if (_pool.threads, _pool.cpus) != (self._threads, self._cpus):
            set_threads(self._threads, self._cpus)
            _pool.threads, _pool.cpus = self._threads, self._cpus
        return function()
