"""Geometry of a convolution workload, shared by the specs and the lowerings of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import Bools, Numbers

_REMEMBERED = 8192
"""Workloads whose geometry is not read again; a batch of predictions asks about thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Extents and attributes of the anchor. `data` and `weight` are value ids."""

    data: int
    weight: int
    batch: int
    in_channels: int
    in_height: int
    in_width: int
    out_channels: int
    out_height: int
    out_width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int

    @property
    def padded(self) -> bool:
        """Whether any side is padded."""
        return any(self.padding)

    @property
    def group_in(self) -> int:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def flop(self) -> int:
        """Two per multiply-add."""
        taps = self.kernel[0] * self.kernel[1] * self.group_in
        return 2 * self.batch * self.out_channels * self.out_height * self.out_width * taps


@lru_cache(maxsize=_REMEMBERED)
def convolution(workload: Workload) -> Convolution:
    """Read the geometry of a workload anchored on `conv2d`."""
    step, index = workload.anchor, workload.anchor_index
    if step is None or index is None or step.operator != "conv2d":
        raise InternalError(f"{workload.key} has no conv2d anchor")
    (x, w), y = workload.step_types(index)
    top, left, bottom, right = step.integers("padding")
    sh, sw = step.integers("strides")
    dh, dw = step.integers("dilation")
    return Convolution(
        data=step.inputs[0],
        weight=step.inputs[1],
        batch=x.shape[0],
        in_channels=x.shape[1],
        in_height=x.shape[2],
        in_width=x.shape[3],
        out_channels=y.shape[1],
        out_height=y.shape[2],
        out_width=y.shape[3],
        kernel=(w.shape[2], w.shape[3]),
        strides=(sh, sw),
        padding=(top, left, bottom, right),
        dilation=(dh, dw),
        groups=step.integer("groups"),
    )


@dataclass(frozen=True, kw_only=True)
class Convolutions:
    """What `Convolution` tells of one, as columns of many: one array entry each. `kernel`,
    `strides` and `dilation` are down and across, `padding` is top, left, bottom, right;
    `moved_bytes` and `result_bytes` are the whole workload's."""

    data: Numbers
    batch: Numbers
    in_channels: Numbers
    in_height: Numbers
    in_width: Numbers
    out_channels: Numbers
    out_height: Numbers
    out_width: Numbers
    groups: Numbers
    kernel: tuple[Numbers, ...]
    strides: tuple[Numbers, ...]
    dilation: tuple[Numbers, ...]
    padding: tuple[Numbers, ...]
    moved_bytes: Numbers
    result_bytes: Numbers

    @property
    def group_in(self) -> Numbers:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> Numbers:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def padded(self) -> Bools:
        """Whether any side is padded."""
        top, left, bottom, right = self.padding
        return top + left + bottom + right > 0

    @property
    def taps(self) -> Numbers:
        """Weights of a channel: the kernel's height times its width."""
        return self.kernel[0] * self.kernel[1]

    @property
    def pixels(self) -> Numbers:
        """Places of a channel of the result."""
        return self.out_height * self.out_width

    @property
    def flop(self) -> Numbers:
        """Two per multiply-add."""
        return 2 * self.batch * self.out_channels * self.pixels * self.taps * self.group_in


_ALONE = (
    "data", "batch", "in_channels", "in_height", "in_width",
    "out_channels", "out_height", "out_width", "groups",
)  # fmt: skip


def convolutions(workloads: Sequence[Workload]) -> Convolutions:
    """Read the geometry of workloads anchored on `conv2d`, at least one."""
    table = np.array([_numbers(workload) for workload in workloads], dtype=np.int64).T
    rest = len(_ALONE)
    return Convolutions(
        **dict(zip(_ALONE, table, strict=False)),
        kernel=tuple(table[rest : rest + 2]),
        strides=tuple(table[rest + 2 : rest + 4]),
        dilation=tuple(table[rest + 4 : rest + 6]),
        padding=tuple(table[rest + 6 : rest + 10]),
        moved_bytes=table[rest + 10],
        result_bytes=table[rest + 11],
    )


@lru_cache(maxsize=_REMEMBERED)
def _numbers(workload: Workload) -> tuple[int, ...]:
    conv = convolution(workload)
    return (
        conv.data,
        conv.batch,
        conv.in_channels,
        conv.in_height,
        conv.in_width,
        conv.out_channels,
        conv.out_height,
        conv.out_width,
        conv.groups,
        *conv.kernel,
        *conv.strides,
        *conv.dilation,
        *conv.padding,
        workload.bytes,
        workload.result.bytes,
    )
