"""Rows whose settings another version of tilewright chose: what today's implementations do not
take is left out, with a note, wherever facts of stored settings are told."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import tilewright
from helpers.fakes.levels import convolution
from helpers.fakes.measuring import PLACEMENT, measured
from helpers.plugins.offer import offering
from helpers.plugins.simulated_gpu import POINTS, h100
from helpers.records.predictor_rows import PEAKS, SMALL
from tilewright.collect import planned
from tilewright.core.errors import UsageError
from tilewright.core.events import Event, Note
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, KnobValue, Placement, ShippedPlan
from tilewright.graph.plan_fields import plan_fields
from tilewright.graph.workload import Workload
from tilewright.insight.evaluating import evaluate_kernels
from tilewright.insight.explaining import Explainer
from tilewright.kernels.metaschedule import NAME, TRACE
from tilewright.kernels.spaces import spaces
from tilewright.kernels.stored_settings import refusals
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.predict.evaluation import EvaluateRequest
from tilewright.predict.forecasting import forecaster_of
from tilewright.predict.modelling import predictors_of
from tilewright.predict.powers import fit_metrics
from tilewright.store import open_store
from tilewright.store.base import Store
from tilewright.store.known_candidates import allowed_outcomes, best_known, choose_plan

Changed = Callable[[dict[str, KnobValue]], dict[str, KnobValue]]
PLACES = {"cpu": lambda: PLACEMENT, "cuda": h100}
WORKLOADS = [convolution(channels=c, filters=f) for c in (16, 32, 64) for f in (16, 48)]
CHANGES: dict[str, tuple[Changed, str]] = {
    "a knob missing": (lambda s: dict(list(s.items())[1:]), "needs "),
    "a knob unknown": (lambda s: {**s, "of_before": 4}, "has no knob of_before any more"),
    "no knob at all": (lambda _: {}, "needs "),
    "a value of another kind": (lambda s: dict.fromkeys(s, "gone"), "does not take such settings"),
}


@pytest.fixture(autouse=True)
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr("tilewright.predict.family_models.DEFAULT_TREES", SMALL)
    monkeypatch.setattr("tilewright.predict.modelling.shipped_data", tuple)
    with offering(tmp_path / "offered", POINTS):
        yield


def kernels_at(placement: Placement, each: int = 8) -> list[tuple[Workload, Candidate]]:
    found: list[tuple[Workload, Candidate]] = []
    for workload in WORKLOADS:
        space = spaces(workload, (PLAIN,) * (len(workload.arguments) + 1), placement)[0]
        step = max(1, len(space.numbers) // each)
        numbers = space.numbers[::step][:each]
        found += [(workload, space.part.candidate(int(number))) for number in numbers]
    return found


def altered(candidate: Candidate, change: Changed) -> Candidate:
    settings = tuple(sorted(change(dict(candidate.settings)).items()))
    return Candidate(
        implementation=candidate.implementation, settings=settings, forms=candidate.forms
    )


def fill(
    store: Store, placement: Placement, kernels: Sequence[tuple[Workload, Candidate]]
) -> list[float]:
    """Measured kernels, each slower than the one before; their times."""
    where = {"device_class": placement.device.class_key, "resources": placement.resources}
    store.add_workloads([*{workload for workload, _ in kernels}])
    times_s = [1e-5 + workload.flop / 5e10 * (1 + n % 3) for n, (workload, _) in enumerate(kernels)]
    each = zip(kernels, times_s, strict=True)
    store.add([measured(*kernel, time_s, **where) for kernel, time_s in each])
    for name, value in asdict(PEAKS).items():
        store.add_peak(placement.key, name, value)
    return times_s


def notes(told: Sequence[Event]) -> list[str]:
    return [e.message for e in told if isinstance(e, Note) and "left out" in e.message]


@pytest.mark.parametrize("place", PLACES)
def test_what_a_space_of_today_has_is_taken(place: str) -> None:
    placement = PLACES[place]()
    for workload in WORKLOADS[:2]:
        for space in spaces(workload, (PLAIN,) * 3, placement):
            numbers = space.numbers[:: max(1, len(space.numbers) // 40)]
            asked = [space.part.candidate(int(number)) for number in numbers]
            told = refusals(workload, asked, placement.target, placement.resources)
            assert told == [""] * len(asked), space.spec.name


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", PLACES)
def test_the_rest_is_learnt_from_and_one_note_tells(
    place: str, change: str, tmp_path: Path
) -> None:
    placement, (changed, reason) = PLACES[place](), CHANGES[change]
    known, told = kernels_at(placement), list[Event]()
    stale = [(w, altered(c, changed)) for w, c in dict(known).items()]
    with open_store(tmp_path / "t.db") as store:
        fill(store, placement, [*stale, *known])
        (fitted,) = fit_metrics(placement, store, told.append, ["conv2d"], ["latency"]).families
        assert (fitted.error, fitted.rows) == ("", len(known))
        (note,) = notes(told)
        assert note.startswith(f"6 of {len(known) + 6} measured kernels are left out")
        assert reason in note
        predictors = predictors_of(placement, store, told.append)
        assert {(row.workload, row.candidate) for row in predictors.own_rows} == set(known)
        assert len(predictors.training_set("conv2d")) == len(known)


def test_a_predictor_is_judged_on_the_rest(tmp_path: Path) -> None:
    placement, told = h100(), list[Event]()
    known = kernels_at(placement)
    stale = [(w, altered(c, CHANGES["a knob missing"][0])) for w, c in known]
    with open_store(tmp_path / "t.db") as store:
        fill(store, placement, [*stale, *known])
        predictors = predictors_of(placement, store, told.append)
        found = evaluate_kernels(predictors, EvaluateRequest(family="conv2d", folds=6)).result
    assert next(row.n for row in found.rows if row.group == "all") == len(known)
    assert len(notes(told)) == 1


@pytest.mark.parametrize("place", PLACES)
def test_what_is_best_is_never_what_cannot_be_computed(place: str, tmp_path: Path) -> None:
    """The settings of before are the fastest that were ever measured of the task."""
    placement, told = PLACES[place](), list[Event]()
    (workload, one), (_, other) = kernels_at(placement)[:2]
    stale = altered(one, CHANGES["a knob missing"][0])
    with open_store(tmp_path / "t.db") as store:
        fill(store, placement, [(workload, stale), (workload, other)])
        assert [o.candidate for o in allowed_outcomes(workload, store, placement)] == [other]
        predictors = predictors_of(placement, store, told.append)
        assert planned.best_known(predictors, workload, one.forms) == other
        explained = Explainer(predictors=predictors, options=ModelOptions())._kernel(workload.key)
        assert explained == (workload, other)


def test_a_network_is_predicted_with_the_best_settings(tmp_path: Path) -> None:
    placement, told = h100(), list[Event]()
    network = prepare("zoo:mlp", ModelOptions(), placement)
    usual = {key: network.plan.candidates[key] for key in network.tasks}
    stale = [
        (task.workload, altered(usual[key], CHANGES["a knob unknown"][0]))
        for key, task in network.tasks.items()
    ]
    with open_store(tmp_path / "t.db") as store:
        fill(store, placement, stale)
        assert best_known(network.tasks, store, placement) == usual
        found = forecaster_of(placement, store, told.append).network(network, "best")
        assert {each.source for each in found.operators} == {"facts"}
    assert len(notes(told)) == 1


def test_a_value_that_is_not_searched_any_more_is_learnt_from() -> None:
    """Tile widths of 5 have facts, whether the knob offers them or not."""
    workload, candidate = kernels_at(PLACEMENT)[0]
    assert candidate.implementation == "conv2d_direct"
    space = spaces(workload, candidate.forms, PLACEMENT)[0]
    widths = {knob.name: knob.values for knob in space.part.knobs.knobs}["tile_width"]
    width = next(n for n in range(1, 40) if n not in widths)
    settings = dict(candidate.settings)
    asked = [altered(candidate, lambda _: {**settings, "tile_width": width})]
    asked.append(altered(candidate, lambda _: {**settings, "tile_width": 0}))
    kept, gone = refusals(workload, asked, PLACEMENT.target, PLACEMENT.resources)
    assert kept == ""
    assert gone == "conv2d_direct does not take such settings any more"


def test_implementations_that_are_not_here_and_those_without_a_space() -> None:
    workload, candidate = kernels_at(PLACEMENT)[0]
    names = ("of_another_package", "cuda_product", "dense_packed")
    settings, forms = candidate.settings, candidate.forms
    asked = [Candidate(implementation=name, settings=settings, forms=forms) for name in names]
    traced = ((TRACE, "[[], []]"),)
    asked.append(Candidate(implementation=NAME, settings=traced, forms=forms))
    told = refusals(workload, asked, PLACEMENT.target, PLACEMENT.resources)
    assert told == [
        "there is no implementation of_another_package",
        "there is no implementation cuda_product",
        "dense_packed does not take such tasks any more",
        "",
    ]


def test_what_shipped_in_settings_of_before_is_refused_by_name(tmp_path: Path) -> None:
    placement = h100()
    network = prepare("zoo:mlp", ModelOptions(), placement)
    first, *rest = network.plan.calls
    stale = altered(first.candidate, CHANGES["a knob missing"][0])
    plan = replace(network.plan, calls=(replace(first, candidate=stale), *rest))
    shipped = ShippedPlan(
        network_key=network.key,
        model="mlp",
        device_class=placement.device.class_key,
        resources=placement.resources,
        plan=plan_fields(plan),
        latency_s=1e-4,
        created_at=1.0,
    )
    with open_store(tmp_path / "t.db") as store:
        store.ship(shipped)
        with pytest.raises(UsageError, match=f"{stale.implementation} does not take") as caught:
            choose_plan(network, store, placement, "shipped")
    assert "tilewright optimize" in (caught.value.hint or "")


def test_a_search_goes_on_without_them_and_tells(tmp_path: Path) -> None:
    told = list[Event]()
    path = tmp_path / "t.db"
    with tilewright.Session(target="simulated", db=path, events=told.append) as session:
        session.optimize("zoo:mlp", budget=9, out=tmp_path / "out")
        with sqlite3.connect(path) as database:
            for number, text in database.execute("select id, settings from measurements"):
                short = json.dumps(json.loads(text)[1:], separators=(",", ":"))
                changed = "update measurements set settings = ? where id = ?"
                database.execute(changed, (short, number))
        database.close()
        session.optimize("zoo:mlp", budget=18, out=tmp_path / "again")
        session.predict("zoo:mlp", settings="best")
    searched = [
        e.message for e in told if isinstance(e, Note) and "no longer searched" in e.message
    ]
    assert len(searched) == 1 and (tmp_path / "again" / "manifest.json").exists()
    assert notes(told)
