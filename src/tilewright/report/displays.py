"""How results show themselves: the same tables on the command line, at a prompt, in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from tilewright.core.artifacts import ShapesResult
from tilewright.core.comparisons import CompareResult
from tilewright.core.display import show_by
from tilewright.core.neighbours import VersionsResult
from tilewright.core.planning import PlanningData
from tilewright.core.predictions import (
    CollectResult,
    EvaluateResult,
    ExplainResult,
    FitResult,
    PredictResult,
    SweepResult,
    ThreadsResult,
)
from tilewright.core.results import (
    DatabaseInfo,
    DoctorResult,
    GraphTuneResult,
    ImportResult,
    OptimizeResult,
    ProfileResult,
    SolveResult,
    SubgraphStudyResult,
    TimedNetwork,
    TunerStudyResult,
)
from tilewright.core.schedules import ScheduleResult
from tilewright.core.serving import ServeResult, ServerStatistics
from tilewright.core.sufficient_cores import CoresResult
from tilewright.report import (
    artifacts,
    cores,
    escape,
    forecasts,
    formats,
    graph,
    islands,
    mixtures,
    neighbours,
    noise,
    planning,
    schedules,
    serving,
    shown,
    tasks,
    views,
)
from tilewright.report.tables import Table

_MOST_ROWS = 30
"""Rows of a table at a prompt; a notebook shows all."""

_SKIPPED_LINES = 20
"""Lines of a file that are shown of those that were not taken in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a result shows.

    `rows` is the table that a csv file holds, `more` are tables of further parts, `summary` is the
    result in a few facts. `notes` are sentences below the tables. The command line sends `warnings`
    to stderr, but those it has shown while the result was made.
    """

    rows: Table
    more: Sequence[Table] = ()
    summary: Table | None = None
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    @property
    def details(self) -> tuple[Table, ...]:
        """All tables but the summary; one without rows is left out where there are others."""
        others = [*self.more, *([self.summary] if self.summary is not None else [])]
        return tuple(each for each in (self.rows, *self.more) if each.records or not others)

    @property
    def tables(self) -> tuple[Table, ...]:
        """In the order of a terminal, where the last lines are read first."""
        return (*self.details, *([self.summary] if self.summary is not None else []))

    @property
    def sentences(self) -> tuple[str, ...]:
        """Everything that is said beside the tables."""
        return tuple(each for each in (*self.notes, *self.warnings) if each)


@singledispatch
def page(result: object) -> Page | None:
    """The tables of a result; None for a kind that has none."""
    del result
    return None


def _text(result: object) -> str | None:
    found = page(result)
    if found is None:
        return None
    tables = map(table_text, found.tables)
    return "\n\n".join([*tables, *map(escape.visible, found.sentences)])


def _html(result: object) -> str | None:
    found = page(result)
    return None if found is None else notebook_html(found)


def notebook_html(shown: Page, *, report: str = "") -> str:
    """A page as a fragment, from the top: its summary first; a report, where given, unfolds."""
    summary = [shown.summary] if shown.summary is not None else []
    return formats.notebook_fragment([*summary, *shown.details], shown.sentences, report=report)


def install() -> None:
    """Have the results of all verbs show themselves like this."""
    show_by(text=_text, html=_html)


def table_text(table: Table) -> str:
    """A table in aligned columns; of a long one the first rows, and how many follow."""
    rows = [[escape.visible(cell) for cell in row] for row in table.shown()]
    head = [escape.visible(column.label) for column in table.columns]
    kept = rows[:_MOST_ROWS]
    widths = [max(map(len, cells)) for cells in zip(head, *kept, strict=True)]
    lines = [_line(row, table, widths) for row in ([head] if any(head) else []) + kept]
    if len(rows) > len(kept):
        lines.append(f"… and {len(rows) - len(kept)} more rows")
    title = [escape.visible(table.title)] if table.title else []
    return "\n".join([*title, *(f"  {line}" for line in lines)])


def _line(cells: Sequence[str], table: Table, widths: Sequence[int]) -> str:
    placed = (
        cell.rjust(width) if column.number else cell.ljust(width)
        for cell, column, width in zip(cells, table.columns, widths, strict=True)
    )
    return "  ".join(placed).rstrip()


@page.register
def _(result: OptimizeResult) -> Page:
    searched = views.searches_table(result.searches)
    more = [searched] if searched.records else []
    if isinstance(result, GraphTuneResult):
        more += [graph.assignments_table(result), graph.solution_table(result)]
    more += mixtures.mixture_tables(result.mixture)
    return Page(
        rows=tasks.tasks_table(result),
        more=more,
        summary=views.optimize_summary(result),
        notes=(
            *_since_last_run(result),
            *islands.of_tasks(result.tasks),
            *_sum_of_tasks(result, result.latency_s),
        ),
        warnings=noise.noise_warnings(result),
    )


@page.register
def _(result: ShapesResult) -> Page:
    return Page(
        rows=artifacts.shapes_table(result),
        summary=artifacts.shapes_summary(result),
        warnings=result.warnings,
    )


@page.register
def _(result: ProfileResult) -> Page:
    more: list[Table] = []
    if result.memory is not None:
        more.append(views.memory_table(result.memory))
    if result.energy is not None:
        more.append(views.energy_table(result.energy))
    if result.beside is not None:
        more += neighbours.beside_tables(result.beside)
    return Page(
        rows=tasks.tasks_table(result),
        more=more,
        summary=views.profile_summary(result),
        notes=(
            *islands.of_tasks(result.tasks),
            *_sum_of_tasks(result, result.network_latency_s),
        ),
        warnings=noise.profile_warnings(result),
    )


def _since_last_run(result: OptimizeResult) -> tuple[str, ...]:
    return (
        ()
        if result.last_run is None
        else (views.since_last_run(result.last_run, result.latency_s),)
    )


def _sum_of_tasks(result: TimedNetwork, network_s: float) -> tuple[str, ...]:
    explained = noise.explain_difference(result.tasks_latency_s, network_s, result.explanation)
    return (explained,) if explained else ()


@page.register
def _(result: CompareResult) -> Page:
    return Page(
        rows=views.COMPARED.of(result.rows),
        notes=(views.compare_verdict(result), *views.error_verdict(result)),
        warnings=[f"{peer} was skipped: {reason}" for peer, reason in result.skipped.items()],
    )


@page.register
def _(result: SolveResult) -> Page:
    return Page(rows=graph.solve_table(result), notes=(graph.proven(result),))


@page.register
def _(result: ScheduleResult) -> Page:
    more = [schedules.TRANSFERS.of(result.transfers), schedules.DEVICES.of(result.devices)]
    if len(result.front) > 1:
        more.append(schedules.FRONT.of(result.front))
    return Page(
        rows=schedules.SLOTS.of(result.slots),
        more=[table for table in more if table.records],
        summary=schedules.summary(result),
        notes=(schedules.gained(result), schedules.compromises(result), result.energy_reason),
    )


@page.register
def _(result: ServerStatistics) -> Page:
    networks, instances = serving.statistics_tables(result)
    return Page(rows=networks, more=(instances,))


@page.register
def _(result: ServeResult) -> Page:
    return Page(
        rows=serving.loads_table(result),
        more=(*serving.statistics_tables(result.statistics), *serving.options_tables(result)),
        notes=(result.choice, serving.compared(result)),
    )


@page.register
def _(result: EvaluateResult) -> Page:
    picks = (views.PICKS.of(result.picks),) if result.picks else ()
    return Page(rows=views.evaluation_table(result.rows), more=picks, warnings=result.notes)


@page.register
def _(result: TunerStudyResult) -> Page:
    return Page(rows=views.tuner_study_table(result.rows))


@page.register
def _(result: SubgraphStudyResult) -> Page:
    gain = shown.speedup(result.network_gain, result.network_gain_low, result.network_gain_high)
    return Page(
        rows=views.SUBGRAPH_STUDY.of(result.rows),
        notes=() if gain == shown.MISSING else (f"The whole network gains {gain}.",),
    )


@page.register
def _(result: CoresResult) -> Page:
    return Page(
        rows=cores.points_table(result),
        more=(cores.times_table(result),),
        notes=cores.notes(result),
    )


@page.register
def _(result: VersionsResult) -> Page:
    return Page(
        rows=neighbours.versions_table(result),
        summary=neighbours.versions_summary(result),
        notes=neighbours.versions_notes(result),
    )


@page.register
def _(result: DoctorResult) -> Page:
    environment = views.environment_table(result.environment)
    return Page(rows=views.CHECKS.of(result.checks), more=(environment,))


@page.register
def _(result: DatabaseInfo) -> Page:
    return Page(rows=views.DATABASE.of([result]), more=(views.CACHE.of([result]),))


@page.register
def _(result: ImportResult) -> Page:
    """What came in, and below it every line that did not."""
    more = len(result.skipped) - _SKIPPED_LINES
    notes = [f"More skipped lines, {more} of them, are in --format json."] if more > 0 else []
    return Page(
        rows=views.import_table(result),
        more=(views.SKIPPED.of(result.skipped[:_SKIPPED_LINES]),) if result.skipped else (),
        notes=[*notes, *([f"{result.note}."] if result.note else [])],
    )


@page.register
def _(result: CollectResult) -> Page:
    return Page(rows=forecasts.collected(result))


@page.register
def _(result: FitResult) -> Page:
    return Page(rows=forecasts.FITTED.of(result.families))


@page.register
def _(result: PredictResult) -> Page:
    network = result.network is not None
    return Page(
        rows=forecasts.operators_table(result),
        summary=forecasts.forecast_summary(result) if network else None,
        notes=() if network or not result.energy_reason else (result.energy_reason,),
    )


@page.register
def _(result: PlanningData) -> Page:
    more = (planning.transfers_table(result), planning.devices_table(result))
    return Page(rows=planning.calls_table(result), more=more)


@page.register
def _(result: SweepResult) -> Page:
    return Page(rows=forecasts.sweep_table(result))


@page.register
def _(result: ExplainResult) -> Page:
    first, *more = forecasts.explained_tables(result)
    unknown = f"registers and spills are not known: {result.reason}"
    return Page(rows=first, more=more, warnings=(unknown,) if result.reason else ())


@page.register
def _(result: ThreadsResult) -> Page:
    return Page(rows=forecasts.threads_table(result))
