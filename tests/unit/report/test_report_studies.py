"""Tables and pictures of the studies."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

from helpers.fakes.forecasts import CORES
from tilewright.core.results import SubgraphStudyRow, TunerStudyResult, TunerStudyRow
from tilewright.report import cores, formats, html, regret, vega, views

EVIL = "<script>alert(1)</script>\x1b[31m"


def row(tuner: str, share: float, median: float, sweep: str = "conv") -> TunerStudyRow:
    return TunerStudyRow(
        tuner=tuner, sweep=sweep, measured_share=share, regret_median=median, regret_p90=2 * median
    )


ROWS = (
    row("random", 0.05, 0.25),
    row("random", 0.01, 0.5),
    row("default", 0.01, 0.1),
    row("default", 0.05, 0.0),
    row("default", 0.05, 0.03, "other"),
)


def test_tuner_study_is_a_row_per_tuner_and_sweep() -> None:
    table = views.tuner_study_table(ROWS)
    assert [column.label for column in table.columns] == [
        "sweep",
        "tuner",
        "after 1.00 %",
        "after 5.00 %",
    ]
    assert table.shown() == [
        ["conv", "random", "50.0 %", "25.0 %"],
        ["conv", "default", "10.0 %", "0 %"],
        ["other", "default", "–", "3.00 %"],
    ]
    (first, *_) = csv.DictReader(io.StringIO(formats.to_csv(table)))
    assert float(first["regret_0.01"]) == 0.5 and float(first["p90_0.05"]) == 0.5
    assert views.tuner_study_table(()).shown() == []


def test_subgraph_study_table() -> None:
    study = SubgraphStudyRow(task="conv", op_level_s=0.003, subgraph_level_s=0.002, gain=1.5)
    assert views.SUBGRAPH_STUDY.of([study]).shown() == [["conv", "3 ms", "2 ms", "1.50×"]]


def test_regret_is_a_row_per_tuner_and_share() -> None:
    drawn = regret.chart(ROWS, "conv")
    assert drawn is not None
    rows = drawn.rows["regret"]
    assert [(row["tuner"], row["share"]) for row in rows] == [
        ("default", 0.01), ("default", 0.05), ("random", 0.01), ("random", 0.05),
    ]  # fmt: skip
    assert [row["regret"] for row in rows] == [0.1, 1e-3, 0.5, 0.25], "at the lower edge"
    assert [row["colour"] for row in rows[1:3]] == ["var(--best)", "var(--s0)"]
    assert regret.chart(ROWS, "unknown") is None


def test_default_stands_out_and_the_last_share_grey() -> None:
    many = [row(f"t{n}", 0.01, n / 10) for n in range(12)] + [row("default", 0.01, 9.0)]
    hues = regret.hues(many)
    assert list(hues) == ["default", *(f"t{n}" for n in range(12))]
    kinds = list(hues.values())
    assert (kinds[0], kinds[9:], len(set(kinds[:9]))) == ("best", ["faded"] * 4, 9)


def test_study_page_survives_what_failed_and_what_is_hostile() -> None:
    rows = (
        *ROWS,
        row("never", 0.01, math.inf),
        row("never", 0.05, math.nan),
        row(EVIL, 0.01, 0.2, EVIL),
    )
    text = html.render_tuner_study(TunerStudyResult(rows=rows))
    assert text.count('class="chart') == 3
    assert "<script>alert" not in text and "\x1b" not in text.replace(vega.libraries(), "")
    assert regret.chart([replace(ROWS[0], measured_share=0.0)], "conv") is None


def test_cores_that_suffice_are_drawn_and_what_is_hostile_is_escaped() -> None:
    rows = tuple(replace(row, task=EVIL, beside=EVIL) for row in CORES.rows[:1])
    found = replace(CORES, rows=(*rows, *CORES.rows))
    text = html.render_cores(found)
    assert text.count('class="chart') == 2, "one for each task"
    assert "<script>alert" not in text and "\x1b" not in text.replace(vega.libraries(), "")
    (_, drawn), (_, other) = cores.charts(found)
    assert [each["cores"] for each in drawn.rows["measured"]] == [1, 2]
    assert len(other.rows["told"]) == 6 and len(other.rows["measured"]) == 3
    assert cores.hues(found) == {EVIL: "s0", "none": "s1", "stream": "s2"}
    table = cores.points_table(CORES)
    assert table.shown()[0][1:] == ["none", "5.00 %", "2", "1", "-1", "4 *", "2 to 4"]
    assert table.raw()[0][:5] == ["task", "count", "implementation", "beside", "held"]
