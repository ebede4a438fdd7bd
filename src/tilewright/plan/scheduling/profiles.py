"""How much of something is in use over time: memory, watts, bytes per second.

Profile of (0, 5, 100 MB), (2, 3, 50 MB)
0 to 2   100 MB     2 to 3   150 MB     3 to 5   100 MB
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from math import floor, inf

Held = tuple[float, float, float]
"""From when to when how much is held; until infinity for ever, or where nobody knows yet."""


class Profile:
    """A quantity that changes at some moments and is constant between them; 0 from the start."""

    def __init__(self, held: Iterable[Held] = ()) -> None:
        self._times = [0.0]
        self._values = [0.0]
        for begin, end, amount in held:
            self.add(begin, end, amount)

    def add(self, begin: float, end: float, amount: float) -> None:
        """Hold so much more from `begin` to `end`; less where it is negative."""
        if begin >= end or amount == 0:
            return
        first, last = self._cut(begin), self._cut(end)
        for place in range(first, last):
            self._values[place] += amount

    def _cut(self, time: float) -> int:
        """The place from which the profile is that of `time` and later."""
        if time == inf:
            return len(self._times)
        place = bisect_left(self._times, time)
        if place == len(self._times) or self._times[place] != time:
            self._times.insert(place, time)
            self._values.insert(place, self._values[place - 1])
        return place

    def blocked_until(self, begin: float, end: float, most: float) -> float:
        """When the last stretch between `begin` and `end` is over in which more than `most` is
        held: whoever wants the rest as long begins then at the soonest. `begin` where there is no
        such stretch, infinity where it is never over."""
        place = bisect_left(self._times, end) - 1
        while place >= 0 and self._until(place) > begin:
            if self._values[place] > most:
                return self._until(place)
            place -= 1
        return begin

    def _until(self, place: int) -> float:
        return self._times[place + 1] if place + 1 < len(self._times) else inf

    @property
    def peak(self) -> float:
        """The most that is held at a time."""
        return max(self._values)

    def steps(self) -> Iterator[tuple[float, float]]:
        """The moments of change, and what is held from then on."""
        return zip(self._times, self._values, strict=True)


def shortened(held: Iterable[Held], by: float) -> Iterator[Held]:
    """The same without so much at both ends, so that what touches does not overlap by a rounding;
    what is not longer is left out."""
    return ((a + by, b - by, amount) for a, b, amount in held if b - a > 2 * by)


def folded(held: Iterable[Held], period: float) -> Iterator[Held]:
    """What is held between 0 and `period` where the same begins anew after each period; what is
    held for ever is there once."""
    for begin, end, amount in held:
        if end == inf:
            yield 0.0, period, amount
            continue
        whole = floor((end - begin) / period)
        start, rest = begin % period, (end - begin) - whole * period
        yield 0.0, period, whole * amount
        yield start, min(start + rest, period), amount
        yield 0.0, start + rest - period, amount


def free_from(busy: list[tuple[float, float]], begin: float, length: float) -> float:
    """When something that is busy in these stretches, which are in order, is free for so long, at
    `begin` at the soonest."""
    if not busy or busy[-1][1] <= begin:
        return begin
    place = bisect_right(busy, (begin, inf))
    if place and busy[place - 1][1] > begin:
        begin = busy[place - 1][1]
    while place < len(busy) and busy[place][0] < begin + length:
        begin = max(begin, busy[place][1])
        place += 1
    return begin
