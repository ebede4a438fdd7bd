"""Hand-offs between processes: what is run for them, and what is made of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from helpers.fakes.placements import altered
from tilewright.core.errors import StoreError, TargetError
from tilewright.core.processes import ChildCrash
from tilewright.graph.parts import cut
from tilewright.hardware.device import local_placement
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.plan_file import Plan
from tilewright.serving import handoffs
from tilewright.serving.handoffs import part_handoffs, toy_plan

TWO = altered(local_placement(1), cpus=(0, 1))
LONGER_S, SHORTER_S = 5e-3, 3e-3
clock = [0.0]


class Run:
    """Stands for processes; those that hand over take longer, by a clock that only they move."""

    fails: Exception | None = None

    def __init__(self, plan: Plan, *_others: object) -> None:
        if self.fails is not None:
            raise self.fails
        cores = [slot.cores for slot in plan.schedule.slots]
        self._took_s = SHORTER_S + (LONGER_S - SHORTER_S) * sum(a != b for a, b in pairwise(cores))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_exception: object) -> None: ...

    def run(self, inputs: Any) -> None:
        assert set(inputs) == {"input"}
        clock[0] += self._took_s


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoffs, "PlannedRun", Run)
    monkeypatch.setattr(handoffs, "perf_counter", lambda: clock[0])


def test_a_hand_off_is_what_a_run_takes_longer() -> None:
    found = part_handoffs(TWO)
    assert len(found) > 10 and found == pytest.approx([LONGER_S - SHORTER_S] * len(found))


def test_where_it_cannot_run_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert part_handoffs(altered(TWO, cpus=(0,))) == []
    assert part_handoffs(altered(TWO, access="simulated")) == []


@pytest.mark.parametrize(
    "error", [TargetError("too few cores"), ChildCrash(-9, ""), StoreError("")]
)
def test_where_it_fails_nothing_is_told(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(Run, "fails", error)
    assert part_handoffs(TWO) == []


def test_each_hand_off_is_between_two_parts() -> None:
    fused = prepare("zoo:mlp", ModelOptions(), TWO).fused
    for cores, count in ((0, 1, 0), 3), ((0, 0, 0), 1):
        plan = toy_plan(fused.calls, cores)
        assert list(faults(plan.problem, plan.schedule)) == []
        order = [(slot.call, ("llvm", slot.cores)) for slot in plan.schedule.slots]
        assert len(cut(fused, order)) == count
