"""How long calls take in some modes, quickly: for planners that try many.

    queue = LineUp(problem)
    queue.latency_s(modes, limit_s)      infinity as soon as it is not below `limit_s`

At each moment the calls that are ready begin, those with the longest way to the end first, where
cores are left for them. In the order in which calls begin a link takes their results, each into the
soonest gap after the call's end. Memory, power and bandwidth are not looked at.

A trial is given up as soon as the longest way from the end of a call, or the work of a device with
what its cores have been idle, says that it ends too late.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from math import inf

from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.profiles import free_from

_Ends = tuple[float, tuple[int, ...]]


class LineUp:
    """A problem, and of the last trial when its calls begin and end, the cores that they have, and
    when results are on other devices. With an `order` of all calls, which keeps every wait, each
    has the soonest place behind those before it, instead of beginning when it is ready."""

    def __init__(self, problem: SchedulingProblem, order: Sequence[int] | None = None) -> None:
        self.problem, self.order = problem, order
        self.begins_s = [0.0] * len(problem.calls)
        self.ends_s = [0.0] * len(problem.calls)
        self.cores: list[tuple[int, ...]] = []
        self.arrivals_s: dict[tuple[int, str], float] = {}
        self.before = [[number for number, _ in waits] for waits in problem.before]
        self.after = [[number for number, _ in waits] for waits in problem.after]
        self.modes = [[(m.device, m.cores, m.latency_s) for m in c.modes] for c in problem.calls]
        self.devices = [(device.name, device.cores) for device in problem.devices]
        self.counts = [len(waits) for waits in self.before]
        self.first = [number for number, count in enumerate(self.counts) if not count]
        self._sent_s: dict[tuple[int, str, str], float] = {}

    def latency_s(self, modes: Sequence[int], limit_s: float = inf) -> float:
        """When the last call ends; infinity where a way between devices is missing."""
        trial = _Trial(self, modes, limit_s)
        if trial.too_much() or trial.too_long():
            return inf
        self.cores, self.arrivals_s = trial.cores, trial.sent_s
        if self.order is not None:
            return max(self.ends_s) if all(map(trial.placed, self.order)) else inf
        left = self.counts.copy()
        for number in self.first:
            trial.wait(number)
        while trial.waiting:
            if not trial.go_on():
                return inf
            for number in trial.begun():
                for after in self.after[number]:
                    left[after] -= 1
                    if not left[after]:
                        trial.wait(after)
        return inf if trial.late else max(self.ends_s)

    def transfer_s(self, number: int, origin: str, device: str) -> float:
        """What a call's result takes to another device; infinity where no link goes there."""
        key = number, origin, device
        if key not in self._sent_s:
            seconds = self.problem.transfer_s(*key)
            self._sent_s[key] = inf if seconds is None else seconds
        return self._sent_s[key]

    def tails_s(self, chosen: Sequence[tuple[str, int, float]]) -> list[float]:
        """The longest way from the end of each call to the end of a last one, with the transfers
        and hand-offs that must be."""
        handoff_s, found = self.problem.handoff_s, [0.0] * len(chosen)
        for number in range(len(chosen) - 1, -1, -1):
            device, cores, _ = chosen[number]
            longest_s = 0.0
            for after in self.after[number]:
                to, count, seconds = chosen[after]
                way_s = seconds + found[after]
                if to != device:
                    way_s += self.transfer_s(number, device, to) + handoff_s
                elif count != cores:
                    way_s += handoff_s
                if way_s > longest_s:
                    longest_s = way_s
            found[number] = longest_s
        return found


class _Device:
    """When the cores of a device are free, and what they have to do: `busy_s` is the work of all
    its calls and what its cores were idle until now."""

    def __init__(self, cores: int) -> None:
        self.all = tuple(range(cores))
        self.free = [0.0] * cores
        self.rising = self.free
        self.busy_s = 0.0

    def run(self, cores: Sequence[int], end: float) -> None:
        """Have these cores busy until then."""
        if cores is self.all:
            self.free = self.rising = [end] * len(cores)
            return
        free = self.free.copy()
        for core in cores:
            free[core] = end
        self.free, self.rising = free, sorted(free)

    def taken(self, count: int, liked: tuple[int, ...], now: float) -> tuple[int, ...]:
        """So many free cores: all that a call likes, else those that were busy last."""
        free = self.free
        if count == len(free):
            return self.all
        for core in liked:
            if free[core] > now:
                break
        else:
            if liked:
                return liked
        idle = [core for core, end in enumerate(free) if end <= now]
        idle.sort(key=free.__getitem__)
        return tuple(sorted(idle[-count:]))


class _Waiting:
    """A call whose ways are known: it may begin at `ready_s` on any cores, at `same_s` on those
    that it likes, as it waits for a call that had them; as far as is known at `soonest_s`."""

    __slots__ = ("count", "device", "liked", "number", "rank_s", "ready_s", "same_s", "soonest_s")

    def __init__(self, number: int, rank_s: float, device: _Device, count: int) -> None:
        self.rank_s, self.count = rank_s, count
        self.number, self.device = number, device
        self.liked: tuple[int, ...] = ()
        self.ready_s = self.same_s = self.soonest_s = 0.0

    def look(self) -> float:
        """When there are so many cores for it."""
        device, soonest_s = self.device, self.ready_s
        enough_s = device.rising[self.count - 1]
        if enough_s > soonest_s:
            soonest_s = enough_s
        if self.liked and self.same_s < soonest_s:
            same_s = self.same_s
            for core in self.liked:
                if device.free[core] > same_s:
                    same_s = device.free[core]
            if same_s < soonest_s:
                soonest_s = same_s
        self.soonest_s = soonest_s
        return soonest_s


