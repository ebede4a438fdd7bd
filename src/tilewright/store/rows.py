"""Records to rows of the tables and back, exactly.

Values that are no scalars are kept as JSON text: integers, strings and booleans of settings come
back with their types, floats with every bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import RowMapping

from tilewright.core.codec import convert, to_builtins
from tilewright.core.errors import InternalError, StoreError
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.forms import form_texts
from tilewright.core.records import (
    Device,
    EnergyUse,
    Failure,
    Measurement,
    NetworkMeasurement,
    Outcome,
    Protocol,
    Run,
    ShippedPlan,
)
from tilewright.core.targets import Binding, Resources, parse_resources
from tilewright.store.schema import energy_columns

Row = dict[str, Any]
_LOCAL_FIELDS = ("run_id", "id", "content")
_LATER_FIELDS = ("instance", "binding", *(column.name for column in energy_columns()))
_ALONE = "neighbours"
"""A field of protocols that is left out where it is 0, so that older rows keep their hash."""


def plain(record: object) -> Row:
    """A record as nested dicts and lists."""
    return to_builtins(record)


def with_content(row: Row) -> Row:
    """Add the hash of what a row says, without ids that differ from database to database.

    An empty `instance`, `binding` or energy does not count: rows of before those columns
    keep their hash.
    """
    known = {k: v for k, v in row.items() if k not in _LOCAL_FIELDS}
    for name in _LATER_FIELDS:
        if not known.get(name):
            known.pop(name, None)
    return row | {"content": digest(canonical_json(known), length=32)}


def storable(text: str) -> str:
    """`text` with lone surrogates (undecodable bytes of a log) escaped; SQLite refuses them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def outcome_row(outcome: Outcome) -> Row:
    """Columns of `measurements` or `failures`."""
    row: Row = {
        "workload_key": storable(outcome.workload_key),
        "device_class": storable(outcome.device_class),
        "resources": str(outcome.resources),
        "implementation": storable(outcome.candidate.implementation),
        "settings": canonical_json(outcome.candidate.settings),
        "layouts": canonical_json(form_texts(outcome.candidate.forms)),
        "kernel_hash": storable(outcome.kernel_hash),
        "versions": storable(outcome.versions),
        "created_at": float(outcome.created_at),
        "run_id": outcome.run_id,
        "instance": storable(outcome.instance),
        "binding": ",".join(map(str, outcome.binding.cpus)),
    }
    if isinstance(outcome, Failure):
        row |= {"kind": outcome.kind, "message": storable(outcome.message)}
    else:
        protocol = plain(convert(plain(outcome.protocol), Protocol))
        if not protocol[_ALONE]:
            del protocol[_ALONE]
        row |= {
            "protocol": canonical_json(protocol),
            "samples_s": canonical_json([float(sample_s) for sample_s in outcome.samples_s]),
            "build_s": float(outcome.build_s),
            **energy_row(outcome.energy),
        }
    return with_content(row)


def energy_row(energy: EnergyUse | None) -> Row:
    """The columns of measured energy."""
    if energy is None:
        return dict.fromkeys((column.name for column in energy_columns()), None)
    return {
        "energy_j": energy.energy_j,
        "power_w": energy.power_w,
        "idle_power_w": energy.idle_power_w,
        "energy_method": storable(energy.method),
        "energy_reason": storable(energy.reason),
        "energy_samples_j": canonical_json([float(sample_j) for sample_j in energy.samples_j]),
        "energy_runs": energy.runs,
        "energy_window_s": float(energy.window_s),
    }


def energy(row: RowMapping) -> Row | None:
    """The fields of the measured energy, None where it was not asked for."""
    if row["energy_method"] is None:
        return None
    return {
        "energy_j": row["energy_j"],
        "power_w": row["power_w"],
        "idle_power_w": row["idle_power_w"],
        "method": row["energy_method"],
        "reason": row["energy_reason"],
        "samples_j": json.loads(row["energy_samples_j"]),
        "runs": row["energy_runs"],
        "window_s": row["energy_window_s"],
    }


class DamagedRow(StoreError):
    """A row that holds no record; the message says in which table, and why."""


