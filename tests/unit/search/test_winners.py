"""A network's tasks from the search to the candidates that ship, with made-up times."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from msgspec import structs

from helpers.fakes.levels import DIRECT, PEAKS, WINOGRAD, NumpyMeasurer, convolution, task, tasks
from helpers.fakes.measuring import PLACEMENT
from tilewright.core.budget import Budget, Limit
from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import Event, Note
from tilewright.core.records import Candidate, Failure, Measurement, Protocol
from tilewright.graph.plan_result import CallResult
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.base import Measurer
from tilewright.search.context import SearchContext
from tilewright.search.levels import Level, bare_task
from tilewright.search.tuning import NetworkTuner
from tilewright.search.winners import FinalistCheck
from tilewright.store import open_store
from tilewright.store.database import SqliteStore

FUSED = task(convolution("add", "relu"), name="one")
RESIDUAL = task(convolution("add", "plus", "relu"), name="two")
Truth = Callable[[Workload, Candidate], float | None]


@pytest.fixture
def store(tmp_path: Path) -> Generator[SqliteStore]:
    with open_store(tmp_path / "a.db") as opened:
        opened.add_device(PLACEMENT.device)
        found = [one.workload for fused in (FUSED, RESIDUAL) for one in (fused, bare_task(fused))]
        opened.add_workloads(found)
        yield opened


def limited(measurements: int) -> Budget:
    return Budget(Limit(measurements=measurements), [], began_s=0.0, clock=lambda: 0.0)


class Winner(NamedTuple):
    """What a task gets."""

    candidate: Candidate
    known: CallResult


class Tuned:
    """A search and its winners."""

    def __init__(
        self,
        store: SqliteStore,
        measurer: NumpyMeasurer,
        *made: Task,
        budget: int = 64,
        level: Level = "subgraph",
        tuner: str = "random",
        recall: bool = True,
    ) -> None:
        self.events: list[Event] = []
        self.context = SearchContext(
            placement=PLACEMENT, store=store, measurer=cast(Measurer, measurer),
            events=self.events.append, budget=limited(budget), peaks=PEAKS, protocol=Protocol(),
            tuner=tuner, level=level, recall=recall,
        )  # fmt: skip
        self.tuner = NetworkTuner(tasks(*made), self.context)
        if budget:
            self.tuner.run()
        self.searched = replace(self.context.counts)
        fused, known = self.tuner.fused, self.tuner.known
        self.check = FinalistCheck(fused, known, self.context, self.tuner.tasks)

    def winners(self, more: int = 50) -> dict[TaskKey, Winner]:
        self.context.budget = limited(more)
        picks = self.check.picks({}, again=more > 0)
        return {key: Winner(*pick) for key, pick in picks.items()}


def faster(name: str) -> Truth:
    """All settings of one implementation run in half the time of the others."""

    def truth(_: Workload, candidate: Candidate) -> float:
        return (1.0 if candidate.implementation == name else 2.0) * 1e-4

    return truth


@pytest.mark.parametrize("tuner", ["random", "default"])
@pytest.mark.parametrize("winner", [DIRECT, WINOGRAD])
def test_whichever_implementation_is_fastest_inside_the_subgraph_ships(
    store: SqliteStore, winner: str, tuner: str
) -> None:
    """The seed's case 1, with the default implementation as well as against it."""
    measurer = NumpyMeasurer(faster(winner))
    tuned = Tuned(store, measurer, FUSED, budget=96, tuner=tuner)
    asked = {candidate.implementation for candidate in measurer.of(FUSED.workload)}
    assert {DIRECT, WINOGRAD} <= asked
    chosen = tuned.winners()[FUSED.key]
    assert chosen.candidate.implementation == winner
    assert chosen.candidate.forms == FUSED.forms
    assert chosen.known.alone is not None and chosen.known.check is not None
    assert chosen.known.check.error == 0.0
    assert default_candidate(FUSED.workload, FUSED.forms, PLACEMENT)[0] in measurer.of(
        FUSED.workload
    )


