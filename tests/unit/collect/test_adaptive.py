"""`collect --adaptive` predicts first, measures then, and goes on beside what was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.opened_measurer import Opened
from tilewright.collect import family_plan
from tilewright.collect.collector import Collector
from tilewright.collect.design import CollectRequest, Design, collect_request
from tilewright.collect.family_plan import TOLERATED, carried, settings_beside
from tilewright.collect.planned import Planned, journal_of
from tilewright.core.budget import parse_budget
from tilewright.core.events import discard
from tilewright.core.predictions import CollectResult
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.circumstances import Circumstances
from tilewright.models import ModelOptions
from tilewright.models.configurations import CONFIGURATIONS, Numbers
from tilewright.plan.preparation import prepare
from tilewright.store import open_store
from tilewright.store.database import SqliteStore

ROUND, SAMPLES = 48, 112


def rugged(workload: Workload, candidate: Candidate) -> float:
    """Channels of every other hundred are five times as slow: no fact says so."""
    channels = workload.result.shape[1]
    return (1e-6 + workload.bytes / 1e10) * (5 if channels // 100 % 2 else 1)


def request(samples: int = SAMPLES, budget: str = "100000") -> CollectRequest:
    return collect_request(
        ["relu"],
        [],
        samples=samples,
        design=Design(adaptive=True, settings=1),
        budget=parse_budget(budget),
        options=ModelOptions(),
    )


def collected(store: SqliteStore, asked: CollectRequest, measurer: Opened) -> CollectResult:
    collector = Collector(
        places=(Circumstances(usual=PLACEMENT),),
        store=store,
        events=discard,
        measurers=lambda _place, _seed: measurer,  # pyright: ignore[reportArgumentType]
    )
    return collector.run(asked)


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family_plan, "ROUND", ROUND)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "c.db") as opened:
        yield opened


def count(entry: Planned) -> int:
    """Candidates of the operator itself."""
    return len(entry.batches[0].candidates) if entry.batches else 0


def entries(store: SqliteStore) -> list[Planned]:
    return journal_of(store, PLACEMENT, request().key, discard).of("relu")


def test_what_was_predicted_badly_spawns_neighbours(store: SqliteStore) -> None:
    measurer = Opened(rugged)
    found = collected(store, request(), measurer)
    assert found.complete
    planned = entries(store)
    assert sum(map(count, planned)) == SAMPLES
    assert all(s is None for e in planned[: ROUND // 3] for s in e.batches[0].predicted_s)
    assert [r.kernels for r in found.rounds][-1] > 0 and found.rounds[-1].above > 0
    by_kernel = {
        (batch.workload_key, candidate): (entry.numbers, seconds)
        for entry in planned
        for batch in entry.batches[:1]
        for candidate, seconds in zip(batch.candidates, batch.predicted_s, strict=True)
    }
    spawned = [entry for entry in planned if entry.source is not None]
    assert len(spawned) >= 5
    for entry in spawned:
        numbers, predicted_s = by_kernel[entry.source]
        workload = store.workload(entry.source[0])
        assert workload is not None and predicted_s is not None
        assert abs(predicted_s / rugged(workload, entry.source[1]) - 1) > TOLERATED
        assert differing(numbers, entry.numbers) <= 1
        if numbers == entry.numbers:
            first = entry.batches[0].candidates[0]
            assert (first.implementation, first.forms) == (
                entry.source[1].implementation,
                entry.source[1].forms,
            )
    drawn = sum(count(entry) for entry in planned if entry.source is None)
    assert drawn >= SAMPLES // 2, "coverage goes on"
    mine = [kernel for kernel in measurer.asked if not kernel[0].startswith("conv2d")]
    assert len(set(mine)) == len(mine), "all but the probe once"


def differing(one: Numbers, other: Numbers) -> int:
    return sum(one[name] != other[name] for name in CONFIGURATIONS["relu"].spans)


def test_a_command_that_was_stopped_goes_on_and_ends(store: SqliteStore, tmp_path: Path) -> None:
    first = Opened(rugged)
    part = collected(store, request(budget="64"), first)
    assert not part.complete
    second = Opened(rugged)
    rest = collected(store, request(), second)
    assert rest.complete
    assert not set(first.asked) & (set(second.asked) - {first.asked[0]}), "only the probe again"
    assert sum(map(count, entries(store))) == SAMPLES
    nothing = Opened(rugged)
    again = collected(store, request(), nothing)
    assert again.complete and not nothing.asked
    with open_store(tmp_path / "other.db") as other:
        same = Opened(rugged)
        collected(other, request(budget="64"), same)
    assert same.asked == first.asked, "it follows from the seed and the database"


def test_neighbours_of_a_kernel() -> None:
    task = next(
        task
        for task in prepare(
            "op:conv2d[c=32,h=14,k=3,pad=1,out=32]", ModelOptions(), PLACEMENT
        ).tasks.values()
        if task.workload.anchor_name == "conv2d"
    )
    candidate = default_candidate(task.workload, task.forms, PLACEMENT)[0]
    beside = settings_beside(task.workload, candidate, PLACEMENT)
    assert beside and candidate not in beside
    for other in beside:
        changed = dict(candidate.settings).items() ^ dict(other.settings).items()
        assert len({name for name, _ in changed}) == 1
    assert carried(candidate, task.workload, PLACEMENT) == candidate
    relu = next(iter(prepare("op:relu[shape=1x8x4x4]", ModelOptions(), PLACEMENT).tasks.values()))
    assert carried(candidate, relu.workload, PLACEMENT) is None, "not for what it does not apply to"
    foreign = Candidate(
        implementation=candidate.implementation, settings=(("x", 1),), forms=candidate.forms
    )
    assert settings_beside(task.workload, foreign, PLACEMENT) == []


def test_a_journal_that_is_broken_or_cannot_be_written(store: SqliteStore) -> None:
    collected(store, request(samples=8), Opened(rugged))
    journal = journal_of(store, PLACEMENT, request(samples=8).key, discard)
    text = journal.path.read_text()
    lines = text.splitlines(keepends=True)
    journal.path.write_text("".join(lines[:2]) + lines[2][:40])
    measurer = Opened(rugged)
    assert collected(store, request(samples=8), measurer).complete
    assert not measurer.asked, "what was measured is known without the journal, too"
    assert journal.path.read_text() == text
    journal.path.write_text('{"format":0}\n' + lines[1])
    assert not journal_of(store, PLACEMENT, request(samples=8).key, discard).entries
    journal.path.unlink()
    journal.path.mkdir()
    heard: list[object] = []
    broken = Collector(
        places=(Circumstances(usual=PLACEMENT),),
        store=store,
        events=heard.append,
        measurers=lambda _place, _seed: measurer,  # pyright: ignore[reportArgumentType]
    )
    assert broken.run(request(samples=8)).complete
    assert sum("cannot write" in str(event) for event in heard) == 1
