"""Merges: what a problem with one carried out says, and that the best of all are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from math import inf
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, on_cores, plain_problem, random_problem
from tilewright.core.errors import ModelError
from tilewright.deploy.planning import PlanRequest, plan_problem
from tilewright.plan.scheduling.answering import answer
from tilewright.plan.scheduling.merging import decided, merged
from tilewright.plan.scheduling.parts import Merge, ScheduledCall, ScheduleDevice, Wait
from tilewright.plan.scheduling.plan_file import read_plan
from tilewright.plan.scheduling.planners.ios import Ios, tables_of
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.problem_file import (
    format_problem,
    parse_problem,
    write_problem,
)
from tilewright.plan.scheduling.soundness import wait_for_each_other

AB = Merge(calls=("a", "b"), modes=on_cores(48, 4, overhead_us=1))


def module(merge: Merge = AB, cores: int = 4) -> SchedulingProblem:
    """Two calls of one image, what reads each, and the end that reads all; from the second call on
    each core more costs 1 µs."""
    calls = {name: on_cores(24, cores, overhead_us=1) for name in ("a", "b", "c", "d", "join")}
    return plain_problem(calls, "a>c b>d c>join d>join", cores=cores, merges=(merge,))


def expected(problem: SchedulingProblem) -> SchedulingProblem:
    return problem


def objective(problem: SchedulingProblem) -> float:
    return Ios().schedule(replace(problem, merges=()), 0.0).objective


def stages_s(problem: SchedulingProblem) -> float:
    """The best stages, whatever order the calls are in."""
    tables = tables_of(problem, "device0")
    found = None if tables is None else Ios().stages(tables)
    return inf if found is None else found.latency_s


def test_one_call_reads_and_writes_what_all_of_its_calls_did() -> None:
    calls = {name: (mode(),) for name in ("x", "a", "y", "c", "b", "d")}
    problem = plain_problem(calls, "x>a x>b y>b a>c b>d a>d", cores=4)
    sized = tuple(replace(w, bytes=len(w.before + w.after) * place) for place, w in
                  enumerate(problem.waits))  # fmt: skip
    known = tuple(replace(call, output_bytes=7, answer=call.name == "b") for call in problem.calls)
    found = merged(replace(problem, waits=sized, calls=known, merges=(AB,)), AB)
    whole = found.calls[found.numbers["a + b"]]
    assert (whole.modes, whole.output_bytes, whole.answer) == (AB.modes, 14, True)
    assert {(w.before, w.after): w.bytes for w in found.waits} == {
        ("x", "a + b"): 2, ("y", "a + b"): 4, ("a + b", "c"): 6, ("a + b", "d"): 8 + 10,
    }  # fmt: skip
    assert found.numbers["y"] < found.numbers["a + b"] < found.numbers["c"]
    assert not found.merges


def test_calls_are_merged_where_that_is_faster_than_beside_each_other() -> None:
    slow, fast = on_cores(60, 4, overhead_us=1), on_cores(30, 4, overhead_us=1)
    assert "a + b" in decided(module(replace(AB, modes=fast)), expected, inf).numbers
    assert "a + b" not in decided(module(replace(AB, modes=slow)), expected, inf).numbers
    late = tuple(replace(each, high_s=1.0) for each in fast)
    robust = answer(module(replace(AB, modes=late)), "ios", 1.0, robust=True)
    assert "a + b" not in robust.problem.numbers


def test_a_merge_may_exclude_another() -> None:
    """The second one would wait for what waits for it, once the first is carried out."""
    problem = plain_problem(
        {name: (mode(),) for name in "adcb"},
        "a>c d>b", cores=1,
        merges=(Merge(calls=("a", "b"), modes=(mode(us=5),)),
                Merge(calls=("c", "d"), modes=(mode(us=4),))),
    )  # fmt: skip
    assert not merged(problem, problem.merges[0]).merges
    assert [call.name for call in decided(problem, expected, inf).calls if "+" in call.name] == [
        "c + d"
    ]


def test_a_merge_without_a_way_to_its_device_is_not_carried_out() -> None:
    """What it reads is on another device: no link goes there."""
    calls = {name: (mode("cpu", us=9),) for name in ("x", "a", "b")}
    away = Merge(calls=("a", "b"), modes=(mode("gpu", us=1),))
    here = Merge(calls=("b", "a"), modes=(mode("cpu", us=5),))
    devices = (ScheduleDevice(name="cpu", cores=1), ScheduleDevice(name="gpu", cores=1))
    problem = plain_problem(calls, "x>a x>b", devices=devices)
    for merges, number in (((away,), 3), ((away, here), 2), ((away,) * 6, 3)):
        found = answer(replace(problem, merges=merges), "ios", 9.0).problem
        assert len(found.calls) == number and not found.merges


def test_merges_have_energies_where_energy_counts() -> None:
    device = ScheduleDevice(name="cpu", cores=4, idle_w=1.0)
    unknown = module(Merge(calls=("a", "b"), modes=(mode(),)))
    known = tuple(
        replace(call, modes=tuple(replace(m, energy_j=1.0) for m in call.modes))
        for call in unknown.calls
    )
    with pytest.raises(ModelError, match=r"the energy_j of call 'a \+ b'"):
        replace(unknown, calls=known, devices=(device,), objective="energy")


@pytest.mark.parametrize("count", [1, 6])
def test_when_the_time_is_over_no_more_merges_are_tried(count: int) -> None:
    gains = replace(AB, modes=on_cores(30, 4))
    problem, looked_at = replace(module(), merges=(gains,) * count), list[SchedulingProblem]()

    def counted(each: SchedulingProblem) -> SchedulingProblem:
        looked_at.append(each)
        return each

    assert "a + b" not in decided(problem, counted, 0.0).numbers
    assert len(looked_at) == 1


def contracted(problem: SchedulingProblem) -> Iterator[SchedulingProblem]:
    """The problem with each set of merges that have no call in common, one call for another."""
    for count in range(len(problem.merges) + 1):
        for chosen in combinations(problem.merges, count):
            named = {name: merge.name for merge in chosen for name in merge.calls}
            pairs = {(named.get(w.before, w.before), named.get(w.after, w.after)) for w in
                     problem.waits}  # fmt: skip
            waits = tuple(Wait(before=a, after=b) for a, b in sorted(pairs))
            circle = any(wait_for_each_other((name,), waits) for name in named.values())
            if circle or len(named) < sum(len(merge.calls) for merge in chosen):
                continue
            calls = {call.name: call for call in problem.calls if call.name not in named}
            for merge in chosen:
                calls[merge.name] = ScheduledCall(name=merge.name, modes=merge.modes, answer=True)
            yield replace(problem, calls=_in_order(calls, waits), waits=waits, merges=())


def _in_order(
    calls: dict[str, ScheduledCall], waits: tuple[Wait, ...]
) -> tuple[ScheduledCall, ...]:
    left, found = dict(calls), list[ScheduledCall]()
    while left:
        held = {wait.after for wait in waits if wait.before in left}
        found.append(left.pop(next(name for name in left if name not in held)))
    return tuple(found)


@settings(max_examples=25, deadline=None)
@example(seed=8353)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_merges_are_the_best_of_all(seed: int) -> None:
    random = Random(seed)
    drawn = random_problem(seed, calls=6, devices=1, cores=3, limits=False)
    calls = tuple(replace(call, network="", answer=True, task="") for call in drawn.calls)
    problem = replace(drawn, calls=calls)
    merges: list[Merge] = []
    for one, other in combinations(calls, 2):
        names = one.name, other.name
        if len(merges) < 4 and not wait_for_each_other(names, problem.waits):
            us = sum(min(m.latency_s for m in call.modes) for call in (one, other)) / MICRO
            modes = tuple(mode("device0", n, us * random.uniform(0.5, 1.2)) for n in (1,))
            merges.append(Merge(calls=names, modes=modes))
    problem = replace(problem, merges=tuple(merges))
    every = list(contracted(problem))
    found = decided(problem, expected, inf)
    assert set(found.numbers) in [set(each.numbers) for each in every]
    assert objective(found) <= min(map(stages_s, every)) + 1e-12


def test_of_many_merges_those_that_gain_are_taken_one_after_the_other() -> None:
    names = [f"{row}{place}" for place in range(4) for row in "ab"]
    merges = [
        Merge(calls=(f"a{place}", f"b{place}"), modes=(mode(cores=2, us=15 + 4 * (place % 3)),))
        for place in range(4)
    ]
    crossed = [Merge(calls=("a0", f"b{n}"), modes=(mode(cores=2, us=19),)) for n in (1, 2)]
    problem = plain_problem({name: (mode(cores=2),) for name in names}, merges=(*merges, *crossed))
    taken = [call.name for call in decided(problem, expected, inf).calls if "+" in call.name]
    assert sorted(taken) == ["a0 + b0", "a1 + b1", "a3 + b3"]


def test_a_plan_has_the_problem_that_was_planned(tmp_path: Path) -> None:
    problem = module(replace(AB, modes=on_cores(30, 4)))
    assert parse_problem(format_problem(problem)) == problem
    write_problem(problem, tmp_path / "problem.json")
    result = plan_problem(tmp_path / "problem.json", PlanRequest(out=tmp_path / "plan"))
    plan = read_plan(tmp_path / "plan")
    assert {slot.call for slot in result.slots} == set(plan.problem.numbers)
    assert "a + b" in plan.problem.numbers and not plan.problem.merges
