"""Verdicts of compare: --fail-below, --baseline, skipped peers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes.session import FakeSession, compare_row
from tilewright.core.comparisons import CompareResult, CompareRow
from tilewright.report.comparison import geomean_speedup, no_more_error

Command = Callable[..., Any]


def result(*rows: tuple[str, str, float]) -> CompareResult:
    return compared(*(compare_row(*row) for row in rows))


def compared(*rows: CompareRow) -> CompareResult:
    mean = geomean_speedup(rows)
    return CompareResult(rows=rows, geomean_speedup=mean.value if mean else None)


@pytest.mark.parametrize(("bar", "code"), [("0.94", 0), ("0.95", 0), ("0.951", 1)])
def test_fail_below(tilewright: Command, bar: str, code: int) -> None:
    ran = tilewright("compare", "zoo:mlp", "--fail-below", bar, "--format", "json")
    assert ran.code == code
    assert json.loads(ran.out)["data"]["geomean_speedup"] == 0.95
    assert "0.9500" in ran.err


def test_slower_than_a_peer_is_fine_without_a_bar(tilewright: Command) -> None:
    assert tilewright("compare", "zoo:mlp").code == 0


def test_nothing_to_judge_is_negative(tilewright: Command, session: FakeSession) -> None:
    session.compared = CompareResult(rows=(), geomean_speedup=None, skipped={"torch": "missing"})
    ran = tilewright("compare", "zoo:mlp", "--fail-below", "0.9")
    assert ran.code == 1
    assert "torch was skipped: missing" in ran.err


def test_baseline_judges_the_ratio_over_common_models(
    tilewright: Command, session: FakeSession, tmp_path: Path
) -> None:
    session.compared = result(
        ("a", "onnxruntime", 1.0), ("gone", "onnxruntime", 9.0), ("a", "torch", 0.5)
    )
    old = tilewright("compare", "a", "--format", "json")
    (tmp_path / "old.json").write_text(old.out)
    session.compared = result(("a", "onnxruntime", 0.9), ("new", "onnxruntime", 0.1))
    command = ("compare", "a", "new", "--baseline", "old.json", "--format", "json")
    ran = tilewright(*command, "--fail-below", "0.89")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)["data"]
    assert data["baseline"]["models"] == ["a"]
    assert data["baseline"]["ratio"] == pytest.approx(0.9)
    assert data["baseline"]["ratio_low"] == pytest.approx(0.9 * 0.95 / 1.05)
    assert data["baseline"]["ratio_high"] == pytest.approx(0.9 * 1.05 / 0.95)
    assert data["baseline_geomean"] == pytest.approx(1.0)
    assert tilewright(*command, "--fail-below", "0.91").code == 1


def test_a_baseline_in_a_coarser_precision_is_compared_in_it(
    tilewright: Command, session: FakeSession, tmp_path: Path
) -> None:
    """Rows of a baseline were taken for networks in fp32, which peers in int8 say nothing of."""
    halves, codes = (
        replace(compare_row("a", "openvino", 1.2, precision=name), own_precision=name)
        for name in ("bf16", "int8")
    )
    session.compared = compared(codes)
    (tmp_path / "old.json").write_text(tilewright("compare", "a", "--format", "json").out)
    session.compared = compared(replace(codes, speedup=0.6))
    ran = tilewright("compare", "a", "--baseline", "old.json", "--format", "json")
    assert json.loads(ran.out)["data"]["baseline"]["ratio"] == pytest.approx(0.5)
    session.compared = compared(halves)
    assert tilewright("compare", "a", "--baseline", "old.json").code == 4


def test_the_mean_at_no_more_error_is_told_where_it_is_another(
    tilewright: Command, session: FakeSession
) -> None:
    rows = (
        replace(compare_row("m", "openvino", 0.6), peer_error="more"),
        replace(compare_row("m", "onnxruntime", 1.4), peer_error="equal"),
        replace(compare_row("m", "openvino", 1.3, precision="bf16"), peer_error="less"),
    )
    mean = geomean_speedup(rows, no_more_error)
    assert mean is not None
    session.compared = replace(compared(*rows), geomean_at_no_more_error=mean.value)
    last = tilewright("compare", "m", "--format", "md").out.splitlines()[-1]
    assert "no more error than ours: 1.30×" in last
    session.compared = replace(compared(rows[1]), geomean_at_no_more_error=1.4)
    assert "no more error" not in tilewright("compare", "m", "--format", "md").out


def test_saved_file_of_out_serves_as_baseline(tilewright: Command) -> None:
    assert tilewright("compare", "zoo:mlp", "--out", "first").code == 0
    ran = tilewright("compare", "zoo:mlp", "--baseline", "first/compare.json")
    assert ran.code == 0
    assert "1.000" in ran.out


def test_baseline_without_common_models(
    tilewright: Command, session: FakeSession, tmp_path: Path
) -> None:
    (tmp_path / "old.json").write_text(tilewright("compare", "m", "--format", "json").out)
    session.compared = result(("other", "onnxruntime", 1.0))
    assert tilewright("compare", "m", "--baseline", "old.json").code == 4


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"schema_version": 1, "command": "profile", "data": {"rows": []}}',
        '{"schema_version": 1, "command": "compare", "data": {"rows": [3]}}',
        '{"schema_version": 1, "command": "compare", "data": {"rows": [{"model": "m"}]}}',
    ],
)
def test_bad_baseline_is_refused_before_any_work(
    tilewright: Command, session: FakeSession, tmp_path: Path, content: str
) -> None:
    (tmp_path / "old.json").write_text(content)
    ran = tilewright("compare", "m", "--baseline", "old.json")
    assert (ran.code, ran.out) == (4, "")
    assert session.calls == []


def test_missing_baseline(tilewright: Command) -> None:
    ran = tilewright("compare", "m", "--baseline", "none.json")
    assert ran.code == 4
    assert "none.json" in ran.err


def test_default_precision_rows_stay_visible(tilewright: Command, session: FakeSession) -> None:
    rows = (compare_row("m", "openvino", 1.1), compare_row("m", "openvino", 0.6, precision="bf16"))
    session.compared = compared(*rows)
    ran = tilewright("compare", "m", "--peers", "openvino, onnxruntime", "--format", "md")
    assert "bf16" in ran.out
    assert "1.10×" in ran.out.splitlines()[-1]
    assert session.calls[-1]["peers"] == ("openvino", "onnxruntime")
