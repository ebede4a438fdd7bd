"""Measurements as a table, one row each and one column per scalar.

It is a frame, or the file that `db export` writes as CSV or Parquet.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import polars
from polars.exceptions import PolarsError
from polars.io.plugins import register_io_source
from sqlalchemy import Connection, func, select

from tilewright.core.codec import canonical_json, to_builtins
from tilewright.core.errors import ModelError, OutputError
from tilewright.core.input_files import readable
from tilewright.core.records import Measurement, Protocol
from tilewright.core.targets import parse_resources
from tilewright.store import schema
from tilewright.store.interchange.foreign import text_entries
from tilewright.store.interchange.lines import (
    Json,
    Line,
    NotUnderstood,
    Source,
    finite,
    json_value,
    mapping,
    sequence,
    understood,
)
from tilewright.store.rows import (
    BATCH_ROWS,
    columns_of,
    matching,
    parts_of,
    read_binding,
    stream_records,
    workload_texts,
)

COLUMNS = {
    "workload_key": polars.String,
    "device_class": polars.String,
    "resources": polars.String,
    "implementation": polars.String,
    "settings": polars.String,
    "layouts": polars.String,
    "kernel_hash": polars.String,
    "versions": polars.String,
    "created_at": polars.Float64,
    "run_id": polars.Int64,
    "instance": polars.String,
    "binding": polars.String,
    "model": polars.String,
    "build_s": polars.Float64,
    "warmup": polars.Int64,
    "repeats": polars.Int64,
    "sample_s": polars.Float64,
    "rotation_bytes": polars.Int64,
    "activations": polars.String,
    "timeout_s": polars.Float64,
    "neighbours": polars.Int64,
    "held": polars.String,
    "samples": polars.Int64,
    "samples_s": polars.List(polars.Float64),
    "minimum_s": polars.Float64,
    "latency_s": polars.Float64,
    "energy_j": polars.Float64,
    "power_w": polars.Float64,
    "idle_power_w": polars.Float64,
    "energy_method": polars.String,
    "energy_reason": polars.String,
    "energy_samples_j": polars.String,
    "energy_runs": polars.Int64,
    "energy_window_s": polars.Float64,
}
"""`settings` is a JSON object, `layouts` a JSON list; `samples_s` the raw samples, `samples` their
number; the columns from `warmup` to `held` are the protocol's, those from `energy_j` on the
measured energy of a call, null where it was not measured; `energy_samples_j` is a JSON list."""

EXPORTED_COLUMNS = COLUMNS | {"workload": polars.String}
"""What a file holds besides: the workload's text, so that the row means something elsewhere."""

_SPECIAL = {"neighbours": 0, "held": ""}
"""What of a protocol is usually nothing, which older files do not have."""
_TEXTS = ("workload_key", "device_class", "kernel_hash", "versions")
_NEEDED = (
    *_TEXTS,
    "implementation",
    "settings",
    "layouts",
    "created_at",
    "build_s",
    *(name for name in Protocol.__dataclass_fields__ if name not in _SPECIAL),
    "samples_s",
)
_NUMBERS = {
    name: float if kind == polars.Float64 else int
    for name, kind in COLUMNS.items()
    if kind in (polars.Float64, polars.Int64)
}
"""Columns that hold numbers; tables of earlier versions do not have those of energy."""
_LARGEST_CELL = 1 << 24


def flat(measurement: Measurement) -> dict[str, Any]:
    """One row."""
    samples_s = measurement.samples_s
    values = {
        **columns_of(measurement),
        **asdict(measurement.protocol),
        "settings": canonical_json(dict(measurement.candidate.settings)),
        "samples": len(samples_s),
        "samples_s": list(samples_s),
        "minimum_s": min(samples_s, default=None),
        "latency_s": measurement.latency_s if samples_s else None,
    }
    return {name: values[name] for name in COLUMNS}


def exported(measurement: Measurement, texts: Mapping[str, str]) -> dict[str, Any]:
    """One row of a file; `texts` are the workloads' texts by key."""
    return flat(measurement) | {"workload": texts.get(measurement.workload_key)}


def to_frame(measurements: Iterable[Measurement]) -> polars.DataFrame:
    """The frame of `measurements`, with all columns also when there are none."""
    return polars.DataFrame([flat(m) for m in measurements], schema=COLUMNS, orient="row")


def to_lazy_frame(
    measurements: Callable[[], Iterator[Measurement]], texts: Mapping[str, str]
) -> polars.LazyFrame:
    """A lazy frame of exported rows that asks for one batch after the other when written."""

    def source(*_asked: object) -> Iterator[polars.DataFrame]:
        found = measurements()
        while batch := [exported(each, texts) for each in islice(found, BATCH_ROWS)]:
            yield polars.DataFrame(batch, schema=EXPORTED_COLUMNS, orient="row")

    return register_io_source(source, schema=EXPORTED_COLUMNS)


def write_csv(connection: Connection, path: Path) -> int:
    """Write all measurements of a database; returns how many."""
    texts, count = workload_texts(connection), 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(EXPORTED_COLUMNS))
        writer.writeheader()
        for measurement in _measurements(connection):
            row = exported(measurement, texts)
            writer.writerow(row | {"samples_s": canonical_json(row["samples_s"])})
            count += 1
    return count


