"""MetaSchedule behind ask and tell, with its process made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec import structs

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.tuning import FORMS, workload
from tilewright.core.errors import UsageError
from tilewright.core.forms import blocked
from tilewright.core.records import Candidate, Failure, Measurement, Protocol
from tilewright.kernels.search_space import SearchSpace
from tilewright.measure.metaschedule import SearchFailed
from tilewright.search.tuners import metaschedule
from tilewright.search.tuners.base import TuningTask
from tilewright.search.tuners.metaschedule import MetaScheduleTuner

TASK = workload()


class FakeProcess:
    """Gives out generations; fails where one is an error."""

    def __init__(self, *generations: Sequence[str] | Exception) -> None:
        self.generations = list(generations)
        self.pid: int | None = None
        self.begun = 0
        self.learnt: list[tuple[str, float | None]] = []
        self.ended: list[int] = []

    def new_slot(self) -> int:
        return 7

    def ask(self, what: str, slot: int, *arguments: Any) -> Any:
        answers = {"begin": self.begin, "learn": self.learn, "propose": self.propose}
        return answers[what](slot, *arguments)

    def begin(self, slot: int, *_description: Any) -> None:
        self.begun += 1
        self.pid = 100 + self.begun
        self.learnt.clear()

    def learn(self, slot: int, outcomes: Sequence[tuple[str, float | None]]) -> None:
        self.learnt += outcomes

    def propose(self, slot: int) -> list[str]:
        found = self.generations.pop(0) if self.generations else []
        if isinstance(found, Exception):
            self.pid = None
            raise found
        return list(found)

    def end(self, slot: int) -> None:
        self.ended.append(slot)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProcess]:
    fake = FakeProcess(["a", "b", "c"], ["d", "a"], ["e"])
    monkeypatch.setattr(metaschedule, "shared_process", lambda _placement: fake)
    yield fake


def tuner(**named: Any) -> MetaScheduleTuner:
    space = SearchSpace([])
    task = TuningTask(space=space, workload=TASK, forms=FORMS, placement=PLACEMENT, **named)
    return MetaScheduleTuner(task)


def traces(candidates: Sequence[Candidate]) -> list[str]:
    assert all(c.implementation == "metaschedule" and c.forms == FORMS for c in candidates)
    return [str(candidate.setting("trace")) for candidate in candidates]


def measured(candidate: Candidate, seconds: float) -> Measurement:
    return Measurement(
        workload_key=TASK.key,
        candidate=candidate,
        device_class=PLACEMENT.device.class_key,
        resources=PLACEMENT.resources,
        protocol=Protocol(),
        kernel_hash="",
        samples_s=(seconds,),
        build_s=0.0,
    )


def failed(candidate: Candidate) -> Failure:
    return Failure(
        workload_key=TASK.key,
        candidate=candidate,
        device_class=PLACEMENT.device.class_key,
        resources=PLACEMENT.resources,
        kind="build",
        message="",
    )


def test_a_generation_is_handed_out_as_asked_for(process: FakeProcess) -> None:
    mine = tuner()
    assert traces(mine.ask(2)) == ["a", "b"]
    assert traces(mine.ask(2)) == ["c"]
    assert traces(mine.ask(8)) == ["d"], "a was proposed before"
    assert traces(mine.ask(8)) == ["e"]
    assert mine.ask(8) == []
    assert process.begun == 1 and mine.search_s > 0


def test_outcomes_reach_the_search_before_the_next_generation(process: FakeProcess) -> None:
    mine = tuner()
    a, b, c = mine.ask(3)
    mine.tell([measured(a, 2e-3), failed(b)])
    other = Candidate(implementation="generic", settings=(), forms=FORMS)
    elsewhere = structs.replace(c, forms=(blocked(8), blocked(8)))
    mine.tell([measured(other, 1e-3), measured(elsewhere, 1e-3)])
    assert process.learnt == []
    mine.ask(1)
    assert process.learnt == [("a", 2e-3), ("b", None)]
    mine.ask(1)
    assert len(process.learnt) == 2, "nothing is told twice"


def test_what_the_database_knew_is_not_proposed(process: FakeProcess) -> None:
    earlier = tuner().ask(2)
    process.generations.insert(0, ["a", "b", "c"])
    mine = tuner()
    mine.tell([measured(candidate, 1e-3) for candidate in earlier])
    assert traces(mine.ask(3)) == ["c"]
    assert process.learnt == [("a", 1e-3), ("b", 1e-3)]


def test_a_crash_costs_proposals_and_one_restart(process: FakeProcess) -> None:
    mine = tuner()
    first = mine.ask(3)
    mine.tell([measured(first[0], 1e-3)])
    process.generations[:0] = [SearchFailed("gone")]
    assert traces(mine.ask(2)) == ["d"]
    assert process.begun == 2 and process.learnt == [("a", 1e-3)], "the new search is told all"
    process.generations.insert(0, SearchFailed("gone again"))
    assert mine.ask(2) == [] and "gone again" in mine.problem
    assert mine.ask(2) == [], "no third try"


def test_a_process_that_another_search_crashed_costs_no_restart(process: FakeProcess) -> None:
    mine = tuner()
    mine.ask(3)
    process.pid = 1
    assert traces(mine.ask(1)) == ["d"]
    process.pid = 2
    assert traces(mine.ask(1)) == ["e"]
    assert process.begun == 3


def test_guesses_come_first(process: FakeProcess) -> None:
    (guess,) = tuner().ask(1)
    process.generations[:0] = [["a", "x"]]
    mine = tuner(guesses=[guess])
    assert traces(mine.ask(1)) == ["a"] and process.begun == 1
    assert traces(mine.ask(2)) == ["x"]


def test_closing_ends_the_search(process: FakeProcess) -> None:
    mine = tuner()
    mine.close()
    mine.close()
    assert process.ended == [7]
    assert mine.ask(1) == []


def test_a_stored_sweep_cannot_be_searched(process: FakeProcess) -> None:
    with pytest.raises(UsageError, match="searches kernels"):
        MetaScheduleTuner(TuningTask(space=SearchSpace([])))


def test_the_factory_makes_a_tuner(process: FakeProcess) -> None:
    task = TuningTask(space=SearchSpace([]), workload=TASK, forms=FORMS, placement=PLACEMENT)
    assert traces(MetaScheduleTuner(task).ask(1)) == ["a"]
