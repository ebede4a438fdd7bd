"""What the waits alone say of a network: how many calls may run at a time, which must not.

    a → b, a → c, b → d, c → d      width 2; d and a are alone; blocks [a], [b, c, d]

Calls are the numbers from 0, in an order that keeps every wait; `before` has for each the numbers
of those that it waits for. Seconds are given for each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tilewright.plan.scheduling.problem import SchedulingProblem

Before = Sequence[Sequence[int]]


def waits_of(problem: SchedulingProblem) -> list[list[int]]:
    """The waits of a problem as numbers."""
    return [[number for number, _ in before] for before in problem.before]


def all_before(before: Before) -> list[int]:
    """For each call the set of all that end before it begins, as the bits of a number."""
    found: list[int] = []
    for direct in before:
        bits = 0
        for number in direct:
            bits |= found[number] | 1 << number
        found.append(bits)
    return found


def all_after(before: Before) -> list[int]:
    """For each call the set of all that begin after its end, as the bits of a number."""
    found = [0] * len(before)
    for number in range(len(before) - 1, -1, -1):
        for direct in before[number]:
            found[direct] |= found[number] | 1 << number
    return found


def width(before: Before) -> int:
    """The most calls of which none waits for another: the calls less a largest matching of those
    before with those after (R. Dilworth, Annals of Mathematics 51, 1950)."""
    import numpy as np
    from scipy.sparse import csgraph, csr_matrix

    pairs = [
        (number, other)
        for number, bits in enumerate(all_before(before))
        for other in range(number)
        if bits >> other & 1
    ]
    if not pairs:
        return len(before)
    rows, columns = zip(*pairs, strict=True)
    matrix = cast(Any, csr_matrix)(
        (np.ones(len(pairs)), (rows, columns)), shape=(len(before), len(before))
    )
    matched = cast(Any, csgraph).maximum_bipartite_matching(matrix, perm_type="column")
    return len(before) - int((matched >= 0).sum())


def critical_path(before: Before, seconds: Sequence[float]) -> tuple[float, list[int]]:
    """The longest way through the waits: its seconds and its calls in order."""
    ends: list[float] = []
    latest: list[int | None] = []
    for number, direct in enumerate(before):
        last = max(direct, key=lambda each: ends[each], default=None)
        latest.append(last)
        ends.append(seconds[number] + (0.0 if last is None else ends[last]))
    path: list[int] = []
    number = max(range(len(ends)), key=lambda each: ends[each], default=None)
    while number is not None:
        path.append(number)
        number = latest[number]
    return max(ends, default=0.0), path[::-1]


def work_over_span(before: Before, seconds: Sequence[float]) -> float:
    """The sum of all seconds over those of the longest way: how many calls there are to run at a
    time in the mean. At 1 there is nothing to gain by it."""
    span = critical_path(before, seconds)[0]
    return sum(seconds) / span if span else 1.0


def chains(before: Before) -> list[list[int]]:
    """All calls in rows in which each is the only one that waits for the one before it, and waits
    for nothing else."""
    readers = [0] * len(before)
    for direct in before:
        for number in direct:
            readers[number] += 1
    rows: dict[int, list[int]] = {}
    for number, direct in enumerate(before):
        row = rows.pop(direct[0], None) if len(direct) == 1 and readers[direct[0]] == 1 else None
        rows[number] = [*(row or []), number]
    return sorted(rows.values())


def never_beside_another(before: Before) -> list[int]:
    """The calls through which every way goes: each other one ends before they begin, or begins
    after their end."""
    pairs = zip(all_before(before), all_after(before), strict=True)
    return [
        number
        for number, (earlier, later) in enumerate(pairs)
        if earlier.bit_count() + later.bit_count() == len(before) - 1
    ]


def blocks(before: Before) -> list[list[int]]:
    """The calls in parts that follow each other: each ends with a call through which every way
    goes, but the last, which may end otherwise."""
    cuts, earlier = never_beside_another(before), all_before(before)
    found: list[list[int]] = []
    placed = 0
    for cut in cuts:
        part = (earlier[cut] | 1 << cut) & ~placed
        found.append([number for number in range(len(before)) if part >> number & 1])
        placed |= part
    rest = [number for number in range(len(before)) if not placed >> number & 1]
    return [*found, *([rest] if rest else [])]
