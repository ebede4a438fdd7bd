"""Results of tuning: tuners compared on stored sweeps and with MetaSchedule, and whole networks.

    python benchmarks/tuning.py [--only SECTION…] [--results FOLDER] [--table FILE]

Sections: `regret` replays every tuner on the sweeps that ship with tilewright and on those of FILE
(.parquet, as BenchmarkHub publishes them); `metaschedule` searches five convolutions with our tuner
and with MetaSchedule; `budget` tunes resnet50 for three minutes; `subgraph` compares the operator
level with the subgraph level; `zoo` tunes every network of the zoo. Results are stored item by
item; the same command continues where it stopped. The tables are written to
docs/benchmarks-tuning.md. No other program may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kept import Item, once
from measured_command import run_tilewright
from tilewright.core.records import Measurement
from tilewright.graph.tasks import Task
from tilewright.hardware.device import local_placement
from tilewright.kernels.spaces import default_candidate, search_space
from tilewright.measure.circumstances import kernel_protocol
from tilewright.measure.kernels import KernelMeasurer
from tilewright.models import ModelOptions
from tilewright.models.zoo import names
from tilewright.plan.preparation import prepare
from tilewright.search.tuners.base import TuningTask
from tilewright.search.tuners.registry import tuner_factory
from tuning_tables import write_tables

HERE = Path(__file__).parent
CONVOLUTIONS = (
    "layer1.0.conv2",
    "layer2.0.conv2",
    "layer3.1.conv1",
    "layer3.1.conv2",
    "layer4.0.conv2",
)
OURS, THEIRS = 30, 64
BATCH = 8
SEEDS = "10"
STUDIED = ("resnet18_int8", "resnet18")
ZOO_BUDGET = "80"

Work = Callable[[Path], Item]


def regret_items(table: Path | None = None) -> Iterator[tuple[str, Work]]:
    """Every tuner on the shipped sweeps, and on those of a table."""
    yield "shipped", lambda folder: _regret([], folder)
    if table is not None:
        yield "foreign", lambda folder: _regret(["--sweep", str(table)], folder)


def _regret(more: list[str], folder: Path) -> Item:
    ran = run_tilewright(["study", "tuners", "--seeds", SEEDS, *more], log=folder / "log.txt")
    return {"rows": ran.answer["data"]["rows"], "wall_s": ran.wall_s}


def metaschedule_items() -> Iterator[tuple[str, Work]]:
    """Five convolutions of resnet50: ours after 30 measurements, MetaSchedule's after 64."""
    placement = local_placement()
    tasks = prepare("zoo:resnet50", ModelOptions(), placement).tasks.values()
    for task in tasks:
        if task.name in CONVOLUTIONS:
            yield task.name, lambda folder, task=task: _beside_metaschedule(task)


def _beside_metaschedule(task: Task) -> Item:
    began_s = time.perf_counter()
    ours = _our_best(task)
    ours_wall_s = time.perf_counter() - began_s
    command = [sys.executable, str(HERE / "metaschedule_default.py"), "--trials", str(THEIRS)]
    done = subprocess.run(
        command, input=task.workload.text, capture_output=True, text=True, check=True
    )
    theirs = json.loads(done.stdout.strip().splitlines()[-1])
    return {
        "task": task.name,
        "flop": task.workload.flop,
        "ours_s": ours["best_s"],
        "default_s": ours["default_s"],
        "ours_wall_s": ours_wall_s,
        "theirs_s": theirs["best_s"],
        "theirs_timed": theirs["timed"],
        "theirs_wall_s": theirs["wall_s"],
    }


def _our_best(task: Task) -> Item:
    """30 measurements of the default tuner, the start of the workers included in the time."""
    placement = local_placement()
    protocol = kernel_protocol(placement)
    space = search_space(task.workload, task.forms, placement)
    default, _ = default_candidate(task.workload, task.forms, placement)
    found: list[Measurement] = []
    with KernelMeasurer(placement) as measurer:
        measurer.start()
        tuner = tuner_factory("default")(TuningTask(space=space))
        count = 0
        while count < OURS:
            candidates = tuner.ask(min(BATCH, OURS - count))
            outcomes = measurer.measure(task.workload, candidates, protocol)
            count += len(outcomes)
            tuner.tell(outcomes)
            found += [o for o in outcomes if isinstance(o, Measurement)]
        best = min(found, key=lambda m: m.latency_s).candidate
        again = measurer.measure(task.workload, [best, default], protocol)
    times = [o.latency_s if isinstance(o, Measurement) else None for o in again]
    return {"best_s": times[0], "default_s": times[1]}


def budget_items() -> Iterator[tuple[str, Work]]:
    """resnet50 in three minutes from an empty database."""
    yield "resnet50-3m", lambda folder: _optimized("resnet50", "3m", folder)


def zoo_items() -> Iterator[tuple[str, Work]]:
    """Every network of the zoo, tuned for a while, beside its default settings."""
    for name in names():
        yield name, lambda folder, name=name: _optimized(name, ZOO_BUDGET, folder)


def _optimized(network: str, budget: str, folder: Path) -> Item:
    database = folder / "tuning.db"
    for path in folder.glob("tuning.db*"):
        path.unlink()
    ran = run_tilewright(
        ["tune", f"zoo:{network}", "--budget", budget]
        + ["--db", str(database), "--out", str(folder / "out")],
        log=folder / "log.txt",
    )
    data = ran.answer["data"]
    kept = (
        "latency_s baseline_latency_s reference_latency_s latency_spread reference_spread "
        "measurements failures elapsed_s seconds_by_phase curve max_rel_error"
    )
    return {
        "network": network,
        "budget": budget,
        "wall_s": ran.wall_s,
        "warnings": ran.answer["warnings"],
        **{name: data[name] for name in kept.split()},
    }


def subgraph_items() -> Iterator[tuple[str, Work]]:
    """Operator level against subgraph level."""
    for name in STUDIED:
        yield name, lambda folder, name=name: _studied(name, folder)


def _studied(network: str, folder: Path) -> Item:
    ran = run_tilewright(
        ["study", "subgraph", f"zoo:{network}", "--budget", "4m", "--db", str(folder / "study.db")],
        log=folder / "log.txt",
    )
    return {"network": network, "wall_s": ran.wall_s, **ran.answer["data"]}


SECTIONS = {
    "regret": regret_items,
    "metaschedule": metaschedule_items,
    "budget": budget_items,
    "subgraph": subgraph_items,
    "zoo": zoo_items,
}


def main() -> int:
    """Run what is missing, then write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=sorted(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--results", type=Path, default=HERE / "results/tuning")
    parser.add_argument(
        "--table", type=lambda text: Path(text).resolve(), help="foreign sweeps, for `regret`"
    )
    arguments = parser.parse_args()
    sections = {**SECTIONS, "regret": partial(regret_items, arguments.table)}
    for section in arguments.only:
        for name, work in sections[section]():
            print(f"{section}: {name}", flush=True)
            folder = arguments.results / section / name
            once(folder / "result.json", partial(work, folder))
    write_tables(arguments.results, HERE.parent / "docs/benchmarks-tuning.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
