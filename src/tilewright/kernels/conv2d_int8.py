"""Convolution of 8-bit integers with sums of 32 bits, on channel-blocked tensors.

The loops are those of `conv2d_direct`. With dot-product instructions (see `codes`) weights lie as
[out/bo, slot, bo, 4]: a slot for every four input channels of every tap. Without such instructions
bytes are widened and weights lie as [out/bo, tap and channel, bo, 1]. Both are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand, Numbers
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.codes import (
    CODES,
    QUAD,
    WIDEN,
    code_error,
    offset,
    one_in_a_cycle,
    rate,
    takes_words,
    terms,
    usual_dot,
    with_offsets,
)
from tilewright.kernels.columns import Bools, Floats, chosen, column
from tilewright.kernels.conv2d_dots import DotConvolution
from tilewright.kernels.convolution import Convolution, convolution, plane_tiles
from tilewright.kernels.ports import usual_lanes
from tilewright.kernels.register_tile import RegisterTile

_BESIDE = 3
"""Pixels of 16 channels that are read beside a row of a window: the rest of its lines."""
_STREAMED = 0.3
"""Share of the time to read weights from the second cache that is not beside multiply-adds."""

_CUT_OFF = 1.25
"""How much longer tiles of pixels copied as words take where the last one is cut off."""

_RESULT, _CUT_RESULT = 0.12, 2.9
"""Where one dot product begins in a cycle: cycles of estimates that a vector of results takes for
each sum of its tile, and in a tile that is cut off."""
_ONCE = 1.35
"""What those of dot products are there: estimates begin two in a cycle, of a slower clock."""


class _Tile(RegisterTile):
    """Sums that one dot product in a cycle is added to."""

    @property
    def slowdown(self) -> Numbers:
        """One vector of weights or two broadcasts are loaded in a cycle, beside a dot product; a
        latency of four cycles wants a few sums more than that."""
        sums, loads = self.accumulators, 1.0 / self.rows + 0.5 / self.vectors
        latency = np.maximum(1.0, 6.0 / sums)
        return _ONCE * np.maximum(1.0, loads) * latency * (1.0 + 0.14 / sums + 0.08 * loads)


class Int8Convolution(DotConvolution):
    """Spec of the integer convolution; any stride, padding, dilation and groups."""

    name = "conv2d_int8"
    element_types = CODES

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
        quads = conv.groups == 1 or conv.group_in % QUAD == 0
        dot = usual_dot(target, lanes, workload.types[conv.data].dtype) if quads else WIDEN
        return (
            Knob(name="lanes", values=(lanes,)),
            Knob(name="dot", values=(dot,)),
            *self.tile_knobs(conv, conv.group_out // lanes),
        )

    def terms(self, settings: Settings) -> int:
        """Input channels that are multiplied together."""
        return terms(settings)

    def pixels_at_once(self, conv: Convolution, forms: tuple[Form, ...], settings: Settings) -> int:
        """Pixels whose codes, four at most, are copied as words, a vector of words at a time; 0
        where codes are copied one by one."""
        few = conv.in_channels <= QUAD and conv.groups == 1 and takes_words(settings)
        plain = conv.data < len(forms) - 1 and forms[conv.data] == PLAIN
        able = few and plain and self.copied(conv, forms, settings)
        return next((n for n in (16, 8, 4) if able and conv.in_width % n == 0), 0)

    def per_cycle(self, conv: Convolution, target: Target, settings: Sequence[Settings]) -> Floats:
        """By dot products, where there are any, and by widened products."""
        fast, slow = (rate(target, conv.computed_in, dots=dots) for dots in (True, False))
        return np.where(chosen(settings, "dot", WIDEN), slow, fast)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As any by dot products, and what is read more than once.

        Where a dot product begins in each cycle only, loads from the second cache are beside them,
        and so are the last results of a small tile: its next dot products begin before. Bytes that
        are widened before they are multiplied are estimated as elsewhere.
        """
        found = super().demand(workload, target, resources, forms, settings)
        again = _read_again(workload, target, resources, settings)
        conv = convolution(workload)
        by_pixels = np.array([self.pixels_at_once(conv, forms, s) > 0 for s in settings])
        cut = (conv.out_height % column(settings, "tile_height") > 0) | (
            conv.out_width % column(settings, "tile_width") > 0
        )
        if one_in_a_cycle(target):
            widened = chosen(settings, "dot", WIDEN)
            again = {**again, "L2": np.where(widened, again["L2"], 0.0)}
            beside = self._beside_products(found, conv, target, settings, cut)
            found = replace(
                found,
                per_cycle=np.where(widened, found.per_cycle, beside.per_cycle),
                cycles=np.where(widened, found.cycles, beside.cycles),
            )
        traffic = {level: found.traffic.get(level, 0.0) + moved for level, moved in again.items()}
        operations = found.operations * np.where(by_pixels & cut, _CUT_OFF, 1.0)
        return replace(found, operations=operations, traffic={**found.traffic, **traffic})

    def _beside_products(
        self,
        found: Demand,
        conv: Convolution,
        target: Target,
        settings: Sequence[Settings],
        cut: Bools,
    ) -> Demand:
        """A demand with what tiles lose beside slow dot products, and what their results take."""
        usual = self.tile(settings, target.lanes(conv.computed_in))
        tile = _Tile(usual.rows, usual.vectors)
        vectors = found.operations / (2 * conv.summed * column(settings, "lanes"))
        each = _RESULT * tile.accumulators + _CUT_RESULT * cut
        per_cycle = found.per_cycle * usual.slowdown / tile.slowdown
        return replace(found, per_cycle=per_cycle, cycles=vectors * each)

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact."""
        return code_error(workload)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        ((weight, (chunks, slots, *rest)),) = super().packed_shapes(workload, candidate).items()
        slots += bool(added(workload, dict(candidate.settings)))
        return {weight: (chunks, slots, *rest)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[O, I, kh, kw] → [O/bo, slots, bo, 4 or 1]; slots by input chunk, tap, lanes of it."""
        conv, weights = convolution(workload), constants[convolution(workload).weight]
        packed = self.in_slots(workload, candidate, weights, np.int8)
        if extra := added(workload, dict(candidate.settings)):
            packed = with_offsets(packed, weights.sum(axis=(1, 2, 3), dtype=np.int32), extra)
        return {**constants, conv.weight: np.ascontiguousarray(packed)}


