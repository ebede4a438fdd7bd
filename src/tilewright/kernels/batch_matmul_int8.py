"""Batched product of codes of eight bits with sums of 32 bits.

As `batch_matmul_tiled`. With dot-product instructions (see `codes`) columns of the right matrices
are copied as words of four codes, [depth/4, block]. The left ones are copied where their rows are
no whole quads, or the kernel computes them itself. For data that the instruction takes with an
offset, each column is added up behind its copy, and that many times the offset taken from the sums.
Without such instructions codes are widened: to singles, as long as these hold every sum, else to
integers of 32 bits. Each is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob
from tilewright.kernels.codes import (
    CODES,
    QUAD,
    WIDEN,
    code_error,
    offset,
    rate,
    terms,
    usual_dot,
    widened_to,
)
from tilewright.kernels.columns import Bools
from tilewright.kernels.dense_int8 import COPY_CYCLES
from tilewright.kernels.matrix_products import TiledBatchMatmul, batch_product


def copied(workload: Workload, settings: Settings) -> bool:
    """Whether the left matrices are copied first."""
    matmul = batch_product(workload)
    whole = matmul.data < len(workload.arguments) and matmul.depth % QUAD == 0
    return terms(settings) > 1 and not whole


def added(workload: Workload, settings: Settings) -> int:
    """What the instruction adds to the data."""
    return offset(settings, workload.types[batch_product(workload).data].dtype)


class Int8BatchMatmul(TiledBatchMatmul):
    """Spec of the batched product of codes."""

    name = "batch_matmul_int8"
    element_types = CODES

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Bytes times signed bytes."""
        signed = workload.types[batch_product(workload).weight].dtype == "int8"
        return signed and super().applies(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """As in single precision, and how bytes are multiplied; the right columns are always
        copied."""
        data = workload.types[batch_product(workload).data].dtype
        dot = usual_dot(target, target.lanes(workload.computed_in), data)
        found = super().knobs(workload, target, resources, forms)
        kept = (replace(k, values=(True,)) if k.name == "pack" else k for k in found)
        return Knob(name="dot", values=(dot,)), *kept

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """As in single precision, with a register for an input beside the tile."""
        tile = self.tile(settings, target.lanes(workload.computed_in))
        fits = tile.fits(target.vector_registers - 1)
        return fits & super().valid_many(workload, target, resources, forms, settings)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, at the rate of products of bytes, and the copy of the left."""
        found = super().demand(workload, target, resources, forms, settings)
        some, matmul = settings[0], batch_product(workload)
        usual = target.operations_per_cycle(self.multiplied_in(workload), tiles=False)
        found = replace(
            found, per_cycle=found.per_cycle * self._rate(workload, target, some) / usual
        )
        if not copied(workload, some):
            return found
        cycles = COPY_CYCLES * workload.types[matmul.data].elements
        return replace(found, cycles=found.cycles + cycles, launches=2.0)

    def _rate(self, workload: Workload, target: Target, settings: Settings) -> float:
        """Operations per cycle and core."""
        wide = widened_to(batch_product(workload).depth)
        if settings["dot"] == WIDEN and wide in SINGLE:
            return target.operations_per_cycle(wide, tiles=False)
        return rate(target, workload.computed_in, dots=terms(settings) > 1)

    def multiplied_in(self, workload: Workload) -> str:
        """Bytes."""
        return workload.types[batch_product(workload).weight].dtype

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact."""
        return code_error(workload)


SPEC = Int8BatchMatmul()
