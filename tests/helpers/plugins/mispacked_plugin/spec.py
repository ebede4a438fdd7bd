"""The direct convolution with its weights packed wrongly, and a bound that hides it: 2 ‰ too large
is within 1 ‰ of sum |w||x|, where the terms cancel, but not of the result.

It applies to convolutions with 48 output channels only, so that a test decides which node it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.kernels.conv2d_direct import DirectConvolution
from tilewright.kernels.convolution import convolution


class Mispacked(DirectConvolution):
    name = "mispacked"

    def applies(self, workload, target, resources):
        return (
            super().applies(workload, target, resources)
            and convolution(workload).out_channels == 48
        )

    def demand(self, workload, target, resources, forms, settings):
        demand = super().demand(workload, target, resources, forms, settings)
        return replace(demand, traffic={}, launches=1e-6, clock_hz=1e6 * demand.clock_hz)

    def error_bound(self, workload):
        return 1e-3

    def pack(self, workload, candidate, constants):
        packed = dict(super().pack(workload, candidate, constants))
        index = convolution(workload).weight
        packed[index] = packed[index] * np.float32(1.002)
        return packed


SPEC = Mispacked()
