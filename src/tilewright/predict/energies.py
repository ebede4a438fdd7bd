"""Energy of kernels and networks, as far as meters have told any on this device class."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import expm1, isfinite
from pathlib import Path

from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.events import EventSink, Stage
from tilewright.core.predictions import METRICS, FitResult, FittedFamily
from tilewright.core.records import Candidate, Placement
from tilewright.predict.collected import Row, family_of
from tilewright.predict.energy_models import (
    EnergyModel,
    energy_from_json,
    energy_to_json,
    fit_energy_model,
)
from tilewright.predict.kernel_facts import Kernel
from tilewright.predict.kernel_models import LEAST_ROWS
from tilewright.predict.modelling import (
    Predictors,
    fit_all,
    of_class,
    predictors_of,
    read_model,
    write_model,
)
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
                hint = "Power is energy over latency, and memory is planned: neither has a model."
            raise UsageError(f"there is no metric {name!r}", hint=hint)
    return tuple(dict.fromkeys(names)) or tuple(known)


@dataclass(frozen=True, kw_only=True)
class EnergyPredictors:
    """What is known of kernels' energy: measured ones, then one model per family, from rows of this
    database. No rows with energy come with tilewright."""

    predictors: Predictors
    _loaded: dict[str, EnergyModel | None] = field(default_factory=dict[str, EnergyModel | None])

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of this device class with energy."""
        return [row for row in self.predictors.own_rows if row.energy_j is not None]

    @cached_property
    def _measured(self) -> dict[tuple[str, Candidate], float]:
        return {
            (row.workload.key, row.candidate): row.energy_j
            for row in self.rows
            if row.energy_j is not None
        }

    def families(self) -> list[str]:
        """The families that energy was measured of."""
        return sorted({family_of(row.workload) for row in self.rows})

    def energies_j(self, kernels: Sequence[Kernel]) -> list[float | None]:
        """Joules of one call of each kernel: as measured, else by its family's model, else None."""
        found: list[float | None] = []
        for kernel in kernels:
            measured = self._measured.get((kernel[0].key, kernel[1]))
            found.append(measured if measured is not None else self._modelled(kernel))
        return found

    def _modelled(self, kernel: Kernel) -> float | None:
        model = self.model(family_of(kernel[0]))
        if model is None:
            return None
        table = self.predictors.table([kernel], model.times)
        return float(model.energies_j(table)[0])

    def model(self, family: str) -> EnergyModel | None:
        """A family's model from its file, fitted where there is none; None where too little is
        known. Raises ModelError for a file that is broken or of another device class."""
        if family not in self._loaded:
            path = self._path(family)
            if path.exists():
                self._loaded[family] = self._read(path)
            elif sum(family_of(row.workload) == family for row in self.rows) < LEAST_ROWS:
                self._loaded[family] = None
            else:
                self._loaded[family] = self._fitted_if_possible(family)
        return self._loaded[family]

    def fit(self, family: str) -> EnergyModel:
        """Learn a family's model anew and keep it. Raises ModelError where too little is known."""
        predictors = self.predictors
        predictors.events(Stage(name="fit", detail=f"{family}: energy"))
        model = fit_energy_model(self.rows, family, predictors.placement, predictors.peaks)
        write_model(energy_to_json(model), self._path(family))
        self._loaded[family] = model
        return model

    def _fitted_if_possible(self, family: str) -> EnergyModel | None:
        try:
            return self.fit(family)
        except ModelError:
            return None

    def _read(self, path: Path) -> EnergyModel:
        model = read_model(path, energy_from_json)
        times = of_class(model.times, path, self.predictors.placement)
        return replace(model, times=times)

    def _path(self, family: str) -> Path:
        return self.predictors.path(f"{family}.energy.json")


def why_none(kernels: Sequence[Kernel], energies_j: Sequence[float | None]) -> str:
    """Why the energy of a network is not known; empty where it is."""
    missing = sorted(
        {
            family_of(kernel[0])
            for kernel, energy_j in zip(kernels, energies_j, strict=True)
            if energy_j is None
        }
    )
    if not missing:
        return ""
    return (
        f"no meter has measured enough of {', '.join(missing)} on this device class; "
        "tilewright collect --power does"
    )


def fit_metrics(
    placement: Placement,
    store: Store,
    events: EventSink,
    families: Sequence[str],
    metrics: Sequence[str],
) -> FitResult:
    """Fit models of `metrics` (both where none is named): of these families, else of all known.

    Raises UsageError for a metric that has no models, and for a family without rows.
    """
    began_s = time.monotonic()
    wanted = known_metrics(metrics, FITTED)
    predictors = predictors_of(placement, store, events)
    fitted: list[FittedFamily] = []
    if "latency" in wanted:
        fitted += fit_all(placement, store, events, families).families
    if "energy" in wanted:
        fitted += _fitted_energies(EnergyPredictors(predictors=predictors), families, metrics)
    return FitResult(
        device_class=str(placement.key),
        folder=str(predictors.folder),
        families=tuple(fitted),
        elapsed_s=time.monotonic() - began_s,
    )


def _fitted_energies(
    energies: EnergyPredictors, families: Sequence[str], asked: Sequence[str]
) -> list[FittedFamily]:
    """A row per family; where energy was not asked for by name, none of families without any."""
    known = energies.families()
    names = [name for name in families if asked or name in known] if families else known
    return [_fitted_energy(energies, name) for name in names]


def _fitted_energy(energies: EnergyPredictors, family: str) -> FittedFamily:
    try:
        times = energies.fit(family).times
    except ModelError as error:
        return FittedFamily(
            family=family, rows=0, reach=None, data_hash="", error=error.message, metric="energy"
        )
    return FittedFamily(
        family=family,
        rows=times.rows,
        reach=expm1(times.reach) if isfinite(times.reach) else None,
        data_hash=times.data_hash,
        metric="energy",
    )
