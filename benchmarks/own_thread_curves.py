"""Networks timed with every number of threads of this machine, and the choice among five numbers.

    python benchmarks/own_thread_curves.py [--networks NAME…] [--counts N…] [--rounds 6]
        [--results FOLDER] [--table-only] [--page docs/benchmarks-predictors/choices.md]

Each network is compiled with its default settings for every number of threads, then timed in
rounds, one process per number, in turn. The number of threads is chosen by the first round among
the five numbers that `explain MODEL --threads` would measure. The other rounds show how much slower
the chosen number is than the best of all. Results are stored network by network; the same command
continues where it stopped. No other program may run meanwhile.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from kept import Item, kept, once
from pages import replace_between, table
from tilewright.core.records import Placement
from tilewright.graph.inputs import random_inputs
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.device import local_placement
from tilewright.insight.studies import best_count, counts_to_measure
from tilewright.measure.networks import NetworkWorker, ToCompile, compile_all
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare

HERE = Path(__file__).parent
NETWORKS = (
    "resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "googlenet", "inception_v3",
    "densenet201", "bert_base",
)  # fmt: skip
REPEATS, WARMUP = 15, 2
MOST_COMPILERS = 8
BEGIN, END = "<!-- own thread curves: begin -->", "<!-- own thread curves: end -->"
HEADER = (
    "network", "number of threads: latency in ms", "chosen", "best", "loss", "loss with all cores",
    "noise",
)  # fmt: skip


def plans(name: str, placements: Sequence[Placement]) -> list[NetworkPlan]:
    """The network in the default settings of each device."""
    return [prepare(f"zoo:{name}", ModelOptions(), placement).plan for placement in placements]


def run_network(name: str, counts: Sequence[int], rounds: int) -> Item:
    """Compile for every number of threads, then time in rounds."""
    placements = [local_placement(count) for count in counts]
    network = prepare(f"zoo:{name}", ModelOptions(), placements[0])
    inputs = random_inputs(network.model.graph, 0)
    ordered = [inputs[key] for key in network.graph.inputs]
    made = plans(name, placements)
    with TemporaryDirectory() as compiled, ExitStack() as stack:
        places = [Path(compiled) / str(count) for count in counts]
        for place in places:
            place.mkdir()
        wanted = [
            ToCompile(plan=plan, constants=network.graph.constants, folder=place)
            for plan, place in zip(made, places, strict=True)
        ]
        compilers = min(MOST_COMPILERS, os.cpu_count() or 1, len(wanted))
        with ExitStack() as compiling:
            compile_all(
                [compiling.enter_context(NetworkWorker(placements[0])) for _ in range(compilers)],
                wanted,
            )
        workers = [stack.enter_context(NetworkWorker(placement)) for placement in placements]
        for worker in workers:
            worker.launch()
        for worker, plan, place in zip(workers, made, places, strict=True):
            worker.load("network", place, [each.name for each in plan.constants])
        samples_s: dict[int, list[list[float]]] = {count: [] for count in counts}
        for _ in range(rounds):
            for count, worker in zip(counts, workers, strict=True):
                samples_s[count].append(
                    worker.time("network", ordered, repeats=REPEATS, warmup=WARMUP)
                )
    return {"network": name, "cpu": placements[0].target.model, "samples_s": samples_s}


def judged(item: Mapping[str, Any]) -> dict[str, Any]:
    """The number that the first round chooses, judged by the other rounds."""
    rounds = {
        int(count): [median(each) for each in found] for count, found in item["samples_s"].items()
    }
    seen = {count: rounds[count][0] for count in counts_to_measure(max(rounds)) if count in rounds}
    curve = {count: median(found[1:]) for count, found in rounds.items()}
    picked, best = best_count(seen), best_count(curve)
    return {
        "curve": curve,
        "picked": picked,
        "best": best,
        "loss": curve[picked] / curve[best] - 1,
        "all": curve[max(curve)] / curve[best] - 1,
        "noise": median(
            (max(found[1:]) - min(found[1:])) / median(found[1:]) for found in rounds.values()
        ),
    }


def row(item: Mapping[str, Any]) -> tuple[str, ...]:
    """One network in the table."""
    found = judged(item)
    times = ", ".join(f"{count}: {found['curve'][count] * 1e3:.2f}" for count in found["curve"])
    shares = [f"{found[key]:.1%}" for key in ("loss", "all", "noise")]
    return item["network"], times, str(found["picked"]), str(found["best"]), *shares


def text_of(items: Sequence[Mapping[str, Any]]) -> str:
    """The table and its figures."""
    found = [judged(item) for item in items]
    losses = [each["loss"] for each in found]
    return (
        f"{table(HEADER, map(row, items))}\n\nThe loss is {median(losses):.1%} in the median and "
        f"{max(losses):.1%} at worst; with all cores it is "
        f"{median(each['all'] for each in found):.1%} in the median. *Noise* is the range of the "
        "rounds of one number of threads, divided by their median; the table has the median over "
        "all numbers of threads."
    )


def main() -> None:
    """Measure what is not there yet, then write the table."""
    most = local_placement().resources.threads
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--counts", nargs="*", type=int, default=list(range(1, most + 1)))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "own_thread_curves")
    parser.add_argument(
        "--table-only", action="store_true", help="measure nothing, print what is stored"
    )
    parser.add_argument("--page", type=Path, help="page to write; the table is printed, too")
    arguments = parser.parse_args()
    for name in () if arguments.table_only else arguments.networks:
        run = partial(run_network, name, arguments.counts, arguments.rounds)
        once(arguments.results / f"{name}.json", run)
    text = text_of(kept(arguments.results / f"{name}.json" for name in NETWORKS))
    print(text)
    if arguments.page is not None:
        replace_between(arguments.page, (BEGIN, END), text)


if __name__ == "__main__":
    main()
