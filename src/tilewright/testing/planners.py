"""What every planner must keep, as checks that another package can run on its own.

    from tilewright.testing.planners import PlannerConformance

    class TestMyPlanner(PlannerConformance):
        planner = MyPlanner()

The problems are of small networks on a made-up CPU, with times that favour odd choices; nothing is
compiled. Plans are carried out in numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import ClassVar

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Placement
from tilewright.core.solutions import Solution
from tilewright.graph.carry_out import carry_out
from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Array, AttributeValue, Graph, Node, TensorType, attributes
from tilewright.graph.operators import OPERATORS
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.tasks import fused_network
from tilewright.graph.workload import Workload
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.ports import Ports
from tilewright.kernels.registry import implementation
from tilewright.plan.assignment.solution import allowed
from tilewright.plan.network_problem import NetworkProblem, Time
from tilewright.plan.planners import Planner
from tilewright.search.layout_costs import LayoutCosts
from tilewright.testing.implementations import made_up_placement

_TITLE = "a plan of the suite"
_TOLERANCE = 1e-4


class _Drawing:
    """A graph that grows node by node."""

    def __init__(self, *shape: int) -> None:
        self.rng = np.random.default_rng(0)
        self.types = {"image": TensorType(shape)}
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []

    def add(self, operator: str, *inputs: str, **named: AttributeValue) -> str:
        """A node; returns the tensor that it writes."""
        output = f"t{len(self.nodes)}"
        self.types[output] = OPERATORS[operator].infer(
            tuple(self.types[tensor] for tensor in inputs), named
        )
        self.nodes.append(
            Node(
                name=f"node{len(self.nodes)}",
                operator=operator,
                inputs=inputs,
                outputs=(output,),
                attributes=attributes(**named),
            )
        )
        return output

    def conv(self, x: str, filters: int) -> str:
        """A convolution of 3 × 3 that keeps height and width."""
        weight = f"w{len(self.constants)}"
        shape = (filters, self.types[x].shape[1], 3, 3)
        self.constants[weight] = self.rng.standard_normal(shape).astype(np.float32)
        self.types[weight] = TensorType(shape)
        named: dict[str, AttributeValue] = {
            "strides": (1, 1),
            "padding": (1, 1, 1, 1),
            "dilation": (1, 1),
            "groups": 1,
        }
        return self.add("conv2d", x, weight, **named)

    def graph(self, name: str, output: str) -> Graph:
        """What was drawn."""
        return Graph(
            name=name,
            nodes=tuple(self.nodes),
            inputs=("image",),
            outputs=(output,),
            types=self.types,
            constants=self.constants,
        )


def residual() -> Graph:
    """16 → 64 → 64 → 16 channels; the middle one is added to what it came from: a tensor with two
    readers that may want it in two layouts."""
    drawing = _Drawing(1, 16, 8, 8)
    first = drawing.add("relu", drawing.conv("image", 64))
    joined = drawing.add("add", drawing.conv(first, 64), first)
    return drawing.graph("residual", drawing.conv(joined, 16))


def elementwise() -> Graph:
    """Nothing to choose a layout for."""
    drawing = _Drawing(1, 5, 7)
    return drawing.graph("elementwise", drawing.add("relu", "image"))


class OddTimes:
    """Estimates, each 1 to 8 times as long as it says by what is computed, in which layouts, and by
    what: so that the best choice is not the usual one."""

    def __init__(self, placement: Placement) -> None:
        self._costs = LayoutCosts(placement=placement)

    def kernels(self, workload: Workload, ports: Ports) -> dict[str, Time]:
        """The time of each implementation."""
        return {
            name: replace(time, seconds=time.seconds * _factor(workload.key, ports, name))
            for name, time in self._costs.kernels(workload, ports).items()
        }

    def rounding(self, workload: Workload, ports: Ports) -> dict[str, Time]:
        """The same of those that round what they read."""
        return self._costs.rounding(workload, ports)

    def change(self, kind: TensorType, source: Form, target: Form) -> Time:
        """The time of a copy into another layout."""
        return self._costs.change(kind, source, target)

    def candidate(self, workload: Workload, ports: Ports, implementation: str | None) -> Candidate:
        """What computes the workload."""
        return self._costs.candidate(workload, ports, implementation)


def _factor(*parts: object) -> float:
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=1).digest()
    return 1.0 + 7.0 * digest[0] / 255


@cache
def problems() -> tuple[NetworkProblem, ...]:
    """The problems of these networks."""
    placement = made_up_placement()
    found: list[NetworkProblem] = []
    for graph in (residual(), elementwise()):
        network = fused_network(graph)
        found.append(
            NetworkProblem(
                network=network,
                usual=choose_forms(network, placement.target, placement.resources),
                placement=placement,
                times=OddTimes(placement),
                name=graph.name,
            )
        )
    return tuple(found)


def _solution(result: PlanResult) -> Solution:
    assert result.solution is not None, "it does not say which solution its plan comes from"
    return result.solution


def check_plan_is_of_the_network(planner: Planner) -> None:
    """The plan has the network's inputs and outputs, the title that it was given, and covers every
    node that is computed."""
    for problem in problems():
        result = planner.plan(problem, _TITLE)
        graph = problem.network.graph
        assert result.name == _TITLE, f"its plan goes by {result.name!r}, not {_TITLE!r}"
        assert result.plan.inputs == tuple(graph.inputs), "the plan has other inputs"
        assert result.plan.outputs == tuple(graph.outputs), "the plan has other outputs"
        kinds = {name: result.plan.tensors[name].type for name in (*graph.inputs, *graph.outputs)}
        assert all(graph.types[name] == kind for name, kind in kinds.items()), "of other types"
        covered = {node for call in result.plan.calls for node in call.nodes}
        missing = {node.name for node in graph.nodes} - covered
        views = {n.name for n in graph.nodes if n.name in missing and len(n.inputs) == 1}
        assert not missing - views, f"nothing computes {sorted(missing - views)}"


def check_numbers(planner: Planner) -> None:
    """Carried out in the memory that it plans, the plan gives the network's numbers."""
    for problem in problems():
        plan, graph = planner.plan(problem, _TITLE).plan, problem.network.graph
        rng = np.random.default_rng(1)
        inputs = {
            name: rng.standard_normal(graph.types[name].shape).astype(np.float32)
            for name in graph.inputs
        }
        wanted = run_graph(graph, inputs)
        for name, array in carry_out(plan, inputs, graph.constants).items():
            right = wanted[name].astype(np.float64)
            error = np.abs(array.astype(np.float64) - right).max() / np.abs(right).max()
            assert error <= _TOLERANCE, f"output {name!r} of {graph.name} is off by {error:.2g}"


