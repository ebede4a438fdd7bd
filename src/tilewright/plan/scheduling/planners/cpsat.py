"""The planner `cpsat`: constraint programming over modes and begins, with a proven bound.

Multi-mode scheduling under shared resources (Brucker et al. 1999) with optional intervals (Laborie
and Rogerie 2008), solved by OR-Tools' CP-SAT. What quicker planners found is where it starts, so
that it is never worse.

Where all calls run on one device, a network falls apart at calls that all others come before or
after: what lies between two of those is planned by itself, and once where it comes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from tilewright.hardware.probe import default_threads
from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.choosing import best, gathered, least
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.planners.annealing import annealed
from tilewright.plan.scheduling.planners.antichains import apart_s
from tilewright.plan.scheduling.planners.compiled_walk import on_one_device, walked
from tilewright.plan.scheduling.planners.cuts import (
    Sections,
    joined,
    likeness,
    named_as,
    sections_of,
)
from tilewright.plan.scheduling.planners.modes import Reduced, reduced
from tilewright.plan.scheduling.planners.starts import quick_schedules
from tilewright.plan.scheduling.planners.thrift import saves, thriftier
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound

if TYPE_CHECKING:
    from tilewright.plan.scheduling.planners.constraint_solution import Outcome

_LEAST_S = 0.05
_THRIFT, _THRIFT_WHOLE = 0.3, 0.8
"""Of the time, for modes that take less energy; and of what is left of it at least where a problem
does not fall apart, so that the search proves and finds little."""
_WARM, _WALKS = 0.2, 2
"""Of the time, for schedules that are made better by chance, and how many of these."""
_NEAR = 0.01
"""What is as close to the bound is left to the search."""
_MANY, _COMPILED, _APART = 24, 0.8, 0.15
"""With more calls than so many that fall apart no further, most of the time is for compiled steps
by chance, and some for sets of calls: constraint programming proves nothing there."""
_COMPILED_S, _HASTE = 1.0, 0.25
"""The least time that is worth what compiling these steps takes, and which part of their time quick
planners have before."""
_POLISHED, _COOLED = 0.06, 0.6
"""Of the time, for compiled steps over all sections at once, and from which part of a round on: a
section does not know whether the next one begins with a hand-off."""
_MOST_SEARCHED, _COMPILED_ONLY = 200, 0.97
"""With more calls than so many constraint programming finds nothing in a minute either, and does
not end in time: of 478 calls it took 5 s longer than the 13 that it had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpSat:
    """Proves a bound, and the optimum if its time lets it. `workers` threads search in different
    ways; the eight that it has at least are worth their turns on fewer cores."""

    name: str = "cpsat"
    workers: int = 8
    seed: int = 1

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """The best of what quick planners and CP-SAT find in this time."""
        return self.improved(problem, (), limit_s)

    def improved(
        self, problem: SchedulingProblem, starts: Sequence[Schedule], limit_s: float
    ) -> Schedule:
        """The same, from schedules that are known as well, be it of the problem with other limits
        or another objective."""
        begin = perf_counter()
        small = reduced(problem)
        kept = [
            judged(problem, each) for each in starts if next(faults(problem, each), None) is None
        ]
        known = [inside for each in kept if (inside := small.inside(each)) is not None]
        known += _quick(small.problem, limit_s)
        cut = sections_of(small.problem)
        lasts_s = _THRIFT * limit_s
        if cut is None:
            lasts_s = max(lasts_s, _THRIFT_WHOLE * (begin + limit_s - perf_counter()))
        known += self._thrifty(small, known, starts, lasts_s)
        if cut is None:
            known.sort(key=lambda each: each.objective)
            if known and problem.objective == "latency" and not _many(small.problem, limit_s):
                known.insert(0, self._annealed(small.problem, known[0], begin + limit_s))
            found = self._whole(small.problem, known, begin + limit_s)
        else:
            found = self._joined(cut, known, begin + limit_s)
        taken = least(small.problem, [found, *known])
        proven = min(max(found.bound, bound(problem)), taken.objective)
        solve_s = perf_counter() - begin
        considered = tuple(small.outside(each) for each in gathered((*known, found)))
        return replace(
            small.outside(taken),
            planner=self.name,
            note=found.note,
            bound=proven,
            solve_s=solve_s,
            considered=considered,
        )

    def _thrifty(
        self,
        small: Reduced,
        known: Sequence[Schedule],
        starts: Sequence[Schedule],
        lasts_s: float,
    ) -> list[Schedule]:
        """Where energy counts, the fastest schedule's calls in modes that take less of it; whatever
        limits of energy the fastest one breaks."""
        every = [*known, *filter(None, map(small.inside, starts))]
        if not saves(small.problem) or not every:
            return []
        fastest = min(every, key=lambda each: each.latency_s)
        found = thriftier(small.problem, fastest, perf_counter() + lasts_s)
        return [found] if found is not None else []

    def _joined(self, cut: Sections, known: Sequence[Schedule], until: float) -> Schedule:
        """The schedules of all sections, one after the other; then bounds without regard to how the
        one before it ended."""
        found: list[Schedule] = []
        answers: dict[object, tuple[SchedulingProblem, Schedule]] = {}
        first: Sequence[int] = cut.all_places(0)
        wide = any(end - begin >= _MANY for begin, end in cut.ends)
        left_s, apart = until - perf_counter(), 0.0
        ends = until
        if wide and _many(cut.problem, left_s):
            if len(cut.problem.calls) <= _MOST_SEARCHED:  # else hand-offs hardly count
                apart = apart_s(cut.problem, perf_counter() + _APART * left_s)
            ends -= _POLISHED * left_s
        for number, (_, end) in enumerate(cut.ends):
            part = cut.section(number, first, bare=False)
            key = likeness(part.problem)
            if key not in answers:
                by = perf_counter() + cut.share(number) * (ends - perf_counter())
                quick = _quick(part.problem, by - perf_counter())
                answers[key] = part.problem, self._whole(part.problem, quick, by)
            found.append(part.outside(named_as(part.problem, *answers[key])))
            first = [found[-1].slot[cut.problem.calls[end].name].mode]
        bounds = self._bounds(cut, found, until)
        chosen = min([joined(cut, found), *known], key=lambda each: each.objective)
        if ends < until:
            better = walked(cut.problem, chosen, until, seed=self.seed, cooled=_COOLED)
            chosen = _least_kept(cut.problem, chosen, [better])
        note = f"in {len(found)} sections, {len(answers)} of which are distinct"
        return replace(chosen, bound=max(apart, sum(bounds)), note=note)

    def _bounds(self, cut: Sections, found: Sequence[Schedule], until: float) -> list[float]:
        """What each section takes at least, in whichever modes it begins and ends."""
        bounds: list[float] = []
        proven: dict[object, float] = {}
        for number, schedule in enumerate(found):
            least, slack_s = schedule.bound, cut.slack_s(number)
            if slack_s:
                part = cut.section(number, cut.all_places(cut.ends[number][0]), bare=True)
                key = likeness(part.problem)
                if key not in proven:
                    left = cut.share(number) * (until - perf_counter())
                    proven[key] = self._least(part.problem, schedule.objective, left)
                least = max(least - slack_s, proven[key])
            bounds.append(max(0.0, least))
        return bounds

    def _least(self, problem: SchedulingProblem, within_s: float, limit_s: float) -> float:
        """What a section takes at least that has this long."""
        if len(problem.calls) > _MOST_SEARCHED and on_one_device(problem):
            return bound(problem)
        return self._solved(problem, within_s, None, limit_s).bound

    def _solved(
        self, problem: SchedulingProblem, within_s: float, start: Schedule | None, limit_s: float
    ) -> Outcome:
        from tilewright.plan.scheduling.planners.constraint_solution import Search, solved

        workers = max(self.workers, default_threads())
        search = Search(limit_s=max(_LEAST_S, limit_s), workers=workers, seed=self.seed)
        return solved(problem, within_s, start, search)

    def _whole(
        self, problem: SchedulingProblem, known: Sequence[Schedule], until: float
    ) -> Schedule:
        start = known[0] if known else None
        if start is not None and start.objective <= bound(problem):
            return replace(start, bound=start.objective)
        within_s, proven_s = _longest_s(problem), 0.0
        if start is not None and problem.objective == "latency":
            if _many(problem, until - perf_counter()):
                start, proven_s = self._walked(problem, start, until)
            if len(problem.calls) > _MOST_SEARCHED and on_one_device(problem):
                return replace(start, bound=max(proven_s, bound(problem)))
            within_s = start.latency_s
        answer = self._solved(problem, within_s, start, until - perf_counter())
        attempts = [lambda: start] if start is not None else []
        if answer.schedule is not None:
            attempts.append(partial(judged, problem, answer.schedule))
        if answer.timed is not None:
            begins = [each.begin_s for each in answer.timed]
            order = sorted(range(len(begins)), key=begins.__getitem__)
            modes = [each.mode for each in answer.timed]
            attempts.append(partial(decode, problem, order, modes))
        return replace(best(problem, self.name, attempts), bound=max(answer.bound, proven_s))

    def _walked(
        self, problem: SchedulingProblem, start: Schedule, until: float
    ) -> tuple[Schedule, float]:
        """A schedule of many calls made better by compiled steps, and what it takes at least; as it
        was, and 0, where it is close to the bound."""
        left_s = until - perf_counter()
        if start.latency_s <= bound(problem) * (1 + _NEAR):
            return start, 0.0
        proven_s = apart_s(problem, perf_counter() + _APART * left_s)
        share = _COMPILED if len(problem.calls) <= _MOST_SEARCHED else _COMPILED_ONLY
        by = perf_counter() + share * (until - perf_counter())
        found = walked(problem, start, by, max(proven_s, bound(problem)), seed=self.seed)
        made = [found]
        order = [problem.numbers[slot.call] for slot in found.slots]
        modes = [found.slot[call.name].mode for call in problem.calls]
        with suppress(NothingFound):
            made.append(decode(problem, order, modes))
        return _least_kept(problem, start, made), proven_s

    def _annealed(self, problem: SchedulingProblem, start: Schedule, until: float) -> Schedule:
        """The schedule made better by chance, where it is far from the bound; itself where that
        finds nothing, or nothing that keeps the limits."""
        begin = perf_counter()
        each_s = _WARM * (until - begin) / _WALKS
        if start.objective <= bound(problem) * (1 + _NEAR) or each_s <= 0.0:
            return start
        order = [problem.numbers[slot.call] for slot in start.slots]
        modes = [start.slot[call.name].mode for call in problem.calls]
        found: list[Schedule] = [start]
        for walk in range(_WALKS):
            since = perf_counter()
            passed = partial(_passed, since, each_s)
            best_list = annealed(problem, order, modes, passed, self.seed + walk)
            with suppress(NothingFound):
                made = decode(problem, best_list.order, best_list.modes)
                if next(faults(problem, made), None) is None:
                    found.append(made)
        return replace(least(problem, found), planner=start.planner)


