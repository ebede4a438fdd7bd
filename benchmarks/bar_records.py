"""Results of `bars.py` in a file of JSON lines, so that nothing is measured twice."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to measure: `kind` is what is done with a network."""

    section: str
    network: str
    budget: str
    kind: str = "optimize"

    @property
    def id(self) -> str:
        """Unique name, fit for a file."""
        return f"{self.section}-{self.network}-{self.budget}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result of an item.

    `optimize` is `data` of that verb without its tasks, `compare` the rows, `profile` the sums;
    `untuned` what `untuned_tvm.py` printed. What was not run is empty. `error` says what failed.
    """

    id: str
    section: str
    network: str
    budget: str
    date: str
    wall_s: float = 0.0
    peak_bytes: dict[str, int] = field(default_factory=dict[str, int])
    optimize: dict[str, Any] = field(default_factory=dict[str, Any])
    compare: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    profile: dict[str, Any] = field(default_factory=dict[str, Any])
    untuned: dict[str, Any] = field(default_factory=dict[str, Any])
    warnings: list[str] = field(default_factory=list[str])
    error: str = ""


class Records:
    """The records in `bars.jsonl` of a folder; the last one of an id counts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "bars.jsonl"
        self._known: dict[str, Record] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                record = _read(line)
                if record is not None:
                    self._known[record.id] = record

    def get(self, item: Item) -> Record | None:
        """The record of an item that succeeded."""
        record = self._known.get(item.id)
        return record if record is not None and not record.error else None

    def add(self, record: Record) -> None:
        """Keep a record at once, so that an interrupted benchmark goes on behind it."""
        self._known[record.id] = record
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(record)) + "\n")

    def section(self, name: str) -> list[Record]:
        """Records of a section in the order they were first made."""
        return [record for record in self._known.values() if record.section == name]

    def every(self) -> list[Record]:
        """All records."""
        return list(self._known.values())


def _read(line: str) -> Record | None:
    """A record, None for a line that was cut short."""
    try:
        return Record(**json.loads(line))
    except (ValueError, TypeError):
        return None
