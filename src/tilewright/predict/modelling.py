"""Predictors of a device class: what they learn from, and the files they are kept in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import expm1, isfinite
from pathlib import Path
from typing import Any, TypeVar, cast

from tilewright.core.errors import ModelError, OutputError, UsageError, close_matches
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.fingerprints import digest
from tilewright.core.predictions import FitResult, FittedFamily
from tilewright.core.records import Placement
from tilewright.core.settings import read_settings
from tilewright.core.version import own_version
from tilewright.hardware.legacy import folder_of, name_of_before
from tilewright.models.cache import PREDICTORS, mark_used
from tilewright.predict.collected import Row, family_of, rows_of, training_set
from tilewright.predict.interpolation import MeasuredKernels, measured_kernels
from tilewright.predict.kernel_facts import Kernel, KernelTable, kernel_table
from tilewright.predict.kernel_models import (
    DEFAULT_TREES,
    LEAST_ROWS,
    LEAST_SAMPLES,
    KernelModel,
    TrainingSet,
    fit_kernel_model,
    from_json,
    require_rows,
    sample_trees,
    to_json,
)
from tilewright.predict.pace import enough, pace
from tilewright.predict.relatives import Relative, nearest
from tilewright.predict.shipped import ShippedData, shipped_classes
from tilewright.store.base import Store
from tilewright.store.output import replacing

FORMAT = 2
"""Of the model files; another one is refused."""

Parsed = TypeVar("Parsed")
_ANEW = "tilewright fit writes it anew."


@dataclass(frozen=True, kw_only=True)
class Predictors:
    """The predictors of one device class with some of its resources.

    `fit` learns from the shipped rows and the database, and keeps models in `folder`. Where that
    was never done, models of the shipped rows alone are made on first use and kept in `cache`; and
    of the database alone where no rows of the architecture come with tilewright.
    """

    placement: Placement
    store: Store
    folder: Path
    cache: Path
    events: EventSink
    _loaded: dict[str, KernelModel | None] = field(default_factory=dict[str, KernelModel | None])
    _measured: dict[str, MeasuredKernels] = field(default_factory=dict[str, MeasuredKernels])
    _paces: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def shipped(self) -> ShippedData | None:
        """Rows that came with the package: of this class, else of the one it is most like; None
        where there are none of its architecture."""
        return self._likest[0]

    @property
    def repeats(self) -> float | None:
        """How far 90 % of repeated times of one kernel lie from their median on this very class, in
        the logarithm; None where that did not come along."""
        return self.shipped.repeats if self.shipped is not None and self.shipped.exact else None

    @property
    def probes(self) -> int:
        """How many kernels of this database's told which class this one is most like; 0 where its
        rows came along, or where datasheets told."""
        return self._likest[1]

    @cached_property
    def _likest(self) -> tuple[ShippedData | None, int]:
        known = shipped_classes(self.placement)
        exact = [found for found in known if found.exact]
        if exact or len(known) < 2:
            return next(iter(exact or known), None), 0
        relatives = [Relative(placement=k.placement, rows=lambda k=k: k.rows) for k in known]
        found = nearest(self.placement, self.own_rows, relatives)
        return known[found.place], found.probes

    @property
    def known(self) -> bool:
        """Whether this very class was measured, not only one like it."""
        return self.shipped is None or self.shipped.exact

    @cached_property
    def peaks(self) -> dict[str, float]:
        """The peaks measured here, else those of the shipped data. Raises ModelError where neither
        is known."""
        names = ("flop_per_s", "bytes_per_s", "cache_bytes_per_s")
        stored = {name: self.store.peak(self.placement.key, name) for name in names}
        found = {name: value for name, value in stored.items() if value is not None}
        if len(found) == len(names):
            return found
        if self.shipped is not None:
            return dict(self.shipped.peaks)
        raise ModelError(
            f"nothing is known of {self.placement.key}",
            hint="`tilewright collect --op all` measures it.",
        )

    def table(self, kernels: Sequence[Kernel], model: KernelModel) -> KernelTable:
        """The facts that a model wants: on the peaks it learnt with, where it learnt here."""
        own = model.origin == str(self.placement.key)
        return kernel_table(kernels, self.placement, model.peaks if own else self.peaks)

    @cached_property
    def own_rows(self) -> list[Row]:
        """What this database knows of the device class with these resources."""
        workloads = {workload.key: workload for workload in self.store.workloads()}
        measured = self.store.stored_measurements(placement=self.placement.key)
        return rows_of([m for m in measured if m.kernel_hash], workloads)

    @cached_property
    def rows(self) -> list[Row]:
        """All rows of this placement: shipped ones, then this database's."""
        shipped = self.shipped
        return [*(shipped.rows if shipped is not None and shipped.exact else ()), *self.own_rows]

    def measured(self, family: str) -> MeasuredKernels:
        """What was measured of a family on this very class, what came along at this machine's
        pace."""
        if family not in self._measured:
            rows = self._at_pace(family)
            self._measured[family] = measured_kernels(
                [(row.workload, row.candidate, row.latency_s) for row in rows]
            )
        return self._measured[family]

    def _at_pace(self, family: str) -> list[Row]:
        """A family's rows, shipped ones as this machine would take."""
        factor = self.pace(family)
        return [
            replace(row, latency_s=factor * row.latency_s) if came_along else row
            for came_along, row in self._by_family.get(family, ())
        ]

    @cached_property
    def _by_family(self) -> dict[str, list[tuple[bool, Row]]]:
        """All rows, and whether each came along."""
        shipped = len(self.rows) - len(self.own_rows)
        found: dict[str, list[tuple[bool, Row]]] = {}
        for number, row in enumerate(self.rows):
            found.setdefault(family_of(row.workload), []).append((number < shipped, row))
        return found

    def pace(self, family: str) -> float:
        """This machine's times over those of the one of its class whose rows came along; 1 where
        too few kernels of the family were measured here."""
        if family not in self._paces:
            self._paces[family] = self._pace(family)
        return self._paces[family]

    def paces(self) -> list[tuple[str, float]]:
        """The families asked about that go at another pace here, with that pace."""
        return sorted((name, factor) for name, factor in self._paces.items() if factor != 1.0)

    def _pace(self, family: str) -> float:
        shipped, known = self.shipped, self._by_family.get(family, ())
        own = [row for came_along, row in known if not came_along]
        if shipped is None or not shipped.exact or not enough(own):
            return 1.0
        try:
            model = self._cached(family) or self._remembered(_of_shipped(shipped, family))
        except ModelError:
            return 1.0
        return pace(own, model, self.placement, model.peaks)

    def families(self) -> list[str]:
        """The families that rows are known of, be it of the nearest class."""
        every = [*self.rows, *(self.shipped.rows if self.shipped is not None else ())]
        return sorted({family_of(row.workload) for row in every})

    def fit(self, family: str) -> KernelModel:
        """Learn a family's model anew and keep it: from rows of this class, of a new one as what
        differs from the nearest class's model; from the nearest one's rows where its own are too
        few. Raises ModelError where that knows too little, too."""
        model = self._learnt(self.training_set(family), self.base(family))
        save_model(model, self._path(family))
        self._loaded[family] = model
        return model

    def base(self, family: str) -> KernelModel | None:
        """The nearest class's model, which that of this new class begins with; None where there is
        none, and where too little is known here to differ from it."""
        if not self._beside_another(family) or self.borrows(family) or self.shipped is None:
            return None
        cached = self._cached(family)
        return cached or self._remembered(_of_shipped(self.shipped, family))

    def _beside_another(self, family: str) -> bool:
        """Whether this class did not come along, and the nearest one that did knows the family."""
        shipped = self.shipped
        if shipped is None or shipped.exact:
            return False
        return sum(family_of(row.workload) == family for row in shipped.rows) >= LEAST_ROWS

    def training_set(self, family: str) -> TrainingSet:
        """What `fit` learns from."""
        if self.borrows(family) and self.shipped is not None:
            return _of_shipped(self.shipped, family)
        shipped = self.shipped
        peaks = shipped.peaks if shipped is not None and shipped.exact else self.peaks
        return training_set(self._at_pace(family), family, self.placement, peaks)

    def borrows(self, family: str) -> bool:
        """Whether a family is learnt from the nearest class, too little being known of this one."""
        if not self._beside_another(family):
            return False
        own = {row.workload.key for row in self.rows if family_of(row.workload) == family}
        count = sum(row.workload.key in own for row in self.rows)
        return count < LEAST_SAMPLES or len(own) < 2

    def learnt_rows(self, family: str) -> list[Row]:
        """The rows of `training_set`, in its order."""
        rows = self.shipped.rows if self.borrows(family) and self.shipped else self.rows
        return [row for row in rows if family_of(row.workload) == family]

    def _learnt(self, data: TrainingSet, base: KernelModel | None = None) -> KernelModel:
        trees = DEFAULT_TREES if base is None else sample_trees(len(data))
        require_rows(data, trees=trees, base=base)
        self.events(Stage(name="fit", detail=f"{data.family}: {len(data)} kernels"))
        model = fit_kernel_model(data, trees=trees, base=base)
        return replace(model, device_class=str(self.placement.key))

    def model(self, family: str, *, fitting: bool = True) -> KernelModel | None:
        """A family's model from its file, fitted where there is none; None where too little is
        known, or without `fitting` where there is no file. Raises ModelError for a file that is
        broken or of another device class."""
        if family not in self._loaded:
            found = self._kept_before(family)
            if found is None and not fitting:
                return None
            self._loaded[family] = found or self._made(family)
        return self._loaded[family]

    def _kept_before(self, family: str) -> KernelModel | None:
        """From its file; one of the cache, which learnt from what came along, at this machine's
        pace, and where it is broken it does not count."""
        if self._path(family).exists():
            return load_model(self._path(family), self.placement)
        cached = self._cached(family)
        return replace(cached, pace=self.pace(family)) if cached is not None else None

    def _cached(self, family: str) -> KernelModel | None:
        cached = self._cache_path(family)
        try:
            if not cached.exists():
                return None
            mark_used(cached.parent)
            return load_model(cached, self.placement)
        except ModelError:
            return None

    def _made(self, family: str) -> KernelModel | None:
        if family not in self.families():
            return None
        try:
            if self.shipped is None:
                return self.fit(family)
            model = self._remembered(_of_shipped(self.shipped, family))
        except ModelError:
            return None
        return replace(model, pace=self.pace(family))

    def _remembered(self, data: TrainingSet) -> KernelModel:
        """Learnt, and kept in the cache where that can be written: an answer does not need it."""
        model = self._learnt(data)
        try:
            save_model(model, self._cache_path(data.family))
        except OutputError as error:
            self.events(Note(message=f"The predictor is not kept: {error.message}"))
        return model

    def _cache_path(self, family: str) -> Path:
        """Named by what it learnt from and how, so that other rows, or another version of
        tilewright, make another file."""
        rows = self.shipped.identity if self.shipped is not None else "none"
        origin = digest(f"{rows} {own_version()} {DEFAULT_TREES}")
        folder = self.cache / PREDICTORS / str(self.placement.key)
        return folder / f"{family}-{origin}-{FORMAT}.json"

    def _path(self, family: str) -> Path:
        return self.path(f"{family}.json")

    def path(self, name: str) -> Path:
        """The file of a model of this device and resources."""
        return folder_of(self.folder, self.placement) / name


