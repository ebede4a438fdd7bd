"""Measurements as a table: one row each, one column per scalar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

import polars

from tilewright.core.fingerprints import canonical_json
from tilewright.core.records import Measurement
from tilewright.store.rows import columns_of

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
    "build_s": polars.Float64,
    "warmup": polars.Int64,
    "repeats": polars.Int64,
    "sample_s": polars.Float64,
    "rotation_bytes": polars.Int64,
    "activations": polars.String,
    "timeout_s": polars.Float64,
    "neighbours": polars.Int64,
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
number; the columns from `warmup` to `neighbours` are the protocol's, those from `energy_j` on the
measured energy of a call, null where it was not measured; `energy_samples_j` is a JSON list."""

_BATCH_ROWS = 500
EXPORTED_COLUMNS = COLUMNS | {"workload": polars.String}
"""What a file holds besides: the workload's text, so that the row means something elsewhere."""


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
    from polars.io.plugins import register_io_source

    def source(*_asked: object) -> Iterator[polars.DataFrame]:
        found = measurements()
        while batch := [exported(each, texts) for each in islice(found, _BATCH_ROWS)]:
            yield polars.DataFrame(batch, schema=EXPORTED_COLUMNS, orient="row")

    return register_io_source(source, schema=EXPORTED_COLUMNS)
