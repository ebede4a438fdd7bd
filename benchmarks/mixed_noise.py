"""Noise of mixed precision as it is predicted, cause by cause, and as compiled networks show it.

    python benchmarks/mixed_noise.py [--networks NAME…] [--results FOLDER]

The noise of each network's tensors and algorithms is measured on two drawn inputs. For each of some
ratios of signal to noise, the fastest mixture by estimates is compiled, and compared with ONNX
Runtime on two other inputs. Estimates are those of a processor without tile registers whose dot
products of bfloat16 are twice as fast as singles: so are Zen 4's, and Winograd's forms are worth it
there. Other programs may run meanwhile: only the solver is timed, and it is slower then. Results
are stored network by network; the same command continues where it stopped. The tables are written
to docs/benchmarks-mixed-precision.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from kept import Item, kept, once
from pages import marks, replace_between, table
from tilewright.core.records import Placement
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.device import local_placement
from tilewright.measure.checking import compare_runs
from tilewright.measure.networks import NetworkWorker
from tilewright.measure.noise import measured_noise
from tilewright.measure.peers.base import make_peer
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions
from tilewright.models.calibration import NoiseInputs, noise_inputs
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.assignment.budgeted import Front
from tilewright.plan.mixture import Mixture
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import PlanResult, mixed_plan
from tilewright.plan.preparation import prepare
from tilewright.search.layout_costs import LayoutCosts

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/benchmarks-mixed-precision.md"
NETWORKS = (
    "resnet18", "resnet50", "vgg19_bn", "densenet201", "inception_v3", "mobilenet_v2",
    "ssd_resnet50_512", "squeezenet1_1", "googlenet",
)  # fmt: skip
RATIOS_DB = (70, 65, 60, 55, 52, 50, 47, 45, 42, 30)
MIXED = ModelOptions(precision="auto")
CLOSE_DB = 1.5
TABLES = marks("mixed precision")


def with_fast_halves(placement: Placement) -> Placement:
    """The placement as if dot products of bfloat16 were twice as fast as singles, without tiles and
    arithmetic on float16."""
    target = placement.target
    singles = target.operations_per_cycle("float32")
    units = tuple(
        replace(unit, operations_per_cycle=2 * singles) if unit.element == "bfloat16" else unit
        for unit in target.units
        if unit.granule[0] == 1 and unit.element != "float16"
    )
    return replace(placement, device=replace(placement.device, target=replace(target, units=units)))


def costs_at(placement: Placement) -> LayoutCosts:
    """Estimates at a placement, of kernels with any error."""
    return LayoutCosts(placement=placement, max_error=float("inf"))


class Mixtures:
    """The mixtures of one network at a placement, and what they show on the inputs that judge
    them."""

    def __init__(self, name: str, planned: Placement) -> None:
        self.here = allowing(local_placement(None), MIXED)
        self.planned = planned
        self.network: PreparedNetwork = prepare(f"zoo:{name}", MIXED, self.planned)
        self.inputs: NoiseInputs = noise_inputs(self.network.model.graph, None, 0)
        began = perf_counter()
        self.noise = measured_noise(self.network.fused, self.planned, self.inputs.fitted)
        self.noise_s = perf_counter() - began
        self.costs = costs_at(planned)
        self.expected = self._expected()
        self.shown_db: dict[str, float] = {}

    def chosen(self, ratio_db: float, costs: LayoutCosts) -> tuple[Mixture, PlanResult, Front]:
        """The fastest mixture for a ratio by estimates, and the front that it is from."""
        mixture = Mixture(noise=self.noise, allowed=self.noise.allowed(0.0, ratio_db))
        problem = NetworkProblem(
            network=self.network.fused,
            usual=self.network.forms,
            placement=costs.placement,
            times=costs,
            mixture=mixture,
        )
        return mixture, *mixed_plan(problem, "chosen", "auto")

    def at(self, ratio_db: float) -> Item:
        """The fastest mixture for a ratio, and the ratio that it has."""
        mixture, found, front = self.chosen(ratio_db, self.costs)
        assert found.solution is not None
        calls = {c.name: (c.candidate.implementation, c.candidate.forms) for c in found.plan.calls}
        powers = mixture.powers(self.network.fused, calls)
        total = self.noise.total((each, 1.0) for each in powers.values())
        of_winograd = [p for name, p in powers.items() if "winograd" in calls[name][0]]
        winograd = self.noise.total((each, 1.0) for each in of_winograd)
        shares = [a / b for a, b in zip(winograd, total, strict=True) if b > 0]
        return {
            "allowed_db": ratio_db,
            "predicted_db": self.noise.sqnr_db(total),
            "measured_db": self.shown(found.plan),
            "used": front.chosen.noise,
            "budget": mixture.budget,
            "estimated_s": found.solution.objective_s,
            "gap": found.solution.gap,
            "solve_s": found.solution.solve_s,
            "winograd_share": max(shares, default=0.0),
        }

    def _expected(self) -> list[list[np.ndarray]]:
        peer, model = make_peer("onnxruntime"), self.network.model
        try:
            peer.start(model.onnx_path, self.here.resources.threads, self.here.binding.cpus)
            results = [peer.run(each) for each in self.inputs.judged]
        finally:
            peer.stop()
        return [[each[name] for name in model.outputs] for each in results]

    def shown(self, plan: NetworkPlan) -> float:
        """The ratio of a compiled plan; one that was compiled before is not again."""
        graph, mark = self.network.graph, repr((plan.candidates, plan.tensors))
        if mark not in self.shown_db:
            with TemporaryDirectory() as folder, NetworkWorker(self.here) as worker:
                worker.compile(plan, graph.constants, Path(folder))
                worker.load("mixed", Path(folder), plan.constant_names)
                given = [[each[name] for name in graph.inputs] for each in self.inputs.judged]
                ours = [worker.run("mixed", each) for each in given]
            check = compare_runs(ours, self.expected, graph.outputs)
            self.shown_db[mark] = check.sqnr_db or 0.0
        return self.shown_db[mark]


def run_network(name: str) -> Item:
    """All mixtures of a network."""
    mixtures = Mixtures(name, with_fast_halves(allowing(local_placement(None), MIXED)))
    rows: list[Item] = []
    for ratio_db in RATIOS_DB:
        rows.append(mixtures.at(ratio_db))
        print(name, rows[-1], flush=True)
    return {"network": name, "noise_s": mixtures.noise_s, "rows": rows}


def distinct(item: Item) -> list[Item]:
    """The mixtures that are not the one before, and have halves."""
    rows, found = item["rows"], list[Item]()
    for row in rows:
        if row["predicted_db"] < 300.0 and (
            not found or row["predicted_db"] != found[-1]["predicted_db"]
        ):
            found.append(row)
    return found


def off_db(row: Item) -> float:
    """By how much noise is less than was predicted."""
    return row["measured_db"] - row["predicted_db"]


def cells(item: Item) -> list[str]:
    """A network's row: how far each prediction is off, and what the solver took."""
    seen = {row["allowed_db"]: row for row in distinct(item)}
    offs = [f"{off_db(seen[db]):+.1f}" if db in seen else "" for db in RATIOS_DB]
    share = max(row["winograd_share"] for row in item["rows"])
    solved = f"{max(row['solve_s'] for row in item['rows']):.2f} s"
    gap = f"{max(row['gap'] for row in item['rows']):.2%}"
    return [item["network"], *offs, f"{share:.0%}", f"{item['noise_s']:.0f} s", solved, gap]


