"""The problem of the graph tuner: a cost function network over layouts and choices.

A variable stands for the layout of a tensor or for the choice made at an operator. A table prices
the combined values of one to four variables. The sum of all tables is to be least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.core.errors import ModelError, close_matches
from tilewright.plan.assignment.records import FORBIDDEN, Table, Variable
from tilewright.plan.assignment.validation import check

Assignment = Mapping[str, str]
"""A value for every variable, by name."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Variables in topological order, and tables over them.

    `default` holds values of the assignment used without any tuning, as far as they are known.
    Raises ModelError where names, shapes or costs do not fit together.
    """

    variables: tuple[Variable, ...]
    tables: tuple[Table, ...]
    name: str = ""
    default: Assignment = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        check(self.title, self.variables, self.tables, self.default)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The place of each variable, by name."""
        return {variable.name: number for number, variable in enumerate(self.variables)}

    @cached_property
    def _places(self) -> tuple[dict[str, int], ...]:
        return tuple(
            {value: place for place, value in enumerate(variable.values)}
            for variable in self.variables
        )

    def variable(self, name: str) -> Variable:
        """The variable of this name; raises ModelError for an unknown one."""
        number = self.numbers.get(name)
        if number is None:
            raise ModelError(
                f"{self.title} has no variable {name!r}.", hint=close_matches(name, self.numbers)
            )
        return self.variables[number]

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"problem {self.name!r}" if self.name else "the problem"

    def cost(self, assignment: Assignment) -> int:
        """The sum of all tables in picoseconds; `FORBIDDEN` where any of them forbids.

        Raises ModelError where a variable has no value or an unknown one.
        """
        costs = self._costs(assignment)
        return FORBIDDEN if FORBIDDEN in costs else sum(costs)

    def cost_by_role(self, assignment: Assignment) -> dict[str, int]:
        """Picoseconds by role of table, `FORBIDDEN` for a role with a table that forbids."""
        found: dict[str, int] = {}
        for table, cost in zip(self.tables, self._costs(assignment), strict=True):
            found[table.role] = min(found.get(table.role, 0) + cost, FORBIDDEN)
        return found

    def places(self, assignment: Assignment) -> tuple[int, ...]:
        """Where each variable's value stands among its values, in the variables' order."""
        found: list[int] = []
        for variable, places in zip(self.variables, self._places, strict=True):
            value = assignment.get(variable.name)
            if value is None:
                raise ModelError(f"variable {variable.name!r} of {self.title} has no value.")
            if value not in places:
                raise ModelError(
                    f"variable {variable.name!r} of {self.title} has no value {value!r}.",
                    hint=close_matches(value, places),
                )
            found.append(places[value])
        return tuple(found)

    def assignment(self, places: Sequence[int]) -> dict[str, str]:
        """The inverse of `places`."""
        return {
            variable.name: variable.values[place]
            for variable, place in zip(self.variables, places, strict=True)
        }

    def restricted(self, allowed: Mapping[str, Sequence[str]]) -> Problem:
        """The problem with fewer values for some variables, in the order they had.

        Values that `default` names may be gone; it then says nothing of their variables. Raises
        ModelError for unknown variables and values, and where none is left.
        """
        kept: dict[str, list[int]] = {}
        for name, values in allowed.items():
            variable = self.variable(name)
            unknown = set(values) - set(variable.values)
            if unknown:
                raise ModelError(
                    f"variable {name!r} of {self.title} has no value {min(unknown)!r}.",
                    hint=close_matches(min(unknown), variable.values),
                )
            wanted = set(values)
            kept[name] = [n for n, value in enumerate(variable.values) if value in wanted]
        variables = tuple(
            Variable(
                name=variable.name,
                kind=variable.kind,
                values=tuple(variable.values[place] for place in kept[variable.name]),
                subject=variable.subject,
            )
            if variable.name in kept
            else variable
            for variable in self.variables
        )
        left = {variable.name: variable.values for variable in variables}
        default = {name: value for name, value in self.default.items() if value in left[name]}
        tables = tuple(_sliced(table, kept) for table in self.tables)
        return Problem(variables=variables, tables=tables, name=self.name, default=default)

    def _costs(self, assignment: Assignment) -> list[int]:
        places = self.places(assignment)
        return [
            int(table.costs[tuple(places[self.numbers[name]] for name in table.variables)])
            for table in self.tables
        ]


def _sliced(table: Table, kept: Mapping[str, Sequence[int]]) -> Table:
    if not any(name in kept for name in table.variables):
        return table
    costs = table.costs
    for axis, name in enumerate(table.variables):
        if name in kept:
            costs = np.take(costs, kept[name], axis=axis)
    return Table(
        variables=table.variables,
        costs=costs,
        role=table.role,
        source=table.source,
        subject=table.subject,
    )
