"""From results of `core_curves.py` to the curves that come with the package, and how far these are
off for operators and networks that they have not seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from card.archive import lines
from curves.archive import CurveTask
from pages import table
from tilewright.core.codec import convert
from tilewright.core.targets import Target
from tilewright.cost.enough_cores import enough_cores
from tilewright.hardware.device import local_placement
from tilewright.plan.scheduling.planners.threads import GAINS
from tilewright.predict.base import Floats, folds_of
from tilewright.predict.collected import Row, kernels_of
from tilewright.predict.core_curves import CoreCurves, CurveTable
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.timed_on_cores import FILE, TimedOnCores, learnt, write_timed

_FOLDS = 10


def timed(path: Path) -> tuple[list[TimedOnCores], list[str]]:
    """The kernels that were timed on as many cores as they are made for, and the networks that they
    are from; operators drawn at random count as one network."""
    tasks: dict[int, CurveTask] = {}
    machine, l2_bytes, rows, sources = 0, 0, list[TimedOnCores](), list[str]()
    samples_s: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    for line in lines(path):
        if line["part"] == "machine":
            machine, l2_bytes = len(line["cpus"]), line["cache_bytes"][1]
        elif line["part"] == "task":
            tasks[line["task"]] = convert(line, CurveTask)
        elif line["part"] == "time" and "samples_s" in line:
            samples_s[line["task"], line["key"], line["cores"]] += line["samples_s"]
    own_s = {
        (task, key, cores): median(found)
        for (task, key, cores), found in samples_s.items()
        if cores in tasks[task].kernel(key).made_for
    }
    alone_s = {task: time_s for (task, _, cores), time_s in own_s.items() if cores == 1}
    for (number, key, cores), time_s in own_s.items():
        task = tasks[number]
        if cores == 1 or number not in alone_s:
            continue
        row = Row(workload=task.workload, candidate=task.kernel(key).candidate, latency_s=time_s)
        rows.append(
            TimedOnCores(
                row=row,
                cores=cores,
                machine=machine,
                l2_bytes=l2_bytes,
                alone_s=alone_s[number],
            )
        )
        sources.append(task.source if task.source.startswith("zoo:") else "op")
    return rows, sources


def fit(paths: Sequence[Path]) -> None:
    """Write what the package learns its curves from."""
    write_timed(FILE, [row for path in paths for row in timed(path)[0]])


def judged(paths: Sequence[Path]) -> Iterator[str]:
    """How far times on several cores are off, told from the time on one."""
    every = [timed(path) for path in paths]
    target = local_placement().target
    for path, (rows, sources) in zip(paths, every, strict=True):
        keys = [one.row.workload.key for one in rows]
        inner = np.unique(keys, return_inverse=True)[1].ravel().astype(np.int64)
        folds = folds_of(inner, _FOLDS, seed=0)
        for title, groups in (("operators", folds), ("networks", np.array(sources))):
            told = [row for part, _ in every for row in part]
            said, reach = _left_out(told, rows, groups, target)
            yield f"\n### {path.name}, {title} left out\n"
            yield from _errors(rows, said, reach)
            yield from _turning_points(rows, said)


def _left_out(
    every: Sequence[TimedOnCores],
    rows: Sequence[TimedOnCores],
    groups: npt.NDArray[Any],
    target: Target,
) -> tuple[Floats, Floats]:
    """Seconds of each row by a model that has seen none of the operators of its group, on whatever
    machine, and how far it says that 90 % of such lie from the truth at most, in the logarithm."""
    said, reach = np.zeros(len(rows)), np.zeros(len(rows))
    for group in np.unique(groups):
        hidden = np.flatnonzero(groups == group)
        keys = {rows[n].row.workload.key for n in hidden.tolist()}
        model = learnt([one for one in every if one.row.workload.key not in keys], target)
        said[hidden], reach[hidden] = _carried([rows[n] for n in hidden.tolist()], model, target)
    return said, reach


def _carried(
    rows: Sequence[TimedOnCores], model: FamilyModel, target: Target
) -> tuple[Floats, Floats]:
    said, reach = np.zeros(len(rows)), np.zeros(len(rows))
    counts = np.array([one.cores for one in rows])
    for cores in np.unique(counts).tolist():
        mine = np.flatnonzero(counts == cores)
        asked = [rows[n] for n in mine.tolist()]
        here = asked[0].on(target)
        facts = CurveTable(kernels=kernels_of([one.row for one in asked]), target=here)
        alone_s = np.array([one.alone_s for one in asked])
        curves = CoreCurves(table=facts, model=model)
        said[mine] = curves.carried_s(alone_s, 1, (cores,))[cores]
        reach[mine] = curves.reach(1, cores)
    return said, reach


def _errors(rows: Sequence[TimedOnCores], said: Floats, reach: Floats) -> Iterator[str]:
    cores = np.array([one.cores for one in rows])
    logs = np.log(said / np.array([one.row.latency_s for one in rows]))
    parts = [*((str(n), cores == n) for n in np.unique(cores)), ("all", cores > 0)]
    told = [
        [name, str(int(which.sum())), _share(logs[which], np.mean), _share(logs[which], np.median)]
        + [f"{np.quantile(np.abs(logs[which]), 0.9):.2f}", f"{reach[which].mean():.2f}"]
        + [f"{100 * np.mean(np.abs(logs[which]) <= reach[which]):.0f} %"]
        for name, which in parts
    ]
    header = ["cores", "kernels", "mean error", "median", "90 % within (log)", "told", "held"]
    yield table(header, told)


def _turning_points(rows: Sequence[TimedOnCores], said: Floats) -> Iterator[str]:
    """By how many of the numbers of cores that were measured the fewest that suffice are off, and
    what they take over what those take that really suffice."""
    measured: dict[str, dict[int, float]] = defaultdict(dict)
    foreseen: dict[str, dict[int, float]] = defaultdict(dict)
    for one, said_s in zip(rows, said.tolist(), strict=True):
        key = one.row.workload.key
        measured[key] |= {1: one.alone_s, one.cores: one.row.latency_s}
        foreseen[key] |= {1: one.alone_s, one.cores: said_s}
    told: list[list[str]] = []
    for gain in GAINS:
        steps: list[int] = []
        over: list[float] = []
        for key, times in measured.items():
            found, wanted = enough_cores(foreseen[key], gain), enough_cores(times, gain)
            counts = sorted(times)
            steps.append(counts.index(found) - counts.index(wanted))
            over.append(times[found] / min(times.values()))
        share = [f"{np.mean([abs(each) <= most for each in steps]):.0%}" for most in (0, 1)]
        told.append([f"{gain:.0%}", str(len(steps)), *share, f"{np.mean(steps):+.1f}"])
        told[-1].append(f"{median(over):.2f}")
    header = ["may take longer by", "kernels", "same number", "one step off at most", "mean steps"]
    yield "\n" + table([*header, "their time over the least"], told)


def _share(logs: Floats, of: Callable[[Floats], Any]) -> str:
    return f"{100 * float(of(np.abs(np.exp(logs) - 1))):.1f} %"
