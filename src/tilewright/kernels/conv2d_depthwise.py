"""Depthwise convolution: every output channel reads one input channel.

Lanes run over channels. Weights are repacked to [out/b, kh, kw, b]. A register tile of
`tile_height` rows × `tile_width` columns is held in registers over all taps. `padding` says where
zeros around the input come from: `inline` tests each load that may fall outside, `tile` copies
the rows a piece of work needs into a scratch buffer with a border, in the lanes' layout.

Codes of eight bits are multiplied in single precision, in which sums of so few products are exact:
data is widened where it is read, in `tile` once, and weights ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob, ToldAsColumns
from tilewright.kernels.codes import CODES, code_error, exact_in_singles
from tilewright.kernels.columns import Bools, by_type, chosen, column
from tilewright.kernels.convolution import (
    TiledConvolution,
    convolution,
    convolutions,
    plane_tiles,
)
from tilewright.kernels.ports import (
    Ports,
    Widening,
    anchored_ports,
    arriving_block,
    output_block,
    tile_sizes,
    usual_lanes,
)

_LARGEST_WIDTH = 14
_LARGEST_CODE = 160
_WIDENING = 2.0
"""Instructions that make singles of a vector of codes."""


class DepthwiseConvolution(Widening, TiledConvolution, ToldAsColumns):
    """Spec of the depthwise convolution, with any channel multiplier."""

    name = "conv2d_depthwise"
    element_types = SINGLE | CODES
    tile_vectors = ()

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision or codes, constant weights of the same kind, one input channel per
        group."""
        conv = convolution(workload)
        whole = in_codes(workload)
        exact = workload.types[conv.weight].dtype == "int8" and exact_in_singles(conv.taps)
        alone = conv.group_in == 1 and (exact or not whole)
        return alone and super().applies(workload, target, resources)

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Data and result in blocks or plain."""
        return anchored_ports(workload, target, convolution(workload).data)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, where padding happens, and which loops over taps are unrolled."""
        conv = convolution(workload)
        lanes = usual_lanes(conv.out_channels, forms[-1], target.lanes(conv.computed_in))
        ready = arriving_block(forms, conv.data) == lanes and not conv.padded
        ready = ready and not in_codes(workload)
        return (
            Knob(name="lanes", values=(lanes,)),
            Knob(name="tile_width", values=tile_sizes(conv.out_width, largest=_LARGEST_WIDTH)),
            Knob(name="tile_height", values=tile_sizes(conv.out_height, largest=3)),
            Knob(name="rows", values=tuple(r for r in (1, 2, 4) if r <= conv.out_height)),
            Knob(name="padding", values=("inline",) if ready else ("inline", "tile")),
            Knob(name="unroll", values=("columns", "taps")),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """The tile fits the registers; unrolled code stays small."""
        conv = convolution(workload)
        tile = self.tile(settings, target.lanes(conv.computed_in))
        down = np.where(chosen(settings, "unroll", "taps"), conv.kernel[0], 1)
        short = tile.accumulators * conv.kernel[1] * down <= _LARGEST_CODE
        return tile.fits_beside(target.vector_registers) & (short | np.equal(tile.rows, 1))

    def demand_of_many(
        self,
        workloads: Sequence[Workload],
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Loads and cycles per vector of results."""
        conv = convolutions(workloads)
        (kh, kw), (sh, sw), taps = conv.kernel, conv.strides, conv.taps
        names = ("lanes", "tile_width", "tile_height", "rows")
        lanes, tw, th, rows = (column(settings, name) for name in names)
        copied = chosen(settings, "padding", "tile")
        unrolled = chosen(settings, "unroll", "taps")
        vectors = np.ceil(lanes / by_type(conv.computed_in, target.lanes))
        tiles_h, _, waste = plane_tiles(conv, settings)
        columns_read = ((tw - 1) * sw + kw) / tw
        rows_read = np.where(unrolled, ((th - 1) * sh + kh) / th, kh)
        loads = columns_read * rows_read + taps / (tw * th)
        tests = np.where(copied | ~conv.padded, 0.0, taps * (0.1 + 0.3 / tw))
        # rows of one tile branch apart at the upper and lower border
        tests += np.where(th > 1, np.where(copied, 0.1, 0.7) * taps, 0.0)
        tests += np.where((waste > 1.0) & ~copied, 0.1 * taps, 0.0)
        widened = np.array([_WIDENING if in_codes(w) else 0.0 for w in workloads])
        tests += np.where(copied, 0.0, widened * loads / 2.0)
        latency = 4.0 * taps / (tw * th * vectors)
        work = np.maximum(np.maximum(taps, loads) / 2.0, latency)
        odd = np.where(np.log2(lanes) % 1.0 > 0, 2.0, 1.0)
        border = (th * rows * sh + kh - sh) / (th * rows)
        copying = np.where(copied, 3.0 * border * (conv.in_width + kw) / conv.out_width, 0.0)
        cycles = (work + tests + 3.0 + 8.0 / (tw * th)) * waste * odd + copying
        vectors_written = conv.batch * conv.out_channels * conv.pixels / lanes * vectors
        return Demand(
            pieces=conv.batch * conv.out_channels / lanes * np.ceil(tiles_h / rows),
            cycles=cycles * vectors_written,
            traffic={"L2": conv.moved_bytes.astype(np.float64)},
            details={
                "accumulators": tw * th * vectors,
                "loads_per_result": loads,
                "waste": waste,
            },
        )

    def error_bound(self, workload: Workload) -> float:
        """Sums of codes are exact."""
        return code_error(workload) if in_codes(workload) else super().error_bound(workload)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights of either kind are singles."""
        return {convolution(workload).weight: "float32"}

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        conv = convolution(workload)
        block = output_block(candidate.forms, dict(candidate.settings))
        return {conv.weight: (conv.out_channels // block, *conv.kernel, block)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, 1, kh, kw] → [O/b, kh, kw, b]."""
        conv = convolution(workload)
        chunks, kh, kw, block = self.packed_shapes(workload, candidate)[conv.weight]
        weights = constants[conv.weight].astype(np.float32, copy=False)
        weights = weights.reshape(chunks, block, kh, kw).transpose(0, 2, 3, 1)
        return {**constants, conv.weight: np.ascontiguousarray(weights)}


def in_codes(workload: Workload) -> bool:
    """Whether data and weights are codes."""
    return workload.types[convolution(workload).data].dtype in CODES


SPEC = DepthwiseConvolution()
