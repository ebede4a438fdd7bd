"""The store: records in, records out."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, RowMapping, Table, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from tilewright.core.errors import InternalError, StoreError
from tilewright.core.records import (
    Device,
    Failure,
    Measurement,
    NetworkMeasurement,
    Outcome,
    Placement,
    PlacementKey,
    Run,
    ShippedPlan,
)
from tilewright.core.results import ImportResult
from tilewright.core.targets import parse_resources
from tilewright.store import rows, schema, transfer, upkeep
from tilewright.store.base import DatabaseInfo, Removed
from tilewright.store.connections import Connections
from tilewright.store.entries import device_facts, workload_texts
from tilewright.store.interchange.lines import Line, Source
from tilewright.store.selection import at, select_measurements

if TYPE_CHECKING:
    from tilewright.graph.workload import Workload

_Record = TypeVar("_Record")


class SqliteStore:
    """Everything known, in one SQLite file; a `Store` and an `Archive`.

    Every write is one transaction and durable when the call returns. Several processes may use
    the same file, and several threads the same store. All methods raise `StoreError` when the
    database cannot be read or written.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the write-ahead log is folded into it when nobody else has it open."""
        self._connections.close()

    @property
    def path(self) -> Path:
        """The database file."""
        return self._connections.path

    @property
    def readonly(self) -> bool:
        """Whether it was opened for reading only."""
        return self._connections.readonly

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Keep outcomes, all or none; adding the same one twice keeps both samples."""
        good: list[rows.Row] = []
        bad: list[rows.Row] = []
        for outcome in outcomes:
            (bad if isinstance(outcome, Failure) else good).append(rows.outcome_row(outcome))
        if not good and not bad:
            return
        doing = f"adding {len(good)} measurements and {len(bad)} failures"
        with self._connections.writing(doing) as connection:
            if good:
                connection.execute(insert(schema.measurements), good)
            if bad:
                connection.execute(insert(schema.failures), bad)

    def outcomes(self, workload_key: str, placement: PlacementKey) -> list[Outcome]:
        """Everything known about a workload at a device class and resources, oldest first.

        Of outcomes with the same time, measurements come before failures.
        """
        with self._connections.reading() as connection:
            known: list[Outcome] = [
                *_of_task(connection, schema.measurements, workload_key, placement),
                *_of_task(connection, schema.failures, workload_key, placement),
            ]
        return sorted(known, key=lambda outcome: outcome.created_at)

    def measurements(self, workload_key: str, placement: PlacementKey) -> list[Measurement]:
        """The successes only, oldest first."""
        return self.stored_measurements(workload_key=workload_key, placement=placement)

    def failures(self, workload_key: str, placement: PlacementKey) -> list[Failure]:
        """The failures only, oldest first."""
        with self._connections.reading() as connection:
            return _of_task(connection, schema.failures, workload_key, placement)

    def stored_measurements(
        self,
        *,
        workload_key: str | None = None,
        placement: PlacementKey | None = None,
        implementation: str | None = None,
        run_id: int | None = None,
    ) -> list[Measurement]:
        """All measurements that agree with what is given, oldest first."""
        query = select_measurements(
            workload_key=workload_key,
            placement=placement,
            implementation=implementation,
            run_id=run_id,
        )
        with self._connections.reading() as connection:
            return [rows.measurement(row) for row in connection.execute(query).mappings()]

    def begin_run(self, run: Run) -> Run:
        """Open a run row and return it with its id."""
        row = rows.run_row(run) | {"uid": uuid.uuid4().hex}
        with self._connections.writing("opening a run") as connection:
            result = connection.execute(insert(schema.runs), row)
            row_id = result.inserted_primary_key[0] if result.inserted_primary_key else None
            stored = connection.execute(select(schema.runs).where(schema.runs.c.id == row_id))
            return rows.run(stored.mappings().one())

    def update_run(self, run: Run) -> None:
        """Record what a run has spent so far and its state."""
        if run.id is None:
            raise InternalError("update_run needs a run that begin_run returned")
        query = update(schema.runs).where(schema.runs.c.id == run.id).values(**rows.run_row(run))
        with self._connections.writing("updating a run") as connection:
            if connection.execute(query).rowcount == 0:
                raise StoreError(f"{self.path} holds no run {run.id}; was it replaced meanwhile?")

    def runs(self, network_key: str, placement: PlacementKey) -> list[Run]:
        """All runs on this network at a device class and resources, oldest first."""
        table = schema.runs
        query = select(table).where(table.c.network_key == network_key, at(table, placement))
        return self._all(query.order_by(table.c.created_at, table.c.id), rows.run)

    def measured_days(self, placement: PlacementKey) -> tuple[str, str] | None:
        """The first and the last day of the measurements there; None where there is none."""
        table = schema.measurements
        query = select(func.min(table.c.created_at), func.max(table.c.created_at)).where(
            at(table, placement)
        )
        with self._connections.reading() as connection:
            first, last = connection.execute(query).one()
        return None if first is None else (_day(first), _day(last))

    def models_of_tasks(self, placement: PlacementKey) -> dict[str, set[str]]:
        """What runs were about, by the workloads that they measured: key → the runs' `model`."""
        table, known = schema.measurements, schema.runs
        query = select(table.c.workload_key, known.c.model).distinct()
        query = query.join(known, table.c.run_id == known.c.id)
        found: dict[str, set[str]] = {}
        with self._connections.reading() as connection:
            for key, model in connection.execute(query.where(at(table, placement))):
                found.setdefault(key, set()).add(model)
        return found

    def ship(self, shipped: ShippedPlan) -> None:
        """Keep the plan that shipped."""
        with self._connections.writing("keeping what shipped") as connection:
            connection.execute(insert(schema.shipments), rows.shipped_row(shipped))

    def shipped(self, network_key: str, placement: PlacementKey) -> ShippedPlan | None:
        """What shipped last for a network for a device class and resources."""
        table = schema.shipments
        query = select(table).where(table.c.network_key == network_key, at(table, placement))
        query = query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(1)
        return next(iter(self._all(query, rows.shipped)), None)

    def all_shipped(self, placement: PlacementKey) -> list[ShippedPlan]:
        """What shipped for a device class and resources, of all networks, oldest first."""
        table = schema.shipments
        query = select(table).where(at(table, placement)).order_by(table.c.id)
        return self._all(query, rows.shipped)

    def add_network(self, measured: NetworkMeasurement) -> None:
        """Keep what was measured of a whole network."""
        with self._connections.writing("keeping a network's measurement") as connection:
            connection.execute(insert(schema.networks), rows.network_row(measured))

    def networks(self, network_key: str, placement: PlacementKey) -> list[NetworkMeasurement]:
        """What was measured of a whole network at a device class and resources, oldest first."""
        table = schema.networks
        query = select(table).where(table.c.network_key == network_key, at(table, placement))
        return self._all(query.order_by(table.c.created_at, table.c.id), rows.network)

    def add_device(self, device: Device) -> None:
        """Keep or replace what is known about a device."""
        row = rows.device_row(device)
        query = upsert(schema.devices).values(row)
        query = query.on_conflict_do_update(
            index_elements=["class_key", "instance"], set_={"facts": row["facts"]}
        )
        with self._connections.writing("adding a device") as connection:
            connection.execute(query)

    def devices(self) -> list[Device]:
        """All devices, by class and instance."""
        table = schema.devices
        return self._all(select(table).order_by(table.c.class_key, table.c.instance), rows.device)

    def placements(self) -> list[Placement]:
        """Where peaks are known of, by class and resources: one device of each class."""
        table = schema.peaks
        query = select(table.c.device_class, table.c.resources).distinct()
        with self._connections.reading() as connection:
            known = device_facts(connection)
            found = sorted((row[0], row[1]) for row in connection.execute(query))
        return [
            Placement(device=known[name], resources=parse_resources(resources))
            for name, resources in found
            if name in known
        ]

    def add_workload(self, workload: Workload) -> None:
        """Keep a workload's text so that its key can be resolved later."""
        self.add_workloads([workload])

    def add_workloads(self, workloads: Iterable[Workload]) -> None:
        """Keep several workloads in one transaction; known ones stay."""
        texts = [{"key": w.key, "text": w.text} for w in workloads]
        if not texts:
            return
        with self._connections.writing(f"adding {len(texts)} workloads") as connection:
            connection.execute(upsert(schema.workloads).on_conflict_do_nothing(), texts)

    def workload(self, key: str) -> Workload | None:
        """Rebuild a workload from its key; None when it was never added."""
        from tilewright.graph.workload import parse_workload

        query = select(schema.workloads.c.text).where(schema.workloads.c.key == key)
        with self._connections.reading() as connection:
            text: str | None = connection.execute(query).scalar_one_or_none()
        return None if text is None else parse_workload(text)

    def workloads(self) -> list[Workload]:
        """All workloads that were added, less those whose text cannot be read."""
        from tilewright.store.interchange.tasks import readable_workloads

        with self._connections.reading() as connection:
            return readable_workloads(workload_texts(connection).values())

    def add_peak(self, placement: PlacementKey, name: str, value: float) -> None:
        """Keep a peak that a device class reached with these resources: `flop_per_s`, say."""
        peak = rows.Peak(
            device_class=placement.device_class,
            resources=placement.resources,
            name=name,
            value=value,
            created_at=time.time(),
        )
        with self._connections.writing("adding a peak") as connection:
            connection.execute(insert(schema.peaks), rows.peak_row(peak))

    def peak(self, placement: PlacementKey, name: str) -> float | None:
        """The newest value of a peak; None when it was never measured."""
        table = schema.peaks
        query = select(table).where(at(table, placement), table.c.name == name)
        query = query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(1)
        return next((found.value for found in self._all(query, rows.peak)), None)

    def info(self) -> DatabaseInfo:
        """What the database holds."""
        return upkeep.info(self._connections)

    def export(self, path: Path, kind: str | None = None) -> int:
        """Write the database to `path` and return the number of records written.

        `jsonl` and `json` hold everything, `autotvm` and `t4` all outcomes, `csv` and `parquet`
        a table of the measurements; None goes by the ending of the name. The file appears complete
        or not at all. Raises `OutputError` when it cannot be written, `UsageError` for an unknown
        kind.
        """
        return transfer.export(self._connections, path, kind)

    def import_file(
        self,
        path: Path,
        kind: str | None = None,
        *,
        task: Workload | None = None,
        placement: Placement | None = None,
    ) -> ImportResult:
        """Take in records of a file of one of `interchange.kinds.IMPORTS`; None guesses the kind.

        Known records stay single, records keep their own device class and resources. What cannot be
        taken in is listed line by line. `task` and `placement` are what a log is about that does
        not say so itself. Raises `ModelError` for a file that cannot be read or is of another kind.
        """
        source = Source(path=path, task=task, placement=placement)
        return transfer.import_file(self._connections, source, kind)

    def take_in(self, lines: Iterable[Line], path: Path, kind: str) -> ImportResult:
        """Take in what a reader of another layer made of the file at `path`."""
        return transfer.take_in(self._connections, path, lines, kind=kind)

    def merge(self, other: Path) -> ImportResult:
        """Take in all records of another database."""
        return transfer.merge(self._connections, other)

    def gc(
        self,
        *,
        keep_versions: Iterable[str] = (),
        failures_older_than_s: float | None = None,
    ) -> Removed:
        """Remove what is of no more use and shrink the file.

        A measurement goes when its candidate was measured later with another kernel hash, unless
        its `versions` are among `keep_versions`; failures go when they are older than given.
        """
        return upkeep.collect_garbage(
            self._connections, frozenset(keep_versions), failures_older_than_s
        )

    def _all(self, query: Any, read: Callable[[RowMapping], _Record]) -> list[_Record]:
        with self._connections.reading() as connection:
            return [read(row) for row in connection.execute(query).mappings()]


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()


def _of_task(
    connection: Connection, table: Table, workload_key: str, placement: PlacementKey
) -> list[Any]:
    query = select(table).where(table.c.workload_key == workload_key, at(table, placement))
    read = rows.failure if table is schema.failures else rows.measurement
    query = query.order_by(table.c.created_at, table.c.id)
    return [read(row) for row in connection.execute(query).mappings()]
