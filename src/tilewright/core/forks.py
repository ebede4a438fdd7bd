"""Calls into native libraries that keep a pool of threads, in processes made by `fork` too.

TVM and OpenMP keep a pool for each thread that calls them. A fork copies the pool of the thread
that forks without the pool's threads, and a call from that thread would wait for them for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import ParamSpec, TypeVar

_Answer = TypeVar("_Answer")
_Given = ParamSpec("_Given")


class _Process:
    """Whether `fork` made this process, and then the thread on which native libraries are called.

    That thread starts with its first call; calls follow each other.
    """

    def __init__(self, *, forked: bool) -> None:
        self.forked = forked
        self._born_here = threading.local()
        self._thread = ThreadPoolExecutor(1, initializer=self._begin)

    def call(self, function: Callable[[], _Answer]) -> _Answer:
        if not self.forked or getattr(self._born_here, "yes", False):
            return function()
        return self._thread.submit(function).result()

    def _begin(self) -> None:
        self._born_here.yes = True


_process = _Process(forked=False)


def _begin_in_child() -> None:
    global _process
    _process = _Process(forked=True)


os.register_at_fork(after_in_child=_begin_in_child)


def is_forked() -> bool:
    """Whether `fork` made this process after this module was imported."""
    return _process.forked


def call_native(function: Callable[[], _Answer]) -> _Answer:
    """What the function answers or raises, called on this thread; in a process that `fork` made, on
    a thread that was born in it."""
    return _process.call(function)


def calls_native(function: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """The same function, called as by `call_native`."""

    @wraps(function)
    def called(*arguments: _Given.args, **named: _Given.kwargs) -> _Answer:
        return _process.call(partial(function, *arguments, **named))

    return called
