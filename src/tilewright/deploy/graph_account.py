"""What the graph tuner answers: its solution, the race, the choice at every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from tilewright.core.events import EventSink, Stage
from tilewright.core.forms import form_texts
from tilewright.core.records import Placement
from tilewright.core.results import AssignmentRow, ChoiceRow, GraphTuneResult, OptimizeResult
from tilewright.core.solutions import PICOSECONDS
from tilewright.graph.arrange import copying
from tilewright.graph.plan_result import PlanResult
from tilewright.kernels.base import HALF
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.assignment.problem_file import write_problem
from tilewright.plan.network_problem import NetworkProblem
from tilewright.search import graph_search, layout_costs, levels, winners
from tilewright.search.levels import OptimizeRequest
from tilewright.store.base import Store

PREDICTED = (
    "Nothing was built or measured: all times are predicted from records and "
    "facts, and no artifact was written."
)
_ORDER = (
    winners.DEFAULT,
    winners.TUNED,
    "uniform",
    "history_best",
    HALF,
    graph_search.CHOSEN,
    graph_search.RECONSIDERED,
)


def graph_result(
    result: OptimizeResult,
    proposals: Sequence[PlanResult],
    problem: NetworkProblem,
    predicted: Mapping[str, float | None],
    raced: Mapping[str, float | None],
    corrected: Mapping[str, float | None] | None = None,
) -> GraphTuneResult:
    """`result` with what the graph tuner found.

    `predicted`, `raced` and `corrected` are seconds by name of plan. Two plans that are the same
    network were timed once and have the same time.
    """
    solutions = {p.name: p.solution for p in proposals if p.solution is not None}
    solution = solutions[graph_search.CHOSEN]
    rows = choice_rows(solution.assignment, problem)
    sums = {**predicted, **{name: found.objective_s for name, found in solutions.items()}}
    return GraphTuneResult(
        **{f.name: getattr(result, f.name) for f in fields(OptimizeResult)},
        solver=solution.solver,
        objective_s=solution.objective_s,
        bound_s=solution.bound_s,
        gap=solution.gap,
        solve_s=solution.solve_s,
        operators=len(problem.network.calls),
        candidates=sum(len(choices) for choices in problem.choices.values()),
        transforms=sum(len(row.changed) for row in rows),
        measured_latency_s=raced.get(graph_search.CHOSEN),
        assignments=tuple(
            AssignmentRow(
                name=name,
                predicted_s=sums.get(name),
                measured_s=raced.get(name),
                corrected_s=(corrected or {}).get(name),
            )
            for name in _ORDER
            if name not in (HALF, graph_search.RECONSIDERED) or name in sums
        ),
        choices=rows,
    )


def choice_rows(assignment: Mapping[str, str], problem: NetworkProblem) -> tuple[ChoiceRow, ...]:
    """An assignment call by call, in order of execution."""
    types, forms = problem.network.graph.types, problem.forms_of(assignment)
    chosen = problem.choices_of(assignment)
    rows: list[ChoiceRow] = []
    for call in problem.network.calls:
        choice = chosen[call.name]
        changes = [
            (tensor, problem.times.change(types[tensor], source, target).seconds)
            for tensor in dict.fromkeys(call.inputs)
            if tensor in forms
            for source, target in problem.copies(call, tensor, choice, forms[tensor])
        ]
        rows.append(
            ChoiceRow(
                call=call.name,
                anchor=call.workload.anchor_name,
                implementation=choice.implementation,
                layouts=form_texts(choice.ports),
                changed=tuple(tensor for tensor, _ in changes),
                kernel_s=choice.time.seconds,
                change_s=sum(seconds for _, seconds in changes),
                measured=choice.time.measured,
                inputs=call.inputs,
                output=call.output,
            )
        )
    return tuple(rows)


def predicted_only(
    network: PreparedNetwork,
    placement: Placement,
    store: Store,
    events: EventSink,
    request: OptimizeRequest,
) -> GraphTuneResult:
    """The graph tuner's choice from records and facts alone: nothing is built or measured."""
    fused = network.fused
    copies = map(copying, fused.graph.types.values())
    workloads = (*fused.workloads.values(), *copies)
    costs = layout_costs.recorded_costs(workloads, store, placement, request.max_error)
    problem = NetworkProblem(
        network=fused,
        usual=network.forms,
        placement=placement,
        times=costs,
        name=network.model.name,
    )
    graph = request.graph or levels.GraphLevel()
    events(Stage(name="solve", detail=f"{len(problem.problem.variables)} variables"))
    proposals = graph_search.proposals_of(problem, graph.solver, events)
    if graph.save_problem is not None:
        write_problem(problem.problem, graph.save_problem)
    bare = OptimizeResult(
        model=network.model.name,
        target=placement.tvm_target,
        threads=placement.resources.threads,
        latency_s=proposals[0].solution.objective_s if proposals[0].solution else 0.0,
        baseline_latency_s=None,
        reference_latency_s=None,
        speedup_vs_reference=None,
        max_abs_error=None,
        tasks=(),
        measurements=0,
        failures=0,
        elapsed_s=0.0,
        artifact="",
        weight_bytes=network.weight_bytes,
        network_key=network.key,
        level=levels.level_name(request.level),
        tuner=request.tuner,
        warnings=(PREDICTED,),
    )
    usual_s = problem.problem.cost(problem.problem.default) / PICOSECONDS
    return graph_result(bare, proposals, problem, {winners.TUNED: usual_s}, {})
