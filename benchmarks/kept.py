"""Results of benchmarks in JSON files: the same command continues where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Item = dict[str, Any]


def once(path: Path, work: Callable[[], Item]) -> Item:
    """What the file holds; where there is none, the work is done and its result kept, with its
    date. The folder of the file is there when the work begins."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        keep(path, {"date": time.strftime("%Y-%m-%d"), **work()})
    return json.loads(path.read_text(encoding="utf-8"))


def keep(path: Path, item: Item) -> None:
    """Write a result, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(item, indent=1), encoding="utf-8")
    partial.replace(path)


def kept(paths: Iterable[Path]) -> list[Item]:
    """Those of the results that are there."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
