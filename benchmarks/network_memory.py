"""Peak memory of networks: predicted, planned from compiled kernels, and measured in a process.

    python benchmarks/network_memory.py [--networks NAME…] [--results FOLDER]

The networks are some of the zoo, and some of torchvision (`pip install torch torchvision`) for
whose families `collect` measured no kernels. Each is compiled with its default settings at batch 1,
then loaded and run three times in a fresh process. Other programs may run meanwhile, since no time
is measured. Results are stored network by network; the same command continues where it stopped. The
table is written to docs/benchmarks-predictors/memory.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from kept import Item, kept, once
from pages import replace_between, table
from predicted_networks import UNSEEN, model_of
from tilewright.graph.inputs import random_inputs
from tilewright.hardware.device import local_placement
from tilewright.kernels.planned_memory import planned_memory
from tilewright.measure.networks import NetworkWorker
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare

HERE = Path(__file__).parent
NETWORKS = (
    "resnet50", "vgg19_bn", "mobilenet_v2", "squeezenet1_1", "densenet201", "googlenet",
    "inception_v3", "bert_base", *UNSEEN,
)  # fmt: skip
BEGIN, END = "<!-- memory: begin -->", "<!-- memory: end -->"
HEADER = (
    "network", "packed weights", "intermediate tensors", "workspaces", "inputs and outputs", "code",
    "planned", "predicted", "measured", "error of planned", "error of predicted",
)  # fmt: skip


def run_network(name: str, folder: Path) -> Item:
    """Compile in one process, load and run in a fresh one."""
    placement = local_placement(None)
    network = prepare(model_of(name, folder), ModelOptions(), placement)
    plan = network.plan
    inputs = random_inputs(network.model.graph, 0)
    ordered = [inputs[key] for key in network.graph.inputs]
    with TemporaryDirectory() as compiled:
        with NetworkWorker(placement) as worker:
            library = worker.compile(plan, network.graph.constants, Path(compiled))
        with NetworkWorker(placement) as worker:
            peak = worker.memory_peak(Path(compiled), plan.constant_names, ordered)
    planned = planned_memory(plan, placement.target, library)
    if peak.bytes is None:
        raise SystemExit(f"memory cannot be measured here: {peak.reason}")
    return {
        "network": name,
        "parts": [
            planned.weight_bytes, planned.arena_bytes, planned.workspace_bytes,
            planned.interface_bytes, planned.code_bytes,
        ],
        "planned_bytes": planned.peak_bytes,
        "predicted_bytes": planned_memory(plan, placement.target).peak_bytes,
        "measured_bytes": peak.bytes,
        "method": peak.method,
    }  # fmt: skip


def errors(item: Mapping[str, Any]) -> tuple[float, float]:
    """Relative errors of the planned and the predicted peak."""
    measured = item["measured_bytes"]
    return item["planned_bytes"] / measured - 1, item["predicted_bytes"] / measured - 1


def row(item: Mapping[str, Any]) -> tuple[str, ...]:
    """One network in the table, in MB (10⁶ bytes)."""
    sizes = [*item["parts"], item["planned_bytes"], item["predicted_bytes"], item["measured_bytes"]]
    numbers = [f"{size / 1e6:.2f}" for size in sizes]
    return (item["network"], *numbers, *(f"{error:+.1%}" for error in errors(item)))


def summary(items: Sequence[Mapping[str, Any]]) -> str:
    """The errors over all networks, in a sentence."""
    off = [abs(errors(item)[1]) for item in items]
    within = fmean(error <= 0.1 for error in off)
    return (
        f"Over {len(items)} networks, the predicted peak has a mean error of {fmean(off):.1%}, a "
        f"median of {median(off):.1%}, and at worst {max(off):.1%}; {within:.0%} of the networks "
        "are within 10 %."
    )


def write_table(results: Path, page: Path) -> None:
    """Replace the page's table by what was measured so far."""
    items = kept(results / f"{name}.json" for name in NETWORKS)
    text = f"In MB (10⁶ bytes):\n\n{table(HEADER, map(row, items))}\n\n{summary(items)}"
    replace_between(page, (BEGIN, END), text)


def main() -> None:
    """Measure what is not there yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--results", type=Path, default=HERE / "results" / "network_memory")
    arguments = parser.parse_args()
    for name in arguments.networks:
        run = partial(run_network, name, arguments.results)
        item = once(arguments.results / f"{name}.json", run)
        print(" ".join(row(item)), flush=True)
    write_table(arguments.results, HERE.parent / "docs/benchmarks-predictors/memory.md")


if __name__ == "__main__":
    main()
