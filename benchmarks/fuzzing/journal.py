"""Results kept line by line, so that a run goes on where it stopped."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fuzzing.running import Row

_SHOWN_SEEDS = 8


class Journal:
    """A file of JSON lines, one per case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[tuple[str, int], dict[str, Any]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except ValueError:  # cut short when a run was killed
                continue
            self.rows[row["kind"], row["seed"]] = row
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: Row) -> None:
        """Keep a row."""
        record = asdict(row)
        self.rows[row.kind, row.seed] = record
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @property
    def bad(self) -> list[dict[str, Any]]:
        """Rows with faults."""
        return [row for row in self.rows.values() if row["faults"]]

    def summary(self) -> str:
        """Counts by kind and exit code, then the faults by cause with their seeds."""
        lines: list[str] = []
        for kind in sorted({kind for kind, _ in self.rows}):
            rows = [row for row in self.rows.values() if row["kind"] == kind]
            codes = Counter(row["codes"][0] for row in rows)
            told = ", ".join(f"{count} ended with {code}" for code, count in sorted(codes.items()))
            peak = max(row["peak_bytes"] for row in rows) / 2**30
            longest = max(row["seconds"] for row in rows)
            bad = sum(bool(row["faults"]) for row in rows)
            lines.append(
                f"{kind}: {len(rows)} cases, {bad} bad; {told}; longest {longest:.1f} s, "
                f"largest {peak:.1f} GiB"
            )
        causes: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.bad:
            for group in dict.fromkeys(fault["group"] for fault in row["faults"]):
                causes[group].append(row)
        for group, rows in sorted(causes.items(), key=lambda item: -len(item[1])):
            seeds = " ".join(f"{row['kind']}:{row['seed']}" for row in rows[:_SHOWN_SEEDS])
            lines.append(f"\n{len(rows)} × {group}\n  {seeds}")
            fault = next(fault for fault in rows[0]["faults"] if fault["group"] == group)
            lines.append(f"  {rows[0]['what'][:200]}\n  {fault['text'][:300]}")
        return "\n".join(lines)
