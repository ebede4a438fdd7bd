"""A made-up implementation with a landscape of times, and a store that is a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Outcome, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.base import Knob
from tilewright.testing.landscapes import FORMS

__all__ = ["FORMS", "FakeStore", "Landscape", "MadeUp", "workload"]

Landscape = Callable[[Settings], float]


def workload(extent: int = 8) -> Workload:
    """A relu of this many elements; different extents are different tasks."""
    step = Step(operator="relu", inputs=(0,))
    return Workload(arguments=(Argument(type=TensorType((extent,))),), steps=(step,))


class MadeUp:
    """A spec with the knobs given; its estimate is `guess`, the truth is elsewhere."""

    anchors = frozenset({"*"})
    bound = 1e-5

    def __init__(
        self,
        name: str,
        knobs: Mapping[str, tuple[int | str | bool, ...]],
        guess: Landscape,
        allowed: Callable[[Settings], bool] = lambda _: True,
    ) -> None:
        self.name = name
        self._knobs = tuple(Knob(name=key, values=values) for key, values in knobs.items())
        self._guess = guess
        self._allowed = allowed

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        return True

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[tuple[Form, ...], ...]:
        return ((PLAIN,) * (len(workload.arguments) + 1),)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ):
        return self._knobs

    def valid(self, workload, target, resources, forms, settings: Settings) -> bool:
        return self._allowed(settings)

    def demand(self, workload, target, resources, forms, settings: Sequence[Settings]) -> Demand:
        guesses = np.array([self._guess(s) for s in settings], dtype=np.float64)
        cycles = guesses * resources.threads
        return Demand(pieces=1, even=True, cycles=cycles, launches=0, clock_hz=1)

    def error_bound(self, workload: Workload) -> float:
        return self.bound

    def packed_shapes(self, workload, candidate):
        return {}

    def pack(self, workload, candidate, constants):
        return constants


class FakeStore:
    """Keeps outcomes in a list."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.kept: list[Outcome] = []
        self.log = log if log is not None else []

    def add(self, outcomes) -> None:
        self.log.append("store")
        self.kept += list(outcomes)
