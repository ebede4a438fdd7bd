"""Numbers behind the pictures, tables as files, and the words for them."""

from __future__ import annotations

import csv
import io
import json
import math
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.records.report_results import (
    COMPARED,
    CONV,
    COPY,
    DENSE,
    OPTIMIZED,
    PEAK_BYTES_PER_S,
    PEAK_FLOP_PER_S,
    row,
)
from tilewright.core.results import ProfileResult, TaskReport
from tilewright.report import (
    comparison,
    formats,
    noise,
    roofline,
    shown,
    vega,
    views,
)
from tilewright.report.escape import visible, visible_lines
from tilewright.report.tables import Column, Table
from tilewright.report.tasks import shares_chart, tasks_table


def roof_of(*tasks: TaskReport) -> vega.Chart | None:
    return roofline.chart(
        tasks,
        peak_flop_per_s=PEAK_FLOP_PER_S,
        peak_bytes_per_s=PEAK_BYTES_PER_S,
    )


def test_roofline_places_tasks_under_the_right_roof() -> None:
    conv, dense, copy = (
        roofline.point(task, PEAK_FLOP_PER_S, PEAK_BYTES_PER_S) for task in (CONV, DENSE, COPY)
    )
    assert conv.intensity == pytest.approx(30.0)
    assert conv.reached == pytest.approx(0.75)
    assert dense.reached == pytest.approx(0.9)
    assert copy.reached == pytest.approx(0.5)


def test_roofline_without_peaks_claims_nothing() -> None:
    assert roofline.point(CONV, 0.0, 20e9).reached is None
    drawn = roofline.chart([CONV], peak_flop_per_s=0.0, peak_bytes_per_s=20e9)
    assert drawn is not None and not drawn.rows["roof"]
    assert [layer["data"]["name"] for layer in drawn.specification()["layer"]] == ["tasks"]


def test_the_roofline_has_each_task_with_arithmetic() -> None:
    drawn = roof_of(CONV, DENSE, COPY)
    assert drawn is not None
    conv, dense = drawn.rows["tasks"]
    assert (conv["name"], dense["name"]) == (CONV.name, DENSE.name)
    assert (conv["colour"], dense["colour"]) == ("var(--compute)", "var(--memory)")
    assert conv["told"] == "60.0 %" and conv["reached"] == "75.0 %"
    low, ridge, high = drawn.rows["roof"]
    assert (ridge["intensity"], ridge["speed"], high["speed"]) == (10.0, 200.0, 200.0)
    assert low["speed"] == pytest.approx(20.0 * low["intensity"])  # pyright: ignore
    assert [peak["name"] for peak in drawn.rows["peaks"]] == ["200 GFLOP/s", "20.0 GB/s"]
    assert roof_of(COPY) is None


@settings(max_examples=40, deadline=None)
@example([(30929.0, 3.4409554766986443e-304, 0.0)])
@given(
    st.lists(
        st.tuples(
            st.floats(min_value=0, max_value=1e5),
            st.floats(min_value=0, max_value=1e5),
            st.floats(min_value=0, max_value=1),
        ),
        max_size=8,
    )
)
def test_charts_are_well_formed_for_any_numbers(rows: list[tuple[float, float, float]]) -> None:
    tasks = [
        replace(CONV, gflop_per_s=flop, gbyte_per_s=moved, share=share)
        for flop, moved, share in rows
    ]
    for drawn in (roof_of(*tasks), shares_chart(tasks)):
        if drawn is not None:
            written = json.dumps(drawn.specification(), allow_nan=False)
            assert json.loads(written) == drawn.specification()


