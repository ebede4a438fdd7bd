"""Cards of predictors: data, split, errors, plot, limits; as a page, and as Markdown with pictures.
`evaluate --out` writes both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.core.output_files import write_text
from tilewright.core.predictions import Covered, PredictorCard
from tilewright.predict.evaluation import Evaluation, HeldOut
from tilewright.report import html, views
from tilewright.report.features import feature_label
from tilewright.report.formats import escaped, to_markdown
from tilewright.report.shown import size, whole
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
    "configuration": "the configurations are divided into {folds} parts; each part is predicted "
    "by a model that was fitted to the others",
    "network": "the networks are divided into {folds} parts; each part is predicted by a model "
    "that was fitted without any kernel of its networks' operators",
    "device": "each device is predicted from other devices",
}
READING = (
    "Each card judges a predictor on rows that it was not fitted to. A row is one measurement, of "
    "a kernel or from a table. A configuration is an operator with its shapes and options; it has "
    "several rows if it was measured in several settings or on several devices. The error of a "
    "row is |predicted ÷ measured − 1|: 10 % is a prediction that is 10 % too high or too low.",
    "The tables show the mean, the median and the 90th percentile of the errors, and the shares "
    "of rows with errors of at most 5, 10 and 20 %. A few large errors raise the mean; the median "
    "is that of a typical row. The rank correlation is Spearman's: 1 means that the predictions "
    "sort the rows as the measurements do, which is what a choice among kernels needs. The last "
    "column is the share of measured values inside their 90 % intervals: if it is much less than "
    "90 %, the intervals are too narrow. Groups are implementations, networks or devices. The "
    "group “operator facts alone” is a poorer predictor of the same rows, which knows shapes and "
    "options but nothing of the kernel's schedule; “without facts of the schedule” is another one, "
    "which also knows the implementation, the layouts and the values of the knobs, but not what "
    "follows from them. The differences are what the facts of the schedule are worth.",
    f"In a picture each point is a row; if there are more than {_POINTS} ({MOST_POINTS} in a page "
    "of HTML), a random part is drawn. Both axes are logarithmic. On the solid line a prediction "
    "is right (predicted = measured), on the dashed lines it is 10 % off, above them it is too "
    "high. The band is the 90 % interval of the row with the median width.",
)
"""What a reader of cards must know, in paragraphs."""


def write_cards(folder: Path, evaluation: Evaluation) -> None:
    """Write them into a folder. Raises OutputError where it cannot be written."""
    plots = write_pictures(folder, evaluation)
    write_text(folder / PAGE, page(evaluation))
    paragraphs = ("# Predictors", *READING, markdown(evaluation, plots))
    write_text(folder / TEXT, "\n\n".join(paragraphs))


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
        return f"{self.card.family}: {_quantity(self.card.target)}"


def page(evaluation: Evaluation) -> str:
    """All cards as one page that needs no network; write it as UTF-8."""
    return (
        html.environment()
        .get_template("predictors.html.j2")
        .render(
            sections=list(_sections(evaluation, MOST_POINTS)),
            reading=READING,
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
        (section.card.family, section.card.target): section.chart.svg(style, width=480)
        for section in _sections(evaluation, most)
    }


def _sections(evaluation: Evaluation, most: int) -> Iterator[_Section]:
    for card, judged in zip(evaluation.result.cards, evaluation.held_out, strict=True):
        yield _Section(
            card=card,
            judged=judged,
            facts=tuple(_facts(card)),
            errors=views.ERRORS.of(
                [
                    row
                    for row in evaluation.result.rows
                    if (row.family, row.target) == (card.family, card.target)
                ]
            ),
            chart=scatter(judged, most=most),
        )


def _facts(card: PredictorCard) -> Iterator[tuple[str, str]]:
    yield "devices", ", ".join(card.devices)
    yield (
        "data",
        f"{whole(card.rows)} rows of {whole(card.configurations)} configurations "
        f"(hash {card.data_hash})",
    )
    days = [card.measured_from or "", card.measured_until or ""]
    yield "measured", " to ".join(dict.fromkeys(days)) if all(days) else "not recorded"
    yield "split", f"{SPLITS[card.split].format(folds=card.folds)} (seed {card.seed})"
    yield "ranges of the operators", "; ".join(map(_range, card.covers)) or "not recorded"
    yield "evaluated", f"{card.date}, by tilewright {card.version}"


def _range(covered: Covered) -> str:
    """`data_bytes` from 36 to 4096 → `operands without weights 36 B to 4 KiB`."""
    shown = [
        size(end) if covered.name.endswith("_bytes") else whole(round(end))
        for end in (covered.low, covered.high)
    ]
    label = feature_label(f"op.{covered.name}").removeprefix("op.")
    return f"{label} {' to '.join(dict.fromkeys(shown))}"


def _quantity(target: str) -> str:
    """`latency_s` → `latency`"""
    return target.rpartition("_")[0].replace("_", " ")


def _text(section: _Section, plots: Mapping[tuple[str, str], str]) -> str:
    card = section.card
    lines = [f"## {escaped(section.title)}", ""]
    lines += [f"- {name}: {escaped(text)}" for name, text in section.facts]
    lines += ["", to_markdown(section.errors)]
    address = plots.get((card.family, card.target))
    if address is not None:
        lines += [f"![{escaped(section.chart.label)}]({address})", ""]
    lines += [
        "What limits this predictor:",
        "",
        *(f"- {escaped(limit)}" for limit in card.limits),
        "",
    ]
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
    points = [
        {
            "measured": float(x),
            "predicted": float(y),
            "group": name if index < len(SERIES) else "others",
        }
        for index, name in enumerate(ordered)
        for mine in [drawn.part(drawn.groups == name)]
        for x, y in zip(mine.measured, mine.predicted, strict=True)
    ]
    return Chart(
        name="scatter",
        label=f"Scatter plot: predicted against measured {_quantity(judged.target)} of "
        f"{judged.family}, one point for each row",
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
    return judged.part(np.sort(np.random.default_rng(0).permutation(len(judged.measured))[:most]))