def check_every_call_can_be_computed(planner: Planner) -> None:
    """Every call has a candidate of an implementation that takes it on the target."""
    for problem in problems():
        plan = planner.plan(problem, _TITLE).plan
        for call in plan.calls:
            spec = implementation(call.candidate.implementation)
            target, resources = problem.placement.target, plan.lanes[call.lane].resources
            assert spec.applies(call.workload, target, resources), (
                f"{spec.name} does not apply to the call {call.name!r}"
            )
            ports = len(call.workload.arguments) + 1
            assert len(call.candidate.forms) == ports, f"{call.name!r} has not one form per port"


def check_solution_is_of_the_problem(planner: Planner) -> None:
    """The solution is an allowed assignment of the network's problem; its objective is what the
    problem says it costs, its bound not above that."""
    for problem in problems():
        solution = _solution(planner.plan(problem, _TITLE))
        cost = problem.problem.cost(solution.assignment)
        assert allowed(cost), "its assignment is forbidden"
        assert solution.objective_ps == cost, f"it says {solution.objective_ps} ps, it is {cost} ps"
        assert 0 <= solution.bound_ps <= cost, "its bound is above what it found"
        assert solution.solver, "the solution does not say what found it"


def check_calls_do_what_was_chosen(planner: Planner) -> None:
    """Each call of the network is computed as its choice says: that implementation, those forms."""
    for problem in problems():
        result = planner.plan(problem, _TITLE)
        chosen = problem.choices_of(_solution(result).assignment)
        for call in result.plan.calls:
            choice = chosen.get(call.name)
            if choice is None or call.kind != "kernel":
                continue
            assert call.candidate.implementation == choice.implementation, (
                f"{call.name!r} is computed by {call.candidate.implementation}, chosen was "
                f"{choice.implementation}"
            )
            assert call.candidate.forms == choice.ports, f"{call.name!r} has other forms"


def check_measured_is_honest(planner: Planner) -> None:
    """Where all times are estimates, no plan with a kernel says that its costs were measured."""
    for problem in problems():
        result = planner.plan(problem, _TITLE)
        assert not result.measured, "it says that estimates were measured"


def check_same_plan(planner: Planner) -> None:
    """Asked twice, it plans the same."""
    for problem in problems():
        first, second = (planner.plan(problem, _TITLE) for _ in range(2))
        assert _solution(first).assignment == _solution(second).assignment
        assert first.plan.calls == second.plan.calls, "asked twice, its plans differ"


CHECKS: tuple[Callable[[Planner], None], ...] = (
    check_plan_is_of_the_network,
    check_numbers,
    check_every_call_can_be_computed,
    check_solution_is_of_the_problem,
    check_calls_do_what_was_chosen,
    check_measured_is_honest,
    check_same_plan,
)


def check_planner(planner: Planner) -> None:
    """All checks one after the other; raises AssertionError with what was not kept."""
    for check in CHECKS:
        check(planner)


class PlannerConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets `planner`."""

    planner: ClassVar[Planner]

    def test_plan_is_of_the_network(self) -> None:
        check_plan_is_of_the_network(self.planner)

    def test_numbers(self) -> None:
        check_numbers(self.planner)

    def test_every_call_can_be_computed(self) -> None:
        check_every_call_can_be_computed(self.planner)

    def test_solution_is_of_the_problem(self) -> None:
        check_solution_is_of_the_problem(self.planner)

    def test_calls_do_what_was_chosen(self) -> None:
        check_calls_do_what_was_chosen(self.planner)

    def test_measured_is_honest(self) -> None:
        check_measured_is_honest(self.planner)

    def test_same_plan(self) -> None:
        check_same_plan(self.planner)
