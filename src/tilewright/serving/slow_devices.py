"""Which devices of a plan are slow, and until when they are taken for that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 600.0


@dataclass(slots=True)
class _Slow:
    """How many times as slow, for how long that is believed, and until when."""

    factor: float
    pause_s: float
    until_s: float


@dataclass(slots=True)
class SlowDevices:
    """Devices that were seen to be slow. What is planned around is not measured any more: after ten
    seconds a device is tried again, after twice as long each time that it is slow again at once.
    Any thread may note and ask."""

    clock: Callable[[], float] = monotonic
    _seen: dict[str, _Slow] = field(default_factory=dict[str, _Slow])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def factors(self) -> dict[str, float]:
        """How many times as slow those are that are taken for slow."""
        with self._lock:
            now_s = self.clock()
            return {name: each.factor for name, each in self._seen.items() if now_s < each.until_s}

    def note(self, device: str, factor: float) -> None:
        """One of its places was seen to be so many times as slow; of several the slowest counts."""
        with self._lock:
            now_s, before = self.clock(), self._seen.get(device)
            pause_s = _PAUSE_S
            if before is not None and now_s < before.until_s:
                before.factor = max(before.factor, factor)
                return
            if before is not None and now_s < before.until_s + before.pause_s:
                pause_s = min(_LONGEST_PAUSE_S, 2 * before.pause_s)
            self._seen[device] = _Slow(factor, pause_s, now_s + pause_s)

    def tried_again(self) -> list[str]:
        """Those whose time is over since this was asked last."""
        with self._lock:
            now_s = self.clock()
            over = [n for n, each in self._seen.items() if each.factor and each.until_s <= now_s]
            for name in over:
                self._seen[name].factor = 0.0
            return over

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._seen.clear()
