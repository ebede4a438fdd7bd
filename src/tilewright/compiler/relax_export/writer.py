"""ONNX nodes as they are written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tvm import tirx

from tilewright.core.errors import NotCompilable

OPSET = 21
"""ONNX's operator set that is written: the first whose GroupNormalization is that of Relax."""

Value: TypeAlias = "str | list[Value]"
"""The name of a tensor, empty for one that is left out, or the values of a tuple."""
Operand: TypeAlias = "str | np.ndarray | int | float"


def refuse(reason: str) -> NotCompilable:
    """Why a call has no translation."""
    return NotCompilable(reason)


@dataclass(kw_only=True)
class Writer:
    """Collects nodes in their order. `scope` is the call of Relax that they stand for, `symbols`
    the sizes that have a name in Relax, as tensors of one element, and `padded` the tensors that
    Relax holds for longer than ONNX does; names are given once."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    symbols: dict[Any, str] = field(default_factory=dict)
    scope: str = ""
    padded: set[str] = field(default_factory=set)
    _names: set[str] = field(default_factory=set)

    def name(self, wanted: str) -> str:
        """A name that is not in use: the wanted one, or with a number behind it."""
        number, found = 1, wanted
        while found in self._names:
            found, number = f"{wanted}_{number}", number + 1
        self._names.add(found)
        return found

    def node(self, operator: str, *inputs: Operand, **attributes: Any) -> str:
        """Write a node with one output; arrays and integers among its inputs become constants."""
        return self.several(operator, 1, *inputs, **attributes)[0]

    def several(self, operator: str, count: int, *inputs: Operand, **attributes: Any) -> list[str]:
        """Write a node with `count` outputs."""
        given = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        outputs = [self.name(self.scope) for _ in range(count)]
        self.nodes.append(helper.make_node(operator, given, outputs, name=outputs[0], **attributes))
        return outputs

    def constant(self, value: Any, wanted: str = "") -> str:
        """A constant; integers are sizes, axes and indices: int64."""
        array = np.asarray(value, None if isinstance(value, np.ndarray) else np.int64)
        name = self.name(wanted or f"{self.scope}.constant")
        self.constants.append(
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        )
        return name

    def shape(self, sizes: Iterable[Any]) -> str:
        """A shape, its sizes numbers or expressions of symbols."""
        listed = [int(size) if isinstance(size, (int, tirx.IntImm)) else size for size in sizes]
        if all(isinstance(size, int) for size in listed):
            return self.constant(np.asarray(listed, np.int64))
        return self.node("Concat", *[self.size(size) for size in listed], axis=0)

    def size(self, size: Any) -> str:
        """One size as a tensor of one element."""
        if isinstance(size, (int, tirx.IntImm)):
            return self.constant([int(size)])
        if size in self.symbols:
            return self.symbols[size]
        operator = _ARITHMETIC.get(type(size).__name__)
        if operator is None:
            raise refuse(f"the size {size} cannot be computed")
        return self.node(operator, self.size(size.a), self.size(size.b))


_ARITHMETIC = {
    "Add": "Add", "Sub": "Sub", "Mul": "Mul", "FloorDiv": "Div", "Div": "Div", "FloorMod": "Mod",
    "Min": "Min", "Max": "Max",
}  # fmt: skip
"""Of sizes, which are not negative: division rounds down and towards zero alike."""


def element(dtype: str) -> int:
    """ONNX's code of an element type."""
    if dtype not in _ELEMENTS:
        raise refuse(f"elements of type {dtype} are not taken")
    return _ELEMENTS[dtype]


_ELEMENTS = {
    np.dtype(helper.tensor_dtype_to_np_dtype(code)).name: code
    for code in helper.get_all_tensor_dtypes()
    if code not in (onnx.TensorProto.STRING, onnx.TensorProto.UNDEFINED)
}


def scalar(value: float, dtype: str) -> np.ndarray:
    """A constant without axes. Refused where the type cannot hold it."""
    kind = helper.tensor_dtype_to_np_dtype(element(dtype))
    if kind.kind in "iu" and not np.iinfo(kind).min <= value <= np.iinfo(kind).max:
        raise refuse(f"{value} is no number of type {dtype}")
    return np.asarray(value).astype(kind)