def test_shares_put_small_tasks_and_the_rest_together() -> None:
    tasks = [replace(CONV, name=f"t{i}", share=i / 100, count=2) for i in range(1, 13)]
    drawn = shares_chart(tasks, rest_s=0.03, rest_share=0.22, limit=10)
    assert drawn is not None
    bars = drawn.rows["bars"]
    assert [bar["name"] for bar in bars[:2]] == ["t12 ×2", "t11 ×2"]
    assert [bar["name"] for bar in bars[-2:]] == ["2 more tasks", "outside the tasks"]
    assert [bar["share"] for bar in bars[-2:]] == [pytest.approx(0.03), 0.22]
    assert [bar["time"] for bar in bars[-2:]] == ["4 ms", "30 ms"]
    assert math.fsum(float(str(bar["share"])) for bar in bars) == pytest.approx(1.0)
    assert shares_chart(()) is None


IN_PLACE = replace(CONV, name="classifier", latency_s=None, in_place_s=0.002, count=1, share=0.8)


def test_the_chart_has_tasks_that_were_not_measured_alone() -> None:
    drawn = shares_chart([replace(COPY, share=0.2), IN_PLACE])
    assert drawn is not None
    assert [(bar["name"], bar["told"], bar["time"]) for bar in drawn.rows["bars"]] == [
        ("classifier", "80.0 %, not measured alone", "2 ms"),
        ("concat", "20.0 %", "1 ms"),
    ]


def test_the_table_tells_what_was_not_measured_alone_and_what_lies_between() -> None:
    nowhere = replace(CONV, name="nowhere", latency_s=None, share=None)
    result = replace(
        OPTIMIZED,
        tasks=(nowhere, replace(COPY, share=0.1), IN_PLACE),
        rest_s=0.0005,
        rest_share=0.1,
    )
    table = tasks_table(result)
    assert [line[:5] for line in table.shown()] == [
        ["classifier", "80.0 %", "1", "not measured alone", "2 ms"],
        ["concat", "10.0 %", "1", "1 ms", "–"],
        ["nowhere", "–", "3", "not measured", "–"],
        ["outside the tasks", "10.0 %", "–", "–", "500 µs"],
    ]
    rows = list(csv.DictReader(io.StringIO(formats.to_csv(table))))
    assert math.fsum(float(row["share"]) for row in rows if row["share"]) == pytest.approx(1.0)
    reached = table.records[0]["roof_fraction"]
    assert reached is not None, "its rates are those in place"


def test_geomean_takes_the_fastest_peer_at_our_precision() -> None:
    rows = [
        row("a", "onnxruntime", 1.5),
        row("a", "torch", 4.0),
        row("a", "openvino", 0.1, "bf16"),
        row("b", "onnxruntime", 0.6),
    ]
    mean = comparison.geomean_speedup(rows)
    assert mean is not None and mean.low is None, "rows of an earlier version have no bounds"
    assert mean.value == pytest.approx(math.sqrt(1.5 * 0.6))
    bounded = [replace(r, speedup_low=0.8 * r.speedup, speedup_high=1.25 * r.speedup) for r in rows]
    mean = comparison.geomean_speedup(bounded)
    assert mean is not None and mean.low is not None and mean.high is not None
    assert mean.low / mean.value == pytest.approx(0.8)
    assert mean.high / mean.value == pytest.approx(1.25)
    assert comparison.geomean_speedup(rows[2:3]) is None
    assert comparison.fastest_peers(rows)["a"].peer == "onnxruntime"


