"""The problem of the graph tuner: a cost function network over layouts and choices.

A variable stands for the layout of a tensor or for the choice made at an operator. A table prices
the combined values of one to four variables. The sum of all tables is to be least. Costs are whole
picoseconds, so every solver adds up the same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import InternalError, ModelError, close_matches

Costs = npt.NDArray[np.int64]
VariableKind = Literal["layout", "choice"]
TableRole = Literal["kernel", "transform", "rule"]
TableSource = Literal["measured", "modelled", "free"]

FORBIDDEN = 1 << 58
"""The cost of what must not be, in picoseconds (80 hours). All allowed costs together are less.

Up to 31 of them fit into 64 bits, so sums are cut back to it now and then.
"""

MOST_VARIABLES = 4
"""Variables of the widest table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """Something to decide.

    `subject` is the tensor or the operator it is about. Layout values are `plain` or `blockedN`;
    choice values may end in `:` and the layouts of their ports, as `direct:blocked16,blocked32`.
    """

    name: str
    kind: VariableKind
    values: tuple[str, ...]
    subject: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Costs of the combined values of some variables.

    `costs` has one axis per variable, in picoseconds, `FORBIDDEN` where a combination must not be.
    A `kernel` is time in kernels, a `transform` time between layouts, a `rule` only forbids.
    `source` says where the numbers are from; `free` ones are zero by construction.
    """

    variables: tuple[str, ...]
    costs: Costs
    role: TableRole = "kernel"
    source: TableSource = "modelled"
    subject: str = ""

    def __post_init__(self) -> None:
        if not np.issubdtype(self.costs.dtype, np.integer):
            raise InternalError(f"costs are whole picoseconds, not {self.costs.dtype}")
        costs = np.array(self.costs, dtype=np.int64, order="C")
        costs.setflags(write=False)
        object.__setattr__(self, "costs", costs)


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
        check_variables(self.title, self.variables)
        sizes = {variable.name: len(variable.values) for variable in self.variables}
        for number, table in enumerate(self.tables):
            where = f"table {number} of {self.title}"
            where += f" ({table.subject})" if table.subject else ""
            check_words(table.variables, table.role, table.source, sizes, where)
            _check_costs(table, sizes, where)
        self._check_whole()

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The place of each variable, by name."""
        return {variable.name: number for number, variable in enumerate(self.variables)}

    @cached_property
    def _places(self) -> dict[str, dict[str, int]]:
        """The place of each value among a variable's, by their names."""
        return {
            variable.name: {value: place for place, value in enumerate(variable.values)}
            for variable in self.variables
        }

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"problem {self.name!r}" if self.name else "the problem"

    def cost(self, assignment: Assignment) -> int:
        """The sum of all tables in picoseconds; `FORBIDDEN` where any of them forbids.

        Raises ModelError where a variable has no value or an unknown one.
        """
        return self.cost_at(self.places(assignment))

    def cost_at(self, places: Sequence[int]) -> int:
        """The same by the places of values."""
        return min(sum(self._costs(places)), FORBIDDEN)

    def cost_by_role(self, assignment: Assignment) -> dict[str, int]:
        """Picoseconds by role of table, `FORBIDDEN` for a role with a table that forbids."""
        found: dict[str, int] = {}
        costs = self._costs(self.places(assignment))
        for table, cost in zip(self.tables, costs, strict=True):
            found[table.role] = min(found.get(table.role, 0) + cost, FORBIDDEN)
        return found

    def places(self, assignment: Assignment) -> tuple[int, ...]:
        """Where each variable's value stands among its values, in the variables' order."""
        found: list[int] = []
        for name, places in self._places.items():
            value = assignment.get(name)
            if value is None:
                raise ModelError(f"variable {name!r} of {self.title} has no value.")
            if value not in places:
                raise ModelError(
                    f"variable {name!r} of {self.title} has no value {value!r}.",
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
        """The problem with fewer of their values for some variables, in the order they had.

        Values that `default` names may be gone; it then says nothing of their variables.
        """
        kept = {
            name: [place for value, place in self._places[name].items() if value in values]
            for name, values in allowed.items()
        }
        variables = tuple(
            replace(each, values=tuple(each.values[place] for place in kept[each.name]))
            if each.name in kept
            else each
            for each in self.variables
        )
        left = {variable.name: variable.values for variable in variables}
        default = {name: value for name, value in self.default.items() if value in left[name]}
        tables = tuple(_sliced(table, kept) for table in self.tables)
        return replace(self, variables=variables, tables=tables, default=default)

    def _costs(self, places: Sequence[int]) -> list[int]:
        return [
            int(table.costs[tuple(places[self.numbers[name]] for name in table.variables)])
            for table in self.tables
        ]

    def _check_whole(self) -> None:
        """Raise ModelError unless every variable has a price, sums of costs stay exact, and the
        default names what there is."""
        priced = {name for table in self.tables for name in table.variables}
        for name in (each.name for each in self.variables if each.name not in priced):
            raise ModelError(
                f"no table of {self.title} prices the variable {name!r}.",
                hint="A table of zeros says that its values cost nothing.",
            )
        total = sum(
            int(table.costs.max(initial=0, where=table.costs < FORBIDDEN)) for table in self.tables
        )
        if total >= FORBIDDEN:
            raise ModelError(
                f"the costs of {self.title} are too large: {total} ps at worst; their sum must "
                f"stay below {FORBIDDEN} ps."
            )
        for name, value in self.default.items():
            of_default = f"the default of {self.title} names the unknown"
            _require(name, self._places, f"{of_default} variable {name!r}.")
            _require(value, self._places[name], f"{of_default} value {value!r} of {name!r}.")


def _sliced(table: Table, kept: Mapping[str, Sequence[int]]) -> Table:
    costs = table.costs
    for axis, name in enumerate(table.variables):
        if name in kept:
            costs = np.take(costs, kept[name], axis=axis)
    return replace(table, costs=costs)


def check_variables(title: str, variables: Sequence[Variable]) -> None:
    """Raise ModelError unless there are variables, each with a name and values of its own.

    `title` is what messages call the problem.
    """
    if not variables:
        raise ModelError(f"{title} has no variables.")
    _require_unique((each.name for each in variables), f"{title} has two variables called")
    for each in variables:
        where = f"variable {each.name!r} of {title}"
        if not each.name:
            raise ModelError(f"{title} has a variable without a name.")
        _require(each.kind, get_args(VariableKind), f"{where} has the kind {each.kind!r}.")
        if not each.values:
            raise ModelError(f"{where} has no values.")
        _require_unique(each.values, f"{where} has twice the value")


def check_words(
    names: Sequence[str], role: str, source: str, sizes: Mapping[str, int], where: str
) -> None:
    """Raise ModelError unless a table can be over these variables and have this role and source;
    `sizes` has all variables there are."""
    if not 1 <= len(names) <= MOST_VARIABLES:
        raise ModelError(f"{where} is over {len(names)} variables; 1 to {MOST_VARIABLES} can be.")
    for name in names:
        _require(name, sizes, f"{where} names the unknown variable {name!r}.")
    _require_unique(names, f"{where} names twice the variable")
    _require(role, get_args(TableRole), f"{where} has the role {role!r}.")
    _require(source, get_args(TableSource), f"{where} has the source {source!r}.")


def _check_costs(table: Table, sizes: Mapping[str, int], where: str) -> None:
    shape = tuple(sizes[name] for name in table.variables)
    if table.costs.shape != shape:
        raise ModelError(
            f"{where} has costs of shape {table.costs.shape}, but its variables "
            f"{', '.join(table.variables)} have {shape} values."
        )
    least, most = int(table.costs.min()), int(table.costs.max())
    if least < 0:
        raise ModelError(f"{where} has a negative cost: {least} ps.")
    if most > FORBIDDEN:
        raise ModelError(f"{where} has a cost that is too large: {most} ps.")


def _require(name: str, known: Collection[str], message: str) -> None:
    if name not in known:
        raise ModelError(message, hint=close_matches(name, known))


def _require_unique(names: Iterable[str], message: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ModelError(f"{message} {name!r}.")