def test_a_device_that_returns_wrong_numbers_ships_the_next_best(store: SqliteStore) -> None:
    measurer = NumpyMeasurer(faster(WINOGRAD), wrong=lambda c: c.implementation == WINOGRAD)
    tuned = Tuned(store, measurer, FUSED, budget=48)
    chosen = tuned.winners()[FUSED.key]
    assert chosen.candidate.implementation != WINOGRAD
    rejected = [c for _, c in measurer.evaluated if c.implementation == WINOGRAD]
    assert (
        rejected
        and len(rejected)
        == len(set(rejected))
        == tuned.context.counts.failures - tuned.searched.failures
    )
    stored = store.outcomes(FUSED.workload.key, PLACEMENT.key)
    failed = [outcome for outcome in stored if isinstance(outcome, Failure)]
    assert {f.candidate for f in failed if f.kind == "wrong result"} == set(rejected)
    assert sum("rejected" in e.message for e in tuned.events if isinstance(e, Note)) == len(
        rejected
    )
    again = Tuned(store, measurer, FUSED, budget=0)
    assert again.winners(0)[FUSED.key].candidate == chosen.candidate
    assert again.context.counts.failures == 0, "what was wrong once is not tried again"


def test_one_wrong_task_does_not_cost_the_others_their_checks(store: SqliteStore) -> None:
    """Tasks are checked together; the one that is wrong is checked again with its next best."""
    wrong = {WINOGRAD}
    measurer = NumpyMeasurer(faster(WINOGRAD), wrong=lambda c: c.implementation in wrong)
    tuned = Tuned(store, measurer, FUSED, RESIDUAL, budget=96)
    chosen = tuned.winners()
    assert [*chosen] == [FUSED.key, RESIDUAL.key], "in the order of the tasks"
    for key, winner in chosen.items():
        assert winner.candidate.implementation != WINOGRAD
        assert winner.known.check is not None and winner.known.check.failure is None
        evaluated = [c for k, c in measurer.evaluated if k == key[0]]
        assert evaluated[-1] == winner.candidate and len(evaluated) == len(set(evaluated))


def test_nothing_right_is_a_verdict(store: SqliteStore) -> None:
    tuned = Tuned(store, NumpyMeasurer(faster(DIRECT), wrong=lambda _: True), FUSED, budget=8)
    with pytest.raises(NegativeVerdict, match="no candidate gives right results"):
        tuned.winners()


def test_an_anchor_that_many_share_is_searched_once_and_its_best_measured_in_each(
    store: SqliteStore,
) -> None:
    """Two convolutions with equal anchors and different epilogues: the heavy one leads."""

    def truth(workload: Workload, candidate: Candidate) -> float:
        rank = sum(map(ord, str(candidate.settings))) % 97
        return (1.0 + rank / 97) * 1e-4

    measurer = NumpyMeasurer(truth)
    heavy = replace(FUSED, count=9)
    tuned = Tuned(store, measurer, heavy, RESIDUAL, budget=400)
    states = tuned.tuner.states
    assert states[RESIDUAL.key].leader is states[heavy.key]
    led, follower = measurer.of(heavy.workload), measurer.of(RESIDUAL.workload)
    assert len(led) > len(follower) > 1
    known = {o.candidate: o.latency_s for o in states[heavy.key].outcomes
             if isinstance(o, Measurement)}  # fmt: skip
    first, last = (
        structs.replace(min(seen, key=lambda c: known[c]), forms=RESIDUAL.forms)
        for seen in (led[:8], led)
    )
    assert first in follower[:9], "its best settings come right after the default"
    assert last in follower, "and what it finds later comes too"
    chosen = tuned.winners()
    assert {key: w.candidate.forms for key, w in chosen.items()} == {
        heavy.key: heavy.forms,
        RESIDUAL.key: RESIDUAL.forms,
    }


def test_an_operators_setting_is_timed_once_in_the_fused_kernel(store: SqliteStore) -> None:
    def truth(workload: Workload, candidate: Candidate) -> float:
        fused = workload.key == FUSED.workload.key
        return (2.0 if candidate.implementation == DIRECT and fused else 3.0 if fused else 1.0) * (
            1e-4 if candidate.implementation == WINOGRAD else 1.5e-4
        )

    measurer = NumpyMeasurer(truth)
    tuned = Tuned(store, measurer, FUSED, budget=64, level="op")
    assert measurer.of(FUSED.workload) == [], "the search sees the bare anchor alone"
    chosen = tuned.winners()[FUSED.key]
    (fused,) = measurer.of(FUSED.workload)
    best = min(measurer.of(bare_task(FUSED).workload), key=lambda c: c.implementation != WINOGRAD)
    assert best.implementation == fused.implementation == WINOGRAD, "its best alone, not fused"
    assert fused == chosen.candidate and fused.forms == FUSED.forms
    assert chosen.known.alone is not None and chosen.known.alone.latency_s == pytest.approx(3e-4)
    again = Tuned(store, measurer, FUSED, budget=0, level="op")
    assert again.winners(0)[FUSED.key].candidate == fused
    assert len(measurer.of(FUSED.workload)) == 1


