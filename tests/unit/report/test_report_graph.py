"""The graph tuner's part of a report."""

from __future__ import annotations

from dataclasses import fields

from helpers.records.report_results import OPTIMIZED
from tilewright.core.results import AssignmentRow, ChoiceRow, GraphTuneResult, OptimizeResult
from tilewright.report.graph import CHOICES as HEADING
from tilewright.report.graph import assignments_table, solution_table
from tilewright.report.html import render

CHOICES = (
    ChoiceRow(
        call="stem<conv>",
        anchor="conv2d",
        implementation="conv2d_direct",
        layouts=("plain", "plain", "plain", "blocked32"),
        changed=(),
        kernel_s=2e-4,
        change_s=0.0,
        measured=True,
    ),
    ChoiceRow(
        call="last",
        anchor="conv2d",
        implementation="conv2d_winograd",
        layouts=("blocked16", "plain", "plain"),
        changed=("stem.out",),
        kernel_s=1e-4,
        change_s=5e-6,
        measured=False,
    ),
)
RESULT = GraphTuneResult(
    **{field.name: getattr(OPTIMIZED, field.name) for field in fields(OptimizeResult)},
    solver="exact",
    objective_s=3.05e-4,
    bound_s=3.05e-4,
    gap=0.0,
    solve_s=0.02,
    operators=2,
    candidates=40,
    transforms=1,
    measured_latency_s=3.2e-4,
    assignments=(
        AssignmentRow(name="default", predicted_s=None, measured_s=4e-4),
        AssignmentRow(name="chosen", predicted_s=3.05e-4, measured_s=3.2e-4),
    ),
    choices=CHOICES,
)


def test_assignments_say_what_the_network_takes_beyond_the_sum() -> None:
    shown = assignments_table(RESULT).shown()
    assert shown[0][0] == "default" and shown[0][3] == shown[0][1]
    assert shown[1][3] == "4.92 %"
    assert assignments_table(RESULT).records[1]["surplus"] > 0.049


def test_choices_mark_copies_and_what_is_modelled() -> None:
    first, last = HEADING.of(CHOICES).shown()
    assert first[3] == "plain -> blocked32" and last[3] == "blocked16 -> plain"
    assert (first[5], last[5]) == ("", "stem.out")
    assert (first[7], last[7]) == ("yes", "no")


def test_the_solution_names_solver_bound_and_gap() -> None:
    facts = {record["name"]: record["value"] for record in solution_table(RESULT).records}
    assert facts["solver"] == "exact" and facts["gap"] == 0.0
    assert facts["changes of layout"] == 1


def test_the_page_has_every_call_escaped_and_marks_copies() -> None:
    page = render(RESULT)
    assert "Layouts and algorithms" in page and "stem&lt;conv&gt;" in page
    assert "stem<conv>" not in page
    assert page.count('<tr class="marked">') == 1
    assert "Layouts and algorithms" not in render(OPTIMIZED)
