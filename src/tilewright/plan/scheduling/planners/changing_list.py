"""A list of calls that changes little by little, placed again from the first change on only.

    order a, b, c, d; b takes another mode       a keeps its place; b, c and d are placed again
    c ends later than what follows it allows     d is not placed, and the list stays as it was

The figures are those of a trial of `line_up` with an order, for planners that try one change after
the other: the free cores and the busy links before each place of the order are kept. So is the
longest way from the end of each call to the end of the last, through calls that wait for results
and calls that wait for cores. Whoever comes after all changes and ends too late for that way is
taken to have the list end too late, which was wrong for 5 of 1,188 lists in time, where a call got
other cores. Memory, power and bandwidth are not looked at.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from math import inf

from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.profiles import free_from
from tilewright.plan.scheduling.schedule import Schedule, Slot, TransferSlot

_Chosen = tuple[int, int, float]
"""A mode: the number of its device, cores, seconds."""
_Free = tuple[list[float], list[float]]
"""When each core of a device is free, and the same in rising order. Never changed in place."""
_Busy = list[tuple[float, float]]
"""When a link is busy, in order. Never changed in place."""
_State = tuple[tuple[_Free, ...], dict[tuple[int, int], _Busy]]
"""The cores of all devices and the links before a place of the order."""


class ChangingList:
    """An `order` of all calls, which keeps every wait, the place in it of each call, the `modes` of
    the calls, and when the last one ends (`latency_s`). With `sure` no list is refused that ends in
    time. Raises ValueError where a way between devices is missing."""

    def __init__(
        self,
        problem: SchedulingProblem,
        order: Sequence[int],
        modes: Sequence[int],
        *,
        sure: bool = False,
    ) -> None:
        names = [device.name for device in problem.devices]
        self.problem, self.handoff_s, self._sure = problem, problem.handoff_s, sure
        self.before = [[number for number, _ in waits] for waits in problem.before]
        self.after = [[number for number, _ in waits] for waits in problem.after]
        self._modes: list[list[_Chosen]] = [
            [(names.index(mode.device), mode.cores, mode.latency_s) for mode in call.modes]
            for call in problem.calls
        ]
        self._ways_s = [
            {
                (origin, to): inf if seconds is None else seconds
                for origin, one in enumerate(names)
                for to, other in enumerate(names)
                for seconds in (problem.transfer_s(number, one, other),)
            }
            for number in range(len(problem.calls))
        ]
        self.order: list[int] = list(order)
        self.modes: list[int] = list(modes)
        self.places: list[int] = _places(order)
        self.chosen: list[_Chosen] = [
            own[place] for own, place in zip(self._modes, modes, strict=True)
        ]
        self.ends_s: list[float] = [0.0] * len(order)
        self.cores: list[tuple[int, ...]] = [()] * len(order)
        self.sent: dict[tuple[int, int], tuple[float, int]] = {}
        free: list[_Free] = [
            ([0.0] * device.cores, [0.0] * device.cores) for device in problem.devices
        ]
        ways = {(one, other): _Busy() for one in range(len(names)) for other in range(len(names))}
        self.states: list[_State] = [(tuple(free), ways)]
        trial = _Trial(self, 0, self.chosen)
        if not trial.placed(self.order, [0.0] * len(order), inf):
            raise ValueError("a way between devices is missing")
        self._keep(trial, self.order)

    def takes(
        self, modes: Mapping[int, int], limit_s: float, moved: tuple[int, int] | None = None
    ) -> bool:
        """Whether the list ends before `limit_s` with these modes of some calls, and one call moved
        to another place of the order, which keeps every wait: then it is changed so."""
        chosen, order = self.chosen.copy(), self.order
        for number, place in modes.items():
            chosen[number] = self._modes[number][place]
        changed, places = {*modes}, [self.places[number] for number in modes]
        if moved is not None:
            number, place = moved
            order = order.copy()
            order.insert(place, order.pop(self.places[number]))
            changed.add(number)
            places += [place, self.places[number]]
        if not changed:
            return self.latency_s < limit_s
        first, last = min(places), max(places)
        if limit_s <= self.latency_s and any(
            [self.ends_s[number] >= limit_s for number in order[:first]]
        ):
            return False
        trial, ways_s = _Trial(self, first, chosen), [0.0] * len(order)
        if not self._sure:
            ways_s = self._changed_ways_s(changed, order, (first, last), chosen)
        if not trial.placed(order, ways_s, limit_s):
            return False
        for number, place in modes.items():
            self.modes[number] = place
        self._keep(trial, order)
        return True

    def schedule(self, planner: str) -> Schedule:
        """The list as a schedule by this planner; whether it keeps the limits nobody says."""
        devices, slots, sent = self.problem.devices, list[Slot](), list[TransferSlot]()
        for number, call in enumerate(self.problem.calls):
            end_s, cores = self.ends_s[number], self.cores[number]
            begin_s, mode = end_s - self.chosen[number][2], self.modes[number]
            slots.append(Slot(call=call.name, mode=mode, begin_s=begin_s, end_s=end_s, cores=cores))
        for (number, to), (end_s, _) in self.sent.items():
            origin = self.chosen[number][0]
            sent.append(
                TransferSlot(
                    call=self.problem.calls[number].name,
                    origin=devices[origin].name,
                    destination=devices[to].name,
                    begin_s=end_s - self._ways_s[number][origin, to],
                    end_s=end_s,
                )
            )
        made = Schedule(
            planner=planner,
            slots=tuple(sorted(slots, key=lambda slot: (slot.begin_s, slot.end_s))),
            transfers=tuple(sorted(sent, key=lambda way: (way.begin_s, way.end_s))),
            objective=0.0,
        )
        return judged(self.problem, made)

    def transfer_s(self, number: int, origin: int, to: int) -> float:
        """What a call's result takes from one device to another; infinity where no link goes."""
        return self._ways_s[number][origin, to]

    def _keep(self, trial: _Trial, order: Sequence[int]) -> None:
        """Have what a trial says of all that is known."""
        self.order, self.places = list(order), _places(order)
        self.chosen, self.ends_s, self.cores = trial.chosen, trial.ends_s, trial.cores
        self.states[trial.first :] = trial.states
        self.sent = {k: way for k, way in self.sent.items() if way[1] < trial.first} | trial.sent
        self.latency_s: float = max(self.ends_s)
        if not self._sure:
            self._ways_on_s = self._found_ways_s()

    def _found_ways_s(self) -> list[float]:
        """The longest way from the end of each call to the end of a last one in this list."""
        found, cores_of, handoff_s = [0.0] * len(self.order), self.cores, self.handoff_s
        behind_s = [[0.0] * device.cores for device in self.problem.devices]
        for number in reversed(self.order):
            device, _, seconds = self.chosen[number]
            own, longest_s, behind = cores_of[number], 0.0, behind_s[device]
            for after in self.after[number]:
                to, _, after_s = self.chosen[after]
                way_s = after_s + found[after]
                if to != device:
                    way_s += self._ways_s[number][device, to] + handoff_s
                elif cores_of[after] != own:
                    way_s += handoff_s
                if way_s > longest_s:
                    longest_s = way_s
            for core in own:
                if behind[core] > longest_s:
                    longest_s = behind[core]
            found[number] = longest_s
            longest_s += seconds
            for core in own:
                behind[core] = longest_s
        return found

    def _changed_ways_s(
        self,
        changed: Collection[int],
        order: Sequence[int],
        between: tuple[int, int],
        chosen: Sequence[_Chosen],
    ) -> list[float]:
        """The same, as far as it is known: nothing of calls between the first change and the last
        one; of those that change what the calls say that wait for their results or their core."""
        found, (first, last) = self._ways_on_s.copy(), between
        for place in range(last, first - 1, -1):
            number = order[place]
            found[number] = 0.0
            if number not in changed:
                continue
            device, cores, _ = chosen[number]
            following = self.after[number]
            if self.problem.devices[device].cores == 1:
                behind = (each for each in order[place + 1 :] if chosen[each][0] == device)
                following = [*following, *islice(behind, 1)]
            for after in following:
                to, count, seconds = chosen[after]
                way_s = seconds + found[after]
                if to != device:
                    way_s += self._ways_s[number][device, to] + self.handoff_s
                elif count != cores:
                    way_s += self.handoff_s
                found[number] = max(found[number], way_s)
        return found


