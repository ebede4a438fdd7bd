"""Predicted times of whole networks on several cores beside curves that others measured.

    python benchmarks/thread_curves.py cpu_thread_curves_opbench.csv

The file has `model, machine, threads, time_us`, as OpBench (Apache-2.0) took them with other
kernels on other machines: only shapes can be compared. *Regret* is what the number of threads that
is predicted to be the fastest takes there over the fastest one.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from pages import table
from tilewright.core.events import discard
from tilewright.hardware.device import local_placement
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.predict.core_counts import core_forecaster
from tilewright.store import open_store

NETWORKS = {
    "bert": "zoo:bert_base",
    "gpt2": "zoo:gpt2_small",
    "inception_v3": "zoo:inception_v3",
    "mobilenet": "zoo:mobilenet_v2",
    "resnet-18": "zoo:resnet18",
    "squeezenet_v1.1": "zoo:squeezenet1_1",
}
COUNTS, SHOWN = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64), (2, 4, 8, 16, 32)


def main(path: Path) -> None:
    """Print a table."""
    curves: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            curves[row["model"], row["machine"]][int(row["threads"])] = float(row["time_us"])
    told = [_told(*names, curve) for names, curve in curves.items()]
    gains = [f"{cores}: measured, predicted" for cores in SHOWN]
    print(table(["network", "machine", *gains, "best", "predicted", "regret", "of all"], told))


def _told(model: str, machine: str, curve: dict[int, float]) -> list[str]:
    counts = [cores for cores in COUNTS if cores in curve]
    said = _network_s(NETWORKS[model], counts)
    least = min(curve.values())
    best, chosen = min(curve, key=curve.__getitem__), min(said, key=said.__getitem__)
    gains = [f"{curve[1] / curve[n]:.1f}, {said[1] / said[n]:.1f}" for n in SHOWN]
    regrets = (curve[cores] / least - 1 for cores in (chosen, max(curve)))
    return [model, machine, *gains, str(best), str(chosen), *(f"{100 * r:.0f} %" for r in regrets)]


def _network_s(name: str, counts: list[int]) -> dict[int, float]:
    placement = local_placement()
    network = prepare(name, ModelOptions(), placement)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "nothing.db")
        modes = core_forecaster(placement, store, discard).modes(network, counts)
        store.close()
    calls = {key: task.count for key, task in network.tasks.items()}
    return {
        cores: sum(calls.get(key, 1) * mode.estimate.latency_s for key, mode in found.items())
        for cores, found in modes.items()
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
