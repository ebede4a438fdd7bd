"""What the report says about a search: curves, failures, knobs, coordinates."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.records.report_results import CURVE, OPTIMIZED, SEARCH, TRIALS, search, trial
from tilewright.core.results import CurvePoint
from tilewright.report import formats, html, importance, parallel, searching, vega, views
from tilewright.report.searching import watched


def test_network_progress_counts_all_tasks_trials_in_time() -> None:
    other = search(*(replace(t, elapsed_s=t.elapsed_s + 1) for t in TRIALS[:5]), task="other")
    tried, spent = searching.network_charts(CURVE, (SEARCH, other)).values()
    assert [row["at"] for row in tried.rows["best"]] == [16, 24, 32, 40]
    assert [row["at"] for row in spent.rows["best"]] == [20, 30, 40, 50]
    assert [row["time_s"] for row in tried.rows["best"]] == [0.01 / n for n in range(2, 6)]
    # the fifth trials of both, in the order they were tried, then the rest of the first
    ticks = [row["at"] for row in tried.rows["failed"]]
    assert ticks == [9, 10, 15, 20, 25, 30, 35, 40, 45]
    assert [row["at"] for row in spent.rows["failed"]][:3] == [10.0, 11.0, 20.0]
    assert searching.network_charts(CURVE[:1], (SEARCH,)) == {}


def test_network_time_never_rises() -> None:
    noisy = (*CURVE, replace(CURVE[-1], measurements=48, network_latency_s=0.9))
    last = searching.network_charts(noisy, ())["candidates tried"].rows["best"][-1]
    assert (last["at"], last["time_s"]) == (48, 0.002)


def test_failures_are_ticks_on_the_axis() -> None:
    for chart in searching.network_charts(CURVE, (SEARCH,)).values():
        assert len(chart.rows["failed"]) == 8
    drawn = searching.task_chart(SEARCH)
    assert drawn is not None and [t["at"] for t in drawn.rows["failed"]] == [*range(5, 41, 5)]


def test_task_panel_shows_trials_best_and_default() -> None:
    drawn = searching.task_chart(SEARCH)
    assert drawn is not None
    assert len(drawn.rows["tried"]) == SEARCH.measurements == 32
    assert [row["told"] for row in drawn.rows["default"]] == ["2 ms"]
    best = [float(str(row["time_s"])) for row in drawn.rows["best"]]
    assert best == sorted(best, reverse=True) and drawn.rows["best"][-1]["at"] == 40
    bare = searching.task_chart(replace(SEARCH, first_s=None))
    assert bare is not None and bare.rows["default"] == []
    assert searching.task_chart(search(trial(1, None))) is None
    assert searching.busiest([search(), search(trial(1, 1.0)), SEARCH], 9)[0] is SEARCH


times = st.none() | st.floats()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(times, st.integers(-9, 9) | st.booleans() | st.text(max_size=30)), max_size=30
    ),
    st.lists(st.tuples(st.integers(0, 999), times), max_size=9),
)
def test_any_trials_give_well_formed_charts(
    rows: list[tuple[float | None, int | str | bool]], batches: list[tuple[int, float | None]]
) -> None:
    found = search(*(trial(n, s, a=value, b=n % 3) for n, (s, value) in enumerate(rows, 1)))
    curve = [CurvePoint(measurements=n, elapsed_s=n / 7, network_latency_s=s) for n, s in batches]
    drawn = [*searching.network_charts(curve, (found,)).values()]
    drawn += filter(None, [searching.task_chart(found)])
    shares, coordinates = importance.info(found), parallel.info(found)
    if shares is not None:
        assert all(0 <= share <= 1 for share in shares.shares.values())
        drawn += filter(None, [importance.chart(shares)])
    if coordinates is not None:
        drawn.append(parallel.chart(coordinates))
    for chart in drawn:
        json.dumps(chart.specification(), allow_nan=False)


def test_importance_finds_the_knob_that_matters() -> None:
    found = importance.info(SEARCH)
    assert found is not None
    assert found.implementation == "conv2d_direct"
    assert found.trials == 32
    assert found.varied == ("tile", "unroll", "order")
    shares = found.shares
    assert next(iter(shares)) == "tile"
    assert shares["tile"] > 0.99
    assert shares["unroll"] < 0.05 and shares["order"] < 0.05


def test_importance_of_two_knobs_adds_up() -> None:
    grid = [(a, b) for a in (1, 2, 4) for b in (False, True)] * 5
    found = importance.info(
        search(*(trial(n, 1e-3 * a * (2 if b else 1), a=a, b=b) for n, (a, b) in enumerate(grid)))
    )
    assert found is not None
    shares = found.shares
    # log2: a has variance 2/3, b has 1/4
    assert shares["a"] == pytest.approx(8 / 11, abs=0.03)
    assert shares["b"] == pytest.approx(3 / 11, abs=0.03)


def test_a_knob_without_effect_gets_nothing_however_many_values() -> None:
    random = np.random.default_rng(0)
    shares: list[float] = []
    for _ in range(50):
        rows = [trial(n, float(t), a=n % 10) for n, t in enumerate(np.exp(random.normal(size=40)))]
        found = importance.info(search(*rows))
        assert found is not None
        shares.append(found.shares.get("a", 0.0))
    assert np.mean(shares) < 0.15


def test_importance_is_not_told_from_few_trials() -> None:
    timed = [t for t in TRIALS if t.latency_s is not None]
    assert importance.info(search(*timed[:7])) is None
    few = importance.info(search(*timed[:29]))
    assert few is not None and not few.shares and few.trials == 29
    assert importance.info(search(*timed[:30])).shares


def test_the_page_says_how_many_trials_there_were() -> None:
    timed = [t for t in TRIALS if t.latency_s is not None]

    def page(count: int) -> str:
        return html.render(replace(OPTIMIZED, curve=CURVE, searches=(search(*timed[:count]),)))

    assert "there are 8 timed trials, and it takes 30" in page(8)
    assert "each knob of conv2d_direct has" not in page(8)
    assert "takes 30 timed trials of one implementation of a task, and there were 3" in page(3)
    assert "each knob of conv2d_direct has" in page(30)


def test_importance_needs_variance() -> None:
    same = importance.info(search(*(trial(n, 1e-3, a=n) for n in range(30))))
    assert same is not None and not same.shares and same.varied == ("a",)
    unique = importance.info(search(*(trial(n, 1e-3 * (n + 1), a=f"t{n}") for n in range(30))))
    assert unique is not None and not unique.shares
    smooth = importance.info(search(*(trial(n, 1e-3 * (n + 1), a=n) for n in range(30))))
    assert smooth is not None and smooth.shares["a"] > 0.8


def test_only_the_implementation_tried_most_counts() -> None:
    others = tuple(replace(t, implementation="winograd", settings={"m": 1}) for t in TRIALS[:10])
    found, coordinates = (
        module.info(search(*TRIALS, *others)) for module in (importance, parallel)
    )
    assert found is not None and coordinates is not None
    assert found.trials == 32
    assert len(coordinates.best) + len(coordinates.others) == 32


def test_coordinates_highlight_the_fastest_tenth() -> None:
    coordinates = parallel.info(SEARCH)
    assert coordinates is not None
    assert coordinates.knobs[-1] == "tile", "the most important knob is next to the time"
    assert "fixed" not in coordinates.knobs
    assert len(coordinates.best) == 4 and len(coordinates.others) == 28
    assert max(t.latency_s or 0 for t in coordinates.best) <= min(
        t.latency_s or 0 for t in coordinates.others
    )
    assert coordinates.values[-1] == (1, 2, 4)
    rows = parallel.chart(coordinates).rows["trials"]
    ends: dict[object, list[Any]] = {}
    for row in rows:
        if row["knob"] == "time":
            ends.setdefault(row["colour"], []).append(row["height"])
    best, faded, failed = (ends[f"var(--{name})"] for name in ("best", "faded", "failed"))
    assert (len(best), len(faded), len(failed)) == (4, 28, 8) and len(rows) == 40 * 4
    assert min(best) >= max(faded) >= min(faded) == 0.0 > max(failed), "fast is up"


def test_page_shows_the_search() -> None:
    made = replace(OPTIMIZED, curve=CURVE, searches=(SEARCH,), tuner="xgb", level="op")
    text = html.render(made).replace("<wbr>", "")
    for wanted in (
        "How the search went",
        "<code>xgb</code>",
        "<code>op</code>",
        "40 trials, 8 failed, 2.00× the default&#39;s speed, converged",
        "32 timed trials of conv2d_direct",
        "functional ANOVA",
    ):
        assert wanted in text, wanted
    assert text.count('class="chart') == 7
    assert "How the search went" not in html.render(OPTIMIZED)


def test_large_searches_stay_small_pages() -> None:
    many = search(*(replace(TRIALS[n % 40], number=n + 1) for n in range(3000)))
    searches = tuple(replace(many, task=f"task{n}") for n in range(40))
    found = watched(replace(OPTIMIZED, searches=searches))
    assert found is not None
    assert len(found.panels) + found.left_out == 40 and found.left_out > 0
    page = html.render(replace(OPTIMIZED, curve=CURVE, searches=searches))
    assert len(page) < 1_300_000 + len(vega.libraries())


def test_searches_table_leaves_trials_and_idle_tasks_out() -> None:
    table = views.searches_table((replace(SEARCH, gain=1.1), search(), replace(SEARCH, task="b")))
    assert [record["task"] for record in table.records] == ["b", "layer1.conv1"]
    assert "trials" not in table.raw()[0]
    assert "| b | 2 ms | 1 ms | 2.00× | 32 | 8 | yes |" in formats.to_markdown(table)
    unknown, nothing = replace(SEARCH, task="unknown", gain=None), replace(SEARCH, gain=1.0)
    last = views.searches_table((unknown, nothing)).records[-1]
    assert last["task"] == "unknown", "no gain is still known, of a task that only failed it is not"
