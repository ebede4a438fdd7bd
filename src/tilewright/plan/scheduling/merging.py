"""Calls that may run as one: which of a problem's merges are carried out.

    reduce3 on 4 cores 40 µs, reduce5 30 µs   →   reduce3 + reduce5 on 4 cores 55 µs

A merge is decided before anything else is planned (Ding et al., Inter-Operator Scheduler, MLSys
2021, decide it for each stage): what is planned, kept and carried out afterwards is a problem whose
calls are those that are left, each with modes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import chain, takewhile
from math import inf
from time import perf_counter

from tilewright.core.errors import ModelError
from tilewright.core.grouping import grouped
from tilewright.plan.scheduling.parts import Merge, ScheduledCall, Wait
from tilewright.plan.scheduling.planners.ios import Ios
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.soundness import wait_for_each_other

_MOST_COMBINED = 5
"""So many merges are tried in all combinations; of more, one after the other is taken."""

Counted = Callable[[SchedulingProblem], SchedulingProblem]
"""The problem whose times count for a decision."""


def decided(problem: SchedulingProblem, counted: Counted, limit_s: float) -> SchedulingProblem:
    """The problem with those merges carried out with which `ios` finds the best schedule, and
    without the others. Merges that would leave no way to plan are not carried out.

    With more than five merges the one that gains most is taken, again and again until none gains.
    After `limit_s` seconds it is the best that was found so far, at least the problem without any.
    """
    end = perf_counter() + limit_s
    if len(problem.merges) <= _MOST_COMBINED:
        return _best(_combinations(problem), counted, end)
    found, before = problem, None
    while found is not before:
        before = found
        further = chain.from_iterable(_carried_out(found, merge) for merge in found.merges)
        found = _best(chain((found,), further), counted, end)
    return replace(found, merges=())


def _best(problems: Iterator[SchedulingProblem], counted: Counted, end: float) -> SchedulingProblem:
    """The one with the best schedule, the first of equal ones; what comes after the moment `end`
    is left out, but for the first."""
    found = next(problems)
    least = _objective(found, counted)
    for problem in takewhile(lambda _: perf_counter() < end, problems):
        value = _objective(problem, counted)
        if value < least:
            found, least = problem, value
    return found


def merged(problem: SchedulingProblem, merge: Merge) -> SchedulingProblem:
    """The problem with one merge carried out; of the others those stay that still can be.

    The call reads what any of its calls read, writes what all of them write, and is an answer where
    one of them is.
    """
    names = {call.name: call.name for call in problem.calls} | dict.fromkeys(
        merge.calls, merge.name
    )
    whole = _as_one(problem, merge)
    calls = {names[call.name]: call for call in problem.calls} | {merge.name: whole}
    read = grouped(
        ((names[wait.before], names[wait.after]), wait)
        for wait in sorted(problem.waits, key=lambda wait: (wait.before, wait.bytes))
    )
    waits = tuple(
        Wait(before=before, after=after, bytes=sum({w.before: w.bytes for w in each}.values()))
        for (before, after), each in read.items()
    )
    before = {name: [wait.before for wait in waits if wait.after == name] for name in calls}
    others = (each for each in problem.merges if not set(each.calls) & set(merge.calls))
    return replace(
        problem,
        calls=tuple(calls[name] for name in TopologicalSorter(before).static_order()),
        waits=waits,
        merges=tuple(each for each in others if not wait_for_each_other(each.calls, waits)),
    )


def _as_one(problem: SchedulingProblem, merge: Merge) -> ScheduledCall:
    calls = [problem.calls[problem.numbers[name]] for name in merge.calls]
    return ScheduledCall(
        name=merge.name,
        modes=merge.modes,
        network=calls[0].network,
        output_bytes=sum(call.output_bytes for call in calls),
        answer=any(call.answer for call in calls),
        crossing_s=max(call.crossing_s for call in calls),
    )


def _combinations(problem: SchedulingProblem) -> Iterator[SchedulingProblem]:
    """The problem with each set of merges that go together carried out, none first."""
    if not problem.merges:
        yield problem
        return
    first, *others = problem.merges
    yield from _combinations(replace(problem, merges=tuple(others)))
    for each in _carried_out(problem, first):
        yield from _combinations(each)


def _carried_out(problem: SchedulingProblem, merge: Merge) -> Iterator[SchedulingProblem]:
    """The problem with one merge carried out; nothing where that cannot be planned, as where no
    link goes to the only device of the merge."""
    try:
        found = merged(problem, merge)
    except ModelError:
        return
    yield found


def _objective(problem: SchedulingProblem, counted: Counted) -> float:
    try:
        return Ios().schedule(counted(replace(problem, merges=())), 0.0).objective
    except NothingFound:
        return inf
