"""The transforms of Winograd convolutions F(m, r), made from interpolation points.

F(m, r) gives m neighbouring outputs of a correlation with r taps from m + r - 1 multiplications:

    y = A^T ((G g) * (B^T d)),    y[i] = sum over k of g[k] d[i + k]

Toom and Cook's construction (Blahut 2010, Fast Algorithms for Signal Processing, chapter 5):
polynomials are multiplied by way of their values at m + r - 2 points and at infinity; transposed,
this is the correlation. All arithmetic is rational, so that the matrices are exact. In two
dimensions the transforms are applied along one axis after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import floor, lcm, log2, prod

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import InternalError

Row = tuple[Fraction, ...]
Matrix = tuple[Row, ...]

_MAGNITUDES: dict[int, tuple[str, ...]] = {
    0: (),
    1: (),
    3: ("1",),
    5: ("3/4", "3/2"),
    7: ("1/2", "1", "2"),
    9: ("3/8", "3/4", "5/4", "3"),
}
"""By number of finite points: what stands there with both signs beside zero, which comes first.

Found by trying all choices out of fourteen (nine for the last row) magnitudes from 1/4 to 4 on data
that is normal, positive, cut off at zero, and of channels between 1/30 and 30 times as large; the
root mean square of the error relative to sum |w||x| is least, or within three hundredths of it.
"""

_COARSE_MAGNITUDES = {**_MAGNITUDES, 5: ("2/3", "3/2")}
"""The same where factors are rounded to so few digits that what the matrices lose in single
precision is nothing beside it: of pairs out of seventeen magnitudes from 1/4 to 3 the one that
amplifies least (`Transform.amplification`), for F(4, 3) as for F(2, 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """F(outputs, taps) along one axis.

    `input` is B^T (positions × positions), `weight` is G (positions × taps), `output` is A^T
    (outputs × positions). Entries of `input` and `output` are exact in single precision with the
    usual points.
    """

    outputs: int
    taps: int
    input: Matrix
    weight: Matrix
    output: Matrix

    @property
    def positions(self) -> int:
        """Inputs that a tile reads, and multiplications that it takes."""
        return self.outputs + self.taps - 1

    @property
    def trivial(self) -> bool:
        """Whether values pass as they are: one output, one tap."""
        return self.positions == 1

    def amplification(self, missing: int = 0, *, sums: bool = False) -> float:
        """How many times as large the error of a result is as that of the sum of products that it
        stands for, where factors are rounded, independently of each other.

        With normal values a product at position p is of the size |G_p| |B_p| (norms of rows), and
        the results add up products by A: the square root of the sum over p of
        (A_ip |G_p| |B_p|)^2, over the root of the taps, of the worst result i. At the ends of the
        data so many inputs may be `missing`, zeros beside it: B_p and taps are then what is left.
        The factors of two axes are multiplied.

        Where `sums` are rounded, which grow when all numbers have one sign, the sizes of rows
        of G and B are their sums if that is more.
        """
        first = np.repeat([0.0, 1.0], [missing, self.positions - missing])
        ends = (np.ones(self.positions), first, first[::-1])
        ways = (self._squares, self._squares_of_means) if sums else (self._squares,)
        return max(float(way(present).max()) for way in ways for present in ends) ** 0.5

    def balanced(self) -> Transform:
        """The same, with a power of two on each row of `input` that `output` takes back, so that
        products of numbers of at most one are below two, and not all below one."""
        sizes = zip(self.input, self.weight, strict=True)
        scales = [
            Fraction(2) ** -floor(log2(sum(map(abs, data)) * sum(map(abs, weight))))
            for data, weight in sizes
        ]
        data = zip(self.input, scales, strict=True)
        return replace(
            self,
            input=tuple(tuple(entry * scale for entry in row) for row, scale in data),
            output=tuple(
                tuple(entry / scale for entry, scale in zip(row, scales, strict=True))
                for row in self.output
            ),
        )

    def _squares(self, present: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        output, weight, data = (double(m) ** 2 for m in (self.output, self.weight, self.input))
        squares = output @ (weight.sum(axis=1) * (data @ present))
        return squares / np.convolve(present, np.ones(self.taps), "valid")

    def _squares_of_means(self, present: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        output, weight, data = (double(m) for m in (self.output, self.weight, self.input))
        squares = output**2 @ (weight.sum(axis=1) * (data @ present)) ** 2
        return squares / np.convolve(present, np.ones(self.taps), "valid")


@cache
def transform(outputs: int, taps: int, *, coarse: bool = False) -> Transform:
    """F(outputs, taps) with the points known to be good for its size, for `coarse` products those
    that are for them.

    Raises InternalError for a size without such points.
    """
    finite, known = outputs + taps - 2, _COARSE_MAGNITUDES if coarse else _MAGNITUDES
    if min(outputs, taps) < 1 or finite not in known:
        raise InternalError(f"no interpolation points for F({outputs}, {taps})")
    signed = [sign * Fraction(text) for text in known[finite] for sign in (1, -1)]
    return from_points(outputs, taps, (Fraction(0), *signed)[:finite])


def from_points(outputs: int, taps: int, points: Sequence[Fraction]) -> Transform:
    """F(outputs, taps) from `outputs + taps - 2` different finite points, and infinity.

    Raises InternalError for another number of points or equal ones.
    """
    if len(set(points)) != len(points) or len(points) != outputs + taps - 2:
        raise InternalError(f"F({outputs}, {taps}) wants {outputs + taps - 2} different points")
    others = [(*points[:index], *points[index + 1 :]) for index in range(len(points))]
    scales = [
        prod((point - other for other in rest), start=Fraction(1))
        for point, rest in zip(points, others, strict=True)
    ]
    return Transform(
        outputs=outputs,
        taps=taps,
        input=(*((*_monic(rest), Fraction(0)) for rest in others), _monic(points)),
        weight=_powers(points, taps, scales),
        output=tuple(zip(*_powers(points, outputs, [Fraction(1)] * len(points)), strict=True)),
    )


def whole(form: Transform) -> tuple[Transform, int]:
    """The same in whole numbers, and what its results are to be divided by: rows of `input` and
    columns of `output` are multiplied by their denominators, and `weight` by what is left."""
    data = [lcm(*(entry.denominator for entry in row)) for row in form.input]
    back = [lcm(*(entry.denominator for entry in row)) for row in zip(*form.output, strict=True)]
    rows = [
        [entry / (a * b) for entry in row]
        for row, a, b in zip(form.weight, data, back, strict=True)
    ]
    divisor = lcm(*(entry.denominator for row in rows for entry in row))
    made = replace(
        form,
        input=tuple(tuple(e * a for e in row) for row, a in zip(form.input, data, strict=True)),
        weight=tuple(tuple(entry * divisor for entry in row) for row in rows),
        output=tuple(tuple(e * b for e, b in zip(row, back, strict=True)) for row in form.output),
    )
    return made, divisor


def _powers(points: Sequence[Fraction], count: int, scales: Sequence[Fraction]) -> Matrix:
    """The first `count` powers of each point over its scale, and those of infinity."""
    finite = (
        tuple(point**power / scale for power in range(count))
        for point, scale in zip(points, scales, strict=True)
    )
    return (*finite, (*(Fraction(0),) * (count - 1), Fraction(1)))


def double(matrix: Matrix) -> npt.NDArray[np.float64]:
    """A matrix in double precision."""
    return np.array([[float(entry) for entry in row] for row in matrix], dtype=np.float64)


def _monic(roots: Sequence[Fraction]) -> Row:
    """Coefficients of the product of (x - root), the constant one first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [
            high - root * low for high, low in zip(shifted, [*found, Fraction(0)], strict=True)
        ]
    return tuple(found)
