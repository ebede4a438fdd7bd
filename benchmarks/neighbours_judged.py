"""How far predicted slowdowns of pairs are off whose kernels, both or one, were not learnt from.

Candidates for the predictor: none at all; `cost.contention` with the scale that the machine was
measured to have, and with the one that fits best; and trees over what is known of either kernel
alone (seconds, bytes and operations per second, bytes that it streams). A pair that was timed in
several turns has the rounds of all; pairs whose rounds differ by much are left out, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from pages import table
from tilewright.core.codec import convert
from tilewright.core.records import Candidate
from tilewright.core.targets import MemoryLevel, Target
from tilewright.cost.contention import CONTENTION, slowdown
from tilewright.graph.workload import parse_workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.estimates import kernel_stream, work_of
from tilewright.measure.pairs import PairTimes
from tilewright.predict.base import folds_of
from tilewright.predict.regressors import Forest

Floats = npt.NDArray[np.float64]
Memory = tuple[MemoryLevel, ...]
_FOLDS, _DEALS = 3, 8
_SCALES = np.geomspace(5e9, 5e11, 80)
_SHARED = 1.05
"""Pairs that slow one of the two down by more share something."""
_STEADY = 0.4
"""Pairs whose rounds differ by more, over their median, were disturbed."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """A row for each of the two kernels of each pair: who it is and who its partner, its slowdown,
    and what is known of both alone."""

    own: npt.NDArray[np.int64]
    partner: npt.NDArray[np.int64]
    slowdown: Floats
    halves: Floats
    rates: Floats
    facts: Floats
    scale: float | None
    disturbed: int


def pairs_of(found: Sequence[Mapping[str, Any]]) -> Pairs:
    """The pairs in the lines of files. `halves` are the slowdowns of every other round, `scale` is
    the median of those that were measured, `disturbed` how many pairs are left out."""
    numbers: dict[str, int] = {}
    rows: list[tuple[Any, ...]] = []
    turns = _together(found)
    steady = [line for line in turns if _spread(line) <= _STEADY]
    scales = [line[CONTENTION] for line in found if line.get(CONTENTION)]
    (memory,) = {convert(line["memory"], Memory) for line in found if "memory" in line}
    target = replace(local_placement(1).target, memory=memory)
    for line in steady:
        names = [numbers.setdefault(each["text"], len(numbers)) for each in line["kernels"]]
        told = [
            _told(each, alone, target)
            for each, alone in zip(line["kernels"], line["alone_s"], strict=True)
        ]
        for side, other in ((0, 1), (1, 0)):
            ratios = [
                b / a for a, b in zip(line["alone_s"][side], line["beside_s"][side], strict=True)
            ]
            halves = median(ratios[::2]), median(ratios[1::2])
            facts = (*told[side], *told[other])
            rows.append((names[side], names[other], median(ratios), halves, facts))
    facts = np.array([row[4] for row in rows])
    width = facts.shape[1] // 2
    return Pairs(
        own=np.array([row[0] for row in rows]),
        partner=np.array([row[1] for row in rows]),
        slowdown=np.array([row[2] for row in rows]),
        halves=np.array([row[3] for row in rows]),
        rates=facts[:, [0, width]],
        facts=np.log2(facts + 1.0),
        scale=median(scales) if scales else None,
        disturbed=len(turns) - len(steady),
    )


def _together(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line for each pair, with the rounds of all turns in which it was timed."""
    together: dict[tuple[int, ...], dict[str, Any]] = {}
    for line in found:
        if "alone_s" in line:
            seen = together.setdefault(
                tuple(line["pair"]),
                {"kernels": line["kernels"], "alone_s": ([], []), "beside_s": ([], [])},
            )
            for name in ("alone_s", "beside_s"):
                for side in (0, 1):
                    seen[name][side].extend(line[name][side])
    return list(together.values())


def _spread(line: Mapping[str, Any]) -> float:
    first, second = line["alone_s"]
    one, other = line["beside_s"]
    return PairTimes(
        alone_s=(tuple(first), tuple(second)), beside_s=(tuple(one), tuple(other))
    ).spread


def _told(kernel: Mapping[str, Any], alone_s: Sequence[float], target: Target) -> tuple[float, ...]:
    """Of a kernel: streamed bytes per second, then other numbers that may tell something."""
    workload, candidate = parse_workload(kernel["text"]), convert(kernel["candidate"], Candidate)
    time_s = median(alone_s)
    work = work_of(workload, candidate.implementation, target)
    streamed = kernel_stream(workload, candidate, target, 1)
    return (
        streamed / time_s,
        float(work.memory_bytes) / time_s,
        float(work.cache_bytes) / time_s,
        float(work.flop) / time_s,
        1e9 * time_s,
        streamed,
    )


Learnt = Callable[[Floats, Floats], Floats]
"""Slowdowns by rates and facts."""


