"""`cpsat` proves what it finds: against all schedules of small problems, and against itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, least, mode, on_cores, plain_problem, problems, random_problem
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.parts import ScheduleDevice
from tilewright.plan.scheduling.planners import cpsat
from tilewright.plan.scheduling.planners.annealing import annealed
from tilewright.plan.scheduling.planners.constraint_solution import Outcome
from tilewright.plan.scheduling.planners.cpsat import CpSat
from tilewright.plan.scheduling.planners.cuts import sections_of
from tilewright.plan.scheduling.planners.modes import reduced
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound

ON_REQUEST = pytest.mark.on_request
CLOSE = 1e-5
"""The share by which a bound is off that was found in whole numbers."""


@settings(max_examples=15, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3))
def test_no_schedule_breaks_a_limit(problem: SchedulingProblem) -> None:
    """`schedule_with` looks for faults."""
    found = schedule_with("cpsat", problem, 0.3)
    assert 0 <= found.bound <= found.objective
    assert found.objective <= schedule_with("sequential", problem).objective


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["latency", "energy", "price"]))
def test_of_few_calls_the_best_of_all_schedules_is_found_and_proven(seed: int, kind: str) -> None:
    problem = random_problem(seed, calls=4, devices=2, cores=2, objective=kind)  # type: ignore[arg-type]
    problem = replace(problem, handoff_s=0.0)
    found, best = schedule_with("cpsat", problem, 5.0), least(problem)
    assert found.objective <= best * (1 + CLOSE)
    assert found.bound <= best * (1 + 1e-9)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), handoff=st.sampled_from([0, 1, 5]))
def test_without_limits_the_optimum_is_proven_hand_offs_included(seed: int, handoff: int) -> None:
    problem = random_problem(seed, calls=4, devices=2, cores=3, limits=False)
    problem = replace(problem, handoff_s=handoff * MICRO)
    found, best = schedule_with("cpsat", problem, 5.0), least(problem)
    assert found.bound <= best * (1 + 1e-9)
    assert found.objective <= best * (1 + CLOSE)


def modules(count: int, handoff_us: float) -> SchedulingProblem:
    """Branches of unequal calls that join again, one after the other; every second is alike."""
    calls = {"stem": on_cores(40, 4)}
    waits: list[str] = []
    last = "stem"
    for number in range(count):
        own = 7 * (number % 2)
        names = [f"{kind}{number}" for kind in ("a", "b", "c", "d", "join")]
        costs = (50 + own, 30, 20, 90 + own, 4)
        calls |= {
            name: on_cores(us, 4, overhead_us=0.9) for name, us in zip(names, costs, strict=True)
        }
        a, b, c, d, join = names
        waits += [f"{last}>{a}", f"{last}>{b}", f"{b}>{c}", f"{last}>{d}"]
        waits += [f"{each}>{join}" for each in (a, c, d)]
        last = join
    return plain_problem(calls, " ".join(waits), cores=4, handoff_s=handoff_us * MICRO)


@pytest.mark.parametrize("handoff_us", [2, *(pytest.param(h, marks=ON_REQUEST) for h in (0, 9))])
def test_sections_are_as_good_as_the_whole(handoff_us: float) -> None:
    """Two modules are few enough calls to be proven as a whole: a limit that never binds keeps
    them together."""
    problem = modules(2, handoff_us)
    assert sections_of(problem) is not None
    limits = replace(problem.limits, deadlines_s={"": 1.0})
    whole = schedule_with("cpsat", replace(problem, limits=limits), 20.0)
    found = schedule_with("cpsat", problem, 20.0)
    assert whole.gap == pytest.approx(0.0, abs=CLOSE)
    assert found.bound <= whole.objective * (1 + CLOSE)
    assert found.objective <= whole.objective + 2 * handoff_us * MICRO
    assert found.gap <= 0.08 if handoff_us else found.objective == pytest.approx(whole.objective)


def test_a_network_may_begin_with_several_calls() -> None:
    """The first section begins with a call that others may run beside."""
    calls = {name: on_cores(20, 2, overhead_us=1) for name in ("a", "b", "join", "c", "d", "end")}
    waits = "a>join b>join join>c join>d c>end d>end"
    found = schedule_with("cpsat", plain_problem(calls, waits, handoff_s=6 * MICRO))
    assert found.note == "in 2 sections, 2 of which are distinct"
    assert found.bound <= found.objective == pytest.approx(66 * MICRO)


def test_sections_that_are_alike_are_planned_once() -> None:
    found = schedule_with("cpsat", modules(8, 1.0), 20.0)
    assert len(found.slots) == 41
    assert found.note == "in 8 sections, 4 of which are distinct"
    assert found.objective < 0.9 * schedule_with("sequential", modules(8, 1.0)).objective


def test_a_mode_that_another_makes_needless_is_dropped() -> None:
    slower = (mode(us=10), mode(us=12), mode(cores=2, us=11), mode(cores=2, us=6))
    problem = plain_problem({"a": slower, "b": slower}, "a>b")
    assert reduced(problem).kept == [[0, 3], [0, 3]]
    lean = (mode(us=10, weight_bytes=9), mode(us=12, weight_bytes=3))
    assert reduced(plain_problem({"a": lean, "b": lean}, "a>b")).kept == [[0, 1], [0, 1]]
    early = (mode(us=10), mode(cores=2, us=12))
    late = plain_problem({"a": early, "b": early}, "a>b", handoff_s=2 * MICRO)
    assert reduced(late).kept == [[0, 1], [0, 1]], "the hand-off may cost more than the cores"


def test_cores_go_on_where_hand_offs_would_cost() -> None:
    """Two chains on two cores never change their cores."""
    problem = plain_problem(
        {name: (mode(us=10),) for name in ("a1", "a2", "a3", "b1", "b2", "b3")},
        "a1>a2 a2>a3 b1>b2 b2>b3",
        handoff_s=4 * MICRO,
    )
    found = schedule_with("cpsat", problem)
    assert found.objective == pytest.approx(30 * MICRO)
    for chain in ("a", "b"):
        assert len({found.slot[f"{chain}{number}"].cores for number in (1, 2, 3)}) == 1


def test_a_memory_that_is_nearly_full_makes_calls_wait() -> None:
    calls = {name: (mode(us=10, workspace_bytes=600),) for name in "abc"}
    problem = plain_problem(calls)
    assert schedule_with("cpsat", problem).objective == pytest.approx(20 * MICRO)
    small = (ScheduleDevice(name="cpu", cores=2, memory_bytes=1000),)
    found = schedule_with("cpsat", replace(problem, devices=small))
    assert found.objective == pytest.approx(30 * MICRO) and found.gap == 0.0


def test_a_better_start_is_never_given_away() -> None:
    problem = modules(3, 2.0)
    best = CpSat().schedule(problem, 5.0)
    hurried = CpSat().improved(problem, [best], 0.0)
    assert hurried.objective <= best.objective


@pytest.fixture
def nothing_but_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """No quick schedules, CP-SAT finds nothing, and walks have so many steps."""
    steps = Counter[float]()

    def passed(since: float, _lasts_s: float) -> float:
        steps[since] += 1
        return steps[since] / 400

    def quick(*_given: object) -> list[Schedule]:
        return []

    def solved(*_given: object) -> Outcome:
        return Outcome()

    monkeypatch.setattr(cpsat, "_passed", passed)
    monkeypatch.setattr(cpsat, "quick_schedules", quick)
    monkeypatch.setattr(CpSat, "_solved", solved)


@pytest.mark.usefixtures("nothing_but_chance")
def test_chance_makes_a_poor_start_better() -> None:
    """On both cores in turn 39.96 µs, on one each side by side 20."""
    problem = plain_problem({name: (mode(us=10), mode(cores=2, us=9.99)) for name in "abcd"})
    start = decode(problem, [0, 1, 2, 3], [1, 1, 1, 1])
    assert start.objective == pytest.approx(39.96 * MICRO)
    assert CpSat().improved(problem, [start], 1.0).objective == pytest.approx(20 * MICRO)


@pytest.mark.usefixtures("nothing_but_chance")
def test_what_chance_finds_keeps_the_limits() -> None:
    """Both results wait for their readers in the list of 30 µs, and there is room for one."""
    calls = {name: (mode(us=20 if name == "long" else 10),) for name in ("long", *"abcd")}
    small = (ScheduleDevice(name="cpu", cores=2, memory_bytes=1000),)
    problem = plain_problem(calls, "a>b c>d", devices=small)
    sizes = {"a": 600, "c": 600}
    problem = replace(
        problem,
        calls=tuple(replace(c, output_bytes=sizes.get(c.name, 0)) for c in problem.calls),
        waits=tuple(replace(wait, bytes=600) for wait in problem.waits),
    )
    order, modes = [0, 1, 2, 3, 4], [0] * 5
    found = annealed(problem, order, modes, iter([*([0.5] * 400), 1.0]).__next__)
    assert found.latency_s == pytest.approx(30 * MICRO)
    with pytest.raises(NothingFound):
        decode(problem, found.order, found.modes)
    start = decode(problem, order, modes)
    assert CpSat().improved(problem, [start], 1.0).slots == start.slots
