"""Convolution of 8-bit integers with sums of 32 bits, on channel-blocked tensors.

The loops are those of `conv2d_direct`. With dot-product instructions (`vpdpbusd`: four products of
an unsigned and a signed byte added to each 32-bit lane) weights lie as [out/bo, slot, bo, 4]: a
slot for every four input channels of every tap. Signed data is taken as x + 128, which is a flip of
one bit; -128 Σw of every output channel is added to the sums again and lies in one more slot behind
the others: the lowest bytes of all lanes, then the next ones. Without such instructions bytes are
widened and weights lie as [out/bo, tap and channel, bo, 1]. Both are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import ComputeUnit, Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob
from tilewright.kernels.columns import Bools, chosen, column
from tilewright.kernels.convolution import (
    Convolution,
    TiledConvolution,
    convolution,
    plane_tiles,
)
from tilewright.kernels.ports import arriving_block, output_block, tile_sizes, usual_lanes

QUAD = 4
"""Products that one dot-product instruction adds to a lane."""
OFFSET = 128
"""What is added to signed data to make it unsigned."""
_LARGEST_TILE = 32
_DOT_UNITS = frozenset({"avx512vnni", "avxvnni"})
"""Those with the instruction `vpdpbusd`."""
_ONE_QUANTUM = 1.01 / 127


def dot_lanes(target: Target) -> tuple[int, ...]:
    """Lanes of 32 bits for which the device has dot products of bytes."""
    widest = max((unit.granule[1] for unit in _dot_units(target)), default=0)
    return tuple(lanes for lanes in (16, 8, 4) if lanes <= widest)


def _dot_units(target: Target) -> tuple[ComputeUnit, ...]:
    return tuple(unit for unit in target.units if unit.name in _DOT_UNITS)


def quad(settings: Settings) -> int:
    """Input channels that are multiplied together."""
    return QUAD if settings["dot"] == "vnni" else 1


def input_block(conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
    """Channels of the input that lie together when the loops read it."""
    block = arriving_block(forms, conv.data)
    if block and conv.group_in % block == 0 and block % quad(settings) == 0:
        return block
    if quad(settings) == 1:
        return 1 if conv.group_in > QUAD else conv.group_in
    return 16 if conv.group_in % 16 == 0 else QUAD


def copied(conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> bool:
    """Whether the input is copied first: for its border, or into blocks that dot products read."""
    moved = arriving_block(forms, conv.data) != input_block(conv, forms, settings)
    return conv.padded or (quad(settings) > 1 and moved)


class Int8Convolution(TiledConvolution):
    """Spec of the integer convolution; any stride, padding, dilation and groups."""

    name = "conv2d_int8"
    element_types = frozenset({"int8", "uint8"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Bytes times constant signed bytes, and more than one channel per group."""
        conv = convolution(workload)
        signed = workload.types[conv.weight].dtype == "int8"
        return signed and conv.group_out > 1 and super().applies(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Register tile, loop order of the parallel axes, and how bytes are multiplied."""
        conv = convolution(workload)
        lanes = usual_lanes(conv.group_out, forms[-1], target.lanes(conv.computed_in))
        chunks = conv.group_out // lanes
        quads = conv.groups == 1 or conv.group_in % QUAD == 0
        dot = "vnni" if lanes in dot_lanes(target) and quads else "widen"
        return (
            Knob(name="lanes", values=(lanes,)),
            Knob(name="dot", values=(dot,)),
            Knob(
                name="tile_width",
                values=tile_sizes(conv.out_width, largest=_LARGEST_TILE),
                kind="split",
            ),
            Knob(name="tile_height", values=tile_sizes(conv.out_height, largest=8), kind="split"),
            Knob(
                name="tile_out",
                values=tuple(t for t in (1, 2, 3, 4) if chunks % t == 0),
                kind="split",
            ),
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
        """The tile, the weights and an input beside it fit the registers, and it is worth it."""
        tile = self.tile(settings, target.lanes(workload.computed_in))
        small = chosen(settings, "tile_height", 1) | (column(settings, "tile_width") <= 16)
        # one register more than in single precision: the broadcast input is never an operand
        fits = tile.fits(target.vector_registers - 1) & self.whole_blocks(workload, forms)
        return fits & small

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Wasted work, what the register tile loses against the peak, bytes of all operands and of
        a copied input."""
        conv = convolution(workload)
        lanes, out = column(settings, "lanes"), column(settings, "tile_out")
        moves = np.array([copied(conv, forms, s) for s in settings])
        tiles_h, tiles_w, waste = plane_tiles(conv, settings)
        pieces = conv.batch * tiles_h * conv.out_channels / lanes / out
        register = target.lanes(conv.computed_in)
        tile = self.tile(settings, register)
        fill = lanes / (np.ceil(lanes / register) * register)
        dots, widened = _operations_per_cycle(target, conv.computed_in)
        peak = np.where(chosen(settings, "dot", "vnni"), dots, widened)
        copy_bytes = np.where(moves, 2.0 * workload.types[conv.data].bytes, 0.0)
        return Demand(
            pieces=pieces * (tiles_w if conv.out_height == 1 else 1.0),
            operations=conv.flop * waste,
            per_cycle=peak * fill / tile.slowdown,
            traffic={"L3": workload.bytes + copy_bytes},
            launches=1.0 + moves,
            details=tile.details(waste, weight_tile_bytes=conv.summed * out * lanes),
        )

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact: nothing may differ. A sum behind a product in single precision may be
        contracted with it, so that a result rounds to its neighbour."""
        if workload.result.dtype in SINGLE:
            return 2e-6
        contracted = any(
            step.operator in ("add", "subtract")
            and any(self._is_product(workload, value) for value in step.inputs)
            for step in workload.steps
        )
        return _ONE_QUANTUM if contracted else 1e-10

    @staticmethod
    def _is_product(workload: Workload, value: int) -> bool:
        step = value - len(workload.arguments)
        floats = workload.types[value].dtype in SINGLE
        return step >= 0 and floats and workload.steps[step].operator == "multiply"

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        conv, settings = convolution(workload), dict(candidate.settings)
        block = input_block(conv, candidate.forms, settings)
        lanes = output_block(candidate.forms, settings)
        slots = conv.taps * -(-conv.group_in // block) * (block // quad(settings))
        slots += compensated(workload, settings)
        return {conv.weight: (conv.out_channels // lanes, slots, lanes, quad(settings))}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → [O/bo, slots, bo, 4 or 1]; slots by input chunk, tap, lanes of it."""
        conv, settings = convolution(workload), dict(candidate.settings)
        block = input_block(conv, candidate.forms, settings)
        chunks, _, lanes, width = self.packed_shapes(workload, candidate)[conv.weight]
        inside = -(-conv.group_in // block)
        weights = np.zeros((conv.out_channels, inside * block, *conv.kernel), np.int8)
        weights[:, : conv.group_in] = constants[conv.weight]
        split = weights.reshape(chunks, lanes, inside, block // width, width, *conv.kernel)
        packed = split.transpose(0, 2, 5, 6, 3, 1, 4).reshape(chunks, -1, lanes, width)
        if compensated(workload, settings):
            sums = -OFFSET * weights.astype(np.int32).sum(axis=(1, 2, 3), dtype=np.int32)
            planes = sums.astype("<i4").view(np.int8).reshape(chunks, lanes, QUAD).swapaxes(1, 2)
            packed = np.concatenate([packed, planes.reshape(chunks, 1, lanes, width)], axis=1)
        return {**constants, conv.weight: np.ascontiguousarray(packed)}


def compensated(workload: Workload, settings: Settings) -> bool:
    """Whether sums are of offset data, and the weights carry what to add."""
    return quad(settings) > 1 and workload.types[convolution(workload).data].dtype == "int8"


def _operations_per_cycle(target: Target, computed_in: str) -> tuple[float, float]:
    """Of full registers: by dot products, where there are any, and by widened products. Those take
    three instructions where a dot product takes one."""
    lanes, plain = target.lanes(computed_in), target.operations_per_cycle(computed_in)
    dots = [unit.operations_per_cycle // unit.granule[1] * lanes for unit in _dot_units(target)]
    return max(dots, default=plain), plain / 3


SPEC = Int8Convolution()
