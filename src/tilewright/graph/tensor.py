"""Tensor types."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.core.element_types import element_type


@dataclass(frozen=True, slots=True)
class TensorType:
    """A static shape and the name of an element type (`core.element_types`)."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return self.elements * element_type(self.dtype).bytes

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"