def write_parquet(connection: Connection, path: Path) -> int:
    """The same as Parquet. Raises OutputError where it cannot be written."""
    frame = to_lazy_frame(lambda: _measurements(connection), workload_texts(connection))
    try:
        frame.sink_parquet(path)
    except PolarsError as error:
        raise OutputError(f"{path} cannot be written: {error}.") from error
    return connection.execute(select(func.count()).select_from(schema.measurements)).scalar_one()


def _measurements(connection: Connection) -> Iterator[Measurement]:
    """All measurements, oldest first."""
    return stream_records(connection, Measurement, matching(schema.measurements))


def read_csv(source: Source) -> Iterator[Line]:
    """The rows of a CSV file, numbered by the line they begin on."""
    csv.field_size_limit(_LARGEST_CELL)
    with (
        readable(source.path),
        source.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file,
    ):
        reader = csv.DictReader(file)
        _check_columns(source, list(reader.fieldnames or ()))
        start = reader.line_num + 1
        try:
            for row in reader:
                yield from understood([(start, _of_csv(row))], _line)
                start = reader.line_num + 1
        except csv.Error as error:
            yield Line(number=start, reason=f"not a row of a CSV file: {error}")


def read_parquet(source: Source) -> Iterator[Line]:
    """The rows of a Parquet file, numbered from 1."""
    try:
        with readable(source.path):
            frame = polars.read_parquet(source.path)
    except PolarsError as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{source.path} is no Parquet file that can be read: {reason}.") from error
    _check_columns(source, frame.columns)
    yield from understood(enumerate(frame.iter_rows(named=True), start=1), _line)


def _check_columns(source: Source, columns: list[str]) -> None:
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise ModelError(
            f"{source.path} is no table of measurements: it has no column {', '.join(missing)}. "
            "Nothing was imported.",
            hint="`tilewright db export FILE.csv` writes one that can be imported.",
        )


def _of_csv(row: Mapping[Any, Any]) -> Json:
    """A row with its cells read as numbers where columns hold some."""
    texts = ("workload", "energy_method", "energy_samples_j")
    return {
        **row,
        **{name: _number(row.get(name), kind) for name, kind in _NUMBERS.items()},
        **{name: row.get(name) or None for name in texts},
        "samples_s": json_value(row.get("samples_s") or ""),
    }


def _number(cell: object, kind: type[int] | type[float]) -> int | float | None:
    try:
        return kind(cell) if isinstance(cell, str) and cell else None
    except ValueError:
        return None


def _line(number: int, row: Json) -> Line:
    support = text_entries(row.get("workload_key"), row.get("workload"))
    return Line(number=number, record=_record(row), support=support)


def _record(row: Mapping[str, Any]) -> Json:
    empty = [name for name in _NEEDED if row.get(name) is None]
    if empty:
        raise NotUnderstood(
            f"no value that can be read in {', '.join(empty)}; is the file cut short?"
        )
    samples_s = _numbers(row["samples_s"], "samples_s")
    if not samples_s:
        raise NotUnderstood("a measurement needs samples")
    if row.get("latency_s") != median(samples_s) or row.get("samples") != len(samples_s):
        raise NotUnderstood("the samples do not fit their median; is the file cut short?")
    known = {
        **row,
        "settings": sorted(mapping(_parsed(row["settings"], "settings"), "settings").items()),
        "layouts": sequence(_parsed(row["layouts"], "layouts"), "layouts"),
    }
    if row.get("energy_method") is not None:
        name = "energy_samples_j"
        known[name] = _numbers(_parsed(row.get(name), name), name)
        known["energy_reason"] = row.get("energy_reason") or ""
    return {
        "record": "measurement",
        **{name: row[name] for name in (*_TEXTS, "build_s", "created_at")},
        **parts_of(known),
        "protocol": _protocol(row),
        "samples_s": samples_s,
        "run_id": None,
        "instance": row.get("instance") or "",
        "model": row.get("model") or "",
        **_placement(row),
    }


def _numbers(values: object, what: str) -> list[float]:
    return [finite(value, what) for value in sequence(values, what)]


def _placement(row: Mapping[str, Any]) -> Json:
    """Resources and cores; tables of earlier versions have the threads in the device class."""
    if not row.get("resources"):
        return {}
    try:
        resources = parse_resources(str(row["resources"]))
        binding = read_binding(str(row.get("binding") or ""))
    except ValueError:
        raise NotUnderstood(f"resources {row['resources']!r:.40} cannot be read") from None
    return {"resources": to_builtins(resources), "binding": to_builtins(binding)}


def _protocol(row: Mapping[str, Any]) -> Json:
    """The protocol's columns; older files do not say that nothing ran beside the kernel, nor that
    no control was held."""
    found = {name: row.get(name) for name in Protocol.__dataclass_fields__}
    return found | {name: found[name] or usual for name, usual in _SPECIAL.items()}


def _parsed(text: object, what: str) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        raise NotUnderstood(f"{what} is no JSON") from None
