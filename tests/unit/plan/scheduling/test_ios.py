"""`ios` finds the best stages: against all stages of small networks, counted another way."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, on_cores, plain_problem, problems, random_problem
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.planners.ios import Ios, tables_of
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem

MOST_CALLS, MOST_GROUPS = 3, 8


def least(problem: SchedulingProblem) -> float:
    """The least time of all divisions of a network on one device into stages."""
    cores, calls = problem.devices[0].cores, range(len(problem.calls))
    waits = {(before, after) for after in calls for before, _ in problem.before[after]}

    def groups(stage: frozenset[int]) -> list[list[int]]:
        found: list[list[int]] = []
        for call in sorted(stage):
            near = [g for g in found if any({(call, o), (o, call)} & waits for o in g)]
            found = [g for g in found if g not in near]
            found.append(sorted([call, *(other for g in near for other in g)]))
        return found

    def fastest(call: int, most: int) -> tuple[float, int]:
        modes = [(m.latency_s, -m.cores) for m in problem.calls[call].modes if m.cores <= most]
        return min(modes, default=(inf, 0))

    def row(group: list[int], most: int) -> float:
        modes = [fastest(call, most) for call in group]
        changes = sum(one[1] != other[1] for one, other in zip(modes, modes[1:], strict=False))
        return sum(seconds for seconds, _ in modes) + changes * problem.handoff_s

    def cost(stage: frozenset[int]) -> float:
        parts = groups(stage)
        if max(map(len, parts)) > MOST_CALLS or len(parts) > MOST_GROUPS:
            return inf
        if len(parts) == 1:
            ends = (parts[0][0], parts[0][-1])
            whole = all(fastest(call, cores)[1] == -cores for call in ends)
            return row(parts[0], cores) + (0 if whole else 2 * problem.handoff_s)
        shared = [
            max(row(part, given) for part, given in zip(parts, each, strict=True))
            for each in product(range(1, cores + 1), repeat=len(parts))
            if sum(each) <= cores
        ]
        return min(shared, default=inf) + 2 * problem.handoff_s

    @cache
    def rest(left: frozenset[int]) -> float:
        if not left:
            return 0.0
        subsets = [
            frozenset(call for place, call in enumerate(sorted(left)) if bits >> place & 1)
            for bits in range(1, 1 << len(left))
        ]
        endings = [
            each for each in subsets if not any(b in each and a in left - each for b, a in waits)
        ]
        return min(rest(left - each) + cost(each) for each in endings)

    return rest(frozenset(calls))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_stages_are_the_best_of_all(seed: int) -> None:
    problem = random_problem(seed, calls=7, devices=1, cores=4, limits=False)
    tables = tables_of(problem, "device0")
    assert tables is not None
    found = Ios().stages(tables)
    assert found is not None and found.exact
    assert found.latency_s == pytest.approx(least(problem))
    assert sorted(c for stage in found.stages for g in stage.groups for c in g) == list(
        range(len(problem.calls))
    )


def test_a_group_keeps_its_cores_from_the_others() -> None:
    """Two rows of three, one of which forks: its ends must not run beside each other."""
    narrow = on_cores(23, 1)
    problem = plain_problem(dict.fromkeys("abcdef", narrow), "a>b a>f c>d d>e", cores=2)
    assert Ios().schedule(problem, 0.0).objective == pytest.approx(69 * MICRO)


@settings(max_examples=25, deadline=None)
@example(seed=8353)
@given(seed=st.integers(0, 2**32 - 1))
def test_what_is_laid_out_ends_no_later_than_the_stages(seed: int) -> None:
    problem = random_problem(seed, calls=8, devices=1, cores=3, limits=False)
    tables = tables_of(problem, "device0")
    found = None if tables is None else Ios().stages(tables)
    if found is not None:
        assert Ios().schedule(problem, 0.0).latency_s <= found.latency_s + 1e-12


@settings(max_examples=25, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3))
def test_no_schedule_of_ios_breaks_a_limit(problem: SchedulingProblem) -> None:
    found = schedule_with("ios", problem)
    assert found.objective <= schedule_with("sequential", problem).objective


def test_groups_get_the_cores_that_they_need() -> None:
    """a is worth three of four cores beside b, which gains nothing from more."""
    problem = plain_problem(
        {"a": on_cores(90, 4), "b": (mode(us=30),), "join": on_cores(4, 4)},
        "a>join b>join",
        cores=4,
    )
    found = schedule_with("ios", problem)
    assert [len(found.slot[name].cores) for name in ("a", "b", "join")] == [3, 1, 4]
    assert found.objective == pytest.approx(31 * MICRO)
    assert found.note == "cpu: 2 stages, 1 of several groups"


def test_stages_begin_when_the_one_before_has_ended() -> None:
    """c waits for b alone, and nothing keeps it from beginning beside a but the end of the stage;
    all of its group keep the two cores of b, though c is as fast on one."""
    c = (mode(us=20), mode(cores=2, us=20))
    b = (mode(us=40), mode(cores=2, us=20))
    calls = {"a": (mode(us=50),), "b": b, "c": c, "d": c, "e": c, "join": on_cores(4, 4)}
    problem = plain_problem(calls, "b>c c>d d>e a>join e>join", cores=4)
    found = schedule_with("stages", problem)
    assert found.planner == "stages" and not list(faults(problem, found))
    ended_s = {name: found.slot[name].end_s for name in "abcde"}
    begins_s = {name: found.slot[name].begin_s for name in "abcde"}
    beside_a = [n for n in "bcde" if begins_s[n] < ended_s["a"] and begins_s["a"] < ended_s[n]]
    assert 1 <= len(beside_a) <= MOST_CALLS, "a group has three calls at most"
    assert len({found.slot[name].cores for name in beside_a}) == 1
    late = [n for n in "bcde" if n not in beside_a and begins_s[n] >= begins_s["a"]]
    assert all(begins_s[n] >= ended_s["a"] for n in late)


def test_a_network_with_too_many_sets_of_calls_is_told() -> None:
    calls = {f"{row}{place}": on_cores(10, 2) for row in "abcdefgh" for place in range(5)}
    waits = [f"{row}{place}>{row}{place + 1}" for row in "abcdefgh" for place in range(4)]
    found = Ios(most_steps=2000).schedule(plain_problem(calls, " ".join(waits)), 1.0)
    assert "not all sets of calls looked at" in found.note
    assert len(found.slots) == 40


def test_calls_that_wait_for_nothing_are_not_all_tried_together() -> None:
    """Of sixty of them there are more sets of up to eight than could be gone through, and hardly
    one has as few groups as there are cores."""
    problem = plain_problem({f"call{number}": on_cores(10, 4) for number in range(60)}, cores=4)
    found = Ios(most_steps=100).schedule(problem, 1.0)
    assert "not all sets of calls looked at" in found.note
    assert len(found.slots) == 60 and not list(faults(problem, found))
