"""From a network to the plans that race for shipping: tuned tasks, then layouts and algorithms over
the whole graph, then a check of the finalists of each of the plans found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tilewright.core import errors, events, signals
from tilewright.core.records import Candidate, KernelCheck
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.base import HALF
from tilewright.kernels.halves import half_lanes
from tilewright.kernels.plans import with_candidates
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.checking import check_kernels
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.assignment.problem_file import write_problem
from tilewright.plan.mixture import Mixture
from tilewright.plan.preparation import in_one_half
from tilewright.predict import forecasting, modelling
from tilewright.search import graph_search, layout_costs, levels
from tilewright.search.context import SearchContext
from tilewright.search.tuning import Known, NetworkTuner
from tilewright.search.winners import LAST, TUNED, FinalistCheck
from tilewright.store.known_candidates import candidates_of, defaults, plan_of, ranked, shipping_key

SHIPPED_BEFORE = "shipped before"
_GRAPH_SHARE = 0.4
"""Part of the budget that the graph tuner may spend on other layouts."""
_MIXTURE_SHARE = 0.6
"""The same where types are chosen, too: most of what ships is then in other forms."""

_BEYOND = 10.0**0.2
"""So many times what is allowed noise may be expected to be: what is expected is off by 2 dB at
most."""

Tasks = Mapping[TaskKey, Task]


@dataclass(slots=True, kw_only=True)
class NetworkSearch:
    """One search, of layouts and algorithms too if `with_graph`; with `rivals` the graph tuner's
    rivals race, too. With a `mixture` the graph tuner chooses types, too, and what it chooses races
    as it is, also where nothing was measured, beside the network in one half type.

    The budget learns what each phase took: `search` is the time beyond building, running and the
    tuners' thinking. `proposals` are what the graph tuner found.
    """

    network: PreparedNetwork
    context: SearchContext
    graph_level: levels.GraphLevel
    with_graph: bool = False
    rivals: bool = True
    mixture: Mixture | None = None
    proposals: list[PlanResult] = field(default_factory=list[PlanResult])
    graph: graph_search.GraphSearch | None = None
    tuner: NetworkTuner = field(init=False)
    _searched_graph: bool = False
    _looked_at: list[tuple[Tasks, Known]] = field(default_factory=list[tuple[Tasks, Known]])
    _checks: dict[TaskKey, tuple[Candidate, KernelCheck]] = field(
        default_factory=dict[TaskKey, tuple[Candidate, KernelCheck]]
    )

    def __post_init__(self) -> None:
        """A search starts from what the predictors expect to be fastest if they are there, less
        libraries; where nothing may be measured they are made."""
        context = self.context
        if access_to(context.placement.device).here:
            context.guess = forecasting.best_guesses(
                modelling.predictors_of(
                    replace(context.placement, libraries=()), context.store, context.events
                ),
                context.max_error,
                fitting=context.budget.nothing,
            )

    def plans(self, *, settled_before: bool) -> tuple[list[PlanResult], bool]:
        """The plan in default layouts first, then others; and whether all converged.

        With `settled_before` nothing is searched unless templates have changed since.
        """
        context, budget = self.context, self.context.budget
        with budget.phase("recall"):
            self.tuner = tuner = NetworkTuner(self.network.tasks, context)
        untried = tuner.untried_libraries
        settled = settled_before and tuner.outdated == 0 and not untried
        searches = not budget.exhausted and not settled
        if not (searches or settled or budget.nothing or any(tuner.known.values())):
            context.note(
                "The budget is too short to measure anything, because compiling and checking the "
                "network need all of it: raise --budget."
            )
        if untried and budget.nothing:
            context.note(
                "A library computes a task only where it was measured to be faster, and nothing "
                "is measured with --budget 0."
            )
        converged = self._searched() if searches else settled
        if self.with_graph and not searches:
            self._choose_layouts(measuring=False)
        context.events(events.Stage(name="check", detail="winners against numpy"))
        budget.expect("finalists")
        with budget.phase("verify", keep=0.5 if self.proposals and searches else 0.0):
            found = [self._decided(TUNED, self.network.plan, tuner.known, again=searches)]
        if self.mixture is not None:
            found += [self._as_planned(proposal) for proposal in self.proposals]
            found.append(self._in_one_half(self.mixture))
        elif self.graph is not None and searches:
            believed = self.graph.known | tuner.known
            for proposal in self.proposals if self.rivals else self.proposals[:1]:
                name, plan = proposal.name, proposal.plan
                known = {key: list(believed.get(key, ())) for key in plan.tasks}
                found.append(self._decided(name, plan, known, again=name == graph_search.CHOSEN))
        found.append(self._shipped_before())
        return [plan for plan in found if plan is not None], converged

    def _searched(self) -> bool:
        """Spend the budget; True when everything converged."""
        context, budget, tuner = self.context, self.context.budget, self.tuner
        spent, before = context.measurer.spent, replace(context.measurer.spent)
        context.events(events.Stage(name="tune", detail=f"{len(tuner.tasks)} tasks"))
        # At the operator level each winner is timed once more, in its fused kernel. Half of what is
        # left is kept for that at most, so that a small budget is searched with too.
        last = int(min(len(self.network.tasks), budget.remaining_count / 2))
        budget.expect(LAST, measurements=last if context.level == "op" else 0)
        with signals.graceful_interrupt() as interruption, budget.phase("search"):
            context.stop = interruption
            share = _GRAPH_SHARE if self.mixture is None else _MIXTURE_SHARE
            with budget.keeping(share if self.with_graph else 0.0):
                converged = tuner.run()
            if self.with_graph and not interruption():
                graph = self._choose_layouts(measuring=True)
                converged = converged and graph.converged
                tuner.known |= {key: graph.known[key] for key in tuner.fused if key in graph.known}
            budget.credit("build", spent.build_s - before.build_s)
            budget.credit("run", spent.run_s - before.run_s)
        if interruption():
            raise KeyboardInterrupt
        return converged

    def _choose_layouts(self, *, measuring: bool) -> graph_search.GraphSearch:
        """Run the graph tuner; without measuring, its assignments by what is known already are to
        be told of, not to race."""
        self.graph = graph = graph_search.GraphSearch(
            network=self.network,
            context=self.context,
            known=dict(self.tuner.known),
            solver=self.graph_level.solver,
            mixture=self.mixture,
        )
        self._searched_graph = measuring
        if measuring:
            self.proposals = graph.run()
        else:
            with self.context.budget.phase("recall"):
                self.proposals = graph.recalled()
        if self.graph_level.save_problem is not None:
            write_problem(graph.problem.problem, self.graph_level.save_problem)
        return graph

    def _decided(
        self, name: str, plan: NetworkPlan, known: Known, *, again: bool = False
    ) -> PlanResult | None:
        """The plan with the winner of each task, with the time of second looks and checks
        accounted for; None, with a note, where a task has no candidate that gives right results.

        Without these for the default layouts nothing can ship, which is an error.
        """
        searched = self.tuner.tasks if name == TUNED else None
        try:
            with self.context.budget.phase("verify"):
                checks = self._earlier_checks(plan.tasks) | self._checks
                check = FinalistCheck(plan.tasks, known, self.context, searched)
                picks = check.picks(checks, again=again)
        except errors.NegativeVerdict as error:
            if name == TUNED:
                raise
            self.context.note(f"The plan {name!r} is left out: {error.message}")
            return None
        self._checks |= {
            key: (candidate, result.check)
            for key, (candidate, result) in picks.items()
            if result.check is not None
        }
        if name != SHIPPED_BEFORE:
            self._looked_at.append((plan.tasks, known))
        chosen = {key: candidate for key, (candidate, _) in picks.items()}
        decided = PlanResult(name=name, plan=with_candidates(plan, chosen))
        return decided.with_tasks({key: result for key, (_, result) in picks.items()})

    def _as_planned(self, proposal: PlanResult) -> PlanResult | None:
        """A plan with the candidates that its calls have, each checked once; None, with a note,
        where one is wrong. The noise of others is not what was counted with."""
        calls = proposal.plan.calls
        kernels = {(call.task, call.candidate): call for call in reversed(calls)}
        checks: dict[tuple[TaskKey, Candidate], KernelCheck] = {
            (key, known[0]): known[1] for key, known in self._checks.items()
        }
        fresh = [kernel for kernel in kernels if kernel not in checks]
        with self.context.budget.phase("verify"):
            made = check_kernels(
                self.context.measurer,
                [(kernels[kernel].workload, kernel[1]) for kernel in fresh],
                self.context.seed,
            )
        wrong = [(k, c.failure) for k, c in zip(fresh, made, strict=True) if c.failure is not None]
        for _, failure in wrong:
            self.context.keep(failure)
        if wrong:
            (kernel, failure), *_ = wrong
            self.context.note(
                f"The plan {proposal.name!r} is left out: {kernels[kernel].name} by "
                f"{kernel[1].implementation} was rejected, {failure.headline}"
            )
            return None
        checks |= dict(zip(fresh, made, strict=True))
        self._checks |= {key: (candidate, checks[key, candidate]) for key, candidate in kernels}
        known = {} if self.graph is None else self.graph.known
        alone = {
            (key, candidate): next(
                (m for m in ranked(known.get(key, ())) if m.candidate == candidate), None
            )
            for key, candidate in kernels
        }
        told = {
            call.name: CallResult(
                alone=alone[call.task, call.candidate], check=checks[call.task, call.candidate]
            )
            for call in calls
        }
        return replace(proposal, calls={**proposal.calls, **told})

    def _in_one_half(self, mixture: Mixture) -> PlanResult | None:
        """The plan with all in halves that may be, as that precision alone has it, with what is
        known of its kernels; None where something is kept in single precision or on codes, or its
        noise is expected to be beyond what is allowed."""
        placement = replace(self.context.placement, precision=HALF)
        if mixture.kept or mixture.codes or not half_lanes(placement.target):
            return None
        network = in_one_half(self.network, placement)
        calls = [(call.name, call.candidate) for call in network.plan.calls]
        chosen = {name: (each.implementation, each.forms) for name, each in calls}
        if mixture.share(mixture.powers(network.fused, chosen)) > _BEYOND:
            return None
        context = replace(self.context, placement=placement)
        search = NetworkSearch(network=network, context=context, graph_level=self.graph_level)
        self.context.store.add_workloads([task.workload for task in network.tasks.values()])
        with self.context.budget.phase("recall"):
            search.tuner = NetworkTuner(network.tasks, context)
        return search._decided(HALF, network.plan, search.tuner.known)

    def mixed_again(self, scale: float, name: str, below_s: float) -> PlanResult | None:
        """The choice of types anew, with noise `scale` times as large as it was counted; None, and
        the choice from before stays, where the sum of its kernels is not below a time, or its plan
        is wrong."""
        graph, before = self.graph, self.mixture
        assert graph is not None and before is not None, "there is no mixture"
        front = graph.front
        self.mixture = graph.mixture = replace(before, scale=scale)
        (proposal,) = graph.proposals()
        planned = replace(proposal, name=name)
        slow = planned.solution is not None and planned.solution.objective_s >= below_s
        found = None if slow else self._as_planned(planned)
        if found is None:
            self.mixture, graph.mixture, graph.front = before, before, front
        else:
            self.proposals.append(planned)
        return found

    def reconsider(self, factors: layout_costs.InNetworkFactors) -> PlanResult | None:
        """The graph tuner's choice by times that are corrected by how long kernels took in the
        networks of a race; None where layouts were not searched, or no time is left for it."""
        graph, budget = self.graph, self.context.budget
        if graph is None or not self._searched_graph or budget.remaining_s <= 0:
            return None
        with budget.phase("reconsider"):
            proposal = graph.reconsider(factors, self._looked_at)
        if proposal is None:
            return None
        self.proposals.append(proposal)
        if self.mixture is not None:
            return self._as_planned(proposal)
        plan, chosen = proposal.plan, proposal.plan.candidates
        known = _known_of(
            plan.tasks,
            graph.known,
            lambda key, candidate: candidate.implementation == chosen[key].implementation,
        )
        return self._decided(proposal.name, plan, known)

    def _shipped_before(self) -> PlanResult | None:
        """The plan that shipped earlier; kernels whose templates changed since get the best of
        today's. None where that is the plan with our default settings."""
        context, network = self.context, self.network
        shipped = context.store.shipped(network.key, context.placement.key)
        if shipped is None:
            return None
        try:
            plan = plan_of(shipped, network, context.placement)
        except errors.StoreError as error:
            context.note(f"The network that shipped before is left out: {error.message}")
            return None
        if self.mixture is not None:
            return self._as_planned(PlanResult(name=SHIPPED_BEFORE, plan=plan))
        known, chosen = self.tuner.known, plan.candidates
        if plan.tasks.keys() != network.tasks.keys():
            known = NetworkTuner(plan.tasks, context).known
        known = _known_of(plan.tasks, known, lambda key, candidate: candidate == chosen[key])
        found = self._decided(SHIPPED_BEFORE, plan, known)
        usual = defaults(network.tasks, context.placement, context.max_error)
        is_usual = found is not None and found.plan == with_candidates(network.plan, usual)
        return None if is_usual else found

    def _earlier_checks(self, tasks: Tasks) -> dict[TaskKey, tuple[Candidate, KernelCheck]]:
        """Checks of these tasks that shipments already made, unless templates changed: this
        network's last one, and other networks' of kernels that had been measured before."""
        found: dict[TaskKey, tuple[Candidate, KernelCheck]] = {}
        store, where = self.context.store, self.context.placement.key
        last = store.shipped(self.network.key, where)
        for shipped in () if self.tuner.outdated else store.all_shipped(where):
            with suppress(errors.StoreError):
                candidates = candidates_of(shipped)
                for key in tasks:
                    name = shipping_key(key)
                    candidate, bound = candidates.get(name), shipped.numbers.get(f"bound:{name}")
                    if candidate is None or bound is None:
                        continue
                    if shipped == last or self._measured_by(key, candidate, shipped.created_at):
                        error = shipped.numbers.get(f"error:{name}")
                        found[key] = (candidate, KernelCheck(error=error, bound=bound))
        return found

    def _measured_by(self, key: TaskKey, candidate: Candidate, moment: float) -> bool:
        """Whether today's kernel of a candidate is known since before a moment."""
        known = self.tuner.known.get(key, ())
        return any(o.candidate == candidate and o.created_at <= moment for o in known)


def _known_of(tasks: Tasks, known: Known, wanted: Callable[[TaskKey, Candidate], bool]) -> Known:
    """What is known of `tasks`: outcomes of wanted candidates only, where one of these was
    measured right, else all."""
    chosen = {
        key: [outcome for outcome in known.get(key, ()) if wanted(key, outcome.candidate)]
        for key in tasks
    }
    return {
        key: found if ranked(found) else list(known.get(key, ())) for key, found in chosen.items()
    }
