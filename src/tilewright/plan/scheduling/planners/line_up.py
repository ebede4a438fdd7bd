"""How long calls take in some modes, quickly: for planners that try many.

    queue = LineUp(problem)
    queue.latency_s(modes, ranks, limit_s)      infinity as soon as it is not below `limit_s`

At each moment the calls that are ready begin, those of the highest rank first, where cores are left
for them. A link takes results in the order in which calls begin. Memory, power and bandwidth are
not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from tilewright.plan.scheduling.problem import SchedulingProblem


class _Waiting(NamedTuple):
    """A call whose ways are known: it may begin at `soonest_s` on any cores, at `same_s` on those
    that it likes, as it waits for a call that had them."""

    rank: float
    number: int
    soonest_s: float
    same_s: float
    liked: tuple[int, ...]


class LineUp:
    """A problem, and of the last trial when its calls begin and end."""

    def __init__(self, problem: SchedulingProblem) -> None:
        self.problem = problem
        self.begins_s = [0.0] * len(problem.calls)
        self.ends_s = [0.0] * len(problem.calls)
        self.before = [[number for number, _ in waits] for waits in problem.before]
        self._after = [[number for number, _ in waits] for waits in problem.after]
        self._least_s = tails_s(problem, [min(m.latency_s for m in c.modes) for c in problem.calls])
        self.modes = [[(m.device, m.cores, m.latency_s) for m in c.modes] for c in problem.calls]

    def latency_s(
        self, modes: Sequence[int], ranks: Sequence[float], limit_s: float = inf
    ) -> float:
        """When the last call ends; infinity where a way between devices is missing."""
        trial = _Trial(self, modes)
        left = [len(before) for before in self.before]
        waiting = [trial.waiting(n, ranks[n]) for n, count in enumerate(left) if not count]
        now = last = 0.0
        while waiting and now < inf:
            waiting.sort()
            later, kept, fresh = inf, list[_Waiting](), list[_Waiting]()
            for call in waiting:
                soonest = trial.soonest_s(call)
                if soonest > now:
                    kept.append(call)
                    later = min(later, soonest)
                    continue
                end = trial.begin(call, now)
                if end + self._least_s[call.number] >= limit_s:
                    return inf
                last = max(last, end)
                for after in self._after[call.number]:
                    left[after] -= 1
                    if not left[after]:
                        fresh.append(trial.waiting(after, ranks[after]))
            waiting = kept + fresh
            now = now if fresh else later
        return inf if waiting else last


class _Trial:
    """When cores and links are free and where results are, so far."""

    def __init__(self, queue: LineUp, modes: Sequence[int]) -> None:
        self._queue = queue
        self._chosen = [own[place] for own, place in zip(queue.modes, modes, strict=True)]
        self._free = {device.name: [0.0] * device.cores for device in queue.problem.devices}
        self._links = dict.fromkeys(queue.problem.link, 0.0)
        self._sent: dict[tuple[int, str], float] = {}
        self._cores: list[tuple[int, ...]] = [()] * len(modes)

    def waiting(self, number: int, rank: float) -> _Waiting:
        """A call all of whose results are on their way."""
        device, count, _ = self._chosen[number]
        handoff = self._queue.problem.handoff_s
        arrivals = [self._arrival(before, device) for before in self._queue.before[number]]
        soonest = max((end for end, _ in arrivals), default=-handoff) + handoff
        liked: tuple[int, ...] = ()
        if handoff and arrivals:
            liked = max((each for each in arrivals if len(each[1]) == count), default=(0.0, ()))[1]
        same = max((end + handoff * (own != liked) for end, own in arrivals), default=0.0)
        return _Waiting(-rank, number, soonest, same, liked)

    def _arrival(self, before: int, device: str) -> tuple[float, tuple[int, ...]]:
        """When a result is on a device, and on which cores of it if it was computed there."""
        end, origin = self._queue.ends_s[before], self._chosen[before][0]
        if origin == device:
            return end, self._cores[before]
        if (before, device) not in self._sent:
            problem, link = self._queue.problem, (origin, device)
            seconds = problem.transfer_s(before, origin, device)
            if seconds is None:
                return inf, ()
            self._links[link] = max(end, self._links[link]) + seconds
            self._sent[before, device] = self._links[link]
        return self._sent[before, device], ()

    def soonest_s(self, call: _Waiting) -> float:
        """When there are cores for a call, as far as is known."""
        device, count, _ = self._chosen[call.number]
        free = self._free[device]
        enough = max(free) if count == len(free) else sorted(free)[count - 1]
        soonest = enough if enough > call.soonest_s else call.soonest_s
        if call.liked and call.same_s < soonest:
            return min(soonest, max([call.same_s, *(free[core] for core in call.liked)]))
        return soonest

    def begin(self, call: _Waiting, now: float) -> float:
        """Give a call its cores, those that it likes if they are free: when it ends."""
        number = call.number
        device, count, seconds = self._chosen[number]
        free = self._free[device]
        cores = call.liked
        if not cores or any(free[core] > now for core in cores):
            idle = [core for core, end in enumerate(free) if end <= now]
            idle.sort(key=free.__getitem__)
            cores = tuple(sorted(idle[-count:]))
        for core in cores:
            free[core] = now + seconds
        self._cores[number] = cores
        self._queue.begins_s[number], self._queue.ends_s[number] = now, now + seconds
        return now + seconds


def tails_s(problem: SchedulingProblem, seconds: Sequence[float]) -> list[float]:
    """The longest way from the end of each call to the end of a last one, for given seconds."""
    found = [0.0] * len(problem.calls)
    for number in reversed(range(len(problem.calls))):
        found[number] = max(
            (seconds[after] + found[after] for after, _ in problem.after[number]), default=0.0
        )
    return found
