"""`evaluate`: a predictor judged on a table, or on the kernels known of this device class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from tilewright.core.arguments import count_of, path_or_none, text_of
from tilewright.core.errors import ModelError, TilewrightError, UsageError, close_matches
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.predictions import EvaluateResult, EvaluateRow
from tilewright.insight.network_rows import members_of, operators_of
from tilewright.predict.base import Trees
from tilewright.predict.cards import (
    ALL,
    OPERATOR_ALONE,
    KeptAside,
    Learnt,
    card,
    learnt_kernels,
    together,
)
from tilewright.predict.crossvalidation import Unseen, operator_columns, unseen, unseen_networks
from tilewright.predict.device_classes import Samples, classes_of, unseen_classes
from tilewright.predict.evaluation import Question, evaluate, row_of
from tilewright.predict.families.registry import FAMILIES
from tilewright.predict.judged import Evaluation, Judged
from tilewright.predict.kernel_facts import implementation_of
from tilewright.predict.kernel_models import (
    DEFAULT_TREES,
    LEAST_SAMPLES,
    TrainingSet,
    sample_trees,
)
from tilewright.predict.modelling import Predictors
from tilewright.predict.shipped import shipped_data, shipped_placements

KernelSplit = Literal["configuration", "network", "device"]
TARGET, UNIT = "latency_s", "s"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelQuestion:
    """Which predictors of kernels are judged, `all` or one family's, and what they have not seen.
    With `shots` so many kernels of a device class left out may be learnt from. Raises UsageError
    for an unknown split, for fewer than two folds, and for samples of something else than a device,
    or too few to say anything."""

    family: str = ALL
    split: KernelSplit = "configuration"
    folds: int = 5
    seed: int = 0
    trees: Trees = DEFAULT_TREES
    shots: int = 0

    def __post_init__(self) -> None:
        if self.split not in get_args(KernelSplit):
            raise UsageError(
                f"There is no split {self.split!r}.",
                hint=close_matches(self.split, get_args(KernelSplit)),
            )
        if self.folds < 2:
            raise UsageError(f"--folds must be at least 2, not {self.folds}.")
        if self.shots and self.split != "device":
            raise UsageError("--shots are samples of a device left out: --split device.")
        if self.shots and self.shots < LEAST_SAMPLES:
            raise UsageError(f"--shots must be 0 or at least {LEAST_SAMPLES}, not {self.shots}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest:
    """One `evaluate` command. Without a `table` the predictors of kernels are judged, those of
    `all` families or of one; `specs` are for a table, `shots` for a device left out."""

    table: Path | None = None
    family: str = ALL
    split: KernelSplit = "configuration"
    folds: int = 5
    specs: Path | None = None
    shots: int = 0

    def __post_init__(self) -> None:
        """Text stands for paths. Raises UsageError for other kinds."""
        for name in ("table", "specs"):
            object.__setattr__(self, name, path_or_none(getattr(self, name), name))
        text_of(self.family, "family")
        count_of(self.folds, "folds")
        count_of(self.shots, "shots")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What a request is answered with: our own predictors, opened where they are wanted; `threads`
    fit those of a table."""

    predictors: Callable[[], Predictors]
    events: EventSink
    seed: int
    threads: int


def judge(request: EvaluateRequest, place: Workplace) -> Evaluation:
    """Raises UsageError for flags that do not go together, and what `evaluate_table` and
    `evaluate_kernels` raise."""
    if request.table is None:
        if request.specs is not None:
            raise UsageError("--specs goes with --table.")
        question = KernelQuestion(
            family=request.family,
            split=request.split,
            folds=request.folds,
            seed=place.seed,
            shots=request.shots,
        )
        return evaluate_kernels(place.predictors(), question)
    if request.split == "network":
        raise UsageError(
            "--split network is for our own kernels: the rows of a table are of no network.",
            hint="--split configuration keeps equal configurations together.",
        )
    if request.family == ALL:
        raise UsageError(
            "--table needs --family: what the rows are.", hint=f"Known are {', '.join(FAMILIES)}."
        )
    question = Question(
        table=request.table,
        family=request.family,
        split=request.split,
        folds=request.folds,
        specs=request.specs,
        shots=request.shots,
        seed=place.seed,
        threads=place.threads,
    )
    return evaluate_table(question, place.events)


def evaluate_table(question: Question, events: EventSink) -> Evaluation:
    """Fit and judge; rows that were left out are told as notes. Raises what `evaluate` raises."""
    events(Stage(name="evaluate", detail=f"{question.family} by {question.split}"))
    with threadpool_limits(limits=question.threads, user_api="blas"):
        found = evaluate(question)
    for note in found.result.notes:
        events(Note(message=note))
    return found


