"""`search` and `study`: what they print and what the JSON contract promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes.session import OPTIMIZED, SEARCH, FakeSession
from tilewright.core.errors import NegativeVerdict, TargetError
from tilewright.core.results import CurvePoint

Command = Callable[..., Any]


def test_tune_shows_what_each_task_gained(tilewright: Command, session: FakeSession) -> None:
    session.optimized = replace(OPTIMIZED, searches=(SEARCH,))
    ran = tilewright("tune", "m.onnx", "--tuner", "xgb", "--level", "op", "--budget", "9")
    assert ran.code == 0
    (line,) = [line for line in ran.out.splitlines() if "1.50×" in line and SEARCH.task in line]
    assert line.split() == [SEARCH.task, "3", "ms", "2", "ms", "1.50×", "9", "2", "yes"]
    assert {"tuner": "xgb", "level": "op", "budget": "9"}.items() <= session.calls[-1].items()
    assert "1.50× " not in tilewright("optimize", "m.onnx").out


def test_tune_answers_with_the_curve(tilewright: Command, session: FakeSession) -> None:
    curve = (
        CurvePoint(measurements=8, elapsed_s=5.0, network_latency_s=None),
        CurvePoint(measurements=16, elapsed_s=9.5, network_latency_s=0.02),
    )
    session.optimized = replace(OPTIMIZED, searches=(SEARCH,), curve=curve, tuner="xgb")
    data = json.loads(tilewright("tune", "m.onnx", "--format", "json").out)["data"]
    assert data["curve"] == [
        {"measurements": 8, "elapsed_s": 5.0, "network_latency_s": None},
        {"measurements": 16, "elapsed_s": 9.5, "network_latency_s": 0.02},
    ]
    assert data["tuner"] == "xgb" and data["level"] == "subgraph"
    assert data["searches"][0]["trials"][1]["latency_s"] is None


def test_study_tuners_has_a_column_per_share(tilewright: Command, session: FakeSession) -> None:
    shown = tilewright("study", "tuners", "--seeds", "2").out
    assert "after 1.00 %" in shown and "after 5.00 %" in shown
    (line,) = [line for line in shown.splitlines() if "default" in line]
    assert line.split() == ["conv", "default", "12.3", "%", "2.00", "%"]
    rows = json.loads(tilewright("study", "tuners", "--format", "json").out)["data"]["rows"]
    assert rows[0] == {
        "tuner": "default",
        "sweep": "conv",
        "measured_share": 0.05,
        "regret_median": 0.02,
        "regret_p90": 0.5,
    }


def test_study_subgraph_names_both_times(tilewright: Command, session: FakeSession) -> None:
    ran = tilewright("study", "subgraph", "zoo:mlp")
    assert "1.50×" in ran.out and "1.06× (1.02 to 1.09)" in ran.out
    data = json.loads(tilewright("study", "subgraph", "zoo:mlp", "--format", "json").out)["data"]
    assert data["network_gain"] == 1.063
    names = "task op_level_s subgraph_level_s gain gain_low gain_high"
    assert set(data["rows"][0]) == {*names.split()}


def test_tune_beside_tells_the_versions_of_each_task(
    tilewright: Command, session: FakeSession
) -> None:
    ran = tilewright("tune", "m.onnx", "--beside", "streamx2", "--tuner", "xgb", "--budget", "9")
    assert ran.code == 0
    asked = {"beside": "streamx2", "threads": None, "tuner": "xgb", "budget": "9"}
    assert asked.items() <= session.calls[-1].items()
    lines = [line for line in ran.out.splitlines() if "conv2d_" in line]
    assert [("alone, one core" in line, "beside, least moved" in line) for line in lines] == [
        (True, False),
        (False, True),
    ]
    assert "3.2 ms" in lines[1] and "–" in lines[1] and "1 MiB" in lines[1]
    assert "1 of 1" in ran.out and "1.25× (1.20 to 1.30)" in ran.out
    assert "Not measured: fc." in ran.out and "kept under made up+beside=1111x1" in ran.out
    tilewright("tune", "m.onnx", "--beside", "zoo:mlp", "--beside-threads", "2")
    assert session.calls[-1]["threads"] == 2


def test_tune_beside_answers_with_times_by_circumstance(tilewright: Command) -> None:
    ran = tilewright("tune", "m.onnx", "--beside", "stream", "--format", "json", "--out", "kept")
    data = json.loads(ran.out)["data"]
    (task,) = data["tasks"]
    assert task["versions"][0]["best"] == ["alone", "one core"]
    assert task["versions"][1]["one_core_s"] is None and task["gain"] == 1.25
    assert json.loads(Path("kept/tune.json").read_text())["data"] == data


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--beside-threads 2", "--beside-threads are those of --beside"),
        ("--beside stream --beside-threads 0", "at least 1"),
        ("--beside stream --level op", "fused kernels"),
        ("--beside stream --level graph", "fused kernels"),
    ],
)
def test_flags_that_no_partner_has_end_with_2(
    tilewright: Command, session: FakeSession, words: str, said: str
) -> None:
    ran = tilewright("tune", "m.onnx", *words.split())
    assert ran.code == 2 and said in ran.err and not ran.out and not session.calls


@pytest.mark.parametrize(
    ("error", "code"),
    [(NegativeVerdict("beside stream: it crashed"), 1), (TargetError("need 3 CPUs"), 3)],
)
def test_a_partner_that_ends_and_missing_cores_have_their_codes(
    tilewright: Command, session: FakeSession, error: Exception, code: int
) -> None:
    session.error = error
    ran = tilewright("tune", "m.onnx", "--beside", "stream")
    assert ran.code == code and str(error) in ran.err
