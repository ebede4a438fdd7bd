"""`tilewright solve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tilewright.cli.flags import AnswerFlags
from tilewright.cli.output import Answer, emit
from tilewright.cli.work import working
from tilewright.core.results import SolveResult
from tilewright.report import shown
from tilewright.report.tables import Table, facts_table


def solve(
    file: Annotated[Path, Parameter(help="A saved problem of the graph tuner (.json).")],
    /,
    *,
    solver: Annotated[
        str,
        Parameter(help="auto, exact, milp, pbqp, dp, greedy, uniform or history_best."),
    ] = "auto",
    flags: AnswerFlags | None = None,
) -> int:
    """Solve a saved layout and implementation problem; measures nothing and needs no compiler."""
    flags = flags or AnswerFlags()
    with working(flags) as work:
        from tilewright.session.solving import solve_file

        result = solve_file(file, solver)
    answer = Answer(
        command="solve",
        data=result,
        rows=_table(result),
        remarks=[_proven(result)],
        warnings=work.warnings,
    )
    emit(answer, flags)
    return 0


def _table(result: SolveResult) -> Table:
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


def _proven(result: SolveResult) -> str:
    if result.gap == 0:
        return "This is a proven optimum."
    return f"A better assignment saves {shown.percent(result.gap)} of the objective at most."
