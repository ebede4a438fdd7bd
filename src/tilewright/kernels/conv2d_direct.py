"""Direct convolution on channel-blocked tensors.

Weights are repacked to [out/bo, in/bi, kh, kw, bi, bo], bo lanes of output channels innermost. A
register tile of `tile_out` channel chunks × `tile_height` rows × `tile_width` columns accumulates
over all inputs; one input value is broadcast against bo lanes of weights. The form follows
Georganas et al. 2018 (Anatomy of High-Performance Deep Learning Convolutions on SIMD).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from tilewright.core.records import Candidate, Device, Settings
from tilewright.graph.layout import channel_block
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FactColumn, Knob
from tilewright.kernels.blocks import channel_blocks, tile_sizes
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.register_tile import fits_registers, issue_slowdown

NAME = "conv2d_direct"
_LARGEST_TILE = 32
_LAUNCH_S = 2e-6


def input_block(conv: Convolution, layouts: tuple[str, ...], arguments: int) -> int:
    """Channels of the input that one packed weight block covers.

    It follows the block the data arrives in where that divides a group, so that a chunk is walked
    in the order of memory.
    """
    block = channel_block(layouts[conv.data]) if conv.data < arguments else 0
    if block and conv.group_in % block == 0:
        return block
    return 1 if conv.group_in > 4 else conv.group_in


def output_block(conv: Convolution, layouts: tuple[str, ...], settings: Settings) -> int:
    """Lanes of output channels computed together."""
    block = channel_block(layouts[-1])
    return block or int(settings["lanes"])


class DirectConvolution:
    """Spec of the direct convolution; any stride, padding, dilation and groups."""

    name = NAME
    anchors = frozenset({"conv2d"})

    def applies(self, workload: Workload, device: Device) -> bool:
        """Single precision with constant weights, and more than one channel per group."""
        conv = convolution(workload)
        return (
            workload.types[conv.data].dtype == "float32"
            and conv.weight < len(workload.arguments)
            and workload.arguments[conv.weight].role == "constant"
            and conv.group_out > 1
        )

    def result_blocks(self, workload: Workload, device: Device) -> tuple[int, ...]:
        """Blocks that divide a group, then plain."""
        return (*channel_blocks(convolution(workload).group_out, device)[:2], 0)

    def knobs(
        self, workload: Workload, device: Device, layouts: tuple[str, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, loop order of the parallel axes, where padding happens."""
        conv = convolution(workload)
        height, width = conv.out_height, conv.out_width
        block = channel_block(layouts[-1])
        lanes = (block,) if block else channel_blocks(conv.group_out, device)[:1]
        chunks = conv.group_out // lanes[0]
        return (
            Knob(name="lanes", values=lanes),
            Knob(name="tile_width", values=tile_sizes(width, largest=_LARGEST_TILE)),
            Knob(name="tile_height", values=tile_sizes(height, largest=8)),
            Knob(name="tile_out", values=tuple(t for t in (1, 2, 3, 4) if chunks % t == 0)),
            Knob(name="order", values=("channels", "rows")),
        )

    def valid(
        self, workload: Workload, device: Device, layouts: tuple[str, ...], settings: Settings
    ) -> bool:
        """The tile and the weights beside it fit the registers, and the tile is worth it."""
        registers = device.cpu.vector_registers
        vectors = -(-int(settings["lanes"]) // device.lanes_f32)
        weights = int(settings["tile_out"]) * vectors
        if not fits_registers(_tile(settings) * vectors, weights, registers):
            return False
        return int(settings["tile_height"]) == 1 or int(settings["tile_width"]) <= 16

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
        tiles_c = conv.out_channels / column["lanes"] / column["tile_out"]
        pieces = conv.batch * tiles_h * tiles_c * (tiles_w if conv.out_height == 1 else 1.0)
        rounds = np.ceil(pieces / device.threads)
        balance = pieces / (rounds * device.threads)
        covered = tiles_w * column["tile_width"] * tiles_h * column["tile_height"]
        waste = covered / (height * width)
        pixels = column["tile_width"] * column["tile_height"]
        vectors = np.ceil(column["lanes"] / device.lanes_f32)
        accumulators = pixels * column["tile_out"] * vectors
        fill = column["lanes"] / (vectors * device.lanes_f32)
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
        moved = workload.bytes + 0.1 * traffic
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

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        conv = convolution(workload)
        bi = input_block(conv, candidate.layouts, len(workload.arguments))
        bo = output_block(conv, candidate.layouts, dict(candidate.settings))
        return {conv.weight: (conv.out_channels // bo, conv.group_in // bi, *conv.kernel, bi, bo)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → [O/bo, I/bi, kh, kw, bi, bo]."""
        conv = convolution(workload)
        shape = self.packed_shapes(workload, candidate)[conv.weight]
        oc, ic, kh, kw, bi, bo = shape
        weights = constants[conv.weight].reshape(oc, bo, ic, bi, kh, kw)
        packed = np.ascontiguousarray(weights.transpose(0, 2, 4, 5, 3, 1))
        return {**constants, conv.weight: packed}


def _tile(settings: Settings) -> int:
    return int(settings["tile_width"]) * int(settings["tile_height"]) * int(settings["tile_out"])


SPEC = DirectConvolution()
