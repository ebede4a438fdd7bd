"""How the cores of a CPU are divided among instances of unequal sizes, by dynamic programming.

    most_answers    networks in groups, instances for each  →  the most times all rates
    soonest         so many requests for each at a time     →  the least time until all are answered

Both know times alone, of a network or a batch on so many cores with nothing beside it, and both are
exact for these, as `tests` find by trying everything. The second one answers what the
two-dimensional knapsack of Packrat does (Bhardwaj and others, ICML 2025), by a knapsack over cores
for each time that is tried, so that bursts may be long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import accumulate
from math import inf

_ALL_GROUPS = 6
"""Of so many networks all groups are tried, of more only neighbours in the order of the number of
cores on which each computes most for each core."""
_BETTER = 1 + 1e-12

Seconds = Mapping[int, float]
"""By a number of cores; infinite where it cannot be."""


@dataclass(frozen=True, slots=True)
class Group:
    """Networks, by their places, and the number of cores of each instance that serves these."""

    networks: tuple[int, ...]
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """Groups that serve networks, and how many times its rate each network is answered."""

    groups: tuple[Group, ...]
    times: float


@dataclass(frozen=True, slots=True)
class Burst:
    """For each network the cores of its instances with how many requests each computes, and the
    seconds until all are answered."""

    networks: tuple[tuple[tuple[int, int], ...], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Step:
    """The best with so many cores: what it is worth, and what was put in last."""

    value: float
    cores: int = 0
    last: int = 0


def most_answers(work_s: Sequence[Seconds], cores: int) -> Rates | None:
    """The groups of networks and the instances of each that answer the most, all networks in equal
    parts of their rates; None where no instances serve all.

    `work_s` has for each network the seconds of an instance that its requests of one second take by
    the number of cores of the instance, infinite where they would be late. An instance serves the
    networks of its group in turn, as often as their rates say, and `cores` suffice for all. Of
    equal answers one with fewer groups, larger instances.
    """
    order = sorted(range(len(work_s)), key=lambda place: _preferred(work_s[place]))
    search = _Groups([work_s[place] for place in order], cores)
    left, networks, groups = cores, (1 << len(order)) - 1, list[Group]()
    times = search.divided(networks)[cores][0]
    if times <= 0:
        return None
    while networks:
        _, members, given = search.divided(networks)[left]
        places = sorted(order[place] for place in range(len(order)) if members >> place & 1)
        groups.append(Group(tuple(places), _instances(search.steps(members), given)))
        networks, left = networks & ~members, left - given
    return Rates(tuple(sorted(groups, key=lambda group: group.networks)), times)


class _Groups:
    """What groups of networks, as bits, answer on 0, 1, … cores, each looked at once."""

    def __init__(self, work_s: Sequence[Seconds], cores: int) -> None:
        self._work_s, self._cores = work_s, cores
        self._steps: dict[int, list[_Step]] = {}
        self._divided = {0: [(inf, 0, 0)] * (cores + 1)}

    def steps(self, members: int) -> list[_Step]:
        """One group, with instances for it."""
        if members not in self._steps:
            each = [s for place, s in enumerate(self._work_s) if members >> place & 1]
            self._steps[members] = _filled({c: _rate(each, c) for c in each[0]}, self._cores)
        return self._steps[members]

    def divided(self, networks: int) -> list[tuple[float, int, int]]:
        """The best division into groups: how many times its rate each network is answered, the
        first group, and the cores of that."""
        if networks not in self._divided:
            found = [(0.0, 0, 0)] * (self._cores + 1)
            for members in _groups(networks, len(self._work_s)):
                own, others = self.steps(members), self.divided(networks & ~members)
                for many in range(self._cores + 1):
                    for given in range(many + 1):
                        times = min(own[given].value, others[many - given][0])
                        if times > found[many][0] * _BETTER:
                            found[many] = times, members, given
            self._divided[networks] = found
        return self._divided[networks]


def _preferred(work_s: Seconds) -> int:
    """The number of cores on which one core computes most."""
    return min(work_s, key=lambda cores: (work_s[cores] * cores, cores))


def _rate(work_s: Sequence[Seconds], cores: int) -> float:
    total_s = sum(each[cores] for each in work_s)
    return 1 / total_s if total_s < inf else 0.0


def _filled(rates: Mapping[int, float], cores: int) -> list[_Step]:
    """An unbounded knapsack: the most that instances compute on 0, 1, … cores."""
    found = [_Step(0.0)]
    for many in range(1, cores + 1):
        best = found[-1]
        for size in sorted(rates, reverse=True):
            if size <= many and rates[size] > 0:
                value = found[many - size].value + rates[size]
                if value > best.value * _BETTER:
                    best = _Step(value, many, size)
        found.append(best)
    return found


def _instances(steps: Sequence[_Step], many: int) -> tuple[int, ...]:
    found: list[int] = []
    while last := steps[many].last:
        found.append(last)
        many = steps[many].cores - last
    return tuple(sorted(found, reverse=True))


def _groups(networks: int, count: int) -> Iterator[int]:
    """Groups with the first of these networks, the largest first."""
    first = networks & -networks
    if count > _ALL_GROUPS:
        runs = accumulate(first << step for step in range(count) if networks & first << step)
        yield from reversed(list(runs))
        return
    others = networks & ~first
    chosen = others
    while True:
        yield first | chosen
        if not chosen:
            return
        chosen = (chosen - 1) & others


Burden = Mapping[int, Seconds]
"""Seconds of so many requests at a time, by their number and the number of cores."""


def soonest(burdens: Sequence[Burden], bursts: Sequence[int], cores: int) -> Burst | None:
    """The instances, each for one network with so many of its requests, that answer `bursts` of
    requests that come at a time in the least time, on `cores` in all; of equally fast ones the
    fewest for each network on its cores. None where there are too few cores.

    `burdens` has the seconds of each network. An instance may compute more than is left for it.
    """
    given, seconds = _first_in_time(burdens, bursts, cores)
    if seconds == inf:
        return None
    given[0] += cores - sum(given)
    networks: list[tuple[tuple[int, int], ...]] = []
    for burden, burst, own in zip(burdens, bursts, given, strict=True):
        _, own_s = _first_in_time([burden], [burst], own)
        networks.append(_fewest(_by(own_s, burden), burst, own))
    return Burst(tuple(networks), seconds)


def _first_in_time(
    burdens: Sequence[Burden], bursts: Sequence[int], cores: int
) -> tuple[list[int], float]:
    """The fewest cores of each network with which all end within the least time for which there are
    enough, and that time, infinite where there are never."""

    def needed(limit_s: float) -> list[int]:
        return [
            _needed(_by(limit_s, burden), burst, cores)
            for burden, burst in zip(burdens, bursts, strict=True)
        ]

    times_s = sorted({s for each in burdens for row in each.values() for s in row.values()} | {inf})
    place = bisect_left(times_s[:-1], True, key=lambda limit_s: sum(needed(limit_s)) <= cores)
    return needed(times_s[place]), times_s[place]


def _by(limit_s: float, burden: Burden) -> dict[int, int]:
    """The most requests that an instance answers within a time, by its cores."""
    found: dict[int, int] = {}
    for count, seconds in burden.items():
        for size, s in seconds.items():
            if s <= limit_s and s < inf:
                found[size] = max(count, found.get(size, 0))
    return found


def _needed(most: Mapping[int, int], requests: int, cores: int) -> int:
    """The fewest cores on which so many requests are answered, one too many where none suffice."""
    steps = _filled(most, cores)
    return next((many for many in range(cores + 1) if steps[many].value >= requests), cores + 1)


def _fewest(most: Mapping[int, int], requests: int, cores: int) -> tuple[tuple[int, int], ...]:
    """The fewest instances that answer so many requests on so many cores, which suffice, with how
    many each, the largest first."""
    rows = [[(0, 0)] * (cores + 1)]
    while rows[-1][cores][0] < requests:
        before = rows[-1]
        rows.append(
            [
                max(
                    (before[many - size][0] + count, size)
                    for size, count in (*most.items(), (0, 0))
                    if size <= many
                )
                for many in range(cores + 1)
            ]
        )
    sizes: list[int] = []
    for row in reversed(rows[1:]):
        sizes.append(row[cores - sum(sizes)][1])
    found: list[tuple[int, int]] = []
    for size in sorted(sizes, reverse=True):
        found.append((size, min(most[size], requests)))
        requests -= found[-1][1]
    return tuple(found)


def divided(count: int, ends_s: Sequence[Callable[[int], float]]) -> list[int]:
    """How many of `count` requests each instance computes so that the last one ends soonest;
    `ends_s` tell when each ends 1, 2, … of them, none before fewer. The first of equal ones."""
    found = [0] * len(ends_s)
    heap = [(end_s(1), place) for place, end_s in enumerate(ends_s)]
    heapify(heap)
    for _ in range(count):
        soonest_s, place = heap[0]
        if soonest_s == inf:
            break
        found[place] += 1
        heapreplace(heap, (ends_s[place](found[place] + 1), place))
    return found
