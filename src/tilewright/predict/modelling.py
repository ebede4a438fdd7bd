"""Predictors of a device class: what they learn from, and the files they are kept in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from tilewright.core.codec import digest
from tilewright.core.errors import ModelError, OutputError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.input_files import readable
from tilewright.core.output_files import write_text
from tilewright.core.records import Placement
from tilewright.core.settings import read_settings
from tilewright.core.targets import threads_alone
from tilewright.cost.contention import CONTENTION, CONTENTION_CORES, USUAL_CONTENTION_BYTES_PER_S
from tilewright.cost.floors import Peaks, datasheet_peaks
from tilewright.hardware.environment import own_version
from tilewright.hardware.legacy import folder_of, name_of_before
from tilewright.models.cache import PREDICTORS, mark_used
from tilewright.predict.base import Features
from tilewright.predict.collected import (
    MeasuredKernels,
    Row,
    ShippedData,
    by_family,
    enough,
    nearest,
    rows_of,
    shipped_data,
    slowdown,
    training_set,
    usable,
)
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
from tilewright.predict.kernel_features import Kernel, kernel_table
from tilewright.store.base import Store

FORMAT = 2
"""Of the model files; another one is refused."""

_ANEW = "tilewright fit writes it anew."


@dataclass(frozen=True, kw_only=True)
class Predictors:
    """The predictors of one device class with some of its resources.

    `fit` learns from the shipped rows and the database, and keeps models in `folder`. Where that
    was never done, models of the shipped rows alone are made on first use and kept in `cache`, for
    all device classes and resources that use these rows; and of the database alone where no rows of
    the architecture come with tilewright.
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
    def came_along(self) -> ShippedData | None:
        """The rows that came with the package, where they are of this very class."""
        return self.shipped if self.lender is None else None

    @property
    def lender(self) -> ShippedData | None:
        """The class that this one is most like, where its own rows did not come along."""
        shipped = self.shipped
        return None if shipped is None or shipped.placement.key == self.placement.key else shipped

    @property
    def probes(self) -> int:
        """How many kernels of this database's told which class this one is most like; 0 where its
        rows came along, or where datasheets told."""
        return self._likest[1]

    @cached_property
    def _likest(self) -> tuple[ShippedData | None, int]:
        target, key = self.placement.target, self.placement.key
        every = shipped_data()
        known = [one for one in every if one.placement.target.architecture == target.architecture]
        exact = [one for one in known if one.placement.key == key]
        if exact or len(known) < 2:
            return next(iter(exact or known), None), 0
        place, probes = nearest(
            self.placement, self.own_rows, [k.placement for k in known], lambda n: known[n].rows
        )
        return known[place], probes

    @cached_property
    def peaks(self) -> Peaks:
        """The peaks measured here, else those of the shipped data, else a GPU's datasheet's. Raises
        ModelError where none is known."""
        stored = {p.name: self.store.peak(self.placement.key, p.name) for p in fields(Peaks)}
        found = {name: value for name, value in stored.items() if value is not None}
        if len(found) == len(stored):
            return Peaks(**found)
        if self.shipped is not None:
            return self.shipped.peaks
        sheet = datasheet_peaks(self.placement.target)
        if sheet is not None:
            return sheet
        raise ModelError(
            f"no kernels of {self.placement.key} were measured",
            hint="`tilewright collect --op all` measures it.",
        )

    @property
    def contention_bytes_per_s(self) -> float:
        """The scale by which kernels beside each other slow down (see `cost.contention`): the one
        measured on this class, else the usual one."""
        one = replace(self.placement, resources=threads_alone(CONTENTION_CORES))
        return self.store.peak(one.key, CONTENTION) or USUAL_CONTENTION_BYTES_PER_S

    def features(self, kernels: Sequence[Kernel], model: FamilyModel) -> Features:
        """The features that a model wants: on the peaks it learnt with, where it learnt here."""
        own = model.origin == str(self.placement.key)
        return kernel_table(kernels, self.placement, (own and model.peaks) or self.peaks)

    @cached_property
    def own_rows(self) -> list[Row]:
        """What this database knows of the device class with these resources, as far as today's
        implementations still take it: a note says how much they do not, and why."""
        workloads = {workload.key: workload for workload in self.store.workloads()}
        measured = self.store.stored_measurements(placement=self.placement.key)
        rows, left_out = usable(
            rows_of([m for m in measured if m.kernel_hash], workloads), self.placement
        )
        if left_out:
            self.events(Note(message=left_out))
        return rows

    @cached_property
    def rows(self) -> list[Row]:
        """All rows of this placement: shipped ones, then this database's."""
        return [*(self.came_along.rows if self.came_along else ()), *self.own_rows]

    @cached_property
    def _own(self) -> dict[str, list[Row]]:
        return by_family(self.own_rows)

    def measured(self, family: str) -> MeasuredKernels:
        """What was measured of a family on this very class, what came along at this machine's
        speed."""
        if family not in self._measured:
            self._measured[family] = MeasuredKernels(self._at_own_speed(family))
        return self._measured[family]

    def _at_own_speed(self, family: str) -> list[Row]:
        """A family's rows, shipped ones as this machine would take."""
        came, factor = self.came_along, self.slowdown(family)
        shipped = came.of_family(family) if came is not None else ()
        moved = (replace(row, latency_s=factor * row.latency_s) for row in shipped)
        return [*moved, *self._own.get(family, ())]

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
        came, own = self.came_along, self._own.get(family, ())
        if came is None or not enough(own):
            return 1.0
        try:
            return slowdown(own, self._of_shipped(family), self.placement, came.peaks)
        except ModelError:
            return 1.0

    def families(self) -> list[str]:
        """The families that rows are known of, be it of the nearest class."""
        return sorted({*self._own, *(self.shipped.families if self.shipped is not None else ())})

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
        if self._lending(family) is None or self._borrowed(family) is not None:
            return None
        return self._of_shipped(family)

    def _lending(self, family: str) -> ShippedData | None:
        """The lender, where it knows a family."""
        lender = self.lender
        return lender if lender and len(lender.of_family(family)) >= LEAST_ROWS else None

    def _borrowed(self, family: str) -> ShippedData | None:
        """What a family is learnt from where too little is known of this class."""
        own = [row.workload.key for row in self._own.get(family, ())]
        return self._lending(family) if len(own) < LEAST_SAMPLES or len(set(own)) < 2 else None

    def training_set(self, family: str) -> TrainingSet:
        """What `fit` learns from."""
        borrowed, came = self._borrowed(family), self.came_along
        if borrowed is not None:
            return _shipped_set(borrowed, family)
        peaks = came.peaks if came is not None else self.peaks
        return training_set(self._at_own_speed(family), family, self.placement, peaks)

    def learnt_rows(self, family: str) -> list[Row]:
        """The rows of `training_set`, in its order, with the times that were measured."""
        borrowed, came = self._borrowed(family), self.came_along
        if borrowed is not None:
            return borrowed.of_family(family)
        return [*(came.of_family(family) if came is not None else ()), *self._own.get(family, ())]

    def _learnt(self, data: TrainingSet, base: FamilyModel | None = None) -> FamilyModel:
        require_rows(data, base)
        self.events(Stage(name="fit", detail=f"{data.family}: {len(data)} kernels"))
        return self._own_of(fit_kernels(data, base=base))

    def _own_of(self, model: FamilyModel) -> FamilyModel:
        """The model as it answers for this class."""
        return replace(model, device_class=str(self.placement.key))

    def model(self, family: str, *, fitting: bool = True) -> FamilyModel | None:
        """A family's model from its file, fitted where there is none; None where too little is
        known, or without `fitting` where there is no file. Raises ModelError for a file that is
        broken or of another device class."""
        if family not in self._loaded:
            path = self.path(f"{family}.json")
            if path.exists():
                self._loaded[family] = load_model(path, self.placement)
            elif fitting or self._is_kept(family):
                self._loaded[family] = self._made(family)
            else:
                return None
        return self._loaded[family]

    def _made(self, family: str) -> FamilyModel | None:
        """Of what came along, at this machine's speed; where nothing did, of this database."""
        try:
            if self.shipped is None:
                return self.fit(family)
            return replace(self._of_shipped(family), slowdown=self.slowdown(family))
        except ModelError:
            return None

    def _of_shipped(self, family: str) -> FamilyModel:
        """The model of the rows that came along. Raises ModelError for too few rows."""
        shipped = self.shipped
        if shipped is None:
            raise ModelError(f"no kernels of {family} ship with tilewright")
        data = partial(_shipped_set, shipped, family)
        return self.kept(family, shipped.identity, lambda: self._learnt(data()))

    def _is_kept(self, family: str) -> bool:
        shipped = self.shipped
        path = None if shipped is None else self._cache_path(family, shipped.identity)
        return path is not None and self._cached(path) is not None

    def kept(self, name: str, origin: str, learn: Callable[[], FamilyModel]) -> FamilyModel:
        """A model of what came along: from the cache, else learnt, and kept there where that can be
        written: an answer does not need it. `origin` is everything that it is learnt from, so that
        all classes and resources that learn from the same have one file. Raises what `learn`
        raises."""
        path = self._cache_path(name, origin)
        cached = self._cached(path)
        if cached is not None:
            return cached
        model = learn()
        try:
            save_model(model, path)
        except OutputError as error:
            self.events(Note(message=f"The fitted predictor was not saved: {error.message}"))
        return model

    def _cached(self, path: Path) -> FamilyModel | None:
        """A file of the cache that is broken does not count."""
        try:
            if not path.exists():
                return None
            mark_used(path.parent)
            return self._own_of(_read_model(path))
        except ModelError:
            return None

    def _cache_path(self, name: str, origin: str) -> Path:
        """Named by what it learnt from and how, so that other rows, or another version of
        tilewright, make another file."""
        learnt = digest(f"{origin} {own_version()} {DEFAULT_TREES}")
        return self.cache / PREDICTORS / learnt / f"{name}-{FORMAT}.json"

    def path(self, name: str) -> Path:
        """The file of a model of this device and resources."""
        return folder_of(self.folder, self.placement) / name


