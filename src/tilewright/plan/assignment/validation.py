"""What a problem must hold to, with messages that say what is wrong and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, get_args

from tilewright.core.errors import ModelError, close_matches
from tilewright.plan.assignment.records import (
    FORBIDDEN,
    MOST_VARIABLES,
    Table,
    TableRole,
    TableSource,
    Variable,
    VariableKind,
)

Word = TypeVar("Word", bound=str)


def check(
    title: str,
    variables: Sequence[Variable],
    tables: Sequence[Table],
    default: Mapping[str, str],
) -> None:
    """Raise ModelError unless names, shapes and costs fit together.

    `title` is what messages call the problem, `default` what is known of a default assignment.
    """
    check_variables(title, variables)
    sizes = {variable.name: len(variable.values) for variable in variables}
    for number, table in enumerate(tables):
        where = f"table {number} of {title}"
        where += f" ({table.subject})" if table.subject else ""
        check_scope(table.variables, sizes, where)
        known_word(table.role, get_args(TableRole), f"{where} has the role")
        known_word(table.source, get_args(TableSource), f"{where} has the source")
        _check_costs(table, sizes, where)
    _check_priced(title, sizes, tables)
    _check_sum(title, tables)
    _check_default(title, variables, default)


def check_variables(title: str, variables: Sequence[Variable]) -> None:
    """Raise ModelError unless there are variables, each with a name and values of its own."""
    if not variables:
        raise ModelError(f"{title} has no variables.")
    _unique((variable.name for variable in variables), f"{title} has two variables called")
    for variable in variables:
        _check_variable(variable, title)


def check_scope(names: Sequence[str], sizes: Mapping[str, int], where: str) -> None:
    """Raise ModelError unless a table can be over these variables; `sizes` has all there are."""
    if not 1 <= len(names) <= MOST_VARIABLES:
        raise ModelError(f"{where} is over {len(names)} variables; 1 to {MOST_VARIABLES} can be.")
    for name in names:
        if name not in sizes:
            raise ModelError(
                f"{where} names the unknown variable {name!r}.", hint=close_matches(name, sizes)
            )
    _unique(names, f"{where} names twice the variable")


def known_word(word: str, known: Sequence[Word], what: str) -> Word:
    """`word` as one of the known ones; raises ModelError that names close ones."""
    for each in known:
        if each == word:
            return each
    raise ModelError(f"{what} {word!r}.", hint=close_matches(word, known))


def _check_variable(variable: Variable, title: str) -> None:
    where = f"variable {variable.name!r} of {title}"
    if not variable.name:
        raise ModelError(f"{title} has a variable without a name.")
    known_word(variable.kind, get_args(VariableKind), f"{where} has the kind")
    if not variable.values:
        raise ModelError(f"{where} has no values.")
    _unique(variable.values, f"{where} has twice the value")


def _check_costs(table: Table, sizes: dict[str, int], where: str) -> None:
    shape = tuple(sizes[name] for name in table.variables)
    if table.costs.shape != shape:
        raise ModelError(
            f"{where} has costs of shape {table.costs.shape}, but its variables "
            f"{', '.join(table.variables)} have {shape} values."
        )
    if int(table.costs.min()) < 0:
        raise ModelError(f"{where} has a negative cost: {int(table.costs.min())} ps.")
    if int(table.costs.max()) > FORBIDDEN:
        raise ModelError(f"{where} has a cost that is too large: {int(table.costs.max())} ps.")


def _check_priced(title: str, sizes: dict[str, int], tables: Sequence[Table]) -> None:
    left = set(sizes).difference(*(table.variables for table in tables))
    for name in sizes:
        if name in left:
            raise ModelError(
                f"no table of {title} prices the variable {name!r}.",
                hint="A table of zeros says that its values cost nothing.",
            )


def _check_sum(title: str, tables: Sequence[Table]) -> None:
    total = 0
    for table in tables:
        allowed = table.costs[table.costs < FORBIDDEN]
        total += int(allowed.max()) if allowed.size else 0
    if total >= FORBIDDEN:
        raise ModelError(
            f"the costs of {title} are too large: {total} ps at worst; their sum must "
            f"stay below {FORBIDDEN} ps."
        )


def _check_default(title: str, variables: Sequence[Variable], default: Mapping[str, str]) -> None:
    values = {variable.name: variable.values for variable in variables}
    for name, value in default.items():
        if name not in values:
            raise ModelError(
                f"the default of {title} names the unknown variable {name!r}.",
                hint=close_matches(name, values),
            )
        if value not in values[name]:
            raise ModelError(
                f"the default of {title} names the unknown value {value!r} of {name!r}.",
                hint=close_matches(value, values[name]),
            )


def _unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"{what} {name!r}.")
        seen.add(name)
