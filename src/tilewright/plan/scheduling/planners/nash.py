"""The planner `nash`: calls choose their modes in turn, each the best for all, until none gains.

    a and b each on 4 cores, one after the other: 50 µs; on 2 cores beside each other: 43 µs
    a alone on 2 cores: 68 µs, so neither moves first; both as one player do

A game in which all players have the same payoff is a potential game (Monderer and Shapley 1996):
each move lowers what all pay, so it ends, and where it ends is a Nash equilibrium. Players are
calls, chains of calls, and networks where there are several; the payoff is the objective of the
problem, and of equals the one with less work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from math import inf
from time import perf_counter

from tilewright.plan.scheduling.beside import beside_each_other
from tilewright.plan.scheduling.bounds import usable_modes
from tilewright.plan.scheduling.choosing import best
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.parts import NO_LIMITS, ScheduledCall
from tilewright.plan.scheduling.planners.cuts import (
    Sections,
    joined,
    likeness,
    named_as,
    sections_of,
)
from tilewright.plan.scheduling.planners.heft import lists
from tilewright.plan.scheduling.planners.line_up import LineUp
from tilewright.plan.scheduling.planners.line_up_beside import Beside
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.precedence import (
    all_after,
    all_before,
    blocks,
    chains,
    never_beside_another,
    waits_of,
)
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound

_LESS = 1 - 1e-9
_DECODED = 2
"""How many ends of games get proper places; the quick ones do not differ by much."""
_SHARE = 0.25
"""Of the time that is left a section may take so much, however small it is."""
_PART = 0.1
"""Of a round, by which games from poor starts have mostly passed the known schedules."""
_LISTS = 0.3
"""Of the time, after which no further list of `heft` is made for several devices."""
_FIRST = 0.7
"""Of the time that is left then, for the game that begins with the best of them."""
_SAVED = 0.5
"""Of that time, where it does not suffice for such a part; little is found then, and soon."""
_PLACING = 12
"""In how many times a trial these have their places and are checked."""

Cost = tuple[float, float, float]
"""By how much limits are broken, the objective, core-seconds."""

_NEVER: Cost = inf, inf, inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Nash:
    """The best end of games that begin with known schedules: calls in their fastest modes, with few
    cores for those that others may run beside, with shares of the cores by work. What the planner
    `sequential` finds where that is better. Memory, power and bandwidth are looked at when a game
    is over. After `most_s` the best so far is the answer."""

    name: str = "nash"
    most_rounds: int = 20
    most_s: float = 0.09

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """The best of them. `details` say after how many rounds and moves of how many games, and
        whether nobody gained by another mode then (`converged`, 1 or 0)."""
        until = perf_counter() + min(limit_s, self.most_s)
        cut = sections_of(problem)
        ends: list[_End] = []
        if cut is None:
            ends = self.games(problem, until)[:_DECODED]
            attempts = [partial(decode, problem, end.order, end.modes) for end in ends]
        else:
            attempts = [partial(self._in_sections, cut, ends, until)]
        found = self._no_worse_than_sequential(problem, attempts)
        details = {
            "games": float(len(ends)),
            "rounds": float(max((end.rounds for end in ends), default=0)),
            "moves": float(sum(end.moves for end in ends)),
            "converged": float(all(end.converged for end in ends)),
        }
        if any(device.contention_bytes_per_s is not None for device in problem.devices):
            details["beside_s"] = beside_each_other(problem, found).latency_s
        stop = "equilibrium" if details["converged"] else "stopped"
        note = f"{stop} after {details['rounds']:.0f} rounds and {details['moves']:.0f} moves"
        return replace(found, note=note, details=details)

    def _no_worse_than_sequential(
        self, problem: SchedulingProblem, attempts: Sequence[Callable[[], Schedule]]
    ) -> Schedule:
        """The best of them and of `sequential`, which is not asked where it cannot be better."""
        sequential = partial(Sequential().schedule, problem, self.most_s)
        try:
            found = best(problem, self.name, attempts)
        except NothingFound:
            return best(problem, self.name, [sequential])
        if problem.objective == "latency":
            alone_s = sum(min(mode.latency_s for mode in call.modes) for call in problem.calls)
            if beside_each_other(problem, found).objective <= alone_s:
                return found
        return best(problem, self.name, [lambda: found, sequential])

    def _in_sections(self, cut: Sections, ends: list[_End], until: float) -> Schedule:
        """A game for each section, what two of them have in common being fixed; `ends` gets where
        they ended."""
        found: list[Schedule] = []
        known: dict[object, tuple[SchedulingProblem, Schedule]] = {}
        first: Sequence[int] = cut.all_places(0)
        for number, (_, end) in enumerate(cut.ends):
            part = cut.section(number, first, bare=False)
            key = likeness(part.problem)
            if key not in known:
                share = max(_SHARE, cut.share(number))
                by = perf_counter() + share * (until - perf_counter())
                ends.append(self.games(part.problem, by)[0])
                known[key] = part.problem, decode(part.problem, ends[-1].order, ends[-1].modes)
            found.append(part.outside(named_as(part.problem, *known[key])))
            first = [found[-1].slot[cut.problem.calls[end].name].mode]
        return joined(cut, found)

    def games(self, problem: SchedulingProblem, until: float) -> list[_End]:
        """Where games end, the best first. They begin with shares and with all cores on each
        device, from where they find most; with the best starts where there is no time for a good
        part of a round, and with the best one where no game ended as well. Where calls slow each
        other down games are played as if they did not, then on from there as they do."""
        trials, (starts, others), players = (
            _Trials(problem, alone=True),
            _starts(problem),
            _players(problem),
        )
        begin = perf_counter()
        costs = [trials.cost(modes, None) for modes in starts]
        trial_s = (perf_counter() - begin) / len(starts)
        for modes in others:  # only those that are among the best are tried to their end
            costs.append(trials.cost(modes, sorted(costs)[len(starts) - 1]))
        every = zip(costs, [*starts, *others], strict=True)
        known = [modes for _, modes in sorted(every, key=lambda each: each[0])]
        until -= _PLACING * trial_s
        left_s = until - perf_counter()
        hurried = _PART * trial_s * sum(map(len, players)) > left_s
        chosen = known[: len(starts)] if hurried else starts
        if hurried and len(problem.devices) == 1:
            until -= _SAVED * max(0.0, left_s)
        listed = self._behind_lists(problem, players, until) if len(problem.devices) > 1 else []
        ends = [self._played(trials, players, start, until) for start in chosen]
        if any(device.contention_bytes_per_s is not None for device in problem.devices):
            trials = _Trials(problem)
            ends = [self._played_on(trials, players, end, until) for end in ends]
            known.sort(key=lambda modes: trials.cost(modes, None))
        ends += listed
        best_known = known[0]
        if _less(trials.cost(best_known, None), min(end.cost for end in ends)):
            ends.append(self._played(trials, players, best_known, until))
        return sorted(ends, key=lambda end: end.cost)

    def _behind_lists(
        self, problem: SchedulingProblem, players: _Players, until: float
    ) -> list[_End]:
        """A game that begins with the best of the first lists of `heft`, and in which calls keep
        the order of that."""
        begin, found = perf_counter(), list[Schedule]()
        for made in lists(problem):
            with suppress(NothingFound):
                found.append(made())
            if perf_counter() > begin + _LISTS * (until - begin):
                break
        if not found:
            return []
        start = min(found, key=lambda schedule: schedule.objective)
        order = [problem.numbers[slot.call] for slot in start.slots]
        modes = [start.slot[call.name].mode for call in problem.calls]
        half = perf_counter() + _FIRST * (until - perf_counter())
        end = self._played(_Trials(problem, order), players[::-1], modes, half)
        return [replace(end, behind=order)]

    def _played_on(self, trials: _Trials, players: _Players, end: _End, until: float) -> _End:
        """Where the game ends that begins where another one ended."""
        found = self._played(trials, players, end.modes, until)
        return replace(found, rounds=end.rounds + found.rounds, moves=end.moves + found.moves)

    def _played(
        self, trials: _Trials, players: _Players, start: Sequence[int], until: float
    ) -> _End:
        game, rounds, moves, moved = _Game(trials, start), 0, 0, 1
        while moved and rounds < self.most_rounds and perf_counter() < until:
            in_time = takewhile(lambda _: perf_counter() < until, players)
            moved = sum(game.moved(strategies) for strategies in in_time)
            rounds, moves = rounds + 1, moves + moved
        return _End(
            cost=game.cost,
            order=game.order(),
            modes=game.modes,
            rounds=rounds,
            moves=moves,
            converged=not moved and perf_counter() < until,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """Where a game ends; `behind` is the order in which calls had places, if in a given one."""

    cost: Cost
    order: Sequence[int]
    modes: Sequence[int]
    rounds: int
    moves: int
    converged: bool
    behind: Sequence[int] | None = None


class _Game:
    """The modes that all have now, and what they cost. Calls rank by the longest way to the end."""

    def __init__(self, trials: _Trials, modes: Sequence[int]) -> None:
        self.modes = list(modes)
        self._trials = trials
        self.cost = trials.cost(self.modes, None)

    def order(self) -> list[int]:
        """The calls by their begins."""
        return self._trials.order(self.modes)

    def moved(self, strategies: Sequence[Mapping[int, int]]) -> bool:
        """Let a player take the best of its strategies, if that is better than what it has."""
        before = self.cost
        best_modes = self.modes
        for strategy in strategies:
            modes = list(self.modes)
            for number, mode in strategy.items():
                modes[number] = mode
            cost = self._trials.cost(modes, self.cost)
            if _less(cost, self.cost):
                self.cost, best_modes = cost, modes
        self.modes = best_modes
        return self.cost != before


class _Trials:
    """What modes cost, each tried once: those that were given up have been so in time."""

    def __init__(
        self,
        problem: SchedulingProblem,
        order: Sequence[int] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self._problem, self._queue = problem, LineUp(problem, order)
        self._beside = Beside(self._queue)
        self._neighbours = self._beside.known and not alone
        self._known: dict[tuple[int, ...], tuple[float, Cost]] = {}
        self._begins_s: dict[tuple[int, ...], list[float]] = {}
        self._work_s = [[m.cores * m.latency_s for m in call.modes] for call in problem.calls]
        self._plain = problem.objective == "latency" and problem.limits == NO_LIMITS

    def order(self, modes: Sequence[int]) -> list[int]:
        """The calls by their begins."""
        begins_s = self._begins_s.get(tuple(modes))
        if begins_s is None:
            self._queue.latency_s(modes)
            begins_s = self._queue.begins_s
        return sorted(range(len(begins_s)), key=begins_s.__getitem__)

    def cost(self, modes: Sequence[int], now: Cost | None) -> Cost:
        """What modes cost; infinity in all where that is certainly not less than what it is now."""
        key = tuple(modes)
        until_s, known = self._known.get(key, (0.0, _NEVER))
        if known is not _NEVER:
            return known
        work_s = sum([own[place] for own, place in zip(self._work_s, modes, strict=True)])
        limit_s = self._limit_s(now, work_s)
        if limit_s > until_s:
            known = self._tried(modes, work_s, limit_s)
            self._known[key] = limit_s, known
        return known

    def _limit_s(self, now: Cost | None, work_s: float) -> float:
        """When all must have ended in something better, which may be as long with less work."""
        if self._problem.objective != "latency" or now is None or now[0]:
            return inf
        return now[1] * ((2 - _LESS) if work_s < now[2] * _LESS else _LESS)

    def _tried(self, modes: Sequence[int], work_s: float, limit_s: float) -> Cost:
        problem = self._problem
        latency_s = self._queue.latency_s(modes, limit_s)
        if latency_s == inf:
            return _NEVER
        self._begins_s[tuple(modes)] = self._queue.begins_s.copy()
        times: Beside | LineUp = self._queue
        if self._neighbours:
            latency_s, times = self._beside.latency_s(modes), self._beside
        if self._plain:
            return 0.0, latency_s, work_s
        chosen = [call.modes[at] for call, at in zip(problem.calls, modes, strict=True)]
        idle_w = sum(device.idle_w or 0.0 for device in problem.devices)
        energy_j = sum(mode.energy_j or 0.0 for mode in chosen) + idle_w * latency_s
        loads = dict.fromkeys(problem.device, 0.0)
        for mode, begin, end in zip(chosen, times.begins_s, times.ends_s, strict=True):
            loads[mode.device] += mode.cores * (end - begin) / problem.device[mode.device].cores
        used = [problem.device[name].price_per_hour or 0.0 for name in {m.device for m in chosen}]
        objectives = {
            "latency": latency_s,
            "throughput": max(loads.values()),
            "energy": energy_j,
            "price": sum(used) * latency_s,
        }
        broken = (
            max(0.0, energy_j / problem.limits.energy_j - 1) if problem.limits.energy_j else 0.0
        )
        for network, seconds in problem.limits.deadlines_s.items():
            for call, end in zip(problem.calls, times.ends_s, strict=True):
                if network in ("", call.network):
                    broken = max(broken, end / seconds - 1)
        return broken, objectives[problem.objective], work_s


def _less(one: Cost, other: Cost) -> bool:
    """Whether a cost is less by more than rounding."""
    for mine, theirs in zip(one, other, strict=True):
        if mine < theirs * _LESS:
            return True
        if mine * _LESS > theirs:
            return False
    return False


_Players = Sequence[Sequence[Mapping[int, int]]]


def _players(problem: SchedulingProblem) -> _Players:
    """The strategies of each player: modes for its calls. A player of several calls chooses a
    device and the most cores for each of them."""
    waits = waits_of(problem)
    networks: dict[str, list[int]] = {}
    for number, call in enumerate(problem.calls):
        networks.setdefault(call.network, []).append(number)
    parts = [*chains(waits), *blocks(waits), *networks.values()]
    groups = dict.fromkeys(tuple(part) for part in parts if len(part) > 1)
    calls = [
        [{number: place} for place in places]
        for number, places in enumerate(usable_modes(problem))
        if len(places) > 1
    ]
    fastest = [
        {n: _fastest(problem, n, *limit) for n in {n for group in groups for n in group}}
        for limit in _limits(problem)
    ]
    several = [
        [{n: place for n in group if (place := within[n]) is not None} for within in fastest]
        for group in groups
    ]
    return [*calls, *several]


def _limits(problem: SchedulingProblem) -> list[tuple[str, int]]:
    """Devices, each with numbers of cores: all, half of them, and so on."""
    return [
        (device.name, device.cores >> halved)
        for device in problem.devices
        for halved in range(device.cores.bit_length())
    ]


def _fastest(problem: SchedulingProblem, number: int, device: str, most: int) -> int | None:
    """The fastest mode of a call on at most so many cores of a device, None where there is none."""
    modes = problem.calls[number].modes
    there = [p for p, mode in enumerate(modes) if mode.device == device and mode.cores <= most]
    return min(there, key=lambda place: modes[place].latency_s, default=None)


def _starts(problem: SchedulingProblem) -> tuple[list[list[int]], list[list[int]]]:
    """Starts of games, and others. All calls are in their fastest modes on each device where they
    can be there: on all cores, and on so many that chains of calls which may run at a time have
    shares by their work. The others are on any device, or on half of the cores and so on where
    another call may run beside them, as in the lists of `heft`."""
    usable, waits = usable_modes(problem), waits_of(problem)
    shares, alone = _shares(problem), set(never_beside_another(waits))
    most = max(device.cores for device in problem.devices)
    parts = [1 / (1 << halved) for halved in range(most.bit_length())]
    capped = [[1.0 if n in alone else part for n in range(len(usable))] for part in parts]
    devices = [(device.name, device.cores) for device in problem.devices]
    anywhere = [("", most)] if len(devices) > 1 else []
    within = {
        name: list(map(partial(_by_cores, name), problem.calls, usable))
        for name, _ in (*devices, *anywhere)
    }

    def with_all(due: Sequence[float], device: str, cores: int) -> tuple[int, ...]:
        rows = within[device]
        return tuple(
            [
                fastest[max(0, bisect_right(counts, part * cores) - 1)]
                for (counts, fastest), part in zip(rows, due, strict=True)
            ]
        )

    first = {with_all(due, *each): None for due in (shares, capped[0]) for each in devices}
    every = {
        with_all(due, *each): None for due in (shares, *capped) for each in (*devices, *anywhere)
    }
    return list(map(list, first)), [list(each) for each in every if each not in first]


def _by_cores(
    device: str, call: ScheduledCall, usable: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Numbers of cores in rising order, and for each of them the fastest mode of a call on at most
    so many of a device; on any device where it cannot be there, or where none is named."""
    there = [place for place in usable if call.modes[place].device == device] or usable
    counts, fastest = list[int](), list[int]()
    modes = [(call.modes[place], place) for place in there]
    for mode, place in sorted(modes, key=lambda each: (each[0].cores, each[0].latency_s)):
        best = fastest[-1] if fastest else place
        known = call.modes[best].latency_s, best
        fastest.append(place if (mode.latency_s, place) < known else best)
        counts.append(mode.cores)
    return counts, fastest


def _shares(problem: SchedulingProblem) -> list[float]:
    """Which part of a device each call is due, rounded to the nearest: the work of its chain over
    that of the chains that may run beside it."""
    waits = waits_of(problem)
    work = [min(m.cores * m.latency_s for m in call.modes) for call in problem.calls]
    found = [1.0] * len(work)
    rows = chains(waits)
    sums = [sum(work[number] for number in row) for row in rows]
    bits = [sum(1 << number for number in row) for row in rows]
    earlier, later = all_before(waits), all_after(waits)
    for row, own, mine in zip(rows, sums, bits, strict=True):
        apart = earlier[row[0]] | later[row[0]] | mine
        beside = sum(each for each, other in zip(sums, bits, strict=True) if not other & apart)
        for number in row:
            found[number] = 1.4 * own / (own + beside) if beside else 1.0
    return found
