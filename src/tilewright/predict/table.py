# pyright: basic
"""Tables of measurements by anyone, checked against what a family wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.input_files import require_regular
from tilewright.predict.base import Column, Columns, Family, Floats, Integers, Target

if TYPE_CHECKING:
    import polars

DEVICE = "device"
ONLY = "all"
"""The device of every row of a table without that column."""
FORMATS = (".parquet", ".csv")
_QUOTES = 'A value with commas, such as "op:conv2d[c=64,h=28,w=28,out=64,k=3]", stands in quotes.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The usable rows of a table for one target.

    `target` is in SI units; NaN marks a row that failed, which only a family that searches keeps.
    `dropped` says how many rows were left out and why.
    """

    columns: Columns
    devices: tuple[str, ...]
    device: Integers
    target: Floats
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.target)


def read_table(path: Path) -> polars.DataFrame:
    """A `.parquet` or `.csv` file. Raises UsageError for another kind, ModelError for a file that
    is missing or broken."""
    import polars

    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path} is neither {' nor '.join(FORMATS)}.")
    read = polars.read_parquet if path.suffix.lower() == ".parquet" else _read_csv
    try:
        require_regular(path)
        return read(path)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except polars.exceptions.PolarsError as error:
        raise ModelError(
            f"{path} is no table: {str(error).splitlines()[0]}",
            hint=_QUOTES if path.suffix.lower() == ".csv" else None,
        ) from error


def _read_csv(path: Path) -> polars.DataFrame:
    import polars

    return polars.read_csv(path, infer_schema_length=None)


def read_texts(path: Path, column: str) -> list[str]:
    """A column of texts of a table. Raises UsageError where the table has no such column, and what
    `read_table` raises."""
    table = read_table(path)
    if column not in table.columns:
        raise UsageError(
            f"{path} has no column {column}.", hint=f"It has {', '.join(table.columns) or 'none'}."
        )
    return [str(value) for value in table[column] if value is not None]


def targets_in(table: polars.DataFrame, family: Family) -> list[Target]:
    """The family's targets that the table has, at least one.

    Raises UsageError naming every column the table lacks, with its unit.
    """
    there = set(table.columns)
    found = [target for target in family.targets if target.column.name in there]
    lacking = [column for column in family.operands if column.name not in there]
    if not found:
        lacking.append(family.targets[0].column)
    if lacking:
        names = ", ".join(_named(column) for column in lacking)
        hint = close_matches(lacking[0].name, there) if there else None
        raise UsageError(f"The table lacks {names}, which {family.name} wants.", hint=hint)
    return found


def _named(column: Column) -> str:
    return f"{column.name} ({column.unit})" if column.unit else column.name


def measured(table: polars.DataFrame, family: Family, target: Target) -> Measured:
    """The rows whose operands and target can be used. Raises ModelError for a column of the wrong
    type or a text that no choice allows."""
    columns = {column.name: _values(table, column) for column in family.operands}
    values = _values(table, target.column) * target.si
    names = np.full(len(table), ONLY, dtype=object)
    if DEVICE in table.columns:
        names = np.array(["" if n is None else str(n) for n in table[DEVICE]], dtype=object)
    fine = np.array(names != "", dtype=bool)
    for column in family.operands:
        fine &= _usable(columns[column.name], column)
    positive = np.isfinite(values) & (values > 0)
    failed = ~np.isfinite(values) & bool(family.verified)
    kept = fine & (positive | failed)
    devices, device = np.unique(names[kept].astype(str), return_inverse=True)
    reasons = {
        "no device, or an operand that is missing or not above zero": int((~fine).sum()),
        f"no {target.column.name} above zero": int((fine & ~positive & ~failed).sum()),
    }
    return Measured(
        columns={name: column[kept] for name, column in columns.items()},
        devices=tuple(str(name) for name in devices),
        device=device.ravel(),
        target=values[kept],
        dropped={reason: count for reason, count in reasons.items() if count},
    )


def _values(table: polars.DataFrame, column: Column):
    import polars

    series = table[column.name]
    if not column.text:
        if not (series.dtype.is_numeric() or series.dtype in (polars.Boolean, polars.Null)):
            raise ModelError(f"column {column.name} holds {series.dtype}, not numbers")
        return series.cast(polars.Float64).to_numpy()
    values = np.array(["" if v is None else str(v) for v in series], dtype=object)
    unknown = sorted(set(values) - set(column.choices) - {""}) if column.choices else []
    if unknown:
        known = ", ".join(column.choices)
        raise ModelError(f"column {column.name} holds {unknown[0]!r}; known are {known}")
    return values


def _usable(values, column: Column):
    if column.text:
        return values != ""
    return np.isfinite(values) & ((values >= 0) if column.signed else (values > 0))


def chosen(columns: Columns, rows: Sequence[int] | np.ndarray) -> Columns:
    """The same columns with these rows only."""
    return {name: values[rows] for name, values in columns.items()}
