# pyright: basic
"""A family's predictor: models that say how much of the roof is reached, and their intervals.

Several models, each blind to one part of the configurations, predict together (their median). Each
one's errors on what it did not see make the intervals: split conformal prediction after Barber,
Candès, Ramdas & Tibshirani, "Predictive inference with the jackknife+", 2021. The target is the
logarithm of scale ÷ time, scale being the roofline time of kernels, bounded by what training saw,
so that extrapolation stays sane. Of kernels the models begin at what the implementation's own rough
estimate says, and learn the difference. Rows may be our kernels' or those of anybody's table.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import ModelError
from tilewright.core.forks import calls_native
from tilewright.cost.floors import Peaks
from tilewright.models.configurations import collecting
from tilewright.predict.base import Features, Floats, Integers, conformal_reach, folds_of
from tilewright.predict.regressors import Boosted, Forest, Trees

LEAST_ROWS = 40
"""Fewer kernels than this teach no model."""

LEAST_SAMPLES = 10
"""Fewer kernels than this do not correct the model of another device class."""

_BEYOND = 0.05
"""Features of an operator may lie this part of their range outside what training saw."""

_WIDER = 2.0
DEFAULT_TREES = Trees(rounds=250, rate=0.12, depth=6, least_weight=2.0)
_SAMPLE_TREES = Trees(rounds=120, rate=0.08, depth=3, least_weight=3.0)
"""For the few rows of a new device class: what they change of another one's model."""

