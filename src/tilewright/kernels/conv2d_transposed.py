"""Transposed convolution in gather form, one output phase at a time.

With stride s, output row y = s q + r reads input rows q + base(r) - t a for its taps t, where only
the kernel rows first(r) + t p take part (p = s / gcd(d, s), a = d / gcd(d, s), d the dilation). So
every phase r is a direct convolution of stride 1 with a part of the kernel. Weights are repacked to
[out/bo, s, s, in/bi, taps, taps, bi, bo], with zeros where a phase has fewer taps than others.
The input is copied once with a border of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob, Workspaces, anchored
from tilewright.kernels.columns import chosen, column
from tilewright.kernels.convolution import Channels
from tilewright.kernels.ports import dividing_block, output_block, tile_sizes, usual_lanes
from tilewright.kernels.register_tile import TiledProduct


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """One spatial axis: which taps meet which input for each output phase.

    There is a phase per unit of stride, but no more than results. `first` is the first kernel
    index of a phase, None for a phase without taps; `base` the input offset it meets; `period`
    the step between kernel indices, `advance` between input offsets.
    """

    kernel: int
    extent: int
    result: int
    first: tuple[int | None, ...]
    base: tuple[int, ...]
    period: int
    advance: int

    @property
    def count(self) -> int:
        """Number of phases."""
        return len(self.first)

    @property
    def taps(self) -> int:
        """Most taps of a phase."""
        return -(-self.kernel // self.period)

    @property
    def positions(self) -> int:
        """Results of one phase."""
        return -(-self.result // self.count)

    def border(self, positions: int) -> tuple[int, int]:
        """Zeros before and after the input that `positions` results of a phase need."""
        lowest = min(self.base) - (self.taps - 1) * self.advance
        highest = positions - 1 + max(self.base)
        return max(0, -lowest), max(0, highest + 1 - self.extent)


@dataclass(frozen=True, kw_only=True)
class TransposedConvolution(Channels[int]):
    """Extents of the anchor."""

    rows: Phases
    columns: Phases

    @property
    def summed(self) -> int:
        """Products that a result is the sum of, at most."""
        return self.group_in * self.rows.taps * self.columns.taps


def transposed_convolution(workload: Workload) -> TransposedConvolution:
    """Read the geometry of a workload anchored on `conv2d_transpose`."""
    step, (x, w), y = anchored(workload, "conv2d_transpose")
    strides, dilation = step.integers("strides"), step.integers("dilation")
    before = step.integers("padding")[:2]
    rows, columns = (
        _phases(
            (w.shape[2 + i], x.shape[2 + i], y.shape[2 + i]), strides[i], dilation[i], before[i]
        )
        for i in range(2)
    )
    return TransposedConvolution(
        data=step.inputs[0],
        weight=step.inputs[1],
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=y.shape[1],
        groups=step.integer("groups"),
        rows=rows,
        columns=columns,
    )


def _phases(extents: tuple[int, int, int], stride: int, dilation: int, before: int) -> Phases:
    kernel, extent, result = extents
    common = gcd(stride, dilation)
    period = stride // common
    first = [
        next((k for k in range(period) if (phase + before - k * dilation) % stride == 0), None)
        for phase in range(min(stride, result))
    ]
    base = [
        0 if k is None else (phase + before - k * dilation) // stride
        for phase, k in enumerate(first)
    ]
    return Phases(
        kernel=kernel,
        extent=extent,
        result=result,
        first=tuple(first),
        base=tuple(base),
        period=period,
        advance=dilation // common,
    )


class GatheringTransposedConvolution(TiledProduct):
    """Spec of the transposed convolution; any stride, padding, dilation and groups."""

    name = "conv2d_transposed"
    anchors = frozenset({"conv2d_transpose"})
    tile_rows = ("tile_width",)

    def input_block(self, conv: TransposedConvolution, forms: tuple[Form, ...]) -> int:
        """Channels of the input that one packed weight block covers."""
        whole = dividing_block(forms, conv.data, conv.group_in)
        return whole or (1 if conv.group_in > 4 else conv.group_in)

    def operands(self, workload: Workload) -> TransposedConvolution:
        """The geometry of the convolution."""
        return transposed_convolution(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile over positions of one phase and chunks of channels."""
        conv = transposed_convolution(workload)
        lanes = usual_lanes(conv.group_out, forms[-1], target.lanes(workload.computed_in))
        chunks = conv.group_out // lanes
        return (
            Knob(name="lanes", values=(lanes,)),
            Knob(name="tile_width", values=tile_sizes(conv.columns.positions, largest=28)),
            Knob(name="tile_out", values=tuple(t for t in (1, 2, 4) if chunks % t == 0)),
            Knob(name="order", values=("channels", "rows")),
        )

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Wasted work, what the register tile loses against the peak, weights that are read again
        for every row."""
        conv = transposed_convolution(workload)
        rows, columns = conv.rows, conv.columns
        lanes, width = column(settings, "lanes"), column(settings, "tile_width")
        waste = np.ceil(columns.positions / width) * width / columns.positions
        register = target.lanes(workload.computed_in)
        tile = self.tile(settings, register)
        crowded = np.where(tile.accumulators > 0.8 * target.vector_registers, 1.2, 1.0)
        depth = float(conv.summed * rows.count * columns.count)
        positions = conv.batch * rows.positions * columns.positions
        fill = lanes / (np.ceil(lanes / register) * register)
        cycles = positions * conv.out_channels * depth / (2.0 * register * fill)
        passes = np.where(chosen(settings, "order", "rows"), float(rows.positions), 1.0)
        moved = workload.bytes + 0.4 * depth * conv.out_channels * passes
        chunks = conv.batch * conv.out_channels / lanes / column(settings, "tile_out")
        return Demand(
            pieces=chunks * rows.positions,
            cycles=cycles * waste * tile.slowdown * crowded,
            traffic={"L3": moved},
            launches=2.0,
            details=tile.details(waste),
        )

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """The input with zeros around it."""
        conv = transposed_convolution(workload)
        tile = int(candidate.setting("tile_width"))
        across = -(-conv.columns.positions // tile) * tile
        height = conv.rows.extent + sum(conv.rows.border(conv.rows.positions))
        width = conv.columns.extent + sum(conv.columns.border(across))
        return Workspaces(shared=(4 * conv.batch * conv.in_channels * height * width,))

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        weight = transposed_convolution(workload).weight
        return {weight: self._phases_shape(workload, candidate)}

    def _phases_shape(self, workload: Workload, candidate: Candidate) -> tuple[int, ...]:
        conv = transposed_convolution(workload)
        bi = self.input_block(conv, candidate.forms)
        bo = output_block(candidate.forms, dict(candidate.settings))
        phases = (conv.rows.count, conv.columns.count)
        taps = (conv.rows.taps, conv.columns.taps)
        return (conv.out_channels // bo, *phases, conv.group_in // bi, *taps, bi, bo)

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[I, O/g, kh, kw] → [O/bo, s, s, I/bi, taps, taps, bi, bo]; missing taps are zero."""
        weight = transposed_convolution(workload).weight
        return {**constants, weight: self.in_phases(workload, candidate, constants[weight])}

    def in_phases(self, workload: Workload, candidate: Candidate, weights: Array) -> Array:
        """The weights of every phase, [O/bo, s, s, I/bi, taps, taps, bi, bo]."""
        conv = transposed_convolution(workload)
        shape = self._phases_shape(workload, candidate)
        chunks, _, _, inputs, _, _, bi, bo = shape
        kh, kw = weights.shape[2:]
        # [g, I/g, O/g, kh, kw] → [O/bo, I/bi, kh, kw, bi, bo]
        split = weights.reshape(conv.groups, inputs, bi, conv.group_out // bo, bo, kh, kw)
        split = split.transpose(0, 3, 1, 5, 6, 2, 4).reshape(chunks, inputs, kh, kw, bi, bo)
        packed = np.zeros(shape, weights.dtype)
        for ry, y in enumerate(conv.rows.first):
            for rx, x in enumerate(conv.columns.first):
                if y is not None and x is not None:
                    part = split[:, :, y :: conv.rows.period, x :: conv.columns.period]
                    packed[:, ry, rx, :, : part.shape[2], : part.shape[3]] = part
        return packed


SPEC = GatheringTransposedConvolution()
