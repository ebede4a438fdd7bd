"""Tables as data: what a column means, its raw values for files, its shown ones for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tilewright.report.shown import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: `field` names the raw value, in SI units; `show` makes it readable.

    `show_record` does so where a cell tells more than its own value.
    """

    field: str
    label: str
    show: Callable[[Any], str] = plain
    number: bool = False
    show_record: Callable[[Mapping[str, Any]], str] | None = None

    def cell(self, record: Mapping[str, Any]) -> str:
        """The readable text of this column for a record."""
        if self.show_record is not None:
            return self.show_record(record)
        return self.show(record.get(self.field))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of raw values and how to show them.

    Files get every value of `records` under its field name; people get `columns`. Nothing is
    escaped here: whoever writes a format escapes for it.
    """

    columns: tuple[Column, ...]
    records: tuple[Mapping[str, Any], ...]
    title: str = ""

    def shown(self) -> list[list[str]]:
        """The readable cells, row by row."""
        return [[column.cell(record) for column in self.columns] for record in self.records]

    def raw(self) -> tuple[list[str], list[list[Any]]]:
        """Field names, and the values row by row."""
        names = list(dict.fromkeys(name for record in self.records for name in record))
        if not self.records:
            names = [column.field for column in self.columns]
        return names, [[record.get(name) for name in names] for record in self.records]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The title and the columns of tables whose rows are results of one kind."""

    title: str
    columns: tuple[Column, ...]

    def of(self, rows: Iterable[Any]) -> Table:
        """The table of some rows."""
        return Table(columns=self.columns, records=records_of(rows), title=self.title)


def record_of(value: Any) -> dict[str, Any]:
    """The fields of a result as a record."""
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is no dataclass")
    return {item.name: getattr(value, item.name) for item in fields(value)}


def records_of(values: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """`record_of` for several."""
    return tuple(record_of(value) for value in values)


def facts_table(title: str, facts: Sequence[tuple[str, Any, str]]) -> Table:
    """A two-column table of (field, raw value, shown value), one fact per row."""
    columns = (Column(field="name", label=""), Column(field="shown", label=""))
    records = tuple({"name": name, "value": raw, "shown": shown} for name, raw, shown in facts)
    return Table(columns=columns, records=records, title=title)
