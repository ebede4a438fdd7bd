"""Geometry of a convolution workload, shared by the specs and the lowerings of convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.core.errors import InternalError
from tilewright.graph.workload import Workload


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


@lru_cache(maxsize=1024)
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
