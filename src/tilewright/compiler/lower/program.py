"""A kernel under construction: placeholders, composed steps, and the result in its layout.

Steps are composed as expressions, not as stages: an elementwise chain or a layout change costs no
memory. Anchors are the exception: their lowering computes a stage and puts it in as a value.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import elementwise, movement
from tilewright.compiler.lower.positions import logical_index
from tilewright.compiler.lower.values import Index, Simplifier, Value, broadcast_index, stored
from tilewright.core.forms import Form, own_layout
from tilewright.core.records import Candidate
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload

Shapes = Mapping[int, tuple[int, ...]]


class Program:
    """The tensor expressions of one workload for one candidate.

    `tensors` are the placeholders in the order of the arguments; `packed` gives the physical
    shapes of constants that the implementation repacks. A packed constant cannot be read as a
    value: the anchor's lowering reads its placeholder.
    """

    start: tvm.IRModule | None = None

    def __init__(self, workload: Workload, candidate: Candidate, packed: Shapes | None = None):
        self.workload = workload
        self.candidate = candidate
        self.simplify = Simplifier()
        self._packed = dict(packed or {})
        self.tensors: list[te.Tensor] = []
        self.values: dict[int, Value] = {}
        for index, argument in enumerate(workload.arguments):
            form = candidate.forms[index]
            shape = self._packed.get(index) or own_layout(form).physical_shape(argument.type.shape)
            tensor = te.placeholder(shape, argument.type.dtype, name=f"argument{index}")
            self.tensors.append(tensor)
            if index not in self._packed:
                self.values[index] = stored(tensor, argument.type, form, self.simplify)

    @property
    def result_form(self) -> Form:
        """The layout the result is written in."""
        return self.candidate.forms[-1]

    def step_value(self, index: int) -> Value:
        """The value of step `index`, composing what it reads as far as needed."""
        value_id = len(self.workload.arguments) + index
        if value_id not in self.values:
            self.values[value_id] = self._compose(index)
        return self.values[value_id]

    def operand(self, value_id: int) -> Value:
        """The value with this id: an argument or a step's result."""
        arguments = len(self.workload.arguments)
        if value_id >= arguments:
            return self.step_value(value_id - arguments)
        return self.values[value_id]

    def set_step(self, index: int, value: Value) -> None:
        """Put in the result of step `index`, computed by the anchor's lowering."""
        self.values[len(self.workload.arguments) + index] = value

    def _compose(self, index: int) -> Value:
        step = self.workload.steps[index]
        result = self.workload.types[len(self.workload.arguments) + index]
        operands = [self.operand(i) for i in step.inputs]
        if OPERATORS[step.operator].movement:
            return movement.moved(step, operands, result, self.simplify)

        def read(position: Index) -> tirx.Expr:
            at = [o.read(broadcast_index(position, o.type.shape)) for o in operands]
            return elementwise.expression(step, at)

        return Value(type=result, read=read)

    def stage(self, value: Value, form: Form, name: str) -> te.Tensor:
        """Materialise a value in a layout as a stage called `name`."""
        layout, logical = own_layout(form), value.type.shape
        shape = layout.physical_shape(logical)

        def compute(*index: tirx.Expr) -> tirx.Expr:
            self.simplify.announce(index, shape)
            return value.read(logical_index(layout, index, logical))

        return te.compute(shape, compute, name=name)

    def finish(self) -> te.Tensor:
        """The stage `result`: the last step in the result's layout."""
        value = self.step_value(len(self.workload.steps) - 1)
        return self.stage(value, self.result_form, "result")

    def schedule(self) -> Schedule:
        """Finish and open a schedule over the whole kernel; the function is called `main`."""
        return self.begin(te.create_prim_func([*self.tensors, self.finish()]))

    def begin(self, function: tirx.PrimFunc) -> Schedule:
        """Open a schedule over a function; `start` keeps what its trace is relative to."""
        self.start = tvm.IRModule({"main": function})
        return Schedule(self.start)
