"""The command that checks shares reads what the report wrote."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from helpers.records.report_results import CONV, OPTIMIZED
from shares import charted, faults, tabled
from tilewright.core.results import OptimizeResult
from tilewright.report import html

pytestmark = pytest.mark.regression

PARTS = (0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 1e-6)


def result(*, measured: bool) -> OptimizeResult:
    tasks = tuple(
        replace(
            CONV,
            name=f"a<b>: {n}, 50 %",
            count=1 + n % 2,
            share=part,
            latency_s=0.001 if measured else None,
            in_place_s=0.01 * part / (1 + n % 2),
        )
        for n, part in enumerate(PARTS)
    )
    rest = 1 - sum(PARTS)
    return replace(OPTIMIZED, tasks=tasks, rest_share=rest, rest_s=0.01 * rest)


def faults_of(data: OptimizeResult, page: str) -> list[str]:
    answer: dict[str, Any] = asdict(data)
    return faults(answer, {"result": answer}, page)


def test_a_report_that_is_right_has_no_faults() -> None:
    for measured in (True, False):
        made = result(measured=measured)
        page = html.render(made)
        assert faults_of(made, page) == []
        assert len(charted(page)) == len(tabled(page)) == len(PARTS) + 1
        assert charted(page)[1][0] == "a<b>: 1, 50 % ×2"


def test_faults_are_told() -> None:
    made = result(measured=True)
    unmeasured = replace(made, tasks=(replace(made.tasks[0], share=None), *made.tasks[1:]))
    found = faults_of(unmeasured, html.render(unmeasured))
    assert [text.split(":")[0] for text in found] == [
        "answer", "manifest", "table", "table", "chart", "chart",
    ]  # fmt: skip
    assert "shares add up to 0.700" in found[0]
