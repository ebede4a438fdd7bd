"""Direct convolution on channel-blocked tensors.

Weights are repacked to [out/bo, in/bi, kh, kw, bi, bo], bo lanes of output channels innermost and
the axes between in the order of the reduction's loops, so that they are read as one stream. A
register tile of `tile_out` channel chunks × `tile_height` rows × `tile_width` columns accumulates
over all inputs; one input value is broadcast against bo lanes of weights. The form follows
Georganas et al. 2018 (Anatomy of High-Performance Deep Learning Convolutions on SIMD).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from tilewright.core.records import Candidate, Device, Settings
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FactColumn, Knob, Workspaces
from tilewright.kernels.blocks import chunk_count, output_block, whole_chunks
from tilewright.kernels.conv2d_direct_knobs import (
    REDUCTION,
    data_block,
    direct_knobs,
    input_blocks,
    unrolls_lanes,
)
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.ports import Ports, anchored_ports
from tilewright.kernels.register_tile import fits_registers, issue_slowdown

NAME = "conv2d_direct"
_LAUNCH_S = 2e-6
_TAPS_INSIDE = "chunk,ky,lane,kx"
_CHUNKS_INSIDE = "ky,kx,chunk,lane"
# time against the plain way, seen in steps of a few hundredths on one machine with AVX-512
_LANES_SPELLED_OUT = 0.95
_TAPS_SHARE_INPUTS = 0.98
_TAPS_SPILL = 1.5
_LESS_USUAL = 1.03
_TORN_VECTORS = 12.0
"""Vectors of 17 lanes, say, are torn to pieces by LLVM: sixteen times as slow on AVX-512."""


def reduction(conv: Convolution, settings: Settings) -> dict[str, int]:
    """Steps of each loop of the reduction, outermost first."""
    block = int(settings["in_block"])
    steps = dict(zip(REDUCTION, (conv.group_in // block, *conv.kernel, block), strict=True))
    return {name: steps[name] for name in str(settings["reduce_order"]).split(",")}


class DirectConvolution:
    """Spec of the direct convolution; any stride, padding, dilation and groups."""

    name = NAME
    anchors = frozenset({"conv2d"})

    def applies(self, workload: Workload, device: Device) -> bool:
        """Single precision with constant weights, and more than one channel per group."""
        conv = convolution(workload)
        return (
            workload.types[conv.data].dtype == "float32"
            and workload.is_constant(conv.weight)
            and conv.group_out > 1
        )

    def port_layouts(self, workload: Workload, device: Device) -> tuple[Ports, ...]:
        """Data and result in blocks or plain; a block of results lies within a group."""
        conv = convolution(workload)
        return anchored_ports(workload, device, conv.data, groups=conv.groups)

    def knobs(
        self, workload: Workload, device: Device, layouts: tuple[str, ...]
    ) -> tuple[Knob, ...]:
        """See `conv2d_direct_knobs`."""
        return direct_knobs(convolution(workload), device, layouts)

    def valid(
        self, workload: Workload, device: Device, layouts: tuple[str, ...], settings: Settings
    ) -> bool:
        """The tile divides the chunks and fits the registers with the weights beside it, it is
        worth it, and cached weights are used more than once."""
        chunks = chunk_count(convolution(workload).group_out, int(settings["lanes"]))
        if chunks % int(settings["tile_out"]):
            return False
        width, height = int(settings["tile_width"]), int(settings["tile_height"])
        if height > 1 and width > 16:
            return False
        registers = device.cpu.vector_registers
        vectors = -(-int(settings["lanes"]) // device.lanes_f32)
        weights = int(settings["tile_out"]) * vectors
        shared = str(settings["reduce_order"]).endswith("kx")
        kept = width * height if shared else 1
        if not fits_registers(width * height * weights, weights, registers, kept=kept):
            return False
        if not _spelled(settings):
            return False
        return not settings["cache_chunks"] or _cache_pays(convolution(workload), settings)

    def facts(
        self,
        workload: Workload,
        device: Device,
        layouts: tuple[str, ...],
        settings: Sequence[Settings],
    ) -> Mapping[str, FactColumn]:
        """Register tile, wasted work, loads per multiply-add, parallel balance, working set."""
        conv = convolution(workload)
        height, width = conv.out_height, conv.out_width
        column = {
            name: np.array([float(s[name]) for s in settings])
            for name in ("lanes", "tile_width", "tile_height", "tile_out")
        }
        by_rows = np.array([s["order"] == "rows" for s in settings])
        tiles_w = np.ceil(width / column["tile_width"])
        tiles_h = np.ceil(height / column["tile_height"])
        chunks = conv.groups * np.ceil(conv.group_out / column["lanes"])
        tiles_c = chunks / column["tile_out"]
        pieces = conv.batch * tiles_c * _tiles_apart(conv, settings, tiles_h, tiles_w)
        rounds = np.ceil(pieces / device.threads)
        balance = pieces / (rounds * device.threads)
        covered = tiles_w * column["tile_width"] * tiles_h * column["tile_height"]
        waste = covered / (height * width)
        pixels = column["tile_width"] * column["tile_height"]
        vectors = np.ceil(column["lanes"] / device.lanes_f32)
        torn = (vectors > 1) & (column["lanes"] % device.lanes_f32 > 0)
        accumulators = pixels * column["tile_out"] * vectors
        fill = conv.out_channels / (chunks * vectors * device.lanes_f32)
        loads = 1.0 / pixels + 1.0 / (column["tile_out"] * vectors)
        slow = issue_slowdown(accumulators, loads)
        taps = prod(conv.kernel) * conv.group_in
        weight_bytes = 4.0 * column["lanes"] * column["tile_out"] * taps
        traffic = np.where(
            by_rows, 4.0 * prod(conv.kernel) * conv.group_in * conv.out_channels * tiles_h, 0.0
        )
        spill = np.where(weight_bytes > device.cpu.l2_bytes / 2, 1.15, 1.0)
        peak = device.threads * 2 * 2 * device.lanes_f32 * 2.7e9
        compute_s = conv.flop / peak * waste * slow * spill / (fill * balance)
        compute_s = compute_s * _reduction_speed(conv, device, settings, accumulators)
        compute_s = compute_s * _doubt(conv, device, layouts, settings)
        compute_s = compute_s * np.where(torn, _TORN_VECTORS, 1.0)
        ragged = np.array([ragged_groups(conv, int(s["lanes"])) for s in settings])
        moved = workload.bytes + 0.1 * traffic + np.where(ragged, 2.0 * workload.result.bytes, 0.0)
        return {
            "estimate_s": compute_s + moved / (device.threads * 2e10) + _LAUNCH_S,
            "parallel_extent": pieces,
            "accumulators": accumulators,
            "loads_per_multiply_add": loads,
            "waste": waste,
            "weight_tile_bytes": weight_bytes,
        }

    def error_bound(self, workload: Workload) -> float:
        """Summation in single precision; grows slowly with the length of the sum."""
        conv = convolution(workload)
        length = conv.group_in * prod(conv.kernel)
        return max(2e-6, 6e-8 * length**0.5 * 4)

    def workspaces(self, workload: Workload, candidate: Candidate, device: Device) -> Workspaces:
        """The input with its border of zeros, where that is a stage of its own."""
        conv, settings = convolution(workload), dict(candidate.settings)
        if settings["padding"] != "stage":
            return Workspaces()
        extents = (conv.out_height, conv.out_width)
        tiles = (int(settings["tile_height"]), int(settings["tile_width"]))
        reach = [
            (-(-extent // tile) * tile - 1) * stride + (kernel - 1) * dilation + 1
            for extent, tile, stride, kernel, dilation in zip(
                extents, tiles, conv.strides, conv.kernel, conv.dilation, strict=True
            )
        ]
        return Workspaces(shared=(4 * conv.batch * conv.in_channels * prod(reach),))

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        conv, settings = convolution(workload), dict(candidate.settings)
        bo = output_block(candidate.layouts, settings)
        steps = reduction(conv, settings).values()
        return {conv.weight: (chunk_count(conv.out_channels, bo, conv.groups), *steps, bo)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → [⌈O/bo⌉, I/bi, kh, kw, bi, bo], the middle in the loops' order."""
        conv, settings = convolution(workload), dict(candidate.settings)
        shape = self.packed_shapes(workload, candidate)[conv.weight]
        steps = reduction(conv, settings)
        sizes = (shape[0], shape[-1], steps["chunk"], steps["lane"], *conv.kernel)
        place = {"chunk": 2, "lane": 3, "ky": 4, "kx": 5}
        axes = (0, *(place[name] for name in steps), 1)
        weights = whole_chunks(constants[conv.weight], shape[-1], conv.groups).reshape(sizes)
        return {**constants, conv.weight: np.ascontiguousarray(weights.transpose(axes))}


