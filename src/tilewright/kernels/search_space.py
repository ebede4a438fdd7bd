"""What a tuner searches: the settings of one task, over all implementations that compete for it.

The space is a row of parts, one per implementation, each a `KnobSpace`: the product of its knobs
under joint filters, never listed as a whole. A setting is a number in mixed radix, the first knob
least significant, as AutoTVM numbered them; a filter is asked about settings when they come up. The
numbers of the whole space run through the parts one after the other. A fingerprint names a space,
so that records made in one that has changed since are recognised. Tuners see numbers, digits (which
value of which knob) and features; they need neither a compiler nor the workload, so a stored sweep
is searched just like a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from tilewright.core.codec import canonical_json, digest
from tilewright.core.errors import InternalError
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, KnobValue, Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALVES, Implementation, ValidatesMany
from tilewright.kernels.columns import Bools, Floats, KnobColumns, Numbers
from tilewright.kernels.knobs import Knob, split_sizes
from tilewright.kernels.registry import takes

Filter = Callable[[Settings], bool]
ManyFilter = Callable[[Sequence[Settings]], Bools]
_AT_ONCE = 1 << 16


def each(*filters: Filter) -> ManyFilter:
    """A filter of many settings that asks `filters` about one after the other."""
    return lambda settings: np.array(
        [all(accepts(one) for accepts in filters) for one in settings], dtype=np.bool_
    )


@dataclass(frozen=True, kw_only=True)
class KnobSpace:
    """Settings numbered 0 … `range_length` - 1; those that `accepts` refuses are not valid."""

    knobs: tuple[Knob, ...]
    accepts: ManyFilter | None = None

    @cached_property
    def range_length(self) -> int:
        """How many numbers there are, valid or not."""
        return prod(len(knob.values) for knob in self.knobs)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Number of values of each knob."""
        return tuple(len(knob.values) for knob in self.knobs)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the knobs and their values; another one means the numbers moved."""
        return digest(canonical_json([[k.name, k.kind, list(k.values)] for k in self.knobs]))

    def settings(self, number: int) -> dict[str, KnobValue]:
        """The value of every knob at a number."""
        if not 0 <= number < self.range_length:
            raise IndexError(f"{number} is not within 0 … {self.range_length - 1}")
        return dict(self.columns([number])[0])

    def number(self, settings: Settings) -> int | None:
        """The number of some settings; None when a knob or a value is not of this space."""
        if set(settings) != {knob.name for knob in self.knobs}:
            return None
        values = [settings[knob.name] for knob in self.knobs]
        places = zip(values, self._positions, strict=True)
        digits = [positions.get((type(value), value)) for value, positions in places]
        return None if None in digits else int(self.compose(np.array(digits, dtype=np.int64)))

    def digits(self, numbers: Numbers) -> Numbers:
        """Position of each knob's value: one row per number, one column per knob."""
        rows = np.asarray(numbers, dtype=np.int64)[:, None]
        return rows // np.array(self._weights, np.int64) % np.array(self.lengths, np.int64)

    def compose(self, digits: Numbers) -> Numbers:
        """The inverse of `digits`."""
        return np.asarray(digits, dtype=np.int64) @ np.array(self._weights, np.int64)

    def columns(self, numbers: Sequence[int] | Numbers) -> KnobColumns:
        """The settings at many numbers."""
        return KnobColumns(self.knobs, self.digits(np.asarray(numbers, dtype=np.int64)))

    def valid(self, number: int) -> bool:
        """Whether the filter accepts a number."""
        return bool(self.accepted([number])[0])

    def accepted(self, numbers: Sequence[int] | Numbers) -> Bools:
        """`valid` of many numbers."""
        rows = np.asarray(numbers, dtype=np.int64)
        if self.accepts is None or not len(rows):
            return np.ones(len(rows), dtype=np.bool_)
        return self.accepts(self.columns(rows))

    def __iter__(self) -> Iterator[int]:
        """The valid numbers in order, found as they are asked for: more and more at once."""
        first, count = 0, 1
        while first < self.range_length:
            numbers = np.arange(first, min(first + count, self.range_length))
            yield from numbers[self.accepted(numbers)].tolist()
            first, count = first + count, min(2 * count, _AT_ONCE)

    def listed(self) -> Numbers:
        """All valid numbers in order. For spaces that are small enough."""
        return np.array(list(self), dtype=np.int64)

    def neighbours(self, number: int) -> list[int]:
        """Valid numbers that differ in one knob, values next to it first."""
        digits: list[int] = self.digits(np.array([number]))[0].tolist()
        moves = [
            (position - digit, weight)
            for digit, length, weight in zip(digits, self.lengths, self._weights, strict=True)
            for position in range(length)
            if position != digit
        ]
        near = [there for _, there in sorted((abs(m), number + m * weight) for m, weight in moves)]
        return [other for other, kept in zip(near, self.accepted(near), strict=True) if kept]

    @cached_property
    def _weights(self) -> tuple[int, ...]:
        """What a step of each digit adds to a number."""
        return tuple(np.cumprod([1, *self.lengths], dtype=np.int64)[:-1].tolist())

    @cached_property
    def _positions(self) -> tuple[dict[tuple[type, KnobValue], int], ...]:
        return tuple(
            {(type(value), value): position for position, value in enumerate(knob.values)}
            for knob in self.knobs
        )


