"""Tables of the database. `docs/reference/database.md` describes them."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Column, Float, Index, Integer, MetaData, String, Table

APPLICATION_ID = 0x54494C57
"""`TILW`, in the header of every database of ours."""

SCHEMA_VERSION = 7

metadata = MetaData()


_text = partial(Column[str], type_=String, nullable=False)
_number = partial(Column[float], type_=Float, nullable=False)
_count = partial(Column[int], type_=Integer, nullable=False)


def _outcome_columns() -> tuple[Column[int] | Column[str] | Column[float], ...]:
    return (
        Column("id", Integer, primary_key=True),
        _text("workload_key"),
        _text("device_class"),
        _text("resources"),
        _text("implementation"),
        _text("settings"),
        _text("layouts"),
        _text("kernel_hash"),
        _text("versions"),
        _number("created_at"),
        Column("run_id", Integer),
        _text("content"),
        Column("instance", String, nullable=False, server_default=""),
        _text("binding"),
        _text("model"),
    )


def energy_columns() -> tuple[Column[float] | Column[str] | Column[int], ...]:
    """Measured energy; NULL where it was not measured, all of them where it was not asked for."""
    return (
        Column("energy_j", Float),
        Column("power_w", Float),
        Column("idle_power_w", Float),
        Column("energy_method", String),
        Column("energy_reason", String),
        Column("energy_samples_j", String),
        Column("energy_runs", Integer),
        Column("energy_window_s", Float),
    )


meta = Table("meta", metadata, Column("name", String, primary_key=True), _text("value"))

devices = Table(
    "devices",
    metadata,
    Column("class_key", String, primary_key=True),
    Column("instance", String, primary_key=True),
    _text("facts"),
)

workloads = Table("workloads", metadata, Column("key", String, primary_key=True), _text("text"))

measurements = Table(
    "measurements",
    metadata,
    *_outcome_columns(),
    _text("protocol"),
    _text("samples_s"),
    _number("build_s"),
    *energy_columns(),
    Index("measurements_by_task", "workload_key", "device_class", "resources"),
    Index("measurements_by_content", "content"),
)

failures = Table(
    "failures",
    metadata,
    *_outcome_columns(),
    _text("kind"),
    _text("message"),
    Index("failures_by_task", "workload_key", "device_class", "resources"),
    Index("failures_by_content", "content"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uid", String, nullable=False, unique=True),
    _text("command"),
    _text("model"),
    _text("network_key"),
    _text("device_class"),
    _text("resources"),
    _text("seed"),
    _text("state"),
    _number("spent_s"),
    _count("measurements"),
    _count("failures"),
    _number("created_at"),
    Index("runs_by_network", "network_key", "device_class", "resources"),
)

shipments = Table(
    "shipments",
    metadata,
    Column("id", Integer, primary_key=True),
    _text("network_key"),
    _text("device_class"),
    _text("resources"),
    _text("model"),
    _text("plan"),
    _number("latency_s"),
    _text("numbers"),
    _number("created_at"),
    _text("content"),
    Index("shipments_by_network", "network_key", "device_class", "resources"),
    Index("shipments_by_content", "content"),
)

networks = Table(
    "networks",
    metadata,
    Column("id", Integer, primary_key=True),
    _text("network_key"),
    _text("device_class"),
    _text("resources"),
    _text("model"),
    _number("latency_s"),
    _count("planned_bytes"),
    Column("measured_bytes", Integer),
    _text("memory_method"),
    *energy_columns(),
    _text("versions"),
    _number("created_at"),
    _text("instance"),
    _text("content"),
    Index("networks_by_key", "network_key", "device_class", "resources"),
    Index("networks_by_content", "content"),
)

peaks = Table(
    "peaks",
    metadata,
    Column("id", Integer, primary_key=True),
    _text("device_class"),
    _text("resources"),
    _text("name"),
    _number("value"),
    _number("created_at"),
    _text("content"),
    Index("peaks_by_name", "device_class", "resources", "name"),
    Index("peaks_by_content", "content"),
)
