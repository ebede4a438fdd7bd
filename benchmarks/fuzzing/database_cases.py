"""Mutated databases and logs: read, repaired or refused in words; the good database unharmed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from fuzzing import byte_changes
from fuzzing.cases import Case, Ground, Words, generator
from fuzzing.verdicts import Fault
from fuzzing.warm import Ended

BAD, GOOD = "bad.db", "good.db"
_EXPORTS = ("jsonl", "json", "csv", "autotvm", "t4", "parquet")
_VALUES: tuple[Any, ...] = (
    *(None, 0, -1, 1 << 62, 1.5, float("inf"), "", "x", "é" * 2000, b"\0\xff", "[]", "{}"),
    *("[1e999]", "null", "NaN", "-1", '{"a": 1}', "[[[]]]", "0x", "9" * 400),
)

Change = Callable[[Path, Random], str]


def database_case(ground: Ground, seed: int, folder: Path) -> Case:
    """A good database or log with changes, and a verb that meets it."""
    rng = generator("databases", seed)
    bad, good = folder / BAD, folder / GOOD
    shutil.copy(ground.database, bad)
    shutil.copy(ground.database, good)
    if rng.random() < 0.25:
        return _log_case(ground, rng, folder)
    told = "; ".join(rng.choice(CHANGES)(bad, rng) for _ in range(rng.choice((1, 1, 1, 2))))
    command = rng.choice(_commands(rng))
    before = dump(good)
    return Case(
        what=f"{told} → {' '.join(command)}",
        commands=[command, ("db", "info", "--db", GOOD, "--format", "json")],
        given_bytes=bad.stat().st_size if bad.is_file() else 0,
        check=lambda ended: unharmed(good, before, ended),
    )


def _commands(rng: Random) -> Sequence[Words]:
    kind = rng.choice(_EXPORTS)
    asked: Words = ("--format", "json")
    shared: Words = ("--threads", "1", *asked)
    return [
        ("db", "info", "--db", BAD, *asked),
        ("db", "export", f"export.{kind}", "--kind", kind, "--db", BAD, *shared),
        ("db", "import", BAD, "--db", GOOD, *shared),
        ("db", "import", GOOD, "--db", BAD, *shared),
        ("db", "merge", GOOD, BAD, *asked),
        ("db", "merge", BAD, GOOD, "--into", "new.db", *asked),
        ("db", "gc", "--db", BAD, *asked),
        ("predict", "op:relu[shape=1x8x4x4]", "--settings", "best", "--db", BAD, *shared),
        ("optimize", "network.onnx", "--budget", "0", "--out", "out", "--db", BAD, *shared),
    ]


def _log_case(ground: Ground, rng: Random, folder: Path) -> Case:
    """A log that `db export` wrote, with its bytes changed, comes in."""
    logs = sorted(ground.folder.glob("log.*"))
    source = rng.choice(logs)
    content, told = byte_changes.changed(source.read_bytes(), rng)
    log = folder / source.name
    log.write_bytes(content)
    good = folder / GOOD
    before = dump(good)
    command = ("db", "import", log.name, "--db", GOOD, "--format", "json")
    return Case(
        what=f"{log.name}: {told}",
        commands=[command, ("db", "info", "--db", GOOD, "--format", "json")],
        given_bytes=len(content),
        check=lambda ended: unharmed(good, before, ended),
    )


def dump(path: Path) -> frozenset[str]:
    """Every row of a database, as text."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        return frozenset(
            repr((table, row))
            for table in tables
            if table != "meta"
            for row in connection.execute(f"SELECT * FROM {table}")
        )


def unharmed(good: Path, before: frozenset[str], ended: Sequence[Ended]) -> list[Fault]:
    """Whatever came in, what was there still is; and nothing came in where that was refused."""
    try:
        after = dump(good)
        with closing(sqlite3.connect(good)) as connection:
            (state,) = connection.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.Error as error:
        return [Fault(group="the good database is harmed", text=str(error))]
    if state != "ok":
        return [Fault(group="the good database is harmed", text=str(state))]
    lost = before - after
    if lost:
        return [Fault(group="rows of the good database are gone", text=min(lost)[:200])]
    if ended[0].code != 0 and after != before:
        new = min(after - before)[:200]
        return [Fault(group="a refused file left rows in the good database", text=new)]
    if ended[1].code != 0:
        return [Fault(group="the good database is not read any more", text=ended[1].err[:200])]
    return []


