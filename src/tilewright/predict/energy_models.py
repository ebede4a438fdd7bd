# pyright: basic
"""A family's energy on one device class: the trees of `kernel_models` on seconds at one power.

Energy over the median power of the rows is a time, close to the kernel's own: what it would take at
that power. The trees learn how much of the roofline it reaches, as they do for times, so that
energies stay bounded by what training saw, and intervals are made alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.core.records import Placement
from tilewright.models.configurations import collecting
from tilewright.predict.base import Floats, Trees
from tilewright.predict.collected import Row, family_of, training_set
from tilewright.predict.kernel_facts import KernelTable
from tilewright.predict.kernel_models import (
    DEFAULT_TREES,
    KernelModel,
    fit_kernel_model,
    from_json,
    to_json,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyModel:
    """Joules of a call are `power_w` times the seconds of `times`."""

    power_w: float
    times: KernelModel

    def energies_j(self, table: KernelTable) -> Floats:
        """Joules of the kernels in a table."""
        return self.power_w * self.times.times(table).latency_s


def with_energy(rows: Sequence[Row], family: str) -> list[Row]:
    """The rows of a family whose energy was measured, and is a number above zero."""
    return [
        row
        for row in rows
        if row.energy_j is not None
        and isfinite(row.energy_j)
        and row.energy_j > 0
        and family_of(row.workload) == family
    ]


def fit_energy_model(
    rows: Sequence[Row],
    family: str,
    placement: Placement,
    peaks: Mapping[str, float],
    *,
    trees: Trees = DEFAULT_TREES,
) -> EnergyModel:
    """Learn from the rows that have energy. Raises ModelError where these are too few."""
    known = with_energy(rows, family)
    if not known:
        raise ModelError(
            f"no energy was measured of {family}",
            hint=collecting(family, "--power"),
        )
    joules = np.array([row.energy_j for row in known], dtype=np.float64)
    power_w = float(np.median(joules / np.array([row.latency_s for row in known])))
    at_one_power = [
        replace(row, latency_s=float(energy_j / power_w))
        for row, energy_j in zip(known, joules, strict=True)
    ]
    data = training_set(at_one_power, family, placement, peaks)
    return EnergyModel(power_w=power_w, times=fit_kernel_model(data, trees=trees))


def energy_to_json(model: EnergyModel) -> dict[str, Any]:
    """The model as JSON values; `energy_from_json` reads it."""
    return {"power_w": model.power_w, **to_json(model.times)}


def energy_from_json(found: Mapping[str, Any]) -> EnergyModel:
    """The inverse of `energy_to_json`; raises what `from_json` does."""
    return EnergyModel(power_w=float(found["power_w"]), times=from_json(found))
