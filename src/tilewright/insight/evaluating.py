"""`evaluate`: a predictor judged on a table, or on the kernels known of this device class; with
`--split device` one known class is predicted from the nearest other.

The file `networks.json` has the workload keys of each network of the zoo, at batch 1, so that the
rows of one are known without building it; `benchmarks/network_tasks.py` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path

import numpy as np

from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.grouping import grouped
from tilewright.graph.tasks import bare_key
from tilewright.insight.single_operators import default_kernel
from tilewright.measure.circumstances import PROBE
from tilewright.models import ModelOptions
from tilewright.models.configurations import CONFIGURATIONS, collecting
from tilewright.predict.base import Integers
from tilewright.predict.collected import Row, family_of, nearest, shipped_data
from tilewright.predict.evaluation import (
    ALL,
    POORER,
    Assessment,
    EvaluateRequest,
    Evaluation,
    HeldOut,
    Learnt,
    cross_validated,
    evaluated,
    held_out,
    learnt_kernels,
    together,
    unseen_networks,
)
from tilewright.predict.family_models import (
    LEAST_ROWS,
    LEAST_SAMPLES,
    FamilyModel,
    TrainingSet,
    fit_kernels,
)
from tilewright.predict.modelling import Predictors
from tilewright.predict.powers import EVERY_FAMILY, PowerPredictors, fit_power
from tilewright.predict.processes import informative
from tilewright.predict.tables import evaluate_table

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
    found = grouped(
        [
            (name, number)
            for number, key in enumerate(row.workload.key for row in rows)
            for name in {n for n, keys in zoo_tasks().items() if key in keys}
            | measured.get(key, set())
        ]
    )
    return {name: np.array(numbers, dtype=np.int64) for name, numbers in found.items()}


def _models_measured(predictors: Predictors) -> dict[str, set[str]]:
    """Networks by the workloads that runs measured for them. The probe of the machine's speed is
    no network's, nor is what a run over several models or over families measured."""
    found = predictors.store.models_of_tasks(predictors.placement.key)
    if found:
        probe, _ = default_kernel(PROBE, ModelOptions(), predictors.placement)
        found.pop(probe.key, None)
    models = {name for names in found.values() for name in names}
    networks = {m for m in models if ", " not in m and not m.startswith("op:")} - {*CONFIGURATIONS}
    return {key: networks & {*names} for key, names in found.items()}


def operators_of(rows: Sequence[Row]) -> Integers:
    """A number per row, the same for one operator whatever is fused to it: the bare anchor, the
    whole kernel where there is none."""
    keys = {row.workload.key: row.workload for row in rows}
    bare = {key: bare_key(workload) for key, workload in keys.items()}
    names = [bare[row.workload.key] for row in rows]
    return np.unique(names, return_inverse=True)[1].ravel().astype(np.int64)


def judge(
    request: EvaluateRequest,
    predictors: Callable[[], Predictors],
    events: EventSink,
    threads: int,
) -> Evaluation:
    """Answer a request: by our own `predictors`, opened where they are wanted, or by those of a
    table, which `threads` fit. Raises UsageError for flags that do not go together, and what
    `evaluate_table` and `evaluate_kernels` raise."""
    if request.table is not None:
        return evaluate_table(request.table, request, events, threads)
    if request.specs is not None:
        raise UsageError("--specs goes with --table.")
    return evaluate_kernels(predictors(), request)


def evaluate_kernels(predictors: Predictors, request: EvaluateRequest) -> Evaluation:
    """The predictors of kernels, on what is known of this device class and came along.

    By configuration, groups are all rows, the implementations, and what features of the operator
    alone would reach, and all features but those of the schedule; by network the networks; by
    device the device classes. By configuration power is judged, too, that of all families by one
    predictor, and energy as power times time, where enough kernels were metered.

    Raises UsageError for a family of which nothing is known, for fewer than two device classes to
    tell apart, and for too few samples of a device; ModelError for too few rows, or none of a
    network's own.
    """
    request.require_shots(LEAST_SAMPLES)
    classes = classes_of(predictors) if request.split == "device" else [predictors]

    judged: dict[str, Mapping[str, HeldOut]] = {}

    def assess(family: str) -> Assessment:
        predictors.events(Stage(name="evaluate", detail=f"{family} by {request.split}"))
        found = _SPLITS[request.split](classes, family, request)
        judged[family] = found.parts
        return found

    families = _families(classes, request)
    cases = [(family, partial(assess, family)) for family in families]
    metered = request.split == "configuration"
    more = _of_power(predictors, judged, request) if metered else iter(())
    return evaluated(request, chain(cases, more), predictors.events)


def _families(classes: Sequence[Predictors], request: EvaluateRequest) -> list[str]:
    known = sorted({name for one in classes for name in one.families()})
    if request.family == ALL:
        if not known:
            raise ModelError(
                "nothing was measured on this device class",
                hint="`tilewright collect --op all` measures it.",
            )
        return known
    if request.family not in known:
        raise UsageError(
            f"no kernels of a family {request.family!r} were measured",
            hint=close_matches(request.family, [*known, ALL]),
        )
    return [request.family]


def _learnt(predictors: Predictors, data: TrainingSet) -> Learnt:
    """What a predictor learns from, with the first and last day of what is known of its class; None
    where a part has no date."""
    store, device_class = predictors.store, data.device_class
    known = {str(one.key): one.key for one in (*store.placements(), predictors.placement)}
    own = store.measured_days(known[device_class]) if device_class in known else None
    found = [one.measured for one in shipped_data() if str(one.placement.key) == device_class]
    found += [own] if own is not None or not found else []
    days = [part for part in found if part is not None]
    measured = (min(d for d, _ in days), max(d for _, d in days)) if days else None
    return learnt_kernels(data, measured if len(days) == len(found) else None)