def _of_shipped(shipped: ShippedData, family: str) -> TrainingSet:
    return training_set(shipped.rows, family, shipped.placement, shipped.peaks)


def models_folder(database: Path) -> Path:
    """Where the models that go with a database are kept: `tilewright.db` → `tilewright.models`."""
    return database.with_suffix(".models")


def predictors_of(placement: Placement, store: Store, events: EventSink) -> Predictors:
    """The predictors that go with a database."""
    return Predictors(
        placement=placement,
        store=store,
        folder=models_folder(store.path),
        cache=read_settings().cache,
        events=events,
    )


def fit_all(
    placement: Placement, store: Store, events: EventSink, families: Sequence[str] = ()
) -> FitResult:
    """Fit these families anew, all that rows are known of where none is named.

    Raises UsageError for a family without rows; one with too few is reported, not raised.
    """
    began_s = time.monotonic()
    predictors = predictors_of(placement, store, events)
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
        device_class=str(placement.key),
        folder=str(predictors.folder),
        families=tuple(fitted),
        elapsed_s=time.monotonic() - began_s,
    )


def save_model(model: KernelModel, path: Path) -> None:
    """Write a model's file; whoever reads meanwhile sees the old one or the new one.

    Raises OutputError where the folder cannot be written.
    """
    write_model(to_json(model), path)


