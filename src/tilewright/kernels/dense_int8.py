"""Dense layer of codes of eight bits with sums of 32 bits.

As `dense_packed`. With dot-product instructions (see `codes`) weights lie as [columns/block,
depth/4, block, 4], and data whose rows are no whole quads, or which the kernel computes itself, is
copied first. Without such instructions bytes are widened, and weights lie as [columns/block, depth,
block, 1]. Both are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.codes import (
    CODES,
    QUAD,
    code_error,
    offset,
    rate,
    terms,
    usual_dot,
    with_offsets,
)
from tilewright.kernels.columns import Bools
from tilewright.kernels.matrix_products import PackedDense, in_slots, product

COPY_CYCLES = 0.1
"""Cycles for each byte of the data that is copied."""


def copied(workload: Workload, settings: Settings) -> bool:
    """Whether the data is copied first."""
    dense = product(workload)
    whole = dense.data < len(workload.arguments) and dense.depth % QUAD == 0
    return terms(settings) > 1 and not whole


def added(workload: Workload, settings: Settings) -> int:
    """What is added to the data; where it is something, the weights carry what to add to the
    sums."""
    return offset(settings, workload.types[product(workload).data].dtype)


class Int8Dense(PackedDense):
    """Spec of the dense layer of codes."""

    name = "dense_int8"
    element_types = CODES

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Bytes times constant signed bytes."""
        signed = workload.types[product(workload).weight].dtype == "int8"
        return signed and super().applies(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, order of the parallel axes, and how bytes are multiplied."""
        data = workload.types[product(workload).data].dtype
        dot = usual_dot(target, target.lanes(workload.computed_in), data)
        return Knob(name="dot", values=(dot,)), *super().knobs(workload, target, resources, forms)

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """The tile, the weights and an input beside it fit the registers."""
        tile = self.tile(settings, target.lanes(workload.computed_in))
        return tile.fits(target.vector_registers - 1)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, at the rate of products of bytes, and the copy of the data."""
        found = super().demand(workload, target, resources, forms, settings)
        kind, some = workload.computed_in, settings[0]
        dots = terms(some) > 1
        faster = rate(target, kind, dots=dots) / target.operations_per_cycle(
            self.multiplied_in(workload), tiles=False
        )
        found = replace(found, per_cycle=found.per_cycle * faster)
        if not copied(workload, some):
            return found
        cycles = COPY_CYCLES * workload.types[product(workload).data].elements
        return replace(found, cycles=cycles, launches=2.0)

    def multiplied_in(self, workload: Workload) -> str:
        """Bytes."""
        return workload.types[product(workload).weight].dtype

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact."""
        return code_error(workload)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        ((weight, (chunks, depth, block)),) = super().packed_shapes(workload, candidate).items()
        settings = dict(candidate.settings)
        width = terms(settings)
        slots = -(-depth // width) + bool(added(workload, settings))
        return {weight: (chunks, slots, block, width)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[K, N] → [N/b, K/4, b, 4], N and K padded with zeros to whole blocks and quads."""
        weight, settings = product(workload).weight, dict(candidate.settings)
        chunks, slots, block, width = self.packed_shapes(workload, candidate)[weight]
        extra = added(workload, settings)
        packed = in_slots(constants[weight], (chunks, slots - bool(extra), block, width))
        if extra:
            sums = constants[weight].sum(axis=0, dtype=np.int32)
            sums = np.pad(sums, (0, chunks * block - len(sums)))
            packed = with_offsets(packed, sums, extra)
        return {**constants, weight: np.ascontiguousarray(packed)}


SPEC = Int8Dense()
