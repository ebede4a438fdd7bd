"""The search of a whole network with made-up times: what it measures, and which plans race."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.fakes.levels import DIRECT, PEAKS, WINOGRAD, NumpyMeasurer
from helpers.fakes.measuring import PLACEMENT, measured
from helpers.fakes.placements import altered
from helpers.fakes.prepared_network import prepared, two_convolutions
from tilewright.core.budget import Budget, Limit
from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import Event, Note, Stage
from tilewright.core.noise import RoundingNoise
from tilewright.core.records import Candidate, ShippedPlan
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_fields import plan_fields
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.workload import Workload
from tilewright.hardware.features import units_of
from tilewright.kernels.compute_units import multiplied_type
from tilewright.kernels.half_noise import multiplied_half
from tilewright.kernels.plans import with_candidates
from tilewright.kernels.spaces import spaces
from tilewright.measure.base import TimeSpent
from tilewright.measure.circumstances import kernel_protocol
from tilewright.plan.mixture import Mixture
from tilewright.plan.preparation import in_one_half
from tilewright.search import network_search
from tilewright.search.context import SearchContext
from tilewright.search.graph_search import CHOSEN, RIVALS
from tilewright.search.layout_costs import InNetworkFactors
from tilewright.search.levels import GraphLevel
from tilewright.search.network_search import SHIPPED_BEFORE, NetworkSearch
from tilewright.search.winners import TUNED
from tilewright.store import open_store
from tilewright.store.database import SqliteStore
from tilewright.store.known_candidates import defaults, shipping_key

NETWORK = prepared(two_convolutions())
TASKS = tuple(NETWORK.tasks.items())
Truth = Callable[[Workload, Candidate], float | None]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[SqliteStore]:
    elsewhere = type("Access", (), {"here": False})
    monkeypatch.setattr(network_search, "access_to", lambda _device: elsewhere)
    with open_store(tmp_path / "a.db") as opened:
        opened.add_device(PLACEMENT.device)
        opened.add_workloads([task.workload for task in NETWORK.tasks.values()])
        yield opened


def winograd_is_fast(_: Workload, candidate: Candidate) -> float:
    return 1e-4 if candidate.implementation == WINOGRAD else 2e-4


@dataclass
class Searched:
    """A search in `store` by `truth`, with at most so many measurements."""

    store: SqliteStore
    budget: int
    truth: Truth = winograd_is_fast
    wrong: Callable[[Candidate], bool] = lambda _: False
    events: list[Event] = field(default_factory=list)
    converged: bool = False

    def __post_init__(self) -> None:
        self.measurer = NumpyMeasurer(self.truth, self.wrong)
        self.measurer.spent = TimeSpent()  # type: ignore[attr-defined]

    def plans(
        self,
        *,
        level: Any = "subgraph",
        settled_before: bool = False,
        save_problem: Path | None = None,
        finishing: int = 0,
        **changed: Any,
    ) -> list[PlanResult]:
        with_graph = isinstance(level, GraphLevel)
        if save_problem is not None:
            level = GraphLevel(save_problem=save_problem)
        limit = Limit(measurements=self.budget)
        budget = Budget(limit, began_s=0.0, clock=lambda: 0.0)
        budget.expect("finish", measurements=finishing)
        measurer: Any = self.measurer
        context = SearchContext(
            placement=PLACEMENT, store=self.store, measurer=measurer, events=self.events.append,
            budget=budget, peaks=PEAKS, protocol=kernel_protocol(PLACEMENT), tuner="random",
            level="subgraph" if with_graph else level, max_error=1e-4,
        )  # fmt: skip
        self.search = NetworkSearch(
            network=NETWORK, context=context, with_graph=with_graph,
            graph_level=level if isinstance(level, GraphLevel) else GraphLevel(), **changed,
        )  # fmt: skip
        found, self.converged = self.search.plans(settled_before=settled_before)
        return found

    @property
    def stages(self) -> list[str]:
        return [event.name for event in self.events if isinstance(event, Stage)]

    @property
    def notes(self) -> str:
        return "\n".join(event.message for event in self.events if isinstance(event, Note))


def implementations(found: PlanResult) -> set[str]:
    return {candidate.implementation for candidate in found.plan.candidates.values()}


def shipped(plan: NetworkPlan, created_at: float = 1.0, **numbers: float | None) -> ShippedPlan:
    return ShippedPlan(
        network_key=NETWORK.key, device_class=PLACEMENT.device.class_key,
        resources=PLACEMENT.resources, model="m", plan=plan_fields(plan), latency_s=1.0,
        numbers=numbers, created_at=created_at,
    )  # fmt: skip


def other_settings(number: int = 1) -> NetworkPlan:
    """The network's plan with other settings than the default ones."""
    chosen: dict[Any, Candidate] = {}
    for key, task in NETWORK.tasks.items():
        direct = next(
            s for s in spaces(task.workload, task.forms, PLACEMENT) if s.spec.name == DIRECT
        )
        usual = NETWORK.plan.candidates[key]
        settings = (direct.part.candidate(int(n)) for n in direct.numbers[number:])
        chosen[key] = next(candidate for candidate in settings if candidate != usual)
    return with_candidates(NETWORK.plan, chosen)


