"""What the Winograd convolutions have in common; each is one size of tile.

Lavin and Gray 2016 (Fast Algorithms for Convolutional Neural Networks). Tiles of the input are
transformed, multiplied with transformed weights as one matrix product over the channels per
position of the tile, and transformed back to tiles of the output. The weights are transformed
ahead, in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.records import Candidate, Device, Settings
from tilewright.graph.layout import channel_block
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FactColumn, Knob
from tilewright.kernels.blocks import chunk_count, lane_counts, out_tiles, tile_sizes, whole_chunks
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.ports import Ports, anchored_ports
from tilewright.kernels.register_tile import fits_registers, issue_slowdown
from tilewright.kernels.winograd_transforms import Transform, double, transform

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The transforms down the columns and along the rows."""

    vertical: Transform
    horizontal: Transform

    @property
    def positions(self) -> int:
        """Multiplications of a tile, per pair of channels."""
        return self.vertical.positions * self.horizontal.positions

    def tiles(self, conv: Convolution) -> Pair:
        """Output tiles down and across."""
        down, across = self.vertical.outputs, self.horizontal.outputs
        return -(-conv.out_height // down), -(-conv.out_width // across)


def input_lanes(conv: Convolution, layouts: tuple[str, ...], device_lanes: int) -> int:
    """Channel block of the transformed input: the block the data comes in, where it divides."""
    block = channel_block(layouts[conv.data]) if conv.data < len(layouts) - 1 else 0
    if block and conv.in_channels % block == 0:
        return block
    lanes = device_lanes
    while conv.in_channels % lanes:
        lanes //= 2
    return lanes


def _sees_data(conv: Convolution) -> bool:
    """Whether no window lies in the padding alone beside one that does not.

    The former's result is zero, but it would get rounding errors of the latter's tile.
    """
    top, left, bottom, right = conv.padding
    rows, columns = conv.kernel
    return (rows == 1 or max(top, bottom) < rows) and (columns == 1 or max(left, right) < columns)


class WinogradConvolution:
    """Spec of a Winograd convolution: unit stride and dilation, one group, any padding.

    `outputs` are the rows and columns of an output tile by kernel; others than its kernels are
    left to other implementations. `bound` is the error bound by kernel.
    """

    anchors = frozenset({"conv2d"})

    def __init__(self, name: str, *, outputs: Mapping[Pair, Pair], bound: Mapping[Pair, float]):
        self.name = name
        self.outputs = dict(outputs)
        self.bound = dict(bound)

    def form(self, conv: Convolution) -> Form:
        """The transforms for a convolution. Raises InternalError for a kernel it has none for."""
        if conv.kernel not in self.outputs:
            raise InternalError(f"{self.name} has no transforms for kernels of {conv.kernel}")
        down, across = self.outputs[conv.kernel]
        return Form(
            vertical=transform(down, conv.kernel[0]), horizontal=transform(across, conv.kernel[1])
        )

    def applies(self, workload: Workload, device: Device) -> bool:
        """Enough channels that the products outweigh the transforms."""
        conv = convolution(workload)
        if conv.kernel not in self.outputs:
            return False
        down, across = self.outputs[conv.kernel]
        return (
            workload.types[conv.data].dtype == "float32"
            and workload.is_constant(conv.weight)
            and conv.strides == (1, 1)
            and conv.dilation == (1, 1)
            and conv.groups == 1
            and conv.in_channels >= 2 * device.lanes_f32
            and conv.out_channels >= device.lanes_f32
            and conv.out_height >= down
            and conv.out_width >= across
            and _sees_data(conv)
        )

    def port_layouts(self, workload: Workload, device: Device) -> tuple[Ports, ...]:
        """Data and result in blocks or plain."""
        return anchored_ports(workload, device, convolution(workload).data)

    def knobs(
        self, workload: Workload, device: Device, layouts: tuple[str, ...]
    ) -> tuple[Knob, ...]:
        """The register tile of the products: input tiles × output channel chunks."""
        conv = convolution(workload)
        down, across = self.form(conv).tiles(conv)
        lanes = lane_counts(conv.out_channels, layouts[-1], device)
        chunks = [chunk_count(conv.out_channels, count) for count in lanes]
        return (
            Knob(name="lanes", values=lanes),
            Knob(name="tile_rows", values=tile_sizes(conv.batch * down * across, largest=28)),
            Knob(name="tile_out", values=out_tiles(chunks)),
            Knob(name="order", values=("channels", "tiles")),
        )

    def valid(
        self, workload: Workload, device: Device, layouts: tuple[str, ...], settings: Settings
    ) -> bool:
        """The tile fits the registers and divides the chunks."""
        chunks = chunk_count(convolution(workload).out_channels, int(settings["lanes"]))
        if chunks % int(settings["tile_out"]):
            return False
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
        form = self.form(conv)
        down, across = form.tiles(conv)
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
        chunks = np.ceil(conv.out_channels / lanes)
        fill = conv.out_channels / (chunks * vectors * device.lanes_f32)
        flop = 2.0 * form.positions * count * conv.in_channels * conv.out_channels
        peak = device.threads * 4 * device.lanes_f32 * 2.7e9
        products_s = flop / peak * slow * waste / fill
        weight_bytes = 4.0 * form.positions * conv.in_channels * conv.out_channels
        between = 4.0 * form.positions * count * (conv.in_channels + conv.out_channels)
        again = np.where(by_tiles, 0.3 * weight_bytes * np.ceil(count / rows) / 8, 0.0)
        moved = weight_bytes + 3.0 * between + again + workload.bytes
        return {
            "estimate_s": products_s + moved / (device.threads * 2.5e10) + 8e-6,
            "parallel_extent": form.positions * chunks / out,
            "accumulators": accumulators,
            "loads_per_multiply_add": loads,
            "waste": waste,
            "workspace_bytes": np.full(len(rows), between),
        }

    def error_bound(self, workload: Workload) -> float:
        """The transforms enlarge and cancel values.

        It holds for inputs of like magnitude within a tile; channels may differ. A single huge
        value spoils all outputs of its tiles: for them the bound is relative to the sum over
        channels of (sum |w| of the channel) times (largest |x| of the channel in the tile).
        """
        return self.bound[convolution(workload).kernel]

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """[positions, ⌈O/bo⌉, I, bo]."""
        conv = convolution(workload)
        bo = int(candidate.setting("lanes"))
        chunks = chunk_count(conv.out_channels, bo)
        return {conv.weight: (self.form(conv).positions, chunks, conv.in_channels, bo)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → G w Gᵀ, as [positions, ⌈O/bo⌉, I, bo], zeros beyond the last channel."""
        conv = convolution(workload)
        form = self.form(conv)
        shape = self.packed_shapes(workload, candidate)[conv.weight]
        weights = whole_chunks(constants[conv.weight], shape[3]).astype(np.float64)
        transformed = double(form.vertical.weight) @ weights @ double(form.horizontal.weight).T
        blocks = transformed.reshape(shape[1], shape[3], conv.in_channels, form.positions)
        packed = np.ascontiguousarray(blocks.transpose(3, 0, 2, 1), dtype=np.float32)
        return {**constants, conv.weight: packed}
