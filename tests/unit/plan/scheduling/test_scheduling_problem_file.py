"""Scheduling problems as JSON: what is written is read again; what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from helpers.scheduling import MICRO, problems, random_problem
from tilewright.core.errors import ModelError
from tilewright.plan.scheduling.planning import SCHEDULERS, schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.problem_file import (
    format_problem,
    parse_problem,
    read_problem,
    write_problem,
)

LEAST: dict[str, Any] = {
    "format": "tilewright scheduling problem 1",
    "devices": [{"name": "cpu"}],
    "calls": [{"name": "conv1", "modes": [{"device": "cpu", "latency_s": 1e-6}]}],
}


@settings(max_examples=100, deadline=None)
@given(problems(devices=3))
def test_what_is_written_is_read_again(problem: SchedulingProblem) -> None:
    assert parse_problem(format_problem(problem)) == problem


def test_files(tmp_path: Path) -> None:
    problem = random_problem(7)
    write_problem(problem, tmp_path / "problem.json")
    assert read_problem(tmp_path / "problem.json") == problem
    with pytest.raises(ModelError, match="none.json"):
        read_problem(tmp_path / "none.json")


def test_little_is_needed() -> None:
    problem = parse_problem(json.dumps(LEAST))
    (mode,) = problem.calls[0].modes
    assert (mode.latency_s, mode.low_s, mode.high_s, mode.cores) == (MICRO, MICRO, MICRO, 1)
    assert (problem.objective, problem.handoff_s, problem.waits) == ("latency", 0.0, ())


def test_the_documented_problem_has_the_documented_answer() -> None:
    page = Path(__file__).parents[4] / "docs" / "reference" / "scheduling-problem.md"
    text = page.read_text()
    problem = parse_problem(text.split("```json\n")[1].split("```")[0])
    found = schedule_with("heft", problem)
    rows = {slot.call: (slot.cores, round(slot.end_s * 1e6)) for slot in found.slots}
    assert rows == {"image": ((0,), 40), "text": ((0, 1), 70), "head": ((0,), 82)}
    for name, (cores, end) in rows.items():
        line = next(line for line in text.splitlines() if line.startswith(f" {name} "))
        assert ", ".join(map(str, cores)) in line and f"{end} µs" in line
    known = {f"`{name}`" for name in SCHEDULERS.names()}
    assert known <= set(text.split())


WRONG: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "is no scheduling problem"),
    "no text": ("\udcff", "is no scheduling problem"),
    "no format": (json.dumps({}), "required field `format`"),
    "another format": (json.dumps(LEAST | {"format": "x"}), "has the format 'x'; known is"),
    "no calls": (json.dumps({k: v for k, v in LEAST.items() if k != "calls"}), "field `calls`"),
    "an unknown field": (json.dumps(LEAST | {"cals": []}), "unknown field `cals`"),
    "an unknown field of a call": (
        json.dumps(LEAST | {"calls": [{"name": "a", "modes": [], "mode": 1}]}),
        r"unknown field `mode` - at `\$.calls\[0\]`",
    ),
    "an unknown objective": (json.dumps(LEAST | {"objective": "speed"}), "'speed'"),
    "a text for a number": (
        json.dumps(LEAST | {"handoff_s": "1"}),
        r"Expected `float`, got `str` - at `\$.handoff_s`",
    ),
    "no mode": (json.dumps(LEAST | {"calls": [{"name": "a", "modes": []}]}), "'a' has no mode"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_is_named(fault: str) -> None:
    text, said = WRONG[fault]
    with pytest.raises(ModelError, match=said) as refused:
        parse_problem(text.encode(errors="surrogateescape"), "problem.json")
    assert refused.value.exit_code == 4