def _read_again(
    workload: Workload, target: Target, resources: Resources, settings: Sequence[Settings]
) -> Mapping[str, Floats]:
    """Bytes that are read more than once, by the level that they come from.

    With rows outside each thread reads all weights, with channels outside all data, of which others
    wrote a part. Tiles read their windows of the data from the second cache; also weights, where
    these are many or, with channels outside, more than the first cache has for the tiles that use
    them one after the other.
    """
    conv = convolution(workload)
    data, weights = (workload.types[i].bytes for i in (conv.data, conv.weight))
    others, by_rows = resources.threads - 1.0, chosen(settings, "order", "rows")
    high, wide, lanes, out = (
        column(settings, name) for name in ("tile_height", "tile_width", "lanes", "tile_out")
    )
    down, across, _ = plane_tiles(conv, settings)
    (kh, kw), (sh, sw) = conv.kernel, conv.strides
    window = ((high - 1) * sh + kh) * ((wide - 1) * sw + kw + _BESIDE) * conv.group_in
    tiles = conv.batch * down * across
    panel = conv.summed * lanes * out
    far = np.where(by_rows, weights > target.cache_bytes(2) / 4, panel > target.cache_bytes(1))
    return {
        "memory": np.where(by_rows, 0.0, others * data),
        "L3": np.where(by_rows, others * weights, 0.0),
        "L2": window * tiles * conv.out_channels / lanes / out
        + np.where(far, _STREAMED * weights * tiles, 0.0),
    }


def added(workload: Workload, settings: Settings) -> int:
    """What is added to the data; where it is something, the weights carry what to add to the
    sums."""
    return offset(settings, workload.types[convolution(workload).data].dtype)


SPEC = Int8Convolution()
