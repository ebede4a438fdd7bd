"""Predictors of a device class: what they learn from, and the files they are kept in."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import expm1, isfinite
from pathlib import Path
from typing import Any, cast

from tilewright.core.errors import ModelError, OutputError, UsageError, close_matches
from tilewright.core.events import EventSink, Stage
from tilewright.core.predictions import FitResult, FittedFamily
from tilewright.core.records import Device
from tilewright.predict.collected import Row, family_of, rows_of, training_set
from tilewright.predict.interpolation import MeasuredKernels, measured_kernels
from tilewright.predict.kernel_models import (
    LEAST_ROWS,
    KernelModel,
    TrainingSet,
    fit_kernel_model,
    from_json,
    to_json,
)
from tilewright.predict.shipped import ShippedData, shipped_data
from tilewright.store.database import SqliteStore

FORMAT = 1
"""Of the model files; another one is refused."""


@dataclass(frozen=True, kw_only=True)
class Predictors:
    """The predictors of one device class, fitted where they are not yet.

    `folder` holds their files. `shipped` are the rows that came with this package for the class or,
    where it is unknown, for the nearest one (then `nearest` is its name).
    """

    device: Device
    store: SqliteStore
    folder: Path
    events: EventSink
    _loaded: dict[str, KernelModel | None] = field(default_factory=dict[str, KernelModel | None])

    @cached_property
    def shipped(self) -> ShippedData | None:
        """Rows that came with the package; None where there are none that fit."""
        return shipped_data(self.device)

    @cached_property
    def peaks(self) -> dict[str, float]:
        """This device's measured peaks, else those of the shipped data. Raises ModelError where
        neither is known."""
        names = ("flop_per_s", "bytes_per_s", "cache_bytes_per_s")
        stored = {name: self.store.peak(self.device.class_key, name) for name in names}
        found = {name: value for name, value in stored.items() if value is not None}
        if len(found) == len(names):
            return found
        if self.shipped is not None:
            return dict(self.shipped.peaks)
        raise ModelError(
            f"nothing is known of {self.device.class_key}",
            hint="`tilewright collect --op all` measures it.",
        )

    @cached_property
    def own_rows(self) -> list[Row]:
        """What this database knows of the device class."""
        workloads = {workload.key: workload for workload in self.store.workloads()}
        measured = self.store.stored_measurements(device_class=self.device.class_key)
        return rows_of([m for m in measured if m.kernel_hash], workloads)

    @cached_property
    def rows(self) -> list[Row]:
        """All rows of this class: shipped ones, then this database's."""
        shipped = self.shipped
        return [*(shipped.rows if shipped is not None and shipped.exact else ()), *self.own_rows]

    @cached_property
    def measured(self) -> MeasuredKernels:
        """What was measured on this very class."""
        return measured_kernels([(r.workload, r.candidate, r.latency_s) for r in self.rows])

    def families(self) -> list[str]:
        """The families that rows are known of, be it of the nearest class."""
        every = [*self.rows, *(self.shipped.rows if self.shipped is not None else ())]
        return sorted({family_of(row.workload) for row in every})

    def fit(self, family: str) -> KernelModel:
        """Learn a family's model anew and keep it: from rows of this class, or from those of the
        nearest one where these are too few. Raises ModelError where that knows too little, too."""
        self.events(Stage(name="fit", detail=family))
        model = fit_kernel_model(self._training_set(family))
        model = replace(model, device_class=self.device.class_key)
        save_model(model, self._path(family))
        self._loaded[family] = model
        return model

    def _training_set(self, family: str) -> TrainingSet:
        shipped = self.shipped
        if shipped is not None and not shipped.exact:
            own = [row for row in self.rows if family_of(row.workload) == family]
            if len(own) < LEAST_ROWS:
                return training_set(shipped.rows, family, shipped.device, shipped.peaks)
        return training_set(self.rows, family, self.device, self.peaks)

    def model(self, family: str) -> KernelModel | None:
        """A family's model from its file, fitted where there is none; None where too little is
        known. Raises ModelError for a file that is broken or of another device class."""
        if family not in self._loaded:
            path = self._path(family)
            if path.exists():
                self._loaded[family] = load_model(path, self.device.class_key)
            else:
                self._loaded[family] = self._fitted_if_known(family)
        return self._loaded[family]

    def _fitted_if_known(self, family: str) -> KernelModel | None:
        if family not in self.families():
            return None
        try:
            return self.fit(family)
        except ModelError:
            return None

    def _path(self, family: str) -> Path:
        return self.folder / self.device.class_key / f"{family}.json"


def models_folder(database: Path) -> Path:
    """Where the models that go with a database are kept: `tilewright.db` → `tilewright.models`."""
    return database.with_suffix(".models")


def predictors_of(device: Device, store: SqliteStore, events: EventSink) -> Predictors:
    """The predictors that go with a database."""
    folder = models_folder(store.path)
    return Predictors(device=device, store=store, folder=folder, events=events)


def fit_all(
    device: Device, store: SqliteStore, events: EventSink, families: Sequence[str] = ()
) -> FitResult:
    """Fit these families anew, all that rows are known of where none is named.

    Raises UsageError for a family without rows; one with too few is reported, not raised.
    """
    began_s = time.monotonic()
    predictors = predictors_of(device, store, events)
    known = predictors.families()
    for name in families:
        if name not in known:
            raise UsageError(
                f"nothing was measured of a family {name!r}", hint=close_matches(name, known)
            )
    fitted: list[FittedFamily] = []
    for name in families or known:
        try:
            model = predictors.fit(name)
        except ModelError as error:
            fitted.append(
                FittedFamily(family=name, rows=0, reach=None, data_hash="", error=error.message)
            )
            continue
        reach = expm1(model.reach) if isfinite(model.reach) else None
        fitted.append(
            FittedFamily(family=name, rows=model.rows, reach=reach, data_hash=model.data_hash)
        )
    return FitResult(
        device_class=device.class_key,
        folder=str(predictors.folder),
        families=tuple(fitted),
        elapsed_s=time.monotonic() - began_s,
    )


def save_model(model: KernelModel, path: Path) -> None:
    """Write a model's file; whoever reads meanwhile sees the old one or the new one.

    Raises OutputError where the folder cannot be written.
    """
    import tilewright

    found = {"format": FORMAT, "tilewright": tilewright.__version__, "model": to_json(model)}
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(found), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def load_model(path: Path, device_class: str) -> KernelModel:
    """Read a model's file.

    Raises ModelError for a file that is cut short, of another format, or of another device class.
    """
    fit = "tilewright fit writes it anew."
    try:
        found = cast("Mapping[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        version = found["format"]
        model = from_json(found["model"]) if version == FORMAT else None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelError(f"{path} is no model, or cut short", hint=fit) from error
    if model is None:
        raise ModelError(f"{path} has format {version}, not {FORMAT}", hint=fit)
    if model.device_class != device_class:
        raise ModelError(
            f"{path} is of device class {model.device_class}, not {device_class}", hint=fit
        )
    return model
