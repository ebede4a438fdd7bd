"""`optimize`: tune, choose, compile, check, time, ship."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.core.budget import Budget
from tilewright.core.errors import NegativeVerdict, TargetError, UsageError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.output_files import check_place
from tilewright.core.records import Placement, Run
from tilewright.core.results import OptimizeResult
from tilewright.cost.floors import Peaks
from tilewright.deploy import graph_account, publishing, sharing, shipment
from tilewright.deploy.manifest import MANIFEST
from tilewright.deploy.mixing import Mixing
from tilewright.deploy.quantizing import Entry, entered
from tilewright.deploy.racing import Race, fastest_of
from tilewright.deploy.reserve import FEW, PLAIN, LineUp, Reserve
from tilewright.deploy.sharing import ALONE, OtherShapes
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Array, Graph
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_result import PlanResult
from tilewright.hardware.device import is_local
from tilewright.hardware.environment import (
    noise_warnings,
    read_environment,
)
from tilewright.kernels.base import HALF, MIXED
from tilewright.kernels.codes import rounds_to_codes
from tilewright.kernels.spaces import MAX_CODE_ERROR
from tilewright.measure import network_timing, targeting
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.base import Measurer, TimeSpent
from tilewright.measure.circumstances import kernel_protocol
from tilewright.models.calibration import noise_inputs
from tilewright.models.loaded import BY_NOISE, PreparedNetwork
from tilewright.search.context import Counts, SearchContext
from tilewright.search.graph_search import CHOSEN, RECONSIDERED
from tilewright.search.layout_costs import InNetworkFactors, timed_kernels
from tilewright.search.levels import GraphLevel, OptimizeRequest, bare_tasks
from tilewright.search.network_search import NetworkSearch
from tilewright.search.tuners.registry import DEFAULT, tuner_factory
from tilewright.search.winners import DEFAULT as DEFAULT_SETTINGS
from tilewright.store.base import Store

_ENOUGH_KERNELS = 16
"""So many kernels tell how long those of a network take to build."""
_JUDGED = 2
"""Inputs that are drawn to compare outputs on."""
CONVERGED, CONVERGED_GRAPH = "converged", "converged graph"
"""States of runs that left nothing to gain: in the default layouts; in any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What `optimize` made: its answer, the network, and the plan that was compiled; None where
    nothing was."""

    result: OptimizeResult
    network: PreparedNetwork
    plan: NetworkPlan | None


def optimize(
    request: OptimizeRequest, placement: Placement, store: Store, events: EventSink
) -> OptimizeResult:
    """Do what is asked for; raises NegativeVerdict when no right result comes out."""
    return ship(request, placement, store, events).result


def ship(
    request: OptimizeRequest,
    placement: Placement,
    store: Store,
    events: EventSink,
    others: OtherShapes = ALONE,
) -> Shipped:
    """The same; weights are packed as in plans of other shapes where that costs little."""
    budget = Budget(request.budget)
    tuner_factory(request.tuner)
    access = access_to(placement.device)
    if not access.runs_networks:
        raise TargetError(
            f"devices that are reached by {access.name!r} cannot run whole networks",
            hint="Kernels can be looked at: `tilewright show op:... --asm --target ...`.",
        )
    _check_mixing(request)
    placement = targeting.allowing(placement, request.options)
    _check_places(request)
    events(Stage(name="import", detail=request.model))
    with budget.phase("import"):
        entries = entered(request, placement, store, events, alone=others is ALONE)
    network = entries[0].network
    for remark in dict.fromkeys(entry.network.model.remark for entry in entries):
        if remark:
            events(Note(message=remark))
    request = _coarse_enough(request, network.graph)
    if request.only_predicted:
        result = graph_account.predicted_only(network, placement, store, events, request)
        result = replace(result, elapsed_s=budget.elapsed_s)
        shipment.write_documents(request.folder, result)
        return Shipped(result=result, network=network, plan=None)
    store.add_device(placement.device)
    searched = dict(network.tasks)
    if request.level == "op":
        searched |= bare_tasks(network.tasks)
    store.add_workloads([task.workload for task in searched.values()])
    runs = store.runs(network.key, placement.key)
    budget.charge(runs)
    run = store.begin_run(_new_run(request, network, placement))
    work = _Work(
        request=request,
        entries=entries,
        placement=placement,
        store=store,
        events=events,
        budget=budget,
        run=run,
        states=frozenset(r.state for r in runs),
        others=others,
    )
    try:
        with publishing.staging(request.folder) as made:
            return work.carry_out(made)
    except BaseException:
        work.close_run("interrupted")
        raise


def _coarse_enough(request: OptimizeRequest, graph: Graph) -> OptimizeRequest:
    """What was asked for, with an error that codes cause which round to their neighbours, in
    networks that have codes and where nobody asked for another."""
    if not (request.usual_error and rounds_to_codes(graph)):
        return request
    return replace(request, max_error=max(request.max_error, MAX_CODE_ERROR))


def _check_mixing(request: OptimizeRequest) -> None:
    """Raise UsageError for a choice of types that nothing would be done with."""
    mixed = request.options.precision == MIXED
    if mixed and (request.graph is None or request.only_predicted):
        raise UsageError(
            "a type for each tensor is a choice over the whole graph, of a network that is built",
            hint="Use `tilewright optimize`; with --budget 0 it measures no kernels.",
        )


def _new_run(request: OptimizeRequest, network: PreparedNetwork, placement: Placement) -> Run:
    return Run(
        command=request.command,
        model=request.model,
        network_key=network.key,
        device_class=placement.device.class_key,
        resources=placement.resources,
        seed=request.seed,
        state="running",
        created_at=time.time(),
    )


@dataclass(frozen=True, slots=True)
class _Raced:
    """What came of one of the networks: its race, the plans that it began with, and whether the
    search left nothing to gain."""

    race: Race
    plans: Sequence[PlanResult]
    search: NetworkSearch
    converged: bool
    mixing: Mixing | None


@dataclass(slots=True, kw_only=True)
class _Work:
    request: OptimizeRequest
    entries: Sequence[Entry]
    placement: Placement
    store: Store
    events: EventSink
    budget: Budget
    run: Run
    states: frozenset[str]
    others: OtherShapes
    network: PreparedNetwork = field(init=False)
    search: NetworkSearch = field(init=False)
    reserve: Reserve = field(init=False)
    with_graph: bool = field(init=False)
    mixing: Mixing | None = None
    counts: Counts = field(default_factory=Counts)
    line_up: LineUp = PLAIN
    spent: TimeSpent = field(default_factory=TimeSpent)

    def __post_init__(self) -> None:
        self.network = self.entries[0].network
        self.reserve = Reserve(
            tasks=len(self.network.tasks),
            weight_bytes=self.network.weight_bytes,
            budget_s=self.budget.limit.seconds,
            cpus=len(self.placement.binding.cpus),
        )
        self.with_graph = self._affords_graph()

    def carry_out(self, made: Path) -> Shipped:
        """Search, race, and put the winner with all that is told of it into the output folder, by
        way of the folder `made`."""
        before = read_environment()
        self._keep_back()
        with targeting.open_measurer(self.placement, seed=self.request.seed) as measurer:
            self.spent = measurer.spent
            with self.budget.phase("start"):
                measurer.start(workers=1 if self.budget.exhausted else None)
                peaks = targeting.measured_peaks(self.store, self.placement, measurer)
            found = self._fastest(measurer, peaks, made)
        race, plans, converged = found.race, found.plans, found.converged
        self.network, self.mixing, self.search = race.network, found.mixing, found.search
        self.with_graph = found.search.with_graph
        if race.winner.name == DEFAULT_SETTINGS and len(race.finished) > 1:
            self.events(Note(message="The default settings ran faster and were shipped."))
        if race.winner.name == HALF:
            self.events(Note(message=f"All in {HALF} ran faster than the mixture and was shipped."))
        last_run = shipment.last_run(race, self.store)
        result = replace(shipment.answer_about(race, peaks), last_run=last_run)
        if self.mixing is not None:
            result = replace(
                result, mixture=self.mixing.report(race.winner, self.search, self.placement.target)
            )
        shipment.record(race, result, self.store)
        elsewhere = not is_local(self.placement.device)
        noise = [] if elsewhere else noise_warnings(before, read_environment())
        untold = race.winner.check.untold if race.winner.check is not None else ()
        for message in (*untold, *noise):
            self.events(Note(message=message))
        self.close_run(self._converged if converged and self.request.level != "op" else "done")
        result = replace(
            self._with_graph(result, plans, race),
            warnings=(*result.warnings, *noise),
            elapsed_s=self.budget.elapsed_s,
            measurements=self.run.measurements,
            failures=self.run.failures,
            tuner=self.request.tuner,
            level="graph" if self.with_graph else self.request.searched_level,
            curve=self.search.tuner.curve,
            searches=self.search.tuner.searches(),
            seconds_by_phase=self.budget.seconds_by_phase,
        )
        publishing.write_manifest(race, result)
        shipment.write_documents(race.folder, result)
        publishing.publish(race.folder, self.request.folder)
        return Shipped(result=result, network=self.network, plan=race.winner.plan)

    def _fastest(self, measurer: Measurer, peaks: Peaks, made: Path) -> _Raced:
        """What won the race of each entry, or among those the fastest. Raises NegativeVerdict where
        all of them give wrong results."""
        found: list[_Raced] = []
        verdicts: list[NegativeVerdict] = []
        for number, entry in enumerate(self.entries, 1):
            folder = made / str(number)
            folder.mkdir()
            later = len(self.entries) - number
            try:
                with self.budget.keeping(later / (later + 1)):
                    found.append(self._entered(entry, measurer, peaks, folder))
            except NegativeVerdict as verdict:
                verdicts.append(verdict)
        if not found:
            raise verdicts[0]
        for verdict in verdicts:
            said = verdict.message.removesuffix(" Nothing was shipped.")
            self.events(Note(message=f"One of the networks that race is left out: {said}"))
        fastest = fastest_of([each.race for each in found])
        won = next(each for each in found if each.race is fastest)
        if self._mixed and won.mixing is None and len(found) > 1:
            self.events(Note(message="All on codes ran faster than mixtures and was shipped."))
        return won

    def _entered(self, entry: Entry, measurer: Measurer, peaks: Peaks, made: Path) -> _Raced:
        """Search and race one of the networks."""
        self.network, self.mixing = entry.network, entry.mixing
        self.search = NetworkSearch(
            network=self.network,
            context=self._context(measurer, peaks),
            graph_level=self.request.graph or GraphLevel(),
            with_graph=self.with_graph and (not self._one_type or self.reserve.affords_graph),
            rivals=self.line_up is not FEW,
            mixture=None if self.mixing is None else self.mixing.mixture,
        )
        plans, converged = self.search.plans(settled_before=self._settled_before())
        race = self._raced(plans, measurer, made)
        return _Raced(race, plans, self.search, converged, entry.mixing)

    @property
    def _converged(self) -> str:
        """The state of a run that left nothing to gain."""
        return CONVERGED_GRAPH if self.with_graph else CONVERGED

    def _context(self, measurer: Measurer, peaks: Peaks) -> SearchContext:
        """What the search works with."""
        return SearchContext.of(
            self.request,
            (self.placement, measurer, peaks),
            store=self.store,
            events=self.events,
            budget=self.budget,
            protocol=kernel_protocol(self.placement),
            run_id=self.run.id,
            checkpoint=self._after_round,
            counts=self.counts,
        )

    def _settled_before(self) -> bool:
        """Whether an earlier run left nothing to gain for this one."""
        usual = self.request.level != "op" and self.request.tuner == DEFAULT
        return usual and not self.states.isdisjoint({CONVERGED_GRAPH, self._converged})

    @property
    def _mixed(self) -> bool:
        """Whether types are chosen, of some of the networks."""
        return any(entry.mixing is not None for entry in self.entries)

    @property
    def _one_type(self) -> bool:
        """Whether nothing is chosen of the network at work, all on codes, beside mixtures."""
        return self._mixed and self.mixing is None

    def _affords_graph(self) -> bool:
        """Whether the graph tuner is asked for and, in `optimize`, has the time to pay."""
        if self.request.graph is None:
            return False
        if self.request.command == "optimize" and not (self._mixed or self.reserve.affords_graph):
            message = "The budget is too short for the graph tuner: layouts stay the default ones."
            self.events(Note(message=message))
            return False
        return True

    def _keep_back(self) -> None:
        """Keep back time for what comes after the search, for a smaller race where a full one
        takes too much of the budget."""
        self.line_up = self.reserve.line_up(with_graph=self.with_graph, mixed=self._mixed)
        if self.line_up is FEW:
            message = "The budget is too short to race other assignments than the chosen one."
            self.events(Note(message=message))
        self.budget.expect("finish", seconds=self.reserve.all_s(self.line_up))
        self.budget.expect("finalists", seconds=self.reserve.looks_s(self.line_up))

    def _after_round(self) -> None:
        """Keep what this run spent, and keep back what the end takes by the kernels built."""
        self.close_run("running")
        if self.spent.kernels >= _ENOUGH_KERNELS:
            self.reserve = self.reserve.corrected(self.spent)
            self.budget.expect("finish", seconds=self.reserve.all_s(self.line_up))

    def _raced(self, plans: Sequence[PlanResult], measurer: Measurer, made: Path) -> Race:
        """Race the plans, plan again by what the race showed, race the winner against that."""
        race = Race(
            network=self.network,
            placement=self.placement,
            events=self.events,
            request=self.request,
            staging=made,
            figures=shipment.shipped_figures(self.store, self.network, self.placement),
            budget=self.budget,
            rounds=network_timing.Rounds(each_s=self.reserve.round_s, budget=self.budget),
            judged=self._judged(),
        )
        self.budget.expect("finish", seconds=self.reserve.heat_s)
        measurer.rest()
        if self.mixing is None:
            race.run(plans)
        else:
            self.mixing.race(race, plans, self.search)
        seen = (timed for raced in race.finished for timed in timed_kernels(raced))
        challenger = self.search.reconsider(InNetworkFactors(seen))
        if challenger is not None:
            measurer.rest()
            race.challenge(challenger)
        if self.others != ALONE:
            measurer.rest()
            sharing.agree(race, self.others, self.store, self.request.max_error)
        return race

    def _judged(self) -> list[dict[str, Array]]:
        """The inputs on which outputs are compared: at least two, to tell what differs between
        inputs."""
        if self.mixing is not None:
            return [dict(each) for each in self.mixing.inputs.judged]
        options, graph = self.request.options, self.network.model.graph
        if self.placement.precision in BY_NOISE:
            inputs = noise_inputs(graph, options.calibration, options.seed)
            return [dict(each) for each in inputs.judged]
        seeds = range(self.request.seed, self.request.seed + _JUDGED)
        return [random_inputs(graph, seed) for seed in seeds]

    def _with_graph(
        self, result: OptimizeResult, plans: Sequence[PlanResult], race: Race
    ) -> OptimizeResult:
        """The answer with what the graph tuner found, where it worked."""
        graph, proposals = self.search.graph, self.search.proposals
        if graph is None or not proposals:
            return result
        raced = race.raced_s
        if self.mixing is not None:
            chosen = [p for p in proposals if p.name != RECONSIDERED]
            last = next((p for p in chosen if p.name == race.winner.name), chosen[-1])
            proposals = [replace(last, name=CHOSEN)]
            if last.name in raced:
                raced[CHOSEN] = raced[last.name]
        predicted = {plan.name: plan.predicted_s for plan in plans}
        for proposal in proposals:
            # after a repeated command: what shipped before may be what is chosen now
            same = [p.name for p in plans if p.plan.tensors == proposal.plan.tensors]
            raced.setdefault(proposal.name, raced.get(same[0]) if same else None)
        return replace(
            graph_account.graph_result(
                result, proposals, graph.problem, predicted, raced, race.corrected_s
            ),
            shipped=race.winner.name,
        )

    def close_run(self, state: str) -> None:
        """Keep what this run spent."""
        self.run = replace(
            self.run,
            state=state,
            spent_s=self.budget.elapsed_s,
            measurements=self.counts.measurements,
            failures=self.counts.failures,
        )
        self.store.update_run(self.run)


def _check_places(request: OptimizeRequest) -> None:
    """Raise OutputError before anything is searched where the results could not be written."""
    if request.graph is not None and request.graph.save_problem is not None:
        check_place(request.graph.save_problem)
    if not request.only_predicted:
        check_place(request.folder / MANIFEST)
