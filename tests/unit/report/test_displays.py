"""Results show the tables of the command line, at a prompt and in a notebook."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from helpers.fakes import forecasts
from helpers.records.report_results import COMPARED, OPTIMIZED, SEARCH
from tilewright.core import comparisons, predictions, results
from tilewright.core.display import Displayed
from tilewright.core.predictions import EvaluatePick, EvaluateResult
from tilewright.core.results import (
    DatabaseInfo,
    ImportResult,
    SkippedLine,
    SubgraphStudyResult,
    TunerStudyResult,
    TunerStudyRow,
)
from tilewright.report import displays
from tilewright.report.tables import Column, Table

pytestmark = pytest.mark.regression

KINDS = {
    kind
    for module in (comparisons, predictions, results)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Displayed) and kind is not Displayed
}
INFO = DatabaseInfo(path="t.db", schema_version=1, measurements=12, failures=0, devices=1, tasks=2)
TAKEN = ImportResult(
    path="<b>.log", kind="autotvm", imported=3, skipped=(SkippedLine(line=4, reason="<i>bad</i>"),)
)
STUDIED = TunerStudyResult(
    rows=(
        TunerStudyRow(
            tuner="random", sweep="conv", measured_share=0.05, regret_median=0.25, regret_p90=0.5
        ),
    ),
)
SHOWN: list[tuple[Any, tuple[str, ...]]] = [
    (OPTIMIZED, (OPTIMIZED.model, "ONNX Runtime", "layer1.conv1")),
    (
        replace(OPTIMIZED, searches=(SEARCH,), seconds_by_phase={"tune": 1.0}),
        ("Search", "2.00×"),
    ),
    (STUDIED, ("after 5.00 %", "25.0 %")),
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


def shown(result: Any) -> displays.Page:
    """The page of a result that has one."""
    found = displays.page(result)
    assert found is not None
    return found


def titles(result: Any) -> list[str]:
    """Of all tables, as they are at a prompt."""
    return [table.title for table in shown(result).tables]


def test_an_evaluation_shows_notes_and_picks() -> None:
    found = EvaluateResult(family="knobs", split="device", shots=0, rows=(), notes=("3 left out",))
    assert "3 left out" in repr(found)
    assert titles(found) == ["Predictions"]
    pick = EvaluatePick(group="all", shots=4, verified=8, regret=0.125)
    assert shown(replace(found, picks=(pick,))).more[0].shown() == [["all", "4", "8", "12.5 %"]]


def test_a_table_without_rows_is_shown_where_there_is_no_other() -> None:
    bare = Table(columns=(Column(field="a", label="a"),), records=())
    full = replace(bare, records=({"a": 1},))
    assert displays.Page(rows=bare).tables == (bare,)
    assert displays.Page(rows=bare, more=[full]).tables == (full,)
    assert displays.Page(rows=bare, summary=full).tables == (full,), "the summary is another one"
    assert displays.Page(rows=full, more=[bare]).tables == (full,)
    assert displays.Page(rows=full, summary=bare).tables == (full, bare)


def test_a_run_shows_what_it_searched() -> None:
    assert titles(OPTIMIZED) == ["Tasks", "zoo:small"]
    assert titles(replace(OPTIMIZED, searches=(SEARCH,))) == ["Tasks", "Search", "zoo:small"]


def test_a_run_tells_how_its_tasks_add_up() -> None:
    (told,) = shown(OPTIMIZED).notes
    assert told.startswith("The tasks add up to 4.9 ms, 2.00 % less than the network's 5 ms.")
    assert shown(replace(OPTIMIZED, tasks_latency_s=0.0)).notes == (), "they were not timed alone"


def test_what_a_study_of_subgraphs_says_of_the_network() -> None:
    study = SubgraphStudyResult(rows=(), network_gain=None)
    assert shown(study).notes == ()
    gained = replace(study, network_gain=1.5, network_gain_low=1.25, network_gain_high=1.75)
    assert shown(gained).notes == ("The whole network gains 1.50× (1.25 to 1.75).",)


def test_what_is_not_known_of_a_kernel_is_a_warning() -> None:
    assert shown(forecasts.EXPLAINED).warnings == ()
    assert shown(replace(forecasts.EXPLAINED, reason="no nvcc")).warnings == (
        "registers and spills are not known: no nvcc",
    )


@pytest.mark.parametrize("result", [result for result, _ in SHOWN], ids=lambda r: type(r).__name__)
def test_numbers_stand_to_the_right_and_texts_to_the_left(result: Any) -> None:
    for table in shown(result).tables:
        for column in table.columns:
            values = [record.get(column.field) for record in table.records]
            kinds = {type(value) for value in values if value is not None}
            if kinds and kinds <= {int, float}:
                assert column.number, (table.title, column.field)
            if kinds and kinds <= {str, bool}:
                assert not column.number, (table.title, column.field)


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
