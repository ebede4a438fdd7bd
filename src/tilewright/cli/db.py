"""`tilewright db`: the database of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from tilewright.cli.flags import AnswerFlags, PlacedFlags, StoredFlags
from tilewright.cli.help_pages import RECORDS, examples
from tilewright.cli.output import Answer
from tilewright.cli.work import working
from tilewright.core import errors, units
from tilewright.report.tables import record_of
from tilewright.report.views import counts_table
from tilewright.store.interchange import kinds

db = App(
    name="db",
    help="Inspect, copy, merge and clean the database of measurements.",
    group=RECORDS,
    sort_key=9,
)


@db.command(help_epilogue=examples("db info"))
def info(*, flags: StoredFlags = StoredFlags()) -> None:
    """Show what is in the database, and how large the cache of models is."""
    from tilewright.store.archive import describe

    with working(flags) as work:
        work.tell("db info", describe(work.session.records))


@db.command(help_epilogue=examples("db export"))
def export(
    path: Annotated[Path, Parameter(help="The file to write (metaschedule: a folder).")],
    /,
    *,
    kind: Annotated[
        str | None,
        Parameter(
            name=("--kind", "--as"),
            help=f"{', '.join(kinds.EXPORTS)} [default: by the file's ending]. jsonl and json "
            "contain everything, autotvm and t4 measurements and failures, csv, parquet and "
            "metaschedule only measurements.",
        ),
    ] = None,
    flags: PlacedFlags = PlacedFlags(),
) -> None:
    """Write the database to a file."""
    kinds.export_kind(path, kind)
    with working(flags) as work:
        work.answer = _counted(
            "db export", {"path": str(path), "records": work.session.export_file(path, kind)}
        )


@db.command(name="import", help_epilogue=examples("db import"))
def import_(
    path: Annotated[Path, Parameter(help="A file that tilewright or another program wrote.")],
    /,
    *,
    kind: Annotated[
        str | None,
        Parameter(help=f"{', '.join(kinds.IMPORTS)} [default: by the content and the ending]."),
    ] = None,
    task: Annotated[
        str | None, Parameter(help="For a t4 file of another program: the key of its task.")
    ] = None,
    target: Annotated[
        str | None,
        Parameter(
            help="For a t4 file of another program: the device it was measured on; llvm is this "
            "machine."
        ),
    ] = None,
    flags: PlacedFlags = PlacedFlags(),
) -> None:
    """Import records of another database or program; those in the database already are skipped."""
    kinds.checked_kind(kind, kinds.IMPORTS)
    with working(flags) as work:
        work.tell("db import", work.session.import_file(path, kind, task=task, target=target))


@db.command(help_epilogue=examples("db merge"))
def merge(
    first: Annotated[Path, Parameter(name="A", help="A database; B's records are added to it.")],
    second: Annotated[Path, Parameter(name="B", help="Another database, or an export of one.")],
    /,
    *,
    into: Annotated[
        Path | None, Parameter(help="Write both into this database, and do not change A.")
    ] = None,
    flags: AnswerFlags = AnswerFlags(),
) -> None:
    """Put the records of two databases together; records that are in both are kept once."""
    from tilewright.collect import interchanging

    with working(flags) as work:
        work.tell("db merge", interchanging.merge(first, second, into))


@db.command(help_epilogue=examples("db gc"))
def gc(
    *,
    keep_version: Annotated[
        tuple[str, ...],
        Parameter(
            help="Keep outdated measurements of this version of tilewright; may be repeated.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    failures_older_than: Annotated[
        str | None, Parameter(help="Also remove failures older than this time, e.g. 720h.")
    ] = None,
    cache_limit: Annotated[
        str | None,
        Parameter(
            help="Remove models from the cache until the rest has at most this size, e.g. 2GB; 0 "
            "removes all that no process uses [default: TILEWRIGHT_CACHE_LIMIT, else 10GiB]."
        ),
    ] = None,
    flags: StoredFlags = StoredFlags(),
) -> None:
    """Remove measurements of kernels whose code has changed since, and shrink the file.

    If the cache of models is larger than its limit, the least recently used models are removed
    too.
    """
    from tilewright.store.archive import clean_up

    age_s = None if failures_older_than is None else units.parse_duration(failures_older_than)
    if failures_older_than is not None and age_s is None:
        raise errors.UsageError(
            f"--failures-older-than {failures_older_than!r} is no duration.",
            hint="For example 90m or 720h.",
        )
    limit_bytes = None if cache_limit is None else units.parse_bytes(cache_limit)
    if cache_limit is not None and limit_bytes is None:
        raise errors.UsageError(
            f"--cache-limit {cache_limit!r} is no size.", hint="For example 2GB, 500MB or 0."
        )
    with working(flags) as work:
        work.answer = _counted(
            "db gc",
            record_of(
                clean_up(
                    work.session.store,
                    keep_versions=keep_version,
                    failures_older_than_s=age_s,
                    cache_limit_bytes=limit_bytes,
                )
            ),
        )


def _counted(command: str, counts: dict[str, Any]) -> Answer:
    return Answer(command=command, data=counts, rows=counts_table(counts))
