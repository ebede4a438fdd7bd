"""Writing a database to a file, in the form of each kind of export."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, starmap
from pathlib import Path

from sqlalchemy import Connection, func, select

from tilewright.core.errors import OutputError
from tilewright.core.fingerprints import canonical_json
from tilewright.core.records import Measurement
from tilewright.store import schema
from tilewright.store.interchange.ours import HEADER
from tilewright.store.rows import (
    device_facts,
    entry_of,
    matching,
    stream_outcomes,
    stream_records,
    stream_rows,
    workload_texts,
)


def _jsonl(connection: Connection, path: Path) -> int:
    entries = chain([HEADER], starmap(entry_of, stream_rows(connection)))
    return _write(path, map(canonical_json, entries)) - 1


def _json(connection: Connection, path: Path) -> int:
    head = f'{{"schema_version": {schema.SCHEMA_VERSION}, "records": ['
    entries = starmap(entry_of, stream_rows(connection))
    return _write(path, map(canonical_json, entries), list_in=head)


def _csv(connection: Connection, path: Path) -> int:
    from tilewright.store.interchange.tables import EXPORTED_COLUMNS, exported

    texts = workload_texts(connection)
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(EXPORTED_COLUMNS))
        writer.writeheader()
        for measurement in _measurements(connection):
            row = exported(measurement, texts)
            writer.writerow(row | {"samples_s": canonical_json(row["samples_s"])})
            count += 1
    return count


def _parquet(connection: Connection, path: Path) -> int:
    from polars.exceptions import PolarsError

    from tilewright.store.interchange.tables import to_lazy_frame

    frame = to_lazy_frame(lambda: _measurements(connection), workload_texts(connection))
    try:
        frame.sink_parquet(path)
    except PolarsError as error:
        raise OutputError(f"{path} cannot be written: {error}.") from error
    return connection.execute(select(func.count()).select_from(schema.measurements)).scalar_one()


def _measurements(connection: Connection) -> Iterator[Measurement]:
    """All measurements, oldest first."""
    return stream_records(connection, "measurement", matching(schema.measurements))


def _autotvm(connection: Connection, path: Path) -> int:
    from tilewright.store.interchange.autotvm import log_line

    texts, devices = workload_texts(connection), device_facts(connection)
    lines = (log_line(outcome, texts, devices) for outcome in stream_outcomes(connection))
    return _write(path, map(json.dumps, lines))


def _t4(connection: Connection, path: Path) -> int:
    from tilewright.store.interchange.t4 import result_of, t4_header

    header = t4_header(workload_texts(connection), list(device_facts(connection).values()))
    results = map(json.dumps, map(result_of, stream_outcomes(connection)))
    return _write(path, results, list_in=f'{{{header}, "results": [')


def _write(path: Path, texts: Iterable[str], *, list_in: str = "") -> int:
    """Write texts as lines, or as the list that an object ends with which begins with `list_in`;
    returns how many."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(list_in)
        for count, text in enumerate(texts, start=1):
            before = ",\n" if count > 1 else "\n"
            file.write(before + text if list_in else text + "\n")
        file.write("\n]}\n" if list_in else "")
    return count


WRITERS: dict[str, Callable[[Connection, Path], int]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "json": _json,
    "parquet": _parquet,
    "autotvm": _autotvm,
    "t4": _t4,
}
"""By kind of file, what writes all that it can hold and returns the number of records."""
