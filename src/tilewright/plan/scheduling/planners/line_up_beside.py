"""What a trial takes where calls that run at a time slow each other down: for planners that try
many modes.

    queue, beside = LineUp(problem), Beside(queue)
    queue.latency_s(modes)     a on 0: 0 to 5      b on 1: 0 to 5      c on 0, 1: 5 to 7
    beside.latency_s(modes)    a on 0: 0 to 5.6    b on 1: 0 to 5.6    c on 0, 1: 5.6 to 7.6

Calls keep the cores of the trial, the order on each of them, and what passes from a result's end
until it is read. So all is as late as alone or later, and what is given up alone is rightly given
up here. What `simulate` says of the same schedule is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from tilewright.plan.scheduling.planners.line_up import LineUp


class Beside:
    """Of the last trial of a line-up, when its calls begin and end beside each other."""

    def __init__(self, queue: LineUp) -> None:
        problem = queue.problem
        self._queue = queue
        self._squares = {
            device.name: device.contention_bytes_per_s**2
            for device in problem.devices
            if device.contention_bytes_per_s is not None
        }
        self._rates = [[mode.bytes_per_s for mode in call.modes] for call in problem.calls]
        self.begins_s = [0.0] * len(problem.calls)
        self.ends_s = [0.0] * len(problem.calls)

    @property
    def known(self) -> bool:
        """Whether calls slow each other down on any device."""
        return bool(self._squares)

    def latency_s(self, modes: Sequence[int]) -> float:
        """When the last call ends, all of them having had their places in a trial of these modes
        that was not given up."""
        run = _Run(self, modes)
        while run.goes_on():
            pass
        return max(self.ends_s)

    def waits(self, modes: Sequence[int]) -> list[list[tuple[int, float]]]:
        """For each call those that it begins after, and how long after the end of each."""
        queue = self._queue
        handoff_s, begins, ends = queue.problem.handoff_s, queue.begins_s, queue.ends_s
        chosen = [own[place][0] for own, place in zip(queue.modes, modes, strict=True)]
        last: dict[tuple[str, int], int] = {}
        found: list[list[tuple[int, float]]] = [[] for _ in begins]
        for number in sorted(range(len(begins)), key=lambda n: (begins[n], ends[n], n)):
            device, own = chosen[number], found[number]
            for before in queue.before[number]:
                if chosen[before] != device:
                    way_s = queue.arrivals_s[before, device] - ends[before]
                    own.append((before, way_s + handoff_s))
                else:
                    near = queue.cores[before] == queue.cores[number]
                    own.append((before, 0.0 if near else handoff_s))
            places = [(device, core) for core in queue.cores[number]]
            own += [(each, 0.0) for each in {last[at] for at in places if at in last}]
            last.update(dict.fromkeys(places, number))
        return found

    def device_of(self, number: int, place: int) -> str:
        """Where a call runs in one of its modes."""
        return self._queue.modes[number][place][0]

    def seconds(self, number: int, place: int) -> float:
        """What a call takes alone in one of its modes."""
        return self._queue.modes[number][place][2]

    def slow_down(self, device: str, running: Sequence[_Running], now_s: float) -> None:
        """Have all that runs on a device go on as fast as it does beside the others."""
        square = self._squares.get(device)
        if square is None:
            return
        total = sum([each.rate for each in running])
        for each in running:
            factor = 1.0 + each.rate * (total - each.rate) / square
            each.left_s -= (now_s - each.since_s) / each.factor
            each.since_s, each.factor = now_s, factor
            each.end_s = now_s + each.left_s * factor

    def rate(self, number: int, place: int) -> float:
        """Bytes that a call moves in a second alone in one of its modes."""
        return self._rates[number][place]


class _Running:
    """A call that runs: so many seconds alone were left to do at `since_s`."""

    __slots__ = ("device", "end_s", "factor", "left_s", "number", "rate", "since_s")

    def __init__(self, number: int, device: str, rate: float, now_s: float, left_s: float) -> None:
        self.number, self.device, self.rate = number, device, rate
        self.since_s, self.left_s, self.factor = now_s, left_s, 1.0
        self.end_s = now_s + left_s


class _Run:
    """The events of a trial one after the other."""

    def __init__(self, beside: Beside, modes: Sequence[int]) -> None:
        self._beside, self._modes = beside, modes
        waits = beside.waits(modes)
        self._left = [len(each) for each in waits]
        self._readers: list[list[tuple[int, float]]] = [[] for _ in waits]
        for number, own in enumerate(waits):
            for before, delay_s in own:
                self._readers[before].append((number, delay_s))
        self._ready_s = [0.0] * len(waits)
        self._waiting = [(0.0, number) for number, count in enumerate(self._left) if not count]
        self._running: dict[str, list[_Running]] = {}

    def goes_on(self) -> bool:
        """The next begin or end; whether there was one."""
        ending, end_s = None, inf
        for there in self._running.values():
            for each in there:
                if each.end_s < end_s:
                    ending, end_s = each, each.end_s
        if self._waiting and (ending is None or self._waiting[0][0] < end_s):
            self._begin(*heappop(self._waiting))
            return True
        if ending is None:
            return False
        self._end(ending)
        return True

    def _begin(self, now_s: float, number: int) -> None:
        beside, place = self._beside, self._modes[number]
        beside.begins_s[number] = now_s
        device = beside.device_of(number, place)
        there = self._running.setdefault(device, [])
        rate, seconds = beside.rate(number, place), beside.seconds(number, place)
        there.append(_Running(number, device, rate, now_s, seconds))
        if len(there) > 1:
            beside.slow_down(device, there, now_s)

    def _end(self, ending: _Running) -> None:
        there, now_s = self._running[ending.device], ending.end_s
        self._beside.ends_s[ending.number] = now_s
        there.remove(ending)
        if there:
            self._beside.slow_down(ending.device, there, now_s)
        for reader, delay_s in self._readers[ending.number]:
            self._ready_s[reader] = max(self._ready_s[reader], now_s + delay_s)
            self._left[reader] -= 1
            if not self._left[reader]:
                heappush(self._waiting, (self._ready_s[reader], reader))
