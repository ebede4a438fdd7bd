"""From how many cores on more do not pay, beside neighbours that stream memory, too, and how many
neighbours a kernel bears.

    cores      1    2    4    8   16
    alone    800  410  220  130  125 µs    8 are enough
    beside   830  440  250  160  155 µs    what a neighbour costs is the same on any number: 4 are,
                                           where a quarter more time is no matter

Times are those alone and what `contention.slowdown` makes of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf, sqrt

from tilewright.cost.contention import bearable, slowdown


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCores:
    """A kernel by its number of cores: seconds alone, above zero, and the bytes that it streams
    from memory where others run beside it. `scale` is the device's `contention_bytes_per_s`, None
    where nothing is known of that. `reach` says how many times as long, or as short, a time may be
    beside that on one core; empty where times were measured."""

    seconds: Mapping[int, float]
    streamed_bytes: Mapping[int, float]
    scale: float | None
    reach: Mapping[int, float] = field(default_factory=dict[int, float])

    def beside(self, others: float) -> dict[int, float]:
        """Seconds by the number of cores beside neighbours that stream so many bytes per second
        together."""
        return {n: beside_s(s, self.streamed_bytes[n], others, self.scale) for n, s in self._each}

    def only(self, counts: Collection[int]) -> OnCores:
        """The same on these numbers of cores alone."""
        return replace(self, seconds={n: s for n, s in self.seconds.items() if n in counts})

    def fitted(self, cores: int, others: float, beside_s: float) -> OnCores:
        """The same with the scale by which so many cores take `beside_s` beside neighbours that
        stream `others` bytes per second; without one where that is no longer than alone, and as it
        is where either streams nothing."""
        alone_s, streamed = self.seconds[cores], self.streamed_bytes[cores]
        if beside_s <= alone_s:
            return replace(self, scale=None)
        if not streamed * others:
            return self
        return replace(self, scale=sqrt(streamed * others / (beside_s - alone_s)))

    def enough(self, others: float, gain: float) -> int:
        """The fewest cores that take at most `gain` longer than the fastest number does, as a part
        of its time, beside these neighbours."""
        return enough_cores(self.beside(others), gain)

    def between(self, others: float, gain: float) -> tuple[int, int]:
        """The fewest and the most cores that may be enough beside these neighbours: those where
        more cores bring as little, and as much, as `reach` allows."""
        found = [self.enough(others, gain)]
        for sign in (1.0, -1.0):
            seconds = {n: s * self.reach.get(n, 1.0) ** sign for n, s in self._each}
            found.append(replace(self, seconds=seconds).enough(others, gain))
        return min(found), max(found)

    def borne(self, cores: int, each: float, more: float) -> float:
        """How many neighbours that stream so many bytes per second each may be there until so many
        cores take `more` longer than alone, as a part of that; infinite where they cost nothing."""
        if self.scale is None:
            return inf
        own = self.streamed_bytes[cores] / self.seconds[cores]
        return bearable(own, each, self.scale, more)

    @property
    def _each(self) -> list[tuple[int, float]]:
        return sorted(self.seconds.items())


def beside_s(alone_s: float, streamed: float, others: float, scale: float | None) -> float:
    """Seconds of a kernel that streams so many bytes, beside others that stream so many per second;
    those alone where there is no scale."""
    if not alone_s or scale is None:
        return alone_s
    return alone_s * float(slowdown(streamed / alone_s, others, scale))


def enough_cores(seconds: Mapping[int, float], gain: float) -> int:
    """The fewest cores with at most `gain` more than the least time."""
    most = min(seconds.values()) * (1 + gain)
    return min(cores for cores, each in seconds.items() if each <= most)
