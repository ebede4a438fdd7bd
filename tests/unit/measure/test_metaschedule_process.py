"""The process of MetaSchedule's searches, with a stand-in for the child."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from tilewright.core.processes import ChildCrash, RemoteError
from tilewright.measure import metaschedule
from tilewright.measure.metaschedule import SearchFailed, SearchProcess, shared_process


class Child:
    """Runs from its first request on; answers with what it was asked, or fails."""

    def __init__(self, module: str, **named: Any) -> None:
        self.module, self.named = module, named
        self.pid: int | None = None
        self.asked: list[tuple[tuple[Any, ...], float]] = []
        self.failure: Exception | None = None

    def request(self, message: tuple[Any, ...], timeout_s: float) -> Any:
        self.pid = 7
        self.asked.append((message, timeout_s))
        if self.failure is not None:
            raise self.failure
        return message

    def stop(self) -> None:
        self.pid = None


@pytest.fixture(autouse=True)
def child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metaschedule, "Child", Child)


def test_the_child_has_the_threads_and_cpus_of_the_placement() -> None:
    placement = altered(PLACEMENT, threads=3, cpus=(2, 4))
    found: Any = SearchProcess(placement)._child
    assert found.named["cpus"] == (2, 4)
    assert found.named["environment"]["TVM_NUM_THREADS"] == "3"
    assert found.named["memory_limit_bytes"] == 4 << 30


def test_a_search_that_ends_is_forgotten_where_it_is_known() -> None:
    """Nothing is started to forget it, and a child that fails then has forgotten it, too."""
    process = SearchProcess(PLACEMENT)
    found: Any = process._child
    process.end(1)
    assert found.asked == [] and process.pid is None
    assert process.ask("begin", 1, "workload") == ("begin", 1, "workload")
    process.end(1)
    assert found.asked[1:] == [(("end", 1), 10.0)] and process.pid == 7
    found.failure = ChildCrash(-11, "")
    process.end(1)


@pytest.mark.parametrize("failure", [ChildCrash(-11, "bad"), RemoteError("KeyError", "bad", "")])
def test_a_search_without_an_answer_has_failed(failure: Exception) -> None:
    process = SearchProcess(PLACEMENT)
    found: Any = process._child
    found.failure = failure
    with pytest.raises(SearchFailed, match="bad"):
        process.ask("propose", 1)
    assert found.asked == [(("propose", 1), 300.0)]


def test_a_placement_has_one_process_while_anybody_holds_it() -> None:
    first = shared_process(PLACEMENT)
    assert shared_process(PLACEMENT) is first
    assert [first.new_slot(), first.new_slot()] == [1, 2]
    other = shared_process(altered(PLACEMENT, threads=3))
    assert other is not first and other.new_slot() == 1
    ended: Any = first._child
    ended.pid = 7
    del first
    gc.collect()
    assert ended.pid is None, "it stops with its last user"
    assert shared_process(PLACEMENT).new_slot() == 1
