"""What the waits alone say of a network: how many calls may run at a time, which must not.

    a → b, a → c, b → d, c → d      width 2; d and a are alone; blocks [a], [b, c, d]

Calls are the numbers from 0, in an order that keeps every wait; `before` has for each the numbers
of those that it waits for. Seconds are given for each call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from hashlib import blake2b
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
    earlier = all_before(before)
    found: list[int] = []
    for number, bits in enumerate(earlier):
        later = sum(each >> number & 1 for each in earlier)
        if bits.bit_count() + later == len(before) - 1:
            found.append(number)
    return found


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


def alike(problem: SchedulingProblem, parts: Sequence[Sequence[int]]) -> list[list[list[int]]]:
    """Parts of a problem that are the same problem: in each group the calls of all parts in an
    order in which they correspond. What is waited for outside a part counts as one thing."""
    groups: defaultdict[Hashable, list[list[int]]] = defaultdict(list)
    for part in parts:
        ordered = _canonical(problem, part)
        place = {number: index for index, number in enumerate(ordered)}
        structure = tuple(
            (
                _label(problem, number),
                tuple(sorted((place.get(b, -1), size) for b, size in problem.before[number])),
            )
            for number in ordered
        )
        groups[structure].append(ordered)
    return list(groups.values())


def _label(problem: SchedulingProblem, number: int) -> Hashable:
    call = problem.calls[number]
    read_outside = problem.sent_bytes[number], call.crossing_s
    return call.task, call.modes, call.output_bytes, call.answer, read_outside


def _canonical(problem: SchedulingProblem, part: Sequence[int]) -> list[int]:
    """The calls of a part in an order that keeps waits and depends on what they are and wait for,
    not on their numbers, as far as that tells them apart."""
    inside = set(part)
    digests: dict[int, str] = {}
    depth: dict[int, int] = {}
    for number in sorted(part):
        above = sorted((digests.get(b, ""), size) for b, size in problem.before[number])
        digests[number] = _digest((_label(problem, number), above))
        depth[number] = 1 + max((depth.get(b, 0) for b, _ in problem.before[number]), default=0)
    for number in sorted(part, reverse=True):
        below = sorted(digests[a] for a, _ in problem.after[number] if a in inside)
        digests[number] = _digest((digests[number], below))
    return sorted(part, key=lambda number: (depth[number], digests[number], number))


def _digest(what: object) -> str:
    return blake2b(repr(what).encode(), digest_size=8).hexdigest()
