"""The first entry of an export, which says who wrote it and in which form."""

from __future__ import annotations

from tilewright.store.rows import Row
from tilewright.store.schema import SCHEMA_VERSION


def header() -> Row:
    """The first entry of an export."""
    return {"record": "tilewright", "schema_version": SCHEMA_VERSION}


def unreadable_version(version: object) -> str:
    """Why an export of this schema version cannot be read, empty when it can."""
    if isinstance(version, bool) or not isinstance(version, int):
        return "the header has no schema_version"
    if version > SCHEMA_VERSION:
        return f"made by a newer tilewright (schema version {version}); update tilewright"
    return ""