def knob_space(
    spec: Implementation,
    workload: Workload,
    target: Target,
    resources: Resources,
    forms: tuple[Form, ...],
) -> KnobSpace:
    """All settings of an implementation for a workload in these forms.

    Raises InternalError for a form in another element type than its tensor's own, unless the
    implementation offers it for that port.
    """
    _check_types(spec, workload, target, resources, forms)
    knobs = spec.knobs(workload, target, resources, forms)
    if isinstance(spec, ValidatesMany):
        together = spec.valid_many
        return KnobSpace(
            knobs=knobs, accepts=lambda s: together(workload, target, resources, forms, s)
        )
    alone = each(lambda s: spec.valid(workload, target, resources, forms, s))
    return KnobSpace(knobs=knobs, accepts=alone)


def _check_types(
    spec: Implementation,
    workload: Workload,
    target: Target,
    resources: Resources,
    forms: tuple[Form, ...],
) -> None:
    if all(form.dtype is None for form in forms):
        return
    offered = spec.port_forms(workload, target, resources)
    for index, form in enumerate(forms):
        if form.dtype in HALVES and takes(spec, workload, forms):
            continue
        if form.dtype is not None and all(ports[index] != form for ports in offered):
            raise InternalError(f"{spec.name} does not take form {form} at port {index}")


Estimate = Callable[[Sequence[Settings]], Floats]

LISTED = 60_000
"""Spaces of up to so many numbers are listed whole; larger ones are sampled."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The settings of one implementation; `estimate_s` tells a rough time of each, in seconds, that
    tuners may start from. It may be absent."""

    name: str
    forms: tuple[Form, ...]
    knobs: KnobSpace
    estimate_s: Estimate | None = None

    def candidate(self, number: int) -> Candidate:
        """The candidate at a number of this part."""
        settings = self.knobs.settings(number)
        return Candidate(
            implementation=self.name,
            settings=tuple(sorted(settings.items())),
            forms=self.forms,
        )


