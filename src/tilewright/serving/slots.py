"""Memory that a server and its workers share: equal slots, each with room for one request's inputs
and outputs."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Self

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.graph.network import Array, TensorType

_LINE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tensor lies in a slot, from its beginning."""

    shape: tuple[int, ...]
    dtype: str
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlan:
    """Where a network's tensors lie in a slot, in their order; an output of unknown size has no
    place, and goes another way."""

    inputs: tuple[Place, ...]
    outputs: tuple[Place | None, ...]
    size_bytes: int

    @classmethod
    def of(cls, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Self:
        """One after the other, each at the beginning of a cache line."""
        at, places = 0, list[Place | None]()
        for kind in (*inputs, *outputs):
            if not kind.is_static:
                places.append(None)
                continue
            size_bytes = prod(kind.shape) * element_type(kind.dtype).numpy.itemsize
            place = Place(
                shape=kind.shape, dtype=kind.dtype, offset_bytes=at, size_bytes=size_bytes
            )
            places.append(place)
            at += -(-size_bytes // _LINE_BYTES) * _LINE_BYTES
        found = tuple(place for place in places[: len(inputs)] if place is not None)
        return cls(inputs=found, outputs=tuple(places[len(inputs) :]), size_bytes=at)


class SharedSlots:
    """So many slots of one size, in memory that has no name and goes with the last process that
    holds `descriptor`. Pages that no request has touched take no memory."""

    def __init__(self, descriptor: int, count: int, slot_bytes: int) -> None:
        self.descriptor = descriptor
        self.shape = count, slot_bytes
        mapping = mmap.mmap(descriptor, max(1, count * slot_bytes))
        self._memory = np.frombuffer(mapping, np.uint8, count * slot_bytes).reshape(self.shape)

    @classmethod
    def create(cls, count: int, slot_bytes: int) -> Self:
        """Memory of zeros, made by the server."""
        descriptor = os.memfd_create("tilewright-slots")
        os.ftruncate(descriptor, max(1, count * slot_bytes))
        return cls(descriptor, count, slot_bytes)

    def view(self, slot: int, place: Place) -> Array:
        """The tensor in its place; what is written to it, all processes see."""
        begin = place.offset_bytes
        values = self._memory[slot, begin : begin + place.size_bytes]
        return values.view(element_type(place.dtype).numpy).reshape(place.shape)

    def write(self, slot: int, plan: SlotPlan, arrays: Sequence[Array]) -> None:
        """Copy a request's inputs, in their order, into its slot."""
        for place, array in zip(plan.inputs, arrays, strict=True):
            np.copyto(self.view(slot, place), array)

    def keep(self, slot: int, plan: SlotPlan, results: Iterable[Array]) -> dict[int, Array]:
        """Copy a request's outputs, in their order, into its slot; those that have no place there
        are returned, by their number."""
        others: dict[int, Array] = {}
        for index, (place, array) in enumerate(zip(plan.outputs, results, strict=True)):
            if place is None:
                others[index] = array
            else:
                np.copyto(self.view(slot, place), array, casting="no")
        return others

    def joined(self, slots: Sequence[int], place: Place, axis: int) -> Array:
        """The tensors in this place of several slots, behind each other along an axis."""
        return np.concatenate([self.view(slot, place) for slot in slots], axis)

    def spread(self, slots: Sequence[int], place: Place, axis: int, array: Array) -> None:
        """Write what belongs to each slot of such an array to its place; there may be more."""
        length = place.shape[axis]
        for number, slot in enumerate(slots):
            rows = slice(number * length, (number + 1) * length)
            part = array[(slice(None),) * axis + (rows,)]
            np.copyto(self.view(slot, place), part, casting="no")

    def read(
        self, slot: int, plan: SlotPlan, names: Sequence[str], others: Mapping[int, Array]
    ) -> dict[str, Array]:
        """Copies of a request's outputs by name; `others` are those without a place."""
        return {
            name: others[index] if place is None else self.view(slot, place).copy()
            for index, (name, place) in enumerate(zip(names, plan.outputs, strict=True))
        }

    def close(self) -> None:
        """Let the memory go, when the last view of it goes."""
        os.close(self.descriptor)
