"""What computes several requests of a network at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
    lie behind each other in each input and each output."""

    larger: tuple[Batch, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many requests may run at a time: 1, and more."""
        return 1, *(batch.size for batch in self.larger)


NO_BATCHES = Batches()
"""Every request runs alone."""
