"""What a store of measurements must do.

`Store` is what measuring, searching, predicting and reporting use. `Archive` is what the verbs of
`tilewright db` need beside that; a store may do without.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tilewright.core.errors import StoreError
from tilewright.core.records import (
    Device,
    Measurement,
    NetworkMeasurement,
    Outcome,
    Placement,
    PlacementKey,
    Run,
    ShippedPlan,
)
from tilewright.core.results import CleanUp, DatabaseInfo, ImportResult

if TYPE_CHECKING:
    from tilewright.graph.workload import Workload
    from tilewright.store.interchange.lines import Line


class Store(AbstractContextManager["Store"], Protocol):
    """Everything known. Every write is durable when the call returns, all of it or none.

    Several threads may use one store. All methods raise StoreError where the store cannot be read
    or written; those that write also where it was opened for reading only.
    """

    @property
    def path(self) -> Path:
        """A path of its own, which need not exist: fitted predictors and journals of `collect` lie
        beside it, with other endings."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether it was opened for reading only."""
        ...

    def close(self) -> None:
        """End its use; harmless when it is closed."""

    # Kernels

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Keep outcomes, all or none; adding the same one twice keeps both samples."""

    def outcomes(self, workload_key: str, placement: PlacementKey) -> list[Outcome]:
        """Everything known about a workload at a device class and resources, oldest first.

        Of outcomes with the same time, measurements come before failures.
        """
        ...

    def stored_measurements(
        self,
        *,
        workload_key: str | None = None,
        placement: PlacementKey | None = None,
        implementation: str | None = None,
        run_id: int | None = None,
    ) -> list[Measurement]:
        """All measurements that agree with what is given, oldest first."""
        ...

    def measured_days(self, placement: PlacementKey) -> tuple[str, str] | None:
        """The first and the last day (UTC, `2026-01-31`) of the measurements there; None where
        there is none."""
        ...

    def add_workload(self, workload: Workload) -> None:
        """Keep a workload, so that its key can be resolved later."""

    def add_workloads(self, workloads: Iterable[Workload]) -> None:
        """Keep several at once; known ones stay."""

    def workload(self, key: str) -> Workload | None:
        """The workload with this key; None when it was never added."""
        ...

    def workloads(self) -> list[Workload]:
        """All workloads that were added, less those that cannot be read."""
        ...

    # Runs and networks

    def begin_run(self, run: Run) -> Run:
        """Keep a run and return it with its id."""
        ...

    def update_run(self, run: Run) -> None:
        """Record what a run has spent so far and its state."""

    def runs(self, network_key: str, placement: PlacementKey) -> list[Run]:
        """All runs on this network at a device class and resources, oldest first."""
        ...

    def models_of_tasks(self, placement: PlacementKey) -> dict[str, set[str]]:
        """The networks that workloads were measured for: key → the measurements' `model`, that of
        their runs where they name none."""
        ...

    def ship(self, shipped: ShippedPlan) -> None:
        """Keep the plan that shipped."""

    def shipped(self, network_key: str, placement: PlacementKey) -> ShippedPlan | None:
        """What shipped last for a network at a device class and resources."""
        ...

    def all_shipped(self, placement: PlacementKey) -> list[ShippedPlan]:
        """What shipped at a device class and resources, of all networks, oldest first."""
        ...

    def add_network(self, measured: NetworkMeasurement) -> None:
        """Keep what was measured of a whole network."""

    def networks(self, network_key: str, placement: PlacementKey) -> list[NetworkMeasurement]:
        """What was measured of a whole network at a device class and resources, oldest first."""
        ...

    # Devices

    def add_device(self, device: Device) -> None:
        """Keep or replace what is known about a device of that class and instance."""

    def devices(self) -> list[Device]:
        """All devices, by class and instance."""
        ...

    def placements(self) -> list[Placement]:
        """Where peaks are known of, by class and resources: one device of each class."""
        ...

    def add_peak(self, placement: PlacementKey, name: str, value: float) -> None:
        """Keep a peak that a device class reached with these resources: `flop_per_s`, say."""

    def peak(self, placement: PlacementKey, name: str) -> float | None:
        """The newest value of a peak; None when it was never measured."""
        ...


@runtime_checkable
class Archive(Protocol):
    """What a store has that `tilewright db` can look into, copy, merge and clean."""

    def info(self) -> DatabaseInfo:
        """What it holds, without what is said of the cache: for `db info`, and for `doctor`."""
        ...

    def export(self, path: Path, kind: str | None = None) -> int:
        """Write it to a file of one of `interchange.kinds.EXPORTS`, which None tells by the ending,
        and return the number of records: for `db export`.

        Raises OutputError when it cannot be written, UsageError for an unknown kind.
        """
        ...

    def import_file(
        self,
        path: Path,
        kind: str | None = None,
        *,
        task: Workload | None = None,
        placement: Placement | None = None,
    ) -> ImportResult:
        """Take in records of a file of one of `interchange.kinds.IMPORTS`, which None guesses: for
        `db import` and `db merge`. Raises ModelError for a file that cannot be read."""
        ...

    def take_in(self, lines: Iterable[Line], path: Path, kind: str) -> ImportResult:
        """Add the records that a reader of another layer made of the file at `path`: for `db
        import`."""
        ...

    def merge(self, other: Path) -> ImportResult:
        """Take in all records of another database: for `db merge`."""
        ...

    def gc(
        self,
        *,
        keep_versions: Iterable[str] = (),
        failures_older_than_s: float | None = None,
    ) -> CleanUp:
        """Remove what is of no more use: for `db gc`."""
        ...


def archive_of(store: Store) -> Archive:
    """The same store as one that `tilewright db` can work on; raises StoreError for another."""
    if isinstance(store, Archive):
        return store
    raise StoreError(
        f"a {type(store).__name__} keeps measurements, but cannot be looked into, copied or "
        "cleaned.",
        hint="`tilewright db` needs what tilewright.store.base.Archive has; SQLite files, which "
        "--db PATH names, have it.",
    )
