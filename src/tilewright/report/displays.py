"""How results show themselves, at a prompt and in a notebook: the tables of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from tilewright.core.display import show_by
from tilewright.core.evaluations import EvaluateResult
from tilewright.core.predictions import (
    CollectResult,
    ExplainResult,
    FitResult,
    PredictResult,
    SweepResult,
    ThreadsResult,
)
from tilewright.core.results import (
    CompareResult,
    DatabaseInfo,
    DoctorResult,
    GraphTuneResult,
    ImportResult,
    OptimizeResult,
    ProfileResult,
    SolveResult,
    SubgraphStudyResult,
    TunerStudyResult,
)
from tilewright.report import forecasts, graph, noise, shown, views
from tilewright.report.escape import visible
from tilewright.report.notebook import fragment
from tilewright.report.tables import Table, facts_table, record_of
from tilewright.report.tasks import tasks_table

_MOST_ROWS = 30
"""Rows of a table at a prompt; a notebook shows all."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a result shows: tables, and sentences below them."""

    tables: Sequence[Table]
    notes: Sequence[str] = ()


@singledispatch
def page(result: object) -> Page | None:
    """The tables of a result; None for a kind that has none."""
    del result
    return None


class _Displays:
    """Implements `Displays` of core."""

    def text(self, result: object) -> str | None:
        found = page(result)
        if found is None:
            return None
        notes = [visible(note) for note in found.notes if note]
        return "\n\n".join([*map(table_text, found.tables), *notes])

    def html(self, result: object) -> str | None:
        found = page(result)
        return None if found is None else fragment(found.tables, found.notes)


def install() -> None:
    """Have the results of all verbs show themselves like this."""
    show_by(_Displays())


def table_text(table: Table) -> str:
    """A table in aligned columns; of a long one the first rows, and how many follow."""
    rows = [[visible(cell) for cell in row] for row in table.shown()]
    head = [visible(column.label) for column in table.columns]
    kept = rows[:_MOST_ROWS]
    widths = [max(map(len, cells)) for cells in zip(head, *kept, strict=True)]
    lines = [_line(row, table, widths) for row in ([head] if any(head) else []) + kept]
    if len(rows) > len(kept):
        lines.append(f"… and {len(rows) - len(kept)} more rows")
    title = [visible(table.title)] if table.title else []
    return "\n".join([*title, *(f"  {line}" for line in lines)])


def _line(cells: Sequence[str], table: Table, widths: Sequence[int]) -> str:
    placed = (
        cell.rjust(width) if column.number else cell.ljust(width)
        for cell, column, width in zip(cells, table.columns, widths, strict=True)
    )
    return "  ".join(placed).rstrip()


@page.register
def _(result: OptimizeResult) -> Page:
    tasks = tasks_table(result)
    searched = views.searches_table(result.searches)
    tables = [views.optimize_summary(result), tasks, *([searched] if searched.records else [])]
    if isinstance(result, GraphTuneResult):
        tables += [graph.assignments_table(result), graph.solution_table(result)]
    explained = noise.explain_difference(
        result.tasks_latency_s, result.latency_s, result.explanation
    )
    return Page(tables, (explained, *noise.noise_warnings(result)))


@page.register
def _(result: ProfileResult) -> Page:
    tasks = tasks_table(result)
    tables = [views.profile_summary(result), tasks]
    if result.memory is not None:
        tables.append(views.memory_table(result.memory))
    if result.energy is not None:
        tables.append(views.energy_table(result.energy))
    explained = noise.explain_difference(
        result.tasks_latency_s, result.network_latency_s, result.explanation
    )
    return Page(tables, (*noise.profile_warnings(result), explained))


@page.register
def _(result: CompareResult) -> Page:
    skipped = [f"{peer} was skipped: {reason}" for peer, reason in result.skipped.items()]
    return Page([views.compare_table(result)], (views.compare_verdict(result), *skipped))


@page.register
def _(result: SolveResult) -> Page:
    return Page([graph.solve_table(result)], (graph.proven(result),))


@page.register
def _(result: EvaluateResult) -> Page:
    picks = [views.picks_table(result.picks)] if result.picks else []
    return Page([views.evaluation_table(result.rows), *picks], result.notes)


@page.register
def _(result: TunerStudyResult) -> Page:
    return Page([views.tuner_study_table(result.rows)])


@page.register
def _(result: SubgraphStudyResult) -> Page:
    gain = result.network_gain
    note = "" if gain is None else f"The whole network gains a factor of {gain:.3f}."
    return Page([views.subgraph_study_table(result.rows)], (note,))


@page.register
def _(result: DoctorResult) -> Page:
    return Page([views.doctor_table(result), views.environment_table(result.environment)])


@page.register
def _(result: DatabaseInfo) -> Page:
    return Page([views.database_table(result)])


@page.register
def _(result: ImportResult) -> Page:
    facts = [
        (name, value, shown.whole(value) if isinstance(value, int) else str(value))
        for name, value in record_of(result).items()
        if name not in ("skipped", "note") and value != ""
    ]
    skipped = views.skipped_table(result.skipped)
    tables = [facts_table("Import", facts), *([skipped] if result.skipped else [])]
    return Page(tables, (result.note,))


@page.register
def _(result: CollectResult) -> Page:
    return Page([forecasts.collected(result)])


@page.register
def _(result: FitResult) -> Page:
    return Page([forecasts.fitted_table(result.families)])


@page.register
def _(result: PredictResult) -> Page:
    operators = [forecasts.operators_table(result)] if result.operators else []
    if result.network is None:
        return Page(operators, (result.energy_reason,))
    return Page([forecasts.forecast_summary(result), *operators])


@page.register
def _(result: SweepResult) -> Page:
    return Page([forecasts.sweep_table(result)])


@page.register
def _(result: ExplainResult) -> Page:
    return Page(forecasts.explained_tables(result), (result.reason,))


@page.register
def _(result: ThreadsResult) -> Page:
    return Page([forecasts.threads_table(result)])
