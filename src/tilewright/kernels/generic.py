"""The general fallback: computes any workload of the vocabulary, in any type; never fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.records import Candidate, Device, Settings
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FactColumn, Knob
from tilewright.kernels.streaming import accumulation_error, result_blocks

NAME = "generic"
_FLOP_PER_S = 2e8
_BYTES_PER_S = 2e9
_LAUNCH_S = 1e-5


class Generic:
    """Spec of the fallback."""

    name = NAME
    anchors = frozenset({"*"})

    def applies(self, workload: Workload, device: Device) -> bool:
        """Everything the vocabulary can say."""
        return all(step.operator != "opaque" for step in workload.steps)

    def result_blocks(self, workload: Workload, device: Device) -> tuple[int, ...]:
        """Plain first."""
        return tuple(sorted(result_blocks(workload, device)))

    def knobs(
        self, workload: Workload, device: Device, layouts: tuple[str, ...]
    ) -> tuple[Knob, ...]:
        """None: there is one way."""
        return ()

    def valid(
        self, workload: Workload, device: Device, layouts: tuple[str, ...], settings: Settings
    ) -> bool:
        """Always."""
        return True

    def facts(
        self,
        workload: Workload,
        device: Device,
        layouts: tuple[str, ...],
        settings: Sequence[Settings],
    ) -> Mapping[str, FactColumn]:
        """A pessimistic time, so that whatever else applies is preferred."""
        seconds = workload.flop / _FLOP_PER_S + workload.bytes / _BYTES_PER_S
        ones = np.ones(len(settings))
        return {
            "estimate_s": ones * (seconds / device.threads + _LAUNCH_S),
            "parallel_extent": ones * workload.result.elements,
        }

    def error_bound(self, workload: Workload) -> float:
        """Summation in the type's own precision."""
        return accumulation_error(workload)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Nothing is repacked."""
        return {}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """The constants as they are."""
        return constants


SPEC = Generic()
