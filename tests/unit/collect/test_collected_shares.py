"""`collect MODEL --share` takes the tasks that a network's time goes to, and rows name their
network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

import pytest

from helpers.fakes.measuring import PLACEMENT, measured
from helpers.fakes.opened_measurer import Opened
from tilewright.collect.collector import Collector
from tilewright.collect.design import CollectRequest, Design, collect_request
from tilewright.collect.planned import journal_of
from tilewright.collect.shares import heaviest
from tilewright.core.budget import parse_budget
from tilewright.core.errors import UsageError
from tilewright.core.events import discard
from tilewright.core.predictions import CollectResult
from tilewright.measure.circumstances import Circumstances
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.preparation import prepare
from tilewright.predict.modelling import predictors_of
from tilewright.store import open_store
from tilewright.store.database import SqliteStore
from tilewright.store.known_candidates import best_known

MODEL = "zoo:mlp"
TIMES_S = (3e-3, 1e-3, 2e-3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "c.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def network() -> PreparedNetwork:
    return prepare(MODEL, ModelOptions(), PLACEMENT)


def known(store: SqliteStore, network: PreparedNetwork) -> Mapping[str, float]:
    """Times of the network's tasks by their names, as if they had been measured before."""
    best, tasks = best_known(network.tasks, store, PLACEMENT), network.tasks.values()
    store.add_workloads([task.workload for task in tasks])
    for task, time_s in zip(tasks, TIMES_S, strict=True):
        store.add([measured(task.workload, best[task.key], time_s)])
    return {t.name: t.count * s for t, s in zip(tasks, TIMES_S, strict=True)}


def request(share: float, *models: str, families: tuple[str, ...] = ()) -> CollectRequest:
    return collect_request(
        families,
        models,
        samples=2,
        design=Design(settings=1, share=share),
        budget=parse_budget("1000"),
        options=ModelOptions(),
    )


def collected(store: SqliteStore, asked: CollectRequest, measurer: Opened) -> CollectResult:
    return Collector(
        places=(Circumstances(usual=PLACEMENT),),
        store=store,
        events=discard,
        measurers=lambda _place, _seed: measurer,
    ).run(asked)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.51, 0.7, 0.84, 0.99, 1.0])
def test_no_fewer_tasks_make_up_the_share(
    store: SqliteStore, network: PreparedNetwork, share: float
) -> None:
    times_s = known(store, network)
    journal = journal_of(store, PLACEMENT, f"{share}", discard)
    found = heaviest(MODEL, network, share, predictors_of(PLACEMENT, store, discard), journal)
    total_s, taken = sum(times_s.values()), [task.name for task in found.tasks]
    assert found.told.share == pytest.approx(sum(times_s[name] for name in taken) / total_s)
    assert found.told.share >= share - 1e-9
    fewer = combinations(times_s.values(), len(taken) - 1)
    assert all(sum(each) < share * total_s for each in fewer)
    assert (found.told.tasks, found.told.tasks_of_network) == (len(taken), len(times_s))
    assert found.told.measured == len(times_s)


def test_where_nothing_was_measured_predictions_decide(
    store: SqliteStore, network: PreparedNetwork
) -> None:
    asked = request(0.5, MODEL)
    found = collected(store, asked, Opened(lambda _w, _c: 1e-4))
    (told,) = found.shares
    assert (told.model, told.measured, told.tasks_of_network) == (MODEL, 0, len(network.tasks))
    assert told.device_class == str(PLACEMENT.key)
    first = max(network.tasks.values(), key=lambda task: task.count * task.workload.flop)
    rows = [row for row in store.stored_measurements() if row.model == MODEL]
    assert {row.workload_key for row in rows} == {first.workload.key}
    assert len(rows) == found.samples > 1 == told.tasks


def test_a_repeated_command_keeps_to_its_choice(store: SqliteStore) -> None:
    """What was chosen turned out to take less than the rest."""
    first = collected(store, request(0.5, MODEL), Opened(lambda _w, _c: 1e-9))
    again = Opened(lambda _w, _c: 1e-9)
    second = collected(store, request(0.5, MODEL), again)
    assert not again.asked and second.known == first.samples
    assert second.shares[0].tasks == first.shares[0].tasks
    assert second.shares[0].share < 0.1 < 0.5 <= first.shares[0].share
    assert second.shares[0].measured == 1
    assert request(0.5, MODEL).key != request(1.0, MODEL).key


def test_rows_name_their_network_and_no_other_rows_do(store: SqliteStore) -> None:
    asked = request(1.0, MODEL, families=("softmax",))
    found = collected(store, asked, Opened(lambda _w, _c: 1e-4))
    rows = store.stored_measurements()
    named = [row for row in rows if row.model]
    assert {row.model for row in named} == {MODEL}
    assert 0 < len(named) < len(rows) == found.samples + found.beside
    keys = {task.workload.key for task in prepare(MODEL, ModelOptions(), PLACEMENT).tasks.values()}
    assert {row.workload_key for row in named} == keys
    assert found.shares == (), "nothing was left out"
    models = store.models_of_tasks(PLACEMENT.key)
    assert all(models[key] == {MODEL} for key in keys), "not the run's, which names two"


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, 90.0, float("nan"), float("inf"), True, "x"])
def test_shares_that_make_no_sense(share: float) -> None:
    with pytest.raises(UsageError, match="share"):
        Design(share=share)


def test_operators_alone_have_no_share() -> None:
    with pytest.raises(UsageError, match="no network is named"):
        request(0.5, families=("relu",))
