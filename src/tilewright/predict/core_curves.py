"""How the time of a kernel changes with the number of cores that it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2

from tilewright.core.records import Placement
from tilewright.core.targets import threads_alone
from tilewright.kernels.estimates import estimate_s
from tilewright.predict.kernel_features import Kernel

_PER_DOUBLING = 0.3
"""Half width of an answer's interval, in the logarithm, for twice or half as many cores."""

MOST_CORES = 16
"""Beyond so many cores nothing was measured."""


@dataclass(frozen=True, kw_only=True)
class CoreCurves:
    """The curves of kernels, by their number."""

    kernels: Sequence[Kernel]
    placement: Placement
    most_cores: int = MOST_CORES
    _facts_s: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])

    def carried_s(self, number: int, time_s: float, known: int, wanted: int) -> float:
        """Seconds on `wanted` cores of a kernel that takes `time_s` on `known`."""
        return time_s * self._estimate_s(number, wanted) / self._estimate_s(number, known)

    def reach(self, known: int, wanted: int) -> float:
        """How far 90 % of times carried over lie from the truth at most, in the logarithm."""
        doublings = abs(log2(wanted / known))
        return _PER_DOUBLING * doublings * (2.0 if wanted > self.most_cores else 1.0)

    def _estimate_s(self, number: int, cores: int) -> float:
        if (number, cores) not in self._facts_s:
            kernel, target = self.kernels[number], self.placement.target
            self._facts_s[number, cores] = estimate_s(*kernel, target, threads_alone(cores))
        return self._facts_s[number, cores]


def core_curves(kernels: Sequence[Kernel], placement: Placement) -> CoreCurves:
    """The curves of kernels on a device."""
    return CoreCurves(kernels=kernels, placement=placement)
