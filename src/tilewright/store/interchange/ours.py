"""All that a database holds, as JSON lines or as one JSON object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, starmap
from pathlib import Path

from sqlalchemy import Connection

from tilewright.core.codec import canonical_json
from tilewright.core.errors import ModelError
from tilewright.core.input_files import readable
from tilewright.store.interchange.lines import (
    Json,
    Line,
    Source,
    json_items,
    json_lines,
    json_value,
    understood,
    write_texts,
)
from tilewright.store.rows import entry_of, stream_rows
from tilewright.store.schema import SCHEMA_VERSION

HEADER = {"record": "tilewright", "schema_version": SCHEMA_VERSION}
"""The first entry of an export, which says who wrote it and in which form."""
_VERSION = re.compile(r'"schema_version"\s*:\s*(\d+)')


def read_lines(source: Source) -> Iterator[Line]:
    """The records of a `jsonl` export. Raises `ModelError` when the header is missing."""
    with readable(source.path), source.path.open("rb") as file:
        match json_value(file.readline()):
            case {"record": "tilewright"} as header:
                _check_version(source, header.get("schema_version"))
            case _:
                raise _refused(source, "this is no export of tilewright, its header is missing")
        yield from understood(json_lines(file, first=2), _line)


def read_object(source: Source) -> Iterator[Line]:
    """The records of a `json` export, numbered from 1."""
    with readable(source.path):
        text = source.path.read_text(encoding="utf-8", errors="replace")
    start = text.find('"records"')
    version = _VERSION.search(text[: max(0, start)])
    _check_version(source, int(version[1]) if version else None)
    if start < 0:
        raise _refused(source, "it has no list of records")
    yield from understood(json_items(text, start), _line)


def _line(number: int, entry: Json) -> Line:
    return Line(number=number, record=entry)


def _check_version(source: Source, version: object) -> None:
    """Raise `ModelError` for an export of a schema version that cannot be read."""
    if isinstance(version, bool) or not isinstance(version, int):
        raise _refused(source, "the header has no schema_version")
    if version > SCHEMA_VERSION:
        raise _refused(
            source,
            f"made by a newer tilewright (schema version {version}); update tilewright",
        )


def _refused(source: Source, reason: str) -> ModelError:
    return ModelError(
        f"{source.path}: {reason}. Nothing was imported.",
        hint="`tilewright db import` takes what `tilewright db export` wrote, or another database; "
        "other kinds of files with --kind.",
    )


def write_lines(connection: Connection, path: Path) -> int:
    """Write a `jsonl` export; returns the number of records, the header not counted."""
    entries = chain([HEADER], starmap(entry_of, stream_rows(connection)))
    return write_texts(path, map(canonical_json, entries)) - 1


def write_object(connection: Connection, path: Path) -> int:
    """Write a `json` export; returns the number of records."""
    entries = starmap(entry_of, stream_rows(connection))
    head = f'{{"schema_version": {SCHEMA_VERSION}, "records": ['
    return write_texts(path, map(canonical_json, entries), list_in=head)