def ragged_groups(conv: Convolution, lanes: int) -> bool:
    """Whether chunks of `lanes` end beyond the last channel of each of several groups: then all
    sums are made first, and gathered into the result in a second pass."""
    return conv.groups > 1 and conv.group_out % lanes > 0


def _spelled(settings: Settings) -> bool:
    """Whether the loop to be spelled out lies where that helps: taps next to the tile, lanes in
    blocks of enough of them."""
    if settings["unroll"] == "lanes":
        return unrolls_lanes(int(settings["in_block"]))
    return (settings["unroll"] == "kx") == (settings["reduce_order"] == _TAPS_INSIDE)


def _cache_pays(conv: Convolution, settings: Settings) -> bool:
    """Whether blocks of cached chunks cut the sum into equal parts, and several tiles of a piece
    use each."""
    block, cached = int(settings["in_block"]), int(settings["cache_chunks"])
    chunks = conv.group_in // block
    if settings["order"] == "tiles" or settings["reduce_order"] == _CHUNKS_INSIDE:
        return False
    tiles = -(-conv.out_width // int(settings["tile_width"]))
    if settings["order"] == "channels":
        tiles *= -(-conv.out_height // int(settings["tile_height"]))
    return tiles > 1 and cached < chunks and chunks % cached == 0


def _tiles_apart(
    conv: Convolution, settings: Sequence[Settings], tiles_h: FactColumn, tiles_w: FactColumn
) -> FactColumn:
    """Tiles of a plane, or rows of tiles, that are pieces of work of their own."""
    whole = np.array([s["order"] == "channels" and bool(s["cache_chunks"]) for s in settings])
    row = conv.out_height > 1
    across = np.array([row and s["order"] != "tiles" or bool(s["cache_chunks"]) for s in settings])
    return np.where(whole, 1.0, tiles_h * np.where(across, 1.0, tiles_w))


def _reduction_speed(
    conv: Convolution, device: Device, settings: Sequence[Settings], accumulators: FactColumn
) -> FactColumn:
    """Time of the reduction's inner loops against the plain way.

    Lanes spelled out save address arithmetic. With taps inside, LLVM keeps the inputs that
    neighbouring taps share in registers: a row of the tile and the kernel's width beside the
    accumulators, or it spills. Wide kernels and strides share less than that costs.
    """
    widths = np.array([float(s["tile_width"]) for s in settings])
    inside = np.array([s["reduce_order"] == _TAPS_INSIDE for s in settings])
    lanes = np.array([s["unroll"] == "lanes" for s in settings])
    fits = accumulators + widths + conv.kernel[1] - 1 <= device.cpu.vector_registers - 2
    shared = lanes & (conv.kernel[1] <= 3 and conv.strides[1] == 1)
    taps = np.where(fits, np.where(shared, _TAPS_SHARE_INPUTS, _LESS_USUAL), _TAPS_SPILL)
    return np.where(lanes, _LANES_SPELLED_OUT, 1.0) * np.where(inside, taps, 1.0)


def _doubt(
    conv: Convolution, device: Device, layouts: tuple[str, ...], settings: Sequence[Settings]
) -> FactColumn:
    """What the other choices are expected to cost; a tuner finds out where they gain."""
    block = input_blocks(conv, device, layouts)[0]
    collects = 1 if data_block(conv, layouts) else 3
    unusual = [
        (s["reduce_order"] == _CHUNKS_INSIDE)
        + (s["padding"] == "piece")
        + collects * (s["in_block"] != block)
        + bool(s["cache_chunks"])
        for s in settings
    ]
    return np.power(_LESS_USUAL, np.array(unusual, dtype=np.float64))


SPEC = DirectConvolution()
