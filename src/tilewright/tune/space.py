"""The settings of one task: the valid combinations of an implementation's knobs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import InternalError
from tilewright.core.records import Candidate, Device, KnobValue
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Implementation
from tilewright.kernels.registry import applicable

_LISTED = 20_000
_HOPELESS = 6.0


@dataclass(frozen=True, kw_only=True)
class TaskSpace:
    """All candidates of one implementation for a workload in fixed port layouts.

    Candidates are numbered; estimates come from the implementation's facts.
    """

    workload: Workload
    layouts: tuple[str, ...]
    device: Device
    spec: Implementation

    @cached_property
    def settings(self) -> tuple[dict[str, KnobValue], ...]:
        """Every valid combination, in the order of the knobs' values."""
        knobs = self.spec.knobs(self.workload, self.device, self.layouts)
        if prod(len(knob.values) for knob in knobs) > _LISTED:
            raise InternalError(f"{self.spec.name}: more than {_LISTED} combinations to list")
        names = [knob.name for knob in knobs]
        combinations = (
            dict(zip(names, values, strict=True))
            for values in product(*(knob.values for knob in knobs))
        )
        return tuple(
            settings
            for settings in combinations
            if self.spec.valid(self.workload, self.device, self.layouts, settings)
        )

    @cached_property
    def estimates_s(self) -> npt.NDArray[np.float64]:
        """The facts' rough time of every combination."""
        facts = self.spec.facts(self.workload, self.device, self.layouts, self.settings)
        return np.asarray(facts["estimate_s"], dtype=np.float64)

    def candidate(self, index: int) -> Candidate:
        """The candidate with this number."""
        return Candidate(
            implementation=self.spec.name,
            settings=tuple(sorted(self.settings[index].items())),
            layouts=self.layouts,
        )

    @cached_property
    def index_of(self) -> dict[tuple[tuple[str, KnobValue], ...], int]:
        """From sorted settings to the number."""
        return {tuple(sorted(s.items())): index for index, s in enumerate(self.settings)}


def spaces(workload: Workload, layouts: tuple[str, ...], device: Device) -> list[TaskSpace]:
    """The space of every implementation that applies, at least one.

    Implementations that their own estimate puts far behind the best are left out.
    """
    found = [
        TaskSpace(workload=workload, layouts=layouts, device=device, spec=spec)
        for spec in applicable(workload, device)
    ]
    found = [space for space in found if space.settings]
    if not found:
        raise InternalError(f"no implementation applies to {workload.key}")
    least_s = min(float(space.estimates_s.min()) for space in found)
    return [space for space in found if space.estimates_s.min() <= _HOPELESS * least_s]


def default_candidate(
    workload: Workload, layouts: tuple[str, ...], device: Device
) -> tuple[Candidate, float]:
    """The candidate with the least estimated time over all implementations, and that time."""
    return ranked_defaults(workload, layouts, device)[0]


def ranked_defaults(
    workload: Workload, layouts: tuple[str, ...], device: Device
) -> list[tuple[Candidate, float]]:
    """The best guess of each implementation with its estimated time, fastest first."""
    guesses: list[tuple[Candidate, float]] = []
    for spec in applicable(workload, device):
        space = TaskSpace(workload=workload, layouts=layouts, device=device, spec=spec)
        if space.settings:
            index = int(np.argmin(space.estimates_s))
            guesses.append((space.candidate(index), float(space.estimates_s[index])))
    if not guesses:
        raise InternalError(f"no implementation applies to {workload.key}")
    return sorted(guesses, key=lambda guess: guess[1])
