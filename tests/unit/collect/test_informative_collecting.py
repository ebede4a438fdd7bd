"""`collect --informative` measures what tells most first, and says where nothing can tell that."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.opened_measurer import Opened
from helpers.records.predictor_rows import known_store
from tilewright.collect.collector import Collector
from tilewright.collect.design import CollectRequest, Design, collect_request
from tilewright.collect.planned import journal_of
from tilewright.core.budget import parse_budget
from tilewright.core.events import Event, Note
from tilewright.core.predictions import CollectResult
from tilewright.measure.circumstances import Circumstances
from tilewright.models import ModelOptions
from tilewright.models.configurations import drawn
from tilewright.predict import modelling
from tilewright.store.database import SqliteStore

SAMPLES = 6


def request(family: str, *, informative: bool = True) -> CollectRequest:
    return collect_request(
        [family],
        [],
        samples=SAMPLES,
        design=Design(informative=informative, settings=0),
        budget=parse_budget("1000"),
        options=ModelOptions(),
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    """Some convolutions are known, and nothing came along."""
    monkeypatch.setattr(modelling, "shipped_data", tuple)
    with known_store(tmp_path / "c.db") as opened:
        yield opened


def collected(
    store: SqliteStore, asked: CollectRequest, heard: list[Event]
) -> tuple[CollectResult, list[dict[str, int]]]:
    measurer = Opened(lambda workload, _candidate: 1e-6 + workload.bytes / 1e10)
    collector = Collector(
        places=(Circumstances(usual=PLACEMENT),),
        store=store,
        events=heard.append,
        measurers=lambda _place, _seed: measurer,  # pyright: ignore[reportArgumentType]
    )
    result = collector.run(asked)
    (family,) = asked.families
    entries = journal_of(store, PLACEMENT, asked.key, heard.append).of(family)
    return result, [dict(entry.numbers) for entry in entries]


def test_the_most_telling_of_those_offered_come_first(store: SqliteStore) -> None:
    heard: list[Event] = []
    result, chosen = collected(store, request("conv2d"), heard)
    assert result.complete and result.samples >= SAMPLES
    offered = [dict(numbers) for numbers in islice(drawn("conv2d", 0), 10 * SAMPLES)]
    assert all(numbers in offered for numbers in chosen)
    places = [offered.index(numbers) for numbers in chosen]
    assert len(set(places)) == len(places) and max(places) >= SAMPLES, "not just the first ones"
    again, same = collected(store, request("conv2d"), heard)
    assert again.samples == 0 and same == chosen
    assert request("conv2d").key != request("conv2d", informative=False).key


def test_where_nothing_is_known_they_come_as_drawn(store: SqliteStore) -> None:
    heard: list[Event] = []
    _, chosen = collected(store, request("relu"), heard)
    assert chosen == [dict(numbers) for numbers in islice(drawn("relu", 0), len(chosen))]
    notes = [event.message for event in heard if isinstance(event, Note)]
    assert any("relu was measured on no device class" in note for note in notes)
