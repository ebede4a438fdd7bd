"""The tables of docs/benchmarks-predictors/other-measurements.md, from `predictors.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pages import replace_between, table

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
HEADER = (
    "predicted column", "device", "rows", "mean error", "median error", "90th percentile",
    "within 10 %", "rank correlation", "inside the 90 % interval",
)  # fmt: skip
Found = Mapping[str, Any]
Values = list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A goal of an evaluation, in words and as a number, and how it is read from the rows."""

    item: str
    words: str
    reached: Callable[[Found], float]
    bar: float
    at_least: bool = False
    percent: bool = True

    def met(self, value: float) -> bool:
        """Whether the bar is reached."""
        return value >= self.bar if self.at_least else value <= self.bar

    def shown(self, value: float) -> str:
        """The number as the table has it."""
        return f"{value:.1%}" if self.percent else f"{value:.3f}"


def _groups(found: Found, field: str, target: str = "") -> dict[str, Values]:
    values: dict[str, Values] = {}
    for run in found["runs"]:
        for row in run["rows"]:
            if row["group"] != "all" and (not target or row["target"] == target):
                values.setdefault(row["group"], []).append(row[field])
    return values


def _worst(field: str) -> Callable[[Found], float]:
    return lambda found: max(fmean(values) for values in _groups(found, field).values())


def _mean(field: str) -> Callable[[Found], float]:
    return lambda found: fmean(fmean(values) for values in _groups(found, field).values())


def _only(field: str, target: str) -> Callable[[Found], float]:
    def read(found: Found) -> float:
        rows = found["runs"][0]["rows"]
        return next(row[field] for row in rows if row["target"] == target)

    return read


def _regrets(found: Found) -> dict[str, Values]:
    values: dict[str, Values] = {}
    for run in found["runs"]:
        for pick in run["picks"]:
            values.setdefault(pick["group"], []).append(pick["regret"])
    return values


def _third_best_regret(found: Found) -> float:
    return sorted(median(values) for values in _regrets(found).values())[2]


def _bars() -> list[Bar]:
    bars = [
        Bar(
            item="conv2d",
            words="mean error on the worst GPU",
            reached=_worst("mape"),
            bar=0.08,
        )
    ]
    for family, zero, few in (
        ("linear", 0.25, 0.09),
        ("bmm", 0.25, 0.09),
        ("softmax", 0.25, 0.05),
        ("layer_norm", 0.15, 0.05),
    ):
        item = f"{family}-0-shots"
        bars += [
            Bar(
                item=item,
                words="mean error, averaged over the GPUs",
                reached=_mean("mape"),
                bar=zero,
            ),
            Bar(
                item=item,
                words="rank correlation, averaged over the GPUs",
                reached=_mean("spearman"),
                bar=0.95,
                at_least=True,
                percent=False,
            ),
            Bar(
                item=f"{family}-50-shots",
                words="mean error, averaged over the GPUs",
                reached=_mean("mape"),
                bar=few,
            ),
        ]
    knobs = "regret, median of ten seeds, on the third best of four GPUs"
    bars.append(Bar(item="knobs", words=knobs, reached=_third_best_regret, bar=0.15))
    for item, target, field, bar in (
        ("gemm_power", "power_w", "median_ape", 0.025),
        ("gemm_power", "power_w", "mape", 0.09),
        ("energy", "mean_power_w", "mape", 0.05),
        ("energy", "total_energy_j", "mape", 0.12),
        ("energy", "total_energy_j", "median_ape", 0.06),
    ):
        kind = "mean" if field == "mape" else "median"
        words = f"{kind} error of `{target}`"
        bars.append(Bar(item=item, words=words, reached=_only(field, target), bar=bar))
    return bars


BARS = _bars()


def write_tables(results: Path, page: Path) -> None:
    """Replace what is between the page's marks."""
    replace_between(page, (BEGIN, END), rendered(results))


def rendered(results: Path) -> str:
    """The bars, then every item with its command and rows."""
    paths = {bar.item: results / bar.item / "result.json" for bar in BARS}
    items = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    rows: list[list[str]] = []
    for bar in BARS:
        if bar.item in items:
            value = bar.reached(items[bar.item])
            sign = "≥" if bar.at_least else "≤"
            verdict = "yes" if bar.met(value) else "no"
            rows.append(
                [bar.item, bar.words, f"{sign} {bar.shown(bar.bar)}", bar.shown(value), verdict]
            )
    parts = ["### Bars", table(["evaluation", "figure", "bar", "reached", "met"], rows)]
    parts += [_item(name, found) for name, found in items.items()]
    return "\n\n".join(parts)


def _item(name: str, found: Found) -> str:
    spent = [run["cpu_s"] for run in found["runs"]]
    fields = ("n", "mape", "median_ape", "p90_ape", "within_10", "spearman", "coverage_90")
    cells: dict[tuple[str, str], dict[str, Values]] = {}
    for run in found["runs"]:
        for row in run["rows"]:
            mine = cells.setdefault((row["target"], row["group"]), {})
            for field in fields:
                if row[field] is not None:
                    mine.setdefault(field, []).append(row[field])
    rows = [
        [f"`{target}`", group, *(_cell(field, values.get(field)) for field in fields)]
        for (target, group), values in cells.items()
    ]
    text = f"### {name}\n\nEvaluated on {found['date']} by `{found['command']}`; one run took "
    text += f"{fmean(spent):.0f} s of CPU time.\n\n{table(HEADER, rows)}"
    regrets = _regrets(found)
    if regrets:
        text += "\n\n" + table(
            ["GPU", "regret, median of the seeds", "regret with each seed"],
            [
                [group, f"{median(values):.1%}", ", ".join(f"{v:.0%}" for v in values)]
                for group, values in regrets.items()
            ],
        )
    return text


def _cell(field: str, values: Sequence[float] | None) -> str:
    if not values:
        return "–"
    mean = fmean(values)
    if field == "n":
        return f"{mean:.0f}"
    return f"{mean:.3f}" if field == "spearman" else f"{mean:.1%}"
