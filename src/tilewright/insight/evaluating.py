"""`evaluate`: a predictor judged on a table, or on the kernels known of this device class.

The file `networks.json` has the workload keys of each network of the zoo, at batch 1, so that the
rows of one are known without building it; `benchmarks/network_tasks.py` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from tilewright.core.arguments import count_of, path_or_none, text_of
from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.events import EventSink, Stage
from tilewright.graph.tasks import bare_key
from tilewright.insight.single_operators import default_kernel
from tilewright.measure.circumstances import PROBE
from tilewright.models import ModelOptions
from tilewright.models.configurations import CONFIGURATIONS
from tilewright.predict.base import Integers
from tilewright.predict.cards import OPERATOR_ALONE, Learnt, learnt_kernels
from tilewright.predict.collected import Row
from tilewright.predict.device_classes import Samples, classes_of, unseen_classes
from tilewright.predict.evaluation import (
    Assessment,
    cross_validated,
    evaluated,
    unseen_networks,
)
from tilewright.predict.families.registry import FAMILIES
from tilewright.predict.family_models import LEAST_SAMPLES, TrainingSet, fit_kernels
from tilewright.predict.metrics import Evaluation, together
from tilewright.predict.modelling import Predictors
from tilewright.predict.shipped import shipped_data, shipped_placements
from tilewright.predict.splits import ALL, Question, Split
from tilewright.predict.table_evaluation import table_cases

ZOO_FILE = Path(__file__).parent / "networks.json"
KEY_PREFIX = "zoo:"


@cache
def zoo_tasks() -> Mapping[str, frozenset[str]]:
    """The workload keys of each network: `zoo:resnet50` → {`conv2d-1b92700d527fc678`, …}."""
    found: Mapping[str, list[str]] = json.loads(ZOO_FILE.read_text(encoding="utf-8"))
    return {f"{KEY_PREFIX}{name}": frozenset(keys) for name, keys in found.items()}


def members_of(rows: Sequence[Row], predictors: Predictors) -> dict[str, Integers]:
    """The numbers of each network's rows: networks of the zoo, by their tasks, and those that a
    run on this device class was about, by what it measured. A row may be of several."""
    measured = _models_measured(predictors)
    found: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        key = row.workload.key
        zoo = {name for name, keys in zoo_tasks().items() if key in keys}
        for name in zoo | measured.get(key, set()):
            found.setdefault(name, []).append(number)
    return {name: np.array(numbers, dtype=np.int64) for name, numbers in found.items()}


def _models_measured(predictors: Predictors) -> dict[str, set[str]]:
    """Networks by the workloads that runs measured for them. The probe of the machine's speed is
    no network's, nor is what a run over several models or over families measured."""
    found = predictors.store.models_of_tasks(predictors.placement.key)
    if found:
        probe, _ = default_kernel(PROBE, ModelOptions(), predictors.placement)
        found.pop(probe.key, None)
    return {key: {name for name in names if _is_network(name)} for key, names in found.items()}


def _is_network(model: str) -> bool:
    return ", " not in model and not model.startswith("op:") and model not in CONFIGURATIONS


def operators_of(rows: Sequence[Row]) -> Integers:
    """A number per row, the same for one operator whatever is fused to it: the bare anchor, the
    whole kernel where there is none."""
    keys = {row.workload.key: row.workload for row in rows}
    bare = {key: bare_key(workload) for key, workload in keys.items()}
    names = [bare[row.workload.key] for row in rows]
    return np.unique(names, return_inverse=True)[1].ravel().astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest:
    """One `evaluate` command. Without a `table` the predictors of kernels are judged, those of
    `all` families or of one; `specs` are for a table, `shots` for a device left out."""

    table: Path | None = None
    family: str = ALL
    split: Split = "configuration"
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