class SearchSpace:
    """The numbered candidates of one task. See the module's docstring."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self._offsets = np.cumsum([0, *(part.knobs.range_length for part in self.parts)])

    @property
    def range_length(self) -> int:
        """How many numbers there are, valid or not."""
        return int(self._offsets[-1])

    @cached_property
    def fingerprint(self) -> str:
        """Identity of all parts; another one means the numbers moved."""
        return digest(canonical_json([[p.name, p.forms, p.knobs.fingerprint] for p in self.parts]))

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """The distinct knobs of all parts by name; the values of equal names are united."""
        found: dict[str, Knob] = {}
        for part in self.parts:
            for knob in part.knobs.knobs:
                known = found.get(knob.name)
                values = (*known.values, *knob.values) if known else knob.values
                found[knob.name] = Knob(
                    name=knob.name, kind=knob.kind, values=tuple(dict.fromkeys(values))
                )
        return tuple(found.values())

    def part_of(self, number: int) -> tuple[int, int]:
        """Which part a number lies in, and its number there."""
        owner, inner = self.located([number])
        return int(owner[0]), int(inner[0])

    def located(self, numbers: Sequence[int] | Numbers) -> tuple[Numbers, Numbers]:
        """`part_of` for many numbers at once."""
        rows = np.asarray(numbers, dtype=np.int64)
        owner: Numbers = np.searchsorted(self._offsets, rows, side="right") - 1
        return owner, rows - self._offsets[owner]

    def _shares(self, numbers: Sequence[int] | Numbers) -> Iterator[tuple[int, Numbers, Numbers]]:
        """Of each part that some numbers lie in: its place, their places, and they as its own."""
        owner, inner = self.located(numbers)
        for part in np.unique(owner):
            mine = np.flatnonzero(owner == part)
            yield int(part), mine, inner[mine]

    def candidate(self, number: int) -> Candidate:
        """The candidate at a number."""
        part, inner = self.part_of(number)
        return self.parts[part].candidate(inner)

    def number(self, candidate: Candidate) -> int | None:
        """The number of a candidate; None when it is not of this space."""
        for part, offset in zip(self.parts, self._offsets, strict=False):
            if part.name == candidate.implementation and part.forms == candidate.forms:
                inner = part.knobs.number(dict(candidate.settings))
                if inner is not None:
                    return int(offset) + inner
        return None

    def valid(self, number: int) -> bool:
        """Whether the filters accept a number."""
        return bool(self.accepted([number])[0])

    def accepted(self, numbers: Sequence[int] | Numbers) -> Bools:
        """`valid` of many numbers."""
        found = np.zeros(len(numbers), dtype=np.bool_)
        for part, mine, inner in self._shares(numbers):
            found[mine] = self.parts[part].knobs.accepted(inner)
        return found

    def neighbours(self, number: int) -> list[int]:
        """Valid numbers that differ in one knob, values next to it first."""
        part, inner = self.part_of(number)
        offset = int(self._offsets[part])
        return [offset + other for other in self.parts[part].knobs.neighbours(inner)]

    @cached_property
    def listed(self) -> Numbers | None:
        """All valid numbers, None where they are too many to list."""
        if self.range_length > LISTED:
            return None
        parts = zip(self.parts, self._offsets, strict=False)
        found = [int(offset) + part.knobs.listed() for part, offset in parts]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def sample(self, rng: np.random.Generator, count: int) -> list[int]:
        """Up to `count` different valid numbers, evenly drawn."""
        if self.listed is not None:
            size = min(count, len(self.listed))
            return [int(n) for n in rng.choice(self.listed, size=size, replace=False)]
        drawn = rng.integers(self.range_length, size=200 * count)
        found: dict[int, None] = {}
        for first in range(0, len(drawn), 4 * count):
            if len(found) >= count:
                break
            numbers = drawn[first : first + 4 * count]
            found |= dict.fromkeys(numbers[self.accepted(numbers)].tolist())
        return list(found)[:count]

    def all_or_sample(self, rng: np.random.Generator, count: int) -> Numbers:
        """All valid numbers in order; of those that are too many to list, a sample."""
        if self.listed is not None:
            return self.listed
        return np.array(self.sample(rng, count), dtype=np.int64)

    def digits(self, numbers: Sequence[int] | Numbers) -> Numbers:
        """A row per number: its part, then the position of each of `knobs`' values, -1 where the
        part has no such knob."""
        table = np.full((len(numbers), 1 + len(self.knobs)), -1, dtype=np.int64)
        columns = {knob.name: column for column, knob in enumerate(self.knobs, start=1)}
        for part, mine, inner in self._shares(numbers):
            table[mine, 0] = part
            knobs = self.parts[part].knobs
            digits = knobs.digits(inner)
            for position, knob in enumerate(knobs.knobs):
                united = {
                    (type(v), v): at
                    for at, v in enumerate(self.knobs[columns[knob.name] - 1].values)
                }
                place = np.array([united[type(v), v] for v in knob.values], dtype=np.int64)
                table[mine, columns[knob.name]] = place[digits[:, position]]
        return table

    def features(self, numbers: Sequence[int] | Numbers) -> Floats:
        """Knob features, one row per number, the same columns for all numbers of a space.

        log2 of every part of a split, plain numbers as they are, one column per value of other
        knobs (1 where chosen), one column per part where there are several.
        """
        digits = self.digits(numbers)
        parts = range(len(self.parts) if len(self.parts) > 1 else 0)
        columns: list[Floats] = [(digits[:, 0] == part).astype(np.float64) for part in parts]
        for column, knob in enumerate(self.knobs, start=1):
            table = _value_features(knob)
            columns += list(np.vstack([table, np.zeros(table.shape[1])])[digits[:, column]].T)
        return np.stack(columns, axis=1) if columns else np.zeros((len(digits), 1))

    def encode(self, candidate: Candidate) -> Floats | None:
        """The features a candidate of another task would have here, None where no part has its
        name; a value that this space lacks counts as none of its values."""
        names = [part.name for part in self.parts]
        if candidate.implementation not in names:
            return None
        several, settings = len(names) > 1, dict(candidate.settings)
        row = [float(name == candidate.implementation) for name in names if several]
        for knob in self.knobs:
            row += _features_of(knob, settings.get(knob.name), _value_features(knob).shape[1])
        return np.array(row or [0.0])

    def estimates_s(self, numbers: Sequence[int] | Numbers) -> Floats | None:
        """Rough times of numbers; None where some part has none to tell."""
        found = np.empty(len(numbers))
        for index, mine, inner in self._shares(numbers):
            part = self.parts[index]
            if part.estimate_s is None:
                return None
            found[mine] = part.estimate_s(part.knobs.columns(inner))
        return found


def _value_features(knob: Knob) -> Floats:
    """One row of features per value of a knob."""
    parts = max(len(split_sizes(value)) for value in knob.values) if knob.kind == "split" else 1
    return np.array([_features_of(knob, value, parts) for value in knob.values])


def _features_of(knob: Knob, value: KnobValue | None, parts: int) -> list[float]:
    """The features of a value that need not be one of the knob's; zeros for none. Splits are in so
    many inner `parts`."""
    if knob.kind == "split":
        sizes = () if value is None else split_sizes(value)[:parts]
        return np.log2([*sizes, *([1] * (parts - len(sizes)))]).tolist()
    if knob.numeric:
        return [float(value)] if isinstance(value, int) else [0.0]
    return [float(value == own and type(value) is type(own)) for own in knob.values]
