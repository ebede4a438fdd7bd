"""What results of `core_curves.py` say: rows for those who model them, and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from card.archive import lines
from curves.archive import CurveTask
from pages import table
from tilewright.core.codec import convert
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload

Line = dict[str, Any]
SPEED_UPS = (2, 4, 8, 16)
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class CurveRow:
    """A kernel on a number of cores: seconds per call of each sample, in all turns. It is the
    default candidate of the workload for the numbers of cores `made_for`. `source` is the network
    or the operator that the workload is from."""

    workload: Workload
    candidate: Candidate
    cores: int
    samples_s: tuple[float, ...]
    made_for: tuple[int, ...]
    family: str
    source: str

    @property
    def latency_s(self) -> float:
        """Median seconds per call."""
        return median(self.samples_s)

    @property
    def own(self) -> bool:
        """Whether the kernel is made for as many cores."""
        return self.cores in self.made_for


def curve_rows(path: Path) -> list[CurveRow]:
    """The rows in a file of results, which may be packed (.xz)."""
    return _rows(list(lines(path)))


def _rows(results: Sequence[Line]) -> list[CurveRow]:
    tasks = {line["task"]: convert(line, CurveTask) for line in results if line["part"] == "task"}
    samples_s: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    for line in results:
        if line["part"] == "time" and "samples_s" in line:
            samples_s[line["task"], line["key"], line["cores"]] += line["samples_s"]
    found: list[CurveRow] = []
    for (number, key, cores), own_s in samples_s.items():
        task = tasks[number]
        kernel = task.kernel(key)
        found.append(
            CurveRow(
                workload=task.workload,
                candidate=kernel.candidate,
                cores=cores,
                samples_s=tuple(own_s),
                made_for=kernel.made_for,
                family=task.family,
                source=task.source,
            )
        )
    return found


def report(results: Sequence[Line]) -> Iterator[str]:
    """Tables of all that is there."""
    for line in (line for line in results if line["part"] == "machine"):
        yield f"Measured on: {line['model']}, {len(line['cpus'])} CPUs"
    failures = [line for line in results if "failure" in line]
    yield f"\n{len(results)} results, {len(failures)} failures"
    rows = _rows(results)
    yield "\n### Times one core takes of what several take, each with its own kernel\n"
    yield from _speed_ups(_curves([row for row in rows if row.own]))
    yield "\n### The same with the kernel that is made for all cores\n"
    most = max((cores for row in rows for cores in row.made_for), default=0)
    yield from _speed_ups(_curves([row for row in rows if most in row.made_for]))
    yield "\n### Kernels made for other numbers of cores: their time over that of the own kernel\n"
    yield from _foreign(rows)
    yield "\n### The machine\n"
    yield from _machine(results)
    yield "\n### Kernels beside each other: time beside the other over time alone\n"
    yield from _pairs(results)
    yield "\n### Checks against numpy\n"
    checked = [line for line in results if line["part"] == "check"]
    wrong = [line for line in checked if not line.get("error", 1e9) <= line.get("bound", 0.0)]
    yield f"{len(checked)} kernels, {len(wrong)} wrong: {[line['kind'] for line in wrong]}"


Curve = dict[int, float]


def _curves(rows: Sequence[CurveRow]) -> dict[tuple[str, str], Curve]:
    """Family and workload, and times by the number of cores; rows have one kernel for each."""
    found: dict[tuple[str, str], Curve] = defaultdict(dict)
    for row in rows:
        found[row.family, row.workload.key][row.cores] = row.latency_s
    return found


def _speed_ups(curves: dict[tuple[str, str], Curve]) -> Iterator[str]:
    families = [*sorted({family for family, _ in curves}), ALL]
    told: list[list[str]] = []
    for family in families:
        own = [curve for (name, _), curve in curves.items() if family in (name, ALL)]
        gains = [[c[1] / c[cores] for c in own if {1, cores} <= c.keys()] for cores in SPEED_UPS]
        told.append([family, str(len(own)), *map(_middle, gains)])
    yield table(["family", "tasks", *(f"{cores} cores" for cores in SPEED_UPS)], told)


def _middle(values: Sequence[float]) -> str:
    """The median, with the least and the greatest."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else ""


def _foreign(rows: Sequence[CurveRow]) -> Iterator[str]:
    own, counts = _curves([row for row in rows if row.own]), sorted({row.cores for row in rows})
    ratios: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in rows:
        usual_s = own[row.family, row.workload.key].get(row.cores)
        if usual_s is not None and not row.own:
            for made_for in row.made_for:
                ratios[made_for, row.cores].append(row.latency_s / usual_s)
    made = sorted({made_for for made_for, _ in ratios})
    ends = dict.fromkeys([*made[:1], *made[-1:]])
    told = [[str(one), *(_middle(ratios[one, cores]) for cores in counts)] for one in ends]
    yield table(["made for", *(f"on {cores}" for cores in counts)], told)


def _machine(results: Sequence[Line]) -> Iterator[str]:
    copies: dict[int, dict[int, float]] = defaultdict(dict)
    launches: dict[int, float] = {}
    for line in results:
        if line["part"] == "copy" and "samples_s" in line:
            copies[line["cores"]][line["bytes"]] = 2 * line["bytes"] / median(line["samples_s"])
        elif line["part"] == "launch" and "launch_s" in line:
            launches[line["cores"]] = line["launch_s"]
    sizes = sorted({size for found in copies.values() for size in found})
    told = [
        [str(cores), *(f"{copies[cores].get(size, 0) / 1e9:.1f}" for size in sizes)]
        + [f"{launches.get(cores, 0) * 1e6:.1f}"]
        for cores in sorted({*copies, *launches})
    ]
    header = ["cores", *(f"GB/s, copies of {size >> 20} MiB" for size in sizes), "launch in µs"]
    yield table(header, told)
    for line in results:
        if line["part"] == "hand over" and "event_s" in line:
            first, second = line["cpus"]
            yield (
                f"\nCPU {first} to {second}: {line['event_s'] * 1e6:.1f} µs by an event, "
                f"{line['round_trip_s'] * 1e9:.0f} ns a cache line there and back"
            )


def _pairs(results: Sequence[Line]) -> Iterator[str]:
    tasks = {line["task"]: convert(line, CurveTask) for line in results if line["part"] == "task"}
    told: list[list[str]] = []
    for line in results:
        if line["part"] == "pair" and "alone_s" in line:
            names = [tasks[each["task"]].workload.key for each in line["wanted"]]
            slowed = [
                median(beside) / median(alone)
                for alone, beside in zip(line["alone_s"], line["beside_s"], strict=True)
            ]
            told.append([*names, str(line["cores"]), *(f"{each:.2f}" for each in slowed)])
    yield table(["one", "other", "cores of each", "the one", "the other"], told)