def summary(items: Sequence[Item]) -> str:
    """What the table says over all networks."""
    every = [row for item in items for row in distinct(item)]
    offs = sorted(abs(off_db(row)) for row in every)
    close = sum(off <= CLOSE_DB for off in offs)
    broken = sum(row["used"] > row["budget"] for row in every)
    short = sum(row["measured_db"] < row["allowed_db"] for row in every)
    return (
        f"Of {len(every)} mixtures, {close} ({close / len(every):.0%}) have a ratio within "
        f"{CLOSE_DB} dB of the predicted one; the median is off by {offs[len(offs) // 2]:.2f} dB, "
        f"the worst by {offs[-1]:.2f} dB. {broken} of the choices are beyond their budget, "
        f"{short} of the compiled networks beyond the ratio."
    )


def write_table(results: Path) -> None:
    """Replace the page's table by what was measured so far."""
    items = kept(results / f"{name}.json" for name in NETWORKS)
    ratios = [f"{db} dB" for db in RATIOS_DB]
    header = ("network", *ratios, "Winograd's share", "measuring noise", "solver", "gap")
    replace_between(PAGE, TABLES, f"{table(header, map(cells, items))}\n\n{summary(items)}")


def main() -> None:
    """Measure what is not there yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--results", type=Path, default=HERE / "results" / "mixed_noise")
    arguments = parser.parse_args()
    for name in arguments.networks:
        once(arguments.results / f"{name}.json", partial(run_network, name))
    write_table(arguments.results)


if __name__ == "__main__":
    main()