def evaluate_kernels(predictors: Predictors, question: KernelQuestion) -> Evaluation:
    """The predictors of kernels, on what is known of this device class and came along.

    By configuration, groups are all rows, the implementations, and what facts of the operator alone
    would reach; by network the networks; by device the device classes. Of `all` families those
    that too little is known of are told as notes.

    Raises UsageError for a family of which nothing is known, and for fewer than two device classes
    to tell apart; ModelError for too few rows, or none of a network's own.
    """
    judged_by = _SPLITS[question.split]
    classes = classes_of(predictors) if question.split == "device" else [predictors]
    families = _families(classes, question)
    found: list[_Judgement] = []
    notes: list[str] = []
    errors: list[TilewrightError] = []
    for family in families:
        predictors.events(Stage(name="evaluate", detail=f"{family} by {question.split}"))
        try:
            found.append(judged_by(classes, replace(question, family=family)))
        except (ModelError, UsageError) as error:
            errors.append(error)
            notes.append(f"{family}: {error.message}")
    if not found:
        raise errors[0]
    for note in notes:
        predictors.events(Note(message=note))
    kept_aside = KeptAside(name=question.split, folds=question.folds, seed=question.seed)
    result = EvaluateResult(
        family=question.family,
        split=question.split,
        shots=question.shots,
        rows=tuple(row for one in found for row in one.rows),
        notes=tuple(notes),
        cards=tuple(card(one.learnt, kept_aside, one.rows) for one in found),
    )
    return Evaluation(result=result, judged=tuple(one.judged for one in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """One family's predictor: what it learns from, every prediction, and the scores."""

    learnt: Learnt
    judged: Judged
    rows: tuple[EvaluateRow, ...]


def _families(classes: Sequence[Predictors], question: KernelQuestion) -> list[str]:
    known = sorted({name for one in classes for name in one.families()})
    if question.family == ALL:
        if not known:
            raise ModelError(
                "nothing was measured on this device class",
                hint="`tilewright collect --op all` measures it.",
            )
        return known
    if question.family not in known:
        raise UsageError(
            f"nothing was measured of a family {question.family!r}",
            hint=close_matches(question.family, [*known, ALL]),
        )
    return [question.family]


def _learnt(predictors: Predictors, data: TrainingSet) -> Learnt:
    return learnt_kernels(data, _days(predictors, data.device_class))


def _days(predictors: Predictors, device_class: str) -> tuple[str, str] | None:
    """The first and last day of what is known of a class; None where a part has no date."""
    every = (*predictors.store.placements(), predictors.placement)
    known = {str(placement.key): placement.key for placement in every}
    own = predictors.store.measured_days(known[device_class]) if device_class in known else None
    shipped = [one for one in shipped_placements() if str(one.key) == device_class]
    if not shipped:
        return own
    came = shipped_data(shipped[0])
    days = came.measured if came is not None else None
    if own is None or days is None:
        return days
    return min(own[0], days[0]), max(own[1], days[1])


def _by_configuration(classes: Sequence[Predictors], question: KernelQuestion) -> _Judgement:
    (predictors,) = classes
    data = predictors.training_set(question.family)
    folds, seed, trees = question.folds, question.seed, question.trees
    base = predictors.base(question.family)
    fitted = trees if base is None else sample_trees(len(data))
    found = unseen(data, folds=folds, seed=seed, trees=fitted, base=base)
    judged = _judged(data, found)
    rows = [_row(judged, ALL)]
    for name in sorted(set(judged.groups)):
        rows.append(_row(judged.part(judged.groups == name), str(name)))
    columns = operator_columns(data.table.names)
    alone = unseen(data, folds=folds, seed=seed, columns=columns, trees=trees)
    rows.append(_row(_judged(data, alone), OPERATOR_ALONE))
    return _Judgement(learnt=_learnt(predictors, data), judged=judged, rows=tuple(rows))


def _by_network(classes: Sequence[Predictors], question: KernelQuestion) -> _Judgement:
    (predictors,) = classes
    data = predictors.training_set(question.family)
    kernels = predictors.learnt_rows(question.family)
    members = members_of(kernels, predictors)
    if not members:
        raise ModelError(
            f"no kernel of {question.family} is known to be a network's own",
            hint="`tilewright collect zoo:resnet50 zoo:googlenet` measures networks' kernels.",
        )
    found = unseen_networks(
        data,
        members,
        operators_of(kernels),
        folds=question.folds,
        seed=question.seed,
        trees=question.trees,
    )
    parts = {name: _judged(data, one) for name, one in found.items()}
    judged = _judged(
        data,
        Unseen(
            rows=np.concatenate([one.rows for one in found.values()]),
            predicted_s=np.concatenate([one.predicted_s for one in found.values()]),
            reach=np.concatenate([one.reach for one in found.values()]),
        ),
    )
    rows = [_row(judged, ALL), *(_row(part, name) for name, part in parts.items())]
    return _Judgement(learnt=_learnt(predictors, data), judged=judged, rows=tuple(rows))


def _by_device(classes: Sequence[Predictors], question: KernelQuestion) -> _Judgement:
    samples = Samples(count=question.shots, seed=question.seed)
    parts = unseen_classes(classes, question.family, question.trees, samples)
    judged = Judged(
        family=question.family,
        target=TARGET,
        unit=UNIT,
        measured=np.concatenate([part.measured_s for part in parts]),
        predicted=np.concatenate([part.times.latency_s for part in parts]),
        reach=np.concatenate([part.reach for part in parts]),
        groups=np.concatenate([np.full(len(part.reach), part.name, object) for part in parts]),
    )
    names = [part.name for part in parts]
    rows = [_row(judged.part(judged.groups == name), name) for name in names]
    rows.append(_row(judged, ALL))
    sources = {part.data.device_class: part.data for part in parts}
    learnt = together([_learnt(classes[0], data) for data in sources.values()])
    return _Judgement(learnt=learnt, judged=judged, rows=tuple(rows))


_SPLITS: dict[KernelSplit, Callable[[Sequence[Predictors], KernelQuestion], _Judgement]] = {
    "configuration": _by_configuration,
    "network": _by_network,
    "device": _by_device,
}


def _judged(data: TrainingSet, found: Unseen) -> Judged:
    return Judged(
        family=data.family,
        target=TARGET,
        unit=UNIT,
        measured=data.latency_s[found.rows],
        predicted=found.predicted_s,
        reach=found.reach,
        groups=implementation_of(data.table)[found.rows],
    )


def _row(judged: Judged, group: str) -> EvaluateRow:
    return row_of(judged.family, judged.target, group, judged.score())