def bytes_changed(path: Path, rng: Random) -> str:
    """Bytes of the file."""
    content, told = byte_changes.changed(path.read_bytes(), rng)
    path.write_bytes(content)
    return told


def header_changed(path: Path, rng: Random) -> str:
    """Bytes of SQLite's header: page size, versions, counts, our mark."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(100)
    content[place] = rng.randrange(256)
    path.write_bytes(content)
    return f"byte {place} of the header is {content[place]}"


def schema_changed(path: Path, rng: Random) -> str:
    """A table or column dropped, renamed, added, or made a view."""
    table = rng.choice(tables(path))
    column = rng.choice(columns(path, table))
    return _execute(
        path,
        rng.choice(
            (
                f"DROP TABLE {table}",
                f"ALTER TABLE {table} RENAME TO {table}_old",
                f"ALTER TABLE {table} DROP COLUMN {column}",
                f"ALTER TABLE {table} RENAME COLUMN {column} TO {column}_old",
                f"ALTER TABLE {table} ADD COLUMN more TEXT",
                f"CREATE TABLE more AS SELECT * FROM {table}",
                f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
                f"CREATE UNIQUE INDEX one ON {table} ({column})",
                f"DELETE FROM {table}",
            )
        ),
    )


def value_changed(path: Path, rng: Random) -> str:
    """A value of another type or size, in one row or all."""
    table = rng.choice(tables(path))
    column, value = rng.choice(columns(path, table)), rng.choice(_VALUES)
    which = rng.choice(("", " WHERE rowid = (SELECT min(rowid) FROM {0})")).format(table)
    told = _execute(path, f"UPDATE OR REPLACE {table} SET {column} = ?{which}", value)
    return f"{told} with {str(value)[:20]!r}"


def version_changed(path: Path, rng: Random) -> str:
    """The number of the schema, in the header or the table of facts."""
    version = rng.choice((0, 1, 2, 3, 5, 99, -1, 1 << 30))
    if rng.random() < 0.5:
        return _execute(path, f"PRAGMA user_version = {version}")
    if rng.random() < 0.3:
        return _execute(path, f"PRAGMA application_id = {version}")
    return _execute(path, "UPDATE meta SET value = ?", rng.choice((str(version), "x", "")))


def companion_left(path: Path, rng: Random) -> str:
    """A log of writes beside the file: noise, or a real one that is cut short."""
    suffix = rng.choice(("-wal", "-journal", "-shm"))
    companion = path.with_name(path.name + suffix)
    if suffix == "-wal" and rng.random() < 0.6:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE IF NOT EXISTS written (a TEXT)")
            connection.execute("INSERT INTO written VALUES ('x')")
            connection.commit()
            content = companion.read_bytes()
        companion.write_bytes(content[: rng.randrange(len(content) + 1)])
        return "a log of writes cut short"
    companion.write_bytes(rng.randbytes(rng.choice((0, 10, 32, 4096))))
    return f"noise in {suffix}"


def file_replaced(path: Path, rng: Random) -> str:
    """No database at all."""
    path.unlink()
    how = rng.choice(("empty", "folder", "text", "dangling", "missing", "other program's"))
    if how == "empty":
        path.touch()
    elif how == "folder":
        path.mkdir()
    elif how == "text":
        path.write_text("hello\n")
    elif how == "dangling":
        path.symlink_to("nowhere/at/all")
    elif how == "other program's":
        _execute(path, "CREATE TABLE bookmarks (url TEXT)")
    return f"the file is {how}"


def tables(path: Path) -> list[str]:
    """Names of the tables."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY 1")
        return [name for (name,) in found]


def columns(path: Path, table: str) -> list[str]:
    """Names of the columns of a table."""
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _execute(path: Path, statement: str, *values: Any) -> str:
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement, values)
    except (sqlite3.Error, OverflowError) as error:
        return f"{statement} (refused: {error})"
    return statement


def _guarded(change: Change) -> Change:
    """A second change may find no database any more."""

    def careful(path: Path, rng: Random) -> str:
        try:
            return change(path, rng)
        except (sqlite3.Error, OSError, IndexError, ValueError, OverflowError) as error:
            return f"nothing: {error}"

    return careful


CHANGES: tuple[Change, ...] = tuple(
    map(
        _guarded,
        (
            *(bytes_changed, bytes_changed, header_changed, schema_changed, schema_changed),
            *(value_changed, value_changed, value_changed, version_changed),
            *(companion_left, file_replaced),
        ),
    )
)