def predictors_of(placement: Placement, store: Store, events: EventSink) -> Predictors:
    """The predictors that go with a database, whose models are beside it: `tilewright.db` →
    `tilewright.models`."""
    return Predictors(
        placement=placement,
        store=store,
        folder=store.path.with_suffix(".models"),
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
    write_text(path, json.dumps(found))


def load_model(path: Path, placement: Placement) -> FamilyModel:
    """Read a model's file.

    Raises ModelError for a file that is cut short, of another format, or of another device class.
    """
    model = _read_model(path)
    wanted, before = str(placement.key), name_of_before(placement)
    if model.device_class not in (wanted, before):
        raise ModelError(
            f"{path} is of device class {model.device_class}, not {wanted}", hint=_ANEW
        )
    origin = wanted if model.origin == before else model.origin
    return replace(model, device_class=wanted, origin=origin)


def _read_model(path: Path) -> FamilyModel:
    """The model in a file, of whichever device class. Raises ModelError as `load_model` does."""
    try:
        with readable(path):
            found = cast("Mapping[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        version = found["format"]
        model = from_json(found["model"]) if version == FORMAT else None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelError(f"{path} is no model, or cut short", hint=_ANEW) from error
    if model is None:
        raise ModelError(f"{path} has format {version}, not {FORMAT}", hint=_ANEW)
    return model
