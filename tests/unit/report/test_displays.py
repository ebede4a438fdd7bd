"""Results show the tables of the command line, at a prompt and in a notebook."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from helpers.fakes import forecasts
from helpers.records.report_results import COMPARED, OPTIMIZED
from tilewright.core import predictions, results
from tilewright.core.display import Displayed
from tilewright.core.predictions import EvaluateResult
from tilewright.core.results import DatabaseInfo, ImportResult, SkippedLine
from tilewright.report import displays
from tilewright.report.tables import Column, Table

pytestmark = pytest.mark.regression

KINDS = {
    kind
    for module in (predictions, results)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Displayed) and kind is not Displayed
}
INFO = DatabaseInfo(path="t.db", schema_version=1, measurements=12, failures=0, devices=1, tasks=2)
TAKEN = ImportResult(
    path="<b>.log", kind="autotvm", imported=3, skipped=(SkippedLine(line=4, reason="<i>bad</i>"),)
)
SHOWN: list[tuple[Any, tuple[str, ...]]] = [
    (OPTIMIZED, (OPTIMIZED.model, "ONNX Runtime", "layer1.conv1")),
    (COMPARED, ("Comparison", "Geometric mean", "was skipped")),
    (forecasts.PREDICTED, ("Operators",)),
    (forecasts.COLLECTED, ("Collected", "copies and probes")),
    (forecasts.FITTED, ("Predictors",)),
    (forecasts.EXPLAINED, ("Factors", "Turning points")),
    (forecasts.THREADS, ("threads", "best")),
    (forecasts.SWEPT, ("measured", "predicted")),
    (INFO, ("t.db",)),
    (TAKEN, ("autotvm",)),
]


@pytest.fixture(autouse=True)
def installed() -> None:
    displays.install()


@pytest.mark.parametrize(("result", "words"), SHOWN, ids=lambda value: type(value).__name__)
def test_results_show_their_tables(result: Any, words: tuple[str, ...]) -> None:
    text, html = repr(result), result._repr_html_()
    for word in words:
        assert word in text and word in html
    assert "<table>" in html
    assert f"{type(result).__name__}(" not in text


def test_every_kind_has_a_page() -> None:
    without = [kind.__name__ for kind in KINDS if displays.page.dispatch(kind) is _default()]
    assert len(KINDS) >= 17
    assert not without


def _default() -> Any:
    return displays.page.dispatch(object)


def test_what_comes_from_files_is_escaped() -> None:
    html = TAKEN._repr_html_()
    assert html is not None
    assert "<b>" not in html and "<i>" not in html and "&lt;i&gt;" in html


def test_notes_of_an_evaluation_are_shown() -> None:
    found = EvaluateResult(family="knobs", split="device", shots=0, rows=(), notes=("3 left out",))
    assert "3 left out" in repr(found)


def test_long_tables_are_cut_at_a_prompt_and_whole_in_a_notebook() -> None:
    columns = (Column(field="a", label="a"), Column(field="b", label="number", number=True))
    records = tuple({"a": f"row{n}", "b": n} for n in range(45))
    text = displays.table_text(Table(columns=columns, records=records, title="Long"))
    lines = text.splitlines()
    assert (lines[0], lines[-1].strip()) == ("Long", "… and 15 more rows")
    assert lines[2].endswith("     0") and "row29" in text and "row30" not in text


def test_without_the_rooms_above_a_result_is_its_fields() -> None:
    """In a process of its own, where nothing above core was imported."""
    script = (
        "from tilewright.core.predictions import ThreadTime, ThreadsResult\n"
        "r = ThreadsResult(model='m', measured=(), best_threads=1, loss_of_all=0.0)\n"
        "assert r._repr_html_() is None\n"
        "print(r)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "ThreadsResult(model='m', measured=(), best_threads=1, loss_of_all=0.0)\n"
    )
