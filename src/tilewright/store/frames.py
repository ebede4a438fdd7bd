"""Measurements as a table: one row each, one column per scalar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import polars

from tilewright.core.fingerprints import canonical_json
from tilewright.core.forms import form_texts
from tilewright.core.records import Measurement
from tilewright.store.rows import energy_row

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


EXPORTED_COLUMNS = COLUMNS | {"workload": polars.String}
"""What a file holds besides: the workload's text, so that the row means something elsewhere."""


def flat(measurement: Measurement) -> dict[str, Any]:
    """One row."""
    candidate, protocol = measurement.candidate, measurement.protocol
    samples_s = measurement.samples_s
    return {
        "workload_key": measurement.workload_key,
        "device_class": measurement.device_class,
        "resources": str(measurement.resources),
        "implementation": candidate.implementation,
        "settings": canonical_json(dict(candidate.settings)),
        "layouts": canonical_json(form_texts(candidate.forms)),
        "kernel_hash": measurement.kernel_hash,
        "versions": measurement.versions,
        "created_at": measurement.created_at,
        "run_id": measurement.run_id,
        "instance": measurement.instance,
        "binding": ",".join(map(str, measurement.binding.cpus)),
        "build_s": measurement.build_s,
        "warmup": protocol.warmup,
        "repeats": protocol.repeats,
        "sample_s": protocol.sample_s,
        "rotation_bytes": protocol.rotation_bytes,
        "activations": protocol.activations,
        "timeout_s": protocol.timeout_s,
        "neighbours": protocol.neighbours,
        "samples": len(samples_s),
        "samples_s": list(samples_s),
        "minimum_s": min(samples_s, default=None),
        "latency_s": measurement.latency_s if samples_s else None,
        **energy_row(measurement.energy),
    }


def exported(measurement: Measurement, texts: Mapping[str, str]) -> dict[str, Any]:
    """One row of a file; `texts` are the workloads' texts by key."""
    return flat(measurement) | {"workload": texts.get(measurement.workload_key)}


def to_frame(measurements: Iterable[Measurement]) -> polars.DataFrame:
    """The frame of `measurements`, with all columns also when there are none."""
    return polars.DataFrame([flat(m) for m in measurements], schema=COLUMNS, orient="row")


def to_lazy_frame(
    batches: Callable[[], Iterator[list[Measurement]]], texts: Mapping[str, str]
) -> polars.LazyFrame:
    """A lazy frame of exported rows that asks for one batch after the other when written."""
    from polars.io.plugins import register_io_source

    def source(
        _columns: list[str] | None,
        _predicate: polars.Expr | None,
        _rows: int | None,
        _batch_rows: int | None,
    ) -> Iterator[polars.DataFrame]:
        return (
            polars.DataFrame(
                [exported(m, texts) for m in batch], schema=EXPORTED_COLUMNS, orient="row"
            )
            for batch in batches()
        )

    return register_io_source(source, schema=EXPORTED_COLUMNS)