def test_an_operator_nobody_measured_gives_the_default(store: SqliteStore) -> None:
    measurer = NumpyMeasurer(faster(WINOGRAD))
    for level in ("op", "subgraph"):
        chosen = Tuned(store, measurer, FUSED, budget=0, level=level).winners(0)[FUSED.key]
        assert chosen.known.alone is None
        assert chosen.candidate == default_candidate(FUSED.workload, FUSED.forms, PLACEMENT)[0]
    assert measurer.asked == []


@pytest.mark.parametrize("level", ["op", "subgraph"])
def test_close_finalists_are_measured_again_and_the_second_look_decides(
    store: SqliteStore, level: Level
) -> None:
    """The lucky first sample of one does not make it the winner."""
    lucky: list[Candidate] = []

    def truth(workload: Workload, candidate: Candidate) -> float:
        if measurer.protocols[-1].repeats > Protocol().repeats:
            return 1.3e-4 if candidate in lucky else 1.01e-4
        if not lucky:
            lucky.append(candidate)
        return 1.0e-4 if candidate in lucky else 1.02e-4

    measurer = NumpyMeasurer(truth)
    tuned = Tuned(store, measurer, FUSED, budget=16, level=level)
    chosen = tuned.winners()[FUSED.key]
    assert structs.replace(chosen.candidate, forms=lucky[0].forms) not in lucky
    assert tuned.context.counts.measurements == len(measurer.asked) >= 18


def test_without_recall_nothing_of_earlier_runs_counts(store: SqliteStore) -> None:
    first = NumpyMeasurer(faster(WINOGRAD))
    Tuned(store, first, FUSED, budget=16)
    fresh = Tuned(store, NumpyMeasurer(faster(DIRECT)), FUSED, budget=0, recall=False)
    assert fresh.tuner.known == {FUSED.key: []}
    known = Tuned(store, NumpyMeasurer(faster(DIRECT)), FUSED, budget=0).tuner.known[FUSED.key]
    assert [o.candidate for o in known] == first.of(FUSED.workload)


def test_the_budget_counts_second_looks(store: SqliteStore) -> None:
    measurer = NumpyMeasurer(lambda *_: 1e-4)
    tuned = Tuned(store, measurer, FUSED, budget=16)
    tuned.winners(1)
    assert len(measurer.asked) == 17
    budget = tuned.context.budget
    assert budget.remaining_count == 0 and budget.remaining_s == inf


def test_failures_alone_leave_the_default(store: SqliteStore) -> None:
    tuned = Tuned(store, NumpyMeasurer(lambda *_: None), FUSED, budget=40)
    chosen = tuned.winners()[FUSED.key]
    assert chosen.known.alone is None
    assert chosen.candidate == default_candidate(FUSED.workload, FUSED.forms, PLACEMENT)[0]
    assert all(isinstance(o, Failure) for o in tuned.tuner.known[FUSED.key])


def test_earlier_checks_are_not_repeated(store: SqliteStore) -> None:
    measurer = NumpyMeasurer(faster(DIRECT))
    tuned = Tuned(store, measurer, FUSED, budget=8)
    first = tuned.winners()[FUSED.key]
    assert first.known.check is not None
    count = len(measurer.evaluated)
    checked = {FUSED.key: (first.candidate, first.known.check)}
    _, again = tuned.check.picks(checked, again=False)[FUSED.key]
    assert again.check == first.known.check and len(measurer.evaluated) == count


def test_a_plan_of_before_needs_no_bare_tasks(store: SqliteStore) -> None:
    """At the operator level, too, what shipped earlier is looked up by its own tasks."""
    tuned = Tuned(store, NumpyMeasurer(faster(WINOGRAD)), FUSED, budget=64, level="op")
    shipped = tuned.winners()[FUSED.key].candidate
    known = {FUSED.key: tuned.tuner.known[FUSED.key]}
    check = FinalistCheck(tasks(FUSED), known, tuned.context)
    assert check.picks({}, again=False)[FUSED.key][0] == shipped
