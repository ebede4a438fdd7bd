"""Small problems with every feature, and the answer to them by trying everything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.plan.assignment.problem import (
    FORBIDDEN,
    Problem,
    Table,
    TableRole,
    Variable,
    VariableKind,
)

ROLES: tuple[TableRole, ...] = ("kernel", "transform", "rule")
KINDS: tuple[VariableKind, ...] = ("layout", "choice")


def variable(name: str, *values: str, kind: VariableKind = "layout") -> Variable:
    return Variable(name=name, kind=kind, values=values or ("plain", "blocked16"))


def table(names: str, costs: Any, role: TableRole = "kernel") -> Table:
    """A table over variables named in a string; None in the costs forbids."""
    array = np.array(costs, dtype=object)
    array[array == None] = FORBIDDEN  # noqa: E711 - compares each entry
    return Table(variables=tuple(names.split()), costs=array.astype(np.int64), role=role)


def ranked(problem: Problem, kinds: Sequence[VariableKind] = KINDS) -> list[int]:
    """The costs of all allowed assignments ascending, one for those alike in these kinds."""
    least: dict[tuple[str, ...], int] = {}
    for values in product(*(each.values for each in problem.variables)):
        names = [each.name for each in problem.variables]
        cost = problem.cost(dict(zip(names, values, strict=True)))
        if cost < FORBIDDEN:
            pairs = zip(problem.variables, values, strict=True)
            key = tuple(value for each, value in pairs if each.kind in kinds)
            least[key] = min(cost, least.get(key, cost))
    return sorted(least.values())


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any small problem: tables in any order of variables, parallel ones, several components."""
    count = draw(st.integers(1, 6))
    variables = [
        variable(
            f"v{number}",
            *(f"value{place}" for place in range(draw(st.integers(1, 3)))),
            kind=draw(st.sampled_from(KINDS)),
        )
        for number in range(count)
    ]
    scopes = draw(
        st.lists(
            st.lists(st.integers(0, count - 1), min_size=1, max_size=4, unique=True),
            max_size=8,
        )
    )
    named = {number for scope in scopes for number in scope}
    scopes += [[number] for number in range(count) if number not in named]
    most = draw(st.sampled_from([3, 10**6, 10**12]))
    share = draw(st.sampled_from([0.0, 0.2, 0.5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tables: list[Table] = []
    for scope in scopes:
        shape = [len(variables[number].values) for number in scope]
        costs = rng.integers(0, most, size=shape, endpoint=True)
        costs[rng.random(shape) < share] = FORBIDDEN
        names = tuple(variables[number].name for number in scope)
        tables.append(Table(variables=names, costs=costs, role=draw(st.sampled_from(ROLES))))
    return Problem(variables=tuple(variables), tables=tuple(tables))


AB = (variable("a"), variable("b"))
SHAPES: dict[str, Problem] = {
    "an edge and its reverse": Problem(
        variables=AB,
        tables=(table("a b", [[0, 5], [3, 1]]), table("b a", [[4, 0], [7, 9]])),
    ),
    "parallel edges": Problem(
        variables=AB,
        tables=(table("a b", [[0, 5], [3, 1]]), table("a b", [[9, 1], [1, 9]])),
    ),
    "disconnected parts": Problem(
        variables=(*AB, variable("c"), variable("d")),
        tables=(table("a b", [[4, 5], [3, 6]]), table("d c", [[2, 1], [1, 2]])),
    ),
    "forbidden everywhere but in one place": Problem(
        variables=(*AB, variable("c")),
        tables=(
            table("a b", [[None, 5], [3, None]]),
            table("c b", [[1, None], [None, None]]),
            table("a", [None, 8]),
        ),
    ),
    "concat(x, f(x))": Problem(
        variables=(
            variable("x"),
            variable("f", "f:plain,plain", "f:blocked16,blocked16", kind="choice"),
            variable("fx"),
            variable("joined"),
        ),
        tables=(
            table("x", [0, 4], "transform"),
            table("f", [50, 20]),
            table("x f", [[0, 9], [9, 0]], "transform"),
            table("f fx", [[0, None], [None, 0]], "rule"),
            table("joined x", [[0, 8], [8, 0]], "transform"),
            table("fx joined", [[0, 7], [7, 0]], "transform"),
            table("joined", [0, 6], "transform"),
        ),
    ),
}
OPTIMA = {
    "an edge and its reverse": 3,
    "parallel edges": 4,
    "disconnected parts": 4,
    "forbidden everywhere but in one place": 12,
    "concat(x, f(x))": 30,
}
