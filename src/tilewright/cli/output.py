"""The data of a verb on stdout, in the format that was asked for."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from tilewright.cli.flags import AnswerFlags, Format
from tilewright.cli.streams import write_data
from tilewright.core.output_files import write_text
from tilewright.core.settings import read_settings
from tilewright.report.escape import visible
from tilewright.report.formats import to_csv, to_markdown
from tilewright.report.tables import Table

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a verb found.

    `data` goes into the json envelope; `tables` are shown in order, `rows` is the one that csv
    holds. `remarks` are sentences below the tables. `saved` is False for a verb that puts other
    things into the folder of `--out`.
    """

    command: str
    data: Any
    rows: Table
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()
    warnings: Sequence[str] = ()
    saved: bool = True


def emit(answer: Answer, flags: AnswerFlags) -> None:
    """Print an answer, and keep its json in the folder of `--out` where it is to be saved."""
    if answer.saved:
        keep(answer, flags)
    write_data(formatted(answer, flags.format))


def formatted(answer: Answer, format: Format) -> str:
    """The text for stdout."""
    if format == "json":
        return envelope(answer.command, answer.data, answer.warnings) + "\n"
    if format == "csv":
        return to_csv(answer.rows)
    tables = answer.tables or (answer.rows,)
    if format == "md":
        parts = [to_markdown(table) for table in tables]
        parts.extend(f"{_markdown_line(remark)}\n" for remark in answer.remarks)
        return "\n".join(parts)
    return _rich_text(tables, answer.remarks)


def envelope(command: str, data: Any, warnings: Iterable[str]) -> str:
    """The json object of the contract, in ASCII."""
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "command": command,
            "data": plain(data),
            "warnings": list(dict.fromkeys(warnings)),
        },
        allow_nan=False,
    )


def plain(value: Any) -> Any:
    """Results as what json knows; numbers that json lacks become null."""
    text = json.dumps(msgspec.to_builtins(value, enc_hook=_known))
    return json.loads(text, parse_constant=lambda _: None)


def _known(value: object) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no place in json")


def keep(answer: Answer, flags: AnswerFlags) -> None:
    """Write an answer's json into the folder of `--out`, where one is given."""
    if flags.out is not None:
        text = envelope(answer.command, answer.data, answer.warnings)
        write_text(flags.out / f"{answer.command.replace(' ', '-')}.json", text + "\n")


def _markdown_line(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace("<", "\\<").replace("`", "\\`")


def _rich_text(tables: Iterable[Table], remarks: Iterable[str]) -> str:
    from rich.console import Console
    from rich.text import Text

    terminal = sys.stdout.isatty()
    text = io.StringIO()
    console = Console(
        file=text,
        force_terminal=terminal,
        no_color=read_settings().no_color or None,
        width=None if terminal else 500,
    )
    for table in tables:
        console.print(_rich_table(table))
    for remark in remarks:
        console.print(Text(visible(remark)), soft_wrap=not terminal)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _rich_table(table: Table) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    title = Text(visible(table.title), style="bold") if table.title else None
    grid = RichTable(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_header=any(column.label for column in table.columns),
    )
    grid.pad_edge = False
    for column in table.columns:
        grid.add_column(
            Text(visible(column.label)),
            justify="right" if column.number else "left",
            no_wrap=column.number,
            overflow="fold",
        )
    for row in table.shown():
        grid.add_row(*(Text(visible(cell)) for cell in row))
    return grid
