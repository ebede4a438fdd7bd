"""What the Winograd convolutions have in common whose factors are rounded to a half type.

What is multiplied, the transformed input and the transformed weights, is rounded, weights ahead.
The transforms are computed in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import Work
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.conv2d_winograd import FROM_L3, Pair, WinogradConvolution
from tilewright.kernels.convolution import Convolution, convolution, convolutions
from tilewright.kernels.halves import multiplied_work, rounding_error
from tilewright.kernels.winograd_rounding import rounding_errors
from tilewright.kernels.winograd_transforms import Transform, transform

_TRANSFORM_CYCLES = 4.0


class HalfWinograd(WinogradConvolution):
    """Spec of a Winograd convolution with products of a half type.

    `outputs` are the rows and columns of an output tile by kernel.
    """

    passes = (1.0, 0.25, 1.0)
    tails = False

    def __init__(self, name: str, *, outputs: Mapping[Pair, Pair]):
        super().__init__(name, outputs=outputs, bound={})

    @property
    def multiplies_in(self) -> str:
        """The half type."""
        return self.factors

    @property
    def family(self) -> str:
        """The algorithm, whatever the half type."""
        return self.name.removesuffix(f"_{self.factors}")

    def transform_cycles(self, forms: tuple[Form, ...]) -> float:
        """Products of twice the rate no longer hide them."""
        return super().transform_cycles(forms) or _TRANSFORM_CYCLES

    def along_one_axis(self, outputs: int, taps: int) -> Transform:
        """With the points that are best for factors of few digits."""
        return transform(outputs, taps, coarse=True)

    def demand_of_many(
        self,
        workloads: Sequence[Workload],
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, but what is counted of the weights are halves alone."""
        found = super().demand_of_many(workloads, target, resources, forms, settings)
        conv = convolutions(workloads)
        unpacked_bytes = 4.0 * conv.taps * conv.in_channels * conv.out_channels
        return replace(found, traffic={"L3": found.traffic["L3"] - FROM_L3 * unpacked_bytes})

    def error_bound(self, workload: Workload) -> float:
        """That of independent roundings, enlarged by the transforms along both axes.

        It holds for inputs of like magnitude within a tile, or zero in the border.
        """
        conv = convolution(workload)
        return self.amplification(conv) * rounding_error(conv.summed, self.factors)

    def amplification(self, conv: Convolution, *, sums: bool = False) -> float:
        """By the transforms along both axes; see `Transform.amplification`."""
        form, (top, left, bottom, right) = self.form(conv), conv.padding
        down = form.vertical.amplification(max(top, bottom), sums=sums)
        return down * form.horizontal.amplification(max(left, right), sums=sums)

    def rounding_errors(self, workload: Workload, operands: Sequence[Array]) -> Array:
        """What the roundings of transformed data and transformed weights add to the convolution,
        and those of sums in halves."""
        conv, (data, weights) = convolution(workload), operands
        return rounding_errors(
            self.form(conv), conv, data, weights, self.factors, run=self.run(conv)
        )

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of products of halves."""
        weight = convolution(workload).weight
        direct = multiplied_work(workload, target, weight, self.factors)
        return replace(super().least_work(workload, target), speed=direct.speed)
