"""Geometry of convolution workloads, shared by the specs and the lowerings of convolutions.

The same fields hold the numbers of one convolution (`Convolution`) or columns of many
(`Convolutions`), so that a formula over them serves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import Numbers
from tilewright.kernels.register_tile import TiledProduct

_REMEMBERED = 8192
"""Workloads whose geometry is not read again; a batch of predictions asks about thousands."""

N = TypeVar("N", int, Numbers)


@dataclass(frozen=True, kw_only=True)
class Geometry(Generic[N]):
    """Extents and attributes of the anchor. `data` and `weight` are value ids; `kernel`, `strides`
    and `dilation` are down and across, `padding` is top, left, bottom, right; `moved_bytes` and
    `result_bytes` are the whole workload's."""

    data: N
    weight: N
    batch: N
    in_channels: N
    in_height: N
    in_width: N
    out_channels: N
    out_height: N
    out_width: N
    groups: N
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
    def group_in(self) -> N:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> N:
        """Output channels of one group."""
        return self.out_channels // self.groups

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


_ALONE = (
    "data", "weight", "batch", "in_channels", "in_height", "in_width", "out_channels", "out_height",
    "out_width", "groups", "moved_bytes", "result_bytes",
)  # fmt: skip
_TOGETHER = {"kernel": 2, "strides": 2, "dilation": 2, "padding": 4}


@lru_cache(maxsize=_REMEMBERED)
def convolution(workload: Workload) -> Convolution:
    """Read the geometry of a workload anchored on `conv2d`."""
    computed_in, numbers = _of_one(workload)
    return Convolution(**_fields(numbers), computed_in=computed_in)


def convolutions(workloads: Sequence[Workload]) -> Convolutions:
    """Read the geometry of workloads anchored on `conv2d`, at least one."""
    kinds, numbers = zip(*[_of_one(workload) for workload in workloads], strict=True)
    return Convolutions(**_fields(np.array(numbers, dtype=np.int64).T), computed_in=kinds)


def _fields(numbers: Any) -> dict[str, Any]:
    """The numbers, or rows of them, by the names of fields."""
    fields: dict[str, Any] = dict(zip(_ALONE, numbers, strict=False))
    place = len(_ALONE)
    for name, count in _TOGETHER.items():
        fields[name] = tuple(numbers[place : place + count])
        place += count
    return fields


@lru_cache(maxsize=_REMEMBERED)
def _of_one(workload: Workload) -> tuple[str, tuple[int, ...]]:
    """The type that a workload is computed in, then what `_ALONE` and `_TOGETHER` name."""
    step, index = workload.anchor, workload.anchor_index
    if step is None or index is None or step.operator != "conv2d":
        raise InternalError(f"{workload.key} has no conv2d anchor")
    (x, w), y = workload.step_types(index)
    numbers = (
        *step.inputs[:2],
        *x.shape,
        *y.shape[1:],
        step.integer("groups"),
        workload.bytes,
        workload.result.bytes,
        *w.shape[2:],
        *step.integers("strides"),
        *step.integers("dilation"),
        *step.integers("padding"),
    )
    return workload.computed_in, numbers


class TiledConvolution(TiledProduct):
    """What the specs of convolutions have in common."""

    anchors = frozenset({"conv2d"})

    def operands(self, workload: Workload) -> Convolution:
        """The geometry of the convolution."""
        return convolution(workload)