def test_tuned_tasks_race_in_default_layouts(store: SqliteStore) -> None:
    searched = Searched(store, 60)
    (tuned,) = searched.plans()
    assert tuned.name == TUNED and WINOGRAD in implementations(tuned)
    assert tuned.plan.tensors == NETWORK.plan.tensors
    assert 0 < len(searched.measurer.asked) <= 60
    for key in NETWORK.tasks:
        result = tuned.task(key)
        assert result.alone is not None and result.check is not None and result.check.error == 0
    assert searched.stages == ["tune", "check"] and not searched.notes
    assert searched.search.context.counts.measurements == len(searched.measurer.asked)
    assert searched.search.reconsider(InNetworkFactors()) is None, "layouts were not searched"


def test_operators_are_tuned_bare_and_their_best_timed_in_the_fused_kernel(
    store: SqliteStore,
) -> None:
    searched = Searched(store, 60)
    (tuned,) = searched.plans(level="op")
    asked = {key for key, _ in searched.measurer.asked}
    fused = {task.workload.key for task in NETWORK.tasks.values()}
    assert asked - fused, "the convolution whose ReLU is left out"
    assert WINOGRAD in implementations(tuned)
    for key, task in NETWORK.tasks.items():
        alone = tuned.task(key).alone
        assert alone is not None and alone.workload_key == task.workload.key


def test_a_budget_of_nothing_gives_the_default_settings(store: SqliteStore) -> None:
    searched = Searched(store, 0)
    (tuned,) = searched.plans()
    assert tuned.plan.candidates == defaults(NETWORK.tasks, PLACEMENT, 1e-4)
    assert not searched.measurer.asked and not searched.converged
    assert searched.stages == ["check"] and not searched.notes


def test_a_budget_that_finishing_takes_is_told(store: SqliteStore) -> None:
    searched = Searched(store, 5)
    searched.plans(finishing=5)
    assert not searched.measurer.asked and not searched.converged
    assert "raise --budget" in searched.notes
    store.add([measured(t.workload, NETWORK.plan.candidates[k], 1e-3) for k, t in TASKS])
    searched = Searched(store, 5)
    searched.plans(finishing=5)
    assert not searched.notes, "something is known already"


def test_what_settled_before_is_not_searched_again(store: SqliteStore) -> None:
    first = Searched(store, 60)
    (tuned,) = first.plans()
    again = Searched(store, 600)
    (found,) = again.plans(settled_before=True)
    assert again.converged and not again.measurer.asked
    assert found.plan.candidates == tuned.plan.candidates
    assert again.stages == ["check"] and not again.notes


def test_the_graph_search_and_its_rivals_race(store: SqliteStore, tmp_path: Path) -> None:
    searched = Searched(store, 400)
    found = searched.plans(level=GraphLevel(), save_problem=tmp_path / "p.json")
    assert [plan.name for plan in found] == [TUNED, CHOSEN, *RIVALS]
    assert [plan.name for plan in searched.search.proposals] == [CHOSEN, *RIVALS]
    assert all(implementations(plan) <= {WINOGRAD, DIRECT, "elementwise"} for plan in found)
    assert (tmp_path / "p.json").is_file()
    assert searched.stages.count("tune") > 1 and "solve" in searched.stages
    spent = {p for p, s in searched.search.context.budget.seconds_by_phase.items() if s >= 0}
    assert {"recall", "search", "build", "run", "verify"} <= spent


