"""The page: well-formed, self-contained, harmless, complete."""

from __future__ import annotations

from dataclasses import fields, replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.records.report_results import (
    COMPARED,
    CONV,
    COPY,
    CURVE,
    OPTIMIZED,
    SEARCH,
    TRIALS,
    search,
)
from tilewright.core.accounts import CallReport
from tilewright.core.records import EnergyUse
from tilewright.core.results import MemoryUse, OptimizeResult, ProfileResult, TimedNetwork
from tilewright.report import displays, html, vega
from tilewright.report.tasks import shares_chart

VOID = {"meta", "br", "wbr"}
LIBRARIES = len(vega.libraries())
EVIL = "a<script>alert(1)</script>\x1b[31m\u202e\"'><img src=x onerror=alert(2)>{{ 7*7 }}\x00"


class Page(HTMLParser):
    """Checks nesting while it reads; keeps tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = self.charts = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.extend(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.extend(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.charts += data if data.startswith("{") else ""
        else:
            self.text += data


def assert_harmless(text: str) -> Page:
    page = Page(text)
    assert not page.tags & {"img", "iframe", "link", "object", "embed", "a", "form"}
    names = {name for name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "href", "action", "style"}
    own = text.replace(vega.libraries(), "")
    assert not {c for c in own if ord(c) < 32 and c != "\n"}
    assert "\u202e" not in text
    assert own.count("<script") == own.count("</script>") <= own.count("chart") + 2
    return page


def poisoned() -> OptimizeResult:
    """Every text of a result, nested ones too, is hostile."""
    task = replace(
        CONV,
        **{name: EVIL for name in ("name", "anchor", "implementation", "bound", "key")},
        settings={EVIL: EVIL},
        layouts=(EVIL, EVIL),
        nodes=(EVIL, EVIL),
    )
    texts = {
        field.name: EVIL
        for field in fields(OPTIMIZED)
        if isinstance(getattr(OPTIMIZED, field.name), str)
    }
    return replace(
        OPTIMIZED,
        **texts,
        tasks=(task, replace(COPY, name=EVIL)),
        environment={EVIL: EVIL},
        warnings=(EVIL,),
        seconds_by_phase={EVIL: 1.0},
        curve=CURVE,
        searches=(search(*(replace(t, settings={EVIL: f"{EVIL}{t.number % 2}"}) for t in TRIALS)),)
        + tuple(replace(SEARCH, task=EVIL) for _ in range(2)),
    )


def shown(result: object) -> str:
    """A result in a notebook."""
    page = displays.page(result)
    assert page is not None
    return displays.notebook_html(page)


def test_page_holds_everything() -> None:
    text = html.render(
        replace(
            OPTIMIZED,
            warnings=("clocks moved",),
            latency_spread=0.25,
            tasks=(*OPTIMIZED.tasks, replace(CONV, name="conv9", latency_s=None, in_place_s=2e-5)),
            rest_s=0.0012,
            rest_share=0.24,
        )
    )
    page = assert_harmless(text)
    for wanted in (
        "zoo:small",
        "5 ms",
        "1.20×",
        "1.15 to 1.25, over 6 ms",
        "1.50×",
        "1.40 to 1.60, over 7.5 ms",
        "3.0e-06",
        "layer1.conv1",
        "60.0 %",
        "75.0 %",
        "conv2d_direct",
        "output_block=16 unroll=yes",
        "NCHW16c, OIHW16i16o",
        "2.0e-07 (1.0e-05)",
        "some CPU",
        "clocks moved",
        "varied by 25.0 %",
        "The tasks add up to 4.9 ms, 2.00 % less than the network's 5 ms.",
        "84.0 %",
        "not measured alone",
        "outside the tasks",
        "24.0 %",
        "50 MiB",
    ):
        assert wanted in page.text, wanted
    for wanted in ("200 GFLOP/s", "20.0 GB/s", "84.0 %", "not measured alone"):
        assert wanted in page.charts or wanted in page.text, wanted
    assert text.count('class="chart') == 2


def test_page_needs_no_network() -> None:
    """Nor does the script of others in it: `test_report_in_a_browser`, and no `eval`."""
    text = html.render(OPTIMIZED).replace(vega.libraries(), "")
    text = text.replace("https://vega.github.io/schema/vega-lite/v6.json", "")
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text and "unsafe-eval" not in text
    assert "prefers-color-scheme: dark" in text
    assert len(text) < 60_000


def test_hostile_names_stay_text() -> None:
    page = assert_harmless(html.render(poisoned()))
    assert "<script>alert(1)</script>\\x1b[31m\\u202e" in page.text
    assert "{{ 7*7 }}" in page.text
    assert page.text.count("alert(1)") > 12
    assert "alert(1)" in page.charts and "<" not in page.charts


def test_data_of_charts_cannot_end_their_script() -> None:
    """Neither with a tag, nor with a comment, nor with a separator of lines."""
    drawn = shares_chart((replace(CONV, name="</script><!--\u2028<script>alert(1)"),))
    text = str(drawn.__html__())  # pyright: ignore
    assert text.count("</script") == text.count("<script") == 1
    assert "<!--" not in text and "\u2028" not in text


@settings(max_examples=30, deadline=None)
@given(name=st.text(max_size=60))
def test_any_name_gives_a_well_formed_page(name: str) -> None:
    task = replace(CONV, name=name, bound=name)
    result = replace(OPTIMIZED, model=name, tasks=(task,), explanation=name)
    assert_harmless(html.render(result)).text.encode("utf-8")
    assert_harmless(shown(result))


def test_empty_result_still_renders() -> None:
    bare = replace(
        OPTIMIZED,
        tasks=(),
        baseline_latency_s=None,
        reference_latency_s=None,
        speedup_vs_reference=None,
        max_abs_error=None,
        max_rel_error=None,
        peak_flop_per_s=0.0,
        peak_bytes_per_s=0.0,
        environment={},
        seconds_by_phase={},
        tasks_latency_s=0.0,
    )
    page = assert_harmless(html.render(bare))
    assert "No tasks were timed." in page.text
    assert "nan" not in page.text.lower()


def test_large_networks_stay_small_pages() -> None:
    tasks = tuple(replace(CONV, name=f"conv{i}", share=1 / 300) for i in range(300))
    assert len(html.render(replace(OPTIMIZED, tasks=tasks))) < 600_000 + LIBRARIES


@pytest.mark.parametrize(
    ("tasks_s", "explanation", "words"),
    [
        (0.003, "", "What causes the difference was not found."),
        (0.003, "Calls cost 2 ms.", "Calls cost 2 ms."),
        (0.0055, "", "10.0 % more"),
    ],
)
def test_difference_between_parts_and_whole(tasks_s: float, explanation: str, words: str) -> None:
    result = replace(OPTIMIZED, tasks_latency_s=tasks_s, explanation=explanation)
    assert words in Page(html.render(result)).text


def profiled(result: OptimizeResult) -> ProfileResult:
    """A profile of the same network."""
    shared = {item.name: getattr(result, item.name) for item in fields(TimedNetwork)}
    return ProfileResult(**shared, network_latency_s=0.005)


def test_a_profile_has_a_page_without_search_and_race() -> None:
    memory = MemoryUse(
        planned_bytes=3 << 20,
        weight_bytes=1 << 20,
        arena_bytes=1 << 20,
        workspace_bytes=1 << 20,
        interface_bytes=0,
        code_bytes=0,
        reason="nobody asked",
    )
    energy = EnergyUse(method="constant:65", energy_j=0.325, power_w=65.0)
    text = html.render_profile(replace(profiled(OPTIMIZED), memory=memory, energy=energy))
    page = assert_harmless(text)
    for wanted in (
        "Profiled for",
        "5 ms",
        "4.9 ms",
        "3 MiB",
        "nobody asked",
        "325 mJ",
        "by constant:65",
        "layer1.conv1",
        "some CPU",
        "The tasks add up to 4.9 ms, 2.00 % less than the network's 5 ms.",
    ):
        assert wanted in page.text, wanted
    for unwanted in ("Optimized", "The race", "Since the last run", "Speed-ups", "ONNX Runtime"):
        assert unwanted not in page.text, unwanted


def test_the_subtitle_names_the_types_that_are_computed_with() -> None:
    call = CallReport(
        name="a",
        task="t",
        operator="conv2d",
        implementation="conv2d_int8",
        inputs=(),
        layouts=("NCHW", "NCHW"),
        dtype="int8",
        shape=(1, 8, 4, 4),
        latency_s=1e-5,
        in_place_s=1e-5,
        alive_bytes=128,
    )
    other = replace(call, name="b", dtype="float32")
    result = replace(OPTIMIZED, calls=(call, other, call))
    assert "2 threads, int8 and float32. Written on" in Page(html.render(result)).text


def test_notebook_fragments_are_harmless() -> None:
    result = poisoned()
    profile = profiled(result)
    assert_harmless(html.render_profile(profile))
    compared = replace(COMPARED, skipped={EVIL: EVIL})
    for text in (
        shown(result),
        shown(profile),
        shown(compared),
    ):
        assert_harmless(text)
    assert "bf16" in shown(COMPARED)
    assert "not installed" in shown(COMPARED)
