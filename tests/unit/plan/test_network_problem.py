"""A network as a cost function network: what is priced is what the compiled network will do."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.networks.graph_arrangement import check_memory, generic
from helpers.networks.graph_builder import Builder, random_inputs
from helpers.networks.random_graphs import graphs
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate
from tilewright.core.solutions import PICOSECONDS
from tilewright.graph.arrange import copying
from tilewright.graph.carry_out import carry_out
from tilewright.graph.clean import clean
from tilewright.graph.evaluate import run_graph
from tilewright.graph.fuse import fuse
from tilewright.graph.network import Graph, TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.ports import Ports
from tilewright.plan.assignment.solving import solve
from tilewright.plan.network_problem import (
    IN_PLACE,
    VIEW,
    NetworkProblem,
    Time,
)
from tilewright.plan.planners import planned
from tilewright.testing.implementations import made_up_placement

PLACEMENT = made_up_placement(16)


class MadeUpTimes:
    """Nanoseconds that depend on workload, layouts and seed alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _ns(self, *parts: object) -> int:
        text = repr((self.seed, *parts)).encode()
        return 1 + hashlib.blake2b(text, digest_size=2).digest()[0]

    def kernels(self, workload: Workload, ports: Ports) -> Mapping[str, Time]:
        if len(workload.arguments) == 1 and workload == copying(workload.result):
            return {"one": self.change(workload.result, *ports)}
        return {
            name: Time(seconds=self._ns(name, workload.key, ports) * 1e-9, measured=True)
            for name in ("one", "two")
        }

    def rounding(self, workload: Workload, ports: Ports) -> Mapping[str, Time]:
        return {}

    def change(self, kind: TensorType, source: Form, target: Form) -> Time:
        return Time(seconds=self._ns(kind) * 1e-9, measured=True)

    def candidate(self, workload: Workload, ports: Ports, implementation: str | None) -> Candidate:
        return generic(workload, ports)

    def best_s(self, workload: Workload, ports: Ports) -> float:
        return min(time.seconds for time in self.kernels(workload, ports).values())


def problem_of(graph: Graph, seed: int = 0) -> NetworkProblem:
    network = fuse(clean(graph))
    return NetworkProblem(
        network=network,
        usual=choose_forms(network, PLACEMENT.target, PLACEMENT.resources),
        placement=PLACEMENT,
        times=MadeUpTimes(seed),
    )


def shared_s(problem: NetworkProblem, assignment: Mapping[str, str]) -> float:
    """What readers that share a changed copy were charged too much."""
    forms, chosen = problem.forms_of(assignment), problem.choices_of(assignment)
    wanted: Counter[tuple[str, Form]] = Counter()
    for call in problem.network.calls:
        pairs = {
            (tensor, form)
            for tensor, form in zip(call.inputs, chosen[call.name].ports, strict=False)
            if tensor in forms and forms[tensor] != form
        }
        wanted.update(pairs)
    types = problem.network.graph.types
    return sum(
        (count - 1) * problem.times.change(types[t], forms[t], form).seconds
        for (t, form), count in wanted.items()
    )


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 99))
def test_the_objective_is_what_the_arranged_network_costs(graph: Graph, seed: int) -> None:
    problem = problem_of(graph, seed)
    times = MadeUpTimes(seed)
    solution = solve(problem.problem, "exact")
    for assignment in (solution.assignment, problem.problem.default):
        plan = planned(problem, assignment)
        check_memory(plan)
        real_s = sum(times.best_s(c.workload, c.candidate.forms) for c in plan.calls)
        told_s = problem.problem.cost(assignment) / PICOSECONDS
        assert real_s <= told_s + 1e-12, "a network may cost less than told, never more"
        chosen = problem.choices_of(assignment).values()
        if not any(choice.implementation == IN_PLACE for choice in chosen):
            assert real_s == pytest.approx(told_s - shared_s(problem, assignment))
        inputs = random_inputs(graph)
        expected, found = (
            run_graph(graph, inputs),
            carry_out(plan, inputs, problem.network.graph.constants),
        )
        for name in graph.outputs:
            scale = max(1.0, float(np.abs(expected[name]).max(initial=0)))
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-3 * scale)
    assert solution.gap == 0
    assert solution.objective_ps <= problem.problem.cost(problem.problem.default)


def residual() -> Graph:
    b = Builder()
    x = b.conv(b.input(1, 8, 6, 6), 16)
    y = b.add("relu", b.add("add", b.conv(b.add("relu", b.conv(x, 16)), 16), x))
    return b.graph(b.conv(y, 8))