def judge(
    request: EvaluateRequest,
    predictors: Callable[[], Predictors],
    events: EventSink,
    *,
    seed: int,
    threads: int,
) -> Evaluation:
    """Answer a request: by our own `predictors`, opened where they are wanted, or by those of a
    table, which `threads` fit. Raises UsageError for flags that do not go together, and what
    `evaluate_table` and `evaluate_kernels` raise."""
    question = Question(
        family=request.family,
        split=request.split,
        folds=request.folds,
        seed=seed,
        shots=request.shots,
    )
    if request.table is None:
        if request.specs is not None:
            raise UsageError("--specs goes with --table.")
        return evaluate_kernels(predictors(), question)
    if request.split == "network":
        raise UsageError(
            "--split network is for our own kernels: the rows of a table are of no network.",
            hint="--split configuration keeps equal configurations together.",
        )
    if request.family == ALL:
        raise UsageError(
            "--table needs --family: what the rows are.", hint=f"Known are {', '.join(FAMILIES)}."
        )
    return evaluate_table(request.table, request.specs, question, events, threads)


def evaluate_table(
    table: Path, specs: Path | None, question: Question, events: EventSink, threads: int
) -> Evaluation:
    """Fit and judge; rows that were left out are told as notes. Raises what `table_cases` and its
    cases raise."""
    events(Stage(name="evaluate", detail=f"{question.family} by {question.split}"))
    with threadpool_limits(limits=threads, user_api="blas"):
        cases, notes = table_cases(table, specs, question, threads)
        return evaluated(question, cases, events, notes)


def evaluate_kernels(predictors: Predictors, question: Question) -> Evaluation:
    """The predictors of kernels, on what is known of this device class and came along.

    By configuration, groups are all rows, the implementations, and what features of the operator
    alone would reach; by network the networks; by device the device classes.

    Raises UsageError for a family of which nothing is known, for fewer than two device classes to
    tell apart, and for too few samples of a device; ModelError for too few rows, or none of a
    network's own.
    """
    question.require_shots(LEAST_SAMPLES)
    classes = classes_of(predictors) if question.split == "device" else [predictors]

    def assess(family: str) -> Assessment:
        predictors.events(Stage(name="evaluate", detail=f"{family} by {question.split}"))
        if question.split == "device":
            return _by_device(classes, family, question)
        by = _by_network if question.split == "network" else _by_configuration
        return by(predictors, family, question)

    cases = [(family, partial(assess, family)) for family in _families(classes, question)]
    return evaluated(question, cases, predictors.events)


def _families(classes: Sequence[Predictors], question: Question) -> list[str]:
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


def _by_configuration(predictors: Predictors, family: str, question: Question) -> Assessment:
    data = predictors.training_set(family)
    fit = partial(fit_kernels, base=predictors.base(family))
    found = cross_validated(data, fit, question.folds, question.seed)
    columns = [name for name in data.features.names if name.startswith("op.")]
    poorer = partial(fit_kernels, columns=columns)
    alone = cross_validated(data, poorer, question.folds, question.seed)
    parts = {ALL: found, **found.by_group(sorted(set(found.groups))), OPERATOR_ALONE: alone}
    return Assessment(learnt=[_learnt(predictors, data)], parts=parts)


def _by_network(predictors: Predictors, family: str, question: Question) -> Assessment:
    data = predictors.training_set(family)
    kernels = predictors.learnt_rows(family)
    members = members_of(kernels, predictors)
    if not members:
        raise ModelError(
            f"no kernel of {family} is known to be a network's own",
            hint="`tilewright collect zoo:resnet50 zoo:googlenet` measures networks' kernels.",
        )
    found = unseen_networks(data, members, operators_of(kernels), fit_kernels, question)
    parts = {ALL: together(list(found.values())), **found}
    return Assessment(learnt=[_learnt(predictors, data)], parts=parts)


def _by_device(classes: Sequence[Predictors], family: str, question: Question) -> Assessment:
    samples = Samples(count=question.shots, seed=question.seed)
    found = unseen_classes(classes, family, samples)
    parts = {str(one.groups[0]): one for one, _ in found}
    sources = {data.device_class: data for _, data in found}
    return Assessment(
        learnt=[_learnt(classes[0], data) for data in sources.values()],
        parts={**parts, ALL: together(list(parts.values()))},
    )
