"""The engine that judges predictors on rows that they did not see, wherever the rows come from, and
their cards: what they learnt from, and the limits that their errors show."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from tilewright.core.arguments import count_of, path_or_none, text_of
from tilewright.core.codec import digest
from tilewright.core.errors import ModelError, TilewrightError, UsageError, close_matches
from tilewright.core.events import EventSink, Note
from tilewright.core.grouping import grouped
from tilewright.core.predictions import (
    Covered,
    EvaluatePick,
    EvaluateResult,
    EvaluateRow,
    PredictorCard,
)
from tilewright.hardware.environment import own_version
from tilewright.predict.base import Floats, Integers, folds_of, rank_correlation
from tilewright.predict.family_models import FamilyModel, Predictions, TrainingSet

ALL = "all"
"""Every family, or every row."""

Split = Literal["configuration", "network", "device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest:
    """One `evaluate` command: which predictors are judged, and on what they have not seen. Without
    a `table` these are the predictors of kernels, of `all` families or of one; `specs` are
    datasheets for a table. `folds` is for splits by configuration and network; `shots` is for the
    split by device: the number of samples of the device left out from which the predictor may
    learn. A session judges with its own `seed`."""

    table: Path | None = None
    family: str = ALL
    split: Split = "configuration"
    folds: int = 5
    specs: Path | None = None
    shots: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Text stands for paths. Raises UsageError for other kinds, an unknown split, fewer than
        two folds, and samples of something else than a device."""
        for name in ("table", "specs"):
            object.__setattr__(self, name, path_or_none(getattr(self, name), name))
        text_of(self.family, "family")
        count_of(self.folds, "folds")
        count_of(self.shots, "shots")
        splits = get_args(Split)
        if self.split not in splits:
            raise UsageError(
                f"There is no split {self.split!r}.", hint=close_matches(self.split, splits)
            )
        if self.folds < 2:
            raise UsageError(f"--folds must be at least 2, not {self.folds}.")
        if self.shots and self.split != "device":
            raise UsageError("--shots goes with --split device: samples of the device left out.")

    def require_shots(self, least: int) -> None:
        """Raise UsageError for samples that are too few to say anything."""
        if 0 < self.shots < least:
            raise UsageError(f"--shots must be 0 or at least {least}, not {self.shots}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Rows of one target that a predictor had not seen, with what it said of them.

    `measured` and `predicted` are in SI units (`unit`: s, J, W); an interval is predicted ÷
    e^reach to predicted × e^reach. `groups` is a name per row: its implementation, or its device.
    """

    family: str
    target: str
    unit: str
    measured: Floats
    predicted: Floats
    reach: Floats
    groups: npt.NDArray[Any]

    def part(self, rows: npt.NDArray[Any]) -> HeldOut:
        """These rows only, given as numbers or as a mask."""
        return replace(
            self,
            measured=self.measured[rows],
            predicted=self.predicted[rows],
            reach=self.reach[rows],
            groups=self.groups[rows],
        )

    def times(self, other: HeldOut, target: str, unit: str) -> HeldOut:
        """The product with another target of the same rows, whose errors have nothing to do with
        those of this one."""
        return replace(
            self,
            target=target,
            unit=unit,
            measured=self.measured * other.measured,
            predicted=self.predicted * other.predicted,
            reach=np.hypot(self.reach, other.reach),
        )

    def by_group(self, names: Iterable[str]) -> dict[str, HeldOut]:
        """The rows of each of these groups."""
        return {name: self.part(self.groups == name) for name in names}

    def row(self, group: str) -> EvaluateRow:
        """How good the predictions are, as a row of an answer. Raises ValueError for no rows."""
        if not len(self.measured):
            raise ValueError("nothing to compare")
        errors = np.abs(self.predicted / self.measured - 1)
        away = np.abs(np.log(self.predicted / self.measured))
        return EvaluateRow(
            family=self.family,
            target=self.target,
            group=group,
            n=len(self.measured),
            mape=float(errors.mean()),
            median_ape=float(np.median(errors)),
            p90_ape=float(np.quantile(errors, 0.9)),
            within_5=float(np.mean(errors <= 0.05)),
            within_10=float(np.mean(errors <= 0.1)),
            within_20=float(np.mean(errors <= 0.2)),
            spearman=rank_correlation(self.predicted, self.measured),
            coverage_90=float(np.mean(away <= self.reach)),
        )


def together(parts: Sequence[HeldOut]) -> HeldOut:
    """The rows of all parts, at least one, in their order."""
    return replace(
        parts[0],
        measured=np.concatenate([part.measured for part in parts]),
        predicted=np.concatenate([part.predicted for part in parts]),
        reach=np.concatenate([part.reach for part in parts]),
        groups=np.concatenate([part.groups for part in parts]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What `evaluate` answers, and the rows it rests on, one `HeldOut` per card of the answer."""

    result: EvaluateResult
    held_out: tuple[HeldOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Rows that a predictor learns from, as `PredictorCard` has it; `limits` are those of the rows,
    `measured` their first and last day."""

    data: TrainingSet
    devices: tuple[str, ...]
    covers: Sequence[Covered]
    measured: tuple[str, str] | None = None
    limits: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """One predictor: what it learns from, and the rows of each group that it had not seen."""

    learnt: Sequence[Learnt]
    parts: Mapping[str, HeldOut]
    picks: Sequence[EvaluatePick] = ()


def evaluated(
    request: EvaluateRequest,
    cases: Iterable[tuple[str, Callable[[], Assessment]]],
    events: EventSink,
    noted: Sequence[str] = (),
) -> Evaluation:
    """Judge each case, a family's name and what assesses its predictor. Of `all` families those
    that too little is known of are told as notes, beside what was `noted` before.

    Raises what a case raises: of `all` families the first, where none can be judged.
    """
    found: list[Assessment] = []
    errors: list[TilewrightError] = []
    notes = list(noted)
    for name, assess in cases:
        try:
            found.append(assess())
        except (ModelError, UsageError) as error:
            if request.family != ALL:
                raise
            errors.append(error)
            notes.append(f"{name}: {error.message}")
    if not found:
        raise errors[0]
    for note in notes:
        events(Note(message=note))
    rows = [[part.row(group) for group, part in one.parts.items()] for one in found]
    result = EvaluateResult(
        family=request.family,
        split=request.split,
        shots=request.shots,
        rows=tuple(chain.from_iterable(rows)),
        picks=tuple(pick for one in found for pick in one.picks),
        notes=tuple(notes),
        cards=tuple(card(o.learnt, request, mine) for o, mine in zip(found, rows, strict=True)),
    )
    whole = (one.parts.get(ALL, next(iter(one.parts.values()))) for one in found)
    return Evaluation(result=result, held_out=tuple(whole))


Fit = Callable[[TrainingSet], FamilyModel]


def held_out(asked: TrainingSet, said: Predictions) -> HeldOut:
    """Rows with what a predictor that had not seen them said."""
    return HeldOut(
        family=asked.family,
        target=asked.target_name,
        unit=asked.unit,
        measured=asked.target,
        predicted=said.predicted,
        reach=said.reach,
        groups=asked.groups,
    )


def cross_validated(data: TrainingSet, fit: Fit, folds: int, seed: int) -> HeldOut:
    """All rows, in their order: leave out one part of the configurations after the other. Raises
    what `fit` raises."""
    parts = folds_of(data.configurations, folds, seed)
    tests = [np.flatnonzero(parts == part) for part in range(folds) if (parts == part).any()]
    found = together([_left_out(data, test, fit) for test in tests])
    return found.part(np.argsort(np.concatenate(tests)))


def unseen_networks(
    data: TrainingSet,
    members: Mapping[str, Integers],
    operators: Integers,
    fit: Fit,
    request: EvaluateRequest,
) -> dict[str, HeldOut]:
    """Leave out one part of the networks after the other; a network's answer is of its own rows.

    `members` are the numbers of each network's rows. `operators` is a number per row, the same for
    rows of the same operator whatever is fused to it: what a network that is left out has, no row
    has that is learnt from, be it of another network or of none. Raises what `fit` raises.
    """
    names = sorted(members)
    folds = min(request.folds, max(2, len(names)))
    parts = folds_of(np.arange(len(names)), folds, request.seed)
    found: dict[str, HeldOut] = {}
    for part in np.unique(parts):
        mine = [name for name, other in zip(names, parts, strict=True) if other == part]
        test = np.unique(np.concatenate([members[name] for name in mine]))
        model = fit(data.part(np.flatnonzero(~np.isin(operators, operators[test]))))
        for name in mine:
            asked = data.part(members[name])
            found[name] = held_out(asked, model.predict(asked.features))
    return {name: found[name] for name in names}


def _left_out(data: TrainingSet, test: Integers, fit: Fit) -> HeldOut:
    asked, rest = data.part(test), np.setdiff1d(np.arange(len(data)), test)
    return held_out(asked, fit(data.part(rest)).predict(asked.features))


OPERATOR_ALONE = "operator facts alone"
WITHOUT_SCHEDULE = "without facts of the schedule"
"""Groups that are no part of the rows: everything, by a poorer predictor. The first one knows the
operator's sizes and options, the second one also the implementation, its layouts and knobs."""
POORER = (OPERATOR_ALONE, WITHOUT_SCHEDULE)

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


def card(
    learnt: Sequence[Learnt], request: EvaluateRequest, rows: Sequence[EvaluateRow]
) -> PredictorCard:
    """The card of a predictor, or of those of several device classes as one, whose errors are
    `rows`."""
    covers = grouped([(one.name, one) for part in learnt for one in part.covers])
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
        split=request.split,
        folds=request.folds,
        seed=request.seed,
        covers=tuple(
            Covered(name=name, low=min(c.low for c in same), high=max(c.high for c in same))
            for name, same in covers.items()
        ),
        limits=(*dict.fromkeys(limit for part in learnt for limit in part.limits), *_limits(rows)),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        version=own_version(),
    )


def _limits(rows: Sequence[EvaluateRow]) -> Iterator[str]:
    """What the errors themselves warn of, group by group."""
    everything = next((row for row in rows if row.group == ALL), None)
    for row in (row for row in rows if row.group not in POORER):
        if row.n < _FEW and row is not everything:
            yield f"{row.group}: {row.n} rows are too few for more than a rough idea of the errors."
            continue
        covered = row.coverage_90
        if covered is not None and covered < _LEAST_COVERAGE and row.n >= _JUDGEABLE:
            yield (
                f"{row.group}: only {100 * covered:.0f} % of the measured values lie inside their "
                "90 % intervals, so these are too narrow."
            )
        if everything is not None and row.mape > _WORSE * everything.mape:
            ratio = row.mape / everything.mape
            yield f"{row.group}: the mean error is {ratio:.1f} times that of all rows."


def learnt_kernels(data: TrainingSet, measured: tuple[str, str] | None) -> Learnt:
    """What a family's predictor of kernels, or that of the power of all, learns from."""
    told = _of_times if data.target_name == "latency_s" else _of_power
    return Learnt(
        data=data,
        devices=(data.device_class,),
        covers=tuple(_covered(data)),
        measured=measured,
        limits=(*told(data), _OUTSIDE, *_element_types(data)),
    )


_OUTSIDE = (
    "An operator whose sizes or options lie outside those of the measured operators (the "
    "main ranges are shown above) gets an interval twice as wide, too."
)


def _of_times(data: TrainingSet) -> tuple[str, ...]:
    return (
        "The predictor has learned from one device class, and only from kernels of these "
        f"implementations: {', '.join(sorted(set(data.groups)))}. On another class its "
        "intervals are twice as wide: a factor of 1.5 either way becomes 1.5² = 2.25.",
        "It predicts the time of a kernel that runs alone and reads its weights from memory, "
        "not from a cache. One after the other in a network, kernels take slightly longer; "
        "predictions of networks include a factor for that.",
    )


def _of_power(data: TrainingSet) -> tuple[str, ...]:
    return (
        "One predictor has learned the power of kernels of one device class, and only of these "
        f"families: {', '.join(sorted(set(data.groups)))}. Energy is power times predicted time.",
        "Machines of one class differ: H100s that were equally fast drew powers a tenth apart.",
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
        yield (
            f"All measured results have {sizes.pop()}-byte elements; operators of other element "
            "types belong to other families."
        )
