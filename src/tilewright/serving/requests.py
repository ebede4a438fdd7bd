"""A request on its way, and the future that is answered once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tilewright.graph.network import Array

Outputs = Array | dict[str, Array]
"""What a compiled network returns: its one output, or several by name."""


class Answer(Future[Any]):
    """What becomes of a request, once: a result, an error, or nothing for it was cancelled.

    It can be cancelled until it is answered, also while it is computed: the result is dropped then.
    `withdrawn` is called when it is.
    """

    def __init__(self, withdrawn: Callable[[], None]) -> None:
        super().__init__()
        self._withdrawn = withdrawn
        self._once = threading.RLock()

    def cancel(self) -> bool:
        """Whether it is cancelled now."""
        with self._once:
            if self.done():
                return self.cancelled()
            if not super().cancel():
                return False
            self.set_running_or_notify_cancel()
        self._withdrawn()
        return True

    def claim(self) -> bool:
        """Whether it is still waited for: it cannot be cancelled any more then, and `deliver` has
        to follow."""
        with self._once:
            return not self.cancelled() and self.set_running_or_notify_cancel()

    def deliver(self, outcome: Outputs | Exception) -> None:
        """Answer with a result or an error."""
        if isinstance(outcome, Exception):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """A request that was taken: for which network, in which slot its inputs lie, when it came and
    is due (on the monotonic clock, infinite without a deadline), why earlier attempts to compute it
    failed, and whether it runs `alone`, since a batch did with it in it."""

    network: str
    slot: int
    order: int
    submitted_s: float
    due_s: float = inf
    failures: list[str] = field(default_factory=list[str])
    alone: bool = False
    answer: Answer = field(init=False)

    @property
    def rank(self) -> tuple[float, int]:
        """Earliest deadline first; among equal ones who came first."""
        return self.due_s, self.order
