"""The suite that packages run: our planners pass it, planners that are wrong do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright.plan.scheduling.planners.chain_dp import ChainDp
from tilewright.plan.scheduling.planners.heft import Heft
from tilewright.plan.scheduling.planners.ios import InStages, Ios
from tilewright.plan.scheduling.planners.nash import Nash
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.planners.threads import Threads
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.testing.schedulers import SchedulerConformance, check_scheduler


class TestSequential(SchedulerConformance):
    scheduler = Sequential()


class TestHeft(SchedulerConformance):
    scheduler = Heft()


class TestIos(SchedulerConformance):
    scheduler = Ios()


class TestInStages(SchedulerConformance):
    scheduler = InStages()


class TestNash(SchedulerConformance):
    scheduler = Nash()


class TestChainDp(SchedulerConformance):
    scheduler = ChainDp()


class TestThreads(SchedulerConformance):
    scheduler = Threads()


class Spoilt:
    """The sequential planner, whose schedules are spoilt in one way."""

    name = "spoilt"

    def __init__(self, how: str) -> None:
        self.how, self.asked = how, 0

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        found = Sequential().schedule(problem, limit_s)
        self.asked += 1
        *others, last = found.slots
        again = replace(last, cores=last.cores[::-1]) if self.asked % 2 else last
        changed: dict[str, dict[str, Any]] = {
            "all at once": {"slots": tuple(replace(s, begin_s=0.0) for s in found.slots)},
            "another objective": {"objective": found.objective * 2},
            "a bound above": {"bound": found.objective * 2},
            "another each time": {"slots": (*others, again)},
        }
        return replace(found, **changed[self.how])


@pytest.mark.parametrize(
    "how", ["all at once", "another objective", "a bound above", "another each time"]
)
def test_what_is_wrong_is_found(how: str) -> None:
    with pytest.raises(AssertionError):
        check_scheduler(Spoilt(how))


class Unsure:
    """It gives up every time; that is allowed."""

    name = "unsure"

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        raise NothingFound("not today")


def test_giving_up_is_allowed() -> None:
    check_scheduler(Unsure())
