"""Predictors of a device class: what they learn from, and the files they are kept in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from tilewright.core.errors import ModelError, OutputError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.fingerprints import digest
from tilewright.core.records import Placement
from tilewright.core.settings import read_settings
from tilewright.cost.floors import Peaks
from tilewright.hardware.environment import own_version
from tilewright.hardware.legacy import folder_of, name_of_before
from tilewright.models.cache import PREDICTORS, mark_used
from tilewright.predict.base import Features
from tilewright.predict.collected import Row, family_of, rows_of, training_set
from tilewright.predict.family_models import (
    DEFAULT_TREES,
    LEAST_ROWS,
    LEAST_SAMPLES,
    FamilyModel,
    TrainingSet,
    fit_kernels,
    from_json,
    require_rows,
    to_json,
)
from tilewright.predict.interpolation import MeasuredKernels
from tilewright.predict.kernel_features import Kernel, kernel_table
from tilewright.predict.shipped import ShippedData, shipped_classes
from tilewright.predict.similarity import enough, nearest, slowdown
from tilewright.store.base import Store
from tilewright.store.output import replacing

FORMAT = 2
"""Of the model files; another one is refused."""

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
    _loaded: dict[str, FamilyModel | None] = field(default_factory=dict[str, FamilyModel | None])
    _measured: dict[str, MeasuredKernels] = field(
        default_factory=dict[str, MeasuredKernels], init=False
    )
    _slowdowns: dict[str, float] = field(default_factory=dict[str, float], init=False)

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
        place, probes = nearest(
            self.placement, self.own_rows, [k.placement for k in known], lambda n: known[n].rows
        )
        return known[place], probes

    @property
    def known(self) -> bool:
        """Whether this very class was measured, not only one like it."""
        return self.shipped is None or self.shipped.exact

    @cached_property
    def peaks(self) -> Peaks:
        """The peaks measured here, else those of the shipped data. Raises ModelError where neither
        is known."""
        names = [peak.name for peak in fields(Peaks)]
        stored = {name: self.store.peak(self.placement.key, name) for name in names}
        found = {name: value for name, value in stored.items() if value is not None}
        if len(found) == len(names):
            return Peaks(**found)
        if self.shipped is not None:
            return self.shipped.peaks
        raise ModelError(
            f"nothing is known of {self.placement.key}",
            hint="`tilewright collect --op all` measures it.",
        )

    def features(self, kernels: Sequence[Kernel], model: FamilyModel) -> Features:
        """The features that a model wants: on the peaks it learnt with, where it learnt here."""
        own = model.origin == str(self.placement.key)
        return kernel_table(kernels, self.placement, (own and model.peaks) or self.peaks)

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
        speed."""
        if family not in self._measured:
            self._measured[family] = MeasuredKernels(self._at_own_speed(family))
        return self._measured[family]

    def _at_own_speed(self, family: str) -> list[Row]:
        """A family's rows, shipped ones as this machine would take."""
        factor = self.slowdown(family)
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

    def slowdown(self, family: str) -> float:
        """This machine's times over those of the one of its class whose rows came along; 1 where
        too few kernels of the family were measured here."""
        if family not in self._slowdowns:
            self._slowdowns[family] = self._slowdown(family)
        return self._slowdowns[family]

    def slowdowns(self) -> list[tuple[str, float]]:
        """The families asked about that take another time here, with that factor."""
        return sorted((name, factor) for name, factor in self._slowdowns.items() if factor != 1.0)

    def _slowdown(self, family: str) -> float:
        own = [row for came_along, row in self._by_family.get(family, ()) if not came_along]
        if self.shipped is None or not self.shipped.exact or not enough(own):
            return 1.0
        try:
            model = self._of_shipped(family)
        except ModelError:
            return 1.0
        return slowdown(own, model, self.placement, self.shipped.peaks)

    def families(self) -> list[str]:
        """The families that rows are known of, be it of the nearest class."""
        every = [*self.rows, *(self.shipped.rows if self.shipped is not None else ())]
        return sorted({family_of(row.workload) for row in every})

    def fit(self, family: str) -> FamilyModel:
        """Learn a family's model anew and keep it: from rows of this class, of a new one as what
        differs from the nearest class's model; from the nearest one's rows where its own are too
        few. Raises ModelError where that knows too little, too."""
        model = self._learnt(self.training_set(family), self.base(family))
        save_model(model, self.path(f"{family}.json"))
        self._loaded[family] = model
        return model

    def base(self, family: str) -> FamilyModel | None:
        """The nearest class's model, which that of this new class begins with; None where there is
        none, and where too little is known here to differ from it."""
        if not self._beside_another(family) or self.borrows(family):
            return None
        return self._of_shipped(family)

    def _beside_another(self, family: str) -> bool:
        """Whether this class did not come along, and the nearest one that did knows the family."""
        shipped = self.shipped
        if shipped is None or shipped.exact:
            return False
        return sum(family_of(row.workload) == family for row in shipped.rows) >= LEAST_ROWS

    def training_set(self, family: str) -> TrainingSet:
        """What `fit` learns from."""
        shipped = self.shipped
        if shipped is not None and self.borrows(family):
            return _shipped_set(shipped, family)
        peaks = shipped.peaks if shipped is not None and shipped.exact else self.peaks
        return training_set(self._at_own_speed(family), family, self.placement, peaks)

    def borrows(self, family: str) -> bool:
        """Whether a family is learnt from the nearest class, too little being known of this one."""
        if not self._beside_another(family):
            return False
        own = [row.workload.key for _, row in self._by_family.get(family, ())]
        return len(own) < LEAST_SAMPLES or len(set(own)) < 2

    def learnt_rows(self, family: str) -> list[Row]:
        """The rows of `training_set`, in its order."""
        rows = self.shipped.rows if self.borrows(family) and self.shipped else self.rows
        return [row for row in rows if family_of(row.workload) == family]

    def _learnt(self, data: TrainingSet, base: FamilyModel | None = None) -> FamilyModel:
        require_rows(data, base)
        self.events(Stage(name="fit", detail=f"{data.family}: {len(data)} kernels"))
        return replace(fit_kernels(data, base=base), device_class=str(self.placement.key))

    def model(self, family: str, *, fitting: bool = True) -> FamilyModel | None:
        """A family's model from its file, fitted where there is none; None where too little is
        known, or without `fitting` where there is no file. Raises ModelError for a file that is
        broken or of another device class."""
        if family not in self._loaded:
            path = self.path(f"{family}.json")
            if path.exists():
                self._loaded[family] = load_model(path, self.placement)
            elif fitting or self._cached(family) is not None:
                self._loaded[family] = self._made(family)
            else:
                return None
        return self._loaded[family]

    def _made(self, family: str) -> FamilyModel | None:
        """Of what came along, at this machine's speed; where nothing did, of this database."""
        if family not in self.families():
            return None
        try:
            if self.shipped is None:
                return self.fit(family)
            return replace(self._of_shipped(family), slowdown=self.slowdown(family))
        except ModelError:
            return None

    def _of_shipped(self, family: str) -> FamilyModel:
        """The model of the rows that came along: from the cache, else learnt, and kept there where
        that can be written: an answer does not need it. Raises ModelError for too few rows."""
        cached = self._cached(family)
        if cached is not None:
            return cached
        if self.shipped is None:
            raise ModelError(f"no kernels of {family} came along")
        model = self._learnt(_shipped_set(self.shipped, family))
        try:
            save_model(model, self._cache_path(family))
        except OutputError as error:
            self.events(Note(message=f"The fitted predictor was not saved: {error.message}"))
        return model

    def _cached(self, family: str) -> FamilyModel | None:
        """A file of the cache that is broken does not count."""
        cached = self._cache_path(family)
        try:
            if not cached.exists():
                return None
            mark_used(cached.parent)
            return load_model(cached, self.placement)
        except ModelError:
            return None

    def _cache_path(self, family: str) -> Path:
        """Named by what it learnt from and how, so that other rows, or another version of
        tilewright, make another file."""
        rows = self.shipped.identity if self.shipped is not None else "none"
        origin = digest(f"{rows} {own_version()} {DEFAULT_TREES}")
        folder = self.cache / PREDICTORS / str(self.placement.key)
        return folder / f"{family}-{origin}-{FORMAT}.json"

    def path(self, name: str) -> Path:
        """The file of a model of this device and resources."""
        return folder_of(self.folder, self.placement) / name


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


def _shipped_set(shipped: ShippedData, family: str) -> TrainingSet:
    return training_set(shipped.rows, family, shipped.placement, shipped.peaks)


def save_model(model: FamilyModel, path: Path) -> None:
    """Write a model's file; whoever reads meanwhile sees the old one or the new one.

    Raises OutputError where the folder cannot be written.
    """
    found = {"format": FORMAT, "tilewright": own_version(), "model": to_json(model)}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(found), encoding="utf-8")


def load_model(path: Path, placement: Placement) -> FamilyModel:
    """Read a model's file.

    Raises ModelError for a file that is cut short, of another format, or of another device class.
    """
    try:
        found = cast("Mapping[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        version = found["format"]
        model = from_json(found["model"]) if version == FORMAT else None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelError(f"{path} is no model, or cut short", hint=_ANEW) from error
    if model is None:
        raise ModelError(f"{path} has format {version}, not {FORMAT}", hint=_ANEW)
    wanted, before = str(placement.key), name_of_before(placement)
    if model.device_class not in (wanted, before):
        raise ModelError(
            f"{path} is of device class {model.device_class}, not {wanted}", hint=_ANEW
        )
    origin = wanted if model.origin == before else model.origin
    return replace(model, device_class=wanted, origin=origin)
