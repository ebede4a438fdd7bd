"""What the Winograd convolutions have in common whose dot products multiply pairs of 16 bits.

Weights are transformed ahead, brought to 16 bits, and packed so that two input channels of each
output channel lie side by side, as the instructions read them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import Bools, column
from tilewright.kernels.conv2d_dots import FEW
from tilewright.kernels.conv2d_winograd import WinogradConvolution
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.halves import PAIR


class PairedWinograd(WinogradConvolution):
    """Spec of a Winograd convolution by dot products of pairs."""

    @abstractmethod
    def dot_lanes(self, target: Target) -> tuple[int, ...]:
        """How many sums such dot products of the target add to; none where it has none."""

    @abstractmethod
    def in_16_bits(self, weights: Array) -> Array:
        """Transformed weights, float32, as they are multiplied: float32 → 16 bits, same shape."""

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """On a CPU with such dot products, where channels come in fours."""
        fitting = convolution(workload).in_channels % FEW == 0
        able = bool(self.dot_lanes(target))
        return able and fitting and super().applies(workload, target, resources)

    def input_lanes(self, conv: Convolution, forms: tuple[Form, ...], target: Target) -> int:
        """The block that data comes in, where that is in fours."""
        block = super().input_lanes(conv, forms, target)
        return block if block % FEW == 0 else gcd(conv.in_channels, target.lanes(conv.computed_in))

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """There is a dot product of so many lanes, and a register for the broadcast input, which
        is never an operand."""
        lanes, able = column(settings, "lanes"), self.dot_lanes(target)
        tile = self.tile(settings, target.lanes(convolution(workload).computed_in))
        accepted = super().valid_many(workload, target, resources, forms, settings)
        accepted &= np.isin(lanes, able) | (lanes % max(able) == 0)
        return accepted & tile.fits(target.vector_registers - 1)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """[positions, ⌈O/bo⌉, I/2, bo, 2]."""
        ((weight, (*outer, depth, bo)),) = super().packed_shapes(workload, candidate).items()
        return {weight: (*outer, depth // PAIR, bo, PAIR)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → G w Gᵀ in 16 bits, as [positions, ⌈O/bo⌉, I/2, bo, 2]."""
        ((weight, shape),) = self.packed_shapes(workload, candidate).items()
        packed = self.in_16_bits(super().pack(workload, candidate, constants)[weight])
        pairs = packed.reshape(*shape[:3], PAIR, shape[3])
        return {**constants, weight: np.ascontiguousarray(pairs.swapaxes(3, 4))}
