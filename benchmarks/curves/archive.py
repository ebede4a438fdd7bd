"""Kernels in a folder that is brought to a machine with many cores, and what is measured of them.

curves.jsonl     the machine that they are compiled for, then a task a line
NUMBER.so        the kernels of a task
copy.so          what writes activations anew
core_distance    a program that tells how far cores are from each other
runtime/tvm      TVM without its compiler, where it was asked for
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from card.archive import lines
from tilewright.core.codec import convert, to_builtins
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload, parse_workload

COPY, DISTANCE, RUNTIME = "copy.so", "core_distance", "runtime"
_INDEX = "curves.jsonl"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel, by its hash, and the numbers of cores for which it is the default one; `types` are
    the physical shapes and types of its arguments and its result."""

    key: str
    candidate: Candidate
    types: tuple[tuple[tuple[int, ...], str], ...]
    made_for: tuple[int, ...]

    @property
    def symbol(self) -> str:
        """The name of its function in the library."""
        return f"kernel_{self.key}"


@dataclass(frozen=True, kw_only=True)
class CurveTask:
    """A workload, where it is from, and its kernels, which are all in one library."""

    text: str
    family: str
    source: str
    kernels: tuple[Kernel, ...]

    @cached_property
    def workload(self) -> Workload:
        """What the kernels compute."""
        return parse_workload(self.text)

    def kernel(self, key: str) -> Kernel:
        """A kernel by its hash; StopIteration."""
        return next(kernel for kernel in self.kernels if kernel.key == key)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A measurement: of the kernel `key` of a task, by its number, on so many cores."""

    task: int
    key: str
    cores: int


@dataclass(frozen=True, kw_only=True)
class Archive:
    """What is in the folder. `features` are the instruction sets that kernels are compiled for,
    `counts` the numbers of cores that they are made for."""

    features: tuple[str, ...]
    counts: tuple[int, ...]
    tasks: tuple[CurveTask, ...]

    @classmethod
    def read(cls, folder: Path) -> Archive:
        """What `write` wrote."""
        head, *tasks = lines(folder / _INDEX)
        return convert({**head, "tasks": tasks}, cls)

    def write(self, folder: Path) -> None:
        """Write the index."""
        head = {"features": self.features, "counts": self.counts}
        with (folder / _INDEX).open("w", encoding="utf-8") as file:
            for line in (head, *map(to_builtins, self.tasks)):
                file.write(json.dumps(line) + "\n")

    def own(self, counts: Sequence[int]) -> list[Wanted]:
        """The default kernel of each of these numbers of cores on as many."""
        return self._wanted(counts, lambda kernel, cores: cores in kernel.made_for)

    def foreign(self, counts: Sequence[int]) -> list[Wanted]:
        """The kernels that are made for the least and for the most cores on other numbers."""
        ends = {min(self.counts), max(self.counts)}
        return self._wanted(
            counts,
            lambda kernel, cores: cores not in kernel.made_for and bool(ends & {*kernel.made_for}),
        )

    def _wanted(self, counts: Sequence[int], holds: Callable[[Kernel, int], bool]) -> list[Wanted]:
        return [
            Wanted(task=number, key=kernel.key, cores=cores)
            for number, task in enumerate(self.tasks)
            for cores in counts
            for kernel in task.kernels
            if holds(kernel, cores)
        ]


def library_of(folder: Path, task: int) -> Path:
    """The library with the kernels of a task, by its number."""
    return folder / f"{task}.so"
