"""Tables as text in other formats: CSV, Markdown, and HTML for notebooks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from tilewright.report.escape import visible
from tilewright.report.tables import Table

_MARKDOWN = str.maketrans({char: "\\" + char for char in "\\`*_[]<>|#~$&"})

_REPORT = (
    '<details><summary>Report</summary><iframe title="report" sandbox="allow-scripts" '
    'loading="lazy" '
    'style="width: 100%; height: 40em; border: 1px solid #8888" srcdoc="{}"></iframe></details>'
)


def to_csv(table: Table) -> str:
    """Comma-separated text with a header; numbers in SI units, nested values as JSON."""
    names, rows = table.raw()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([visible(name) for name in names])
    writer.writerows([[_csv_cell(value) for value in row] for row in rows])
    return text.getvalue()


def to_markdown(table: Table) -> str:
    """A pipe table with scaled units; the title is a heading."""
    lines = [f"### {escaped(table.title)}", ""] if table.title else []
    lines.append(_markdown_row([escaped(column.label) for column in table.columns]))
    lines.append(_markdown_row(["---:" if column.number else "---" for column in table.columns]))
    lines.extend(_markdown_row([escaped(cell) for cell in row]) for row in table.shown())
    return "\n".join(lines) + "\n"


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=str)
    return visible(value)


def escaped(text: str) -> str:
    """Text as Markdown shows it, whatever is in it."""
    return visible(text).translate(_MARKDOWN)


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def to_html(table: Table) -> str:
    """One table; every cell escaped."""
    head = "".join(f"<th>{_safe(column.label)}</th>" for column in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in row) + "</tr>"
        for row in table.shown()
    )
    caption = f"<caption>{_safe(table.title)}</caption>" if table.title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def notebook_fragment(
    tables: Sequence[Table], notes: Sequence[str] = (), *, report: str = ""
) -> str:
    """Tables with sentences below them; a whole page, where one is given, can be unfolded."""
    parts = [to_html(table) for table in tables]
    parts.extend(f"<p>{_safe(note)}</p>" for note in notes if note)
    if report:
        parts.append(_REPORT.format(escape(report, quote=True)))
    return f'<div class="tilewright">{"".join(parts)}</div>'


def _safe(text: str) -> str:
    return escape(visible(text), quote=True)
