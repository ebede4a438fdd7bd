"""Results as HTML fragments for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tilewright.core.results import CompareResult, OptimizeResult, ProfileResult
from tilewright.report import views
from tilewright.report.escape import visible
from tilewright.report.noise import explain_difference, noise_warnings, profile_warnings
from tilewright.report.tables import Table
from tilewright.report.tasks import tasks_table


def optimize_html(result: OptimizeResult) -> str:
    """Summary, tasks and warnings of an optimisation."""
    tasks = tasks_table(result)
    return _fragment([views.optimize_summary(result), tasks], noise_warnings(result))


def profile_html(result: ProfileResult) -> str:
    """The network and its tasks."""
    tasks = tasks_table(result)
    explained = explain_difference(
        result.tasks_latency_s, result.network_latency_s, result.explanation
    )
    return _fragment([views.profile_summary(result), tasks], [*profile_warnings(result), explained])


def compare_html(result: CompareResult) -> str:
    """The rows and the geometric mean."""
    skipped = [f"{peer}: {reason}" for peer, reason in result.skipped.items()]
    return _fragment([views.compare_table(result)], [views.compare_verdict(result), *skipped])


def table_html(table: Table) -> str:
    """One table; every cell escaped."""
    head = "".join(f"<th>{_safe(column.label)}</th>" for column in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in row) + "</tr>"
        for row in table.shown()
    )
    caption = f"<caption>{_safe(table.title)}</caption>" if table.title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _fragment(tables: Sequence[Table], notes: Sequence[str]) -> str:
    parts = [table_html(table) for table in tables]
    parts.extend(f"<p>{_safe(note)}</p>" for note in notes if note)
    return f'<div class="tilewright">{"".join(parts)}</div>'


def _safe(text: str) -> str:
    return escape(visible(text), quote=True)
