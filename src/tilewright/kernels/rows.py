"""Reductions, softmax, normalisations and pooling, one row after the other.

A *row* is what is reduced together. Where the innermost axis in memory is reduced, a row is read
in vectors into several partial results that are folded at the end; where it is kept, the lanes of
a vector are rows of their own. A row stays in the cache meanwhile.

Pooling goes over rows of results. On channel-blocked tensors the lanes are channels and a tile of
columns is kept in registers; on plain tensors the lanes are columns of a copy of the plane that
already has its border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.core.forms import PLAIN, Form, channel_block, number_layout
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob, anchored
from tilewright.kernels.columns import column
from tilewright.kernels.ports import Widening, tile_sizes
from tilewright.kernels.streaming import Streaming

_CYCLES_OF_AN_ADDITION, _CYCLES_OF_AN_OPERATION = 1.08, 0.3375
"""Of a vector: one that waits for the one before, divided by four, and any other."""
_CYCLES_OF_A_FOLD = 5.4
"""Adding one half of a row's partial results to the other."""
REDUCTIONS = frozenset({"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"})
NORMALISING = frozenset({"softmax", "log_softmax", "layer_norm", "rms_norm", "instance_norm"})


@dataclass(frozen=True, slots=True)
class Frame:
    """A tensor of logical `shape` in memory, and which of its logical axes are `reduced`."""

    shape: tuple[int, ...]
    form: Form
    reduced: frozenset[int]

    @property
    def block(self) -> int:
        """Lanes of a block of channels, 0 where it is plain."""
        return channel_block(self.form)

    @property
    def axes(self) -> tuple[tuple[int, int], ...]:
        """(logical axis, extent) of each axis in memory, outermost first.

        In a blocked layout axis 1 appears twice, as chunks and as the lanes at the end.
        """
        places = number_layout(self.form).places(len(self.shape))
        extents = self.form.physical_shape(self.shape)
        return tuple((axis, extent) for (axis, _), extent in zip(places, extents, strict=True))

    @property
    def kept(self) -> tuple[int, ...]:
        """Places of the kept axes."""
        return tuple(i for i, (axis, _) in enumerate(self.axes) if axis not in self.reduced)

    @property
    def gone(self) -> tuple[int, ...]:
        """Places of the reduced axes."""
        return tuple(i for i, (axis, _) in enumerate(self.axes) if axis in self.reduced)

    @property
    def fast(self) -> int:
        """Place of the innermost axis that is longer than one."""
        long = [i for i, (_, extent) in enumerate(self.axes) if extent > 1]
        return long[-1] if long else len(self.axes) - 1

    @property
    def across(self) -> bool:
        """Whether the innermost axis is reduced."""
        return self.axes[self.fast][0] in self.reduced

    def logical(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """The logical axes at these places."""
        return tuple(self.axes[i][0] for i in places)

    def extents(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """Extents of the axes at these places."""
        return tuple(self.axes[i][1] for i in places)


def reduced_axes(workload: Workload) -> frozenset[int]:
    """The logical axes of the anchor's operand that are reduced together."""
    step, (data, *_), _ = anchored(workload)
    match step.operator:
        case "softmax" | "log_softmax":
            return frozenset({step.integer("axis")})
        case "layer_norm" | "rms_norm":
            return frozenset(range(step.integer("axis"), len(data.shape)))
        case "instance_norm":
            return frozenset(range(2, len(data.shape)))
        case "lrn":
            return frozenset({1})
        case _:
            return frozenset(step.integers("axes"))


def operand_frame(workload: Workload, forms: tuple[Form, ...]) -> Frame:
    """The axes that the schedule follows: the operand's, or the result's of the same shape. What is
    computed on the way lies as the first argument of its shape does."""
    step, (data, *_), _ = anchored(workload)
    form = forms[-1]
    if step.operator in REDUCTIONS:
        fits = (i for i, each in enumerate(workload.arguments) if each.type.shape == data.shape)
        source = step.inputs[0]
        source = source if source < len(workload.arguments) else next(fits, None)
        form = PLAIN if source is None else forms[source]
    return Frame(data.shape, form, reduced_axes(workload))


class Rows(Widening, Streaming):
    """Spec of row kernels."""

    name = "rows"
    anchors = REDUCTIONS | NORMALISING | {"lrn"}
    element_types = frozenset({"float32", "float64", "int32", "int64"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Something to reduce, in a type that is its own accumulator; `lrn` on planes."""
        if workload.anchor is None:
            return False
        step, (data, *_), result = anchored(workload)
        planes = step.operator != "lrn" or len(data.shape) == 4
        taken = planes and data.dtype in self.element_types and data.elements > 0
        return taken and bool(reduced_axes(workload)) and result.shape == workload.result.shape

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """`streams`: vectors in flight, as partial results or as rows side by side."""
        return (Knob(name="streams", values=(1, 2, 4, 8)),)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Bytes of all operands, the latency of dependent additions, the cost of folding."""
        axes = operand_frame(workload, forms)
        streams = column(settings, "streams")
        rows = prod(axes.extents(axes.kept))
        length = prod(axes.extents(axes.gone))
        elements = rows * length
        lanes = float(target.lanes(workload.computed_in))
        if axes.across:
            pieces = np.full(len(settings), float(rows))
            usable = np.minimum(streams * lanes, length)
            folding = rows * np.log2(np.maximum(usable, 2)) * _CYCLES_OF_A_FOLD
        else:
            pieces = np.maximum(1.0, rows / (lanes * streams))
            folding = np.zeros(len(settings))
        # an addition takes four cycles, two start per cycle
        chain = np.maximum(1.0, 4.0 / streams)
        adding = elements / lanes * chain * _CYCLES_OF_AN_ADDITION
        return Demand(
            pieces=pieces,
            cycles=adding + workload.flop / lanes * _CYCLES_OF_AN_OPERATION + folding,
            traffic={"memory": workload.bytes},
            own_traffic=True,
            details={"row_length": float(length)},
        )


_CYCLES_OF_A_LOAD = 0.675
"""Of a vector, with what is done with it."""


class PoolRows(Widening, Streaming):
    """Spec of max and average pooling; any window, stride, padding and dilation."""

    name = "pool2d_rows"
    anchors = frozenset({"max_pool2d", "avg_pool2d"})
    element_types = frozenset({"float32", "float64", "int32", "int8", "uint8"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Types that accumulate in themselves; averages in floating point only."""
        if workload.anchor is None:
            return False
        step, _, pooled = anchored(workload)
        divisible = step.operator != "avg_pool2d" or pooled.dtype.startswith("float")
        taken = divisible and pooled.dtype in self.element_types
        return taken and workload.result.shape == pooled.shape

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """`tile_width`: columns computed together (in vectors, where columns are lanes)."""
        width = anchored(workload)[2].shape[3]
        columns = tile_sizes(width, largest=12, tails=False)
        return (Knob(name="tile_width", values=columns if channel_block(forms[-1]) else (1, 2, 4)),)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Loads per result, latency of dependent operations, registers."""
        step, _, pooled = anchored(workload)
        n, channels, height, _ = pooled.shape
        block = channel_block(forms[-1])
        register = target.lanes(workload.computed_in)
        lanes = float(min(block, register) if block else register)
        pieces = n * (channels // block * height if block else channels) * np.ones(len(settings))
        vectors = column(settings, "tile_width") * (max(1.0, block / register) if block else 1.0)
        chain = np.maximum(1.0, 4.0 / vectors)
        crowded = np.where(vectors > 0.75 * target.vector_registers, 2.0, 1.0)
        loads = pooled.elements * prod(step.integers("kernel")) / lanes
        return Demand(
            pieces=pieces,
            cycles=loads * chain * crowded * _CYCLES_OF_A_LOAD,
            traffic={"memory": workload.bytes * (1.0 if block else 2.0)},
            own_traffic=True,
            details={"accumulators": vectors},
        )


POOLING, ROWS = SPECS = (PoolRows(), Rows())
