"""Budgets: reading them, and what earlier runs spent."""

from __future__ import annotations

from math import inf

import pytest

from tilewright.core.budget import Budget, Spending, parse_budget
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
        ("10m", Budget(seconds=600.0)),
        ("90s", Budget(seconds=90.0)),
        ("1.5h", Budget(seconds=5400.0)),
        (" 2m ", Budget(seconds=120.0)),
        ("500", Budget(measurements=500)),
        (500, Budget(measurements=500)),
        ("0", Budget(measurements=0)),
        (0, Budget(measurements=0)),
        ("0s", Budget(seconds=0.0)),
    ],
)
def test_reading(text: str | float, budget: Budget) -> None:
    assert parse_budget(text) == budget
    assert budget.nothing == (min(budget.seconds, budget.measurements) == 0)


@pytest.mark.parametrize(
    "text", ["", "-1", "1.5", "ten", "10d", "-5m", "m", "nan", "inf", "infs", "1e400", "nanm", -3]
)
def test_what_is_no_budget(text: str | float) -> None:
    with pytest.raises(UsageError, match="budget"):
        parse_budget(text)


def test_wall_clock_counts_earlier_runs_and_the_reserve() -> None:
    now = [100.0]
    spending = Spending(
        Budget(seconds=600.0), [earlier(400.0), earlier(50.0)], began_s=90.0, clock=lambda: now[0]
    )
    assert spending.remaining_s == pytest.approx(600 - 450 - 10)
    assert spending.remaining_count == inf
    spending.reserve_s = 100.0
    assert not spending.exhausted
    now[0] += 40.0
    assert spending.exhausted
    assert spending.elapsed_s == pytest.approx(50.0)


def test_ten_minutes_after_eight_adds_two() -> None:
    spending = Spending(Budget(seconds=600.0), [earlier(480.0)], began_s=0.0, clock=lambda: 0.0)
    assert spending.remaining_s == pytest.approx(120.0)


def test_counts_include_failures_and_earlier_runs() -> None:
    spending = Spending(Budget(measurements=100), [earlier(9.0, 60, 15)], began_s=0.0)
    assert spending.remaining_count == 25
    assert spending.remaining_s == inf
    spending.count += 25
    assert spending.exhausted


@pytest.mark.parametrize("budget", [Budget(measurements=0), Budget(seconds=0.0)])
def test_nothing_is_exhausted_from_the_start(budget: Budget) -> None:
    assert Spending(budget, [], began_s=0.0, clock=lambda: -5.0).exhausted


def test_a_share_of_what_is_left_is_kept_for_later() -> None:
    now = [10.0]
    spending = Spending(Budget(seconds=100.0), [], began_s=0.0, clock=lambda: now[0])
    with spending.keeping(0.5):
        assert spending.remaining_s == pytest.approx(45.0)
        now[0] = 60.0
        assert spending.exhausted
    assert not spending.exhausted and spending.remaining_s == pytest.approx(40.0)
    counted = Spending(Budget(measurements=10), [], began_s=0.0, clock=lambda: 0.0)
    with counted.keeping(0.3):
        counted.count = 4
        assert counted.remaining_count == 3 and counted.remaining_s == inf
    assert counted.remaining_count == 6
    with counted.keeping(0.5), counted.keeping(0.5):
        assert counted.remaining_count == 2
