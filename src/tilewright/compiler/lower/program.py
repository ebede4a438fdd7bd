"""A kernel under construction: placeholders, composed steps, and the result in its layout.

Steps are composed as expressions, not as stages: an elementwise chain or a layout change costs no
memory. Anchors are the exception: their lowering computes a stage and puts it in as a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx
from tvm.s_tir import SBlock, Schedule
from tvm_ffi import structural_map

from tilewright.compiler.lower import elementwise, mathematics, movement
from tilewright.compiler.lower.values import (
    Index,
    Read,
    Simplifier,
    Value,
    bits,
    broadcast_index,
    logical_index,
    stored,
)
from tilewright.core.forms import Form, number_layout, stored_in
from tilewright.core.records import Candidate
from tilewright.graph.network import TensorType
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Step, Workload
from tilewright.kernels.base import SINGLE, OtherProcessors
from tilewright.kernels.codes import CODES
from tilewright.kernels.registry import implementation, packed_type

MOST_COUNTED = 2**31
"""Positions that 32 bits tell apart."""
_SHIFTS = frozenset({"add", "subtract"})
_SCALES = frozenset({"cast", "multiply", "round", "clip", "relu"}) | _SHIFTS
"""What lies between whole numbers and the quotient that makes codes of them."""


class Program:
    """The tensor expressions of one workload for one candidate.

    `tensors` are the placeholders in the order of the arguments, `arrays` their buffers in a kernel
    whose statements are written out; `packed` gives the physical
    shapes of constants that the implementation repacks. A packed constant cannot be read as a
    value: the anchor's lowering reads its placeholder. `settings` are the candidate's knobs, and
    `simplify` simplifies expressions of positions. A lowering that chooses among schedules names
    its choice as `rule`.
    """

    start: tvm.IRModule | None = None
    begun: tuple[str, int, Callable[..., Sequence[tirx.Expr]]] | None = None
    """A stage of sums that begin with the values of an argument instead of zero: its name, the
    argument, and where a position's value is."""
    rule: str = ""
    fused = False
    """Whether the processor multiplies and adds with one rounding."""
    rounds = False
    """Whether the processor makes vectors of whole numbers of singles, the nearest ones."""

    def __init__(
        self,
        workload: Workload,
        candidate: Candidate,
        packed: Mapping[int, tuple[int, ...]] | None = None,
    ) -> None:
        self.workload = workload
        self.candidate = candidate
        self.settings: dict[str, Any] = dict(candidate.settings)
        self.for_llvm = not isinstance(implementation(candidate.implementation), OtherProcessors)
        self.simplify = Simplifier()
        self.positions = self._positions()
        self.tensors: list[te.Tensor] = []
        self.arrays: list[Any] = []
        self.values: dict[int, Value] = {}
        packed = packed or {}
        for index, argument in enumerate(workload.arguments):
            form = candidate.forms[index]
            shape, dtype = form.physical_shape(argument.type.shape), bits(form, argument.type.dtype)
            if index in packed:
                shape, dtype = packed[index], packed_type(workload, candidate, index)
            tensor = te.placeholder(self._extents(shape), dtype, name=f"argument{index}")
            self.tensors.append(tensor)
            if index not in packed:
                self.values[index] = stored(tensor, argument.type, form, self.simplify)

    def _positions(self) -> str:
        """The type of positions: TVM counts in 32 bits what it gets as plain numbers, and GPUs may
        have tensors of more elements than that."""
        most = max(kind.elements for kind in self.workload.types)
        return "int32" if self.for_llvm or most < MOST_COUNTED else "int64"

    def _extents(self, shape: Sequence[int]) -> Sequence[Any]:
        if self.positions == "int32":
            return shape
        return [tirx.const(extent, self.positions) for extent in shape]

    @property
    def result_form(self) -> Form:
        """The layout the result is written in, whatever its elements are stored as."""
        return stored_in(self.candidate.forms[-1], None)

    def operand(self, value_id: int) -> Value:
        """The value with this id: an argument or a step's result, composing what it reads as far as
        needed."""
        if value_id not in self.values:
            self.values[value_id] = self._composed(value_id - len(self.workload.arguments))
        return self.values[value_id]

    def set_anchor(self, read: Read) -> None:
        """Put in the anchor's result, computed by its lowering."""
        index = self.workload.anchor_index
        kind = self.workload.step_types(index)[1]
        self.values[len(self.workload.arguments) + index] = Value(kind, read)

    def in_blocks(self, tensor: te.Tensor, axis: int, block: int) -> Read:
        """Reads a stage in which an axis is cut into chunks, its blocks lying innermost:
        (n, c, h, w) → tensor(n, c // block, h, w, c % block)"""

        def read(position: Index) -> tirx.Expr:
            at = list(position)
            at[axis], lane = self.simplify.split(at[axis], block)
            return tensor(*at, lane)

        return read

    def _composed(self, index: int) -> Value:
        step = self.workload.steps[index]
        result = self.workload.step_types(index)[1]
        operands = [self.operand(i) for i in step.inputs]
        quick = self.fused and self._by_inverse(index)
        finite = quick and self._of_codes(step.inputs[0])
        rounded = self._rounded(index) if self.rounds else None
        if rounded is not None:
            return self._nearest(result, *rounded)
        if OPERATORS[step.operator].movement:
            return movement.moved(step, operands, result, self.simplify)

        def read(position: Index) -> tirx.Expr:
            at = [o.read(broadcast_index(position, o.type.shape)) for o in operands]
            if quick:
                return elementwise.quotient(*at, finite=finite)
            return elementwise.expression(step, at, llvm=self.for_llvm)

        return Value(result, read)

    def _rounded(self, index: int) -> tuple[int, Step] | None:
        """Of a step that makes codes of a single that was rounded and then kept within whole
        limits: that single, and the step with the limits."""
        steps, first = self.workload.steps, len(self.workload.arguments)
        cast, found = steps[index], {}
        value = first + index
        for operator in ("cast", "clip", "round"):
            if value < first or steps[value - first].operator != operator:
                return None
            found[operator] = steps[value - first]
            value = found[operator].inputs[0]
        kind, limits = str(cast.attribute("dtype")), found["clip"]
        if self.workload.types[value].dtype not in SINGLE or kind not in CODES:
            return None
        low, high, able = limits.number("minimum"), limits.number("maximum"), np.iinfo(kind)
        whole = low.is_integer() and high.is_integer()
        return (value, limits) if whole and able.min <= low <= high <= able.max else None

    def _nearest(self, result: TensorType, value: int, limits: Step) -> Value:
        """Codes of a single, rounded by the conversion."""
        source = self.operand(value)

        def read(position: Index) -> tirx.Expr:
            x = source.read(position)
            return elementwise.nearest_code(x, dict(limits.attributes), result.dtype)

        return Value(result, read)

    def _by_inverse(self, index: int) -> bool:
        """Whether a step divides whole numbers that were scaled and shifted by a constant, and is
        rounded to whole numbers."""
        step, value = self.workload.steps[index], len(self.workload.arguments) + index
        return (
            step.operator == "divide"
            and self.workload.types[value].dtype == "float32"
            and self.workload.is_constant(step.inputs[1])
            and any(s.operator == "round" and value in s.inputs for s in self.workload.steps)
            and self._scaled(step.inputs[0])
        )

    def _scaled(self, value: int) -> bool:
        """Whether a value is made of whole numbers and constants alone."""
        if "int" in self.workload.types[value].dtype or self.workload.is_constant(value):
            return True
        step = value - len(self.workload.arguments)
        known = step >= 0 and self.workload.steps[step].operator in _SCALES
        return known and all(map(self._scaled, self.workload.steps[step].inputs))

    def _of_codes(self, value: int) -> bool:
        """Whether such a value is made of codes, scales and zero points alone, which are finite: a
        constant of several elements that is added may be a mask, and so may whole numbers of more
        bits times a constant."""
        types, constant = self.workload.types, self.workload.is_constant
        step = value - len(self.workload.arguments)
        if step < 0:
            return types[value].dtype in CODES or constant(value)
        operator, inputs = self.workload.steps[step].operator, self.workload.steps[step].inputs
        shifted = operator in _SHIFTS and "int" not in types[value].dtype
        if shifted and any(constant(i) and types[i].elements > 1 for i in inputs):
            return False
        return all(map(self._of_codes, inputs))

    def reduce_axes(self, **extents: int) -> list[Any]:
        """Axes to add up over, by name; the simplifier knows their ranges."""
        axes = [
            te.reduce_axis((0, extent), name)
            for name, extent in zip(extents, self._extents(tuple(extents.values())), strict=True)
        ]
        self.simplify.announce([axis.var for axis in axes], tuple(extents.values()))
        return axes

    def compute(
        self, shape: tuple[int, ...], body: Callable[..., tirx.Expr], name: str
    ) -> te.Tensor:
        """A stage called `name`; the simplifier knows the ranges of the positions `body` gets."""

        def announced(*position: tirx.Expr) -> tirx.Expr:
            self.simplify.announce(position, shape)
            return body(*position)

        # TVM names loops after the parameters
        announced.__signature__ = signature(body)
        return te.compute(self._extents(shape), announced, name=name)

    def stage(self, value: Value, form: Form, name: str) -> te.Tensor:
        """A value in memory, in a layout, as a stage called `name`."""
        layout, logical = number_layout(form), value.type.shape

        def read(*index):
            found = value.read(logical_index(layout, index, logical))
            return mathematics.in_half(found, form.dtype)

        return self.compute(layout.physical_shape(logical), read, name)

    def kept(self, value: Value, form: Form, name: str) -> Value:
        """A value computed once, as `stage` does, and read from there."""
        return stored(self.stage(value, form, name), value.type, form, self.simplify)

    def finish(self) -> te.Tensor:
        """The stage `result`: the last step in the result's layout."""
        last = self.operand(len(self.workload.types) - 1)
        return self.stage(last, self.candidate.forms[-1], "result")

    def schedule(self, anchor: Read | None = None) -> Schedule:
        """Finish and open a schedule over the whole kernel; the function is called `main`. What
        reads the `anchor`'s result is put in first."""
        if anchor is not None:
            self.set_anchor(anchor)
        function = te.create_prim_func([*self.tensors, self.finish()])
        return self.begin(_begun(function, *self.begun) if self.begun else function)

    def begin(self, function: tirx.PrimFunc) -> Schedule:
        """Open a schedule over a function; `start` keeps what its trace is relative to."""
        self.start = tvm.IRModule({"main": function})
        return Schedule(self.start)


def _begun(
    function: tirx.PrimFunc, stage: str, argument: int, place: Callable[..., Sequence[tirx.Expr]]
) -> tirx.PrimFunc:
    """The function with sums that begin with the values of an argument: TVM's own expressions of
    sums begin with zero."""

    def visit(block: Any) -> Any:
        if block.name_hint != stage:
            return block
        first = function.params[argument][tuple(place(*block.init.indices))]
        init = tirx.BufferStore(block.init.buffer, first, block.init.indices)
        parts = (block.iter_vars, block.reads, block.writes, block.name_hint, block.body)
        return SBlock(*parts, init, block.alloc_buffers, block.match_buffers, block.annotations)

    return function.with_body(structural_map(function.body, (SBlock, visit)))
