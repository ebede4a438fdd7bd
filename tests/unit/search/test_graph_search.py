"""The graph tuner's loop: solve, measure what is used, solve again, with made-up times."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import cast

import pytest

from helpers.fakes.levels import PEAKS, NumpyMeasurer
from helpers.fakes.measuring import PLACEMENT, failed, measured
from helpers.fakes.placements import altered
from helpers.fakes.prepared_network import prepared, two_convolutions
from tilewright.core.budget import Budget, Limit
from tilewright.core.events import Event, Note
from tilewright.core.forms import PLAIN, blocked, channel_block
from tilewright.core.noise import RoundingNoise
from tilewright.core.records import Candidate, Failure, Placement, Protocol
from tilewright.core.solutions import Solution
from tilewright.deploy.graph_account import choice_rows
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.tasks import TaskKey
from tilewright.graph.workload import Workload
from tilewright.hardware.features import units_of
from tilewright.kernels.half_noise import multiplied_half, storable
from tilewright.kernels.registry import implementations as specs
from tilewright.kernels.spaces import spaces
from tilewright.measure.base import Measurer
from tilewright.plan import planners
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import NothingFound, Solver
from tilewright.plan.assignment.solving import solve
from tilewright.plan.mixture import Mixture
from tilewright.search.context import SearchContext
from tilewright.search.graph_search import CHOSEN, RECONSIDERED, GraphSearch
from tilewright.search.layout_costs import InNetworkFactors, LayoutCosts
from tilewright.search.tuning import NetworkTuner
from tilewright.store import open_store
from tilewright.store.database import SqliteStore

Truth = Callable[[Workload, Candidate], float | None]

HALVES = replace(
    altered(PLACEMENT, features=("avx512bf16",), units=units_of(("avx512bf16",), 64)),
    precision="auto",
)


@pytest.fixture
def store(tmp_path: Path) -> Generator[SqliteStore]:
    with open_store(tmp_path / "a.db") as opened:
        opened.add_device(PLACEMENT.device)
        yield opened


class Searched:
    """A base search, then the graph tuner."""

    def __init__(
        self,
        store: SqliteStore,
        truth: Truth,
        budget: int = 600,
        max_error: float = 1e-4,
        placement: Placement = PLACEMENT,
        mixture: Mixture | None = None,
    ) -> None:
        self.network = prepared(two_convolutions())
        self.measurer = NumpyMeasurer(truth)
        self.events: list[Event] = []
        store.add_workloads([task.workload for task in self.network.tasks.values()])
        self.context = SearchContext(
            placement=placement,
            store=store,
            measurer=cast(Measurer, self.measurer),
            events=self.events.append,
            budget=Budget(Limit(measurements=budget), [], began_s=0.0, clock=lambda: 0.0),
            peaks=PEAKS,
            protocol=Protocol(),
            tuner="random",
            max_error=max_error,
        )
        tuner = NetworkTuner(self.network.tasks, self.context)
        with self.context.budget.keeping(0.5):
            tuner.run()
        self.before = len(self.measurer.asked)
        self.search = GraphSearch(
            network=self.network,
            context=self.context,
            known=dict(tuner.known),
            mixture=mixture,
        )

    def run(self) -> list[PlanResult]:
        return self.search.run()


def wide_is_fast(workload: Workload, candidate: Candidate) -> float:
    """Kernels that read and write blocks of 32 are twice as fast; copies cost a little."""
    if workload.anchor_name == "elementwise":
        return 1e-6
    blocks = [channel_block(form) for form in candidate.forms]
    return 1e-4 * (0.5 if max(blocks[0], blocks[-1]) == 32 else 1.0)


def solution_of(proposal: PlanResult) -> Solution:
    assert proposal.solution is not None
    return proposal.solution


def implementations(proposal: PlanResult) -> dict[TaskKey, str]:
    return {key: found.implementation for key, found in proposal.plan.candidates.items()}


def test_layouts_that_pay_are_found_and_measured_before_they_are_believed(
    store: SqliteStore,
) -> None:
    searched = Searched(store, wide_is_fast)
    proposals = searched.run()
    chosen = proposals[0]
    assert chosen.name == CHOSEN and solution_of(chosen).gap == 0
    inner = [c.output for c in searched.network.fused.calls[:-1]]
    assert blocked(32) in {chosen.plan.tensors[t].form for t in inner}
    assert chosen.measured
    assert solution_of(chosen).objective_s == pytest.approx(3 * 0.5e-4, rel=0.1)
    assert [p.name for p in proposals] == [CHOSEN, "uniform", "history_best"]
    assert searched.context.counts.measurements == len(searched.measurer.asked) > searched.before
    for key, task in chosen.plan.tasks.items():
        assert key in searched.search.known, task.name


def test_nothing_changes_where_the_usual_blocks_are_best(store: SqliteStore) -> None:
    def usual(workload: Workload, candidate: Candidate) -> float:
        return 1e-4 if blocked(16) in candidate.forms else 2e-4

    searched = Searched(store, usual)
    assert searched.run()[0].plan.tensors == searched.network.plan.tensors


def test_what_the_store_knows_gives_the_same_choice_without_measuring(store: SqliteStore) -> None:
    first = Searched(store, wide_is_fast).run()[0]
    again = Searched(store, wide_is_fast, budget=0)
    assert again.measurer.asked == []
    chosen = again.search.recalled()[0]
    assert again.measurer.asked == []
    assert chosen.plan == first.plan


def test_a_change_of_layout_that_cannot_be_built_is_not_believed(store: SqliteStore) -> None:
    def no_copies(workload: Workload, candidate: Candidate) -> float | None:
        """Kernels only like their own block, so that copies would pay; but none can be made."""
        if workload.anchor_name == "elementwise":
            return None
        blocks = {channel_block(form) for form in candidate.forms} - {0}
        return 1e-4 if len(blocks) < 2 else 1e-2

    searched = Searched(store, no_copies)
    proposals = searched.run()
    assert solution_of(proposals[0]).gap == 0
    failed = [k for k, o in searched.search.known.items() if all(isinstance(x, Failure) for x in o)]
    assert not set(failed) & proposals[0].plan.tasks.keys()


def test_a_budget_too_small_for_other_layouts_leaves_them_to_the_model(store: SqliteStore) -> None:
    searched = Searched(store, wide_is_fast, budget=4)
    chosen = searched.run()[0]
    assert len(searched.measurer.asked) <= 4
    rows = choice_rows(solution_of(chosen).assignment, searched.search.problem)
    assert any(not row.measured for row in rows), "what was not measured is marked as modelled"


def test_what_was_measured_is_preferred_to_better_estimates_once_the_budget_is_spent(
    store: SqliteStore,
) -> None:
    """Estimates of other layouts promise much; believing them would leave more unmeasured."""
    searched = Searched(store, wide_is_fast, budget=12)
    chosen = searched.run()[0]
    solution = solution_of(chosen)
    again = searched.search.problem.problem.cost(solution.assignment)
    assert again == solution.objective_ps, "the problem is the one that was solved last"
    searched.search.costs.doubt = 1.0
    trusting = searched.search.proposals()[0]
    problem = searched.search.problem

    def measured_kernels(proposal: PlanResult) -> int:
        chosen = problem.choices_of(solution_of(proposal).assignment)
        return sum(choice.time.measured for choice in chosen.values())

    assert solution_of(trusting).objective_s < solution.objective_s
    assert measured_kernels(trusting) < measured_kernels(chosen)


def test_estimates_are_doubted_where_that_is_asked_for() -> None:
    workload = prepared(two_convolutions()).plan.calls[1].workload
    ports = (blocked(16), *(PLAIN,) * (len(workload.arguments) - 1), blocked(16))
    plain, doubting = LayoutCosts(placement=PLACEMENT), LayoutCosts(placement=PLACEMENT, doubt=2.0)
    trusted, doubted = (costs.kernels(workload, ports) for costs in (plain, doubting))
    assert {n: 2 * t.seconds for n, t in trusted.items()} == {
        n: t.seconds for n, t in doubted.items()
    }
    name = min(trusted, key=lambda n: trusted[n].seconds)
    candidate = Candidate(implementation=name, settings=(), forms=ports)
    doubting.learn(workload, ports, [measured(workload, candidate, 1e-4)], searched=True)
    assert doubting.kernels(workload, ports)[name].seconds == 1e-4, "what is known is not doubted"


def test_estimates_are_scaled_by_what_was_measured_nearby() -> None:
    workload = prepared(two_convolutions()).plan.calls[1].workload
    costs = LayoutCosts(placement=PLACEMENT)
    usual = (blocked(16), *(PLAIN,) * (len(workload.arguments) - 1), blocked(16))
    wider = (blocked(32), *usual[1:])
    before = costs.kernels(workload, wider)
    assert before and not any(time.measured for time in before.values())
    name, guess = min(costs.kernels(workload, usual).items(), key=lambda item: item[1].seconds)
    candidate = Candidate(implementation=name, settings=(), forms=usual)
    costs.learn(workload, usual, [measured(workload, candidate, 3 * guess.seconds)], searched=True)
    assert costs.kernels(workload, usual)[name].measured
    assert list(costs.kernels(workload, usual)) == [name], "the others had their chance"
    after = costs.kernels(workload, wider)[name]
    assert not after.measured
    assert after.seconds == pytest.approx(3 * before[name].seconds)
    assert inf > after.seconds > 0


def test_what_is_too_inexact_is_never_used_even_where_records_praise_it(store: SqliteStore) -> None:
    def winograd_is_fast(_: Workload, candidate: Candidate) -> float:
        return 1e-6 if candidate.implementation == "conv2d_winograd" else 1e-4

    def used(proposal: PlanResult) -> set[str]:
        return set(implementations(proposal).values())

    free = Searched(store, winograd_is_fast).run()[0]
    assert "conv2d_winograd" in used(free)
    strict = Searched(store, winograd_is_fast, max_error=8e-6)
    for proposal in strict.run():
        assert "conv2d_winograd" not in used(proposal)
    asked = {candidate.implementation for _, candidate in strict.measurer.asked}
    assert "conv2d_winograd" not in asked


def test_a_solver_that_finds_nothing_is_stood_in_for(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solved(problem: Problem, solver: Solver) -> Solution:
        if solver.name == "greedy":
            raise NothingFound("greedy found nothing.")
        return solve(problem, solver)

    monkeypatch.setattr(planners, "solve", solved)
    searched = Searched(store, wide_is_fast)
    searched.search.solver = "greedy"
    proposals = searched.run()
    assert proposals[0].name == CHOSEN and solution_of(proposals[0]).solver == "exact"
    notes = [event.message for event in searched.events if isinstance(event, Note)]
    assert any("auto is used instead" in note for note in notes)


def test_a_kernel_that_no_search_looks_at_does_not_keep_one_from_converging(
    store: SqliteStore,
) -> None:
    """The first of a mixture, which rounds the image itself, has an estimate only."""

    def halves_are_fast(workload: Workload, candidate: Candidate) -> float:
        if workload.anchor_name == "elementwise":
            return 1e-4
        return 1e-5 if multiplied_half(specs()[candidate.implementation]) else 1e-4

    fused = prepared(two_convolutions()).fused
    noise = RoundingNoise(
        outputs=fused.graph.outputs, signals=(1.0,), largest=(1.0,), elements=(64,),
        tensors=dict.fromkeys(storable(fused), (1e-9,)),
        calls={call.name: (1e-9,) for call in fused.calls},
    )  # fmt: skip
    mixture = Mixture(noise=noise, allowed=(1.0,))
    searched = Searched(store, halves_are_fast, 1000, 2e-2, HALVES, mixture)
    chosen = searched.run()[0]
    first = chosen.plan.calls[0]
    assert multiplied_half(specs()[first.candidate.implementation])
    assert first.candidate.forms[0].dtype is None, "it reads the image as it is"
    rows = choice_rows(solution_of(chosen).assignment, searched.search.problem)
    assert [row.measured for row in rows if row.call == first.name] == [False]
    assert chosen.measured and searched.search.converged and searched.search.costs.doubt == 1.0


def test_a_search_that_was_cut_short_has_not_converged(store: SqliteStore) -> None:
    searched = Searched(store, wide_is_fast, budget=60)
    searched.run()
    assert not searched.search.converged


def test_default_layouts_stay_possible_where_all_results_were_wrong() -> None:
    task = next(iter(prepared(two_convolutions()).tasks.values()))
    candidate = next(iter(spaces(task.workload, task.forms, PLACEMENT))).part.candidate(0)
    outcomes = [
        measured(task.workload, candidate, 1.0),
        failed(task.workload, candidate, "wrong result"),
    ]
    for needed in (False, True):
        costs = LayoutCosts(placement=PLACEMENT)
        costs.learn(task.workload, task.forms, outcomes, searched=True, needed=needed)
        assert bool(costs.kernels(task.workload, task.forms)) is needed


def slower_in_place(implementation: str, factor: float, proposal: PlanResult) -> InNetworkFactors:
    """As if a race had shown that kernels of one implementation take longer in the network."""
    return InNetworkFactors(
        (
            (call.workload.key, call.candidate.forms, name),
            1e-4,
            1e-4 * (factor if name == implementation else 1.0),
        )
        for call in proposal.plan.calls
        for name in ("conv2d_direct", "conv2d_winograd")
    )


def test_times_in_place_change_the_choice(store: SqliteStore) -> None:
    """What is fastest alone but slow in the network is given up for what is faster there."""

    def winograd_is_fast(_: Workload, candidate: Candidate) -> float:
        return 1e-4 if candidate.implementation == "conv2d_winograd" else 1.1e-4

    searched = Searched(store, winograd_is_fast)
    before = searched.run()[0]
    assert "conv2d_winograd" in implementations(before).values()
    problem = searched.search.problem
    factors = slower_in_place("conv2d_winograd", 1.5, before)
    found = searched.search.reconsider(factors)
    assert found is not None and found.name == RECONSIDERED
    assert "conv2d_winograd" not in implementations(found).values()
    again = problem.problem.cost(solution_of(before).assignment)
    assert again == solution_of(before).objective_ps, "the problem as it was keeps its costs"


def test_nothing_is_reconsidered_by_guesses_alone(store: SqliteStore) -> None:
    """Other layouts are promising, but the budget ended before they were measured."""
    searched = Searched(store, wide_is_fast, budget=4)
    before = searched.run()[0]
    assert not before.measured
    found = searched.search.reconsider(InNetworkFactors())
    assert found is None or found.measured


def test_second_looks_are_believed_when_the_choice_is_reconsidered(store: SqliteStore) -> None:
    def winograd_is_fast(_: Workload, candidate: Candidate) -> float:
        return 1e-4 if candidate.implementation == "conv2d_winograd" else 1.1e-4

    searched = Searched(store, winograd_is_fast)
    before = searched.run()[0]
    known = {key: searched.search.known.get(key, []) for key in before.plan.tasks}
    again = {
        key: [
            *outcomes,
            *(
                measured(before.plan.tasks[key].workload, outcome.candidate, 2e-4)
                for outcome in outcomes
                if outcome.candidate.implementation == "conv2d_winograd"
            ),
        ]
        for key, outcomes in known.items()
    }
    found = searched.search.reconsider(InNetworkFactors(), [(before.plan.tasks, again)])
    assert found is not None
    slow = {key for key, name in implementations(found).items() if name == "conv2d_winograd"}
    assert not slow & {key for key, outcomes in known.items() if outcomes}
