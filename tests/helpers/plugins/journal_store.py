"""A store of another package: one text file, a line for everything that was written.

It has nothing of SQLite and nothing that `tilewright db` needs. Everything is read anew each time.
"""

from __future__ import annotations

import datetime
import json
import os
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tilewright.core.codec import convert, to_builtins
from tilewright.core.errors import StoreError
from tilewright.core.records import (
    Device,
    Failure,
    Measurement,
    NetworkMeasurement,
    Placement,
    PlacementKey,
    Run,
    ShippedPlan,
)
from tilewright.core.targets import parse_resources
from tilewright.graph.workload import Workload, parse_workload
from tilewright.store.base import Store

Record = TypeVar("Record")


def opened(location: str, readonly: bool) -> Store:
    """The opener that an entry point of `tilewright.stores` names."""
    return Journal(Path(location), readonly)


class Journal:
    def __init__(self, path: Path, readonly: bool) -> None:
        if path.is_dir() or (readonly and not path.exists()):
            raise StoreError(f"There is no journal at {path}.")
        self.path, self.readonly = path, readonly
        self._lock = threading.RLock()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        pass

    def _write(self, kind: str, *records: object) -> None:
        if self.readonly:
            raise StoreError(f"{self.path} was opened for reading only.")
        lines = [json.dumps([kind, to_builtins(record)]) + "\n" for record in records]
        with self._lock, self.path.open("a") as file:
            file.write("".join(lines))
            file.flush()
            os.fsync(file.fileno())

    def _read(self, kind: str) -> list[Any]:
        with self._lock:
            text = self.path.read_text() if self.path.exists() else ""
        return [value for each, value in map(json.loads, text.splitlines()) if each == kind]

    def _records(self, kind: str, type_: type[Record]) -> list[Record]:
        found = [convert(value, type_) for value in self._read(kind)]
        return sorted(found, key=lambda record: getattr(record, "created_at", 0.0))

    # Kernels

    def add(self, outcomes) -> None:
        known = list(outcomes)
        self._write("failure", *(each for each in known if isinstance(each, Failure)))
        self._write("measurement", *(each for each in known if isinstance(each, Measurement)))

    def outcomes(self, workload_key: str, placement: PlacementKey):
        failures = self._records("failure", Failure)
        every = [*self.stored_measurements(), *failures]
        found = [o for o in every if o.workload_key == workload_key and _at(o, placement)]
        return sorted(found, key=lambda outcome: outcome.created_at)

    def stored_measurements(
        self, *, workload_key=None, placement=None, implementation=None, run_id=None
    ) -> list[Measurement]:
        return [
            m
            for m in self._records("measurement", Measurement)
            if workload_key in (None, m.workload_key)
            and implementation in (None, m.candidate.implementation)
            and run_id in (None, m.run_id)
            and (placement is None or _at(m, placement))
        ]

    def measured_days(self, placement: PlacementKey) -> tuple[str, str] | None:
        times = [m.created_at for m in self.stored_measurements(placement=placement)]
        return (_day(min(times)), _day(max(times))) if times else None

    def add_workload(self, workload: Workload) -> None:
        self.add_workloads([workload])

    def add_workloads(self, workloads: Iterable[Workload]) -> None:
        self._write("workload", *(workload.text for workload in workloads))

    def workload(self, key: str) -> Workload | None:
        return next((each for each in self.workloads() if each.key == key), None)

    def workloads(self) -> list[Workload]:
        return [parse_workload(text) for text in dict.fromkeys(self._read("workload"))]

    # Runs and networks

    def begin_run(self, run: Run) -> Run:
        with self._lock:
            begun = replace(run, id=len({each["id"] for each in self._read("run")}) + 1)
            self._write("run", begun)
        return begun

    def update_run(self, run: Run) -> None:
        if run.id not in self._runs():
            raise StoreError(f"{self.path} holds no run {run.id}.")
        self._write("run", run)

    def _runs(self) -> dict[int | None, Run]:
        return {run.id: run for run in (convert(each, Run) for each in self._read("run"))}

    def runs(self, network_key: str, placement: PlacementKey) -> list[Run]:
        found = [r for r in self._runs().values() if r.network_key == network_key]
        return sorted((r for r in found if _at(r, placement)), key=lambda r: r.created_at)

    def models_of_tasks(self, placement: PlacementKey) -> dict[str, set[str]]:
        runs, found = self._runs(), dict[str, set[str]]()
        for each in self.stored_measurements(placement=placement):
            if each.model or each.run_id in runs:
                model = each.model or runs[each.run_id].model
                found.setdefault(each.workload_key, set()).add(model)
        return found

    def ship(self, shipped: ShippedPlan) -> None:
        self._write("shipped", shipped)

    def shipped(self, network_key: str, placement: PlacementKey) -> ShippedPlan | None:
        found = [s for s in self.all_shipped(placement) if s.network_key == network_key]
        return found[-1] if found else None

    def all_shipped(self, placement: PlacementKey) -> list[ShippedPlan]:
        return [s for s in self._records("shipped", ShippedPlan) if _at(s, placement)]

    def add_network(self, measured: NetworkMeasurement) -> None:
        self._write("network", measured)

    def networks(self, network_key: str, placement: PlacementKey) -> list[NetworkMeasurement]:
        found = self._records("network", NetworkMeasurement)
        return [n for n in found if n.network_key == network_key and _at(n, placement)]

    # Devices

    def add_device(self, device: Device) -> None:
        self._write("device", device)

    def devices(self) -> list[Device]:
        known = {(d.class_key, d.instance): d for d in self._records("device", Device)}
        return [known[key] for key in sorted(known)]

    def placements(self) -> list[Placement]:
        known = {device.class_key: device for device in self.devices()}
        places = sorted({(place, resources) for place, resources, _, _ in self._read("peak")})
        return [
            Placement(device=known[place], resources=parse_resources(resources))
            for place, resources in places
            if place in known
        ]

    def add_peak(self, placement: PlacementKey, name: str, value: float) -> None:
        self._write("peak", [placement.device_class, str(placement.resources), name, value])

    def peak(self, placement: PlacementKey, name: str) -> float | None:
        wanted = [placement.device_class, str(placement.resources), name]
        return next((p[3] for p in reversed(self._read("peak")) if p[:3] == wanted), None)


def _at(record: Any, placement: PlacementKey) -> bool:
    there = (record.device_class, record.resources)
    return there == (placement.device_class, placement.resources)


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
