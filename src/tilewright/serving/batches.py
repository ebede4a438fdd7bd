"""What processes load, and what computes several requests of a network at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.serving.slots import SlotPlan
from tilewright.serving.staying import Stays


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What computes `size` requests at a time: a folder, and the names of its constants in
    order."""

    size: int
    folder: Path
    constants: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The sizes in rising order in which requests may run together, and the axis along which those
    lie behind each other in each input and each output; results of different sizes differ by at
    most `max_error` of the largest value."""

    larger: tuple[Batch, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    max_error: float = 0.0

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many requests may run at a time: 1, and more."""
        return 1, *(batch.size for batch in self.larger)


NO_BATCHES = Batches()
"""Every request runs alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToLoad:
    """A network, or a part of one, as processes know it: by `key`, from a folder, with the names of
    its constants in order, where its tensors lie in a slot, and what computes several requests; on
    a GPU, which of them need not go there."""

    key: str
    folder: Path
    constants: Sequence[str]
    plan: SlotPlan
    batches: Batches = NO_BATCHES
    stays: Stays | None = None

    @property
    def message(self) -> tuple[Any, ...]:
        """What asks a worker to load it."""
        more = (self.batches,) if self.batches.larger else ()
        more = (self.stays,) if self.stays is not None else more
        return ("load", self.key, self.folder, list(self.constants), self.plan, *more)


def run_message(network: str, size: int, slots: Sequence[int]) -> tuple[Any, ...]:
    """What asks a worker to compute the requests in these slots, in a batch of a size."""
    return ("run", network, *slots) if size == 1 else ("run_batch", network, size, slots)
