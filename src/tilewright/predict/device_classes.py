"""The device classes whose kernels are known, and one of them predicted from the nearest other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.core.errors import ModelError, UsageError
from tilewright.models.configurations import collecting
from tilewright.predict.base import Integers
from tilewright.predict.collected import Row
from tilewright.predict.evaluation import HeldOut, held_out
from tilewright.predict.family_models import LEAST_ROWS, FamilyModel, TrainingSet, fit_kernels
from tilewright.predict.modelling import Predictors
from tilewright.predict.processes import informative
from tilewright.predict.shipped import shipped_data
from tilewright.predict.similarity import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Kernels of a new device class that may be learnt from: `count` of them, each of another
    configuration as far as there are enough; drawn by chance, or `informed`, those that tell most
    about the others. What is left is judged, so that informed ones leave the easier rest: compare
    them on kernels that neither took."""

    count: int = 0
    seed: int = 0
    informed: bool = False

    def rows(self, data: TrainingSet, model: FamilyModel | None = None) -> Integers:
        """The numbers of the rows; `model` is that of a known class, by which informed samples are
        chosen. Raises UsageError where nothing would be left to judge."""
        order = np.random.default_rng(self.seed).permutation(len(data))
        first = np.sort(np.unique(data.configurations[order], return_index=True)[1])
        ranked = np.concatenate([order[first], np.delete(order, first)])
        if self.informed and model is not None and 0 < self.count < len(first):
            offered = data.part(order[first])
            told = informative(model, offered.features, self.count, self.seed)
            ranked = np.concatenate([order[first][told], ranked])
        taken = ranked[: self.count]
        if np.isin(data.configurations, data.configurations[taken]).all():
            raise UsageError(
                f"{self.count} samples of {data.family} leave nothing to judge: "
                f"{data.device_class} has {len(data)} kernels of "
                f"{len(np.unique(data.configurations))} configurations.",
                hint="Fewer --shots, or more of `tilewright collect`.",
            )
        return taken


def classes_of(predictors: Predictors) -> list[Predictors]:
    """The predictors of every class that rows and peaks are known of: those that came along, and
    the database's."""
    placements = {one.placement.key: one.placement for one in shipped_data()}
    placements |= {placement.key: placement for placement in predictors.store.placements()}
    placements[predictors.placement.key] = predictors.placement
    each = [
        replace(predictors, placement=placement, _loaded={}) for placement in placements.values()
    ]
    return sorted(
        (one for one in each if one.rows and _has_peaks(one)),
        key=lambda one: str(one.placement.key),
    )


def unseen_classes(
    classes: Sequence[Predictors], family: str, samples: Samples
) -> list[tuple[HeldOut, TrainingSet]]:
    """The kernels of each of `classes_of` as `predict` would answer there if it had never been
    measured, or only in a few `samples`: by the nearest other class of its architecture, with what
    was learnt from. Samples, and other settings of theirs, are not judged.

    Raises UsageError where fewer than two classes have enough kernels of the family.
    """
    known = [one for one in classes if len(one.learnt_rows(family)) >= LEAST_ROWS]
    found: list[tuple[HeldOut, TrainingSet]] = []
    for one in known:
        others = [
            other
            for other in known
            if other is not one
            and other.placement.target.architecture == one.placement.target.architecture
        ]
        if others:
            found.append(Lenders(classes=others, family=family).predict(one, samples))
    if not found:
        names = ", ".join(str(one.placement.key) for one in known) or "none"
        raise UsageError(
            f"--split device needs kernels of {family} of two device classes of one architecture, "
            f"{LEAST_ROWS} of each; known are {names}.",
            hint=f"`{collecting(family, '--threads 1')}` measures another class on the same "
            "machine; `tilewright db merge` brings in another machine's; --table takes "
            "anybody's.",
        )
    return found


def _has_peaks(one: Predictors) -> bool:
    try:
        _ = one.peaks
    except ModelError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Lenders:
    """Known classes, at least one, whose model of a family answers for a class that is new."""

    classes: Sequence[Predictors]
    family: str
    _fitted: dict[int, FamilyModel] = field(default_factory=dict[int, FamilyModel])

    def predict(self, one: Predictors, samples: Samples) -> tuple[HeldOut, TrainingSet]:
        """The kernels of a class that `samples` of it and their configurations leave to judge, and
        what the class that answered had learnt from."""
        asked = one.training_set(self.family)
        taken = self.choose(one, samples)
        apart = ~np.isin(asked.configurations, asked.configurations[taken])
        place, model = self.answering(one, taken)
        asked = asked.part(np.flatnonzero(apart))
        asked = replace(asked, groups=np.full(len(asked), str(one.placement.key), dtype=object))
        lender = self.classes[place].training_set(self.family)
        return held_out(asked, model.predict(asked.features)), lender

    def choose(self, one: Predictors, samples: Samples) -> Integers:
        """The rows of a class's training set that are its samples."""
        if not samples.count:
            return np.empty(0, dtype=np.int64)
        model = self.model(self.nearest(one, [])) if samples.informed else None
        return samples.rows(one.training_set(self.family), model)

    def answering(self, one: Predictors, taken: Integers) -> tuple[int, FamilyModel]:
        """The place of the class nearest by these rows, and its model, corrected by them."""
        rows = one.learnt_rows(self.family)
        place = self.nearest(one, [rows[int(number)] for number in taken])
        model = replace(self.model(place), device_class=str(one.placement.key))
        if not len(taken):
            return place, model
        return place, fit_kernels(one.training_set(self.family).part(taken), base=model)

    def nearest(self, one: Predictors, own: Sequence[Row]) -> int:
        """The place of the class that one is most like, by what was measured on it."""
        known = [other.placement for other in self.classes]
        return nearest(one.placement, own, known, lambda place: self.classes[place].rows)[0]

    def model(self, place: int) -> FamilyModel:
        """The model of a class, fitted once."""
        if place not in self._fitted:
            self._fitted[place] = fit_kernels(self.classes[place].training_set(self.family))
        return self._fitted[place]
