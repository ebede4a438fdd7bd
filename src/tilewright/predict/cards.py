"""Cards of predictors: what they learnt from, and the limits that their errors show."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.fingerprints import digest
from tilewright.core.predictions import Covered, EvaluateRow, PredictorCard
from tilewright.hardware.environment import own_version
from tilewright.predict.family_models import TrainingSet
from tilewright.predict.splits import ALL, Question

OPERATOR_ALONE = "operator facts alone"
"""A group that is no part of the rows: everything, by a poorer predictor."""

_FEW = 50
_JUDGEABLE = 100
_LEAST_COVERAGE = 0.86
_WORSE = 1.5
_COVERS = (
    *("flop", "constant_bytes", "data_bytes", "result_bytes"),
    *("batch", "in_channels", "out_channels", "out_height", "kernel_height", "stride", "innermost"),
)
_PLAIN = frozenset({"batch", "kernel_height", "stride"})
"""Features that are no logarithms; those of bytes are of one byte more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Rows that a predictor learns from, as `PredictorCard` has it; `limits` are those of the rows,
    `measured` their first and last day."""

    data: TrainingSet
    devices: tuple[str, ...]
    covers: Sequence[Covered]
    measured: tuple[str, str] | None = None
    limits: Sequence[str] = ()


def card(
    learnt: Sequence[Learnt], question: Question, rows: Sequence[EvaluateRow]
) -> PredictorCard:
    """The card of a predictor, or of those of several device classes as one, whose errors are
    `rows`."""
    covers: dict[str, Covered] = {}
    for one in (one for part in learnt for one in part.covers):
        known = covers.get(one.name, one)
        low, high = min(one.low, known.low), max(one.high, known.high)
        covers[one.name] = Covered(name=one.name, low=low, high=high)
    hashes = [part.data.data_hash for part in learnt]
    days = [part.measured for part in learnt if part.measured is not None]
    known_days = len(days) == len(learnt)
    return PredictorCard(
        family=learnt[0].data.family,
        target=learnt[0].data.target_name,
        devices=tuple(device for part in learnt for device in part.devices),
        rows=sum(len(part.data) for part in learnt),
        configurations=sum(len(np.unique(part.data.configurations)) for part in learnt),
        data_hash=hashes[0] if len(hashes) == 1 else digest(" ".join(hashes)),
        measured_from=min(first for first, _ in days) if known_days else None,
        measured_until=max(last for _, last in days) if known_days else None,
        split=question.split,
        folds=question.folds,
        seed=question.seed,
        covers=tuple(covers.values()),
        limits=(*dict.fromkeys(limit for part in learnt for limit in part.limits), *_limits(rows)),
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
    return Learnt(
        data=data,
        devices=(data.device_class,),
        covers=tuple(_covered(data)),
        measured=measured,
        limits=(
            f"Kernels of {', '.join(sorted(set(data.groups)))} on one class of devices; on another "
            "class intervals are twice as wide.",
            "A kernel alone, with weights that come from memory; what running in sequence adds is "
            "a factor of the network's prediction.",
            "Operators outside the ranges above get intervals twice as wide.",
            *_element_types(data),
        ),
    )


def _covered(data: TrainingSet) -> Iterator[Covered]:
    columns = data.features.aligned([f"op.{name}" for name in _COVERS]).T
    for name, column in zip(_COVERS, columns, strict=True):
        values = column[np.isfinite(column)]
        if not len(values):
            continue
        low, high = float(values.min()), float(values.max())
        if name not in _PLAIN:
            beyond = 1.0 if name.endswith("_bytes") else 0.0
            low, high = 2.0**low - beyond, 2.0**high - beyond
        yield Covered(name=name, low=float(round(low)), high=float(round(high)))


def _element_types(data: TrainingSet) -> Iterator[str]:
    sizes = {int(size) for size in data.features.aligned(["op.element_bytes"])[:, 0]}
    if len(sizes) == 1:
        yield f"Results of {sizes.pop()} bytes an element only."