def test_without_rivals_only_the_chosen_one_races(store: SqliteStore) -> None:
    found = Searched(store, 400).plans(level=GraphLevel(), rivals=False)
    assert [plan.name for plan in found] == [TUNED, CHOSEN]


def test_with_nothing_to_spend_layouts_are_told_and_do_not_race(store: SqliteStore) -> None:
    searched = Searched(store, 0)
    found = searched.plans(level=GraphLevel())
    assert [plan.name for plan in found] == [TUNED]
    assert [plan.name for plan in searched.search.proposals] == [CHOSEN, *RIVALS]
    assert not searched.measurer.asked
    assert searched.search.reconsider(InNetworkFactors()) is None


def test_times_in_place_name_one_more(store: SqliteStore) -> None:
    searched = Searched(store, 600)
    searched.plans(level=GraphLevel())
    before = len(searched.search.proposals)
    found = searched.search.reconsider(InNetworkFactors())
    assert found is not None and found.name == "reconsidered"
    assert [p.name for p in searched.search.proposals[before:]] == ["reconsidered"]
    assert all(found.task(key).alone is not None for key in found.plan.tasks)


def test_what_shipped_before_races_again(store: SqliteStore) -> None:
    plan = other_settings()
    store.ship(shipped(plan))
    tuned, before = Searched(store, 60).plans()
    assert (tuned.name, before.name) == (TUNED, SHIPPED_BEFORE)
    assert before.plan.candidates == tuned.plan.candidates, "nothing is known of the others"
    for key, task in NETWORK.tasks.items():
        candidate = plan.candidates[key]
        store.add([measured(task.workload, candidate, 5e-4)])
    _, before = Searched(store, 0).plans()
    assert before.plan.candidates == plan.candidates, "by today's times"


def test_the_default_settings_do_not_race_as_what_shipped(store: SqliteStore) -> None:
    usual = defaults(NETWORK.tasks, PLACEMENT, 1e-4)
    store.ship(shipped(with_candidates(NETWORK.plan, usual)))
    assert [plan.name for plan in Searched(store, 0).plans()] == [TUNED]


def test_what_shipped_and_cannot_be_read_is_left_out(store: SqliteStore) -> None:
    store.ship(replace(shipped(NETWORK.plan), plan={"no": "plan"}))
    searched = Searched(store, 0)
    assert [plan.name for plan in searched.plans()] == [TUNED]
    assert "The network that shipped before is left out" in searched.notes


def checked(plan: NetworkPlan) -> dict[str, float | None]:
    """Numbers of a shipment whose kernels were right."""
    keys = [shipping_key(key) for key in plan.tasks]
    return {f"error:{key}": 0.0 for key in keys} | {f"bound:{key}": 1e-5 for key in keys}


@pytest.mark.parametrize(
    ("network", "created_at", "bounds", "again"),
    [("same", 0.0, True, False), ("other", 2e9, True, False), ("other", 1.0, True, True),
     ("same", 0.0, False, True)],
)  # fmt: skip
def test_checks_of_before_count(
    store: SqliteStore, network: str, created_at: float, bounds: bool, again: bool
) -> None:
    """Those of the network's own last shipment, and others' of kernels that were known by then."""
    plan = other_settings()
    numbers = checked(plan) if bounds else {}
    for key, task in NETWORK.tasks.items():
        row = measured(task.workload, plan.candidates[key], 1e-6, created_at=1e9)
        store.add([row])
    made = replace(shipped(plan, created_at), numbers=numbers)
    store.ship(made if network == "same" else replace(made, network_key="another"))
    searched = Searched(store, 0)
    tuned = searched.plans()[0]
    assert tuned.plan.candidates == plan.candidates
    assert bool(searched.measurer.evaluated) == again
    assert all(tuned.task(key).check is not None for key in plan.tasks)


def test_wrong_results_everywhere_are_an_error(store: SqliteStore) -> None:
    searched = Searched(store, 20, wrong=lambda _: True)
    with pytest.raises(NegativeVerdict):
        searched.plans()


