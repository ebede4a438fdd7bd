"""Cards of predictors: what they learnt from, and the limits that their errors show."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.core.fingerprints import digest
from tilewright.core.predictions import Covered, EvaluateRow, PredictorCard
from tilewright.core.version import own_version
from tilewright.predict.kernel_facts import implementation_of
from tilewright.predict.kernel_models import TrainingSet

ALL = "all"
OPERATOR_ALONE = "operator facts alone"
"""Groups that are no part of the rows: everything, and everything by a poorer predictor."""

_FEW = 50
_JUDGEABLE = 100
_LEAST_COVERAGE = 0.86
_WORSE = 1.5
_COVERS = (
    *("flop", "constant_bytes", "data_bytes", "result_bytes"),
    *("batch", "in_channels", "out_channels", "out_height", "kernel_height", "stride", "innermost"),
)
_PLAIN = frozenset({"batch", "kernel_height", "stride"})
"""Facts that are no logarithms; those of bytes are of one byte more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What a predictor learns from, as `PredictorCard` has it; `limits` are those of the data."""

    family: str
    target: str
    devices: tuple[str, ...]
    rows: int
    configurations: int
    data_hash: str
    covers: Sequence[Covered]
    measured: tuple[str, str] | None = None
    limits: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAside:
    """How rows were kept aside."""

    name: str
    folds: int
    seed: int


def card(learnt: Learnt, split: KeptAside, rows: Sequence[EvaluateRow]) -> PredictorCard:
    """The card of a predictor whose errors are `rows`."""
    return PredictorCard(
        family=learnt.family,
        target=learnt.target,
        devices=learnt.devices,
        rows=learnt.rows,
        configurations=learnt.configurations,
        data_hash=learnt.data_hash,
        measured_from=learnt.measured[0] if learnt.measured else None,
        measured_until=learnt.measured[1] if learnt.measured else None,
        split=split.name,
        folds=split.folds,
        seed=split.seed,
        covers=tuple(learnt.covers),
        limits=(*learnt.limits, *_limits(rows)),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        version=own_version(),
    )


def _limits(rows: Sequence[EvaluateRow]) -> Iterator[str]:
    """What the errors themselves warn of, group by group."""
    everything = next((row for row in rows if row.group == ALL), None)
    for row in rows:
        if row.group == OPERATOR_ALONE:
            continue
        if row.n < _FEW and row is not everything:
            yield f"{row.group}: only {row.n} rows, so that its errors are rough."
            continue
        covered = row.coverage_90
        if covered is not None and covered < _LEAST_COVERAGE and row.n >= _JUDGEABLE:
            yield f"{row.group}: intervals hold {covered:.0%} of the rows, not 90 %."
        if everything is not None and row.mape > _WORSE * everything.mape:
            ratio = row.mape / everything.mape
            yield f"{row.group}: mean error {ratio:.1f} times that of all rows."


def learnt_kernels(data: TrainingSet, measured: tuple[str, str] | None) -> Learnt:
    """What a family's predictor of kernels learns from."""
    names = sorted(set(implementation_of(data.table)))
    return Learnt(
        family=data.family,
        target="latency_s",
        devices=(data.device_class,),
        rows=len(data),
        configurations=len(np.unique(data.configurations)),
        data_hash=data.data_hash,
        covers=tuple(_covered(data)),
        measured=measured,
        limits=(
            f"Kernels of {', '.join(names)} on one class of devices; on another class intervals "
            "are twice as wide.",
            "A kernel alone, with weights that come from memory; what running in sequence adds is "
            "a factor of the network's prediction.",
            "Operators outside the ranges above get intervals twice as wide.",
            *_element_types(data),
        ),
    )


def together(parts: Sequence[Learnt]) -> Learnt:
    """The predictors of several device classes as one, which have a family in common."""
    covers: dict[str, Covered] = {}
    for one in (one for part in parts for one in part.covers):
        known = covers.get(one.name, one)
        low, high = min(one.low, known.low), max(one.high, known.high)
        covers[one.name] = Covered(name=one.name, low=low, high=high)
    days = [part.measured for part in parts if part.measured is not None]
    return replace(
        parts[0],
        devices=tuple(device for part in parts for device in part.devices),
        rows=sum(part.rows for part in parts),
        configurations=sum(part.configurations for part in parts),
        data_hash=digest(" ".join(part.data_hash for part in parts)),
        covers=list(covers.values()),
        measured=(min(d[0] for d in days), max(d[1] for d in days))
        if len(days) == len(parts)
        else None,
        limits=tuple(dict.fromkeys(limit for part in parts for limit in part.limits)),
    )


def _covered(data: TrainingSet) -> Iterator[Covered]:
    table = data.table
    for name in _COVERS:
        if f"op.{name}" not in table.names:
            continue
        values = table.values[:, table.names.index(f"op.{name}")]
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        low, high = float(values.min()), float(values.max())
        if name not in _PLAIN:
            beyond = 1.0 if name.endswith("_bytes") else 0.0
            low, high = 2.0**low - beyond, 2.0**high - beyond
        yield Covered(name=name, low=float(round(low)), high=float(round(high)))


def _element_types(data: TrainingSet) -> Iterator[str]:
    place = data.table.names.index("op.element_bytes")
    sizes = sorted({int(size) for size in data.table.values[:, place]})
    if len(sizes) == 1:
        yield f"Results of {sizes[0]} bytes an element only."
