"""A space of settings: the product of knobs under joint filters, never listed as a whole.

A setting is a number in mixed radix, the first knob least significant, as AutoTVM numbered them.
The filter is asked about settings when they come up. The fingerprint names the space, so that
records made in a space that has changed since are recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.forms import Form
from tilewright.core.records import KnobValue, Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Implementation, ValidatesMany
from tilewright.kernels.columns import Bools, KnobColumns, Numbers
from tilewright.kernels.knobs import Knob

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
        found: dict[str, KnobValue] = {}
        for knob in self.knobs:
            number, position = divmod(number, len(knob.values))
            found[knob.name] = knob.values[position]
        return found

    def number(self, settings: Settings) -> int | None:
        """The number of some settings; None when a knob or a value is not of this space."""
        if set(settings) != {knob.name for knob in self.knobs}:
            return None
        number, weight = 0, 1
        for knob, positions in zip(self.knobs, self._positions, strict=True):
            value = settings[knob.name]
            position = positions.get((type(value), value))
            if position is None:
                return None
            number += weight * position
            weight *= len(knob.values)
        return number

    def digits(self, numbers: Numbers) -> Numbers:
        """Position of each knob's value: one row per number, one column per knob."""
        rest = np.asarray(numbers, dtype=np.int64)
        columns: list[Numbers] = []
        for length in self.lengths:
            rest, column = np.divmod(rest, length)
            columns.append(column)
        return np.stack(columns, axis=1) if columns else np.empty((len(rest), 0), dtype=np.int64)

    def compose(self, digits: Numbers) -> Numbers:
        """The inverse of `digits`."""
        weights = np.cumprod([1, *self.lengths], dtype=np.int64)[:-1]
        return np.asarray(digits, dtype=np.int64) @ weights

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
        digits = self.digits(np.array([number]))[0]
        found: list[tuple[int, int]] = []
        weight = 1
        for column, length in enumerate(self.lengths):
            for position in range(length):
                steps = abs(position - int(digits[column]))
                if steps:
                    found.append((steps, number + weight * (position - int(digits[column]))))
            weight *= length
        near = [other for _, other in sorted(found)]
        return [other for other, kept in zip(near, self.accepted(near), strict=True) if kept]

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
        if form.dtype is not None and all(ports[index] != form for ports in offered):
            raise InternalError(f"{spec.name} does not take form {form} at port {index}")
