"""Tables as CSV and Markdown text."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from tilewright.report.escape import visible
from tilewright.report.tables import Table

_MARKDOWN = str.maketrans({char: "\\" + char for char in "\\`*_[]<>|#~$&"})


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
