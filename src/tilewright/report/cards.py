"""Cards of predictors, as a page and as Markdown: data, split, errors, plot, limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.core.predictions import EvaluateRow, PredictorCard
from tilewright.predict.evaluation import Evaluation, HeldOut
from tilewright.report import html, scatter, views
from tilewright.report.formats import escaped, to_markdown
from tilewright.report.shown import number, whole
from tilewright.report.tables import Table
from tilewright.report.vega import Chart

SPLITS: Mapping[str, str] = {
    "configuration": "configurations kept aside whole, in {folds} parts",
    "network": "networks kept aside, in {folds} parts, with every kernel of their operators",
    "device": "one device kept aside after the other",
}


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
            sections=list(_sections(evaluation, scatter.MOST_POINTS)),
            most=scatter.MOST_POINTS,
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
        rows = [row for row in evaluation.result.rows if _is_of(row, card)]
        yield _Section(
            card=card,
            judged=judged,
            facts=tuple(_facts(card)),
            errors=views.ERRORS.of(rows),
            chart=scatter.chart(judged, most=most),
        )


def _is_of(row: EvaluateRow, card: PredictorCard) -> bool:
    return (row.family, row.target) == (card.family, card.target)


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
