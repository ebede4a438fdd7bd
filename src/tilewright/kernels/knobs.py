"""Knobs: named decisions with their possible values, as AutoTVM's templates declared them.

A value is one integer, text or truth value, so that settings can be stored and compared. A split
into two parts is the inner part alone; into more parts it is the inner parts as text (`8,4`, outer
one first); the outermost part always follows. An order is the loops' names, outermost first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod
from typing import Literal

from tilewright.core.records import KnobValue

KnobKind = Literal["split", "choice", "order", "annotate"]
SplitPolicy = Literal["factors", "power2", "tails", "candidates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One named decision with its possible values, best guesses not necessarily first.

    `kind` tells what neighbouring values mean: those of a `split` are sizes, the others are just
    different.
    """

    name: str
    values: tuple[KnobValue, ...]
    kind: KnobKind = "choice"

    @property
    def numeric(self) -> bool:
        """Whether all values are sizes that can be compared."""
        return all(isinstance(value, int) and not isinstance(value, bool) for value in self.values)


def split(
    name: str,
    extent: int,
    *,
    parts: int = 2,
    policy: SplitPolicy = "factors",
    most: int | None = None,
    candidates: Sequence[KnobValue] = (),
) -> Knob:
    """How an axis of `extent` steps is cut into `parts` nested loops.

    `factors` takes divisors, `power2` powers of two up to the extent, `tails` both and every size
    that wastes at most an eighth in the last piece, `candidates` those given. No inner part is
    larger than `most`.
    """
    if policy == "candidates":
        return Knob(name=name, values=tuple(candidates), kind="split")
    limit = min(extent, most or extent)
    sizes = [size for size in range(1, limit + 1) if _allowed(size, extent, policy)]
    if parts == 2:
        return Knob(name=name, values=tuple(sizes), kind="split")
    texts = [",".join(map(str, inner)) for inner in _nested(extent, parts - 1, policy, limit)]
    return Knob(name=name, values=tuple(texts), kind="split")


def choice(name: str, values: Sequence[KnobValue]) -> Knob:
    """One of several values."""
    return Knob(name=name, values=tuple(values), kind="choice")


def order(name: str, axes: Sequence[str], candidates: Sequence[Sequence[str]] = ()) -> Knob:
    """The nesting of loops, outermost first: all permutations, or the candidates only."""
    found = candidates or list(permutations(axes))
    for candidate in found:
        if sorted(candidate) != sorted(axes):
            raise ValueError(f"{name}: {candidate} does not order {tuple(axes)}")
    return Knob(name=name, values=tuple(",".join(c) for c in found), kind="order")


def annotate(name: str, options: Sequence[str] = ("none", "unroll", "vectorize")) -> Knob:
    """What is done with a loop: left alone, unrolled, vectorised."""
    return Knob(name=name, values=tuple(options), kind="annotate")


def split_sizes(value: KnobValue) -> tuple[int, ...]:
    """The inner parts that a split's value stands for, outer one first."""
    return (value,) if isinstance(value, int) else tuple(int(part) for part in value.split(","))


def _allowed(size: int, extent: int, policy: SplitPolicy) -> bool:
    divides = extent % size == 0
    power = size & (size - 1) == 0
    if policy == "factors":
        return divides
    if policy == "power2":
        return power
    covered = -(-extent // size) * size
    return divides or power or 8 * (covered - extent) <= extent


def _nested(extent: int, parts: int, policy: SplitPolicy, limit: int) -> list[tuple[int, ...]]:
    """Inner parts whose product stays within the extent (divides it under `factors`)."""
    if parts == 0:
        return [()]
    found: list[tuple[int, ...]] = []
    for size in range(1, limit + 1):
        if _allowed(size, extent, policy):
            rest = max(1, extent // size)
            found += [(*outer, size) for outer in _nested(rest, parts - 1, policy, limit)]
    return [inner for inner in found if prod(inner) <= extent]
