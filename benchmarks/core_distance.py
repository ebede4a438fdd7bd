"""The time of a cache line from one core to another and back, which changes on virtual machines.

A host may move virtual CPUs between groups of cores that share a last-level cache. What one core
wrote then reaches the other through that cache or through the memory fabric. Kernels timed alone
hardly show it, because each core reads what it wrote itself; networks do, because every kernel
reads what all cores wrote.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

NEAR_NS = 200.0
"""Between both kinds: of 1,104 round trips, 501 took 50 to 100 ns and 312 took 350 to 400."""


def distance_meter(folder: Path) -> Callable[[], float]:
    """What measures the nanoseconds of a round trip between the first two CPUs, some milliseconds
    each time; its program is compiled into `folder`."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("A C compiler, cc, is needed to tell how far cores are from each other.")
    source, program = Path(__file__).with_suffix(".c"), folder / "core_distance"
    command = [compiler, "-O2", "-pthread", str(source), "-o", str(program)]
    subprocess.run(command, check=True)  # noqa: S603 - a source of our own
    cpus = sorted(os.sched_getaffinity(0))[:2]
    asked = [str(program), *map(str, cpus)]

    def distance() -> float:
        found = subprocess.run(asked, check=True, capture_output=True, text=True)  # noqa: S603
        return float(found.stdout)

    return distance