class _Trial:
    """When cores and links are free and where results are, so far."""

    def __init__(self, queue: LineUp, modes: Sequence[int], limit_s: float) -> None:
        self.waiting: list[_Waiting] = []
        self.late = False
        self._queue, self._limit_s, self._now = queue, limit_s, 0.0
        self._chosen = [own[place] for own, place in zip(queue.modes, modes, strict=True)]
        self._tails_s: Sequence[float] = ()
        self._devices = {name: _Device(cores) for name, cores in queue.devices}
        if len(self._devices) == 1:
            self._devices[queue.devices[0][0]].busy_s = sum([c * s for _, c, s in self._chosen])
        else:
            for device, cores, seconds in self._chosen:
                self._devices[device].busy_s += cores * seconds
        self._links: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.sent_s: dict[tuple[int, str], float] = {}
        self.cores: list[tuple[int, ...]] = [()] * len(modes)

    def too_long(self) -> bool:
        """Whether a way through the calls does not end in time."""
        self._tails_s, first = self._queue.tails_s(self._chosen), self._queue.first
        return any([self._chosen[n][2] + self._tails_s[n] >= self._limit_s for n in first])

    def too_much(self) -> bool:
        """Whether a device has more to do than it can in time."""
        for device in self._devices.values():
            if device.busy_s >= self._limit_s * len(device.free):
                return True
        return False

    def wait(self, number: int) -> None:
        """Add a call all of whose results are on their way."""
        device, count, seconds = self._chosen[number]
        call = _Waiting(number, seconds + self._tails_s[number], self._devices[device], count)
        handoff_s, before = self._queue.problem.handoff_s, self._queue.before[number]
        ends_s, cores, chosen = self._queue.ends_s, self.cores, self._chosen
        arrivals = [
            (ends_s[n], cores[n]) if chosen[n][0] == device else self._arrival(n, device)
            for n in before
        ]
        if len(arrivals) == 1:
            call.same_s, call.liked = arrivals[0]
            call.ready_s = call.same_s + handoff_s
            if len(call.liked) != count or not handoff_s:
                call.same_s, call.liked = call.ready_s, ()
        elif arrivals:
            call.ready_s = max(arrivals)[0] + handoff_s
            same = [each for each in arrivals if len(each[1]) == count] if handoff_s else ()
            call.liked = max(same)[1] if same else ()
            call.same_s = max(end + handoff_s * (own != call.liked) for end, own in arrivals)
        self.waiting.append(call)

    def _arrival(self, before: int, device: str) -> _Ends:
        """When a result is on a device, and on which cores of it: none, as it was not computed
        there."""
        end, origin = self._queue.ends_s[before], self._chosen[before][0]
        if (before, device) not in self.sent_s:
            link, seconds = (origin, device), self._queue.transfer_s(before, origin, device)
            if seconds == inf:
                return inf, ()
            busy = self._links.setdefault(link, [])
            begin = free_from(busy, end, seconds)
            insort(busy, (begin, begin + seconds))
            self.sent_s[before, device] = begin + seconds
        return self.sent_s[before, device], ()

    def placed(self, number: int) -> bool:
        """Give a call the soonest place behind all others; whether all may still end in time."""
        self.wait(number)
        call = self.waiting.pop()
        self._now = call.look()
        if self._now + call.rank_s < self._limit_s:
            self._begin(call)
            return not self.late
        return False

    def go_on(self) -> bool:
        """To the next moment at which a call begins; whether all may still end in time."""
        later, limit_s = inf, self._limit_s
        for call in self.waiting:
            soonest_s = call.look()
            if soonest_s + call.rank_s >= limit_s:
                return False
            if soonest_s < later:
                later = soonest_s
        for device in self._devices.values():
            for end in device.rising:
                if end >= later:
                    break
                device.busy_s += later - (end if end > self._now else self._now)
        self._now = later
        return later < inf and not self.late and not self.too_much()

    def begun(self) -> list[int]:
        """The calls that begin now, those of the highest rank first."""
        now, found = self._now, list[int]()
        ready, later = list[_Waiting](), list[_Waiting]()
        for call in self.waiting:
            (ready if call.soonest_s <= now else later).append(call)
        self.waiting = later
        if len(ready) > 1:
            ready.sort(key=lambda call: (-call.rank_s, call.number))
        for call in ready:
            if found and call.look() > now:
                self.waiting.append(call)
            else:
                self._begin(call)
                found.append(call.number)
        return found

    def _begin(self, call: _Waiting) -> None:
        """Give a call its cores."""
        number, now = call.number, self._now
        _, count, seconds = self._chosen[number]
        cores, end = call.device.taken(count, call.liked, now), now + seconds
        call.device.run(cores, end)
        self.cores[number] = cores
        self._queue.begins_s[number], self._queue.ends_s[number] = now, end
        self.late |= end + self._tails_s[number] >= self._limit_s