def test_a_plan_that_has_a_wrong_kernel_is_left_out_with_the_kernels_failure(
    store: SqliteStore,
) -> None:
    searched = Searched(store, 0)
    searched.plans()
    plan = other_settings()
    bad = plan.calls[0]
    searched.measurer.wrong = lambda candidate: candidate == bad.candidate
    assert searched.search._as_planned(PlanResult(name="chosen", plan=plan)) is None
    told = f"'chosen' is left out: {bad.name} by {DIRECT} was rejected, wrong result: error "
    assert told in searched.notes
    assert searched.search.context.counts.failures == 1


@pytest.mark.parametrize("right", [True, False])
def test_of_a_choice_made_anew_nothing_stays_where_it_is_wrong(
    monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    noise = RoundingNoise(
        outputs=("y",), signals=(1.0,), largest=(1.0,), elements=(1,), tensors={}, calls={}
    )
    before = Mixture(noise=noise, allowed=(1.0,))
    graph: Any = SimpleNamespace(front="before", mixture=before)

    def proposals() -> list[PlanResult]:
        graph.front = "anew"
        return [PlanResult(name=CHOSEN, plan=NETWORK.plan)]

    graph.proposals = proposals
    search = object.__new__(NetworkSearch)
    search.graph, search.mixture, search.proposals = graph, before, []

    def checked(_: object, plan: PlanResult) -> PlanResult | None:
        return plan if right else None

    monkeypatch.setattr(NetworkSearch, "_as_planned", checked)
    found = search.mixed_again(2.0, "chosen 2", inf)
    scale, front, names = (2.0, "anew", ["chosen 2"]) if right else (None, "before", [])
    assert (found is not None) == right
    assert search.mixture is graph.mixture and search.mixture.scale == scale
    assert graph.front == front and [each.name for each in search.proposals] == names


HALVES = replace(
    altered(PLACEMENT, features=("avx512bf16",), units=units_of(("avx512bf16",), 64)),
    precision="auto",
)


@pytest.mark.parametrize(
    ("expected", "kept", "raced"),
    [(0.5, "", True), (1.5, "", True), (1.7, "", False), (0.5, "float32", False)],
)
def test_all_in_one_half_type_races_beside_a_mixture(
    store: SqliteStore, expected: float, kept: str, raced: bool
) -> None:
    """With what is known of its kernels, unless something is kept, or it makes too much noise."""
    network, calls = prepared(two_convolutions()), NETWORK.fused.calls
    noise = RoundingNoise(
        outputs=("y",), signals=(1.0,), largest=(1.0,), elements=(1,), tensors={},
        calls={call.name: (expected / len(calls),) for call in calls},
    )  # fmt: skip
    mixture = Mixture(noise=noise, allowed=(1.0,), kept=frozenset([kept] if kept else []))
    measurer: Any = NumpyMeasurer(winograd_is_fast)
    context = SearchContext(
        placement=HALVES, store=store, measurer=measurer, events=lambda _: None,
        budget=Budget(Limit(measurements=0), began_s=0.0, clock=lambda: 0.0), peaks=PEAKS,
        protocol=kernel_protocol(HALVES), max_error=2e-2,
    )  # fmt: skip
    alone = replace(HALVES, precision="bfloat16")
    on = in_one_half(network, alone)
    key, task = next(iter(on.tasks.items()))
    offered = spaces(task.workload, task.forms, alone)
    space = next(each for each in offered if multiplied_half(each.spec))
    other = space.part.candidate(int(space.numbers[-1]))
    store.add([measured(task.workload, other, 1e-9)])
    search = NetworkSearch(network=network, context=context, graph_level=GraphLevel())
    found = search._in_one_half(mixture)
    assert (found is not None) == raced == bool(measurer.evaluated)
    if found is not None:
        assert found.name == "bfloat16" and other != on.plan.candidates[key]
        assert found.plan.candidates[key] == other
        chosen = found.plan.calls
        types = [multiplied_type(c.workload, c.candidate.implementation) for c in chosen]
        assert set(types) == {"bfloat16"} and chosen[0].candidate.forms[0].dtype is None
        assert all(found.call(call.name).check is not None for call in chosen)
