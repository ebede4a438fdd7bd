"""What is known of a plan lies beside it, by call, and tasks are told from that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from helpers.networks.graph_arrangement import arranged
from helpers.networks.graph_builder import Builder
from tilewright.core.records import KernelCheck
from tilewright.graph.plan_result import NOTHING, CallResult, PlanResult


def found() -> PlanResult:
    """Three calls: two of one task, one of another."""
    b = Builder()
    x = b.input(8, 8)
    for axis in (1, 1, 0):
        x = b.add("softmax", x, axis=axis)
    return PlanResult(name="tuned", plan=arranged(b.graph(x)))


def alone(seconds: float) -> Any:
    return SimpleNamespace(latency_s=seconds)


def test_nothing_is_known_at_first() -> None:
    result = found()
    assert all(result.call(call.name) == NOTHING for call in result.plan.calls)
    assert result.predicted_s is None
    assert all(result.task(key) == NOTHING for key in result.plan.tasks)


def test_what_is_known_of_a_task_is_told_of_its_calls_and_adds_up() -> None:
    result = found()
    repeated, single = sorted(result.plan.tasks.values(), key=lambda task: -task.count)
    assert (repeated.count, single.count) == (2, 1)
    some = result.with_tasks({repeated.key: CallResult(alone=alone(2.0))})
    assert some.predicted_s is None, "one call has no time"
    check = KernelCheck(error=1e-7, bound=1e-5)
    every = some.with_tasks({single.key: CallResult(alone=alone(1.0), check=check)})
    assert every.predicted_s == pytest.approx(5.0)
    assert every.task(single.key).check == check
    assert every.plan is result.plan and not result.calls, "it grows by copies"


def test_times_in_place_are_kept_beside_what_was_known_and_a_task_has_their_mean() -> None:
    result = found()
    repeated = next(task for task in result.plan.tasks.values() if task.count == 2)
    names = [call.name for call in result.plan.calls if call.task == repeated.key]
    known = result.with_tasks({repeated.key: CallResult(alone=alone(2.0))})
    placed = known.with_places({names[0]: 1.0, names[1]: 3.0})
    task = placed.task(repeated.key)
    assert task.in_place_s == pytest.approx(2.0) and task.alone.latency_s == 2.0
    assert placed.call(names[1]).in_place_s == 3.0
    assert known.with_places({names[0]: 1.0}).task(repeated.key).in_place_s == 1.0
