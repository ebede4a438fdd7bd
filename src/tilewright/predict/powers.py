"""Power and energy of kernels, as far as meters have told any on this device class.

One model of power answers for kernels of every family: few are metered, and what a kernel draws
follows from how much it computes and moves in a second, whatever it is called. The model learns the
logarithm of watts, stays within what training saw, and has conformal intervals, as those of times
have (`predict.family_models`). Energy is power times time, be it measured or predicted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import exp, expm1, inf, isfinite

import numpy as np

from tilewright.core.codec import canonical_json, digest
from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.events import EventSink, Stage
from tilewright.core.predictions import METRICS, FitResult, FittedFamily
from tilewright.core.records import Candidate, Placement
from tilewright.predict.base import Features
from tilewright.predict.collected import Row, family_of, taught_by
from tilewright.predict.family_models import (
    DEFAULT_TREES,
    LEAST_ROWS,
    FamilyModel,
    TrainingSet,
    fit_model,
)
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors, load_model, predictors_of, save_model
from tilewright.store.base import Store

FITTED = ("latency", "power", "energy")
"""What `fit` takes: energy is power × latency, so that its model is that of power; memory is
planned."""

EVERY_FAMILY = "all families"
"""What the model of power is of."""

POWER_TREES = replace(DEFAULT_TREES, members=8)
"""Of some hundreds of rows each member sees seven eighths."""

_FILE = "power.json"
_COLLECT = "`tilewright collect --op all --power` measures energies."

_ESTIMATE, _ABOVE_ROOF = "schedule.estimate_s", "schedule.estimate_over_roof"
_WORK = (
    *("schedule.instructions", "schedule.shared_traffic_bytes"),
    *("schedule.cache_traffic_bytes", "schedule.memory_traffic_bytes"),
)
_REPEATS = 0.11
"""Half width of a measured power's interval, in the logarithm: it holds nine of ten among 23
kernels that were metered on two days on H100s, equally fast (docs/benchmarks-on-a-card.md)."""


def known_metrics(texts: Sequence[str], known: Sequence[str] = METRICS) -> tuple[str, ...]:
    """Names of metrics, each text one or several with commas between; all of `known` where there
    are none. Raises UsageError for any other."""
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if name not in known:
            hint = close_matches(name, known)
            if name in METRICS:
                hint = "Memory is planned: it has no model."
            raise UsageError(f"there is no metric {name!r}", hint=hint)
    return tuple(dict.fromkeys(names)) or tuple(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Watts while a kernel runs, with the interval that holds 90 % of such; `metered` of this very
    kernel, or not."""

    power_w: float
    low_w: float
    high_w: float
    metered: bool = False


@dataclass(frozen=True, kw_only=True)
class PowerPredictors:
    """What is known of kernels' power on a device class: that of kernels that were metered, be it
    here or in what came along, and the model of the others."""

    predictors: Predictors
    _loaded: list[FamilyModel | None] = field(default_factory=list[FamilyModel | None])

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of this class with energy: what came along, then this database's."""
        return with_energy(self.predictors.rows)

    @cached_property
    def _metered_w(self) -> dict[tuple[str, Candidate], float]:
        return {(row.workload.key, row.candidate): power_w(row) for row in self.rows}

    def powers(self, kernels: Sequence[Kernel]) -> list[Power | None]:
        """The power of each kernel: as it was metered, else by the model, None without either."""
        metered = [self._metered_w.get((w.key, candidate)) for w, candidate in kernels]
        asked = [kernel for kernel, known in zip(kernels, metered, strict=True) if known is None]
        modelled = iter(self._modelled(asked))
        return [
            next(modelled) if w is None else replace(_within(w, _REPEATS), metered=True)
            for w in metered
        ]

    def _modelled(self, kernels: Sequence[Kernel]) -> list[Power | None]:
        model = self.model() if kernels else None
        if model is None:
            return [None] * len(kernels)
        said = model.predict(power_features(self.predictors.features(kernels, model)))
        each = zip(said.predicted.tolist(), said.reach.tolist(), strict=True)
        return [_within(*one) for one in each]

    def model(self) -> FamilyModel | None:
        """The model from its file, else that of what came along, else fitted to this database; None
        where too little is known. Raises ModelError for a file that is broken or of another device
        class."""
        if not self._loaded:
            path = self.predictors.path(_FILE)
            there = path.exists()
            self._loaded.append(load_model(path, self.predictors.placement) if there else None)
            if not there and len(self.rows) >= LEAST_ROWS:
                with suppress(ModelError):
                    self._loaded[:] = [self._made()]
        return self._loaded[0]

    def _made(self) -> FamilyModel:
        came = self.predictors.came_along
        metered = with_energy(came.rows) if came is not None else []
        if came is None or len(metered) < LEAST_ROWS:
            return self.fit()
        return self.predictors.kept("power", came.identity, lambda: self._learnt(metered))

    def fit(self) -> FamilyModel:
        """Learn the model anew and keep it. Raises ModelError where too little is known."""
        model = self._learnt(self.rows)
        save_model(model, self.predictors.path(_FILE))
        self._loaded[:] = [model]
        return model

    def _learnt(self, rows: Sequence[Row]) -> FamilyModel:
        if not rows:
            raise ModelError("no energy of any kernel was measured", hint=_COLLECT)
        data = self.training_set(rows)
        self.predictors.events(Stage(name="fit", detail=f"power: {len(data)} kernels"))
        return fit_power(data)

    def training_set(self, rows: Sequence[Row]) -> TrainingSet:
        """The power of rows with energy, at least one, with the features that it is learnt from;
        groups are families."""
        predictors, came = self.predictors, self.predictors.came_along
        peaks = came.peaks if came is not None else predictors.peaks
        data = taught_by(rows, EVERY_FAMILY, predictors.placement, peaks)
        return replace(
            data,
            features=power_features(data.features),
            target=np.array([power_w(row) for row in rows]),
            groups=np.array([family_of(row.workload) for row in rows], dtype=object),
            target_name="power_w",
            unit="W",
            data_hash=digest(canonical_json([data.data_hash, [row.energy_j for row in rows]])),
        )


