"""Tables and whole reports as HTML fragments for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tilewright.report.escape import visible
from tilewright.report.tables import Table

_REPORT = (
    '<details><summary>Report</summary><iframe title="report" sandbox="allow-scripts" '
    'loading="lazy" '
    'style="width: 100%; height: 40em; border: 1px solid #8888" srcdoc="{}"></iframe></details>'
)


def table_html(table: Table) -> str:
    """One table; every cell escaped."""
    head = "".join(f"<th>{_safe(column.label)}</th>" for column in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in row) + "</tr>"
        for row in table.shown()
    )
    caption = f"<caption>{_safe(table.title)}</caption>" if table.title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def fragment(tables: Sequence[Table], notes: Sequence[str] = (), *, report: str = "") -> str:
    """Tables with sentences below them; a whole page, where one is given, can be unfolded."""
    parts = [table_html(table) for table in tables]
    parts.extend(f"<p>{_safe(note)}</p>" for note in notes if note)
    if report:
        parts.append(_REPORT.format(escape(report, quote=True)))
    return f'<div class="tilewright">{"".join(parts)}</div>'


def _safe(text: str) -> str:
    return escape(visible(text), quote=True)
