"""Mixtures with float16 and without, and each type alone: what networks take, and their noise.

    python benchmarks/mixed_float16.py [--networks NAME…] [--results FOLDER] [--table]

For each of three ratios of signal to noise the fastest mixture by estimates is compiled twice, with
float16 among its types and without, beside the default plans in float32, float16 and bfloat16. All
plans of a network are timed in turn, and compared with ONNX Runtime on inputs that their noise was
not measured on. It takes a processor that multiplies both types, and no other program may run
meanwhile. Results are stored network by network; the same command continues where it stopped. The
table is written to docs/benchmarks-mixed-precision.md; with --table only that.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from kept import Item, kept, once
from mixed_noise import HERE, MIXED, PAGE, Mixtures, costs_at
from pages import marks, replace_between, table
from tilewright.core.errors import TargetError
from tilewright.core.records import Placement
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.device import local_placement
from tilewright.kernels.halves import half_types
from tilewright.measure.checking import compare_runs
from tilewright.measure.network_timing import network_runner, time_together
from tilewright.measure.networks import NetworkWorker
from tilewright.measure.targeting import allowing
from tilewright.models.loaded import ModelOptions
from tilewright.plan.preparation import prepare

NETWORKS = ("resnet50", "mobilenet_v2", "inception_v3", "vit_b16")
RATIOS_DB = (50, 55, 60)
ALONE = ("float32", "float16", "bfloat16")
HEADER = (
    "network", "float32", "float16 alone", "bfloat16 alone", "within", "with float16", "without",
    "speed-up over without", "over float32",
)  # fmt: skip
TABLES = marks("float16 between")


def without_float16(placement: Placement) -> Placement:
    """The placement as if it had no arithmetic on float16."""
    target = placement.target
    units = tuple(unit for unit in target.units if unit.element != "float16")
    return replace(placement, device=replace(placement.device, target=replace(target, units=units)))


def plans_of(name: str, mixtures: Mixtures) -> dict[str, NetworkPlan]:
    """The plans of a network that are compared."""
    found: dict[str, NetworkPlan] = {}
    for precision in ALONE:
        options = ModelOptions(precision=precision)
        placement = allowing(local_placement(None), options)
        found[precision] = prepare(f"zoo:{name}", options, placement).plan
    costs = {"with": mixtures.costs, "without": costs_at(without_float16(mixtures.here))}
    for ratio_db in RATIOS_DB:
        for kind, times in costs.items():
            _, result, _ = mixtures.chosen(ratio_db, times)
            found[f"{ratio_db} dB {kind}"] = result.plan
    return found


def compared(mixtures: Mixtures, plans: Mapping[str, NetworkPlan]) -> Item:
    """Each plan compiled, its ratio, and its seconds, all timed in turn."""
    graph = mixtures.network.graph
    judged = [[each[name] for name in graph.inputs] for each in mixtures.inputs.judged]
    shown_db: dict[str, float] = {}
    with ExitStack() as stack:
        worker = stack.enter_context(NetworkWorker(mixtures.here))
        for name, plan in plans.items():
            folder = Path(stack.enter_context(TemporaryDirectory()))
            worker.compile(plan, graph.constants, folder)
            worker.load(name, folder, plan.constant_names)
            ours = [worker.run(name, each) for each in judged]
            check = compare_runs(ours, mixtures.expected, graph.outputs)
            shown_db[name] = check.sqnr_db or 0.0
        runners = {name: network_runner(worker, name, judged[0]) for name in plans}
        timings = time_together(runners)
    return {"seconds": {n: t.latency_s for n, t in timings.items()}, "shown_db": shown_db}


def run_network(name: str) -> Item:
    """Times and ratios of all plans of a network. Raises TargetError where the processor does not
    multiply both types."""
    here = allowing(local_placement(None), MIXED)
    if "float16" not in half_types(here):
        raise TargetError(f"{here.target.model} does not multiply float16")
    mixtures = Mixtures(name, here)
    found = {"network": name, **compared(mixtures, plans_of(name, mixtures))}
    print(found, flush=True)
    return found


def rows(item: Item) -> list[list[str]]:
    """A network's rows, one for each ratio."""
    seconds, shown_db = item["seconds"], item["shown_db"]

    def told(name: str) -> str:
        return f"{1e3 * seconds[name]:.3g} ms ({shown_db[name]:.1f} dB)"

    single = f"{1e3 * seconds['float32']:.3g} ms"
    first = [item["network"], single, told("float16"), told("bfloat16")]
    found: list[list[str]] = []
    for ratio_db in RATIOS_DB:
        mixed, other = (f"{ratio_db} dB {kind}" for kind in ("with", "without"))
        gains = [f"{seconds[name] / seconds[mixed]:.2f}" for name in (other, "float32")]
        head = [""] * len(first) if found else first
        found.append([*head, f"{ratio_db} dB", told(mixed), told(other), *gains])
    return found


def main() -> None:
    """Measure what is not there yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--results", type=Path, default=HERE / "results" / "mixed_float16")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    for name in () if arguments.table else arguments.networks:
        once(arguments.results / f"{name}.json", partial(run_network, name))
    items = kept(arguments.results / f"{name}.json" for name in NETWORKS)
    replace_between(PAGE, TABLES, table(HEADER, [row for item in items for row in rows(item)]))


if __name__ == "__main__":
    main()
