"""Window pooling, one row of results after the other.

On channel-blocked tensors the lanes are channels and a tile of columns is kept in registers; on
plain tensors the lanes are columns of a copy of the plane that already has its border.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.forms import Form, channel_block
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.blocks import tile_sizes
from tilewright.kernels.columns import column
from tilewright.kernels.streaming import Streaming

_CYCLES_OF_A_LOAD = 0.675
"""Of a vector, with what is done with it."""


def pooled_shape(workload: Workload) -> tuple[int, ...]:
    """Shape of the anchor's result: batch, channels, rows, columns."""
    if workload.anchor_index is None:
        raise InternalError(f"{workload.key} has no anchor")
    return workload.step_types(workload.anchor_index)[1].shape


class PoolRows(Streaming):
    """Spec of max and average pooling; any window, stride, padding and dilation."""

    name = "pool2d_rows"
    anchors = frozenset({"max_pool2d", "avg_pool2d"})
    element_types = frozenset({"float32", "float64", "int32", "int8", "uint8"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Types that accumulate in themselves; averages in floating point only."""
        index, anchor = workload.anchor_index, workload.anchor
        if index is None or anchor is None:
            return False
        dtype = workload.step_types(index)[1].dtype
        if anchor.operator == "avg_pool2d" and not dtype.startswith("float"):
            return False
        return dtype in self.element_types and workload.result.shape == pooled_shape(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """`tile_width`: columns computed together (in vectors, where columns are lanes)."""
        width = pooled_shape(workload)[3]
        if channel_block(forms[-1]):
            return (Knob(name="tile_width", values=tile_sizes(width, largest=12, tails=False)),)
        return (Knob(name="tile_width", values=(1, 2, 4)),)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Loads per result, latency of dependent operations, registers."""
        anchor = workload.anchor
        assert anchor is not None
        tile = column(settings, "tile_width")
        n, channels, height, width = pooled_shape(workload)
        block = channel_block(forms[-1])
        taps = prod(anchor.integers("kernel"))
        register = target.lanes(workload.computed_in)
        lanes = float(min(block, register) if block else register)
        pieces = n * (channels // block * height if block else channels) * np.ones(len(settings))
        vectors = tile * (max(1.0, block / register) if block else 1.0)
        chain = np.maximum(1.0, 4.0 / vectors)
        crowded = np.where(vectors > 0.75 * target.vector_registers, 2.0, 1.0)
        copies = 1.0 if block else 2.0
        loads = n * channels * height * width * taps / lanes
        return Demand(
            pieces=pieces,
            cycles=loads * chain * crowded * _CYCLES_OF_A_LOAD,
            traffic={"memory": workload.bytes * copies},
            own_traffic=True,
            details={"accumulators": vectors},
        )


SPEC = PoolRows()
