"""Geometry of a convolution workload, shared by the specs and the lowerings of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.graph.workload import Step, Workload
from tilewright.kernels.columns import Bools, Numbers

_REMEMBERED = 8192
"""Workloads whose geometry is not read again; a batch of predictions asks about thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Extents and attributes of the anchor. `data` and `weight` are value ids, `computed_in` is
    the element type that kernels compute in."""

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
    computed_in: str

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
    numbers = _geometry(workload)
    kh, kw, sh, sw, dh, dw, top, left, bottom, right = numbers[len(_ALONE) :]
    return Convolution(
        **dict(zip(_ALONE, numbers, strict=False)),
        weight=_anchor(workload)[0].inputs[1],
        kernel=(kh, kw),
        strides=(sh, sw),
        dilation=(dh, dw),
        padding=(top, left, bottom, right),
        computed_in=workload.computed_in,
    )


@dataclass(frozen=True, kw_only=True)
class Convolutions:
    """What `Convolution` tells of one, as columns of many: one array entry each. `kernel`,
    `strides` and `dilation` are down and across, `padding` is top, left, bottom, right;
    `moved_bytes` and `result_bytes` are the whole workload's; `computed_in` are element types."""

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
    computed_in: tuple[str, ...]

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
    kinds, numbers = zip(*[_of_one(workload) for workload in workloads], strict=True)
    table = np.array(numbers, dtype=np.int64).T
    rest = len(_ALONE)
    return Convolutions(
        **dict(zip(_ALONE, table, strict=False)),
        kernel=tuple(table[rest : rest + 2]),
        strides=tuple(table[rest + 2 : rest + 4]),
        dilation=tuple(table[rest + 4 : rest + 6]),
        padding=tuple(table[rest + 6 : rest + 10]),
        moved_bytes=table[rest + 10],
        result_bytes=table[rest + 11],
        computed_in=kinds,
    )


@lru_cache(maxsize=_REMEMBERED)
def _of_one(workload: Workload) -> tuple[str, tuple[int, ...]]:
    """Of one workload what `Convolutions` holds of many: the type, then all numbers."""
    numbers = (*_geometry(workload), workload.bytes, workload.result.bytes)
    return workload.computed_in, numbers


def _geometry(workload: Workload) -> tuple[int, ...]:
    """What `_ALONE` names, then kernel, strides, dilation and padding."""
    step, index = _anchor(workload)
    (x, w), y = workload.step_types(index)
    batch, in_channels, in_height, in_width = x.shape
    _, out_channels, out_height, out_width = y.shape
    return (
        step.inputs[0],
        batch,
        in_channels,
        in_height,
        in_width,
        out_channels,
        out_height,
        out_width,
        step.integer("groups"),
        *w.shape[2:],
        *step.integers("strides"),
        *step.integers("dilation"),
        *step.integers("padding"),
    )


def _anchor(workload: Workload) -> tuple[Step, int]:
    step, index = workload.anchor, workload.anchor_index
    if step is None or index is None or step.operator != "conv2d":
        raise InternalError(f"{workload.key} has no conv2d anchor")
    return step, index
