"""Reductions, softmax and normalisations, one row after the other while it is in the cache.

A *row* is what is reduced together. Where the innermost axis in memory is reduced, a row is read
in vectors into several partial results that are folded at the end; where it is kept, the lanes of
a vector are rows of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, Form, channel_block
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.columns import column
from tilewright.kernels.streaming import Streaming

_CYCLES_OF_AN_ADDITION, _CYCLES_OF_AN_OPERATION = 1.08, 0.3375
"""Of a vector: one that waits for the one before, divided by four, and any other."""
_CYCLES_OF_A_FOLD = 5.4
"""Adding one half of a row's partial results to the other."""
_REDUCTIONS = frozenset({"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"})
_NORMALISING = frozenset({"softmax", "log_softmax", "layer_norm", "instance_norm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The axes of a tensor in memory: (logical axis, extent) each, outermost first.

    In a blocked layout axis 1 appears twice, as chunks and as the `block` lanes at the end.
    `reduced` are logical axes.
    """

    axes: tuple[tuple[int, int], ...]
    block: int
    reduced: frozenset[int]

    @property
    def kept(self) -> tuple[int, ...]:
        """Places of the kept axes."""
        return tuple(i for i, (axis, _) in enumerate(self.axes) if axis not in self.reduced)

    @property
    def gone(self) -> tuple[int, ...]:
        """Places of the reduced axes."""
        return tuple(i for i, (axis, _) in enumerate(self.axes) if axis in self.reduced)

    @property
    def fast(self) -> int:
        """Place of the innermost axis that is longer than one."""
        long = [i for i, (_, extent) in enumerate(self.axes) if extent > 1]
        return long[-1] if long else len(self.axes) - 1

    @property
    def across(self) -> bool:
        """Whether the innermost axis is reduced."""
        return self.axes[self.fast][0] in self.reduced

    def extents(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """Extents of the axes at these places."""
        return tuple(self.axes[i][1] for i in places)


def frame(shape: tuple[int, ...], form: Form, reduced: frozenset[int]) -> Frame:
    """The axes of a tensor of logical `shape` stored in `form`."""
    block = channel_block(form)
    extents = list(enumerate(shape))
    if block:
        extents[1] = (1, shape[1] // block)
        extents.append((1, block))
    return Frame(axes=tuple(extents), block=block, reduced=reduced)


def reduced_axes(workload: Workload) -> frozenset[int]:
    """The logical axes of the anchor's operand that are reduced together."""
    anchor, index = workload.anchor, workload.anchor_index
    if anchor is None or index is None:
        raise InternalError(f"{workload.key} has no anchor")
    rank = len(workload.step_types(index)[0][0].shape)
    if anchor.operator in _REDUCTIONS:
        return frozenset(anchor.integers("axes"))
    if anchor.operator in ("softmax", "log_softmax"):
        return frozenset({anchor.integer("axis")})
    if anchor.operator == "layer_norm":
        return frozenset(range(anchor.integer("axis"), rank))
    return frozenset(range(2, rank)) if anchor.operator == "instance_norm" else frozenset({1})


def operand_frame(workload: Workload, forms: tuple[Form, ...]) -> Frame:
    """The axes that the schedule follows: the operand's, or the result's of the same shape."""
    anchor, index = workload.anchor, workload.anchor_index
    if anchor is None or index is None:
        raise InternalError(f"{workload.key} has no anchor")
    shape = workload.step_types(index)[0][0].shape
    keeps = anchor.operator not in _REDUCTIONS
    source = anchor.inputs[0]
    form = forms[-1] if keeps or source >= len(workload.arguments) else forms[source]
    if source >= len(workload.arguments) and not keeps:
        form = PLAIN
    return frame(shape, form, reduced_axes(workload))


class Rows(Streaming):
    """Spec of row kernels."""

    name = "rows"
    anchors = _REDUCTIONS | _NORMALISING | {"lrn"}
    element_types = frozenset({"float32", "float64", "int32", "int64"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Something to reduce, in a type that is its own accumulator; `lrn` on planes."""
        index = workload.anchor_index
        if index is None or not reduced_axes(workload):
            return False
        (data, *_), result = workload.step_types(index)
        if workload.steps[index].operator == "lrn" and len(data.shape) != 4:
            return False
        taken = data.dtype in self.element_types and data.elements > 0
        return taken and result.shape == workload.result.shape

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """`streams`: vectors in flight, as partial results or as rows side by side."""
        return (Knob(name="streams", values=(1, 2, 4, 8)),)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Bytes of all operands, the latency of dependent additions, the cost of folding."""
        axes = operand_frame(workload, forms)
        streams = column(settings, "streams")
        rows = prod(axes.extents(axes.kept))
        length = prod(axes.extents(axes.gone))
        elements = rows * length
        lanes = float(target.lanes(workload.computed_in))
        if axes.across:
            pieces = np.full(len(settings), float(rows))
            usable = np.minimum(streams * lanes, length)
            folding = rows * np.log2(np.maximum(usable, 2)) * _CYCLES_OF_A_FOLD
        else:
            pieces = np.maximum(1.0, rows / (lanes * streams))
            folding = np.zeros(len(settings))
        # an addition takes four cycles, two start per cycle
        chain = np.maximum(1.0, 4.0 / streams)
        adding = elements / lanes * chain * _CYCLES_OF_AN_ADDITION
        return Demand(
            pieces=pieces,
            cycles=adding + workload.flop / lanes * _CYCLES_OF_AN_OPERATION + folding,
            traffic={"memory": workload.bytes},
            own_traffic=True,
            details={"row_length": float(length)},
        )


SPEC = Rows()
