"""Write which kernels the zoo's networks consist of, for `evaluate --split network`.

    python benchmarks/network_tasks.py

Builds every network, cuts it into tasks, and writes their keys to
src/tilewright/insight/networks.json. To be run again when cleaning, fusion or the zoo changes;
tests notice where it was not. Nothing is timed.
"""

from __future__ import annotations

import json

from tilewright.graph.tasks import fused_network
from tilewright.insight.evaluating import KEY_PREFIX, ZOO_FILE
from tilewright.models import ModelOptions
from tilewright.models.loading import load
from tilewright.models.zoo import names


def keys_of(name: str) -> frozenset[str]:
    """The workload keys of a network's calls."""
    network = fused_network(load(f"{KEY_PREFIX}{name}", ModelOptions()).graph)
    return frozenset(call.workload.key for call in network.calls)


def main() -> None:
    """Write the file and say how many kernels each network has."""
    tasks = {name: keys_of(name) for name in names()}
    content = {name: sorted(keys) for name, keys in tasks.items()}
    ZOO_FILE.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")
    for name, keys in tasks.items():
        print(f"{name:20} {len(keys)}")


if __name__ == "__main__":
    main()
