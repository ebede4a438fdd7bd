"""Libraries among the candidates of a task, with made-up times: they compute what they were
measured to compute faster, where they are allowed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from helpers.fakes.levels import PEAKS, NumpyMeasurer, convolution, relu, task, tasks
from helpers.fakes.measuring import PLACEMENT, measured
from tilewright.core.budget import Budget, Limit
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Placement, Protocol
from tilewright.graph.workload import Workload
from tilewright.kernels import registry
from tilewright.kernels.island import NAME, SPEC
from tilewright.kernels.spaces import default_candidate, library_candidates, spaces
from tilewright.measure import targeting
from tilewright.measure.base import Measurer
from tilewright.models import ModelOptions
from tilewright.search.context import SearchContext
from tilewright.search.layout_costs import LayoutCosts, stored_by_forms
from tilewright.search.tuning import NetworkTuner
from tilewright.search.winners import FinalistCheck
from tilewright.store import open_store
from tilewright.store.database import SqliteStore
from tilewright.store.known_candidates import best_known

ALLOWED = replace(PLACEMENT, libraries=(NAME,))
LARGE = task(convolution("add", "relu", channels=64, filters=64, extent=56))
TASKS = tasks(LARGE, task(convolution("relu", channels=64, filters=64, extent=56)))
LIBRARY = Candidate(implementation=NAME, settings=(), forms=LARGE.forms)
Truth = Callable[[Workload, Candidate], float | None]


@pytest.fixture
def store(tmp_path: Path) -> Generator[SqliteStore]:
    with open_store(tmp_path / "a.db") as opened:
        opened.add_device(PLACEMENT.device)
        opened.add_workloads([each.workload for each in TASKS.values()])
        yield opened


def library_takes(seconds: float | None) -> Truth:
    return lambda _, candidate: seconds if candidate.implementation == NAME else 1e-3


def context(store: SqliteStore, truth: Truth, placement: Placement = ALLOWED) -> SearchContext:
    return SearchContext(
        placement=placement,
        store=store,
        measurer=cast(Measurer, NumpyMeasurer(truth)),
        events=lambda _: None,
        budget=Budget(Limit(measurements=14), [], began_s=0.0, clock=lambda: 0.0),
        peaks=PEAKS,
        protocol=Protocol(),
        max_error=1e-4,
    )


def test_by_default_nobody_offers_a_library() -> None:
    offered = [space.spec.name for space in spaces(LARGE.workload, LARGE.forms, PLACEMENT)]
    assert NAME not in offered and not library_candidates(LARGE.workload, LARGE.forms, PLACEMENT)


def test_a_library_that_is_allowed_is_offered_and_never_the_default() -> None:
    on = LARGE.workload, LARGE.forms
    assert library_candidates(*on, ALLOWED) == [LIBRARY]
    assert [s.spec.name for s in spaces(*on, ALLOWED)][-1] == NAME
    assert default_candidate(*on, ALLOWED) == default_candidate(*on, PLACEMENT)


def test_a_task_that_takes_no_longer_than_a_call_is_not_offered() -> None:
    small = task(relu(), form=PLAIN)
    assert SPEC.takes(small.workload, small.forms)
    assert not library_candidates(small.workload, small.forms, ALLOWED)


@pytest.mark.parametrize("seconds", [1e-4, 2e-3, None])
def test_measured_times_decide(store: SqliteStore, seconds: float | None) -> None:
    searching, wins = context(store, library_takes(seconds)), seconds == 1e-4
    tuner = NetworkTuner(TASKS, searching)
    assert tuner.untried_libraries
    tuner.run()
    assert not tuner.untried_libraries, "a follower was not measured in the library"
    picks = FinalistCheck(TASKS, tuner.known, searching).picks({}, again=False)
    for candidate, known in picks.values():
        assert (candidate.implementation == NAME) == wins
        assert known.alone is not None and known.alone.latency_s == (1e-4 if wins else 1e-3)
        assert known.rival is not None and known.rival.latency_s == 1e-3
        assert known.check is not None and known.check.error is not None


def test_what_is_known_of_a_library_is_believed_only_where_it_is_allowed(
    store: SqliteStore,
) -> None:
    own = default_candidate(LARGE.workload, LARGE.forms, PLACEMENT)[0]
    store.add([measured(LARGE.workload, own, 1e-3), measured(LARGE.workload, LIBRARY, 1e-4)])
    one = tasks(LARGE)
    assert best_known(one, store, PLACEMENT) == {LARGE.key: own}
    assert best_known(one, store, ALLOWED) == {LARGE.key: LIBRARY}
    costs = {}
    for placement in (PLACEMENT, ALLOWED):
        found = LayoutCosts(placement=placement)
        outcomes = stored_by_forms(LARGE.workload, store, placement)[LARGE.forms]
        found.learn(LARGE.workload, LARGE.forms, outcomes, searched=False)
        costs[placement.libraries] = found.kernels(LARGE.workload, LARGE.forms)
    assert NAME not in costs[()] and costs[NAME,][NAME].measured
    assert NAME not in LayoutCosts(placement=ALLOWED).kernels(LARGE.workload, LARGE.forms), (
        "an estimate of a library is a cost"
    )


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    here = type("Access", (), {"here": True})
    monkeypatch.setattr(targeting, "access_to", lambda _device: here)
    assert targeting.allowing(PLACEMENT, ModelOptions(libraries=(NAME, NAME))) == ALLOWED
    assert targeting.allowing(PLACEMENT, ModelOptions()) == PLACEMENT
    with pytest.raises(UsageError, match="no library is called 'onnxrutime'") as caught:
        targeting.allowing(PLACEMENT, ModelOptions(libraries="onnxrutime"))
    assert NAME in str(caught.value.hint)
    monkeypatch.setattr("tilewright.kernels.island.find_spec", lambda _name: None)
    with pytest.raises(TargetError, match="not installed") as missing:
        registry.checked_libraries([NAME])
    assert missing.value.hint == "pip install onnxruntime"


def test_a_device_elsewhere_has_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    there = type("Access", (), {"here": False, "name": "rpc"})
    monkeypatch.setattr(targeting, "access_to", lambda _device: there)
    with pytest.raises(TargetError, match="libraries are on this machine's CPU only"):
        targeting.allowing(PLACEMENT, ModelOptions(libraries=NAME))