def _nothing(_pairs: Pairs, _rows: npt.NDArray[np.bool_]) -> Learnt:
    return lambda rates, _facts: np.ones(len(rates))


def best_scale(pairs: Pairs, rows: npt.NDArray[np.bool_]) -> float:
    """The constant of `cost.contention` with the least mean relative error."""
    own, others = pairs.rates[rows].T
    errors = [np.mean(_off(slowdown(own, others, s), pairs.slowdown[rows])) for s in _SCALES]
    return float(_SCALES[int(np.argmin(errors))])


def _by_bandwidth(pairs: Pairs, rows: npt.NDArray[np.bool_]) -> Learnt:
    scale = best_scale(pairs, rows)
    return lambda rates, _facts: np.asarray(slowdown(rates[:, 0], rates[:, 1], scale))


def _as_measured(pairs: Pairs, _rows: npt.NDArray[np.bool_]) -> Learnt:
    """By the scale that was measured with kernels of its own: learns from none of these."""
    scale = pairs.scale or inf
    return lambda rates, _facts: np.asarray(slowdown(rates[:, 0], rates[:, 1], scale))


def _by_trees(pairs: Pairs, rows: npt.NDArray[np.bool_]) -> Learnt:
    fitted = Forest().fit(pairs.facts[rows], np.log(pairs.slowdown[rows]), 0)
    return lambda _rates, facts: np.exp(fitted.forest.predict(facts))


_WAYS = {
    "no slowdown": _nothing,
    "the formula, scale measured": _as_measured,
    "the formula, scale fitted": _by_bandwidth,
    "trees": _by_trees,
}


def _off(said: Any, true: Floats) -> Floats:
    return np.abs(np.asarray(said) / true - 1.0)


def judged(found: Sequence[Mapping[str, Any]]) -> str:
    """Tables of errors, of all pairs and of those that share something."""
    pairs = pairs_of(found)
    noise = _off(pairs.halves[:, 0], pairs.halves[:, 1])
    quantiles = np.quantile(pairs.slowdown, [0.05, 0.5, 0.95])
    everything = np.ones(len(pairs.own), np.bool_)
    told = [
        f"{len(pairs.own) // 2} pairs of {int(pairs.own.max()) + 1} kernels, "
        f"{pairs.disturbed} disturbed ones left out",
        f"slowdowns: {', '.join(f'{q:.3f}' for q in quantiles)} (5, 50, 95 %)",
        f"halves of the rounds differ by {100 * noise.mean():.1f} % (mean), "
        f"{100 * np.median(noise):.1f} % (median)",
        f"best scale: {best_scale(pairs, everything) / 1e9:.1f} GB/s; "
        f"measured: {'–' if pairs.scale is None else f'{pairs.scale / 1e9:.1f} GB/s'}",
        "",
    ]
    rows = [
        [unseen, who, name, f"{len(errors)}", *_shown(errors)]
        for unseen in ("both", "one")
        for name, of in _errors(pairs, unseen).items()
        for who, errors in of.items()
    ]
    header = ["unseen", "pairs", "predictor", "rows", "mean", "median", "90 %"]
    return "\n".join([*told, table(header, rows)])


def _shown(errors: Floats) -> list[str]:
    if not len(errors):
        return ["–"] * 3
    values = (errors.mean(), np.median(errors), np.quantile(errors, 0.9))
    return [f"{100 * value:.1f} %" for value in values]


def _errors(pairs: Pairs, unseen: str) -> dict[str, dict[str, Floats]]:
    """By predictor, the errors of all rows and of those that share something."""
    ways = {name: way for name, way in _WAYS.items() if pairs.scale or way is not _as_measured}
    parts: dict[str, list[tuple[Floats, npt.NDArray[np.bool_]]]] = {name: [] for name in ways}
    for learnt, asked in _splits(pairs, unseen):
        true = pairs.slowdown[asked]
        for name, way in ways.items():
            said = way(pairs, learnt)(pairs.rates[asked], pairs.facts[asked])
            parts[name].append((_off(said, true), true > _SHARED))
    return {
        name: {
            "all": np.concatenate([errors for errors, _ in each]),
            "that share": np.concatenate([errors[sharing] for errors, sharing in each]),
        }
        for name, each in parts.items()
    }


def _splits(
    pairs: Pairs, unseen: str
) -> Iterator[tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """Rows that are learnt from, and rows that are asked for: kernels are dealt into folds, again
    and again; nothing is learnt from a pair that has a kernel of the fold."""
    for deal in range(_DEALS):
        folds = folds_of(np.arange(int(pairs.own.max()) + 1), _FOLDS, deal)
        for fold in range(_FOLDS):
            own, partner = folds[pairs.own] == fold, folds[pairs.partner] == fold
            asked = own & partner if unseen == "both" else own ^ partner
            if asked.any():
                yield ~own & ~partner, asked
