"""Tables of what `many_cores.py` measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from curves.wishes import wish_of
from pages import table
from tilewright.core.events import discard
from tilewright.core.records import Placement
from tilewright.core.schedules import PLAN_FILE
from tilewright.cost.enough_cores import OnCores, enough_cores
from tilewright.hardware.device import local_placement
from tilewright.kernels.estimates import kernel_stream
from tilewright.plan.scheduling.plan_file import read_plan
from tilewright.plan.scheduling.planners.threads import GAINS
from tilewright.predict.core_counts import core_forecaster
from tilewright.predict.enough_cores_told import told_on_cores
from tilewright.predict.modelling import Predictors
from tilewright.store import open_store

Line = dict[str, Any]
NEIGHBOUR = "op:add[shape=1x64x512x512]"
"""What runs beside operators, on one core each."""
_FAST = 0.1


def report(lines: Sequence[Line]) -> Iterator[str]:
    """Networks, then operators."""
    for line in (line for line in lines if "failure" in line):
        yield f"failed: {', '.join(f'{k} {v}' for k, v in line.items() if k != 'at_s')}"
    yield networks(lines)
    yield ""
    yield operators(lines)
    yield ""
    rows = turning_points(lines)
    yield turning_points_table(rows)
    yield ""
    yield within_one_step(rows)


def networks(lines: Sequence[Line]) -> str:
    """What each way to run a network takes, beside all cores for each call and beside the best one
    number of cores, what its fastest tenth takes, and what the plan takes in thought."""
    taken: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    every: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for line in _of("time", lines):
        taken[line["network"], line["way"], line["cores"]].append(median(line["samples_s"]))
        every[line["network"], line["way"], line["cores"]] += line["samples_s"]
    fast = {ran: float(np.quantile(samples, _FAST)) for ran, samples in every.items()}
    thought = {
        (line["network"], line["way"]): line["simulated_s"] for line in _of("simulated", lines)
    }
    same = {(line["network"], line["way"]): line for line in _of("same", lines)}
    about = {(e["network"], e["way"]): e["told"] for e in _of("begun", lines) if "network" in e}
    rows: list[list[str]] = []
    for name in dict.fromkeys(network for network, _, _ in taken):
        most = max(cores for network, _, cores in taken if network == name)
        in_turn = {
            cores: median(each)
            for (network, way, cores), each in taken.items()
            if (network, way) == (name, "sequence")
        }
        for (network, way, cores), rounds in taken.items():
            if network != name:
                continue
            told, found_s = about.get((name, way), {}), median(rounds)
            row = [name, way if way != "sequence" else f"in turn on {cores}", _ms(rounds)]
            row.append(f"{in_turn[most] / found_s:.2f}" if most in in_turn else "")
            row.append(f"{min(in_turn.values()) / found_s:.2f}" if in_turn else "")
            fast_s, beside = fast[name, way, cores], fast.get((name, "sequence", most))
            row += [_ms([fast_s]), f"{beside / fast_s:.2f}" if beside else ""]
            if way == "sequence":
                rows.append([*row, "", "", ""])
                continue
            thought_s = thought.get((name, way))
            row += (
                ["", ""] if thought_s is None else [_ms([thought_s]), f"{thought_s / found_s:.2f}"]
            )
            check = same.get((name, way), {"bit_for_bit": False, "error": float("nan")})
            equal = "the same bits" if check["bit_for_bit"] else f"{check['error']:.0e}"
            rows.append(
                [*row, f"{told.get('wide', 0)} stages, {told.get('lanes', 1)} lanes; {equal}"]
            )
    return table(
        ["network", "way", "ms", "over all cores", "over best", "fastest tenth", "over all cores",
         "simulated", "/ run", "what"],
        rows,
    )  # fmt: skip


def predicted(lines: Sequence[Line], plan_of: Callable[[str], Path]) -> str:
    """What networks take in turn on so many cores beside the sum of their calls as predicted for
    plans, which are in the folders that `plan_of` tells: the fastest tenth over that sum."""
    every: dict[tuple[str, int], list[float]] = defaultdict(list)
    for line in (line for line in _of("time", lines) if line["way"] == "sequence"):
        every[line["network"], line["cores"]] += line["samples_s"]
    names = dict.fromkeys(name for name, _ in every)
    counts = sorted({cores for _, cores in every})
    rows: list[list[str]] = []
    for name in (name for name in names if (plan_of(name) / PLAN_FILE).exists()):
        sums_s: dict[int, float] = defaultdict(float)
        for call in read_plan(plan_of(name)).problem.calls:
            for mode in call.modes:
                sums_s[mode.cores] += mode.latency_s
        pairs = [(sums_s[c], float(np.quantile(every[name, c], _FAST))) for c in counts]
        rows.append([name, *(f"{1e3 * a:.2f}, {1e3 * b:.2f} ({b / a:.2f})" for a, b in pairs)])
    return table(["network", *(f"{cores}: predicted, run" for cores in counts)], rows)


def operators(lines: Sequence[Line]) -> str:
    """Milliseconds of each operator by cores and neighbours."""
    points = grid(lines)
    counts = sorted({cores for _, cores, _ in points})
    rows = [
        [
            f"`{text}`",
            str(beside),
            *(
                f"{1e3 * points[text, c, beside]:.3f}" if (text, c, beside) in points else ""
                for c in counts
            ),
        ]
        for text in dict.fromkeys(text for text, _, _ in points)
        for beside in sorted({b for t, _, b in points if t == text})
    ]
    return table(["operator", "neighbours", *(f"{cores} cores" for cores in counts)], rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurningPoints:
    """The fewest cores that suffice for an operator beside so many neighbours, (measured, told from
    the time on one core with nobody beside it) for each of GAINS, and the most steps between."""

    operator: str
    beside: int
    cores: Sequence[tuple[int, int]]
    steps: int


def turning_points(lines: Sequence[Line]) -> list[TurningPoints]:
    """Those of each operator beside each number of neighbours."""
    points = grid(lines)
    cores = next(len(line["cpus"]) for line in lines if line["part"] == "machine")
    here = local_placement()
    device = replace(here.device, target=replace(here.target, cores=cores))
    placement = replace(here, device=device)
    counts = sorted({cores for _, cores, _ in points})
    texts = list(dict.fromkeys(text for text, _, _ in points))
    with open_store("memory:") as store:
        predictors = core_forecaster(placement, store, discard).forecaster.predictors
        foreseen = _foreseen(texts, points, counts, predictors)
    rates = _streamed_by_neighbours(lines, predictors.placement)
    rows: list[TurningPoints] = []
    for text, beside in ((t, b) for t in texts for b in sorted({b for _, _, b in points})):
        there = {c: points[text, c, beside] for c in counts if (text, c, beside) in points}
        if len(there) < 2:
            continue
        known = foreseen[text].only(there)
        found = [(enough_cores(there, g), known.enough(rates.get(beside, 0.0), g)) for g in GAINS]
        steps = [sorted(there).index(told) - sorted(there).index(real) for real, told in found]
        most = max(map(abs, steps))
        rows.append(TurningPoints(operator=text, beside=beside, cores=found, steps=most))
    return rows


def turning_points_table(rows: Iterable[TurningPoints]) -> str:
    """A row for each."""
    cells = [
        [f"`{e.operator}`", str(e.beside), *(f"{m}, {t}" for m, t in e.cores), str(e.steps)]
        for e in rows
    ]
    gains = [f"{gain:.0%} longer: measured, told" for gain in GAINS]
    return table(["operator", "neighbours", *gains, "steps off"], cells)


def within_one_step(rows: Sequence[TurningPoints]) -> str:
    """How many operators are told within one step beside each number of neighbours."""
    counts = sorted({each.beside for each in rows})
    kept = [sum(each.steps <= 1 for each in rows if each.beside == count) for count in counts]
    never = {each.operator for each in rows} - {e.operator for e in rows if e.steps > 1}
    head = ["neighbours", *map(str, counts), "all of these"]
    return table(head, [["operators within one step", *map(str, kept), str(len(never))]])


def _foreseen(
    texts: Sequence[str],
    points: Mapping[tuple[str, int, int], float],
    counts: Sequence[int],
    predictors: Predictors,
) -> dict[str, OnCores]:
    """Each operator alone on each number of cores, from its time on one."""
    asked = [text for text in texts if (text, 1, 0) in points]
    wishes = [wish_of(text, predictors.placement, (1,)) for text in asked]
    kernels = [(wish.workload, wish.candidates[1]) for wish in wishes]
    alone_s = [points[text, 1, 0] for text in asked]
    return dict(zip(asked, told_on_cores(kernels, alone_s, counts, predictors), strict=True))


def _streamed_by_neighbours(lines: Iterable[Line], placement: Placement) -> dict[int, float]:
    """Bytes per second of so many neighbours together, the median of the turns."""
    rates: dict[int, list[float]] = defaultdict(list)
    for line in _of("neighbours", lines):
        rates[line["beside"]].append(sum(line["calls_per_s"]))
    wish = wish_of(NEIGHBOUR, placement, (1,))
    each = kernel_stream(wish.workload, wish.candidates[1], placement.target, 1)
    return {beside: each * median(found) for beside, found in rates.items()}


def grid(lines: Iterable[Line]) -> dict[tuple[str, int, int], float]:
    """Median seconds by operator, cores and neighbours, over all turns."""
    samples: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for line in _of("grid", lines):
        samples[line["operator"], line["cores"], line["beside"]] += line["samples_s"]
    return {point: median(each) for point, each in samples.items()}


def _of(part: str, lines: Iterable[Line]) -> Iterator[Line]:
    return (line for line in lines if line["part"] == part and "failure" not in line)


def _ms(rounds: Sequence[float]) -> str:
    if len(rounds) < 2:
        return f"{1e3 * rounds[0]:.2f}"
    low, _, high = quantiles(rounds, n=4, method="inclusive")
    return f"{1e3 * median(rounds):.2f} ({1e3 * low:.2f} to {1e3 * high:.2f})"
