"""Transposed convolution in gather form, one output phase at a time.

With stride s, output row y = s q + r reads input rows q + base(r) - t a for its taps t, where only
the kernel rows first(r) + t p take part (p = s / gcd(d, s), a = d / gcd(d, s), d the dilation). So
every phase r is a direct convolution of stride 1 with a part of the kernel. The input is copied
once with a border of zeros, in blocks of bi channels. Weights lie as [out/bo · s · s, slot, bo,
terms]: a chunk of output channels for every phase down and across, in it a slot for every `terms`
neighbouring input channels of every tap. Where a phase has fewer taps than others, and where
channels do not fill their blocks, weights are zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob, Workspaces, anchored
from tilewright.kernels.columns import Bools, Floats, chosen, column
from tilewright.kernels.conv2d_dots import FEW
from tilewright.kernels.convolution import Channels
from tilewright.kernels.ports import (
    chunk_count,
    dividing_block,
    instruction_lanes,
    lane_counts,
    output_block,
    single_ports,
    tile_sizes,
    usual_lanes,
)
from tilewright.kernels.register_tile import TiledProduct, tearing

(SINGLES,) = SINGLE


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

    @property
    def phases(self) -> int:
        """Phases of the result."""
        return self.rows.count * self.columns.count

    def gathered(self, lanes: Any) -> Any:
        """Whether chunks of so many `lanes` end beyond the last channel of each of several groups,
        or of the only channel: then all sums are made first, and gathered into the result in a
        second pass. Of a column of them a column."""
        several = (self.groups > 1) & (self.group_out % lanes > 0)
        return several | ((self.out_channels == 1) & (lanes > 1))

    def sums(self, lanes: Any, width: Any) -> Any:
        """Sums of tiles of so many columns, and chunks of so many lanes."""
        across = -(-self.columns.positions // width) * width * self.columns.count
        chunks = self.groups * -(-self.group_out // lanes)
        down = self.rows.positions * self.rows.count
        return self.batch * chunks * lanes * down * across

    def inside(self, block: int) -> int:
        """Blocks of so many channels that hold the input of a group."""
        return -(-self.group_in // block)


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
    """Spec of the transposed convolution; any stride, padding, dilation and groups. Others multiply
    in other types in the same loops."""

    name = "conv2d_transposed"
    anchors = frozenset({"conv2d_transpose"})
    tile_rows = ("tile_width",)
    converting = 0.0
    """Cycles for each value that is converted as it is copied."""

    def terms(self, settings: Settings) -> int:
        """Products that are added to a lane at once."""
        return 1

    def input_block(
        self, conv: TransposedConvolution, forms: tuple[Form, ...], settings: Settings
    ) -> int:
        """Channels of the input that lie together in the copy, whole `terms`: those that arrive so,
        where they divide a group."""
        terms = self.terms(settings)
        whole = dividing_block(forms, conv.data, conv.group_in)
        if whole and whole % terms == 0:
            return whole
        return terms if conv.group_in > FEW else -(-conv.group_in // terms) * terms

    def operands(self, workload: Workload) -> TransposedConvolution:
        """The geometry of the convolution."""
        return transposed_convolution(workload)

    def lane_values(
        self, workload: Workload, target: Target, forms: tuple[Form, ...]
    ) -> tuple[int, ...]:
        """How many output channels may be computed together. What is beyond the last channel of a
        plain result is dropped; several groups are filled by whole chunks."""
        conv = transposed_convolution(workload)
        register = self.register(target.lanes(SINGLES))
        if conv.groups > 1:
            return (usual_lanes(conv.group_out, forms[-1], register),)
        return lane_counts(conv.group_out, forms[-1], register)

    def able_lanes(
        self, workload: Workload, target: Target, forms: tuple[Form, ...], able: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The same by an instruction for so many lanes; several groups are filled up, too."""
        conv = transposed_convolution(workload)
        usual = usual_lanes(conv.group_out, forms[-1], self.register(target.lanes(SINGLES)))
        return instruction_lanes(conv.group_out, forms[-1], (usual,), able)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile over positions of one phase and chunks of channels."""
        conv = transposed_convolution(workload)
        lanes = self.lane_values(workload, target, forms)
        chunks = [chunk_count(conv.group_out, each) for each in lanes]
        out = tuple(t for t in (1, 2, 4) if any(count % t == 0 for count in chunks))
        return (
            Knob(name="lanes", values=lanes),
            Knob(name="tile_width", values=tile_sizes(conv.columns.positions, largest=28)),
            Knob(name="tile_out", values=out),
            Knob(name="order", values=("channels", "rows")),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """As of any tile, which divides the chunks of a group."""
        conv = transposed_convolution(workload)
        chunks = np.ceil(conv.group_out / column(settings, "lanes"))
        divides = chunks % column(settings, "tile_out") == 0
        return divides & super().valid_many(workload, target, resources, forms, settings)

    def half_ports(self, workload: Workload) -> frozenset[int]:
        """All: data is copied once, and converted as it is."""
        return single_ports(workload)

    def register(self, singles: int) -> int:
        """Lanes of a register that holds so many singles."""
        return singles

    def speedup(self, workload: Workload, target: Target, settings: Sequence[Settings]) -> Floats:
        """How many times as fast as in single precision full registers are multiplied."""
        return np.ones(len(settings))

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Wasted work, what the register tile loses against the peak, weights that are read again
        for every row, and values that are converted."""
        conv = transposed_convolution(workload)
        rows, columns, data = conv.rows, conv.columns, workload.types[conv.data]
        lanes, width = column(settings, "lanes"), column(settings, "tile_width")
        waste = np.ceil(columns.positions / width) * width / columns.positions
        register = self.register(target.lanes(SINGLES))
        tile = self.tile(settings, register)
        crowded = np.where(tile.accumulators > 0.8 * target.vector_registers, 1.2, 1.0)
        blocks = np.array([self.input_block(conv, forms, each) for each in settings], dtype=float)
        filled = np.ceil(conv.group_in / blocks) * blocks / conv.group_in
        depth = float(conv.summed * conv.phases) * filled
        chunks = conv.groups * np.ceil(conv.group_out / lanes)
        positions = conv.batch * rows.positions * columns.positions
        vectors = np.ceil(lanes / register) * tearing(lanes, register)
        cycles = positions * chunks * vectors * depth / 2.0
        passes = np.where(chosen(settings, "order", "rows"), float(rows.positions), 1.0)
        size = workload.types[conv.weight].bytes / max(1, workload.types[conv.weight].elements)
        moved = workload.bytes + 0.1 * size * depth * chunks * lanes * passes
        apart = conv.gathered(lanes)
        moved = moved + np.where(apart, 8.0 * conv.sums(lanes, width), 0.0)
        return Demand(
            pieces=conv.batch * chunks / column(settings, "tile_out") * rows.positions,
            cycles=cycles
            * waste
            * tile.slowdown
            * crowded
            / self.speedup(workload, target, settings)
            + self.converting * data.elements,
            traffic={"L3": moved},
            launches=2.0 + apart,
            details=tile.details(waste),
        )

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """The input with zeros around it, and sums that are gathered."""
        conv, settings = transposed_convolution(workload), dict(candidate.settings)
        tile = int(candidate.setting("tile_width"))
        across = -(-conv.columns.positions // tile) * tile
        height = conv.rows.extent + sum(conv.rows.border(conv.rows.positions))
        width = conv.columns.extent + sum(conv.columns.border(across))
        block = self.input_block(conv, candidate.forms, settings)
        channels = conv.groups * conv.inside(block) * block
        size = element_type(self.copied_as(workload)).bytes
        copy, lanes = size * conv.batch * channels * height * width, int(settings["lanes"])
        sums = (4 * conv.sums(lanes, tile),) if conv.gathered(lanes) else ()
        return Workspaces(shared=(copy, *sums))

    def copied_as(self, workload: Workload) -> str:
        """The element type of the copy."""
        return workload.types[transposed_convolution(workload).data].dtype

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        *phases, slots, lanes, terms = self._phases_shape(workload, candidate)
        chunks, down, across, *taps = phases
        shape = (chunks * down * across, prod(taps) * slots, lanes, terms)
        return {transposed_convolution(workload).weight: shape}

    def _phases_shape(self, workload: Workload, candidate: Candidate) -> tuple[int, ...]:
        """[O/bo, s, s, I/bi, taps, taps, bi/terms, bo, terms]"""
        conv, settings = transposed_convolution(workload), dict(candidate.settings)
        block, terms = self.input_block(conv, candidate.forms, settings), self.terms(settings)
        lanes = output_block(candidate.forms, settings)
        phases = (conv.rows.count, conv.columns.count)
        taps = (conv.inside(block), conv.rows.taps, conv.columns.taps)
        chunks = chunk_count(conv.out_channels, lanes, conv.groups)
        return (chunks, *phases, *taps, block // terms, lanes, terms)

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[I, O/g, kh, kw] → [O/bo · s · s, slots, bo, terms]; missing taps are zero."""
        weight = transposed_convolution(workload).weight
        given = constants[weight]
        return {**constants, weight: self.in_phases(workload, candidate, given, given.dtype)}

    def in_phases(
        self, workload: Workload, candidate: Candidate, weights: Array, dtype: npt.DTypeLike
    ) -> Array:
        """The weights of every phase, in a type: [O/bo · s · s, slots, bo, terms]; slots by input
        block, tap, channels of it."""
        conv = transposed_convolution(workload)
        shape = self._phases_shape(workload, candidate)
        chunks, _, _, inside, _, _, slots, lanes, terms = shape
        kh, kw = weights.shape[2:]
        block, outside = slots * terms, chunks // conv.groups
        whole: Any = np.zeros((conv.groups, inside * block, outside * lanes, kh, kw), dtype)
        given = weights.reshape(conv.groups, conv.group_in, conv.group_out, kh, kw)
        whole[:, : conv.group_in, : conv.group_out] = given
        split = whole.reshape(conv.groups, inside, slots, terms, outside, lanes, kh, kw)
        split = split.transpose(0, 4, 1, 6, 7, 2, 5, 3)
        split = split.reshape(chunks, inside, kh, kw, slots, lanes, terms)
        packed: Any = np.zeros(shape, dtype)
        for ry, y in enumerate(conv.rows.first):
            for rx, x in enumerate(conv.columns.first):
                if y is not None and x is not None:
                    part = split[:, :, y :: conv.rows.period, x :: conv.columns.period]
                    packed[:, ry, rx, :, : part.shape[2], : part.shape[3]] = part
        return packed.reshape(chunks * conv.phases, -1, lanes, terms)


SPEC = GatheringTransposedConvolution()
