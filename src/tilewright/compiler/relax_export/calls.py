"""One call of Relax that is translated to ONNX nodes, its operands and attributes read as Python's.

A translation is a function of a call, registered under the names of its operators in Relax. It
gives what stands for the call's result: the name of an ONNX tensor, or a list for a tuple. A shape
is a tensor of its sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from tvm import relax, tirx

from tilewright.compiler.relax_export.writer import Value, Writer, element, refuse, scalar


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of an operator: `values` are what stands for its arguments."""

    writer: Writer
    call: relax.Call
    values: Sequence[Value]

    def __getitem__(self, place: int) -> str:
        """The tensor of an argument; a number is a constant."""
        value, given = self.values[place], self.call.args[place]
        assert isinstance(value, str)
        if not value and isinstance(given, (tirx.IntImm, tirx.FloatImm)):
            return self.writer.constant(self.number(plain(given), place))
        return value

    @property
    def several(self) -> list[str]:
        """The tensors of the first argument, which is a tuple."""
        return [each for each in self.values[0] if isinstance(each, str)]

    @property
    def node(self) -> Callable[..., str]:
        """Write a node for this call."""
        return self.writer.node

    def attribute(self, name: str) -> Any:
        """An attribute as a number, a text, a list of numbers, or None."""
        return plain(getattr(self.call.attrs, name))

    def argument(self, place: int) -> Any:
        """An argument that is no tensor: a number, or a list of them. Refused where it is computed
        when the network runs."""
        return plain(self.call.args[place])

    def kind(self, place: int) -> Any:
        """The type of an argument."""
        return self.call.args[place].ty

    def rank(self, place: int = 0) -> int:
        """The number of axes of an argument."""
        rank = int(getattr(self.kind(place), "ndim", 0))
        if rank < 0:
            raise refuse("the number of axes of its operand is not known")
        return rank

    def dtype(self, place: int = 0) -> str:
        """The element type of an argument."""
        return dtype_of(self.kind(place))

    def shape(self, place: int = 0) -> list[Any]:
        """The sizes of an argument, integers as far as they are known."""
        return sizes_of(self.kind(place))

    def fixed(self, place: int = 0) -> list[int]:
        """The sizes of an argument where all are known."""
        sizes = self.shape(place)
        if not all(isinstance(size, int) for size in sizes):
            raise refuse(f"the shape {sizes} of its operand is not fixed")
        return sizes

    def axis(self, name: str = "axis", place: int = 0) -> int:
        """An axis of an argument, from the front."""
        return int(self.attribute(name)) % max(self.rank(place), 1)

    def number(self, value: float, place: int = 0) -> np.ndarray:
        """A constant of an argument's element type."""
        return scalar(value, self.dtype(place))

    def in_type(self, value: str, dtype: str) -> str:
        """A tensor in another element type."""
        return self.node("Cast", value, to=element(dtype))


Translation: TypeAlias = Callable[[Call], Value]
TRANSLATIONS: dict[str, Translation] = {}
"""How each operator of Relax is written, by its name."""


def translates(*names: str) -> Callable[[Translation], Translation]:
    """Register a translation of operators, without the `relax.` of their names."""

    def register(function: Translation) -> Translation:
        translations(dict.fromkeys(names, function))
        return function

    return register


def translations(formulas: Mapping[str, Translation]) -> None:
    """Register translations by the names of operators, without the `relax.` in front."""
    TRANSLATIONS.update({f"relax.{name}": formula for name, formula in formulas.items()})


def plain(value: Any) -> Any:
    """A number, text or list of Python's. Refused where it is an expression."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tirx.FloatImm):
        return float(value.value)
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    if isinstance(value, relax.ShapeExpr):
        return [plain(each) for each in value.values]
    if isinstance(value, relax.Tuple):
        return [plain(each) for each in value.fields]
    if isinstance(value, Sequence) or type(value).__name__ == "Array":
        return [plain(each) for each in value]
    if type(value).__name__ in ("PrimType", "DataType", "dtype"):
        return str(value)
    raise refuse(f"it has {value} where a number is needed")


def dtype_of(kind: Any) -> str:
    """The element type of a tensor's type."""
    if kind.dtype is None:
        raise refuse("the element type of its operand is not known")
    return str(kind.dtype)


def sizes_of(kind: Any) -> list[Any]:
    """The sizes of a tensor's type, integers as far as they are known."""
    if kind.shape is None or not isinstance(kind.shape, relax.ShapeExpr):
        raise refuse("the shape of its operand is not known")
    return [int(s) if isinstance(s, tirx.IntImm) else s for s in kind.shape.values]
