"""Energy of kernels and networks, as far as meters have told any on this device class.

Energy over the median power of the rows is a time, close to the kernel's own: what it would take at
that power. A family's model learns how much of the roofline it reaches, as it does for times, so
that energies stay bounded by what training saw, and intervals are made alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import expm1, inf, isfinite
from statistics import median

from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.events import EventSink, Stage
from tilewright.core.predictions import METRICS, FitResult, FittedFamily
from tilewright.core.records import Candidate, Placement
from tilewright.cost.floors import Peaks
from tilewright.graph.workload import Workload
from tilewright.models.configurations import collecting
from tilewright.predict.collected import Row, by_family, family_of, training_set
from tilewright.predict.family_models import LEAST_ROWS, FamilyModel, fit_kernels
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors, load_model, predictors_of, save_model
from tilewright.store.base import Store

FITTED = ("latency", "energy")
"""What models are of: power is energy over latency, and memory is planned."""


def known_metrics(texts: Sequence[str], known: Sequence[str] = METRICS) -> tuple[str, ...]:
    """Names of metrics, each text one or several with commas between; all of `known` where there
    are none. Raises UsageError for any other."""
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if name not in known:
            hint = close_matches(name, known)
            if name in METRICS:
                hint = "Power is energy ÷ latency, and memory is planned: neither has a model."
            raise UsageError(f"there is no metric {name!r}", hint=hint)
    return tuple(dict.fromkeys(names)) or tuple(known)


@dataclass(frozen=True, kw_only=True)
class EnergyPredictors:
    """What is known of kernels' energy: measured ones, then one model per family, from rows of this
    database. No rows with energy come with tilewright."""

    predictors: Predictors
    _loaded: dict[str, FamilyModel | None] = field(default_factory=dict[str, FamilyModel | None])

    @cached_property
    def _rows(self) -> dict[str, list[Row]]:
        """The rows of this device class with energy, by family."""
        return by_family(row for row in self.predictors.own_rows if row.energy_j is not None)

    @cached_property
    def _measured_j(self) -> dict[tuple[str, Candidate], float | None]:
        return {
            (row.workload.key, row.candidate): row.energy_j
            for rows in self._rows.values()
            for row in rows
        }

    def rows(self, family: str) -> list[Row]:
        """The rows of a family with energy above zero."""
        return with_energy(self._rows.get(family, ()))

    def families(self) -> list[str]:
        """The families that energy was measured of."""
        return sorted(self._rows)

    def energies_j(self, kernels: Sequence[Kernel]) -> list[float | None]:
        """Joules of one call of each kernel: as measured, else by its family's model, else None."""
        return [self._energy_j(*kernel) for kernel in kernels]

    def _energy_j(self, workload: Workload, candidate: Candidate) -> float | None:
        measured_j = self._measured_j.get((workload.key, candidate))
        model = self.model(family_of(workload)) if measured_j is None else None
        if model is None:
            return measured_j
        features = self.predictors.features([(workload, candidate)], model)
        return model.power_w * float(model.predict(features).predicted[0])

    def model(self, family: str) -> FamilyModel | None:
        """A family's model from its file, fitted where there is none; None where too little is
        known. Raises ModelError for a file that is broken or of another device class."""
        if family not in self._loaded:
            path = self.predictors.path(f"{family}.energy.json")
            self._loaded[family] = None
            if path.exists():
                self._loaded[family] = load_model(path, self.predictors.placement)
            elif len(self._rows.get(family, ())) >= LEAST_ROWS:
                with suppress(ModelError):
                    self.fit(family)
        return self._loaded[family]

    def fit(self, family: str) -> FamilyModel:
        """Learn a family's model anew and keep it. Raises ModelError where too little is known."""
        predictors = self.predictors
        predictors.events(Stage(name="fit", detail=f"{family}: energy"))
        model = fit_energies(
            self._rows.get(family, ()), family, predictors.placement, predictors.peaks
        )
        save_model(model, predictors.path(f"{family}.energy.json"))
        self._loaded[family] = model
        return model


def fit_energies(
    rows: Sequence[Row], family: str, placement: Placement, peaks: Peaks
) -> FamilyModel:
    """Learn from the rows of a family whose energy is a number above zero. Raises ModelError where
    these are too few."""
    rows = with_energy(rows)
    if not rows:
        raise ModelError(
            f"no energy of {family} was measured",
            hint=collecting(family, "--power"),
        )
    power_w, alike = at_one_power(rows)
    model = fit_kernels(training_set(alike, family, placement, peaks))
    return replace(model, power_w=power_w)


def with_energy(rows: Iterable[Row]) -> list[Row]:
    """The rows whose energy is a number above zero."""
    return [row for row in rows if row.energy_j and 0 < row.energy_j < inf]


def at_one_power(rows: Sequence[Row]) -> tuple[float, list[Row]]:
    """The median power in watts of rows `with_energy`, at least one, and the rows with the times
    that their energies would take at it."""
    energies_j = [row.energy_j or 0.0 for row in rows]
    each = list(zip(rows, energies_j, strict=True))
    power_w = median(energy_j / row.latency_s for row, energy_j in each)
    return power_w, [replace(row, latency_s=energy_j / power_w) for row, energy_j in each]


def why_none(kernels: Sequence[Kernel], energies_j: Sequence[float | None]) -> str:
    """Why the energy of a network is not known; empty where it is."""
    each = zip(kernels, energies_j, strict=True)
    missing = sorted({family_of(kernel[0]) for kernel, energy_j in each if energy_j is None})
    if not missing:
        return ""
    return (
        f"too few energies of {', '.join(missing)} were measured on this device class; "
        "tilewright collect --power measures them"
    )


def fit_metrics(
    placement: Placement,
    store: Store,
    events: EventSink,
    families: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> FitResult:
    """Fit models of `metrics` (both where none is named): of these families, else of all known;
    where energy was not asked for by name, none of families without any.

    Raises UsageError for a metric that has no models, and for a family without rows; one with too
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
        fitted += [_fitted(predictors.fit, name, "latency") for name in families or known]
    if "energy" in wanted:
        energies = EnergyPredictors(predictors=predictors)
        known = energies.families()
        asked = [name for name in families if metrics or name in known] if families else known
        fitted += [_fitted(energies.fit, name, "energy") for name in asked]
    return FitResult(
        device_class=str(placement.key),
        folder=str(predictors.folder),
        families=tuple(fitted),
        elapsed_s=time.monotonic() - began_s,
    )


def _fitted(fit: Callable[[str], FamilyModel], family: str, metric: str) -> FittedFamily:
    try:
        model = fit(family)
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
