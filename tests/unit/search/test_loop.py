"""Sharing a budget over tasks, with a measurer that reads times from a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from helpers.fakes.levels import PEAKS
from helpers.fakes.measuring import PLACEMENT, FakeMeasurer, failed, measured
from helpers.fakes.tuning import FORMS, FakeStore, MadeUp, workload
from tilewright.core.budget import Budget, Limit
from tilewright.core.events import Event, TuningProgress
from tilewright.core.records import Candidate, Protocol
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.kernels import spaces as space_module
from tilewright.kernels.spaces import default_candidate, search_space
from tilewright.measure.base import Measurer
from tilewright.search.context import SearchContext
from tilewright.search.loop import EstimateScale, TaskState, TuningLoop
from tilewright.search.tuners.base import LateTuner, TuningTask
from tilewright.search.tuners.neighbourhood import NeighbourhoodTuner
from tilewright.store.base import Store

SPEC = MadeUp("one", {"a": tuple(range(40)), "b": (1, 2, 3, 4)}, lambda s: 1e-4)
BIG, SMALL = workload(1000), workload(10)


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_module, "applicable", lambda *_: [SPEC])
    space_module.forget_spaces()


def state(
    task: Workload,
    count: int = 1,
    floor_s: float = 1e-7,
    group: str = "",
    estimate_s: float = 1e-4,
) -> TaskState:
    space = search_space(task, FORMS, PLACEMENT)
    return TaskState(
        task=Task(
            key=(task.key, FORMS), name="", workload=task, forms=FORMS, count=count, nodes=()
        ),
        tuner=NeighbourhoodTuner(TuningTask(space=space)),
        space=space,
        group=group,
        default=default_candidate(task, FORMS, PLACEMENT)[0],
        floor_s=floor_s,
        estimate_s=estimate_s,
    )


def run(
    tasks: list[TaskState],
    measurer: FakeMeasurer,
    budget: Limit,
    *,
    store: FakeStore | None = None,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = lambda: 0.0,
    events: list[Event] | None = None,
    checkpoint: Callable[[], None] = lambda: None,
) -> Ran:
    context = SearchContext(
        placement=PLACEMENT,
        store=cast(Store, store or FakeStore()),
        measurer=cast(Measurer, measurer),
        events=(events if events is not None else []).append,
        budget=Budget(budget, [], began_s=0.0, clock=clock),
        peaks=PEAKS,
        protocol=Protocol(),
        run_id=7,
        stop=stop,
        checkpoint=checkpoint,
    )
    ran = Ran(tasks, context)
    ran.run()
    return ran


class Ran(TuningLoop):
    """A loop that tells what it counted."""

    @property
    def measurements(self) -> int:
        return self._context.counts.measurements

    @property
    def failures(self) -> int:
        return self._context.counts.failures


def flat(task: Workload, candidate: Candidate) -> float:
    return 1e-3 if task == BIG else 1e-6


def improving(task: Workload, candidate: Candidate) -> float:
    """Always something to gain, in proportion to the task."""
    return flat(task, candidate) / (1 + int(candidate.setting("a")))


def test_the_default_comes_first() -> None:
    measurer = FakeMeasurer(flat)
    tasks = [state(BIG), state(SMALL)]
    run(tasks, measurer, Limit(measurements=1))
    assert measurer.asked == [(BIG.key, tasks[0].default)]


def test_every_task_is_measured_once_before_any_twice() -> None:
    measurer = FakeMeasurer(improving)
    run([state(BIG), state(SMALL)], measurer, Limit(measurements=16))
    assert {key for key, _ in measurer.asked} == {BIG.key, SMALL.key}


def test_most_goes_where_most_can_be_gained() -> None:
    measurer = FakeMeasurer(improving)
    run([state(BIG), state(SMALL)], measurer, Limit(measurements=80))
    large = sum(key == BIG.key for key, _ in measurer.asked)
    assert large >= 64
    assert len(measurer.asked) == 80


def test_counts_weigh() -> None:
    one, other = workload(11), workload(12)
    measurer = FakeMeasurer(lambda t, c: 1e-5 / (1 + int(c.setting("a"))))
    run([state(one), state(other, count=50)], measurer, Limit(measurements=48))
    keys = [key for key, _ in measurer.asked]
    assert keys.count(other.key) > 2 * keys.count(one.key)


def test_it_stops_when_nothing_improves() -> None:
    measurer = FakeMeasurer(flat)
    loop = run([state(BIG)], measurer, Limit(measurements=10_000))
    assert loop.converged
    assert len(measurer.asked) < 160, "a flat landscape needs no exhaustive search"


def test_a_task_at_its_roofline_is_left_alone() -> None:
    measurer = FakeMeasurer(lambda t, c: 1e-3)
    run([state(BIG, floor_s=1e-3), state(SMALL, floor_s=1e-7)], measurer, Limit(measurements=64))
    keys = [key for key, _ in measurer.asked]
    assert keys.count(SMALL.key) >= keys.count(BIG.key)


def test_the_whole_space_may_be_used_up() -> None:
    measurer = FakeMeasurer(lambda t, c: 1e-3 / (1 + len(measurer.asked)))
    loop = run([state(BIG)], measurer, Limit(measurements=10_000))
    assert loop.converged
    assert len(measurer.asked) == len(set(measurer.asked)) <= 160


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 30])
def test_the_count_is_never_exceeded(count: int) -> None:
    measurer = FakeMeasurer(improving)
    loop = run([state(BIG), state(SMALL)], measurer, Limit(measurements=count))
    assert len(measurer.asked) == count == loop.measurements + loop.failures


def test_wall_clock_ends_it() -> None:
    measurer = FakeMeasurer(improving)
    ticks = iter(range(0, 10_000, 10))
    run([state(BIG)], measurer, Limit(seconds=100.0), clock=lambda: float(next(ticks)))
    assert 0 < len(measurer.asked) < 160


def test_stored_before_told() -> None:
    log: list[str] = []
    measurer, store = FakeMeasurer(improving), FakeStore(log)
    measurer.log = log
    task = state(BIG)
    told = task.tuner.tell

    class Told:
        ask = task.tuner.ask

        def tell(self, outcomes) -> None:
            log.append("tell")
            assert set(outcomes) <= set(store.kept)
            told(outcomes)

    task.tuner = Told()
    run([task], measurer, Limit(measurements=16), store=store,
        checkpoint=lambda: log.append("checkpoint"))  # fmt: skip
    first = log.index("checkpoint") + 1
    assert log[:first][0] == "measure" and log[:first][-2:] == ["tell", "checkpoint"]
    assert log[:first].index("store") < log[:first].index("tell")
    assert len(store.kept) == 16
    assert {o.run_id for o in store.kept} == {7}


def test_a_stop_request_is_honoured_after_the_round() -> None:
    measurer = FakeMeasurer(improving)
    store = FakeStore()
    loop = run(
        [state(BIG)], measurer, Limit(measurements=100), store=store,
        stop=lambda: len(measurer.asked) >= 4,
    )  # fmt: skip
    assert len(measurer.asked) == len(store.kept) == 4
    assert not loop.converged


def test_failures_are_counted_and_end_a_hopeless_task() -> None:
    measurer = FakeMeasurer(lambda t, c: None if t == BIG else 1e-6)
    loop = run([state(BIG), state(SMALL)], measurer, Limit(measurements=10_000))
    keys = [key for key, _ in measurer.asked]
    assert loop.failures == keys.count(BIG.key) > 0
    assert keys.count(BIG.key) < 160
    assert loop.measurements == keys.count(SMALL.key) > 0
    assert loop.network_s() == pytest.approx(1e-6)


def test_known_times_are_used_and_not_measured_again() -> None:
    first = FakeMeasurer(improving)
    done = state(BIG)
    run([done], first, Limit(measurements=24))
    fresh = state(BIG)
    fresh.tuner.tell(done.outcomes)
    fresh.outcomes = list(done.outcomes)
    second = FakeMeasurer(improving)
    run([fresh], second, Limit(measurements=24))
    assert not set(first.asked) & set(second.asked)


def test_progress_tells_the_best_so_far() -> None:
    events: list[Event] = []
    run([state(BIG), state(SMALL)], FakeMeasurer(improving), Limit(measurements=40), events=events)
    progress = [e for e in events if isinstance(e, TuningProgress)]
    assert [e.measurements for e in progress][-1] == 40
    network = [e.network_s for e in progress]
    assert network[1:] == sorted(network[1:], reverse=True) or len(progress) < 3
    assert all(e.remaining_s is None for e in progress)


def test_what_was_measured_before_a_crash_is_stored_and_counted() -> None:
    """Each outcome is stored as it comes: a batch that is cut short keeps its beginning."""

    def truth(task: Workload, candidate: Candidate) -> float:
        if len(measurer.asked) == 11:
            raise KeyboardInterrupt
        return improving(task, candidate)

    measurer, store, task = FakeMeasurer(truth), FakeStore(), state(BIG)
    with pytest.raises(KeyboardInterrupt):
        run([task], measurer, Limit(measurements=100), store=store)
    assert len(store.kept) == len(task.trials) == 10


def by_a(task: Workload, candidate: Candidate) -> float:
    """Fastest at a = 23, wherever the estimates point."""
    return flat(task, candidate) * (1 + abs(int(candidate.setting("a")) - 23))


def test_a_group_follows_its_leader() -> None:
    measurer = FakeMeasurer(lambda t, c: 1e-3 * (1 + abs(int(c.setting("a")) - 23)))
    leader, follower = state(BIG, floor_s=5e-4, group="f"), state(SMALL, group="f")
    run([leader, follower], measurer, Limit(measurements=10_000))
    assert follower.leader is leader and leader.leader is None
    of_follower = [candidate for key, candidate in measurer.asked if key == SMALL.key]
    assert of_follower[0] == follower.default
    assert leader.best is not None and follower.best is not None
    led = [m.candidate for m in leader.measured()[:8] if m.candidate != follower.default]
    assert set(led) <= set(of_follower), "the leader's best are measured in the follower's kernel"
    assert follower.best_s == leader.best_s


def test_a_follower_is_searched_less_than_a_task_of_its_own() -> None:
    def searched(group: str) -> int:
        measurer = FakeMeasurer(by_a)
        one, other = workload(1000), workload(1001)
        run(
            [state(one, floor_s=2e-7, group=group), state(other, group=group)],
            measurer,
            Limit(measurements=10_000),
        )
        return sum(key == other.key for key, _ in measurer.asked)

    assert searched("f") < searched("")


def test_followers_of_a_leader_without_prospects_still_follow() -> None:
    measurer = FakeMeasurer(flat)
    leader, follower = state(SMALL, floor_s=1e-6, group="f"), state(workload(11), group="f")
    run([state(BIG), leader, follower], measurer, Limit(measurements=10_000))
    assert follower.followed or follower.leader is None


@pytest.mark.parametrize(("count", "turns"), [(5, [5]), (16, [16]), (42, [16, 16, 10])])
def test_kernels_of_several_tasks_are_built_ahead(count: int, turns: list[int]) -> None:
    """What is measured was built before, as much at a time as the measurer likes."""
    measurer = FakeMeasurer(lambda _, candidate: improving(BIG, candidate), at_once=16)
    tasks = [state(workload(10 * number)) for number in range(1, 5)]
    ran = run(tasks, measurer, Limit(measurements=count))
    assert ran.measurements == len(measurer.asked) == count
    assert [kernel for turn in measurer.ahead for kernel in turn] == measurer.asked
    assert [len(turn) for turn in measurer.ahead] == turns
    assert all(len({key for key, _ in turn}) > 1 for turn in measurer.ahead)


def test_what_was_built_ahead_is_left_where_time_ends() -> None:
    measurer = FakeMeasurer(improving, at_once=8)
    tasks = [state(BIG), state(SMALL)]
    run(tasks, measurer, Limit(seconds=1.0), clock=lambda: float(len(measurer.asked)))
    assert len(measurer.ahead[0]) == 8 and len(measurer.asked) == 4


def test_the_curve_falls() -> None:
    tasks = [state(BIG), state(SMALL)]
    loop = run(tasks, FakeMeasurer(improving), Limit(measurements=60))
    known = [p.network_latency_s for p in loop.curve if p.network_latency_s is not None]
    assert known == sorted(known, reverse=True) and len(known) > 1
    assert [p.measurements for p in loop.curve] == sorted(p.measurements for p in loop.curve)
    assert loop.curve[-1].measurements == 60
    assert [len(t.trials) for t in tasks] == [len(t.outcomes) for t in tasks]


def test_a_late_tuner_is_told_what_came_before() -> None:
    space = search_space(BIG, FORMS, PLACEMENT)
    late = LateTuner(lambda: NeighbourhoodTuner(TuningTask(space=space)))
    first = default_candidate(BIG, FORMS, PLACEMENT)[0]
    late.tell(FakeMeasurer(flat).measure(BIG, [first], Protocol()))
    asked = late.ask(10_000)
    assert first not in asked and len(asked) == 40 * 4 - 1


def test_what_a_short_budget_leaves_unmeasured_is_small() -> None:
    """Forty tasks, each half as long again as the next: large ones come first, whatever their
    order."""
    times = {extent: 1e-3 / 1.5**extent for extent in range(1, 41)}
    tasks = [state(workload(extent), estimate_s=seconds) for extent, seconds in times.items()]
    measurer = FakeMeasurer(lambda t, c: times[t.arguments[0].type.shape[0]])
    run(tasks[::-1], measurer, Limit(measurements=96))
    left = sum(times[t.task.workload.arguments[0].type.shape[0]] for t in tasks if t.best is None)
    assert left <= 0.05 * sum(times.values())


def test_a_first_look_is_short_where_others_wait() -> None:
    measurer = FakeMeasurer(lambda t, c: 1e-4)
    tasks = [state(workload(extent)) for extent in range(1, 9)]
    run(tasks, measurer, Limit(measurements=32))
    assert {t.task.workload.key for t in tasks} == {key for key, _ in measurer.asked}


def test_estimates_that_are_off_are_corrected_by_what_was_measured() -> None:
    """One implementation takes twenty times its estimates: the rest of its tasks come before those
    of another that keeps to them."""
    slow, usual = [workload(e) for e in (1, 2, 3)], [workload(e) for e in (11, 12, 13, 14)]
    tasks = [state(t, estimate_s=2e-5) for t in slow] + [state(t, estimate_s=1e-4) for t in usual]
    for task, name in zip(tasks, ["slow"] * 3 + ["usual"] * 4, strict=True):
        task.default = structs.replace(task.default, implementation=name)
    tasks[0].task = replace(tasks[0].task, count=6)
    tasks[0].floor_s = 4e-4  # the first to be looked at, nothing to gain
    keys = {task.key for task in slow}
    measurer = FakeMeasurer(lambda t, c: 4e-4 if t.key in keys else 1e-4)
    run(tasks, measurer, Limit(measurements=16))
    asked = {key for key, _ in measurer.asked}
    assert keys < asked and len(asked) == 4, "one of the usual ones shows that it is not as slow"


def test_small_tasks_are_measured_in_the_end() -> None:
    tiny = state(SMALL, estimate_s=1e-12, floor_s=1e-12)
    loop = run([state(BIG), tiny], FakeMeasurer(flat), Limit(measurements=10_000))
    assert loop.converged and tiny.best is not None


@given(ratios=st.lists(st.floats(0.01, 100.0), max_size=6), estimate_s=st.floats(1e-7, 1e-2))
def test_scales_lie_between_what_was_seen(ratios: list[float], estimate_s: float) -> None:
    scale = EstimateScale()
    for ratio in ratios:
        task = state(BIG, estimate_s=estimate_s)
        task.outcomes = [measured(BIG, task.default, ratio * estimate_s)]
        scale.learn(task)
    for name in ("one", "another"):
        found = scale.of(name)
        if not ratios:
            assert found == 1.0
        else:
            assert min(ratios) * 0.999 <= found <= max(ratios) * 1.001


def test_a_task_tells_what_is_known_of_it() -> None:
    one = state(BIG)
    assert one.best is None and one.best_s == inf and one.default_measured is None
    assert one.unknown and one.tried == (0, 0)
    other = structs.replace(one.default, settings=(("a", 3), ("b", 2)))
    slow, fast = measured(BIG, one.default, 3e-3), measured(BIG, other, 1e-3)
    again, broken = measured(BIG, one.default, 2e-3), failed(BIG, other)
    one.outcomes += [slow, fast, again, broken]
    one.trials += [(0.0, fast), (0.0, again), (1.0, broken)]
    assert one.measured() == [fast, again, slow] and one.best is fast and one.best_s == 1e-3
    assert one.default_measured is again, "the last time"
    assert one.tried == (2, 1) and not one.unknown


def test_a_task_without_a_time_may_still_get_one() -> None:
    one = state(BIG)
    one.outcomes.append(failed(BIG, one.default))
    for stale, unknown in ((0, True), (2, True), (3, False)):
        one.stale = stale
        assert one.unknown is unknown
    one.stale, one.finished = 0, True
    assert not one.unknown and one.expected_gain_s() == 0.0


def test_a_follower_waits_for_a_leader_that_still_finds() -> None:
    leader, one = state(SMALL), state(BIG)
    one.leader = leader
    one.outcomes.append(measured(BIG, one.default, 1e-3))
    assert one.waits and not leader.slowing and one.expected_gain_s() == 0.0
    leader.rounds = 1
    assert leader.slowing and one.expected_gain_s() > 0.0
    leader.rounds, leader.stale = 0, 1
    assert leader.slowing
    one.followed = True
    assert not one.waits and not one.behind, "there is nothing to follow"
    best = structs.replace(leader.default, settings=(("a", 7), ("b", 1)))
    leader.outcomes += [measured(SMALL, leader.default, 2e-6), measured(SMALL, best, 1e-6)]
    assert one.untried() == [best] and one.untried(1) == [best], "the default was tried"
    for finished, stale, behind in ((False, 0, False), (True, 0, True), (False, 1, True)):
        leader.finished, leader.stale = finished, stale
        assert one.behind is behind
    leader.outcomes[1] = measured(SMALL, best, 3e-6)
    assert one.untried(1) == [] and one.untried() == [best]


def test_what_a_batch_may_gain() -> None:
    one = state(BIG, count=3, floor_s=1e-4, estimate_s=4e-4)
    unknown_s = one.expected_gain_s()
    assert unknown_s == pytest.approx(3 * 4e-4 * unknown_s / (3 * 4e-4)) and unknown_s > 0
    assert one.expected_gain_s(2.0) == pytest.approx(2 * unknown_s)
    assert one.expected_gain_s(1e-9) == pytest.approx(unknown_s / 4), "not below its floor"
    one.outcomes.append(measured(BIG, one.default, 4e-4))
    gain_s = 3 * 4e-4 * 0.5 * (1 - 1 / 4)
    assert one.expected_gain_s() == pytest.approx(gain_s)
    one.stale = 2
    assert one.expected_gain_s() == pytest.approx(gain_s / 4)
    one.floor_s = 4e-4
    assert one.expected_gain_s() == pytest.approx(3 * 4e-4 * 0.02 / 4), "at its floor"


def test_progress_in_numbers() -> None:
    events: list[Event] = []
    named = state(BIG, count=2)
    named.task = replace(named.task, name="conv1")
    run([named, state(SMALL)], FakeMeasurer(improving), Limit(measurements=60), events=events)
    told = [event for event in events if isinstance(event, TuningProgress)]
    assert {event.task for event in told} == {"conv1", SMALL.key}
    assert told[0].network_s is None and told[-1].network_s is not None
    assert [event.measurements for event in told] == sorted(event.measurements for event in told)
    assert told[-1].measurements == 60 and told[-1].failures == 0
    assert all(event.remaining_s is None for event in told)
    last = next(event for event in reversed(told) if event.task == "conv1")
    assert last.best_s == named.best_s and last.task_measurements == named.tried[0]
    default = named.default_measured
    assert default is not None and last.gain == pytest.approx(default.latency_s / named.best_s)
    events.clear()
    run([state(BIG)], FakeMeasurer(improving), Limit(seconds=5.0), events=events,
        clock=iter(map(float, range(10_000))).__next__)  # fmt: skip
    told = [event for event in events if isinstance(event, TuningProgress)]
    assert told and all(event.remaining_s is not None for event in told)
