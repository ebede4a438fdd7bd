"""Cards of predictors: the page, the Markdown, the plots."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from tilewright.core.predictions import Covered, EvaluateResult, EvaluateRow, PredictorCard
from tilewright.predict.base import Features
from tilewright.predict.evaluation import EvaluateRequest, Evaluation, HeldOut, Learnt, card
from tilewright.predict.family_models import TrainingSet
from tilewright.report import predictor_cards as cards

EVIL = "<script>alert(1)</script>"


def judged(count: int = 300, *, unit: str = "s", reach: float = 0.3) -> HeldOut:
    random = np.random.default_rng(0)
    measured = 10 ** random.uniform(-6, -2, count)
    return HeldOut(
        family="conv2d",
        target="latency_s",
        unit=unit,
        measured=measured,
        predicted=measured * np.exp(0.1 * random.normal(size=count)),
        reach=np.full(count, reach),
        groups=np.array(["direct", "winograd", EVIL], dtype=object)[np.arange(count) % 3],
    )


def evaluation(found: HeldOut) -> Evaluation:
    rows = [found.row("all")]
    for name in ("direct", EVIL):
        rows.append(found.part(found.groups == name).row(name))
    return Evaluation(
        result=EvaluateResult(
            family="conv2d",
            split="configuration",
            shots=0,
            rows=tuple(rows),
            cards=(made_card(rows),),
        ),
        held_out=(found,),
    )


def made_card(rows: list[EvaluateRow]) -> PredictorCard:
    data = TrainingSet(
        family="conv2d",
        features=Features(names=(), values=np.empty((300, 0)), scale=np.ones(300)),
        target=np.ones(300),
        configurations=np.arange(300) % 40,
        groups=np.full(300, "direct", dtype=object),
        data_hash="0123abcd",
    )
    learnt = Learnt(
        data=data,
        devices=("some-cpu-2t",),
        covers=[
            Covered(name="stride", low=1.0, high=4.0),
            Covered(name="constant_bytes", low=0.0, high=0.0),
            Covered(name="data_bytes", low=36.0, high=4096.0),
            Covered(name="m", low=16.0, high=63001.0),
        ],
        measured=("2030-01-02", "2030-01-05"),
        limits=["Kernels of one class."],
    )
    return card([learnt], EvaluateRequest(), rows)


def test_the_page_has_data_errors_plot_and_limits() -> None:
    page = cards.page(evaluation(judged())).replace("<wbr>", "")
    for words in (
        *("conv2d: latency", "some-cpu-2t", "300 rows of 40 configurations (hash 0123abcd)"),
        *("2030-01-02 to 2030-01-05", "into 5 parts", "(seed 0)", "stride 1 to 4; weights 0 B"),
        *("operands without weights 36 B to 4 KiB", "median width", cards.READING[0][:40]),
        *("Kernels of one class.", "within 20 %", "10 % off", "predicted = measured"),
    ):
        assert words in page, words
    assert EVIL not in page and "&lt;script&gt;" in page
    assert "{%" not in page and "--s0" in page


def test_markdown_names_the_pictures_it_is_given() -> None:
    found = evaluation(judged())
    text = cards.markdown(found, {("conv2d", "latency_s"): "plots/conv2d.svg"})
    told = "predicted against measured latency of conv2d, one point for each row"
    assert f"![Scatter plot: {told}](plots/conv2d.svg)" in text
    assert "- data: 300 rows of 40 configurations" in text and EVIL not in text
    assert "; m 16 to 63\u202f001\n" in text, "a column of a table has no other name"
    assert "![" not in cards.markdown(found, {})


def test_every_card_has_its_own_errors_and_plot() -> None:
    """Of two targets of one family: a card shows the rows of its own, in its own unit."""
    times, powers = judged(), replace(judged(200, unit="W"), target="power_w")
    rows = [times.row("all"), powers.row("all")]
    both = Evaluation(
        result=EvaluateResult(
            family="conv2d",
            split="configuration",
            shots=0,
            rows=tuple(rows),
            cards=(made_card(rows[:1]), replace(made_card(rows[1:]), target="power_w")),
        ),
        held_out=(times, powers),
    )
    first, second = cards.markdown(both, {}).split("## ")[1:]
    assert first.startswith("conv2d: latency\n") and second.startswith("conv2d: power\n")
    for text, count in ((first, 300), (second, 200)):
        (told,) = [line for line in text.splitlines() if line.startswith("| all |")]
        assert told.startswith(f"| all | {count} |")
    drawn = cards.pictures(both, most=100)
    assert set(drawn) == {("conv2d", "latency_s"), ("conv2d", "power_w")}
    with pytest.raises(ValueError, match="shorter"):
        cards.markdown(replace(both, held_out=(times,)), {})


def test_a_card_says_when_its_data_were_measured() -> None:
    def told(measured_from: str, measured_until: str) -> str:
        found = evaluation(judged())
        (made,) = found.result.cards
        made = replace(made, measured_from=measured_from, measured_until=measured_until)
        text = cards.markdown(replace(found, result=replace(found.result, cards=(made,))), {})
        return next(line for line in text.splitlines() if line.startswith("- measured: "))

    assert told("2030-01-02", "2030-01-05") == "- measured: 2030-01-02 to 2030-01-05"
    assert told("2030-01-02", "2030-01-02") == "- measured: 2030-01-02"
    assert told("", "2030-01-05") == told("2030-01-02", "") == "- measured: not recorded"


def test_pictures_are_files_of_their_own() -> None:
    (picture,) = cards.pictures(evaluation(judged()), most=100).values()
    root = ElementTree.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (
        "predicted against measured latency" in picture and "prefers-color-scheme: dark" in picture
    )
    colours = [node.get("fill", "") for node in root.iter() if "fill-opacity" not in node.attrib]
    dots = [c for c in colours if c.startswith("var(--s") and c[7:8].isdigit()]
    assert len(dots) >= 100 and len(set(dots)) == 3, "a colour each"
    texts = [node.text for node in root.iter() if node.tag.endswith("text")]
    assert {"direct", "winograd", EVIL} <= set(texts)


def test_the_lines_are_ten_percent_off_and_the_band_is_the_interval() -> None:
    rows = cards.scatter(judged(reach=float(np.log(1.1)))).rows
    for row in rows["lines"]:
        factor = {"0.9": 1 / 1.1, "1": 1.0, "1.1": 1.1}[str(row["factor"])]
        assert float(str(row["predicted"])) == pytest.approx(factor * float(str(row["measured"])))
    for row in rows["band"]:
        assert float(str(row["high"])) == pytest.approx(1.1 * float(str(row["measured"])))
    assert len(rows["lines"]) == 6 and len(rows["band"]) == 2
    assert not cards.scatter(judged(reach=np.inf)).rows["band"]


@pytest.mark.parametrize("unit", ["s", "W"])
def test_axes_have_units(unit: str) -> None:
    found = cards.scatter(judged(unit=unit)).specification()
    assert found["params"] == [{"name": "unit", "value": unit}]


def test_limits_follow_from_the_errors() -> None:
    good = judged(400)
    found = HeldOut(
        family="conv2d",
        target="latency_s",
        unit="s",
        measured=good.measured,
        predicted=np.where(good.groups == "winograd", good.predicted * 2, good.predicted),
        reach=good.reach,
        groups=good.groups,
    )
    rows = [found.row("all")]
    few = np.arange(400) < 30
    for name in ("direct", "winograd"):
        rows.append(found.part(found.groups == name).row(name))
    rows.append(found.part(few).row("rare"))
    limits = made_card(rows).limits
    assert "Kernels of one class." in limits
    assert any(limit.startswith("winograd: only") for limit in limits)
    assert any("winograd: the mean error" in limit for limit in limits)
    assert any("rare: 30 rows are too few" in limit for limit in limits)
    assert not any(limit.startswith("direct") for limit in limits)