def _by_configuration(
    classes: Sequence[Predictors], family: str, request: EvaluateRequest
) -> Assessment:
    (predictors,) = classes
    data = predictors.training_set(family)
    parts = _with_fewer_facts(data, request, fit_kernels, predictors.base(family))
    return Assessment(learnt=[_learnt(predictors, data)], parts=_with_groups(parts))


def _with_fewer_facts(
    data: TrainingSet,
    request: EvaluateRequest,
    fit: Callable[..., FamilyModel],
    base: FamilyModel | None = None,
) -> dict[str, HeldOut]:
    """All rows in their order, by a predictor with all facts, and by poorer ones."""
    names = data.features.names
    poorer = (
        [name for name in names if name.startswith("op.")],
        [name for name in names if not name.startswith("schedule.")],
    )
    fits = [
        fit if base is None else partial(fit, base=base),
        *(partial(fit, columns=columns) for columns in poorer),
    ]
    found = [cross_validated(data, fit, request.folds, request.seed) for fit in fits]
    return dict(zip((ALL, *POORER), found, strict=True))


def _with_groups(parts: Mapping[str, HeldOut]) -> dict[str, HeldOut]:
    """The same with the rows of each group by themselves, behind all of them."""
    everything = parts[ALL]
    groups = everything.by_group(sorted(set(everything.groups)))
    return {ALL: everything, **groups, **{name: parts[name] for name in POORER}}


def _of_power(
    predictors: Predictors,
    judged: Mapping[str, Mapping[str, HeldOut]],
    request: EvaluateRequest,
) -> Iterator[tuple[str, Callable[[], Assessment]]]:
    """Watts while a kernel runs and joules of a call, as `predict` tells them, where enough was
    metered: power by the model of all families, energy as power times the time that was `judged`,
    each by models that had not seen the configuration. Of one family its own rows alone."""
    powers = PowerPredictors(predictors=predictors)
    rows, name = powers.rows, EVERY_FAMILY if request.family == ALL else request.family
    asked = [n for n, row in enumerate(rows) if name in (EVERY_FAMILY, family_of(row.workload))]
    if len(rows) < LEAST_ROWS or not asked:
        return
    predictors.events(Stage(name="evaluate", detail=f"power by {request.split}"))
    data = powers.training_set(rows)
    try:
        found = _with_fewer_facts(data, request, fit_power)
    except ModelError as error:
        predictors.events(Note(message=f"power: {error.message}"))
        return
    watts = {
        group: replace(part.part(np.array(asked)), family=name) for group, part in found.items()
    }
    if name != EVERY_FAMILY:
        within = np.array([rows[n].candidate.implementation for n in asked], dtype=object)
        watts = {group: replace(part, groups=within) for group, part in watts.items()}
    yield name, partial(_metered, predictors, data, watts)
    timed, times = _times_of([rows[n] for n in asked], predictors, judged)
    if timed:
        joules = {
            group: part.part(np.array(timed)).times(times[group], "energy_j", "J")
            for group, part in watts.items()
        }
        yield name, partial(_metered, predictors, data, joules)


def _metered(predictors: Predictors, data: TrainingSet, parts: Mapping[str, HeldOut]) -> Assessment:
    """What was held out of power or energy, all of which `data` taught."""
    told = parts[ALL]
    named = replace(data, family=told.family, target_name=told.target, unit=told.unit)
    return Assessment(learnt=[_learnt(predictors, named)], parts=_with_groups(parts))


def _times_of(
    rows: Sequence[Row], predictors: Predictors, judged: Mapping[str, Mapping[str, HeldOut]]
) -> tuple[list[int], dict[str, HeldOut]]:
    """The numbers of the rows whose times were judged, and these times, by all facts and by fewer;
    a predictor and its evaluation know the same rows."""
    places = {
        id(row): (family, n)
        for family in judged
        for n, row in enumerate(predictors.learnt_rows(family))
    }
    timed = [n for n, row in enumerate(rows) if id(row) in places]
    found = [places[id(rows[n])] for n in timed]
    groups = (ALL, *POORER) if found else ()
    return timed, {
        group: together([judged[family][group].part(np.array([n])) for family, n in found])
        for group in groups
    }


def _by_network(classes: Sequence[Predictors], family: str, request: EvaluateRequest) -> Assessment:
    (predictors,) = classes
    data, kernels = predictors.training_set(family), predictors.learnt_rows(family)
    members = members_of(kernels, predictors)
    if not members:
        raise ModelError(
            f"no known kernel of {family} belongs to a network",
            hint="`tilewright collect zoo:resnet50 zoo:googlenet` measures networks' kernels.",
        )
    found = unseen_networks(data, members, operators_of(kernels), fit_kernels, request)
    parts = {ALL: together(list(found.values())), **found}
    return Assessment(learnt=[_learnt(predictors, data)], parts=parts)


def _by_device(classes: Sequence[Predictors], family: str, request: EvaluateRequest) -> Assessment:
    samples = Samples(count=request.shots, seed=request.seed)
    found = unseen_classes(classes, family, samples)
    parts = {str(one.groups[0]): one for one, _ in found}
    sources = {data.device_class: data for _, data in found}
    return Assessment(
        learnt=[_learnt(classes[0], data) for data in sources.values()],
        parts={**parts, ALL: together(list(parts.values()))},
    )


_SPLITS = {"configuration": _by_configuration, "network": _by_network, "device": _by_device}


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
            "machine; `tilewright db merge` adds another machine's; --table evaluates "
            "measurements of other programs.",
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
