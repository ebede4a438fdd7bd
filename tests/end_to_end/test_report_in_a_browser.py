"""The report as a reader sees it: in Chromium, on a desk and on a phone, light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.command_line import succeed
from helpers.records.report_results import CONV, CURVE, OPTIMIZED, SEARCH
from tilewright.report import html

sync = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

WIDTHS, SCHEMES, PAGES = (1280, 390), ("light", "dark"), ("report", "searched", "profile")
SPLIT_WORDS = """() => {
  const found = [];
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (node.parentElement.closest("script, svg, noscript, style, .hash")) continue;
    for (const word of node.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].map((each) => Math.round(each.top)));
      if (tops.size > 1) found.push(word[0]);
    }
  }
  return found;
}"""
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("main *")) {
    const drawn = node.tagName === "text";
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    if (!own || !node.checkVisibility() || node.closest("script, noscript, style")) continue;
    const style = getComputedStyle(node);
    const pair = [light(rgb(drawn ? style.fill : style.color)), light(behind(node))];
    const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (contrast < 4.5) found.push([node.textContent.slice(0, 40), contrast]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report about the made-up CPU, where nothing is built."""
    folder = tmp_path_factory.mktemp("report")
    asked = ("--target", "simulated", "--budget", "5s")
    succeed(folder, "optimize", "zoo:squeezenet1_1", *asked, "--out", "out")
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report about a search, with names as long as exporters write them."""
    path = tmp_path_factory.mktemp("searched") / "report.html"
    name = "/model/encoder/layer.0/attention.self/query_key_value_projection_MatMul"
    tasks = tuple(replace(CONV, name=f"{name}{n}", share=0.3 / (n + 1)) for n in range(9))
    searches = (SEARCH, replace(SEARCH, task=name))
    made = replace(OPTIMIZED, model=f"hub:{name}", tasks=tasks, curve=CURVE, searches=searches)
    path.write_text(html.render(made), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a profile on the made-up CPU."""
    folder = tmp_path_factory.mktemp("profile")
    succeed(folder, "profile", "zoo:mlp", "--target", "simulated", "--out", "out")
    return folder / "out" / "profile.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The report in a window of a width and a colour scheme; nothing may be said or asked for."""
    width, scheme, which = getattr(request, "param", (1280, "light", "report"))
    report: Path = request.getfixturevalue(which)
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened = context.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda asked: said.append(asked.url))
    opened.goto(report.as_uri())
    opened.wait_for_function(
        "[...document.querySelectorAll('.chart')].filter(box => box.clientWidth)"
        ".every(box => box.querySelector('svg'))"
    )
    yield opened
    context.close()
    assert said == [report.as_uri()]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            (width, scheme, page),
            marks=() if (w + s) % 2 == 0 else pytest.mark.on_request,  # each width, each scheme
        )
        for w, width in enumerate(WIDTHS)
        for s, scheme in enumerate(SCHEMES)
        for page in PAGES
    ],
    indirect=True,
)
def test_the_page_is_readable(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "scrolls sideways"
    assert page.evaluate(SPLIT_WORDS) == []
    assert page.evaluate(CONTRASTS) == []
    for chart in page.query_selector_all(".chart"):
        if chart.is_visible():
            box = chart.bounding_box()
            drawn = chart.query_selector("svg").bounding_box()
            assert drawn["width"] <= box["width"] + 1, "a chart is wider than its place"
            assert chart.query_selector_all("[class*=mark-] path, [class*=mark-] text")


@pytest.mark.parametrize("page", [(1280, "light", "searched")], indirect=True)
def test_charts_in_closed_parts_are_drawn_when_these_open(page: Any) -> None:
    assert len(page.query_selector_all(".chart")) == 10
    closed = page.query_selector_all("details.look:not([open])")
    for part in closed:
        part.query_selector("summary").click()
    page.wait_for_function(
        "[...document.querySelectorAll('.chart')].every(box => box.querySelector('svg'))"
    )


def test_tables_sort_and_filter_with_mouse_and_keyboard(page: Any) -> None:
    def cells(column: int) -> list[str]:
        return page.eval_on_selector_all(
            f"[aria-label=Tasks] tbody tr:not([hidden]) td:nth-child({column})",
            "cells => cells.map(cell => cell.innerText.trim())",
        )

    def numbers(column: int) -> list[float]:
        return [float(text) for text in cells(column) if text != "–"]

    calls = page.locator("[aria-label=Tasks] th button", has_text="Calls")
    calls.click()
    assert numbers(3) == sorted(numbers(3), reverse=True)
    calls.press("Enter")
    assert numbers(3) == sorted(numbers(3)) and len(set(numbers(3))) > 1
    assert page.locator("[aria-label=Tasks] th[aria-sort=ascending]").inner_text() == "Calls"
    page.locator("[aria-label=Tasks] th button", has_text="Task").first.click()
    assert len(cells(1)) > 5
    everything = cells(1)
    field = page.locator("input[type=search]").first
    field.fill("OUTSIDE the")
    assert cells(1) == ["outside the tasks"]
    field.fill("")
    assert cells(1) == everything


def test_tooltips_name_what_is_under_the_pointer(page: Any) -> None:
    page.locator(".bars [class*=mark-rect] path").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert "Share" in tooltip.inner_text() and "%" in tooltip.inner_text()


@pytest.mark.parametrize("page", [(390, "dark", "report")], indirect=True)
def test_the_graph_scrolls_in_its_box_and_tells_of_calls(page: Any) -> None:
    place = page.locator(".picture").first
    place.evaluate("box => box.scrollTo(0, 1e6)")
    assert place.evaluate("box => box.scrollTop") > 300
    assert place.locator("[class*=mark-text] text", has_text="conv2d").count() > 20
    place.locator("[class*=mark-rect][class*=layer_2] path").last.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert "Layouts" in tooltip.inner_text() and "float32[1, 1000]" in tooltip.inner_text()


def test_without_script_everything_but_the_charts_is_there(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(report.as_uri())
    assert opened.locator("[aria-label=Tasks] tbody tr").count() > 5
    assert opened.locator("noscript").first.is_visible()
    context.close()
