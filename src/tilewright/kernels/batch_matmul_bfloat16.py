"""Batched product of singles with products of bfloat16 and sums in single precision.

As `batch_matmul_tiled`. The left matrices are rounded into a copy where they are not there in
halves, an even number of values in each row; columns of the right ones are copied as words of two
halves, [depth/2, block].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import Work
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, Knob
from tilewright.kernels.halves import (
    PAIR,
    ROUNDING_CYCLES,
    OfHalves,
    half_lanes,
    multiplied_work,
    rounding_error,
)
from tilewright.kernels.matrix_products import TiledBatchMatmul, batch_product


def copied(workload: Workload, forms: tuple[Form, ...]) -> bool:
    """Whether the left matrices are copied first."""
    matmul = batch_product(workload)
    whole = matmul.data < len(forms) - 1 and matmul.depth % PAIR == 0
    return not whole or forms[matmul.data].dtype != HALF


class Bfloat16BatchMatmul(OfHalves, TiledBatchMatmul):
    """Spec of the batched product by dot products of bfloat16."""

    name = "batch_matmul_bfloat16"

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision on a CPU with dot products."""
        lanes = target.lanes(workload.computed_in)
        return lanes in half_lanes(target) and super().applies(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """As in single precision; the right columns are always copied."""
        found = super().knobs(workload, target, resources, forms)
        return tuple(replace(k, values=(True,)) if k.name == "pack" else k for k in found)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, at the rate of dot products, and the copy of the left."""
        found = super().demand(workload, target, resources, forms, settings)
        if not copied(workload, forms):
            return found
        rounded = ROUNDING_CYCLES * workload.types[batch_product(workload).data].elements
        return replace(found, cycles=found.cycles + rounded, launches=2.0)

    def error_bound(self, workload: Workload) -> float:
        """See `rounding_error`."""
        return rounding_error(batch_product(workload).depth)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of dot products."""
        return multiplied_work(workload, target)


SPEC = Bfloat16BatchMatmul()
