# pyright: basic
"""A family's predictor on one device class: boosted trees that say how much of the roof is reached.

Several models, each blind to one part of the configurations, predict together (their median). Each
one's errors on what it did not see make the intervals: split conformal prediction after Barber,
Candès, Ramdas & Tibshirani, "Predictive inference with the jackknife+", 2021. The target is the
logarithm of roofline time ÷ time, bounded by what training saw, so that extrapolation stays sane.
Trees begin at what the implementation's own rough estimate says of it, and learn the difference.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.forks import calls_native
from tilewright.models.configurations import collecting
from tilewright.predict.base import Facts, Floats, Trees
from tilewright.predict.kernel_facts import KernelTable
from tilewright.predict.metrics import conformal_reach
from tilewright.predict.splits import Integers, folds_of
from tilewright.predict.trees import Utilisation, fit_trees

LEAST_ROWS = 40
"""Fewer rows than this teach no model."""

LEAST_SAMPLES = 10
"""Fewer rows than this do not correct the model of another device class."""

_BEYOND = 0.05
"""Operator facts may lie this part of their range outside what training saw."""

_WIDER = 2.0
DEFAULT_TREES = Trees(
    rounds=250,
    rate=0.12,
    depth=6,
    least_weight=2.0,
    column_share=0.5,
    loss="tilted",
    members=4,
)
SAMPLE_TREES = Trees(
    rounds=120, rate=0.08, depth=3, least_weight=3.0, column_share=0.5, loss="tilted", members=4
)
"""For the few rows of a new device class: what they change of another one's model."""

