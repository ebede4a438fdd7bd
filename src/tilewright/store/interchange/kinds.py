"""The kinds of files that records come from and go to."""

from __future__ import annotations

from pathlib import Path

from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.input_files import readable
from tilewright.store.interchange.lines import json_value

METASCHEDULE = "metaschedule"
DATABASE = "db"
TABLES = ("csv", "parquet")
"""One row per measurement: nothing tells of devices but the names of their classes."""
IMPORTS = ("autotvm", METASCHEDULE, "t4", "csv", "parquet", "jsonl", "json", DATABASE)
EXPORTS = ("jsonl", "json", "csv", "parquet", "autotvm", "t4", METASCHEDULE)

READERS = {
    "autotvm": f"{__package__}.autotvm:read",
    "t4": f"{__package__}.t4:read",
    "csv": f"{__package__}.tables:read_csv",
    "parquet": f"{__package__}.tables:read_parquet",
    "jsonl": f"{__package__}.ours:read_lines",
    "json": f"{__package__}.ours:read_object",
}
"""What reads a kind, module and function; MetaSchedule and databases are read elsewhere."""
WRITERS = {
    "autotvm": f"{__package__}.autotvm:write",
    "t4": f"{__package__}.t4:write",
    "csv": f"{__package__}.tables:write_csv",
    "parquet": f"{__package__}.tables:write_parquet",
    "jsonl": f"{__package__}.ours:write_lines",
    "json": f"{__package__}.ours:write_object",
}
"""The same for what writes all of a database that a kind can hold, and returns the number of
records."""
_ENDINGS = {
    ".jsonl": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".log": "autotvm",
    ".autotvm": "autotvm",
    ".t4": "t4",
    ".db": DATABASE,
    ".sqlite": DATABASE,
}
_MAGIC = {b"SQLite format 3\0": DATABASE, b"PAR1": "parquet"}
_LOOKED_AT_BYTES = 1 << 16
_CSV_COLUMNS = "workload_key,device_class,"


def checked_kind(kind: str | None, known: tuple[str, ...]) -> str | None:
    """`kind` itself. Raises `UsageError` naming close ones when it is none of `known`."""
    if kind is not None and kind not in known:
        raise UsageError(f"There is no kind {kind!r} here.", hint=close_matches(kind, known))
    return kind


def export_kind(path: Path, kind: str | None) -> str:
    """The kind given, else the one the file's ending stands for."""
    chosen = checked_kind(kind, EXPORTS) or _ENDINGS.get(path.suffix.lower(), "")
    if chosen not in EXPORTS:
        raise UsageError(
            f"Cannot tell what kind of file {path} is to be.",
            hint=f"Say --kind {'|'.join(EXPORTS)}.",
        )
    return chosen


def import_kind(path: Path, kind: str | None) -> str:
    """The kind given, else what the file's content or ending shows.

    Raises `ModelError` for a file that cannot be read, `UsageError` when nothing tells the kind.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ModelError(f"{path} is a device or a pipe, not a file.")
    if kind is not None:
        return checked_kind(kind, IMPORTS) or kind
    if path.is_dir() and list(path.glob("*tuning_record*.json")):
        return METASCHEDULE
    with readable(path), path.open("rb") as file:
        from_content = _kind_of_content(file.read(_LOOKED_AT_BYTES))
    chosen = from_content or _ENDINGS.get(path.suffix.lower(), "")
    if not chosen:
        raise UsageError(
            f"Cannot tell what kind of records {path} holds.",
            hint=f"Say --kind {'|'.join(IMPORTS)}.",
        )
    return chosen


def _kind_of_content(start: bytes) -> str:
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            return kind
    text = start.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if text.startswith(_CSV_COLUMNS):
        return "csv"
    match json_value(text.partition("\n")[0]):
        case {"record": "tilewright"}:
            return "jsonl"
        case {"input": _, "result": _} | {"i": _, "r": _}:
            return "autotvm"
        case [_, _]:
            return METASCHEDULE
        case _ if text.startswith("{") and '"results"' in text:
            return "t4"
        case _:
            return "json" if text.startswith("{") and '"records"' in text else ""