def _quick(problem: SchedulingProblem, limit_s: float) -> list[Schedule]:
    """What quick planners find; in a quarter of their time where compiled steps go on from it."""
    return quick_schedules(problem, limit_s * (_HASTE if _many(problem, limit_s) else 1.0))


def _many(problem: SchedulingProblem, limit_s: float) -> bool:
    """Whether there are so many calls, and so much time, that compiled steps are worth it."""
    return len(problem.calls) > _MANY and limit_s >= _COMPILED_S and on_one_device(problem)


def _least_kept(problem: SchedulingProblem, start: Schedule, made: Sequence[Schedule]) -> Schedule:
    """The best of a schedule and of those made from it that keep all limits."""
    kept = [each for each in made if next(faults(problem, each), None) is None]
    return replace(least(problem, [start, *kept]), planner=start.planner)


def _passed(since: float, lasts_s: float) -> float:
    return (perf_counter() - since) / lasts_s


def _longest_s(problem: SchedulingProblem) -> float:
    """No schedule needs longer in which nothing could begin sooner: all calls in their slowest
    modes and all transfers, one after the other."""
    calls_s = sum(max(mode.latency_s for mode in call.modes) for call in problem.calls)
    sent = (number for number, size in enumerate(problem.sent_bytes) if size)
    transfers_s = sum(sum(problem.transfers_s(number)) for number in sent)
    return calls_s + transfers_s + len(problem.calls) * problem.handoff_s
