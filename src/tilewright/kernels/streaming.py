"""What kernels that mostly move memory share: channel blocks, error bounds, bandwidth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core.records import Candidate, Device, Settings
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FactColumn
from tilewright.kernels.ports import Ports, alike_ports

BYTES_PER_S = 1e10
"""Memory traffic one thread is good for, for estimates."""

LAUNCH_S = 2e-6
"""Starting a parallel region, for estimates."""

_EPSILON = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 2e-16}


def accumulation_error(workload: Workload) -> float:
    """Error relative to sum |w||x| of sums as long as the workload's longest, term after term."""
    epsilon = _EPSILON.get(workload.result.dtype, 6e-8)
    length = max(1.0, workload.flop / max(1, workload.result.elements))
    return max(32 * epsilon, 4 * epsilon * length**0.5)


def balance(pieces: FactColumn | float, device: Device) -> FactColumn:
    """Share of the threads that equal pieces keep busy."""
    count = np.maximum(1.0, np.asarray(pieces, np.float64))
    return count / (np.ceil(count / device.threads) * device.threads)


class Unpacked:
    """The parts of a spec that say: every knob combination is fine, no constant is repacked."""

    def port_layouts(self, workload: Workload, device: Device) -> tuple[Ports, ...]:
        """The result in blocks or plain, operands alike."""
        return alike_ports(workload, device)

    def valid(
        self, workload: Workload, device: Device, layouts: tuple[str, ...], settings: Settings
    ) -> bool:
        """Always."""
        return True

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