_MANY_SAMPLES = 400
_ESTIMATE = "schedule.estimate_over_roof"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """Seconds of kernels with the interval that holds 90 % of such; `outside` marks rows whose
    operator is unlike all that was learnt from, whose intervals are twice as wide in the logarithm.
    """

    latency_s: Floats
    low_s: Floats
    high_s: Floats
    outside: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """Measured kernels of one family. `configurations` is a number per row: equal ones are the
    same operator in other settings; `data_hash` identifies the rows, `peaks` are those of the
    table's rooflines."""

    family: str
    device_class: str
    peaks: Mapping[str, float]
    table: KernelTable
    latency_s: Floats
    configurations: Integers
    data_hash: str

    def __len__(self) -> int:
        return len(self.latency_s)

    def part(self, rows: Integers) -> TrainingSet:
        """These rows only."""
        table = self.table
        return replace(
            self,
            table=KernelTable(
                names=table.names, values=table.values[rows], roof_s=table.roof_s[rows]
            ),
            latency_s=self.latency_s[rows],
            configurations=self.configurations[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """See the module's docstring. It answers for `device_class`; where it learnt from another one,
    `origin`, intervals are twice as wide. `reach` is their half width in the logarithm; `lowest`
    and `highest` bound the facts that training saw, `margins` what it was to say; `peaks` are the
    origin's, on which its rooflines rest. With a `base`, the model of another class, the members
    say what differs from it; without one, from the implementation's own estimate. `pace` is what
    this machine takes of the time that was learnt (see `predict.pace`); it is not kept."""

    family: str
    device_class: str
    origin: str
    peaks: Mapping[str, float]
    names: tuple[str, ...]
    members: tuple[Utilisation, ...]
    reach: float
    lowest: Floats
    highest: Floats
    margins: tuple[float, float]
    rows: int
    data_hash: str
    base: KernelModel | None = None
    pace: float = 1.0

    def times(self, table: KernelTable) -> KernelTimes:
        """Predict the rows of a table."""
        values = table.aligned(self.names)
        latency_s = self.pace * table.roof_s * np.exp(-self.margin(values))
        outside = self._outside(values)
        borrowed = _WIDER if self.origin != self.device_class else 1.0
        reach = self.reach * borrowed * np.where(outside, _WIDER, 1.0)
        return KernelTimes(
            latency_s=latency_s,
            low_s=latency_s * np.exp(-reach),
            high_s=latency_s * np.exp(reach),
            outside=outside,
        )

    def margin(self, values: Floats) -> Floats:
        """The logarithm of the utilisation for rows of facts, in the order of `names`."""
        found = np.median([member.margin(values) for member in self.members], axis=0)
        return np.clip(found + _start(self.names, values, self.base), *self.margins)

    def _outside(self, values: Floats) -> np.ndarray:
        own = np.array([name.startswith("op.") for name in self.names])
        slack = _BEYOND * (self.highest - self.lowest) + 1e-9
        with np.errstate(invalid="ignore"):
            beyond = (values < self.lowest - slack) | (values > self.highest + slack)
        return np.asarray((beyond & own).any(axis=1))


def sample_trees(rows: int) -> Trees:
    """How to learn from so many rows of a new class beside another one's model."""
    return SAMPLE_TREES if rows < _MANY_SAMPLES else DEFAULT_TREES


def require_rows(
    data: TrainingSet, *, trees: Trees = DEFAULT_TREES, base: KernelModel | None = None
) -> None:
    """Raise ModelError for fewer than `LEAST_ROWS` rows, with a base `LEAST_SAMPLES`, or fewer
    configurations than members, with a base two."""
    count = len(np.unique(data.configurations))
    least = (LEAST_ROWS, trees.members) if base is None else (LEAST_SAMPLES, 2)
    if len(data) < least[0] or count < least[1]:
        raise ModelError(
            f"{len(data)} rows of {count} configurations teach nothing about {data.family}",
            hint=collecting(data.family, "--samples 500"),
        )


def fit_kernel_model(
    data: TrainingSet,
    *,
    trees: Trees = DEFAULT_TREES,
    columns: Sequence[str] | None = None,
    base: KernelModel | None = None,
) -> KernelModel:
    """Learn from measured kernels, with these columns only where some are given; with a `base`,
    the model of another class, what differs from that, by its columns. Raises as `require_rows`.
    """
    require_rows(data, trees=trees, base=base)
    count = len(np.unique(data.configurations))
    names = base.names if base is not None else tuple(columns or data.table.names)
    values = data.table.aligned(names)
    start = _start(names, values, base)
    known = Facts(names=names, values=values, scale=data.table.roof_s * np.exp(-start))
    members, residuals = _members(known, data, replace(trees, members=min(trees.members, count)))
    margin = np.log(data.table.roof_s / data.latency_s)
    margins = (float(margin.min()), float(margin.max()))
    lowest, highest = _range(values)
    if base is not None:
        margins = (min(margins[0], base.margins[0]), max(margins[1], base.margins[1]))
        lowest = np.where(np.isinf(lowest), base.lowest, np.minimum(lowest, base.lowest))
        highest = np.where(np.isinf(highest), base.highest, np.maximum(highest, base.highest))
    return KernelModel(
        family=data.family,
        device_class=data.device_class,
        origin=data.device_class,
        peaks=dict(data.peaks),
        names=names,
        members=members,
        reach=conformal_reach(residuals),
        lowest=lowest,
        highest=highest,
        margins=margins,
        rows=len(data),
        data_hash=data.data_hash,
        base=base,
    )


def _members(
    known: Facts, data: TrainingSet, trees: Trees
) -> tuple[tuple[Utilisation, ...], Floats]:
    """Models that are each blind to one part of the configurations, and every row's error by the
    one that did not see it, in the logarithm."""
    inner = np.unique(data.configurations, return_inverse=True)[1].ravel()
    parts = folds_of(inner, trees.members, seed=1)
    members: list[Utilisation] = []
    residuals = np.zeros(len(data))
    for member in range(trees.members):
        seen, unseen = np.flatnonzero(parts != member), np.flatnonzero(parts == member)
        facts = Facts(names=known.names, values=known.values[seen], scale=known.scale[seen])
        fitted = fit_trees(facts, data.latency_s[seen], trees, member)
        margin = fitted.margin(known.values[unseen])
        residuals[unseen] = np.log(known.scale[unseen] / data.latency_s[unseen]) - margin
        members.append(fitted)
    return tuple(members), residuals


def _start(names: Sequence[str], values: Floats, base: KernelModel | None) -> Floats:
    """The logarithm of the utilisation by the base, else by the implementation's own estimate; 0
    without either."""
    if base is not None:
        return base.margin(values)
    if _ESTIMATE not in names:
        return np.zeros(len(values))
    return -np.log(2) * values[:, list(names).index(_ESTIMATE)]


def _range(values: Floats) -> tuple[Floats, Floats]:
    """Least and largest value of each column; columns without any are unbounded."""
    there = np.isfinite(values)
    lowest = np.where(there, values, np.inf).min(0)
    highest = np.where(there, values, -np.inf).max(0)
    empty = ~there.any(0)
    lowest[empty], highest[empty] = -np.inf, np.inf
    return lowest, highest


def data_hash(rows: Sequence[tuple[str, str, float]]) -> str:
    """Identity of training rows: workload, candidate, seconds."""
    return digest("\n".join(sorted(canonical_json(row) for row in rows)))


def to_json(model: KernelModel) -> dict[str, Any]:
    """The model as JSON values, its trees as xgboost's binary JSON in Base64: they are read thirty
    times faster. `from_json` reads it."""
    return {
        "family": model.family,
        "device_class": model.device_class,
        "origin": model.origin,
        "peaks": dict(model.peaks),
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
def from_json(found: Mapping[str, Any]) -> KernelModel:
    """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
    import xgboost

    members: list[Utilisation] = []
    for stored in found["members"]:
        booster = xgboost.Booster()
        booster.load_model(_unpacked(stored))
        members.append(Utilisation(booster=booster, overhead=0.0))
    return KernelModel(
        family=str(found["family"]),
        device_class=str(found["device_class"]),
        origin=str(found["origin"]),
        peaks={str(name): float(value) for name, value in found["peaks"].items()},
        names=tuple(found["names"]),
        members=tuple(members),
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
