"""Cards of predictors: data, split, errors, plot, limits; as a page, and as Markdown with pictures.
`evaluate --out` writes both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.core.output_files import write_text
from tilewright.core.predictions import PredictorCard
from tilewright.predict.evaluation import Evaluation, HeldOut
from tilewright.report import html, views
from tilewright.report.formats import escaped, to_markdown
from tilewright.report.shown import number, whole
from tilewright.report.tables import Table
from tilewright.report.vega import SERIES, Chart

PAGE, TEXT = "predictors.html", "predictors.md"
_POINTS = 400
"""Points of a picture beside Markdown; the page has more."""
MOST_POINTS = 2000
"""More rows than this are drawn as a random part of them."""
_TOLERANCE = 1.1
_ROOM = 1.25
SPLITS: Mapping[str, str] = {
    "configuration": "configurations kept aside whole, in {folds} parts",
    "network": "networks kept aside, in {folds} parts, with every kernel of their operators",
    "device": "one device kept aside after the other",
}


def write_cards(folder: Path, evaluation: Evaluation) -> None:
    """Write them into a folder. Raises OutputError where it cannot be written."""
    plots = write_pictures(folder, evaluation)
    write_text(folder / PAGE, page(evaluation))
    write_text(folder / TEXT, f"# Predictors\n\n{markdown(evaluation, plots)}")


def write_pictures(folder: Path, evaluation: Evaluation) -> dict[tuple[str, str], str]:
    """Write the plots alone; their file names by family and target."""
    names: dict[tuple[str, str], str] = {}
    for (family, target), picture in pictures(evaluation, most=_POINTS).items():
        names[family, target] = f"{family}-{target}.svg"
        write_text(folder / names[family, target], picture)
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A card with what is shown of it."""

    card: PredictorCard
    judged: HeldOut
    facts: tuple[tuple[str, str], ...]
    errors: Table
    chart: Chart

    @property
    def title(self) -> str:
        return f"{self.card.family}, {self.card.target}"


def page(evaluation: Evaluation) -> str:
    """All cards as one page that needs no network; write it as UTF-8."""
    return (
        html.environment()
        .get_template("predictors.html.j2")
        .render(
            sections=list(_sections(evaluation, MOST_POINTS)),
            most=MOST_POINTS,
        )
    )


def markdown(evaluation: Evaluation, plots: Mapping[tuple[str, str], str]) -> str:
    """All cards as Markdown, without a headline; `plots` are addresses of pictures by family and
    target."""
    return "\n".join(_text(section, plots) for section in _sections(evaluation, 1))


def pictures(evaluation: Evaluation, *, most: int) -> dict[tuple[str, str], str]:
    """The plots as SVG files, with at most so many points, by family and target."""
    style = html.environment().get_template("colours.css").render()
    return {
        (section.card.family, section.card.target): section.chart.svg(style, width=400)
        for section in _sections(evaluation, most)
    }


def _sections(evaluation: Evaluation, most: int) -> Iterator[_Section]:
    for card, judged in zip(evaluation.result.cards, evaluation.held_out, strict=True):
        rows = [
            row
            for row in evaluation.result.rows
            if (row.family, row.target) == (card.family, card.target)
        ]
        yield _Section(
            card=card,
            judged=judged,
            facts=tuple(_facts(card)),
            errors=views.ERRORS.of(rows),
            chart=scatter(judged, most=most),
        )


def _facts(card: PredictorCard) -> Iterator[tuple[str, str]]:
    yield "devices", ", ".join(card.devices)
    yield "rows", f"{whole(card.rows)} of {whole(card.configurations)} configurations"
    measured = "not recorded"
    if card.measured_from and card.measured_until:
        days = dict.fromkeys((card.measured_from, card.measured_until))
        measured = " to ".join(days)
    yield "measured", measured
    yield "data", card.data_hash
    yield "split", f"{SPLITS[card.split].format(folds=card.folds)}, seed {card.seed}"
    ranges = [f"{c.name} {number(c.low)} to {number(c.high)}" for c in card.covers]
    yield "ranges", ", ".join(ranges) or "none"
    yield "evaluated", f"{card.date}, tilewright {card.version}"


def _text(section: _Section, plots: Mapping[tuple[str, str], str]) -> str:
    card = section.card
    lines = [f"## {escaped(section.title)}", ""]
    lines += [f"- {name}: {escaped(text)}" for name, text in section.facts]
    lines += ["", to_markdown(section.errors)]
    address = plots.get((card.family, card.target))
    if address is not None:
        lines += [f"![Predicted against measured]({address})", ""]
    lines += ["Limits:", "", *(f"- {escaped(limit)}" for limit in card.limits), ""]
    return "\n".join(lines)


def scatter(judged: HeldOut, *, most: int = MOST_POINTS) -> Chart:
    """Points on the diagonal are right; dashed lines are 10 % off; the band is the 90 % interval of
    the middle row. Each group has a colour, the largest first; from the ninth on they share grey.
    """
    both = np.concatenate([judged.measured, judged.predicted])
    ends = [float(both.min()) / _ROOM, float(both.max()) * _ROOM]
    reach = float(np.exp(np.median(judged.reach)))
    banded = ends if np.isfinite(reach) and reach < ends[1] / ends[0] else []
    names, counts = np.unique(judged.groups.astype(str), return_counts=True)
    ordered = [str(names[place]) for place in np.argsort(-counts, kind="stable")]
    drawn = _part(judged, most)
    points: list[dict[str, object]] = []
    for index, name in enumerate(ordered):
        mine = drawn.part(drawn.groups == name)
        group = name if index < len(SERIES) else "others"
        for x, y in zip(mine.measured, mine.predicted, strict=True):
            points.append({"measured": float(x), "predicted": float(y), "group": group})
    return Chart(
        name="scatter",
        label=f"Predicted against measured {judged.family}",
        rows={
            "points": points,
            "lines": [
                {"measured": x, "predicted": x * factor, "factor": name}
                for name, factor in (("0.9", 1 / _TOLERANCE), ("1", 1.0), ("1.1", _TOLERANCE))
                for x in ends
            ],
            "band": [{"measured": x, "low": x / reach, "high": x * reach} for x in banded],
        },
        parameters={"unit": judged.unit},
    )


def _part(judged: HeldOut, most: int) -> HeldOut:
    """At most so many rows, the same ones every time."""
    if len(judged.measured) <= most:
        return judged
    chosen = np.zeros(len(judged.measured), dtype=bool)
    chosen[np.random.default_rng(0).permutation(len(chosen))[:most]] = True
    return judged.part(chosen)
