"""On which thread a network in memory is called."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from tilewright.compiler.execute import set_threads
from tilewright.core.forks import call_native, is_forked

_Answer = TypeVar("_Answer")


class _Pool(threading.local):
    """What the calling thread's pool was last set to."""

    threads: int = 0
    cpus: tuple[int, ...] = ()


_pool = _Pool()


class Caller:
    """Calls functions where TVM's pool has so many threads on these CPUs, one at a time.

    The pool belongs to the thread that calls: each thread that does has one of its own, which is
    sized at its first call.
    """

    def __init__(self, threads: int, cpus: Sequence[int]) -> None:
        self._threads = threads
        self._cpus = tuple(cpus[:threads])
        self._turn = threading.Lock()

    def __call__(self, function: Callable[[], _Answer]) -> _Answer:
        """What the function answers or raises."""
        if is_forked():
            # whoever had the turn in the parent never gives it back here; one thread needs none
            return call_native(lambda: self._call(function))
        with self._turn:
            return self._call(function)

    def _call(self, function: Callable[[], _Answer]) -> _Answer:
        if (_pool.threads, _pool.cpus) != (self._threads, self._cpus):
            set_threads(self._threads, self._cpus)
            _pool.threads, _pool.cpus = self._threads, self._cpus
        return function()
