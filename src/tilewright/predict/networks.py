"""Which kernels belong to which network of the zoo, known without building it.

The file beside this module has the workload keys of each network, at batch 1;
`benchmarks/network_tasks.py` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "networks.json"
PREFIX = "zoo:"


@cache
def zoo_tasks() -> Mapping[str, frozenset[str]]:
    """The workload keys of each network: `zoo:resnet50` → {`conv2d-1b92700d527fc678`, …}."""
    found: Mapping[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return {f"{PREFIX}{name}": frozenset(keys) for name, keys in found.items()}


def write_tasks(tasks: Mapping[str, Iterable[str]]) -> None:
    """Write the file; `tasks` are workload keys by a network's name in the zoo."""
    content = {name: sorted(keys) for name, keys in tasks.items()}
    FILE.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")
    zoo_tasks.cache_clear()