class _Trial:
    """What comes of a list where calls are placed anew from the place `first` on."""

    __slots__ = ("_free", "_links", "_list", "chosen", "cores", "ends_s", "first", "sent", "states")

    def __init__(self, known: ChangingList, first: int, chosen: list[_Chosen]) -> None:
        self._list, self.first, self.chosen = known, first, chosen
        self.ends_s: list[float] = known.ends_s.copy()
        self.cores: list[tuple[int, ...]] = known.cores.copy()
        free, self._links = known.states[first]
        self._free: list[_Free] = list(free)
        self.sent: dict[tuple[int, int], tuple[float, int]] = {}
        self.states: list[_State] = []

    def placed(self, order: Sequence[int], ways_s: Sequence[float], limit_s: float) -> bool:
        """Whether all calls, each in the soonest place behind those before, end in time for the
        ways from there to the end."""
        chosen, ends_s, free = self.chosen, self.ends_s, self._free
        for place in range(self.first, len(order)):
            self.states.append((tuple(free), self._links))
            number = order[place]
            device, count, seconds = chosen[number]
            ready_s, same_s, liked = self._ready(number, place)
            cores, rising = free[device]
            begin_s = rising[count - 1]
            if ready_s > begin_s:
                begin_s = ready_s
            if liked and same_s < begin_s:
                for core in liked:
                    if cores[core] > same_s:
                        same_s = cores[core]
                if same_s < begin_s:
                    begin_s = same_s
            end_s = begin_s + seconds
            if end_s + ways_s[number] >= limit_s or end_s == inf:
                return False
            ends_s[number] = end_s
            if count == len(cores):
                self.cores[number] = tuple(range(count))
                alike = [end_s] * count
                free[device] = alike, alike
            else:
                self.cores[number] = own = _taken(cores, count, liked, begin_s)
                after = cores.copy()
                for core in own:
                    after[core] = end_s
                free[device] = after, sorted(after)
        return True

    def _ready(self, number: int, place: int) -> tuple[float, float, tuple[int, ...]]:
        """When all results are there on any cores, and on those that the call likes, as it waits
        for one that had them."""
        known, chosen = self._list, self.chosen
        device, count, _ = chosen[number]
        handoff_s, liked_s, latest_s = known.handoff_s, 0.0, 0.0
        liked: tuple[int, ...] = ()
        arrivals: list[tuple[float, tuple[int, ...]]] = []
        for before in known.before[number]:
            origin = chosen[before][0]
            if origin == device:
                end_s, own = self.ends_s[before], self.cores[before]
                if len(own) == count and (end_s, own) > (liked_s, liked):
                    liked, liked_s = own, end_s
            else:
                end_s, own = self._arrival_s(before, origin, device, place), ()
            arrivals.append((end_s, own))
            if end_s > latest_s:
                latest_s = end_s
        if not arrivals:
            return 0.0, 0.0, ()
        if not liked or not handoff_s:
            return latest_s + handoff_s, inf, ()
        if len(arrivals) == 1:
            return latest_s + handoff_s, latest_s, liked
        same_s = max([end_s + handoff_s * (own != liked) for end_s, own in arrivals])
        return latest_s + handoff_s, same_s, liked

    def _arrival_s(self, before: int, origin: int, device: int, place: int) -> float:
        """When a result is on another device, which the first call that reads it there has it sent
        to."""
        key, first = (before, device), self.first
        sent = self.sent.get(key) or self._list.sent.get(key)
        if sent is not None and (sent[1] < first or key in self.sent):
            return sent[0]
        seconds = self._list.transfer_s(before, origin, device)
        if seconds == inf:
            return inf
        way = origin, device
        busy = self._links[way].copy()
        begin_s = free_from(busy, self.ends_s[before], seconds)
        insort(busy, (begin_s, begin_s + seconds))
        self._links = {**self._links, way: busy}
        self.sent[key] = begin_s + seconds, place
        return begin_s + seconds


def _taken(
    cores: Sequence[float], count: int, liked: tuple[int, ...], now: float
) -> tuple[int, ...]:
    """So many free cores: all that a call likes, else those that were busy last."""
    if liked and max([cores[core] for core in liked]) <= now:
        return liked
    idle = [core for core, end in enumerate(cores) if end <= now]
    idle.sort(key=cores.__getitem__)
    return tuple(sorted(idle[-count:]))


def _places(order: Sequence[int]) -> list[int]:
    places = [0] * len(order)
    for place, number in enumerate(order):
        places[number] = place
    return places
