"""What the graph knows about an operator: types, work, and meaning in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.graph.network import Array, AttributeValue
from tilewright.graph.tensor import TensorType

Types = tuple[TensorType, ...]
Named = Mapping[str, AttributeValue]
Infer = Callable[[Types, Named], TensorType]
Flop = Callable[[Types, TensorType, Named], int]
Reference = Callable[[tuple[Array, ...], Named], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One entry of the vocabulary (see `docs/reference/operators.md`).

    `infer` gives the result type, `flop` the floating-point operations (a multiply-add counts two),
    `reference` the result in numpy, computed in the inputs' own precision (float64 stays float64).
    """

    name: str
    infer: Infer
    flop: Flop
    reference: Reference
    anchor: bool = False
    elementwise: bool = False

    @property
    def movement(self) -> bool:
        """Whether it rearranges elements; a weighted sum of a few of them counts."""
        return not (self.anchor or self.elementwise or self.name == "opaque")