_MANY_SAMPLES = 400
_ESTIMATE = "schedule.estimate_over_roof"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Targets of rows in SI units; the interval that holds 90 % of such is predicted ÷ e^reach to
    predicted × e^reach. `outside` marks rows whose operator is unlike all that was learnt from,
    whose intervals are twice as wide in the logarithm."""

    predicted: Floats
    reach: Floats
    outside: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """Measured rows of one family: our kernels, or a table's. `target` is in SI units, `unit`.
    `configurations` is a number per row: equal ones are the same operator in other settings;
    `groups` a name per row, its implementation or its device; `data_hash` identifies the rows,
    `peaks` are those of the features' rooflines, None of a table's."""

    family: str
    features: Features
    target: Floats
    configurations: Integers
    groups: npt.NDArray[Any]
    target_name: str = "latency_s"
    unit: str = "s"
    device_class: str = ""
    peaks: Peaks | None = None
    data_hash: str = ""

    def __len__(self) -> int:
        return len(self.target)

    def part(self, rows: Integers) -> TrainingSet:
        """These rows only."""
        return replace(
            self,
            features=self.features.part(rows),
            target=self.target[rows],
            configurations=self.configurations[rows],
            groups=self.groups[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyModel:
    """See the module's docstring. It answers for `device_class`; where it learnt from another one,
    `origin`, intervals are twice as wide. `reach` is their half width in the logarithm; `lowest`
    and `highest` bound the features that training saw, `margins` what it was to say; `peaks` are
    the origin's, on which its rooflines rest. With a `base`, the model of another class, the
    members say what differs from it; without one, from the implementation's own estimate.
    `slowdown` is what this machine takes of the time that was learnt (see `predict.collected`); it
    is not kept."""

    family: str
    device_class: str
    origin: str
    peaks: Peaks | None
    names: tuple[str, ...]
    members: tuple[Any, ...]
    reach: float
    lowest: Floats
    highest: Floats
    margins: tuple[float, float]
    rows: int
    data_hash: str
    base: FamilyModel | None = None
    slowdown: float = 1.0

    def predict(self, features: Features) -> Predictions:
        """Predict rows."""
        values = features.aligned(self.names)
        outside = self._outside(values)
        borrowed = _WIDER if self.origin != self.device_class else 1.0
        return Predictions(
            predicted=self.slowdown * features.scale * np.exp(-self.margin(values)),
            reach=self.reach * borrowed * np.where(outside, _WIDER, 1.0),
            outside=outside,
        )

    def margin(self, values: Floats) -> Floats:
        """The logarithm of the utilisation for rows of features, in the order of `names`."""
        found = np.median([member.margin(values) for member in self.members], axis=0)
        return np.clip(found + _start(self.names, values, self.base), *self.margins)

    def _outside(self, values: Floats) -> npt.NDArray[np.bool_]:
        own = np.array([name.startswith("op.") for name in self.names])
        slack = _BEYOND * (self.highest - self.lowest) + 1e-9
        with np.errstate(invalid="ignore"):
            beyond = (values < self.lowest - slack) | (values > self.highest + slack)
        return np.asarray((beyond & own).any(axis=1))


def require_rows(data: TrainingSet, base: FamilyModel | None = None) -> None:
    """Raise ModelError for fewer than `LEAST_ROWS` kernels, with a base `LEAST_SAMPLES`, or fewer
    configurations than members, with a base two."""
    count = len(np.unique(data.configurations))
    least = (LEAST_ROWS, DEFAULT_TREES.members) if base is None else (LEAST_SAMPLES, 2)
    if len(data) < least[0] or count < least[1]:
        raise ModelError(
            f"{len(data)} rows of {count} configurations are too few for a model of {data.family}",
            hint=collecting(data.family, "--samples 500"),
        )


def fit_kernels(
    data: TrainingSet,
    *,
    trees: Trees | None = None,
    columns: Sequence[str] | None = None,
    base: FamilyModel | None = None,
) -> FamilyModel:
    """Learn from measured kernels, as `fit_model` does; with trees that suit the base, or its
    absence, where none are given. Raises ModelError as `require_rows` does."""
    require_rows(data, base)
    few = base is not None and len(data) < _MANY_SAMPLES
    usual = _SAMPLE_TREES if few else DEFAULT_TREES
    return fit_model(data, trees or usual, columns=columns, base=base)


def fit_model(
    data: TrainingSet,
    regressor: Trees | Forest,
    *,
    columns: Sequence[str] | None = None,
    base: FamilyModel | None = None,
) -> FamilyModel:
    """Learn from measured rows, with these columns only where some are given; with a `base`, the
    model of another class, what differs from that, by its columns."""
    names = base.names if base is not None else tuple(columns or data.features.names)
    values = data.features.aligned(names)
    margin = np.log(data.features.scale / data.target)
    members, residuals = _members(
        regressor, values, margin - _start(names, values, base), data.configurations
    )
    margins = (float(margin.min()), float(margin.max()))
    there = np.isfinite(values)
    lowest = np.where(there, values, np.inf).min(0)
    highest = np.where(there, values, -np.inf).max(0)
    if base is not None:
        margins = (min(margins[0], base.margins[0]), max(margins[1], base.margins[1]))
        lowest, highest = np.minimum(lowest, base.lowest), np.maximum(highest, base.highest)
    unbounded = lowest > highest
    return FamilyModel(
        family=data.family,
        device_class=data.device_class,
        origin=data.device_class,
        peaks=data.peaks,
        names=names,
        members=members,
        reach=conformal_reach(residuals),
        lowest=np.where(unbounded, -np.inf, lowest),
        highest=np.where(unbounded, np.inf, highest),
        margins=margins,
        rows=len(data),
        data_hash=data.data_hash,
        base=base,
    )


def _members(
    regressor: Trees | Forest, values: Floats, margin: Floats, configurations: Integers
) -> tuple[tuple[Any, ...], Floats]:
    """Models that are each blind to one part of the configurations, and every row's error by the
    one that did not see it, in the logarithm."""
    distinct, inner = np.unique(configurations, return_inverse=True)
    count = min(regressor.members, len(distinct))
    parts = folds_of(inner.ravel(), count, seed=1)
    members: list[Any] = []
    residuals = np.zeros(len(margin))
    for number in range(count):
        seen, unseen = parts != number, parts == number
        members.append(regressor.fit(values[seen], margin[seen], number))
        residuals[unseen] = margin[unseen] - members[-1].margin(values[unseen])
    return tuple(members), residuals


def _start(names: Sequence[str], values: Floats, base: FamilyModel | None) -> Floats:
    """The logarithm of the utilisation by the base, else by the implementation's own estimate; 0
    without either."""
    if base is not None:
        return base.margin(values)
    if _ESTIMATE not in names:
        return np.zeros(len(values))
    return -np.log(2) * values[:, list(names).index(_ESTIMATE)]


def to_json(model: FamilyModel) -> dict[str, Any]:
    """The model as JSON values, its trees as xgboost's binary JSON in Base64: they are read thirty
    times faster. `from_json` reads it."""
    return {
        "family": model.family,
        "device_class": model.device_class,
        "origin": model.origin,
        "peaks": asdict(model.peaks) if model.peaks is not None else {},
        "names": list(model.names),
        "reach": _plain(np.array([model.reach]))[0],
        "lowest": _plain(model.lowest),
        "highest": _plain(model.highest),
        "margins": list(model.margins),
        "rows": model.rows,
        "data_hash": model.data_hash,
        "base": to_json(model.base) if model.base is not None else None,
        "members": [_packed(member.booster.save_raw("ubj")) for member in model.members],
    }


@calls_native
def from_json(found: Mapping[str, Any]) -> FamilyModel:
    """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
    import xgboost

    boosters = (xgboost.Booster(model_file=_unpacked(stored)) for stored in found["members"])
    return FamilyModel(
        family=str(found["family"]),
        device_class=str(found["device_class"]),
        origin=str(found["origin"]),
        peaks=Peaks(**found["peaks"]) if found["peaks"] else None,
        names=tuple(found["names"]),
        members=tuple(Boosted(booster=booster) for booster in boosters),
        reach=float(_wide([found["reach"]])[0]),
        lowest=_wide(found["lowest"], -np.inf),
        highest=_wide(found["highest"]),
        margins=(float(found["margins"][0]), float(found["margins"][1])),
        rows=int(found["rows"]),
        data_hash=str(found["data_hash"]),
        base=from_json(found["base"]) if found["base"] is not None else None,
    )


def _packed(trees: bytearray) -> dict[str, str]:
    return {"ubjson": b64encode(trees).decode(), "sha256": sha256(trees).hexdigest()}


def _unpacked(stored: Mapping[str, str]) -> bytearray:
    """Raises ValueError for bytes that are not those that were written: a parser of trees would
    take them as they are."""
    trees = bytearray(b64decode(stored["ubjson"], validate=True))
    if sha256(trees).hexdigest() != stored["sha256"]:
        raise ValueError("the trees are not those that were written")
    return trees


def _plain(values: Floats) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _wide(values: Sequence[float | None], infinite: float = np.inf) -> Floats:
    return np.array([infinite if value is None else value for value in values], dtype=np.float64)
