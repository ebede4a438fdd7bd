"""Problems as JSON files, see docs/reference/graph-problem.md."""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tilewright.core.errors import ModelError
from tilewright.core.input_files import readable
from tilewright.core.output_files import replacing
from tilewright.plan.assignment.problem import (
    FORBIDDEN,
    Problem,
    Table,
    Variable,
    check_variables,
    check_words,
)

FORMAT = "tilewright graph problem 1"


class _Variable(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    kind: str
    values: tuple[str, ...]
    subject: str = ""


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    variables: tuple[str, ...]
    costs: list[int | None]
    role: str = "kernel"
    source: str = "modelled"
    subject: str = ""


class _File(msgspec.Struct):
    format: str
    variables: list[_Variable]
    tables: list[_Table]
    name: str = ""
    default: dict[str, str] = msgspec.field(default_factory=dict[str, str])


def read_problem(path: Path) -> Problem:
    """The problem in a file; raises ModelError for one that is missing, broken or inconsistent."""
    with readable(path):
        text = path.read_bytes()
    return parse_problem(text, str(path))


def write_problem(problem: Problem, path: Path) -> None:
    """Save a problem; raises OutputError where the file cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(format_problem(problem))


def format_problem(problem: Problem) -> bytes:
    """A problem as JSON."""
    tables = [
        asdict(each)
        | {"costs": [None if cost >= FORBIDDEN else cost for cost in each.costs.ravel().tolist()]}
        for each in problem.tables
    ]
    file = {
        "format": FORMAT,
        "variables": problem.variables,
        "tables": tables,
        "name": problem.name,
        "default": dict(problem.default),
    }
    return msgspec.json.encode(file) + b"\n"


def parse_problem(text: bytes | str, origin: str = "the text") -> Problem:
    """The problem that JSON holds; `origin` is what messages call the text."""
    try:
        file = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{origin} is no graph problem: {error}.",
            hint="The format is in docs/reference/graph-problem.md.",
        ) from error
    if file.format != FORMAT:
        raise ModelError(f"{origin} has the format {file.format!r}; known is {FORMAT!r}.")
    variables = tuple(Variable(**msgspec.structs.asdict(each)) for each in file.variables)
    check_variables(origin, variables)
    sizes = {variable.name: len(variable.values) for variable in variables}
    tables = tuple(
        _table(each, sizes, f"table {number} in {origin}")
        for number, each in enumerate(file.tables)
    )
    return Problem(variables=variables, tables=tables, name=file.name, default=file.default)


def _table(table: _Table, sizes: dict[str, int], where: str) -> Table:
    check_words(table.variables, table.role, table.source, sizes, where)
    for cost in table.costs:
        if cost is not None and not 0 <= cost < FORBIDDEN:
            what = "negative" if cost < 0 else "too large"
            raise ModelError(f"{where} has a cost that is {what}: {cost} ps.")
    shape = tuple(sizes[name] for name in table.variables)
    if len(table.costs) != prod(shape):
        raise ModelError(
            f"{where} has {len(table.costs)} costs, but its variables "
            f"{', '.join(table.variables)} have {' × '.join(str(size) for size in shape)} values."
        )
    costs = np.array([FORBIDDEN if cost is None else cost for cost in table.costs], dtype=np.int64)
    fields: dict[str, Any] = msgspec.structs.asdict(table) | {"costs": costs.reshape(shape)}
    return Table(**fields)
