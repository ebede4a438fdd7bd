"""The graph tuner's answer as tables: the assignments that raced, the choice at every call."""

from __future__ import annotations

from typing import Any

from tilewright.core.results import GraphTuneResult, SolveResult
from tilewright.report import shown
from tilewright.report.tables import Column, Heading, Table, facts_table, record_of


def solution_table(result: GraphTuneResult) -> Table:
    """The solution in a few lines."""
    return facts_table(
        "Layouts and algorithms",
        (
            ("solver", result.solver, result.solver),
            ("predicted", result.objective_s, shown.seconds(result.objective_s)),
            ("lower bound", result.bound_s, shown.seconds(result.bound_s)),
            ("gap", result.gap, shown.percent(result.gap)),
            ("solving", result.solve_s, shown.seconds(result.solve_s)),
            ("operators", result.operators, shown.whole(result.operators)),
            ("candidates", result.candidates, shown.whole(result.candidates)),
            ("changes of layout", result.transforms, shown.whole(result.transforms)),
        ),
    )


def assignments_table(result: GraphTuneResult) -> Table:
    """What was promised and what was measured, one row per assignment."""
    columns = (
        Column(field="name", label="assignment"),
        Column(field="predicted_s", label="predicted", show=shown.seconds, number=True),
        Column(field="measured_s", label="measured", show=shown.seconds, number=True),
        Column(field="surplus", label="above predicted", show=shown.percent, number=True),
        Column(field="corrected_s", label="in the network", show=shown.seconds, number=True),
        Column(field="left", label="above that", show=shown.percent, number=True),
    )
    records = tuple(
        {
            **record_of(row),
            "surplus": _surplus(row.predicted_s, row.measured_s),
            "left": _surplus(row.corrected_s, row.measured_s),
        }
        for row in result.assignments
    )
    return Table(columns=columns, records=records, title="Assignments")


def _layouts(ports: tuple[str, ...]) -> str:
    """Data and result; what is plain beside blocked data is left out."""
    *arguments, result = ports
    read = [port for port in arguments if port != "plain"] or arguments[:1]
    return f"{', '.join(dict.fromkeys(read))} -> {result}"


CHOICES = Heading(
    title="Choices",
    columns=(
        Column(field="call", label="call"),
        Column(field="anchor", label="operator"),
        Column(field="implementation", label="algorithm"),
        Column(field="layouts", label="layouts", show=_layouts),
        Column(field="kernel_s", label="kernel", show=shown.seconds, number=True),
        Column(field="changed", label="copied first", show=", ".join),
        Column(field="change_s", label="copies", show=shown.seconds, number=True),
        Column(field="measured", label="measured"),
    ),
)
"""One row per call in order of execution; copies into another layout are marked."""


def _surplus(predicted_s: float | None, measured_s: float | None) -> float | None:
    if not predicted_s or measured_s is None:
        return None
    return measured_s / predicted_s - 1.0


def solve_table(result: SolveResult) -> Table:
    """What a solver found of a saved problem."""
    facts: list[tuple[str, Any, str]] = [
        ("solver", result.solver, f"{result.solver} ({result.note})" if result.note else ""),
        ("objective", result.objective_s, shown.seconds(result.objective_s)),
        ("bound", result.bound_s, shown.seconds(result.bound_s)),
        ("gap", result.gap, shown.percent(result.gap)),
        ("solving", result.solve_s, shown.seconds(result.solve_s)),
        ("variables", result.variables, str(result.variables)),
        ("tables", result.tables, str(result.tables)),
    ]
    facts += [(role, cost_s, shown.seconds(cost_s)) for role, cost_s in result.by_role_s.items()]
    return facts_table(result.name, [(name, raw, text or str(raw)) for name, raw, text in facts])


def proven(result: SolveResult) -> str:
    """How much better another assignment could be."""
    if result.gap == 0:
        return "This is a proven optimum."
    return f"A better assignment saves {shown.percent(result.gap)} of the objective at most."
