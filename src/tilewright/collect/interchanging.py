"""Records that come from files and go to files, whichever program reads or wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.core.codec import to_builtins
from tilewright.core.errors import StoreError, UsageError
from tilewright.core.records import Placement
from tilewright.core.results import ImportResult, SkippedLine
from tilewright.graph.workload import Workload
from tilewright.store import open_store
from tilewright.store.base import Store, archive_of
from tilewright.store.interchange.kinds import METASCHEDULE, TABLES, export_kind, import_kind
from tilewright.store.interchange.lines import Line, device_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """A file to take in. `kind` None guesses it; `task` is the key of the workload that a log is
    about which does not say so itself, `placement` where it was made."""

    path: Path
    kind: str | None = None
    task: str | None = None
    placement: Placement | None = None


def import_file(
    request: ImportRequest, store: Store, placement: Callable[[], Placement]
) -> ImportResult:
    """Take in a file; `placement` is asked for only where the kind needs this machine's.

    A table names devices by their class alone: knowing this machine tells which rows are its own,
    also those of before its class was named as it is now.

    Raises `UsageError` for an unknown kind or task, `ModelError` for a file that cannot be read.
    """
    kind, archive = import_kind(request.path, request.kind), archive_of(store)
    if kind == METASCHEDULE:
        return _import_metaschedule(request.path, store, placement())
    if kind in TABLES:
        store.add_device(placement().device)
    task = None if request.task is None else _task(request.task, store)
    return archive.import_file(request.path, kind, task=task, placement=request.placement)


def export_file(
    path: Path, kind: str | None, store: Store, placement: Callable[[], Placement]
) -> int:
    """Write the database to a file and return the number of records written.

    A MetaSchedule database is a folder and holds the measurements of one device class alone.
    """
    chosen = export_kind(path, kind)
    if chosen != METASCHEDULE:
        return archive_of(store).export(path, chosen)
    from tilewright.measure.metaschedule import export_database

    local = placement()
    workloads = {workload.key: workload for workload in store.workloads()}
    rows = [
        (workloads[measurement.workload_key], measurement)
        for measurement in store.stored_measurements(placement=local.key)
        if measurement.workload_key in workloads
    ]
    return export_database(path, rows, local)


def merge(first: Path, second: Path, into: Path | None) -> ImportResult:
    """Take the records of `second` into the database `first`, or those of both into `into`.

    `second` may be any file that can be imported. Raises `StoreError` when `first` is no database.
    """
    if not first.exists():
        raise StoreError(f"There is no database at {first}.", hint="A of `db merge A B` is one.")
    if into is None:
        with open_store(first) as store:
            return archive_of(store).import_file(second)
    import_kind(second, None)
    with open_store(into) as store:
        archive = archive_of(store)
        taken = [archive.merge(first), archive.import_file(second)]
    return _sum(taken[0], taken[1])


def _sum(one: ImportResult, other: ImportResult) -> ImportResult:
    """Both imports as one; lines of the second file keep their numbers."""
    counts = {
        name: getattr(one, name) + getattr(other, name)
        for name, value in to_builtins(other).items()
        if isinstance(value, int)
    }
    notes = " ".join(filter(None, (one.note, other.note)))
    return replace(other, **counts, skipped=(*one.skipped, *other.skipped), note=notes)


def _task(key: str, store: Store) -> Workload:
    task = store.workload(key)
    if task is None:
        raise UsageError(
            f"This database knows no task {key!r}.",
            hint="Keys of tasks are in `tilewright profile MODEL --format json`.",
        )
    return task


def _import_metaschedule(path: Path, store: Store, placement: Placement) -> ImportResult:
    from tilewright.measure.metaschedule import import_database

    measurements, lines, skipped = import_database(path, store.workloads(), placement)

    def taken() -> Iterator[Line]:
        for number, measurement in enumerate(measurements, start=1):
            record = {"record": "measurement", **to_builtins(measurement)}
            yield Line(number=number, record=record, support=(device_entry(placement.device),))

    result = archive_of(store).take_in(taken(), path, METASCHEDULE)
    missed = (SkippedLine(line=number, reason=reason) for number, reason in skipped)
    return replace(result, lines=lines, skipped=(*result.skipped, *missed))
