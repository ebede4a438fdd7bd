"""Winograd convolution F(4×4, 3×3): 36 multiplications where the direct form takes 144.

Lavin and Gray 2016 (Fast Algorithms for Convolutional Neural Networks), with the interpolation
points 0, ±1, ±2, ∞. Input tiles of 6×6 are transformed, multiplied with transformed weights as 36
matrix products over the channels, and transformed back to tiles of 4×4. The weights are transformed
ahead, in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.records import Candidate, Device, Settings
from tilewright.graph.layout import channel_block
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FactColumn, Knob
from tilewright.kernels.blocks import channel_blocks, tile_sizes
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.register_tile import fits_registers, issue_slowdown

NAME = "conv2d_winograd"
OUTPUT_TILE = 4
INPUT_TILE = 6

# rows: input position, columns: transformed position
INPUT_TRANSFORM = (
    (4, 0, 0, 0, 0, 0),
    (0, -4, 4, -2, 2, 4),
    (-5, -4, -4, -1, -1, 0),
    (0, 1, -1, 2, -2, -5),
    (1, 1, 1, 1, 1, 0),
    (0, 0, 0, 0, 0, 1),
)
# rows: transformed position, columns: output position
OUTPUT_TRANSFORM = (
    (1, 0, 0, 0),
    (1, 1, 1, 1),
    (1, -1, 1, -1),
    (1, 2, 4, 8),
    (1, -2, 4, -8),
    (0, 0, 0, 1),
)
# rows: transformed position, columns: weight position
WEIGHT_TRANSFORM = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
    dtype=np.float64,
)


def tiles(conv: Convolution) -> tuple[int, int]:
    """Output tiles down and across."""
    return -(-conv.out_height // OUTPUT_TILE), -(-conv.out_width // OUTPUT_TILE)


def input_lanes(conv: Convolution, layouts: tuple[str, ...], device_lanes: int) -> int:
    """Channel block of the transformed input: the block the data comes in, where it divides."""
    block = channel_block(layouts[conv.data]) if conv.data < len(layouts) - 1 else 0
    if block and conv.in_channels % block == 0:
        return block
    lanes = device_lanes
    while conv.in_channels % lanes:
        lanes //= 2
    return lanes


class WinogradConvolution:
    """Spec of F(4×4, 3×3): 3×3, unit stride and dilation, one group, any padding."""

    name = NAME
    anchors = frozenset({"conv2d"})

    def applies(self, workload: Workload, device: Device) -> bool:
        """Enough channels that the products outweigh the transforms."""
        conv = convolution(workload)
        return (
            workload.types[conv.data].dtype == "float32"
            and conv.weight < len(workload.arguments)
            and workload.arguments[conv.weight].role == "constant"
            and conv.kernel == (3, 3)
            and conv.strides == (1, 1)
            and conv.dilation == (1, 1)
            and conv.groups == 1
            and conv.in_channels >= 2 * device.lanes_f32
            and conv.out_channels >= device.lanes_f32
            and min(conv.out_height, conv.out_width) >= OUTPUT_TILE
        )

    def result_blocks(self, workload: Workload, device: Device) -> tuple[int, ...]:
        """Blocks that divide the output channels."""
        return channel_blocks(convolution(workload).out_channels, device)[:1]

    def knobs(
        self, workload: Workload, device: Device, layouts: tuple[str, ...]
    ) -> tuple[Knob, ...]:
        """The register tile of the products: input tiles × output channel chunks."""
        conv = convolution(workload)
        down, across = tiles(conv)
        block = channel_block(layouts[-1])
        lanes = (block,) if block else channel_blocks(conv.out_channels, device)[:1]
        chunks = conv.out_channels // lanes[0]
        return (
            Knob(name="lanes", values=lanes),
            Knob(name="tile_rows", values=tile_sizes(conv.batch * down * across, largest=28)),
            Knob(name="tile_out", values=tuple(t for t in (1, 2, 3, 4) if chunks % t == 0)),
            Knob(name="order", values=("channels", "tiles")),
        )

    def valid(
        self, workload: Workload, device: Device, layouts: tuple[str, ...], settings: Settings
    ) -> bool:
        """The tile fits the registers."""
        vectors = -(-int(settings["lanes"]) // device.lanes_f32)
        rows, out = int(settings["tile_rows"]), int(settings["tile_out"]) * vectors
        return fits_registers(rows * out, out, device.cpu.vector_registers)

    def facts(
        self,
        workload: Workload,
        device: Device,
        layouts: tuple[str, ...],
        settings: Sequence[Settings],
    ) -> Mapping[str, FactColumn]:
        """Products as in the direct form, transforms by the bytes they move."""
        conv = convolution(workload)
        down, across = tiles(conv)
        count = conv.batch * down * across
        rows = np.array([float(s["tile_rows"]) for s in settings])
        out = np.array([float(s["tile_out"]) for s in settings])
        lanes = np.array([float(s["lanes"]) for s in settings])
        by_tiles = np.array([s["order"] == "tiles" for s in settings])
        vectors = np.ceil(lanes / device.lanes_f32)
        accumulators = rows * out * vectors
        waste = np.ceil(count / rows) * rows / count
        loads = 1.0 / rows + 1.0 / (out * vectors)
        slow = issue_slowdown(accumulators, loads)
        fill = lanes / (vectors * device.lanes_f32)
        flop = 2.0 * 36 * count * conv.in_channels * conv.out_channels
        peak = device.threads * 4 * device.lanes_f32 * 2.7e9
        products_s = flop / peak * slow * waste / fill
        weight_bytes = 4.0 * 36 * conv.in_channels * conv.out_channels
        between = 4.0 * 36 * count * (conv.in_channels + conv.out_channels)
        again = np.where(by_tiles, 0.3 * weight_bytes * np.ceil(count / rows) / 8, 0.0)
        moved = weight_bytes + 3.0 * between + again + workload.bytes
        return {
            "estimate_s": products_s + moved / (device.threads * 2.5e10) + 8e-6,
            "parallel_extent": 36.0 * conv.out_channels / lanes / out,
            "accumulators": accumulators,
            "loads_per_multiply_add": loads,
            "waste": waste,
            "workspace_bytes": np.full(len(rows), between),
        }

    def error_bound(self, workload: Workload) -> float:
        """The transforms enlarge and cancel values.

        It holds for inputs of like magnitude. A single huge value spoils its neighbours in the same
        tile: the bound is then relative to the largest sum |w||x| among the outputs of the tile.
        """
        return 2e-5

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """[36, O/bo, I, bo]."""
        conv = convolution(workload)
        bo = int(candidate.setting("lanes"))
        shape = (INPUT_TILE**2, conv.out_channels // bo, conv.in_channels, bo)
        return {conv.weight: shape}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, 3, 3] → G w Gᵀ, as [36, O/bo, I, bo]."""
        conv = convolution(workload)
        shape = self.packed_shapes(workload, candidate)[conv.weight]
        weights = constants[conv.weight].astype(np.float64)
        transformed = WEIGHT_TRANSFORM @ weights @ WEIGHT_TRANSFORM.T
        flat = transformed.reshape(conv.out_channels, conv.in_channels, INPUT_TILE**2)
        blocks = flat.reshape(shape[1], shape[3], conv.in_channels, INPUT_TILE**2)
        packed = np.ascontiguousarray(blocks.transpose(3, 0, 2, 1), dtype=np.float32)
        return {**constants, conv.weight: packed}


SPEC = WinogradConvolution()
