"""Settings of kernels that try what no setting before had, for checks that can execute only a few
of each space.

    covered = Covered()
    for settings in covered.pick(spec, workload, placement, np.random.default_rng(0)): ...
    covered.missing()                        # values of knobs that could be had and were not tried
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Placement, Settings
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Implementation
from tilewright.kernels.search_space import knob_space

TRIES = 3
"""Settings of an implementation that a workload is executed in, at most."""


def plain(workload: Workload) -> tuple[Any, ...]:
    """Every port row-major."""
    return (PLAIN,) * (len(workload.arguments) + 1)


@dataclass
class Covered:
    """Which values of which implementation's knobs were tried, and which could have been."""

    tried: Counter[tuple[str, str, Any]] = field(default_factory=Counter[tuple[str, str, Any]])
    offered: set[tuple[str, str, Any]] = field(default_factory=set[tuple[str, str, Any]])

    def pick(
        self,
        spec: Implementation,
        workload: Workload,
        on: Placement,
        rng: np.random.Generator,
        forms: tuple[Form, ...] = (),
    ) -> Iterator[Settings]:
        """The setting of a space with the most values that were never tried, then others as long as
        they have any."""
        ports = forms or plain(workload)
        space = knob_space(spec, workload, on.target, on.resources, ports)
        numbers = np.unique(rng.integers(space.range_length, size=400))
        settings = [space.settings(int(n)) for n in numbers[space.accepted(numbers)]]
        for each in settings:
            self.offered |= {(spec.name, *item) for item in each.items()}
        for number in range(min(TRIES, len(settings))):
            fresh = [
                sum(not self.tried[spec.name, *item] for item in each.items()) for each in settings
            ]
            if number and max(fresh) == 0:
                return
            best = settings[int(np.argmax(fresh))]
            self.tried.update((spec.name, *item) for item in best.items())
            yield best

    def missing(self) -> list[str]:
        """Values that could have been tried and were not."""
        left = self.offered - set(self.tried)
        return sorted(f"{name}.{knob} = {value}" for name, knob, value in left)