def test_ends_are_plain_and_every_convolution_has_eight_candidates() -> None:
    problem = problem_of(residual())
    graph = problem.network.graph
    for tensor in (*graph.inputs, *graph.outputs):
        assert problem.options[tensor] == (PLAIN,)
    inner = [c for c in problem.network.calls if c.output not in graph.outputs]
    for call in inner[1:]:
        assert len(problem.choices[call.name]) >= 8
        assert {c.ports[-1] for c in problem.choices[call.name]} == set(
            problem.options[call.output]
        )


def test_the_residual_operand_is_priced() -> None:
    """The addition's other operand has a layout variable of its own, and a table to its reader."""
    problem = problem_of(residual())
    (call,) = [c for c in problem.network.calls if len(c.workload.arguments) == 3]
    other = next(t for t in call.inputs[1:] if t in problem.options and t != call.inputs[0])
    tables = [t for t in problem.problem.tables if t.role == "transform"]
    (table,) = [t for t in tables if t.subject == f"{other} -> {call.name}"]
    assert table.costs.shape == (len(problem.options[other]), len(problem.choices[call.name]))
    assert (table.costs == 0).any() and (table.costs > 0).any()


def test_a_concatenation_in_place_costs_nothing_where_the_layouts_agree() -> None:
    b = Builder()
    x = b.input(1, 8, 6, 6)
    left, right = b.conv(x, 16), b.conv(x, 16)
    both = b.add("concat", left, right, axis=1)
    problem = problem_of(b.graph(b.conv(both, 8)))
    (call,) = [c for c in problem.network.calls if c.workload.anchor_name == "concat"]
    kinds = {c.implementation for c in problem.choices[call.name] if c.ports[-1] != PLAIN}
    assert kinds == {IN_PLACE}
    plan = planned(problem, solve(problem.problem).assignment)
    assert {plan.tensors[t].root for t in (left, right)} == {both}


def test_a_graph_input_is_copied_into_a_concatenation_whatever_its_layout() -> None:
    b = Builder()
    x = b.input(1, 16, 6, 6)
    both = b.add("concat", b.conv(x, 16), x, axis=1)
    problem = problem_of(b.graph(b.conv(both, 8)))
    (call,) = [c for c in problem.network.calls if c.workload.anchor_name == "concat"]
    (table,) = [t for t in problem.problem.tables if t.subject == f"{x} -> {call.name}"]
    assert (table.costs > 0).all()


@pytest.mark.parametrize(("bottom", "free"), [(6, False), (3, True)])
def test_a_slice_is_written_in_place_where_it_is_no_view(bottom: int, free: bool) -> None:
    """All rows of whole blocks are a view, which must be copied; fewer rows are not."""
    b = Builder()
    x = b.conv(b.input(1, 8, 6, 6), 32)
    part = b.add("slice", x, starts=(0,) * 4, stops=(1, 16, bottom, 6), steps=(1,) * 4)
    other = b.add("slice", b.conv(x, 16), starts=(0,) * 4, stops=(1, 16, bottom, 6), steps=(1,) * 4)
    both = b.add("concat", part, b.add("tanh", other), axis=1)
    problem = problem_of(b.graph(b.conv(both, 8)))
    (call,) = [c for c in problem.network.calls if c.workload.anchor_name == "concat"]
    (table,) = [t for t in problem.problem.tables if t.subject == f"{part} -> {call.name}"]
    assert (table.costs == 0).any() == free


def test_reshapes_of_plain_tensors_are_views() -> None:
    b = Builder()
    x = b.conv(b.input(1, 8, 6, 6), 16)
    flat = b.add("reshape", x, shape=(1, 576))
    problem = problem_of(b.graph(b.add("softmax", flat, axis=1)))
    (call,) = [c for c in problem.network.calls if c.workload.anchor_name == "reshape"]
    views = [c for c in problem.choices[call.name] if c.implementation == VIEW]
    assert [c.ports for c in views] == [(PLAIN, PLAIN)] and views[0].time.seconds == 0


def test_concat_x_with_f_of_x() -> None:
    b = Builder()
    x = b.conv(b.input(1, 8, 6, 6), 16)
    both = b.add("concat", x, b.conv(x, 16), axis=1)
    problem = problem_of(b.graph(b.conv(both, 8)))
    best = solve(problem.problem, "exact")
    for solver in ("dp", "pbqp", "milp", "greedy"):
        assert solve(problem.problem, solver).objective_ps >= best.objective_ps
    assert solve(problem.problem, "milp").objective_ps == best.objective_ps