def fit_power(data: TrainingSet, *, columns: Sequence[str] | None = None) -> FamilyModel:
    """Learn the power of kernels, with these columns only where some are given. Raises ModelError
    for too few kernels, or too few operators."""
    count = len(np.unique(data.configurations))
    if len(data) < LEAST_ROWS or count < DEFAULT_TREES.members:
        raise ModelError(
            f"{len(data)} energies of {count} configurations are too few for a model of power",
            hint=_COLLECT,
        )
    return fit_model(data, POWER_TREES, columns=columns)


def power_features(table: Features) -> Features:
    """A table of kernels as power is learnt from it, on the scale of 1 W: with what the
    implementation's estimate says of work per second, and nowhere to begin at."""
    names = [name for name in table.names if name != _ABOVE_ROOF]
    log_s = table.aligned([_ESTIMATE])
    work = np.log2(np.maximum(1.0, table.aligned(_WORK)))
    return Features(
        names=(*names, *(f"{name}_per_s" for name in _WORK), "schedule.flop_per_s"),
        values=np.column_stack(
            [table.aligned(names), work - log_s, table.aligned(["op.flop"]) - log_s]
        ),
        scale=np.ones(len(table)),
    )


def with_energy(rows: Iterable[Row]) -> list[Row]:
    """The rows whose energy is a number above zero."""
    return [row for row in rows if row.energy_j and 0 < row.energy_j < inf]


def power_w(row: Row) -> float:
    """The watts of a row `with_energy`."""
    return (row.energy_j or 0.0) / row.latency_s


def _within(watts: float, reach: float) -> Power:
    """Watts with an interval of so much either way, in the logarithm."""
    return Power(power_w=watts, low_w=watts / exp(reach), high_w=watts * exp(reach))


def why_none(kernels: Sequence[Kernel], powers: Sequence[Power | None]) -> str:
    """Why the energy of a network is not known; empty where it is."""
    each = zip(kernels, powers, strict=True)
    missing = sorted({family_of(kernel[0]) for kernel, power in each if power is None})
    if not missing:
        return ""
    return (
        f"the power of {', '.join(missing)} is not known: too few energies were measured on this "
        "device class; tilewright collect --power measures them"
    )


def fit_metrics(
    placement: Placement,
    store: Store,
    events: EventSink,
    families: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> FitResult:
    """Fit models of `metrics` (all where none is named): of times of these families, else of all
    known; of power, which is of all families together, where it was asked for by name or metered.

    Raises UsageError for a metric that has no model, and for a family without rows; one with too
    few is reported, not raised.
    """
    began_s = time.monotonic()
    wanted = known_metrics(metrics, FITTED)
    predictors = predictors_of(placement, store, events)
    fitted: list[FittedFamily] = []
    if "latency" in wanted:
        known = predictors.families()
        for name in families:
            if name not in known:
                raise UsageError(
                    f"no kernels of a family {name!r} were measured",
                    hint=close_matches(name, known),
                )
        for name in families or known:
            fitted.append(_fitted(partial(predictors.fit, name), name, "latency"))
    powers = PowerPredictors(predictors=predictors)
    if {"power", "energy"} & {*wanted} and (metrics or powers.rows):
        fitted.append(_fitted(powers.fit, EVERY_FAMILY, "power"))
    return FitResult(
        device_class=str(placement.key),
        folder=str(predictors.folder),
        families=tuple(fitted),
        elapsed_s=time.monotonic() - began_s,
    )


def _fitted(fit: Callable[[], FamilyModel], family: str, metric: str) -> FittedFamily:
    try:
        model = fit()
    except ModelError as error:
        return FittedFamily(
            family=family, rows=0, reach=None, data_hash="", error=error.message, metric=metric
        )
    return FittedFamily(
        family=family,
        rows=model.rows,
        reach=expm1(model.reach) if isfinite(model.reach) else None,
        data_hash=model.data_hash,
        metric=metric,
    )