def write_model(values: Mapping[str, Any], path: Path) -> None:
    """Write the JSON values of a model, as `save_model` does."""
    found = {"format": FORMAT, "tilewright": own_version(), "model": values}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(found), encoding="utf-8")


def load_model(path: Path, placement: Placement) -> KernelModel:
    """Read a model's file.

    Raises ModelError for a file that is cut short, of another format, or of another device class.
    """
    return of_class(read_model(path, from_json), path, placement)


def of_class(model: KernelModel, path: Path, placement: Placement) -> KernelModel:
    """The model read from `path`, under today's name of its class; raises ModelError where it is of
    another one."""
    wanted, before = str(placement.key), name_of_before(placement)
    if model.device_class not in (wanted, before):
        raise ModelError(
            f"{path} is of device class {model.device_class}, not {wanted}", hint=_ANEW
        )
    origin = wanted if model.origin == before else model.origin
    return replace(model, device_class=wanted, origin=origin)


def read_model(path: Path, parse: Callable[[Mapping[str, Any]], Parsed]) -> Parsed:
    """What `parse` makes of a model's file.

    Raises ModelError for a file that is cut short or of another format.
    """
    fit = _ANEW
    try:
        found = cast("Mapping[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        version = found["format"]
        model = parse(found["model"]) if version == FORMAT else None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelError(f"{path} is no model, or cut short", hint=fit) from error
    if model is None:
        raise ModelError(f"{path} has format {version}, not {FORMAT}", hint=fit)
    return model