def test_baseline_counts_only_pairs_in_both_runs() -> None:
    now = [row("a", "onnxruntime", 1.0), row("a", "openvino", 0.2), row("b", "torch", 3.0)]
    then = [row("a", "onnxruntime", 2.0), row("c", "torch", 1.0)]
    against = comparison.against_baseline(now, then)
    assert against is not None
    assert against.models == ("a",)
    assert against.ratio == pytest.approx(0.5)
    assert against.ratio_bounds == (None, None), "comparisons of earlier versions have no bounds"
    bounded = [
        [replace(r, speedup_low=0.9 * r.speedup, speedup_high=1.1 * r.speedup) for r in rows]
        for rows in (now, then)
    ]
    sure = comparison.against_baseline(*bounded)
    assert sure is not None
    assert sure.ratio_bounds == pytest.approx((0.5 * 0.9 / 1.1, 0.5 * 1.1 / 0.9))
    other_precision = row("a", "openvino", 3.0, "bf16")
    same = comparison.against_baseline([*now, other_precision], [*then, other_precision])
    assert same == against, "what a peer does in bf16 says nothing of us"
    broken = [row("a", "torch", 0.0), row("a", "jax", math.inf)]
    assert comparison.against_baseline([*now, *broken], [*then, *broken]) == against
    assert not against.other_threads
    other = comparison.against_baseline(now, [replace(then[0], threads=8)])
    assert other is not None
    assert other.other_threads
    assert comparison.against_baseline(now, then[1:]) is None


@given(st.text())
def test_visible_leaves_nothing_that_steers(text: str) -> None:
    seen = visible(text)
    assert not {unicodedata.category(char) for char in seen} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    seen.encode("utf-8")
    if text.isprintable():
        assert seen == text


def test_visible_spells_out() -> None:
    assert visible("a\x1b[31mb\x9b\u202e\u200b\ud800\U000e0041") == (
        "a\\x1b[31mb\\x9b\\u202e\\u200b\\ud800\\U000e0041"
    )
    assert visible("größe 層 ×") == "größe 層 ×"
    assert visible_lines("a\r\nb\rc", indent="> ") == "a\n> b\\x0dc"


def test_csv_keeps_raw_values() -> None:
    table = tasks_table(replace(OPTIMIZED, tasks=(COPY, CONV), peak_bytes_per_s=0.0))
    rows = list(csv.DictReader(io.StringIO(formats.to_csv(table))))
    assert [line["name"] for line in rows] == [CONV.name, COPY.name]
    assert float(rows[0]["latency_s"]) == CONV.latency_s
    assert rows[0]["settings"] == '{"output_block": 16, "unroll": true}'
    assert float(rows[0]["peak_fraction"]) == pytest.approx(0.75)
    assert rows[0]["roof_fraction"] == ""
    assert rows[1]["error"] == ""


@given(cells=st.lists(st.text(), min_size=2, max_size=2))
def test_tables_keep_their_shape_whatever_the_cells(cells: list[str]) -> None:
    columns = (Column(field="a", label="a"), Column(field="b", label="b", number=True))
    table = Table(columns=columns, records=(dict(zip("ab", cells, strict=True)),))
    rows = list(csv.reader(io.StringIO(formats.to_csv(table))))
    assert rows == [["a", "b"], [visible(cell) for cell in cells]]
    lines = formats.to_markdown(table).splitlines()
    assert len(lines) == 3
    assert lines[2].replace("\\\\", "").replace("\\|", "").count("|") == 3


def test_empty_table_has_a_header() -> None:
    table = views.COMPARED.of(())
    assert formats.to_csv(table).startswith("model,peer,precision")


def test_markdown_scales_and_escapes() -> None:
    text = formats.to_markdown(
        tasks_table(replace(OPTIMIZED, tasks=(replace(CONV, name="a|b<i>`"),)))
    )
    assert "a\\|b\\<i\\>\\`" in text
    assert "1 ms" in text


def test_summary_names_both_speedups() -> None:
    text = formats.to_markdown(views.optimize_summary(OPTIMIZED))
    assert "7.5 ms, speed-up 1.50× (1.40 to 1.60)" in text
    assert "6 ms, speed-up 1.20× (1.15 to 1.25)" in text
    apart = replace(OPTIMIZED, speedup_vs_baseline_low=None, speedup_vs_baseline_high=None)
    assert "7.5 ms, speed-up 1.50× |" in formats.to_markdown(views.optimize_summary(apart))


