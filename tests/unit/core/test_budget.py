"""Budgets: reading them, and what earlier runs spent."""

from __future__ import annotations

from math import inf

import pytest

from tilewright.core.budget import Budget, Limit, parse_budget
from tilewright.core.errors import UsageError
from tilewright.core.records import Run
from tilewright.core.targets import threads_alone


def earlier(spent_s: float, measurements: int = 0, failures: int = 0) -> Run:
    return Run(
        command="optimize",
        model="m",
        network_key="n",
        device_class="d",
        resources=threads_alone(1),
        seed=0,
        state="done",
        spent_s=spent_s,
        measurements=measurements,
        failures=failures,
    )


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("10m", Limit(seconds=600.0)),
        ("90s", Limit(seconds=90.0)),
        ("1.5h", Limit(seconds=5400.0)),
        (" 2m ", Limit(seconds=120.0)),
        ("500", Limit(measurements=500)),
        (500, Limit(measurements=500)),
        ("0", Limit(measurements=0)),
        (0, Limit(measurements=0)),
        ("0s", Limit(seconds=0.0)),
    ],
)
def test_reading(text: str | float, budget: Limit) -> None:
    assert parse_budget(text) == budget
    assert budget.nothing == (min(budget.seconds, budget.measurements) == 0)


def test_the_least_that_is_something() -> None:
    for limit in (Limit(measurements=1), Limit(seconds=0.5)):
        assert not limit.nothing
        assert not Budget(limit, began_s=0.0, clock=lambda: 0.0).exhausted
    with pytest.raises(UsageError):
        parse_budget(True)


@pytest.mark.parametrize(
    ("limit", "share", "part"),
    [
        (Limit(measurements=10), 0.25, Limit(measurements=2)),
        (Limit(measurements=10), 0.39, Limit(measurements=3)),
        (Limit(measurements=10), 0.01, Limit(measurements=1)),
        (Limit(measurements=1), 1.0, Limit(measurements=1)),
        (Limit(measurements=0), 0.5, Limit(measurements=0)),
        (Limit(measurements=2), 0.25, Limit(measurements=1)),
        (Limit(seconds=10.0), 0.25, Limit(seconds=2.5)),
        (Limit(seconds=0.0), 0.25, Limit(seconds=0.0)),
    ],
)
def test_a_part_is_never_nothing_of_something(limit: Limit, share: float, part: Limit) -> None:
    assert limit.part(share) == part


@pytest.mark.parametrize(
    "text", ["", "-1", "1.5", "ten", "10d", "-5m", "m", "nan", "inf", "infs", "1e400", "nanm", -3]
)
def test_what_is_no_budget(text: str | float) -> None:
    with pytest.raises(UsageError, match="budget"):
        parse_budget(text)


def test_wall_clock_counts_earlier_runs_and_the_reserve() -> None:
    now = [100.0]
    budget = Budget(
        Limit(seconds=600.0), [earlier(400.0), earlier(50.0)], began_s=90.0, clock=lambda: now[0]
    )
    assert budget.remaining_s == pytest.approx(600 - 450 - 10)
    assert budget.remaining_count == inf
    budget.expect("finish", seconds=100.0)
    assert not budget.exhausted
    now[0] += 40.0
    assert budget.exhausted
    assert budget.elapsed_s == pytest.approx(50.0)


def test_ten_minutes_after_eight_adds_two() -> None:
    budget = Budget(Limit(seconds=600.0), [earlier(480.0)], began_s=0.0, clock=lambda: 0.0)
    assert budget.remaining_s == pytest.approx(120.0)


def test_counts_include_failures_and_earlier_runs() -> None:
    budget = Budget(Limit(measurements=100), [earlier(9.0, 60, 15)], began_s=0.0)
    assert budget.remaining_count == 25
    assert budget.remaining_s == inf
    budget.measured(25)
    assert budget.exhausted


@pytest.mark.parametrize("budget", [Limit(measurements=0), Limit(seconds=0.0)])
def test_nothing_is_exhausted_from_the_start(budget: Limit) -> None:
    assert Budget(budget, [], began_s=0.0, clock=lambda: -5.0).exhausted


def test_a_share_of_what_is_left_is_kept_for_later() -> None:
    now = [10.0]
    budget = Budget(Limit(seconds=100.0), [], began_s=0.0, clock=lambda: now[0])
    with budget.keeping(0.5):
        assert budget.remaining_s == pytest.approx(45.0)
        now[0] = 60.0
        assert budget.exhausted
    assert not budget.exhausted and budget.remaining_s == pytest.approx(40.0)
    counted = Budget(Limit(measurements=10), [], began_s=0.0, clock=lambda: 0.0)
    with counted.keeping(0.3):
        counted.measured(4)
        assert counted.remaining_count == 3 and counted.remaining_s == inf
    assert counted.remaining_count == 6
    with counted.keeping(0.5), counted.keeping(0.5):
        assert counted.remaining_count == 2


def test_what_a_phase_is_expected_to_take_is_kept_until_it_begins() -> None:
    now = [0.0]
    budget = Budget(Limit(seconds=100.0), clock=lambda: now[0])
    budget.expect("finish", seconds=30.0)
    budget.expect("finish", seconds=20.0)
    budget.expect("looks", seconds=10.0)
    assert budget.remaining_s == pytest.approx(70.0), "the last word counts"
    with budget.phase("looks"):
        assert budget.remaining_s == pytest.approx(80.0)
    with budget.phase("finish"):
        now[0] = 15.0
        assert budget.remaining_s == pytest.approx(85.0)
    counted = Budget(Limit(measurements=10))
    counted.expect("last", measurements=4)
    assert counted.remaining_count == 6
    with counted.phase("last"):
        assert counted.remaining_count == 10


def test_every_second_belongs_to_one_phase() -> None:
    now = [5.0]
    budget = Budget(Limit(seconds=100.0), began_s=0.0, clock=lambda: now[0])

    def pass_s(seconds: float) -> None:
        now[0] += seconds

    with budget.phase("search"):
        pass_s(2.0)
        with budget.phase("verify"):
            pass_s(3.0)
            with budget.phase("search"):
                pass_s(1.0)
        pass_s(4.0)
        budget.credit("build", 2.5)
    pass_s(0.5)
    assert budget.seconds_by_phase == pytest.approx(
        {"search": 2.0 + 1.0 + 4.0 - 2.5, "verify": 3.0, "build": 2.5, "overhead": 5.0 + 0.5}
    )
    assert sum(budget.seconds_by_phase.values()) == pytest.approx(budget.elapsed_s)


def test_a_phase_ends_with_an_error_too() -> None:
    now = [0.0]
    budget = Budget(Limit(seconds=10.0), clock=lambda: now[0])
    with pytest.raises(KeyError), budget.phase("search", keep=0.5):
        now[0] = 2.0
        raise KeyError("search")
    assert budget.seconds_by_phase["search"] == pytest.approx(2.0)
    assert budget.remaining_s == pytest.approx(8.0)
    with budget.phase("verify"):
        now[0] = 3.0
    assert budget.seconds_by_phase == pytest.approx({"search": 2.0, "verify": 1.0, "overhead": 0.0})
