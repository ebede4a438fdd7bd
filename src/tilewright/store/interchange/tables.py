"""Reading the tables of measurements that `db export` wrote as CSV or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from tilewright.core.codec import to_builtins
from tilewright.core.errors import ModelError
from tilewright.core.records import Protocol
from tilewright.core.targets import parse_resources
from tilewright.store.interchange.foreign import text_entries
from tilewright.store.interchange.lines import (
    Json,
    Line,
    NotUnderstood,
    Source,
    finite,
    json_value,
    mapping,
    readable,
    sequence,
)
from tilewright.store.rows import parts_of, read_binding

_TEXTS = ("workload_key", "device_class", "kernel_hash", "versions")
_NEEDED = (
    *_TEXTS,
    "implementation",
    "settings",
    "layouts",
    "created_at",
    "build_s",
    *(name for name in Protocol.__dataclass_fields__ if name != "neighbours"),
    "samples_s",
)
_NUMBERS: Mapping[str, type[int] | type[float]] = {
    **dict.fromkeys(("created_at", "build_s", "sample_s", "timeout_s", "latency_s"), float),
    **dict.fromkeys(("energy_j", "power_w", "idle_power_w", "energy_window_s"), float),
    **dict.fromkeys(("warmup", "repeats", "rotation_bytes", "neighbours", "samples"), int),
    "energy_runs": int,
}
"""Columns that hold numbers; tables of earlier versions do not have those of energy."""
_LARGEST_CELL = 1 << 24


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
                yield _line(start, _of_csv(row))
                start = reader.line_num + 1
        except csv.Error as error:
            yield Line(number=start, reason=f"not a row of a CSV file: {error}")


def read_parquet(source: Source) -> Iterator[Line]:
    """The rows of a Parquet file, numbered from 1."""
    import polars
    from polars.exceptions import PolarsError

    try:
        with readable(source.path):
            frame = polars.read_parquet(source.path)
    except PolarsError as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{source.path} is no Parquet file that can be read: {reason}.") from error
    _check_columns(source, frame.columns)
    for number, row in enumerate(frame.iter_rows(named=True), start=1):
        yield _line(number, row)


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
    cells = dict(row) | {name: _number(row.get(name), kind) for name, kind in _NUMBERS.items()}
    for name in ("workload", "energy_method", "energy_samples_j"):
        cells[name] = row.get(name) or None
    cells["samples_s"] = json_value(row.get("samples_s") or "")
    return cells


def _number(cell: object, kind: type[int] | type[float]) -> int | float | None:
    try:
        return kind(cell) if isinstance(cell, str) and cell else None
    except ValueError:
        return None


def _line(number: int, row: Mapping[str, Any]) -> Line:
    try:
        record = _record(row)
        support = text_entries(record["workload_key"], row.get("workload"))
    except NotUnderstood as error:
        return Line(number=number, reason=str(error))
    return Line(number=number, record=record, support=support)


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
        samples_j = _parsed(row.get("energy_samples_j"), "energy_samples_j")
        known["energy_samples_j"] = _numbers(samples_j, "energy_samples_j")
        known["energy_reason"] = row.get("energy_reason") or ""
    return {
        "record": "measurement",
        **{name: row[name] for name in (*_TEXTS, "build_s", "created_at")},
        **parts_of(known),
        "protocol": _protocol(row),
        "samples_s": samples_s,
        "run_id": None,
        "instance": row.get("instance") or "",
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
    """The protocol's columns; older files do not say that nothing ran beside the kernel."""
    found = {name: row.get(name) for name in Protocol.__dataclass_fields__}
    return found | {"neighbours": found["neighbours"] or 0}


def _parsed(text: object, what: str) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        raise NotUnderstood(f"{what} is no JSON") from None
