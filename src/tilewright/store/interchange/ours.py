"""Reading what `db export` wrote as JSON lines or as one JSON object."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilewright.core.errors import ModelError
from tilewright.store.interchange.header import header, unreadable_version
from tilewright.store.interchange.lines import Json, Line, Source, json_object, readable
from tilewright.store.interchange.stream import array_items

_VERSION = re.compile(r'"schema_version"\s*:\s*(\d+)')


def read_lines(source: Source) -> Iterator[Line]:
    """The records of a `jsonl` export. Raises `ModelError` when the header is missing."""
    with readable(source.path), source.path.open("rb") as file:
        first = json_object(file.readline())
        if first is None or first.get("record") != header()["record"]:
            raise _refused(source, "this is no export of tilewright, its header is missing")
        reason = unreadable_version(first.get("schema_version"))
        if reason:
            raise _refused(source, reason)
        for number, text in enumerate(file, start=2):
            if not text.strip():
                continue
            entry = json_object(text)
            if entry is None:
                yield Line(number=number, reason="not a JSON object; is the file cut short?")
            else:
                yield _line(number, entry)


def read_object(source: Source) -> Iterator[Line]:
    """The records of a `json` export, numbered from 1."""
    with readable(source.path):
        text = source.path.read_text(encoding="utf-8", errors="replace")
    start = text.find('"records"')
    version = _VERSION.search(text[: max(0, start)])
    reason = unreadable_version(int(version[1]) if version else None)
    if start < 0 or reason:
        raise _refused(source, reason or "it has no list of records")
    for number, item in enumerate(array_items(text, start), start=1):
        if item is None:
            yield Line(number=number, reason="not a JSON object; is the file cut short?")
        else:
            yield _line(number, item)


def _line(number: int, entry: Json) -> Line:
    return Line(number=number, record=entry)


def _refused(source: Source, reason: str) -> ModelError:
    return ModelError(
        f"{source.path}: {reason}. Nothing was imported.",
        hint="`tilewright db import` takes what `tilewright db export` wrote, or another database; "
        "other kinds of files with --kind.",
    )