@contextmanager
def _understood(table: str, row: RowMapping) -> Generator[None]:
    """Turn what is wrong with a row into `DamagedRow`."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedRow(
            f"a row of the table {table} cannot be read ({error}): {dict(row)!r:.200}"
        ) from error


def _shared_fields(row: RowMapping) -> Row:
    names = ("workload_key", "device_class", "kernel_hash", "versions", "created_at", "run_id")
    candidate = {
        "implementation": row["implementation"],
        "settings": json.loads(row["settings"]),
        "layouts": json.loads(row["layouts"]),
    }
    return {name: row[name] for name in (*names, "instance")} | {
        "candidate": candidate,
        "resources": _resources(row),
        "binding": Binding(cpus=tuple(int(cpu) for cpu in row["binding"].split(",") if cpu)),
    }


def _resources(row: RowMapping) -> Resources:
    try:
        return parse_resources(row["resources"])
    except InternalError as error:
        raise ValueError(error.message) from error


def measurement(row: RowMapping) -> Measurement:
    """The record in a row of `measurements`. Raises `DamagedRow`."""
    with _understood("measurements", row):
        known = {
            **_shared_fields(row),
            "protocol": json.loads(row["protocol"]),
            "samples_s": json.loads(row["samples_s"]),
            "build_s": row["build_s"],
            "energy": energy(row),
        }
        found = convert(known, Measurement)
        if not found.samples_s or not all(map(math.isfinite, found.samples_s)):
            raise ValueError("its samples are no finite numbers")
        return found


def failure(row: RowMapping) -> Failure:
    """The record in a row of `failures`. Raises `DamagedRow`."""
    with _understood("failures", row):
        known = {**_shared_fields(row), "kind": row["kind"], "message": row["message"]}
        return convert(known, Failure)


def network_row(measured: NetworkMeasurement) -> Row:
    """Columns of `networks`."""
    return with_content(
        {
            "network_key": storable(measured.network_key),
            "device_class": storable(measured.device_class),
            "resources": str(measured.resources),
            "model": storable(measured.model),
            "latency_s": float(measured.latency_s),
            "planned_bytes": measured.planned_bytes,
            "measured_bytes": measured.measured_bytes,
            "memory_method": storable(measured.memory_method),
            **energy_row(measured.energy),
            "versions": storable(measured.versions),
            "created_at": float(measured.created_at),
            "instance": storable(measured.instance),
        }
    )


def network(row: RowMapping) -> NetworkMeasurement:
    """The record in a row of `networks`. Raises `DamagedRow`."""
    names = ("network_key", "device_class", "model", "latency_s", "planned_bytes", "instance")
    names = (*names, "measured_bytes", "memory_method", "versions", "created_at")
    with _understood("networks", row):
        known = {name: row[name] for name in names}
        known |= {"resources": _resources(row), "energy": energy(row)}
        return convert(known, NetworkMeasurement)


def device_row(device: Device) -> Row:
    """Columns of `devices`."""
    return {
        "class_key": storable(device.class_key),
        "instance": storable(device.instance),
        "facts": canonical_json(plain(device)),
    }


def device(row: RowMapping) -> Device:
    """The record in a row of `devices`. Raises `DamagedRow`."""
    with _understood("devices", row):
        return convert(json.loads(row["facts"]), Device)


def run_row(run: Run) -> Row:
    """Columns of `runs` without id and uid. The seed is text: it may exceed 64 bits."""
    known = {k: v for k, v in plain(run).items() if k not in _LOCAL_FIELDS}
    texts = ("command", "model", "network_key", "device_class", "state")
    known |= {name: storable(known[name]) for name in texts}
    return known | {"seed": str(run.seed), "resources": str(run.resources)}


def run(row: RowMapping) -> Run:
    """The record in a row of `runs`. Raises `DamagedRow`."""
    with _understood("runs", row):
        known = {field.name: row[field.name] for field in fields(Run)}
        known |= {"seed": int(row["seed"]), "resources": _resources(row)}
        return convert(known, Run)


def shipped_row(shipped: ShippedPlan) -> Row:
    """Columns of `shipments`."""
    numbers = convert(plain(shipped.numbers), dict[str, float | None])
    return with_content(
        {
            "network_key": storable(shipped.network_key),
            "device_class": storable(shipped.device_class),
            "resources": str(shipped.resources),
            "model": storable(shipped.model),
            "plan": canonical_json(shipped.plan),
            "latency_s": float(shipped.latency_s),
            "numbers": canonical_json(numbers),
            "created_at": float(shipped.created_at),
        }
    )


def shipped(row: RowMapping) -> ShippedPlan:
    """The record in a row of `shipments`. Raises `DamagedRow`."""
    names = ("network_key", "device_class", "model", "latency_s", "created_at")
    with _understood("shipments", row):
        known = {name: row[name] for name in names} | {
            "plan": json.loads(row["plan"]),
            "numbers": json.loads(row["numbers"]),
            "resources": _resources(row),
        }
        return convert(known, ShippedPlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A measured limit of a device class with some of its resources; the unit is in the name
    (`flop_per_s`)."""

    device_class: str
    resources: Resources
    name: str
    value: float
    created_at: float


def peak(row: RowMapping) -> Peak:
    """The record in a row of `peaks`. Raises `DamagedRow`."""
    names = ("device_class", "name", "value", "created_at")
    with _understood("peaks", row):
        known = {name: row[name] for name in names} | {"resources": _resources(row)}
        return convert(known, Peak)


def peak_row(peak: Peak) -> Row:
    """Columns of `peaks`."""
    return with_content(
        {
            "device_class": storable(peak.device_class),
            "resources": str(peak.resources),
            "name": storable(peak.name),
            "value": float(peak.value),
            "created_at": float(peak.created_at),
        }
    )
