"""`tilewright solve`: the json contract and the exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.problems.synthetic_problems import residual_network
from tilewright.plan.assignment.problem import FORBIDDEN, Problem, Table, Variable
from tilewright.plan.assignment.problem_file import write_problem
from tilewright.plan.assignment.solving import SOLVERS

Command = Callable[..., Any]


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A saved problem."""
    write_problem(residual_network(5, candidates=4, layouts=3), tmp_path / "net.json")
    return "net.json"


@pytest.mark.parametrize("solver", SOLVERS.names())
def test_json_has_what_was_promised(tilewright: Command, saved: str, solver: str) -> None:
    ran = tilewright("solve", saved, "--solver", solver, "--format", "json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["command"] == "solve"
    data = document["data"]
    promised = {"solver", "objective_s", "bound_s", "gap", "solve_s", "variables", "tables"}
    assert promised <= set(data)
    assert data["solver"] == ("exact" if solver == "auto" else solver)
    problem = residual_network(5, candidates=4, layouts=3)
    assert (data["variables"], data["tables"]) == (len(problem.variables), len(problem.tables))
    cost = problem.cost(data["assignment"]) * 1e-12
    assert data["objective_s"] == pytest.approx(cost, rel=1e-12)
    assert sum(data["by_role_s"].values()) == pytest.approx(cost, rel=1e-12)
    assert data["bound_s"] <= data["objective_s"]
    assert data["gap"] == pytest.approx(1 - data["bound_s"] / data["objective_s"], abs=1e-12)
    if solver in ("auto", "exact", "dp"):
        assert data["gap"] == 0


@pytest.mark.parametrize("format", ["table", "csv", "md"])
def test_formats(tilewright: Command, saved: str, format: str) -> None:
    ran = tilewright("solve", saved, "--format", format)
    assert ran.code == 0
    assert "objective" in ran.out
    if format == "csv":
        rows = list(csv.reader(io.StringIO(ran.out)))
        assert {len(row) for row in rows} == {len(rows[0])}
    else:
        assert "proven optimum" in ran.out


def test_out_keeps_the_json(tilewright: Command, saved: str, tmp_path: Path) -> None:
    assert tilewright("solve", saved, "--out", "kept").code == 0
    assert json.loads((tmp_path / "kept" / "solve.json").read_text())["data"]["gap"] == 0


def test_bad_input(tilewright: Command, saved: str, tmp_path: Path) -> None:
    ran = tilewright("solve", saved, "--solver", "exakt")
    assert ran.code == 2
    assert "exact" in ran.err
    assert tilewright("solve", "none.json").code == 4
    (tmp_path / "broken.json").write_text("{")
    ran = tilewright("solve", "broken.json")
    assert ran.code == 4
    assert "broken.json" in ran.err
    nothing = Problem(
        variables=(Variable(name="x", kind="layout", values=("plain",)),),
        tables=(Table(variables=("x",), costs=np.array([FORBIDDEN])),),
    )
    write_problem(nothing, tmp_path / "nothing.json")
    ran = tilewright("solve", "nothing.json")
    assert ran.code == 4
    assert "no allowed assignment" in ran.err
    assert "Traceback" not in ran.err


def test_help(tilewright: Command) -> None:
    ran = tilewright("solve", "--help")
    assert ran.code == 0
    for word in (*SOLVERS.names(), "--format", "--out"):
        assert word in ran.out
