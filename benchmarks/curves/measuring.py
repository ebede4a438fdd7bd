"""Measuring what is in a folder on a machine with many cores, until time is up."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from card.archive import lines
from curves.archive import DISTANCE, Archive, Wanted
from tilewright.core.codec import to_builtins
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Protocol

_KERNEL_S = 30.0
_BLOCK = 16
"""Tasks that are timed on one number of cores before the next number has its turn."""
_COPIES = 5
_MOST_CHECKED_FLOP, _MOST_CHECKED_BYTES = 2e8, 32 << 20
_PAIRED_S = 5e-5
"""What a kernel takes at least that is measured beside another one."""

Line = dict[str, Any]


@dataclass(kw_only=True)
class Measuring:
    """Children that run kernels, one for each number of cores, and the results so far, in a file
    of lines. What is there is not measured again, and nothing begins after the deadline."""

    folder: Path
    out: Path
    archive: Archive
    cpus: tuple[int, ...]
    protocol: Protocol
    deadline_s: float
    children: dict[int, Child]
    _begun: set[tuple[Child, int | None]] = field(default_factory=set[tuple[Child, int | None]])
    _restless: set[int] = field(default_factory=set[int])
    _done: dict[str, Line] = field(default_factory=dict[str, Line])

    def __post_init__(self) -> None:
        if self.out.exists():
            self._done = {line["name"]: line for line in lines(self.out)}

    @property
    def counts(self) -> list[int]:
        """The numbers of cores, increasing."""
        return sorted(self.children)

    @property
    def told(self) -> str:
        """How much there is of what, and how much of it failed."""
        parts = Counter(line["part"] for line in self._done.values())
        failed = sum("failure" in line for line in self._done.values())
        return ", ".join(f"{part}: {count}" for part, count in parts.items()) + f"; {failed} failed"

    @property
    def late(self) -> bool:
        """Whether nothing new may begin."""
        return time.monotonic() > self.deadline_s

    def once(self, name: str, line: Line, measure: Callable[[], Line]) -> Line | None:
        """Measure and write it down under a name that it is known by, unless that is there or it
        is late; what there is."""
        if name not in self._done and not self.late:
            began_s = time.monotonic()
            try:
                found = measure()
            except (ChildError, RemoteError) as error:
                found = {"failure": type(error).__name__, "message": str(error)[:500]}
            wall_s = time.monotonic() - began_s
            self._done[name] = {"name": name, **line, **found, "wall_s": wall_s}
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._done[name]) + "\n")
        return self._done.get(name)

    def ask(self, child: Child, cpus: Sequence[int], *request: Any) -> Any:
        """A child's answer. One that is new gets its pool of threads first; all start at once."""
        if not self._begun:
            for each in self.children.values():
                each.launch()
        if (child, child.pid) not in self._begun or child.pid is None:
            child.request(("begin", str(self.folder), cpus), _KERNEL_S)
            self._begun.add((child, child.pid))
        return child.request(request, _KERNEL_S)

    def on(self, cores: int, *request: Any) -> Any:
        """The answer of the child with so many cores."""
        self._restless.add(cores)
        return self.ask(self.children[cores], self.cpus[:cores], *request)

    def rest(self, cores: int) -> None:
        """Wait until the child with so many cores leaves them to others, if it did anything."""
        if cores in self._restless and not self.late:
            self.on(cores, "rest")
            self._restless.discard(cores)

    # -------------------------------------------------------------------------------- the machine

    def copies(self, sizes: Iterable[int]) -> None:
        """Copies between two places in memory, and the least that a parallel kernel takes."""
        for cores in self.counts:
            for size in sizes:
                self.once(
                    f"copy {size} {cores}",
                    {"part": "copy", "cores": cores, "bytes": size},
                    lambda cores=cores, size=size: {
                        "samples_s": self.on(cores, "copying", size, _COPIES)
                    },
                )
            self.once(
                f"launch {cores}",
                {"part": "launch", "cores": cores},
                lambda cores=cores: {"launch_s": self.on(cores, "launching")},
            )
            self.rest(cores)

    def hand_overs(self) -> None:
        """From the first CPU to the next one, to the one in the middle, and to the last."""
        most = self.counts[-1]
        for other in sorted({each for each in (1, most // 2, most - 1) if 0 < each < most}):
            pair = (self.cpus[0], self.cpus[other])
            self.once(
                f"hand over {pair}",
                {"part": "hand over", "cpus": pair},
                lambda pair=pair: {
                    "event_s": self.on(most, "handing_over", pair),
                    "round_trip_s": self._round_trip_s(pair),
                },
            )

    def _round_trip_s(self, pair: tuple[int, int]) -> float:
        """Of a cache line, between two threads that wait by reading it."""
        asked = [str(self.folder / DISTANCE), *map(str, pair)]
        found = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=_KERNEL_S)  # noqa: S603
        return float(found.stdout) / 1e9

    # ---------------------------------------------------------------------------------- kernels

    def checks(self) -> None:
        """The cheapest kernel of each family and implementation against numpy, on the fewest and on
        the most cores."""
        cheapest: dict[tuple[str, str], tuple[float, Wanted]] = {}
        for wanted in self.archive.own(self.archive.counts):
            task = self.archive.tasks[wanted.task]
            work, size = task.workload.flop, task.workload.bytes
            kind = (task.family, task.kernel(wanted.key).candidate.implementation)
            small = work <= _MOST_CHECKED_FLOP and size <= _MOST_CHECKED_BYTES
            if small and (kind not in cheapest or work + size < cheapest[kind][0]):
                cheapest[kind] = (work + size, wanted)
        for kind, (_, wanted) in cheapest.items():
            for cores in {self.counts[0], self.counts[-1]}:
                self.once(
                    f"check {kind} {cores}",
                    {"part": "check", "kind": kind, "cores": cores, "kernel": wanted.key},
                    lambda cores=cores, wanted=wanted: self.on(
                        cores, "check", str(self.folder), wanted
                    ),
                )

    def times(self, wanted: Sequence[Wanted], turn: int) -> None:
        """Time kernels: some tasks on each number of cores in turn, then the next tasks."""
        for _, block in groupby(wanted, key=lambda each: each.task // _BLOCK):
            for cores, same in groupby(
                sorted(block, key=lambda each: each.cores), key=lambda each: each.cores
            ):
                for each in same:
                    self.timed(each, turn)
                self.rest(cores)

    def timed(self, wanted: Wanted, turn: int) -> Line | None:
        """The time of a kernel."""
        return self.once(
            f"time {wanted.task} {wanted.key} {wanted.cores} {turn}",
            {"part": "time", "turn": turn, **to_builtins(wanted)},
            lambda: self.on(wanted.cores, "time", str(self.folder), wanted, self.protocol),
        )

    # ------------------------------------------------------------------ kernels beside each other

    def pairs(self, count: int) -> None:
        """Kernels of random tasks on one half of the cores, alone and beside another one on the
        other half, and the other one beside them."""
        half = self.counts[-1] // 2
        others = self.cpus[half : 2 * half]
        with Child("curves.worker", cpus=others) as other:
            sides = ((self.children[half], self.cpus[:half]), (other, others))
            for number, pair in enumerate(self._drawn_pairs(half, count)):
                self.once(
                    f"pair {number}",
                    {"part": "pair", "cores": half, "wanted": to_builtins(pair)},
                    lambda pair=pair: self._beside(sides, pair),
                )

    def _drawn_pairs(self, half: int, count: int) -> Iterator[tuple[Wanted, Wanted]]:
        slow = [
            wanted
            for wanted in self.archive.own([half])
            if median(self._done_samples(wanted)) >= _PAIRED_S
        ]
        order = np.random.default_rng(0).permutation(len(slow)).tolist()[: 2 * count]
        for first, second in zip(order[::2], order[1::2], strict=False):
            yield slow[first], slow[second]

    def _done_samples(self, wanted: Wanted) -> Sequence[float]:
        name = f"time {wanted.task} {wanted.key} {wanted.cores} 0"
        return self._done.get(name, {}).get("samples_s", (0.0,))

    def _beside(
        self, sides: Sequence[tuple[Child, tuple[int, ...]]], pair: Sequence[Wanted]
    ) -> Line:
        alone_s: list[list[float]] = []
        beside_s: list[list[float]] = []
        folder = str(self.folder)
        for (child, cpus), own in zip(sides, pair, strict=True):
            found = self.ask(child, cpus, "time", folder, own, self.protocol)
            alone_s.append(found["samples_s"])
            self.ask(child, cpus, "rest")
        for mine in range(2):
            (child, cpus), (partner, others) = sides[mine], sides[1 - mine]
            with TemporaryDirectory() as place, ThreadPoolExecutor(1) as pool:
                flag, started = Path(place) / "running", Path(place) / "started"
                flag.touch()
                asked = ("keep_running", folder, pair[1 - mine], self.protocol)
                running = pool.submit(self.ask, partner, others, *asked, str(flag), str(started))
                while not started.exists() and not running.done():
                    time.sleep(1e-3)
                try:
                    found = self.ask(child, cpus, "time", folder, pair[mine], self.protocol)
                finally:
                    flag.unlink()
                running.result()
            beside_s.append(found["samples_s"])
        return {"alone_s": alone_s, "beside_s": beside_s}
