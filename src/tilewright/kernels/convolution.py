"""Geometry of convolution workloads, shared by the specs and the lowerings of convolutions.

The same fields hold the numbers of one convolution (`Convolution`) or columns of many
(`Convolutions`), so that a formula over them serves both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np

from tilewright.core.records import Settings
from tilewright.graph.workload import Workload
from tilewright.kernels.base import anchored
from tilewright.kernels.columns import Floats, Numbers, column
from tilewright.kernels.register_tile import TiledProduct

_REMEMBERED = 8192
"""Workloads whose geometry is not read again; a batch of predictions asks about thousands."""

N = TypeVar("N", int, Numbers)


@dataclass(frozen=True, kw_only=True)
class Channels(Generic[N]):
    """What convolutions of every kind have: the value ids of `data` and `weight`, images, and
    channels in groups."""

    data: N
    weight: N
    batch: N
    in_channels: N
    out_channels: N
    groups: N

    @property
    def group_in(self) -> N:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> N:
        """Output channels of one group."""
        return self.out_channels // self.groups


@dataclass(frozen=True, kw_only=True)
class Geometry(Channels[N]):
    """Extents and attributes of the anchor. `kernel`, `strides` and `dilation` are down and across,
    `padding` is top, left, bottom, right; `moved_bytes` and `result_bytes` are the whole
    workload's."""

    in_height: N
    in_width: N
    out_height: N
    out_width: N
    moved_bytes: N
    result_bytes: N
    kernel: tuple[N, N]
    strides: tuple[N, N]
    dilation: tuple[N, N]
    padding: tuple[N, N, N, N]

    @property
    def padded(self) -> Any:
        """Whether any side is padded: a truth value, or a column of them."""
        top, left, bottom, right = self.padding
        return top + left + bottom + right > 0

    @property
    def taps(self) -> N:
        """Weights of a channel: the kernel's height times its width."""
        return self.kernel[0] * self.kernel[1]

    @property
    def pixels(self) -> N:
        """Places of a channel of the result."""
        return self.out_height * self.out_width

    @property
    def summed(self) -> N:
        """Products that a result is the sum of."""
        return self.taps * self.group_in

    @property
    def flop(self) -> N:
        """Two per multiply-add."""
        return 2 * self.batch * self.out_channels * self.pixels * self.summed


@dataclass(frozen=True, kw_only=True)
class Convolution(Geometry[int]):
    """Of one; `computed_in` is the element type that kernels compute in."""

    computed_in: str


@dataclass(frozen=True, kw_only=True)
class Convolutions(Geometry[Numbers]):
    """Of many, one array entry each; `computed_in` are their element types."""

    computed_in: tuple[str, ...]


@lru_cache(maxsize=_REMEMBERED)
def convolution(workload: Workload) -> Convolution:
    """Read the geometry of a workload anchored on `conv2d`."""
    return Convolution(**_read(workload))


def convolutions(workloads: Sequence[Workload]) -> Convolutions:
    """Read the geometry of workloads anchored on `conv2d`, at least one."""
    every = [_read(workload) for workload in workloads]
    columns = {name: [one[name] for one in every] for name in every[0]}
    computed_in = tuple(columns.pop("computed_in"))
    arrays: dict[str, Any] = {n: np.array(c, dtype=np.int64).T for n, c in columns.items()}
    return Convolutions(**arrays, computed_in=computed_in)


@lru_cache(maxsize=_REMEMBERED)
def _read(workload: Workload) -> Mapping[str, Any]:
    """The fields of `Convolution`."""
    step, (x, w), y = anchored(workload, "conv2d")
    batch, in_channels, in_height, in_width = x.shape
    _, out_channels, out_height, out_width = y.shape
    return {
        "data": step.inputs[0],
        "weight": step.inputs[1],
        "batch": batch,
        "in_channels": in_channels,
        "in_height": in_height,
        "in_width": in_width,
        "out_channels": out_channels,
        "out_height": out_height,
        "out_width": out_width,
        "groups": step.integer("groups"),
        "moved_bytes": workload.bytes,
        "result_bytes": workload.result.bytes,
        "kernel": w.shape[2:],
        **{name: step.integers(name) for name in ("strides", "dilation", "padding")},
        "computed_in": workload.computed_in,
    }


def plane_tiles(
    conv: Convolution | Convolutions, settings: Sequence[Settings]
) -> tuple[Floats, Floats, Floats]:
    """Tiles of the result's plane down and across, and what they cover over what there is."""
    height, width = column(settings, "tile_height"), column(settings, "tile_width")
    down, across = np.ceil(conv.out_height / height), np.ceil(conv.out_width / width)
    return down, across, across * width * down * height / conv.pixels


Plane = tuple[int, int]
"""Rows and columns."""


def whole_tiles(conv: Convolution, settings: Settings) -> Plane:
    """What whole tiles cover of the result; the surplus is computed and dropped."""
    high, wide = int(settings["tile_height"]), int(settings["tile_width"])
    return -(-conv.out_height // high) * high, -(-conv.out_width // wide) * wide


def reach(conv: Convolution, plane: Plane) -> Plane:
    """What so much of a result reads of the input, its border included."""
    rows, columns = (
        (extent - 1) * stride + (kernel - 1) * dilation + 1
        for extent, stride, kernel, dilation in zip(
            plane, conv.strides, conv.kernel, conv.dilation, strict=True
        )
    )
    return rows, columns


class TiledConvolution(TiledProduct):
    """What the specs of convolutions have in common."""

    anchors = frozenset({"conv2d"})
    reads_before_writing = True

    def operands(self, workload: Workload) -> Convolution:
        """The geometry of the convolution."""
        return convolution(workload)
