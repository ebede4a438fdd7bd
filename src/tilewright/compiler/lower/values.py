"""Values inside a kernel: something that can be read at logical indices, wherever it is stored."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import te, tirx
from tvm.ir import Range
from tvm.sym import Analyzer

from tilewright.compiler.lower.positions import Index, physical_index
from tilewright.core.forms import Form, own_layout
from tilewright.graph.tensor import TensorType

Read = Callable[[Index], tirx.Expr]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A logical tensor; `read` gives the expression at logical indices."""

    type: TensorType
    read: Read


class Simplifier:
    """Simplifies index expressions over variables whose ranges were announced."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._paused = False

    def announce(self, variables: Index, shape: Sequence[int]) -> None:
        """Tell the extent of each variable."""
        for variable, extent in zip(variables, shape, strict=True):
            self._analyzer.bind(variable, Range(0, extent))

    @contextmanager
    def pausing(self) -> Generator[None]:
        """Leave expressions as they are meanwhile: TVM cannot simplify what reads a tensor."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def __call__(self, expression: tirx.Expr | int) -> tirx.Expr:
        if isinstance(expression, int):
            return tirx.const(expression, "int32")
        if self._paused:
            return expression
        return self._analyzer.simplify(expression)


def stored(tensor: te.Tensor, kind: TensorType, form: Form, simplify: Simplifier) -> Value:
    """A tensor in memory, read through its layout."""
    layout = own_layout(form)

    def read(index: Index) -> tirx.Expr:
        return tensor(*physical_index(layout, index, kind.shape, simplify))

    return Value(type=kind, read=read)


def broadcast_index(index: Index, shape: tuple[int, ...]) -> list[tirx.Expr]:
    """Indices into an operand of `shape` for a position of the (larger) broadcast result."""
    zero = tirx.const(0, "int32")
    trailing = list(index)[len(index) - len(shape) :]
    return [
        zero if extent == 1 else position for position, extent in zip(trailing, shape, strict=True)
    ]
