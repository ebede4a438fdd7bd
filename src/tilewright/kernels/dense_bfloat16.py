"""Dense layer of singles with products of bfloat16 and sums in single precision.

As `dense_packed`, with weights rounded ahead and packed to [columns/block, depth/2, block, 2], and
the data rounded into a copy, an even number of values in each row. With one row the weights' bytes
count, which are half as many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import Work
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF
from tilewright.kernels.halves import (
    PAIR,
    ROUNDING_CYCLES,
    OfHalves,
    half_lanes,
    multiplied_work,
    rounding_error,
)
from tilewright.kernels.matrix_products import PackedDense, in_slots, product


def copied(workload: Workload, forms: tuple[Form, ...]) -> bool:
    """Whether the data is copied first: singles are rounded, odd rows get one more value."""
    data = product(workload).data
    whole = data < len(forms) - 1 and product(workload).depth % PAIR == 0
    return not whole or forms[data].dtype != HALF


class Bfloat16Dense(OfHalves, PackedDense):
    """Spec of the dense layer by dot products of bfloat16."""

    name = "dense_bfloat16"

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision with constant weights on a CPU with dot products."""
        lanes = target.lanes(workload.computed_in)
        return lanes in half_lanes(target) and super().applies(workload, target, resources)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, at the rate of dot products, and the copy of the data."""
        found = super().demand(workload, target, resources, forms, settings)
        if not copied(workload, forms):
            return found
        rounded = ROUNDING_CYCLES * workload.types[product(workload).data].elements
        return replace(found, cycles=rounded, launches=2.0)

    def error_bound(self, workload: Workload) -> float:
        """See `rounding_error`."""
        return rounding_error(product(workload).depth)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of dot products."""
        return multiplied_work(workload, target, product(workload).weight)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead, and kept as bits: TVM makes singles of bfloat16."""
        return {product(workload).weight: "uint16"}

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        ((weight, (chunks, depth, block)),) = super().packed_shapes(workload, candidate).items()
        return {weight: (chunks, -(-depth // PAIR), block, PAIR)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[K, N] → [N/b, K/2, b, 2], N and K padded with zeros to whole blocks and slots."""
        weight = product(workload).weight
        shape = self.packed_shapes(workload, candidate)[weight]
        packed = in_slots(constants[weight].astype(element_type(HALF).numpy), shape)
        return {**constants, weight: packed.view(np.uint16)}


SPEC = Bfloat16Dense()
