"""The best number of threads of a network, from at most five measurements.

Times fall with the threads until they share a core, a memory channel or a barrier too many; where
that happens nobody knows beforehand, but it is rarely below half of the cores. So all of them and
four shares of them down to a half are measured, and the fastest measured one is taken: by what was
measured it is never worse than using all, whatever the curve.
"""

from __future__ import annotations

from collections.abc import Mapping

SHARES = (1.0, 7 / 8, 3 / 4, 5 / 8, 1 / 2)


def counts_to_measure(most: int) -> tuple[int, ...]:
    """At most five numbers of threads, `most` first, falling: 16 → (16, 14, 12, 10, 8).

    Raises ValueError for less than one.
    """
    if most < 1:
        raise ValueError(f"{most} threads")
    return tuple(dict.fromkeys(max(1, round(share * most)) for share in SHARES))


def best_count(times_s: Mapping[int, float]) -> int:
    """The number of threads with the least time, the smaller of two equal ones. `times_s` are
    seconds by number of threads, at least one."""
    return min(times_s, key=lambda count: (times_s[count], count))
