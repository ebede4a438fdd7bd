"""The networks of two versions of tilewright, compared on the same measurements.

    python benchmarks/another_version.py --other PYTHON [--networks NAME…] [--budget B]

`PYTHON` is the interpreter of an environment in which the other version is installed. That version
tunes each network at the graph level and exports its database. Both versions import the export and
ship a network from it without measuring (`--budget 0`); the two networks are timed here in turn, in
one process. Results are stored network by network; the same command continues where it stopped. The
table is written to docs/benchmarks-graph.md. No other program may run while networks are timed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np

from kept import Item, once
from pages import replace_between, table
from tilewright.deploy.opening import open_artifact
from tilewright.graph.inputs import random_inputs
from tilewright.hardware.device import local_placement
from tilewright.measure.network_timing import Rounds, network_runner, time_together
from tilewright.measure.networks import NetworkWorker

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/benchmarks-graph.md"
MARKS = ("<!-- versions: begin -->", "<!-- versions: end -->")
NETWORKS = (
    "resnet18", "resnet50", "squeezenet1_1", "mobilenet_v2", "googlenet", "densenet201",
    "inception_v3", "bert_base",
)  # fmt: skip
OLD, NEW = "other version", "this version"
HEADER = ("network", "other version", "this version", "speed-up", "speed-ups of the rounds")
_ROUNDS = 9


def tilewright(python: str, *words: str) -> None:
    """Run a command of one of the versions. Raises CalledProcessError."""
    subprocess.run([python, "-m", "tilewright", *words], check=True, stdout=subprocess.DEVNULL)


def tune(name: str, python: str, budget: str, folder: Path) -> Path:
    """The export of what the other version measured for a network."""
    exported, database = folder / "measured.jsonl", str(folder / "tuning.db")
    if not exported.exists():
        into = str(folder / "tuned")
        words = ("tune", f"zoo:{name}", "--level", "graph", "--budget", budget)
        tilewright(python, *words, "--db", database, "--out", into)
        tilewright(python, "db", "export", str(exported), "--db", database)
    return exported


def ship(name: str, python: str, exported: Path, folder: Path) -> Path:
    """What a version ships from the export alone."""
    out, database = folder / "out", str(folder / "shipping.db")
    if not (out / "manifest.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("shipping.db*"):
            left.unlink()
        tilewright(python, "db", "import", str(exported), "--db", database)
        words = ("optimize", f"zoo:{name}", "--budget", "0")
        tilewright(python, *words, "--db", database, "--out", str(out))
    return out


def compared(name: str, artifacts: dict[str, Path]) -> Item:
    """Both artifacts in turn; their outputs must agree."""
    placement = local_placement(None)
    opened = {version: open_artifact(folder) for version, folder in artifacts.items()}
    network = opened[NEW].network(placement)
    inputs = random_inputs(network.model.graph, 0)
    ordered = [inputs[key] for key in network.graph.inputs]
    with NetworkWorker(placement) as worker:
        found = {}
        for version, artifact in opened.items():
            worker.load(version, artifact.folder, list(artifact.manifest.constants))
            found[version] = worker.run(version, ordered)
        for old, new in zip(found[OLD], found[NEW], strict=True):
            scale = float(np.max(np.abs(old.astype(np.float64)), initial=1e-30))
            np.testing.assert_allclose(new, old, rtol=0, atol=1e-3 * scale)
        runners = {version: network_runner(worker, version, ordered) for version in opened}
        timings = time_together(runners, Rounds(count=_ROUNDS))
    ratios = [
        median(old) / median(new)
        for old, new in zip(timings[OLD].rounds_s, timings[NEW].rounds_s, strict=True)
    ]
    return {
        "network": name,
        "device": placement.device.class_key,
        "threads": placement.resources.threads,
        **{version: timing.latency_s for version, timing in timings.items()},
        "ratios": sorted(ratios),
    }


def both(name: str, other: str, exported: Path) -> Item:
    """What both versions ship from the same measurements, timed in turn."""
    sides = {OLD: (other, "old"), NEW: (sys.executable, "new")}
    return compared(
        name,
        {
            version: ship(name, python, exported, exported.parent / side)
            for version, (python, side) in sides.items()
        },
    )


def page(items: Sequence[Item]) -> str:
    """The table and the geometric mean of the speed-ups. A speed-up is the median of the rounds'
    ratios, because the machine may change its speed between rounds."""
    rows = [
        (
            item["network"],
            f"{item[OLD] * 1e3:.2f} ms",
            f"{item[NEW] * 1e3:.2f} ms",
            f"{median(item['ratios']):.3f}",
            f"{item['ratios'][0]:.2f} to {item['ratios'][-1]:.2f}",
        )
        for item in items
    ]
    mean = geometric_mean(median(item["ratios"]) for item in items)
    device, threads = items[0]["device"], items[0]["threads"]
    return (
        f"Measured on the device class `{device}` with {threads} threads. The geometric mean of "
        f"this version's speed-ups over the other version is **{mean:.3f}**.\n\n"
        + table(HEADER, rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", required=True, help="the interpreter of the other version")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--results", type=Path, default=HERE / "results/another_version")
    parser.add_argument("--tune-only", action="store_true", help="stop before networks are timed")
    options = parser.parse_args()
    items: list[Item] = []
    for name in options.networks:
        folder = options.results / name
        folder.mkdir(parents=True, exist_ok=True)
        exported = tune(name, options.other, options.budget, folder)
        if options.tune_only:
            continue
        items.append(once(folder / "row.json", partial(both, name, options.other, exported)))
        print(items[-1])
    if items:
        replace_between(PAGE, MARKS, page(items))


if __name__ == "__main__":
    main()
