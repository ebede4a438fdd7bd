"""Element types of tensors: a registry by numpy's names, plus `bfloat16`.

    element_type("bfloat16").bytes == 2

What a type is (how many bytes, a float or not, how finely it rounds) is looked up here; nothing
else lists types to tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from tilewright.core.errors import InternalError
from tilewright.core.plugins import Offers

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, kw_only=True)
class ElementType:
    """One type.

    `bytes` is the size of an element. `unit_roundoff` is the largest relative error of rounding a
    number to the type, None for types that round nothing. Of a half it holds from the number
    `least` to `largest`, its largest finite one; smaller numbers are off by up to that part of
    `least`. Sums are kept in the type named `accumulator`. `library` is the package whose attribute
    `name` is numpy's type.
    """

    name: str
    bytes: int
    kind: Kind
    unit_roundoff: float | None = None
    accumulator: str
    library: str = "numpy"
    largest: float = inf
    least: float = 0.0

    @property
    def is_float(self) -> bool:
        """Whether its numbers are rounded."""
        return self.kind == "float"

    @property
    def is_half(self) -> bool:
        """Whether sums of it are kept in a wider type, since it rounds too coarsely."""
        return self.accumulator != self.name

    @property
    def computed_in(self) -> str:
        """The name of the type that kernels compute in, whose elements fill their registers.

        Halves are computed in the type of their sums; whole numbers of fewer than four bytes and
        truth values are widened to `int32`; all others stay as they are.
        """
        return self.accumulator if self.is_float or self.bytes >= 4 else "int32"

    @property
    def is_integer(self) -> bool:
        """Whether its numbers are whole, with a sign or without."""
        return self.kind in ("int", "uint")

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """Numpy's type; imports it."""
        from importlib import import_module

        import numpy as np

        scalar = "bool_" if self.name == "bool" else self.name
        return np.dtype(getattr(import_module(self.library), scalar))


_TYPES = {
    kind.name: kind
    for kind in (
        ElementType(
            name="float64", bytes=8, kind="float", accumulator="float64", unit_roundoff=2.0**-53
        ),
        ElementType(
            name="float32", bytes=4, kind="float", accumulator="float32", unit_roundoff=2.0**-24
        ),
        ElementType(
            name="float16",
            bytes=2,
            kind="float",
            accumulator="float32",
            unit_roundoff=2.0**-11,
            largest=65504.0,
            least=2.0**-14,
        ),
        ElementType(
            name="bfloat16",
            bytes=2,
            kind="float",
            accumulator="float32",
            unit_roundoff=2.0**-8,
            library="ml_dtypes",
            largest=float.fromhex("0x1.fep127"),
            least=2.0**-126,
        ),
        ElementType(name="int64", bytes=8, kind="int", accumulator="int64"),
        ElementType(name="uint64", bytes=8, kind="uint", accumulator="uint64"),
        ElementType(name="int32", bytes=4, kind="int", accumulator="int32"),
        ElementType(name="uint32", bytes=4, kind="uint", accumulator="uint32"),
        ElementType(name="int16", bytes=2, kind="int", accumulator="int16"),
        ElementType(name="uint16", bytes=2, kind="uint", accumulator="uint16"),
        ElementType(name="int8", bytes=1, kind="int", accumulator="int8"),
        ElementType(name="uint8", bytes=1, kind="uint", accumulator="uint8"),
        ElementType(name="bool", bytes=1, kind="bool", accumulator="bool"),
    )
}
_OFFERS = Offers[ElementType](
    "tilewright.element_types", kind="element type", built_in={}, needs=("name", "bytes")
)
"""Those of other packages: each is an `ElementType`."""


def element_type(name: str) -> ElementType:
    """The type of that name; raises InternalError where there is none."""
    if not is_element_type(name):
        raise InternalError(f"unknown element type {name!r}; known are {', '.join(_TYPES)}")
    return _TYPES[name]


def is_element_type(name: str) -> bool:
    """Whether there is a type of that name."""
    return name in _TYPES or name in _with_offered()


def element_types() -> tuple[ElementType, ...]:
    """All types: ours, then those of other packages."""
    return tuple(_with_offered().values())


def _with_offered() -> dict[str, ElementType]:
    """All types, those of other packages too; they are asked for where a name is not one of ours.
    One that cannot be used is none, and ours stay as they are."""
    for offered in _OFFERS.usable().values():
        _TYPES.setdefault(offered.name, offered)
    return _TYPES
