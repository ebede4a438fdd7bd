"""`tilewright study cores` takes its grid apart, and refuses what is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from helpers.fakes.session import FakeSession
from tilewright.core.errors import TargetError
from tilewright.insight.core_design import CoresDesign

Command = Callable[..., Any]
VERB = ("study", "cores", "op:relu[shape=8]")


def test_flags_become_a_grid(tilewright: Command, session: FakeSession) -> None:
    asked = "--cores 1,2,64 --beside none --beside streamx4 --gain 0.05,1 --clock usual,1.5GHz"
    found = json.loads(tilewright(*VERB, *asked.split(), "--format", "json").out)
    assert session.calls[-1]["design"] == CoresDesign(
        cores=(1, 2, 64),
        beside=("none", "streamx4"),
        gains=(0.05, 1.0),
        clocks=("usual", "1.5GHz"),
    )
    assert session.calls[-1]["budget"] == "2m"
    (alone, beside) = found["data"]["rows"]
    assert alone["times"][0]["measured_s"] == 1e-3 and alone["points"][0]["steps"] == -1
    assert beside["points"][0]["measured"] is None
    tilewright(*VERB, "--budget", "0")
    assert session.calls[-1]["design"] == CoresDesign() and session.calls[-1]["budget"] == "0"


def test_tables_show_measured_beside_told(tilewright: Command) -> None:
    shown = tilewright(*VERB).out
    assert "1 of 1 turning points are told within one step" in shown
    assert "* Extrapolated: this process has 2 cores." in shown
    assert "Not measured: another." in shown and "2 to 4" in shown


@pytest.mark.parametrize(
    "wrong",
    ["--cores 0", "--cores 1,1", "--cores two", "--gain 0", "--gain much", "--beside nobody",
     "--clock fast", "--power-cap 65", "--cache-ways none", "--cores 1,,2"],
)  # fmt: skip
def test_what_is_no_grid_is_a_usage_error(tilewright: Command, wrong: str) -> None:
    ran = tilewright(*VERB, *wrong.split())
    assert ran.code == 2 and not ran.out and "Traceback" not in ran.err
    assert wrong.split()[1] in ran.err or wrong.split()[0] in ran.err


def test_missing_cores_end_with_3(tilewright: Command, session: FakeSession) -> None:
    session.error = TargetError("this process has 2", hint="--budget 0")
    ran = tilewright(*VERB)
    assert ran.code == 3 and "--budget 0" in ran.err


@pytest.mark.parametrize(
    ("words", "kept"),
    [("optimize m.onnx", True), ("study padding op:relu[shape=8]", True),
     ("compare m.onnx", False), ("study cores op:relu[shape=8]", False)],
)  # fmt: skip
def test_an_interrupt_says_whether_measurements_are_kept(
    tilewright: Command, session: FakeSession, words: str, kept: bool
) -> None:
    session.error = KeyboardInterrupt()
    said = tilewright(*words.split()).err
    assert ("finished measurements are kept" in said) is kept
    assert ("what was measured is not kept" in said) is not kept
