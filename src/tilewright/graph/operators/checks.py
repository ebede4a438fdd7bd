"""Reading attributes and checking shapes, with errors that say what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tilewright.core.errors import InternalError, ModelError
from tilewright.graph.operators.base import Named, Types

Shape = tuple[int, ...]


def fail(operator: str, text: str) -> NoReturn:
    """Refuse inputs: `operator: text`."""
    raise ModelError(f"{operator}: {text}")


def expect(condition: bool, operator: str, text: str) -> None:
    """Refuse inputs unless `condition` holds."""
    if not condition:
        fail(operator, text)


def integers(named: Named, name: str) -> Shape:
    """An attribute that is a tuple of integers."""
    value = named[name]
    if not isinstance(value, tuple):
        raise InternalError(f"attribute {name} is {value!r}, no tuple")
    return tuple(int(item) for item in value)


def numbers(named: Named, name: str) -> tuple[float, ...]:
    """An attribute that is a tuple of floats."""
    value = named[name]
    if not isinstance(value, tuple):
        raise InternalError(f"attribute {name} is {value!r}, no tuple")
    return tuple(float(item) for item in value)


def integer(named: Named, name: str) -> int:
    """An attribute that is one integer."""
    value = named[name]
    if not isinstance(value, int):
        raise InternalError(f"attribute {name} is {value!r}, no integer")
    return int(value)


def number(named: Named, name: str) -> float:
    """An attribute that is one float; `inf` and `-inf` may be written as text."""
    value = named[name]
    if value is None or isinstance(value, tuple):
        raise InternalError(f"attribute {name} is {value!r}, no number")
    return float(value)


def text(named: Named, name: str) -> str:
    """An attribute that is text."""
    value = named[name]
    if not isinstance(value, str):
        raise InternalError(f"attribute {name} is {value!r}, no text")
    return value


def arity(operator: str, types: Types, count: int) -> None:
    """Refuse another number of inputs than `count`."""
    expect(len(types) == count, operator, f"takes {count} inputs, got {len(types)}")


def common_dtype(operator: str, types: Types) -> str:
    """The one element type of all inputs."""
    dtypes = list(dict.fromkeys(kind.dtype for kind in types))
    expect(len(dtypes) == 1, operator, f"inputs have different types {', '.join(dtypes)}")
    return dtypes[0]


def broadcast(operator: str, shapes: Sequence[Shape]) -> Shape:
    """The shape numpy's broadcasting rules give."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[int] = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            listed = " and ".join(str(list(shape)) for shape in shapes)
            fail(operator, f"shapes {listed} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def check_axis(operator: str, axis: int, rank: int) -> None:
    """Refuse an axis outside 0 … rank-1."""
    expect(0 <= axis < rank, operator, f"axis {axis} is outside a tensor of rank {rank}")
