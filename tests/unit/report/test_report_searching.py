"""What the report says about a search: curves, failures, knobs, coordinates."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_results import CURVE, OPTIMIZED, SEARCH, TRIALS, search, trial

from tilewright.core.results import CurvePoint
from tilewright.report import curves, formats, html, importance, parallel, views
from tilewright.report.axes import count_axis, time_axis
from tilewright.report.searching import watched

Point = tuple[float, float]


def lines_of(text: str, kind: str) -> list[list[Point]]:
    """The corners of all lines of a class in a drawing."""
    picture = ElementTree.fromstring(text)
    paths = [node.get("d", "") for node in picture.iter("path") if node.get("class") == kind]
    return [
        [(float(x), float(y)) for x, y in (pair.split() for pair in line.split("L"))]
        for path in paths
        for line in path.split("M")[1:]
    ]


def test_network_progress_counts_all_tasks_trials_in_time() -> None:
    other = search(*(replace(t, elapsed_s=t.elapsed_s + 1) for t in TRIALS[:5]), task="other")
    tried, spent = curves.network_progress(CURVE, (SEARCH, other))
    assert [x for x, _ in tried.steps] == [16, 24, 32, 40]
    assert [x for x, _ in spent.steps] == [20, 30, 40, 50]
    assert [s for _, s in tried.steps] == [0.01 / n for n in range(2, 6)]
    # the fifth trials of both, in the order they were tried, then the rest of the first
    assert tried.failures == (9, 10, 15, 20, 25, 30, 35, 40, 45)
    assert spent.failures[:3] == (10.0, 11.0, 20.0)
    assert curves.network_progress(CURVE[:1], (SEARCH,)) == ()


def test_network_time_never_rises() -> None:
    noisy = (*CURVE, replace(CURVE[-1], measurements=48, network_latency_s=0.9))
    (tried, _) = curves.network_progress(noisy, ())
    assert tried.steps[-1] == (48, 0.002)
    (stairs,) = lines_of(curves.network_figure(tried), "best")
    assert all(
        x1 <= x2 and y1 <= y2 for (x1, y1), (x2, y2) in zip(stairs, stairs[1:], strict=False)
    )
    assert all(x1 == x2 or y1 == y2 for (x1, y1), (x2, y2) in zip(stairs, stairs[1:], strict=False))


def test_failures_are_ticks_on_the_axis() -> None:
    for progress in curves.network_progress(CURVE, (SEARCH,)):
        ticks = lines_of(curves.network_figure(progress), "failed")
        assert len(ticks) == len(progress.failures) == 8
        assert all(begin[0] == end[0] and begin[1] > end[1] for begin, end in ticks)
    assert len(lines_of(curves.task_figure(SEARCH), "failed")) == 8


def test_task_panel_shows_trials_best_and_default() -> None:
    text = curves.task_figure(SEARCH)
    picture = ElementTree.fromstring(text)
    assert len(list(picture.iter("circle"))) == SEARCH.measurements == 32
    ((begin, end),) = lines_of(text, "base")
    assert begin[1] == end[1]
    (stairs,) = lines_of(text, "best")
    assert [y for _, y in stairs] == sorted(y for _, y in stairs)
    assert lines_of(curves.task_figure(replace(SEARCH, first_s=None)), "base") == []
    assert curves.task_figure(search(trial(1, None))) == ""
    assert curves.busiest([search(), search(trial(1, 1.0)), SEARCH], 9)[0] is SEARCH


times = st.none() | st.floats()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(times, st.integers(-9, 9) | st.booleans() | st.text(max_size=30)), max_size=30
    ),
    st.lists(st.tuples(st.integers(0, 999), times), max_size=9),
)
def test_any_trials_give_well_formed_pictures(
    rows: list[tuple[float | None, int | str | bool]], batches: list[tuple[int, float | None]]
) -> None:
    found = search(*(trial(n, s, a=value, b=n % 3) for n, (s, value) in enumerate(rows, 1)))
    curve = [CurvePoint(measurements=n, elapsed_s=n / 7, network_latency_s=s) for n, s in batches]
    texts = [curves.network_figure(p) for p in curves.network_progress(curve, (found,))]
    texts.append(curves.task_figure(found))
    shares, coordinates = importance.info(found), parallel.info(found)
    if shares is not None:
        assert all(0 <= share.share <= 1 for share in shares.shares)
        texts.append(importance.figure(shares))
    if coordinates is not None:
        texts.append(parallel.figure(coordinates))
    for text in filter(None, texts):
        for node in ElementTree.fromstring(text).iter():
            for name in ("cx", "cy", "x", "y", "r", "width"):
                assert math.isfinite(float(node.get(name, "0")))
            assert "nan" not in node.get("d", "") and "inf" not in node.get("d", "")


@given(st.lists(st.floats(1e-9, 1e4), min_size=1, max_size=9))
def test_axes_hold_their_values_and_have_ticks(values: list[float]) -> None:
    for axis in (time_axis(values, 200.0, 20.0), count_axis(values, 0.0, 300.0)):
        assert axis is not None
        places = [axis.at(value) for value in values]
        assert all(min(axis.start, axis.end) <= p <= max(axis.start, axis.end) for p in places)
        ticks = axis.ticks()
        assert 1 <= len(ticks) <= 15
        assert len({label for _, label in ticks}) == len(ticks)


def test_importance_finds_the_knob_that_matters() -> None:
    found = importance.info(SEARCH)
    assert found is not None
    assert found.implementation == "conv2d_direct"
    assert found.trials == 32
    assert found.varied == ("tile", "unroll", "order")
    shares = {share.knob: share.share for share in found.shares}
    assert found.shares[0].knob == "tile"
    assert shares["tile"] > 0.99
    assert shares["unroll"] < 0.05 and shares["order"] < 0.05


def test_importance_of_two_knobs_adds_up() -> None:
    grid = [(a, b) for a in (1, 2, 4) for b in (False, True)] * 5
    found = importance.info(
        search(*(trial(n, 1e-3 * a * (2 if b else 1), a=a, b=b) for n, (a, b) in enumerate(grid)))
    )
    assert found is not None
    shares = {share.knob: share.share for share in found.shares}
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
        shares.append(found.shares[0].share)
    assert np.mean(shares) < 0.15


def test_importance_is_not_told_from_few_trials() -> None:
    timed = [t for t in TRIALS if t.latency_s is not None]
    assert importance.info(search(*timed[:7])) is None
    few = importance.info(search(*timed[:29]))
    assert few is not None and few.shares == () and few.trials == 29
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
    assert same is not None and same.shares == () and same.varied == ("a",)
    unique = importance.info(search(*(trial(n, 1e-3 * (n + 1), a=f"t{n}") for n in range(30))))
    assert unique is not None and unique.shares == ()
    smooth = importance.info(search(*(trial(n, 1e-3 * (n + 1), a=n) for n in range(30))))
    assert smooth is not None and smooth.shares[0].share > 0.8


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
    text = parallel.figure(coordinates)
    best, faded = lines_of(text, "best"), lines_of(text, "faded")
    assert len(best) == 4 and len(faded) == 28 and len(lines_of(text, "failed")) == 8
    assert {len(line) for line in best} == {4}
    # fast is up
    assert max(line[-1][1] for line in best) <= min(line[-1][1] for line in faded)
    assert min(line[-1][1] for line in lines_of(text, "failed")) > max(
        line[-1][1] for line in faded
    )


def test_page_shows_the_search() -> None:
    text = html.render(replace(OPTIMIZED, curve=CURVE, searches=(SEARCH,), tuner="xgb", level="op"))
    for wanted in (
        "How the search went",
        "<code>xgb</code>",
        "<code>op</code>",
        "40 trials, 8 failed, 2.00× the default&#39;s speed, converged",
        "32 timed trials of conv2d_direct",
        "functional ANOVA",
    ):
        assert wanted in text, wanted
    assert text.count("<svg") == 7
    assert "How the search went" not in html.render(OPTIMIZED)


def test_large_searches_stay_small_pages() -> None:
    many = search(*(replace(TRIALS[n % 40], number=n + 1) for n in range(3000)))
    searches = tuple(replace(many, task=f"task{n}") for n in range(40))
    found = watched(replace(OPTIMIZED, searches=searches))
    assert found is not None
    assert len(found.panels) + found.left_out == 40 and found.left_out > 0
    assert len(html.render(replace(OPTIMIZED, curve=CURVE, searches=searches))) < 1_200_000


def test_searches_table_leaves_trials_and_idle_tasks_out() -> None:
    table = views.searches_table((replace(SEARCH, gain=1.1), search(), replace(SEARCH, task="b")))
    assert [record["task"] for record in table.records] == ["b", "layer1.conv1"]
    assert "trials" not in table.raw()[0]
    assert "| b | 2 ms | 1 ms | 2.00× | 32 | 8 | yes |" in formats.to_markdown(table)