def test_comparisons_show_intervals() -> None:
    bounded = replace(
        COMPARED,
        rows=(replace(COMPARED.rows[0], speedup_low=1.1, speedup_high=1.3),),
        geomean_speedup_low=1.1,
        geomean_speedup_high=1.3,
    )
    assert "1.20× (1.10 to 1.30)" in formats.to_markdown(views.COMPARED.of(bounded.rows))
    assert views.compare_verdict(bounded).endswith("1.20× (1.10 to 1.30)")
    assert views.compare_verdict(COMPARED).endswith("1.20×")


def test_noise_warnings_are_about_wide_spreads() -> None:
    assert noise.noise_warnings(OPTIMIZED) == ()
    loud = replace(
        OPTIMIZED,
        warnings=("own",),
        reference_spread=0.2,
        tasks=(replace(CONV, spread=0.4), COPY),
    )
    own, reference, tasks = noise.noise_warnings(loud)
    assert own == "own"
    assert "reference" in reference
    assert "1 of the tasks, with 60.0 %" in tasks


def test_a_reference_that_varies_widens_the_claim() -> None:
    (warning,) = noise.noise_warnings(replace(OPTIMIZED, reference_variation=0.2))
    assert "varied by 20.0 % between rounds" in warning
    assert "the speed-up over it lies between 1.15× and 1.25×" in warning
    summary = formats.to_markdown(views.optimize_summary(replace(OPTIMIZED, latency_variation=0.2)))
    assert "| latency | 5 ms, varied by 20.0 % between rounds |" in summary
    assert summary.count("varied") == 1


@pytest.mark.parametrize(
    ("network_s", "tasks_s", "in_place_s", "words"),
    [
        (0.0101, 0.005, 0.009, "2.02× the sum of its kernels timed alone (5 ms); in the network"),
        (0.0101, 0.0, 0.005, "2.02× the sum of its kernels timed in the network (5 ms)"),
        (0.0099, 0.005, 0.009, ""),
        (0.0101, 0.0, 0.009, ""),
    ],
)
def test_a_network_far_slower_than_its_kernels_is_told(
    network_s: float, tasks_s: float, in_place_s: float, words: str
) -> None:
    tasks = (replace(CONV, count=2, in_place_s=in_place_s / 2),)
    optimized = replace(OPTIMIZED, latency_s=network_s, tasks_latency_s=tasks_s, tasks=tasks)
    profile = ProfileResult(
        model="m",
        target="t",
        threads=2,
        tasks=tasks,
        network_latency_s=network_s,
        tasks_latency_s=tasks_s,
        peak_flop_per_s=1e9,
        peak_bytes_per_s=1e9,
        planned_memory_bytes=1,
        weight_bytes=1,
    )
    for found in (noise.noise_warnings(optimized), noise.profile_warnings(profile)):
        assert len(found) == bool(words)
        assert all(words in warning for warning in found)
    assert bool(words) == ("the sum of its kernels" in profile._repr_html_())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (shown.seconds(None), "–"),
        (shown.seconds(math.nan), "–"),
        (shown.rate(231.4), "231"),
        (shown.rate(0.0), "0"),
        (shown.rate(9.9999), "10.0"),
        (shown.rate(1e9), "1.00e+09"),
        (shown.percent(0.1234), "12.3 %"),
        (shown.ratio(123.4), "123×"),
        (shown.speedup(None), "–"),
        (shown.speedup(1.0, 1.0, 1.0), "1.00×"),
        (shown.error(1.234e-6), "1.2e-06"),
        (shown.decibels(48.34, -4.13), "48.3 dB, -4.13 dB of what differs between inputs"),
        (shown.whole(1234567), "1\u202f234\u202f567"),
        (shown.size(1536), "1.5 KiB"),
        (shown.pairs({"a": 1, "b": False}), "a=1 b=no"),
        (shown.pairs({"trace": "ab" * 40}), f"trace={'ab' * 12}… (80 characters)"),
    ],
)
def test_shown(text: str, wanted: str) -> None:
    assert text == wanted
