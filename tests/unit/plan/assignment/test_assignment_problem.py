"""Problems: what they must hold to, their sums, their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from helpers.problems.assignment_problems import SHAPES, problems, table, variable
from tilewright.core.errors import InternalError, ModelError
from tilewright.plan.assignment.problem import FORBIDDEN, Problem, Table, Variable
from tilewright.plan.assignment.problem_file import (
    FORMAT,
    format_problem,
    parse_problem,
    read_problem,
    write_problem,
)
from tilewright.plan.assignment.solving import SOLVERS, solve

SMALL = SHAPES["concat(x, f(x))"]


def same(first: Problem, second: Problem) -> bool:
    return (
        first.variables == second.variables
        and first.name == second.name
        and dict(first.default) == dict(second.default)
        and len(first.tables) == len(second.tables)
        and all(
            (a.variables, a.role, a.source, a.subject) == (b.variables, b.role, b.source, b.subject)
            and np.array_equal(a.costs, b.costs)
            for a, b in zip(first.tables, second.tables, strict=True)
        )
    )


@given(problem=problems())
@settings(max_examples=50, deadline=None)
def test_files_hold_everything(problem: Problem) -> None:
    assert same(parse_problem(format_problem(problem)), problem)


def test_names_sources_and_the_default_travel(tmp_path: Path) -> None:
    problem = Problem(
        variables=(
            variable("x"),
            Variable(name="f", kind="choice", values=("a", "b"), subject="op"),
        ),
        tables=(
            Table(
                variables=("f", "x"),
                costs=np.array([[1, FORBIDDEN], [2, 3]]),
                role="transform",
                source="measured",
                subject="conv1",
            ),
        ),
        name="net",
        default={"f": "b"},
    )
    path = tmp_path / "folder" / "net.json"
    write_problem(problem, path)
    assert same(read_problem(path), problem)
    document = json.loads(path.read_text())
    assert document["tables"][0]["costs"] == [1, None, 2, 3]


def test_sums_are_exact_and_forbidden_saturates() -> None:
    huge = FORBIDDEN // 4
    problem = Problem(
        variables=(variable("a"),),
        tables=tuple(table("a", [huge + place, None]) for place in range(3)),
    )
    assert problem.cost({"a": "plain"}) == 3 * huge + 3
    assert problem.cost({"a": "blocked16"}) == FORBIDDEN
    assert problem.cost_by_role({"a": "blocked16"}) == {"kernel": FORBIDDEN}


def test_places_and_assignments() -> None:
    assignment = {"x": "plain", "f": "f:blocked16,blocked16", "fx": "blocked16", "joined": "plain"}
    assert SMALL.places(assignment) == (0, 1, 1, 0)
    assert SMALL.assignment((0, 1, 1, 0)) == assignment
    with pytest.raises(ModelError, match="has no value"):
        SMALL.cost({**assignment, "x": "blocked17"})
    with pytest.raises(ModelError, match="'joined'"):
        SMALL.cost({name: value for name, value in assignment.items() if name != "joined"})


def test_restricting() -> None:
    less = SMALL.restricted({"x": ["blocked16"], "fx": ["blocked16", "plain"]})
    values = {variable.name: variable.values for variable in less.variables}
    assert values["x"] == ("blocked16",)
    assert values["fx"] == ("plain", "blocked16")
    assignment = {"x": "blocked16", "f": "f:plain,plain", "fx": "plain", "joined": "plain"}
    assert less.cost(assignment) == SMALL.cost(assignment)
    with pytest.raises(ModelError, match="has no values"):
        SMALL.restricted({"x": []})


def document(**changes: Any) -> dict[str, Any]:
    """A good file with changes."""
    good: dict[str, Any] = {
        "format": "tilewright graph problem 1",
        "name": "net",
        "variables": [
            {"name": "x", "kind": "layout", "values": ["plain", "blocked16"]},
            {"name": "f", "kind": "choice", "values": ["fast", "slow"]},
        ],
        "tables": [{"variables": ["x", "f"], "costs": [1, 2, 3, None], "subject": "conv1"}],
    }
    return {**good, **changes}


def tables(*given: tuple[list[str], list[Any]]) -> list[dict[str, Any]]:
    return [{"variables": names, "costs": costs} for names, costs in given]


PRICED = (["x"], [0, 0])
X = {"name": "x", "kind": "layout", "values": ["plain"]}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown variable": ({"tables": tables((["x", "g"], [1, 2, 3, 4]))}, "unknown variable 'g'"),
    "variable without a price": ({"tables": tables(PRICED)}, "no table .* prices .* 'f'"),
    "no tables": ({"tables": []}, "no table .* prices"),
    "negative cost": ({"tables": tables((["x", "f"], [1, 2, -3, 4]))}, "negative: -3"),
    "cost too large": ({"tables": tables((["x", "f"], [1, 2, 10**30, 4]))}, "too large"),
    "sum too large": (
        {"tables": tables(*[(["x", "f"], [FORBIDDEN - 1, 2, 3, 4])] * 2)},
        "sum must stay below",
    ),
    "fraction": ({"tables": tables((["x", "f"], [1, 2, 3.5, 4]))}, "no graph problem"),
    "too few costs": ({"tables": tables((["x", "f"], [1, 2, 3]))}, "3 costs.*2 × 2"),
    "a variable twice": ({"tables": tables((["x", "x"], [1, 2, 3, 4]))}, "twice the variable"),
    "no variables in a table": ({"tables": tables(([], [1]))}, "0 variables; 1 to 4"),
    "two variables of a name": ({"variables": [X, X]}, "two variables called 'x'"),
    "no variables": ({"variables": [], "tables": []}, "no variables"),
    "no values": ({"variables": [{**X, "values": []}], "tables": []}, "no values"),
    "a value twice": ({"variables": [{**X, "values": ["p", "p"]}]}, "twice the value"),
    "no values for costs": ({"variables": [{**X, "values": []}]}, "no values"),
    "no variables for two costs": ({"tables": tables(([], [1, 2]))}, "0 variables; 1 to 4"),
    "a variable twice, too few costs": (
        {"tables": tables((["x", "x"], [1]))},
        "twice the variable",
    ),
    "unknown kind": ({"variables": [{**X, "kind": "size"}]}, "kind 'size'.\nKnown: choice, layout"),
    "unknown role": (
        {"tables": [{"variables": ["x"], "costs": [0, 0], "role": "kernl"}]},
        "role 'kernl'.\nDid you mean kernel",
    ),
    "unknown source": (
        {"tables": [{"variables": ["x"], "costs": [0, 0], "source": "guess"}]},
        "source 'guess'.\nKnown: free, measured, modelled",
    ),
    "unknown field": ({"variables": [{**X, "kinds": 1}]}, "no graph problem"),
    "another format": ({"format": "tilewright graph problem 9"}, "graph problem 9"),
    "default of nothing": ({"default": {"y": "plain"}}, "default .* unknown variable 'y'"),
    "default value": ({"default": {"x": "blocked8"}}, "default .* unknown value 'blocked8'"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_refused_with_the_reason(what: str) -> None:
    changes, reason = BAD[what]
    with pytest.raises(ModelError, match=reason):
        parse_problem(json.dumps(document(**changes)), "bad.json")


def test_the_good_file_is_good() -> None:
    assert parse_problem(json.dumps(document())).tables[0].costs.tolist() == [
        [1, 2],
        [3, FORBIDDEN],
    ]


def test_the_reference_describes_what_is_there() -> None:
    text = (Path(__file__).parents[4] / "docs/reference/graph-problem.md").read_text()
    example = parse_problem(text.split("```json\n")[1].split("```")[0])
    assert FORMAT in text
    assert solve(example).objective_ps == 155_000_000
    assert solve(example, "history_best").objective_ps == 170_000_000
    assert [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")][-8:] == [
        *SOLVERS.names()
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', "\udcff"])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ModelError, match="broken.json"):
        read_problem(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ModelError, match="cannot be read"):
            read_problem(path)


def test_costs_are_whole_and_do_not_change() -> None:
    with pytest.raises(InternalError, match="whole picoseconds"):
        Table(variables=("a",), costs=np.array([0.5]))  # pyright: ignore
    given = np.array([1, 2])
    kept = Table(variables=("a",), costs=given)
    given[0] = 9
    assert kept.costs.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        kept.costs[0] = 3
    with pytest.raises(ModelError, match="shape"):
        Problem(variables=(variable("a", "x", "y", "z"),), tables=(kept,))
