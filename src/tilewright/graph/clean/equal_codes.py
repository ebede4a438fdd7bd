"""Multipliers in the place of a division whose results are codes, found by trying all codes.

A sum of two tensors of codes is rounded to new codes: round((x * a + y * b) / c). There are 65,536
pairs of x and y at most, so that it can be seen whether round(x * A + y * B) gives the same code
for each of them. With A = a / c and B = b / c it mostly does not: among so many quotients, a few
lie so close to the middle between two codes that another last bit decides. With one of the
neighbours of these two numbers it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

_NEIGHBOURS = 32
"""How many singles on each side of a / c are tried."""

_CLOSE = 1e-3
"""Quotients that are further from the middle between two whole numbers are not decided by last
bits; all of them are compared in the end."""

_FEW = 256
"""As many of those are compared before the others: where quotients lie exactly in the middle, half
of all may be close."""

_APART = 2.0**18
"""Sums of products are exact in double precision while one factor is at most so many times the
other, and whole numbers have up to ten bits."""


class Scaled(NamedTuple):
    """Whole numbers from `low` to `high`, times a single."""

    low: int
    high: int
    factor: float

    def numbers(self) -> Any:
        """All of them, as singles."""
        return np.arange(self.low, self.high + 1, dtype=np.float32)


class Codes(NamedTuple):
    """Quotients are rounded, shifted, and kept within limits; the codes that this gives."""

    shift: float
    low: float
    high: float

    def of(self, quotients: Any) -> Any:
        """The code of each quotient."""
        return (quotients.round() + np.float32(self.shift)).clip(self.low, self.high)


@cache
def multipliers(
    terms: tuple[Scaled, ...], divisor: float, codes: Codes
) -> tuple[float, ...] | None:
    """Factors, one for each of at most two terms, with which the sum of the terms is rounded to the
    same code as it is when it is divided, whatever the whole numbers are; None where none of those
    that are tried does so.

    All arithmetic is that of singles. A compiler may contract a product with the sum, so that it is
    not rounded before: codes are the same whether it does so or not.
    """
    sizes = [abs(term.factor) for term in terms]
    if max(sizes) > _APART * min(sizes):
        return None
    grids = np.meshgrid(*(term.numbers() for term in terms), indexing="ij")
    numbers = [grid.reshape(-1) for grid in grids]
    with np.errstate(all="ignore"):
        divided: Any = _sums(numbers, [t.factor for t in terms])[0] / np.float32(divisor)
        if not np.isfinite(divided).all():
            return None
        wanted = codes.of(divided)
        close = np.flatnonzero(abs(abs(divided - divided.round()) - 0.5) < _CLOSE)
        few = close[:: 1 + len(close) // _FEW]
        tried = [([n[at] for n in numbers], wanted[at]) for at in (few, close, slice(None))]
        for factors in _candidates(tuple(term.factor / divisor for term in terms)):
            if all(_same(codes, some, factors, decided) for some, decided in tried):
                return factors
    return None


def _same(codes: Codes, numbers: list[Any], factors: Sequence[float], wanted: Any) -> bool:
    return all((codes.of(total) == wanted).all() for total in _sums(numbers, factors))


def _sums(numbers: list[Any], factors: Sequence[float]) -> list[Any]:
    """The sum of products in single precision, then those with one product that is not rounded: in
    double precision that is exact, and so is the sum of factors that are not too far apart."""
    exact = [x.astype(np.float64) * np.float32(f) for x, f in zip(numbers, factors, strict=True)]
    rounded = [product.astype(np.float32) for product in exact]
    if len(numbers) == 1:
        return rounded
    (a, b), (c, d) = exact, rounded
    return [c + d, (a + d).astype(np.float32), (c + b).astype(np.float32)]


def _candidates(quotients: tuple[float, ...]) -> list[tuple[float, ...]]:
    """Singles around each quotient in all combinations, the nearest ones first."""
    steps = sorted(range(-_NEIGHBOURS, _NEIGHBOURS + 1), key=abs)
    around = [_around(np.float32(quotient)) for quotient in quotients]
    together = sorted(product(steps, repeat=len(quotients)), key=lambda at: sum(map(abs, at)))
    return [tuple(near[step] for near, step in zip(around, at, strict=True)) for at in together]


def _around(single: Any) -> dict[int, float]:
    """The single itself (0) and its neighbours by their number, below and above."""
    found = {0: float(single)}
    for side, end in ((-1, -np.inf), (1, np.inf)):
        value = single
        for step in range(1, _NEIGHBOURS + 1):
            value = np.nextafter(value, np.float32(end))
            found[side * step] = float(value)
    return found
