"""Timing inside an engine's process."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from tilewright.core.child import wait_until_asleep


def time_calls(call: Callable[[], object], repeats: int, warmup: int) -> list[float]:
    """Seconds of each of `repeats` calls after `warmup` untimed ones.

    The engine's threads may spin from one call to the next, as they would in use; before the
    samples go back, they have gone to sleep.
    """
    for _ in range(warmup):
        call()
    samples_s: list[float] = []
    for _ in range(repeats):
        before_s = perf_counter()
        call()
        samples_s.append(perf_counter() - before_s)
    wait_until_asleep()
    return samples_s
