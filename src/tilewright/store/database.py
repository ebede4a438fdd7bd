"""The store: records in, records out."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Iterable

from sqlalchemy import func, insert, select, update
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
from tilewright.core.targets import parse_resources
from tilewright.graph.workload import Workload, parse_workload
from tilewright.store import archive, schema
from tilewright.store.rows import (
    TABLES,
    Peak,
    R,
    device_facts,
    matching,
    record_of,
    row_of,
    stream_records,
    workload_texts,
)


class SqliteStore(archive.SqliteArchive):
    """Everything known, in one SQLite file; a `Store` and an `Archive`.

    Every write is one transaction and durable when the call returns. Several processes may use
    the same file, and several threads the same store. All methods raise `StoreError` when the
    database cannot be read or written.
    """

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Keep outcomes, all or none; adding the same one twice keeps both samples."""
        found = list(outcomes)
        bad = [row_of(outcome) for outcome in found if isinstance(outcome, Failure)]
        good = [row_of(outcome) for outcome in found if isinstance(outcome, Measurement)]
        if not found:
            return
        doing = f"adding {len(good)} measurements and {len(bad)} failures"
        with self._connections.writing(doing) as connection:
            for table, new in ((schema.measurements, good), (schema.failures, bad)):
                if new:
                    connection.execute(insert(table), new)

    def outcomes(self, workload_key: str, placement: PlacementKey) -> list[Outcome]:
        """Everything known about a workload at a device class and resources, oldest first.

        Of outcomes with the same time, measurements come before failures.
        """
        with self._connections.reading() as connection:
            known: list[Outcome] = [
                outcome
                for kind in (Measurement, Failure)
                for outcome in stream_records(
                    connection,
                    kind,
                    matching(TABLES[kind], placement, workload_key=workload_key),
                )
            ]
        return sorted(known, key=lambda outcome: outcome.created_at)

    def stored_measurements(
        self,
        *,
        workload_key: str | None = None,
        placement: PlacementKey | None = None,
        implementation: str | None = None,
        run_id: int | None = None,
    ) -> list[Measurement]:
        """All measurements that agree with what is given, oldest first."""
        return self._all(
            Measurement,
            placement,
            workload_key=workload_key,
            implementation=implementation,
            run_id=run_id,
        )

    def begin_run(self, run: Run) -> Run:
        """Open a run row and return it with its id."""
        query = insert(schema.runs).returning(schema.runs)
        with self._connections.writing("opening a run") as connection:
            added = connection.execute(query, row_of(run) | {"uid": uuid.uuid4().hex})
            return record_of(Run, added.mappings().one())

    def update_run(self, run: Run) -> None:
        """Record what a run has spent so far and its state."""
        if run.id is None:
            raise InternalError("update_run needs a run that begin_run returned")
        query = update(schema.runs).where(schema.runs.c.id == run.id).values(**row_of(run))
        with self._connections.writing("updating a run") as connection:
            if connection.execute(query).rowcount == 0:
                raise StoreError(f"{self.path} holds no run {run.id}; was it replaced meanwhile?")

    def runs(self, network_key: str, placement: PlacementKey) -> list[Run]:
        """All runs on this network at a device class and resources, oldest first."""
        return self._all(Run, placement, network_key=network_key)

    def measured_days(self, placement: PlacementKey) -> tuple[str, str] | None:
        """The first and the last day of the measurements there; None where there is none."""
        created_at = schema.measurements.c.created_at
        query = (
            matching(schema.measurements, placement)
            .order_by(None)
            .with_only_columns(func.min(created_at), func.max(created_at))
        )
        with self._connections.reading() as connection:
            first, last = connection.execute(query).one()
        return None if first is None else (_day(first), _day(last))

    def models_of_tasks(self, placement: PlacementKey) -> dict[str, set[str]]:
        """The networks that workloads were measured for: key → the measurements' `model`, that of
        their runs where they name none."""
        measured, runs = schema.measurements.c, schema.runs
        model = func.coalesce(func.nullif(measured.model, ""), runs.c.model)
        query = (
            matching(schema.measurements, placement)
            .order_by(None)
            .outerjoin(runs, measured.run_id == runs.c.id)
            .distinct()
            .with_only_columns(measured.workload_key, model)
            .where(model.is_not(None))
        )
        found: dict[str, set[str]] = {}
        with self._connections.reading() as connection:
            for key, model in connection.execute(query):
                found.setdefault(key, set()).add(model)
        return found

    def ship(self, shipped: ShippedPlan) -> None:
        """Keep the plan that shipped."""
        self._keep(shipped, "keeping what shipped")

    def shipped(self, network_key: str, placement: PlacementKey) -> ShippedPlan | None:
        """What shipped last for a network for a device class and resources."""
        return self._newest(ShippedPlan, placement, network_key=network_key)

    def all_shipped(self, placement: PlacementKey) -> list[ShippedPlan]:
        """What shipped for a device class and resources, of all networks, oldest first."""
        return self._all(ShippedPlan, placement)

    def add_network(self, measured: NetworkMeasurement) -> None:
        """Keep what was measured of a whole network."""
        self._keep(measured, "keeping a network's measurement")

    def networks(self, network_key: str, placement: PlacementKey) -> list[NetworkMeasurement]:
        """What was measured of a whole network at a device class and resources, oldest first."""
        return self._all(NetworkMeasurement, placement, network_key=network_key)

    def add_device(self, device: Device) -> None:
        """Keep or replace what is known about a device."""
        query = upsert(schema.devices).values(row_of(device))
        query = query.on_conflict_do_update(
            index_elements=["class_key", "instance"], set_={"facts": query.excluded.facts}
        )
        with self._connections.writing("adding a device") as connection:
            connection.execute(query)

    def devices(self) -> list[Device]:
        """All devices, by class and instance."""
        query = select(schema.devices).order_by("class_key", "instance")
        with self._connections.reading() as connection:
            return list(stream_records(connection, Device, query))

    def placements(self) -> list[Placement]:
        """Where peaks are known of, by class and resources: one device of each class."""
        named = schema.peaks.c.device_class, schema.peaks.c.resources
        query = select(*named).distinct().order_by(*named)
        with self._connections.reading() as connection:
            known = device_facts(connection)
            return [
                Placement(device=known[name], resources=parse_resources(resources))
                for name, resources in connection.execute(query)
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
        query = select(schema.workloads.c.text).filter_by(key=key)
        with self._connections.reading() as connection:
            text = connection.execute(query).scalar_one_or_none()
        return None if text is None else parse_workload(text)

    def workloads(self) -> list[Workload]:
        """All workloads that were added, less those whose text cannot be read."""
        from tilewright.store.interchange.foreign import readable_workloads

        with self._connections.reading() as connection:
            return readable_workloads(workload_texts(connection).values())

    def add_peak(self, placement: PlacementKey, name: str, value: float) -> None:
        """Keep a peak that a device class reached with these resources: `flop_per_s`, say."""
        self._keep(
            Peak(
                device_class=placement.device_class,
                resources=placement.resources,
                name=name,
                value=value,
                created_at=time.time(),
            ),
            "adding a peak",
        )

    def peak(self, placement: PlacementKey, name: str) -> float | None:
        """The newest value of a peak; None when it was never measured."""
        found = self._newest(Peak, placement, name=name)
        return None if found is None else found.value

    def _keep(self, record: ShippedPlan | NetworkMeasurement | Peak, doing: str) -> None:
        with self._connections.writing(doing) as connection:
            connection.execute(insert(TABLES[type(record)]), row_of(record))

    def _all(self, kind: type[R], placement: PlacementKey | None, **wanted: object) -> list[R]:
        """The records of a kind that agree with what is given, oldest first."""
        query = matching(TABLES[kind], placement, **wanted)
        with self._connections.reading() as connection:
            return list(stream_records(connection, kind, query))

    def _newest(self, kind: type[R], placement: PlacementKey, **wanted: object) -> R | None:
        """The last of them; None where there is none."""
        table = TABLES[kind]
        query = (
            matching(table, placement, **wanted)
            .order_by(None)
            .order_by(table.c.created_at.desc(), table.c.id.desc())
            .limit(1)
        )
        with self._connections.reading() as connection:
            return next(stream_records(connection, kind, query), None)


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
