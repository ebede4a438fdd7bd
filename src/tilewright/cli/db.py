"""`tilewright db`: the database of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from tilewright.cli.flags import SharedFlags
from tilewright.cli.output import Answer, emit
from tilewright.cli.work import working
from tilewright.core.errors import UsageError
from tilewright.core.results import DatabaseInfo
from tilewright.core.units import parse_duration
from tilewright.report import shown, views
from tilewright.report.tables import Column, Table, record_of

ExportFormat = Literal["jsonl", "json", "csv", "parquet"]

db = App(
    name="db",
    help="Look into, copy, merge and clean the database of measurements.",
    sort_key=100,
)


@db.command
def info(*, flags: SharedFlags | None = None) -> int:
    """Say what the database holds."""
    flags = flags or SharedFlags()
    with working(flags) as work:
        found = work.session.store.info()
    facts: dict[str, Any] = {**record_of(found), "path": str(found.path)}
    result = DatabaseInfo(**facts)
    answer = Answer(
        command="db info",
        data=result,
        rows=views.database_table(result),
        warnings=work.warnings,
    )
    emit(answer, flags)
    return 0


@db.command
def export(
    path: Annotated[Path, Parameter(help="The file to write.")],
    /,
    *,
    as_: Annotated[
        ExportFormat | None,
        Parameter(
            name="--as",
            help="jsonl and json hold everything, csv and parquet the measurements "
            "[default: by the file's ending].",
        ),
    ] = None,
    flags: SharedFlags | None = None,
) -> int:
    """Write the database to a file."""
    flags = flags or SharedFlags()
    with working(flags) as work:
        count = work.session.store.export(path, as_)
    _emit_counts("db export", {"path": str(path), "records": count}, flags, work.warnings)
    return 0


@db.command(name="import")
def import_(
    path: Annotated[Path, Parameter(help="A .jsonl export, or another database.")],
    /,
    *,
    flags: SharedFlags | None = None,
) -> int:
    """Take in what another database exported; records known already stay single."""
    flags = flags or SharedFlags()
    with working(flags) as work:
        taken = work.session.store.import_file(path)
    counts = {"path": str(path), **record_of(taken)}
    _emit_counts("db import", counts, flags, work.warnings)
    return 0


@db.command
def gc(
    *,
    keep_version: Annotated[
        tuple[str, ...],
        Parameter(
            help="Keep outdated measurements of this version; repeatable.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    failures_older_than: Annotated[
        str | None, Parameter(help="Also remove failures older than this, e.g. 720h.")
    ] = None,
    flags: SharedFlags | None = None,
) -> int:
    """Remove measurements of kernels that have changed since, and shrink the file."""
    flags = flags or SharedFlags()
    age_s = None
    if failures_older_than is not None:
        age_s = parse_duration(failures_older_than)
        if age_s is None:
            raise UsageError(
                f"--failures-older-than {failures_older_than!r} is no duration.",
                hint="For example 90m or 720h.",
            )
    with working(flags) as work:
        removed = work.session.store.gc(keep_versions=keep_version, failures_older_than_s=age_s)
    _emit_counts("db gc", record_of(removed), flags, work.warnings)
    return 0


def _emit_counts(
    command: str, counts: dict[str, Any], flags: SharedFlags, warnings: list[str]
) -> None:
    columns = tuple(
        Column(
            field=name,
            label=name.removesuffix("_bytes"),
            show=_shower(name, value),
            number=not isinstance(value, str),
        )
        for name, value in counts.items()
    )
    rows = Table(columns=columns, records=(counts,))
    emit(Answer(command=command, data=counts, rows=rows, warnings=warnings), flags)


def _shower(name: str, value: object) -> Any:
    if isinstance(value, str):
        return str
    return shown.size if name.endswith("_bytes") else shown.whole
