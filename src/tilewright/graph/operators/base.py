"""What the graph knows about an operator: types, work, and meaning in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from tilewright.core.errors import InternalError, ModelError
from tilewright.graph.network import Array, AttributeValue, TensorType

Types = tuple[TensorType, ...]
Named = Mapping[str, AttributeValue]
Shape = tuple[int, ...]
Formula = Callable[[Any, Any], Any] | Callable[..., Any]
"""A result from arrays and attributes. That of one of each may be a lambda."""


class Clash(ModelError):
    """Inputs that do not fit an operator or each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One entry of the vocabulary (see `docs/reference/operators.md`).

    `result_type` gives the type of the result from those of the inputs, of which there are `arity`,
    or any number for None. `compute` gives the result in numpy from arrays, in their own precision
    (float64 stays float64); where an operator adds up many products (`sums`), half precision is
    computed in single. `work` tells the floating-point operations (a multiply-add counts two) from
    the types of inputs and result, or is the number of them for each element of the result. All
    three get the attributes by name.

    `slope` bounds how much more the result changes than the first operand (its Lipschitz constant),
    a number or a function of the attributes; None where nothing bounds it, or where
    `graph.evaluate` knows better. `transcendental` counts the functions such as exp in one element:
    they are costly to compute and to compile, and computed in single precision where the type is
    float16. `jumps` where the result may jump when an operand changes by one rounding.
    """

    name: str
    result_type: Callable[..., TensorType]
    compute: Formula
    work: Callable[..., int] | int = 0
    arity: int | None = 1
    sums: bool = False
    anchor: bool = False
    elementwise: bool = False
    slope: float | Callable[..., float] | None = None
    transcendental: int = 0
    jumps: bool = False

    @property
    def movement(self) -> bool:
        """Whether it rearranges elements; a weighted sum of a few of them counts."""
        return not (self.anchor or self.elementwise or self.name == "opaque")

    def infer(self, types: Types, named: Named) -> TensorType:
        """The result's type. Raises ModelError for inputs that do not fit, and InternalError for
        attributes that are missing or of another kind."""
        try:
            if self.arity is not None:
                expect(len(types) == self.arity, f"takes {self.arity} inputs, got {len(types)}")
            return self.result_type(types, **named)
        except Clash as error:
            raise ModelError(f"{self.name}: {error.message}") from error
        except TypeError as error:
            raise InternalError(f"{self.name} with attributes {dict(named)}: {error}") from error

    def flop(self, types: Types, result: TensorType, named: Named) -> int:
        """Floating-point operations; a multiply-add counts two."""
        if isinstance(self.work, int):
            return self.work * result.elements
        return self.work(types, result, **named)

    def reference(self, arrays: tuple[Array, ...], named: Named) -> Array:
        """The result in numpy."""
        if self.sums and arrays[0].dtype.kind not in "iu" and arrays[0].dtype.itemsize == 2:
            wide = (array.astype(np.float32) for array in arrays)
            return np.asarray(self.compute(*wide, **named), arrays[0].dtype)
        return np.asarray(self.compute(*arrays, **named))


def expect(condition: bool, text: str) -> None:
    """Refuse inputs unless `condition` holds."""
    if not condition:
        raise Clash(text)


def common_dtype(types: Types) -> str:
    """The one element type of all inputs."""
    dtypes = list(dict.fromkeys(kind.dtype for kind in types))
    expect(len(dtypes) == 1, f"inputs have different types {', '.join(dtypes)}")
    return dtypes[0]


def are_codes(*dtypes: Any) -> bool:
    """Whether factors are bytes times signed bytes, whose products are summed in 32 bits."""
    left, right = map(str, dtypes)
    return left in ("int8", "uint8") and right == "int8"


def product_dtype(types: Types) -> str:
    """The type of sums of products: of codes 32 bits, of everything else its own."""
    return "int32" if are_codes(types[0].dtype, types[1].dtype) else common_dtype(types)


def exact_sums(multiply: Callable[..., Any]) -> Callable[..., Any]:
    """Sums of products that are exact for codes: in double precision, which is far beyond 32 bits,
    and in numpy much faster than integers."""

    def product(x: Any, w: Any, **named: Any) -> Any:
        if not are_codes(x.dtype, w.dtype):
            return multiply(x, w, **named)
        sums = multiply(x.astype(np.float64), w.astype(np.float64), **named)
        return sums.astype(np.int64).astype(np.int32)

    return product


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape numpy's broadcasting rules give."""
    backward = zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1)
    sizes = [set(column) - {1} for column in backward][::-1]
    if any(len(size) > 1 for size in sizes):
        raise Clash(f"shapes {' and '.join(str([*shape]) for shape in shapes)} do not broadcast")
    return tuple(size.pop() if size else 1 for size in sizes)


def check_axis(axis: int, rank: int) -> None:
    """Refuse an axis outside 0 … rank-1."""
    expect(0 <= axis < rank, f"axis {axis} is outside a tensor of rank {rank}")
