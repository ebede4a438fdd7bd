"""Hand-offs between cores: from samples into what plans count with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from tilewright.compiler.handoffs import hand_offs
from tilewright.core.errors import ModelError
from tilewright.core.events import Event, Note, discard
from tilewright.core.handoffs import ASSUMED, nobody_measures
from tilewright.core.processes import ChildCrash
from tilewright.core.records import Placement
from tilewright.core.targets import threads_alone
from tilewright.measure import handoffs
from tilewright.measure.handoffs import keep_handoffs
from tilewright.store import open_store
from tilewright.store.base import Store
from tilewright.store.known_handoffs import keep_handoff, known_handoff

FOUR = altered(PLACEMENT, access="here", cpus=(3, 5, 6, 7), threads=4)
LANES_S = [6e-7, 7e-7, 8e-7, 9e-7, 1e-3]


class Worker:
    """Stands for the process in which lanes are measured."""

    asked: list[Any] = []
    fails = False

    def __init__(self, placement: Placement) -> None:
        self.placement = placement

    def request(self, message: tuple[Any, ...], _limit_s: float) -> list[float]:
        Worker.asked.append((message[0], message[2].threads, self.placement.binding.cpus))
        if self.fails:
            raise ChildCrash(-11, "")
        return LANES_S

    def stop(self) -> None: ...


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(handoffs, "open_worker", Worker)
    monkeypatch.setattr(Worker, "asked", [])
    with open_store("memory:") as opened:
        yield opened


def test_both_kinds_are_kept_with_their_day_for_any_number_of_cores(store: Store) -> None:
    assert known_handoff(store, FOUR, "lanes") == ASSUMED["lanes"]
    where: list[Placement] = []

    def parts(placement: Placement) -> Sequence[float]:
        where.append(placement)
        return [4e-4] * 5

    keep_handoffs(store, FOUR, parts, discard)
    assert Worker.asked == [("lane handoffs", 2, (3, 5))] and where[0].binding.cpus == (3, 5)
    found = known_handoff(store, FOUR, "lanes")
    assert (found.seconds, found.low_s, found.high_s) == (8e-7, 7e-7, 9e-7), "no median, quartiles"
    assert len(found.day) == len("2026-11-28") and ASSUMED["lanes"].day == ""
    one = replace(FOUR, resources=threads_alone(1))
    assert known_handoff(store, one, "parts").seconds == 4e-4
    keep_handoff(store, FOUR, "parts", [3e-4] * 5)
    assert known_handoff(store, FOUR, "parts").seconds == 3e-4, "the newest does not count"


def test_where_nothing_is_measured_nothing_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    keep_handoffs(store, altered(FOUR, cpus=(3,)), nobody_measures, told.append)
    keep_handoffs(store, altered(FOUR, access="simulated"), nobody_measures, told.append)
    assert not Worker.asked and not told
    monkeypatch.setattr(Worker, "fails", True)
    keep_handoffs(store, FOUR, nobody_measures, told.append)
    assert ["lanes" in note.message for note in told if isinstance(note, Note)] == [True, False]
    negative = [-2e-6, -1e-6, 1e-6, 2e-6, 3e-6]
    for samples in (negative, [7e-7] * 4, [0.0] * 5, [-1e-6] * 5, [nan] * 5, [2.0] * 5):
        keep_handoff(store, FOUR, "lanes", samples)
    assert Worker.asked and store.placements() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("", value) for value in (0.0, -1e-6, inf, 5.0)),
        ("_since_1970", -1),
        ("_since_1970", 1e13),
    ],
)
def test_a_broken_value_is_refused(store: Store, name: str, value: float) -> None:
    keep_handoff(store, FOUR, "lanes", LANES_S)
    two = replace(FOUR, resources=threads_alone(2))
    store.add_peak(two.key, f"handoff_lanes{name}_s", value)
    with pytest.raises(ModelError, match="a hand-off between lanes takes .* which is no time"):
        known_handoff(store, FOUR, "lanes")


@pytest.mark.parametrize(("part", "value"), [("", 5e-7), ("_low", 9e-7), ("_high", 6e-7)])
def test_parts_of_two_measurements_are_none(store: Store, part: str, value: float) -> None:
    keep_handoff(store, FOUR, "lanes", LANES_S)
    two = replace(FOUR, resources=threads_alone(2))
    store.add_peak(two.key, f"handoff_lanes{part}_s", value)
    assert known_handoff(store, FOUR, "lanes") == ASSUMED["lanes"]


def test_a_hand_off_is_from_the_last_end_to_the_last_begin() -> None:
    seconds = 7
    stages = [[(100, 200), (150, 300)], [(900, 950), (1000, 1100)], [(1300, 1400), (1200, 1250)]]
    marks = np.array([(seconds, ns) for stage in stages for lane in stage for ns in lane])
    assert hand_offs(marks, lanes=2) == pytest.approx([700e-9, 200e-9])
